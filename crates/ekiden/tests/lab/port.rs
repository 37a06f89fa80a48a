//! A queue around a queue: it counts what passes, remembers when beats were acknowledged, and can make requests fail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ekiden::core::{
    Namespace, Pool, PoolName, PoolSettings, Progress, QuestionId, ReasonCode, Runner, RunnerId, Schedule, ScheduleId,
    Signal, Sweep, SweepId, Timestamp,
};
use ekiden::store::{Clock, CountScope, Counts, Page, StoreError, SystemClock, TaskQuery};
use ekiden::{
    Ask, Bell, Bulk, Enqueued, Explanation, Failure, LeaseRef, Leased, Maintained, NewSchedule, NewTask, Queue,
    QueueInfo, Result, Settled, SettledAndLeased, Settlement, Subscription, TaskRecord, TaskRef,
};

/// What a test may do to a port while it is used.
#[derive(Default)]
pub struct Knobs {
    /// No beat gets through.
    pub mute: AtomicBool,
    /// Nothing that writes gets through, as if the process had died.
    pub gone: AtomicBool,
    /// No report of progress gets through.
    pub silent: AtomicBool,
    /// The bell that is handed out is nobody's: every wake-up is lost.
    pub deaf: AtomicBool,
    /// The request that panics.
    pub panics: Mutex<Option<&'static str>>,
    /// How often each request came.
    pub calls: Mutex<BTreeMap<&'static str, usize>>,
    /// When beats were acknowledged, by the machine's monotonic clock.
    pub beats: Mutex<Vec<Duration>>,
}

impl Knobs {
    pub fn calls(&self, name: &str) -> usize {
        self.calls.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    async fn here(&self) {
        if self.gone.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    fn called(&self, name: &'static str) {
        *self.calls.lock().unwrap().entry(name).or_default() += 1;
        let panics = *self.panics.lock().unwrap();
        assert_ne!(panics, Some(name), "as the test wanted");
    }
}

/// The layer.
pub struct Port {
    pub inner: Arc<dyn Queue>,
    pub knobs: Arc<Knobs>,
}

macro_rules! pass_on {
    ($self:ident.$name:ident($($argument:ident),*)) => {{
        $self.knobs.called(stringify!($name));
        $self.inner.$name($($argument),*).await
    }};
}

#[async_trait]
impl Queue for Port {
    fn info(&self) -> QueueInfo {
        self.inner.info()
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Vec<Result<Enqueued>> {
        pass_on!(self.enqueue(tasks))
    }

    async fn dequeue_ready(&self, ask: Ask) -> Result<Vec<Leased>> {
        self.knobs.here().await;
        pass_on!(self.dequeue_ready(ask))
    }

    async fn mark_succeeded(&self, lease: LeaseRef, result: Option<Bytes>) -> Result<Settled> {
        pass_on!(self.mark_succeeded(lease, result))
    }

    async fn mark_failed(&self, lease: LeaseRef, failure: Failure) -> Result<Settled> {
        pass_on!(self.mark_failed(lease, failure))
    }

    async fn settle(&self, settlements: Vec<Settlement>, then: Option<Ask>) -> SettledAndLeased {
        self.knobs.here().await;
        pass_on!(self.settle(settlements, then))
    }

    async fn report(&self, lease: LeaseRef, progress: Progress) -> Result<()> {
        if self.knobs.silent.load(Ordering::SeqCst) {
            self.knobs.called("report");
            return Err(StoreError::unavailable("as the test wanted").into());
        }
        pass_on!(self.report(lease, progress))
    }

    async fn beat(&self, runner: Runner) -> Result<()> {
        self.knobs.here().await;
        if self.knobs.mute.load(Ordering::SeqCst) {
            return Err(ReasonCode::StoreUnavailable.into());
        }
        let outcome = pass_on!(self.beat(runner));
        if outcome.is_ok() {
            self.knobs.beats.lock().unwrap().push(SystemClock.monotonic());
        }
        outcome
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
        pass_on!(self.maintain(namespace))
    }

    async fn next_due(&self, namespace: Namespace) -> Result<Option<Timestamp>> {
        pass_on!(self.next_due(namespace))
    }

    fn bell(&self, namespace: &Namespace) -> Arc<Bell> {
        if self.knobs.deaf.load(Ordering::SeqCst) { Arc::default() } else { self.inner.bell(namespace) }
    }
}
