//! What the cases work with: a fresh store, a clock that they set, ids that a seed repeats, and short words for long requests.

mod asking;
mod words;

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use ekiden_core::attempt::Stage;
use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::commit::{Commit, Expect, Write};
use ekiden_core::event::Event;
use ekiden_core::id::{OpId, TaskId};
use ekiden_core::key::Key;
use ekiden_core::lease::{Token, Until};
use ekiden_core::plan::{Draft, Enqueue, Enqueued, Happen, Happened, Lanes, Need, Plan, Stop, View};
use ekiden_core::pool::{Policy, Profile};
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::{Record, Revision, Versioned};
use ekiden_core::retry::FailureKind;
use ekiden_core::task::{Phase, Spec, Task, TaskEnvelope};
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::transition::{Decision, Start, birth, decide};

use super::Factory;
use crate::entropy::Entropy;
use crate::ext::{PlanError, StoreExt};
use crate::op::{Answer, Claimed, Op};
use crate::store::Store;
pub use words::*;

/// 2026-11-15T12:00:00Z: when every case begins.
pub const NOON: Timestamp = Timestamp::from_millis(1_794_744_000_000);

/// How long a store whose index lags may take to show what was applied.
pub const INDEX_LAG_MAX: Duration = Duration::from_secs(10);

/// A fresh store and everything to ask it with. Cheap to clone; clones share store, clock and ids.
#[derive(Clone)]
pub struct Lab {
    factory: Arc<dyn Factory>,
    store: Arc<RwLock<Arc<dyn Store>>>,
    now: Arc<AtomicI64>,
    entropy: Arc<Mutex<Entropy>>,
}

impl Lab {
    /// A lab around a fresh store.
    pub async fn open(factory: Arc<dyn Factory>) -> Self {
        let store = factory.open().await;
        Self {
            factory,
            store: Arc::new(RwLock::new(store)),
            now: Arc::new(AtomicI64::new(NOON.as_millis())),
            entropy: Arc::new(Mutex::new(Entropy::from_seed(0))),
        }
    }

    /// The store.
    pub fn store(&self) -> Arc<dyn Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The factory, for cases that need several stores.
    pub fn factory(&self) -> &Arc<dyn Factory> {
        &self.factory
    }

    /// The moment.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::SeqCst))
    }

    /// Lets time pass, and says what time it is then.
    pub fn wait(&self, span: Millis) -> Timestamp {
        let later = self.now() + span;
        self.now.store(later.as_millis(), Ordering::SeqCst);
        later
    }

    /// A new name for an op.
    pub fn op(&self) -> OpId {
        self.entropy.lock().unwrap_or_else(PoisonError::into_inner).op_id(self.now())
    }

    /// A new name for a task.
    pub fn task_id(&self) -> TaskId {
        self.entropy.lock().unwrap_or_else(PoisonError::into_inner).task_id(self.now())
    }

    /// Kills the store and opens it again. False where nothing survives, and then the store says so.
    pub async fn reopen(&self) -> bool {
        let old = self.store();
        let durable = !old.info().durable.is_empty();
        let reopened = self.factory.reopen(old).await;
        assert_eq!(reopened.is_some(), durable, "a store can be reopened exactly if it calls itself durable");
        if let Some(store) = reopened {
            *self.store.write().unwrap_or_else(PoisonError::into_inner) = store;
        }
        durable
    }

    /// What a task of the cases asks for: pool `work`, kind `greet`, created now.
    pub fn spec(&self, name: &str) -> Spec {
        let envelope = TaskEnvelope::json(kind("greet"), format!("{{\"name\":\"{name}\"}}"));
        Spec::new(ns(), pool("work"), id(name), envelope, Profile::Embedded.settings().policy, self.now())
    }

    /// Enqueues a plain task.
    pub async fn enqueue(&self, name: &str) -> Arc<Task> {
        self.enqueue_spec(self.spec(name)).await
    }

    /// Enqueues what a spec asks for.
    pub async fn enqueue_spec(&self, spec: Spec) -> Arc<Task> {
        self.new_task(self.plan_of(spec)).await
    }

    /// Enqueues a task with changes to the plain spec.
    pub async fn enqueue_with(&self, name: &str, change: impl FnOnce(&mut Spec)) -> Arc<Task> {
        let mut spec = self.spec(name);
        change(&mut spec);
        self.enqueue_spec(spec).await
    }

    /// The policy of the cases' tasks, with changes.
    pub fn policy(&self, change: impl FnOnce(&mut Policy)) -> Arc<Policy> {
        let mut policy = Profile::Embedded.settings().policy;
        change(Arc::make_mut(&mut policy));
        policy
    }

    /// Enqueues many tasks in few calls.
    pub async fn enqueue_many(&self, specs: Vec<Spec>) {
        let plans: Vec<_> = specs.into_iter().map(|spec| (self.op(), self.plan_of(spec))).collect();
        for done in self.store().run_all(&plans, self.now()).await {
            assert!(matches!(done, Ok(Enqueued::New(_))), "expected a new task, got {done:?}");
        }
    }

    /// The plan that enqueues a spec: released, without parents or key.
    pub fn plan_of(&self, spec: Spec) -> Enqueue {
        Enqueue { spec: Arc::new(spec), start: Start::Released, parents: Vec::new(), idempotency: None }
    }

    /// Enqueues a task that waits for others.
    pub async fn enqueue_child(&self, name: &str, parents: &[&str]) -> Arc<Task> {
        let parents = parents.iter().map(|parent| id(parent)).collect();
        self.new_task(Enqueue { parents, ..self.plan_of(self.spec(name)) }).await
    }

    /// Carries out an enqueue that must make a new task.
    pub async fn new_task(&self, plan: Enqueue) -> Arc<Task> {
        match self.run(&plan).await {
            Ok(Enqueued::New(task)) => task,
            other => panic!("expected a new task, got {other:?}"),
        }
    }

    /// Carries out a plan, now, under a new id.
    pub async fn run<P: Plan + Sync>(&self, plan: &P) -> Result<P::Done, PlanError>
    where
        P::Done: Send,
    {
        self.store().run(plan, self.op(), self.now()).await
    }

    /// Carries out a plan that the rules must refuse.
    pub async fn refused<P: Plan + Sync>(&self, plan: &P) -> ReasonCode
    where
        P::Done: Send + Debug,
    {
        self.run(plan).await.expect_err("the rules refuse this").code()
    }

    /// Drafts the commit of a plan from what is there now, and sends nothing: for races, and several ops in one call.
    pub async fn draft<P: Plan + Sync>(&self, plan: &P, lanes: Lanes) -> Commit {
        let (id, mut view) = (self.op(), View::default());
        loop {
            let needs = match Draft::of(plan, id, &view, self.now(), lanes) {
                Ok((_, commit)) => return commit.expect("a plan that writes something"),
                Err(Stop::Refused(refusal)) => panic!("the rules refuse this: {refusal}"),
                Err(Stop::Need(needs)) => needs,
            };
            for need in needs {
                match need {
                    Need::Record(key) => view.insert(key.clone(), self.get(&key).await),
                    Need::Page(need) => {
                        let page = self.records(need.kind, &need.prefix, None, need.limit).await;
                        view.insert_page(need, page.items);
                    }
                }
            }
        }
    }

    /// Lets an event happen to a task.
    pub async fn happen(&self, name: &str, event: Event) -> Result<Happened, PlanError> {
        self.run(&Happen { task: task_key(name), event }).await
    }

    /// Lets an event happen that must change the task, and gives the task as written.
    pub async fn changed(&self, name: &str, event: Event) -> Arc<Task> {
        match self.happen(name, event).await {
            Ok(Happened::Changed(task)) => task,
            other => panic!("expected a change of {name}, got {other:?}"),
        }
    }

    /// Settles a claimed task well.
    pub async fn succeed(&self, task: &Task) -> Arc<Task> {
        self.changed(task.id().as_str(), Event::Succeeded { token: Token(task.state.execution_no), result: None }).await
    }

    /// Settles a claimed task badly, but not for ever.
    pub async fn fail(&self, task: &Task) -> Arc<Task> {
        let event = Event::Failed {
            token: Token(task.state.execution_no),
            kind: FailureKind::Retryable,
            error: Arc::from("oops"),
        };
        self.changed(task.id().as_str(), event).await
    }

    /// Cancels a task.
    pub async fn cancel(&self, name: &str) -> Arc<Task> {
        self.changed(name, Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None }).await
    }

    /// Says that a cancelled attempt has truly ended.
    pub async fn end_attempt(&self, task: &Task) -> Arc<Task> {
        let event = Event::AttemptEnded { token: Token(task.state.execution_no), stage: Stage::Verified };
        self.changed(task.id().as_str(), event).await
    }

    /// A task as the rules would make it, not stored.
    pub fn newborn(&self, spec: Spec, start: Start) -> Task {
        let state = birth(&spec, start, Vec::new(), self.now()).state;
        Task { spec: Arc::new(spec), state }
    }

    /// A task after an event that must change it, by the rules alone.
    pub fn after(&self, task: &Task, event: &Event) -> Task {
        match decide(task, event, self.now()) {
            Ok(Decision::Change(change)) => Task { spec: task.spec.clone(), state: change.state },
            other => panic!("expected a change of {}, got {other:?}", task.id()),
        }
    }

    /// A task in a phase as the rules would bring it there, not stored. `runner-1` holds or held it.
    pub fn in_phase(&self, spec: Spec, phase: Phase) -> Task {
        let token = Token(1);
        let (claim, holder) = (self.op(), runner("runner-1"));
        let claimed = Event::Claimed { claim, holder, until: Until::Heartbeat, counted: false };
        let failed = |kind| Event::Failed { token, kind, error: Arc::from("oops") };
        let end = match phase {
            Phase::Pending => return self.newborn(spec, Start::Held),
            Phase::Queued => return self.newborn(spec, Start::Released),
            Phase::Blocked => {
                let state = birth(&spec, Start::Released, vec![id("a parent")], self.now()).state;
                return Task { spec: Arc::new(spec), state };
            }
            Phase::Running => return self.after(&self.newborn(spec, Start::Released), &claimed),
            Phase::RetryScheduled => failed(FailureKind::Retryable),
            Phase::Dead => failed(FailureKind::Permanent),
            Phase::Succeeded => Event::Succeeded { token, result: None },
            Phase::NeedsInput => Event::Asked { token, question: Box::new(question("which?")) },
            Phase::Cancelled => {
                let event = Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None };
                return self.after(&self.newborn(spec, Start::Released), &event);
            }
        };
        self.after(&self.in_phase(spec, Phase::Running), &end)
    }

    /// Stores a task as it is.
    pub async fn store_task(&self, task: Task) -> Revision {
        self.put(&Key::task(&task.spec.namespace, task.id()), Expect::Absent, Record::from(task)).await
    }

    /// A task as stored.
    pub async fn task(&self, name: &str) -> Option<Arc<Task>> {
        self.get(&task_key(name)).await.and_then(|versioned| versioned.record.as_task().cloned())
    }

    /// The phase of a task that must exist.
    pub async fn phase(&self, name: &str) -> Phase {
        self.task(name).await.unwrap_or_else(|| panic!("task {name} is gone")).state.phase
    }

    /// A claim under a new id: one task of any kind from pool `work`, for `runner-1`, with a heartbeat lease.
    pub fn claim_one(&self) -> Claim {
        Claim {
            id: self.op(),
            now: self.now(),
            pools: vec![ClaimPool::open(ns(), pool("work"))],
            kinds: Kinds::Any,
            limit: 1,
            holder: runner("runner-1"),
            lease: LeaseTerm::Heartbeat,
        }
    }

    /// Sends a claim once.
    pub async fn claim_now(&self, claim: Claim) -> Claimed {
        self.store().claim(claim).await.expect("a claim on a store without faults")
    }

    /// Sends a claim that must give tasks. A store whose index lags gets time: the claim is repeated under new ids.
    pub async fn claim(&self, claim: Claim) -> Vec<Arc<Task>> {
        let patience = tokio::time::timeout(INDEX_LAG_MAX, async {
            let mut next = claim.clone();
            loop {
                let tasks = tasks_of(self.claim_now(next).await);
                if !tasks.is_empty() || self.store().info().exact_index {
                    return tasks;
                }
                tokio::task::yield_now().await;
                next = Claim { id: self.op(), ..claim.clone() };
            }
        });
        patience.await.unwrap_or_default()
    }

    /// Claims the one best task of pool `work`, which must be there.
    pub async fn take(&self) -> Arc<Task> {
        let mut tasks = self.claim(self.claim_one()).await;
        assert_eq!(tasks.len(), 1, "a task can be claimed");
        tasks.remove(0)
    }

    /// Claims up to `limit` tasks of pool `work` and gives their ids, in the order of the answer.
    pub async fn take_ids(&self, limit: usize) -> Vec<String> {
        let tasks = self.claim(Claim { limit, ..self.claim_one() }).await;
        tasks.iter().map(|task| task.id().to_string()).collect()
    }

    /// Asserts that nothing of pool `work` can be claimed now.
    pub async fn nothing_to_claim(&self) {
        let claimed = self.claim_now(self.claim_one()).await;
        assert!(claimed.tasks.is_empty(), "nothing must be claimable, got {:?}", tasks_of(claimed));
    }

    /// Claims exactly this many tasks of pool `work`.
    pub async fn take_all(&self, count: usize) -> Vec<Arc<Task>> {
        self.take_by(self.claim_one(), count).await
    }

    /// Claims exactly this many tasks, in as many claims like this one as a lagging index needs.
    pub async fn take_by(&self, claim: Claim, count: usize) -> Vec<Arc<Task>> {
        let mut tasks = Vec::new();
        while tasks.len() < count {
            let more = self.claim(Claim { id: self.op(), limit: count - tasks.len(), ..claim.clone() }).await;
            assert!(!more.is_empty(), "{count} tasks can be claimed, got {}", tasks.len());
            tasks.extend(more);
        }
        tasks
    }

    /// Commits writes under a new id.
    pub async fn commit(&self, writes: Vec<Write>) -> Answer {
        self.commit_as(self.op(), writes).await
    }

    /// Commits writes under a given id.
    pub async fn commit_as(&self, op: OpId, writes: Vec<Write>) -> Answer {
        let commit = Commit::new(op, writes).expect("a well-formed commit");
        self.store().commit(commit).await.expect("a commit on a store without faults")
    }

    /// Applies several ops in one call; none may fail.
    pub async fn apply(&self, ops: Vec<Op>) -> Vec<Answer> {
        let outcomes = self.store().apply(ops).await;
        outcomes.into_iter().map(|outcome| outcome.expect("an op on a store without faults")).collect()
    }

    /// Puts a record and gives its revision.
    pub async fn put(&self, key: &Key, expect: Expect, record: Record) -> Revision {
        match self.commit(vec![Write::put(key.clone(), expect, record)]).await {
            Answer::Applied(applied) => applied.revisions.into_iter().flatten().next().expect("a put has a revision"),
            other => panic!("expected the put of {key} to be applied, got {other:?}"),
        }
    }

    /// Reads a record.
    pub async fn get(&self, key: &Key) -> Option<Versioned> {
        self.store().get_one(key.clone()).await.expect("a read on a store without faults")
    }

    /// What a counter says; zero if there is none.
    pub async fn counter(&self, key: &Key) -> i64 {
        self.get(key).await.and_then(|versioned| versioned.record.as_counter()).unwrap_or(0)
    }
}
