//! What the claims of one namespace took and still hold, so that a repeated claim finds it.

use ekiden_core::claim::Claim;
use ekiden_core::id::{OpId, RunnerId};
use ekiden_core::lease::Lease;
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::space::Slot;

/// The name of a claim in its namespace (C26). It contains the holder: an id alone finds nothing, and no list grows when several
/// holders use one id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClaimedBy {
    claim: OpId,
    holder: RunnerId,
}

impl ClaimedBy {
    pub(crate) fn of(lease: &Lease) -> Self {
        Self { claim: lease.claim, holder: lease.holder.clone() }
    }

    pub(crate) fn by(claim: &Claim) -> Self {
        Self { claim: claim.id, holder: claim.holder.clone() }
    }
}

/// The tasks of one namespace that are held, by claim. Most claims take one.
#[derive(Debug, Default)]
pub(crate) struct ClaimedTasks(HashMap<ClaimedBy, SmallVec<[Slot; 1]>>);

impl ClaimedTasks {
    /// The tasks that a claim holds, in no order.
    pub(crate) fn of(&self, claim: &ClaimedBy) -> &[Slot] {
        self.0.get(claim).map_or(&[], SmallVec::as_slice)
    }

    /// A task went from one claim to another, or to none.
    pub(crate) fn update(&mut self, slot: Slot, before: Option<ClaimedBy>, after: Option<ClaimedBy>) {
        if before == after {
            return;
        }
        if let Some(claim) = before
            && let Some(tasks) = self.0.get_mut(&claim)
        {
            if let Some(at) = tasks.iter().position(|task| *task == slot) {
                tasks.swap_remove(at);
            }
            if tasks.is_empty() {
                self.0.remove(&claim);
            }
        }
        if let Some(claim) = after {
            self.0.entry(claim).or_default().push(slot);
        }
    }
}

/// The order of a claim's tasks does not count.
impl PartialEq for ClaimedTasks {
    fn eq(&self, other: &Self) -> bool {
        let sorted = |tasks: &[Slot]| {
            let mut tasks = tasks.to_vec();
            tasks.sort_unstable();
            tasks
        };
        self.0.len() == other.0.len() && self.0.iter().all(|(claim, tasks)| sorted(tasks) == sorted(other.of(claim)))
    }
}
