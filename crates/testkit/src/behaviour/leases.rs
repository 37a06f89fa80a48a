//! Leases and runners: a lease lives as long as its runner beats, and who lost one changes nothing.

use ekiden::core::{Millis, Outcome, ReasonCode, Runner, RunnerStatus, Timestamp, Token};
use ekiden::{Ask, NewTask, TaskState, Verdict, Wishes};

use super::lab::{Lab, RUNNER, code, failure, runner_id};

async fn runners(lab: &Lab) -> Vec<Runner> {
    lab.queue.runners(lab.namespace()).await.expect("runners can be listed")
}

/// R19
pub async fn a_silent_runner_loses_its_tasks_to_others(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.beat(RUNNER).await;
    lab.take().await;
    lab.pass(30);
    lab.maintain().await;
    let record = lab.get("a").await;
    assert_eq!((record.state, record.runner, record.next_run_at), (TaskState::Queued, None, Some(lab.now())));
    assert_eq!((record.attempts, record.recent[0].outcome), (1, Some(Outcome::Lost)));
    assert!(record.last_error.expect("the loss is an error").contains(RUNNER));
    let second = lab.given(Ask { holder: runner_id("runner-2"), ..lab.ask(1) }).await;
    assert_eq!((second[0].attempts, second[0].lease.token), (2, Token(2)));
}

/// R19
pub async fn time_alone_ends_no_lease_before_its_length(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.beat(RUNNER).await;
    lab.take().await;
    lab.pass_ms(29_999);
    lab.settle_down().await;
    assert_eq!(lab.state("a").await, TaskState::Running);
}

/// R15, R19
pub async fn beats_keep_a_lease_for_as_long_as_they_come(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.beat(RUNNER).await;
    let leased = lab.take().await;
    for _ in 0..20 {
        lab.pass(25);
        lab.beat(RUNNER).await;
        lab.settle_down().await;
    }
    assert_eq!(lab.state("a").await, TaskState::Running);
    lab.succeed(&leased).await;
}

/// R19
pub async fn another_runners_beat_keeps_nobody_elses_lease(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.beat(RUNNER).await;
    lab.take().await;
    lab.pass(20);
    lab.beat("runner-2").await;
    lab.pass(10);
    lab.maintain().await;
    assert_eq!(lab.state("a").await, TaskState::Queued);
}

/// R19
pub async fn a_late_settlement_counts_until_somebody_takes_the_task(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    lab.lose_runner().await;
    assert_eq!(lab.state("a").await, TaskState::Queued);
    lab.succeed(&leased).await;
    let record = lab.get("a").await;
    assert_eq!((record.outcomes.succeeded, record.outcomes.lost), (1, 0), "the late word replaces the loss");
    assert!(lab.given(Ask { holder: runner_id("runner-2"), ..lab.ask(1) }).await.is_empty());
}

/// R19
pub async fn a_late_settlement_is_refused_once_the_task_was_taken(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let lost = lab.take().await;
    lab.lose_runner().await;
    let next = lab.given(Ask { holder: runner_id("runner-2"), ..lab.ask(1) }).await;
    assert_eq!(code(lab.queue.mark_succeeded(lost.lease.clone(), None).await), ReasonCode::LeaseLost);
    assert_eq!(code(lab.queue.mark_failed(lost.lease, failure("no")).await), ReasonCode::LeaseLost);
    lab.succeed(&next[0]).await;
}

/// R7
pub async fn the_third_lost_attempt_in_a_row_is_the_last(lab: Lab) {
    lab.add(lab.plain("a")).await;
    for number in 1..=3 {
        let name = format!("runner-{number}");
        lab.beat(&name).await;
        let given = lab.given(Ask { holder: runner_id(&name), ..lab.ask(1) }).await;
        assert_eq!(given[0].attempts, number);
        lab.pass(30);
        lab.settle_down().await;
    }
    let record = lab.get("a").await;
    assert_eq!((record.state, record.reason), (TaskState::Dead, Some(ReasonCode::CrashLimit)));
    assert_eq!((record.attempts, record.outcomes.lost), (3, 3));
}

/// R7
pub async fn an_attempt_that_ends_by_its_own_word_starts_the_crash_count_anew(lab: Lab) {
    lab.add(lab.plain("a")).await;
    for number in 1..=4 {
        let name = format!("runner-{number}");
        lab.beat(&name).await;
        let given = lab.given(Ask { holder: runner_id(&name), ..lab.ask(1) }).await;
        if number == 2 {
            lab.fail(&given[0]).await;
        }
        lab.pass(30);
        lab.settle_down().await;
    }
    assert_eq!((lab.state("a").await, lab.get("a").await.attempts), (TaskState::Queued, 4));
}

/// R7
pub async fn a_lost_last_attempt_is_death(lab: Lab) {
    lab.add(NewTask { wishes: Wishes { attempts_max: Some(1), ..Wishes::default() }, ..lab.plain("a") }).await;
    lab.take().await;
    lab.lose_runner().await;
    let record = lab.get("a").await;
    assert_eq!((record.state, record.reason), (TaskState::Dead, Some(ReasonCode::AttemptsExhausted)));
}

/// R19
pub async fn a_dead_incarnations_beat_is_refused(lab: Lab) {
    lab.lose_runner().await;
    assert_eq!(code(lab.queue.beat(lab.runner(RUNNER)).await), ReasonCode::RunnerDead);
    lab.beat("runner-1b").await;
}

/// R19
pub async fn maintenance_says_when_a_silent_runner_is_dead(lab: Lab) {
    lab.beat(RUNNER).await;
    let dead_at = lab.now() + lab.runner(RUNNER).lease;
    let next = async || lab.queue.maintain(lab.namespace()).await.expect("maintenance is safe at any time").next_tick;
    assert_eq!(next().await, Some(dead_at), "however far that is");
    lab.pass_until(Timestamp::from_millis(dead_at.as_millis() - 1_500));
    assert_eq!(next().await, Some(dead_at));
}

/// R19
pub async fn a_dead_runner_is_given_nothing(lab: Lab) {
    lab.lose_runner().await;
    lab.add(lab.plain("a")).await;
    assert_eq!(code(lab.queue.dequeue_ready(lab.ask(1)).await), ReasonCode::RunnerDead);
    let answer = lab.queue.settle(Vec::new(), Some(lab.ask(1))).await;
    assert_eq!(code(answer.leased), ReasonCode::RunnerDead);
    assert_eq!(lab.state("a").await, TaskState::Queued, "nobody would ever look for what a dead runner holds");
}

/// R19
pub async fn a_claim_is_a_sign_of_life(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.take().await;
    let listed = runners(&lab).await;
    assert_eq!(listed.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), [RUNNER], "it is known by its claim");
    assert!(listed[0].is_alive(lab.now()));
    lab.pass(20);
    assert!(lab.given(lab.ask(1)).await.is_empty(), "a claim that finds nothing is one too");
    lab.pass(29);
    lab.settle_down().await;
    assert_eq!(lab.state("a").await, TaskState::Running);
    lab.pass(1);
    lab.settle_down().await;
    assert_eq!(lab.state("a").await, TaskState::Queued, "others take over from one that is silent since");
}

/// R19
pub async fn a_runner_that_claims_in_two_namespaces_lives_in_each_by_itself(lab: Lab) {
    let other = lab.elsewhere("other").await;
    lab.beat(RUNNER).await;
    other.add(other.plain("a")).await;
    other.take().await;
    assert_eq!(runners(&other).await.len(), 1, "a beat elsewhere is none here");
}

/// R17
pub async fn a_goodbye_stops_a_runner_for_good(lab: Lab) {
    lab.beat(RUNNER).await;
    lab.queue.goodbye(lab.namespace(), runner_id(RUNNER)).await.expect("a runner may leave");
    let left = &runners(&lab).await[0];
    assert!(left.status == RunnerStatus::Stopped && !left.is_alive(lab.now()));
    assert_eq!(code(lab.queue.beat(lab.runner(RUNNER)).await), ReasonCode::RunnerDead);
}

/// R17
pub async fn what_a_runner_left_behind_at_its_goodbye_goes_to_others(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.beat(RUNNER).await;
    lab.take().await;
    lab.queue.goodbye(lab.namespace(), runner_id(RUNNER)).await.expect("a runner may leave");
    lab.settle_down().await;
    assert_eq!(lab.state("a").await, TaskState::Queued);
}

/// R9
pub async fn a_goodbye_of_nobody_is_refused(lab: Lab) {
    let answer = lab.queue.goodbye(lab.namespace(), runner_id("nobody")).await;
    assert_eq!(code(answer), ReasonCode::RunnerNotFound);
}

/// R9
pub async fn runners_are_listed_with_their_last_beat(lab: Lab) {
    assert!(runners(&lab).await.is_empty());
    let started = lab.now();
    lab.beat("runner-1").await;
    lab.pass(10);
    lab.beat("runner-2").await;
    lab.beat("runner-1").await;
    let listed = runners(&lab).await;
    let facts: Vec<_> = listed.iter().map(|one| (one.id.to_string(), one.started_at, one.last_heartbeat)).collect();
    let now = lab.now();
    assert_eq!(facts, [("runner-1".into(), started, now), ("runner-2".into(), now, now)]);
}

/// R9
pub async fn a_runner_is_alive_until_its_lease_is_over(lab: Lab) {
    lab.beat(RUNNER).await;
    lab.pass_ms(29_999);
    assert!(runners(&lab).await[0].is_alive(lab.now()));
    lab.pass_ms(1);
    assert!(!runners(&lab).await[0].is_alive(lab.now()));
    lab.settle_down().await;
    assert!(matches!(runners(&lab).await[0].status, RunnerStatus::Dead { .. }));
}

/// R18
pub async fn a_dead_runners_record_goes_after_a_day(lab: Lab) {
    lab.lose_runner().await;
    lab.pass(30);
    lab.settle_down().await;
    assert_eq!(runners(&lab).await.len(), 1);
    lab.pass(24 * 3_600);
    lab.settle_down().await;
    assert!(runners(&lab).await.is_empty());
}

/// R19
pub async fn two_maintainers_at_once_take_a_lease_away_once(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.beat(RUNNER).await;
    lab.take().await;
    lab.pass(30);
    let rounds = (0..4).map(|_| {
        let lab = lab.clone();
        tokio::spawn(async move { lab.maintain().await.changed })
    });
    let mut changed = 0;
    for round in rounds.collect::<Vec<_>>() {
        changed += round.await.expect("maintenance does not panic");
    }
    assert_eq!((changed, lab.get("a").await.outcomes.lost), (1, 1));
}

/// R16
pub async fn a_lost_snooze_or_question_may_still_be_said_late(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    lab.lose_runner().await;
    let settled = lab.settle(&leased, Verdict::Snoozed(Millis::from_secs(60))).await.expect("nobody took it since");
    assert_eq!(settled.next_run_at, Some(lab.now() + Millis::from_secs(60)));
    assert!(lab.given(Ask { holder: runner_id("runner-2"), ..lab.ask(1) }).await.is_empty());
}
