//! Index entries: how a record can be found. They follow from the record alone, and stores keep them blindly.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use crate::key::Key;
use crate::lane::Place;
use crate::lease::Until;
use crate::limits;
use crate::order::Rank;
use crate::pool::Keep;
use crate::record::Record;
use crate::task::{Origin, Phase, State, Task};
use crate::time::Timestamp;

/// A task that can be claimed from `at` on. Its line is its namespace, pool and kind; among those of its rank the older comes
/// first, then the smaller id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Smaller first.
    pub rank: Rank,
    /// Not before this.
    pub at: Timestamp,
}

/// Lists of records that something must be done with at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DueIndex {
    /// Tasks that become claimable. These entries have a line, and claims read them by it.
    Promote,
    /// Tasks that have to join their lane again when their time comes.
    Rejoin,
    /// Leases with a deadline.
    Lease,
    /// Tasks and questions with a deadline.
    Expire,
    /// Ended tasks that were kept long enough.
    Purge,
    /// Runners that should have given a sign of life, or that died.
    Runner,
    /// Sweeps that have not come to their end.
    Sweep,
    /// Schedules.
    Schedule,
    /// Records that only live for a while: keys, signals.
    Forget,
    /// Records that a foreign program changed. Listed by the stores that meet such programs; core computes none.
    Foreign,
}

impl DueIndex {
    /// Every list.
    pub const ALL: [Self; 10] = [
        Self::Promote,
        Self::Rejoin,
        Self::Lease,
        Self::Expire,
        Self::Purge,
        Self::Runner,
        Self::Sweep,
        Self::Schedule,
        Self::Forget,
        Self::Foreign,
    ];
}

/// An entry in one of these lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// Which list.
    pub index: DueIndex,
    /// When.
    pub at: Timestamp,
}

/// Entries in due lists. Few records have any, and hardly one has two.
pub type Dues = SmallVec<[Due; 1]>;

/// All entries of one record. What a record never changes (namespace, pool, kind, group, session, creation and id), and who
/// holds a task by which claim, stands in the record alone: entries are made at every change, and names would be copied each
/// time.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Index {
    /// Whether it can be claimed.
    pub ready: Option<Ready>,
    /// When something must be done with it; at most one entry a list.
    pub due: Dues,
    /// What it is counted as, in its pool.
    pub phase: Option<Phase>,
    /// Whether its lease's holder has it, by the lease's claim.
    pub held: bool,
}

impl Index {
    /// The entries of a record. Pure: a store that lost its index can make it again from its records.
    pub fn of(key: &Key, record: &Record) -> Self {
        let due = |index, at: Option<Timestamp>| at.map(|at| Due { index, at }).into_iter().collect();
        let listed = |due| Self { due, ..Self::default() };
        match record {
            Record::Task(task) => of_task(task),
            Record::Runner(runner) => {
                let watched: Dues = due(DueIndex::Runner, runner.due_at());
                listed(if watched.is_empty() { due(DueIndex::Forget, runner.forget_at()) } else { watched })
            }
            Record::Sweep(sweep) => listed(match sweep.ended_at {
                None => due(DueIndex::Sweep, Some(sweep.due_at())),
                Some(end) => due(DueIndex::Forget, Some(end + limits::BULK_KEPT)),
            }),
            Record::Schedule(schedule) => {
                listed(due(DueIndex::Schedule, schedule.next_at.filter(|_| !schedule.paused)))
            }
            Record::Unique(held) | Record::Idempotency(held) => listed(due(DueIndex::Forget, held.expires_at)),
            Record::Signal(signal) => listed(due(DueIndex::Forget, Some(signal.at + limits::SIGNAL_KEPT))),
            Record::Pool(_) | Record::Lane(_) | Record::LaneMember(_) | Record::Edge(_) | Record::Counter(_) => {
                debug_assert_eq!(key.kind, record.kind(), "a commit checks that key and record agree");
                Self::default()
            }
        }
    }

    /// Whether nobody comes for the record by itself: it cannot be claimed, nobody holds it, and nothing but a purge is due.
    pub fn is_at_rest(&self) -> bool {
        self.ready.is_none() && !self.held && self.due.iter().all(|due| due.index == DueIndex::Purge)
    }

    /// The moment of this record's entry in a list.
    pub fn due_at(&self, index: DueIndex) -> Option<Timestamp> {
        self.due.iter().find(|due| due.index == index).map(|due| due.at)
    }
}

/// Whether only another program can bring a task further, without a word to us: one that it runs, or one whose question it may
/// answer. Stores that meet such programs look at these now and then.
pub fn is_with_others(task: &Task) -> bool {
    let held = task.state.lease.as_ref().is_some_and(|lease| lease.until == Until::Foreign);
    (held && task.state.phase == Phase::Running) || task.state.phase == Phase::NeedsInput
}

fn of_task(task: &Task) -> Index {
    let (State { phase, next_run_at, lease, .. }, rank) = (&task.state, task.spec.rank);
    let (ready, place) = match stand(task) {
        Stand::Ready => (Some(Ready { rank, at: *next_run_at }), None),
        Stand::Waiting => (None, Some(Due { index: DueIndex::Promote, at: *next_run_at })),
        Stand::OutOfLane => (None, Some(Due { index: DueIndex::Rejoin, at: *next_run_at })),
        Stand::Nowhere => (None, None),
    };
    let deadline = match lease.as_ref().map(|lease| lease.until) {
        Some(Until::At(at)) => Some(Due { index: DueIndex::Lease, at }),
        _ => None,
    };
    let expires = expires_at(task).map(|at| Due { index: DueIndex::Expire, at });
    let purge = purge_at(task).map(|at| Due { index: DueIndex::Purge, at });
    let due = [place, deadline, expires, purge];
    let mut listed = Dues::new();
    listed.extend(due.into_iter().flatten());
    Index { ready, due: listed, phase: Some(*phase), held: lease.is_some() }
}

/// Where a task stands for claims.
enum Stand {
    Ready,
    Waiting,
    OutOfLane,
    Nowhere,
}

fn stand(task: &Task) -> Stand {
    let State { phase, place, promoted, .. } = &task.state;
    match (phase, place) {
        (Phase::Queued | Phase::RetryScheduled, Place::Waiting(_)) => Stand::Nowhere,
        (Phase::Queued | Phase::RetryScheduled, Place::None) if task.spec.lane.is_some() => Stand::OutOfLane,
        (Phase::Queued | Phase::RetryScheduled, _) if *promoted => Stand::Ready,
        (Phase::Queued | Phase::RetryScheduled, _) => Stand::Waiting,
        _ => Stand::Nowhere,
    }
}

fn expires_at(task: &Task) -> Option<Timestamp> {
    let question = task.state.question.as_ref().and_then(|question| question.deadline);
    let expires_at = task.state.expires_at(&task.spec);
    match task.state.phase {
        Phase::Running | Phase::Succeeded | Phase::Dead | Phase::Cancelled => None,
        Phase::NeedsInput => question.into_iter().chain(expires_at).min(),
        Phase::Pending | Phase::Blocked | Phase::Queued | Phase::RetryScheduled => expires_at,
    }
}

/// An ended task goes when it was kept long enough, but not while an attempt of it has not ended. Foreign records stay. What
/// may not go yet, because it is young or was found to be needed, is listed for later: it would stand before those that may.
fn purge_at(task: &Task) -> Option<Timestamp> {
    let policy = &task.spec.policy;
    let keep = if task.state.phase == Phase::Dead { policy.keep_dead } else { policy.keep };
    match (task.state.finished_at, keep) {
        (Some(end), Keep::For(span)) if task.state.lease.is_none() && task.spec.origin == Origin::Ours => {
            let old = task.spec.created_at + limits::PURGE_AGE_MIN;
            Some((end + span).max(old).max(task.state.purge_after.unwrap_or(end)))
        }
        _ => None,
    }
}
