//! Explanations: for every task that waits, runs or has ended, the reason that a person can act on.

use ekiden::core::{Millis, OnParentFailure, Question, ReasonCode, Runner, Stage, Start, TaskEnvelope};
use ekiden::{NewTask, TaskState, When};

use super::lab::{Lab, RUNNER, group, id, kind, permanent, pool, question, serial};

/// R22
pub async fn a_kind_that_no_runner_handles_has_no_handler(lab: Lab) {
    lab.add(lab.plain("a")).await;
    assert_eq!(lab.reasons("a").await, [ReasonCode::NoHandler]);
    let other = Runner { kinds: vec![kind("other")], ..lab.runner("runner-2") };
    lab.queue.beat(other).await.expect("a new runner may beat");
    assert_eq!(lab.reasons("a").await, [ReasonCode::NoHandler]);
    lab.beat(RUNNER).await;
    assert_eq!(lab.reasons("a").await, [ReasonCode::WaitsForRunner]);
    lab.pass(30);
    assert_eq!(lab.reasons("a").await, [ReasonCode::NoHandler], "its runner is silent");
}

/// R22
pub async fn a_runner_of_another_pool_is_no_handler(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let other = Runner { pools: vec![pool("side")], ..lab.runner(RUNNER) };
    lab.queue.beat(other).await.expect("a new runner may beat");
    assert_eq!(lab.reasons("a").await, [ReasonCode::NoHandler]);
}

/// R22
pub async fn a_runner_of_any_kind_is_a_handler(lab: Lab) {
    lab.add(NewTask { envelope: TaskEnvelope::json(kind("rare"), "{}"), ..lab.plain("a") }).await;
    let any = Runner { kinds: vec![], pools: vec![], ..lab.runner(RUNNER) };
    lab.queue.beat(any).await.expect("a new runner may beat");
    assert_eq!(lab.reasons("a").await, [ReasonCode::WaitsForRunner]);
}

/// R9, R13
pub async fn a_delayed_or_retrying_task_is_not_due(lab: Lab) {
    lab.beat(RUNNER).await;
    lab.add(NewTask { when: When::After(Millis::from_secs(9)), ..lab.plain("delayed") }).await;
    lab.add(lab.plain("retrying")).await;
    lab.fail(&lab.take().await).await;
    for name in ["delayed", "retrying"] {
        assert_eq!(lab.reasons(name).await, [ReasonCode::NotDue], "{name}");
    }
    let explanation = lab.queue.explain(lab.task("delayed")).await.expect("a task can be explained");
    let at = (lab.now() + Millis::from_secs(9)).to_string();
    assert_eq!(explanation.reasons[0].context.get("next_run_at"), Some(&at));
}

/// R9, R20
pub async fn a_paused_or_full_pool_is_named(lab: Lab) {
    lab.beat(RUNNER).await;
    lab.set_pool("default", |set| set.running_max = Some(1)).await;
    lab.add_all(&["a", "b"]).await;
    lab.take_this("a").await;
    assert_eq!(lab.reasons("b").await, [ReasonCode::PoolFull]);
    lab.set_pool("default", |set| set.paused = true).await;
    assert_eq!(lab.reasons("b").await, [ReasonCode::PoolPaused]);
}

/// R9, R20
pub async fn who_stands_behind_others_of_its_key_hears_of_them(lab: Lab) {
    lab.beat(RUNNER).await;
    for name in ["a", "b"] {
        lab.add(NewTask { lane: serial("k"), ..lab.plain(name) }).await;
    }
    assert_eq!(lab.reasons("a").await, [ReasonCode::WaitsForRunner]);
    assert_eq!(lab.reasons("b").await, [ReasonCode::BehindLane]);
    let explanation = lab.queue.explain(lab.task("b")).await.expect("a task can be explained");
    assert_eq!(explanation.reasons[0].context.get("ahead").map(String::as_str), Some("a"));
}

/// R9, R21
pub async fn a_blocked_task_names_what_it_waits_for(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    lab.add(NewTask { parents: vec![id("parent")], ..lab.plain("a") }).await;
    assert_eq!(lab.reasons("a").await, [ReasonCode::DependencyUnmet]);
    let explanation = lab.queue.explain(lab.task("a")).await.expect("a task can be explained");
    assert_eq!(explanation.reasons[0].context.get("waits_for").map(String::as_str), Some("parent"));
    lab.kill(&lab.take().await).await;
    lab.settle_down().await;
    assert_eq!(lab.reasons("a").await, [ReasonCode::DependencyFailed]);
}

/// R9, R21
pub async fn a_task_after_a_group_names_the_group(lab: Lab) {
    lab.add(NewTask { group: Some(group("g")), ..lab.plain("member") }).await;
    lab.add(NewTask { after_group: Some(group("g")), ..lab.plain("a") }).await;
    assert_eq!(lab.reasons("a").await, [ReasonCode::GroupOpen]);
    lab.kill(&lab.take().await).await;
    lab.settle_down().await;
    assert_eq!(lab.reasons("a").await, [ReasonCode::DependencyFailed]);
}

/// R9
pub async fn a_held_task_is_held(lab: Lab) {
    lab.add(NewTask { start: Start::Held, ..lab.plain("a") }).await;
    assert_eq!(lab.reasons("a").await, [ReasonCode::TaskHeld]);
}

/// R9, R19
pub async fn a_running_task_names_its_runner_and_its_silence(lab: Lab) {
    lab.beat(RUNNER).await;
    lab.add(lab.plain("a")).await;
    lab.take().await;
    assert_eq!(lab.reasons("a").await, [ReasonCode::AttemptRunning]);
    let explanation = lab.queue.explain(lab.task("a")).await.expect("a task can be explained");
    assert_eq!(explanation.reasons[0].context.get("runner_id").map(String::as_str), Some(RUNNER));
    lab.pass(30);
    assert_eq!(lab.reasons("a").await, [ReasonCode::RunnerSilent]);
}

/// R9, X4
pub async fn a_task_that_asks_shows_its_question(lab: Lab) {
    lab.add_asking("a", question("q")).await;
    assert_eq!(lab.reasons("a").await, [ReasonCode::NeedsInput]);
    let explanation = lab.queue.explain(lab.task("a")).await.expect("a task can be explained");
    assert_eq!(explanation.reasons[0].context.get("text").map(String::as_str), Some("which one?"));
}

/// R9
pub async fn every_end_has_its_reason(lab: Lab) {
    lab.add_succeeded("succeeded").await;
    assert_eq!(lab.reasons("succeeded").await, [ReasonCode::TaskFinal]);
    lab.add(lab.plain("permanent")).await;
    let leased = lab.take().await;
    lab.queue.mark_failed(leased.lease, permanent("gone")).await.expect("the holder may settle");
    assert_eq!(lab.reasons("permanent").await, [ReasonCode::PermanentFailure]);
    lab.add(NewTask { expires_after: Some(Millis::from_secs(5)), ..lab.plain("expired") }).await;
    lab.pass(5);
    lab.settle_down().await;
    assert_eq!(lab.reasons("expired").await, [ReasonCode::Expired]);
    let deadline = Some(lab.now() + Millis::from_secs(5));
    lab.add_asking("asked", Question { deadline, ..question("q") }).await;
    lab.pass(5);
    lab.settle_down().await;
    assert_eq!(lab.reasons("asked").await, [ReasonCode::QuestionExpired]);
    lab.add(lab.plain("exhausted")).await;
    for _ in 0..5 {
        lab.fail(&lab.take().await).await;
        lab.pass(300);
    }
    assert_eq!(lab.reasons("exhausted").await, [ReasonCode::AttemptsExhausted]);
}

/// R9, X5
pub async fn a_cancelled_task_tells_whether_its_attempt_has_ended(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    lab.cancel("a").await;
    assert_eq!(lab.reasons("a").await, [ReasonCode::AttemptEnding, ReasonCode::CancelRequested]);
    lab.stopped(&leased, Stage::Verified).await;
    assert_eq!(lab.reasons("a").await, [ReasonCode::CancelRequested]);
}

/// R9, W8
pub async fn a_task_cancelled_for_its_parent_says_so(lab: Lab) {
    lab.add_dead("parent").await;
    let on_parent_failure = OnParentFailure::Cancel;
    lab.add(NewTask { parents: vec![id("parent")], on_parent_failure, ..lab.plain("a") }).await;
    assert_eq!(lab.reasons("a").await, [ReasonCode::DependencyFailed]);
}

/// R9
pub async fn every_reason_that_holds_is_given(lab: Lab) {
    lab.set_pool("default", |set| set.paused = true).await;
    lab.add(NewTask { when: When::After(Millis::from_secs(9)), ..lab.plain("a") }).await;
    assert_eq!(lab.state("a").await, TaskState::Queued);
    assert_eq!(lab.reasons("a").await, [ReasonCode::NotDue, ReasonCode::PoolPaused, ReasonCode::NoHandler]);
}
