//! Subscriptions: each change once, in order, and only those of the namespace.

use ekiden::core::{EventName, Progress, Stage, Start, TaskFilter};
use ekiden::{Bulk, NewTask, Subscription, TaskState, Verdict};

use super::lab::{Lab, failure, id, question, question_id, sweep_id};

async fn expect(lab: &Lab, changes: &mut Subscription, told: &[(&str, EventName, TaskState)]) {
    for (name, event, state) in told {
        let change = lab.heard(changes).await;
        assert_eq!((change.id.as_str(), change.event, change.state), (*name, Some(*event), *state));
    }
}

/// Nothing more was told: the next that is heard is what happens now.
async fn nothing_more(lab: &Lab, changes: &mut Subscription) {
    lab.add(NewTask { start: Start::Held, ..lab.plain("sentinel") }).await;
    let change = lab.heard(changes).await;
    assert_eq!((change.id.as_str(), change.event), ("sentinel", Some(EventName::Enqueued)));
}

/// R10
pub async fn a_life_is_told_step_by_step(lab: Lab) {
    let mut changes = lab.queue.subscribe(lab.namespace()).await.unwrap();
    lab.add(lab.plain("a")).await;
    let settled = lab.fail(&lab.take().await).await;
    lab.pass_until(settled.next_run_at.expect("it runs again"));
    lab.settle_down().await;
    lab.succeed(&lab.take().await).await;
    let told = [
        ("a", EventName::Enqueued, TaskState::Queued),
        ("a", EventName::Claimed, TaskState::Running),
        ("a", EventName::Failed, TaskState::RetryScheduled),
        ("a", EventName::BecameDue, TaskState::Queued),
        ("a", EventName::Claimed, TaskState::Running),
        ("a", EventName::Succeeded, TaskState::Succeeded),
    ];
    expect(&lab, &mut changes, &told).await;
    nothing_more(&lab, &mut changes).await;
}

/// R10, R14
pub async fn a_failure_is_told_with_its_error_and_its_next_moment(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let mut changes = lab.queue.subscribe(lab.namespace()).await.unwrap();
    lab.pass(3);
    let settled = lab.fail(&leased).await;
    let change = lab.heard(&mut changes).await;
    assert_eq!((change.error.as_deref(), change.next_run_at), (Some("boom"), settled.next_run_at));
    assert_eq!((change.attempt, change.at, change.task_type.as_str()), (1, lab.now(), "work"));
}

/// R10
pub async fn what_happened_before_is_not_told(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let mut changes = lab.queue.subscribe(lab.namespace()).await.unwrap();
    nothing_more(&lab, &mut changes).await;
}

/// R10
pub async fn every_subscriber_hears_everything(lab: Lab) {
    let mut first = lab.queue.subscribe(lab.namespace()).await.unwrap();
    let mut second = lab.queue.subscribe(lab.namespace()).await.unwrap();
    lab.add(lab.plain("a")).await;
    for changes in [&mut first, &mut second] {
        expect(&lab, changes, &[("a", EventName::Enqueued, TaskState::Queued)]).await;
    }
}

/// R10, Q12
pub async fn other_namespaces_are_not_heard(lab: Lab) {
    let other = lab.elsewhere("other").await;
    let mut changes = lab.queue.subscribe(lab.namespace()).await.unwrap();
    other.add(other.plain("theirs")).await;
    other.succeed(&other.take().await).await;
    nothing_more(&lab, &mut changes).await;
}

/// R10
pub async fn what_was_refused_or_done_before_is_not_told(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    lab.succeed(&leased).await;
    lab.add(lab.plain("b")).await;
    lab.cancel("b").await;
    let mut changes = lab.queue.subscribe(lab.namespace()).await.unwrap();
    lab.succeed(&leased).await;
    lab.settle(&leased, Verdict::Failed(failure("no"))).await.expect_err("the task has ended");
    lab.refused(lab.plain("a")).await;
    lab.cancel("b").await;
    nothing_more(&lab, &mut changes).await;
}

/// R10
pub async fn a_cancel_and_its_stages_are_told(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let mut changes = lab.queue.subscribe(lab.namespace()).await.unwrap();
    lab.cancel("a").await;
    lab.stopped(&leased, Stage::Verified).await;
    let told =
        [("a", EventName::CancelRequested, TaskState::Cancelled), ("a", EventName::AttemptEnded, TaskState::Cancelled)];
    expect(&lab, &mut changes, &told).await;
    nothing_more(&lab, &mut changes).await;
}

/// R10, X4
pub async fn questions_and_answers_are_told(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let mut changes = lab.queue.subscribe(lab.namespace()).await.unwrap();
    lab.settle(&leased, Verdict::Asked(Box::new(question("q")))).await.expect("a holder may ask");
    lab.queue.answer(lab.task("a"), question_id("q"), "yes".into()).await.expect("it was asked");
    let told = [("a", EventName::Asked, TaskState::NeedsInput), ("a", EventName::Answered, TaskState::Queued)];
    expect(&lab, &mut changes, &told).await;
    nothing_more(&lab, &mut changes).await;
}

/// R10, R19
pub async fn a_lost_lease_is_told(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.take().await;
    let mut changes = lab.queue.subscribe(lab.namespace()).await.unwrap();
    lab.lose_runner().await;
    let change = lab.heard(&mut changes).await;
    assert_eq!((change.event, change.state), (Some(EventName::LeaseLost), TaskState::Queued));
    assert!(change.error.is_some_and(|error| error.contains("lost")));
}

/// R10, R9
pub async fn progress_is_told(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let mut changes = lab.queue.subscribe(lab.namespace()).await.unwrap();
    let progress = Progress { done: 1, total: Some(2), note: None };
    lab.queue.report(leased.lease, progress.clone()).await.expect("the holder may report");
    let change = lab.heard(&mut changes).await;
    assert_eq!((change.event, change.progress, change.state), (None, Some(progress), TaskState::Running));
}

/// R10, R21
pub async fn a_retry_by_hand_is_told_once_however_often_it_is_pressed(lab: Lab) {
    lab.add_dead("a").await;
    let mut changes = lab.queue.subscribe(lab.namespace()).await.unwrap();
    let again = lab.queue.retry(lab.task("a")).await.expect("a dead task can be retried");
    lab.queue.retry(lab.task("a")).await.expect("it leads to the task in its place");
    expect(&lab, &mut changes, &[(again.id.as_str(), EventName::Enqueued, TaskState::Queued)]).await;
    nothing_more(&lab, &mut changes).await;
}

/// R10, R13
pub async fn a_wait_cut_short_by_hand_is_told(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.fail(&lab.take().await).await;
    let mut changes = lab.queue.subscribe(lab.namespace()).await.unwrap();
    lab.queue.retry(lab.task("a")).await.expect("the wait can be cut short");
    expect(&lab, &mut changes, &[("a", EventName::RetryRequested, TaskState::Queued)]).await;
    nothing_more(&lab, &mut changes).await;
}

/// R10, R21
pub async fn the_release_of_a_child_is_told(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    lab.add(NewTask { parents: vec![id("parent")], ..lab.plain("child") }).await;
    let leased = lab.take_this("parent").await;
    let mut changes = lab.queue.subscribe(lab.namespace()).await.unwrap();
    lab.succeed(&leased).await;
    lab.settle_down().await;
    let told = [
        ("parent", EventName::Succeeded, TaskState::Succeeded),
        ("child", EventName::DependencyMet, TaskState::Queued),
    ];
    expect(&lab, &mut changes, &told).await;
    nothing_more(&lab, &mut changes).await;
}

/// R10, R21
pub async fn what_a_bulk_command_changes_is_told(lab: Lab) {
    lab.add_all(&["a", "b"]).await;
    let mut changes = lab.queue.subscribe(lab.namespace()).await.unwrap();
    let bulk = Bulk::Cancel(TaskFilter::all(lab.namespace()));
    lab.queue.start_bulk(sweep_id("x"), bulk).await.expect("a bulk command can be started");
    lab.settle_down().await;
    let told = ["a", "b"].map(|name| (name, EventName::CancelRequested, TaskState::Cancelled));
    expect(&lab, &mut changes, &told).await;
    nothing_more(&lab, &mut changes).await;
}
