//! The words that the five documents have for the phases. Stores write these words; nothing decides by them.

use crate::task::Phase;

/// How a task in some situation is called in each document. `None` where the document has no word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// The phase.
    pub phase: Phase,
    /// What tells it from the phase's other rows; empty if it has only one.
    pub when: &'static str,
    /// `status` in the queue table (20_QUEUE_STORE).
    pub queue_store: &'static str,
    /// The state in the Rust task queue.
    pub task_queue: Option<&'static str>,
    /// `status` in the orchestrator's files.
    pub orchestrator: &'static str,
    /// `state` in the delivery queue.
    pub delivery: Option<&'static str>,
    /// The word of the lock specification.
    pub locks: Option<&'static str>,
}

const fn row(
    phase: Phase,
    when: &'static str,
    queue_store: &'static str,
    task_queue: Option<&'static str>,
    orchestrator: &'static str,
    delivery: Option<&'static str>,
    locks: Option<&'static str>,
) -> Words {
    Words { phase, when, queue_store, task_queue, orchestrator, delivery, locks }
}

/// Every situation that some document tells apart.
pub const WORDS: &[Words] = &[
    row(Phase::Pending, "", "HELD (ours)", None, "PENDING", Some("HELD (ours)"), Some("queued")),
    row(Phase::Blocked, "", "HELD (ours)", None, "BLOCKED", Some("HELD (ours)"), None),
    row(Phase::Queued, "due, never claimed", "QUEUED", Some("Queued"), "READY + job file", Some("PENDING"), None),
    row(
        Phase::Queued,
        "not due, or behind its lane",
        "HELD (ours)",
        Some("Queued"),
        "READY",
        Some("HELD (ours)"),
        None,
    ),
    row(Phase::Queued, "claimed before", "RUNNING", Some("Queued"), "READY + job file", Some("PENDING"), None),
    row(Phase::RetryScheduled, "", "RUNNING", Some("RetryScheduled"), "READY", Some("HELD (ours)"), None),
    row(Phase::Running, "", "RUNNING", Some("Running"), "RUNNING", Some("LOCKED"), Some("running")),
    row(Phase::NeedsInput, "", "AWAITING_RESPONSE (ours)", None, "BLOCKED + our mark", None, Some("NEEDS_INPUT")),
    row(Phase::Succeeded, "", "COMPLETE", Some("Succeeded"), "SUCCEEDED", Some("DELIVERED (ours)"), Some("DONE")),
    row(Phase::Dead, "", "ERROR", Some("Dead"), "FAILED", Some("DEAD (ours)"), Some("FAILED")),
    row(Phase::Cancelled, "", "CANCELLED", None, "CANCELED", Some("CANCELLED (ours)"), None),
];
