//! Records: everything a store keeps, and what it remembers of each.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::dependency::Edge;
use crate::id::{Namespace, OpId, PoolName, RunnerId, TaskId};
use crate::key::{Key, RecordKind};
use crate::lane::{Lane, LaneMember};
use crate::lease::Token;
use crate::newer::Newer;
use crate::pool::PoolSettings;
use crate::runner::Runner;
use crate::schedule::Schedule;
use crate::sweep::Sweep;
use crate::task::Task;
use crate::time::Timestamp;
use crate::unique::KeyRecord;

/// Word for a runner: this attempt of yours was cancelled. The runner looks every second, whatever its beat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    /// For whom.
    pub runner: RunnerId,
    /// About which task.
    pub task: TaskId,
    /// About which attempt.
    pub token: Token,
    /// Since when.
    pub at: Timestamp,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

/// A pool's settings as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// The pool.
    pub name: PoolName,
    /// Its settings.
    pub settings: PoolSettings,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

impl Pool {
    /// Takes over what a newer version said of the settings that these replace: whoever sets what it knows leaves the rest
    /// as it is.
    pub(crate) fn inherit(&mut self, before: &Self) {
        self.newer.inherit(&before.newer);
        self.settings.newer.inherit(&before.settings.newer);
        if !before.settings.policy.newer.is_none() {
            Arc::make_mut(&mut self.settings.policy).newer.inherit(&before.settings.policy.newer);
        }
    }
}

/// A record's content. Cheap to clone: what is large is shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is described at its kind")]
pub enum Record {
    Task(Arc<Task>),
    Runner(Arc<Runner>),
    Pool(Arc<Pool>),
    Lane(Arc<Lane>),
    LaneMember(LaneMember),
    Edge(Edge),
    Unique(KeyRecord),
    Idempotency(KeyRecord),
    Schedule(Arc<Schedule>),
    Sweep(Arc<Sweep>),
    Signal(Signal),
    Counter(i64),
}

impl Record {
    /// What the record is.
    pub const fn kind(&self) -> RecordKind {
        match self {
            Self::Task(_) => RecordKind::Task,
            Self::Runner(_) => RecordKind::Runner,
            Self::Pool(_) => RecordKind::Pool,
            Self::Lane(_) => RecordKind::Lane,
            Self::LaneMember(_) => RecordKind::LaneMember,
            Self::Edge(_) => RecordKind::Edge,
            Self::Unique(_) => RecordKind::Unique,
            Self::Idempotency(_) => RecordKind::Idempotency,
            Self::Schedule(_) => RecordKind::Schedule,
            Self::Sweep(_) => RecordKind::Sweep,
            Self::Signal(_) => RecordKind::Signal,
            Self::Counter(_) => RecordKind::Counter,
        }
    }

    /// The key that this record must stand under, where its content says so.
    pub fn natural_key(&self, namespace: &Namespace) -> Option<Key> {
        match self {
            Self::Task(task) => Some(Key::task(&task.spec.namespace, &task.spec.id)),
            Self::Runner(runner) => Some(Key::runner(&runner.namespace, &runner.id)),
            Self::Pool(pool) => Some(Key::pool(namespace, &pool.name)),
            Self::Edge(edge) => Some(Key::edge(namespace, &edge.parent, &edge.child)),
            Self::Schedule(schedule) => Some(Key::schedule(namespace, &schedule.id)),
            Self::Sweep(sweep) => Some(Key::sweep(namespace, &sweep.id)),
            Self::Signal(signal) => Some(Key::signal(namespace, &signal.runner, &signal.task)),
            Self::Lane(_) | Self::LaneMember(_) | Self::Unique(_) | Self::Idempotency(_) | Self::Counter(_) => None,
        }
    }

    /// Whether the record may stand under this key: [`Self::natural_key`], compared without making it.
    pub fn belongs_under(&self, key: &Key) -> bool {
        match self {
            Self::Task(task) => {
                key.kind == RecordKind::Task
                    && key.namespace == task.spec.namespace
                    && *key.name == *task.spec.id.as_str()
            }
            _ => self.natural_key(&key.namespace).is_none_or(|natural| natural == *key),
        }
    }

    /// The task, if it is one.
    pub fn as_task(&self) -> Option<&Arc<Task>> {
        if let Self::Task(task) = self { Some(task) } else { None }
    }

    /// The runner, if it is one.
    pub fn as_runner(&self) -> Option<&Arc<Runner>> {
        if let Self::Runner(runner) = self { Some(runner) } else { None }
    }

    /// The counter's value, if it is one.
    pub const fn as_counter(&self) -> Option<i64> {
        if let Self::Counter(value) = self { Some(*value) } else { None }
    }
}

impl From<Task> for Record {
    fn from(task: Task) -> Self {
        Self::Task(Arc::new(task))
    }
}

impl From<Runner> for Record {
    fn from(runner: Runner) -> Self {
        Self::Runner(Arc::new(runner))
    }
}

/// What a store remembers of a record as read. Opaque to everybody else: compare it, hand it back, nothing more.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(Repr);

#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
enum Repr {
    Number(u64),
    Text(Arc<str>),
}

impl Revision {
    /// For stores that count.
    pub const fn number(value: u64) -> Self {
        Self(Repr::Number(value))
    }

    /// For stores whose records others write too.
    pub fn text(value: &str) -> Self {
        Self(Repr::Text(Arc::from(value)))
    }

    /// The count, for the store that made it.
    pub const fn as_number(&self) -> Option<u64> {
        if let Repr::Number(value) = self.0 { Some(value) } else { None }
    }

    /// The text, for the store that made it.
    pub fn as_text(&self) -> Option<&str> {
        if let Repr::Text(value) = &self.0 { Some(value) } else { None }
    }
}

impl fmt::Debug for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::Number(value) => write!(f, "r{value}"),
            Repr::Text(value) => write!(f, "r{value:?}"),
        }
    }
}

/// A record as read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned {
    /// Its key.
    pub key: Key,
    /// Its content.
    pub record: Record,
    /// What the next write must name.
    pub revision: Revision,
    /// The commit that created it.
    pub created_by: OpId,
    /// The commit or claim that wrote it last.
    pub last: OpId,
}

impl Versioned {
    /// Whether an op of this id created it or wrote it last.
    pub fn was_written_by(&self, op: OpId) -> bool {
        self.created_by == op || self.last == op
    }

    /// Whether another program made it: no op of ours has the number zero.
    pub fn is_foreign(&self) -> bool {
        self.created_by.as_bits() == 0
    }
}
