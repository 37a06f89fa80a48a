//! A task: what was asked for, which never changes, and the small state that does.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::attempt::{Attempt, HistoryLine, OutcomeCounts};
use crate::dependency::OnParentFailure;
use crate::id::{GroupId, Kind, Namespace, PoolName, QuestionId, SessionId, TaskId};
use crate::lane::{LaneSpec, Place};
use crate::lease::{LateLease, Lease, Token, uuid_of};
use crate::limits;
use crate::mailbox::MessageFields;
use crate::newer::Newer;
use crate::order::{Order, Rank};
use crate::payload;
use crate::pool::Policy;
use crate::reason::{Language, ReasonCode, Refusal};
use crate::time::Timestamp;
use crate::unique::{KeyRecord, Unique};

macro_rules! phases {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $japanese:literal;)+) => {
        /// Where a task is in its life.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Phase { $($(#[$doc])* $name,)+ }

        impl Phase {
            /// All nine, in the order of a life.
            pub const ALL: [Self; 9] = [$(Self::$name,)+];

            /// The stable text form.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// The word for it that a person reads; in English it is the stable one.
            pub const fn word(self, language: Language) -> &'static str {
                match language {
                    Language::En => self.as_str(),
                    Language::Ja => match self { $(Self::$name => $japanese,)+ },
                }
            }
        }
    };
}

phases! {
    /// Held, not released.
    Pending = "pending", "保留中";
    /// Waits for other tasks.
    Blocked = "blocked", "依存待ち";
    /// May run, now or when its time or its lane's turn comes.
    Queued = "queued", "待機中";
    /// Failed, and waits to be tried again.
    RetryScheduled = "retry_scheduled", "再試行待ち";
    /// A runner holds its lease.
    Running = "running", "実行中";
    /// Asked a question and waits for the answer.
    NeedsInput = "needs_input", "回答待ち";
    /// Ended well.
    Succeeded = "succeeded", "成功";
    /// Ended badly.
    Dead = "dead", "失敗";
    /// Ended by request.
    Cancelled = "cancelled", "キャンセル";
}

impl Phase {
    /// Whether nothing more happens by itself.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Dead | Self::Cancelled)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The data that a handler gets (R2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnvelope {
    /// Selects the handler.
    pub task_type: Kind,
    /// What the handler decodes; JSON unless `content_type` says otherwise.
    #[serde(with = "payload")]
    pub payload: Bytes,
    /// The payload's media type.
    #[serde(default = "json_type", skip_serializing_if = "is_json_type")]
    pub content_type: Arc<str>,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

/// The media type of payloads unless somebody says otherwise.
pub const JSON: &str = "application/json";

/// One text for all: nearly every task has it.
fn json_type() -> Arc<str> {
    static SHARED: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(JSON));
    SHARED.clone()
}

fn is_json_type(content_type: &str) -> bool {
    content_type == JSON
}

impl TaskEnvelope {
    /// An envelope around JSON bytes.
    pub fn json(task_type: Kind, payload: impl Into<Bytes>) -> Self {
        Self { task_type, payload: payload.into(), content_type: json_type(), newer: Newer::NONE }
    }
}

/// Who made a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Ekiden.
    #[default]
    Ours,
    /// A foreign program that follows one of the documents. Never purged.
    Foreign,
}

/// What was asked for. It never changes after the enqueue, so stores may keep it apart from the state.
/// Stores number its fields by their place: new ones go to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The task's name inside its namespace.
    pub id: TaskId,
    /// Its namespace.
    pub namespace: Namespace,
    /// The line that it stands in.
    pub pool: PoolName,
    /// What the handler gets.
    pub envelope: TaskEnvelope,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// Its place among the claimable.
    #[serde(default)]
    pub rank: Rank,
    /// The rules that it took along.
    pub policy: Arc<Policy>,
    /// For people; a workspace shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Arc<str>>,
    /// Never run before this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// Never started after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The lane that it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Arc<LaneSpec>>,
    /// What becomes of it when a parent does not succeed.
    #[serde(default)]
    pub on_parent_failure: OnParentFailure,
    /// The key that no other task may have meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<Arc<Unique>>,
    /// The group that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupId>,
    /// The session that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// Free text by name, for people and filters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// The group whose end releases it; until then it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_group: Option<GroupId>,
    /// The task that this one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<TaskId>,
    /// Who made it.
    #[serde(default)]
    pub origin: Origin,
    /// What only messages in mailboxes have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<MessageFields>>,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

impl Spec {
    /// A task with nothing but what every task has.
    pub fn new(
        namespace: Namespace,
        pool: PoolName,
        id: TaskId,
        envelope: TaskEnvelope,
        policy: Arc<Policy>,
        created_at: Timestamp,
    ) -> Self {
        Self {
            id,
            namespace,
            pool,
            envelope,
            created_at,
            rank: Rank::default(),
            policy,
            title: None,
            run_at: None,
            expires_at: None,
            lane: None,
            on_parent_failure: OnParentFailure::default(),
            unique: None,
            group: None,
            session: None,
            labels: BTreeMap::new(),
            after_group: None,
            retry_of: None,
            origin: Origin::default(),
            message: None,
            newer: Newer::NONE,
        }
    }

    /// Refuses what no store could keep or no runner could mean.
    pub fn check(&self) -> Result<(), Refusal> {
        check_bytes("payload", self.envelope.payload.len(), limits::PAYLOAD_BYTES_MAX)?;
        check_bytes("content_type", self.envelope.content_type.len(), limits::LABEL_BYTES_MAX)?;
        check_bytes("title", self.title.as_ref().map_or(0, |title| title.len()), limits::ERROR_BYTES_MAX)?;
        let label_too_long = |text: &Arc<str>| text.is_empty() || text.len() > limits::LABEL_BYTES_MAX;
        if self.labels.len() > limits::LABELS_MAX
            || self.labels.iter().any(|(k, v)| label_too_long(k) || v.len() > limits::LABEL_BYTES_MAX)
        {
            return Err(Refusal::new(ReasonCode::LabelsInvalid)
                .with("labels", self.labels.len())
                .with("labels_max", limits::LABELS_MAX)
                .with("bytes_max", limits::LABEL_BYTES_MAX));
        }
        if let Some(run_at) = self.run_at {
            run_at.since(self.created_at).check_or_zero("run_at")?;
        }
        if let Some(lane) = &self.lane {
            lane.check()?;
        }
        if let Some(unique) = &self.unique {
            unique.check()?;
        }
        if let Some(message) = &self.message {
            message.check()?;
        }
        self.policy.check()
    }

    /// Whether a key is held by the task that this one repeats, which hands it on.
    pub(crate) fn may_take_over(&self, held: &KeyRecord) -> bool {
        self.retry_of.as_ref() == Some(&held.task)
    }

    /// The task's place among the claimable.
    pub fn order(&self) -> Order {
        Order { rank: self.rank, created_at: self.created_at, id: self.id.clone() }
    }
}

pub(crate) fn check_bytes(field: &'static str, bytes: usize, bytes_max: usize) -> Result<(), Refusal> {
    if bytes > bytes_max {
        return Err(Refusal::new(ReasonCode::PayloadTooLarge)
            .with("field", field)
            .with("bytes", bytes)
            .with("bytes_max", bytes_max));
    }
    Ok(())
}

/// A question that ended an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The answer must name it.
    pub id: QuestionId,
    /// What is asked.
    pub text: Arc<str>,
    /// Answers to choose from, if any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<Arc<str>>,
    /// When waiting ends, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The answer that counts when nobody answers in time; without one the task is dead then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Arc<str>>,
}

impl Question {
    /// Refuses questions too large to show.
    pub fn check(&self) -> Result<(), Refusal> {
        let bytes = self.text.len() + self.choices.iter().map(|choice| choice.len()).sum::<usize>();
        check_bytes("question", bytes, limits::QUESTION_BYTES_MAX)?;
        check_bytes("default", self.default.as_ref().map_or(0, |default| default.len()), limits::QUESTION_BYTES_MAX)?;
        if self.choices.len() > limits::QUESTION_CHOICES_MAX {
            return Err(Refusal::new(ReasonCode::NumberOutOfRange)
                .with("field", "choices")
                .with("value", self.choices.len()));
        }
        Ok(())
    }
}

/// What was answered, for the next attempt to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionAnswer {
    /// The question that it belongs to.
    pub question: QuestionId,
    /// The words.
    pub content: Arc<str>,
    /// When.
    pub at: Timestamp,
}

/// How far an attempt says it is.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Steps done.
    pub done: u64,
    /// Steps in all, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// What is being done, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Arc<str>>,
}

/// The part of a task that changes. Only `transition::decide` (phases) and the lane functions (places) write it.
/// Stores number its fields by their place: new ones go to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Where it is in its life.
    pub phase: Phase,
    /// Executions started and counted; the budget.
    pub attempts: u32,
    /// The number of the latest attempt; only rises.
    pub execution_no: u64,
    /// Attempts in a row that crashed or were lost.
    #[serde(default)]
    pub crashes: u32,
    /// Not claimable before this moment.
    pub next_run_at: Timestamp,
    /// Whether it stands in the ready index; otherwise it waits in the due index, or for its lane.
    #[serde(default)]
    pub promoted: bool,
    /// Its place in its lane.
    #[serde(default)]
    pub place: Place,
    /// The lease of the attempt that has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
    /// The lost lease whose holder may still settle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Box<LateLease>>,
    /// Parents that have not succeeded yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<TaskId>,
    /// Whether other tasks wait for this one, so that its end must start a release.
    #[serde(default)]
    pub has_dependents: bool,
    /// The task that runs in its place after a retry by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_as: Option<TaskId>,
    /// The open question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Box<Question>>,
    /// The last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Box<QuestionAnswer>>,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Arc<str>>,
    /// Why it ended, or why it is blocked for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonCode>,
    /// What the handler returned.
    #[serde(default, with = "payload::optional", skip_serializing_if = "Option::is_none")]
    pub result: Option<Bytes>,
    /// How far the latest attempt said it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Box<Progress>>,
    /// When the state last changed.
    pub updated_at: Timestamp,
    /// When the first attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it reached a final phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// The latest attempts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<Attempt>,
    /// How all attempts ended.
    #[serde(default)]
    pub outcomes: OutcomeCounts,
    /// The latest changes, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryLine>,
    /// Not purged before this moment, although it was kept long enough: the last look found that others need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purge_after: Option<Timestamp>,
    /// When somebody last asked for it again after it had ended. An `expires_at` before that moment is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reopened_at: Option<Timestamp>,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

impl State {
    /// A copy to go on from, with room for the lines that the next change adds: lists are short, and a list that grows
    /// by doubling would be mostly empty.
    pub(crate) fn copy_with_room(&self, attempts: usize, lines: usize) -> Self {
        Self {
            phase: self.phase,
            attempts: self.attempts,
            execution_no: self.execution_no,
            crashes: self.crashes,
            next_run_at: self.next_run_at,
            promoted: self.promoted,
            place: self.place,
            lease: self.lease.clone(),
            late: self.late.clone(),
            waits_for: self.waits_for.clone(),
            has_dependents: self.has_dependents,
            retried_as: self.retried_as.clone(),
            question: self.question.clone(),
            answer: self.answer.clone(),
            last_error: self.last_error.clone(),
            reason: self.reason,
            result: self.result.clone(),
            progress: self.progress.clone(),
            updated_at: self.updated_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            recent: with_room(&self.recent, attempts),
            outcomes: self.outcomes,
            history: with_room(&self.history, lines),
            purge_after: self.purge_after,
            reopened_at: self.reopened_at,
            newer: self.newer.clone(),
        }
    }

    /// From when on the task is not started any more. Who asks for it after that moment means it all the same.
    pub(crate) fn expires_at(&self, spec: &Spec) -> Option<Timestamp> {
        spec.expires_at.filter(|end| self.reopened_at.is_none_or(|reopened_at| reopened_at < *end))
    }

    /// The attempt that has not ended, if any.
    pub fn running_attempt(&self) -> Option<&Attempt> {
        let token = self.lease.as_ref()?.token;
        self.recent.iter().rev().find(|attempt| attempt.execution_no == token.0)
    }
}

fn with_room<T: Clone>(list: &[T], more: usize) -> Vec<T> {
    let mut copy = Vec::with_capacity(list.len() + more);
    copy.extend_from_slice(list);
    copy
}

/// A task as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// What was asked for.
    pub spec: Arc<Spec>,
    /// What became of it so far.
    pub state: State,
}

impl Task {
    /// The task's name.
    pub fn id(&self) -> &TaskId {
        &self.spec.id
    }

    /// About how many bytes it takes beside its names: its payload, its result and what went wrong.
    pub fn content_bytes(&self) -> usize {
        let errors = self.state.recent.iter().filter_map(|attempt| attempt.error.as_ref());
        let errors = errors.map(|error| error.len()).sum::<usize>();
        self.spec.envelope.payload.len() + self.state.result.as_ref().map_or(0, Bytes::len) + errors
    }

    /// The token that a mailbox's lease uuid stands for, while that lease may still settle.
    pub fn token_of(&self, lease: Uuid) -> Option<Token> {
        let live = self.state.lease.as_ref().map(|lease| (lease.claim, lease.token));
        let late = self.state.late.as_ref().map(|late| (late.claim, late.token));
        live.into_iter()
            .chain(late)
            .find(|(claim, token)| uuid_of(*claim, *token, self.id()) == lease)
            .map(|(_, token)| token)
    }
}
