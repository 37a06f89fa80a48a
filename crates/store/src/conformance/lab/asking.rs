//! Questions of the cases to their store, and what must hold when a case has ended.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use ekiden_core::commit::Expect;
use ekiden_core::filter::TaskFilter;
use ekiden_core::index::DueIndex;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::plan::{SweepStep, Swept};
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::{Record, Versioned};
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::task::Phase;

use crate::ext::StoreExt;
use crate::query::{CountScope, Counts, DueQuery, ListOrder, Page, RecordQuery, TaskQuery};
use crate::store::{CheckDepth, Finding, Store};

use super::words::*;
use super::{INDEX_LAG_MAX, Lab};

impl Lab {
    /// The names of what is due in a list by now.
    pub async fn due(&self, index: DueIndex) -> Vec<String> {
        let query = DueQuery { namespace: ns(), index, until: self.now(), limit: 100 };
        let due = self.store().due(query).await.expect("a read on a store without faults");
        due.into_iter().map(|entry| entry.key.name.to_string()).collect()
    }

    /// All task ids that match, over all pages of this size, in the listing's order.
    pub async fn list(&self, filter: TaskFilter, order: ListOrder, limit: usize) -> Vec<String> {
        let mut names = Vec::new();
        let mut cursor = None;
        loop {
            let query = TaskQuery { filter: filter.clone(), order, cursor: cursor.clone(), limit };
            let page = self.store().tasks(query).await.expect("a read on a store without faults");
            assert!(page.items.len() <= limit, "a page holds no more than was asked for");
            names.extend(page.items.iter().map(|versioned| versioned.key.name.to_string()));
            if page.cursor.is_none() {
                return names;
            }
            assert_ne!(page.cursor, cursor, "a cursor leads on, or its pages would never end");
            cursor = page.cursor;
        }
    }

    /// One page of records.
    pub async fn records(
        &self,
        kind: RecordKind,
        prefix: &str,
        cursor: Option<String>,
        limit: usize,
    ) -> Page<Versioned> {
        let query = RecordQuery { namespace: ns(), kind, prefix: prefix.to_owned(), cursor, limit };
        self.store().records(query).await.expect("a read on a store without faults")
    }

    /// All names of a kind of record, over all pages of this size.
    pub async fn names(&self, kind: RecordKind, prefix: &str, limit: usize) -> Vec<String> {
        let mut names = Vec::new();
        let mut cursor = None;
        loop {
            let page = self.records(kind, prefix, cursor.clone(), limit).await;
            assert!(page.items.len() <= limit, "a page holds no more than was asked for");
            names.extend(page.items.iter().map(|versioned| versioned.key.name.to_string()));
            if page.cursor.is_none() {
                return names;
            }
            assert_ne!(page.cursor, cursor, "a cursor leads on, or its pages would never end");
            cursor = page.cursor;
        }
    }

    /// Writes a sweep that somebody asked for.
    pub async fn start_sweep(&self, name: &str, work: SweepWork) -> Key {
        let id = ekiden_core::id::SweepId::new(name).expect("a valid id");
        let key = Key::sweep(&ns(), &id);
        self.put(&key, Expect::Absent, Record::Sweep(Arc::new(Sweep::new(id, work, self.now())))).await;
        key
    }

    /// The next step of a sweep, with at most this many items; `None` when the sweep is gone.
    pub async fn sweep_step(&self, key: &Key, limit: usize) -> Option<SweepStep> {
        let step = self.store().sweep_step(key.clone(), limit, || self.task_id()).await;
        step.expect("a read on a store without faults")
    }

    /// Drives a sweep to its end, a page at a time, and says how many steps that took.
    pub async fn sweep(&self, key: &Key) -> usize {
        for steps in 0..1_000 {
            let Some(step) = self.sweep_step(key, 24).await else { return steps };
            match self.run(&step).await {
                Ok(Swept::On(_) | Swept::Ended) => {}
                other => panic!("expected {key} to go on, got {other:?}"),
            }
        }
        panic!("{key} does not come to an end");
    }

    /// The counts of the cases' namespace.
    pub async fn counts(&self) -> Counts {
        let scope = CountScope { namespace: ns(), pool: None };
        self.store().counts(scope).await.expect("a read on a store without faults")
    }

    /// Asserts that a question gets this answer: at once where the index is exact, soon where it lags.
    pub async fn soon<T, F>(&self, expected: T, ask: impl Fn() -> F)
    where
        T: PartialEq + Debug,
        F: Future<Output = T>,
    {
        let exact = self.store().info().exact_index;
        let patience = tokio::time::timeout(INDEX_LAG_MAX, async {
            while !exact && ask().await != expected {
                tokio::task::yield_now().await;
            }
        });
        let _ = patience.await;
        assert_eq!(ask().await, expected, "where the index is exact at once, otherwise within {INDEX_LAG_MAX:?}");
    }

    /// Asserts what a list says is due by now.
    pub async fn lists_due(&self, index: DueIndex, expected: &[&str]) {
        self.soon(texts(expected), || self.due(index)).await;
    }

    /// Asserts what a filter lists, oldest first.
    pub async fn lists(&self, filter: TaskFilter, expected: &[&str]) {
        self.soon(texts(expected), || self.list(filter.clone(), ListOrder::OldestFirst, 100)).await;
    }

    /// Every record of the cases' namespace but tasks, and these tasks: to see that nothing changed.
    pub async fn snapshot(&self, tasks: &[&str]) -> Vec<Versioned> {
        let keys = tasks.iter().map(|name| task_key(name)).collect();
        let tasks = self.store().get(keys).await.expect("a read on a store without faults");
        let mut all: Vec<Versioned> = tasks.into_iter().flatten().collect();
        for kind in RecordKind::ALL.into_iter().filter(|kind| *kind != RecordKind::Task) {
            let query = RecordQuery { namespace: ns(), kind, prefix: String::new(), cursor: None, limit: 1_000 };
            let page = self.store().records(query).await.expect("a read on a store without faults");
            assert_eq!(page.cursor, None, "a case holds few records");
            all.extend(page.items);
        }
        all
    }

    /// Asserts how many tasks are in a phase: by the counts where they are exact, otherwise by the listing.
    pub async fn count_is(&self, phase: Phase, expected: usize) {
        let counts = self.counts().await;
        if counts.exact {
            assert_eq!(counts.get(phase), expected as u64, "tasks counted as {phase}");
        } else {
            let filter = TaskFilter { phases: vec![phase], ..TaskFilter::all(ns()) };
            assert_eq!(self.list(filter, ListOrder::OldestFirst, 100).await.len(), expected, "tasks listed as {phase}");
        }
    }

    /// What must hold after every case: no damage, and counts that agree with the listing where they call themselves exact.
    pub async fn finish(&self) {
        let findings = match self.store().check(CheckDepth::Full).await {
            Ok(findings) => findings,
            Err(error) if error.code() == ReasonCode::StoreClosed => return,
            Err(error) => panic!("the check failed: {error}"),
        };
        let counts = self.counts().await;
        // Counts that do not call themselves exact may drift when replies get lost; that is a finding, and no damage.
        let is_damage = |finding: &Finding| counts.exact || finding.code != ReasonCode::CountsDrifted;
        let damage: Vec<Finding> = findings.into_iter().filter(is_damage).collect();
        assert!(damage.is_empty(), "the store found damage: {damage:?}");
        if counts.exact {
            for phase in Phase::ALL {
                let filter = TaskFilter { phases: vec![phase], ..TaskFilter::all(ns()) };
                let listed: BTreeSet<String> =
                    self.list(filter, ListOrder::OldestFirst, 100).await.into_iter().collect();
                assert_eq!(counts.get(phase), listed.len() as u64, "count and listing of {phase} agree");
            }
        }
    }
}
