//! Progress: what the holder of a lease says of its attempt, and nobody else.

use ekiden::core::{Progress, ReasonCode, limits};
use ekiden::{TaskState, Verdict};

use super::lab::{Lab, code};

fn steps(done: u64) -> Progress {
    Progress { done, total: Some(10), note: Some("copying".into()) }
}

/// R9
pub async fn what_the_holder_reports_is_shown(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    assert_eq!(lab.get("a").await.progress, None);
    for done in [1, 5] {
        lab.pass(1);
        lab.queue.report(leased.lease.clone(), steps(done)).await.expect("the holder may report");
        let record = lab.get("a").await;
        assert_eq!(
            (record.progress, record.updated_at, record.state),
            (Some(steps(done)), lab.now(), TaskState::Running)
        );
    }
    lab.succeed(&leased).await;
}

/// R19
pub async fn who_does_not_hold_the_task_cannot_report(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let first = lab.take().await;
    lab.settle(&first, Verdict::Interrupted).await.expect("a holder may be interrupted");
    assert_eq!(code(lab.queue.report(first.lease.clone(), steps(1)).await), ReasonCode::LeaseLost);
    let second = lab.take().await;
    assert_eq!(code(lab.queue.report(first.lease, steps(1)).await), ReasonCode::LeaseLost);
    lab.succeed(&second).await;
    assert_eq!(code(lab.queue.report(second.lease, steps(1)).await), ReasonCode::TaskFinal);
    assert_eq!(lab.get("a").await.progress, None);
}

/// R19
pub async fn a_cancelled_attempt_cannot_report(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    lab.cancel("a").await;
    assert_eq!(code(lab.queue.report(leased.lease, steps(1)).await), ReasonCode::TaskCancelled);
}

/// R9
pub async fn the_next_attempt_starts_without_progress(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    lab.queue.report(leased.lease.clone(), steps(9)).await.expect("the holder may report");
    lab.fail(&leased).await;
    lab.pass(1);
    lab.take().await;
    assert_eq!(lab.get("a").await.progress, None);
}

/// R9
pub async fn progress_is_no_step_of_history(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let before = lab.get("a").await.history;
    lab.queue.report(leased.lease.clone(), steps(1)).await.expect("the holder may report");
    assert_eq!(lab.get("a").await.history, before);
    lab.succeed(&leased).await;
}

/// R18
pub async fn a_long_note_is_cut_and_not_refused(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let note = Some("x".repeat(100_000).as_str().into());
    lab.queue.report(leased.lease, Progress { note, ..steps(1) }).await.expect("the holder may report");
    let shown = lab.get("a").await.progress.and_then(|progress| progress.note).expect("the note is kept");
    assert!(shown.len() <= limits::ERROR_BYTES_MAX);
}

/// R19
pub async fn a_settlement_after_reports_is_the_holders_all_the_same(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    lab.queue.report(leased.lease.clone(), steps(1)).await.expect("the holder may report");
    let settled = lab.settle(&leased, Verdict::Succeeded(Some("1".into()))).await.expect("the lease is the same");
    assert_eq!(settled.state, TaskState::Succeeded);
    assert_eq!(lab.get("a").await.progress, Some(steps(1)), "what was said last stays to be seen");
}
