//! Says what a store was asked and what it answered, as structured events at debug level. Payloads never appear.

use async_trait::async_trait;
use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::record::Versioned;
use tokio::sync::broadcast;
use tracing::{debug, warn};

use crate::error::StoreError;
use crate::op::{Answer, Op, Outcome};
use crate::query::{CountScope, Counts, DueEntry, DueQuery, Page, RecordQuery, TaskQuery};
use crate::store::{CheckDepth, Finding, Hint, Info, Store};

/// A store whose requests and answers are logged.
#[derive(Debug)]
pub struct Traced<S> {
    inner: S,
}

impl<S: Store> Traced<S> {
    /// Puts the layer around a store.
    pub const fn new(inner: S) -> Self {
        Self { inner }
    }
}

#[async_trait]
impl<S: Store> Store for Traced<S> {
    fn info(&self) -> Info {
        self.inner.info()
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        let asked: Vec<_> = ops.iter().map(|op| (op.id(), matches!(op, Op::Claim(_)))).collect();
        let outcomes = self.inner.apply(ops).await;
        for ((id, claims), outcome) in asked.iter().zip(&outcomes) {
            let op = if *claims { "claim" } else { "commit" };
            match outcome {
                Ok(Answer::Applied(_)) => debug!(%id, op, answer = "applied", "store answered"),
                Ok(Answer::Claimed(claimed)) => {
                    debug!(%id, op, tasks = claimed.tasks.len(), visited = claimed.visited, "store answered");
                }
                Ok(Answer::Conflict(conflict)) => {
                    let keys: Vec<_> = conflict.found.iter().map(|(key, _)| key.to_string()).collect();
                    debug!(%id, op, answer = "conflict", ?keys, "store answered");
                }
                Err(error) => warn!(%id, op, %error, "store failed"),
            }
        }
        outcomes
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        let asked = keys.len();
        told("get", asked, self.inner.get(keys).await)
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        let limit = query.limit;
        told("due", limit, self.inner.due(query).await)
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        let limit = query.limit;
        told("tasks", limit, self.inner.tasks(query).await)
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        let limit = query.limit;
        told("records", limit, self.inner.records(query).await)
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        told("counts", 1, self.inner.counts(scope).await)
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        told("namespaces", limit, self.inner.namespaces(after, limit).await)
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.inner.watch()
    }

    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        told("check", 1, self.inner.check(depth).await)
    }

    async fn close(&self) -> Result<(), StoreError> {
        told("close", 1, self.inner.close().await)
    }
}

fn told<T>(call: &'static str, asked: usize, answer: Result<T, StoreError>) -> Result<T, StoreError> {
    match &answer {
        Ok(_) => debug!(call, asked, "store answered"),
        Err(error) => warn!(call, asked, %error, "store failed"),
    }
    answer
}
