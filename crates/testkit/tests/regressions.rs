//! Defects that random loads found, each as the shortest run that shows it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::commit::Commit;
use ekiden_core::dependency::OnParentFailure;
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{GroupId, Kind, LaneKey, Namespace, OpId, PoolName, RunnerId, SweepId, TaskId, UniqueKey};
use ekiden_core::index::DueIndex;
use ekiden_core::key::Key;
use ekiden_core::lane::LaneSpec;
use ekiden_core::lease::Token;
use ekiden_core::plan::{Draft, Enqueue, Enqueued, Happen, Lanes, Need, Plan, Retry, Stop, View};
use ekiden_core::pool::Profile;
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Record;
use ekiden_core::retry::FailureKind;
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::task::{Phase, Spec, TaskEnvelope};
use ekiden_core::time::Timestamp;
use ekiden_core::transition::Start;
use ekiden_core::unique::{Unique, UniqueHold};
use ekiden_store::entropy::Entropy;
use ekiden_store::{DueQuery, MemoryStore, Store, StoreExt};

const NOW: Timestamp = Timestamp::from_millis(1_794_744_000_000);

struct Lab {
    store: MemoryStore,
    entropy: Entropy,
}

fn ns() -> Namespace {
    Namespace::new("default").unwrap()
}

fn id(task: &str) -> TaskId {
    TaskId::new(task).unwrap()
}

fn key(task: &str) -> Key {
    Key::task(&ns(), &id(task))
}

fn wish(task: &str, parents: &[&str], change: impl FnOnce(&mut Spec)) -> Enqueue {
    let envelope = TaskEnvelope::json(Kind::new("k").unwrap(), "{}");
    let policy = Profile::Workspace.settings().policy;
    let mut spec = Spec::new(ns(), PoolName::new("p").unwrap(), id(task), envelope, policy, NOW);
    change(&mut spec);
    let parents = parents.iter().map(|parent| id(parent)).collect();
    Enqueue { spec: Arc::new(spec), start: Start::Released, parents, idempotency: None }
}

impl Lab {
    fn new() -> Self {
        Self { store: MemoryStore::new(), entropy: Entropy::from_seed(1) }
    }

    fn op(&mut self) -> OpId {
        self.entropy.op_id(NOW)
    }

    async fn run<P: Plan<Done: Send> + Sync>(&mut self, plan: P) -> P::Done {
        let op = self.op();
        self.store.run(&plan, op, NOW).await.unwrap()
    }

    async fn enqueue(&mut self, task: &str, parents: &[&str], change: impl FnOnce(&mut Spec)) -> Enqueued {
        self.run(wish(task, parents, change)).await
    }

    /// The commit of a plan as drafted from what is there now, to be sent later.
    async fn draft<P: Plan>(&mut self, plan: &P) -> Commit {
        let (op, mut view) = (self.op(), View::default());
        loop {
            match Draft::of(plan, op, &view, NOW, Lanes::Admit) {
                Ok((_, commit)) => return commit.expect("the plan writes something"),
                Err(Stop::Need(needs)) => {
                    for need in needs {
                        let Need::Record(key) = need else { panic!("this plan reads records only") };
                        view.insert(key.clone(), self.store.get_one(key).await.unwrap());
                    }
                }
                Err(Stop::Refused(refusal)) => panic!("{refusal}"),
            }
        }
    }

    async fn claim(&mut self) -> Vec<String> {
        let claim = Claim {
            id: self.op(),
            now: NOW,
            pools: vec![ClaimPool::open(ns(), PoolName::new("p").unwrap())],
            kinds: Kinds::Any,
            limit: 9,
            holder: RunnerId::new("r").unwrap(),
            lease: LeaseTerm::Heartbeat,
        };
        let claimed = self.store.claim(claim).await.unwrap();
        claimed.tasks.iter().map(|task| task.key.name.to_string()).collect()
    }

    /// Carries out every sweep to its end, eight items a step.
    async fn sweep(&mut self) {
        let query = DueQuery { namespace: ns(), index: DueIndex::Sweep, until: NOW, limit: 9 };
        while let Some(due) = self.store.due(query.clone()).await.unwrap().pop() {
            let step = self.store.sweep_step(due.key, 8, || id("new")).await.unwrap();
            self.run(step.expect("the due list of sweeps lists sweeps")).await;
        }
    }
}

struct CancelGroup(SweepId, GroupId);

impl Plan for CancelGroup {
    type Done = ();

    fn draft(&self, draft: &mut Draft<'_>) -> Result<(), Stop> {
        let key = Key::sweep(&ns(), &self.0);
        draft.need(std::slice::from_ref(&key))?;
        let filter = TaskFilter { group: Some(self.1.clone()), ..TaskFilter::all(ns()) };
        draft.put(key, Record::Sweep(Arc::new(Sweep::new(self.0.clone(), SweepWork::Cancel(filter), draft.now()))));
        Ok(())
    }
}

/// One commit of a bulk cancel took more members out of a lane than it had read, believed that nobody was
/// left and removed the lane; those behind waited for ever.
#[tokio::test]
async fn a_bulk_cancel_that_empties_the_head_of_a_lane_admits_those_behind() {
    let mut lab = Lab::new();
    let group = GroupId::new("g").unwrap();
    for number in 0..8 {
        let lane = Arc::new(LaneSpec::serial(LaneKey::new("l").unwrap()));
        let group = (number < 6).then(|| group.clone());
        lab.enqueue(&format!("t{number}"), &[], |spec| (spec.lane, spec.group) = (Some(lane), group)).await;
    }
    lab.run(CancelGroup(SweepId::new("c").unwrap(), group)).await;
    lab.sweep().await;
    assert_eq!(lab.claim().await, ["t6"]);
}

/// A child that came after its parent had died got no edge, so nobody told it when the parent was reopened
/// and succeeded.
#[tokio::test]
async fn a_child_of_a_dead_parent_runs_when_the_parent_is_reopened_and_succeeds() {
    let mut lab = Lab::new();
    lab.enqueue("parent", &[], |_| {}).await;
    assert_eq!(lab.claim().await, ["parent"]);
    let failed = Event::Failed { token: Token(1), kind: FailureKind::Permanent, error: Arc::from("no") };
    lab.run(Happen { task: key("parent"), event: failed }).await;
    lab.enqueue("child", &["parent"], |_| {}).await;
    let child = lab.store.get_one(key("child")).await.unwrap().unwrap();
    assert_eq!(child.record.as_task().unwrap().state.phase, Phase::Blocked);
    lab.run(Retry { task: key("parent"), new_id: id("unused") }).await;
    assert_eq!(lab.claim().await, ["parent"]);
    lab.run(Happen { task: key("parent"), event: Event::Succeeded { token: Token(2), result: None } }).await;
    lab.sweep().await;
    assert_eq!(lab.claim().await, ["child"]);
}

/// A task that is cancelled in the commit that makes it, because its parent had failed, removed its unique
/// key blindly: another task's, if that one had taken it meanwhile.
#[tokio::test]
async fn a_newborn_that_is_cancelled_leaves_the_unique_key_to_whoever_took_it() {
    let mut lab = Lab::new();
    lab.enqueue("parent", &[], |_| {}).await;
    lab.run(Happen {
        task: key("parent"),
        event: Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None },
    })
    .await;
    let unique = Arc::new(Unique { key: UniqueKey::new("u").unwrap(), hold: UniqueHold::WhileOpen });
    let newborn = wish("newborn", &["parent"], |spec| {
        spec.unique = Some(unique.clone());
        spec.on_parent_failure = OnParentFailure::Cancel;
    });
    let slow = lab.draft(&newborn).await;
    lab.enqueue("owner", &[], |spec| spec.unique = Some(unique.clone())).await;
    lab.store.commit(slow).await.unwrap();
    let third = lab.enqueue("third", &[], |spec| spec.unique = Some(unique)).await;
    assert_eq!(third, Enqueued::Existing(id("owner")));
}
