//! Names of records. A key is a namespace, a kind of record and a name; names sort as bytes.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{IdempotencyKey, LaneKey, Namespace, PoolName, RunnerId, ScheduleId, SweepId, TaskId, UniqueKey};

/// Separates the parts of a name. No id contains a control character, so no two pairs of ids share a name.
pub const SEPARATOR: char = '\u{1f}';

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// A task; listed by `tasks`, not by `records`.
    Task,
    /// An incarnation of a runner.
    Runner,
    /// A pool's settings.
    Pool,
    /// A lane.
    Lane,
    /// A task that waits in its lane; name: lane, number.
    LaneMember,
    /// A dependency; name: parent, child.
    Edge,
    /// A unique key.
    Unique,
    /// An idempotency key.
    Idempotency,
    /// A schedule.
    Schedule,
    /// A sweep.
    Sweep,
    /// Word for a runner about one of its tasks; name: runner, task.
    Signal,
    /// A number that several writers add to.
    Counter,
}

impl RecordKind {
    /// Every kind.
    pub const ALL: [Self; 12] = [
        Self::Task,
        Self::Runner,
        Self::Pool,
        Self::Lane,
        Self::LaneMember,
        Self::Edge,
        Self::Unique,
        Self::Idempotency,
        Self::Schedule,
        Self::Sweep,
        Self::Signal,
        Self::Counter,
    ];
}

/// The name of a record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// What it is.
    pub kind: RecordKind,
    /// Where it belongs.
    pub namespace: Namespace,
    /// Its name there.
    pub name: Arc<str>,
}

impl Key {
    fn new(kind: RecordKind, namespace: &Namespace, name: Arc<str>) -> Self {
        Self { kind, namespace: namespace.clone(), name }
    }

    fn pair(kind: RecordKind, namespace: &Namespace, first: &str, second: &str) -> Self {
        Self::new(kind, namespace, Arc::from(format!("{first}{SEPARATOR}{second}")))
    }

    /// A task's key.
    pub fn task(namespace: &Namespace, id: &TaskId) -> Self {
        Self::new(RecordKind::Task, namespace, id.share())
    }

    /// A runner's key.
    pub fn runner(namespace: &Namespace, id: &RunnerId) -> Self {
        Self::new(RecordKind::Runner, namespace, id.share())
    }

    /// The key of a pool's settings.
    pub fn pool(namespace: &Namespace, pool: &PoolName) -> Self {
        Self::new(RecordKind::Pool, namespace, pool.share())
    }

    /// A lane's key.
    pub fn lane(namespace: &Namespace, lane: &LaneKey) -> Self {
        Self::new(RecordKind::Lane, namespace, lane.share())
    }

    /// The key of the member with this number. Twenty digits hold any number and sort like it.
    pub fn lane_member(namespace: &Namespace, lane: &LaneKey, number: u64) -> Self {
        Self::pair(RecordKind::LaneMember, namespace, lane.as_str(), &format!("{number:020}"))
    }

    /// The key of a dependency.
    pub fn edge(namespace: &Namespace, parent: &TaskId, child: &TaskId) -> Self {
        Self::pair(RecordKind::Edge, namespace, parent.as_str(), child.as_str())
    }

    /// The key of a unique key's record.
    pub fn unique(namespace: &Namespace, key: &UniqueKey) -> Self {
        Self::new(RecordKind::Unique, namespace, key.share())
    }

    /// The key of an idempotency key's record.
    pub fn idempotency(namespace: &Namespace, key: &IdempotencyKey) -> Self {
        Self::new(RecordKind::Idempotency, namespace, key.share())
    }

    /// A schedule's key.
    pub fn schedule(namespace: &Namespace, id: &ScheduleId) -> Self {
        Self::new(RecordKind::Schedule, namespace, id.share())
    }

    /// A sweep's key.
    pub fn sweep(namespace: &Namespace, id: &SweepId) -> Self {
        Self::new(RecordKind::Sweep, namespace, id.share())
    }

    /// The key of a signal.
    pub fn signal(namespace: &Namespace, runner: &RunnerId, task: &TaskId) -> Self {
        Self::pair(RecordKind::Signal, namespace, runner.as_str(), task.as_str())
    }

    /// The counter of a pool's running tasks. It is kept only while the pool has a limit.
    pub fn running(namespace: &Namespace, pool: &PoolName) -> Self {
        Self::pair(RecordKind::Counter, namespace, "running", pool.as_str())
    }

    /// What all names that begin with this first part have in common.
    pub fn prefix(first: &str) -> String {
        format!("{first}{SEPARATOR}")
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}/{}", self.kind, self.namespace, self.name.replace(SEPARATOR, " "))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
