//! Random operations: the same sequence on the store and on the naive model, compared after every step and at the end.

use std::fmt::Debug;
use std::sync::Arc;

use ekiden_core::attempt::Stage;
use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::dependency::OnParentFailure;
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{
    GroupId, IdempotencyKey, LaneKey, Namespace, OpId, QuestionId, RunnerId, SessionId, TaskId, UniqueKey,
};
use ekiden_core::index::DueIndex;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lane::{Hold, Lane, LaneSpec};
use ekiden_core::lease::{Evidence, Token};
use ekiden_core::mailbox::MessageFields;
use ekiden_core::newer::Newer;
use ekiden_core::order::{Priority, Rank};
use ekiden_core::plan::{
    AddParents, Beat, ClearDead, DeclareDead, Enqueue, Forget, Goodbye, Happen, Plan, Purge, PurgeWhen, Retry,
    due_event,
};
use ekiden_core::pool::Profile;
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::{Record, Versioned};
use ekiden_core::retry::FailureKind;
use ekiden_core::runner::{Runner, RunnerStatus, Silence};
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::task::{Phase, Question, Spec, TaskEnvelope};
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::transition::Start;
use ekiden_core::unique::{Unique, UniqueHold};

use super::lab::{Lab, NOON, id, kind, ns, other_ns, pool, runner};
use super::model::Model;
use crate::entropy::Entropy;
use crate::ext::StoreExt;
use crate::op::{Answer, Op};
use crate::query::{CountScope, DueQuery, ListOrder, RecordQuery, TaskQuery};
use crate::store::{CheckDepth, Store};

/// Steps of one sequence: long enough for a task to live and die, short enough to read when it fails.
const STEPS: usize = 30;

/// Set to one number, replays that sequence alone.
const SEED_VARIABLE: &str = "EKIDEN_SEED";

/// C1–C22, C26: whatever is done, in whatever order, a store answers as the naive model does.
pub async fn random_operations_agree_with_the_naive_model(lab: Lab) {
    if let Some(seed) = std::env::var(SEED_VARIABLE).ok().and_then(|text| text.parse().ok()) {
        return sequence(&lab, seed).await;
    }
    let first = Entropy::from_system().next_u64() >> 16;
    for seed in (first..).take(lab.factory().random_sequences()) {
        sequence(&lab, seed).await;
    }
}

async fn sequence(lab: &Lab, seed: u64) {
    let store = lab.factory().open().await;
    let mut pair = Pair {
        seed,
        step: 0,
        now: NOON,
        dice: Entropy::from_seed(seed),
        model: Model::default(),
        store,
        sent: Vec::new(),
    };
    for step in 0..STEPS {
        pair.step = step;
        pair.random_step().await;
    }
    pair.compare_everything().await;
    let damage = pair.store.check(CheckDepth::Full).await.expect("a check on a store without faults");
    assert!(damage.is_empty(), "{}: {damage:?}", pair.place());
    pair.store.close().await.expect("a store can be closed");
}

/// The store and its model, side by side.
struct Pair {
    seed: u64,
    step: usize,
    now: Timestamp,
    dice: Entropy,
    store: Arc<dyn Store>,
    model: Model,
    /// Ops that were sent, to be sent again: for the store, for the model.
    sent: Vec<(Op, Op)>,
}

impl Pair {
    fn place(&self) -> String {
        format!("step {} of seed {seed} (replay: cargo xtask test --replay {seed})", self.step, seed = self.seed)
    }

    fn same<T: PartialEq + Debug>(&self, what: &str, store: &T, model: &T) {
        assert!(store == model, "{what} differs at {}\n store: {store:?}\n model: {model:?}", self.place());
    }

    async fn random_step(&mut self) {
        self.now = self.now + Millis::new(*self.dice.pick(&[0, 1, 500, 10_000, 300_000]));
        match self.dice.below(100) {
            0..20 => self.enqueue().await,
            20..40 => self.claim().await,
            40..60 => self.event().await,
            60..70 => self.maintain().await,
            70..75 => self.sweep().await,
            75..80 => self.runner().await,
            80..86 => self.raw_commit().await,
            86..90 => self.repeat().await,
            90..94 => self.other_plan().await,
            _ => self.read().await,
        }
    }

    /// Carries out a plan on both and compares what comes of it.
    async fn run<P: Plan + Sync + Debug>(&mut self, plan: P)
    where
        P::Done: Send + Debug,
    {
        let op = self.dice.op_id(self.now);
        let store = self.store.run(&plan, op, self.now).await.map_err(|error| error.code());
        let model = self.model.run(&plan, op, self.now).await.map_err(|error| error.code());
        self.same(&format!("{plan:?}"), &format!("{store:?}"), &format!("{model:?}"));
    }

    async fn apply(&mut self, store: Op, model: Op) {
        self.sent.push((store.clone(), model.clone()));
        let what = format!("{store:?}");
        let store = self.store.apply(vec![store]).await.pop().expect("one answer an op").expect("a well-formed op");
        let model = self.model.apply(vec![model]).await.pop().expect("one answer an op").expect("a well-formed op");
        self.same(&what, &facts(&store), &facts(&model));
    }

    fn some_task(&mut self) -> TaskId {
        id(&format!("t{}", self.dice.below(8)))
    }

    async fn enqueue(&mut self) {
        let mut spec = self.spec();
        let dice = &mut self.dice;
        if dice.chance(30) {
            let hold = *dice.pick(&[Hold::UntilFinal, Hold::UntilFinal, Hold::WhileRunning]);
            let key = LaneKey::new(one_of(dice, &["l1", "l2"])).expect("a valid id");
            spec.lane = Some(Arc::new(LaneSpec { key, width: 1 + u32::from(dice.chance(30)), hold }));
            spec.message =
                dice.chance(20).then(|| Box::new(MessageFields { supersede: true, ..MessageFields::default() }));
        }
        if dice.chance(20) {
            let hold =
                *dice.pick(&[UniqueHold::WhileOpen, UniqueHold::For(Millis::from_secs(5)), UniqueHold::WhileKept]);
            spec.unique =
                Some(Arc::new(Unique { key: UniqueKey::new(dice.pick(&["u1", "u2"])).expect("a valid id"), hold }));
        }
        let start = if dice.chance(15) { Start::Held } else { Start::Released };
        let idempotency = dice.chance(10).then(|| IdempotencyKey::new("i1").expect("a valid id"));
        let mut parents: Vec<TaskId> =
            if dice.chance(30) { vec![self.some_task(), self.some_task()] } else { Vec::new() };
        parents.dedup();
        self.run(Enqueue { spec: Arc::new(spec), start, parents, idempotency }).await;
    }

    fn spec(&mut self) -> Spec {
        let name = self.some_task();
        let dice = &mut self.dice;
        let mut policy = Profile::Embedded.settings().policy;
        {
            let policy = Arc::make_mut(&mut policy);
            policy.attempts_max = 1 + u32::from(dice.chance(70));
            policy.reopen = dice.chance(50);
        }
        let envelope = TaskEnvelope::json(kind(one_of(dice, &["k1", "k2"])), "{}");
        let mut spec = Spec::new(ns(), pool(one_of(dice, &["p1", "p2"])), name, envelope, policy, self.now);
        spec.rank = Rank::from(*dice.pick(&[Priority::LOW, Priority::NORMAL, Priority::HIGH]));
        spec.run_at = dice.chance(25).then(|| self.now + Millis::new(10_000));
        spec.expires_at = dice.chance(15).then(|| self.now + Millis::new(20_000));
        spec.group = dice.chance(30).then(|| GroupId::new("g").expect("a valid id"));
        spec.session = dice.chance(30).then(|| SessionId::new("s").expect("a valid id"));
        spec.on_parent_failure = *dice.pick(&[OnParentFailure::Block, OnParentFailure::Cancel, OnParentFailure::Run]);
        spec
    }

    async fn claim(&mut self) {
        let dice = &mut self.dice;
        let mut pools = Vec::new();
        for name in ["p1", "p2"] {
            let running_max = dice.chance(30).then_some(2);
            pools.push(ClaimPool { paused: dice.chance(5), running_max, ..ClaimPool::open(ns(), pool(name)) });
        }
        if dice.chance(40) {
            pools.remove(dice.below(2));
        }
        let claim = Claim {
            id: dice.op_id(self.now),
            now: self.now,
            pools,
            kinds: if dice.chance(50) { Kinds::Any } else { Kinds::Only([kind(one_of(dice, &["k1", "k2"]))].into()) },
            limit: 1 + dice.below(3),
            holder: some_runner(dice),
            lease: if dice.chance(70) { LeaseTerm::Heartbeat } else { LeaseTerm::For(Millis::from_secs(5)) },
        };
        self.apply(Op::Claim(claim.clone()), Op::Claim(claim)).await;
    }

    async fn event(&mut self) {
        let task = self.some_task();
        let known = self.model.get_one(Key::task(&ns(), &task)).await.expect("the model answers");
        let execution_no =
            known.as_ref().and_then(|found| found.record.as_task()).map_or(1, |task| task.state.execution_no);
        let event = some_event(&mut self.dice, execution_no);
        self.run(Happen { task: Key::task(&ns(), &task), event }).await;
    }

    async fn maintain(&mut self) {
        let index = *self.dice.pick(&DueIndex::ALL);
        let query = DueQuery { namespace: ns(), index, until: self.now, limit: 1 + self.dice.below(20) };
        let due = self.store.due(query.clone()).await.expect("a read on a store without faults");
        let expected = self.model.due(query).await.expect("the model answers");
        self.same(&format!("due {index:?}"), &due, &expected);
        for entry in expected {
            match index {
                DueIndex::Purge => self.run(Purge { task: entry.key, when: PurgeWhen::Due }).await,
                DueIndex::Forget => self.run(Forget { record: entry.key, when: PurgeWhen::Due }).await,
                DueIndex::Runner => self.run(DeclareDead { runner: entry.key, silence: Silence::ByClock }).await,
                index => {
                    if let Some(happen) = due_event(index, entry.key) {
                        self.run(happen).await;
                    }
                }
            }
        }
    }

    async fn sweep(&mut self) {
        let query = DueQuery { namespace: ns(), index: DueIndex::Sweep, until: self.now, limit: 10 };
        let open = self.model.due(query).await.expect("the model answers");
        if open.is_empty() {
            let mut filter = TaskFilter::all(ns());
            filter.phases = vec![*self.dice.pick(&Phase::ALL)];
            let work = [SweepWork::Cancel(filter.clone()), SweepWork::Retry(filter.clone()), SweepWork::Purge(filter)];
            // One that ended is remembered under its name.
            let name = format!("bulk-{}", self.dice.below(6));
            let name = ekiden_core::id::SweepId::new(name).expect("a valid id");
            let sweep = Record::Sweep(Arc::new(Sweep::new(name.clone(), self.dice.pick(&work).clone(), self.now)));
            return self.put_raw(Key::sweep(&ns(), &name), sweep).await;
        }
        let at = self.dice.below(open.len());
        let Some(entry) = open.into_iter().nth(at) else { return };
        let (dice, now) = (&mut self.dice, self.now);
        let step = self.model.sweep_step(entry.key, 24, || dice.task_id(now)).await.expect("the model answers");
        if let Some(step) = step {
            self.run(step).await;
        }
    }

    async fn runner(&mut self) {
        let runner = some_runner(&mut self.dice);
        let key = Key::runner(&ns(), &runner);
        let record = Runner {
            namespace: ns(),
            id: runner,
            started_at: self.now,
            last_heartbeat: self.now,
            status: RunnerStatus::Running,
            lease: Millis::from_secs(5),
            project_root: String::new(),
            pools: Vec::new(),
            kinds: Vec::new(),
            newer: Newer::NONE,
        };
        match self.dice.below(5) {
            0 | 1 => self.run(Beat { runner: record }).await,
            2 => self.run(DeclareDead { runner: key, silence: Silence::ByClock }).await,
            3 => self.run(ClearDead { runner: key }).await,
            _ => self.run(Goodbye { runner: key }).await,
        }
    }

    async fn other_plan(&mut self) {
        let task = Key::task(&ns(), &self.some_task());
        match self.dice.below(3) {
            0 => {
                let parents = vec![self.some_task()];
                self.run(AddParents { task, parents }).await;
            }
            1 => {
                let new_id = self.dice.task_id(self.now);
                self.run(Retry { task, new_id }).await;
            }
            _ => self.run(Purge { task, when: PurgeWhen::OnDemand }).await,
        }
    }

    /// A commit of raw writes to a few keys, guarded by what each side has, or by what it once had.
    async fn raw_commit(&mut self) {
        let op = self.dice.op_id(self.now);
        let keys = [raw_lane("a"), raw_lane("b"), raw_lane("c"), Key::running(&other_ns(), &pool("p1"))];
        let (mut store, mut model) = (Vec::new(), Vec::new());
        for key in keys {
            if self.dice.chance(40) {
                continue;
            }
            let found = (self.read_one(&key).await, self.model.get_one(key.clone()).await.expect("the model answers"));
            let stale = self.dice.chance(15);
            let choice = self.dice.below(5);
            let number = self.dice.below(100) as u64;
            store.push(raw_write(&key, found.0, choice, stale, number));
            model.push(raw_write(&key, found.1, choice, stale, number));
        }
        if let (Ok(store), Ok(model)) = (Commit::new(op, store), Commit::new(op, model)) {
            self.apply(Op::Commit(store), Op::Commit(model)).await;
        }
    }

    async fn put_raw(&mut self, key: Key, record: Record) {
        let op = self.dice.op_id(self.now);
        let commit = || {
            Commit::new(op, vec![Write::put(key.clone(), Expect::Absent, record.clone())])
                .expect("a well-formed commit")
        };
        self.apply(Op::Commit(commit()), Op::Commit(commit())).await;
    }

    /// A reply got lost: something that was sent is sent again. Or a claim that was sent is changed and sent under its old id.
    async fn repeat(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let (store, model) = match self.dice.pick(&self.sent).clone() {
            (Op::Claim(claim), _) if self.dice.chance(50) => {
                let claim = self.changed_claim(claim);
                (Op::Claim(claim.clone()), Op::Claim(claim))
            }
            both => both,
        };
        self.apply(store, model).await;
    }

    /// C26: the same id, for another holder or for other tasks.
    fn changed_claim(&mut self, claim: Claim) -> Claim {
        let dice = &mut self.dice;
        let open = |namespace: &Namespace, name| ClaimPool::open(namespace.clone(), pool(name));
        match dice.below(4) {
            0 => Claim { holder: some_runner(dice), ..claim },
            1 => Claim { kinds: Kinds::Only([kind(one_of(dice, &["k1", "k2"]))].into()), ..claim },
            2 => Claim { pools: vec![open(&ns(), one_of(dice, &["p1", "p2"]))], ..claim },
            _ => Claim { pools: ["p1", "p2"].map(|name| open(&other_ns(), name)).to_vec(), ..claim },
        }
    }

    async fn read(&mut self) {
        let mut filter = TaskFilter::all(ns());
        let dice = &mut self.dice;
        filter.phases = if dice.chance(50) { vec![*dice.pick(&Phase::ALL)] } else { Vec::new() };
        filter.pool = dice.chance(30).then(|| pool("p1"));
        filter.kind = dice.chance(30).then(|| kind("k1"));
        filter.group = dice.chance(20).then(|| GroupId::new("g").expect("a valid id"));
        filter.session = dice.chance(20).then(|| SessionId::new("s").expect("a valid id"));
        filter.held_by = dice.chance(20).then(|| some_runner(dice));
        let order = *dice.pick(&[ListOrder::NewestFirst, ListOrder::OldestFirst]);
        let limit = 1 + dice.below(4);
        let listed = drain_tasks(&self.store, &filter, order, limit).await;
        let expected = drain_tasks(&self.model, &filter, order, limit).await;
        self.same(&format!("listing {filter:?} {order:?}"), &listed, &expected);
        let scope = CountScope { namespace: ns(), pool: self.dice.chance(50).then(|| pool("p2")) };
        let counts = self.store.counts(scope.clone()).await.expect("a read on a store without faults");
        if counts.exact {
            self.same("counts", &counts, &self.model.counts(scope).await.expect("the model answers"));
        }
    }

    async fn read_one(&self, key: &Key) -> Option<Versioned> {
        self.store.get_one(key.clone()).await.expect("a read on a store without faults")
    }

    async fn compare_everything(&self) {
        let expected = self.model.everything();
        let keys = expected.iter().map(|found| found.key.clone()).collect();
        let found = self.store.get(keys).await.expect("a read on a store without faults");
        for (found, expected) in found.iter().zip(&expected) {
            self.same(&expected.key.to_string(), &found.as_ref().map(content), &Some(content(expected)));
        }
        for namespace in [ns(), other_ns()] {
            for kind in RecordKind::ALL.into_iter().filter(|kind| *kind != RecordKind::Task) {
                let query = RecordQuery {
                    namespace: namespace.clone(),
                    kind,
                    prefix: String::new(),
                    cursor: None,
                    limit: 1_000,
                };
                let names =
                    |page: crate::Page<Versioned>| page.items.into_iter().map(|found| found.key).collect::<Vec<_>>();
                let store = names(self.store.records(query.clone()).await.expect("a read on a store without faults"));
                let model = names(self.model.records(query).await.expect("the model answers"));
                self.same(&format!("{kind:?} records"), &store, &model);
            }
        }
        let store = self.store.namespaces(None, 10).await.expect("a read on a store without faults");
        let model = self.model.namespaces(None, 10).await.expect("the model answers");
        self.same("namespaces", &store, &model);
        let all = TaskFilter::all(ns());
        let listed = drain_tasks(&self.store, &all, ListOrder::OldestFirst, 100).await;
        self.same("all tasks", &listed, &drain_tasks(&self.model, &all, ListOrder::OldestFirst, 100).await);
    }
}

/// What two stores must agree on: everything but the revision, which is each store's own.
fn content(found: &Versioned) -> (Key, Record, OpId, OpId) {
    (found.key.clone(), found.record.clone(), found.created_by, found.last)
}

fn facts(answer: &Answer) -> String {
    match answer {
        Answer::Applied(_) => "applied".to_owned(),
        Answer::Conflict(conflict) => {
            let found: Vec<_> = conflict.found.iter().map(|(key, found)| (key, found.as_ref().map(content))).collect();
            format!("conflict {found:?}")
        }
        Answer::Claimed(claimed) => format!("claimed {:?}", claimed.tasks.iter().map(content).collect::<Vec<_>>()),
    }
}

async fn drain_tasks(store: &(impl Store + ?Sized), filter: &TaskFilter, order: ListOrder, limit: usize) -> Vec<Key> {
    let mut keys = Vec::new();
    let mut cursor = None;
    loop {
        let query = TaskQuery { filter: filter.clone(), order, cursor, limit };
        let page = store.tasks(query).await.expect("a read on a store without faults");
        keys.extend(page.items.into_iter().map(|found| found.key));
        cursor = page.cursor;
        if cursor.is_none() {
            return keys;
        }
    }
}

fn one_of(dice: &mut Entropy, names: &[&'static str]) -> &'static str {
    names[dice.below(names.len())]
}

fn some_runner(dice: &mut Entropy) -> RunnerId {
    runner(one_of(dice, &["r1", "r2"]))
}

fn some_event(dice: &mut Entropy, execution_no: u64) -> Event {
    let token = Token(if dice.chance(85) { execution_no } else { execution_no.saturating_sub(1) });
    let error: Arc<str> = Arc::from("oops");
    let question = Question {
        id: QuestionId::new("q").expect("a valid id"),
        text: Arc::from("which?"),
        choices: Vec::new(),
        deadline: None,
        default: None,
    };
    match dice.below(15) {
        0..3 => Event::Succeeded { token, result: None },
        3 | 4 => Event::Failed { token, kind: FailureKind::Retryable, error },
        5 => Event::Failed { token, kind: FailureKind::Permanent, error },
        6 => Event::Snoozed { token, delay: Millis::new(10_000) },
        7 => Event::Interrupted { token },
        8 => Event::Asked { token, question: Box::new(question) },
        9 => Event::Answered { question: question.id, content: Arc::from("this") },
        10 => Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None },
        11 => Event::AttemptEnded { token, stage: Stage::Verified },
        12 => Event::LeaseLost { evidence: Evidence::RunnerDead(some_runner(dice)) },
        13 => Event::Released,
        _ => Event::TimedOut { token },
    }
}

fn raw_lane(name: &str) -> Key {
    Key::lane(&other_ns(), &LaneKey::new(name).expect("a valid id"))
}

fn raw_write(key: &Key, found: Option<Versioned>, choice: usize, stale: bool, number: u64) -> Write {
    let expect = match found.filter(|_| !stale) {
        Some(found) => Expect::At(found.revision),
        None => Expect::Absent,
    };
    if key.kind == RecordKind::Counter {
        return Write {
            key: key.clone(),
            expect: Expect::Any,
            action: Action::Add(i64::try_from(number).unwrap_or(0) - 50),
        };
    }
    match choice {
        0 => Write { key: key.clone(), expect, action: Action::Check },
        1 => Write { key: key.clone(), expect: Expect::Any, action: Action::Delete },
        _ => {
            let lane = Lane { next: number, ..Lane::empty(1) };
            Write::put(key.clone(), expect, Record::Lane(Arc::new(lane)))
        }
    }
}
