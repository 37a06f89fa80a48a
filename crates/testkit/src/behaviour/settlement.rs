//! Attempts end: by their holder's word alone, once, with everything that it said.

use bytes::Bytes;
use ekiden::core::{FailureKind, Millis, Outcome, ReasonCode, RetryPolicy, Token, limits};
use ekiden::{Failure, LeaseRef, Leased, NewTask, Settled, Settlement, TaskState, Verdict, Wishes};

use super::lab::{Lab, code, failure, names};

/// R9
pub async fn a_result_is_kept_byte_for_byte(lab: Lab) {
    // `null` is a result as well, and not the lack of one.
    for (name, result) in [("a", (0..=255_u8).collect()), ("b", Bytes::from_static(b"null"))] {
        lab.add(lab.plain(name)).await;
        let leased = lab.take().await;
        let settled = lab.queue.mark_succeeded(leased.lease, Some(result.clone())).await;
        assert_eq!(settled.expect("the holder may settle").state, TaskState::Succeeded);
        let record = lab.get(name).await;
        assert_eq!((record.state, record.result, record.last_error), (TaskState::Succeeded, Some(result), None));
        assert_eq!((record.runner, record.recent[0].outcome), (None, Some(Outcome::Succeeded)));
    }
}

/// R9
pub async fn success_without_a_result_has_none(lab: Lab) {
    lab.add_succeeded("a").await;
    assert_eq!(lab.get("a").await.result, None);
}

/// R18
pub async fn a_result_too_large_is_refused_and_the_attempt_goes_on(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let large = Bytes::from(vec![0; limits::RESULT_BYTES_MAX + 1]);
    let answer = lab.queue.mark_succeeded(leased.lease.clone(), Some(large)).await;
    assert_eq!(code(answer), ReasonCode::PayloadTooLarge);
    assert_eq!(lab.state("a").await, TaskState::Running);
    lab.succeed(&leased).await;
}

/// R6
pub async fn a_failure_is_shown_with_its_message(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.fail(&lab.take().await).await;
    let record = lab.get("a").await;
    assert_eq!((record.state, record.last_error.as_deref()), (TaskState::RetryScheduled, Some("boom")));
    assert_eq!(record.recent[0].error.as_deref(), Some("boom"));
    assert_eq!((record.recent[0].outcome, record.outcomes.failed), (Some(Outcome::Failed), 1));
}

/// X2: a process that was killed has crashed, and has not failed. The third in a row is the last.
pub async fn a_crash_is_an_outcome_of_its_own_and_counts_in_a_row(lab: Lab) {
    let wishes = Wishes { retry: Some(RetryPolicy::Fixed { delay: Millis::from_secs(1) }), ..Wishes::default() };
    lab.add(NewTask { wishes, ..lab.plain("a") }).await;
    for number in 1..=3 {
        let leased = lab.take().await;
        assert_eq!(leased.attempts, number);
        let killed = Failure { kind: FailureKind::Crashed, message: "killed by signal 9".into() };
        lab.queue.mark_failed(leased.lease, killed).await.expect("the holder may settle");
        let record = lab.get("a").await;
        assert_eq!((record.outcomes.crashed, record.outcomes.failed), (number, 0));
        assert_eq!(record.last_error.as_deref(), Some("killed by signal 9"));
        lab.pass(1);
        lab.settle_down().await;
    }
    let record = lab.get("a").await;
    assert_eq!((record.state, record.reason), (TaskState::Dead, Some(ReasonCode::CrashLimit)));
}

/// R18
pub async fn a_long_message_is_cut_and_not_refused(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let settled = lab.queue.mark_failed(leased.lease, failure(&"失敗".repeat(10_000))).await;
    assert_eq!(settled.expect("the holder may settle").state, TaskState::RetryScheduled);
    let error = lab.get("a").await.last_error.expect("the error is kept");
    assert!(error.len() <= limits::ERROR_BYTES_MAX && error.starts_with("失敗失敗"));
}

/// R19
pub async fn the_same_settlement_twice_is_answered_as_done(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let settlement = lab.settlement(&leased, Verdict::Succeeded(Some("1".into())));
    for _ in 0..3 {
        let answer = lab.queue.settle(vec![settlement.clone()], None).await;
        let settled: Vec<Settled> = answer.settled.into_iter().map(|one| one.expect("it is done")).collect();
        assert_eq!(settled, [Settled { state: TaskState::Succeeded, next_run_at: None }]);
    }
    assert_eq!((lab.get("a").await.outcomes.succeeded, lab.count(TaskState::Succeeded).await), (1, 1));
}

/// R19, C26: an id that another change had would be taken for its repetition, and answered without anything being done.
pub async fn an_id_stands_for_one_change(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let ask = lab.ask(1);
    let leased = lab.given(ask.clone()).await.pop().expect("a task that may run is given");
    let succeeded = Verdict::Succeeded(Some("1".into()));
    let settle = async |settlements: Vec<Settlement>| {
        let answer = lab.queue.settle(settlements, None).await;
        answer.settled.into_iter().map(|one| one.map_err(|error| error.code()).map(|settled| settled.state)).collect()
    };
    let of_claim = Settlement { id: ask.id, ..lab.settlement(&leased, succeeded.clone()) };
    let answer: Vec<_> = settle(vec![of_claim]).await;
    assert_eq!(answer, [Err(ReasonCode::CommitInvalid)]);
    assert_eq!(lab.state("a").await, TaskState::Running, "what was refused is not done");
    let first = lab.settlement(&leased, succeeded);
    let other = Settlement { verdict: Verdict::TimedOut, ..first.clone() };
    let answer: Vec<_> = settle(vec![first, other]).await;
    assert_eq!(answer, [Ok(TaskState::Succeeded), Err(ReasonCode::CommitInvalid)]);
}

/// R1, R19
pub async fn two_new_tasks_of_one_request_have_two_ids(lab: Lab) {
    let op = Some(lab.op());
    let tasks = ["a", "b"].map(|name| NewTask { op, ..lab.plain(name) });
    let answers: Vec<_> =
        lab.queue.enqueue(tasks.into()).await.into_iter().map(|one| one.map(|new| new.is_new)).collect();
    assert!(matches!(answers[0], Ok(true)));
    assert_eq!(answers[1].as_ref().map_err(ekiden::Error::code), Err(ReasonCode::CommitInvalid));
    lab.gone("b").await;
}

/// R6, R19
pub async fn the_same_failure_twice_spends_one_attempt(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let first = lab.fail(&leased).await;
    lab.pass_ms(100);
    assert_eq!(lab.fail(&leased).await, first);
    let record = lab.get("a").await;
    assert_eq!((record.attempts, record.outcomes.failed, record.next_run_at), (1, 1, first.next_run_at));
}

/// R19
pub async fn another_verdict_on_an_ended_attempt_is_refused(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    lab.succeed(&leased).await;
    assert_eq!(code(lab.queue.mark_failed(leased.lease.clone(), failure("no")).await), ReasonCode::TaskFinal);
    assert_eq!(code(lab.settle(&leased, Verdict::TimedOut).await), ReasonCode::TaskFinal);
    assert_eq!(lab.state("a").await, TaskState::Succeeded);
}

/// R19
pub async fn a_stale_token_settles_nothing(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let first = lab.take().await;
    lab.settle(&first, Verdict::Interrupted).await.expect("a holder may be interrupted");
    let second = lab.take().await;
    assert_eq!(code(lab.queue.mark_succeeded(first.lease.clone(), None).await), ReasonCode::LeaseLost);
    assert_eq!(code(lab.queue.mark_failed(first.lease, failure("no")).await), ReasonCode::LeaseLost);
    assert_eq!((lab.state("a").await, lab.get("a").await.last_error), (TaskState::Running, None));
    lab.succeed(&second).await;
}

/// R19
pub async fn a_token_that_was_never_given_settles_nothing(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let guess = |token| LeaseRef::new(lab.task("a"), Token(token));
    assert_eq!(code(lab.queue.mark_succeeded(guess(1), None).await), ReasonCode::TaskNotRunning);
    lab.take().await;
    assert_eq!(code(lab.queue.mark_succeeded(guess(2), None).await), ReasonCode::LeaseLost);
    assert_eq!(lab.state("a").await, TaskState::Running);
}

/// R19
pub async fn a_lease_named_by_task_and_token_is_as_good_as_the_one_given(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let token = lab.take().await.lease.token;
    let settled = lab.queue.mark_succeeded(LeaseRef::new(lab.task("a"), token), None).await;
    assert_eq!(settled.expect("the token is right").state, TaskState::Succeeded);
}

/// R19
pub async fn one_of_many_settlements_at_once_counts(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let racers = (0..8).map(|number| {
        let (lab, leased) = (lab.clone(), leased.clone());
        let verdict = if number % 2 == 0 { Verdict::Succeeded(None) } else { Verdict::Failed(failure("no")) };
        tokio::spawn(async move { lab.settle(&leased, verdict).await.map(|settled| settled.state) })
    });
    let mut states = Vec::new();
    for racer in racers.collect::<Vec<_>>() {
        states.extend(racer.await.expect("a racer does not panic").ok());
    }
    states.dedup();
    assert_eq!(states, [lab.state("a").await], "all who were heard heard the same");
    let outcomes = lab.get("a").await.outcomes;
    assert_eq!(outcomes.succeeded + outcomes.failed, 1);
}

/// R11
pub async fn settlements_and_a_request_go_in_one_call(lab: Lab) {
    lab.add_all(&["a", "b", "c"]).await;
    let leased = lab.given(lab.ask(2)).await;
    let settlements = vec![
        lab.settlement(&leased[0], Verdict::Succeeded(None)),
        lab.settlement(&leased[1], Verdict::Failed(failure("no"))),
    ];
    let answer = lab.queue.settle(settlements, Some(lab.ask(5))).await;
    let states: Vec<TaskState> = answer.settled.into_iter().map(|one| one.expect("each is settled").state).collect();
    assert_eq!(states, [TaskState::Succeeded, TaskState::RetryScheduled]);
    assert_eq!(names(&answer.leased.expect("the request is answered")), ["c"]);
}

/// R20
pub async fn a_settlement_makes_room_for_the_request_beside_it(lab: Lab) {
    lab.set_pool("default", |settings| settings.running_max = Some(1)).await;
    lab.add_all(&["a", "b"]).await;
    let leased = lab.take_this("a").await;
    let settlement = lab.settlement(&leased, Verdict::Succeeded(None));
    let answer = lab.queue.settle(vec![settlement], Some(lab.ask(5))).await;
    assert_eq!(names(&answer.leased.expect("the request is answered")), ["b"]);
}

/// R11
pub async fn one_refused_settlement_stops_no_other(lab: Lab) {
    lab.add_all(&["a", "b", "c"]).await;
    let leased = lab.given(lab.ask(2)).await;
    lab.cancel("a").await;
    let verdict = || Verdict::Succeeded(None);
    let unknown = Leased { lease: LeaseRef::new(lab.task("nobody"), Token(1)), ..leased[0].clone() };
    let settlements = [&leased[0], &unknown, &leased[1]].map(|one| lab.settlement(one, verdict()));
    let answer = lab.queue.settle(settlements.to_vec(), Some(lab.ask(1))).await;
    let codes: Vec<_> = answer.settled.into_iter().map(|one| one.err().map(|why| why.code())).collect();
    assert_eq!(codes, [Some(ReasonCode::TaskCancelled), Some(ReasonCode::TaskNotFound), None]);
    assert_eq!(names(&answer.leased.expect("the request is answered")), ["c"]);
    assert_eq!(lab.state("b").await, TaskState::Succeeded);
}

/// R11
pub async fn settling_nothing_and_asking_nothing_is_answered(lab: Lab) {
    let answer = lab.queue.settle(Vec::new(), None).await;
    assert!(answer.settled.is_empty() && answer.leased.expect("nothing is refused").is_empty());
}

/// R8
pub async fn a_snooze_spends_no_attempt_and_waits_as_long_as_it_said(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let settled = lab.settle(&leased, Verdict::Snoozed(Millis::from_secs(90))).await.expect("a holder may snooze");
    let at = lab.now() + Millis::from_secs(90);
    assert_eq!(settled, Settled { state: TaskState::Queued, next_run_at: Some(at) });
    let record = lab.get("a").await;
    assert_eq!((record.attempts, record.execution_no, record.last_error), (0, 1, None));
    lab.pass_ms(89_999);
    lab.nothing_to_take().await;
    lab.pass_ms(1);
    assert_eq!(lab.take().await.lease.token, Token(2));
}

/// R17
pub async fn an_interrupted_attempt_is_not_spent_and_due_at_once(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let settled = lab.settle(&leased, Verdict::Interrupted).await.expect("a holder may be interrupted");
    assert_eq!(settled, Settled { state: TaskState::Queued, next_run_at: Some(lab.now()) });
    assert_eq!((lab.get("a").await.attempts, lab.get("a").await.outcomes.interrupted), (0, 1));
    assert_eq!(lab.take().await.attempts, 1);
}

/// R7, R17
pub async fn a_returned_attempt_is_not_spent_and_due_at_once(lab: Lab) {
    lab.add(NewTask { wishes: Wishes { attempts_max: Some(1), ..Wishes::default() }, ..lab.plain("a") }).await;
    for execution in 1..=5 {
        let leased = lab.take().await;
        assert_eq!((leased.attempts, leased.lease.token), (1, Token(execution)));
        lab.settle(&leased, Verdict::Returned).await.expect("a holder may give back");
    }
    assert_eq!(lab.get("a").await.outcomes.returned, 5);
}

/// R16
pub async fn a_timeout_is_an_outcome_of_its_own(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    let settled = lab.settle(&leased, Verdict::TimedOut).await.expect("a holder may time out");
    assert_eq!(settled.state, TaskState::RetryScheduled);
    let record = lab.get("a").await;
    assert_eq!((record.attempts, record.outcomes.timed_out, record.outcomes.failed), (1, 1, 0));
    assert!(record.last_error.expect("a timeout is an error").contains("timed out"));
}

/// R16
pub async fn timeouts_use_the_budget_up(lab: Lab) {
    lab.add(NewTask { wishes: Wishes { attempts_max: Some(2), ..Wishes::default() }, ..lab.plain("a") }).await;
    for _ in 0..2 {
        let leased = lab.take().await;
        lab.settle(&leased, Verdict::TimedOut).await.expect("a holder may time out");
        lab.pass(60);
    }
    let record = lab.get("a").await;
    assert_eq!((record.state, record.reason), (TaskState::Dead, Some(ReasonCode::AttemptsExhausted)));
}
