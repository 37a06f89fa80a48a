//! The memory store: complete, exact, never durable. It is the executable specification that other stores are compared with.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use async_trait::async_trait;
use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::record::Versioned;
use ekiden_core::task::Task;
use smallvec::SmallVec;
use tokio::sync::broadcast;

use crate::error::StoreError;
use crate::hints::Hints;
use crate::op::{Op, Outcome};
use crate::query::{
    CountScope, Counts, DueEntry, DueQuery, Page, RecordQuery, TaskQuery, check_batch, check_namespaces,
};
use crate::shelf::{Candidate, Look, Put, Scribe, Shelf, cursor_of, parse_cursor};
use crate::store::{CheckDepth, Finding, Hint, Info, Others, Store};

/// 16 looks at the lock before a thread goes to sleep for it: some microseconds, about two batches of ops.
const LOOKS_MAX: usize = 16;

/// Keeps records in this process, under one short lock.
#[derive(Debug)]
pub struct MemoryStore {
    /// `None` once the store was closed.
    shelf: Mutex<Option<Shelf>>,
    hints: Hints,
}

/// Hears of changes. Nothing is ever away.
struct Listener<'a> {
    /// Where hints go, if anybody listens.
    hints: Option<&'a Hints>,
    /// What tasks were before, to be dropped without the lock.
    replaced: SmallVec<[Arc<Task>; REPLACED_AT_ONCE]>,
}

/// 4 tasks that were replaced need no list: most requests replace one.
const REPLACED_AT_ONCE: usize = 4;

impl Scribe for Listener<'_> {
    fn put(&mut self, put: Put<'_>) {
        if let Some(hints) = self.hints {
            if put.ready {
                hints.send(Hint::Ready(put.key.namespace.clone()));
            }
            hints.send(Hint::Changed(put.key.clone()));
        }
    }

    fn deleted(&mut self, key: &Key, _: u64) {
        if let Some(hints) = self.hints {
            hints.send(Hint::Changed(key.clone()));
        }
    }

    fn replaced(&mut self, old: Arc<Task>) {
        self.replaced.push(old);
    }

    fn fetch(&mut self, _: &Key) -> Option<Arc<Task>> {
        None
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self { shelf: Mutex::new(Some(Shelf::default())), hints: Hints::new() }
    }

    /// The lock is never held across an await, and a panic inside it leaves nothing half done: records are replaced whole.
    ///
    /// It is held for a few microseconds, and a thread that goes to sleep for it costs more than that, twice. The mutex of the
    /// standard library does not spin once somebody sleeps, so under load everybody would.
    fn lock(&self) -> MutexGuard<'_, Option<Shelf>> {
        for looks in 0..LOOKS_MAX {
            match self.shelf.try_lock() {
                Ok(shelf) => return shelf,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                // Each look takes the lock's line of memory away from its holder, so there are not many of them.
                Err(TryLockError::WouldBlock) => (0..8 << looks.min(3)).for_each(|_| std::hint::spin_loop()),
            }
        }
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, question: impl FnOnce(&Shelf) -> T) -> Result<T, StoreError> {
        self.lock().as_ref().map(question).ok_or_else(StoreError::closed)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn info(&self) -> Info {
        Info { name: "memory", durable: "", shared: false, exact_index: true, others: Others::Never }
    }

    async fn apply(&self, mut ops: Vec<Op>) -> Vec<Outcome> {
        if let Err(refusal) = check_batch("ops", ops.len(), limits::APPLY_OPS_MAX) {
            return vec![Err(refusal.into()); ops.len()];
        }
        // Made before the lock and dropped behind it, like what is left of the ops and what they replaced: whoever allocates may
        // have to wait for others, and then all who want the lock wait too.
        let mut outcomes = Vec::with_capacity(ops.len());
        let hints = Some(&self.hints).filter(|hints| hints.are_heard());
        let mut listener = Listener { hints, replaced: SmallVec::new() };
        let mut shelf = self.lock();
        match shelf.as_mut() {
            Some(shelf) => outcomes.extend(ops.iter_mut().map(|op| shelf.carry_out(op, &mut listener))),
            None => outcomes.resize(ops.len(), Err(StoreError::closed())),
        }
        drop(shelf);
        outcomes
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        check_batch("keys", keys.len(), limits::GET_KEYS_MAX)?;
        self.read(|shelf| keys.iter().map(|key| shelf.look(key).here()).collect())
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        query.check()?;
        self.read(|shelf| shelf.due(&query))
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        query.check()?;
        let after = query.cursor.as_deref().map(parse_cursor).transpose()?;
        let scan = self.read(|shelf| shelf.scan(&query, after.as_ref()))?;
        let cursor = scan.last.filter(|_| scan.more).map(|last| cursor_of(&last));
        Ok(Page { items: scan.found.into_iter().filter_map(Candidate::here).collect(), cursor })
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        query.check()?;
        self.read(|shelf| shelf.records(&query))
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        self.read(|shelf| shelf.counts(&scope))
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        check_namespaces(limit)?;
        self.read(|shelf| shelf.namespaces(after.as_ref(), limit))
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.hints.watch()
    }

    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        self.read(|shelf| match depth {
            CheckDepth::Quick => Vec::new(),
            CheckDepth::Full => shelf.check([]),
        })
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.lock().take().map(drop).ok_or_else(StoreError::closed)
    }
}

impl Look {
    fn here(self) -> Option<Versioned> {
        if let Self::Here(versioned) = self { Some(versioned) } else { None }
    }
}
