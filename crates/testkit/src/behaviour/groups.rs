//! Groups: a task may wait until every member of a group has ended, also those that came later.

use ekiden::core::{Keep, Millis, OnParentFailure, ReasonCode};
use ekiden::{NewTask, TaskState, Wishes};

use super::lab::{Lab, group, id};

fn member(lab: &Lab, name: &str) -> NewTask {
    NewTask { group: Some(group("g")), ..lab.plain(name) }
}

fn after(lab: &Lab, name: &str) -> NewTask {
    NewTask { after_group: Some(group("g")), ..lab.plain(name) }
}

/// A look at the group comes at most half a minute after the last.
async fn look(lab: &Lab) {
    lab.settle_down().await;
    lab.live_on(30).await;
    lab.settle_down().await;
}

/// R21
pub async fn a_task_waits_until_every_member_has_ended(lab: Lab) {
    for name in ["a", "b", "c"] {
        lab.add(member(&lab, name)).await;
    }
    lab.add(after(&lab, "then")).await;
    for _ in 0..3 {
        look(&lab).await;
        assert_eq!(lab.state("then").await, TaskState::Pending);
        lab.succeed(&lab.take().await).await;
    }
    look(&lab).await;
    lab.take_this("then").await;
}

/// R21
pub async fn members_between_attempts_have_not_ended(lab: Lab) {
    lab.add(member(&lab, "a")).await;
    lab.add(after(&lab, "then")).await;
    lab.fail(&lab.take().await).await;
    lab.maintain().await;
    assert_eq!(lab.state("then").await, TaskState::Pending);
    lab.pass(1);
    lab.succeed(&lab.take().await).await;
    look(&lab).await;
    assert_eq!(lab.state("then").await, TaskState::Queued);
}

/// R21
pub async fn a_member_may_add_members_while_it_runs(lab: Lab) {
    lab.add(member(&lab, "a")).await;
    lab.add(after(&lab, "then")).await;
    let leased = lab.take_this("a").await;
    look(&lab).await;
    lab.add(member(&lab, "late")).await;
    lab.succeed(&leased).await;
    look(&lab).await;
    assert_eq!(lab.state("then").await, TaskState::Pending, "the late member counts");
    lab.succeed(&lab.take_this("late").await).await;
    look(&lab).await;
    lab.take_this("then").await;
}

/// R21
pub async fn an_empty_group_has_ended(lab: Lab) {
    lab.add(after(&lab, "then")).await;
    lab.settle_down().await;
    lab.take_this("then").await;
}

/// R21
pub async fn a_group_that_ended_before_is_not_waited_for(lab: Lab) {
    lab.add(member(&lab, "a")).await;
    lab.succeed(&lab.take().await).await;
    lab.add(after(&lab, "then")).await;
    lab.settle_down().await;
    lab.take_this("then").await;
}

/// R21
pub async fn a_large_group_is_waited_for_to_the_last(lab: Lab) {
    let members = (0..120).map(|number| member(&lab, &format!("m-{number:03}"))).collect();
    lab.queue.enqueue(members).await;
    lab.pass(1);
    lab.add(after(&lab, "then")).await;
    let mut leased = lab.given(lab.ask(120)).await;
    let last = leased.pop().expect("there is a last member");
    for one in &leased {
        lab.succeed(one).await;
    }
    look(&lab).await;
    assert_eq!(lab.state("then").await, TaskState::Pending);
    lab.succeed(&last).await;
    look(&lab).await;
    assert_eq!(lab.state("then").await, TaskState::Queued);
}

async fn after_a_failure(lab: &Lab, on_parent_failure: OnParentFailure) -> (TaskState, Option<ReasonCode>) {
    for name in ["a", "b"] {
        lab.add(member(lab, name)).await;
    }
    lab.add(NewTask { on_parent_failure, ..after(lab, "then") }).await;
    lab.kill(&lab.take().await).await;
    look(lab).await;
    assert_eq!(lab.state("then").await, TaskState::Pending, "the other member is waited for");
    lab.succeed(&lab.take().await).await;
    look(lab).await;
    let record = lab.get("then").await;
    (record.state, record.reason)
}

/// R21, W8
pub async fn a_failed_member_holds_for_good_if_nobody_says_otherwise(lab: Lab) {
    let why = Some(ReasonCode::DependencyFailed);
    assert_eq!(after_a_failure(&lab, OnParentFailure::Block).await, (TaskState::Pending, why));
    lab.queue.release(lab.task("then")).await.expect("somebody may let it run all the same");
    lab.take_this("then").await;
}

/// R21, W8
pub async fn a_failed_member_cancels_where_the_task_says_so(lab: Lab) {
    let why = Some(ReasonCode::DependencyFailed);
    assert_eq!(after_a_failure(&lab, OnParentFailure::Cancel).await, (TaskState::Cancelled, why));
}

/// R21, W8
pub async fn a_failed_member_does_not_matter_where_the_task_says_so(lab: Lab) {
    assert_eq!(after_a_failure(&lab, OnParentFailure::Run).await, (TaskState::Queued, None));
}

/// R21
pub async fn a_member_that_was_retried_is_judged_by_the_task_in_its_place(lab: Lab) {
    lab.add(member(&lab, "a")).await;
    lab.add(NewTask { on_parent_failure: OnParentFailure::Cancel, ..after(&lab, "then") }).await;
    lab.kill(&lab.take().await).await;
    let again = lab.queue.retry(lab.task("a")).await.expect("a dead member can be retried");
    look(&lab).await;
    assert_eq!(lab.state("then").await, TaskState::Pending);
    lab.succeed(&lab.take_this(again.id.as_str()).await).await;
    look(&lab).await;
    lab.take_this("then").await;
}

/// R18, R21
pub async fn a_failed_member_is_kept_while_a_task_waits_for_its_group(lab: Lab) {
    let keep = Some(Keep::For(Millis::from_secs(1)));
    let wishes = Wishes { keep, keep_dead: keep, ..Wishes::default() };
    lab.add(NewTask { wishes, ..member(&lab, "a") }).await;
    lab.add(member(&lab, "b")).await;
    lab.add(after(&lab, "then")).await;
    lab.kill(&lab.take_this("a").await).await;
    lab.live_on(600).await;
    lab.settle_down().await;
    assert_eq!(lab.state("a").await, TaskState::Dead, "its failure counts");
    lab.succeed(&lab.take_this("b").await).await;
    look(&lab).await;
    assert_eq!(lab.get("then").await.reason, Some(ReasonCode::DependencyFailed));
    // A look that found it needed is followed by another after a tenth of the time since its end, a minute at least.
    lab.live_on(120).await;
    lab.settle_down().await;
    lab.gone("a").await;
}

/// R21, W8
pub async fn a_member_that_was_retried_after_its_page_was_passed_counts_no_more(lab: Lab) {
    let members = (0..60).map(|number| member(&lab, &format!("m-{number:03}"))).collect();
    lab.queue.enqueue(members).await;
    lab.pass(1);
    lab.add(after(&lab, "then")).await;
    let mut leased = lab.given(lab.ask(60)).await;
    let last = leased.pop().expect("there is a last member");
    lab.kill(&leased[0]).await;
    for one in &leased[1..] {
        lab.succeed(one).await;
    }
    look(&lab).await;
    lab.queue.retry(leased[0].lease.task.clone()).await.expect("a dead member can be retried");
    lab.succeed(&last).await;
    look(&lab).await;
    assert_eq!(lab.state("then").await, TaskState::Pending, "the task in its place is waited for");
    lab.succeed(&lab.take().await).await;
    look(&lab).await;
    lab.take_this("then").await;
}

/// W8
pub async fn tasks_that_wait_for_each_others_groups_are_refused(lab: Lab) {
    let waits = |name: &str, own: &str, other: &str| NewTask {
        group: Some(group(own)),
        after_group: Some(group(other)),
        ..lab.plain(name)
    };
    lab.add(waits("a", "g", "h")).await;
    assert_eq!(lab.refused(waits("b", "h", "g")).await, ReasonCode::DependencyCycle);
    let answers = lab.queue.enqueue(vec![waits("c", "i", "j"), waits("d", "j", "i")]).await;
    let taken: Vec<bool> = answers.iter().map(|answer| answer.is_ok()).collect();
    assert_eq!(taken, [true, false], "the tasks of one request see each other");
    lab.gone("d").await;
}

/// R21
pub async fn a_task_may_wait_for_parents_and_a_group(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    lab.pass(1);
    lab.add(member(&lab, "a")).await;
    lab.add(NewTask { parents: vec![id("parent")], ..after(&lab, "then") }).await;
    let parent = lab.take_this("parent").await;
    lab.succeed(&lab.take_this("a").await).await;
    look(&lab).await;
    assert_eq!(lab.state("then").await, TaskState::Blocked);
    lab.succeed(&parent).await;
    lab.settle_down().await;
    lab.take_this("then").await;
}

/// R21
pub async fn two_tasks_may_wait_for_one_group(lab: Lab) {
    lab.add(member(&lab, "a")).await;
    lab.add(after(&lab, "then-1")).await;
    lab.add(after(&lab, "then-2")).await;
    lab.succeed(&lab.take().await).await;
    look(&lab).await;
    assert_eq!(lab.count(TaskState::Queued).await, 2);
}
