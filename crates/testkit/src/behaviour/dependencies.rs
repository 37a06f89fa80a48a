//! Dependencies: a task waits for its parents, and its own word decides what their failure means.

use ekiden::core::{OnParentFailure, ReasonCode, Start};
use ekiden::{NewTask, TaskState};

use super::lab::{Lab, code, id};

fn child(lab: &Lab, name: &str, parents: &[&str]) -> NewTask {
    NewTask { parents: parents.iter().map(|parent| id(parent)).collect(), ..lab.plain(name) }
}

async fn waits_for_all(lab: &Lab, count: usize) {
    let parents: Vec<String> = (0..count).map(|number| format!("parent-{number:02}")).collect();
    for parent in &parents {
        lab.add(lab.plain(parent)).await;
    }
    let names: Vec<&str> = parents.iter().map(String::as_str).collect();
    lab.add(child(lab, "child", &names)).await;
    assert_eq!(lab.get("child").await.waits_for.len(), count);
    for left in (0..count).rev() {
        assert_eq!(lab.state("child").await, TaskState::Blocked, "{left} parents are left");
        lab.succeed(&lab.take().await).await;
        lab.settle_down().await;
    }
    assert_eq!(lab.state("child").await, TaskState::Queued);
    lab.succeed(&lab.take_this("child").await).await;
}

/// R21, W8
pub async fn a_child_runs_after_its_parent(lab: Lab) {
    waits_for_all(&lab, 1).await;
}

/// R21, W8
pub async fn a_child_waits_for_eight_parents(lab: Lab) {
    waits_for_all(&lab, 8).await;
}

/// R21, W8
pub async fn a_child_waits_for_twenty_parents(lab: Lab) {
    waits_for_all(&lab, 20).await;
}

/// R21
pub async fn a_parent_that_succeeded_before_is_not_waited_for(lab: Lab) {
    lab.add_succeeded("parent").await;
    lab.add(child(&lab, "child", &["parent"])).await;
    assert_eq!(lab.state("child").await, TaskState::Queued);
    lab.take_this("child").await;
}

/// R21
pub async fn a_parent_between_attempts_is_still_waited_for(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    lab.add(child(&lab, "child", &["parent"])).await;
    lab.fail(&lab.take().await).await;
    lab.settle_down().await;
    assert_eq!(lab.state("child").await, TaskState::Blocked);
    lab.pass(1);
    lab.succeed(&lab.take().await).await;
    lab.settle_down().await;
    lab.take_this("child").await;
}

/// R21
pub async fn a_chain_runs_link_by_link(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.add(child(&lab, "b", &["a"])).await;
    lab.add(child(&lab, "c", &["b"])).await;
    for name in ["a", "b", "c"] {
        let leased = lab.take_this(name).await;
        lab.nothing_to_take().await;
        lab.succeed(&leased).await;
        lab.settle_down().await;
    }
}

/// R21
pub async fn many_children_are_released_by_one_parent(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    for number in 0..60 {
        lab.add(child(&lab, &format!("child-{number}"), &["parent"])).await;
    }
    lab.succeed(&lab.take_this("parent").await).await;
    lab.settle_down().await;
    assert_eq!(lab.count(TaskState::Queued).await, 60);
}

/// R21
pub async fn children_with_large_payloads_are_told_of_their_parents_end(lab: Lab) {
    for parent in ["good", "bad"] {
        lab.add_all(&[parent]).await;
        for number in 0..20 {
            let name = format!("{parent}-{number:02}");
            lab.add(NewTask { parents: vec![id(parent)], ..lab.large(&name) }).await;
        }
    }
    lab.succeed(&lab.take_this("good").await).await;
    lab.kill(&lab.take_this("bad").await).await;
    lab.settle_down().await;
    assert_eq!((lab.count(TaskState::Queued).await, lab.count(TaskState::Blocked).await), (20, 20));
    for number in 0..20 {
        assert_eq!(lab.get(&format!("bad-{number:02}")).await.reason, Some(ReasonCode::DependencyFailed));
    }
}

/// W8
pub async fn a_failed_parent_blocks_for_good_if_nobody_says_otherwise(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    lab.add(child(&lab, "child", &["parent"])).await;
    lab.kill(&lab.take().await).await;
    lab.settle_down().await;
    let record = lab.get("child").await;
    assert_eq!((record.state, record.reason), (TaskState::Blocked, Some(ReasonCode::DependencyFailed)));
    lab.queue.release(lab.task("child")).await.expect("somebody may let it run all the same");
    lab.take_this("child").await;
}

/// W8
pub async fn a_failed_parent_cancels_where_the_child_says_so(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    lab.add(NewTask { on_parent_failure: OnParentFailure::Cancel, ..child(&lab, "child", &["parent"]) }).await;
    lab.add(NewTask { on_parent_failure: OnParentFailure::Cancel, ..child(&lab, "grandchild", &["child"]) }).await;
    lab.kill(&lab.take().await).await;
    lab.settle_down().await;
    let record = lab.get("child").await;
    assert_eq!((record.state, record.reason), (TaskState::Cancelled, Some(ReasonCode::DependencyFailed)));
    assert_eq!(lab.state("grandchild").await, TaskState::Cancelled);
}

/// W8
pub async fn a_failed_parent_does_not_matter_where_the_child_says_so(lab: Lab) {
    lab.add_all(&["parent", "other"]).await;
    lab.add(NewTask { on_parent_failure: OnParentFailure::Run, ..child(&lab, "child", &["parent", "other"]) }).await;
    lab.kill(&lab.take_this("parent").await).await;
    lab.settle_down().await;
    assert_eq!(lab.state("child").await, TaskState::Blocked, "the other parent is waited for");
    lab.succeed(&lab.take_this("other").await).await;
    lab.settle_down().await;
    lab.take_this("child").await;
}

/// W8
pub async fn a_cancelled_parent_is_a_failed_one(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    lab.add(NewTask { on_parent_failure: OnParentFailure::Cancel, ..child(&lab, "child", &["parent"]) }).await;
    lab.cancel("parent").await;
    lab.settle_down().await;
    assert_eq!(lab.state("child").await, TaskState::Cancelled);
}

/// W8
pub async fn a_parent_that_died_before_counts_as_failed(lab: Lab) {
    lab.add_dead("parent").await;
    for (name, on_parent_failure, state) in [
        ("block", OnParentFailure::Block, TaskState::Blocked),
        ("cancel", OnParentFailure::Cancel, TaskState::Cancelled),
        ("run", OnParentFailure::Run, TaskState::Queued),
    ] {
        lab.add(NewTask { on_parent_failure, ..child(&lab, name, &["parent"]) }).await;
        assert_eq!(lab.state(name).await, state, "{name}");
    }
}

/// W8
pub async fn an_unknown_parent_is_refused_and_nothing_changes(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    assert_eq!(lab.refused(child(&lab, "child", &["parent", "nobody"])).await, ReasonCode::DependencyUnknown);
    lab.gone("child").await;
    lab.succeed(&lab.take_this("parent").await).await;
    assert!(lab.settle_down().await.is_idle());
}

/// W8
pub async fn an_unknown_parent_among_many_is_refused_and_nothing_changes(lab: Lab) {
    let mut parents: Vec<String> = (0..12).map(|number| format!("parent-{number}")).collect();
    for parent in &parents {
        lab.add(lab.plain(parent)).await;
    }
    parents.push("nobody".to_owned());
    let names: Vec<&str> = parents.iter().map(String::as_str).collect();
    assert_eq!(lab.refused(child(&lab, "child", &names)).await, ReasonCode::DependencyUnknown);
    lab.gone("child").await;
    lab.add(child(&lab, "child", &names[..12])).await;
    assert_eq!(lab.state("child").await, TaskState::Blocked);
}

/// W8
pub async fn a_task_cannot_wait_for_itself(lab: Lab) {
    assert_eq!(lab.refused(child(&lab, "a", &["a"])).await, ReasonCode::DependencyCycle);
    lab.gone("a").await;
}

/// W8
pub async fn no_two_tasks_can_wait_for_each_other(lab: Lab) {
    let both = vec![child(&lab, "a", &["b"]), child(&lab, "b", &["a"])];
    let codes: Vec<ReasonCode> = lab.queue.enqueue(both).await.into_iter().map(code).collect();
    assert_eq!(codes, [ReasonCode::DependencyUnknown; 2], "parents come first, so a cycle cannot be said");
    lab.gone("a").await;
    lab.gone("b").await;
}

/// W8
pub async fn a_parent_named_twice_and_too_many_parents_are_refused(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    assert_eq!(lab.refused(child(&lab, "a", &["parent", "parent"])).await, ReasonCode::DependencyTooMany);
    let names: Vec<String> = (0..257).map(|number| format!("parent-{number}")).collect();
    for chunk in names.chunks(100) {
        lab.queue.enqueue(chunk.iter().map(|name| lab.plain(name)).collect()).await;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(lab.refused(child(&lab, "a", &names)).await, ReasonCode::DependencyTooMany);
    lab.gone("a").await;
}

/// R21
pub async fn a_held_child_is_not_let_go_by_its_parents(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    lab.add(NewTask { start: Start::Held, ..child(&lab, "child", &["parent"]) }).await;
    lab.succeed(&lab.take().await).await;
    lab.settle_down().await;
    assert_eq!(lab.state("child").await, TaskState::Pending);
    lab.queue.release(lab.task("child")).await.expect("a held task can be released");
    lab.take_this("child").await;
}

/// R21
pub async fn a_blocked_child_cannot_be_released_while_its_parents_are_open(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    lab.add(child(&lab, "child", &["parent"])).await;
    assert_eq!(code(lab.queue.release(lab.task("child")).await), ReasonCode::DependencyUnmet);
    assert_eq!(lab.state("child").await, TaskState::Blocked);
}

/// R21
pub async fn parents_and_children_may_come_in_one_batch(lab: Lab) {
    let names: Vec<String> = (0..12).map(|number| format!("link-{number:02}")).collect();
    let link = |(name, parent): (&String, &String)| child(&lab, name, &[parent]);
    let mut batch: Vec<NewTask> = vec![lab.plain(&names[0])];
    batch.extend(names[1..].iter().zip(&names).map(link));
    batch.push(child(&lab, "all", &names.iter().map(String::as_str).collect::<Vec<_>>()));
    let taken = lab.queue.enqueue(batch).await.iter().filter(|one| one.is_ok()).count();
    assert_eq!((taken, lab.count(TaskState::Blocked).await), (13, 12));
    assert_eq!(lab.get("all").await.waits_for.len(), 12);
}
