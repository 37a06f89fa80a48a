//! The checker: a history and what the store says at the end, held against the laws. It condemns only what is certain: an
//! unknown outcome may or may not have happened, and what overlaps may have come in either order.

use std::fmt;

use ekiden_core::id::TaskId;

use crate::facts::FinalState;
use crate::history::History;
use crate::laws;
use crate::timeline::Timeline;

/// What a run promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Law {
    /// No acknowledged task, success or cancellation is lost.
    Lost,
    /// No task is completed twice.
    CompletedTwice,
    /// No result of a stale holder is accepted.
    StaleResult,
    /// No task is stuck when everything has come to rest.
    Stuck,
    /// No enqueue that was repeated makes a second task.
    Duplicate,
    /// No cancelled task succeeds.
    CancelledSucceeded,
    /// No task is attempted more often than its budget allows.
    AttemptsExceeded,
    /// No more tasks of a lane run at once than it is wide.
    LaneOverlap,
    /// The tasks of a serial lane run in the order in which they came.
    LaneOrder,
    /// Fencing tokens rise, and no task has two live holders.
    Tokens,
    /// A cancelled attempt is called ended only when it has ended.
    EndedEarly,
    /// What was acknowledged before somebody looked at everything is there when he looks.
    Forgotten,
    /// An attempt is written down as it went.
    Misreported,
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "nothing acknowledged is lost",
            Self::CompletedTwice => "no task is completed twice",
            Self::StaleResult => "no result of a stale holder is accepted",
            Self::Stuck => "no task is stuck",
            Self::Duplicate => "a repeated enqueue makes no second task",
            Self::CancelledSucceeded => "no cancelled task succeeds",
            Self::AttemptsExceeded => "attempts stay within the limit",
            Self::LaneOverlap => "a lane never runs more than its width",
            Self::LaneOrder => "a serial lane keeps its order",
            Self::Tokens => "tokens rise and a task has one holder",
            Self::EndedEarly => "a cancelled attempt is called ended when it has ended",
            Self::Forgotten => "what was acknowledged before a restart is there after it",
            Self::Misreported => "an attempt is written down as it went",
        })
    }
}

/// A law that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one.
    pub law: Law,
    /// By what became of this task.
    pub task: TaskId,
    /// How, in a sentence.
    pub what: String,
    /// The lines of the history, and of the final state, that prove it.
    pub evidence: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "broken law: {}\n  task {}: {}", self.law, self.task, self.what)?;
        self.evidence.iter().try_for_each(|line| writeln!(f, "    {line}"))
    }
}

/// Everything in which a run broke a law; empty if it broke none.
pub fn check(history: &History, last: &FinalState) -> Vec<Violation> {
    let timeline = Timeline::new(history, last);
    laws::ALL.iter().flat_map(|law| law(&timeline)).collect()
}

/// Panics with the seed, every violation and its evidence if there is any.
#[track_caller]
pub fn verdict(seed: u64, history: &History, last: &FinalState) {
    let violations = check(history, last);
    let text: String = violations.iter().map(ToString::to_string).collect();
    assert!(
        violations.is_empty(),
        "seed {seed} (replay with EKIDEN_SEED={seed}): {} violations\n{text}",
        violations.len()
    );
}
