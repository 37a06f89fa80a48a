//! What follows a failure: a wait as the policy says, on the queue, until the budget is used up.

use ekiden::core::{FailureKind, Jitter, Millis, ReasonCode, RetryPolicy};
use ekiden::{Failure, NewTask, Settled, TaskState, Wishes};
use ekiden_core::retry::{self, Next};

use super::lab::{Lab, failure, id, permanent};

fn retrying(lab: &Lab, name: &str, retry: RetryPolicy) -> NewTask {
    NewTask { wishes: Wishes { retry: Some(retry), ..Wishes::default() }, ..lab.plain(name) }
}

fn default_wait(name: &str, attempts: u32) -> Millis {
    let seed = retry::seed(&id(name), u64::from(attempts));
    match RetryPolicy::default().next(attempts, FailureKind::Retryable, seed) {
        Next::After(wait) => wait,
        Next::Stop => panic!("the default policy never stops by itself"),
    }
}

/// R6, R8
pub async fn a_failure_waits_exactly_as_the_policy_says(lab: Lab) {
    lab.add(lab.plain("a")).await;
    for attempt in 1..=4 {
        let settled = lab.fail(&lab.take().await).await;
        let at = lab.now() + default_wait("a", attempt);
        assert_eq!(settled, Settled { state: TaskState::RetryScheduled, next_run_at: Some(at) });
        assert_eq!(lab.get("a").await.next_run_at, Some(at));
        lab.pass_until(at);
    }
}

/// R8
pub async fn waits_grow_from_half_a_second_to_at_most_five_minutes(lab: Lab) {
    lab.add(NewTask { wishes: Wishes { attempts_max: Some(20), ..Wishes::default() }, ..lab.plain("a") }).await;
    for attempt in 0..19_u32 {
        let full = (1_000_u64 << attempt).min(300_000);
        let settled = lab.fail(&lab.take().await).await;
        let wait = settled.next_run_at.expect("it runs again").since(lab.now()).as_u64();
        assert!((full / 2..=full).contains(&wait), "attempt {attempt} waits {wait} ms of {full}");
        lab.pass_ms(wait);
    }
}

/// R13
pub async fn a_retry_is_never_given_before_its_moment(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let at = lab.fail(&lab.take().await).await.next_run_at.expect("it runs again");
    lab.pass_until(at - Millis::new(1));
    lab.settle_down().await;
    lab.nothing_to_take().await;
    assert_eq!(lab.state("a").await, TaskState::RetryScheduled);
    lab.pass_ms(1);
    assert_eq!(lab.take_this("a").await.attempts, 2);
}

/// R13
pub async fn maintenance_puts_a_due_retry_back_on_the_queue(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let at = lab.fail(&lab.take().await).await.next_run_at.expect("it runs again");
    lab.pass_until(at);
    assert_eq!(lab.maintain().await.changed, 1);
    assert_eq!(lab.state("a").await, TaskState::Queued);
    assert!(lab.maintain().await.is_idle());
}

/// R6
pub async fn others_run_while_a_retry_waits(lab: Lab) {
    lab.add_all(&["a", "b"]).await;
    lab.fail(&lab.take_this("a").await).await;
    lab.succeed(&lab.take_this("b").await).await;
}

/// R7
pub async fn the_fifth_failure_is_the_last(lab: Lab) {
    lab.add(lab.plain("a")).await;
    for attempt in 1..=5 {
        let leased = lab.take().await;
        assert_eq!(leased.attempts, attempt);
        let settled = lab.fail(&leased).await;
        let dead = attempt == 5;
        assert_eq!(settled.state, if dead { TaskState::Dead } else { TaskState::RetryScheduled });
        lab.live_on(300).await;
    }
    let record = lab.get("a").await;
    assert_eq!((record.attempts, record.reason), (5, Some(ReasonCode::AttemptsExhausted)));
    assert_eq!((record.last_error.as_deref(), record.next_run_at), (Some("boom"), None));
    lab.live_on(3_600).await;
    lab.settle_down().await;
    lab.nothing_to_take().await;
}

/// R8
pub async fn a_permanent_failure_is_death_at_once(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let settled = lab.queue.mark_failed(leased.lease, permanent("no such address")).await;
    assert_eq!(settled.expect("the holder may settle"), Settled { state: TaskState::Dead, next_run_at: None });
    let record = lab.get("a").await;
    assert_eq!((record.attempts, record.reason), (1, Some(ReasonCode::PermanentFailure)));
    assert_eq!(record.last_error.as_deref(), Some("no such address"));
}

/// R8
pub async fn a_failure_may_name_its_own_wait(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let kind = FailureKind::RetryAfter(Millis::from_secs(77));
    let settled = lab.queue.mark_failed(leased.lease, Failure { kind, ..failure("busy") }).await;
    let at = Some(lab.now() + Millis::from_secs(77));
    assert_eq!(settled.expect("the holder may settle").next_run_at, at);
    assert_eq!(lab.get("a").await.attempts, 1, "it is an attempt all the same");
}

/// R7, R8
pub async fn a_named_wait_does_not_stretch_the_budget(lab: Lab) {
    lab.add(NewTask { wishes: Wishes { attempts_max: Some(1), ..Wishes::default() }, ..lab.plain("a") }).await;
    let leased = lab.take().await;
    let kind = FailureKind::RetryAfter(Millis::from_secs(1));
    let settled = lab.queue.mark_failed(leased.lease, Failure { kind, ..failure("busy") }).await;
    assert_eq!(settled.expect("the holder may settle").state, TaskState::Dead);
}

/// R8
pub async fn a_fixed_policy_waits_the_same_each_time(lab: Lab) {
    lab.add(retrying(&lab, "a", RetryPolicy::Fixed { delay: Millis::from_secs(7) })).await;
    for _ in 0..4 {
        let at = lab.fail(&lab.take().await).await.next_run_at;
        assert_eq!(at, Some(lab.now() + Millis::from_secs(7)));
        lab.pass(7);
    }
}

/// R8
pub async fn a_policy_of_steps_waits_each_in_turn_and_repeats_the_last(lab: Lab) {
    let delays = vec![Millis::from_secs(1), Millis::from_secs(30)];
    lab.add(retrying(&lab, "a", RetryPolicy::Steps { delays })).await;
    for wait in [1, 30, 30, 30] {
        let at = lab.fail(&lab.take().await).await.next_run_at;
        assert_eq!(at, Some(lab.now() + Millis::from_secs(wait)));
        lab.pass(wait);
    }
}

/// R8
pub async fn an_exponential_policy_without_jitter_is_exact(lab: Lab) {
    let (base, cap) = (Millis::from_secs(2), Millis::from_secs(15));
    lab.add(retrying(&lab, "a", RetryPolicy::Exponential { base, factor_percent: 300, cap, jitter: Jitter::None }))
        .await;
    for wait in [2, 6, 15, 15] {
        let at = lab.fail(&lab.take().await).await.next_run_at;
        assert_eq!(at, Some(lab.now() + Millis::from_secs(wait)));
        lab.pass(wait);
    }
}

/// R8
pub async fn a_policy_of_never_is_death_at_the_first_failure(lab: Lab) {
    lab.add(retrying(&lab, "a", RetryPolicy::Never)).await;
    assert_eq!(lab.fail(&lab.take().await).await.state, TaskState::Dead);
}

/// R7
pub async fn execution_numbers_only_rise(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let mut last = 0;
    for round in 0..8_u64 {
        let leased = lab.take().await;
        assert_eq!(leased.lease.token.0, last + 1);
        last = leased.lease.token.0;
        let verdict = match round % 4 {
            0 => ekiden::Verdict::Interrupted,
            1 => ekiden::Verdict::Returned,
            2 => ekiden::Verdict::Snoozed(Millis::ZERO),
            _ => ekiden::Verdict::Failed(failure("no")),
        };
        lab.settle(&leased, verdict).await.expect("the holder may settle");
        lab.pass(10);
    }
    let record = lab.get("a").await;
    assert_eq!((record.execution_no, record.attempts), (8, 2), "only failures were spent");
}

/// R7
pub async fn success_after_failures_keeps_what_they_left(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.fail(&lab.take().await).await;
    lab.pass(1);
    lab.succeed(&lab.take().await).await;
    let record = lab.get("a").await;
    assert_eq!((record.state, record.attempts, record.outcomes.failed), (TaskState::Succeeded, 2, 1));
    assert_eq!(record.recent.len(), 2);
}
