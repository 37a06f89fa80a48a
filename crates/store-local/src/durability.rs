//! Which revisions are durable, who waits for them, and what each caller hears when the store stops before they are.

use std::collections::VecDeque;

use ekiden_store::{Answer, Happened, Outcome, StoreError};
use tokio::sync::oneshot;

/// What callers wait for; `None` if there is nothing to wait for.
pub(crate) type Wait = Option<oneshot::Receiver<Result<(), Halt>>>;

/// The other end of a [`Wait`].
pub(crate) type Waiter = oneshot::Sender<Result<(), Halt>>;

/// The durable part of everything that was carried out.
#[derive(Debug)]
pub(crate) struct Durability {
    /// Everything up to this revision is durable.
    durable: u64,
    /// Everything up to this revision may be in a checkpoint that ran ahead of the log.
    perhaps: u64,
    /// In the order of the revisions that they wait for.
    waiters: VecDeque<(u64, Waiter)>,
    /// Why nothing becomes durable, for as long as nothing does.
    stalled: Option<StoreError>,
}

impl Durability {
    pub(crate) fn new(durable: u64) -> Self {
        Self { durable, perhaps: durable, waiters: VecDeque::new(), stalled: None }
    }

    pub(crate) const fn has(&self, revision: u64) -> bool {
        revision <= self.durable
    }

    /// Waits until a revision is durable. While nothing becomes durable the answer is there at once.
    pub(crate) fn wait_for(&mut self, revision: u64) -> Wait {
        if self.has(revision) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        if let Some(error) = &self.stalled {
            // The receiver is here.
            let _ = sender.send(Err(Halt { durable: self.durable, unknown: u64::MAX, error: error.clone() }));
            return Some(receiver);
        }
        // Nearly always the place is the last one: most callers wait for what they wrote just now.
        let place = self.waiters.partition_point(|(waits_for, _)| *waits_for <= revision);
        self.waiters.insert(place, (revision, sender));
        Some(receiver)
    }

    /// How many callers wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Everything up to this revision is durable. Gives the callers that need not wait any more.
    pub(crate) fn settle(&mut self, revision: u64) -> Vec<Waiter> {
        if revision > self.durable {
            self.durable = revision;
            self.stalled = None;
        }
        let count = self.waiters.partition_point(|(waits_for, _)| *waits_for <= self.durable);
        self.waiters.drain(..count).map(|(_, waiter)| waiter).collect()
    }

    /// A checkpoint that has everything up to this revision is about to be written, and the log has not.
    pub(crate) fn may_have(&mut self, revision: u64) {
        self.perhaps = self.perhaps.max(revision);
    }

    /// Ends all waiting, also of those who come, until something becomes durable again.
    pub(crate) fn stall(&mut self, error: StoreError) {
        self.halt(u64::MAX, &error);
        self.stalled = Some(error);
    }

    /// Ends all waiting. What is not durable up to `unknown` may be on disk, what comes later is not.
    pub(crate) fn halt(&mut self, unknown: u64, error: &StoreError) {
        let unknown = unknown.max(self.perhaps);
        for (_, waiter) in self.waiters.drain(..) {
            // A caller that went away does not need the answer.
            let _ = waiter.send(Err(Halt { durable: self.durable, unknown, error: error.clone() }));
        }
    }
}

/// Why a caller waits no longer although not everything is durable.
#[derive(Clone, Debug)]
pub(crate) struct Halt {
    durable: u64,
    unknown: u64,
    error: StoreError,
}

impl Halt {
    /// The committer ended without a word.
    pub(crate) fn unexplained(error: StoreError) -> Self {
        Self { durable: 0, unknown: u64::MAX, error }
    }

    /// Judges one op: its outcome stands if all that it rests on is durable.
    pub(crate) fn judge(&self, outcome: Outcome, basis: Basis) -> Outcome {
        let happened = match basis {
            Basis::Nothing => return outcome,
            Basis::Seen(revision) | Basis::Repeated(revision) | Basis::Wrote(revision) if revision <= self.durable => {
                return outcome;
            }
            Basis::Wrote(revision) if revision > self.unknown => Happened::NotApplied,
            Basis::Seen(_) => Happened::NotApplied,
            Basis::Repeated(_) | Basis::Wrote(_) => Happened::Unknown,
        };
        outcome.and(Err(StoreError { happened, ..self.error.clone() }))
    }

    /// Judges a read that saw records up to this revision.
    pub(crate) fn judge_read(self, seen: u64) -> Result<(), StoreError> {
        if seen <= self.durable { Ok(()) } else { Err(StoreError { happened: Happened::NotApplied, ..self.error }) }
    }
}

/// What must be durable before an outcome may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// The op was refused before anything was looked at.
    Nothing,
    /// It wrote nothing, and saw records up to this revision.
    Seen(u64),
    /// It found what an earlier try wrote, at this revision or before.
    Repeated(u64),
    /// It wrote, and this is its last revision.
    Wrote(u64),
}

impl Basis {
    /// What an outcome rests on, by the latest revision before the op and after it.
    pub(crate) fn of(outcome: &Outcome, before: u64, after: u64) -> Self {
        match outcome {
            _ if after > before => Self::Wrote(after),
            Ok(Answer::Applied(applied)) => {
                // What an earlier try deleted has no revision.
                let revisions = applied.revisions.iter().flatten().filter_map(|revision| revision.as_number());
                Self::Repeated(revisions.max().unwrap_or(before))
            }
            Ok(Answer::Claimed(claimed)) if !claimed.tasks.is_empty() => {
                let revisions = claimed.tasks.iter().filter_map(|task| task.revision.as_number());
                Self::Repeated(revisions.max().unwrap_or(before))
            }
            Ok(_) | Err(_) => Self::Seen(before),
        }
    }

    /// The revision that has to be durable.
    pub(crate) const fn revision(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Seen(revision) | Self::Repeated(revision) | Self::Wrote(revision) => revision,
        }
    }
}
