//! Retention: what ended goes when its time is over, and not before.

use ekiden::core::{Keep, Millis, TaskFilter};
use ekiden::store::CountScope;
use ekiden::{Bulk, NewTask, TaskState, Wishes};

use super::lab::{Lab, id, sweep_id};

fn kept(lab: &Lab, name: &str, keep: Keep, keep_dead: Keep) -> NewTask {
    NewTask { wishes: Wishes { keep: Some(keep), keep_dead: Some(keep_dead), ..Wishes::default() }, ..lab.plain(name) }
}

fn hour() -> Keep {
    Keep::For(Millis::from_secs(3_600))
}

async fn purge(lab: &Lab, name: &str, filter: TaskFilter) {
    lab.queue.start_bulk(sweep_id(name), Bulk::Purge(filter)).await.expect("a purge can be started");
    lab.settle_down().await;
}

/// R18
pub async fn a_succeeded_task_goes_when_its_time_is_over_and_not_before(lab: Lab) {
    lab.add(kept(&lab, "a", hour(), Keep::Forever)).await;
    lab.pass(100);
    lab.succeed(&lab.take().await).await;
    lab.pass_ms(3_599_999);
    lab.settle_down().await;
    assert_eq!(lab.state("a").await, TaskState::Succeeded);
    lab.pass_ms(1);
    assert_eq!(lab.settle_down().await.removed, 1);
    lab.gone("a").await;
}

/// R18
pub async fn a_cancelled_task_goes_when_its_time_is_over(lab: Lab) {
    lab.add(kept(&lab, "a", hour(), Keep::Forever)).await;
    lab.cancel("a").await;
    lab.pass(3_600);
    lab.settle_down().await;
    lab.gone("a").await;
}

/// R18, R21
pub async fn dead_tasks_are_kept_with_their_payload(lab: Lab) {
    lab.add(kept(&lab, "a", hour(), Keep::Forever)).await;
    lab.kill(&lab.take().await).await;
    lab.pass(400 * 24 * 3_600);
    lab.settle_down().await;
    let record = lab.get("a").await;
    assert_eq!((record.state, record.envelope), (TaskState::Dead, lab.plain("a").envelope));
}

/// R18
pub async fn dead_tasks_go_where_the_pool_says_so(lab: Lab) {
    lab.add(kept(&lab, "a", Keep::Forever, hour())).await;
    lab.kill(&lab.take().await).await;
    lab.pass(3_600);
    lab.settle_down().await;
    lab.gone("a").await;
}

/// R18
pub async fn the_default_is_seven_days(lab: Lab) {
    lab.add_succeeded("a").await;
    lab.pass(7 * 24 * 3_600 - 1);
    lab.settle_down().await;
    assert_eq!(lab.state("a").await, TaskState::Succeeded);
    lab.pass(1);
    lab.settle_down().await;
    lab.gone("a").await;
}

/// R18
pub async fn open_tasks_are_never_removed(lab: Lab) {
    lab.add(kept(&lab, "a", hour(), hour())).await;
    lab.pass(30 * 24 * 3_600);
    lab.settle_down().await;
    purge(&lab, "p", lab.all()).await;
    assert_eq!(lab.state("a").await, TaskState::Queued);
}

/// R18
pub async fn removed_tasks_leave_counts_and_listing(lab: Lab) {
    lab.add(kept(&lab, "a", hour(), hour())).await;
    lab.succeed(&lab.take().await).await;
    lab.pass(3_600);
    lab.settle_down().await;
    assert_eq!(lab.counts().await.by_phase.values().sum::<u64>(), 0);
    let scope = CountScope { namespace: lab.namespace(), pool: Some(super::lab::pool("default")) };
    let counts = lab.queue.counts_by_state(scope).await.expect("counts can be read");
    assert_eq!(counts.get(TaskState::Succeeded), 0);
    assert!(lab.listed(lab.all()).await.is_empty());
}

/// R18
pub async fn no_task_goes_while_a_lost_enqueue_may_be_repeated(lab: Lab) {
    lab.add(kept(&lab, "a", Keep::For(Millis::from_secs(1)), Keep::Forever)).await;
    lab.succeed(&lab.take().await).await;
    lab.pass(239);
    lab.maintain().await;
    purge(&lab, "p-1", lab.all()).await;
    assert_eq!(lab.state("a").await, TaskState::Succeeded);
    lab.pass(1);
    lab.maintain().await;
    lab.gone("a").await;
}

/// R18
pub async fn a_purge_on_demand_does_not_wait_for_the_time(lab: Lab) {
    lab.add_succeeded("done").await;
    lab.add_dead("dead").await;
    lab.add(lab.plain("open")).await;
    lab.pass(240);
    purge(&lab, "p", TaskFilter { phases: vec![TaskState::Succeeded], ..lab.all() }).await;
    assert_eq!(lab.listed(lab.all()).await.len(), 2);
    lab.gone("done").await;
    purge(&lab, "q", lab.all()).await;
    assert_eq!(lab.listed(lab.all()).await, ["open"]);
}

/// R18, R21
pub async fn a_parent_stays_while_a_child_waits_for_it(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    lab.add(NewTask { parents: vec![id("parent")], ..lab.plain("child") }).await;
    lab.kill(&lab.take().await).await;
    lab.pass(240);
    purge(&lab, "p", lab.all()).await;
    assert_eq!(lab.state("parent").await, TaskState::Dead);
    lab.cancel("child").await;
    purge(&lab, "q", lab.all()).await;
    purge(&lab, "r", lab.all()).await;
    lab.gone("parent").await;
    lab.gone("child").await;
}

/// R18
pub async fn a_removed_id_may_be_used_again(lab: Lab) {
    lab.add_succeeded("a").await;
    lab.pass(240);
    purge(&lab, "p", lab.all()).await;
    lab.add(lab.plain("a")).await;
    assert_eq!((lab.state("a").await, lab.get("a").await.execution_no), (TaskState::Queued, 0));
}
