//! Somebody who works with a store, remembers what it answered, and looks later whether that is still so.
#![allow(dead_code, reason = "each test needs its part of it")]

pub(crate) mod gated;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{Kind, Namespace, OpId, PoolName, RunnerId, TaskId};
use ekiden_core::key::Key;
use ekiden_core::lease::Token;
use ekiden_core::newer::Newer;
use ekiden_core::plan::{Beat, Enqueue, Happen, Plan};
use ekiden_core::pool::Profile;
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::task::{Phase, Spec, Task, TaskEnvelope};
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::transition::Start;
use ekiden_store::entropy::Entropy;
use ekiden_store::{Happened, ListOrder, PlanError, Store, StoreError, StoreExt, TaskQuery};
use ekiden_store_local::disk::Disk;
use ekiden_store_local::{LocalStore, Options};
use tokio::task::JoinSet;

pub(crate) const FOLDER: &str = "/data";

/// Small files, checkpoints all the time, and nothing that stays in memory for long.
pub(crate) fn options(disk: Arc<dyn Disk>) -> Options {
    Options {
        disk,
        segment_bytes: 16 << 10,
        reserve_bytes: 16 << 10,
        checkpoint_every: Duration::from_millis(1),
        memory_bytes: 8 << 10,
        cache_bytes: 1 << 20,
        ..Options::default()
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// Seeds to try; `EKIDEN_SEED` replays one.
pub(crate) fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("EKIDEN_SEED") {
        Ok(seed) => vec![seed.parse().expect("a seed is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// Asks again until there is an answer, for ten seconds.
#[expect(clippy::disallowed_methods, reason = "a limit for a test that would hang")]
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        match ask() {
            Some(answer) => return answer,
            None if begin.elapsed() < Duration::from_secs(10) => std::thread::yield_now(),
            None => panic!("{what}: not within ten seconds"),
        }
    }
}

/// What many were told who asked at once.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) done: usize,
    pub(crate) refused: Vec<StoreError>,
}

/// What is known of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// The phase that was answered last.
    phase: Option<Phase>,
    /// A change whose outcome nobody knows: it may be there as well.
    perhaps: Option<Phase>,
}

pub(crate) struct Ward {
    entropy: Entropy,
    now: Timestamp,
    namespace: Namespace,
    pool: PoolName,
    tasks: BTreeMap<TaskId, Known>,
    running: Vec<Arc<Task>>,
}

impl Ward {
    pub(crate) fn new(seed: u64) -> Self {
        Self::of_pool(seed, "ward")
    }

    pub(crate) fn of_pool(seed: u64, pool: &str) -> Self {
        Self {
            entropy: Entropy::from_seed(seed),
            now: Timestamp::from_millis(1_794_744_000_000),
            namespace: Namespace::new("default").unwrap(),
            pool: PoolName::new(pool).unwrap(),
            tasks: BTreeMap::new(),
            running: Vec::new(),
        }
    }

    /// Hands in, claims and settles at random, until the store refuses or the rounds are over.
    pub(crate) async fn work(&mut self, store: &dyn Store, rounds: usize) {
        for _ in 0..rounds {
            let done = match self.entropy.below(6) {
                0 | 1 => self.enqueue(store).await,
                2 | 3 => self.claim(store).await,
                4 => self.enqueue_some_together(store).await,
                _ => self.settle(store).await,
            };
            if done.is_err() {
                self.running.clear();
                return;
            }
        }
        self.running.clear();
    }

    pub(crate) async fn enqueue(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        self.enqueue_for(store, None).await
    }

    /// Hands in a task that is due later than now.
    pub(crate) async fn enqueue_for(&mut self, store: &dyn Store, later: Option<Millis>) -> Result<(), StoreError> {
        let bytes = self.entropy.below(3_000);
        let plan = self.new_task(bytes, later);
        let done = store.run(&plan, self.entropy.op_id(self.now), self.now).await;
        self.note(&plan.spec.id, Phase::Queued, done.map(drop))
    }

    /// Hands in several tasks in one call, mostly more than a batch of the log takes.
    async fn enqueue_some_together(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let (count, bytes) = (2 + self.entropy.below(12), self.entropy.below(3_000));
        let plans = self.new_tasks(count, bytes);
        let told = self.enqueue_together(store, &plans).await;
        told.refused.into_iter().next().map_or(Ok(()), Err)
    }

    /// So many tasks of this many bytes, each under the id of its commit.
    pub(crate) fn new_tasks(&mut self, count: usize, bytes: usize) -> Vec<(OpId, Enqueue)> {
        (0..count)
            .map(|_| {
                let plan = self.new_task(bytes, None);
                (self.entropy.op_id(self.now), plan)
            })
            .collect()
    }

    /// Hands in tasks in one call. Each is answered for itself.
    pub(crate) async fn enqueue_together(&mut self, store: &dyn Store, plans: &[(OpId, Enqueue)]) -> Told {
        let outcomes = store.run_all(plans, self.now).await;
        let mut told = Told::default();
        for ((_, plan), done) in plans.iter().zip(outcomes) {
            match self.note(&plan.spec.id, Phase::Queued, done.map(drop)) {
                Ok(()) => told.done += 1,
                Err(error) => told.refused.push(error),
            }
        }
        told
    }

    fn new_task(&mut self, bytes: usize, later: Option<Millis>) -> Enqueue {
        self.now = self.now + Millis::new(1);
        let id = self.entropy.task_id(self.now);
        let payload = vec![b'p'; bytes];
        let envelope = TaskEnvelope::json(Kind::new("greet").unwrap(), payload);
        let policy = Profile::Embedded.settings().policy;
        let mut spec = Spec::new(self.namespace.clone(), self.pool.clone(), id, envelope, policy, self.now);
        spec.run_at = later.map(|later| self.now + later);
        Enqueue { spec: Arc::new(spec), start: Start::Released, parents: vec![], idempotency: None }
    }

    /// Hands in so many small tasks and claims them all.
    pub(crate) async fn hold(&mut self, store: &dyn Store, count: usize) {
        for _ in 0..count {
            self.enqueue(store).await.unwrap();
        }
        while self.running.len() < count {
            self.claim(store).await.unwrap();
        }
    }

    /// Hands in so many tasks of this many bytes, all at once.
    pub(crate) async fn enqueue_at_once(&mut self, store: &Arc<LocalStore>, count: usize, bytes: usize) -> Told {
        let plans: Vec<_> = (0..count).map(|_| self.new_task(bytes, None)).collect();
        let plans = plans.into_iter().map(|plan| (plan.spec.id.clone(), plan)).collect();
        self.at_once(store, Phase::Queued, plans).await
    }

    /// Settles so many tasks that it holds with results of this many bytes, all at once.
    pub(crate) async fn settle_at_once(&mut self, store: &Arc<LocalStore>, count: usize, bytes: usize) -> Told {
        let held = self.running.split_off(self.running.len() - count);
        let plan = |task: &Arc<Task>| {
            let result = Some(format!("\"{}\"", "r".repeat(bytes - 2)).into());
            let event = Event::Succeeded { token: Token(task.state.execution_no), result };
            (task.id().clone(), Happen { task: Key::task(&self.namespace, task.id()), event })
        };
        let plans = held.iter().map(plan).collect();
        self.at_once(store, Phase::Succeeded, plans).await
    }

    async fn at_once<P>(&mut self, store: &Arc<LocalStore>, phase: Phase, plans: Vec<(TaskId, P)>) -> Told
    where
        P: Plan + Send + Sync + 'static,
        P::Done: Send,
    {
        let mut all = JoinSet::new();
        for (id, plan) in plans {
            let (store, op, now) = (store.clone(), self.entropy.op_id(self.now), self.now);
            all.spawn(async move { (id, store.run(&plan, op, now).await.map(drop)) });
        }
        let mut told = Told::default();
        while let Some(ended) = tokio::time::timeout(Duration::from_secs(20), all.join_next()).await.transpose() {
            let (id, done) = ended.expect("everybody is answered within 20 seconds").unwrap();
            match self.note(&id, phase, done) {
                Ok(()) => told.done += 1,
                Err(error) => told.refused.push(error),
            }
        }
        told
    }

    /// Time passes.
    pub(crate) fn wait(&mut self, span: Millis) {
        self.now = self.now + span;
    }

    /// How many tasks it holds.
    pub(crate) fn holds(&self) -> usize {
        self.running.len()
    }

    pub(crate) async fn claim(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let claim = Claim {
            id: self.entropy.op_id(self.now),
            now: self.now,
            pools: vec![ClaimPool::open(self.namespace.clone(), self.pool.clone())],
            kinds: Kinds::Any,
            limit: 1 + self.entropy.below(3),
            holder: RunnerId::new("ward.1").unwrap(),
            lease: LeaseTerm::Heartbeat,
        };
        match store.claim(claim).await {
            Ok(claimed) => {
                for task in claimed.tasks.iter().filter_map(|versioned| versioned.record.as_task()) {
                    self.tasks.insert(task.id().clone(), Known { phase: Some(Phase::Running), perhaps: None });
                    self.running.push(task.clone());
                }
                Ok(())
            }
            Err(error) => {
                // Any task that waited may have been taken, unless the store says that none was.
                let is_unknown = error.happened == Happened::Unknown;
                for known in self.tasks.values_mut().filter(|known| is_unknown && known.phase == Some(Phase::Queued)) {
                    known.perhaps = Some(Phase::Running);
                }
                Err(error)
            }
        }
    }

    pub(crate) async fn settle(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let Some(task) = self.running.pop() else { return Ok(()) };
        let event = Event::Succeeded { token: Token(task.state.execution_no), result: None };
        let plan = Happen { task: Key::task(&self.namespace, task.id()), event };
        let done = store.run(&plan, self.entropy.op_id(self.now), self.now).await;
        self.note(task.id(), Phase::Succeeded, done.map(drop))
    }

    /// Gives a sign of life.
    pub(crate) async fn beat(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        self.now = self.now + Millis::new(1);
        let runner = Runner {
            namespace: self.namespace.clone(),
            id: RunnerId::new("ward.1").unwrap(),
            started_at: self.now,
            last_heartbeat: self.now,
            status: RunnerStatus::Running,
            lease: Millis::from_secs(30),
            project_root: String::new(),
            pools: vec![self.pool.clone()],
            kinds: Vec::new(),
            newer: Newer::NONE,
        };
        match store.run(&Beat { runner }, self.entropy.op_id(self.now), self.now).await {
            Ok(_) => Ok(()),
            Err(PlanError::Store(error)) => Err(error),
            Err(refused) => panic!("a beat: {refused}"),
        }
    }

    /// A page of the ended tasks of its pool.
    pub(crate) fn ended(&self) -> TaskQuery {
        let phases = vec![Phase::Succeeded];
        let filter = TaskFilter { pool: Some(self.pool.clone()), phases, ..TaskFilter::all(self.namespace.clone()) };
        TaskQuery { filter, order: ListOrder::NewestFirst, cursor: None, limit: 100 }
    }

    /// Claims a task and brings it to its end.
    pub(crate) async fn finish_one(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        if self.running.is_empty() {
            self.claim(store).await?;
        }
        self.settle(store).await
    }

    fn note(&mut self, id: &TaskId, phase: Phase, done: Result<(), PlanError>) -> Result<(), StoreError> {
        let known = self.tasks.entry(id.clone()).or_insert(Known { phase: None, perhaps: None });
        match done {
            Ok(()) => *known = Known { phase: Some(phase), perhaps: None },
            Err(PlanError::Store(error)) => {
                if error.happened == Happened::Unknown {
                    known.perhaps = Some(phase);
                }
                return Err(error);
            }
            Err(refused) => panic!("{id}: {refused}"),
        }
        Ok(())
    }

    /// Whether everything is as it was answered, and nothing else is there. What is seen is known from now on.
    pub(crate) async fn look(&mut self, store: &dyn Store) -> Result<(), String> {
        for (id, known) in &mut self.tasks {
            let found = store.get(vec![Key::task(&self.namespace, id)]).await.map_err(|error| error.to_string())?;
            let phase = found[0].as_ref().and_then(|versioned| Some(versioned.record.as_task()?.state.phase));
            if phase != known.phase && (phase.is_none() || phase != known.perhaps) {
                return Err(format!("{id} is {phase:?}, but was {known:?}"));
            }
            *known = Known { phase, perhaps: None };
        }
        Ok(())
    }

    /// Whether everything that can be read is as it was answered. What cannot be read is no wrong answer.
    pub(crate) async fn look_for_wrong(&self, store: &dyn Store) -> Result<(), String> {
        for (id, known) in &self.tasks {
            let Ok(found) = store.get(vec![Key::task(&self.namespace, id)]).await else { continue };
            let Some(task) = found[0].as_ref().and_then(|versioned| versioned.record.as_task()) else { continue };
            if Some(task.state.phase) != known.phase || task.id() != id {
                return Err(format!("{id} is {:?}, but was {known:?}", task.state.phase));
            }
        }
        Ok(())
    }
}
