//! A store around a store that can stop answering, and that counts what it keeps.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ekiden::store::{CountScope, Counts, MemoryStore, Page, Store, TaskQuery};
use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::record::Versioned;
use ekiden_store::{CheckDepth, DueEntry, DueQuery, Finding, Hint, Info, Op, Outcome, RecordQuery, StoreError};
use tokio::sync::broadcast;

/// A memory store whose door can be shut: from then on nothing is ever answered.
#[derive(Default)]
pub struct Shop {
    inner: MemoryStore,
    shut: AtomicBool,
    shared: bool,
}

impl Shop {
    /// A store that says that several machines write to it.
    pub fn of_several_machines() -> Self {
        Self { shared: true, ..Self::default() }
    }

    pub fn shut(&self) {
        self.shut.store(true, Ordering::SeqCst);
    }

    async fn open(&self) {
        if self.shut.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Store for Shop {
    fn info(&self) -> Info {
        Info { shared: self.shared, ..self.inner.info() }
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        self.open().await;
        self.inner.apply(ops).await
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        self.open().await;
        self.inner.get(keys).await
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        self.open().await;
        self.inner.due(query).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        self.open().await;
        self.inner.tasks(query).await
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        self.open().await;
        self.inner.records(query).await
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        self.inner.counts(scope).await
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        self.open().await;
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
