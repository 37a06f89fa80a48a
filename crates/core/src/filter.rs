//! Which tasks are meant: by a listing, a bulk command or a sweep.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{GroupId, Kind, Namespace, PoolName, RunnerId, SessionId};
use crate::task::{Phase, Task};

/// Matches tasks of one namespace. An empty filter matches all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskFilter {
    /// The namespace.
    pub namespace: Namespace,
    /// One of these phases; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
    /// Of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolName>,
    /// Of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
    /// Of this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// With an attempt that this runner has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<RunnerId>,
    /// With this text in id, title, error or payload, by a scan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Arc<str>>,
}

impl TaskFilter {
    /// All tasks of a namespace.
    pub fn all(namespace: Namespace) -> Self {
        Self {
            namespace,
            phases: Vec::new(),
            pool: None,
            kind: None,
            group: None,
            session: None,
            held_by: None,
            text: None,
        }
    }

    /// The tasks that a runner holds.
    pub fn held_by(namespace: Namespace, runner: RunnerId) -> Self {
        Self { held_by: Some(runner), ..Self::all(namespace) }
    }

    /// Whether a task is meant.
    pub fn matches(&self, task: &Task) -> bool {
        let spec = &task.spec;
        let is = |wanted: Option<&str>, found: &str| wanted.is_none_or(|wanted| wanted == found);
        let has = |wanted: Option<&str>, found: Option<&str>| wanted.is_none_or(|wanted| found == Some(wanted));
        self.namespace == spec.namespace
            && (self.phases.is_empty() || self.phases.contains(&task.state.phase))
            && is(self.pool.as_ref().map(PoolName::as_str), spec.pool.as_str())
            && is(self.kind.as_ref().map(Kind::as_str), spec.envelope.task_type.as_str())
            && has(self.group.as_ref().map(GroupId::as_str), spec.group.as_ref().map(GroupId::as_str))
            && has(self.session.as_ref().map(SessionId::as_str), spec.session.as_ref().map(SessionId::as_str))
            && has(
                self.held_by.as_ref().map(RunnerId::as_str),
                task.state.lease.as_ref().map(|lease| lease.holder.as_str()),
            )
            && self.text.as_ref().is_none_or(|text| mentions(task, text))
    }
}

fn mentions(task: &Task, text: &str) -> bool {
    task.id().as_str().contains(text)
        || task.spec.title.as_ref().is_some_and(|title| title.contains(text))
        || task.state.last_error.as_ref().is_some_and(|error| error.contains(text))
        || std::str::from_utf8(&task.spec.envelope.payload).is_ok_and(|payload| payload.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn every_part_of_a_filter_can_exclude() {
        let task = fixtures::task("t-1");
        let all = TaskFilter::all(task.spec.namespace.clone());
        assert!(all.matches(&task));
        let misses: [TaskFilter; 8] = [
            TaskFilter::all(Namespace::new("other").unwrap()),
            TaskFilter { phases: vec![Phase::Dead], ..all.clone() },
            TaskFilter { pool: Some(PoolName::new("other").unwrap()), ..all.clone() },
            TaskFilter { kind: Some(Kind::new("other").unwrap()), ..all.clone() },
            TaskFilter { group: Some(GroupId::new("g").unwrap()), ..all.clone() },
            TaskFilter { session: Some(SessionId::new("s").unwrap()), ..all.clone() },
            TaskFilter { held_by: Some(RunnerId::new("r").unwrap()), ..all.clone() },
            TaskFilter { text: Some("nowhere".into()), ..all.clone() },
        ];
        for filter in misses {
            assert!(!filter.matches(&task), "{filter:?}");
        }
        assert!(TaskFilter { text: Some("t-1".into()), ..all }.matches(&task));
    }
}
