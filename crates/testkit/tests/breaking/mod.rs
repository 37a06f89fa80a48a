//! A queue that keeps every promise but one.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use ekiden::core::{
    Millis, Namespace, Pool, PoolName, PoolSettings, Progress, QuestionId, Runner, RunnerId, Schedule, ScheduleId,
    Signal, Sweep, SweepId, Timestamp, Token,
};
use ekiden::store::{Clock, CountScope, Counts, ManualClock, Page, TaskQuery};
use ekiden::{
    Ask, Bell, Bulk, Enqueued, Explanation, Failure, LeaseRef, Leased, Maintained, NewSchedule, NewTask, Queue,
    QueueInfo, Result, Settled, SettledAndLeased, Settlement, StoreQueue, Subscription, TaskRecord, TaskRef, TaskState,
};

/// What a queue may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// It gives retries before their moment.
    WaitsForItsMoment,
    /// It forgets results.
    KeepsResults,
    /// It takes any token for the current one.
    RefusesStaleTokens,
    /// It counts one running task too many.
    CountsRight,
    /// It drops the second task of a batch, and says that it did not.
    TakesWholeBatches,
    /// It leaves out the last item of full pages.
    ListsEverything,
    /// It gives what runs to whoever asks.
    GivesOnce,
    /// It hands tasks in with a priority of its own.
    KeepsOrder,
    /// It sets pools but for their pause.
    HoldsPauses,
    /// It keeps signals to itself.
    TellsRunners,
    /// It has one namespace for all.
    KeepsNamespacesApart,
    /// It takes the beat of anybody.
    RefusesTheDead,
    /// It tells of another namespace.
    TellsChanges,
    /// It makes a new task at each press.
    ReopensNothing,
}

/// The queue.
pub(crate) struct Broken {
    inner: StoreQueue,
    clock: Arc<ManualClock>,
    breaks: Option<Promise>,
}

impl Broken {
    pub(crate) fn new(inner: StoreQueue, clock: Arc<ManualClock>, breaks: Option<Promise>) -> Self {
        Self { inner, clock, breaks }
    }

    fn is(&self, promise: Promise) -> bool {
        self.breaks == Some(promise)
    }

    fn scope(&self, namespace: Namespace) -> Namespace {
        if self.is(Promise::KeepsNamespacesApart) { Namespace::new("default").unwrap() } else { namespace }
    }

    async fn current(&self, lease: LeaseRef) -> Result<LeaseRef> {
        if !self.is(Promise::RefusesStaleTokens) {
            return Ok(lease);
        }
        let token = Token(self.inner.get_status(lease.task.clone()).await?.execution_no);
        Ok(LeaseRef::new(lease.task, token))
    }
}

#[async_trait]
impl Queue for Broken {
    fn info(&self) -> QueueInfo {
        self.inner.info()
    }

    async fn enqueue(&self, mut tasks: Vec<NewTask>) -> Vec<Result<Enqueued>> {
        if self.is(Promise::TakesWholeBatches) && tasks.len() > 1 {
            let dropped = tasks.remove(1);
            let mut answers = self.inner.enqueue(tasks).await;
            answers.insert(1, Ok(Enqueued { id: dropped.task.id, is_new: true }));
            return answers;
        }
        if self.is(Promise::KeepsOrder) {
            for task in &mut tasks {
                let last = task.task.id.as_str().bytes().last().unwrap_or(b'a');
                task.priority = ekiden::core::Priority::new(i32::from(b'z' - last.clamp(b'a', b'z'))).unwrap();
            }
        }
        self.inner.enqueue(tasks).await
    }

    async fn dequeue_ready(&self, ask: Ask) -> Result<Vec<Leased>> {
        let ask = Ask { namespace: self.scope(ask.namespace.clone()), ..ask };
        if self.is(Promise::WaitsForItsMoment) {
            let now = self.clock.now();
            self.clock.set(now + Millis::from_secs(3_600));
            let given = self.inner.dequeue_ready(ask).await;
            self.clock.set(now);
            return given;
        }
        if self.is(Promise::GivesOnce) {
            for lease in self.inner.held(ask.namespace.clone(), ask.holder.clone()).await? {
                let verdict = ekiden::Verdict::Returned;
                self.inner.settle(vec![Settlement { id: ask.id, lease, verdict }], None).await;
            }
        }
        self.inner.dequeue_ready(ask).await
    }

    async fn mark_succeeded(&self, lease: LeaseRef, result: Option<Bytes>) -> Result<Settled> {
        let result = result.filter(|_| !self.is(Promise::KeepsResults));
        self.inner.mark_succeeded(self.current(lease).await?, result).await
    }

    async fn mark_failed(&self, lease: LeaseRef, failure: Failure) -> Result<Settled> {
        self.inner.mark_failed(self.current(lease).await?, failure).await
    }

    async fn settle(&self, settlements: Vec<Settlement>, then: Option<Ask>) -> SettledAndLeased {
        self.inner.settle(settlements, then).await
    }

    async fn report(&self, lease: LeaseRef, progress: Progress) -> Result<()> {
        self.inner.report(lease, progress).await
    }

    async fn beat(&self, runner: Runner) -> Result<()> {
        let answer = self.inner.beat(runner).await;
        if self.is(Promise::RefusesTheDead) { Ok(()) } else { answer }
    }

    async fn goodbye(&self, namespace: Namespace, runner: RunnerId) -> Result<()> {
        self.inner.goodbye(namespace, runner).await
    }

    async fn signals(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<Signal>> {
        let signals = self.inner.signals(namespace, runner).await?;
        Ok(if self.is(Promise::TellsRunners) { Vec::new() } else { signals })
    }

    async fn held(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<LeaseRef>> {
        self.inner.held(namespace, runner).await
    }

    async fn runners(&self, namespace: Namespace) -> Result<Vec<Runner>> {
        self.inner.runners(namespace).await
    }

    async fn get_status(&self, task: TaskRef) -> Result<TaskRecord> {
        self.inner.get_status(task).await
    }

    async fn counts_by_state(&self, scope: CountScope) -> Result<Counts> {
        let mut counts = self.inner.counts_by_state(scope).await?;
        if self.is(Promise::CountsRight) {
            *counts.by_phase.entry(TaskState::Running).or_default() += 1;
        }
        Ok(counts)
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRecord>> {
        let limit = query.limit;
        let mut page = self.inner.tasks(query).await?;
        if self.is(Promise::ListsEverything) && page.items.len() == limit {
            page.items.pop();
        }
        Ok(page)
    }

    async fn explain(&self, task: TaskRef) -> Result<Explanation> {
        self.inner.explain(task).await
    }

    async fn subscribe(&self, namespace: Namespace) -> Result<Subscription> {
        let other = || Namespace::new("other").unwrap();
        self.inner.subscribe(if self.is(Promise::TellsChanges) { other() } else { namespace }).await
    }

    async fn cancel(&self, task: TaskRef, note: Option<Arc<str>>) -> Result<TaskRecord> {
        self.inner.cancel(task, note).await
    }

    async fn release(&self, task: TaskRef) -> Result<TaskRecord> {
        self.inner.release(task).await
    }

    async fn retry(&self, task: TaskRef) -> Result<TaskRecord> {
        let again = self.inner.retry(task).await?;
        if self.is(Promise::ReopensNothing) {
            let id = ekiden::core::TaskId::new(format!("{}-again", again.id)).unwrap();
            let fresh = TaskRef { namespace: again.namespace.clone(), id };
            self.inner.enqueue(vec![NewTask::new(fresh, again.pool.clone(), again.envelope.clone())]).await;
        }
        Ok(again)
    }

    async fn answer(&self, task: TaskRef, question: QuestionId, content: Arc<str>) -> Result<TaskRecord> {
        self.inner.answer(task, question, content).await
    }

    async fn start_bulk(&self, id: SweepId, bulk: Bulk) -> Result<Arc<Sweep>> {
        self.inner.start_bulk(id, bulk).await
    }

    async fn bulk(&self, namespace: Namespace, id: SweepId) -> Result<Option<Arc<Sweep>>> {
        self.inner.bulk(namespace, id).await
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>> {
        self.inner.namespaces(after, limit).await
    }

    async fn pools(&self, namespace: Namespace, cursor: Option<String>, limit: usize) -> Result<Page<Pool>> {
        self.inner.pools(namespace, cursor, limit).await
    }

    async fn pool(&self, namespace: Namespace, pool: PoolName) -> Result<PoolSettings> {
        self.inner.pool(namespace, pool).await
    }

    async fn set_pool(&self, namespace: Namespace, pool: PoolName, mut settings: PoolSettings) -> Result<()> {
        settings.paused &= !self.is(Promise::HoldsPauses);
        self.inner.set_pool(namespace, pool, settings).await
    }

    async fn set_schedule(&self, schedule: NewSchedule) -> Result<Arc<Schedule>> {
        self.inner.set_schedule(schedule).await
    }

    async fn schedules(&self, namespace: Namespace) -> Result<Vec<Arc<Schedule>>> {
        self.inner.schedules(namespace).await
    }

    async fn remove_schedule(&self, namespace: Namespace, schedule: ScheduleId) -> Result<()> {
        self.inner.remove_schedule(namespace, schedule).await
    }

    async fn maintain(&self, namespace: Namespace) -> Result<Maintained> {
        self.inner.maintain(namespace).await
    }

    async fn next_due(&self, namespace: Namespace) -> Result<Option<Timestamp>> {
        self.inner.next_due(namespace).await
    }

    fn bell(&self, namespace: &Namespace) -> Arc<Bell> {
        self.inner.bell(namespace)
    }
}
