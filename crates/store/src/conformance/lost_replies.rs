//! Cases: replies get lost. Whoever repeats with the same id finds that nothing happened twice.

use std::collections::BTreeSet;
use std::sync::Arc;

use ekiden_core::claim::{Claim, ClaimPool};
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{OpId, TaskId};
use ekiden_core::key::Key;
use ekiden_core::lane::LaneSpec;
use ekiden_core::lease::Token;
use ekiden_core::plan::{Enqueued, Happen, Happened, Plan};
use ekiden_core::reason::ReasonCode;
use ekiden_core::task::{Phase, Spec, Task};
use ekiden_core::time::Millis;

use super::Lab;
use super::lab::{id, ids, lane, ns, pool, task_key, tasks_of};
use crate::entropy::Entropy;
use crate::error::Happened as Certainty;
use crate::ext::{PlanError, StoreExt};
use crate::layers::{Faults, Faulty, Retrying};
use crate::query::ListOrder;
use crate::store::Store;

fn faulty(lab: &Lab, faults: Faults) -> Faulty<Arc<dyn Store>> {
    Faulty::new(lab.store(), faults, 0)
}

/// The store, but every reply of an op is lost.
fn mute(lab: &Lab) -> Faulty<Arc<dyn Store>> {
    faulty(lab, Faults { reply_lost: 100, ..Faults::default() })
}

/// A caller that repeats, on a store that loses every second reply.
fn stubborn(lab: &Lab) -> Retrying<Faulty<Arc<dyn Store>>> {
    Retrying::new(faulty(lab, Faults { reply_lost: 50, ..Faults::default() }), 64)
}

fn limited() -> Vec<ClaimPool> {
    vec![ClaimPool { running_max: Some(3), ..ClaimPool::open(ns(), pool("work")) }]
}

fn success(task: &Task) -> Happen {
    let event = Event::Succeeded { token: Token(task.state.execution_no), result: None };
    Happen { task: task_key(task.id().as_str()), event }
}

/// Claims through a bad line. Where the index lags a repeated claim may take others (C14), so there the line is good.
async fn claimed(lab: &Lab, bad: &impl Store, claim: Claim) -> Vec<Arc<Task>> {
    if lab.store().info().exact_index {
        tasks_of(bad.claim(claim).await.expect("enough tries"))
    } else {
        tasks_of(lab.claim_now(claim).await)
    }
}

async fn unknown<P: Plan + Sync>(lab: &Lab, plan: &P, op: OpId)
where
    P::Done: Send + std::fmt::Debug,
{
    match mute(lab).run(plan, op, lab.now()).await {
        Err(PlanError::Store(error)) => assert_eq!(error.happened, Certainty::Unknown),
        other => panic!("expected a lost reply, got {other:?}"),
    }
}

async fn all(lab: &Lab) -> Vec<String> {
    lab.list(TaskFilter::all(ns()), ListOrder::OldestFirst, 100).await
}

/// C5
pub async fn an_enqueue_repeated_after_a_lost_reply_makes_one_task(lab: Lab) {
    let serial = Some(Arc::new(LaneSpec::serial(lane("l"))));
    let plan = lab.plan_of(Spec { lane: serial, ..lab.spec("t") });
    let op = lab.op();
    unknown(&lab, &plan, op).await;
    let stored = lab.task("t").await.expect("only the reply got lost");
    for _ in 0..3 {
        lab.wait(Millis::from_secs(5));
        let again = lab.store().run(&plan, op, lab.now()).await.expect("no refusal");
        assert_eq!(again, Enqueued::New(stored.clone()), "the same result, not a duplicate");
    }
    assert_eq!(lab.refused(&plan).await, ReasonCode::TaskExists, "under another id it is another request");
    assert_eq!(all(&lab).await, ["t"]);
    assert_eq!(lab.take().await.id(), &id("t"));
}

/// C5
pub async fn a_settlement_repeated_after_a_lost_reply_counts_once(lab: Lab) {
    lab.enqueue("t").await;
    let task = lab.take().await;
    let op = lab.op();
    unknown(&lab, &success(&task), op).await;
    let stored = lab.task("t").await.expect("it is there");
    assert_eq!(stored.state.phase, Phase::Succeeded);
    let again = lab.store().run(&success(&task), op, lab.now()).await.expect("no refusal");
    assert_eq!(again, Happened::AlreadyDone(stored.clone()));
    assert_eq!(stored.state.outcomes.succeeded, 1);
}

/// C5, C16
pub async fn a_stubborn_caller_settles_and_counts_once(lab: Lab) {
    let store = stubborn(&lab);
    let counter = Key::running(&ns(), &pool("work"));
    for round in 0..20 {
        let name = format!("t-{round:02}");
        let enqueued = store.run(&lab.plan_of(lab.spec(&name)), lab.op(), lab.now()).await.expect("64 tries");
        assert!(matches!(&enqueued, Enqueued::New(task) if task.id() == &id(&name)), "{enqueued:?}");
        let claim = Claim { pools: limited(), ..lab.claim_one() };
        let mut taken = claimed(&lab, &store, claim.clone()).await;
        if taken.is_empty() && !lab.store().info().exact_index {
            taken = lab.take_by(claim, 1).await;
        }
        assert_eq!(ids(&taken), [&name]);
        assert_eq!((taken[0].state.attempts, lab.counter(&counter).await), (1, 1));
        let settled = store.run(&success(&taken[0]), lab.op(), lab.now()).await.expect("64 tries");
        assert!(matches!(settled, Happened::Changed(_)), "the store recognises the commit: {settled:?}");
        assert_eq!(lab.counter(&counter).await, 0, "round {round}");
    }
    lab.count_is(Phase::Succeeded, 20).await;
}

/// C14, C16
pub async fn a_claim_repeated_after_a_lost_reply_gives_the_same_tasks(lab: Lab) {
    for name in ["a", "b", "c", "d"] {
        lab.enqueue(name).await;
        lab.wait(Millis::new(1));
    }
    if !lab.store().info().exact_index {
        return;
    }
    let claim = Claim { pools: limited(), limit: 2, ..lab.claim_one() };
    let lost = mute(&lab).claim(claim.clone()).await.expect_err("the reply got lost");
    assert_eq!(lost.happened, Certainty::Unknown);
    assert_eq!(lab.phase("a").await, Phase::Running, "only the reply got lost");
    for _ in 0..3 {
        let again = tasks_of(lab.claim_now(claim.clone()).await);
        assert_eq!(ids(&again), ["a", "b"]);
        assert!(again.iter().all(|task| task.state.attempts == 1));
    }
    assert_eq!(lab.counter(&Key::running(&ns(), &pool("work"))).await, 2);
    assert_eq!(lab.phase("c").await, Phase::Queued);
}

/// C10
pub async fn a_request_that_never_arrived_can_be_repeated_too(lab: Lab) {
    let lossy = faulty(&lab, Faults { request_lost: 100, ..Faults::default() });
    let (plan, op) = (lab.plan_of(lab.spec("t")), lab.op());
    let error = lossy.run(&plan, op, lab.now()).await.expect_err("the request got lost");
    assert!(matches!(error, PlanError::Store(error) if error.happened == Certainty::Unknown));
    assert_eq!(lab.task("t").await, None);
    assert!(matches!(lab.store().run(&plan, op, lab.now()).await, Ok(Enqueued::New(_))));
    let refusing = faulty(&lab, Faults { refused: 100, ..Faults::default() });
    let error = refusing.claim(lab.claim_one()).await.expect_err("the store refuses");
    assert_eq!(error.happened, Certainty::NotApplied);
    assert_eq!(lab.take().await.id(), &id("t"));
}

/// C5
pub async fn an_old_repetition_does_not_undo_what_came_after(lab: Lab) {
    lab.enqueue("t").await;
    let task = lab.take().await;
    let interrupted = Happen { event: Event::Interrupted { token: Token(1) }, ..success(&task) };
    let op = lab.op();
    unknown(&lab, &interrupted, op).await;
    let second = lab.take().await;
    let again = lab.store().run(&interrupted, op, lab.now()).await.expect("no refusal");
    assert_eq!(again, Happened::AlreadyDone(second.clone()), "the new attempt is not touched");
    assert_eq!(lab.task("t").await, Some(second));
}

/// What a caller was told in the random rounds.
#[derive(Default)]
struct Told {
    enqueued: BTreeSet<TaskId>,
    running: Vec<Arc<Task>>,
    succeeded: BTreeSet<TaskId>,
    cancelled: BTreeSet<TaskId>,
}

async fn round(lab: &Lab, store: &impl Store, dice: &mut Entropy, told: &mut Told, number: usize) {
    match dice.below(5) {
        0 | 1 => {
            let spec = lab.spec(&format!("t-{number:03}"));
            let done = store.run(&lab.plan_of(spec), lab.op(), lab.now()).await.expect("enough tries");
            assert!(matches!(done, Enqueued::New(_)), "round {number}: {done:?}");
            told.enqueued.insert(done.id().clone());
        }
        2 => {
            let claim = Claim { pools: limited(), limit: 2, ..lab.claim_one() };
            told.running.extend(claimed(lab, store, claim).await);
        }
        3 if !told.running.is_empty() => {
            let task = told.running.swap_remove(dice.below(told.running.len()));
            let done = store.run(&success(&task), lab.op(), lab.now()).await.expect("enough tries");
            assert!(matches!(done, Happened::Changed(_)), "round {number}: {done:?}");
            told.succeeded.insert(task.id().clone());
        }
        _ => {
            let idle = |name: &&TaskId| {
                !told.succeeded.contains(*name)
                    && !told.cancelled.contains(*name)
                    && !told.running.iter().any(|task| task.id() == *name)
            };
            let Some(name) = told.enqueued.iter().find(idle).cloned() else { return };
            let event = Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None };
            let cancel = Happen { task: Key::task(&ns(), &name), event };
            store.run(&cancel, lab.op(), lab.now()).await.expect("enough tries");
            told.cancelled.insert(name);
        }
    }
}

/// C1, C5, C9, C14, C16
pub async fn two_hundred_rounds_on_a_bad_line_end_with_everything_there_once(lab: Lab) {
    let faults = Faults { refused: 10, reply_lost: 10, request_lost: 10, read_failed: 10, ..Faults::default() };
    for seed in 0..5 {
        let lab = Lab::open(lab.factory().clone()).await;
        let store = Retrying::new(Faulty::new(lab.store(), faults, seed), 64);
        let (mut dice, mut told) = (Entropy::from_seed(seed), Told::default());
        for number in 0..200 {
            round(&lab, &store, &mut dice, &mut told, number).await;
            lab.wait(Millis::new(1));
        }
        let there: BTreeSet<TaskId> = all(&lab).await.iter().map(|name| id(name)).collect();
        assert_eq!(there, told.enqueued, "seed {seed}");
        for name in &told.enqueued {
            let state = lab.task(name.as_str()).await.expect("it is there").state.clone();
            let expected = if told.succeeded.contains(name) {
                Phase::Succeeded
            } else if told.cancelled.contains(name) {
                Phase::Cancelled
            } else if told.running.iter().any(|task| task.id() == name) {
                Phase::Running
            } else {
                Phase::Queued
            };
            assert_eq!(state.phase, expected, "seed {seed}, {name}");
            assert_eq!(state.outcomes.succeeded, u32::from(expected == Phase::Succeeded), "seed {seed}, {name}");
            assert!(state.execution_no <= 1, "seed {seed}, {name} was run twice");
        }
        let running = i64::try_from(told.running.len()).unwrap();
        assert_eq!(lab.counter(&Key::running(&ns(), &pool("work"))).await, running, "seed {seed}");
        lab.finish().await;
    }
}
