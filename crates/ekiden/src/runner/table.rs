//! What runs now. Shared by the engine, which starts and settles attempts, and the warden, which stops them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ekiden_core::attempt::Stage;
use ekiden_core::id::{Kind, OpId, TaskId};
use ekiden_core::lease::Token;

use super::attempt::Leash;
use crate::port::{LeaseRef, Settlement, Verdict};

/// Names one attempt of this runner.
pub(super) type Slot = u64;

/// Why an attempt will end otherwise than by its handler's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It runs.
    Running,
    /// Its task was cancelled; it is dropped at this moment if it has not ended by itself.
    Cancelled { drop_at: Option<Duration> },
    /// Its time is over and it was dropped. A handler that blocks its thread may go on; from this moment on the attempt is
    /// settled without it.
    TimedOut { settle_at: Duration },
    /// The runner ends.
    Interrupted,
    /// It was settled although its handler has not ended; only its place is still taken.
    Left,
}

/// One attempt.
pub(super) struct Run {
    pub(super) lease: LeaseRef,
    pub(super) kind: Kind,
    pub(super) leash: Arc<Leash>,
    pub(super) deadline: Option<Duration>,
    pub(super) fate: Fate,
    /// The end that is being written down beside the engine.
    pub(super) ending: Option<Settlement>,
}

impl Run {
    /// How it ended, given what its handler said and what was done to it meanwhile. `None` if that was settled before.
    pub(super) fn verdict(&self, said: Option<Verdict>) -> Option<Verdict> {
        match self.fate {
            Fate::Left => None,
            Fate::TimedOut { .. } => Some(Verdict::TimedOut),
            Fate::Cancelled { .. } => Some(Verdict::Stopped(Stage::Verified)),
            Fate::Running | Fate::Interrupted => Some(said.unwrap_or(Verdict::Interrupted)),
        }
    }
}

/// The attempts of a runner.
#[derive(Default)]
pub(super) struct Table {
    runs: Mutex<BTreeMap<Slot, Run>>,
}

impl Table {
    /// Plain data behind a short lock: whole after any panic.
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<Slot, Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// How many have an end that is still to be written.
    pub(super) fn open(&self) -> usize {
        self.lock().values().filter(|run| run.fate != Fate::Left).count()
    }

    /// Takes an attempt in, in the place of another where one is named: there is never one too many.
    pub(super) fn put(&self, slot: Slot, run: Run, instead_of: Option<Slot>) {
        let mut runs = self.lock();
        if let Some(old) = instead_of {
            runs.remove(&old);
        }
        runs.insert(slot, run);
    }

    /// Begins to write an end down beside the engine, and says what to write. `None` if that is done, or somebody is at it.
    pub(super) fn ends(&self, slot: Slot, said: Verdict, id: OpId) -> Option<Settlement> {
        let mut runs = self.lock();
        let run = runs.get_mut(&slot).filter(|run| run.ending.is_none())?;
        let verdict = run.verdict(Some(said))?;
        let lease = LeaseRef::new(run.lease.task.clone(), run.lease.token);
        run.ending = Some(Settlement { id, lease, verdict: verdict.clone() });
        Some(Settlement { id, lease: run.lease.clone(), verdict })
    }

    /// Takes over the end that was being written down.
    pub(super) fn ending(&self, slot: Slot) -> Option<Settlement> {
        self.lock().get_mut(&slot)?.ending.take()
    }

    /// Leaves an attempt to itself when its end was being written without its handler, and takes that end over. `None` if
    /// somebody else did.
    pub(super) fn leave(&self, slot: Slot) -> Option<Settlement> {
        let mut runs = self.lock();
        let run = runs.get_mut(&slot)?;
        let ending = run.ending.take()?;
        run.fate = Fate::Left;
        Some(ending)
    }

    pub(super) fn count(&self, kind: &Kind) -> usize {
        self.lock().values().filter(|run| run.kind == *kind).count()
    }

    pub(super) fn holds(&self, task: &TaskId, token: Token) -> bool {
        self.lock().values().any(|run| run.lease.task.id == *task && run.lease.token == token)
    }
}
