//! What the cases work with: a fresh store, a clock that they set, ids that a seed repeats, and short words for long requests.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use ekiden_core::attempt::Stage;
use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{Kind, LaneKey, Namespace, OpId, PoolName, QuestionId, RunnerId, TaskId, UniqueKey};
use ekiden_core::index::DueIndex;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lease::{Token, Until};
use ekiden_core::plan::{Draft, Enqueue, Enqueued, Happen, Happened, Lanes, Need, Plan, Stop, SweepStep, Swept, View};
use ekiden_core::pool::{Policy, Profile};
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::{Record, Revision, Versioned};
use ekiden_core::retry::FailureKind;
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::task::{Phase, Question, Spec, Task, TaskEnvelope};
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::transition::{Decision, Start, birth, decide};
use ekiden_core::unique::KeyRecord;

use super::Factory;
use crate::entropy::Entropy;
use crate::ext::{PlanError, StoreExt};
use crate::op::{Answer, Claimed, Op};
use crate::query::{CountScope, Counts, DueQuery, ListOrder, Page, RecordQuery, TaskQuery};
use crate::store::{CheckDepth, Store};

/// 2026-11-15T12:00:00Z: when every case begins.
pub const NOON: Timestamp = Timestamp::from_millis(1_794_744_000_000);

/// How long a store whose index lags may take to show what was applied.
const INDEX_LAG_MAX: Duration = Duration::from_secs(10);

/// A fresh store and everything to ask it with. Cheap to clone; clones share store, clock and ids.
#[derive(Clone)]
pub struct Lab {
    factory: Arc<dyn Factory>,
    store: Arc<RwLock<Arc<dyn Store>>>,
    now: Arc<AtomicI64>,
    entropy: Arc<Mutex<Entropy>>,
}

/// The namespace of the cases.
pub fn ns() -> Namespace {
    Namespace::new("default").expect("a valid id")
}

/// A namespace that must not notice anything.
pub fn other_ns() -> Namespace {
    Namespace::new("other").expect("a valid id")
}

/// A pool by name.
pub fn pool(name: &str) -> PoolName {
    PoolName::new(name).expect("a valid id")
}

/// A kind by name.
pub fn kind(name: &str) -> Kind {
    Kind::new(name).expect("a valid id")
}

/// A task id by name.
pub fn id(name: &str) -> TaskId {
    TaskId::new(name).expect("a valid id")
}

/// A runner id by name.
pub fn runner(name: &str) -> RunnerId {
    RunnerId::new(name).expect("a valid id")
}

/// A lane by name.
pub fn lane(name: &str) -> LaneKey {
    LaneKey::new(name).expect("a valid id")
}

/// The key of a task of the cases' namespace.
pub fn task_key(name: &str) -> Key {
    Key::task(&ns(), &id(name))
}

/// The key of a plain record without index entries.
pub fn note_key(name: &str) -> Key {
    Key::unique(&ns(), &UniqueKey::new(name).expect("a valid id"))
}

/// A plain record without index entries: a unique key that some task holds.
pub fn note(text: &str) -> Record {
    Record::Unique(KeyRecord { task: id(text), expires_at: None })
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

    // ── tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────

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

    // ── claims ─────────────────────────────────────────────────────────────────────────────────────────────────────

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

    // ── raw commits ────────────────────────────────────────────────────────────────────────────────────────────────

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

    // ── questions ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// The names of what is due in a list by now.
    pub async fn due(&self, index: DueIndex) -> Vec<String> {
        let query = DueQuery { namespace: ns(), index, until: self.now(), limit: 100 };
        let due = self.store().due(query).await.expect("a read on a store without faults");
        due.into_iter().map(|entry| entry.key.name.to_string()).collect()
    }

    /// All task ids that match, over all pages of this size, in the listing's order.
    pub async fn list(&self, filter: TaskFilter, order: ListOrder, limit: usize) -> Vec<String> {
        let mut names = Vec::new();
        let mut cursor = None;
        loop {
            let query = TaskQuery { filter: filter.clone(), order, cursor: cursor.clone(), limit };
            let page = self.store().tasks(query).await.expect("a read on a store without faults");
            assert!(page.items.len() <= limit, "a page holds no more than was asked for");
            names.extend(page.items.iter().map(|versioned| versioned.key.name.to_string()));
            if page.cursor.is_none() {
                return names;
            }
            assert_ne!(page.cursor, cursor, "a cursor leads on, or its pages would never end");
            cursor = page.cursor;
        }
    }

    /// One page of records.
    pub async fn records(
        &self,
        kind: RecordKind,
        prefix: &str,
        cursor: Option<String>,
        limit: usize,
    ) -> Page<Versioned> {
        let query = RecordQuery { namespace: ns(), kind, prefix: prefix.to_owned(), cursor, limit };
        self.store().records(query).await.expect("a read on a store without faults")
    }

    /// All names of a kind of record, over all pages of this size.
    pub async fn names(&self, kind: RecordKind, prefix: &str, limit: usize) -> Vec<String> {
        let mut names = Vec::new();
        let mut cursor = None;
        loop {
            let page = self.records(kind, prefix, cursor.clone(), limit).await;
            assert!(page.items.len() <= limit, "a page holds no more than was asked for");
            names.extend(page.items.iter().map(|versioned| versioned.key.name.to_string()));
            if page.cursor.is_none() {
                return names;
            }
            assert_ne!(page.cursor, cursor, "a cursor leads on, or its pages would never end");
            cursor = page.cursor;
        }
    }

    /// Asserts what is due in a list by now. A store whose index lags gets time.
    pub async fn due_is(&self, index: DueIndex, names: &[&str]) {
        let patience = tokio::time::timeout(INDEX_LAG_MAX, async {
            while self.due(index).await != names && !self.store().info().exact_index {
                tokio::task::yield_now().await;
            }
        });
        // Too late or not, what counts is what the list says now.
        let _ = patience.await;
        assert_eq!(self.due(index).await, names, "due in {index:?}");
    }

    // ── sweeps ─────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Writes a sweep that somebody asked for.
    pub async fn start_sweep(&self, name: &str, work: SweepWork) -> Key {
        let id = ekiden_core::id::SweepId::new(name).expect("a valid id");
        let key = Key::sweep(&ns(), &id);
        self.put(&key, Expect::Absent, Record::Sweep(Arc::new(Sweep::new(id, work, self.now())))).await;
        key
    }

    /// The next step of a sweep, with at most this many items; `None` when the sweep is gone.
    pub async fn sweep_step(&self, key: &Key, limit: usize) -> Option<SweepStep> {
        let step = self.store().sweep_step(key.clone(), limit, || self.task_id()).await;
        step.expect("a read on a store without faults")
    }

    /// Drives a sweep to its end, a page at a time, and says how many steps that took.
    pub async fn sweep(&self, key: &Key) -> usize {
        for steps in 0..1_000 {
            let Some(step) = self.sweep_step(key, 24).await else { return steps };
            match self.run(&step).await {
                Ok(Swept::On(_) | Swept::Ended) => {}
                other => panic!("expected {key} to go on, got {other:?}"),
            }
        }
        panic!("{key} does not come to an end");
    }

    /// The counts of the cases' namespace.
    pub async fn counts(&self) -> Counts {
        let scope = CountScope { namespace: ns(), pool: None };
        self.store().counts(scope).await.expect("a read on a store without faults")
    }

    /// Asserts that a question gets this answer: at once where the index is exact, soon where it lags.
    pub async fn soon<T, F>(&self, expected: T, ask: impl Fn() -> F)
    where
        T: PartialEq + Debug,
        F: Future<Output = T>,
    {
        let exact = self.store().info().exact_index;
        let patience = tokio::time::timeout(INDEX_LAG_MAX, async {
            while !exact && ask().await != expected {
                tokio::task::yield_now().await;
            }
        });
        let _ = patience.await;
        assert_eq!(ask().await, expected, "where the index is exact at once, otherwise within {INDEX_LAG_MAX:?}");
    }

    /// Asserts what a list says is due by now.
    pub async fn lists_due(&self, index: DueIndex, expected: &[&str]) {
        self.soon(texts(expected), || self.due(index)).await;
    }

    /// Asserts what a filter lists, oldest first.
    pub async fn lists(&self, filter: TaskFilter, expected: &[&str]) {
        self.soon(texts(expected), || self.list(filter.clone(), ListOrder::OldestFirst, 100)).await;
    }

    /// Every record of the cases' namespace but tasks, and these tasks: to see that nothing changed.
    pub async fn snapshot(&self, tasks: &[&str]) -> Vec<Versioned> {
        let keys = tasks.iter().map(|name| task_key(name)).collect();
        let tasks = self.store().get(keys).await.expect("a read on a store without faults");
        let mut all: Vec<Versioned> = tasks.into_iter().flatten().collect();
        for kind in RecordKind::ALL.into_iter().filter(|kind| *kind != RecordKind::Task) {
            let query = RecordQuery { namespace: ns(), kind, prefix: String::new(), cursor: None, limit: 1_000 };
            let page = self.store().records(query).await.expect("a read on a store without faults");
            assert_eq!(page.cursor, None, "a case holds few records");
            all.extend(page.items);
        }
        all
    }

    /// Asserts how many tasks are in a phase: by the counts where they are exact, otherwise by the listing.
    pub async fn count_is(&self, phase: Phase, expected: usize) {
        let counts = self.counts().await;
        if counts.exact {
            assert_eq!(counts.get(phase), expected as u64, "tasks counted as {phase}");
        } else {
            let filter = TaskFilter { phases: vec![phase], ..TaskFilter::all(ns()) };
            assert_eq!(self.list(filter, ListOrder::OldestFirst, 100).await.len(), expected, "tasks listed as {phase}");
        }
    }

    /// What must hold after every case: no damage, and counts that agree with the listing where they call themselves exact.
    pub async fn finish(&self) {
        let findings = match self.store().check(CheckDepth::Full).await {
            Ok(findings) => findings,
            Err(error) if error.code() == ReasonCode::StoreClosed => return,
            Err(error) => panic!("the check failed: {error}"),
        };
        assert!(findings.is_empty(), "the store found damage: {findings:?}");
        let counts = self.counts().await;
        if counts.exact {
            for phase in Phase::ALL {
                let filter = TaskFilter { phases: vec![phase], ..TaskFilter::all(ns()) };
                let listed: BTreeSet<String> =
                    self.list(filter, ListOrder::OldestFirst, 100).await.into_iter().collect();
                assert_eq!(counts.get(phase), listed.len() as u64, "count and listing of {phase} agree");
            }
        }
    }
}

/// Runs this many at once, each on a task of its own, and gives their answers in order.
pub async fn at_once<T, F>(count: usize, each: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let gate = Arc::new(tokio::sync::Barrier::new(count));
    let spawn = |work: F| {
        let gate = gate.clone();
        tokio::spawn(async move {
            gate.wait().await;
            work.await
        })
    };
    let running: Vec<_> = (0..count).map(each).map(spawn).collect();
    let mut answers = Vec::with_capacity(count);
    for one in running {
        answers.push(one.await.expect("a racer that does not panic"));
    }
    answers
}

/// The ids of tasks, in their order.
pub fn ids(tasks: &[Arc<Task>]) -> Vec<&str> {
    tasks.iter().map(|task| task.id().as_str()).collect()
}

/// The tasks of a claim's answer.
pub fn tasks_of(claimed: Claimed) -> Vec<Arc<Task>> {
    claimed.tasks.iter().filter_map(|versioned| versioned.record.as_task().cloned()).collect()
}

/// A delete of whatever is there.
pub fn delete(key: Key) -> Write {
    Write { key, expect: Expect::Any, action: Action::Delete }
}

/// A check that changes nothing.
pub fn check(key: Key, expect: Expect) -> Write {
    Write { key, expect, action: Action::Check }
}

/// An addition to a counter.
pub fn add(key: Key, by: i64) -> Write {
    Write { key, expect: Expect::Any, action: Action::Add(by) }
}

/// A delete of a record as it was read.
pub fn delete_at(key: Key, revision: Revision) -> Write {
    Write { key, expect: Expect::At(revision), action: Action::Delete }
}

/// The revisions of a commit that must be applied.
pub fn applied(answer: Answer) -> Vec<Option<Revision>> {
    match answer {
        Answer::Applied(applied) => applied.revisions,
        other => panic!("expected an applied commit, got {other:?}"),
    }
}

/// What a commit that must conflict found, by key.
pub fn found(answer: Answer) -> Vec<(Key, Option<Versioned>)> {
    match answer {
        Answer::Conflict(mut conflict) => {
            conflict.found.sort_by(|a, b| a.0.cmp(&b.0));
            conflict.found
        }
        other => panic!("expected a conflict, got {other:?}"),
    }
}

/// A question without choices or deadline.
pub fn question(text: &str) -> Question {
    let id = QuestionId::new("q-1").expect("a valid id");
    Question { id, text: Arc::from(text), choices: Vec::new(), deadline: None, default: None }
}

/// Names as a question answers them.
pub fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}
