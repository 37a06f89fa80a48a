//! Waiting: what is due is told in advance, what is overdue expires, and what may run rings.

use ekiden::core::{Millis, ReasonCode, Start, Timestamp};
use ekiden::{Bell, HeardChime, NewTask, TaskState, When};

use super::lab::{Lab, id, serial, signal};

fn later(lab: &Lab, name: &str, secs: u64) -> NewTask {
    NewTask { when: When::After(Millis::from_secs(secs)), ..lab.plain(name) }
}

fn mortal(lab: &Lab, name: &str, secs: u64) -> NewTask {
    NewTask { expires_after: Some(Millis::from_secs(secs)), ..lab.plain(name) }
}

/// R13
pub async fn the_next_moment_is_that_of_the_first_who_waits(lab: Lab) {
    let next = async || lab.queue.next_due(lab.namespace()).await.expect("the next moment can be read");
    assert_eq!(next().await, None);
    lab.add(lab.plain("now")).await;
    lab.add(later(&lab, "b", 40)).await;
    lab.add(later(&lab, "a", 20)).await;
    assert_eq!(next().await, Some(lab.now() + Millis::from_secs(20)));
    lab.pass(20);
    assert_eq!(next().await, Some(lab.now() + Millis::from_secs(20)));
}

/// R13
pub async fn a_retry_is_among_those_who_wait(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let settled = lab.fail(&lab.take().await).await;
    let next = lab.queue.next_due(lab.namespace()).await.expect("the next moment can be read");
    assert_eq!(next, settled.next_run_at);
}

/// R13
pub async fn an_enqueue_rings_at_once(lab: Lab) {
    let bell = lab.queue.bell(&lab.namespace());
    let mut heard = bell.ready.heard();
    lab.add(lab.plain("a")).await;
    signal(bell.ready.since(&mut heard)).await;
}

/// Waits until the bell has rung with a moment. It may ring for nothing before: hints may be wrong.
async fn rung_with(bell: &Bell, heard: &mut HeardChime, now: Timestamp, moment: Timestamp) {
    while bell.earliest(now) != Some(moment) {
        bell.ready.since(heard).await;
    }
}

/// R13
pub async fn a_delayed_enqueue_rings_with_its_moment(lab: Lab) {
    let bell = lab.queue.bell(&lab.namespace());
    let mut heard = bell.ready.heard();
    lab.add(later(&lab, "a", 30)).await;
    signal(rung_with(&bell, &mut heard, lab.now(), lab.now() + Millis::from_secs(30))).await;
}

/// R6, R13
pub async fn a_reschedule_rings_with_its_moment(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let bell = lab.queue.bell(&lab.namespace());
    let mut heard = bell.ready.heard();
    let settled = lab.fail(&leased).await;
    let next = settled.next_run_at.expect("a failed task has a next moment");
    signal(rung_with(&bell, &mut heard, lab.now(), next)).await;
}

/// R13, R20
pub async fn the_end_of_a_task_rings_for_the_next_of_its_key(lab: Lab) {
    for name in ["a", "b"] {
        lab.add(NewTask { lane: serial("k"), ..lab.plain(name) }).await;
    }
    let leased = lab.take_this("a").await;
    let bell = lab.queue.bell(&lab.namespace());
    let mut heard = bell.ready.heard();
    lab.succeed(&leased).await;
    signal(bell.ready.since(&mut heard)).await;
    lab.take_this("b").await;
}

/// R13, R21
pub async fn the_end_of_a_parent_rings_for_maintenance(lab: Lab) {
    lab.add(lab.plain("parent")).await;
    lab.add(NewTask { parents: vec![id("parent")], ..lab.plain("child") }).await;
    let leased = lab.take_this("parent").await;
    let bell = lab.queue.bell(&lab.namespace());
    let (mut work, mut ready) = (bell.work.heard(), bell.ready.heard());
    // The release is somebody else's: whoever looks first.
    let elsewhere = lab.clone();
    let settled = tokio::spawn(async move { elsewhere.succeed(&leased).await });
    signal(bell.work.since(&mut work)).await;
    settled.await.expect("a settlement does not panic");
    lab.settle_down().await;
    signal(bell.ready.since(&mut ready)).await;
    lab.take_this("child").await;
}

/// R13
pub async fn a_release_an_answer_and_a_lifted_pause_ring(lab: Lab) {
    let bell = lab.queue.bell(&lab.namespace());
    lab.add(NewTask { start: Start::Held, ..lab.plain("a") }).await;
    let mut heard = bell.ready.heard();
    lab.queue.release(lab.task("a")).await.expect("a held task can be released");
    signal(bell.ready.since(&mut heard)).await;
    lab.set_pool("default", |_| {}).await;
    signal(bell.ready.since(&mut heard)).await;
    lab.take_this("a").await;
    lab.add_asking("b", super::lab::question("q")).await;
    let mut heard = bell.ready.heard();
    let question = super::lab::question_id("q");
    lab.queue.answer(lab.task("b"), question, "yes".into()).await.expect("it was asked");
    signal(bell.ready.since(&mut heard)).await;
}

/// R21, M8
pub async fn an_expired_task_is_never_given(lab: Lab) {
    lab.add(mortal(&lab, "a", 60)).await;
    lab.pass(60);
    lab.nothing_to_take().await;
    lab.settle_down().await;
    let record = lab.get("a").await;
    assert_eq!((record.state, record.reason), (TaskState::Dead, Some(ReasonCode::Expired)));
}

/// R21, M8
pub async fn a_task_may_run_until_it_expires(lab: Lab) {
    lab.add(mortal(&lab, "a", 60)).await;
    lab.pass_ms(59_999);
    lab.settle_down().await;
    lab.take_this("a").await;
}

/// R21, M8
pub async fn a_running_attempt_outlives_the_expiry(lab: Lab) {
    lab.add(mortal(&lab, "a", 60)).await;
    let leased = lab.take().await;
    lab.live_on(120).await;
    lab.settle_down().await;
    assert_eq!(lab.state("a").await, TaskState::Running);
    lab.succeed(&leased).await;
}

/// R21, M8
pub async fn held_blocked_and_retrying_tasks_expire_too(lab: Lab) {
    lab.add(NewTask { start: Start::Held, ..mortal(&lab, "held", 60) }).await;
    lab.add(NewTask { parents: vec![id("held")], ..mortal(&lab, "blocked", 60) }).await;
    lab.add(mortal(&lab, "retrying", 60)).await;
    let leased = lab.take_this("retrying").await;
    lab.pass_ms(59_900);
    lab.fail(&leased).await;
    lab.pass_ms(100);
    lab.settle_down().await;
    for name in ["held", "blocked", "retrying"] {
        let record = lab.get(name).await;
        assert_eq!((record.state, record.reason), (TaskState::Dead, Some(ReasonCode::Expired)), "{name}");
    }
}

/// R20, M8
pub async fn an_expired_head_frees_the_next_of_its_key(lab: Lab) {
    lab.add(NewTask { lane: serial("k"), ..mortal(&lab, "a", 60) }).await;
    lab.add(NewTask { lane: serial("k"), ..lab.plain("b") }).await;
    lab.pass(60);
    lab.settle_down().await;
    lab.take_this("b").await;
}
