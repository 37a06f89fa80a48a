//! Memory stores with one defect each. They are made of the sound one by changing what goes in or comes out.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::id::{Namespace, OpId};
use ekiden_core::index::Index;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lane::Place;
use ekiden_core::record::{Record, Versioned};
use ekiden_store::entropy::Entropy;
use ekiden_store::{
    Answer, Applied, CheckDepth, CountScope, Counts, DueEntry, DueQuery, Finding, Hint, Info, MemoryStore, Op, Outcome,
    Page, RecordQuery, Store, StoreError, StoreExt, TaskQuery,
};
use tokio::sync::broadcast;

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A claim also gets what the claim before it got.
    HandsOutTwice,
    /// A write is carried out whatever is there.
    IgnoresExpectations,
    /// A commit is acknowledged and not carried out, now and then.
    LosesCommits,
    /// A task that waits for its lane can be claimed.
    ForgetsLanes,
    /// A commit that comes again is carried out again, over whatever happened since.
    RepeatsCommits,
    /// Attempts are stored as none.
    ForgetsAttempts,
    /// Sweeps are not stored.
    LosesSweeps,
    /// Unique and idempotency keys are not stored.
    LosesKeys,
    /// A task always shows the lease of its first attempt that is still unsettled.
    BelievesAnyToken,
}

/// A store with a defect.
pub(crate) struct Broken {
    inner: MemoryStore,
    bug: Bug,
    memory: Mutex<Memory>,
}

struct Memory {
    entropy: Entropy,
    handed_out: Vec<Versioned>,
    commits: BTreeSet<OpId>,
    leases: HashMap<Key, ekiden_core::lease::Lease>,
}

impl Broken {
    pub(crate) fn new(bug: Bug, seed: u64) -> Self {
        let memory = Memory {
            entropy: Entropy::from_seed(seed),
            handed_out: Vec::new(),
            commits: BTreeSet::new(),
            leases: HashMap::new(),
        };
        Self { inner: MemoryStore::new(), bug, memory: Mutex::new(memory) }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Memory) -> T) -> T {
        change(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn commit(&self, commit: Commit) -> Outcome {
        let id = commit.id();
        let again = !self.with(|memory| memory.commits.insert(id));
        match self.bug {
            Bug::IgnoresExpectations => self.force(id, commit).await,
            Bug::RepeatsCommits if again => self.force(OpId::from_bits(id.as_bits() ^ 1), commit).await,
            Bug::LosesCommits if self.with(|memory| memory.entropy.chance(2)) => {
                Ok(Answer::Applied(Applied { revisions: commit.writes().iter().map(|_| None).collect() }))
            }
            Bug::ForgetsLanes | Bug::ForgetsAttempts => {
                let writes = commit.into_writes().into_iter().map(|write| self.distort(write)).collect();
                self.inner.commit(Commit::new(id, writes).unwrap()).await
            }
            Bug::LosesSweeps => self.without(commit, &[RecordKind::Sweep]).await,
            Bug::LosesKeys => self.without(commit, &[RecordKind::Unique, RecordKind::Idempotency]).await,
            _ => self.inner.commit(commit).await,
        }
    }

    /// Carries a commit out with the expectations that happen to hold.
    async fn force(&self, id: OpId, commit: Commit) -> Outcome {
        let mut writes = Vec::new();
        for write in commit.into_writes() {
            let found = self.inner.get_one(write.key.clone()).await?;
            let expect = match (&write.action, found) {
                (Action::Put(..) | Action::Check, Some(found)) => Expect::At(found.revision),
                (Action::Put(..) | Action::Check, None) => Expect::Absent,
                (Action::Delete | Action::Add(_), _) => Expect::Any,
            };
            writes.push(Write { expect, ..write });
        }
        self.inner.commit(Commit::new(id, writes).unwrap()).await
    }

    async fn without(&self, commit: Commit, kinds: &[RecordKind]) -> Outcome {
        let id = commit.id();
        let lost = |write: &Write| kinds.contains(&write.key.kind) && matches!(write.action, Action::Put(..));
        let writes: Vec<Write> = commit.into_writes().into_iter().filter(|write| !lost(write)).collect();
        if writes.is_empty() {
            return Ok(Answer::Applied(Applied { revisions: Default::default() }));
        }
        self.inner.commit(Commit::new(id, writes).unwrap()).await
    }

    fn distort(&self, write: Write) -> Write {
        let Action::Put(Record::Task(task), _) = &write.action else { return write };
        let mut task = task.as_ref().clone();
        match self.bug {
            Bug::ForgetsLanes if matches!(task.state.place, Place::Waiting(_)) => {
                task.state.place = Place::Held;
                task.state.promoted = true;
            }
            Bug::ForgetsAttempts => task.state.attempts = 0,
            _ => return write,
        }
        let record = Record::Task(Arc::new(task));
        let index = Index::of(&write.key, &record);
        Write { action: Action::Put(record, index), ..write }
    }

    fn hand_out(&self, answer: Answer) -> Answer {
        let Answer::Claimed(mut claimed) = answer else { return answer };
        self.with(|memory| {
            let before = std::mem::replace(&mut memory.handed_out, claimed.tasks.clone());
            if self.bug == Bug::HandsOutTwice {
                claimed.tasks.extend(before);
            }
            for versioned in claimed.tasks.iter() {
                let lease = versioned.record.as_task().and_then(|task| task.state.lease.clone());
                if let Some(lease) = lease {
                    memory.leases.entry(versioned.key.clone()).or_insert(lease);
                }
            }
        });
        Answer::Claimed(claimed)
    }

    /// Shows a running task as held by whoever got it first.
    fn show(&self, found: Option<Versioned>) -> Option<Versioned> {
        let mut found = found?;
        let Record::Task(task) = &found.record else { return Some(found) };
        let first = self.with(|memory| memory.leases.get(&found.key).cloned());
        if let (Some(first), Some(_)) = (first, &task.state.lease) {
            let mut task = task.as_ref().clone();
            task.state.lease = Some(first);
            found.record = Record::Task(Arc::new(task));
        }
        Some(found)
    }
}

#[async_trait]
impl Store for Broken {
    fn info(&self) -> Info {
        self.inner.info()
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for op in ops {
            outcomes.push(match op {
                Op::Commit(commit) => self.commit(commit).await,
                claim => self.inner.apply(vec![claim]).await.remove(0).map(|answer| self.hand_out(answer)),
            });
        }
        outcomes
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        let found = self.inner.get(keys).await?;
        Ok(if self.bug == Bug::BelievesAnyToken {
            found.into_iter().map(|one| self.show(one)).collect()
        } else {
            found
        })
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        self.inner.due(query).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        self.inner.tasks(query).await
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        self.inner.records(query).await
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        self.inner.counts(scope).await
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
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
