//! Tasks as they are: records, pages, counts, reasons, and what people do to them by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use ekiden_core::attempt::{self, Outcome, Stage};
use ekiden_core::event::EventName;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{GroupId, Kind, Namespace, PoolName, QuestionId, RunnerId, SessionId, TaskId};
use ekiden_core::limits;
use ekiden_core::newer::Newer;
use ekiden_core::task as core;
use ekiden_core::task::Phase;
use ekiden_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::bounded::{self, BATCH_TASKS_MAX};
use crate::content::{self, Encoding};
use crate::error::ErrorDetail;
use crate::moment;
use crate::spec::{NewTask, is_normal};

/// What is behind the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Info {
    /// The server's version.
    pub version: String,
    /// The store's name, as in its URL.
    pub store: String,
    /// What survives, in a sentence; empty if nothing does.
    pub durable: String,
}

/// Tasks to hand in together.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EnqueueBatch {
    /// The tasks.
    #[serde(deserialize_with = "bounded::list::<_, _, BATCH_TASKS_MAX>")]
    #[cfg_attr(feature = "schema", schema(max_items = 1000))]
    pub tasks: Vec<NewTask>,
}

/// One answer a task, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct EnqueueBatchAnswer {
    /// The answers. One that is refused stops no other.
    pub tasks: Vec<EnqueuedOrError>,
}

/// What came of an enqueue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Enqueued {
    /// The task.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub id: TaskId,
    /// Whether it is a new one, or the one that an earlier request with the same key made.
    pub is_new: bool,
}

/// A task, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum EnqueuedOrError {
    /// It was refused, or its outcome is not known.
    Error {
        /// Why.
        error: ErrorDetail,
    },
    /// It is there.
    Task(Enqueued),
}

/// A task as it is now.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Task {
    /// Its id.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub id: TaskId,
    /// Its namespace.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub namespace: Namespace,
    /// The line that it stands in.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub pool: PoolName,
    /// Selects the handler.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub task_type: Kind,
    /// What the handler gets.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Json))]
    pub payload: Box<RawValue>,
    /// How the payload stands here.
    #[serde(default, skip_serializing_if = "Encoding::is_json")]
    pub payload_encoding: Encoding,
    /// The payload's media type, unless it is JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub content_type: Option<Arc<str>>,
    /// Where it is in its life.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::TaskState))]
    pub state: Phase,
    /// Executions started and counted.
    pub attempts: u32,
    /// The budget of attempts, the first one included.
    pub max_attempts: u32,
    /// The number of the latest execution; it only rises, and is the fencing token.
    pub execution_no: u64,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub last_error: Option<Arc<str>>,
    /// When it may run, while it waits.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub next_run_at: Option<Timestamp>,
    /// When it was handed in.
    #[serde(with = "moment")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Moment))]
    pub created_at: Timestamp,
    /// When it last changed.
    #[serde(with = "moment")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Moment))]
    pub updated_at: Timestamp,
    /// When its first attempt began.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub finished_at: Option<Timestamp>,
    /// Higher runs first.
    #[serde(default, skip_serializing_if = "is_normal")]
    pub priority: i32,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub title: Option<Arc<str>>,
    /// Why it ended, or why it is blocked for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason_code: Option<String>,
    /// What the handler returned; absent if it returned nothing.
    #[serde(default, deserialize_with = "content::any_json", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Json))]
    pub result: Option<Box<RawValue>>,
    /// How the result stands here.
    #[serde(default, skip_serializing_if = "Encoding::is_json")]
    pub result_encoding: Encoding,
    /// How far the latest attempt said it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Who runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub runner: Option<RunnerId>,
    /// The open question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
    /// The last answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerGiven>,
    /// Parents that have not succeeded yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<crate::schema::Id>))]
    pub waits_for: Vec<TaskId>,
    /// Its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub group: Option<GroupId>,
    /// Its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub session: Option<SessionId>,
    /// Free text by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, String>))]
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// The task that this one repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub retry_of: Option<TaskId>,
    /// The task that runs in its place after a retry by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub retried_as: Option<TaskId>,
    /// The latest attempts, oldest first.
    #[serde(default)]
    pub recent: Vec<Attempt>,
    /// How all attempts ended, by outcome.
    #[serde(default)]
    pub outcomes: BTreeMap<String, u32>,
    /// The latest changes, oldest first.
    #[serde(default)]
    pub history: Vec<HistoryLine>,
}

/// One execution of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Attempt {
    /// Its number, which is its fencing token.
    pub execution_no: u64,
    /// Who runs or ran it.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub runner: RunnerId,
    /// When it began.
    #[serde(with = "moment")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Moment))]
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub finished_at: Option<Timestamp>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Outcome>))]
    pub outcome: Option<Outcome>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub error: Option<Arc<str>>,
    /// After a cancel: how far it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Stage>))]
    pub stage: Option<Stage>,
}

/// The latest attempts of a task, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AttemptList {
    /// The attempts.
    pub items: Vec<Attempt>,
    /// How all attempts ended, by outcome; older ones than those listed included.
    pub outcomes: BTreeMap<String, u32>,
}

/// One change of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HistoryLine {
    /// When.
    #[serde(with = "moment")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Moment))]
    pub at: Timestamp,
    /// What happened.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::EventName))]
    pub event: EventName,
    /// Where the task was after it.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::TaskState))]
    pub state: Phase,
    /// The attempt that it belongs to.
    pub execution_no: u64,
    /// What somebody said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub note: Option<Arc<str>>,
}

/// The latest changes of a task, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HistoryList {
    /// The changes.
    pub items: Vec<HistoryLine>,
}

/// How far an attempt says it is.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// Steps done.
    pub done: u64,
    /// Steps in all, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// What is being done, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub note: Option<Arc<str>>,
}

/// A question that an attempt ended with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Its id; an answer names it.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub id: QuestionId,
    /// The words.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub text: Arc<str>,
    /// What may be answered; anything if there are none.
    #[serde(
        default,
        deserialize_with = "bounded::capped::<_, _, { limits::QUESTION_CHOICES_MAX }>",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<String>, max_items = 32))]
    pub choices: Vec<Arc<str>>,
    /// Until when it waits.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub deadline: Option<Timestamp>,
    /// What counts as the answer when nobody gave one in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub default: Option<Arc<str>>,
}

/// An answer that was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AnswerGiven {
    /// The question that it belongs to.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub question: QuestionId,
    /// The words.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub content: Arc<str>,
    /// When.
    #[serde(with = "moment")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Moment))]
    pub at: Timestamp,
}

/// Answers a task's question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The question that is answered.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub question: QuestionId,
    /// The words.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub content: Arc<str>,
}

/// Ends a task.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Cancel {
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub note: Option<Arc<str>>,
}

/// A part of a listing.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TaskPage {
    /// The tasks. There may be none although more follow, when a filter let few through.
    pub items: Vec<Task>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Which tasks are meant. An empty filter matches all of them.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// One of these states; none means any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<crate::schema::TaskState>, max_items = 9))]
    pub states: Vec<Phase>,
    /// Of this pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub pool: Option<PoolName>,
    /// Of this type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub task_type: Option<Kind>,
    /// Of this group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub group: Option<GroupId>,
    /// Of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub session: Option<SessionId>,
    /// With an attempt that this runner has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub held_by: Option<RunnerId>,
    /// With this text in id, title, error or payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, max_length = 256))]
    pub text: Option<Arc<str>>,
}

impl Filter {
    /// The same in the words of core.
    pub fn into_core(self, namespace: Namespace) -> TaskFilter {
        TaskFilter {
            namespace,
            phases: self.states,
            pool: self.pool,
            kind: self.task_type,
            group: self.group,
            session: self.session,
            held_by: self.held_by,
            text: self.text,
        }
    }
}

impl From<&TaskFilter> for Filter {
    fn from(filter: &TaskFilter) -> Self {
        Self {
            states: filter.phases.clone(),
            pool: filter.pool.clone(),
            task_type: filter.kind.clone(),
            group: filter.group.clone(),
            session: filter.session.clone(),
            held_by: filter.held_by.clone(),
            text: filter.text.clone(),
        }
    }
}

/// How many tasks there are in each state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Counts {
    /// All nine states.
    #[cfg_attr(feature = "schema", schema(value_type = BTreeMap<String, u64>))]
    pub by_state: BTreeMap<Phase, u64>,
    /// Whether the numbers are exact, or changes of some seconds may be missing.
    pub exact: bool,
}

/// Why a task is where it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Explanation {
    /// The task.
    pub task: Task,
    /// The reasons; the one that matters most comes first.
    pub reasons: Vec<Reason>,
}

/// A reason, for programs and for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Reason {
    /// The stable reason.
    pub reason_code: String,
    /// What it means, in the caller's language.
    pub message: String,
    /// What to do, one step each, in the caller's language.
    #[serde(default)]
    pub actions: Vec<String>,
    /// The facts of this case, by name.
    #[serde(default)]
    pub context: BTreeMap<String, String>,
}

/// Names of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NamespacePage {
    /// The names.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<crate::schema::Id>))]
    pub items: Vec<Namespace>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// When the next waiting task will be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Due {
    /// The moment, if it is known to be soon.
    #[serde(default, with = "moment::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub next_at: Option<Timestamp>,
}

/// What a round of maintenance did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Maintained {
    /// Tasks that became due, expired or lost their lease.
    pub changed: u64,
    /// Steps of sweeps.
    pub swept: u64,
    /// Tasks that schedules handed in.
    pub ticked: u64,
    /// Records that went.
    pub removed: u64,
    /// Whether there was more to do than one round does.
    pub more: bool,
    /// When the next entry of any list is due, as far as this round saw. Nothing happens before it unless something is changed.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub next_tick: Option<Timestamp>,
}

macro_rules! mirrored {
    ($($ours:ident = $theirs:path { $($field:ident),+ $(; without $more:ident)? };)+) => {$(
        impl From<$theirs> for $ours {
            fn from(it: $theirs) -> Self {
                Self { $($field: it.$field,)+ }
            }
        }

        impl From<$ours> for $theirs {
            fn from(it: $ours) -> Self {
                Self { $($field: it.$field,)+ $($more: Default::default(),)? }
            }
        }
    )+};
}

mirrored! {
    Progress = core::Progress { done, total, note };
    Question = core::Question { id, text, choices, deadline, default };
    AnswerGiven = core::QuestionAnswer { question, content, at };
    Attempt = attempt::Attempt { execution_no, runner, started_at, finished_at, outcome, error, stage; without newer };
}

impl From<attempt::HistoryLine> for HistoryLine {
    fn from(line: attempt::HistoryLine) -> Self {
        let attempt::HistoryLine { at, event, phase, execution_no, note, newer: _ } = line;
        Self { at, event, state: phase, execution_no, note }
    }
}

impl From<HistoryLine> for attempt::HistoryLine {
    fn from(line: HistoryLine) -> Self {
        let HistoryLine { at, event, state, execution_no, note } = line;
        Self { at, event, phase: state, execution_no, note, newer: Newer::NONE }
    }
}
