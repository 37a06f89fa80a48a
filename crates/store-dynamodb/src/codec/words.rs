//! The words of the document for our phases (DESIGN, "Life of a task"). A translation, no decision.

use ekiden_core::index::Index;
use ekiden_core::task::{Phase, Task};

/// May be claimed.
pub(crate) const QUEUED: &str = "QUEUED";
/// Somebody works on it, or it waits between two attempts.
pub(crate) const RUNNING: &str = "RUNNING";
/// Ended well.
pub(crate) const COMPLETE: &str = "COMPLETE";
/// Ended badly.
pub(crate) const ERROR: &str = "ERROR";
/// Ended by request.
pub(crate) const CANCELLED: &str = "CANCELLED";
/// Waits for an answer; an extension.
pub(crate) const AWAITING_RESPONSE: &str = "AWAITING_RESPONSE";
/// May not run yet; an extension.
pub(crate) const HELD: &str = "HELD";

/// The word for a task. Once it was claimed it is never QUEUED or HELD again: the document knows no way back from RUNNING.
pub(crate) fn status_of(task: &Task, index: &Index) -> &'static str {
    let waits = match (task.state.execution_no, &index.ready) {
        (0, Some(_)) => QUEUED,
        (0, None) => HELD,
        _ => RUNNING,
    };
    match task.state.phase {
        Phase::Pending | Phase::Blocked | Phase::Queued => waits,
        Phase::RetryScheduled | Phase::Running => RUNNING,
        Phase::NeedsInput => AWAITING_RESPONSE,
        Phase::Succeeded => COMPLETE,
        Phase::Dead => ERROR,
        Phase::Cancelled => CANCELLED,
    }
}

/// The phase that a word means where we know nothing else. Words that we do not know are left alone.
pub(crate) fn phase_of(status: &str) -> Option<Phase> {
    Some(match status {
        QUEUED => Phase::Queued,
        RUNNING => Phase::Running,
        COMPLETE => Phase::Succeeded,
        ERROR => Phase::Dead,
        CANCELLED => Phase::Cancelled,
        AWAITING_RESPONSE => Phase::NeedsInput,
        HELD => Phase::Pending,
        _ => return None,
    })
}
