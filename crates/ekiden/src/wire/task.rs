//! Tasks to hand in, tasks as they are, schedules, changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ekiden_core::attempt::{Outcome, OutcomeCounts};
use ekiden_core::id::{Namespace, ScheduleId, TaskId};
use ekiden_core::order::Priority;
use ekiden_core::reason::{Language, ReasonCode, Refusal};
use ekiden_core::task::{JSON, TaskEnvelope};
use ekiden_core::time::Millis;
use ekiden_core::transition::Start;
use ekiden_store::Counts;
use ekiden_wire as wire;

use crate::change::TaskChange;
use crate::client::default_pool;
use crate::port::{Enqueued, Explanation, Maintained, NewSchedule, NewTask, QueueInfo, TaskRef, When, Wishes};
use crate::record::TaskRecord;

impl NewTask {
    /// A task that came over HTTP. `id` is drawn only if the sender made none.
    pub fn from_wire(
        mut task: wire::NewTask,
        namespace: Namespace,
        id: impl FnOnce() -> TaskId,
    ) -> Result<Self, Refusal> {
        let envelope = task.envelope()?;
        let pool = task.pool.unwrap_or_else(default_pool);
        let when = match (task.delay_ms, task.run_at) {
            (None, None) => When::Now,
            (Some(delay), None) => When::After(Millis::new(delay)),
            (None, Some(moment)) => When::At(moment),
            (Some(_), Some(_)) => {
                return Err(Refusal::new(ReasonCode::RequestInvalid)
                    .with("field", "run_at")
                    .with("why", "delay_ms says when already"));
            }
        };
        // A request that names its op but no task means the same task when it is repeated.
        let of_op = || task.op_id.map(|op| TaskId::from_bits(op.as_bits()));
        let name = TaskRef { namespace, id: task.id.or_else(of_op).unwrap_or_else(id) };
        Ok(Self {
            op: task.op_id,
            title: task.title,
            when,
            expires_after: task.expires_after_ms.map(Millis::new),
            start: if task.held { Start::Held } else { Start::Released },
            priority: Priority::new(task.priority)?,
            lane: task.lane.map(Into::into),
            unique: task.unique.map(Into::into),
            idempotency: task.idempotency_key,
            parents: task.depends_on,
            after_group: task.after_group,
            on_parent_failure: task.on_parent_failure,
            group: task.group,
            session: task.session,
            labels: task.labels,
            wishes: task.policy.into(),
            ..Self::new(name, pool, envelope)
        })
    }

    /// The same as it goes over HTTP.
    pub fn into_wire(self) -> wire::NewTask {
        let (payload, payload_encoding) = wire::encode(&self.envelope.payload, &self.envelope.content_type);
        let (delay_ms, run_at) = match self.when {
            When::Now => (None, None),
            When::After(delay) => (Some(delay.as_u64()), None),
            When::At(moment) => (None, Some(moment)),
        };
        wire::NewTask {
            id: Some(self.task.id),
            op_id: self.op,
            task_type: self.envelope.task_type,
            payload: Some(payload),
            payload_encoding,
            content_type: unless_json(self.envelope.content_type),
            pool: Some(self.pool),
            title: self.title,
            delay_ms,
            run_at,
            expires_after_ms: self.expires_after.map(Millis::as_u64),
            held: self.start == Start::Held,
            priority: self.priority.get(),
            lane: self.lane.as_ref().map(Into::into),
            unique: self.unique.as_ref().map(Into::into),
            idempotency_key: self.idempotency,
            depends_on: self.parents,
            after_group: self.after_group,
            on_parent_failure: self.on_parent_failure,
            group: self.group,
            session: self.session,
            labels: self.labels,
            policy: self.wishes.into(),
        }
    }
}

fn unless_json(content_type: Arc<str>) -> Option<Arc<str>> {
    (*content_type != *JSON).then_some(content_type)
}

impl From<wire::Wishes> for Wishes {
    fn from(wishes: wire::Wishes) -> Self {
        Self {
            attempts_max: wishes.attempts_max,
            retry: wishes.retry.map(Into::into),
            timeout: wishes.timeout.map(Into::into),
            keep: wishes.keep.map(Into::into),
            keep_dead: wishes.keep_dead.map(Into::into),
        }
    }
}

impl From<Wishes> for wire::Wishes {
    fn from(wishes: Wishes) -> Self {
        Self {
            attempts_max: wishes.attempts_max,
            retry: wishes.retry.as_ref().map(Into::into),
            timeout: wishes.timeout.map(Into::into),
            keep: wishes.keep.map(Into::into),
            keep_dead: wishes.keep_dead.map(Into::into),
        }
    }
}

impl NewSchedule {
    /// A schedule that came over HTTP. The id of its task is the ticks' business, so any will do.
    pub fn from_wire(
        schedule: wire::NewSchedule,
        namespace: Namespace,
        id: ScheduleId,
        task_id: impl FnOnce() -> TaskId,
    ) -> Result<Self, Refusal> {
        Ok(Self {
            id,
            every: schedule.every.into(),
            missed: schedule.missed,
            overlap: schedule.overlap,
            paused: schedule.paused,
            task: NewTask::from_wire(schedule.task, namespace, task_id)?,
        })
    }

    /// The same as it goes over HTTP.
    pub fn into_wire(self) -> wire::NewSchedule {
        wire::NewSchedule {
            every: (&self.every).into(),
            missed: self.missed,
            overlap: self.overlap,
            paused: self.paused,
            task: self.task.into_wire(),
        }
    }
}

impl From<Enqueued> for wire::Enqueued {
    fn from(enqueued: Enqueued) -> Self {
        Self { id: enqueued.id, is_new: enqueued.is_new }
    }
}

impl From<wire::Enqueued> for Enqueued {
    fn from(enqueued: wire::Enqueued) -> Self {
        Self { id: enqueued.id, is_new: enqueued.is_new }
    }
}

impl From<TaskRecord> for wire::Task {
    fn from(record: TaskRecord) -> Self {
        let (payload, payload_encoding) = wire::encode(&record.envelope.payload, &record.envelope.content_type);
        // What a handler returned is JSON, whatever it was given.
        let (result, result_encoding) = record
            .result
            .map(|result| wire::encode(&result, JSON))
            .map_or((None, wire::Encoding::Json), |(r, e)| (Some(r), e));
        Self {
            id: record.id,
            namespace: record.namespace,
            pool: record.pool,
            task_type: record.envelope.task_type,
            payload,
            payload_encoding,
            content_type: unless_json(record.envelope.content_type),
            state: record.state,
            attempts: record.attempts,
            max_attempts: record.max_attempts,
            execution_no: record.execution_no,
            last_error: record.last_error,
            next_run_at: record.next_run_at,
            created_at: record.created_at,
            updated_at: record.updated_at,
            started_at: record.started_at,
            finished_at: record.finished_at,
            priority: record.priority,
            title: record.title,
            reason_code: record.reason.map(|code| code.as_str().to_owned()),
            result,
            result_encoding,
            progress: record.progress.map(Into::into),
            runner: record.runner,
            question: record.question.map(Into::into),
            answer: record.answer.map(Into::into),
            waits_for: record.waits_for,
            group: record.group,
            session: record.session,
            labels: record.labels,
            retry_of: record.retry_of,
            retried_as: record.retried_as,
            recent: record.recent.into_iter().map(Into::into).collect(),
            outcomes: outcomes(&record.outcomes),
            history: record.history.into_iter().map(Into::into).collect(),
        }
    }
}

/// Counts by the outcome's name, without zeros.
fn outcomes(counts: &OutcomeCounts) -> BTreeMap<String, u32> {
    let named = Outcome::ALL.iter().map(|outcome| (outcome.as_str().to_owned(), counts.get(*outcome)));
    named.filter(|(_, count)| *count > 0).collect()
}

impl TaskRecord {
    /// A record that came over HTTP.
    pub fn from_wire(task: wire::Task) -> Result<Self, Refusal> {
        let payload = wire::decode("payload", Some(task.payload), task.payload_encoding)?;
        let envelope = TaskEnvelope::json(task.task_type, payload);
        let envelope = match task.content_type {
            Some(content_type) => TaskEnvelope { content_type, ..envelope },
            None => envelope,
        };
        let result = match task.result {
            Some(result) => Some(wire::decode("result", Some(result), task.result_encoding)?),
            None => None,
        };
        let mut outcomes = OutcomeCounts::default();
        for (name, count) in task.outcomes {
            outcomes.set(&name, count);
        }
        Ok(Self {
            id: task.id,
            namespace: task.namespace,
            pool: task.pool,
            envelope,
            state: task.state,
            attempts: task.attempts,
            max_attempts: task.max_attempts,
            execution_no: task.execution_no,
            last_error: task.last_error,
            next_run_at: task.next_run_at,
            created_at: task.created_at,
            updated_at: task.updated_at,
            started_at: task.started_at,
            finished_at: task.finished_at,
            priority: task.priority,
            title: task.title,
            reason: task.reason_code.as_deref().and_then(ReasonCode::parse),
            result,
            progress: task.progress.map(Into::into),
            runner: task.runner,
            question: task.question.map(Into::into),
            answer: task.answer.map(Into::into),
            waits_for: task.waits_for,
            group: task.group,
            session: task.session,
            labels: task.labels,
            retry_of: task.retry_of,
            retried_as: task.retried_as,
            recent: task.recent.into_iter().map(Into::into).collect(),
            outcomes,
            history: task.history.into_iter().map(Into::into).collect(),
        })
    }
}

impl Explanation {
    /// The same as it goes over HTTP, in the caller's language.
    pub fn into_wire(self, language: Language) -> wire::Explanation {
        let reason = |refusal: Refusal| {
            let message = refusal.code.message(language);
            wire::Reason {
                reason_code: refusal.code.as_str().to_owned(),
                message: format!("{}: {}", message.title, message.summary),
                actions: message.actions.clone(),
                context: refusal.context,
            }
        };
        wire::Explanation { task: self.record.into(), reasons: self.reasons.into_iter().map(reason).collect() }
    }

    /// An explanation that came over HTTP. A reason that only a newer version knows is left out.
    pub fn from_wire(explanation: wire::Explanation) -> Result<Self, Refusal> {
        let known = |reason: wire::Reason| {
            Some(Refusal { code: ReasonCode::parse(&reason.reason_code)?, context: reason.context })
        };
        Ok(Self {
            record: TaskRecord::from_wire(explanation.task)?,
            reasons: explanation.reasons.into_iter().filter_map(known).collect(),
        })
    }
}

impl From<Maintained> for wire::Maintained {
    fn from(done: Maintained) -> Self {
        let Maintained { changed, swept, ticked, removed, more, next_tick } = done;
        Self { changed, swept, ticked, removed, more, next_tick }
    }
}

impl From<wire::Maintained> for Maintained {
    fn from(done: wire::Maintained) -> Self {
        let wire::Maintained { changed, swept, ticked, removed, more, next_tick } = done;
        Self { changed, swept, ticked, removed, more, next_tick }
    }
}

impl From<TaskChange> for wire::TaskChange {
    fn from(change: TaskChange) -> Self {
        Self {
            namespace: change.namespace,
            id: change.id,
            task_type: change.task_type,
            pool: change.pool,
            event: change.event,
            state: change.state,
            attempt: change.attempt,
            error: change.error,
            next_run_at: change.next_run_at,
            progress: change.progress.map(Into::into),
            at: change.at,
        }
    }
}

impl From<wire::TaskChange> for TaskChange {
    fn from(change: wire::TaskChange) -> Self {
        Self {
            namespace: change.namespace,
            id: change.id,
            task_type: change.task_type,
            pool: change.pool,
            event: change.event,
            state: change.state,
            attempt: change.attempt,
            error: change.error,
            next_run_at: change.next_run_at,
            progress: change.progress.map(Into::into),
            at: change.at,
        }
    }
}

/// Counts as they go over HTTP.
pub fn counts_into(counts: Counts) -> wire::Counts {
    wire::Counts { by_state: counts.by_phase, exact: counts.exact }
}

/// Counts that came over HTTP.
pub fn counts_from(counts: wire::Counts) -> Counts {
    let mut all = Counts::zero();
    all.by_phase.extend(counts.by_state);
    all.exact = counts.exact;
    all
}

impl QueueInfo {
    /// What a server says of itself.
    pub fn into_wire(self, version: &str) -> wire::Info {
        wire::Info { version: version.to_owned(), store: self.store, durable: self.durable }
    }
}
