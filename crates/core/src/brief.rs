//! Most tasks that ended, in few words: nothing special was asked for, it went well at the first attempt, and nothing else ever
//! happened. Stores that keep ended tasks in memory keep them so. The whole task can be told from it, to the letter.

use std::sync::Arc;

use bytes::Bytes;

use crate::attempt::{Attempt, HistoryLine, Outcome, OutcomeCounts};
use crate::dependency::OnParentFailure;
use crate::event::EventName;
use crate::id::{Kind, Namespace, PoolName, RunnerId, TaskId};
use crate::lane::Place;
use crate::newer::Newer;
use crate::order::Rank;
use crate::pool::Policy;
use crate::task::{JSON, Origin, Phase, Spec, State, Task, TaskEnvelope};
use crate::time::Timestamp;

/// A task that succeeded at once. Its name and the moment when it was made are not in here: stores list tasks by them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brief {
    pool: PoolName,
    kind: Kind,
    payload: Bytes,
    policy: Arc<Policy>,
    rank: Rank,
    runner: RunnerId,
    started_at: Timestamp,
    finished_at: Timestamp,
    result: Option<Bytes>,
}

impl Brief {
    /// The task in few words, if these say all there is to say of it.
    pub fn of(task: &Task) -> Option<Self> {
        // Taken apart by name, so that a new field does not compile before it is considered here.
        let State {
            phase: Phase::Succeeded,
            attempts: 1,
            execution_no: 1,
            crashes: 0,
            next_run_at,
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
            result,
            progress: None,
            updated_at,
            started_at: Some(started_at),
            finished_at: Some(finished_at),
            recent,
            outcomes,
            history,
            purge_after: None,
            reopened_at: None,
            newer,
        } = &task.state
        else {
            return None;
        };
        let [attempt] = recent.as_slice() else { return None };
        let [enqueued, claimed, succeeded] = history.as_slice() else { return None };
        let (spec, started_at, finished_at) = (&*task.spec, *started_at, *finished_at);
        let is_brief = *next_run_at == spec.created_at
            && waits_for.is_empty()
            && *updated_at == finished_at
            && is_attempt(attempt, started_at, finished_at)
            && *outcomes == once()
            && is_line(enqueued, EventName::Enqueued, Phase::Queued, 0, spec.created_at)
            && is_line(claimed, EventName::Claimed, Phase::Running, 1, started_at)
            && is_line(succeeded, EventName::Succeeded, Phase::Succeeded, 1, finished_at)
            && newer.is_none()
            && is_plain(spec);
        is_brief.then(|| Self {
            pool: spec.pool.clone(),
            kind: spec.envelope.task_type.clone(),
            payload: spec.envelope.payload.clone(),
            policy: spec.policy.clone(),
            rank: spec.rank,
            runner: attempt.runner.clone(),
            started_at,
            finished_at,
            result: result.clone(),
        })
    }

    /// Its pool.
    pub const fn pool(&self) -> &PoolName {
        &self.pool
    }

    /// Its kind.
    pub const fn kind(&self) -> &Kind {
        &self.kind
    }

    /// How many bytes its payload has.
    pub const fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    /// The task in full, given its name and when it was made.
    pub fn task(&self, namespace: Namespace, id: TaskId, created_at: Timestamp) -> Task {
        let envelope = TaskEnvelope::json(self.kind.clone(), self.payload.clone());
        let mut spec = Spec::new(namespace, self.pool.clone(), id, envelope, self.policy.clone(), created_at);
        spec.rank = self.rank;
        let attempt = Attempt {
            execution_no: 1,
            runner: self.runner.clone(),
            started_at: self.started_at,
            finished_at: Some(self.finished_at),
            outcome: Some(Outcome::Succeeded),
            error: None,
            stage: None,
            newer: Newer::NONE,
        };
        let line = |event, phase, execution_no, at| HistoryLine {
            at,
            event,
            phase,
            execution_no,
            note: None,
            newer: Newer::NONE,
        };
        let history = vec![
            line(EventName::Enqueued, Phase::Queued, 0, created_at),
            line(EventName::Claimed, Phase::Running, 1, self.started_at),
            line(EventName::Succeeded, Phase::Succeeded, 1, self.finished_at),
        ];
        let state = State {
            phase: Phase::Succeeded,
            attempts: 1,
            execution_no: 1,
            crashes: 0,
            next_run_at: created_at,
            promoted: false,
            place: Place::None,
            lease: None,
            late: None,
            waits_for: Vec::new(),
            has_dependents: false,
            retried_as: None,
            question: None,
            answer: None,
            last_error: None,
            reason: None,
            result: self.result.clone(),
            progress: None,
            updated_at: self.finished_at,
            started_at: Some(self.started_at),
            finished_at: Some(self.finished_at),
            recent: vec![attempt],
            outcomes: once(),
            history,
            purge_after: None,
            reopened_at: None,
            newer: Newer::NONE,
        };
        Task { spec: Arc::new(spec), state }
    }
}

/// Whether nothing was asked for but what every task has.
fn is_plain(spec: &Spec) -> bool {
    let Spec {
        id: _,
        namespace: _,
        pool: _,
        envelope: TaskEnvelope { task_type: _, payload: _, content_type, newer: newer_envelope },
        created_at: _,
        rank: _,
        policy: _,
        title: None,
        run_at: None,
        expires_at: None,
        lane: None,
        on_parent_failure,
        unique: None,
        group: None,
        session: None,
        labels,
        after_group: None,
        retry_of: None,
        origin: Origin::Ours,
        message: None,
        newer,
    } = spec
    else {
        return false;
    };
    **content_type == *JSON
        && *on_parent_failure == OnParentFailure::default()
        && labels.is_empty()
        && newer_envelope.is_none()
        && newer.is_none()
}

/// One attempt, which succeeded.
fn once() -> OutcomeCounts {
    OutcomeCounts { succeeded: 1, ..OutcomeCounts::default() }
}

fn is_attempt(attempt: &Attempt, began: Timestamp, ended: Timestamp) -> bool {
    let Attempt {
        execution_no: 1,
        runner: _,
        started_at,
        finished_at: Some(finished_at),
        outcome: Some(Outcome::Succeeded),
        error: None,
        stage: None,
        newer,
    } = attempt
    else {
        return false;
    };
    *started_at == began && *finished_at == ended && newer.is_none()
}

fn is_line(line: &HistoryLine, event: EventName, phase: Phase, execution_no: u64, at: Timestamp) -> bool {
    line.event == event
        && line.phase == phase
        && line.execution_no == execution_no
        && line.at == at
        && line.note.is_none()
        && line.newer.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;
    use crate::fixtures::{self, NOON};
    use crate::id::OpId;
    use crate::lease::{Token, Until};
    use crate::newer::{Value, Versions};
    use crate::reason::ReasonCode;
    use crate::retry::FailureKind;
    use crate::time::Millis;
    use crate::transition::{Decision, decide};

    fn after(task: &Task, event: &Event, seconds: u64) -> Task {
        match decide(task, event, NOON + Millis::from_secs(seconds)) {
            Ok(Decision::Change(change)) => Task { spec: task.spec.clone(), state: change.state },
            other => panic!("{event:?} must change the task: {other:?}"),
        }
    }

    fn claimed(task: &Task, seconds: u64) -> Task {
        let holder = RunnerId::new("r").unwrap();
        let event = Event::Claimed { claim: OpId::from_bits(1), holder, until: Until::Heartbeat, counted: false };
        after(task, &event, seconds)
    }

    fn succeeded(result: Option<&'static [u8]>) -> Task {
        let running = claimed(&fixtures::task("a"), 1);
        after(&running, &Event::Succeeded { token: Token(1), result: result.map(Bytes::from_static) }, 2)
    }

    #[test]
    fn a_plain_life_is_told_from_few_words_to_the_letter() {
        for result in [None, Some(b"{}".as_slice())] {
            let task = succeeded(result);
            let Spec { namespace, id, created_at, .. } = &*task.spec;
            let told = Brief::of(&task).map(|brief| brief.task(namespace.clone(), id.clone(), *created_at));
            assert_eq!(told, Some(task));
        }
    }

    #[test]
    fn no_other_life_is() {
        let waiting = fixtures::task("a");
        let running = claimed(&waiting, 1);
        let failed =
            after(&running, &Event::Failed { token: Token(1), kind: FailureKind::Retryable, error: "x".into() }, 2);
        let again = after(&claimed(&failed, 600), &Event::Succeeded { token: Token(2), result: None }, 601);
        let stop = Event::CancelRequested { reason: ReasonCode::TaskCancelled, note: None };
        for task in [&waiting, &running, &failed, &again, &after(&waiting, &stop, 1)] {
            assert_eq!(Brief::of(task), None, "{task:?}");
        }
    }

    /// What somebody asked for is not lost either.
    #[test]
    fn a_life_that_something_was_asked_for_is_not_brief() {
        let newer = || Newer::new(Versions::UNTOLD, vec![(Value::Unsigned(99), Value::Nil)]);
        let changes: [fn(&mut Spec, Newer); 14] = [
            |spec, _| spec.title = Some("t".into()),
            |spec, _| spec.run_at = Some(NOON),
            |spec, _| spec.expires_at = Some(NOON),
            |spec, _| spec.group = Some(crate::id::GroupId::new("g").unwrap()),
            |spec, _| spec.session = Some(crate::id::SessionId::new("s").unwrap()),
            |spec, _| drop(spec.labels.insert("a".into(), "b".into())),
            |spec, _| spec.on_parent_failure = OnParentFailure::Run,
            |spec, _| spec.after_group = Some(crate::id::GroupId::new("g").unwrap()),
            |spec, _| spec.retry_of = Some(TaskId::new("b").unwrap()),
            |spec, _| spec.origin = Origin::Foreign,
            |spec, _| spec.envelope.content_type = "text/plain".into(),
            |spec, newer| spec.envelope.newer = newer,
            |spec, newer| spec.newer = newer,
            |spec, _| spec.created_at = NOON + Millis::from_secs(1),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut task = succeeded(None);
            change(Arc::make_mut(&mut task.spec), newer());
            assert_eq!(Brief::of(&task), None, "change {at}");
        }
    }

    /// Whatever else is said of a task is not lost: it is kept in full.
    #[test]
    fn a_life_with_anything_of_its_own_is_not_brief() {
        let newer = || Newer::new(Versions::UNTOLD, vec![(Value::Unsigned(99), Value::Nil)]);
        let changes: [fn(&mut State, Newer); 16] = [
            |state, _| state.next_run_at = NOON + Millis::from_secs(9),
            |state, _| state.updated_at = NOON + Millis::from_secs(9),
            |state, _| state.started_at = Some(NOON),
            |state, _| state.has_dependents = true,
            |state, _| state.attempts = 2,
            |state, _| state.waits_for = vec![TaskId::new("b").unwrap()],
            |state, _| state.outcomes.snoozed = 1,
            |state, _| state.recent[0].started_at = NOON,
            |state, _| state.recent[0].error = Some("x".into()),
            |state, newer| state.recent[0].newer = newer,
            |state, _| state.history[0].at = NOON + Millis::from_secs(1),
            |state, _| state.history[1].note = Some("late".into()),
            |state, newer| state.history[2].newer = newer,
            |state, _| drop(state.history.remove(1)),
            |state, newer| state.newer = newer,
            |state, _| state.last_error = Some("x".into()),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut task = succeeded(None);
            change(&mut task.state, newer());
            assert_eq!(Brief::of(&task), None, "change {at}");
        }
    }
}
