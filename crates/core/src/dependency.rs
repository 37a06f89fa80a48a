//! Dependencies: a task waits for its parents. Parents and children form a graph without cycles.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::id::TaskId;
use crate::newer::Newer;
use crate::reason::{ReasonCode, Refusal};

/// What becomes of a task when a parent ends without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnParentFailure {
    /// It stays blocked, until somebody releases or cancels it.
    #[default]
    Block,
    /// It is cancelled.
    Cancel,
    /// It runs as if the parent had succeeded.
    Run,
}

/// The record of one dependency; its key holds parent and child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// Who is waited for.
    pub parent: TaskId,
    /// Who waits.
    pub child: TaskId,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

/// A set of tasks and what each waits for.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    parents: BTreeMap<TaskId, BTreeSet<TaskId>>,
}

impl Graph {
    /// Adds a task and its parents.
    pub fn insert(&mut self, task: TaskId, parents: impl IntoIterator<Item = TaskId>) {
        let entry = self.parents.entry(task).or_default();
        entry.extend(parents);
    }

    /// All tasks, parents before children; tasks of one rank by id. A cycle is refused with its path.
    pub fn order(&self) -> Result<Vec<TaskId>, Refusal> {
        let mut missing: BTreeMap<&TaskId, usize> = BTreeMap::new();
        let mut children: BTreeMap<&TaskId, Vec<&TaskId>> = BTreeMap::new();
        for (task, parents) in &self.parents {
            missing.insert(task, parents.iter().filter(|parent| self.parents.contains_key(*parent)).count());
            for parent in parents {
                children.entry(parent).or_default().push(task);
            }
        }
        let mut free: VecDeque<&TaskId> =
            missing.iter().filter(|(_, count)| **count == 0).map(|(task, _)| *task).collect();
        let mut order = Vec::with_capacity(self.parents.len());
        while let Some(task) = free.pop_front() {
            order.push(task.clone());
            for child in children.get(task).into_iter().flatten() {
                let count = missing.get_mut(child).expect("every child is a task of the graph");
                *count -= 1;
                if *count == 0 {
                    free.push_back(child);
                }
            }
        }
        if order.len() < self.parents.len() { Err(self.cycle(&order)) } else { Ok(order) }
    }

    /// The tasks whose parents are all in `done`, and those with parents that are not.
    pub fn split(&self, done: &BTreeSet<TaskId>) -> (Vec<TaskId>, Vec<TaskId>) {
        let open = self.parents.iter().filter(|(task, _)| !done.contains(*task));
        let (ready, blocked): (Vec<_>, Vec<_>) = open.partition(|(_, parents)| parents.is_subset(done));
        let ids = |side: Vec<(&TaskId, _)>| side.into_iter().map(|(task, _)| task.clone()).collect();
        (ids(ready), ids(blocked))
    }

    /// Every task that cannot be ordered has such a parent too, so walking up from any must meet a task twice.
    fn cycle(&self, ordered: &[TaskId]) -> Refusal {
        let ordered: BTreeSet<&TaskId> = ordered.iter().collect();
        let stuck = |task: &&TaskId| !ordered.contains(task) && self.parents.contains_key(*task);
        let mut path: Vec<&TaskId> = Vec::new();
        let mut at = self.parents.keys().find(stuck);
        while let Some(task) = at {
            if let Some(start) = path.iter().position(|seen| *seen == task) {
                path.drain(..start);
                path.push(task);
                break;
            }
            path.push(task);
            at = self.parents.get(task).and_then(|parents| parents.iter().find(stuck));
        }
        refuse_cycle(&path)
    }
}

/// The refusal that names a cycle's path, child first.
pub fn refuse_cycle(path: &[&TaskId]) -> Refusal {
    let text: Vec<&str> = path.iter().map(|task| task.as_str()).collect();
    Refusal::new(ReasonCode::DependencyCycle).with("path", text.join(" → "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(text: impl ToString) -> TaskId {
        TaskId::new(text.to_string()).unwrap()
    }

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        let mut graph = Graph::default();
        for (task, parents) in edges {
            graph.insert(id(task), parents.iter().map(id));
        }
        graph
    }

    /// W8
    #[test]
    fn parents_come_before_children() {
        let graph = graph(&[("deploy", &["test", "build"]), ("test", &["build"]), ("build", &[]), ("lint", &[])]);
        assert_eq!(graph.order().unwrap(), ["build", "lint", "test", "deploy"].map(id));
        let (ready, blocked) = graph.split(&BTreeSet::from([id("build")]));
        assert_eq!(ready, ["lint", "test"].map(id));
        assert_eq!(blocked, ["deploy"].map(id));
    }

    /// W8
    #[test]
    fn a_cycle_is_refused_with_its_path() {
        let graph = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"])]);
        let refusal = graph.order().unwrap_err();
        assert_eq!(refusal.code, ReasonCode::DependencyCycle);
        assert_eq!(refusal.context["path"], "a → b → c → a");
    }

    proptest! {
        /// W8
        #[test]
        fn an_order_exists_exactly_when_no_edge_points_back(edges in proptest::collection::vec((0u8..8, 0u8..8), 0..20)) {
            let mut graph = Graph::default();
            for (child, parent) in &edges {
                graph.insert(id(child), [id(parent)]);
                graph.insert(id(parent), []);
            }
            match graph.order() {
                Ok(order) => {
                    let place = |task: &u8| order.iter().position(|o| *o == id(task)).unwrap();
                    prop_assert!(edges.iter().all(|(child, parent)| place(parent) < place(child)));
                }
                Err(refusal) => {
                    let path: Vec<&str> = refusal.context["path"].split(" → ").collect();
                    prop_assert!(path.len() >= 2 && path.first() == path.last());
                    for step in path.windows(2) {
                        prop_assert!(edges.iter().any(|(child, parent)| child.to_string() == step[0] && parent.to_string() == step[1]));
                    }
                }
            }
        }
    }
}
