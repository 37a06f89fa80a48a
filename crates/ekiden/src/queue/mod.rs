//! The port in process, over any store: requests become plans, plans become commits, and who waits is woken.

mod beat;
mod hand_in;
mod lease;
mod look;
mod maintain;
mod others;
mod reclaim;
mod settings;

use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ekiden_core::id::{Namespace, OpId, PoolName, QuestionId, RunnerId, ScheduleId, SweepId, TaskId};
use ekiden_core::limits;
use ekiden_core::plan::{Plan, View};
use ekiden_core::pool::PoolSettings;
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::{Pool, Signal};
use ekiden_core::runner::Runner;
use ekiden_core::schedule::Schedule;
use ekiden_core::sweep::Sweep;
use ekiden_core::task::{Phase, Progress, Task};
use ekiden_core::time::Timestamp;
use ekiden_store::clock::{Clock, SteadyClock, SystemClock};
use ekiden_store::entropy::{Entropy, Spring};
use ekiden_store::{CheckDepth, CountScope, Counts, Page, PlanError, Store, StoreExt, TaskQuery};
use hashbrown::HashMap;

use crate::bell::{Bell, NotifierMap};
use crate::change::{Announcer, Observer, Subscription};
use crate::error::{Error, Result};
use crate::port::{
    Ask, Bulk, Enqueued, Explanation, Failure, LeaseRef, Leased, Maintained, NewSchedule, NewTask, Queue, QueueInfo,
    Settled, SettledAndLeased, Settlement, TaskRef, Verdict,
};
use crate::record::TaskRecord;

/// 6 tries over about a third of a second: longer outages are the caller's to see.
const TRIES: u32 = 6;

/// The wait before the second try; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(10);

/// A queue over a store of this process.
///
/// One queue per store and process: it wakes who waits for what passes through it, and polls for the rest.
pub struct StoreQueue {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    spring: Spring,
    notifiers: NotifierMap,
    announcer: Announcer,
    pools: RwLock<settings::KnownPools>,
    /// Whether a pool with a limit was ever known.
    limited: AtomicBool,
    /// Who waits for which group, as far as this process knows, and whom a member's end may concern.
    groups: Mutex<maintain::Groups>,
    /// The last acknowledged beat through this queue of each runner.
    beats: Mutex<HashMap<(Namespace, RunnerId), beat::LastBeat>>,
    /// What those beats left behind.
    beaten: Mutex<beat::Beaten>,
    /// Runners of a store that several processes write to, watched for signs of life.
    watched: Mutex<reclaim::Watched>,
    /// Where other programs were met.
    met: Mutex<others::Met>,
}

impl StoreQueue {
    /// A queue over this store, by the machine's clock.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self::with(store, Arc::new(SystemClock), Entropy::from_system(), Vec::new())
    }

    /// A queue with a clock, a source of ids, and observers of its own. Where its store belongs to one process, the queue's time is
    /// never set back with that clock ([`SteadyClock`]).
    pub fn with(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        entropy: Entropy,
        observers: Vec<Arc<dyn Observer>>,
    ) -> Self {
        let clock = match store.info().shared {
            true => SteadyClock::following(clock),
            false => SteadyClock::new(clock),
        };
        Self {
            store,
            clock: Arc::new(clock),
            spring: Spring::from(entropy),
            notifiers: NotifierMap::default(),
            announcer: Announcer::new(observers),
            pools: RwLock::default(),
            limited: AtomicBool::new(false),
            groups: Mutex::default(),
            beats: Mutex::default(),
            beaten: Mutex::default(),
            watched: Mutex::default(),
            met: Mutex::default(),
        }
    }

    /// The clock that the queue goes by, for whatever compares moments with those of its tasks.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The store itself: a shared store is a store too, and would box each request once more.
    fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn op_id(&self) -> OpId {
        self.op_id_at(self.now())
    }

    fn op_id_at(&self, now: Timestamp) -> OpId {
        self.spring.op_id(now)
    }

    fn task_id(&self) -> TaskId {
        self.spring.task_id(self.now())
    }

    /// Carries out a plan; passing errors are tried again under the same id, so that nothing happens twice.
    async fn carry_out<P>(&self, plan: &P) -> Result<P::Done>
    where
        P: Plan + Sync,
        P::Done: Send,
    {
        self.carry_out_as(self.op_id(), plan, View::default()).await
    }

    async fn carry_out_as<P>(&self, id: OpId, plan: &P, view: View) -> Result<P::Done>
    where
        P: Plan + Sync,
        P::Done: Send,
    {
        let first = self.store().run_seen(plan, id, self.now(), view).await.map_err(Error::from);
        self.persist(first, || async { self.store().run(plan, id, self.now()).await.map_err(Error::from) }).await
    }

    /// Repeats a request while its error is a passing one.
    async fn persist<T, F>(&self, first: Result<T>, mut again: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut outcome = first;
        let mut wait = FIRST_WAIT;
        for _ in 1..TRIES {
            match outcome {
                Err(error) if error.is_retryable() => {
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                    outcome = again().await.map_err(|later| later.after(Some(&error)));
                }
                settled => return settled,
            }
        }
        outcome
    }

    /// The same for many plans, which share the waits: how long this takes does not grow with their number.
    async fn persist_all<P>(
        &self,
        plans: &[(OpId, P)],
        first: Vec<Result<P::Done, PlanError>>,
        now: Timestamp,
    ) -> Vec<Result<P::Done>>
    where
        P: Plan + Clone + Sync + Send,
        P::Done: Send,
    {
        let mut answers: Vec<Result<P::Done>> = first.into_iter().map(|outcome| outcome.map_err(Error::from)).collect();
        let mut wait = FIRST_WAIT;
        for _ in 1..TRIES {
            let passing = |answer: &Result<P::Done>| answer.as_ref().is_err_and(Error::is_retryable);
            let (places, again): (Vec<_>, Vec<_>) = answers
                .iter_mut()
                .zip(plans)
                .filter(|(answer, _)| passing(answer))
                .map(|(a, p)| (a, p.clone()))
                .unzip();
            if again.is_empty() {
                break;
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
            for (place, outcome) in places.into_iter().zip(self.store().run_all(&again, now).await) {
                *place = outcome.map_err(|later| Error::from(later).after(place.as_ref().err()));
            }
        }
        answers
    }

    /// Reads are repeated like everything else.
    async fn read<T, F>(&self, mut ask: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T, ekiden_store::StoreError>>,
    {
        let first = ask().await.map_err(Error::from);
        self.persist(first, || {
            let again = ask();
            async { again.await.map_err(Error::from) }
        })
        .await
    }

    /// Tells of a change, and wakes whoever it concerns.
    fn announce(&self, task: &Task) {
        self.announcer.tell(task);
        self.wake(task);
    }

    fn wake(&self, task: &Task) {
        let waits = matches!(task.state.phase, Phase::Queued | Phase::RetryScheduled);
        // By its own time where that says enough: the clock is asked only for what lies ahead of it.
        let at = task.state.next_run_at;
        let ready = waits && (at <= task.state.updated_at || at <= self.now());
        // Whatever stops running lets the next of its lane or of a limited pool go.
        let makes_room = task.state.execution_no > 0
            && task.state.phase != Phase::Running
            && (task.spec.lane.is_some() || self.is_limited(&task.spec.namespace, &task.spec.pool));
        let is_awaited = task.state.has_dependents || task.spec.group.is_some();
        // A sweep links it to the rest of so many parents.
        let is_linked_later = task.state.waits_for.len() > limits::PARENTS_A_COMMIT_MAX;
        let work = task.state.phase.is_final() && is_awaited || task.spec.after_group.is_some() || is_linked_later;
        if !waits && !makes_room && !work {
            return;
        }
        self.notifiers.with(&task.spec.namespace, |bell| {
            if waits && !ready {
                bell.ready_at(at, self.now());
            }
            if ready || makes_room {
                bell.ready.ring();
            }
        });
        if work {
            locked(&self.groups).note(task);
            self.needs_maintenance(&task.spec.namespace);
        }
    }

    /// Wakes the runners that maintain this namespace, and tells the observers, of whom a server maintains them all.
    fn needs_maintenance(&self, namespace: &Namespace) {
        self.notifiers.with(namespace, |bell| bell.work.ring());
        self.announcer.needs_maintenance(namespace);
    }
}

/// The locks of the queue guard plain maps for a moment, and what they guard is whole after any panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Queue for StoreQueue {
    fn info(&self) -> QueueInfo {
        let info = self.store().info();
        QueueInfo { store: info.name.to_owned(), durable: info.durable.to_owned(), near: !info.shared }
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Vec<Result<Enqueued>> {
        self.hand_in(tasks).await
    }

    async fn enqueue_one(&self, task: Box<NewTask>) -> Result<Enqueued> {
        self.hand_in_alone(task).await
    }

    async fn dequeue_ready(&self, ask: Ask) -> Result<Vec<Leased>> {
        self.lease(ask).await
    }

    async fn mark_succeeded(&self, lease: LeaseRef, result: Option<Bytes>) -> Result<Settled> {
        self.settle_marked(lease, Verdict::Succeeded(result)).await
    }

    async fn mark_failed(&self, lease: LeaseRef, failure: Failure) -> Result<Settled> {
        self.settle_marked(lease, Verdict::Failed(failure)).await
    }

    // Not async: what it returns is in a box already, and would be put into another one.
    fn settle<'life0, 'async_trait>(
        &'life0 self,
        settlements: Vec<Settlement>,
        then: Option<Ask>,
    ) -> Pin<Box<dyn Future<Output = SettledAndLeased> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        StoreQueue::settle(self, settlements, then)
    }

    async fn report(&self, lease: LeaseRef, progress: Progress) -> Result<()> {
        self.note_progress(lease, progress).await
    }

    async fn beat(&self, runner: Runner) -> Result<()> {
        self.note_beat(runner).await
    }

    async fn goodbye(&self, namespace: Namespace, runner: RunnerId) -> Result<()> {
        self.note_goodbye(&namespace, &runner).await
    }

    async fn signals(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<Signal>> {
        self.signals_for(&namespace, &runner).await
    }

    async fn held(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<LeaseRef>> {
        self.held_by(namespace, runner).await
    }

    async fn runners(&self, namespace: Namespace) -> Result<Vec<Runner>> {
        let now = self.now();
        Ok(self.all_runners(&namespace).await?.into_iter().map(|runner| runner.reported(now)).collect())
    }

    async fn get_status(&self, task: TaskRef) -> Result<TaskRecord> {
        Ok(TaskRecord::from(&*self.task(&task).await?))
    }

    async fn counts_by_state(&self, scope: CountScope) -> Result<Counts> {
        self.read(|| self.store().counts(scope.clone())).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRecord>> {
        self.page(query).await
    }

    async fn explain(&self, task: TaskRef) -> Result<Explanation> {
        self.reasons(&task).await
    }

    async fn subscribe(&self, namespace: Namespace) -> Result<Subscription> {
        Ok(self.announcer.subscribe(namespace))
    }

    async fn cancel(&self, task: TaskRef, note: Option<Arc<str>>) -> Result<TaskRecord> {
        self.request_cancel(&task, note).await
    }

    async fn release(&self, task: TaskRef) -> Result<TaskRecord> {
        self.let_go(&task).await
    }

    async fn retry(&self, task: TaskRef) -> Result<TaskRecord> {
        self.run_again(&task).await
    }

    async fn answer(&self, task: TaskRef, question: QuestionId, content: Arc<str>) -> Result<TaskRecord> {
        self.take_answer(&task, question, content).await
    }

    async fn start_bulk(&self, id: SweepId, bulk: Bulk) -> Result<Arc<Sweep>> {
        self.start_sweep(id, bulk).await
    }

    async fn bulk(&self, namespace: Namespace, id: SweepId) -> Result<Option<Arc<Sweep>>> {
        self.sweep(&namespace, &id).await
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>> {
        self.read(|| self.store().namespaces(after.clone(), limit)).await
    }

    async fn ready(&self) -> Result<()> {
        // A store of this process knows without a read whether it has room, and one without may let reads wait. Asking a shared
        // store would cost requests to its server.
        if !self.store().info().shared {
            let findings = self.store().check(CheckDepth::Quick).await?;
            let full = findings.iter().find(|finding| finding.code == ReasonCode::StoreFull);
            full.map_or(Ok(()), |finding| Err(Error::from(finding.code)))?;
        }
        self.namespaces(None, 1).await.map(drop)
    }

    async fn pools(&self, namespace: Namespace, cursor: Option<String>, limit: usize) -> Result<Page<Pool>> {
        self.page_of_pools(namespace, cursor, limit).await
    }

    async fn pool(&self, namespace: Namespace, pool: PoolName) -> Result<PoolSettings> {
        Ok((*self.settings(&namespace, &pool).await?.0).clone())
    }

    async fn set_pool(&self, namespace: Namespace, pool: PoolName, settings: PoolSettings) -> Result<()> {
        self.change_pool(namespace, pool, settings).await
    }

    async fn set_schedule(&self, schedule: NewSchedule) -> Result<Arc<Schedule>> {
        self.change_schedule(schedule).await
    }

    async fn schedules(&self, namespace: Namespace) -> Result<Vec<Arc<Schedule>>> {
        self.all_schedules(&namespace).await
    }

    async fn remove_schedule(&self, namespace: Namespace, schedule: ScheduleId) -> Result<()> {
        self.drop_schedule(&namespace, &schedule).await
    }

    async fn maintain(&self, namespace: Namespace) -> Result<Maintained> {
        self.do_due(&namespace).await
    }

    async fn next_due(&self, namespace: Namespace) -> Result<Option<Timestamp>> {
        self.next_waiting(namespace).await
    }

    fn bell(&self, namespace: &Namespace) -> Arc<Bell> {
        self.notifiers.get(namespace)
    }
}
