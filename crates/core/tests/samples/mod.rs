//! Tasks in every phase and situation, each made by real events, and events of every name for them.

use std::sync::Arc;

use ekiden_core::attempt::Stage;
use ekiden_core::dependency::OnParentFailure;
use ekiden_core::event::Event;
use ekiden_core::id::{Kind, LaneKey, Namespace, OpId, PoolName, QuestionId, RunnerId, TaskId};
use ekiden_core::lane::{LaneSpec, Place};
use ekiden_core::lease::{Evidence, LateLease, Token, Until};
use ekiden_core::pool::{Policy, Profile};
use ekiden_core::reason::ReasonCode;
use ekiden_core::retry::FailureKind;
use ekiden_core::task::{Phase, Question, Spec, Task, TaskEnvelope};
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::transition::{Decision, Start, birth, decide};

/// When the samples are made.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_794_744_000_000);

/// When the events meet them: one minute later, so that some of them are due or expired by then.
pub(crate) const LATER: Timestamp = Timestamp::from_millis(1_794_744_060_000);

const MINUTE: Millis = Millis::from_secs(60);

pub(crate) fn parent() -> TaskId {
    TaskId::new("parent").unwrap()
}

fn runner() -> RunnerId {
    RunnerId::new("runner-1").unwrap()
}

fn spec(change: impl FnOnce(&mut Spec)) -> Spec {
    let envelope = TaskEnvelope::json(Kind::new("greet").unwrap(), "{}");
    let policy = Profile::Embedded.settings().policy;
    let names = (Namespace::new("default").unwrap(), PoolName::new("work").unwrap(), TaskId::new("task").unwrap());
    let mut spec = Spec::new(names.0, names.1, names.2, envelope, policy, NOW);
    change(&mut spec);
    spec
}

fn policy(spec: &mut Spec, change: impl FnOnce(&mut Policy)) {
    change(Arc::make_mut(&mut spec.policy));
}

fn born(spec: Spec, start: Start, waits_for: Vec<TaskId>) -> Task {
    let state = birth(&spec, start, waits_for, NOW).state;
    Task { spec: Arc::new(spec), state }
}

fn queued(change: impl FnOnce(&mut Spec)) -> Task {
    born(spec(change), Start::Released, vec![])
}

/// The task after an event that must change it.
pub(crate) fn after(task: &Task, event: Event) -> Task {
    match decide(task, &event, NOW) {
        Ok(Decision::Change(change)) => Task { spec: task.spec.clone(), state: change.state },
        other => panic!("{event:?} must change {task:?}, got {other:?}"),
    }
}

pub(crate) fn claim(until: Until) -> Event {
    Event::Claimed { claim: OpId::from_bits(7), holder: runner(), until, counted: false }
}

pub(crate) fn running(change: impl FnOnce(&mut Spec)) -> Task {
    let mut task = queued(change);
    if task.spec.lane.is_some() {
        task.state.place = Place::Held;
        task.state.promoted = true;
    }
    after(&task, claim(Until::Heartbeat))
}

fn fail(task: &Task, kind: FailureKind) -> Event {
    Event::Failed { token: token(task), kind, error: Arc::from("oops") }
}

pub(crate) fn token(task: &Task) -> Token {
    Token(task.state.execution_no)
}

fn lost() -> Event {
    Event::LeaseLost { evidence: Evidence::RunnerDead(runner()) }
}

fn cancel() -> Event {
    Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None }
}

fn question(deadline: Option<Timestamp>, default: Option<&str>) -> Box<Question> {
    let default = default.map(Arc::from);
    Box::new(Question {
        id: QuestionId::new("q1").unwrap(),
        text: Arc::from("which?"),
        choices: vec![],
        deadline,
        default,
    })
}

fn asked(deadline: Option<Timestamp>, default: Option<&str>) -> Task {
    let task = running(|_| {});
    let event = Event::Asked { token: token(&task), question: question(deadline, default) };
    after(&task, event)
}

fn answered() -> Task {
    after(&asked(None, None), Event::Answered { question: QuestionId::new("q1").unwrap(), content: Arc::from("this") })
}

fn serial(spec: &mut Spec) {
    spec.lane = Some(Arc::new(LaneSpec::serial(LaneKey::new("k").unwrap())));
}

fn in_lane(place: Place) -> Task {
    let mut task = queued(serial);
    task.state.place = place;
    task
}

/// All samples.
pub(crate) fn tasks() -> Vec<Task> {
    let mut tasks = waiting();
    tasks.extend(in_line());
    tasks.extend(held_and_asking());
    tasks.extend(ended());
    for phase in Phase::ALL {
        assert!(tasks.iter().any(|task| task.state.phase == phase), "no sample is {phase}");
    }
    tasks
}

fn waiting() -> Vec<Task> {
    let with = |failure| move |spec: &mut Spec| spec.on_parent_failure = failure;
    let mut tasks = Vec::new();
    for failure in [OnParentFailure::Block, OnParentFailure::Cancel, OnParentFailure::Run] {
        for start in [Start::Held, Start::Released] {
            tasks.push(born(spec(with(failure)), start, vec![parent()]));
            tasks.push(born(spec(with(failure)), start, vec![parent(), TaskId::new("second").unwrap()]));
        }
    }
    tasks.push(born(spec(|_| {}), Start::Held, vec![]));
    tasks.push(born(spec(|spec| spec.expires_at = Some(LATER)), Start::Held, vec![]));
    tasks.push(born(spec(|spec| spec.expires_at = Some(LATER)), Start::Released, vec![parent()]));
    let given_up = born(spec(|_| {}), Start::Released, vec![parent()]);
    tasks.push(after(&given_up, Event::DependencyFailed { parent: parent() }));
    let mut from_outside = born(spec(|_| {}), Start::Released, vec![parent()]);
    from_outside.state.waits_for.clear();
    tasks.push(from_outside);
    tasks
}

fn in_line() -> Vec<Task> {
    let retrying = |change: fn(&mut Spec)| {
        let task = running(change);
        after(&task, fail(&task, FailureKind::RetryAfter(MINUTE)))
    };
    let mut out_of_lane = retrying(serial);
    out_of_lane.state.place = Place::None;
    let mut late_retry = retrying(|_| {});
    late_retry.state.late = Some(Box::new(LateLease { token: Token(2), claim: OpId::from_bits(8), holder: runner() }));
    late_retry.state.execution_no = 2;
    let retry_after_loss = {
        let task = after(&after(&running(|_| {}), lost()), claim(Until::Heartbeat));
        after(&task, fail(&task, FailureKind::RetryAfter(MINUTE)))
    };
    let snoozed = running(|_| {});
    let failed_once = retrying(|_| {});
    vec![
        queued(|_| {}),
        queued(|spec| spec.run_at = Some(LATER)),
        queued(|spec| spec.run_at = Some(LATER + MINUTE)),
        queued(|spec| spec.expires_at = Some(LATER)),
        queued(|spec| spec.expires_at = Some(LATER + MINUTE)),
        in_lane(Place::Waiting(3)),
        in_lane(Place::Held),
        after(&running(|_| {}), lost()),
        after(&snoozed, Event::Snoozed { token: token(&snoozed), delay: MINUTE }),
        answered(),
        retrying(|_| {}),
        retrying(|spec| spec.expires_at = Some(LATER)),
        after(&failed_once, Event::RetryRequested),
        {
            let task = running(|_| {});
            after(&task, fail(&task, FailureKind::RetryAfter(Millis::from_secs(120))))
        },
        out_of_lane,
        late_retry,
        retry_after_loss,
    ]
}

fn held_and_asking() -> Vec<Task> {
    let failed_once = running(|_| {});
    let second =
        after(&after(&failed_once, fail(&failed_once, FailureKind::RetryAfter(Millis::ZERO))), claim(Until::Heartbeat));
    vec![
        running(|_| {}),
        running(|spec| policy(spec, |policy| policy.attempts_max = 1)),
        running(|spec| policy(spec, |policy| policy.crashes_max = Some(1))),
        running(|spec| spec.expires_at = Some(LATER)),
        running(serial),
        after(&queued(|_| {}), claim(Until::At(LATER))),
        after(&queued(|_| {}), claim(Until::At(LATER + MINUTE))),
        after(&queued(|_| {}), claim(Until::Foreign)),
        second,
        asked(None, None),
        asked(Some(LATER), None),
        asked(Some(LATER), Some("the usual")),
        asked(Some(LATER + MINUTE), None),
    ]
}

fn ended() -> Vec<Task> {
    let task = running(|_| {});
    let once = running(|spec| policy(spec, |policy| policy.attempts_max = 1));
    let reopenable = running(|spec| policy(spec, |policy| policy.reopen = true));
    let stopping = after(&task, cancel());
    let ended = Event::AttemptEnded { token: token(&stopping), stage: Stage::Verified };
    vec![
        after(&task, Event::Succeeded { token: token(&task), result: None }),
        after(&task, fail(&task, FailureKind::Permanent)),
        after(&once, lost()),
        after(&reopenable, fail(&reopenable, FailureKind::Permanent)),
        after(&queued(|_| {}), cancel()),
        after(&stopping, ended),
        stopping,
    ]
}

/// Events of every name, with the token of the task's latest attempt and with another one.
pub(crate) fn events(task: &Task) -> Vec<Event> {
    let mut events = vec![
        Event::Enqueued,
        Event::Released,
        Event::DependencyMet { parent: parent() },
        Event::DependencyMet { parent: TaskId::new("stranger").unwrap() },
        Event::DependencyFailed { parent: parent() },
        Event::DependencyFailed { parent: TaskId::new("stranger").unwrap() },
        Event::BecameDue,
        claim(Until::Heartbeat),
        Event::Claimed { claim: OpId::from_bits(9), holder: runner(), until: Until::Heartbeat, counted: false },
        Event::LeaseLost { evidence: Evidence::Deadline },
        Event::LeaseLost { evidence: Evidence::ProcessDied(runner()) },
        Event::LeaseLost { evidence: Evidence::Unchanged { watched: MINUTE, lease: MINUTE } },
        Event::Answered { question: QuestionId::new("q1").unwrap(), content: Arc::from("this") },
        Event::Answered { question: QuestionId::new("q1").unwrap(), content: Arc::from("that") },
        Event::Answered { question: QuestionId::new("q2").unwrap(), content: Arc::from("this") },
        cancel(),
        Event::RetryRequested,
        Event::Expired,
    ];
    let latest = task.state.execution_no;
    for token in [Token(latest.max(1)), Token(latest + 1), Token(latest.saturating_sub(1).max(1))] {
        events.extend([
            Event::Succeeded { token, result: None },
            Event::Failed { token, kind: FailureKind::Retryable, error: Arc::from("oops") },
            Event::Failed { token, kind: FailureKind::Permanent, error: Arc::from("oops") },
            Event::Failed { token, kind: FailureKind::Crashed, error: Arc::from("oops") },
            Event::Snoozed { token, delay: MINUTE },
            Event::TimedOut { token },
            Event::Interrupted { token },
            Event::Returned { token },
            Event::Asked { token, question: question(None, None) },
            Event::AttemptEnded { token, stage: Stage::Signalled },
            Event::AttemptEnded { token, stage: Stage::Verified },
        ]);
    }
    events
}
