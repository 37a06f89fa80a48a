//! Our side of the comparison, and the only file that knows Ekiden. For now it drives a store by hand, as a runner would:
//! one claim loop that fills free slots, handlers beside each other, each settled by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::event::Event;
use ekiden_core::id::{Kind, Namespace, OpId, PoolName, RunnerId};
use ekiden_core::lease::Token;
use ekiden_core::plan::{Enqueue, Happen, View};
use ekiden_core::pool::{Policy, Profile};
use ekiden_core::record::Versioned;
use ekiden_core::task::{Spec, Task, TaskEnvelope};
use ekiden_core::transition::Start;
use ekiden_store::clock::{Clock, SystemClock};
use ekiden_store::entropy::Entropy;
use ekiden_store::{Hint, MemoryStore, Store, StoreExt};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::broadcast;

use crate::ledger::{Ledger, Stopwatch};
use crate::{Outcome, payload};

/// Completed tasks a second: enqueued one by one, claimed, handled and settled.
pub async fn lifecycle(producers: usize, consumers: usize, tasks: usize) -> Outcome<f64> {
    let bed = Arc::new(Bed::new()?);
    let ledger = Arc::new(Ledger::new(tasks));
    let books = ledger.clone();
    let runner = Runner { bed: bed.clone(), slots: consumers, handler: move |payload: &[u8]| books.handle(payload) };
    let books = ledger.clone();
    let mut running = tokio::spawn(runner.run(move || books.complete()));
    let start = Instant::now();
    for producer in 0..producers {
        let bed = bed.clone();
        tokio::spawn(async move { bed.produce((producer..tasks).step_by(producers)).await });
    }
    let rate = tokio::select! {
        rate = ledger.tasks_per_second(start) => rate,
        ended = &mut running => Err(format!("the runner ended early: {ended:?}").into()),
    };
    running.abort();
    rate
}

/// How long each task waited until its handler began, one handed in at every tick.
pub async fn start_latencies(tasks: usize, pace: Duration) -> Outcome<Vec<Duration>> {
    let bed = Arc::new(Bed::new()?);
    let stopwatch = Arc::new(Stopwatch::new(tasks));
    let books = stopwatch.clone();
    let runner = Runner { bed: bed.clone(), slots: 1, handler: move |payload: &[u8]| books.start(payload) };
    let running = tokio::spawn(runner.run(|| {}));
    let books = stopwatch.clone();
    let producing = tokio::spawn(async move {
        let mut entropy = Entropy::from_system();
        let mut ticks = tokio::time::interval(pace);
        for number in 0..tasks {
            ticks.tick().await;
            let payload = payload::of(number);
            books.begin(number);
            bed.enqueue(payload, &mut entropy).await?;
        }
        Outcome::Ok(())
    });
    let waits = stopwatch.waits().await;
    producing.abort();
    running.abort();
    waits
}

/// 16 tasks a call, no more: a million added in large calls leave the system's allocator with so much to put in order that
/// the next thousand claims take twenty times as long, and the figure would be about that.
const FILL_BATCH: usize = 16;

/// A store in which a number of tasks wait, to measure what a claim costs.
#[derive(Debug)]
pub struct Backlog {
    bed: Bed,
    entropy: Entropy,
    made: usize,
}

impl Backlog {
    /// A store with so many waiting tasks.
    pub async fn of(waiting: usize) -> Outcome<Self> {
        let mut backlog = Self { bed: Bed::new()?, entropy: Entropy::from_system(), made: 0 };
        backlog.add(waiting).await?;
        Ok(backlog)
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
            if claimed.tasks.len() != limit {
                return Err(format!("a claim for {limit} tasks got {}", claimed.tasks.len()).into());
            }
            for task in claimed.tasks {
                self.bed.settle(task, self.entropy.op_id(SystemClock.now())).await?;
            }
            self.add(limit).await?;
        }
        Ok(times)
    }

    async fn add(&mut self, tasks: usize) -> Outcome<()> {
        let until = self.made + tasks;
        while self.made < until {
            let batch = self.made..until.min(self.made + FILL_BATCH);
            self.made = batch.end;
            let now = SystemClock.now();
            let plan = |number| {
                let enqueue = self.bed.plan(payload::of(number), &mut self.entropy);
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
#[derive(Debug)]
struct Bed {
    store: MemoryStore,
    namespace: Namespace,
    pool: PoolName,
    kind: Kind,
    holder: RunnerId,
    policy: Arc<Policy>,
}

impl Bed {
    fn new() -> Outcome<Self> {
        Ok(Self {
            store: MemoryStore::new(),
            namespace: Namespace::new("default")?,
            pool: PoolName::new("bench")?,
            kind: Kind::new("no-op")?,
            holder: RunnerId::new("bench.1")?,
            policy: Profile::Embedded.settings().policy,
        })
    }

    async fn produce(&self, numbers: impl Iterator<Item = usize>) -> Outcome<()> {
        let mut entropy = Entropy::from_system();
        for number in numbers {
            self.enqueue(payload::of(number), &mut entropy).await?;
            // The memory store never waits: without this a producer would keep its thread until its last task.
            tokio::task::consume_budget().await;
        }
        Ok(())
    }

    async fn enqueue(&self, payload: Bytes, entropy: &mut Entropy) -> Outcome<()> {
        let plan = self.plan(payload, entropy);
        let now = SystemClock.now();
        self.store.run(&plan, entropy.op_id(now), now).await?;
        Ok(())
    }

    fn plan(&self, payload: Bytes, entropy: &mut Entropy) -> Enqueue {
        let now = SystemClock.now();
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
            kinds: Kinds::Only(vec![self.kind.clone()]),
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
}

fn task(versioned: &Versioned) -> Outcome<&Arc<Task>> {
    versioned.record.as_task().ok_or_else(|| "a claim gave something that is no task".into())
}

/// Claims, handles and settles, at most `slots` tasks at once.
struct Runner<H> {
    bed: Arc<Bed>,
    slots: usize,
    handler: H,
}

impl<H: Fn(&[u8])> Runner<H> {
    /// Runs until it is aborted or something fails. `completed` is called behind each settled task.
    async fn run(self, completed: impl Fn()) -> Outcome<()> {
        let mut entropy = Entropy::from_system();
        let mut busy = FuturesUnordered::new();
        // A store makes hints only for those who watch, so a runner watches only while it has nothing to do.
        let mut idle: Option<broadcast::Receiver<Hint>> = None;
        loop {
            let claim = self.bed.claim(self.slots - busy.len(), &mut entropy);
            for task in self.bed.store.claim(claim).await?.tasks {
                busy.push(self.carry(task, entropy.op_id(SystemClock.now())));
            }
            if busy.is_empty() {
                // What came before the watch is found by one more claim, what comes behind it gives a hint.
                match &mut idle {
                    None => idle = Some(self.bed.store.watch()),
                    Some(hints) => drop(hints.recv().await),
                }
                continue;
            }
            idle = None;
            // One at least, and every other that is ready with it, so that the next claim fills all free slots at once.
            let mut ended = busy.next().await;
            while let Some(outcome) = ended {
                outcome?;
                completed();
                ended = busy.next().now_or_never().flatten();
            }
            tokio::task::consume_budget().await;
        }
    }

    async fn carry(&self, claimed: Versioned, id: OpId) -> Outcome<()> {
        (self.handler)(&task(&claimed)?.spec.envelope.payload);
        self.bed.settle(claimed, id).await
    }
}
