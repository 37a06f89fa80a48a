//! Lets other tasks of the runtime go first, now and then, before and after a store's work: a store that never waits would
//! let each client finish undisturbed. On a single-threaded runtime a seed repeats the interleaving exactly.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::record::Versioned;
use ekiden_store::entropy::Entropy;
use ekiden_store::{
    CheckDepth, CountScope, Counts, DueEntry, DueQuery, Finding, Hint, Info, Op, Outcome, Page, RecordQuery, Store,
    StoreError, TaskQuery,
};
use tokio::sync::broadcast;

/// 3: how often a call gives way at most; more only makes a run longer.
const YIELDS_MAX: usize = 3;

/// A store whose calls give way at random.
pub struct Shuffled<S> {
    inner: S,
    entropy: Mutex<Entropy>,
}

impl<S: Store> Shuffled<S> {
    /// Puts the layer around a store.
    pub fn new(inner: S, seed: u64) -> Self {
        Self { inner, entropy: Mutex::new(Entropy::from_seed(seed)) }
    }

    async fn give_way(&self) {
        let times = self.entropy.lock().unwrap_or_else(PoisonError::into_inner).below(YIELDS_MAX + 1);
        for _ in 0..times {
            tokio::task::yield_now().await;
        }
    }
}

macro_rules! in_between {
    ($self:ident, $call:expr) => {{
        $self.give_way().await;
        let answer = $call.await;
        $self.give_way().await;
        answer
    }};
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Shuffled<S> {
    fn info(&self) -> Info {
        self.inner.info()
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        in_between!(self, self.inner.apply(ops))
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        in_between!(self, self.inner.get(keys))
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        in_between!(self, self.inner.due(query))
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        in_between!(self, self.inner.tasks(query))
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        in_between!(self, self.inner.records(query))
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        in_between!(self, self.inner.counts(scope))
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        in_between!(self, self.inner.namespaces(after, limit))
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.inner.watch()
    }

    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        in_between!(self, self.inner.check(depth))
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}
