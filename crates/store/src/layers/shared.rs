//! A shared store is a store.

use std::sync::Arc;

use async_trait::async_trait;
use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::record::Versioned;
use tokio::sync::broadcast;

use crate::error::StoreError;
use crate::op::{Op, Outcome};
use crate::query::{CountScope, Counts, DueEntry, DueQuery, Page, RecordQuery, TaskQuery};
use crate::store::{CheckDepth, Finding, Hint, Info, Store};

#[async_trait]
impl<S: Store + ?Sized> Store for Arc<S> {
    fn info(&self) -> Info {
        self.as_ref().info()
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        self.as_ref().apply(ops).await
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        self.as_ref().get(keys).await
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        self.as_ref().due(query).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        self.as_ref().tasks(query).await
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        self.as_ref().records(query).await
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        self.as_ref().counts(scope).await
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        self.as_ref().namespaces(after, limit).await
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.as_ref().watch()
    }

    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        self.as_ref().check(depth).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.as_ref().close().await
    }
}
