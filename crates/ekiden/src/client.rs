//! What a user holds: a queue bound to one namespace, with typed methods. Cheap to clone.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::Duration;

use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{Kind, Namespace, OpId, PoolName, QuestionId, ScheduleId, SweepId, TaskId};
use ekiden_core::limits;
use ekiden_core::pool::PoolSettings;
use ekiden_core::reason::Refusal;
use ekiden_core::runner::Runner;
use ekiden_core::schedule::Schedule;
use ekiden_core::sweep::Sweep;
use ekiden_core::task::{JSON, TaskEnvelope};
use ekiden_store::clock::{Clock, SystemClock};
use ekiden_store::entropy::{Entropy, Spring};
use ekiden_store::{CountScope, Counts, ListOrder, Page, Store, TaskQuery};
use hashbrown::HashSet;

use crate::backoff::Backoff;
use crate::change::{Heard, Observer, Subscription};
use crate::enqueue::EnqueueBuilder;
use crate::error::{Error, Result};
use crate::handler::Payload;
use crate::io::Io;
use crate::port::{Bulk, Enqueued, Explanation, Maintained, NewTask, Queue, TaskRef};
use crate::queue::StoreQueue;
use crate::record::TaskRecord;
use crate::schedule::ScheduleBuilder;

/// One second: how soon somebody who waits for a task sees what another process did to it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The first wait for a server that cannot be reached; it doubles up to [`OUTAGE_LOOK_MAX`].
const OUTAGE_LOOK: Duration = Duration::from_millis(200);

/// Five seconds: soon enough after an outage of any length.
const OUTAGE_LOOK_MAX: Duration = Duration::from_secs(5);

/// The pool of tasks that name none: made once, as most tasks stand in it.
pub(crate) fn default_pool() -> PoolName {
    static SHARED: LazyLock<PoolName> = LazyLock::new(|| PoolName::new("default").expect("a plain word is a valid id"));
    SHARED.clone()
}

/// An opened queue. Namespaces are taken from it.
#[derive(Clone)]
pub struct Ekiden {
    queue: Arc<dyn Queue>,
    tools: Arc<Tools>,
    /// What is closed with it; a queue elsewhere closes its own.
    store: Option<Arc<dyn Store>>,
}

/// What clients of one queue share.
pub(crate) struct Tools {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) io: Io,
    spring: Spring,
    /// Kinds that tasks were made of: there are few, and each task keeps its own.
    kinds: RwLock<HashSet<Kind>>,
}

impl Tools {
    fn of_this_machine() -> Self {
        Self::new(Arc::new(SystemClock), Io::default(), Entropy::from_system())
    }

    fn new(clock: Arc<dyn Clock>, io: Io, entropy: Entropy) -> Self {
        Self { clock, io, spring: Spring::from(entropy), kinds: RwLock::default() }
    }

    /// The kind of this name, shared with the tasks before.
    fn kind(&self, name: &str) -> Result<Kind, Refusal> {
        if let Some(kind) = self.kinds.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return Ok(kind.clone());
        }
        let kind = Kind::new(name)?;
        let mut kinds = self.kinds.write().unwrap_or_else(PoisonError::into_inner);
        if kinds.len() < limits::KINDS_A_POOL_MAX {
            kinds.insert(kind.clone());
        }
        Ok(kind)
    }
}

impl Ekiden {
    /// A queue over a store of your own choice.
    pub fn builder(store: Arc<dyn Store>) -> EkidenBuilder {
        EkidenBuilder {
            store,
            clock: Arc::new(SystemClock),
            entropy: Entropy::from_system(),
            observers: Vec::new(),
            io: Io::default(),
        }
    }

    /// A queue over any port: of another process, or one of your own. Whoever has what is behind it closes that.
    pub fn over(queue: Arc<dyn Queue>) -> Self {
        Self { queue, tools: Arc::new(Tools::of_this_machine()), store: None }
    }

    /// A client of one namespace.
    pub fn namespace(&self, name: impl AsRef<str>) -> Result<Client> {
        let namespace = Namespace::new(name)?;
        Ok(Client { queue: self.queue.clone(), tools: self.tools.clone(), namespace })
    }

    /// The port itself.
    pub fn queue(&self) -> &Arc<dyn Queue> {
        &self.queue
    }

    /// The clock that the queue goes by: its tasks have their times from it, and a server in front of it needs the same.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.tools.clock
    }

    /// Ends the store's work and lets go of its folder. What was acknowledged stays; clients are refused from now on, with
    /// `STORE_CLOSED`. Runners should have ended before.
    pub async fn close(&self) -> Result<()> {
        match &self.store {
            Some(store) => Ok(store.close().await?),
            None => Ok(()),
        }
    }
}

/// Chooses what a queue is made of.
pub struct EkidenBuilder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Entropy,
    observers: Vec<Arc<dyn Observer>>,
    io: Io,
}

impl EkidenBuilder {
    /// Hears of every change, for metrics.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Another clock than the machine's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Ids that a seed repeats, for tests: one published number of such a stream gives all its ids.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.entropy = Entropy::from_seed(seed);
        self
    }

    /// Where the runtime's own work is driven.
    #[must_use]
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    /// The queue.
    pub fn build(self) -> Ekiden {
        self.build_around(|queue| queue)
    }

    /// The queue, with something of your own around its port: to watch it, to forward it, to make it fail.
    pub fn build_around(self, layer: impl FnOnce(Arc<dyn Queue>) -> Arc<dyn Queue>) -> Ekiden {
        let mut entropy = self.entropy;
        let own = entropy.another();
        let queue = Arc::new(StoreQueue::with(self.store.clone(), self.clock, own, self.observers));
        let tools = Tools::new(queue.clock().clone(), self.io, entropy);
        Ekiden { queue: layer(queue), tools: Arc::new(tools), store: Some(self.store) }
    }
}

/// A queue, seen from one namespace.
#[derive(Clone)]
pub struct Client {
    queue: Arc<dyn Queue>,
    tools: Arc<Tools>,
    namespace: Namespace,
}

impl Client {
    /// A client over any port: of another process, or one of your own.
    pub fn over(queue: Arc<dyn Queue>, namespace: Namespace) -> Self {
        Self { queue, tools: Arc::new(Tools::of_this_machine()), namespace }
    }

    /// The namespace.
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The port itself.
    pub const fn queue(&self) -> &Arc<dyn Queue> {
        &self.queue
    }

    pub(crate) fn tools(&self) -> &Tools {
        &self.tools
    }

    pub(crate) fn op_id(&self) -> OpId {
        let [id] = self.op_ids();
        id
    }

    /// Several, for a request that does several things.
    pub(crate) fn op_ids<const N: usize>(&self) -> [OpId; N] {
        let now = self.tools.clock.now();
        std::array::from_fn(|_| self.tools.spring.op_id(now))
    }

    pub(crate) fn random(&self) -> u64 {
        self.tools.spring.next_u64()
    }

    fn task_id(&self) -> TaskId {
        self.tools.spring.task_id(self.tools.clock.now())
    }

    /// Names a task of this namespace.
    pub fn task(&self, id: &TaskId) -> TaskRef {
        TaskRef { namespace: self.namespace.clone(), id: id.clone() }
    }

    /// A task for the handler of this payload's kind. Await it to hand it in.
    pub fn enqueue<P: Payload>(&self, payload: P) -> EnqueueBuilder {
        let task = serde_json::to_vec(&payload).map_err(Error::payload).and_then(|bytes| {
            let kind = self.tools.kind(P::TASK_TYPE)?;
            Ok(self.new_task(TaskEnvelope::json(kind, bytes)))
        });
        EnqueueBuilder::new(self.queue.clone(), task)
    }

    /// A task of any kind, around bytes of any media type.
    pub fn enqueue_raw(
        &self,
        task_type: impl AsRef<str>,
        content_type: &str,
        payload: impl Into<bytes::Bytes>,
    ) -> EnqueueBuilder {
        let payload = payload.into();
        let task = self.tools.kind(task_type.as_ref()).map_err(Error::from).map(|kind| {
            let mut envelope = TaskEnvelope::json(kind, payload);
            if content_type != JSON {
                envelope.content_type = Arc::from(content_type);
            }
            self.new_task(envelope)
        });
        EnqueueBuilder::new(self.queue.clone(), task)
    }

    /// A task of any kind, around JSON.
    pub fn enqueue_json(&self, task_type: impl AsRef<str>, payload: &serde_json::Value) -> EnqueueBuilder {
        self.enqueue_raw(task_type, JSON, payload.to_string())
    }

    fn new_task(&self, envelope: TaskEnvelope) -> Box<NewTask> {
        let task = TaskRef { namespace: self.namespace.clone(), id: self.task_id() };
        Box::new(NewTask::new(task, default_pool(), envelope))
    }

    /// Hands many tasks in with one request. One answer a task, in order.
    pub async fn enqueue_all(&self, tasks: impl IntoIterator<Item = EnqueueBuilder>) -> Vec<Result<Enqueued>> {
        let mut answers = Vec::new();
        let mut sent = Vec::new();
        for builder in tasks {
            match builder.into_task() {
                Ok(task) => {
                    sent.push(task);
                    answers.push(None);
                }
                Err(error) => answers.push(Some(Err(error))),
            }
        }
        let mut outcomes = self.queue.enqueue(sent).await.into_iter();
        answers.into_iter().filter_map(|answer| answer.or_else(|| outcomes.next())).collect()
    }

    /// A task as it is now.
    pub async fn get_status(&self, id: &TaskId) -> Result<TaskRecord> {
        self.queue.get_status(self.task(id)).await
    }

    /// Waits until a task has ended, however long that takes, and returns what became of it.
    ///
    /// ```
    /// # use ekiden::{Context, Ekiden, Payload, Runner, TaskState};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Greet;
    /// # impl Payload for Greet {
    /// #     const TASK_TYPE: &'static str = "greet";
    /// # }
    /// # #[tokio::main] async fn main() -> Result<(), ekiden::Error> {
    /// # let client = Ekiden::open("memory:").await?.namespace("default")?;
    /// let task = client.enqueue(Greet).await?;
    /// let runner = Runner::builder(&client).handler(|_: Greet, _: Context| async {}).build()?;
    /// let stop = runner.stop();
    /// let running = tokio::spawn(runner.run_until_stopped());
    /// assert_eq!(client.wait(&task.id).await?.state, TaskState::Succeeded);
    /// stop.gently();
    /// # running.await.expect("the runner does not panic")?;
    /// # Ok(()) }
    /// ```
    pub async fn wait(&self, id: &TaskId) -> Result<TaskRecord> {
        let mut changes = self.until_answered(|| self.subscribe()).await?;
        loop {
            let record = self.until_answered(|| self.get_status(id)).await?;
            if record.state.is_final() {
                return Ok(record);
            }
            // In vain if another process ends it: then the next look finds out.
            let _ = tokio::time::timeout(LOOK_AGAIN, ended(&mut changes, id)).await;
        }
    }

    /// Asks again for as long as the server or the store cannot be reached or has too much to do. For those who wait anyway. Only
    /// for what may be asked twice.
    pub async fn until_answered<T, F: Future<Output = Result<T>>>(&self, mut ask: impl FnMut() -> F) -> Result<T> {
        let mut waits = Backoff::new(OUTAGE_LOOK, OUTAGE_LOOK_MAX);
        loop {
            match ask().await {
                Err(error) if error.is_retryable() || error.is_unknown() => {
                    tracing::debug!(%error, "not answered, asking again");
                    tokio::time::sleep(waits.next(self.random())).await;
                }
                answered => return answered,
            }
        }
    }

    /// How many tasks of the namespace are in each of the nine states.
    pub async fn counts_by_state(&self) -> Result<Counts> {
        self.queue.counts_by_state(CountScope { namespace: self.namespace.clone(), pool: None }).await
    }

    /// Every task of the namespace, to be narrowed down.
    pub fn all(&self) -> TaskFilter {
        TaskFilter::all(self.namespace.clone())
    }

    /// A page of tasks, newest first.
    pub async fn list(&self, filter: TaskFilter, cursor: Option<String>, limit: usize) -> Result<Page<TaskRecord>> {
        self.queue.tasks(TaskQuery { filter, order: ListOrder::NewestFirst, cursor, limit }).await
    }

    /// Why a task is where it is.
    pub async fn explain(&self, id: &TaskId) -> Result<Explanation> {
        self.queue.explain(self.task(id)).await
    }

    /// The changes of the namespace's tasks from now on.
    pub async fn subscribe(&self) -> Result<Subscription> {
        self.queue.subscribe(self.namespace.clone()).await
    }

    /// Ends a task at once; a running attempt is told to stop.
    pub async fn cancel(&self, id: &TaskId) -> Result<TaskRecord> {
        self.queue.cancel(self.task(id), None).await
    }

    /// Lets a held task go.
    pub async fn release(&self, id: &TaskId) -> Result<TaskRecord> {
        self.queue.release(self.task(id)).await
    }

    /// Runs a task again, and returns the task that will run.
    pub async fn retry(&self, id: &TaskId) -> Result<TaskRecord> {
        self.queue.retry(self.task(id)).await
    }

    /// Answers a task's question.
    pub async fn answer(&self, id: &TaskId, question: &QuestionId, content: impl AsRef<str>) -> Result<TaskRecord> {
        self.queue.answer(self.task(id), question.clone(), Arc::from(content.as_ref())).await
    }

    /// Cancels every open task that matches.
    pub async fn cancel_all(&self, filter: TaskFilter) -> Result<Arc<Sweep>> {
        self.start_bulk("cancel", Bulk::Cancel(filter)).await
    }

    /// Runs every matching task again that can.
    pub async fn retry_all(&self, filter: TaskFilter) -> Result<Arc<Sweep>> {
        self.start_bulk("retry", Bulk::Retry(filter)).await
    }

    /// Removes every matching task that has ended some minutes ago.
    pub async fn purge(&self, filter: TaskFilter) -> Result<Arc<Sweep>> {
        self.start_bulk("purge", Bulk::Purge(filter)).await
    }

    async fn start_bulk(&self, what: &str, bulk: Bulk) -> Result<Arc<Sweep>> {
        let id = SweepId::new(format!("{what}/{}", self.op_id()))?;
        self.queue.start_bulk(id, bulk).await
    }

    /// How far such a command is; `None` when it is done.
    pub async fn bulk(&self, id: &SweepId) -> Result<Option<Arc<Sweep>>> {
        self.queue.bulk(self.namespace.clone(), id.clone()).await
    }

    /// What a pool is set to.
    pub async fn pool(&self, name: impl AsRef<str>) -> Result<PoolSettings> {
        self.queue.pool(self.namespace.clone(), PoolName::new(name)?).await
    }

    /// Sets a pool.
    pub async fn set_pool(&self, name: impl AsRef<str>, settings: PoolSettings) -> Result<()> {
        self.queue.set_pool(self.namespace.clone(), PoolName::new(name)?, settings).await
    }

    /// A schedule that hands in the given task. Await it to set it.
    pub fn schedule(&self, name: impl AsRef<str>, task: EnqueueBuilder) -> ScheduleBuilder {
        ScheduleBuilder::new(self.clone(), name.as_ref(), task)
    }

    /// The schedules of the namespace.
    pub async fn schedules(&self) -> Result<Vec<Arc<Schedule>>> {
        self.queue.schedules(self.namespace.clone()).await
    }

    /// Removes a schedule. Tasks that it handed in stay.
    pub async fn remove_schedule(&self, name: impl AsRef<str>) -> Result<()> {
        self.queue.remove_schedule(self.namespace.clone(), ScheduleId::new(name)?).await
    }

    /// The runners of the namespace, alive or not.
    pub async fn runners(&self) -> Result<Vec<Runner>> {
        self.queue.runners(self.namespace.clone()).await
    }

    /// Does what is due. Every process with a runner does so by itself.
    pub async fn maintain(&self) -> Result<Maintained> {
        self.queue.maintain(self.namespace.clone()).await
    }
}

/// Waits until a task may have ended, as far as this process hears of it.
async fn ended(changes: &mut Subscription, id: &TaskId) {
    loop {
        match changes.next().await {
            Some(Heard::Change(change)) if change.id != *id || !change.state.is_final() => {}
            Some(_) => return,
            None => std::future::pending().await,
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl fmt::Debug for Ekiden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ekiden").field("store", &self.queue.info().store).finish_non_exhaustive()
    }
}
