//! Writes the history of a store: what each commit and claim that passes through means for tasks, and what came of it.
//! Whoever works above it, runner, server or maintenance, is recorded without knowing it.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ekiden_core::attempt::{HistoryLine, Outcome as Ending};
use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::event::EventName;
use ekiden_core::id::{IdempotencyKey, Namespace, OpId, TaskId};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lease::Token;
use ekiden_core::record::{Record, Revision, Versioned};
use ekiden_core::task::{Phase, Task};
use ekiden_store::{
    Answer, CheckDepth, CountScope, Counts, DueEntry, DueQuery, Finding, Happened, Hint, Info, Op, Outcome, Page,
    RecordQuery, Store, StoreError, TaskQuery,
};
use tokio::sync::broadcast;

use crate::facts::{Ack, Call, EnqueueFacts, Grant, Reply};
use crate::history::{Client, Pending};

/// A store whose history is written.
pub struct Recorded<S> {
    inner: S,
    client: Client,
    seen: Mutex<Seen>,
}

/// What passed through so far.
#[derive(Default)]
struct Seen {
    /// The history of each task at each revision, so that a put shows what it adds.
    lines: HashMap<(Key, Revision), Vec<HistoryLine>>,
    /// Ops that may have happened before.
    doubtful: HashSet<OpId>,
}

impl<S: Store> Recorded<S> {
    /// Puts the layer around a store.
    pub fn new(inner: S, client: Client) -> Self {
        Self { inner, client, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember<'a>(&self, found: impl IntoIterator<Item = &'a Versioned>) {
        let mut seen = self.seen();
        for versioned in found {
            if let Some(task) = versioned.record.as_task() {
                let at = (versioned.key.clone(), versioned.revision.clone());
                seen.lines.insert(at, task.state.history.clone());
            }
        }
    }

    fn calls(&self, op: &Op) -> Vec<Call> {
        match op {
            Op::Claim(claim) => vec![Call::Claim { claim: claim.id }],
            Op::Commit(commit) => commit.writes().iter().filter_map(|write| self.call(commit, write)).collect(),
        }
    }

    /// What a write means, if it means anything to a law.
    fn call(&self, commit: &Commit, write: &Write) -> Option<Call> {
        match &write.action {
            Action::Delete if write.key.kind == RecordKind::Task => {
                Some(Call::Purge { task: TaskId::new(&*write.key.name).ok()? })
            }
            Action::Put(Record::Task(task), _) => match &write.expect {
                Expect::At(revision) => {
                    let before = self.seen().lines.get(&(write.key.clone(), revision.clone())).cloned();
                    let before = before.expect("every revision was read through this layer");
                    if before == task.state.history { None } else { of_event(commit.id(), task) }
                }
                Expect::Absent | Expect::Any => Some(enqueue(commit, task)),
            },
            _ => None,
        }
    }

    fn end(&self, op: &Sent, pending: Vec<(Call, Pending)>, outcome: &Outcome) {
        let fresh = !self.seen().doubtful.contains(&op.id);
        let ack = if fresh { Ack::Fresh } else { Ack::Untold };
        for (call, pending) in pending {
            match outcome {
                Ok(Answer::Applied(_)) => pending.ok(match call {
                    Call::Enqueue(facts) => Reply::Enqueued { task: facts.task, ack },
                    Call::Retry { task } => Reply::Enqueued { task, ack },
                    _ => Reply::Done(ack),
                }),
                Ok(Answer::Claimed(claimed)) => {
                    let tasks = claimed.tasks.iter().filter_map(|found| found.record.as_task());
                    let grant = |task: &std::sync::Arc<Task>| Grant {
                        task: task.id().clone(),
                        token: Token(task.state.execution_no),
                    };
                    pending.ok(Reply::Claimed(tasks.map(grant).collect()));
                }
                Ok(Answer::Conflict(_)) => pending.fail("conflict"),
                Err(error) if error.happened == Happened::NotApplied => pending.fail(error),
                Err(error) => pending.unknown(error),
            }
        }
        match outcome {
            Ok(Answer::Applied(applied)) if fresh => {
                let mut seen = self.seen();
                for ((key, lines), revision) in op.puts.iter().zip(&applied.revisions) {
                    if let (Some(lines), Some(revision)) = (lines, revision) {
                        seen.lines.insert((key.clone(), revision.clone()), lines.clone());
                    }
                }
            }
            Ok(Answer::Claimed(claimed)) => self.remember(&claimed.tasks),
            Ok(Answer::Conflict(conflict)) => {
                self.remember(conflict.found.iter().filter_map(|(_, found)| found.as_ref()));
            }
            Err(error) if error.happened == Happened::Unknown => {
                self.seen().doubtful.insert(op.id);
            }
            _ => {}
        }
    }
}

/// What is kept of an op while it is under way: the histories that it puts, one entry a write.
struct Sent {
    id: OpId,
    puts: Vec<(Key, Option<Vec<HistoryLine>>)>,
}

impl Sent {
    fn new(op: &Op) -> Self {
        let lines = |write: &Write| match &write.action {
            Action::Put(Record::Task(task), _) => Some(task.state.history.clone()),
            _ => None,
        };
        let puts = match op {
            Op::Commit(commit) => commit.writes().iter().map(|write| (write.key.clone(), lines(write))).collect(),
            Op::Claim(_) => Vec::new(),
        };
        Self { id: op.id(), puts }
    }
}

/// The meaning of a task's latest change.
fn of_event(op: OpId, task: &Task) -> Option<Call> {
    let last = task.state.history.last()?;
    let (id, token) = (task.id().clone(), Token(last.execution_no));
    let settle = |outcome: Ending| Some(Call::Settle { op, task: id.clone(), token, outcome });
    match last.event {
        EventName::Succeeded => settle(Ending::Succeeded),
        EventName::Failed => settle(Ending::Failed),
        EventName::TimedOut => settle(Ending::TimedOut),
        EventName::Snoozed => settle(Ending::Snoozed),
        EventName::Interrupted => settle(Ending::Interrupted),
        EventName::Returned => settle(Ending::Returned),
        EventName::Asked => settle(Ending::Asked),
        EventName::CancelRequested => Some(Call::Cancel { task: id }),
        EventName::LeaseLost => Some(Call::LeaseLost { task: id, token: Some(token) }),
        EventName::AttemptEnded if task.state.lease.is_none() => Some(Call::EndAttempt { task: id, token }),
        EventName::RetryRequested => Some(Call::Retry { task: id }),
        _ => None,
    }
}

fn enqueue(commit: &Commit, task: &Task) -> Call {
    let idempotency = commit.writes().iter().find_map(|write| match &write.action {
        Action::Put(Record::Idempotency(held), _) if held.task == *task.id() => {
            IdempotencyKey::new(&*write.key.name).ok()
        }
        _ => None,
    });
    Call::Enqueue(Box::new(EnqueueFacts {
        op: commit.id(),
        task: task.id().clone(),
        unique: task.spec.unique.as_deref().cloned(),
        idempotency,
        lane: task.spec.lane.as_deref().cloned(),
        waits: matches!(task.state.phase, Phase::Pending | Phase::Blocked),
        parents: task.state.waits_for.len(),
        attempts_max: task.spec.policy.attempts_max,
    }))
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Recorded<S> {
    fn info(&self) -> Info {
        self.inner.info()
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        let invoke = |op: &Op| {
            let calls = self.calls(op).into_iter();
            let pending: Vec<_> = calls.map(|call| (call.clone(), self.client.invoke(call))).collect();
            (Sent::new(op), pending)
        };
        let sent: Vec<_> = ops.iter().map(invoke).collect();
        let outcomes = self.inner.apply(ops).await;
        for ((op, pending), outcome) in sent.into_iter().zip(&outcomes) {
            self.end(&op, pending, outcome);
        }
        outcomes
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        let found = self.inner.get(keys).await?;
        self.remember(found.iter().flatten());
        Ok(found)
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        self.inner.due(query).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        let page = self.inner.tasks(query).await?;
        self.remember(&page.items);
        Ok(page)
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
