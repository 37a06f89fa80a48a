//! The words of the cases: a queue, its clock, and short ways to say what a case does. Only the port is spoken here.

use ekiden_core::newer::Newer;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ekiden::core::{
    Every, FailureKind, GroupId, Kind, LaneKey, LaneSpec, Millis, Namespace, OpId, PoolName, PoolSettings, Profile,
    Question, QuestionId, ReasonCode, Runner, RunnerId, RunnerStatus, ScheduleId, Stage, SweepId, TaskEnvelope,
    TaskFilter, TaskId, Timestamp,
};
use ekiden::store::{Clock, CountScope, Counts, ManualClock, TaskQuery};
use ekiden::{
    Ask, Enqueued, Failure, Heard, Leased, Maintained, NewSchedule, NewTask, Queue, Result, Settled, Settlement,
    Subscription, TaskChange, TaskRecord, TaskRef, TaskState, Verdict,
};

use super::Bench;

/// 64 rounds: what is not at rest by then never will be.
const ROUNDS_MAX: usize = 64;

/// Half a minute: far longer than any signal of the suite takes, also on a busy machine.
const SIGNAL_MAX: Duration = Duration::from_secs(30);

/// The runner that takes tasks unless a case says otherwise.
pub const RUNNER: &str = "runner-1";

/// One case's queue. Cheap to clone; clones are the same queue.
#[derive(Clone)]
pub struct Lab {
    /// The queue.
    pub queue: Arc<dyn Queue>,
    clock: Arc<ManualClock>,
    namespace: Namespace,
    named: Arc<AtomicU64>,
    _keep: Arc<dyn Any + Send + Sync>,
}

impl Lab {
    /// A lab on a fresh queue whose pool `default` is set as pools of the embedded stores are.
    pub async fn open(bench: Bench) -> Self {
        let Bench { queue, clock, keep } = bench;
        let lab = Self { queue, clock, namespace: namespace("default"), named: Arc::default(), _keep: Arc::new(keep) };
        lab.set_pool("default", |_| {}).await;
        lab
    }

    /// The same queue, seen from another namespace.
    pub async fn elsewhere(&self, name: &str) -> Self {
        let lab = Self { namespace: namespace(name), ..self.clone() };
        lab.set_pool("default", |_| {}).await;
        lab
    }

    /// The namespace.
    pub fn namespace(&self) -> Namespace {
        self.namespace.clone()
    }

    /// Names a task.
    pub fn task(&self, name: &str) -> TaskRef {
        TaskRef { namespace: self.namespace(), id: id(name) }
    }

    /// A new name for a request.
    pub fn op(&self) -> OpId {
        let mut random = [0; 10];
        let number = self.named.fetch_add(1, Ordering::SeqCst).to_be_bytes();
        random.iter_mut().zip(number).for_each(|(slot, byte)| *slot = byte);
        OpId::generate(self.now(), &random)
    }
}

/// Time.
impl Lab {
    /// The moment.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Seconds pass.
    pub fn pass(&self, secs: u64) {
        self.pass_ms(secs * 1_000);
    }

    /// Milliseconds pass.
    pub fn pass_ms(&self, millis: u64) {
        self.clock.advance(Millis::new(millis));
    }

    /// The clock shows exactly this moment, which lies ahead.
    pub fn pass_until(&self, at: Timestamp) {
        self.clock.advance(at.since(self.now()));
    }

    /// One round of maintenance.
    pub async fn maintain(&self) -> Maintained {
        self.queue.maintain(self.namespace()).await.expect("maintenance finds its store well")
    }

    /// Maintenance until there is nothing to do; what all rounds did together.
    pub async fn settle_down(&self) -> Maintained {
        let mut all = Maintained::default();
        for _ in 0..ROUNDS_MAX {
            let round = self.maintain().await;
            if round.is_idle() {
                return all;
            }
            all.changed += round.changed;
            all.swept += round.swept;
            all.ticked += round.ticked;
            all.removed += round.removed;
        }
        panic!("maintenance never comes to rest: {all:?}");
    }
}

/// Handing in.
impl Lab {
    /// A task of kind `work` in pool `default`, with its name as payload.
    pub fn plain(&self, name: &str) -> NewTask {
        let payload = Bytes::from(format!("{{\"name\":\"{name}\"}}"));
        NewTask::new(self.task(name), pool("default"), TaskEnvelope::json(kind("work"), payload))
    }

    /// The same with a payload of 200 KiB, of which a commit holds 15.
    pub fn large(&self, name: &str) -> NewTask {
        let payload = Bytes::from(format!("\"{}\"", "x".repeat(200 * 1024)));
        NewTask { envelope: TaskEnvelope::json(kind("work"), payload), ..self.plain(name) }
    }

    /// Hands one task in, whatever comes of it.
    pub async fn try_add(&self, task: NewTask) -> Result<Enqueued> {
        let mut answers = self.queue.enqueue(vec![task]).await;
        assert_eq!(answers.len(), 1, "one answer a task");
        answers.pop().expect("one answer was counted")
    }

    /// Hands one task in that is new.
    pub async fn add(&self, task: NewTask) -> TaskRef {
        let name = task.task.clone();
        let enqueued = self.try_add(task).await.expect("a task that breaks no rule is taken");
        assert_eq!(enqueued, Enqueued { id: name.id.clone(), is_new: true });
        name
    }

    /// Hands plain tasks in, a second apart so that their order is certain.
    pub async fn add_all(&self, names: &[&str]) {
        for name in names {
            self.add(self.plain(name)).await;
            self.pass(1);
        }
    }

    /// Hands one task in that is refused; the reason.
    pub async fn refused(&self, task: NewTask) -> ReasonCode {
        code(self.try_add(task).await)
    }
}

/// Taking and settling.
impl Lab {
    /// A request of the usual runner for tasks of kind `work` in pool `default`.
    pub fn ask(&self, limit: usize) -> Ask {
        Ask {
            id: self.op(),
            namespace: self.namespace(),
            pools: [pool("default")].into(),
            kinds: [kind("work")].into(),
            limit,
            holder: runner_id(RUNNER),
        }
    }

    /// The same for one pool.
    pub fn ask_pool(&self, name: &str, limit: usize) -> Ask {
        Ask { pools: [pool(name)].into(), ..self.ask(limit) }
    }

    /// What a request gets.
    pub async fn given(&self, ask: Ask) -> Vec<Leased> {
        self.queue.dequeue_ready(ask).await.expect("a well-formed request is answered")
    }

    /// The names of what a request gets.
    pub async fn given_names(&self, ask: Ask) -> Vec<String> {
        names(&self.given(ask).await)
    }

    /// Takes the one task that comes next.
    pub async fn take(&self) -> Leased {
        self.given(self.ask(1)).await.pop().expect("a task that may run is given")
    }

    /// Takes the one task that comes next, which has this name.
    pub async fn take_this(&self, name: &str) -> Leased {
        let leased = self.take().await;
        assert_eq!(leased.lease.task, self.task(name));
        leased
    }

    /// Nothing can be taken.
    pub async fn nothing_to_take(&self) {
        assert_eq!(self.given_names(self.ask(16)).await, Vec::<String>::new(), "nothing may run now");
    }

    /// Ends an attempt, whatever comes of it.
    pub async fn settle(&self, leased: &Leased, verdict: Verdict) -> Result<Settled> {
        let settlement = self.settlement(leased, verdict);
        let mut answer = self.queue.settle(vec![settlement], None).await;
        assert!(answer.leased.expect("nobody asked, so nothing is refused").is_empty());
        answer.settled.pop().expect("one answer a settlement")
    }

    /// The end of an attempt, under a new name.
    pub fn settlement(&self, leased: &Leased, verdict: Verdict) -> Settlement {
        Settlement { id: self.op(), lease: leased.lease.clone(), verdict }
    }

    /// Ends an attempt well.
    pub async fn succeed(&self, leased: &Leased) {
        let settled = self.queue.mark_succeeded(leased.lease.clone(), None).await.expect("the holder may settle");
        assert_eq!(settled, Settled { state: TaskState::Succeeded, next_run_at: None });
    }

    /// Ends an attempt badly.
    pub async fn fail(&self, leased: &Leased) -> Settled {
        self.queue.mark_failed(leased.lease.clone(), failure("boom")).await.expect("the holder may settle")
    }

    /// Ends an attempt badly and for good.
    pub async fn kill(&self, leased: &Leased) {
        let settled = self.queue.mark_failed(leased.lease.clone(), permanent("hopeless")).await;
        assert_eq!(settled.expect("the holder may settle").state, TaskState::Dead);
    }

    /// Hands a task in that runs well at once.
    pub async fn add_succeeded(&self, name: &str) -> TaskRef {
        let task = self.add(self.plain(name)).await;
        self.succeed(&self.take_this(name).await).await;
        task
    }

    /// Hands a task in that dies at once.
    pub async fn add_dead(&self, name: &str) -> TaskRef {
        let task = self.add(self.plain(name)).await;
        self.kill(&self.take_this(name).await).await;
        task
    }

    /// Hands a task in that asks at once.
    pub async fn add_asking(&self, name: &str, question: Question) {
        self.add(self.plain(name)).await;
        let leased = self.take_this(name).await;
        let settled = self.settle(&leased, Verdict::Asked(Box::new(question))).await.expect("a holder may ask");
        assert_eq!(settled, Settled { state: TaskState::NeedsInput, next_run_at: None });
    }

    /// Says how far a cancelled attempt is stopped.
    pub async fn stopped(&self, leased: &Leased, stage: Stage) {
        let settled = self.settle(leased, Verdict::Stopped(stage)).await.expect("the holder tells the stages");
        assert_eq!(settled.state, TaskState::Cancelled);
    }
}

/// Runners.
impl Lab {
    /// A runner with a lease of 30 seconds that serves pool `default` and kind `work`.
    pub fn runner(&self, name: &str) -> Runner {
        Runner {
            namespace: self.namespace(),
            id: runner_id(name),
            started_at: self.now(),
            last_heartbeat: self.now(),
            status: RunnerStatus::Running,
            lease: Millis::from_secs(30),
            project_root: String::new(),
            pools: vec![pool("default")],
            kinds: vec![kind("work")],
            newer: Newer::NONE,
        }
    }

    /// A sign of life.
    pub async fn beat(&self, name: &str) {
        self.queue.beat(self.runner(name)).await.expect("a living runner may beat");
    }

    /// Seconds pass, in which the usual runner goes on to beat.
    pub async fn live_on(&self, secs: u64) {
        self.pass(secs);
        self.beat(RUNNER).await;
    }

    /// The usual runner beats once, and is then silent until its leases are lost.
    pub async fn lose_runner(&self) {
        self.queue.beat(self.runner(RUNNER)).await.expect("a living runner may beat");
        self.pass(30);
        self.settle_down().await;
    }
}

/// Looking.
impl Lab {
    /// A task as it is now.
    pub async fn get(&self, name: &str) -> TaskRecord {
        self.queue.get_status(self.task(name)).await.expect("the task is there")
    }

    /// Where a task is.
    pub async fn state(&self, name: &str) -> TaskState {
        self.get(name).await.state
    }

    /// There is no such task.
    pub async fn gone(&self, name: &str) {
        assert_eq!(code(self.queue.get_status(self.task(name)).await), ReasonCode::TaskNotFound, "{name} is gone");
    }

    /// The counts of the namespace.
    pub async fn counts(&self) -> Counts {
        let scope = CountScope { namespace: self.namespace(), pool: None };
        self.queue.counts_by_state(scope).await.expect("counts can be read")
    }

    /// How many tasks of the namespace are in this state.
    pub async fn count(&self, state: TaskState) -> u64 {
        self.counts().await.get(state)
    }

    /// Why a task is where it is; the reason that matters most first.
    pub async fn reasons(&self, name: &str) -> Vec<ReasonCode> {
        let explanation = self.queue.explain(self.task(name)).await.expect("a task can be explained");
        assert_eq!(explanation.record, self.get(name).await, "an explanation shows the task as it is");
        explanation.reasons.iter().map(|reason| reason.code).collect()
    }

    /// All tasks of the namespace.
    pub fn all(&self) -> TaskFilter {
        TaskFilter::all(self.namespace())
    }

    /// The names of the tasks that a filter lets through, oldest first.
    pub async fn listed(&self, filter: TaskFilter) -> Vec<String> {
        let page = self.queue.tasks(TaskQuery::oldest(filter, 500)).await.expect("tasks can be listed");
        assert_eq!(page.cursor, None, "one page was enough");
        page.items.iter().map(|record| record.id.to_string()).collect()
    }
}

/// Commands.
impl Lab {
    /// Cancels a task.
    pub async fn cancel(&self, name: &str) -> TaskRecord {
        self.queue.cancel(self.task(name), None).await.expect("an open task can be cancelled")
    }

    /// Sets a pool: as pools of the embedded stores are, but for this change.
    pub async fn set_pool(&self, name: &str, change: impl FnOnce(&mut PoolSettings)) {
        let mut settings = Profile::Embedded.settings();
        change(&mut settings);
        self.queue.set_pool(self.namespace(), pool(name), settings).await.expect("settings in range are taken");
    }

    /// A schedule that hands in a plain task every so many seconds.
    pub fn every(&self, name: &str, secs: u64) -> NewSchedule {
        NewSchedule {
            id: ScheduleId::new(name).expect("a schedule's name is an id"),
            every: Every::Interval { period: Millis::from_secs(secs), anchor: Timestamp::ZERO },
            missed: Default::default(),
            overlap: Default::default(),
            paused: false,
            task: self.plain("template"),
        }
    }

    /// What the next change is, without waiting for long.
    pub async fn heard(&self, changes: &mut Subscription) -> TaskChange {
        match signal(changes.next()).await {
            Some(Heard::Change(change)) => *change,
            other => panic!("a change was expected, and not {other:?}"),
        }
    }
}

/// Waits for something that comes soon or never.
pub async fn signal<T>(coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(SIGNAL_MAX, coming).await.expect("a signal comes within half a minute")
}

/// The reason of a refusal. What was refused certainly did not happen.
pub fn code<T: std::fmt::Debug>(answer: Result<T>) -> ReasonCode {
    let error = answer.expect_err("this must be refused");
    assert!(!error.is_unknown(), "a refusal is certain: {error}");
    error.code()
}

/// The names of what was given, in order.
pub fn names(leased: &[Leased]) -> Vec<String> {
    leased.iter().map(|leased| leased.lease.task.id.to_string()).collect()
}

/// A failure that may pass.
pub fn failure(message: &str) -> Failure {
    Failure { kind: FailureKind::Retryable, message: message.into() }
}

/// A failure that never will.
pub fn permanent(message: &str) -> Failure {
    Failure { kind: FailureKind::Permanent, message: message.into() }
}

/// A question without a deadline.
pub fn question(name: &str) -> Question {
    Question { id: question_id(name), text: "which one?".into(), choices: vec![], deadline: None, default: None }
}

/// A lane in which one runs at a time, in order.
pub fn serial(key: &str) -> Option<LaneSpec> {
    Some(LaneSpec::serial(lane_key(key)))
}

macro_rules! id_words {
    ($($(#[$doc:meta])* $word:ident: $id:ident,)+) => {$(
        $(#[$doc])*
        pub fn $word(name: &str) -> $id {
            $id::new(name).expect("the suite names things well")
        }
    )+};
}

id_words! {
    /// A task's id.
    id: TaskId,
    /// A namespace.
    namespace: Namespace,
    /// A pool's name.
    pool: PoolName,
    /// A kind.
    kind: Kind,
    /// A runner's id.
    runner_id: RunnerId,
    /// A lane's key.
    lane_key: LaneKey,
    /// A group.
    group: GroupId,
    /// A question's id.
    question_id: QuestionId,
    /// A bulk command's id.
    sweep_id: SweepId,
}
