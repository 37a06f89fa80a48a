//! What one task's life costs on the memory store: nanoseconds for each enqueue, claim and settlement in one thread, on an
//! empty store, with 100,000 ended tasks kept, and with a thousand and a million waiting; and bytes a waiting task.
//!
//! `cargo run --release -p ekiden-store --example lifecycle_cost [tasks measured [backlog, for example "empty"]]`
//!
//! Compare its numbers with each other on one machine, not with those of another.
#![allow(clippy::unwrap_used, reason = "a panic is how a measurement fails")]
#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::event::Event;
use ekiden_core::id::{Kind, Namespace, OpId, PoolName, RunnerId};
use ekiden_core::lease::Token;
use ekiden_core::plan::{Enqueue, Happen, View};
use ekiden_core::pool::{Policy, Profile};
use ekiden_core::record::Versioned;
use ekiden_core::task::{Spec, TaskEnvelope};
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::transition::Start;
use ekiden_store::entropy::Entropy;
use ekiden_store::{MemoryStore, StoreExt};

const NOON: Timestamp = Timestamp::from_millis(1_794_744_000_000);

/// What a runner takes at once.
const BATCH: usize = 16;

/// Tasks that carry the same moment, as at a hundred thousand a second.
const TASKS_A_MILLISECOND: usize = 100;

/// How ends are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Settle {
    /// One by one, from what the claim gave.
    Seen,
    /// A whole batch, whose tasks are read again.
    All,
}

/// A store, and the names that its tasks share.
struct Rig {
    store: MemoryStore,
    entropy: Entropy,
    namespace: Namespace,
    pool: PoolName,
    kind: Kind,
    policy: Arc<Policy>,
    runner: RunnerId,
    now: Timestamp,
    made: usize,
}

/// Time spent on each batch, by step.
#[derive(Default)]
struct Spent {
    enqueue: Vec<Duration>,
    claim: Vec<Duration>,
    settle: Vec<Duration>,
}

/// What a task costs in the median batch: what else the machine did meanwhile fell on a few.
fn nanoseconds_a_task(mut batches: Vec<Duration>) -> usize {
    batches.sort_unstable();
    let median = batches.get(batches.len() / 2).map_or(0, Duration::as_nanos);
    usize::try_from(median).unwrap() / BATCH
}

impl Rig {
    fn new() -> Self {
        Self {
            store: MemoryStore::new(),
            entropy: Entropy::from_seed(1),
            namespace: Namespace::new("default").unwrap(),
            pool: PoolName::new("work").unwrap(),
            kind: Kind::new("send_email").unwrap(),
            policy: Profile::Embedded.settings().policy,
            runner: RunnerId::new("runner.1").unwrap(),
            now: NOON,
            made: 0,
        }
    }

    fn op_id(&mut self) -> OpId {
        self.entropy.op_id(self.now)
    }

    fn plan(&mut self) -> (OpId, Enqueue) {
        self.made += 1;
        if self.made.is_multiple_of(TASKS_A_MILLISECOND) {
            self.now = self.now + Millis::new(1);
        }
        let id = self.entropy.task_id(self.now);
        let envelope = TaskEnvelope::json(self.kind.clone(), vec![b'1'; 100]);
        let (namespace, pool) = (self.namespace.clone(), self.pool.clone());
        let spec = Arc::new(Spec::new(namespace, pool, id, envelope, self.policy.clone(), self.now));
        (self.op_id(), Enqueue { spec, start: Start::Released, parents: Vec::new(), idempotency: None })
    }

    async fn enqueue(&mut self, count: usize, spent: &mut Vec<Duration>) {
        let plans: Vec<_> = (0..count).map(|_| self.plan()).collect();
        let begin = Instant::now();
        for (id, plan) in &plans {
            self.store.run(plan, *id, self.now).await.unwrap();
        }
        spent.push(begin.elapsed());
    }

    /// Enqueues without keeping the plans of all.
    async fn fill(&mut self, count: usize) {
        for done in (0..count).step_by(BATCH) {
            self.enqueue(BATCH.min(count - done), &mut Vec::new()).await;
        }
    }

    async fn claim(&mut self, spent: &mut Vec<Duration>) -> Vec<Versioned> {
        let claim = Claim {
            id: self.op_id(),
            now: self.now,
            pools: vec![ClaimPool::open(self.namespace.clone(), self.pool.clone())],
            kinds: Kinds::Only([self.kind.clone()].into()),
            limit: BATCH,
            holder: self.runner.clone(),
            lease: LeaseTerm::Heartbeat,
        };
        let begin = Instant::now();
        let claimed = self.store.claim(claim).await.unwrap();
        spent.push(begin.elapsed());
        claimed.tasks
    }

    async fn settle(&mut self, tasks: Vec<Versioned>, how: Settle, spent: &mut Vec<Duration>) {
        let event = || Event::Succeeded { token: Token(1), result: None };
        let happen = |task: &Versioned| Happen { task: task.key.clone(), event: event() };
        let plans: Vec<_> = tasks.iter().map(|task| (self.op_id(), happen(task))).collect();
        let begin = Instant::now();
        match how {
            Settle::Seen => {
                for ((id, plan), task) in plans.iter().zip(tasks) {
                    self.store.run_seen(plan, *id, self.now, View::default().with(task)).await.unwrap();
                }
            }
            Settle::All => self.store.run_all(&plans, self.now).await.into_iter().for_each(|done| drop(done.unwrap())),
        }
        spent.push(begin.elapsed());
    }

    /// Whole lives, a batch at a time, so that the backlog stays as it is.
    async fn lives(&mut self, count: usize, how: Settle) -> Spent {
        let mut spent = Spent::default();
        for _ in 0..count.div_ceil(BATCH) {
            self.enqueue(BATCH, &mut spent.enqueue).await;
            let tasks = self.claim(&mut spent.claim).await;
            assert_eq!(tasks.len(), BATCH);
            self.settle(tasks, how, &mut spent.settle).await;
        }
        spent
    }
}

/// What this process has in memory, where the system tells.
fn resident_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: usize = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1_024)
}

async fn report(name: &str, rig: &mut Rig, tasks: usize) {
    // The first round only warms caches and allocator.
    rig.lives(tasks / 10, Settle::Seen).await;
    for (how, words) in [(Settle::Seen, "one by one"), (Settle::All, "16 at once")] {
        let spent = rig.lives(tasks, how).await;
        let [enqueue, claim, settle] = [spent.enqueue, spent.claim, spent.settle].map(nanoseconds_a_task);
        let all = enqueue + claim + settle;
        say(&format!(
            "{name:<20} {words}  enqueue {enqueue:>5}  claim {claim:>5}  settle {settle:>5}  all {all:>5} ns"
        ));
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").unwrap();
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let tasks = arguments.next().map_or(20_000, |text| text.parse().unwrap());
    let only = arguments.next();
    let is_asked = |name: &str| only.as_ref().is_none_or(|only| only == name);

    // First of all, so that no memory that another store gave back is counted as its own.
    for (name, waiting) in [("1,000,000 waiting", 1_000_000), ("1,000 waiting", 1_000), ("empty", 0)] {
        if !is_asked(name) {
            continue;
        }
        let mut rig = Rig::new();
        let before = resident_bytes();
        rig.fill(waiting).await;
        if let (1_000_000, Some(before), Some(after)) = (waiting, before, resident_bytes()) {
            say(&format!("{name:<20} {} bytes a task", after.saturating_sub(before) / waiting));
        }
        report(name, &mut rig, tasks).await;
    }
    if is_asked("100,000 ended") {
        let mut rig = Rig::new();
        rig.lives(100_000, Settle::All).await;
        report("100,000 ended", &mut rig, tasks).await;
    }
}
