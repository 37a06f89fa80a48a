//! Sweeps: recorded pieces of work that touch many tasks, done in pages by any process. The record is written in the commit
//! that made the work necessary, so it cannot be forgotten; its cursor makes every page safe to repeat.

use serde::{Deserialize, Serialize};

use crate::filter::TaskFilter;
use crate::hash;
use crate::id::{GroupId, LaneKey, SweepId, TaskId};
use crate::limits;
use crate::newer::Newer;
use crate::task::Phase;
use crate::time::{Millis, Timestamp};

/// What a sweep does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SweepWork {
    /// Tells every child that its parent ended.
    Release {
        /// The parent.
        parent: TaskId,
        /// How it ended.
        phase: Phase,
    },
    /// Gives those who wait in a lane the places that are free.
    Admit {
        /// The lane.
        lane: LaneKey,
    },
    /// Cancels every matching task.
    Cancel(TaskFilter),
    /// Retries every matching task.
    Retry(TaskFilter),
    /// Purges every matching task that has ended.
    Purge(TaskFilter),
    /// Waits until every task of a group has ended, then releases the task that waits for it.
    Await {
        /// Which tasks.
        group: TaskFilter,
        /// The task that is released.
        then: TaskId,
        /// How many on the pages that were passed ended without success.
        failed: u64,
        /// One of these. What waits is not held for a failure that was put right meanwhile.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        witness: Option<TaskId>,
        /// Whether every member had ended when this round through the group began.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        again: bool,
    },
    /// Links a task to those of its parents that the commit which made it had no room for.
    Link {
        /// The task.
        child: TaskId,
        /// The parents that are left.
        parents: Vec<TaskId>,
    },
}

impl SweepWork {
    /// Whether a command on many tasks changes one in this phase, which was or was not retried before. Callers who show what
    /// would happen ask this before it does.
    pub fn changes(&self, phase: Phase, was_retried: bool) -> bool {
        match self {
            Self::Cancel(_) => !phase.is_final(),
            // What was retried before has a task in its place, which is judged by itself.
            Self::Retry(_) => !was_retried && matches!(phase, Phase::RetryScheduled | Phase::Dead | Phase::Cancelled),
            Self::Purge(_) => phase.is_final(),
            Self::Release { .. } | Self::Admit { .. } | Self::Await { .. } | Self::Link { .. } => false,
        }
    }

    /// Whether a caller asked for it, and may ask again.
    pub const fn is_bulk(&self) -> bool {
        matches!(self, Self::Cancel(_) | Self::Retry(_) | Self::Purge(_))
    }
}

/// A sweep's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// Its name.
    pub id: SweepId,
    /// What it does.
    pub work: SweepWork,
    /// Where the next page begins; `None` at the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// How many tasks were changed so far.
    #[serde(default)]
    pub changed: u64,
    /// How many tasks were looked at and left alone.
    #[serde(default)]
    pub passed: u64,
    /// When it was asked for; what is created later is no business of a bulk command.
    pub created_at: Timestamp,
    /// When to look again; at once if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// When it was done. Only bulk commands are kept behind their end, for callers that ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

impl Sweep {
    /// A new sweep.
    pub fn new(id: SweepId, work: SweepWork, now: Timestamp) -> Self {
        let (cursor, next_at, ended_at) = (None, None, None);
        Self { id, work, cursor, changed: 0, passed: 0, created_at: now, next_at, ended_at, newer: Newer::NONE }
    }

    /// When maintenance must look at it.
    pub fn due_at(&self) -> Timestamp {
        self.next_at.unwrap_or(self.created_at)
    }

    /// When to look again at something that has not ended: soon while it is young, rarely when it has been open for long.
    pub(crate) fn next_look(&self, now: Timestamp) -> Timestamp {
        let tenth = Millis::new(now.since(self.created_at).as_u64() / 10);
        now + tenth.clamp(limits::AWAIT_LOOK_MIN, limits::AWAIT_LOOK_MAX)
    }

    /// The name of the sweep that waits for a group on a task's behalf. Those of one group stand together.
    pub fn await_id(group: &GroupId, then: &TaskId) -> SweepId {
        let prefix = Self::await_prefix(group);
        let readable = format!("{prefix}{then}");
        let name = if readable.len() <= limits::ID_BYTES_MAX {
            readable
        } else {
            format!("{prefix}#{:032x}", hash::wide(then.as_str().as_bytes()))
        };
        SweepId::new(name).expect("a prefix and a valid id are a valid id")
    }

    /// What the names of all sweeps that wait for a group begin with.
    pub fn await_prefix(group: &GroupId) -> String {
        format!("await/{:032x}/", hash::wide(group.as_str().as_bytes()))
    }

    /// A sweep that releases a task when its group has ended.
    pub(crate) fn awaiting(group: TaskFilter, then: TaskId) -> SweepWork {
        SweepWork::Await { group, then, failed: 0, witness: None, again: false }
    }

    /// The name of the sweep that links a task to its parents.
    pub fn link_id(child: &TaskId) -> SweepId {
        named("link", child.as_str())
    }

    /// The name of the sweep that a parent's end starts: one a parent, so that two ends do not make two.
    pub fn release_id(parent: &TaskId) -> SweepId {
        named("release", parent.as_str())
    }

    /// The name of the sweep that fills a lane.
    pub fn admit_id(lane: &LaneKey) -> SweepId {
        named("admit", lane.as_str())
    }
}

/// Ids of callers may have 128 bytes already; a long one gives way to its hash, a short one stays readable.
fn named(what: &str, id: &str) -> SweepId {
    let readable = format!("{what}/{id}");
    let name = if readable.len() <= limits::ID_BYTES_MAX {
        readable
    } else {
        format!("{what}#{:032x}", hash::wide(id.as_bytes()))
    };
    SweepId::new(name).expect("a prefix and a valid id are a valid id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_long_ids_stay_valid_and_distinct() {
        let long = |end: &str| TaskId::new("x".repeat(120) + end).unwrap();
        assert_ne!(Sweep::release_id(&long("a")), Sweep::release_id(&long("b")));
        let group = GroupId::new("g".repeat(128)).unwrap();
        assert_ne!(Sweep::await_id(&group, &long("a")), Sweep::await_id(&group, &long("b")));
        assert!(Sweep::await_id(&group, &long("a")).as_str().starts_with(&Sweep::await_prefix(&group)));
        assert_eq!(Sweep::release_id(&TaskId::new("t").unwrap()).as_str(), "release/t");
        assert_eq!(Sweep::admit_id(&LaneKey::new("t").unwrap()).as_str(), "admit/t");
    }
}
