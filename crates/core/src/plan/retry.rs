//! A person wants a task to run again. One command: it returns the task that will run, the same or a new one.

use std::sync::Arc;

use crate::event::Event;
use crate::id::TaskId;
use crate::key::Key;
use crate::limits;
use crate::plan::draft::Draft;
use crate::plan::enqueue::{Enqueue, Enqueued};
use crate::plan::{Plan, Stop};
use crate::reason::{ReasonCode, Refusal};
use crate::task::{Origin, Phase, Spec, Task};
use crate::transition::Start;

/// Runs a task again: reopened where its policy allows, otherwise as a new task that points at it. A task that was retried
/// before leads to the task that runs in its place, so that pressing twice runs once.
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
        let (key, task) = latest(draft, &self.task)?;
        let respawn = match task.state.phase {
            Phase::Dead => !task.spec.policy.reopen,
            Phase::Cancelled => true,
            _ => false,
        };
        if respawn {
            return self.respawn(draft, key, task);
        }
        match draft.happen(&key, &Event::RetryRequested) {
            Ok(happened) => Ok(Enqueued::Existing(happened.task().id().clone())),
            // The task in its place runs already, or waits for its turn: that is what was asked for.
            Err(Stop::Refused(_)) if key != self.task && !task.state.phase.is_final() => {
                Ok(Enqueued::Existing(task.id().clone()))
            }
            Err(stop) => Err(stop),
        }
    }
}

impl Retry {
    fn respawn(&self, draft: &mut Draft<'_>, key: Key, task: Arc<Task>) -> Result<Enqueued, Stop> {
        let spec = Spec {
            id: self.new_id.clone(),
            created_at: draft.now(),
            run_at: None,
            expires_at: task.spec.expires_at.filter(|end| *end > draft.now()),
            after_group: None,
            retry_of: Some(task.id().clone()),
            origin: Origin::Ours,
            ..Spec::clone(&task.spec)
        };
        let plan = Enqueue { spec: Arc::new(spec), start: Start::Released, parents: Vec::new(), idempotency: None };
        let enqueued = plan.draft(draft)?;
        if let Enqueued::New(_) = enqueued {
            let mut retried = Arc::unwrap_or_clone(task);
            retried.state.retried_as = Some(self.new_id.clone());
            draft.put(key, retried);
        }
        Ok(enqueued)
    }
}

/// The task itself, or the last of those that were made in its place.
fn latest(draft: &Draft<'_>, key: &Key) -> Result<(Key, Arc<Task>), Stop> {
    let mut at = key.clone();
    let mut found = draft.task(&at)?;
    for _ in 0..limits::RETRIES_FOLLOWED_MAX {
        let Some(next) = found.as_ref().and_then(|task| task.state.retried_as.as_ref()) else { break };
        let next = Key::task(&key.namespace, next);
        match draft.task(&next)? {
            Some(task) => (at, found) = (next, Some(task)),
            None => break,
        }
    }
    let task = found.ok_or_else(|| Refusal::new(ReasonCode::TaskNotFound).with("task_id", &key.name))?;
    Ok((at, task))
}
