//! The store itself: refuses what cannot be asked, and hands the rest to the file of its subject.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use ekiden_core::id::Namespace;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::limits;
use ekiden_core::record::Versioned;
use ekiden_store::{
    CheckDepth, CountScope, Counts, DueEntry, DueQuery, Finding, Hint, Info, Op, Outcome, Page, RecordQuery, Store,
    StoreError, TaskQuery, check_batch, check_namespaces,
};
use tokio::sync::broadcast;
use tokio::task::JoinSet;

use crate::shared::{Shared, lock};
use crate::units::Units;

/// 16 requests at once: enough to hide the way to the service, few enough to leave connections to others.
const TOGETHER_MAX: usize = 16;

/// Keeps records in tables of DynamoDB, which many processes and foreign programs share.
pub struct DynamoStore {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for DynamoStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DynamoStore").field("tables", &self.shared.names).finish_non_exhaustive()
    }
}

impl DynamoStore {
    pub(crate) const fn over(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// What the requests of this process have cost so far, as DynamoDB counts it.
    pub fn units(&self) -> Units {
        *lock(&self.shared.units)
    }

    /// Counts all tasks anew, at a pace that leaves the tables to those who work, and repairs the numbers that drifted. Says how
    /// many did.
    pub async fn recount(&self) -> Result<u64, StoreError> {
        self.shared.open()?;
        self.shared.recount().await
    }

    /// What a check of damage does not look for: old tables, clocks that disagree, hot lines, and with a full look counts that drifted,
    /// payloads without a task and tasks of silent foreign runners. The tables and indexes must be there.
    pub async fn survey(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        self.shared.open()?;
        self.shared.survey(depth).await
    }

    /// Damage first; where tables and indexes are as they should be, the survey too.
    pub async fn check_all(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        let mut findings = self.check(depth).await?;
        if findings.iter().all(|finding| finding.key.is_some()) {
            findings.extend(self.survey(depth).await?);
        }
        Ok(findings)
    }

    /// How many ops from here on can be sent together: commits that have no key in common.
    fn independent(ops: &[Op]) -> usize {
        let mut keys: HashSet<&Key> = HashSet::new();
        let mut count = 0;
        for op in ops.iter().take(TOGETHER_MAX) {
            let Op::Commit(commit) = op else { break };
            if commit.writes().iter().any(|write| keys.contains(&write.key)) {
                break;
            }
            keys.extend(commit.writes().iter().map(|write| &write.key));
            count += 1;
        }
        count
    }

    async fn commit_together(&self, mut ops: Vec<Op>) -> Vec<Outcome> {
        if ops.len() == 1 {
            // As most calls are: no task of its own for it.
            return match ops.pop() {
                Some(Op::Commit(commit)) => vec![self.shared.commit(&commit).await],
                Some(Op::Claim(claim)) => vec![self.shared.claim(&claim).await],
                None => Vec::new(),
            };
        }
        let mut outcomes: Vec<Outcome> = ops.iter().map(|_| Err(StoreError::unknown("the op ended early"))).collect();
        let mut sent = JoinSet::new();
        for (at, op) in ops.into_iter().enumerate() {
            let shared = self.shared.clone();
            sent.spawn(async move {
                match op {
                    Op::Commit(commit) => (at, shared.commit(&commit).await),
                    Op::Claim(claim) => (at, shared.claim(&claim).await),
                }
            });
        }
        while let Some(done) = sent.join_next().await {
            if let Ok((at, outcome)) = done
                && let Some(place) = outcomes.get_mut(at)
            {
                *place = outcome;
            }
        }
        outcomes
    }
}

#[async_trait]
impl Store for DynamoStore {
    fn info(&self) -> Info {
        Info {
            name: "dynamodb",
            durable: "everything that DynamoDB has acknowledged",
            shared: true,
            exact_index: false,
            others: self.shared.others,
        }
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        if let Err(refusal) = check_batch("ops", ops.len(), limits::APPLY_OPS_MAX) {
            return vec![Err(refusal.into()); ops.len()];
        }
        if let Err(closed) = self.shared.open() {
            return vec![Err(closed); ops.len()];
        }
        let mut outcomes = Vec::with_capacity(ops.len());
        let mut left = ops;
        while !left.is_empty() {
            let together = Self::independent(&left).max(1);
            let later = left.split_off(together);
            let now = std::mem::replace(&mut left, later);
            outcomes.extend(self.commit_together(now).await);
        }
        outcomes
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        self.shared.open()?;
        check_batch("keys", keys.len(), limits::GET_KEYS_MAX)?;
        self.shared.get(&keys).await
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        self.shared.open()?;
        query.check()?;
        self.shared.due(&query).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        self.shared.open()?;
        query.check()?;
        self.shared.tasks(&query).await
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        self.shared.open()?;
        query.check()?;
        if query.kind == RecordKind::Signal {
            self.shared.hear_of_held(&query.namespace, &query.prefix).await?;
        }
        self.shared.records(&query).await
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        self.shared.open()?;
        self.shared.counts(&scope).await
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        self.shared.open()?;
        check_namespaces(limit)?;
        self.shared.namespaces(after, limit).await
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.shared.hints.watch()
    }

    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        self.shared.open()?;
        self.shared.check(depth).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.shared.open()?;
        let flushed = self.shared.flush_counts().await;
        if !self.shared.close() {
            return Err(StoreError::closed());
        }
        if let Err(error) = flushed {
            tracing::warn!(%error, "the last counts could not be added");
        }
        Ok(())
    }
}
