//! The environment of a command: an allow-list of the runner's own, what the user named, and the facts of the attempt. Nothing
//! else gets through, so that no token of the runner does.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use ekiden_core::pool::Timeout;

use super::folder::Folder;
use crate::context::Context;

/// What every command gets of the runner's environment; all that begins with `LC_` as well.
pub const ALLOWED: [&str; 9] = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TERM"];

/// 96 KiB: Linux takes no single variable beyond 128 KiB. What is longer is on stdin alone.
const VALUE_BYTES_MAX: usize = 96 * 1024;

/// The label of a task that carries a trace into its command.
const TRACEPARENT: &str = "traceparent";

/// What of the runner's environment gets through.
pub(super) fn allowed(all: impl Iterator<Item = (OsString, OsString)>, kept: &[String]) -> Vec<(OsString, OsString)> {
    let is_kept = |name: &OsStr| {
        ALLOWED.iter().any(|allowed| name == *allowed)
            || name.as_bytes().starts_with(b"LC_")
            || kept.iter().any(|kept| name == kept.as_str())
    };
    all.filter(|(name, _)| is_kept(name)).collect()
}

/// The facts of an attempt.
pub(super) fn facts(context: &Context, folder: &Folder, payload: &[u8]) -> Vec<(OsString, OsString)> {
    let spec = context.task();
    let mut facts = vec![
        ("EKIDEN_TASK_ID", OsString::from(spec.id.as_str())),
        ("EKIDEN_TASK_TYPE", spec.envelope.task_type.as_str().into()),
        ("EKIDEN_NAMESPACE", spec.namespace.as_str().into()),
        ("EKIDEN_POOL", spec.pool.as_str().into()),
        ("EKIDEN_EXECUTION_NO", context.token().0.to_string().into()),
        ("EKIDEN_FENCING_TOKEN", context.token().0.to_string().into()),
        ("EKIDEN_ATTEMPT", context.attempt().to_string().into()),
        ("EKIDEN_RESULT", folder.result().into()),
        ("EKIDEN_EVENTS", folder.events().into()),
    ];
    let mut text = |name: &'static str, value: Option<&str>| {
        let fits = |value: &&str| value.len() <= VALUE_BYTES_MAX && !value.contains('\0');
        facts.extend(value.filter(fits).map(|value| (name, OsString::from(value))));
    };
    text("EKIDEN_PROMPT", prompt(payload).as_deref());
    text("EKIDEN_ANSWER", context.answer().map(|answer| &*answer.content));
    let trace = spec.labels.get(TRACEPARENT).map(|trace| &**trace);
    text("EKIDEN_TRACEPARENT", trace);
    text("TRACEPARENT", trace);
    if let Timeout::After(limit) = spec.policy.timeout {
        text("EKIDEN_DEADLINE", Some(&(context.shown() + limit).to_string()));
    }
    facts.into_iter().map(|(name, value)| (name.into(), value)).collect()
}

/// The text that agents are started with, where the payload has one.
fn prompt(payload: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Prompted {
        prompt: String,
    }
    serde_json::from_slice::<Prompted>(payload).ok().map(|prompted| prompted.prompt)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// X6: what is not on the list does not get through, whatever it is called.
    #[test]
    fn only_what_is_allowed_or_named_gets_through() {
        let pair = |name: &str| (OsString::from(name), OsString::from("x"));
        let all = ["PATH", "LC_ALL", "EKIDEN_TOKEN", "AWS_SECRET_ACCESS_KEY", "XPATH", "MINE", "lc_x"].map(pair);
        let kept = allowed(all.into_iter(), &["MINE".to_owned()]);
        let names: Vec<_> = kept.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ["PATH", "LC_ALL", "MINE"]);
    }

    /// X6: the list that is documented is the list.
    #[test]
    fn the_documentation_has_the_list() {
        let page = include_str!("../../../../docs/commands.md");
        assert!(ALLOWED.iter().all(|name| page.contains(&format!("`{name}`"))));
    }

    #[test]
    fn a_prompt_is_a_text_of_that_name() {
        assert_eq!(prompt(br#"{"prompt":"hello","x":1}"#).as_deref(), Some("hello"));
        for other in [&b"{}"[..], b"null", b"\xff", br#"{"prompt":3}"#] {
            assert_eq!(prompt(other), None);
        }
    }
}
