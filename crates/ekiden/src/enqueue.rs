//! The builder of a task: everything that can be said of it, checked, and handed in when it is awaited.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ekiden_core::dependency::OnParentFailure;
use ekiden_core::id::{GroupId, IdempotencyKey, LaneKey, PoolName, SessionId, TaskId, UniqueKey};
use ekiden_core::lane::{Hold, LaneSpec};
use ekiden_core::order::Priority;
use ekiden_core::pool::{Keep, Timeout};
use ekiden_core::reason::Refusal;
use ekiden_core::retry::RetryPolicy;
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::transition::Start;
use ekiden_core::unique::{Unique, UniqueHold};

use crate::error::Result;
use crate::port::{Enqueued, NewTask, Queue, When};

/// A task in the making. Nothing happens until it is awaited; a wrong wish is the answer then.
#[must_use = "a task is handed in when it is awaited"]
pub struct EnqueueBuilder {
    queue: Arc<dyn Queue>,
    /// In a box from the beginning: it is handed on several times.
    task: Result<Box<NewTask>>,
}

impl EnqueueBuilder {
    pub(crate) const fn new(queue: Arc<dyn Queue>, task: Result<Box<NewTask>>) -> Self {
        Self { queue, task }
    }

    /// The task as plain data, or what is wrong with it.
    pub fn into_task(self) -> Result<NewTask> {
        self.task.map(|task| *task)
    }

    fn with(mut self, change: impl FnOnce(&mut NewTask)) -> Self {
        if let Ok(task) = &mut self.task {
            change(task);
        }
        self
    }

    fn checked<T>(mut self, value: Result<T, Refusal>, set: impl FnOnce(&mut NewTask, T)) -> Self {
        match (&mut self.task, value) {
            (Ok(task), Ok(value)) => set(task, value),
            (Ok(_), Err(refusal)) => self.task = Err(refusal.into()),
            // The first mistake is the one to tell.
            (Err(_), _) => {}
        }
        self
    }

    /// A name of your own instead of a made one. Handing in a second task of the same name is refused.
    pub fn id(self, id: impl AsRef<str>) -> Self {
        self.checked(TaskId::new(id), |task, id| task.task.id = id)
    }

    /// The line that it stands in; `default` if nobody says.
    pub fn pool(self, pool: impl AsRef<str>) -> Self {
        self.checked(PoolName::new(pool), |task, pool| task.pool = pool)
    }

    /// For people.
    pub fn title(self, title: impl AsRef<str>) -> Self {
        self.with(|task| task.title = Some(Arc::from(title.as_ref())))
    }

    /// Not before so long from now.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|task| task.when = When::After(Millis::from(delay)))
    }

    /// Not before this moment.
    pub fn run_at(self, at: Timestamp) -> Self {
        self.with(|task| task.when = When::At(at))
    }

    /// Dead unless started within so long.
    pub fn expires_after(self, life: Duration) -> Self {
        self.with(|task| task.expires_after = Some(Millis::from(life)))
    }

    /// Held until somebody releases it; the end of the group that it waits for does so too.
    pub fn held(self) -> Self {
        self.with(|task| task.start = Start::Held)
    }

    /// Higher first, from −100 to 100: low −10, normal 0, high 10, urgent 20.
    pub fn priority(self, priority: i32) -> Self {
        self.checked(Priority::new(priority), |task, priority| task.priority = priority)
    }

    /// No second open task with this key: a second enqueue finds the first one's task.
    pub fn unique(self, key: impl AsRef<str>) -> Self {
        self.unique_while(key, UniqueHold::WhileOpen)
    }

    /// No second task with this key within so long.
    pub fn unique_for(self, key: impl AsRef<str>, span: Duration) -> Self {
        self.unique_while(key, UniqueHold::For(Millis::from(span)))
    }

    fn unique_while(self, key: impl AsRef<str>, hold: UniqueHold) -> Self {
        self.checked(UniqueKey::new(key), |task, key| task.unique = Some(Unique { key, hold }))
    }

    /// A repeated request with this key finds the first one's task, for a day, whatever became of it.
    pub fn idempotency_key(self, key: impl AsRef<str>) -> Self {
        self.checked(IdempotencyKey::new(key), |task, key| task.idempotency = Some(key))
    }

    /// Tasks with one serial key run one at a time, in the order in which they were handed in.
    pub fn serial_key(self, key: impl AsRef<str>) -> Self {
        self.checked(LaneKey::new(key), |task, key| task.lane = Some(LaneSpec::serial(key)))
    }

    /// At most so many tasks with this key run at once.
    pub fn at_most(self, width: u32, key: impl AsRef<str>) -> Self {
        let lane = LaneKey::new(key).and_then(|key| {
            let lane = LaneSpec { key, width, hold: Hold::WhileRunning };
            lane.check().map(|()| lane)
        });
        self.checked(lane, |task, lane| task.lane = Some(lane))
    }

    /// Waits until these have succeeded.
    pub fn depends_on<'a>(self, parents: impl IntoIterator<Item = &'a TaskId>) -> Self {
        self.with(|task| task.parents.extend(parents.into_iter().cloned()))
    }

    /// Waits until every task of the group has ended. Hand the group's first tasks in before.
    pub fn after_group(self, group: impl AsRef<str>) -> Self {
        self.checked(GroupId::new(group), |task, group| task.after_group = Some(group))
    }

    /// What becomes of it when something that it waits for does not succeed. It stays blocked if nobody says.
    pub fn on_parent_failure(self, policy: OnParentFailure) -> Self {
        self.with(|task| task.on_parent_failure = policy)
    }

    /// Its group.
    pub fn group(self, group: impl AsRef<str>) -> Self {
        self.checked(GroupId::new(group), |task, group| task.group = Some(group))
    }

    /// Its session.
    pub fn session(self, session: impl AsRef<str>) -> Self {
        self.checked(SessionId::new(session), |task, session| task.session = Some(session))
    }

    /// Free text by name.
    pub fn label(self, name: impl AsRef<str>, value: impl AsRef<str>) -> Self {
        self.with(|task| {
            task.labels.insert(Arc::from(name.as_ref()), Arc::from(value.as_ref()));
        })
    }

    /// The waits between attempts.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.with(|task| task.wishes.retry = Some(policy))
    }

    /// The budget of attempts, the first one included.
    pub fn max_attempts(self, attempts: u32) -> Self {
        self.with(|task| task.wishes.attempts_max = Some(attempts))
    }

    /// The limit of one attempt.
    pub fn timeout(self, limit: Duration) -> Self {
        self.with(|task| task.wishes.timeout = Some(Timeout::After(Millis::from(limit))))
    }

    /// How long it stays after success or cancellation.
    pub fn keep_for(self, span: Duration) -> Self {
        self.with(|task| task.wishes.keep = Some(Keep::For(Millis::from(span))))
    }
}

impl IntoFuture for EnqueueBuilder {
    type Output = Result<Enqueued>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Enqueued>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { queue, task } = self;
        Box::pin(async move { queue.enqueue_one(task?).await })
    }
}

impl fmt::Debug for EnqueueBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnqueueBuilder").field("task", &self.task).finish_non_exhaustive()
    }
}
