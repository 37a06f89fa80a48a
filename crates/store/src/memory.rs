//! The memory store: complete, exact, never durable. It is the executable specification that other stores are compared with.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use async_trait::async_trait;
use ekiden_core::brief::Brief;
use ekiden_core::commit::{Action, Expect};
use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::record::{Record, Versioned};
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

/// 256 looks at the lock before a thread goes to sleep for it: some ten microseconds, a dozen batches of ops.
const LOOKS_MAX: usize = 256;

/// 4 pauses between two looks: a fraction of what most ops take, so that whoever waits comes hardly later than it could.
const PAUSES: usize = 4;

/// Keeps records in this process, under one short lock.
#[derive(Debug)]
pub struct MemoryStore {
    inside: Mutex<Inside>,
    hints: Hints,
}

/// What the lock guards.
#[derive(Debug)]
struct Inside {
    /// `None` once the store was closed. In a box, so that those who look at the lock leave alone what its holder works on.
    shelf: Option<Box<Shelf>>,
    /// What tasks were before they ended, for whoever hands tasks in to drop: memory that was asked for by one thread and is
    /// given back by another makes both wait for the system's allocator, unless that one asks for the like right away.
    left: VecDeque<Arc<Task>>,
}

/// 64 tasks that nobody has dropped yet.
const LEFT_MAX: usize = 64;

/// 4 KiB: what has a larger payload is dropped at once.
const LEFT_BYTES_MAX: usize = 4_096;

impl Inside {
    /// Takes what a batch replaced, or lets it drop as many as it added.
    fn trade(&mut self, listener: &mut Listener<'_>) {
        if listener.added > 0 {
            let count = listener.added.min(self.left.len());
            listener.replaced.extend(self.left.drain(..count));
        } else {
            let small = |task: &Arc<Task>| task.spec.envelope.payload.len() <= LEFT_BYTES_MAX;
            if listener.replaced.iter().all(small) {
                let room = LEFT_MAX - self.left.len();
                let count = room.min(listener.replaced.len());
                self.left.extend(listener.replaced.drain(..count));
            }
        }
    }
}

/// Hears of changes. Nothing is ever away.
struct Listener<'a> {
    /// Where hints go, if anybody listens.
    hints: Option<&'a Hints>,
    /// What tasks were before, to be dropped without the lock.
    replaced: SmallVec<[Arc<Task>; FEW]>,
    /// Tasks of these ops in few words, and which they are. What ended is most of what a store holds, and takes less than half the memory
    /// so.
    briefs: SmallVec<[(*const Task, Box<Brief>); FEW]>,
    /// How many tasks are new, if nobody was faster.
    added: usize,
}

/// 4 tasks need no list: most requests are about one.
const FEW: usize = 4;

impl<'a> Listener<'a> {
    fn new(hints: &'a Hints, ops: &[Op]) -> Self {
        let hints = Some(hints).filter(|hints| hints.are_heard());
        let mut listener = Self { hints, replaced: SmallVec::new(), briefs: SmallVec::new(), added: 0 };
        let commits = ops.iter().filter_map(|op| if let Op::Commit(commit) = op { Some(commit) } else { None });
        for write in commits.flat_map(|commit| commit.writes()) {
            let Action::Put(Record::Task(task), _) = &write.action else { continue };
            if write.expect == Expect::Absent {
                listener.added += 1;
            } else if let Some(brief) = Brief::of(task) {
                listener.briefs.push((Arc::as_ptr(task), Box::new(brief)));
            }
        }
        listener
    }
}

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

    fn brief(&mut self, task: &Arc<Task>) -> Option<Box<Brief>> {
        let at = self.briefs.iter().position(|(of, _)| std::ptr::eq(*of, Arc::as_ptr(task)))?;
        Some(self.briefs.swap_remove(at).1)
    }

    fn fetch(&mut self, _: &Key) -> Option<Arc<Task>> {
        None
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        let inside = Inside { shelf: Some(Box::default()), left: VecDeque::with_capacity(LEFT_MAX) };
        Self { inside: Mutex::new(inside), hints: Hints::new() }
    }

    /// The lock is never held across an await, and a panic inside it leaves nothing half done: records are replaced whole.
    ///
    /// It is held for a few microseconds, and a thread that goes to sleep for it costs more than that, twice. The mutex of the
    /// standard library does not spin once somebody sleeps, so under load everybody would.
    fn lock(&self) -> MutexGuard<'_, Inside> {
        for _ in 0..LOOKS_MAX {
            match self.inside.try_lock() {
                Ok(inside) => return inside,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => (0..PAUSES).for_each(|_| std::hint::spin_loop()),
            }
        }
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, question: impl FnOnce(&Shelf) -> T) -> Result<T, StoreError> {
        self.lock().shelf.as_deref().map(question).ok_or_else(StoreError::closed)
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
        let mut listener = Listener::new(&self.hints, &ops);
        let mut inside = self.lock();
        match inside.shelf.as_mut() {
            Some(shelf) => outcomes.extend(ops.iter_mut().map(|op| shelf.carry_out(op, &mut listener))),
            None => outcomes.resize(ops.len(), Err(StoreError::closed())),
        }
        inside.trade(&mut listener);
        drop(inside);
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
        self.lock().shelf.take().map(drop).ok_or_else(StoreError::closed)
    }
}

impl Look {
    fn here(self) -> Option<Versioned> {
        if let Self::Here(versioned) = self { Some(versioned) } else { None }
    }
}
