//! For the tests of programs that use Ekiden: a queue in memory whose clock only the test moves, handlers that run inline
//! when the test says so, and assertions that show what is there when they fail. Nothing here sleeps or starts a thread.
//!
//! ```
//! use ekiden::testing::TestQueue;
//! use ekiden::{Context, Payload, Registry, TaskError, TaskState};
//! use std::time::Duration;
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct SendEmail { to: String }
//!
//! impl Payload for SendEmail {
//!     const TASK_TYPE: &'static str = "send_email";
//! }
//!
//! async fn send_email(_: SendEmail, context: Context) -> Result<(), TaskError> {
//!     if context.attempt() == 1 { Err(TaskError::retryable("busy")) } else { Ok(()) }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ekiden::Error> {
//! let mut queue = TestQueue::new();
//! let task = queue.client().enqueue(SendEmail { to: "a@example.com".into() }).await?;
//! queue.assert_enqueued(|email: &SendEmail| email.to == "a@example.com");
//!
//! let handlers = Registry::new().handler(send_email);
//! queue.drain(&handlers).await;
//! queue.assert_state(&task.id, TaskState::RetryScheduled);
//!
//! queue.advance(Duration::from_secs(1));
//! queue.drain(&handlers).await;
//! queue.assert_state(&task.id, TaskState::Succeeded);
//! # Ok(()) }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use ekiden_core::id::{Kind, PoolName, RunnerId, TaskId};
use ekiden_core::index::DueIndex;
use ekiden_core::limits;
use ekiden_core::newer::Newer;
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::task::Phase;
use ekiden_core::time::{Millis, Timestamp};
use ekiden_store::clock::{Clock, ManualClock};
use ekiden_store::{DueQuery, ListOrder, MemoryStore, Store, TaskQuery};

use crate::client::{Client, Ekiden};
use crate::context::{Context, Surroundings};
use crate::error::Result;
use crate::handler::{Handling, Payload};
use crate::port::{Ask, LeaseRef, Leased, Settled, Settlement, Verdict};
use crate::record::{TaskRecord, TaskState};
use crate::registry::Registry;
use crate::runner::attempt::{AfterRefusal, after_refusal, judged};

/// 2026-01-01T00:00:00Z: the same moment in every test, so that ids and waits repeat.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// 10,000 attempts in one drain: a test that runs more hands its tasks in in a circle.
const ATTEMPTS_MAX: usize = 10_000;

/// 100,000 rounds of maintenance in one move of the clock: more than a schedule ticks in a day, second by second.
const ROUNDS_MAX: usize = 100_000;

/// One day: no test runs inside a lease that a move of the clock could end.
const LEASE: Millis = limits::LEASE_MAX;

/// What a task waits for before it can run by itself. Schedules are no part of it: they never come to an end.
const AWAITED: [DueIndex; 3] = [DueIndex::Promote, DueIndex::Rejoin, DueIndex::Sweep];

/// Payloads in messages are cut after so many characters: a failing test names its tasks, it does not print them.
const PAYLOAD_SHOWN: usize = 120;

/// A queue for one test: a memory store, a clock that stands still, and a client in namespace `default`.
///
/// Hand tasks in through [`Self::client`], as the program does. They run when the test calls [`Self::drain`] or
/// [`Self::run_to_end`], and become due when it calls [`Self::advance`]. Time limits of attempts are not enforced: nothing
/// runs beside the handler that could end it.
#[derive(Debug)]
pub struct TestQueue {
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    client: Client,
}

/// An attempt that a test ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The task.
    pub id: TaskId,
    /// Its kind.
    pub task_type: Kind,
    /// Which attempt of its budget it was, from 1.
    pub attempt: u32,
    /// How the handler ended.
    pub verdict: Verdict,
    /// Where the task was afterwards.
    pub state: TaskState,
}

impl Ran {
    /// What went wrong, where something did.
    pub fn error(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::Failed(failure) => Some(&failure.message),
            _ => None,
        }
    }
}

impl Default for TestQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl TestQueue {
    /// A queue without tasks, on 2026-01-01T00:00:00Z.
    ///
    /// ```
    /// let queue = ekiden::testing::TestQueue::new();
    /// assert_eq!(queue.now().to_string(), "2026-01-01T00:00:00.000Z");
    /// ```
    pub fn new() -> Self {
        Self::starting_at(START)
    }

    /// A queue without tasks, at this moment.
    pub fn starting_at(now: Timestamp) -> Self {
        let store = Arc::new(MemoryStore::new());
        let clock = Arc::new(ManualClock::new(now));
        let ekiden = Ekiden::builder(store.clone()).clock(clock.clone()).seed(0).build();
        let client = ekiden.namespace("default").expect("seven letters are a valid namespace");
        Self { store, clock, client }
    }

    /// What the program under test gets.
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The moment that the clock shows.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Time passes, and what becomes due meanwhile is done: retries and delayed tasks may run, schedules tick, leases end.
    /// No handler runs.
    ///
    /// ```
    /// # use ekiden::{Context, Payload, Registry, testing::TestQueue};
    /// # use std::time::Duration;
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Remind;
    /// # impl Payload for Remind { const TASK_TYPE: &'static str = "remind"; }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ekiden::Error> {
    /// # let handlers = Registry::new().handler(|_: Remind, _: Context| async {});
    /// let mut queue = TestQueue::new();
    /// queue.client().enqueue(Remind).delay(Duration::from_secs(60)).await?;
    /// assert!(queue.drain(&handlers).await.is_empty());
    /// queue.advance(Duration::from_secs(60));
    /// assert_eq!(queue.drain(&handlers).await.len(), 1);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn advance(&mut self, by: Duration) {
        self.move_to(self.now() + Millis::from(by));
    }

    /// Stops at each tick on the way, as a process that was there all the time would have.
    #[track_caller]
    fn move_to(&mut self, to: Timestamp) {
        for _ in 0..ROUNDS_MAX {
            self.maintain();
            let tick = self.earliest(&[DueIndex::Schedule]).filter(|tick| *tick > self.now() && *tick < to);
            let next = tick.unwrap_or(to);
            self.clock.advance(next.since(self.now()));
            if next == to {
                self.maintain();
                return;
            }
        }
        panic!("a schedule ticks more than {ROUNDS_MAX} times before {to}; move the clock in smaller steps");
    }

    #[track_caller]
    fn maintain(&self) {
        for _ in 0..ROUNDS_MAX {
            let done = said(at_once(self.client.maintain()));
            if done.changed + done.swept + done.ticked + done.removed == 0 {
                return;
            }
        }
        panic!("maintenance finds no end; this is a fault of Ekiden");
    }

    /// The earliest entry of these lists.
    #[track_caller]
    fn earliest(&self, lists: &[DueIndex]) -> Option<Timestamp> {
        let first = |index: &DueIndex| {
            let namespace = self.client.namespace().clone();
            let query = DueQuery { namespace, index: *index, until: Timestamp::MAX, limit: 1 };
            let due = at_once(self.store.due(query)).expect("a memory store that is open answers");
            due.first().map(|entry| entry.at)
        };
        lists.iter().filter_map(first).min()
    }

    /// Runs every task that may run now and has a handler, one after another by priority and age, and what those hand in,
    /// until none is left. Says what ran, in order.
    ///
    /// Handlers run inline, panics are failures as in a runner, and what a handler hands in with a delay waits for
    /// [`Self::advance`].
    ///
    /// ```
    /// # use ekiden::{Context, Payload, Registry, TaskState, testing::TestQueue};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Count(u32);
    /// # impl Payload for Count { const TASK_TYPE: &'static str = "count"; }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ekiden::Error> {
    /// let handlers = Registry::new().handler(|Count(left): Count, context: Context| async move {
    ///     if left == 0 { panic!("no more") }
    ///     context.client().enqueue(Count(left - 1)).await.map(drop)
    /// });
    /// let mut queue = TestQueue::new();
    /// queue.client().enqueue(Count(2)).await?;
    /// let ran = queue.drain(&handlers).await;
    /// assert_eq!(ran.len(), 3);
    /// assert_eq!(ran[0].state, TaskState::Succeeded);
    /// assert_eq!(ran[2].error(), Some("panicked: no more"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// When the registry is empty or has two handlers for one kind, and when more than 10,000 attempts run.
    pub async fn drain(&mut self, handlers: &Registry) -> Vec<Ran> {
        let mut ran = Vec::new();
        self.drain_into(&said(handlers.calls()), &mut ran).await;
        ran
    }

    /// As [`Self::drain`], and whenever nothing may run now the clock moves to the moment when something may: every retry,
    /// delayed task, dependent and group comes to its end. Schedules tick on the way, but are not waited for.
    ///
    /// ```
    /// # use ekiden::{Context, Payload, Registry, TaskError, TaskState, testing::TestQueue};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Doomed;
    /// # impl Payload for Doomed { const TASK_TYPE: &'static str = "doomed"; }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ekiden::Error> {
    /// # let handlers = Registry::new().handler(|_: Doomed, _: Context| async { Err::<(), _>(TaskError::retryable("no")) });
    /// let mut queue = TestQueue::new();
    /// let task = queue.client().enqueue(Doomed).max_attempts(3).await?;
    /// assert_eq!(queue.run_to_end(&handlers).await.len(), 3);
    /// queue.assert_state(&task.id, TaskState::Dead);
    /// # Ok(()) }
    /// ```
    ///
    /// # Panics
    ///
    /// As [`Self::drain`].
    pub async fn run_to_end(&mut self, handlers: &Registry) -> Vec<Ran> {
        let calls = said(handlers.calls());
        let mut ran = Vec::new();
        for _ in 0..ROUNDS_MAX {
            self.drain_into(&calls, &mut ran).await;
            match self.earliest(&AWAITED).filter(|next| *next > self.now()) {
                Some(next) => self.move_to(next),
                None => return ran,
            }
        }
        panic!("something waits again and again; what waits:\n{}", list(&self.waiting()));
    }

    async fn drain_into(&mut self, calls: &BTreeMap<Kind, Handling>, ran: &mut Vec<Ran>) {
        let runner = self.runner(calls);
        let queue = self.client.queue().clone();
        said(queue.beat(runner.clone()).await);
        let mut pools = BTreeSet::new();
        loop {
            self.maintain();
            let Some(leased) = self.claim(&runner, &mut pools).await else { break };
            assert!(
                ran.len() < ATTEMPTS_MAX,
                "more than {ATTEMPTS_MAX} attempts ran; is a task handed in by its own handler, or snoozed for no time?\n\
                 what waits:\n{}",
                list(&self.waiting())
            );
            ran.push(self.attempt(leased, calls).await);
        }
        said(queue.goodbye(runner.namespace, runner.id).await);
    }

    /// Each drain is a runner of its own, so that no move of the clock between two of them ends a lease.
    fn runner(&self, calls: &BTreeMap<Kind, Handling>) -> Runner {
        let id =
            RunnerId::new(format!("test.{:016x}", self.client.random())).expect("letters and digits are a valid id");
        Runner {
            namespace: self.client.namespace().clone(),
            id,
            started_at: self.now(),
            last_heartbeat: self.now(),
            status: RunnerStatus::Running,
            lease: LEASE,
            project_root: String::new(),
            pools: Vec::new(),
            kinds: calls.keys().cloned().collect(),
            newer: Newer::NONE,
        }
    }

    /// The next task of any pool. Pools are looked up again when those known have nothing.
    async fn claim(&self, runner: &Runner, pools: &mut BTreeSet<PoolName>) -> Option<Leased> {
        if let Some(leased) = self.claim_from(runner, pools).await {
            return Some(leased);
        }
        let known = pools.len();
        pools.extend(self.waiting().into_iter().map(|record| record.pool));
        if pools.len() == known { None } else { self.claim_from(runner, pools).await }
    }

    async fn claim_from(&self, runner: &Runner, pools: &BTreeSet<PoolName>) -> Option<Leased> {
        let pools: Vec<PoolName> = pools.iter().cloned().collect();
        for pools in pools.chunks(limits::CLAIM_POOLS_MAX) {
            for kinds in runner.kinds.chunks(limits::CLAIM_KINDS_MAX) {
                let ask = Ask {
                    id: self.client.op_id(),
                    namespace: runner.namespace.clone(),
                    pools: Arc::from(pools),
                    kinds: Arc::from(kinds),
                    limit: 1,
                    holder: runner.id.clone(),
                };
                if let Some(leased) = said(self.client.queue().dequeue_ready(ask).await).pop() {
                    return Some(leased);
                }
            }
        }
        None
    }

    async fn attempt(&self, leased: Leased, calls: &BTreeMap<Kind, Handling>) -> Ran {
        let task_type = leased.spec.envelope.task_type.clone();
        let call = calls.get(&task_type).expect("only kinds with a handler are asked for").call.clone();
        let around = Arc::new(Surroundings::of(self.client.clone(), crate::runner::Stop::default()));
        let (lease, attempt) = (LeaseRef::new(leased.lease.task.clone(), leased.lease.token), leased.attempts);
        let verdict = judged(call, Context::new(around.clone(), leased)).await;
        around.reporter.pass_on_now(&**self.client.queue()).await;
        let id = lease.task.id.clone();
        let mut settled = self.settle(&lease, verdict.clone()).await;
        if let Err(error) = &settled
            && let AfterRefusal::Replace(verdict) = after_refusal(&verdict, error)
        {
            settled = self.settle(&lease, verdict).await;
        }
        let state = settled.map_or_else(|_| self.status(&id).state, |settled| settled.state);
        Ran { id, task_type, attempt, verdict, state }
    }

    async fn settle(&self, lease: &LeaseRef, verdict: Verdict) -> Result<Settled> {
        let settlement = Settlement { id: self.client.op_id(), lease: lease.clone(), verdict };
        let mut answer = self.client.queue().settle(vec![settlement], None).await;
        answer.settled.pop().expect("every settlement has an answer")
    }

    /// The payloads of one kind that were handed in and have not ended, oldest first.
    ///
    /// ```
    /// # use ekiden::{Payload, testing::TestQueue};
    /// # #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)] struct Ping(u8);
    /// # impl Payload for Ping { const TASK_TYPE: &'static str = "ping"; }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ekiden::Error> {
    /// let queue = TestQueue::new();
    /// queue.client().enqueue(Ping(1)).await?;
    /// queue.client().enqueue(Ping(2)).await?;
    /// assert_eq!(queue.enqueued::<Ping>(), [Ping(1), Ping(2)]);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn enqueued<P: Payload>(&self) -> Vec<P> {
        let waiting = self.waiting();
        let of_kind = waiting.iter().filter(|record| record.envelope.task_type.as_str() == P::TASK_TYPE);
        let mut payloads = Vec::new();
        for record in of_kind {
            match serde_json::from_slice(&record.envelope.payload) {
                Ok(payload) => payloads.push(payload),
                Err(why) => panic!("the payload of a task does not decode: {why}\n{}", line(record)),
            }
        }
        payloads
    }

    /// Some task of this kind was handed in, has not ended, and is the one meant.
    ///
    /// ```
    /// # use ekiden::{Payload, testing::TestQueue};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Ping(u8);
    /// # impl Payload for Ping { const TASK_TYPE: &'static str = "ping"; }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ekiden::Error> {
    /// # let queue = TestQueue::new();
    /// queue.client().enqueue(Ping(7)).await?;
    /// queue.assert_enqueued(|ping: &Ping| ping.0 == 7);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn assert_enqueued<P: Payload>(&self, is_meant: impl Fn(&P) -> bool) {
        if !self.enqueued::<P>().iter().any(is_meant) {
            panic!("no {:?} task that waits is the one meant; what waits:\n{}", P::TASK_TYPE, list(&self.waiting()));
        }
    }

    /// No task of this kind waits.
    ///
    /// ```
    /// # use ekiden::{Payload, testing::TestQueue};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Ping(u8);
    /// # impl Payload for Ping { const TASK_TYPE: &'static str = "ping"; }
    /// TestQueue::new().assert_none_enqueued::<Ping>();
    /// ```
    #[track_caller]
    pub fn assert_none_enqueued<P: Payload>(&self) {
        if !self.enqueued::<P>().is_empty() {
            panic!("a {:?} task waits; what waits:\n{}", P::TASK_TYPE, list(&self.waiting()));
        }
    }

    /// A task as it is now.
    ///
    /// # Panics
    ///
    /// When there is no such task.
    #[track_caller]
    pub fn status(&self, id: &TaskId) -> TaskRecord {
        said(at_once(self.client.get_status(id)))
    }

    /// The task is where it should be.
    ///
    /// ```
    /// # use ekiden::{Payload, TaskState, testing::TestQueue};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Ping(u8);
    /// # impl Payload for Ping { const TASK_TYPE: &'static str = "ping"; }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), ekiden::Error> {
    /// # let queue = TestQueue::new();
    /// let task = queue.client().enqueue(Ping(7)).held().await?;
    /// queue.assert_state(&task.id, TaskState::Pending);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn assert_state(&self, id: &TaskId, state: TaskState) {
        let record = self.status(id);
        if record.state != state {
            let why = said(at_once(self.client.explain(id)));
            let reasons: Vec<String> = why.reasons.iter().map(|reason| format!("  {reason}")).collect();
            panic!("expected {state}, found {}\n{}\nbecause:\n{}", record.state, line(&record), reasons.join("\n"));
        }
    }

    /// What was handed in and has not ended, oldest first.
    #[track_caller]
    fn waiting(&self) -> Vec<TaskRecord> {
        let mut filter = self.client.all();
        filter.phases = Phase::ALL.into_iter().filter(|phase| !phase.is_final()).collect();
        let mut cursor = None;
        let mut records = Vec::new();
        loop {
            let (filter, limit) = (filter.clone(), limits::PAGE_ITEMS_MAX);
            let query = TaskQuery { filter, order: ListOrder::OldestFirst, cursor, limit };
            let page = said(at_once(self.client.queue().tasks(query)));
            records.extend(page.items);
            match page.cursor {
                Some(next) => cursor = Some(next),
                None => return records,
            }
        }
    }
}

fn list(records: &[TaskRecord]) -> String {
    if records.is_empty() {
        return "  nothing".to_owned();
    }
    records.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn line(record: &TaskRecord) -> String {
    let payload: String = String::from_utf8_lossy(&record.envelope.payload).chars().take(PAYLOAD_SHOWN).collect();
    let attempts = format!("{} of {} attempts", record.attempts, record.max_attempts);
    let error = record.last_error.as_ref().map(|error| format!(", last error: {error}")).unwrap_or_default();
    let (kind, pool) = (&record.envelope.task_type, &record.pool);
    format!("  {kind} {payload} {} in pool {pool}, {attempts}{error} ({})", record.state, record.id)
}

/// A refusal in a test is the test's failure.
#[track_caller]
fn said<T>(answer: Result<T>) -> T {
    match answer {
        Ok(answer) => answer,
        Err(error) => panic!("{error}"),
    }
}

/// The memory store never waits, so its answers are there when they are asked for, with or without a runtime.
#[track_caller]
fn at_once<F: Future>(answer: F) -> F::Output {
    match pin!(answer).poll(&mut std::task::Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the memory store waits; this is a fault of Ekiden"),
    }
}

#[cfg(test)]
mod tests;
