//! Index entries: how a record can be found. They follow from the record alone, and stores keep them blindly.

use serde::{Deserialize, Serialize};

use crate::id::{GroupId, Kind, Namespace, OpId, PoolName, RunnerId, SessionId};
use crate::key::Key;
use crate::lane::Place;
use crate::lease::Until;
use crate::limits;
use crate::order::Order;
use crate::pool::Keep;
use crate::record::Record;
use crate::task::{Origin, Phase, State, Task};
use crate::time::Timestamp;

/// The line that a task stands in: claims ask for pools and kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Line {
    /// The namespace.
    pub namespace: Namespace,
    /// The pool.
    pub pool: PoolName,
    /// The kind.
    pub kind: Kind,
}

/// A task that can be claimed from `at` on, at its place in its line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// The line.
    pub line: Line,
    /// Not before this.
    pub at: Timestamp,
    /// Smallest first.
    pub order: Order,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// Which list.
    pub index: DueIndex,
    /// When.
    pub at: Timestamp,
    /// The line, for [`DueIndex::Promote`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<Line>,
}

/// Who has not ended an attempt of a task, by which claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The runner.
    pub runner: RunnerId,
    /// The claim.
    pub claim: OpId,
}

/// The count that a task stands in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CountCell {
    /// The pool.
    pub pool: PoolName,
    /// The phase.
    pub phase: Phase,
}

/// All entries of one record.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Index {
    /// Where it can be claimed.
    pub ready: Option<Ready>,
    /// When something must be done with it; at most one entry a list.
    pub due: Vec<Due>,
    /// What it is counted as.
    pub count: Option<CountCell>,
    /// Who holds it.
    pub holder: Option<Holder>,
    /// The group that it is listed in.
    pub group: Option<GroupId>,
    /// The session that it is listed in.
    pub session: Option<SessionId>,
}

impl Index {
    /// The entries of a record. Pure: a store that lost its index can make it again from its records.
    pub fn of(key: &Key, record: &Record) -> Self {
        let due = |index, at: Option<Timestamp>| at.map(|at| Due { index, at, line: None }).into_iter().collect();
        let listed = |due| Self { due, ..Self::default() };
        match record {
            Record::Task(task) => of_task(task),
            Record::Runner(runner) => {
                let watched: Vec<Due> = due(DueIndex::Runner, runner.due_at());
                listed(if watched.is_empty() { due(DueIndex::Forget, runner.forget_at()) } else { watched })
            }
            Record::Sweep(sweep) => listed(due(DueIndex::Sweep, Some(sweep.due_at()))),
            Record::Schedule(schedule) => {
                listed(due(DueIndex::Schedule, (!schedule.paused).then_some(schedule.next_at)))
            }
            Record::Unique(held) | Record::Idempotency(held) => listed(due(DueIndex::Forget, held.expires_at)),
            Record::Signal(signal) => listed(due(DueIndex::Forget, Some(signal.at + limits::SIGNAL_KEPT))),
            Record::Pool(_) | Record::Lane(_) | Record::LaneMember(_) | Record::Edge(_) | Record::Counter(_) => {
                debug_assert_eq!(key.kind, record.kind(), "a commit checks that key and record agree");
                Self::default()
            }
        }
    }

    fn list(&mut self, index: DueIndex, at: Timestamp, line: Option<Line>) {
        // One entry is usual, two are many: room for more would be most of the list.
        self.due.reserve_exact(1);
        self.due.push(Due { index, at, line });
    }

    /// The moment of this record's entry in a list.
    pub fn due_at(&self, index: DueIndex) -> Option<Timestamp> {
        self.due.iter().find(|due| due.index == index).map(|due| due.at)
    }
}

fn of_task(task: &Task) -> Index {
    let spec = &task.spec;
    let line =
        || Line { namespace: spec.namespace.clone(), pool: spec.pool.clone(), kind: spec.envelope.task_type.clone() };
    let mut index = Index {
        count: Some(CountCell { pool: spec.pool.clone(), phase: task.state.phase }),
        holder: task.state.lease.as_ref().map(|lease| Holder { runner: lease.holder.clone(), claim: lease.claim }),
        group: spec.group.clone(),
        session: spec.session.clone(),
        ..Index::default()
    };
    match stand(task) {
        Stand::Ready => index.ready = Some(Ready { line: line(), at: task.state.next_run_at, order: spec.order() }),
        Stand::Waiting => index.list(DueIndex::Promote, task.state.next_run_at, Some(line())),
        Stand::OutOfLane => index.list(DueIndex::Rejoin, task.state.next_run_at, None),
        Stand::Nowhere => {}
    }
    if let Some(Until::At(deadline)) = task.state.lease.as_ref().map(|lease| lease.until) {
        index.list(DueIndex::Lease, deadline, None);
    }
    if let Some(at) = expires_at(task) {
        index.list(DueIndex::Expire, at, None);
    }
    if let Some(at) = purge_at(task) {
        index.list(DueIndex::Purge, at, None);
    }
    index
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
    match task.state.phase {
        Phase::Running | Phase::Succeeded | Phase::Dead | Phase::Cancelled => None,
        Phase::NeedsInput => question.into_iter().chain(task.spec.expires_at).min(),
        Phase::Pending | Phase::Blocked | Phase::Queued | Phase::RetryScheduled => task.spec.expires_at,
    }
}

/// An ended task goes when it was kept long enough, but not while an attempt of it has not ended. Foreign records stay.
fn purge_at(task: &Task) -> Option<Timestamp> {
    let policy = &task.spec.policy;
    let keep = if task.state.phase == Phase::Dead { policy.keep_dead } else { policy.keep };
    match (task.state.finished_at, keep) {
        (Some(end), Keep::For(span)) if task.state.lease.is_none() && task.spec.origin == Origin::Ours => {
            Some(end + span)
        }
        _ => None,
    }
}
