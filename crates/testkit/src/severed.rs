//! A line to a store that can be cut and mended: a process that lives on and reaches nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::record::Versioned;
use ekiden_store::{
    CheckDepth, CountScope, Counts, DueEntry, DueQuery, Finding, Hint, Info, Op, Outcome, Page, RecordQuery, Store,
    StoreError, TaskQuery,
};
use tokio::sync::broadcast;

/// Whether a line is cut. Cheap to clone; all clones are the same line.
#[derive(Clone, Debug, Default)]
pub struct Line {
    cut: Arc<AtomicBool>,
    is_long: bool,
}

impl Line {
    /// A line to a store in another process: what is behind it says so.
    pub fn long() -> Self {
        Self { is_long: true, ..Self::default() }
    }

    /// Cuts it.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// Mends it.
    pub fn mend(&self) {
        self.cut.store(false, Ordering::SeqCst);
    }

    fn holds(&self) -> Result<(), StoreError> {
        if self.cut.load(Ordering::SeqCst) { Err(StoreError::unavailable("the line is cut")) } else { Ok(()) }
    }
}

/// A store at the other end of a line.
pub struct Severed<S> {
    inner: S,
    line: Line,
}

impl<S: Store> Severed<S> {
    /// Puts the line in front of a store.
    pub const fn new(inner: S, line: Line) -> Self {
        Self { inner, line }
    }

    /// A reply that comes when the line is cut meanwhile does not arrive.
    fn arrives(&self, outcome: Outcome) -> Outcome {
        match self.line.holds() {
            Ok(()) => outcome,
            Err(_) => outcome.and(Err(StoreError::unknown("the line was cut before the reply came"))),
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Severed<S> {
    fn info(&self) -> Info {
        let info = self.inner.info();
        Info { shared: info.shared || self.line.is_long, ..info }
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        if let Err(error) = self.line.holds() {
            return vec![Err(error); ops.len()];
        }
        self.inner.apply(ops).await.into_iter().map(|outcome| self.arrives(outcome)).collect()
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        self.line.holds()?;
        self.inner.get(keys).await
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        self.line.holds()?;
        self.inner.due(query).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        self.line.holds()?;
        self.inner.tasks(query).await
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        self.line.holds()?;
        self.inner.records(query).await
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        self.line.holds()?;
        self.inner.counts(scope).await
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        self.line.holds()?;
        self.inner.namespaces(after, limit).await
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.inner.watch()
    }

    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        self.inner.check(depth).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}
