//! The naive model: a store of plain vectors that is obviously right and obviously slow. Every question is a scan over all
//! records, every index entry is computed anew, so there is nothing in it that could disagree with the rules.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ekiden_core::claim::{self, Claim, ClaimPool};
use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::id::{Namespace, OpId};
use ekiden_core::index::{DueIndex, Index};
use ekiden_core::key::Key;
use ekiden_core::record::{Record, Revision, Versioned};
use ekiden_core::task::Task;
use smallvec::SmallVec;
use tokio::sync::broadcast;

use crate::error::StoreError;
use crate::op::{Answer, Applied, Claimed, Conflict, Op, Outcome};
use crate::query::{CountScope, Counts, DueEntry, DueQuery, ListOrder, Page, RecordQuery, TaskQuery};
use crate::store::{CheckDepth, Finding, Hint, Info, Store};

/// All records, in no order.
#[derive(Debug, Default)]
pub struct Model {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    records: Vec<Versioned>,
    writes: u64,
}

impl Model {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every record, by key.
    pub fn everything(&self) -> Vec<Versioned> {
        let mut records = self.state().records.clone();
        records.sort_by(|a, b| a.key.cmp(&b.key));
        records
    }
}

impl State {
    fn find(&self, key: &Key) -> Option<&Versioned> {
        self.records.iter().find(|versioned| versioned.key == *key)
    }

    fn forget(&mut self, key: &Key) {
        self.records.retain(|versioned| versioned.key != *key);
    }

    fn put(&mut self, key: &Key, record: Record, created_by: OpId, last: OpId) -> Revision {
        self.forget(key);
        self.writes += 1;
        let revision = Revision::number(self.writes);
        self.records.push(Versioned { key: key.clone(), record, revision: revision.clone(), created_by, last });
        revision
    }

    fn commit(&mut self, commit: &Commit) -> Answer {
        let id = commit.id();
        let bears_id = |write: &Write| {
            matches!(write.action, Action::Put(..))
                && self.find(&write.key).is_some_and(|found| found.created_by == id || found.last == id)
        };
        let all_deleted = |write: &Write| write.action == Action::Delete && self.find(&write.key).is_none();
        if commit.writes().iter().any(bears_id) || commit.writes().iter().all(all_deleted) {
            return Answer::Applied(Applied { revisions: SmallVec::new() });
        }
        let unmet = |write: &&Write| match (&write.expect, self.find(&write.key)) {
            (Expect::Any, _) | (Expect::Absent, None) => false,
            (Expect::At(revision), Some(found)) => *revision != found.revision,
            _ => true,
        };
        let found: Vec<_> = commit
            .writes()
            .iter()
            .filter(unmet)
            .map(|write| (write.key.clone(), self.find(&write.key).cloned()))
            .collect();
        if !found.is_empty() {
            return Answer::Conflict(Conflict { found });
        }
        for write in commit.writes() {
            let before = self.find(&write.key).cloned();
            let created_by = before.as_ref().map_or(id, |before| before.created_by);
            match &write.action {
                Action::Check => {}
                Action::Delete => self.forget(&write.key),
                Action::Put(record, _) => drop(self.put(&write.key, record.clone(), created_by, id)),
                Action::Add(by) => {
                    let value = before.as_ref().and_then(|before| before.record.as_counter()).unwrap_or(0);
                    let last = before.as_ref().map_or(id, |before| before.last);
                    self.put(&write.key, Record::Counter(value + by), created_by, last);
                }
            }
        }
        Answer::Applied(Applied { revisions: SmallVec::new() })
    }

    fn tasks(&self) -> impl Iterator<Item = (&Versioned, &Task, Index)> {
        self.records.iter().filter_map(|versioned| {
            let task = versioned.record.as_task()?;
            Some((versioned, task.as_ref(), Index::of(&versioned.key, &versioned.record)))
        })
    }

    fn claim(&mut self, claim: &Claim) -> Answer {
        let mine = |task: &Task| {
            let taken = task.state.lease.as_ref().is_some_and(|lease| claim.took(lease));
            taken && claim.asks_in(&task.spec.namespace)
        };
        if self.tasks().any(|(_, task, _)| mine(task)) {
            let asked = self.tasks().filter(|(_, task, _)| mine(task) && claim.asks_for(&task.spec));
            let mut before: Vec<_> = asked.map(|(found, task, _)| (task.spec.order(), found.clone())).collect();
            before.sort_by(|a, b| a.0.cmp(&b.0));
            return Answer::Claimed(Claimed {
                tasks: before.into_iter().map(|(_, found)| found).collect(),
                visited: 0,
            });
        }
        self.promote(claim);
        let asked =
            |task: &Task| claim.pools.iter().find(|pool| self.room(pool) > 0 && asks(claim, pool, task)).cloned();
        let ready = |index: Index| index.ready.filter(|ready| ready.at <= claim.now);
        let mut candidates: Vec<_> = self
            .tasks()
            .filter_map(|(found, task, index)| {
                ready(index)?;
                Some((task.spec.order(), found.key.clone(), asked(task)?))
            })
            .collect();
        candidates.sort_by(|a, b| a.0.cmp(&b.0));
        let mut tasks = Vec::new();
        for (_, key, pool) in candidates {
            if tasks.len() < claim.limit && self.room(&pool) > 0 {
                tasks.extend(self.take(claim, &pool, &key));
            }
        }
        Answer::Claimed(Claimed { tasks, visited: 0 })
    }

    fn take(&mut self, claim: &Claim, pool: &ClaimPool, key: &Key) -> Option<Versioned> {
        let found = self.find(key)?.clone();
        let task = claim.take(found.record.as_task()?, pool.counter().is_some()).ok()?;
        self.put(key, Record::from(task), found.created_by, claim.id);
        if let Some(counter) = pool.counter() {
            let before = self.find(&counter).cloned();
            let running = before.as_ref().and_then(|before| before.record.as_counter()).unwrap_or(0);
            let (created_by, last) = before.map_or((claim.id, claim.id), |before| (before.created_by, before.last));
            self.put(&counter, Record::Counter(running + 1), created_by, last);
        }
        self.find(key).cloned()
    }

    fn room(&self, pool: &ClaimPool) -> usize {
        let running = pool.counter().and_then(|counter| self.find(&counter)?.record.as_counter());
        pool.room(running.unwrap_or(0))
    }

    fn promote(&mut self, claim: &Claim) {
        let due: Vec<(Versioned, Task)> = self
            .tasks()
            .filter(|(_, task, index)| {
                index.due_at(DueIndex::Promote).is_some_and(|at| at <= claim.now)
                    && claim.pools.iter().any(|pool| self.room(pool) > 0 && asks(claim, pool, task))
            })
            .filter_map(|(found, task, _)| Some((found.clone(), claim::promote(task, claim.now)?)))
            .collect();
        for (found, task) in due {
            self.put(&found.key, Record::from(task), found.created_by, claim.id);
        }
    }
}

fn asks(claim: &Claim, pool: &ClaimPool, task: &Task) -> bool {
    let kind = claim.kinds.contains(&task.spec.envelope.task_type);
    kind && pool.namespace == task.spec.namespace && pool.pool == task.spec.pool
}

#[async_trait]
impl Store for Model {
    fn info(&self) -> Info {
        Info { name: "model", durable: "", shared: false, exact_index: true, others: crate::Others::Never }
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        let mut state = self.state();
        let mut one = |op: Op| match op {
            Op::Commit(commit) => Ok(state.commit(&commit)),
            Op::Claim(claim) => claim.check().map(|()| state.claim(&claim)).map_err(StoreError::invalid),
        };
        ops.into_iter().map(&mut one).collect()
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        let state = self.state();
        Ok(keys.iter().map(|key| state.find(key).cloned()).collect())
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        let state = self.state();
        let entries = state.records.iter().filter(|found| found.key.namespace == query.namespace).filter_map(|found| {
            let at = Index::of(&found.key, &found.record).due_at(query.index)?;
            (at <= query.until).then(|| DueEntry { key: found.key.clone(), at })
        });
        let mut entries: Vec<DueEntry> = entries.collect();
        entries.sort_by(|a, b| (a.at, &a.key).cmp(&(b.at, &b.key)));
        entries.truncate(query.limit);
        Ok(entries)
    }

    /// One page with everything: the model has no need for cursors.
    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        let state = self.state();
        let matching = state.tasks().filter(|(_, task, _)| query.filter.matches(task));
        let mut items: Vec<_> =
            matching.map(|(found, task, _)| ((task.spec.created_at, task.id().clone()), found.clone())).collect();
        items.sort_by(|a, b| a.0.cmp(&b.0));
        if query.order == ListOrder::NewestFirst {
            items.reverse();
        }
        Ok(Page { items: items.into_iter().map(|(_, found)| found).collect(), cursor: None })
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        let state = self.state();
        let matches = |found: &&Versioned| {
            found.key.namespace == query.namespace
                && found.key.kind == query.kind
                && found.key.name.starts_with(query.prefix.as_str())
                && query.cursor.as_deref().is_none_or(|cursor| &*found.key.name > cursor)
        };
        let mut items: Vec<Versioned> = state.records.iter().filter(matches).cloned().collect();
        items.sort_by(|a, b| a.key.name.cmp(&b.key.name));
        let more = items.len() > query.limit;
        items.truncate(query.limit);
        let cursor = items.last().filter(|_| more).map(|last| last.key.name.to_string());
        Ok(Page { items, cursor })
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        let mut counts = Counts::zero();
        for (_, task, _) in self.state().tasks() {
            if task.spec.namespace == scope.namespace && scope.pool.as_ref().is_none_or(|pool| *pool == task.spec.pool)
            {
                *counts.by_phase.entry(task.state.phase).or_default() += 1;
            }
        }
        Ok(counts)
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        let state = self.state();
        let names: BTreeSet<&Namespace> = state.records.iter().map(|found| &found.key.namespace).collect();
        let items: Vec<_> = names.into_iter().filter(|name| after.as_ref() < Some(name)).cloned().collect();
        let cursor = items.get(limit..).filter(|rest| !rest.is_empty()).and(items.get(limit - 1));
        let cursor = cursor.map(ToString::to_string);
        Ok(Page { items: items.into_iter().take(limit).collect(), cursor })
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        broadcast::channel(1).1
    }

    async fn check(&self, _: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        Ok(Vec::new())
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
