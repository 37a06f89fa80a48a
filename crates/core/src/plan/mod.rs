//! Plans: what somebody wants, turned into one commit. Reads come first, then a pure draft, then the write.
//!
//! A plan looks at a [`View`] of records that were read. If it lacks one it says which ([`Stop::Need`]), the caller reads
//! it and asks again; so a plan never does I/O, and a conflict is answered by drafting again from fresh records.

mod change;
mod cycle;
mod draft;
mod enqueue;
mod maintain;
mod retry;
mod runner;
mod settings;
mod sweep;
mod told;
mod view;

#[cfg(test)]
mod tests;

pub use change::{Happen, Happened};
pub use draft::{Draft, Lanes};
pub use enqueue::{AddParents, Enqueue, Enqueued};
pub use maintain::{Forget, Purge, PurgeWhen, Purged, due_event};
pub use retry::Retry;
pub use runner::{Beat, ClearDead, DeclareDead, Goodbye};
pub use settings::{MoveTick, RemoveSchedule, Report, SetPool, SetSchedule, StartSweep, Tick, Ticked};
pub use sweep::{SweepItem, SweepStep, Swept};
pub use told::Told;
pub use view::{Need, PageNeed, View};

use crate::commit::Commit;
use crate::id::OpId;
use crate::key::Key;
use crate::reason::{ReasonCode, Refusal};
use crate::time::Timestamp;

/// A wish that can be drafted into a commit.
pub trait Plan {
    /// What the caller learns when the commit is applied.
    type Done;

    /// What is surely read, so that it can be read before the first draft. May be less: the draft asks for what it lacks.
    fn reads(&self) -> Vec<Key> {
        Vec::new()
    }

    /// Writes the draft, or says what stopped it. Called again, with a fresh draft, when more was read.
    fn draft(&self, draft: &mut Draft<'_>) -> Result<Self::Done, Stop>;

    /// The one write that the plan comes to, where it can be seen that there is no other: most enqueues and most ends of attempts.
    /// It says what a draft would say, for less; `None` leaves it to a draft.
    fn single(&self, _id: OpId, _view: &View, _now: Timestamp) -> Option<Result<(Self::Done, Commit), Refusal>> {
        None
    }
}

/// Why a draft did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// These must be read first.
    Need(Vec<Need>),
    /// The wish is refused; nothing is written.
    Refused(Refusal),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ReasonCode> for Stop {
    fn from(code: ReasonCode) -> Self {
        Self::Refused(Refusal::new(code))
    }
}
