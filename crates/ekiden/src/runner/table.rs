//! What runs now. Shared by the engine, which starts and settles attempts, and the warden, which stops them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ekiden_core::attempt::Stage;
use ekiden_core::id::{Kind, OpId, TaskId};
use ekiden_core::lease::Token;
use ekiden_core::record::Versioned;

use super::leash::Leash;
use crate::context::Context;
use crate::port::{Ask, LeaseRef, Settlement, Verdict};

/// Names one attempt of this runner: its place in the table, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    place: usize,
    number: u64,
}

/// Why an attempt will end otherwise than by its handler's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It runs.
    Running,
    /// Its task was cancelled; it is dropped at this moment if it has not ended by itself.
    Cancelled { drop_at: Option<Duration> },
    /// Its time is over. It is dropped at the first moment, if it was given time to end by itself, and settled without its
    /// handler at the second: one that blocks its thread cannot be dropped.
    TimedOut { drop_at: Option<Duration>, settle_at: Duration },
    /// Its task runs elsewhere or has ended without it; it is dropped at this moment if it has not ended by itself. Nothing of it
    /// is written.
    Lost { drop_at: Option<Duration> },
    /// The runner ends.
    Interrupted,
    /// It was settled although its handler has not ended; only its place is still taken.
    Left,
}

/// One attempt.
pub(super) struct Run {
    /// What its handler got: the task, the lease, and what holds the handler.
    pub(super) context: Context,
    /// The record as it was given out. It saves the settlement a read, once.
    pub(super) seen: Option<Box<Versioned>>,
    pub(super) deadline: Option<Duration>,
    /// How long its handler may take to end by itself after it was told to stop.
    pub(super) stop_within: Duration,
    /// Whether its handler must not be taken for ended before it is.
    pub(super) ends_by_itself: bool,
    pub(super) fate: Fate,
    /// The incarnation of the runner that claimed it.
    pub(super) incarnation: u64,
    /// Whether something was refused to it because it has no lease.
    pub(super) is_doubted: bool,
    /// The end that is being written down beside the engine.
    pub(super) ending: Option<(OpId, Verdict)>,
    /// The claim that goes with that end, by its number. Its task is in the table when this attempt is not.
    pub(super) claim: Option<u64>,
}

impl Run {
    pub(super) fn leash(&self) -> &Leash {
        self.context.leash()
    }

    pub(super) fn task(&self) -> &TaskId {
        &self.context.lease().task.id
    }

    /// When its time is over, while it works.
    pub(super) fn limit(&self) -> Option<Duration> {
        self.deadline.filter(|_| self.ending.is_none() && !self.leash().is_over())
    }

    /// Whether it is the attempt of this task with this token.
    pub(super) fn is_of(&self, task: &TaskId, token: Token) -> bool {
        self.context.token() == token && self.task() == task
    }

    /// The lease, to settle it.
    pub(super) fn lease(&mut self) -> LeaseRef {
        LeaseRef { seen: self.seen.take(), ..self.context.lease().clone() }
    }

    /// Takes over the end that was being written down.
    pub(super) fn take_ending(&mut self) -> Option<Settlement> {
        let (id, verdict) = self.ending.take()?;
        Some(Settlement { id, lease: self.context.lease().clone(), verdict })
    }

    /// How it ended, given what its handler said and what was done to it meanwhile. `None` if that was settled before, or is
    /// not known: what a dropped handler may have left running was not seen to end.
    pub(super) fn verdict(&self, said: Option<Verdict>) -> Option<Verdict> {
        match self.fate {
            Fate::Left | Fate::Lost { .. } => None,
            Fate::TimedOut { .. } => Some(Verdict::TimedOut),
            Fate::Cancelled { .. } if said.is_none() && self.ends_by_itself => None,
            Fate::Cancelled { .. } => Some(Verdict::Stopped(Stage::Verified)),
            Fate::Running | Fate::Interrupted => Some(said.unwrap_or(Verdict::Interrupted)),
        }
    }
}

/// The attempts of a runner.
#[derive(Default)]
pub(super) struct Table {
    runs: Mutex<Runs>,
}

/// Attempts by place. One that takes over from another has its place, so that nothing is moved.
#[derive(Default)]
pub(super) struct Runs {
    places: Vec<(u64, Option<Run>)>,
    free: Vec<usize>,
    /// How many claims attempts have begun.
    claims: u64,
    /// What the store says is held and is not here, since the last look.
    missing: Vec<Missing>,
}

/// A lease that the store says this runner holds, and that was not found in the table.
struct Missing {
    task: TaskId,
    token: Token,
    /// Claims with smaller numbers had begun by then, and one of them may have taken it.
    claims: u64,
}

impl Runs {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Run> {
        let (number, run) = self.places.get_mut(slot.place)?;
        run.as_mut().filter(|_| *number == slot.number)
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Run> {
        let (number, run) = self.places.get_mut(slot.place)?;
        let removed = run.take_if(|_| *number == slot.number)?;
        self.free.push(slot.place);
        Some(removed)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Run> {
        self.places.iter().filter_map(|(_, run)| run.as_ref())
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Run> {
        self.places.iter_mut().filter_map(|(_, run)| run.as_mut())
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Slot, &mut Run)> {
        let slots = self.places.iter_mut().enumerate();
        slots.filter_map(|(place, (number, run))| Some((Slot { place, number: *number }, run.as_mut()?)))
    }

    /// Takes an attempt in, at a place with a number of its own. Gives the one whose place that was.
    fn put(&mut self, run: Run, instead_of: Option<Slot>) -> (Slot, Option<Run>) {
        if !self.missing.is_empty() {
            self.missing.retain(|missing| !run.is_of(&missing.task, missing.token));
        }
        let left = instead_of.and_then(|old| self.get_mut(old).map(|_| old.place));
        let Some(place) = left.or_else(|| self.free.pop()) else {
            self.places.push((0, Some(run)));
            return (Slot { place: self.places.len() - 1, number: 0 }, None);
        };
        let (number, there) = self.places.get_mut(place).expect("only places of the table are free or taken");
        *number += 1;
        (Slot { place, number: *number }, there.replace(run))
    }
}

impl Table {
    /// Plain data behind a short lock: whole after any panic.
    pub(super) fn lock(&self) -> MutexGuard<'_, Runs> {
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
    pub(super) fn put(&self, run: Run, instead_of: Option<Slot>) -> Slot {
        // Whoever gave way is dropped when the lock is free again.
        let (slot, _left) = self.lock().put(run, instead_of);
        slot
    }

    /// Begins to write an end down beside the engine, perhaps with a claim, and says what to write. `None` if that is done, or
    /// another caller writes it.
    pub(super) fn ends(&self, slot: Slot, said: Verdict, id: OpId, then: Option<&Ask>) -> Option<Settlement> {
        let mut runs = self.lock();
        let number = runs.claims;
        let run = runs.get_mut(slot).filter(|run| run.ending.is_none())?;
        let verdict = run.verdict(Some(said))?;
        run.ending = Some((id, verdict.clone()));
        run.claim = then.map(|_| number);
        let lease = run.lease();
        runs.claims += u64::from(then.is_some());
        Some(Settlement { id, lease, verdict })
    }

    /// Takes over the end that was being written down.
    pub(super) fn ending(&self, slot: Slot) -> Option<Settlement> {
        self.lock().get_mut(slot)?.take_ending()
    }

    /// Leaves an attempt to itself when its end was being written without its handler, and takes that end over. `None` if
    /// somebody else did.
    pub(super) fn leave(&self, slot: Slot) -> Option<Settlement> {
        let mut runs = self.lock();
        let run = runs.get_mut(slot)?;
        let ending = run.take_ending()?;
        run.fate = Fate::Left;
        Some(ending)
    }

    pub(super) fn count(&self, kind: &Kind) -> usize {
        self.lock().values().filter(|run| run.context.task().envelope.task_type == *kind).count()
    }

    /// Which of the held leases no attempt here has or will have, so that they can be given back: the reply of their claim got
    /// lost for good. Two looks have to miss a lease, and every claim that had begun at the first must be over: the task of a
    /// claim is not in the table before its attempt gets a thread, however long handlers block those.
    pub(super) fn abandoned(&self, held: Vec<LeaseRef>, is_ending: impl Fn(&LeaseRef) -> bool) -> Vec<LeaseRef> {
        let mut runs = self.lock();
        let before = std::mem::take(&mut runs.missing);
        let oldest_claim = runs.values().filter_map(|run| run.claim).min().unwrap_or(u64::MAX);
        let mut abandoned = Vec::new();
        for lease in held {
            let (task, token) = (&lease.task.id, lease.token);
            if runs.values().any(|run| run.is_of(task, token)) || is_ending(&lease) {
                continue;
            }
            let known = before.iter().find(|missing| missing.task == *task && missing.token == token);
            let claims = known.map_or(runs.claims, |missing| missing.claims);
            if known.is_some() && oldest_claim >= claims {
                abandoned.push(lease);
            } else {
                runs.missing.push(Missing { task: task.clone(), token, claims });
            }
        }
        abandoned
    }
}
