//! A queue around a queue: tasks and settlements can be stopped on their way in, one name makes the queue panic, and maintenance of
//! some namespaces hangs or fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use ekiden::core::{
    Namespace, Pool, PoolName, PoolSettings, Progress, QuestionId, ReasonCode, Runner, RunnerId, Schedule, ScheduleId,
    Signal, Sweep, SweepId, Timestamp,
};
use ekiden::store::{CountScope, Counts, Page, TaskQuery};
use ekiden::{
    Ask, Bell, Bulk, Enqueued, Explanation, Failure, LeaseRef, Leased, Maintained, NewSchedule, NewTask, Queue,
    QueueInfo, Result, Settled, SettledAndLeased, Settlement, Subscription, TaskRecord, TaskRef,
};
use tokio::sync::Semaphore;

/// A gate that tasks pass on their way in, and what ended on its way back.
pub(crate) struct Gate {
    /// How many came to it.
    pub(crate) came: Semaphore,
    /// How many may go through.
    pub(crate) open: Semaphore,
    /// How often maintenance looked at a namespace.
    maintained: AtomicUsize,
}

impl Gate {
    pub(crate) fn closed() -> Arc<Self> {
        Arc::new(Self { came: Semaphore::new(0), open: Semaphore::new(0), maintained: AtomicUsize::new(0) })
    }

    /// How often maintenance looked at a namespace.
    pub(crate) fn maintained(&self) -> usize {
        self.maintained.load(Ordering::SeqCst)
    }

    async fn pass(&self) {
        self.came.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }
}

/// The layer.
pub(crate) struct Port {
    pub(crate) inner: Arc<dyn Queue>,
    pub(crate) gate: Arc<Gate>,
}

macro_rules! pass_on {
    ($self:ident.$name:ident($($argument:ident),*)) => {
        $self.inner.$name($($argument),*).await
    };
}

#[async_trait]
impl Queue for Port {
    fn info(&self) -> QueueInfo {
        self.inner.info()
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Vec<Result<Enqueued>> {
        self.gate.pass().await;
        pass_on!(self.enqueue(tasks))
    }

    async fn dequeue_ready(&self, ask: Ask) -> Result<Vec<Leased>> {
        pass_on!(self.dequeue_ready(ask))
    }

    async fn mark_succeeded(&self, lease: LeaseRef, result: Option<Bytes>) -> Result<Settled> {
        pass_on!(self.mark_succeeded(lease, result))
    }

    async fn mark_failed(&self, lease: LeaseRef, failure: Failure) -> Result<Settled> {
        pass_on!(self.mark_failed(lease, failure))
    }

    async fn settle(&self, settlements: Vec<Settlement>, then: Option<Ask>) -> SettledAndLeased {
        self.gate.pass().await;
        pass_on!(self.settle(settlements, then))
    }

    async fn report(&self, lease: LeaseRef, progress: Progress) -> Result<()> {
        pass_on!(self.report(lease, progress))
    }

    async fn beat(&self, runner: Runner) -> Result<()> {
        pass_on!(self.beat(runner))
    }

    async fn goodbye(&self, namespace: Namespace, runner: RunnerId) -> Result<()> {
        pass_on!(self.goodbye(namespace, runner))
    }

    async fn signals(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<Signal>> {
        pass_on!(self.signals(namespace, runner))
    }

    async fn held(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<LeaseRef>> {
        pass_on!(self.held(namespace, runner))
    }

    async fn runners(&self, namespace: Namespace) -> Result<Vec<Runner>> {
        pass_on!(self.runners(namespace))
    }

    async fn get_status(&self, task: TaskRef) -> Result<TaskRecord> {
        pass_on!(self.get_status(task))
    }

    async fn counts_by_state(&self, scope: CountScope) -> Result<Counts> {
        pass_on!(self.counts_by_state(scope))
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRecord>> {
        pass_on!(self.tasks(query))
    }

    async fn explain(&self, task: TaskRef) -> Result<Explanation> {
        pass_on!(self.explain(task))
    }

    async fn subscribe(&self, namespace: Namespace) -> Result<Subscription> {
        self.inner.subscribe(namespace).await
    }

    async fn cancel(&self, task: TaskRef, note: Option<Arc<str>>) -> Result<TaskRecord> {
        pass_on!(self.cancel(task, note))
    }

    async fn release(&self, task: TaskRef) -> Result<TaskRecord> {
        pass_on!(self.release(task))
    }

    async fn retry(&self, task: TaskRef) -> Result<TaskRecord> {
        assert_ne!(task.id.as_str(), "panic", "as the test wanted");
        pass_on!(self.retry(task))
    }

    async fn answer(&self, task: TaskRef, question: QuestionId, content: Arc<str>) -> Result<TaskRecord> {
        pass_on!(self.answer(task, question, content))
    }

    async fn start_bulk(&self, id: SweepId, bulk: Bulk) -> Result<Arc<Sweep>> {
        pass_on!(self.start_bulk(id, bulk))
    }

    async fn bulk(&self, namespace: Namespace, id: SweepId) -> Result<Option<Arc<Sweep>>> {
        pass_on!(self.bulk(namespace, id))
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>> {
        pass_on!(self.namespaces(after, limit))
    }

    async fn ready(&self) -> Result<()> {
        pass_on!(self.ready())
    }

    async fn pools(&self, namespace: Namespace, cursor: Option<String>, limit: usize) -> Result<Page<Pool>> {
        pass_on!(self.pools(namespace, cursor, limit))
    }

    async fn pool(&self, namespace: Namespace, pool: PoolName) -> Result<PoolSettings> {
        pass_on!(self.pool(namespace, pool))
    }

    async fn set_pool(&self, namespace: Namespace, pool: PoolName, settings: PoolSettings) -> Result<()> {
        pass_on!(self.set_pool(namespace, pool, settings))
    }

    async fn set_schedule(&self, schedule: NewSchedule) -> Result<Arc<Schedule>> {
        pass_on!(self.set_schedule(schedule))
    }

    async fn schedules(&self, namespace: Namespace) -> Result<Vec<Arc<Schedule>>> {
        pass_on!(self.schedules(namespace))
    }

    async fn remove_schedule(&self, namespace: Namespace, schedule: ScheduleId) -> Result<()> {
        pass_on!(self.remove_schedule(namespace, schedule))
    }

    async fn maintain(&self, namespace: Namespace) -> Result<Maintained> {
        self.gate.maintained.fetch_add(1, Ordering::SeqCst);
        match namespace.as_str() {
            "panics" => panic!("planted"),
            name if name.starts_with("hangs") => std::future::pending().await,
            name if name.starts_with("fails") => return Err(ReasonCode::StoreFailed.into()),
            _ => {}
        }
        pass_on!(self.maintain(namespace))
    }

    async fn next_due(&self, namespace: Namespace) -> Result<Option<Timestamp>> {
        pass_on!(self.next_due(namespace))
    }

    fn bell(&self, namespace: &Namespace) -> Arc<Bell> {
        self.inner.bell(namespace)
    }
}
