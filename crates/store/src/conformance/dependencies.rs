//! Cases: a task waits for its parents, and no end of a parent goes unseen.

use std::sync::Arc;

use ekiden_core::dependency::OnParentFailure;
use ekiden_core::event::Event;
use ekiden_core::index::DueIndex;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lease::Token;
use ekiden_core::plan::{AddParents, Enqueue, Happen, Lanes, Retry};
use ekiden_core::reason::ReasonCode;
use ekiden_core::retry::FailureKind;
use ekiden_core::sweep::Sweep;
use ekiden_core::task::{Phase, Task};
use ekiden_core::transition::Start;

use super::Lab;
use super::lab::{at_once, id, ns, task_key};
use crate::ext::{PlanError, StoreExt};
use crate::op::Answer;

fn release_of(parent: &str) -> Key {
    Key::sweep(&ns(), &Sweep::release_id(&id(parent)))
}

/// Claims until this one comes, and gives it. Others stay claimed.
async fn take_named(lab: &Lab, name: &str) -> Arc<Task> {
    let task = lab.take().await;
    assert_eq!(task.id().as_str(), name);
    task
}

async fn die(lab: &Lab, task: &Task) -> Arc<Task> {
    let token = Token(task.state.execution_no);
    let event = Event::Failed { token, kind: FailureKind::Permanent, error: "no".into() };
    lab.changed(task.id().as_str(), event).await
}

/// Ends a claimed parent badly and tells its children.
async fn die_and_tell(lab: &Lab, task: &Task) {
    die(lab, task).await;
    lab.sweep(&release_of(task.id().as_str())).await;
}

async fn edges(lab: &Lab) -> usize {
    lab.names(RecordKind::Edge, "", 100).await.len()
}

async fn child_with(lab: &Lab, name: &str, parent: &str, on_parent_failure: OnParentFailure) -> Arc<Task> {
    let spec = ekiden_core::task::Spec { on_parent_failure, ..lab.spec(name) };
    lab.new_task(Enqueue { parents: vec![id(parent)], ..lab.plan_of(spec) }).await
}

/// C1, C11
pub async fn a_child_is_blocked_until_all_parents_succeeded(lab: Lab) {
    lab.enqueue("p-1").await;
    lab.enqueue("p-2").await;
    let child = lab.enqueue_child("child", &["p-1", "p-2"]).await;
    assert_eq!((child.state.phase, child.state.waits_for.len()), (Phase::Blocked, 2));
    let parents = lab.take_all(2).await;
    lab.nothing_to_claim().await;
    lab.succeed(&parents[0]).await;
    lab.sweep(&release_of(parents[0].id().as_str())).await;
    assert_eq!(lab.phase("child").await, Phase::Blocked);
    lab.nothing_to_claim().await;
    lab.succeed(&parents[1]).await;
    lab.sweep(&release_of(parents[1].id().as_str())).await;
    take_named(&lab, "child").await;
    assert_eq!(edges(&lab).await, 0, "edges go with the word");
}

/// C1
pub async fn a_parents_end_starts_a_release_exactly_if_somebody_waits(lab: Lab) {
    for name in ["alone", "parent"] {
        lab.enqueue(name).await;
    }
    lab.enqueue_child("child", &["parent"]).await;
    for task in lab.take_all(2).await {
        lab.succeed(&task).await;
    }
    assert_eq!(lab.names(RecordKind::Sweep, "", 10).await, ["release/parent"]);
    lab.lists_due(DueIndex::Sweep, &["release/parent"]).await;
    lab.sweep(&release_of("parent")).await;
    assert_eq!(lab.names(RecordKind::Sweep, "", 10).await, Vec::<String>::new());
}

/// C1
pub async fn a_failed_parent_blocks_cancels_or_runs_its_children(lab: Lab) {
    lab.enqueue("parent").await;
    for (name, policy) in
        [("block", OnParentFailure::Block), ("cancel", OnParentFailure::Cancel), ("run", OnParentFailure::Run)]
    {
        child_with(&lab, name, "parent", policy).await;
    }
    die_and_tell(&lab, &*take_named(&lab, "parent").await).await;
    let state = async |name| {
        let task = lab.task(name).await.expect("it is there");
        (task.state.phase, task.state.reason)
    };
    assert_eq!(state("block").await, (Phase::Blocked, Some(ReasonCode::DependencyFailed)));
    assert_eq!(state("cancel").await, (Phase::Cancelled, Some(ReasonCode::DependencyFailed)));
    assert_eq!(state("run").await, (Phase::Queued, None));
    take_named(&lab, "run").await;
    lab.nothing_to_claim().await;
    lab.changed("block", Event::Released).await;
    take_named(&lab, "block").await;
}

/// C1
pub async fn a_cancelled_parent_is_a_failed_one(lab: Lab) {
    lab.enqueue("parent").await;
    child_with(&lab, "child", "parent", OnParentFailure::Cancel).await;
    child_with(&lab, "grandchild", "child", OnParentFailure::Cancel).await;
    lab.cancel("parent").await;
    lab.sweep(&release_of("parent")).await;
    assert_eq!(lab.phase("child").await, Phase::Cancelled);
    lab.sweep(&release_of("child")).await;
    assert_eq!(lab.phase("grandchild").await, Phase::Cancelled, "the word is passed on");
    assert_eq!(edges(&lab).await, 0);
}

/// C1
pub async fn a_parent_that_ended_before_the_enqueue_counts(lab: Lab) {
    for name in ["good", "bad"] {
        lab.enqueue(name).await;
    }
    let parents = lab.take_all(2).await;
    for task in &parents {
        if task.id() == &id("good") {
            lab.succeed(task).await
        } else {
            die(&lab, task).await
        };
    }
    assert_eq!(lab.enqueue_child("after-good", &["good"]).await.state.phase, Phase::Queued);
    let blocked = child_with(&lab, "block", "bad", OnParentFailure::Block).await;
    assert_eq!((blocked.state.phase, blocked.state.reason), (Phase::Blocked, Some(ReasonCode::DependencyFailed)));
    assert_eq!(child_with(&lab, "cancel", "bad", OnParentFailure::Cancel).await.state.phase, Phase::Cancelled);
    assert_eq!(child_with(&lab, "run", "bad", OnParentFailure::Run).await.state.phase, Phase::Queued);
    assert_eq!(lab.task("block").await, Some(blocked), "the answer is what was written");
    assert_eq!(lab.take_all(2).await.len(), 2);
}

/// C1
pub async fn an_unknown_parent_is_refused_and_nothing_is_written(lab: Lab) {
    let parent = lab.enqueue("known").await;
    let before = lab.get(&task_key("known")).await;
    let plan = Enqueue { parents: vec![id("known"), id("unknown")], ..lab.plan_of(lab.spec("child")) };
    assert_eq!(lab.refused(&plan).await, ReasonCode::DependencyUnknown);
    assert_eq!(lab.task("child").await, None);
    assert_eq!((lab.get(&task_key("known")).await, edges(&lab).await), (before, 0), "{} is untouched", parent.id());
}

/// C2
pub async fn a_parent_that_ends_while_a_child_is_drafted_is_seen(lab: Lab) {
    for (parent, child, elder) in [("p-1", "c-1", None), ("p-2", "c-2", Some("elder"))] {
        lab.enqueue(parent).await;
        let task = take_named(&lab, parent).await;
        // With an elder child the parent is marked already, and a further child only checks it.
        if let Some(elder) = elder {
            lab.enqueue_child(elder, &[parent]).await;
        }
        let plan = Enqueue { parents: vec![id(parent)], ..lab.plan_of(lab.spec(child)) };
        let draft = lab.draft(&plan, Lanes::Admit).await;
        lab.succeed(&task).await;
        assert!(matches!(lab.store().commit(draft).await, Ok(Answer::Conflict(_))), "{parent} ended unseen");
        assert_eq!(lab.task(child).await, None);
        assert_eq!(lab.new_task(plan).await.state.phase, Phase::Queued);
        take_named(&lab, child).await;
    }
}

/// C2
pub async fn a_child_that_comes_while_its_parents_end_is_drafted_is_told(lab: Lab) {
    lab.enqueue("parent").await;
    let parent = take_named(&lab, "parent").await;
    let event = Event::Succeeded { token: Token(parent.state.execution_no), result: None };
    let settle = Happen { task: task_key("parent"), event };
    for child in ["first", "second"] {
        let draft = lab.draft(&settle, Lanes::Admit).await;
        lab.enqueue_child(child, &["parent"]).await;
        let answer = lab.store().commit(draft).await.expect("a commit on a store without faults");
        if child == "first" {
            assert!(matches!(answer, Answer::Conflict(_)), "nobody waited when the end was drafted");
        } else {
            assert!(matches!(answer, Answer::Applied(_)), "once the parent knows, further children only check it");
        }
    }
    lab.sweep(&release_of("parent")).await;
    assert_eq!([lab.phase("first").await, lab.phase("second").await], [Phase::Queued, Phase::Queued]);
}

/// C2, C12
pub async fn no_child_is_lost_when_it_races_with_its_parents_end(lab: Lab) {
    for round in 0..50 {
        let (parent, child) = (format!("p-{round}"), format!("c-{round}"));
        lab.enqueue(&parent).await;
        let task = take_named(&lab, &parent).await;
        at_once(2, |racer| {
            let (lab, task, child) = (lab.clone(), task.clone(), child.clone());
            async move {
                if racer == round % 2 {
                    lab.succeed(&task).await;
                } else {
                    lab.enqueue_child(&child, &[task.id().as_str()]).await;
                }
            }
        })
        .await;
        lab.sweep(&release_of(&parent)).await;
        let child = take_named(&lab, &child).await;
        lab.succeed(&child).await;
    }
}

async fn held(lab: &Lab, name: &str, parents: &[&str]) {
    let parents = parents.iter().map(|parent| id(parent)).collect();
    lab.new_task(Enqueue { start: Start::Held, parents, ..lab.plan_of(lab.spec(name)) }).await;
}

fn add(name: &str, parents: &[&str]) -> AddParents {
    AddParents { task: task_key(name), parents: parents.iter().map(|parent| id(parent)).collect() }
}

/// C1
pub async fn a_held_task_may_get_more_parents(lab: Lab) {
    for number in 0..12 {
        held(&lab, &format!("p-{number:02}"), &[]).await;
    }
    held(&lab, "child", &["p-00", "p-01"]).await;
    let names: Vec<String> = (1..9).map(|number| format!("p-{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(lab.run(&add("child", &names)).await.expect("eight are allowed").state.waits_for.len(), 9);
    lab.run(&add("child", &["p-09"])).await.expect("more are allowed");
    assert_eq!((edges(&lab).await, lab.phase("child").await), (10, Phase::Pending));
    lab.changed("child", Event::Released).await;
    assert_eq!(lab.phase("child").await, Phase::Blocked);
    assert_eq!(lab.refused(&add("child", &["p-10"])).await, ReasonCode::TaskNotHeld);
    for number in 0..10 {
        let parent = format!("p-{number:02}");
        lab.changed(&parent, Event::Released).await;
        lab.succeed(&*take_named(&lab, &parent).await).await;
        lab.sweep(&release_of(&parent)).await;
    }
    take_named(&lab, "child").await;
}

/// C1
pub async fn a_task_with_more_parents_than_a_commit_holds_waits_for_all(lab: Lab) {
    let names: Vec<String> = (0..20).map(|number| format!("p-{number:02}")).collect();
    for name in &names {
        lab.enqueue(name).await;
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let child = lab.enqueue_child("child", &names).await;
    assert_eq!((child.state.phase, child.state.waits_for.len(), edges(&lab).await), (Phase::Blocked, 20, 8));
    lab.succeed(&*take_named(&lab, "p-00").await).await;
    lab.sweep(&Key::sweep(&ns(), &Sweep::link_id(&id("child")))).await;
    for name in &names {
        if *name != "p-00" {
            lab.succeed(&*take_named(&lab, name).await).await;
        }
        assert_eq!(lab.phase("child").await, Phase::Blocked, "{name} has not told it");
        lab.sweep(&release_of(name)).await;
    }
    take_named(&lab, "child").await;
    assert_eq!(edges(&lab).await, 0);
}

/// C1
pub async fn too_many_parents_in_one_commit_are_refused(lab: Lab) {
    for number in 0..9 {
        lab.enqueue(&format!("p-{number}")).await;
    }
    let nine: Vec<String> = (0..9).map(|number| format!("p-{number}")).collect();
    let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
    held(&lab, "held", &[]).await;
    assert_eq!(lab.refused(&add("held", &nine)).await, ReasonCode::DependencyTooMany);
    assert_eq!(edges(&lab).await, 0);
    assert_eq!(lab.refused(&add("held", &["p-1", "p-1"])).await, ReasonCode::DependencyTooMany, "named twice");
}

/// C1
pub async fn a_cycle_is_refused_with_its_path(lab: Lab) {
    held(&lab, "a", &[]).await;
    held(&lab, "b", &["a"]).await;
    held(&lab, "c", &["b"]).await;
    let before = lab.get(&task_key("a")).await;
    let Err(PlanError::Refused(refusal)) = lab.run(&add("a", &["c"])).await else { panic!("a cycle was let in") };
    assert_eq!(refusal.code, ReasonCode::DependencyCycle);
    assert_eq!(refusal.context.get("path").map(String::as_str), Some("a → c → b → a"));
    assert_eq!(lab.refused(&add("a", &["a"])).await, ReasonCode::DependencyCycle);
    assert_eq!((lab.get(&task_key("a")).await, edges(&lab).await), (before, 2));
}

/// C2
pub async fn two_who_would_close_a_cycle_together_do_not_both(lab: Lab) {
    held(&lab, "a", &[]).await;
    held(&lab, "b", &[]).await;
    let (first, second) = (add("a", &["b"]), add("b", &["a"]));
    let stale = lab.draft(&second, Lanes::Admit).await;
    lab.run(&first).await.expect("no cycle yet");
    assert!(matches!(lab.store().commit(stale).await, Ok(Answer::Conflict(_))));
    assert_eq!(lab.refused(&second).await, ReasonCode::DependencyCycle);
}

async fn reopenable(lab: &Lab, name: &str) -> Arc<Task> {
    let policy = lab.policy(|policy| policy.reopen = true);
    lab.enqueue_with(name, |spec| spec.policy = policy).await;
    take_named(lab, name).await
}

async fn reopen_and_succeed(lab: &Lab, name: &str) {
    lab.run(&Retry { task: task_key(name), new_id: id("never-used") }).await.expect("it may be reopened");
    lab.succeed(&*take_named(lab, name).await).await;
    lab.sweep(&release_of(name)).await;
}

/// C1
pub async fn a_reopened_parent_that_succeeds_releases_whom_its_failure_blocked(lab: Lab) {
    let parent = reopenable(&lab, "parent").await;
    lab.enqueue_child("child", &["parent"]).await;
    die_and_tell(&lab, &parent).await;
    assert_eq!(lab.task("child").await.map(|task| task.state.reason), Some(Some(ReasonCode::DependencyFailed)));
    reopen_and_succeed(&lab, "parent").await;
    take_named(&lab, "child").await;
    assert_eq!(edges(&lab).await, 0);
}

/// C1
pub async fn a_reopened_parent_also_releases_a_child_that_came_after_its_failure(lab: Lab) {
    let parent = reopenable(&lab, "parent").await;
    die(&lab, &parent).await;
    let child = lab.enqueue_child("child", &["parent"]).await;
    assert_eq!((child.state.phase, child.state.reason), (Phase::Blocked, Some(ReasonCode::DependencyFailed)));
    reopen_and_succeed(&lab, "parent").await;
    take_named(&lab, "child").await;
    assert_eq!(edges(&lab).await, 0);
}
