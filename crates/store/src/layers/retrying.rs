//! Repeats what may be repeated: ops with their own id after a retryable error, and reads. What it cannot settle it passes on.

use async_trait::async_trait;
use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::record::Versioned;
use tokio::sync::broadcast;

use super::one_by_one;
use crate::error::{Happened, StoreError};
use crate::op::{Op, Outcome};
use crate::query::{CountScope, Counts, DueEntry, DueQuery, Page, RecordQuery, TaskQuery};
use crate::store::{CheckDepth, Finding, Hint, Info, Store};

/// A store whose passing errors are tried again, at once and a bounded number of times.
#[derive(Debug)]
pub struct Retrying<S> {
    inner: S,
    tries: usize,
}

impl<S: Store> Retrying<S> {
    /// Puts the layer around a store; `tries` counts the first one.
    pub const fn new(inner: S, tries: usize) -> Self {
        Self { inner, tries }
    }

    async fn one(&self, op: Op) -> Outcome {
        let mut outcome = Err(StoreError::unavailable("no try was allowed"));
        for _ in 0..self.tries {
            let answer = self.inner.apply(vec![op.clone()]).await.pop();
            outcome =
                doubtful(&outcome, answer.unwrap_or_else(|| Err(StoreError::unknown("the store gave no answer"))));
            if !is_retryable(&outcome) {
                break;
            }
        }
        outcome
    }
}

macro_rules! again {
    ($self:ident, $call:expr) => {{
        let mut left = $self.tries;
        loop {
            left = left.saturating_sub(1);
            match $call.await {
                Err(error) if error.retryable && left > 0 => {}
                answer => return answer,
            }
        }
    }};
}

#[async_trait]
impl<S: Store> Store for Retrying<S> {
    fn info(&self) -> Info {
        self.inner.info()
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        one_by_one(ops, |op| self.one(op)).await
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        again!(self, self.inner.get(keys.clone()))
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        again!(self, self.inner.due(query.clone()))
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        again!(self, self.inner.tasks(query.clone()))
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        again!(self, self.inner.records(query.clone()))
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        again!(self, self.inner.counts(scope.clone()))
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        again!(self, self.inner.namespaces(after.clone(), limit))
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.inner.watch()
    }

    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        again!(self, self.inner.check(depth))
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

fn is_retryable(outcome: &Outcome) -> bool {
    outcome.as_ref().is_err_and(|error| error.retryable)
}

/// An op that may have happened in one try stays doubtful, whatever a later try says that did not get through.
fn doubtful(earlier: &Outcome, later: Outcome) -> Outcome {
    let unknown = earlier.as_ref().is_err_and(|error| error.happened == Happened::Unknown);
    later.map_err(|error| if unknown { StoreError { happened: Happened::Unknown, ..error } } else { error })
}
