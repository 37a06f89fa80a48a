//! The memory store: complete, exact, never durable. It is the executable specification that other stores are compared with.

mod claim;
mod commit;
mod indexes;
mod listed;
mod listing;
mod run;
mod space;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ekiden_core::id::{Namespace, OpId};
use ekiden_core::index::{DueIndex, Index};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::limits;
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::{Record, Versioned};
use ekiden_core::task::Task;
use ekiden_core::time::Timestamp;
use hashbrown::HashMap;
use tokio::sync::broadcast;

use crate::error::StoreError;
use crate::op::{Op, Outcome};
use crate::query::{CountScope, Counts, DueEntry, DueQuery, Page, RecordQuery, TaskQuery, check_batch};
use crate::store::{CheckDepth, Finding, Hint, Info, Store};

use indexes::Lists;
use listed::Ident;
use space::{Marks, Slot, Space, Stamp};

/// 4,096 hints: a watcher that is further behind polls anyway.
const HINTS_KEPT: usize = 4_096;

/// Keeps records in this process, under one short lock.
#[derive(Debug)]
pub struct MemoryStore {
    shelf: Mutex<Shelf>,
    hints: broadcast::Sender<Hint>,
}

/// Everything behind the lock.
#[derive(Debug, Default)]
struct Shelf {
    closed: bool,
    revision: u64,
    spaces: HashMap<Namespace, Space>,
    /// Records that are no tasks.
    others: HashMap<Key, Other>,
    taken: Taken,
}

/// A record that is no task, and the index entries that it has.
#[derive(Debug)]
struct Other {
    record: Record,
    stamp: Stamp,
    due: Box<[(DueIndex, Timestamp)]>,
}

/// What each claim took and has not ended, so that a repeated claim finds it.
type Taken = HashMap<OpId, Vec<(Namespace, Slot)>>;

/// Where hints go, if anybody listens.
struct Hints<'a>(Option<&'a broadcast::Sender<Hint>>);

impl Hints<'_> {
    /// Nobody listening any more is as good as nobody listening.
    fn ready(&self, namespace: &Namespace) {
        if let Some(sender) = self.0 {
            let _ = sender.send(Hint::Ready(namespace.clone()));
        }
    }

    fn changed(&self, key: &Key) {
        if let Some(sender) = self.0 {
            let _ = sender.send(Hint::Changed(key.clone()));
        }
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self { shelf: Mutex::default(), hints: broadcast::channel(HINTS_KEPT).0 }
    }

    /// The lock is never held across an await, and a panic inside it leaves nothing half done: records are replaced whole.
    fn shelf(&self) -> Result<MutexGuard<'_, Shelf>, StoreError> {
        let shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        if shelf.closed { Err(StoreError::closed()) } else { Ok(shelf) }
    }

    fn carry_out(shelf: &mut Shelf, op: Op, hints: &Hints<'_>) -> Outcome {
        match op {
            Op::Commit(commit) => Ok(shelf.commit(commit, hints)),
            Op::Claim(claim) => {
                claim.check()?;
                Ok(shelf.claim(&claim, hints))
            }
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Shelf {
    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    fn get(&self, key: &Key) -> Option<Versioned> {
        if key.kind == RecordKind::Task {
            return self.spaces.get(&key.namespace)?.get(&Ident::of(&key.name)).map(space::Entry::versioned);
        }
        self.others.get(key).map(|other| other.stamp.on(key.clone(), other.record.clone()))
    }

    fn stamp(&self, key: &Key) -> Option<Stamp> {
        if key.kind == RecordKind::Task {
            return self.spaces.get(&key.namespace)?.get(&Ident::of(&key.name)).map(|entry| entry.stamp);
        }
        self.others.get(key).map(|other| other.stamp)
    }

    fn counter(&self, key: &Key) -> Option<i64> {
        self.others.get(key)?.record.as_counter()
    }

    /// Creates or replaces a record and its index entries, in the name of an op. Gives its new revision.
    fn put(&mut self, key: Key, record: Record, index: &Index, by: OpId, hints: &Hints<'_>) -> u64 {
        match record {
            Record::Task(task) => self.put_task(&key, task, index, by, hints),
            record => {
                let revision = self.next_revision();
                let created_by = self.others.get(&key).map_or(by, |found| found.stamp.created_by);
                self.put_other(key, record, index, Stamp { revision, created_by, last: by }, hints);
                revision
            }
        }
    }

    fn put_task(&mut self, key: &Key, task: Arc<Task>, index: &Index, by: OpId, hints: &Hints<'_>) -> u64 {
        let revision = self.next_revision();
        let (id, marks) = (Ident::of(&key.name), Marks::of(index));
        let space = self.spaces.entry(key.namespace.clone()).or_default();
        if marks.ready.is_some() {
            hints.ready(&key.namespace);
        }
        hints.changed(key);
        let (slot, before) = match space.find(&id) {
            Some(slot) => {
                let old = space.entries.at(slot);
                let (before, stamp) = (old.claim(), Stamp { revision, last: by, ..old.stamp });
                space.replace(slot, task, stamp, marks);
                (slot, before)
            }
            None => (space.add(id, task, Stamp { revision, created_by: by, last: by }, marks), None),
        };
        let after = space.entries.at(slot).claim();
        retake(&mut self.taken, &key.namespace, slot, before, after);
        revision
    }

    fn put_other(&mut self, key: Key, record: Record, index: &Index, stamp: Stamp, hints: &Hints<'_>) {
        let due: Box<[_]> = index.due.iter().map(|due| (due.index, due.at)).collect();
        let lists = &mut self.spaces.entry(key.namespace.clone()).or_default().lists;
        hints.changed(&key);
        match self.others.get_mut(&key) {
            Some(old) if old.due == due => *old = Other { record, stamp, due },
            old => {
                if let Some(old) = old {
                    lists.remove_other(&key, &old.due);
                }
                lists.add_other(&key, &due);
                self.others.insert(key, Other { record, stamp, due });
            }
        }
    }

    fn delete(&mut self, key: &Key, hints: &Hints<'_>) {
        let Some(space) = self.spaces.get_mut(&key.namespace) else { return };
        if key.kind == RecordKind::Task {
            let Some(slot) = space.find(&Ident::of(&key.name)) else { return };
            let claim = space.remove(slot).and_then(|entry| entry.claim());
            retake(&mut self.taken, &key.namespace, slot, claim, None);
        } else {
            let Some(old) = self.others.remove(key) else { return };
            space.lists.remove_other(key, &old.due);
        }
        if space.is_empty() {
            self.spaces.remove(&key.namespace);
        }
        hints.changed(key);
    }

    fn due(&self, query: &DueQuery) -> Vec<DueEntry> {
        let Some(space) = self.spaces.get(&query.namespace) else { return Vec::new() };
        let list = space.lists.due(query.index).iter();
        let due = list.take_while(|(at, ..)| *at <= query.until).take(query.limit);
        due.map(|(at, kind, id)| DueEntry { key: id.key(*kind, &query.namespace), at: *at }).collect()
    }

    fn counts(&self, scope: &CountScope) -> Counts {
        let mut counts = Counts::zero();
        let Some(space) = self.spaces.get(&scope.namespace) else { return counts };
        for (phase, count) in &mut counts.by_phase {
            *count = match &scope.pool {
                None => u64::try_from(space.lists.phase(*phase).len()).unwrap_or(u64::MAX),
                Some(pool) => space.lists.pools.get(pool).map_or(0, |pool| pool.counted(*phase)),
            };
        }
        counts
    }

    /// Builds all index entries from the records alone and compares.
    fn check(&self) -> Vec<Finding> {
        let damaged = |key, what: &str| Finding { code: ReasonCode::StoreDamaged, key, what: what.to_owned() };
        let unlike = |key: Key| damaged(Some(key), "the index entries do not follow from the record");
        let mut findings = Vec::new();
        let mut taken = Taken::default();
        let mut rebuilt: HashMap<&Namespace, Lists> = HashMap::new();
        for (namespace, space) in &self.spaces {
            let lists = rebuilt.entry(namespace).or_default();
            for (slot, entry) in space.entries.iter() {
                lists.add(&space.entries, slot, entry);
                retake(&mut taken, namespace, slot, None, entry.claim());
                if Marks::of(&Index::of(&entry.key(), &Record::Task(entry.task.clone()))) != entry.marks {
                    findings.push(unlike(entry.key()));
                }
            }
        }
        for (key, other) in &self.others {
            rebuilt.entry(&key.namespace).or_default().add_other(key, &other.due);
            let index = Index::of(key, &other.record);
            if !index.due.iter().map(|due| (due.index, due.at)).eq(other.due.iter().copied()) {
                findings.push(unlike(key.clone()));
            }
        }
        let kept: HashMap<_, _> = self.spaces.iter().map(|(namespace, space)| (namespace, &space.lists)).collect();
        let follows = kept.len() == rebuilt.len() && rebuilt.iter().all(|(name, lists)| kept.get(name) == Some(&lists));
        if !follows || sorted(&taken) != sorted(&self.taken) {
            findings.push(damaged(None, "the index does not follow from the records"));
        }
        findings
    }
}

/// A task went from one claim to another, or to none.
fn retake(taken: &mut Taken, namespace: &Namespace, slot: Slot, before: Option<OpId>, after: Option<OpId>) {
    if before == after {
        return;
    }
    if let Some(claim) = before
        && let Some(tasks) = taken.get_mut(&claim)
    {
        if let Some(at) = tasks.iter().position(|(space, task)| *task == slot && space == namespace) {
            tasks.swap_remove(at);
        }
        if tasks.is_empty() {
            taken.remove(&claim);
        }
    }
    if let Some(claim) = after {
        taken.entry(claim).or_default().push((namespace.clone(), slot));
    }
}

fn sorted(taken: &Taken) -> Vec<(OpId, &Namespace, Slot)> {
    let mut all: Vec<_> = taken
        .iter()
        .flat_map(|(claim, tasks)| tasks.iter().map(|(namespace, slot)| (*claim, namespace, *slot)))
        .collect();
    all.sort_unstable();
    all
}

#[async_trait]
impl Store for MemoryStore {
    fn info(&self) -> Info {
        Info { name: "memory", durable: "", shared: false, exact_index: true }
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        let refused = |error: StoreError, len: usize| vec![Err(error); len];
        if let Err(refusal) = check_batch("ops", ops.len(), limits::APPLY_OPS_MAX) {
            return refused(refusal.into(), ops.len());
        }
        match self.shelf() {
            Ok(mut shelf) => {
                let hints = Hints(Some(&self.hints).filter(|hints| hints.receiver_count() > 0));
                ops.into_iter().map(|op| Self::carry_out(&mut shelf, op, &hints)).collect()
            }
            Err(error) => refused(error, ops.len()),
        }
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        check_batch("keys", keys.len(), limits::GET_KEYS_MAX)?;
        let shelf = self.shelf()?;
        Ok(keys.iter().map(|key| shelf.get(key)).collect())
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        query.check()?;
        Ok(self.shelf()?.due(&query))
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        query.check()?;
        self.shelf()?.tasks(&query)
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        query.check()?;
        Ok(self.shelf()?.records(&query))
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        Ok(self.shelf()?.counts(&scope))
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.hints.subscribe()
    }

    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        let shelf = self.shelf()?;
        Ok(match depth {
            CheckDepth::Quick => Vec::new(),
            CheckDepth::Full => shelf.check(),
        })
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.shelf()?.closed = true;
        Ok(())
    }
}
