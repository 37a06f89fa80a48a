//! Cases: bad input. Every refusal is typed, certain, and leaves everything as it was.

use std::sync::Arc;

use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::commit::{Commit, Expect, Write};
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{IdempotencyKey, LaneKey, UniqueKey};
use ekiden_core::index::DueIndex;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lane::{Hold, LaneSpec};
use ekiden_core::lease::Token;
use ekiden_core::limits;
use ekiden_core::plan::Enqueue;
use ekiden_core::pool::{Policy, Profile};
use ekiden_core::reason::ReasonCode;
use ekiden_core::task::{Phase, Spec};
use ekiden_core::time::Millis;
use ekiden_core::unique::{Unique, UniqueHold};

use super::lab::{Lab, add, applied, id, kind, note, note_key, ns, pool, task_key};
use crate::error::{Happened, StoreError};
use crate::ext::StoreExt;
use crate::op::Op;
use crate::query::{DueQuery, ListOrder, RecordQuery, TaskQuery};

fn invalid<T: std::fmt::Debug>(code: ReasonCode, outcome: Result<T, StoreError>) {
    let error = outcome.expect_err("this must be refused");
    assert_eq!((error.code(), error.happened, error.retryable), (code, Happened::NotApplied, false), "{error}");
}

fn due(lab: &Lab, limit: usize) -> DueQuery {
    DueQuery { namespace: ns(), index: DueIndex::Promote, until: lab.now(), limit }
}

fn tasks(limit: usize) -> TaskQuery {
    TaskQuery { filter: TaskFilter::all(ns()), order: ListOrder::OldestFirst, cursor: None, limit }
}

fn records(kind: RecordKind, limit: usize) -> RecordQuery {
    RecordQuery { namespace: ns(), kind, prefix: String::new(), cursor: None, limit }
}

/// C19
pub async fn due_refuses_limits_out_of_range(lab: Lab) {
    for limit in [0, limits::DUE_ITEMS_MAX + 1, usize::MAX] {
        invalid(ReasonCode::QueryInvalid, lab.store().due(due(&lab, limit)).await);
    }
    for limit in [1, limits::DUE_ITEMS_MAX] {
        assert_eq!(lab.store().due(due(&lab, limit)).await.expect("a limit within range").len(), 0);
    }
}

/// C20
pub async fn tasks_refuses_limits_out_of_range(lab: Lab) {
    lab.enqueue("a").await;
    for limit in [0, limits::PAGE_ITEMS_MAX + 1, usize::MAX] {
        invalid(ReasonCode::QueryInvalid, lab.store().tasks(tasks(limit)).await);
    }
    for limit in [1, limits::PAGE_ITEMS_MAX] {
        lab.soon(1, || async { lab.store().tasks(tasks(limit)).await.expect("within range").items.len() }).await;
    }
}

/// C18
pub async fn records_refuses_limits_out_of_range(lab: Lab) {
    lab.put(&note_key("a"), Expect::Absent, note("one")).await;
    for limit in [0, limits::PAGE_ITEMS_MAX + 1, usize::MAX] {
        invalid(ReasonCode::QueryInvalid, lab.store().records(records(RecordKind::Unique, limit)).await);
    }
    for limit in [1, limits::PAGE_ITEMS_MAX] {
        let page = lab.store().records(records(RecordKind::Unique, limit)).await.expect("within range");
        assert_eq!(page.items.len(), 1);
    }
}

/// C18, C20
pub async fn records_refuses_to_list_tasks(lab: Lab) {
    lab.enqueue("a").await;
    invalid(ReasonCode::QueryInvalid, lab.store().records(records(RecordKind::Task, 10)).await);
}

/// C25
pub async fn namespaces_refuses_limits_out_of_range(lab: Lab) {
    lab.enqueue("a").await;
    for limit in [0, limits::PAGE_ITEMS_MAX + 1, usize::MAX] {
        invalid(ReasonCode::QueryInvalid, lab.store().namespaces(None, limit).await);
    }
    for limit in [1, limits::PAGE_ITEMS_MAX] {
        assert_eq!(lab.store().namespaces(None, limit).await.expect("within range").items, [ns()]);
    }
}

/// C20
pub async fn tasks_refuses_a_cursor_that_no_page_gave_out(lab: Lab) {
    lab.enqueue("a").await;
    for cursor in ["", "not a cursor", "🙂", "x:", ":", &"9".repeat(10_000)] {
        let query = TaskQuery { cursor: Some(cursor.to_owned()), ..tasks(10) };
        invalid(ReasonCode::QueryInvalid, lab.store().tasks(query).await);
    }
}

/// C18
pub async fn get_refuses_too_many_keys(lab: Lab) {
    let keys = (0..=limits::GET_KEYS_MAX).map(|n| note_key(&format!("k-{n}"))).collect();
    invalid(ReasonCode::QueryInvalid, lab.store().get(keys).await);
}

/// C10: refused as a whole, with one answer an op.
pub async fn apply_refuses_too_many_ops(lab: Lab) {
    lab.enqueue("a").await;
    let before = lab.snapshot(&["a"]).await;
    let counter = Key::running(&ns(), &pool("work"));
    let put = |n: usize| {
        let writes =
            vec![Write::put(note_key(&format!("k-{n}")), Expect::Absent, note("one")), add(counter.clone(), 1)];
        Op::Commit(Commit::new(lab.op(), writes).expect("a well-formed commit"))
    };
    let mut ops = vec![Op::Claim(lab.claim_one())];
    ops.extend((0..limits::APPLY_OPS_MAX).map(put));
    let outcomes = lab.store().apply(ops).await;
    assert_eq!(outcomes.len(), limits::APPLY_OPS_MAX + 1);
    outcomes.into_iter().for_each(|outcome| invalid(ReasonCode::QueryInvalid, outcome));
    assert_eq!(lab.snapshot(&["a"]).await, before, "nothing was written and nothing claimed");
}

/// Claims that [`Claim::check`] refuses, each with its reason.
fn wrong_claims(lab: &Lab) -> Vec<(ReasonCode, Claim)> {
    let open = || ClaimPool::open(ns(), pool("work"));
    let pools = |count: usize| {
        let other = (1..count).map(|n| ClaimPool::open(ns(), pool(&format!("p-{n}"))));
        std::iter::once(open()).chain(other).collect::<Vec<_>>()
    };
    let kinds = |count: usize| Kinds::Only((0..count).map(|n| kind(&format!("k-{n}"))).collect());
    let claim = || lab.claim_one();
    let invalid = [
        Claim { pools: Vec::new(), ..claim() },
        Claim { pools: vec![open(), open()], ..claim() },
        Claim { pools: pools(limits::CLAIM_POOLS_MAX + 1), ..claim() },
        Claim { kinds: kinds(0), ..claim() },
        Claim { kinds: kinds(limits::CLAIM_KINDS_MAX + 1), ..claim() },
        Claim { limit: 0, ..claim() },
        Claim { limit: limits::CLAIM_TASKS_MAX + 1, ..claim() },
    ];
    let endless = Millis::new(limits::LEASE_MAX.as_u64() + 1);
    let absurd = [Millis::ZERO, endless].map(|span| Claim { lease: LeaseTerm::For(span), ..claim() });
    let invalid = invalid.into_iter().map(|claim| (ReasonCode::ClaimInvalid, claim));
    invalid.chain(absurd.into_iter().map(|claim| (ReasonCode::DurationInvalid, claim))).collect()
}

/// C11
pub async fn claims_for_nothing_or_too_much_are_refused(lab: Lab) {
    lab.enqueue("ready").await;
    let soon = Some(lab.now() + Millis::from_secs(60));
    lab.enqueue_with("waiting", |spec| spec.run_at = soon).await;
    lab.wait(Millis::from_secs(60));
    let before = lab.snapshot(&["ready", "waiting"]).await;
    for (code, claim) in wrong_claims(&lab) {
        invalid(code, lab.store().claim(claim).await);
        assert_eq!(lab.snapshot(&["ready", "waiting"]).await, before, "neither claimed nor promoted");
    }
    assert_eq!(lab.take().await.id().as_str(), "ready");
}

/// C11: the largest claim is not too large.
pub async fn claims_at_their_limits_are_answered(lab: Lab) {
    lab.enqueue("a").await;
    let kinds = (1..limits::CLAIM_KINDS_MAX).map(|n| kind(&format!("k-{n}"))).chain([kind("greet")]).collect();
    let pools = (1..limits::CLAIM_POOLS_MAX).map(|n| pool(&format!("p-{n}"))).chain([pool("work")]);
    let claim = Claim {
        kinds: Kinds::Only(kinds),
        pools: pools.map(|pool| ClaimPool::open(ns(), pool)).collect(),
        limit: limits::CLAIM_TASKS_MAX,
        lease: LeaseTerm::For(limits::LEASE_MAX),
        ..lab.claim_one()
    };
    assert_eq!(lab.claim(claim).await.len(), 1);
}

/// An enqueue that would also take keys and a place in a lane, to see that none of it happens.
fn greedy(lab: &Lab, spec: Spec) -> Enqueue {
    let lane = LaneSpec::serial(LaneKey::new("lane").expect("a valid id"));
    let unique = Unique { key: UniqueKey::new("unique").expect("a valid id"), hold: UniqueHold::WhileOpen };
    let lane = spec.lane.clone().unwrap_or_else(|| Arc::new(lane));
    let spec = Spec { lane: Some(lane), unique: Some(Arc::new(unique)), ..spec };
    let idempotency = IdempotencyKey::new("again").ok();
    Enqueue { idempotency, ..lab.plan_of(spec) }
}

async fn refused(lab: &Lab, code: ReasonCode, plan: Enqueue) {
    let before = lab.snapshot(&["new", "parent"]).await;
    assert_eq!(lab.refused(&plan).await, code);
    assert_eq!(lab.snapshot(&["new", "parent"]).await, before, "{code:?} leaves everything as it was");
    assert_eq!(lab.task("new").await, None);
}

/// C1
pub async fn specs_out_of_range_are_refused_and_nothing_is_written(lab: Lab) {
    let policy =
        |attempts_max| Arc::new(Policy { attempts_max, ..Policy::clone(&Profile::Embedded.settings().policy) });
    let lane = |width| {
        let key = LaneKey::new("lane").expect("a valid id");
        Some(Arc::new(LaneSpec { key, width, hold: Hold::UntilFinal }))
    };
    let far = lab.now() + limits::DURATION_MAX + Millis::new(1);
    let labels = (0..=limits::LABELS_MAX).map(|n| (Arc::from(format!("l-{n}")), Arc::from("x"))).collect();
    let spec = || lab.spec("new");
    let mut large = spec();
    large.envelope.payload = vec![b'x'; limits::PAYLOAD_BYTES_MAX + 1].into();
    for (code, spec) in [
        (ReasonCode::PayloadTooLarge, large),
        (ReasonCode::NumberOutOfRange, Spec { policy: policy(0), ..spec() }),
        (ReasonCode::NumberOutOfRange, Spec { policy: policy(limits::ATTEMPTS_MAX + 1), ..spec() }),
        (ReasonCode::LaneInvalid, Spec { lane: lane(0), ..spec() }),
        (ReasonCode::LaneInvalid, Spec { lane: lane(limits::LANE_WIDTH_MAX + 1), ..spec() }),
        (ReasonCode::DurationInvalid, Spec { run_at: Some(far), ..spec() }),
        (ReasonCode::LabelsInvalid, Spec { labels, ..spec() }),
    ] {
        refused(&lab, code, greedy(&lab, spec)).await;
    }
    lab.new_task(greedy(&lab, spec())).await;
    assert!(lab.snapshot(&["new"]).await.len() > 3, "without the fault all of it is written");
}

/// C1
pub async fn parents_that_cannot_be_are_refused_and_nothing_is_written(lab: Lab) {
    lab.enqueue("parent").await;
    let with = |parents: &[&str]| {
        let parents = parents.iter().map(|parent| id(parent)).collect();
        Enqueue { parents, ..greedy(&lab, lab.spec("new")) }
    };
    let many: Vec<String> = (0..=limits::PARENTS_MAX).map(|n| format!("p-{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    refused(&lab, ReasonCode::DependencyCycle, with(&["new"])).await;
    refused(&lab, ReasonCode::DependencyCycle, with(&["parent", "new"])).await;
    refused(&lab, ReasonCode::DependencyUnknown, with(&["unknown"])).await;
    refused(&lab, ReasonCode::DependencyUnknown, with(&["parent", "unknown"])).await;
    refused(&lab, ReasonCode::DependencyTooMany, with(&["parent", "parent"])).await;
    refused(&lab, ReasonCode::DependencyTooMany, with(&many)).await;
    let parent = lab.task("parent").await.expect("it stays");
    assert!(!parent.state.has_dependents, "nobody waits for it");
    lab.new_task(with(&["parent"])).await;
    assert_eq!(lab.phase("new").await, Phase::Blocked);
}

/// C1
pub async fn an_id_that_is_taken_is_refused_and_nothing_is_written(lab: Lab) {
    lab.enqueue("parent").await;
    let before = lab.snapshot(&["parent"]).await;
    let plan = greedy(&lab, Spec { title: Some(Arc::from("another")), ..lab.spec("parent") });
    assert_eq!(lab.refused(&plan).await, ReasonCode::TaskExists);
    assert_eq!(lab.snapshot(&["parent"]).await, before);
}

/// C1
pub async fn a_result_that_is_too_large_is_refused_and_the_task_runs_on(lab: Lab) {
    lab.enqueue("a").await;
    lab.take().await;
    let before = lab.get(&task_key("a")).await;
    let succeed = |bytes: usize| Event::Succeeded { token: Token(1), result: Some(vec![b'x'; bytes].into()) };
    let error = lab.happen("a", succeed(limits::RESULT_BYTES_MAX + 1)).await.expect_err("this must be refused");
    assert_eq!(error.code(), ReasonCode::PayloadTooLarge);
    assert_eq!(lab.get(&task_key("a")).await, before);
    let done = lab.changed("a", succeed(limits::RESULT_BYTES_MAX)).await;
    assert_eq!(done.state.result.as_ref().map(|result| result.len()), Some(limits::RESULT_BYTES_MAX));
}

/// C2: no store may answer to a commit that cannot be made.
pub async fn commits_that_make_no_sense_cannot_be_made(lab: Lab) {
    let put = |name: &str| Write::put(note_key(name), Expect::Absent, note("one"));
    let code = |writes: Vec<Write>| Commit::new(lab.op(), writes).expect_err("this must be refused").code;
    assert_eq!(code(Vec::new()), ReasonCode::CommitTooLarge);
    let many = (0..=limits::COMMIT_WRITES_MAX).map(|n| put(&format!("k-{n}"))).collect();
    assert_eq!(code(many), ReasonCode::CommitTooLarge);
    assert_eq!(code(vec![put("a"), put("b"), put("a")]), ReasonCode::CommitKeyTwice);
    assert_eq!(code(vec![add(Key::running(&ns(), &pool("work")), 1)]), ReasonCode::CommitInvalid);
    assert_eq!(code(vec![Write::put(note_key("a"), Expect::Any, note("one"))]), ReasonCode::CommitInvalid);
    applied(lab.commit(vec![put("a"), put("b")]).await);
}
