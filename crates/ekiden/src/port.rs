//! The port: everything a caller can ask of a queue, whatever is behind it. Runner, command line and server know only this.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use ekiden_core::attempt::Stage;
use ekiden_core::dependency::OnParentFailure;
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{
    GroupId, IdempotencyKey, Kind, Namespace, OpId, PoolName, QuestionId, RunnerId, ScheduleId, SessionId, SweepId,
    TaskId,
};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lane::LaneSpec;
use ekiden_core::lease::Token;
use ekiden_core::order::Priority;
use ekiden_core::pool::{Keep, PoolSettings, Timeout};
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::record::{Pool, Signal, Versioned};
use ekiden_core::retry::{FailureKind, RetryPolicy};
use ekiden_core::runner::Runner;
use ekiden_core::schedule::{Every, Missed, Overlap, Schedule};
use ekiden_core::sweep::Sweep;
use ekiden_core::task::{Progress, Question, QuestionAnswer, Spec, TaskEnvelope};
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::transition::Start;
use ekiden_core::unique::Unique;
use ekiden_store::{CountScope, Counts, Page, TaskQuery};

use crate::bell::Bell;
use crate::change::Subscription;
use crate::error::Result;
use crate::record::TaskRecord;

/// A queue of tasks: in process over a store, or elsewhere over HTTP. Both pass one behaviour suite.
///
/// Every request that writes may be sent again after an unknown outcome: ids are made by the caller.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// What is behind the port.
    fn info(&self) -> QueueInfo;

    /// Hands tasks in. One answer a task, in order; one that is refused stops no other.
    async fn enqueue(&self, tasks: Vec<NewTask>) -> Vec<Result<Enqueued>>;

    /// Hands one task in: the same, spared the lists.
    async fn enqueue_one(&self, task: Box<NewTask>) -> Result<Enqueued> {
        let answer = self.enqueue(vec![*task]).await.pop();
        answer.unwrap_or_else(|| Err(ReasonCode::StoreOutcomeUnknown.into()))
    }

    /// Gives tasks that may run now, with their leases. Never more than asked for, never one twice.
    async fn dequeue_ready(&self, ask: Ask) -> Result<Vec<Leased>>;

    /// An attempt ended well.
    async fn mark_succeeded(&self, lease: LeaseRef, result: Option<Bytes>) -> Result<Settled>;

    /// An attempt failed: the task goes back on the queue with a delay, or is dead.
    async fn mark_failed(&self, lease: LeaseRef, failure: Failure) -> Result<Settled>;

    /// Ends attempts, each as its verdict says, and then asks for more tasks, in one request.
    async fn settle(&self, settlements: Vec<Settlement>, then: Option<Ask>) -> SettledAndLeased;

    /// The holder of a lease says how far it is.
    async fn report(&self, lease: LeaseRef, progress: Progress) -> Result<()>;

    /// A runner's sign of life, which renews all its leases; the first one makes its record.
    async fn beat(&self, runner: Runner) -> Result<()>;

    /// A runner ends cleanly.
    async fn goodbye(&self, namespace: Namespace, runner: RunnerId) -> Result<()>;

    /// What a runner was asked to stop.
    async fn signals(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<Signal>>;

    /// What a runner holds, whether it knows it or not. A page of it.
    async fn held(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<LeaseRef>>;

    /// The runners of a namespace, alive or not.
    async fn runners(&self, namespace: Namespace) -> Result<Vec<Runner>>;

    /// A task as it is now.
    async fn get_status(&self, task: TaskRef) -> Result<TaskRecord>;

    /// How many tasks there are in each of the nine states.
    async fn counts_by_state(&self, scope: CountScope) -> Result<Counts>;

    /// A page of tasks.
    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRecord>>;

    /// Why a task is where it is.
    async fn explain(&self, task: TaskRef) -> Result<Explanation>;

    /// The changes of a namespace's tasks from now on.
    async fn subscribe(&self, namespace: Namespace) -> Result<Subscription>;

    /// Ends a task at once; a running attempt is told to stop.
    async fn cancel(&self, task: TaskRef, note: Option<Arc<str>>) -> Result<TaskRecord>;

    /// Lets a held task go.
    async fn release(&self, task: TaskRef) -> Result<TaskRecord>;

    /// Runs a task again: at once if it waits for a retry, as itself or as a new task if it has ended. Returns the task that
    /// will run.
    async fn retry(&self, task: TaskRef) -> Result<TaskRecord>;

    /// Answers a task's question.
    async fn answer(&self, task: TaskRef, question: QuestionId, content: Arc<str>) -> Result<TaskRecord>;

    /// Starts a command on many tasks. Any process with a runner carries it on.
    async fn start_bulk(&self, id: SweepId, bulk: Bulk) -> Result<Arc<Sweep>>;

    /// How far a command on many tasks is; `None` when it is done.
    async fn bulk(&self, namespace: Namespace, id: SweepId) -> Result<Option<Arc<Sweep>>>;

    /// The namespaces that have anything, in order, behind one. The cursor of a page is its last name.
    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>>;

    /// Whether requests can be carried out and new tasks are taken; otherwise the reason.
    async fn ready(&self) -> Result<()> {
        self.namespaces(None, 1).await.map(drop)
    }

    /// The pools of a namespace that somebody set, by name. A page of them.
    async fn pools(&self, namespace: Namespace, cursor: Option<String>, limit: usize) -> Result<Page<Pool>>;

    /// What a pool is set to, by itself or by default.
    async fn pool(&self, namespace: Namespace, pool: PoolName) -> Result<PoolSettings>;

    /// Sets a pool. A pause holds within two seconds.
    async fn set_pool(&self, namespace: Namespace, pool: PoolName, settings: PoolSettings) -> Result<()>;

    /// Sets a schedule, new or not.
    async fn set_schedule(&self, schedule: NewSchedule) -> Result<Arc<Schedule>>;

    /// The schedules of a namespace.
    async fn schedules(&self, namespace: Namespace) -> Result<Vec<Arc<Schedule>>>;

    /// Removes a schedule. Tasks that it handed in stay.
    async fn remove_schedule(&self, namespace: Namespace, schedule: ScheduleId) -> Result<()>;

    /// Does what is due in a namespace: promotes, reclaims, sweeps, ticks, purges. Safe at any time, by anybody, twice.
    async fn maintain(&self, namespace: Namespace) -> Result<Maintained>;

    /// When the next waiting task will be due, if that is known to be soon.
    async fn next_due(&self, namespace: Namespace) -> Result<Option<Timestamp>>;

    /// Rings when something in a namespace may be worth a look.
    fn bell(&self, namespace: &Namespace) -> Arc<Bell>;
}

/// What is behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// The store's name, as in its URL.
    pub store: String,
    /// What survives, in a sentence; empty if nothing does.
    pub durable: String,
    /// Whether it is in this process, so that asking it wakes nobody elsewhere.
    pub near: bool,
}

/// Names a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TaskRef {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its id.
    pub id: TaskId,
}

impl TaskRef {
    /// The key of its record.
    pub(crate) fn key(&self) -> Key {
        Key::task(&self.namespace, &self.id)
    }

    /// The same, where the name is not needed any more.
    pub(crate) fn into_key(self) -> Key {
        Key { kind: RecordKind::Task, namespace: self.namespace, name: self.id.into() }
    }
}

/// When a task may run first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum When {
    /// At once.
    #[default]
    Now,
    /// This long after it was handed in.
    After(Millis),
    /// Not before this moment.
    At(Timestamp),
}

/// What a task says differently from its pool.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Wishes {
    /// The budget of attempts.
    pub attempts_max: Option<u32>,
    /// The waits between attempts.
    pub retry: Option<RetryPolicy>,
    /// The limit of one attempt.
    pub timeout: Option<Timeout>,
    /// How long it stays after success or cancellation.
    pub keep: Option<Keep>,
    /// How long it stays when dead.
    pub keep_dead: Option<Keep>,
}

/// A task to hand in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// The caller's name for the request; repeated when the reply got lost. Drawn by the queue if there is none.
    pub op: Option<OpId>,
    /// Its name and namespace. The name is made by the caller, so that a repeated request is recognised.
    pub task: TaskRef,
    /// The line that it stands in.
    pub pool: PoolName,
    /// What the handler gets.
    pub envelope: TaskEnvelope,
    /// For people.
    pub title: Option<Arc<str>>,
    /// When it may run first.
    pub when: When,
    /// How long after being handed in it may still start.
    pub expires_after: Option<Millis>,
    /// Whether it is held until somebody releases it.
    pub start: Start,
    /// Higher runs first.
    pub priority: Priority,
    /// The lane that it runs in.
    pub lane: Option<LaneSpec>,
    /// The key that no other task may have meanwhile.
    pub unique: Option<Unique>,
    /// A repeated request with this key finds the first one's task.
    pub idempotency: Option<IdempotencyKey>,
    /// The tasks that it waits for.
    pub parents: Vec<TaskId>,
    /// The group that it waits for.
    pub after_group: Option<GroupId>,
    /// What becomes of it when something that it waits for does not succeed.
    pub on_parent_failure: OnParentFailure,
    /// Its group.
    pub group: Option<GroupId>,
    /// Its session.
    pub session: Option<SessionId>,
    /// Free text by name.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// What it says differently from its pool.
    pub wishes: Wishes,
}

impl NewTask {
    /// A task with nothing but what every task has.
    pub fn new(task: TaskRef, pool: PoolName, envelope: TaskEnvelope) -> Self {
        Self {
            op: None,
            task,
            pool,
            envelope,
            title: None,
            when: When::Now,
            expires_after: None,
            start: Start::Released,
            priority: Priority::NORMAL,
            lane: None,
            unique: None,
            idempotency: None,
            parents: Vec::new(),
            after_group: None,
            on_parent_failure: OnParentFailure::default(),
            group: None,
            session: None,
            labels: BTreeMap::new(),
            wishes: Wishes::default(),
        }
    }
}

/// What came of an enqueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The task.
    pub id: TaskId,
    /// Whether it is a new one, or the one that an earlier request with the same key made.
    pub is_new: bool,
}

/// A runner asks for tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The caller's name for the request; repeated when the reply got lost.
    pub id: OpId,
    /// The namespace.
    pub namespace: Namespace,
    /// The pools to look in.
    pub pools: Arc<[PoolName]>,
    /// The kinds to look for.
    pub kinds: Arc<[Kind]>,
    /// How many tasks at most.
    pub limit: usize,
    /// Who will hold them.
    pub holder: RunnerId,
}

/// A task with its lease.
#[derive(Clone, Debug)]
pub struct Leased {
    /// What was asked for.
    pub spec: Arc<Spec>,
    /// The lease.
    pub lease: LeaseRef,
    /// Executions started and counted, this one included.
    pub attempts: u32,
    /// The answer to the question that the last attempt asked.
    pub answer: Option<QuestionAnswer>,
}

/// Names a lease: a task and the fencing token of its attempt.
#[derive(Clone, Debug)]
pub struct LeaseRef {
    /// The task.
    pub task: TaskRef,
    /// The token.
    pub token: Token,
    /// The record as it was given out, where the queue is in this process: it saves a read.
    /// In a box, because a lease is handed on many times and a record is large.
    pub(crate) seen: Option<Box<Versioned>>,
}

impl LeaseRef {
    /// The lease of this task's attempt.
    pub const fn new(task: TaskRef, token: Token) -> Self {
        Self { task, token, seen: None }
    }
}

/// How an attempt went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What may help.
    pub kind: FailureKind,
    /// What happened, for people.
    pub message: Arc<str>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Well.
    Succeeded(Option<Bytes>),
    /// Badly.
    Failed(Failure),
    /// By its time limit.
    TimedOut,
    /// By the wish to go on later; no attempt is spent.
    Snoozed(Millis),
    /// By a question.
    Asked(Box<Question>),
    /// By the runner's shutdown; no attempt is spent.
    Interrupted,
    /// It never began; no attempt is spent.
    Returned,
    /// After a cancel: how far the attempt is stopped.
    Stopped(Stage),
}

/// The end of one attempt.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The caller's name for it; repeated when the reply got lost.
    pub id: OpId,
    /// The lease.
    pub lease: LeaseRef,
    /// How it ended.
    pub verdict: Verdict,
}

impl Settlement {
    pub(crate) fn event(&self) -> Event {
        let token = self.lease.token;
        match &self.verdict {
            Verdict::Succeeded(result) => Event::Succeeded { token, result: result.clone() },
            Verdict::Failed(failure) => Event::Failed { token, kind: failure.kind, error: failure.message.clone() },
            Verdict::TimedOut => Event::TimedOut { token },
            Verdict::Snoozed(delay) => Event::Snoozed { token, delay: *delay },
            Verdict::Asked(question) => Event::Asked { token, question: question.clone() },
            Verdict::Interrupted => Event::Interrupted { token },
            Verdict::Returned => Event::Returned { token },
            Verdict::Stopped(stage) => Event::AttemptEnded { token, stage: *stage },
        }
    }
}

/// A task after a settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Where it is now.
    pub state: crate::record::TaskState,
    /// When it runs again, if it does.
    pub next_run_at: Option<Timestamp>,
}

/// What came of a settlement with a following ask.
#[derive(Clone, Debug)]
pub struct SettledAndLeased {
    /// One answer a settlement, in order.
    pub settled: Vec<Result<Settled>>,
    /// The tasks that were asked for; none if nobody asked.
    pub leased: Result<Vec<Leased>>,
}

/// A command on many tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bulk {
    /// Cancels what matches and has not ended.
    Cancel(TaskFilter),
    /// Runs again what matches and can.
    Retry(TaskFilter),
    /// Removes what matches and has ended.
    Purge(TaskFilter),
}

/// Why a task is where it is; the reason that matters most comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The task.
    pub record: TaskRecord,
    /// The reasons, never none.
    pub reasons: Vec<Refusal>,
}

/// A schedule to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSchedule {
    /// Its name.
    pub id: ScheduleId,
    /// When ticks come.
    pub every: Every,
    /// What happens with ticks that nobody was there to see.
    pub missed: Missed,
    /// What happens when the task of the tick before has not ended.
    pub overlap: Overlap,
    /// Whether it rests.
    pub paused: bool,
    /// What each tick hands in.
    pub task: NewTask,
}

/// What a round of maintenance did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
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
    pub next_tick: Option<Timestamp>,
}

impl Maintained {
    /// The next round is needed at this moment, if not sooner.
    pub(crate) fn look_at(&mut self, at: Timestamp) {
        self.next_tick = Some(self.next_tick.map_or(at, |sooner| sooner.min(at)));
    }

    /// Whether the round found nothing to do.
    pub fn is_idle(&self) -> bool {
        Self { next_tick: None, ..*self } == Self::default()
    }
}
