//! What a caller learns of a task: its record, as plain data.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ekiden_core::attempt::{Attempt, HistoryLine, OutcomeCounts};
use ekiden_core::id::{GroupId, Namespace, PoolName, RunnerId, SessionId, TaskId};
use ekiden_core::lease::Token;
use ekiden_core::reason::ReasonCode;
use ekiden_core::task::{Phase, Progress, Question, QuestionAnswer, Spec, Task, TaskEnvelope};
use ekiden_core::time::Timestamp;

/// Where a task is in its life: the document's five states and four more.
pub type TaskState = Phase;

/// A task as it is now (R4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// Its name inside its namespace.
    pub id: TaskId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The line that it stands in.
    pub pool: PoolName,
    /// What the handler gets.
    pub envelope: TaskEnvelope,
    /// Where it is in its life.
    pub state: TaskState,
    /// Executions started and counted.
    pub attempts: u32,
    /// The budget of attempts, the first one included.
    pub max_attempts: u32,
    /// The number of the latest execution; it only rises, and is the fencing token.
    pub execution_no: u64,
    /// What went wrong last.
    pub last_error: Option<Arc<str>>,
    /// When it may run, while it waits.
    pub next_run_at: Option<Timestamp>,
    /// When it was handed in.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When its first attempt began.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// Higher runs first.
    pub priority: i32,
    /// For people.
    pub title: Option<Arc<str>>,
    /// Why it ended, or why it is blocked for good.
    pub reason: Option<ReasonCode>,
    /// What the handler returned.
    pub result: Option<Bytes>,
    /// How far the latest attempt said it is.
    pub progress: Option<Progress>,
    /// Who runs it.
    pub runner: Option<RunnerId>,
    /// The open question.
    pub question: Option<Question>,
    /// The last answer.
    pub answer: Option<QuestionAnswer>,
    /// Parents that have not succeeded yet.
    pub waits_for: Vec<TaskId>,
    /// Its group.
    pub group: Option<GroupId>,
    /// Its session.
    pub session: Option<SessionId>,
    /// Free text by name.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// The task that this one repeats.
    pub retry_of: Option<TaskId>,
    /// The task that runs in its place after a retry by hand.
    pub retried_as: Option<TaskId>,
    /// The latest attempts, oldest first.
    pub recent: Vec<Attempt>,
    /// How all attempts ended.
    pub outcomes: OutcomeCounts,
    /// The latest changes, oldest first.
    pub history: Vec<HistoryLine>,
}

impl From<&Task> for TaskRecord {
    fn from(task: &Task) -> Self {
        let Task { spec, state } = task;
        let waits = matches!(state.phase, Phase::Pending | Phase::Blocked | Phase::Queued | Phase::RetryScheduled);
        Self {
            id: spec.id.clone(),
            namespace: spec.namespace.clone(),
            pool: spec.pool.clone(),
            envelope: spec.envelope.clone(),
            state: state.phase,
            attempts: state.attempts,
            max_attempts: spec.policy.attempts_max,
            execution_no: state.execution_no,
            last_error: state.last_error.clone(),
            next_run_at: waits.then_some(state.next_run_at),
            created_at: spec.created_at,
            updated_at: state.updated_at,
            started_at: state.started_at,
            finished_at: state.finished_at,
            priority: priority(spec),
            title: spec.title.clone(),
            reason: state.reason,
            result: state.result.clone(),
            progress: state.progress.as_deref().cloned(),
            runner: state.lease.as_ref().map(|lease| lease.holder.clone()),
            question: state.question.as_deref().cloned(),
            answer: state.answer.as_deref().cloned(),
            waits_for: state.waits_for.clone(),
            group: spec.group.clone(),
            session: spec.session.clone(),
            labels: spec.labels.clone(),
            retry_of: spec.retry_of.clone(),
            retried_as: state.retried_as.clone(),
            recent: state.recent.clone(),
            outcomes: state.outcomes,
            history: state.history.clone(),
        }
    }
}

impl TaskRecord {
    /// Whether the attempt with this token has lost the task for good: another claim has it, or it has ended. Until then a late
    /// settlement is accepted.
    pub(crate) fn is_lost_to(&self, token: Token) -> bool {
        self.execution_no > token.0 || self.state.is_final()
    }

    /// Whether the attempt with this token was cancelled and has not ended.
    pub(crate) fn awaits_the_end_of(&self, token: Token) -> bool {
        self.state == TaskState::Cancelled && self.execution_no == token.0 && self.runner.is_some()
    }

    /// What the handler returned, decoded.
    pub fn result<T: serde::de::DeserializeOwned>(&self) -> Option<serde_json::Result<T>> {
        self.result.as_ref().map(|bytes| serde_json::from_slice(bytes))
    }
}

/// A task's rank is its priority turned round, so that smaller comes first in every store.
fn priority(spec: &Spec) -> i32 {
    spec.rank.0.saturating_neg()
}
