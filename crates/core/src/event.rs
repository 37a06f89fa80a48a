//! Events: everything that can happen to a task, as data.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::attempt::Stage;
use crate::id::{OpId, QuestionId, RunnerId, TaskId};
use crate::lease::{Evidence, Token, Until};
use crate::reason::ReasonCode;
use crate::retry::FailureKind;
use crate::task::Question;
use crate::time::Millis;

/// Something that happened to a task, or that somebody wants to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was handed in. Legal only as a birth ([`crate::transition::birth`]).
    Enqueued,
    /// Its hold was lifted.
    Released,
    /// A parent succeeded.
    DependencyMet {
        /// The parent.
        parent: TaskId,
    },
    /// A parent ended without success.
    DependencyFailed {
        /// The parent.
        parent: TaskId,
    },
    /// Its time has come.
    BecameDue,
    /// A runner took it.
    Claimed {
        /// The claim.
        claim: OpId,
        /// Who.
        holder: RunnerId,
        /// For how long.
        until: Until,
        /// Whether the pool's running counter was raised.
        counted: bool,
    },
    /// The attempt ended well.
    Succeeded {
        /// Whose attempt.
        token: Token,
        /// What it returned.
        result: Option<Bytes>,
    },
    /// The attempt ended badly.
    Failed {
        /// Whose attempt.
        token: Token,
        /// What to make of it.
        kind: FailureKind,
        /// What went wrong.
        error: Arc<str>,
    },
    /// The attempt wants to be repeated later and spends nothing.
    Snoozed {
        /// Whose attempt.
        token: Token,
        /// How much later.
        delay: Millis,
    },
    /// The attempt took too long.
    TimedOut {
        /// Whose attempt.
        token: Token,
    },
    /// The holder is gone.
    LeaseLost {
        /// How we know.
        evidence: Evidence,
    },
    /// The holder shut down in the middle.
    Interrupted {
        /// Whose attempt.
        token: Token,
    },
    /// The holder gave it back before it began.
    Returned {
        /// Whose attempt.
        token: Token,
    },
    /// The attempt ended with a question.
    Asked {
        /// Whose attempt.
        token: Token,
        /// The question.
        question: Box<Question>,
    },
    /// The question was answered.
    Answered {
        /// Which question.
        question: QuestionId,
        /// The answer.
        content: Arc<str>,
    },
    /// Somebody wants it to stop.
    CancelRequested {
        /// Why.
        reason: ReasonCode,
        /// In words.
        note: Option<Arc<str>>,
    },
    /// A cancelled attempt came a step nearer to its end.
    AttemptEnded {
        /// Whose attempt.
        token: Token,
        /// How far.
        stage: Stage,
    },
    /// Somebody wants it to run again.
    RetryRequested,
    /// Its `expires_at`, or its question's deadline, has passed.
    Expired,
}

macro_rules! event_names {
    ($($name:ident { .. } = $text:literal,)+) => {
        /// The name of an event, without its data.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[expect(missing_docs, reason = "each is described at the event of the same name")]
        pub enum EventName { $($name,)+ }

        impl EventName {
            /// Every event.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stable text form.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }

        impl Event {
            /// The event's name.
            pub const fn name(&self) -> EventName {
                match self { $(Self::$name { .. } => EventName::$name,)+ }
            }
        }
    };
}

event_names! {
    Enqueued { .. } = "enqueued",
    Released { .. } = "released",
    DependencyMet { .. } = "dependency_met",
    DependencyFailed { .. } = "dependency_failed",
    BecameDue { .. } = "became_due",
    Claimed { .. } = "claimed",
    Succeeded { .. } = "succeeded",
    Failed { .. } = "failed",
    Snoozed { .. } = "snoozed",
    TimedOut { .. } = "timed_out",
    LeaseLost { .. } = "lease_lost",
    Interrupted { .. } = "interrupted",
    Returned { .. } = "returned",
    Asked { .. } = "asked",
    Answered { .. } = "answered",
    CancelRequested { .. } = "cancel_requested",
    AttemptEnded { .. } = "attempt_ended",
    RetryRequested { .. } = "retry_requested",
    Expired { .. } = "expired",
}
