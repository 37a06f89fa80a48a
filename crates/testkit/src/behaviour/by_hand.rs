//! What a person does to one task: let a held one go, run one again.

use ekiden::core::{Millis, Priority, ReasonCode, Start};
use ekiden::{NewTask, TaskState, When};

use super::lab::{Lab, code, group, id, question};

/// R5
pub async fn a_held_task_waits_until_it_is_released(lab: Lab) {
    lab.add(NewTask { start: Start::Held, ..lab.plain("a") }).await;
    lab.pass(3_600);
    lab.settle_down().await;
    lab.nothing_to_take().await;
    assert_eq!(lab.state("a").await, TaskState::Pending);
    let record = lab.queue.release(lab.task("a")).await.expect("a held task can be released");
    assert_eq!(record.state, TaskState::Queued);
    lab.take_this("a").await;
}

/// R5
pub async fn a_second_release_changes_nothing(lab: Lab) {
    lab.add(NewTask { start: Start::Held, ..lab.plain("a") }).await;
    let first = lab.queue.release(lab.task("a")).await.expect("a held task can be released");
    lab.pass(1);
    let second = lab.queue.release(lab.task("a")).await.expect("it is released");
    assert_eq!(first, second);
    lab.take_this("a").await;
    assert_eq!(lab.queue.release(lab.task("a")).await.expect("it runs").state, TaskState::Running);
}

/// R21
pub async fn a_release_does_not_shorten_a_delay(lab: Lab) {
    lab.add(NewTask { start: Start::Held, when: When::After(Millis::from_secs(60)), ..lab.plain("a") }).await;
    lab.queue.release(lab.task("a")).await.expect("a held task can be released");
    lab.pass(59);
    lab.nothing_to_take().await;
    lab.pass(1);
    lab.take_this("a").await;
}

/// R5
pub async fn a_cancelled_task_cannot_be_released(lab: Lab) {
    lab.add(NewTask { start: Start::Held, ..lab.plain("a") }).await;
    lab.cancel("a").await;
    assert_eq!(code(lab.queue.release(lab.task("a")).await), ReasonCode::TaskCancelled);
}

/// R21
pub async fn a_dead_task_is_retried_as_a_new_one_that_points_at_it(lab: Lab) {
    let told = NewTask { priority: Priority::HIGH, group: Some(group("g")), title: Some("T".into()), ..lab.plain("a") };
    lab.add(told).await;
    lab.kill(&lab.take().await).await;
    lab.pass(5);
    let again = lab.queue.retry(lab.task("a")).await.expect("a dead task can be retried");
    assert_eq!((again.state, again.attempts, again.execution_no), (TaskState::Queued, 0, 0));
    assert_eq!((&again.retry_of, again.created_at), (&Some(id("a")), lab.now()));
    let old = lab.get("a").await;
    assert_eq!((old.state, old.retried_as), (TaskState::Dead, Some(again.id.clone())));
    assert_eq!((again.envelope, again.priority), (old.envelope, 10));
    assert_eq!((again.group, again.title), (Some(group("g")), Some("T".into())));
    lab.succeed(&lab.take_this(again.id.as_str()).await).await;
}

/// R21
pub async fn pressing_retry_twice_runs_once(lab: Lab) {
    lab.add_dead("a").await;
    let first = lab.queue.retry(lab.task("a")).await.expect("a dead task can be retried");
    let second = lab.queue.retry(lab.task("a")).await.expect("it leads to the task in its place");
    assert_eq!((first.id, lab.count(TaskState::Queued).await), (second.id, 1));
    lab.take().await;
    let third = lab.queue.retry(lab.task("a")).await.expect("the task in its place runs");
    assert_eq!(third.state, TaskState::Running);
    lab.nothing_to_take().await;
}

/// R21
pub async fn many_presses_at_once_run_once(lab: Lab) {
    lab.add_dead("a").await;
    let presses = (0..8).map(|_| {
        let lab = lab.clone();
        tokio::spawn(async move { lab.queue.retry(lab.task("a")).await.expect("a dead task can be retried").id })
    });
    let mut ids = Vec::new();
    for press in presses.collect::<Vec<_>>() {
        ids.push(press.await.expect("a press does not panic"));
    }
    ids.dedup();
    assert_eq!((ids.len(), lab.count(TaskState::Queued).await), (1, 1));
}

/// R21
pub async fn a_retry_that_died_too_is_retried_from_the_first(lab: Lab) {
    lab.add_dead("a").await;
    let second = lab.queue.retry(lab.task("a")).await.expect("a dead task can be retried");
    lab.kill(&lab.take().await).await;
    let third = lab.queue.retry(lab.task("a")).await.expect("the one in its place is dead too");
    assert_eq!(third.retry_of, Some(second.id));
    lab.take_this(third.id.as_str()).await;
}

/// R21
pub async fn a_cancelled_task_is_retried_as_a_new_one(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.cancel("a").await;
    let again = lab.queue.retry(lab.task("a")).await.expect("a cancelled task can be retried");
    assert_eq!((again.retry_of, lab.state("a").await), (Some(id("a")), TaskState::Cancelled));
    lab.take_this(again.id.as_str()).await;
}

/// R13, R21
pub async fn a_task_that_waits_for_its_retry_is_run_at_once(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.fail(&lab.take().await).await;
    let record = lab.queue.retry(lab.task("a")).await.expect("the wait can be cut short");
    assert_eq!((record.id, record.state, record.next_run_at), (id("a"), TaskState::Queued, Some(lab.now())));
    assert_eq!(lab.take_this("a").await.attempts, 2, "the budget is what it was");
}

/// R21
pub async fn a_retry_of_a_queued_task_changes_nothing(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let before = lab.get("a").await;
    assert_eq!(lab.queue.retry(lab.task("a")).await.expect("it will run"), before);
    assert_eq!(lab.get("a").await, before);
}

/// R21
pub async fn what_runs_or_waits_for_somebody_cannot_be_retried(lab: Lab) {
    lab.add_asking("asks", question("q")).await;
    lab.add(lab.plain("runs")).await;
    lab.take().await;
    lab.add(NewTask { start: Start::Held, ..lab.plain("held") }).await;
    lab.add(NewTask { parents: vec![id("held")], ..lab.plain("blocked") }).await;
    for (name, why) in [
        ("asks", ReasonCode::TaskHeld),
        ("runs", ReasonCode::RunInProgress),
        ("held", ReasonCode::TaskHeld),
        ("blocked", ReasonCode::TaskHeld),
    ] {
        assert_eq!(code(lab.queue.retry(lab.task(name)).await), why, "{name}");
    }
}

/// R21
pub async fn where_the_pool_reopens_a_dead_task_runs_again_as_itself(lab: Lab) {
    lab.set_pool("default", |settings| std::sync::Arc::make_mut(&mut settings.policy).reopen = true).await;
    lab.add_dead("a").await;
    let again = lab.queue.retry(lab.task("a")).await.expect("a dead task can be reopened");
    assert_eq!((again.id, again.state, again.attempts), (id("a"), TaskState::Queued, 0));
    let leased = lab.take_this("a").await;
    assert_eq!((leased.attempts, leased.lease.token.0), (1, 2), "the budget is new, the token is not");
}

/// R21, W8
pub async fn a_child_is_not_released_while_its_reopened_parent_runs(lab: Lab) {
    lab.set_pool("default", |settings| std::sync::Arc::make_mut(&mut settings.policy).reopen = true).await;
    lab.add(lab.plain("parent")).await;
    lab.add(NewTask { parents: vec![id("parent")], ..lab.plain("child") }).await;
    lab.kill(&lab.take_this("parent").await).await;
    lab.settle_down().await;
    assert_eq!(lab.get("child").await.reason, Some(ReasonCode::DependencyFailed));
    lab.queue.retry(lab.task("parent")).await.expect("a dead task can be reopened");
    let leased = lab.take_this("parent").await;
    assert_eq!(code(lab.queue.release(lab.task("child")).await), ReasonCode::DependencyUnmet);
    lab.kill(&leased).await;
    lab.queue.release(lab.task("child")).await.expect("the failure stands again");
    lab.take_this("child").await;
}

/// R21
pub async fn an_expired_task_that_is_retried_runs(lab: Lab) {
    for reopen in [true, false] {
        lab.set_pool("default", |settings| std::sync::Arc::make_mut(&mut settings.policy).reopen = reopen).await;
        let name = format!("reopen-{reopen}");
        lab.add(NewTask { expires_after: Some(Millis::from_secs(10)), ..lab.plain(&name) }).await;
        lab.live_on(11).await;
        lab.settle_down().await;
        assert_eq!(lab.state(&name).await, TaskState::Dead);
        let again = lab.queue.retry(lab.task(&name)).await.expect("an expired task can be retried");
        lab.settle_down().await;
        assert_eq!(lab.state(again.id.as_str()).await, TaskState::Queued);
        lab.succeed(&lab.take_this(again.id.as_str()).await).await;
    }
}
