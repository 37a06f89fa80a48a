//! Tasks are given out: in order, to one asker each, and only what was asked for.

use std::collections::BTreeSet;

use ekiden::core::{Millis, Priority, ReasonCode, TaskEnvelope, limits};
use ekiden::{Ask, NewTask, TaskState, When};

use super::lab::{Lab, RUNNER, code, kind, names, pool, runner_id};

/// R1
pub async fn an_empty_queue_gives_nothing(lab: Lab) {
    lab.nothing_to_take().await;
}

/// R21, W9
pub async fn better_priority_comes_first(lab: Lab) {
    for (name, priority) in [("low", -10), ("normal", 0), ("urgent", 20), ("high", 10), ("lowest", -100)] {
        let priority = Priority::new(priority).expect("the priority is in range");
        lab.add(NewTask { priority, ..lab.plain(name) }).await;
        lab.pass(1);
    }
    assert_eq!(lab.given_names(lab.ask(9)).await, ["urgent", "high", "normal", "low", "lowest"]);
}

/// R21, W9
pub async fn within_a_priority_first_in_is_first_out(lab: Lab) {
    lab.add_all(&["c", "a", "b"]).await;
    for name in ["c", "a", "b"] {
        lab.take_this(name).await;
    }
}

/// R13
pub async fn a_task_that_came_due_later_stands_by_its_age(lab: Lab) {
    lab.add(NewTask { when: When::After(Millis::from_secs(10)), ..lab.plain("old") }).await;
    lab.pass(1);
    lab.add(lab.plain("young")).await;
    lab.pass(10);
    assert_eq!(lab.given_names(lab.ask(2)).await, ["old", "young"]);
}

/// R22
pub async fn only_kinds_that_were_asked_for_are_given(lab: Lab) {
    lab.add(NewTask { envelope: TaskEnvelope::json(kind("other"), "{}"), ..lab.plain("other") }).await;
    lab.nothing_to_take().await;
    let other = Ask { kinds: [kind("other")].into(), ..lab.ask(1) };
    assert_eq!(lab.given_names(other).await, ["other"]);
}

/// R20
pub async fn only_pools_that_were_asked_for_are_given(lab: Lab) {
    lab.set_pool("side", |_| {}).await;
    lab.add(NewTask { pool: pool("side"), ..lab.plain("side") }).await;
    lab.nothing_to_take().await;
    assert_eq!(lab.given_names(lab.ask_pool("side", 1)).await, ["side"]);
}

/// R20
pub async fn one_request_serves_several_pools_and_kinds_in_order(lab: Lab) {
    lab.set_pool("side", |_| {}).await;
    lab.add(NewTask { envelope: TaskEnvelope::json(kind("other"), "{}"), ..lab.plain("a") }).await;
    lab.pass(1);
    lab.add(NewTask { pool: pool("side"), ..lab.plain("b") }).await;
    lab.pass(1);
    lab.add(lab.plain("c")).await;
    let pools = [pool("default"), pool("side")].into();
    let ask = Ask { pools, kinds: [kind("work"), kind("other")].into(), ..lab.ask(9) };
    assert_eq!(lab.given_names(ask).await, ["a", "b", "c"]);
}

/// R20
pub async fn never_more_than_the_limit_is_given(lab: Lab) {
    lab.add_all(&["a", "b", "c"]).await;
    assert_eq!(lab.given_names(lab.ask(2)).await, ["a", "b"]);
    assert_eq!(lab.given_names(lab.ask(2)).await, ["c"]);
}

/// R19
pub async fn a_task_is_given_once(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.take_this("a").await;
    lab.nothing_to_take().await;
    assert_eq!(lab.state("a").await, TaskState::Running);
}

/// R19
pub async fn many_askers_at_once_share_without_overlap(lab: Lab) {
    let tasks = (0..60).map(|number| lab.plain(&format!("t-{number:02}"))).collect();
    lab.queue.enqueue(tasks).await;
    let askers = (0..8).map(|asker| {
        let lab = lab.clone();
        tokio::spawn(async move {
            let mut mine = Vec::new();
            loop {
                let holder = runner_id(&format!("runner-{asker}"));
                let given = lab.given(Ask { holder, ..lab.ask(3) }).await;
                if given.is_empty() {
                    return mine;
                }
                mine.extend(names(&given));
            }
        })
    });
    let mut all = Vec::new();
    for asker in askers.collect::<Vec<_>>() {
        all.extend(asker.await.expect("an asker does not panic"));
    }
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (60, 60), "each task once, none left over");
}

/// R19
pub async fn a_repeated_request_gets_the_same_tasks(lab: Lab) {
    lab.add_all(&["a", "b", "c"]).await;
    let ask = lab.ask(2);
    let first = lab.given(ask.clone()).await;
    let again = lab.given(ask).await;
    assert_eq!((names(&first), names(&again)), (vec!["a".into(), "b".into()], vec!["a".into(), "b".into()]));
    assert_eq!(first[0].lease.token, again[0].lease.token);
    assert_eq!(lab.get("a").await.execution_no, 1);
}

/// R19
pub async fn a_repeated_request_does_not_give_what_was_cancelled_meanwhile(lab: Lab) {
    lab.add_all(&["a", "b"]).await;
    let ask = lab.ask(2);
    lab.given(ask.clone()).await;
    lab.cancel("a").await;
    assert_eq!(lab.given_names(ask).await, ["b"]);
}

/// R19: the id of another runner's request is a new id.
pub async fn a_request_id_of_another_runner_gives_nothing_of_its_tasks(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let first = lab.ask(9);
    assert_eq!(lab.given_names(first.clone()).await, ["a"]);
    let second = Ask { holder: runner_id("another"), ..first.clone() };
    assert!(lab.given(second.clone()).await.is_empty());
    lab.add(lab.plain("b")).await;
    assert_eq!(lab.given_names(second.clone()).await, ["b"]);
    assert_eq!((lab.given_names(first).await, lab.given_names(second).await), (vec!["a".into()], vec!["b".into()]));
}

/// R19: a request that is repeated for less gives less.
pub async fn a_repeated_request_gives_only_pools_and_kinds_that_it_asks_for(lab: Lab) {
    lab.set_pool("side", |_| {}).await;
    lab.add(lab.plain("here")).await;
    lab.add(NewTask { pool: pool("side"), ..lab.plain("aside") }).await;
    lab.add(NewTask { envelope: TaskEnvelope::json(kind("other"), "{}"), ..lab.plain("other") }).await;
    let (pools, kinds) = ([pool("default"), pool("side")].into(), [kind("work"), kind("other")].into());
    let all = Ask { pools, kinds, ..lab.ask(9) };
    assert_eq!(lab.given(all.clone()).await.len(), 3);
    let asides = Ask { pools: [pool("side")].into(), ..all.clone() };
    let others = Ask { kinds: [kind("other")].into(), ..all };
    assert_eq!(
        (lab.given_names(asides).await, lab.given_names(others).await),
        (vec!["aside".into()], vec!["other".into()])
    );
}

/// R7, R9
pub async fn what_is_given_runs_under_its_runner(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.pass(5);
    let leased = lab.take().await;
    let record = lab.get("a").await;
    assert_eq!((record.state, record.runner), (TaskState::Running, Some(runner_id(RUNNER))));
    assert_eq!((record.attempts, record.execution_no, leased.attempts, leased.lease.token.0), (1, 1, 1, 1));
    assert_eq!((record.started_at, record.next_run_at), (Some(lab.now()), None));
    assert_eq!((record.recent.len(), record.recent[0].outcome), (1, None));
}

/// R19
pub async fn a_runner_can_ask_what_it_holds(lab: Lab) {
    lab.add_all(&["a", "b", "c"]).await;
    let leased = lab.given(lab.ask(2)).await;
    let held = lab.queue.held(lab.namespace(), runner_id(RUNNER)).await.expect("holdings can be read");
    let held: Vec<_> = held.iter().map(|lease| (lease.task.clone(), lease.token)).collect();
    let given: Vec<_> = leased.iter().map(|one| (one.lease.task.clone(), one.lease.token)).collect();
    assert_eq!(held, given);
    lab.succeed(&leased[0]).await;
    let held = lab.queue.held(lab.namespace(), runner_id(RUNNER)).await.expect("holdings can be read");
    assert_eq!(held.len(), 1);
}

/// R20
pub async fn requests_for_nothing_or_too_much_are_refused(lab: Lab) {
    let none = Ask { pools: [].into(), ..lab.ask(1) };
    let much = lab.ask(limits::CLAIM_TASKS_MAX + 1);
    for ask in [none, much, lab.ask(0)] {
        assert_eq!(code(lab.queue.dequeue_ready(ask).await), ReasonCode::ClaimInvalid);
    }
}

/// R13
pub async fn a_delayed_task_is_given_from_its_very_moment_on(lab: Lab) {
    lab.add(NewTask { when: When::After(Millis::new(1_500)), ..lab.plain("a") }).await;
    lab.pass_ms(1_499);
    lab.nothing_to_take().await;
    lab.pass_ms(1);
    lab.take_this("a").await;
}

/// R21
pub async fn a_start_at_a_moment_is_kept(lab: Lab) {
    let at = lab.now() + Millis::from_secs(60);
    lab.add(NewTask { when: When::At(at), ..lab.plain("a") }).await;
    assert_eq!(lab.get("a").await.next_run_at, Some(at));
    lab.pass(59);
    lab.nothing_to_take().await;
    lab.pass(1);
    lab.take_this("a").await;
}

/// R21
pub async fn a_start_in_the_past_is_now(lab: Lab) {
    lab.pass(100);
    lab.add(NewTask { when: When::At(lab.now() - Millis::from_secs(50)), ..lab.plain("a") }).await;
    lab.take_this("a").await;
}
