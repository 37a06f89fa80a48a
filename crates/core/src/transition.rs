//! The one function that changes a task's phase. Pure: the same task, event and moment always give the same decision.
//!
//! The complete table phase × event is drawn in `docs/lifecycle.md`, from this code, by a test.

use std::sync::Arc;

use crate::attempt::{Outcome, Stage, clip};
use crate::dependency::OnParentFailure;
use crate::event::{Event, EventName};
use crate::id::{OpId, QuestionId, RunnerId, TaskId};
use crate::lane::{Hold, Place};
use crate::lease::{Evidence, LateLease, Lease, Token, Until};
use crate::limits;
use crate::newer::Newer;
use crate::pool::Timeout;
use crate::reason::{ReasonCode, Refusal};
use crate::retry::{self, FailureKind, Next};
use crate::task::{Phase, Progress, Question, QuestionAnswer, Spec, State, Task};
use crate::time::{Millis, Timestamp};

/// What an event does to a task. A refusal is the error side of [`decide`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "changes are what decisions are made of; a box would cost each of them")]
pub enum Decision {
    /// The state to write, and what must be written with it.
    Change(Change),
    /// This very thing happened before; the caller may take it as done.
    AlreadyDone,
    /// The event does not concern the task as it is now.
    NothingToDo,
}

/// A new state and its effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The state to write.
    pub state: State,
    /// What the same commit must do beside it.
    pub effects: Effects,
}

/// What a change asks of other records. The plans turn it into writes of the same commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Effects {
    /// The task leaves its place in its lane; the next may come.
    pub leave_lane: bool,
    /// The task joins its lane, at the back.
    pub join_lane: bool,
    /// The pool's running counter goes down by one.
    pub uncount: bool,
    /// A final phase was reached: children are told, the unique key is free.
    pub finished: bool,
    /// A final phase was left: the unique key is taken again.
    pub reopened: bool,
    /// The running attempt must be told to stop.
    pub signal: bool,
}

/// How a task starts its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Released at once.
    Released,
    /// Held until somebody releases it.
    Held,
}

/// 3: handed in, claimed, ended. Whoever changes a task where it is then finds room.
const LINES_OF_A_LIFE: usize = 3;

/// A new task's first state: the one legal `enqueued`.
pub fn birth(spec: &Spec, start: Start, waits_for: Vec<TaskId>, now: Timestamp) -> Change {
    let mut state = State {
        phase: Phase::Pending,
        attempts: 0,
        execution_no: 0,
        crashes: 0,
        next_run_at: spec.run_at.unwrap_or(spec.created_at),
        promoted: false,
        place: Place::None,
        lease: None,
        late: None,
        waits_for,
        has_dependents: false,
        retried_as: None,
        question: None,
        answer: None,
        last_error: None,
        reason: None,
        result: None,
        progress: None,
        updated_at: now,
        started_at: None,
        finished_at: None,
        recent: Vec::new(),
        outcomes: Default::default(),
        history: Vec::with_capacity(LINES_OF_A_LIFE),
        purge_after: None,
        reopened_at: None,
        newer: Newer::NONE,
    };
    let mut effects = Effects::default();
    if start == Start::Released && spec.after_group.is_none() {
        leave_hold(spec, &mut state, &mut effects, now);
    }
    state.note(EventName::Enqueued, None, now);
    Change { state, effects }
}

/// Decides what an event does to a task. Every change of a phase goes through here.
pub fn decide(task: &Task, event: &Event, now: Timestamp) -> Result<Decision, Refusal> {
    let moment = Moment { task, name: event.name(), now };
    match event {
        Event::Enqueued => Err(moment.refuse(ReasonCode::TaskExists)),
        Event::Released => moment.released(),
        Event::DependencyMet { parent } => Ok(moment.dependency_met(parent)),
        Event::DependencyFailed { parent } => Ok(moment.dependency_failed(parent)),
        Event::BecameDue => Ok(moment.became_due()),
        Event::Claimed { claim, holder, until, counted } => moment.claimed(*claim, holder, *until, *counted),
        Event::Succeeded { token, result } => moment.settle(*token, Outcome::Succeeded, |settled| {
            settled.state.result.clone_from(result);
            settled.finish(Phase::Succeeded, None);
        }),
        Event::Failed { token, kind, error } => {
            let outcome = if *kind == FailureKind::Crashed { Outcome::Crashed } else { Outcome::Failed };
            moment.settle(*token, outcome, |settled| settled.fail(*token, *kind, clip(error)))
        }
        Event::TimedOut { token } => moment.settle(*token, Outcome::TimedOut, |settled| {
            let error = timeout_text(task.spec.policy.timeout);
            settled.fail(*token, FailureKind::Retryable, error);
        }),
        Event::Snoozed { token, delay } => {
            moment.settle(*token, Outcome::Snoozed, |settled| settled.wait_again(Spent::No, *delay))
        }
        Event::Interrupted { token } => {
            moment.settle(*token, Outcome::Interrupted, |settled| settled.wait_again(Spent::No, Millis::ZERO))
        }
        Event::Returned { token } => {
            moment.settle(*token, Outcome::Returned, |settled| settled.wait_again(Spent::No, Millis::ZERO))
        }
        Event::Asked { token, question } => moment.settle(*token, Outcome::Asked, |settled| settled.ask(question)),
        Event::LeaseLost { evidence } => moment.lease_lost(evidence),
        Event::Answered { question, content } => moment.answered(question, content),
        Event::CancelRequested { reason, note } => moment.cancel_requested(*reason, note.as_ref()),
        Event::AttemptEnded { token, stage } => moment.attempt_ended(*token, *stage),
        Event::RetryRequested => moment.retry_requested(),
        Event::Expired => Ok(moment.expired()),
    }
}

/// The state after its holder said how far it is. Nobody else may: who lost the lease changes nothing.
pub fn report(task: &Task, token: Token, progress: Progress, now: Timestamp) -> Result<State, Refusal> {
    let held = task.state.phase == Phase::Running && task.state.lease.as_ref().is_some_and(|held| held.token == token);
    if !held {
        let code = Moment { task, name: EventName::Claimed, now }.why_not_held(token);
        return Err(Refusal::new(code).with("task_id", task.id()).with("phase", task.state.phase).with("token", token));
    }
    let progress = Progress { note: progress.note.map(|note| clip(&note)), ..progress };
    Ok(State { progress: Some(Box::new(progress)), updated_at: now, ..task.state.clone() })
}

/// The same as [`decide`] for a claim of a task that nobody else has: it is changed where it is, so nothing is copied. A refusal
/// changes nothing.
pub(crate) fn claim_in_place(
    task: &mut Task,
    claim: OpId,
    holder: &RunnerId,
    until: Until,
    counted: bool,
    now: Timestamp,
) -> Result<(), Refusal> {
    let name = EventName::Claimed;
    if let Claimable::Yes = (Moment { task, name, now }).claimable(claim)? {
        task.state.begin(claim, holder, until, counted, now);
        task.state.note(name, None, now);
    }
    Ok(())
}

/// What a claim finds.
enum Claimable {
    Yes,
    /// It has the task already.
    Already,
}

/// Whether an attempt that ended counts against the budget.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spent {
    Yes,
    No,
}

/// One event meeting one task.
struct Moment<'a> {
    task: &'a Task,
    name: EventName,
    now: Timestamp,
}

/// A change in the making: the state as it will be, and what goes with it.
struct Outline<'a> {
    spec: &'a Spec,
    state: State,
    effects: Effects,
    now: Timestamp,
}

impl<'a> Moment<'a> {
    fn state(&self) -> &'a State {
        &self.task.state
    }

    fn refuse(&self, code: ReasonCode) -> Refusal {
        Refusal::new(code)
            .with("task_id", self.task.id())
            .with("phase", self.state().phase)
            .with("event", self.name.as_str())
            .with("execution_no", self.state().execution_no)
    }

    fn outline(&self) -> Outline<'a> {
        let attempts = usize::from(self.name == EventName::Claimed);
        let state = self.state().copy_with_room(attempts, 1);
        Outline { spec: &self.task.spec, state, effects: Effects::default(), now: self.now }
    }

    fn change(&self, mut next: Outline<'_>, note: Option<Arc<str>>) -> Decision {
        next.state.note(self.name, note, self.now);
        Decision::Change(Change { state: next.state, effects: next.effects })
    }

    fn released(&self) -> Result<Decision, Refusal> {
        let given_up = self.state().reason == Some(ReasonCode::DependencyFailed);
        match self.state().phase {
            Phase::Pending => {}
            Phase::Blocked if given_up || self.state().waits_for.is_empty() => {}
            Phase::Blocked => {
                return Err(self.refuse(ReasonCode::DependencyUnmet).with("unmet", self.state().waits_for.len()));
            }
            Phase::Queued | Phase::RetryScheduled | Phase::Running | Phase::NeedsInput => {
                return Ok(Decision::NothingToDo);
            }
            Phase::Succeeded | Phase::Dead => return Err(self.refuse(ReasonCode::TaskFinal)),
            Phase::Cancelled => return Err(self.refuse(ReasonCode::TaskCancelled)),
        }
        let mut next = self.outline();
        if self.state().phase == Phase::Blocked {
            next.state.waits_for.clear();
        }
        next.leave_hold();
        Ok(self.change(next, None))
    }

    fn dependency_met(&self, parent: &TaskId) -> Decision {
        let waits =
            matches!(self.state().phase, Phase::Pending | Phase::Blocked) && self.state().waits_for.contains(parent);
        if !waits {
            return Decision::NothingToDo;
        }
        let mut next = self.outline();
        next.state.waits_for.retain(|waited| waited != parent);
        if next.state.phase == Phase::Blocked && next.state.waits_for.is_empty() {
            next.leave_hold();
        }
        self.change(next, Some(Arc::from(parent.as_str())))
    }

    fn dependency_failed(&self, parent: &TaskId) -> Decision {
        let waits =
            matches!(self.state().phase, Phase::Pending | Phase::Blocked) && self.state().waits_for.contains(parent);
        match self.task.spec.on_parent_failure {
            _ if !waits => Decision::NothingToDo,
            OnParentFailure::Run => self.dependency_met(parent),
            OnParentFailure::Block if self.state().reason == Some(ReasonCode::DependencyFailed) => {
                Decision::NothingToDo
            }
            OnParentFailure::Block => {
                let mut next = self.outline();
                next.state.reason = Some(ReasonCode::DependencyFailed);
                self.change(next, Some(Arc::from(parent.as_str())))
            }
            OnParentFailure::Cancel => {
                let mut next = self.outline();
                next.finish(Phase::Cancelled, Some(ReasonCode::DependencyFailed));
                self.change(next, Some(Arc::from(parent.as_str())))
            }
        }
    }

    fn became_due(&self) -> Decision {
        let state = self.state();
        let waits = matches!(state.phase, Phase::Queued | Phase::RetryScheduled) && !state.promoted;
        if !waits || state.next_run_at > self.now || matches!(state.place, Place::Waiting(_)) {
            return Decision::NothingToDo;
        }
        let mut next = self.outline();
        next.stand_in_line();
        self.change(next, None)
    }

    fn claimed(&self, claim: OpId, holder: &RunnerId, until: Until, counted: bool) -> Result<Decision, Refusal> {
        match self.claimable(claim)? {
            Claimable::Already => Ok(Decision::AlreadyDone),
            Claimable::Yes => {
                let mut next = self.outline();
                next.state.begin(claim, holder, until, counted, self.now);
                Ok(self.change(next, None))
            }
        }
    }

    fn claimable(&self, claim: OpId) -> Result<Claimable, Refusal> {
        let state = self.state();
        match state.phase {
            Phase::Queued | Phase::RetryScheduled => {}
            Phase::Running if state.lease.as_ref().is_some_and(|lease| lease.claim == claim) => {
                return Ok(Claimable::Already);
            }
            Phase::Pending | Phase::Blocked | Phase::Running | Phase::NeedsInput => {
                return Err(self.refuse(ReasonCode::TaskNotClaimable));
            }
            Phase::Succeeded | Phase::Dead => return Err(self.refuse(ReasonCode::TaskFinal)),
            Phase::Cancelled => return Err(self.refuse(ReasonCode::TaskCancelled)),
        }
        if state.next_run_at > self.now {
            return Err(self.refuse(ReasonCode::NotDue).with("next_run_at", state.next_run_at));
        }
        if self.task.spec.lane.is_some() && state.place != Place::Held {
            return Err(self.refuse(ReasonCode::BehindLane));
        }
        if state.expires_at(&self.task.spec).is_some_and(|end| end <= self.now) {
            return Err(self.refuse(ReasonCode::Expired));
        }
        Ok(Claimable::Yes)
    }

    /// An attempt ends by its holder's word. Also accepted late: the lease is lost, but nobody took the task since.
    fn settle(&self, token: Token, outcome: Outcome, then: impl FnOnce(&mut Outline<'a>)) -> Result<Decision, Refusal> {
        let state = self.state();
        let current = state.phase == Phase::Running && state.lease.as_ref().is_some_and(|lease| lease.token == token);
        let late = matches!(state.phase, Phase::Queued | Phase::RetryScheduled)
            && state.late.as_ref().is_some_and(|late| late.token == token);
        if !current && !late {
            return if state.outcome_of(token.0) == Some(outcome) {
                Ok(Decision::AlreadyDone)
            } else {
                Err(self.refuse(self.why_not_held(token)).with("token", token))
            };
        }
        let mut next = self.outline();
        let error = None;
        next.end_attempt(token, outcome, error);
        next.state.crashes = match outcome {
            // A crash that is told late was counted when the lease was lost.
            Outcome::Crashed => state.crashes.saturating_add(u32::from(current)),
            // Given back, which says nothing of the attempts before. Told late, the lost lease was no crash.
            Outcome::Returned | Outcome::Interrupted => state.crashes.saturating_sub(u32::from(late)),
            _ => 0,
        };
        then(&mut next);
        let note = (outcome != Outcome::Succeeded).then(|| next.state.last_error.clone()).flatten();
        Ok(self.change(next, if late { Some(Arc::from("late")) } else { note }))
    }

    fn why_not_held(&self, token: Token) -> ReasonCode {
        match self.state().phase {
            Phase::Succeeded | Phase::Dead => ReasonCode::TaskFinal,
            Phase::Cancelled => ReasonCode::TaskCancelled,
            Phase::Running => ReasonCode::LeaseLost,
            _ if (1..=self.state().execution_no).contains(&token.0) => ReasonCode::LeaseLost,
            _ => ReasonCode::TaskNotRunning,
        }
    }

    fn lease_lost(&self, evidence: &Evidence) -> Result<Decision, Refusal> {
        let Some(lease) = &self.state().lease else { return Ok(Decision::NothingToDo) };
        if !evidence.convicts(lease, self.now) {
            return Err(self.refuse(ReasonCode::LeaseAlive).with("runner_id", &lease.holder));
        }
        let outcome = if matches!(evidence, Evidence::ProcessDied(_)) { Outcome::Crashed } else { Outcome::Lost };
        let error: Arc<str> = Arc::from(match outcome {
            Outcome::Crashed => format!("crashed: the process of runner {} died", lease.holder),
            _ => format!("lost: runner {} gave no sign of life", lease.holder),
        });
        let mut next = self.outline();
        next.end_attempt(lease.token, outcome, Some(error.clone()));
        if self.state().phase == Phase::Running {
            next.state.last_error = Some(error.clone());
            next.lose(lease);
        }
        Ok(self.change(next, Some(error)))
    }

    fn answered(&self, question: &QuestionId, content: &Arc<str>) -> Result<Decision, Refusal> {
        let state = self.state();
        let open = state.question.as_ref().filter(|_| state.phase == Phase::NeedsInput);
        if open.is_some_and(|open| open.id == *question) {
            let mut next = self.outline();
            next.take_answer(question, content);
            return Ok(self.change(next, None));
        }
        match &state.answer {
            Some(given) if given.question == *question && given.content == *content => Ok(Decision::AlreadyDone),
            Some(given) if given.question == *question => Err(self.refuse(ReasonCode::QuestionClosed)),
            _ if open.is_some() => Err(self.refuse(ReasonCode::QuestionClosed)),
            _ => Err(self.refuse(ReasonCode::TaskNotAsking)),
        }
    }

    fn cancel_requested(&self, reason: ReasonCode, note: Option<&Arc<str>>) -> Result<Decision, Refusal> {
        match self.state().phase {
            Phase::Cancelled => return Ok(Decision::AlreadyDone),
            Phase::Succeeded | Phase::Dead => return Err(self.refuse(ReasonCode::TaskFinal)),
            _ => {}
        }
        let mut next = self.outline();
        next.finish(Phase::Cancelled, Some(reason));
        // A running attempt keeps lease, place and count until it has truly ended; its successor must not overlap it.
        next.effects.signal = self.state().lease.is_some();
        // Cut, as errors are: a task is cancelled however long the words are.
        Ok(self.change(next, note.map(|note| clip(note))))
    }

    fn attempt_ended(&self, token: Token, stage: Stage) -> Result<Decision, Refusal> {
        let state = self.state();
        if state.phase != Phase::Cancelled {
            return Err(self.refuse(ReasonCode::TaskNotCancelled));
        }
        if state.lease.as_ref().is_none_or(|lease| lease.token != token) {
            return match state.outcome_of(token.0) {
                Some(Outcome::Cancelled) => Ok(Decision::AlreadyDone),
                _ => Err(self.refuse(ReasonCode::LeaseLost).with("token", token)),
            };
        }
        if state.running_attempt().and_then(|attempt| attempt.stage) >= Some(stage) {
            return Ok(Decision::AlreadyDone);
        }
        let mut next = self.outline();
        if let Some(attempt) = next.state.recent.iter_mut().rev().find(|attempt| attempt.execution_no == token.0) {
            attempt.stage = Some(stage);
        }
        if stage == Stage::Verified {
            next.end_attempt(token, Outcome::Cancelled, None);
        }
        Ok(self.change(next, None))
    }

    fn retry_requested(&self) -> Result<Decision, Refusal> {
        match self.state().phase {
            Phase::Pending | Phase::Blocked | Phase::NeedsInput => Err(self.refuse(ReasonCode::TaskHeld)),
            Phase::Running => Err(self.refuse(ReasonCode::RunInProgress)),
            Phase::Cancelled => Err(self.refuse(ReasonCode::TaskCancelled)),
            Phase::Succeeded => Err(self.refuse(ReasonCode::TaskFinal)),
            Phase::Dead if !self.task.spec.policy.reopen => Err(self.refuse(ReasonCode::TaskFinal)),
            Phase::Queued => Ok(Decision::NothingToDo),
            Phase::RetryScheduled => {
                let mut next = self.outline();
                next.state.next_run_at = self.now;
                next.stand_in_line();
                Ok(self.change(next, None))
            }
            Phase::Dead => {
                let mut next = self.outline();
                next.state.attempts = 0;
                next.state.crashes = 0;
                next.state.finished_at = None;
                next.state.purge_after = None;
                next.state.reason = None;
                next.state.next_run_at = self.now;
                next.state.reopened_at = Some(self.now);
                next.effects.reopened = true;
                next.leave_hold();
                Ok(self.change(next, None))
            }
        }
    }

    fn expired(&self) -> Decision {
        let state = self.state();
        let past = |end: Option<Timestamp>| end.is_some_and(|end| end <= self.now);
        let question = state.question.as_deref().filter(|question| past(question.deadline));
        match (state.phase, question) {
            (Phase::NeedsInput, Some(Question { id, default: Some(content), .. })) => {
                let mut next = self.outline();
                next.take_answer(id, content);
                self.change(next, Some(Arc::from("default answer")))
            }
            (Phase::NeedsInput, Some(_)) => {
                let mut next = self.outline();
                next.finish(Phase::Dead, Some(ReasonCode::QuestionExpired));
                self.change(next, None)
            }
            (Phase::Pending | Phase::Blocked | Phase::Queued | Phase::RetryScheduled | Phase::NeedsInput, _)
                if past(state.expires_at(&self.task.spec)) =>
            {
                let mut next = self.outline();
                next.finish(Phase::Dead, Some(ReasonCode::Expired));
                self.change(next, None)
            }
            _ => Decision::NothingToDo,
        }
    }
}

impl State {
    /// An attempt begins.
    fn begin(&mut self, claim: OpId, holder: &RunnerId, until: Until, counted: bool, now: Timestamp) {
        self.phase = Phase::Running;
        self.promoted = false;
        self.late = None;
        self.progress = None;
        self.attempts = self.attempts.saturating_add(1);
        self.execution_no += 1;
        self.started_at.get_or_insert(now);
        let token = Token(self.execution_no);
        self.lease = Some(Lease { holder: holder.clone(), claim, token, until, counted, newer: Newer::NONE });
        self.open_attempt(holder.clone(), now);
    }
}

impl Outline<'_> {
    fn leave_hold(&mut self) {
        leave_hold(self.spec, &mut self.state, &mut self.effects, self.now);
    }

    fn stand_in_line(&mut self) {
        stand_in_line(self.spec, &mut self.state, &mut self.effects, self.now);
    }

    /// The attempt is over: lease, count and (where the lane says so) place are free.
    fn end_attempt(&mut self, token: Token, outcome: Outcome, error: Option<Arc<str>>) {
        self.state.close_attempt(token.0, outcome, error, self.now);
        let lease = self.state.lease.take();
        self.state.late = None;
        self.effects.uncount = lease.is_some_and(|lease| lease.counted);
        let hold = self.spec.lane.as_ref().map(|lane| lane.hold);
        if self.state.place != Place::None && (hold == Some(Hold::WhileRunning) || self.state.phase.is_final()) {
            self.state.place = Place::None;
            self.effects.leave_lane = true;
        }
    }

    fn finish(&mut self, phase: Phase, reason: Option<ReasonCode>) {
        self.state.phase = phase;
        self.state.reason = reason;
        self.state.finished_at = Some(self.now);
        self.state.promoted = false;
        self.state.late = None;
        self.state.question = None;
        self.state.waits_for.clear();
        self.effects.finished = true;
        if self.state.place != Place::None && self.state.lease.is_none() {
            self.state.place = Place::None;
            self.effects.leave_lane = true;
        }
    }

    /// After a failure: tried again later, or dead.
    fn fail(&mut self, token: Token, kind: FailureKind, error: Arc<str>) {
        if let Some(attempt) = self.state.recent.iter_mut().rev().find(|attempt| attempt.execution_no == token.0) {
            attempt.error = Some(error.clone());
        }
        self.state.last_error = Some(error);
        let policy = &self.spec.policy;
        let seed = retry::seed(&self.spec.id, token.0);
        match policy.retry.next(self.state.attempts, kind, seed) {
            _ if kind == FailureKind::Permanent => self.finish(Phase::Dead, Some(ReasonCode::PermanentFailure)),
            Next::After(_) if self.state.attempts < policy.attempts_max && self.crashed_too_often() => {
                self.finish(Phase::Dead, Some(ReasonCode::CrashLimit));
            }
            Next::After(delay) if self.state.attempts < policy.attempts_max => {
                self.state.phase = Phase::RetryScheduled;
                self.state.next_run_at = self.now + delay.min(limits::DURATION_MAX);
                self.state.promoted = false;
            }
            Next::After(_) | Next::Stop => self.finish(Phase::Dead, Some(ReasonCode::AttemptsExhausted)),
        }
    }

    /// Whether so many attempts crashed in a row that the task itself must be to blame.
    fn crashed_too_often(&self) -> bool {
        self.spec.policy.crashes_max.is_some_and(|limit| self.state.crashes >= limit)
    }

    /// Back to the line, without a failure.
    fn wait_again(&mut self, spent: Spent, delay: Millis) {
        if spent == Spent::No {
            self.state.attempts = self.state.attempts.saturating_sub(1);
        }
        self.state.phase = Phase::Queued;
        self.state.promoted = false;
        self.state.next_run_at = self.now + delay.min(limits::DURATION_MAX);
        if delay == Millis::ZERO {
            self.stand_in_line();
        }
    }

    /// The holder is gone: due at once for another, unless the budget is used up. The lost token may still settle.
    fn lose(&mut self, lease: &Lease) {
        self.state.crashes = self.state.crashes.saturating_add(1);
        let policy = &self.spec.policy;
        if self.state.attempts >= policy.attempts_max {
            self.finish(Phase::Dead, Some(ReasonCode::AttemptsExhausted));
        } else if self.crashed_too_often() {
            self.finish(Phase::Dead, Some(ReasonCode::CrashLimit));
        } else if self.state.expires_at(self.spec).is_some_and(|end| end <= self.now) {
            self.finish(Phase::Dead, Some(ReasonCode::Expired));
        } else {
            self.wait_again(Spent::Yes, Millis::ZERO);
            let late = LateLease { token: lease.token, claim: lease.claim, holder: lease.holder.clone() };
            self.state.late = Some(Box::new(late));
        }
    }

    fn ask(&mut self, question: &Question) {
        self.state.attempts = self.state.attempts.saturating_sub(1);
        self.state.phase = Phase::NeedsInput;
        self.state.question = Some(Box::new(question.clone()));
    }

    fn take_answer(&mut self, question: &QuestionId, content: &Arc<str>) {
        let answer = QuestionAnswer { question: question.clone(), content: content.clone(), at: self.now };
        self.state.answer = Some(Box::new(answer));
        self.state.question = None;
        self.state.phase = Phase::Queued;
        self.state.next_run_at = self.now;
        self.stand_in_line();
    }
}

/// Leaves pending, blocked or dead: waits for parents, or stands in line.
fn leave_hold(spec: &Spec, state: &mut State, effects: &mut Effects, now: Timestamp) {
    if !state.waits_for.is_empty() {
        state.phase = Phase::Blocked;
        return;
    }
    state.reason = None;
    let keeps_order = spec.lane.as_ref().is_some_and(|lane| lane.hold == Hold::UntilFinal);
    if keeps_order && state.place == Place::None {
        // It joins its lane even when it is not due yet: its turn is decided by when it came. Where order does not matter, it
        // joins when it is due, and holds no place before.
        state.phase = Phase::Queued;
        state.promoted = false;
        effects.join_lane = true;
    } else {
        stand_in_line(spec, state, effects, now);
    }
}

/// Queued: claimable if due, listed as due later if not, behind its lane if it has no place in it.
fn stand_in_line(spec: &Spec, state: &mut State, effects: &mut Effects, now: Timestamp) {
    state.phase = Phase::Queued;
    let due = state.next_run_at <= now;
    let placed = spec.lane.is_none() || state.place == Place::Held;
    state.promoted = due && placed;
    effects.join_lane |= due && !placed && state.place == Place::None;
}

fn timeout_text(timeout: Timeout) -> Arc<str> {
    match timeout {
        Timeout::After(limit) => Arc::from(format!("timed out after {limit}")),
        Timeout::Never => Arc::from("timed out"),
    }
}
