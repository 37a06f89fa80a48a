//! What a claim looks at does not depend on how many tasks wait. Counted, not timed.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::sync::Arc;

use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::commit::{Commit, Expect, Write};
use ekiden_core::id::{Kind, Namespace, OpId, PoolName, RunnerId, TaskId};
use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::pool::Profile;
use ekiden_core::record::Record;
use ekiden_core::task::{Spec, Task, TaskEnvelope};
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::transition::{Start, birth};
use ekiden_store::{Claimed, MemoryStore, Op, Store, StoreExt};

const NOON: Timestamp = Timestamp::from_millis(1_794_744_000_000);
const MILLION: usize = 1_000_000;

/// A store to which many tasks are added quickly, all made from one template.
struct Backlog {
    store: MemoryStore,
    template: Spec,
    made: u64,
}

impl Backlog {
    fn new() -> Self {
        let names =
            (Namespace::new("default").unwrap(), PoolName::new("work").unwrap(), TaskId::new("template").unwrap());
        let envelope = TaskEnvelope::json(Kind::new("asked").unwrap(), "{}");
        let policy = Profile::Embedded.settings().policy;
        let template = Spec::new(names.0, names.1, names.2, envelope, policy, NOON);
        Self { store: MemoryStore::new(), template, made: 0 }
    }

    async fn add(&mut self, count: usize, change: impl Fn(&mut Spec)) {
        let mut left = count;
        while left > 0 {
            let batch = left.min(limits::APPLY_OPS_MAX);
            let ops = (0..batch).map(|_| self.enqueue(&change)).collect();
            for outcome in self.store.apply(ops).await {
                outcome.unwrap();
            }
            left -= batch;
        }
    }

    fn enqueue(&mut self, change: &impl Fn(&mut Spec)) -> Op {
        self.made += 1;
        let mut spec = self.template.clone();
        spec.id = TaskId::new(format!("task-{:08}", self.made)).unwrap();
        change(&mut spec);
        let state = birth(&spec, Start::Released, Vec::new(), NOON).state;
        let key = Key::task(&spec.namespace, &spec.id);
        let put = Write::put(key, Expect::Absent, Record::from(Task { spec: Arc::new(spec), state }));
        Op::Commit(Commit::new(OpId::from_bits(u128::from(self.made)), vec![put]).unwrap())
    }

    /// Claims ten tasks of the kind that is asked for, and says what was looked at.
    async fn visited(&mut self) -> usize {
        let claimed = self.claim(Kinds::Only([Kind::new("asked").unwrap()].into())).await;
        assert_eq!(claimed.tasks.len(), 10);
        claimed.visited
    }

    async fn claim(&mut self, kinds: Kinds) -> Claimed {
        self.made += 1;
        let claim = Claim {
            id: OpId::from_bits(u128::from(self.made)),
            now: NOON + Millis::from_secs(60),
            pools: vec![ClaimPool::open(self.template.namespace.clone(), self.template.pool.clone())],
            kinds,
            limit: 10,
            holder: RunnerId::new("runner-1").unwrap(),
            lease: LeaseTerm::Heartbeat,
        };
        self.store.claim(claim).await.unwrap()
    }
}

/// C17: a claim for any kind looks at a bounded number of kinds.
#[tokio::test]
async fn a_claim_for_any_kind_looks_at_no_more_than_256_kinds() {
    let mut backlog = Backlog::new();
    for n in 0..400 {
        let kind = Kind::new(format!("kind-{n:03}")).unwrap();
        backlog.add(1, |spec| spec.envelope.task_type = kind.clone()).await;
    }
    let mut taken = 0;
    for _ in 0..100 {
        let claimed = backlog.claim(Kinds::Any).await;
        assert!(claimed.visited <= limits::KINDS_A_POOL_MAX + 10, "{}", claimed.visited);
        taken += claimed.tasks.len();
    }
    assert_eq!(taken, 400);
}

/// C17: one thousand or one million that wait, and a million of a kind nobody asks for in front.
#[tokio::test]
async fn a_claim_looks_at_as_much_in_a_million_as_in_a_thousand() {
    let mut backlog = Backlog::new();
    backlog.add(1_000, |_| {}).await;
    let at_a_thousand = backlog.visited().await;

    backlog.add(MILLION - 1_000, |_| {}).await;
    assert_eq!(backlog.visited().await, at_a_thousand);

    let unasked = Kind::new("unasked").unwrap();
    backlog
        .add(MILLION, |spec| {
            spec.envelope.task_type = unasked.clone();
            spec.created_at = NOON - Millis::from_secs(60);
        })
        .await;
    assert_eq!(backlog.visited().await, at_a_thousand);
}

/// C15, C17: a hundred thousand tasks become due at once; a claim promotes its share and no more.
#[tokio::test]
async fn a_claim_promotes_a_bounded_share_of_what_became_due() {
    let mut backlog = Backlog::new();
    backlog.add(100_000, |spec| spec.run_at = Some(NOON + Millis::from_secs(30))).await;
    let first = backlog.visited().await;
    assert!(first <= limits::CLAIM_PROMOTE_MAX + 10 + 2, "{first}");
    assert_eq!(backlog.visited().await, first);
}
