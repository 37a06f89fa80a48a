//! Our side of the comparison, and the only file that knows Ekiden: a client that hands in, a runner that handles, as a user
//! would write them; and, for the cost of a claim alone, the store below.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use ekiden::{Client, Context, Done, Ekiden, Runner, TaskError, TaskHandler, TaskState};
use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::event::Event;
use ekiden_core::id::{Kind, Namespace, OpId, PoolName, RunnerId};
use ekiden_core::lease::Token;
use ekiden_core::plan::{Enqueue, Happen, View};
use ekiden_core::pool::{Policy, Profile};
use ekiden_core::record::Versioned;
use ekiden_core::task::{Spec, Task, TaskEnvelope};
use ekiden_core::time::Timestamp;
use ekiden_core::transition::Start;
use ekiden_store::clock::{Clock, SystemClock};
use ekiden_store::entropy::Entropy;
use ekiden_store::{CountScope, MemoryStore, Store, StoreExt};

use crate::ledger::{Ledger, Stopwatch};
use crate::{Outcome, payload};

/// The kind of every task.
const NO_OP: &str = "no-op";

/// 50 µs: how often the end of the last task is looked for, once every handler has run.
const LOOK: Duration = Duration::from_micros(50);

/// A handler that only keeps its books.
struct NoOp<F>(F);

#[async_trait]
impl<F: Fn(&[u8]) + Send + Sync + 'static> TaskHandler for NoOp<F> {
    fn task_type(&self) -> &str {
        NO_OP
    }

    async fn execute(&self, payload: Bytes, _: Context) -> Result<Done, TaskError> {
        (self.0)(&payload);
        Ok(Done::Succeeded(None))
    }
}

/// Completed tasks a second: handed in one by one, claimed, handled and settled.
pub async fn lifecycle(producers: usize, consumers: usize, tasks: usize) -> Outcome<f64> {
    let client = Ekiden::open("memory:").await?.namespace("bench")?;
    let ledger = Arc::new(Ledger::new(tasks));
    let books = ledger.clone();
    let runner = Runner::builder(&client)
        .task_handler(NoOp(move |payload: &[u8]| books.handle(payload)))
        .concurrency(consumers)
        .build()?;
    let stop = runner.stop();
    let mut running = tokio::spawn(runner.run_until_stopped());
    let start = Instant::now();
    for producer in 0..producers {
        let client = client.clone();
        tokio::spawn(async move { produce(&client, (producer..tasks).step_by(producers)).await });
    }
    let settled = tokio::spawn(all_settled(client, ledger.clone(), tasks));
    let rate = tokio::select! {
        rate = ledger.tasks_per_second(start) => rate,
        ended = &mut running => Err(format!("the runner ended early: {ended:?}").into()),
    };
    settled.abort();
    stop.at_once();
    running.await??;
    rate
}

async fn produce(client: &Client, numbers: impl Iterator<Item = usize>) -> Outcome<()> {
    for number in numbers {
        client.enqueue_raw(NO_OP, "application/json", payload::of(number)).await?;
        // The memory store never waits: without this a producer would keep its thread until its last task.
        tokio::task::consume_budget().await;
    }
    Ok(())
}

/// A task is behind us when its end is written, not when its handler ran.
async fn all_settled(client: Client, ledger: Arc<Ledger>, tasks: usize) -> Outcome<()> {
    let tasks = u64::try_from(tasks)?;
    loop {
        if ledger.all_handled() && client.counts_by_state().await?.get(TaskState::Succeeded) == tasks {
            ledger.complete_all();
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// How long each task waited until its handler began, one handed in at every tick.
pub async fn start_latencies(tasks: usize, pace: Duration) -> Outcome<Vec<Duration>> {
    let client = Ekiden::open("memory:").await?.namespace("bench")?;
    let stopwatch = Arc::new(Stopwatch::new(tasks));
    let books = stopwatch.clone();
    let runner = Runner::builder(&client)
        .task_handler(NoOp(move |payload: &[u8]| books.start(payload)))
        .concurrency(1)
        .build()?;
    let stop = runner.stop();
    let running = tokio::spawn(runner.run_until_stopped());
    let books = stopwatch.clone();
    let producing = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(pace);
        for number in 0..tasks {
            ticks.tick().await;
            let payload = payload::of(number);
            books.begin(number);
            client.enqueue_raw(NO_OP, "application/json", payload).await?;
        }
        Outcome::Ok(())
    });
    let waits = stopwatch.waits().await;
    producing.abort();
    stop.at_once();
    running.await??;
    waits
}

/// 16 tasks a call, no more: a million added in large calls leave the system's allocator with so much to put in order that
/// the next thousand claims take twenty times as long, and the figure would be about that.
const FILL_BATCH: usize = 16;

/// A store in which a number of tasks wait, to measure what a claim costs.
pub struct Backlog {
    bed: Bed,
    entropy: Entropy,
    made: usize,
}

impl Backlog {
    /// A memory store with so many waiting tasks.
    pub async fn of(waiting: usize) -> Outcome<Self> {
        let mut backlog = Self::on(Arc::new(MemoryStore::new()))?;
        backlog.add(waiting, FILL_BATCH).await?;
        Ok(backlog)
    }

    /// A store with what it has.
    pub fn on(store: Arc<dyn Store>) -> Outcome<Self> {
        Ok(Self { bed: Bed::new(store)?, entropy: Entropy::from_system(), made: 0 })
    }

    /// How long claims of so many tasks took, each. Between them what was claimed is settled and replaced, so that as
    /// many wait for the last claim as for the first.
    pub async fn claim_times(&mut self, claims: usize, limit: usize) -> Outcome<Vec<Duration>> {
        let mut times = Vec::with_capacity(claims);
        for _ in 0..claims {
            let claim = self.bed.claim(limit, &mut self.entropy);
            let start = Instant::now();
            let claimed = self.bed.store.claim(claim).await?;
            times.push(start.elapsed());
            // Whoever looks at more promotes what was not due when it was handed in, and that is not what is measured.
            if claimed.tasks.len() != limit || claimed.visited > 2 * limit {
                let (got, visited) = (claimed.tasks.len(), claimed.visited);
                return Err(format!("a claim for {limit} tasks got {got} and looked at {visited}").into());
            }
            for task in claimed.tasks {
                self.bed.settle(task, self.entropy.op_id(SystemClock.now())).await?;
            }
            self.add(limit, FILL_BATCH).await?;
        }
        Ok(times)
    }

    /// Carries so many tasks through their lives, some at once.
    pub async fn finish(&mut self, tasks: usize, at_once: usize) -> Outcome<()> {
        for _ in 0..tasks.div_ceil(at_once) {
            self.add(at_once, at_once).await?;
            let claim = self.bed.claim(at_once, &mut self.entropy);
            let claimed = self.bed.store.claim(claim).await?.tasks;
            self.bed.settle_all(&claimed, &mut self.entropy).await?;
        }
        Ok(())
    }

    /// How many tasks have ended.
    pub async fn ended(&self) -> Outcome<usize> {
        let scope = CountScope { namespace: self.bed.namespace.clone(), pool: None };
        let counts = self.bed.store.counts(scope).await?;
        let ended: u64 = counts.by_phase.iter().filter(|(phase, _)| phase.is_final()).map(|(_, count)| *count).sum();
        Ok(usize::try_from(ended)?)
    }

    /// Adds waiting tasks, some a call.
    pub async fn add(&mut self, tasks: usize, at_once: usize) -> Outcome<()> {
        let until = self.made + tasks;
        while self.made < until {
            let batch = self.made..until.min(self.made + at_once);
            self.made = batch.end;
            let now = SystemClock.now();
            let plan = |number| {
                let enqueue = self.bed.plan(payload::of(number), &mut self.entropy, now);
                (self.entropy.op_id(now), enqueue)
            };
            let plans: Vec<_> = batch.map(plan).collect();
            for done in self.bed.store.run_all(&plans, now).await {
                done?;
            }
        }
        Ok(())
    }
}

/// A store and the names that all tasks share.
struct Bed {
    store: Arc<dyn Store>,
    namespace: Namespace,
    pool: PoolName,
    kind: Kind,
    holder: RunnerId,
    policy: Arc<Policy>,
}

impl Bed {
    fn new(store: Arc<dyn Store>) -> Outcome<Self> {
        Self::of(store, "bench", NO_OP)
    }

    fn of(store: Arc<dyn Store>, pool: &str, kind: &str) -> Outcome<Self> {
        Ok(Self {
            store,
            namespace: Namespace::new("default")?,
            pool: PoolName::new(pool)?,
            kind: Kind::new(kind)?,
            holder: RunnerId::new("bench.1")?,
            policy: Profile::Embedded.settings().policy,
        })
    }

    /// A task that is due at once: `now` is also the moment at which the plan runs. One made a millisecond later would not be
    /// due yet, and claims would promote what the fill left behind, 256 each.
    fn plan(&self, payload: Bytes, entropy: &mut Entropy, now: Timestamp) -> Enqueue {
        let envelope = TaskEnvelope::json(self.kind.clone(), payload);
        let (namespace, pool) = (self.namespace.clone(), self.pool.clone());
        let spec = Spec::new(namespace, pool, entropy.task_id(now), envelope, self.policy.clone(), now);
        Enqueue { spec: Arc::new(spec), start: Start::Released, parents: Vec::new(), idempotency: None }
    }

    fn claim(&self, limit: usize, entropy: &mut Entropy) -> Claim {
        let now = SystemClock.now();
        Claim {
            id: entropy.op_id(now),
            now,
            pools: vec![ClaimPool::open(self.namespace.clone(), self.pool.clone())],
            kinds: Kinds::Only([self.kind.clone()].into()),
            limit,
            holder: self.holder.clone(),
            lease: LeaseTerm::Heartbeat,
        }
    }

    /// Settles a task as it was claimed, which saves reading it again.
    async fn settle(&self, claimed: Versioned, id: OpId) -> Outcome<()> {
        let event = Event::Succeeded { token: Token(task(&claimed)?.state.execution_no), result: None };
        let plan = Happen { task: claimed.key.clone(), event };
        self.store.run_seen(&plan, id, SystemClock.now(), View::default().with(claimed)).await?;
        Ok(())
    }

    /// Settles many in one call, which reads them again.
    async fn settle_all(&self, claimed: &[Versioned], entropy: &mut Entropy) -> Outcome<()> {
        let now = SystemClock.now();
        let mut plans = Vec::with_capacity(claimed.len());
        for claimed in claimed {
            let event = Event::Succeeded { token: Token(task(claimed)?.state.execution_no), result: None };
            plans.push((entropy.op_id(now), Happen { task: claimed.key.clone(), event }));
        }
        for done in self.store.run_all(&plans, now).await {
            done?;
        }
        Ok(())
    }
}

/// The steps of lives, one after another, to be measured one by one.
pub struct Steps {
    bed: Bed,
    entropy: Entropy,
    made: usize,
}

impl Steps {
    /// Tasks of one pool and one kind.
    pub fn of(store: Arc<dyn Store>, pool: &str, kind: &str) -> Outcome<Self> {
        // Nothing is kept for a while only, as in a shared table unless somebody asks for it: that would be one more entry.
        let bed = Bed { policy: Profile::DynamoOther.settings().policy, ..Bed::of(store, pool, kind)? };
        Ok(Self { bed, entropy: Entropy::from_system(), made: 0 })
    }

    /// Hands a task in.
    pub async fn enqueue(&mut self) -> Outcome<()> {
        let now = SystemClock.now();
        let plan = self.bed.plan(payload::of(self.made), &mut self.entropy, now);
        self.made += 1;
        self.bed.store.run(&plan, self.entropy.op_id(now), now).await?;
        Ok(())
    }

    /// Claims one task, if there is one.
    pub async fn claim(&mut self) -> Outcome<Option<Versioned>> {
        let claim = self.bed.claim(1, &mut self.entropy);
        Ok(self.bed.store.claim(claim).await?.tasks.pop())
    }

    /// Completes it.
    pub async fn complete(&mut self, claimed: Versioned) -> Outcome<()> {
        let id = self.entropy.op_id(SystemClock.now());
        self.bed.settle(claimed, id).await
    }
}

/// Lives a second on a store: so many callers, each of whom hands a task in, claims one and settles it, one step behind another.
pub async fn lives_a_second(store: Arc<dyn Store>, callers: usize, tasks: usize) -> Outcome<f64> {
    let bed = Arc::new(Bed::new(store)?);
    let start = Instant::now();
    let mut running = Vec::new();
    for caller in 0..callers {
        let bed = bed.clone();
        let mut entropy = Entropy::from_seed(u64::try_from(caller)?);
        running.push(tokio::spawn(async move {
            for number in (caller..tasks).step_by(callers) {
                let now = SystemClock.now();
                let plan = bed.plan(payload::of(number), &mut entropy, now);
                bed.store.run(&plan, entropy.op_id(now), now).await?;
                let claimed = loop {
                    // What is left may be a millisecond younger than the claim, which then finds nothing.
                    let claimed = bed.store.claim(bed.claim(1, &mut entropy)).await?.tasks.pop();
                    match claimed {
                        Some(claimed) => break claimed,
                        None => tokio::task::yield_now().await,
                    }
                };
                bed.settle(claimed, entropy.op_id(SystemClock.now())).await?;
            }
            Outcome::Ok(())
        }));
    }
    for caller in running {
        caller.await??;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of tasks is far below 2^52")]
    Ok(tasks as f64 / start.elapsed().as_secs_f64())
}

fn task(versioned: &Versioned) -> Outcome<&Arc<Task>> {
    versioned.record.as_task().ok_or_else(|| "a claim gave something that is no task".into())
}
