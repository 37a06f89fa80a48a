//! The memory store: complete, exact, never durable. It is the executable specification that other stores are compared with.

mod claim;
mod commit;
mod indexes;
mod listing;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ekiden_core::index::Index;
use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::{Revision, Versioned};
use tokio::sync::broadcast;

use crate::error::StoreError;
use crate::op::{Op, Outcome};
use crate::query::{CountScope, Counts, DueEntry, DueQuery, Page, RecordQuery, TaskQuery, check_batch};
use crate::store::{CheckDepth, Finding, Hint, Info, Store};

use indexes::Indexes;

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
    records: HashMap<Key, Entry>,
    indexes: Indexes,
}

/// A record and the index entries that it has.
#[derive(Clone, Debug)]
struct Entry {
    versioned: Versioned,
    index: Index,
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

    fn carry_out(&self, shelf: &mut Shelf, op: Op) -> Outcome {
        let watched = self.hints.receiver_count() > 0;
        let mut hint = |hint: Hint| {
            if watched {
                // Nobody listening any more is as good as nobody listening.
                let _ = self.hints.send(hint);
            }
        };
        match op {
            Op::Commit(commit) => Ok(shelf.commit(commit, &mut hint)),
            Op::Claim(claim) => {
                claim.check()?;
                Ok(shelf.claim(&claim, &mut hint))
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
    fn next_revision(&mut self) -> Revision {
        self.revision += 1;
        Revision::number(self.revision)
    }

    fn get(&self, key: &Key) -> Option<&Versioned> {
        self.records.get(key).map(|entry| &entry.versioned)
    }

    /// Replaces a record and its index entries.
    fn put(&mut self, versioned: Versioned, index: Index, hint: &mut impl FnMut(Hint)) {
        if let Some(old) = self.records.get(&versioned.key) {
            self.indexes.remove(&old.versioned, &old.index);
        }
        self.indexes.insert(&versioned, &index);
        if index.ready.is_some() {
            hint(Hint::Ready(versioned.key.namespace.clone()));
        }
        hint(Hint::Changed(versioned.key.clone()));
        self.records.insert(versioned.key.clone(), Entry { versioned, index });
    }

    fn delete(&mut self, key: &Key, hint: &mut impl FnMut(Hint)) {
        if let Some(old) = self.records.remove(key) {
            self.indexes.remove(&old.versioned, &old.index);
            hint(Hint::Changed(key.clone()));
        }
    }

    /// Builds all index entries from the records alone and compares.
    fn check(&self) -> Vec<Finding> {
        let mut rebuilt = Indexes::default();
        let mut findings = Vec::new();
        for (key, entry) in &self.records {
            let index = Index::of(key, &entry.versioned.record);
            if index != entry.index {
                let what = "the index entries do not follow from the record".to_owned();
                findings.push(Finding { code: ReasonCode::StoreDamaged, key: Some(key.clone()), what });
            }
            rebuilt.insert(&entry.versioned, &index);
        }
        if rebuilt != self.indexes {
            let what = "the index does not follow from the records".to_owned();
            findings.push(Finding { code: ReasonCode::StoreDamaged, key: None, what });
        }
        findings
    }
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
            Ok(mut shelf) => ops.into_iter().map(|op| self.carry_out(&mut shelf, op)).collect(),
            Err(error) => refused(error, ops.len()),
        }
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        check_batch("keys", keys.len(), limits::GET_KEYS_MAX)?;
        let shelf = self.shelf()?;
        Ok(keys.iter().map(|key| shelf.get(key).cloned()).collect())
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        query.check()?;
        Ok(self.shelf()?.indexes.due(&query))
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
        Ok(self.shelf()?.indexes.counts(&scope))
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
