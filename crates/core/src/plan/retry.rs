//! A person wants a task to run again. One command: it returns the task that will run, the same or a new one.

use std::sync::Arc;

use crate::event::Event;
use crate::id::TaskId;
use crate::key::Key;
use crate::plan::draft::Draft;
use crate::plan::enqueue::{Enqueue, Enqueued};
use crate::plan::{Plan, Stop};
use crate::reason::{ReasonCode, Refusal};
use crate::task::{Origin, Phase, Spec};
use crate::transition::Start;

/// Runs a task again: reopened where its policy allows, otherwise as a new task that points at it.
#[derive(Clone, Debug)]
pub struct Retry {
    /// The task.
    pub task: Key,
    /// The id of the new task, should one be needed.
    pub new_id: TaskId,
}

impl Plan for Retry {
    type Done = Enqueued;

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Enqueued, Stop> {
        let Some(task) = draft.task(&self.task)? else {
            return Err(Refusal::new(ReasonCode::TaskNotFound).with("task_id", &self.task.name).into());
        };
        let respawn = match task.state.phase {
            Phase::Dead => !task.spec.policy.reopen,
            Phase::Cancelled => true,
            _ => false,
        };
        if !respawn {
            let happened = draft.happen(&self.task, &Event::RetryRequested)?;
            return Ok(Enqueued::Existing(happened.task().id().clone()));
        }
        let spec = Spec {
            id: self.new_id.clone(),
            created_at: draft.now(),
            run_at: None,
            expires_at: task.spec.expires_at.filter(|end| *end > draft.now()),
            retry_of: Some(task.id().clone()),
            origin: Origin::Ours,
            ..Spec::clone(&task.spec)
        };
        Enqueue { spec: Arc::new(spec), start: Start::Released, parents: Vec::new(), idempotency: None }.draft(draft)
    }
}
