//! Cases: many at once. Whoever wins, there is one winner.

use std::collections::BTreeSet;
use std::sync::Arc;

use ekiden_core::claim::{Claim, ClaimPool};
use ekiden_core::commit::{Expect, Write};
use ekiden_core::event::Event;
use ekiden_core::id::{IdempotencyKey, UniqueKey};
use ekiden_core::key::Key;
use ekiden_core::lease::Token;
use ekiden_core::newer::Newer;
use ekiden_core::plan::{Enqueue, Enqueued, Happened};
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::{Record, Revision};
use ekiden_core::retry::FailureKind;
use ekiden_core::task::{Phase, Spec};
use ekiden_core::unique::{Unique, UniqueHold};

use super::Lab;
use super::lab::{at_once, id, ids, ns, pool, runner, task_key};
use crate::op::Answer;

const RACERS: usize = 8;

/// C12
pub async fn each_task_goes_to_one_of_many_claimers(lab: Lab) {
    lab.enqueue_many((0..200).map(|number| lab.spec(&format!("t-{number:03}"))).collect()).await;
    let taken = at_once(RACERS, |racer| {
        let lab = lab.clone();
        async move {
            let mut mine = Vec::new();
            loop {
                let claim = Claim { limit: 1 + racer % 4, holder: runner(&format!("r-{racer}")), ..lab.claim_one() };
                let tasks = super::lab::tasks_of(lab.claim_now(claim).await);
                if tasks.is_empty() {
                    return mine;
                }
                mine.extend(tasks);
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    for (racer, mine) in taken.iter().enumerate() {
        for task in mine {
            let stored = lab.task(task.id().as_str()).await.expect("it is there");
            assert_eq!(stored.state.lease.as_ref().map(|lease| &lease.holder), Some(&runner(&format!("r-{racer}"))));
            assert_eq!(stored.state.execution_no, 1, "{} was taken twice", task.id());
        }
    }
    let mut all = taken.concat();
    if !lab.store().info().exact_index {
        all.extend(lab.take_all(200 - all.len()).await);
    }
    assert_eq!(all.len(), 200);
    assert_eq!(ids(&all).into_iter().collect::<BTreeSet<_>>().len(), 200);
}

/// C2, C12
pub async fn one_of_many_equal_settlements_changes_the_task(lab: Lab) {
    for round in 0..10 {
        let name = format!("t-{round}");
        lab.enqueue(&name).await;
        let task = lab.take().await;
        let answers = at_once(RACERS, |_| {
            let (lab, task) = (lab.clone(), task.clone());
            let event = Event::Succeeded { token: Token(task.state.execution_no), result: None };
            async move { lab.happen(task.id().as_str(), event).await.expect("no refusal") }
        })
        .await;
        let changed = answers.iter().filter(|answer| matches!(answer, Happened::Changed(_))).count();
        let done = answers.iter().filter(|answer| matches!(answer, Happened::AlreadyDone(_))).count();
        assert_eq!((changed, done), (1, RACERS - 1));
        let stored = lab.task(&name).await.expect("it is there");
        assert_eq!((stored.state.phase, stored.state.outcomes.succeeded), (Phase::Succeeded, 1));
    }
}

/// C2, C12
pub async fn one_of_many_different_settlements_wins_and_the_others_hear_it(lab: Lab) {
    for round in 0..10 {
        lab.enqueue(&format!("t-{round}")).await;
        let task = lab.take().await;
        let answers = at_once(RACERS, |racer| {
            let (lab, token, name) = (lab.clone(), Token(task.state.execution_no), task.id().to_string());
            let event = match racer % 4 {
                0 => Event::Succeeded { token, result: None },
                1 => Event::Failed { token, kind: FailureKind::Permanent, error: "no".into() },
                2 => Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None },
                _ => Event::TimedOut { token },
            };
            async move { lab.happen(&name, event).await }
        })
        .await;
        let stored = lab.task(task.id().as_str()).await.expect("it is there");
        let settled: u32 =
            [stored.state.outcomes.succeeded, stored.state.outcomes.failed, stored.state.outcomes.timed_out]
                .iter()
                .sum();
        let cancels = stored.state.history.iter().filter(|line| line.event.as_str() == "cancel_requested").count();
        let changed = answers.iter().filter(|answer| matches!(answer, Ok(Happened::Changed(_)))).count();
        assert!(settled <= 1, "one attempt, one outcome: {:?}", stored.state.outcomes);
        // Who changed it and was overtaken before a lost reply was repeated hears "already done" instead (C5).
        let changes = usize::try_from(settled).unwrap() + cancels;
        let done = answers.iter().filter(|answer| matches!(answer, Ok(Happened::AlreadyDone(_)))).count();
        assert!(changed <= changes && changed + done >= changes, "{changed} heard Changed of {changes} changes");
        for refused in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            let code = refused.code();
            let told = [ReasonCode::TaskFinal, ReasonCode::TaskCancelled, ReasonCode::LeaseLost].contains(&code);
            assert!(told, "unexpected refusal {code}");
        }
    }
}

async fn race_to_enqueue(lab: &Lab, plan: impl Fn(usize) -> Enqueue) -> Vec<Result<Enqueued, ReasonCode>> {
    at_once(RACERS, |racer| {
        let (lab, plan) = (lab.clone(), plan(racer));
        async move { lab.run(&plan).await.map_err(|error| error.code()) }
    })
    .await
}

/// All but one must have heard of the one.
fn one_is_new(answers: &[Result<Enqueued, ReasonCode>]) {
    let new: Vec<_> = answers
        .iter()
        .filter_map(|answer| if let Ok(Enqueued::New(task)) = answer { Some(task) } else { None })
        .collect();
    assert_eq!(new.len(), 1, "{answers:?}");
    for answer in answers {
        assert_eq!(answer.as_ref().map(Enqueued::id), Ok(new[0].id()));
    }
}

/// C2
pub async fn many_enqueues_with_one_unique_key_make_one_task(lab: Lab) {
    let unique = Unique { key: UniqueKey::new("u").expect("a valid id"), hold: UniqueHold::WhileOpen };
    let unique = Some(Arc::new(unique));
    let answers =
        race_to_enqueue(&lab, |racer| lab.plan_of(Spec { unique: unique.clone(), ..lab.spec(&format!("t-{racer}")) }))
            .await;
    one_is_new(&answers);
    lab.count_is(Phase::Queued, 1).await;
}

/// C2
pub async fn many_enqueues_with_one_idempotency_key_make_one_task(lab: Lab) {
    let answers = race_to_enqueue(&lab, |racer| Enqueue {
        idempotency: Some(IdempotencyKey::new("i").expect("a valid id")),
        ..lab.plan_of(lab.spec(&format!("t-{racer}")))
    })
    .await;
    one_is_new(&answers);
    lab.count_is(Phase::Queued, 1).await;
}

/// C2
pub async fn many_enqueues_with_one_id_make_one_task(lab: Lab) {
    let answers = race_to_enqueue(&lab, |_| lab.plan_of(lab.spec("t"))).await;
    let new = answers.iter().filter(|answer| matches!(answer, Ok(Enqueued::New(_)))).count();
    let refused = answers.iter().filter(|answer| **answer == Err(ReasonCode::TaskExists)).count();
    assert_eq!((new, refused), (1, RACERS - 1), "{answers:?}");
    lab.count_is(Phase::Queued, 1).await;
}

/// C12, C16
pub async fn many_claimers_of_a_limited_pool_stay_within_its_limit(lab: Lab) {
    lab.enqueue_many((0..40).map(|number| lab.spec(&format!("t-{number:02}"))).collect()).await;
    let counter = Key::running(&ns(), &pool("work"));
    for _ in 0..5 {
        let pools = vec![ClaimPool { running_max: Some(3), ..ClaimPool::open(ns(), pool("work")) }];
        let taken = at_once(RACERS, |_| {
            let (lab, pools) = (lab.clone(), pools.clone());
            async move { super::lab::tasks_of(lab.claim_now(Claim { pools, limit: 2, ..lab.claim_one() }).await) }
        })
        .await
        .concat();
        assert!(taken.len() <= 3, "{} run in a pool of three", taken.len());
        assert!(taken.len() == 3 || !lab.store().info().exact_index, "there was room for three, {} run", taken.len());
        assert_eq!(lab.counter(&counter).await, i64::try_from(taken.len()).unwrap());
        at_once(taken.len(), |at| {
            let (lab, task) = (lab.clone(), taken[at].clone());
            async move { lab.succeed(&task).await }
        })
        .await;
        assert_eq!(lab.counter(&counter).await, 0);
    }
}

/// C2
pub async fn one_of_many_writers_at_one_revision_is_applied(lab: Lab) {
    let key = Key::unique(&ns(), &UniqueKey::new("u").expect("a valid id"));
    let held = |name: &str| {
        Record::Unique(ekiden_core::unique::KeyRecord { task: id(name), expires_at: None, newer: Newer::NONE })
    };
    let mut revision: Option<Revision> = None;
    for round in 0..20 {
        let expect = revision.clone().map_or(Expect::Absent, Expect::At);
        let answers = at_once(RACERS, |racer| {
            let write = Write::put(key.clone(), expect.clone(), held(&format!("{round}-{racer}")));
            let lab = lab.clone();
            async move { lab.commit(vec![write]).await }
        })
        .await;
        let stored = lab.get(&key).await.expect("it is there");
        let mut applied = 0;
        for (racer, answer) in answers.iter().enumerate() {
            match answer {
                Answer::Applied(done) => {
                    applied += 1;
                    assert_eq!(done.revisions.as_slice(), [Some(stored.revision.clone())]);
                    assert_eq!(stored.record, held(&format!("{round}-{racer}")), "the winner's record is there");
                }
                Answer::Conflict(conflict) => assert_eq!(conflict.found, [(key.clone(), Some(stored.clone()))]),
                Answer::Claimed(_) => panic!("a commit was answered like a claim"),
            }
        }
        assert_eq!(applied, 1, "round {round}");
        revision = Some(stored.revision);
    }
}

/// C12
pub async fn many_copies_of_one_claim_take_what_one_takes(lab: Lab) {
    lab.enqueue_many((0..20).map(|number| lab.spec(&format!("t-{number:02}"))).collect()).await;
    if !lab.store().info().exact_index {
        return;
    }
    let claim = Claim { limit: 2, ..lab.claim_one() };
    let answers = at_once(RACERS, |_| {
        let (lab, claim) = (lab.clone(), claim.clone());
        async move { lab.claim_now(claim).await.tasks }
    })
    .await;
    for answer in &answers {
        assert_eq!((answer.len(), answer), (2, &answers[0]));
    }
    lab.count_is(Phase::Running, 2).await;
    assert_eq!(lab.get(&task_key("t-00")).await.as_ref(), answers[0].first());
}
