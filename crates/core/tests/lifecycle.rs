//! The complete table phase × event: asserted cell by cell, and drawn into `docs/lifecycle.md`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use ekiden_core::event::EventName;
use ekiden_core::lifecycle::WORDS;
use ekiden_core::task::Phase;
use ekiden_core::transition::{Decision, decide};

mod samples;
use samples::{LATER, events, tasks};

/// What every event does in every phase, over all samples: a phase, `done` (already done), `–` (does not concern the
/// task), or the reason why it is refused. Written by hand, from the design; the code must agree.
const EXPECTED: &[(&str, [&str; 9])] = &[
    ("enqueued", ["TASK_EXISTS"; 9]),
    (
        "released",
        ["blocked queued", "DEPENDENCY_UNMET queued", "–", "–", "–", "–", "TASK_FINAL", "TASK_FINAL", "TASK_CANCELLED"],
    ),
    ("dependency_met", ["pending –", "blocked queued –", "–", "–", "–", "–", "–", "–", "–"]),
    ("dependency_failed", ["cancelled pending –", "blocked cancelled queued –", "–", "–", "–", "–", "–", "–", "–"]),
    ("became_due", ["–", "–", "queued –", "queued –", "–", "–", "–", "–", "–"]),
    (
        "claimed",
        [
            "TASK_NOT_CLAIMABLE",
            "TASK_NOT_CLAIMABLE",
            "BEHIND_LANE EXPIRED NOT_DUE running",
            "BEHIND_LANE EXPIRED NOT_DUE running",
            "TASK_NOT_CLAIMABLE done",
            "TASK_NOT_CLAIMABLE",
            "TASK_FINAL",
            "TASK_FINAL",
            "TASK_CANCELLED",
        ],
    ),
    (
        "succeeded",
        [
            "TASK_NOT_RUNNING",
            "TASK_NOT_RUNNING",
            "LEASE_LOST TASK_NOT_RUNNING succeeded",
            "LEASE_LOST TASK_NOT_RUNNING succeeded",
            "LEASE_LOST succeeded",
            "LEASE_LOST TASK_NOT_RUNNING",
            "TASK_FINAL done",
            "TASK_FINAL",
            "TASK_CANCELLED",
        ],
    ),
    (
        "failed",
        [
            "TASK_NOT_RUNNING",
            "TASK_NOT_RUNNING",
            "LEASE_LOST TASK_NOT_RUNNING dead done retry_scheduled",
            "LEASE_LOST TASK_NOT_RUNNING dead done retry_scheduled",
            "LEASE_LOST dead done retry_scheduled",
            "LEASE_LOST TASK_NOT_RUNNING",
            "TASK_FINAL",
            "TASK_FINAL done",
            "TASK_CANCELLED",
        ],
    ),
    (
        "snoozed",
        [
            "TASK_NOT_RUNNING",
            "TASK_NOT_RUNNING",
            "LEASE_LOST TASK_NOT_RUNNING done queued",
            "LEASE_LOST TASK_NOT_RUNNING queued",
            "LEASE_LOST queued",
            "LEASE_LOST TASK_NOT_RUNNING",
            "TASK_FINAL",
            "TASK_FINAL",
            "TASK_CANCELLED",
        ],
    ),
    (
        "timed_out",
        [
            "TASK_NOT_RUNNING",
            "TASK_NOT_RUNNING",
            "LEASE_LOST TASK_NOT_RUNNING retry_scheduled",
            "LEASE_LOST TASK_NOT_RUNNING retry_scheduled",
            "LEASE_LOST dead retry_scheduled",
            "LEASE_LOST TASK_NOT_RUNNING",
            "TASK_FINAL",
            "TASK_FINAL",
            "TASK_CANCELLED",
        ],
    ),
    ("lease_lost", ["–", "–", "–", "–", "LEASE_ALIVE dead queued", "–", "–", "–", "LEASE_ALIVE cancelled –"]),
    (
        "interrupted",
        [
            "TASK_NOT_RUNNING",
            "TASK_NOT_RUNNING",
            "LEASE_LOST TASK_NOT_RUNNING queued",
            "LEASE_LOST TASK_NOT_RUNNING queued",
            "LEASE_LOST queued",
            "LEASE_LOST TASK_NOT_RUNNING",
            "TASK_FINAL",
            "TASK_FINAL",
            "TASK_CANCELLED",
        ],
    ),
    (
        "returned",
        [
            "TASK_NOT_RUNNING",
            "TASK_NOT_RUNNING",
            "LEASE_LOST TASK_NOT_RUNNING queued",
            "LEASE_LOST TASK_NOT_RUNNING queued",
            "LEASE_LOST queued",
            "LEASE_LOST TASK_NOT_RUNNING",
            "TASK_FINAL",
            "TASK_FINAL",
            "TASK_CANCELLED",
        ],
    ),
    (
        "asked",
        [
            "TASK_NOT_RUNNING",
            "TASK_NOT_RUNNING",
            "LEASE_LOST TASK_NOT_RUNNING done needs_input",
            "LEASE_LOST TASK_NOT_RUNNING needs_input",
            "LEASE_LOST needs_input",
            "TASK_NOT_RUNNING done",
            "TASK_FINAL",
            "TASK_FINAL",
            "TASK_CANCELLED",
        ],
    ),
    (
        "answered",
        [
            "TASK_NOT_ASKING",
            "TASK_NOT_ASKING",
            "QUESTION_CLOSED TASK_NOT_ASKING done",
            "TASK_NOT_ASKING",
            "TASK_NOT_ASKING",
            "QUESTION_CLOSED queued",
            "TASK_NOT_ASKING",
            "TASK_NOT_ASKING",
            "TASK_NOT_ASKING",
        ],
    ),
    (
        "cancel_requested",
        [
            "cancelled",
            "cancelled",
            "cancelled",
            "cancelled",
            "cancelled",
            "cancelled",
            "TASK_FINAL",
            "TASK_FINAL",
            "done",
        ],
    ),
    (
        "attempt_ended",
        [
            "TASK_NOT_CANCELLED",
            "TASK_NOT_CANCELLED",
            "TASK_NOT_CANCELLED",
            "TASK_NOT_CANCELLED",
            "TASK_NOT_CANCELLED",
            "TASK_NOT_CANCELLED",
            "TASK_NOT_CANCELLED",
            "TASK_NOT_CANCELLED",
            "LEASE_LOST cancelled done",
        ],
    ),
    (
        "retry_requested",
        [
            "TASK_HELD",
            "TASK_HELD",
            "–",
            "queued",
            "RUN_IN_PROGRESS",
            "TASK_HELD",
            "TASK_FINAL",
            "TASK_FINAL queued",
            "TASK_CANCELLED",
        ],
    ),
    ("expired", ["dead –", "dead –", "dead –", "dead –", "–", "dead queued –", "–", "–", "–"]),
];

/// R5
#[test]
fn every_cell_of_phase_and_event_is_as_designed() {
    let table = table();
    assert_eq!(EXPECTED.len(), EventName::ALL.len(), "every event has a row");
    let mut wrong = String::new();
    for (event, row) in EXPECTED {
        for (phase, expected) in Phase::ALL.iter().zip(row) {
            let found = table
                .get(&(*event, *phase))
                .map_or_else(String::new, |cell| cell.iter().cloned().collect::<Vec<_>>().join(" "));
            if found != *expected {
                let _ = writeln!(wrong, "{event} in {phase}: expected {expected:?}, got {found:?}");
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// R5
#[test]
fn the_lifecycle_document_is_drawn_from_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lifecycle.md");
    let drawn = document();
    if std::env::var_os("EKIDEN_BLESS").is_some() {
        std::fs::write(&path, &drawn).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == drawn, "docs/lifecycle.md is not what the code says; EKIDEN_BLESS=1 writes it anew");
}

/// Every phase that a task can reach is a final one or leads on, and a final phase is left only by a retry.
#[test]
fn final_phases_are_left_only_by_a_retry() {
    for ((event, phase), cell) in table() {
        let moved = cell.iter().any(|result| Phase::ALL.iter().any(|to| to.as_str() == result && *to != phase));
        if phase.is_final() && moved {
            assert_eq!((event, phase), ("retry_requested", Phase::Dead));
        }
    }
}

fn table() -> BTreeMap<(&'static str, Phase), BTreeSet<String>> {
    let mut table: BTreeMap<(&'static str, Phase), BTreeSet<String>> = BTreeMap::new();
    for task in tasks() {
        for event in events(&task) {
            let cell = table.entry((event.name().as_str(), task.state.phase)).or_default();
            cell.insert(match decide(&task, &event, LATER) {
                Ok(Decision::Change(change)) => change.state.phase.as_str().to_owned(),
                Ok(Decision::AlreadyDone) => "done".to_owned(),
                Ok(Decision::NothingToDo) => "–".to_owned(),
                Err(refusal) => refusal.code.as_str().to_owned(),
            });
        }
    }
    table
}

fn document() -> String {
    let mut text = String::from(
        "# Life of a task\n\nDrawn from `crates/core/src/transition.rs` by the test `crates/core/tests/lifecycle.rs`; do not edit by hand.\n\n",
    );
    let table = table();
    text.push_str("## Diagram\n\nSolid lines change the phase. What is refused or changes nothing is in the table below.\n\n```mermaid\nstateDiagram-v2\n    [*] --> pending: enqueued, held\n    [*] --> blocked: enqueued, with open parents\n    [*] --> queued: enqueued\n");
    for from in Phase::ALL {
        for to in Phase::ALL.into_iter().filter(|to| *to != from) {
            let events: Vec<&str> = EventName::ALL
                .iter()
                .map(|event| event.as_str())
                .filter(|event| table.get(&(*event, from)).is_some_and(|cell| cell.contains(to.as_str())))
                .collect();
            if !events.is_empty() {
                let _ = writeln!(text, "    {from} --> {to}: {}", events.join(", "));
            }
        }
    }
    for end in Phase::ALL.into_iter().filter(|phase| phase.is_final()) {
        let _ = writeln!(text, "    {end} --> [*]");
    }
    text.push_str("```\n\n## Table\n\nA cell names what can come of an event in a phase: the next phase, *done* (the same happened before), – (it does not\nconcern the task), or the reason code of the refusal. Which of them depends on the task, as the rules below say.\n\n");
    draw_table(&mut text, &table);
    text.push_str(RULES);
    draw_words(&mut text);
    text
}

fn draw_table(text: &mut String, table: &BTreeMap<(&'static str, Phase), BTreeSet<String>>) {
    let head: Vec<String> = Phase::ALL.iter().map(|phase| format!("`{phase}`")).collect();
    let _ = writeln!(text, "| event | {} |\n|---|{}", head.join(" | "), "---|".repeat(9));
    for event in EventName::ALL {
        let cells = Phase::ALL.iter().map(|phase| {
            let cell = table.get(&(event.as_str(), *phase)).cloned().unwrap_or_default();
            let (phases, rest): (Vec<_>, Vec<_>) =
                cell.into_iter().partition(|result| Phase::ALL.iter().any(|p| p.as_str() == result));
            let (words, codes): (Vec<_>, Vec<_>) =
                rest.into_iter().partition(|result| result == "done" || result == "–");
            let phases = phases.into_iter().map(|phase| format!("**{phase}**"));
            let words = words.into_iter().map(|word| if word == "done" { "*done*".to_owned() } else { word });
            phases.chain(words).chain(codes).collect::<Vec<_>>().join("<br>")
        });
        let _ = writeln!(text, "| `{}` | {} |", event.as_str(), cells.collect::<Vec<_>>().join(" | "));
    }
}

fn draw_words(text: &mut String) {
    text.push_str("\n## Words of the documents\n\n\"(ours)\" marks words that the document does not know and that its programs pass over.\n\n");
    text.push_str(
        "| phase | when | 000 `status` | 001 | 002 `status` | 003 `state` | 004 |\n|---|---|---|---|---|---|---|\n",
    );
    for words in WORDS {
        let or_dash = |word: Option<&'static str>| word.unwrap_or("–");
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {} |",
            words.phase,
            words.when,
            words.queue_store,
            or_dash(words.task_queue),
            words.orchestrator,
            or_dash(words.delivery),
            or_dash(words.locks)
        );
    }
}

const RULES: &str = "
## Rules that the table keeps

- `attempts` is the budget; `execution_no` only rises and is the fencing token. Snoozed, interrupted, returned and asked
  attempts are not spent; failed, timed out, crashed and lost ones are.
- A settlement (`succeeded`, `failed`, `snoozed`, `timed_out`, `interrupted`, `returned`, `asked`) needs the token of the
  attempt. Another token gets `LEASE_LOST`; the same settlement again is *done*.
- `lease_lost` needs evidence, or it is refused with `LEASE_ALIVE`. It keeps the token on the task: until the next claim or a
  final phase its holder may still settle, which is the late ack in `queued` and `retry_scheduled`.
- A cancel is final at once. Lane place, running count and holder entry of a running attempt are freed by `attempt_ended` or
  `lease_lost`, so that a process which still runs never overlaps its successor.
- `dead` is left only where the pool's policy says `reopen`; elsewhere a retry makes a new task that points at the old one.
- `expired` in `needs_input` means the question's deadline: its default answer counts, or the task is dead.
";
