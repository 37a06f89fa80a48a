//! Commands on many tasks: what matches and nothing else, once, with progress to be seen.

use ekiden::core::{ReasonCode, Sweep, TaskFilter, Unique, UniqueHold, UniqueKey};
use ekiden::{Bulk, NewTask, TaskState};

use super::lab::{Lab, group, pool, sweep_id};

async fn carried_out(lab: &Lab, name: &str, bulk: Bulk) {
    let sweep = lab.queue.start_bulk(sweep_id(name), bulk).await.expect("a bulk command can be started");
    assert_eq!((sweep.id.clone(), sweep.changed), (sweep_id(name), 0));
    lab.settle_down().await;
    assert_eq!(progress(lab, name).await, None, "it is done");
}

async fn progress(lab: &Lab, name: &str) -> Option<u64> {
    let found = lab.queue.bulk(lab.namespace(), sweep_id(name)).await.expect("progress can be read");
    found.map(|sweep: std::sync::Arc<Sweep>| sweep.changed)
}

/// R21
pub async fn a_bulk_cancel_ends_what_matches_and_is_open(lab: Lab) {
    lab.add_succeeded("done").await;
    lab.add(lab.plain("runs")).await;
    lab.take().await;
    lab.add_all(&["a", "b"]).await;
    lab.add(NewTask { group: Some(group("g")), ..lab.plain("other") }).await;
    carried_out(&lab, "c", Bulk::Cancel(TaskFilter { phases: vec![TaskState::Queued], ..lab.all() })).await;
    let counts = lab.counts().await;
    assert_eq!((counts.get(TaskState::Cancelled), counts.get(TaskState::Running)), (3, 1));
    assert_eq!(lab.get("a").await.reason, Some(ReasonCode::CancelRequested));
    carried_out(&lab, "d", Bulk::Cancel(lab.all())).await;
    assert_eq!(lab.state("runs").await, TaskState::Cancelled);
    assert_eq!(lab.state("done").await, TaskState::Succeeded);
}

/// R21
pub async fn a_bulk_cancel_by_group_touches_no_other(lab: Lab) {
    for (name, of) in [("a", "g"), ("b", "g"), ("c", "h")] {
        lab.add(NewTask { group: Some(group(of)), ..lab.plain(name) }).await;
    }
    carried_out(&lab, "x", Bulk::Cancel(TaskFilter { group: Some(group("g")), ..lab.all() })).await;
    assert_eq!((lab.count(TaskState::Cancelled).await, lab.state("c").await), (2, TaskState::Queued));
}

/// R21
pub async fn a_bulk_cancel_by_pool_touches_no_other(lab: Lab) {
    lab.set_pool("side", |_| {}).await;
    lab.add(NewTask { pool: pool("side"), ..lab.plain("a") }).await;
    lab.add(lab.plain("b")).await;
    carried_out(&lab, "x", Bulk::Cancel(TaskFilter { pool: Some(pool("side")), ..lab.all() })).await;
    assert_eq!((lab.state("a").await, lab.state("b").await), (TaskState::Cancelled, TaskState::Queued));
}

/// R21
pub async fn what_comes_after_a_bulk_command_is_not_its_business(lab: Lab) {
    lab.add(lab.plain("old")).await;
    lab.queue.start_bulk(sweep_id("x"), Bulk::Cancel(lab.all())).await.expect("a bulk command can be started");
    lab.pass(1);
    lab.add(lab.plain("young")).await;
    lab.settle_down().await;
    assert_eq!((lab.state("old").await, lab.state("young").await), (TaskState::Cancelled, TaskState::Queued));
}

/// R21
pub async fn a_bulk_retry_runs_every_dead_task_again_once(lab: Lab) {
    for name in ["a", "b", "c"] {
        lab.add_dead(name).await;
    }
    lab.add_succeeded("done").await;
    let dead = || TaskFilter { phases: vec![TaskState::Dead], ..lab.all() };
    lab.pass(1);
    carried_out(&lab, "x", Bulk::Retry(dead())).await;
    assert_eq!(lab.count(TaskState::Queued).await, 3);
    carried_out(&lab, "y", Bulk::Retry(dead())).await;
    assert_eq!(lab.count(TaskState::Queued).await, 3, "who was retried is not retried again");
    assert!(lab.get("a").await.retried_as.is_some());
}

/// R21
pub async fn a_bulk_retry_makes_waiting_retries_due(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.fail(&lab.take().await).await;
    carried_out(&lab, "x", Bulk::Retry(TaskFilter { phases: vec![TaskState::RetryScheduled], ..lab.all() })).await;
    lab.take_this("a").await;
}

/// R21
pub async fn the_same_bulk_command_twice_is_started_once(lab: Lab) {
    lab.add_dead("a").await;
    lab.pass(1);
    for _ in 0..3 {
        lab.queue.start_bulk(sweep_id("x"), Bulk::Retry(lab.all())).await.expect("a repeat finds the first");
    }
    lab.settle_down().await;
    assert_eq!(lab.count(TaskState::Queued).await, 1);
}

/// R21
pub async fn a_bulk_command_cancels_and_retries_tasks_with_large_payloads(lab: Lab) {
    for number in 0..20 {
        lab.add(lab.large(&format!("t-{number:02}"))).await;
    }
    lab.pass(1);
    carried_out(&lab, "c", Bulk::Cancel(lab.all())).await;
    assert_eq!(lab.count(TaskState::Cancelled).await, 20);
    carried_out(&lab, "r", Bulk::Retry(lab.all())).await;
    assert_eq!(lab.count(TaskState::Queued).await, 20, "each has a task in its place");
}

/// R21
pub async fn a_bulk_command_on_nothing_is_done_at_once(lab: Lab) {
    carried_out(&lab, "x", Bulk::Cancel(lab.all())).await;
}

/// R21
pub async fn a_bulk_command_that_nobody_started_is_not_there(lab: Lab) {
    assert_eq!(progress(&lab, "nothing").await, None);
}

/// R18, R21
pub async fn a_large_bulk_command_shows_its_progress(lab: Lab) {
    let unique = |number: usize| Unique {
        key: UniqueKey::new(format!("u-{number}")).expect("a short text is a key"),
        hold: UniqueHold::WhileOpen,
    };
    // A key of its own doubles what each cancel writes, so that one round does not do it all.
    for chunk in (0..1_000).collect::<Vec<_>>().chunks(250) {
        let of = |number: &usize| NewTask { unique: Some(unique(*number)), ..lab.plain(&format!("t-{number:04}")) };
        lab.queue.enqueue(chunk.iter().map(of).collect()).await;
    }
    lab.queue.start_bulk(sweep_id("x"), Bulk::Cancel(lab.all())).await.expect("a bulk command can be started");
    let round = lab.maintain().await;
    let changed = progress(&lab, "x").await.expect("it is under way");
    assert!(round.more && changed > 0 && changed < 1_000, "{changed} were cancelled in the first round");
    assert_eq!(lab.count(TaskState::Cancelled).await, changed);
    lab.settle_down().await;
    assert_eq!((lab.count(TaskState::Cancelled).await, progress(&lab, "x").await), (1_000, None));
}
