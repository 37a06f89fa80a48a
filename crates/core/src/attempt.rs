//! Attempts and history: what happened to a task, bounded, inside its state.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::EventName;
use crate::id::RunnerId;
use crate::lease::Token;
use crate::limits;
use crate::newer::Newer;
use crate::reason::ReasonCode;
use crate::task::{Phase, State};
use crate::time::Timestamp;

macro_rules! outcomes {
    ($($(#[$doc:meta])* $name:ident = $field:ident,)+) => {
        /// How an attempt ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Outcome { $($(#[$doc])* $name,)+ }

        impl Outcome {
            /// Every outcome.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stable text form.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($field),)+ }
            }
        }

        /// How often attempts ended in each way, also those no longer kept in full.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct OutcomeCounts { $($(#[$doc])* #[serde(skip_serializing_if = "is_zero")] pub $field: u32,)+ }

        impl OutcomeCounts {
            /// The count of one outcome.
            pub const fn get(&self, outcome: Outcome) -> u32 {
                match outcome { $(Outcome::$name => self.$field,)+ }
            }

            /// Sets the count of an outcome by its name; a name that is not known is passed over.
            pub fn set(&mut self, name: &str, count: u32) {
                match name { $(stringify!($field) => self.$field = count,)+ _ => {} }
            }

            fn cell(&mut self, outcome: Outcome) -> &mut u32 {
                match outcome { $(Outcome::$name => &mut self.$field,)+ }
            }
        }
    };
}

outcomes! {
    /// The handler returned well.
    Succeeded = succeeded,
    /// The handler returned an error, or panicked.
    Failed = failed,
    /// Its process died.
    Crashed = crashed,
    /// Its lease was lost.
    Lost = lost,
    /// It took too long.
    TimedOut = timed_out,
    /// Its runner shut down.
    Interrupted = interrupted,
    /// It was given back before it began.
    Returned = returned,
    /// It asked a question.
    Asked = asked,
    /// It asked to be run later.
    Snoozed = snoozed,
    /// It was cancelled.
    Cancelled = cancelled,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// How far the end of a cancelled attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The work was told to stop.
    Signalled,
    /// Its main process is gone.
    Exited,
    /// Nothing of it is left.
    Verified,
}

/// One execution of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number, which is also its fencing token.
    pub execution_no: u64,
    /// Who ran it.
    pub runner: RunnerId,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// How it ended; `None` while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// How far its cancelled work has come to an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

impl Attempt {
    /// Whether it is under way; that of a cancelled task may be.
    pub const fn is_open(&self) -> bool {
        self.finished_at.is_none()
    }
}

/// Whether who holds this token may add to the log of an attempt: its own, the latest, until a moment after its end.
pub fn check_output(attempts: &[Attempt], execution_no: u64, token: Token, now: Timestamp) -> Result<(), ReasonCode> {
    let latest = attempts.last().filter(|latest| latest.execution_no == execution_no && token.0 == execution_no);
    match latest.ok_or(ReasonCode::LeaseLost)?.finished_at {
        Some(ended) if now.since(ended) > limits::OUTPUT_LATE_MAX => Err(ReasonCode::TaskNotRunning),
        _ => Ok(()),
    }
}

/// One change of a task's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub event: EventName,
    /// The phase after it.
    pub phase: Phase,
    /// The latest attempt then.
    pub execution_no: u64,
    /// A word to it, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Arc<str>>,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

impl State {
    /// Opens the record of a new attempt; the oldest one gives way.
    pub(crate) fn open_attempt(&mut self, runner: RunnerId, now: Timestamp) {
        if self.recent.len() == limits::ATTEMPTS_KEPT_MAX {
            self.recent.remove(0);
        }
        self.recent.push(Attempt {
            execution_no: self.execution_no,
            runner,
            started_at: now,
            finished_at: None,
            outcome: None,
            error: None,
            stage: None,
            newer: Newer::NONE,
        });
    }

    /// Writes how an attempt ended. A late settlement replaces what was recorded when the lease was lost.
    pub(crate) fn close_attempt(
        &mut self,
        execution_no: u64,
        outcome: Outcome,
        error: Option<Arc<str>>,
        now: Timestamp,
    ) {
        let found = self.recent.iter_mut().rev().find(|attempt| attempt.execution_no == execution_no);
        if let Some(attempt) = found {
            if let Some(earlier) = attempt.outcome.replace(outcome) {
                let count = self.outcomes.cell(earlier);
                *count = count.saturating_sub(1);
            }
            attempt.finished_at = Some(now);
            attempt.error = error;
        }
        *self.outcomes.cell(outcome) += 1;
    }

    /// The recorded outcome of an attempt, if it is still kept.
    pub(crate) fn outcome_of(&self, execution_no: u64) -> Option<Outcome> {
        self.recent.iter().rev().find(|attempt| attempt.execution_no == execution_no)?.outcome
    }

    /// Adds a line of history; the oldest one gives way.
    pub(crate) fn note(&mut self, event: EventName, note: Option<Arc<str>>, now: Timestamp) {
        if self.history.len() == limits::HISTORY_LINES_MAX {
            self.history.remove(0);
        }
        self.history.push(HistoryLine {
            at: now,
            event,
            phase: self.phase,
            execution_no: self.execution_no,
            note,
            newer: Newer::NONE,
        });
        self.updated_at = now;
    }
}

/// Cuts an error message to its limit, at a character's edge.
pub fn clip(message: &str) -> Arc<str> {
    if message.len() <= limits::ERROR_BYTES_MAX {
        return Arc::from(message);
    }
    let end = message.floor_char_boundary(limits::ERROR_BYTES_MAX - '…'.len_utf8());
    let mut cut = message.get(..end).unwrap_or_default().to_owned();
    cut.push('…');
    Arc::from(cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_errors_are_cut_at_a_character() {
        let cut = clip(&"失敗".repeat(2_000));
        assert!(cut.len() <= limits::ERROR_BYTES_MAX && cut.ends_with('…'));
        assert_eq!(&*clip("short"), "short");
    }

    #[test]
    fn only_the_latest_attempts_holder_adds_to_its_log_and_not_for_long_after_its_end() {
        let attempt = |execution_no, finished_at| Attempt {
            execution_no,
            runner: RunnerId::new("r").unwrap(),
            started_at: Timestamp::ZERO,
            finished_at,
            outcome: None,
            error: None,
            stage: None,
            newer: Newer::NONE,
        };
        let end = Timestamp::from_millis(1_000);
        let check = |attempts: &[Attempt], number, token, now| check_output(attempts, number, Token(token), now);
        let running = [attempt(1, Some(end)), attempt(2, None)];
        assert_eq!(check(&running, 2, 2, end), Ok(()));
        assert_eq!(check(&running, 1, 1, end), Err(ReasonCode::LeaseLost), "another took over");
        assert_eq!(check(&running, 2, 1, end), Err(ReasonCode::LeaseLost), "that is not its log");
        assert_eq!(check(&[], 1, 1, end), Err(ReasonCode::LeaseLost));
        let ended = [attempt(1, Some(end))];
        assert_eq!(check(&ended, 1, 1, end + limits::OUTPUT_LATE_MAX), Ok(()));
        let later = end + limits::OUTPUT_LATE_MAX + crate::time::Millis::new(1);
        assert_eq!(check(&ended, 1, 1, later), Err(ReasonCode::TaskNotRunning));
    }
}
