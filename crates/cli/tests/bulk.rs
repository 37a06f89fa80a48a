//! Commands on many tasks: what they say they would do is what they do.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod lab;
mod running;

use lab::Lab;
use running::text;

/// R21: a preview counts what would change, not what matches; what was retried before is not retried again.
#[test]
fn a_dry_run_counts_what_would_change() {
    let lab = Lab::with_runner();
    for id in ["a", "b"] {
        lab.printed(&["task", "add", "job", r#"{"does":"die"}"#, "--id", id]);
    }
    lab.printed(&["task", "add", "job", r#"{"does":"succeed"}"#, "--id", "c"]);
    assert_eq!(lab.ended(&["task", "wait", "a", "b", "c"]).0, Some(1));
    let dry = |arguments: &[&str]| {
        let output = lab.run(&[&["task"], arguments, &["--dry-run", "-o", "id"]].concat());
        (text(&output.stdout), text(&output.stderr))
    };
    assert_eq!(dry(&["retry", "--all"]), ("b\na\n".to_owned(), "Would retry 2 tasks. Nothing was done.\n".to_owned()));
    assert_eq!(dry(&["retry", "--state", "succeeded"]).1, "Would retry 0 tasks. Nothing was done.\n");
    assert_eq!(dry(&["cancel", "--state", "succeeded,dead"]).1, "Would cancel 0 tasks. Nothing was done.\n");
    let again = lab.printed(&["task", "retry", "a", "-o", "id"]);
    assert_eq!(lab.ended(&["task", "wait", &again]).0, Some(1));
    let (ids, _) = dry(&["retry", "--all"]);
    assert_eq!(ids, format!("{again}\nb\n"), "what runs in its place is judged by itself");
}

/// R21: a command on many tasks can be limited to the young ones, and touches no other.
#[test]
fn a_bulk_command_can_be_limited_to_what_was_handed_in_since() {
    let lab = Lab::new();
    for id in ["a", "b", "c"] {
        lab.printed(&["task", "add", "x", "--id", id, "--hold"]);
    }
    let since = |span: &str, how: &str| lab.ended(&["task", "cancel", "--since", span, how]);
    assert_eq!(since("0ms", "--yes"), (Some(0), "No task matches that this would change.\n".to_owned()));
    assert!(since("1h", "--dry-run").1.contains("Would cancel 3 tasks."));
    assert_eq!(lab.ended(&["task", "cancel", "--since", "1h"]).0, Some(2), "it asks first");
    assert_eq!(lab.ended(&["task", "cancel", "a", "--since", "1h"]).0, Some(2), "either names or filters");
    assert_eq!(since("1h", "--yes"), (Some(0), "Cancelled 3 tasks.\n".to_owned()));
    assert!(lab.printed(&["counts"]).contains("cancelled\t3"));
}
