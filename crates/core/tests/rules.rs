//! The rules of a task's life, one law a test, and what holds after any sequence of events.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::sync::Arc;

use ekiden_core::attempt::{Outcome, Stage};
use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::event::Event;
use ekiden_core::id::{Namespace, OpId, PoolName, RunnerId};
use ekiden_core::index::{DueIndex, Index};
use ekiden_core::key::Key;
use ekiden_core::lane::{Hold, LaneSpec, Place};
use ekiden_core::lease::{Evidence, Token, Until};
use ekiden_core::limits;
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Record;
use ekiden_core::retry::{FailureKind, RetryPolicy};
use ekiden_core::task::{Phase, Task};
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::transition::{Change, Decision, Effects, decide};
use proptest::prelude::*;

mod samples;
use samples::{LATER, NOW, after, claim, events, running, tasks, token};

fn change(task: &Task, event: &Event, now: Timestamp) -> Change {
    match decide(task, event, now) {
        Ok(Decision::Change(change)) => change,
        other => panic!("{event:?} must change the task, got {other:?}"),
    }
}

fn refused(task: &Task, event: &Event) -> ReasonCode {
    decide(task, event, LATER).expect_err("the rules refuse this").code
}

fn fail(task: &Task) -> Event {
    Event::Failed { token: token(task), kind: FailureKind::Retryable, error: Arc::from("oops") }
}

fn index(task: &Task) -> Index {
    let key = Key::task(&task.spec.namespace, task.id());
    Index::of(&key, &Record::Task(Arc::new(task.clone())))
}

/// Whoever owns a task may let it be claimed where it is, and it becomes, or stays, exactly what a copy would.
#[test]
fn a_claim_in_place_decides_what_a_claim_of_a_copy_decides() {
    let pool = ClaimPool::open(Namespace::new("default").unwrap(), PoolName::new("p").unwrap());
    for lease in [LeaseTerm::Heartbeat, LeaseTerm::For(Millis::from_secs(5))] {
        for (now, id) in [(NOW, 7), (LATER, 7), (LATER, 8)] {
            let claim = Claim {
                id: OpId::from_bits(id),
                now,
                pools: vec![pool.clone()],
                kinds: Kinds::Any,
                limit: 1,
                holder: RunnerId::new("r").unwrap(),
                lease,
            };
            for (task, counted) in tasks().into_iter().flat_map(|task| [(task.clone(), true), (task, false)]) {
                let copied = claim.take(&task, counted);
                let mut owned = task.clone();
                let taken = claim.take_in_place(&mut owned, counted).map(|()| owned.clone());
                assert_eq!(taken, copied);
                assert!(copied.is_ok() || owned == task, "a refusal changes nothing");
            }
        }
    }
}

/// R7
#[test]
fn the_fifth_failure_is_the_last() {
    let mut task = running(|_| {});
    for attempt in 1..=5 {
        assert_eq!(task.state.attempts, attempt);
        let state = change(&task, &fail(&task), NOW).state;
        task.state = state;
        if attempt < 5 {
            assert_eq!(task.state.phase, Phase::RetryScheduled);
            assert!(task.state.next_run_at > NOW, "nothing sleeps in place: it waits with a delay");
            task.state.next_run_at = NOW;
            task = after(&task, claim(Until::Heartbeat));
        }
    }
    assert_eq!((task.state.phase, task.state.reason), (Phase::Dead, Some(ReasonCode::AttemptsExhausted)));
    assert_eq!(refused(&task, &claim(Until::Heartbeat)), ReasonCode::TaskFinal);
}

/// R7
#[test]
fn attempts_that_are_given_back_are_not_spent_but_the_number_rises() {
    let give_back: [fn(Token) -> Event; 3] = [
        |token| Event::Interrupted { token },
        |token| Event::Returned { token },
        |token| Event::Snoozed { token, delay: Millis::ZERO },
    ];
    let mut task = running(|_| {});
    for (turn, event) in give_back.iter().enumerate() {
        task = after(&task, event(token(&task)));
        assert_eq!(task.state.attempts, 0);
        assert_eq!(task.state.execution_no, turn as u64 + 1);
        assert!(task.state.promoted, "it is claimable at once");
        task = after(&task, claim(Until::Heartbeat));
    }
}

/// R7
#[test]
fn three_crashes_in_a_row_stop_a_poison_task_whatever_its_budget() {
    let mut task = running(|spec| Arc::make_mut(&mut spec.policy).attempts_max = 100);
    let crash =
        |task: &Task| Event::LeaseLost { evidence: Evidence::ProcessDied(task.state.lease.clone().unwrap().holder) };
    for _ in 0..2 {
        task = after(&after(&task, crash(&task)), claim(Until::Heartbeat));
    }
    let dead = after(&task, crash(&task));
    assert_eq!((dead.state.phase, dead.state.reason), (Phase::Dead, Some(ReasonCode::CrashLimit)));
    assert_eq!(dead.state.outcomes.get(Outcome::Crashed), 3);
    let alive = change(&task, &fail(&task), NOW).state;
    assert_eq!(alive.crashes, 0, "an attempt that ends by its holder's word proves that the task does not kill");
}

/// R7
#[test]
fn attempts_that_are_given_back_say_nothing_of_crashes() {
    let crash =
        |task: &Task| Event::LeaseLost { evidence: Evidence::ProcessDied(task.state.lease.clone().unwrap().holder) };
    let give_back: [fn(Token) -> Event; 2] = [|token| Event::Interrupted { token }, |token| Event::Returned { token }];
    for event in give_back {
        let mut task = running(|spec| Arc::make_mut(&mut spec.policy).attempts_max = 100);
        for crashes in 1..=2 {
            task = after(&after(&task, crash(&task)), claim(Until::Heartbeat));
            task = after(&after(&task, event(token(&task))), claim(Until::Heartbeat));
            assert_eq!(task.state.crashes, crashes, "{event:?} is no proof that the task does not kill");
        }
        assert_eq!(after(&task, crash(&task)).state.reason, Some(ReasonCode::CrashLimit));

        let lost = running(|_| {});
        let queued = after(&lost, crash(&lost));
        assert_eq!(after(&queued, event(token(&lost))).state.crashes, 0, "told late: it did not crash");
    }
}

/// R7, X2: a process that was killed is told by its holder; it counts like a crash that somebody else noticed, once.
#[test]
fn a_crash_that_the_holder_tells_counts_in_a_row_and_waits_like_a_failure() {
    let crash =
        |task: &Task| Event::Failed { token: token(task), kind: FailureKind::Crashed, error: Arc::from("signal 9") };
    let mut task = running(|spec| {
        let policy = Arc::make_mut(&mut spec.policy);
        policy.attempts_max = 100;
        policy.retry = RetryPolicy::Fixed { delay: Millis::ZERO };
    });
    for crashes in 1..=2 {
        let crashed = after(&task, crash(&task));
        assert_eq!((crashed.state.phase, crashed.state.crashes), (Phase::RetryScheduled, crashes));
        assert_eq!(crashed.state.recent.last().unwrap().outcome, Some(Outcome::Crashed));
        task = after(&crashed, claim(Until::Heartbeat));
    }
    assert_eq!(change(&task, &fail(&task), NOW).state.crashes, 0, "another failure is no crash");
    let dead = after(&task, crash(&task));
    assert_eq!((dead.state.phase, dead.state.reason), (Phase::Dead, Some(ReasonCode::CrashLimit)));
    assert_eq!((dead.state.outcomes.crashed, dead.state.outcomes.failed), (3, 0));

    let lost = running(|_| {});
    let holder = lost.state.lease.clone().unwrap().holder;
    let queued = after(&lost, Event::LeaseLost { evidence: Evidence::RunnerDead(holder) });
    let late = after(&queued, crash(&lost));
    assert_eq!((late.state.crashes, late.state.outcomes.crashed, late.state.outcomes.lost), (1, 1, 0), "told late");
}

/// R8
#[test]
fn a_permanent_failure_is_dead_at_once_and_a_wait_is_taken_at_its_word() {
    let task = running(|_| {});
    let event = |kind| Event::Failed { token: token(&task), kind, error: Arc::from("oops") };
    let dead = change(&task, &event(FailureKind::Permanent), NOW).state;
    assert_eq!((dead.phase, dead.reason), (Phase::Dead, Some(ReasonCode::PermanentFailure)));
    let later = change(&task, &event(FailureKind::RetryAfter(Millis::from_secs(7))), NOW).state;
    assert_eq!((later.phase, later.next_run_at), (Phase::RetryScheduled, NOW + Millis::from_secs(7)));
}

/// R13
#[test]
fn a_retry_is_not_claimable_before_its_time() {
    let task = running(|_| {});
    let task = after(&task, fail(&task));
    let early = task.state.next_run_at - Millis::new(1);
    assert_eq!(decide(&task, &claim(Until::Heartbeat), early).unwrap_err().code, ReasonCode::NotDue);
    assert!(index(&task).ready.is_none() && index(&task).due_at(DueIndex::Promote) == Some(task.state.next_run_at));
    assert_eq!(change(&task, &claim(Until::Heartbeat), task.state.next_run_at).state.phase, Phase::Running);
}

/// R19
#[test]
fn a_late_ack_counts_until_the_next_claim() {
    let lost = after(&running(|_| {}), Event::LeaseLost { evidence: Evidence::Operator });
    assert_eq!(lost.state.phase, Phase::Queued);
    let ack = Event::Succeeded { token: Token(1), result: None };
    let late = change(&lost, &ack, LATER).state;
    assert_eq!(
        (late.phase, late.outcomes.get(Outcome::Lost), late.outcomes.get(Outcome::Succeeded)),
        (Phase::Succeeded, 0, 1)
    );
    let taken = after(&lost, claim(Until::Heartbeat));
    assert_eq!(refused(&taken, &ack), ReasonCode::LeaseLost);
    assert!(taken.state.late.is_none());
}

/// R19
#[test]
fn the_lost_lease_of_a_dead_task_settles_nothing() {
    let once = running(|spec| Arc::make_mut(&mut spec.policy).attempts_max = 1);
    let dead = after(&once, Event::LeaseLost { evidence: Evidence::Operator });
    assert_eq!(dead.state.phase, Phase::Dead);
    assert!(dead.state.last_error.as_ref().unwrap().contains("runner-1"), "the message names the lost runner");
    assert_eq!(refused(&dead, &Event::Succeeded { token: Token(1), result: None }), ReasonCode::TaskFinal);
}

/// R19
#[test]
fn a_lease_is_not_lost_by_time_on_ones_own_clock() {
    let task = running(|_| {});
    let lost = |evidence| Event::LeaseLost { evidence };
    let stranger = RunnerId::new("someone-else").unwrap();
    let minute = Millis::from_secs(60);
    for evidence in [
        Evidence::Deadline,
        Evidence::RunnerDead(stranger),
        Evidence::Unchanged { watched: Millis::new(59_999), lease: minute },
        Evidence::Unchanged { watched: Millis::ZERO, lease: Millis::ZERO },
    ] {
        assert_eq!(refused(&task, &lost(evidence)), ReasonCode::LeaseAlive);
    }
    let foreign = after(&after(&task, Event::Returned { token: token(&task) }), claim(Until::Foreign));
    assert_eq!(
        refused(&foreign, &lost(Evidence::Unchanged { watched: minute, lease: minute })),
        ReasonCode::LeaseAlive
    );
}

#[test]
fn a_cancelled_attempt_keeps_lease_place_and_count_until_it_has_ended() {
    let mut task = running(|spec| {
        spec.lane = Some(Arc::new(LaneSpec::serial(ekiden_core::id::LaneKey::new("k").unwrap())));
    });
    task.state.lease.as_mut().unwrap().counted = true;
    let cancel = Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None };
    let stopping = change(&task, &cancel, NOW);
    assert_eq!(stopping.effects, Effects { finished: true, signal: true, ..Effects::default() });
    let task = Task { spec: task.spec, state: stopping.state };
    assert_eq!((task.state.phase, task.state.place, index(&task).held), (Phase::Cancelled, Place::Held, true));
    assert_eq!(index(&task).due_at(DueIndex::Purge), None, "an attempt that has not ended is not purged");

    let stage = |stage| Event::AttemptEnded { token: token(&task), stage };
    let signalled = change(&task, &stage(Stage::Signalled), NOW);
    assert_eq!(signalled.effects, Effects::default());
    let ended = change(&task, &stage(Stage::Verified), NOW);
    assert_eq!(ended.effects, Effects { leave_lane: true, uncount: true, ..Effects::default() });
    assert_eq!((ended.state.place, ended.state.lease), (Place::None, None));
    assert_eq!(refused(&task, &Event::Succeeded { token: token(&task), result: None }), ReasonCode::TaskCancelled);
}

#[test]
fn lanes_are_kept_until_final_or_while_running_as_they_say() {
    for (hold, freed) in [(Hold::UntilFinal, false), (Hold::WhileRunning, true)] {
        let key = ekiden_core::id::LaneKey::new("k").unwrap();
        let task = running(|spec| spec.lane = Some(Arc::new(LaneSpec { key, width: 1, hold })));
        let failed = change(&task, &fail(&task), NOW);
        assert_eq!(failed.effects.leave_lane, freed, "{hold:?}");
        let state = failed.state;
        let waiting = Task { spec: task.spec.clone(), state };
        let rejoins = index(&waiting).due_at(DueIndex::Rejoin).is_some();
        assert_eq!(rejoins, freed, "who left its place has to stand in line again");
        let returned = change(&task, &Event::Returned { token: token(&task) }, NOW);
        assert_eq!((returned.effects.leave_lane, returned.effects.join_lane), (freed, freed));
    }
}

/// X4
#[test]
fn an_answer_belongs_to_its_question_and_the_next_attempt_counts_nothing() {
    let asking = tasks().into_iter().find(|task| task.state.phase == Phase::NeedsInput).unwrap();
    assert_eq!((asking.state.attempts, asking.state.lease.is_none()), (0, true));
    let answer = |question: &str| Event::Answered {
        question: ekiden_core::id::QuestionId::new(question).unwrap(),
        content: Arc::from("this"),
    };
    assert_eq!(refused(&asking, &answer("another")), ReasonCode::QuestionClosed);
    let answered = after(&asking, answer("q1"));
    assert_eq!((answered.state.phase, answered.state.promoted), (Phase::Queued, true));
    assert_eq!(&*answered.state.answer.as_ref().unwrap().content, "this");
}

/// R17
#[test]
fn an_interrupted_task_is_claimable_at_once_with_no_attempt_spent() {
    let task = running(|_| {});
    let back = after(&task, Event::Interrupted { token: token(&task) });
    assert_eq!((back.state.attempts, back.state.execution_no, back.state.phase), (0, 1, Phase::Queued));
    assert!(index(&back).ready.is_some());
}

/// R4
#[test]
fn a_task_record_holds_what_the_document_lists() {
    let task = after(&running(|_| {}), fail(&running(|_| {})));
    let text = serde_json::to_value(&task).unwrap();
    for field in ["id", "envelope", "created_at"] {
        assert!(text["spec"].get(field).is_some(), "{field}");
    }
    for field in ["phase", "attempts", "last_error", "next_run_at", "updated_at"] {
        assert!(text["state"].get(field).is_some(), "{field}");
    }
    assert_eq!(text["spec"]["policy"]["attempts_max"], 5);
    assert_eq!(serde_json::from_value::<Task>(text).unwrap(), task, "a stored task is read back as it was");
}

/// R2
#[test]
fn an_envelope_is_data_and_survives_storage_byte_by_byte() {
    for payload in [&b"{\"a\": 1}"[..], b"", &[0, 159, 146, 150]] {
        let task = running(|spec| spec.envelope.payload = bytes::Bytes::copy_from_slice(payload));
        let text = serde_json::to_string(&task).unwrap();
        assert_eq!(serde_json::from_str::<Task>(&text).unwrap().spec.envelope.payload, payload);
    }
}

/// Crashes in a row, as the attempts tell them: given back is no end, and any other end begins a new count.
fn crashes_in_a_row(task: &Task) -> u32 {
    let ends = task.state.recent.iter().rev().filter_map(|attempt| attempt.outcome);
    let told = ends.filter(|end| !matches!(end, Outcome::Returned | Outcome::Interrupted | Outcome::Cancelled));
    told.take_while(|end| matches!(end, Outcome::Crashed | Outcome::Lost)).count().try_into().unwrap()
}

/// What must hold of every task, whatever happened to it.
fn check(before: &Task, after: &Task, reopened: u64) {
    let state = &after.state;
    // Until a task was reopened or cancelled, and as long as no attempt was forgotten, the count is what the attempts say.
    if reopened == 0 && state.phase != Phase::Cancelled && state.execution_no <= limits::ATTEMPTS_KEPT_MAX as u64 {
        assert_eq!(state.crashes, crashes_in_a_row(after), "{:?}", state.recent);
    }
    assert!(state.execution_no >= before.state.execution_no, "execution_no only rises");
    assert!(state.attempts <= after.spec.policy.attempts_max, "attempts stay within the budget");
    assert!(u64::from(state.attempts) <= state.execution_no);
    assert!(state.recent.len() <= limits::ATTEMPTS_KEPT_MAX && state.history.len() <= limits::HISTORY_LINES_MAX);
    let unended = state.lease.is_some();
    assert!(
        unended == (state.phase == Phase::Running) || state.phase == Phase::Cancelled,
        "a lease has a running attempt"
    );
    assert_eq!(state.finished_at.is_some(), state.phase.is_final());
    assert!(!(state.late.is_some() && state.phase.is_final()), "a final phase ends the late ack");
    assert!(!(state.promoted && state.next_run_at > state.updated_at), "what is promoted was due");
    if before.state.phase.is_final() && before.state.phase != Phase::Dead {
        assert_eq!(state.phase, before.state.phase, "succeeded and cancelled are final");
    }
    let index = index(after);
    let listed = |wanted: &[DueIndex]| wanted.iter().filter(|list| index.due_at(**list).is_some()).count();
    let stands =
        usize::from(index.ready.is_some()) + usize::from(index.held) + listed(&[DueIndex::Promote, DueIndex::Rejoin]);
    assert!(stands <= 1, "at most one entry says where a task stands");
    assert!(listed(&[DueIndex::Lease, DueIndex::Expire, DueIndex::Purge]) <= 1, "at most one entry says by when");
    assert!(index.ready.is_none() || state.phase == Phase::Queued, "only queued tasks are claimable");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn any_sequence_of_events_keeps_the_rules(start in 0usize..64, picks in proptest::collection::vec((any::<prop::sample::Index>(), 0u64..90_000), 1..40)) {
        let all = tasks();
        let mut task = all[start % all.len()].clone();
        let mut now = LATER;
        let mut reopened = 0;
        for (pick, passes) in picks {
            now = now + Millis::new(passes);
            let events = events(&task);
            if let Ok(Decision::Change(change)) = decide(&task, pick.get(&events), now) {
                let mut state = change.state;
                if change.effects.join_lane {
                    state.place = Place::Held;
                    state.promoted = state.next_run_at <= now;
                }
                let next = Task { spec: task.spec.clone(), state };
                if change.effects.reopened {
                    reopened = next.state.execution_no.max(1);
                }
                check(&task, &next, reopened);
                task = next;
            }
        }
    }
}
