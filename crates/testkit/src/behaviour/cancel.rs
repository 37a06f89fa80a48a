//! Cancel: written at once and final, in every state; what still runs is told, and keeps its place until it has stopped.

use ekiden::core::{Outcome, ReasonCode, Stage, Start};
use ekiden::{Ask, NewTask, TaskState, Verdict};

use super::lab::{Lab, RUNNER, code, failure, id, question, runner_id, serial, signal};

async fn cancelled(lab: &Lab, name: &str) {
    let before = lab.now();
    let record = lab.cancel(name).await;
    assert_eq!((record.state, record.reason), (TaskState::Cancelled, Some(ReasonCode::CancelRequested)));
    assert_eq!(record.finished_at, Some(before));
    assert_eq!(lab.get(name).await, record);
    lab.live_on(600).await;
    lab.settle_down().await;
    lab.nothing_to_take().await;
}

/// R5
pub async fn a_held_task_can_be_cancelled(lab: Lab) {
    lab.add(NewTask { start: Start::Held, ..lab.plain("a") }).await;
    cancelled(&lab, "a").await;
}

/// R5
pub async fn a_blocked_task_can_be_cancelled(lab: Lab) {
    lab.add(NewTask { start: Start::Held, ..lab.plain("parent") }).await;
    lab.add(NewTask { parents: vec![id("parent")], ..lab.plain("a") }).await;
    cancelled(&lab, "a").await;
}

/// R5
pub async fn a_queued_task_can_be_cancelled(lab: Lab) {
    lab.add(lab.plain("a")).await;
    cancelled(&lab, "a").await;
}

/// R5
pub async fn a_task_that_waits_for_its_retry_can_be_cancelled(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.fail(&lab.take().await).await;
    cancelled(&lab, "a").await;
}

/// R5
pub async fn a_task_that_asks_can_be_cancelled(lab: Lab) {
    lab.add_asking("a", question("q")).await;
    cancelled(&lab, "a").await;
    assert_eq!(lab.get("a").await.question, None);
}

/// R5, Q11
pub async fn a_running_task_is_cancelled_at_once(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.take().await;
    cancelled(&lab, "a").await;
}

/// R5
pub async fn a_cancel_says_why(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.queue.cancel(lab.task("a"), Some("not needed".into())).await.expect("an open task can be cancelled");
    let record = lab.get("a").await;
    assert_eq!(record.history.last().and_then(|line| line.note.as_deref()), Some("not needed"));
}

/// R5
pub async fn a_second_cancel_is_done_already(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let first = lab.cancel("a").await;
    lab.pass(5);
    assert_eq!(lab.cancel("a").await, first);
}

/// R5
pub async fn a_dead_task_cannot_be_cancelled(lab: Lab) {
    lab.add_dead("a").await;
    assert_eq!(code(lab.queue.cancel(lab.task("a"), None).await), ReasonCode::TaskFinal);
}

/// Q11
pub async fn the_runner_of_a_cancelled_attempt_is_told(lab: Lab) {
    lab.add_all(&["a", "b"]).await;
    let leased = lab.given(lab.ask(2)).await;
    lab.cancel("b").await;
    let signals = lab.queue.signals(lab.namespace(), runner_id(RUNNER)).await.expect("signals can be read");
    assert_eq!((signals.len(), &signals[0].task, signals[0].token), (1, &id("b"), leased[1].lease.token));
    let others = lab.queue.signals(lab.namespace(), runner_id("runner-2")).await.expect("signals can be read");
    assert!(others.is_empty());
}

/// Q11
pub async fn a_cancel_of_what_does_not_run_tells_nobody(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.cancel("a").await;
    let signals = lab.queue.signals(lab.namespace(), runner_id(RUNNER)).await.expect("signals can be read");
    assert!(signals.is_empty());
}

/// Q11
pub async fn the_stop_bell_rings_for_a_running_task(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.take().await;
    let bell = lab.queue.bell(&lab.namespace());
    let mut heard = bell.stop.heard();
    lab.cancel("a").await;
    signal(bell.stop.since(&mut heard)).await;
}

/// R18
pub async fn a_signal_that_nobody_read_goes_by_itself(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.take().await;
    lab.cancel("a").await;
    lab.pass(15 * 60);
    lab.settle_down().await;
    let signals = lab.queue.signals(lab.namespace(), runner_id(RUNNER)).await.expect("signals can be read");
    assert!(signals.is_empty());
}

/// R19
pub async fn a_cancelled_attempt_cannot_settle(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    lab.cancel("a").await;
    assert_eq!(code(lab.queue.mark_succeeded(leased.lease.clone(), None).await), ReasonCode::TaskCancelled);
    assert_eq!(code(lab.queue.mark_failed(leased.lease, failure("no")).await), ReasonCode::TaskCancelled);
    assert_eq!(lab.state("a").await, TaskState::Cancelled);
}

/// X5
pub async fn the_stages_of_a_stop_are_shown_and_only_rise(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    lab.cancel("a").await;
    for stage in [Stage::Signalled, Stage::Exited, Stage::Signalled] {
        lab.stopped(&leased, stage).await;
    }
    assert_eq!(lab.get("a").await.recent[0].stage, Some(Stage::Exited));
    assert_eq!(lab.get("a").await.runner, Some(runner_id(RUNNER)), "it still holds what it may still touch");
    lab.stopped(&leased, Stage::Verified).await;
    lab.stopped(&leased, Stage::Verified).await;
    let record = lab.get("a").await;
    assert_eq!((record.recent[0].stage, record.recent[0].outcome), (Some(Stage::Verified), Some(Outcome::Cancelled)));
    assert_eq!(record.runner, None);
}

/// X5
pub async fn stages_belong_to_cancelled_attempts_and_their_holder(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let first = lab.take().await;
    let early = lab.settle(&first, Verdict::Stopped(Stage::Verified)).await;
    assert_eq!(code(early), ReasonCode::TaskNotCancelled);
    lab.settle(&first, Verdict::Interrupted).await.expect("a holder may be interrupted");
    lab.take().await;
    lab.cancel("a").await;
    let stale = lab.settle(&first, Verdict::Stopped(Stage::Verified)).await;
    assert_eq!(code(stale), ReasonCode::LeaseLost);
}

/// R20, X5
pub async fn a_cancelled_attempt_keeps_its_lane_until_it_has_stopped(lab: Lab) {
    for name in ["a", "b"] {
        lab.add(NewTask { lane: serial("k"), ..lab.plain(name) }).await;
    }
    let leased = lab.take_this("a").await;
    lab.cancel("a").await;
    lab.settle_down().await;
    lab.stopped(&leased, Stage::Exited).await;
    lab.nothing_to_take().await;
    lab.stopped(&leased, Stage::Verified).await;
    lab.take_this("b").await;
}

/// R20, X5
pub async fn a_cancelled_attempt_counts_in_its_pool_until_it_has_stopped(lab: Lab) {
    lab.set_pool("default", |settings| settings.running_max = Some(1)).await;
    lab.add_all(&["a", "b"]).await;
    let leased = lab.take_this("a").await;
    lab.cancel("a").await;
    lab.nothing_to_take().await;
    lab.stopped(&leased, Stage::Verified).await;
    lab.take_this("b").await;
}

/// R19, R20
pub async fn a_cancelled_attempt_of_a_dead_runner_frees_its_lane(lab: Lab) {
    for name in ["a", "b"] {
        lab.add(NewTask { lane: serial("k"), ..lab.plain(name) }).await;
    }
    lab.take_this("a").await;
    lab.cancel("a").await;
    lab.lose_runner().await;
    assert_eq!(lab.state("a").await, TaskState::Cancelled);
    assert_eq!(lab.given_names(Ask { holder: runner_id("runner-2"), ..lab.ask(1) }).await, ["b"]);
}
