//! The nine states: each is reached, shown and counted, and no other count moves.

use ekiden::core::{EventName, Millis, ReasonCode, Start};
use ekiden::store::{CountScope, Counts};
use ekiden::{NewTask, TaskState, Verdict};

use super::lab::{Lab, code, id, pool, question};

/// One task in each of the nine states, in pool `default`.
async fn one_of_each(lab: &Lab) {
    lab.add_succeeded("succeeded").await;
    lab.add_dead("dead").await;
    lab.add_asking("needs_input", question("q")).await;
    lab.add(lab.plain("retry_scheduled")).await;
    lab.fail(&lab.take().await).await;
    lab.add(lab.plain("running")).await;
    lab.take_this("running").await;
    lab.add(lab.plain("cancelled")).await;
    lab.cancel("cancelled").await;
    lab.add(NewTask { start: Start::Held, ..lab.plain("pending") }).await;
    lab.add(lab.plain("queued")).await;
    lab.add(NewTask { parents: vec![id("queued")], ..lab.plain("blocked") }).await;
}

/// R5, R9
pub async fn every_state_is_reached_and_shown(lab: Lab) {
    one_of_each(&lab).await;
    for state in TaskState::ALL {
        assert_eq!(lab.state(state.as_str()).await, state);
    }
}

/// R5, R9
pub async fn every_state_is_counted(lab: Lab) {
    one_of_each(&lab).await;
    let counts = lab.counts().await;
    for state in TaskState::ALL {
        assert_eq!(counts.get(state), 1, "{state}");
    }
}

/// R5
pub async fn an_empty_queue_counts_nine_zeros(lab: Lab) {
    assert_eq!(lab.counts().await.by_phase, Counts::zero().by_phase);
}

/// R9
pub async fn counts_are_kept_for_each_pool(lab: Lab) {
    lab.set_pool("side", |_| {}).await;
    lab.add_all(&["a", "b"]).await;
    lab.add(NewTask { pool: pool("side"), ..lab.plain("c") }).await;
    lab.take().await;
    let of = async |name: &str| {
        let scope = CountScope { namespace: lab.namespace(), pool: Some(pool(name)) };
        let counts = lab.queue.counts_by_state(scope).await.expect("counts can be read");
        (counts.get(TaskState::Queued), counts.get(TaskState::Running))
    };
    assert_eq!((of("default").await, of("side").await, of("nowhere").await), ((1, 1), (1, 0), (0, 0)));
    assert_eq!(lab.count(TaskState::Queued).await, 2);
}

/// R9
pub async fn counts_follow_a_life_step_by_step(lab: Lab) {
    let counted = async |state: TaskState| {
        let counts = lab.counts().await;
        assert_eq!((counts.get(state), counts.by_phase.values().sum::<u64>()), (1, 1), "{state}");
    };
    lab.add(NewTask { start: Start::Held, ..lab.plain("a") }).await;
    counted(TaskState::Pending).await;
    lab.queue.release(lab.task("a")).await.expect("a held task can be released");
    counted(TaskState::Queued).await;
    let leased = lab.take().await;
    counted(TaskState::Running).await;
    lab.fail(&leased).await;
    counted(TaskState::RetryScheduled).await;
    lab.pass(1);
    lab.settle_down().await;
    counted(TaskState::Queued).await;
    lab.succeed(&lab.take().await).await;
    counted(TaskState::Succeeded).await;
}

/// R5
pub async fn what_ended_never_runs_again_by_itself(lab: Lab) {
    lab.add_succeeded("succeeded").await;
    lab.add_dead("dead").await;
    lab.add(lab.plain("cancelled")).await;
    lab.cancel("cancelled").await;
    for _ in 0..4 {
        lab.live_on(3_600).await;
        lab.settle_down().await;
        lab.nothing_to_take().await;
    }
    assert_eq!(lab.counts().await.by_phase.values().sum::<u64>(), 3);
}

/// R5
pub async fn commands_on_what_ended_are_refused_and_change_nothing(lab: Lab) {
    lab.add_succeeded("a").await;
    let before = lab.get("a").await;
    assert_eq!(code(lab.queue.cancel(lab.task("a"), None).await), ReasonCode::TaskFinal);
    assert_eq!(code(lab.queue.release(lab.task("a")).await), ReasonCode::TaskFinal);
    assert_eq!(code(lab.queue.retry(lab.task("a")).await), ReasonCode::TaskFinal);
    assert_eq!(lab.get("a").await, before);
}

/// R9, R14
pub async fn history_tells_every_change_in_order(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    lab.pass(2);
    lab.fail(&leased).await;
    lab.pass(1);
    lab.succeed(&lab.take().await).await;
    let record = lab.get("a").await;
    let lines: Vec<_> = record.history.iter().map(|line| (line.event, line.phase, line.execution_no)).collect();
    let told: Vec<_> = lines.into_iter().filter(|(event, ..)| *event != EventName::BecameDue).collect();
    assert_eq!(
        told,
        [
            (EventName::Enqueued, TaskState::Queued, 0),
            (EventName::Claimed, TaskState::Running, 1),
            (EventName::Failed, TaskState::RetryScheduled, 1),
            (EventName::Claimed, TaskState::Running, 2),
            (EventName::Succeeded, TaskState::Succeeded, 2),
        ]
    );
    assert!(record.history.is_sorted_by_key(|line| line.at));
}

/// R9
pub async fn a_failure_is_told_in_history_with_its_message(lab: Lab) {
    lab.add_dead("a").await;
    let record = lab.get("a").await;
    let last = record.history.last().expect("a task has a history");
    assert_eq!((last.event, last.phase, last.note.as_deref()), (EventName::Failed, TaskState::Dead, Some("hopeless")));
}

/// R18
pub async fn history_and_attempts_are_bounded(lab: Lab) {
    lab.add(lab.plain("a")).await;
    for _ in 0..40 {
        let leased = lab.take().await;
        lab.settle(&leased, Verdict::Snoozed(Millis::ZERO)).await.expect("a holder may snooze");
    }
    let record = lab.get("a").await;
    assert_eq!((record.history.len(), record.recent.len(), record.outcomes.snoozed), (32, 10, 40));
    assert_eq!((record.execution_no, record.recent[9].execution_no), (40, 40), "the latest are kept");
}

/// R4
pub async fn moments_of_a_life_are_kept(lab: Lab) {
    let created = lab.now();
    lab.add(lab.plain("a")).await;
    lab.pass(1);
    let (started, leased) = (lab.now(), lab.take().await);
    lab.pass(1);
    lab.succeed(&leased).await;
    let record = lab.get("a").await;
    assert_eq!((record.created_at, record.started_at), (created, Some(started)));
    assert_eq!((record.finished_at, record.updated_at), (Some(lab.now()), lab.now()));
}
