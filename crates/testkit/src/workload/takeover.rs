//! What a process finds that opens a store after another one was killed: every task, and the work that its holders had in hand.

use std::sync::Arc;

use ekiden_core::id::TaskId;
use ekiden_core::lease::Token;
use ekiden_store::entropy::Entropy;

use super::rest::every_task;
use super::world::World;
use crate::facts::Note;

/// 40 percent of the work in hand is gone on with; the rest is never heard of again.
const OUTLIVES: u32 = 40;

/// Writes down every task as it is found.
pub(super) async fn look(world: &World) {
    let client = world.recorder.client("look");
    client.note(Note::Looking);
    for versioned in every_task(world).await {
        if let Some(task) = versioned.record.as_task() {
            let state = &task.state;
            client.note(Note::Found {
                task: task.id().clone(),
                phase: state.phase,
                execution_no: state.execution_no,
                lease: state.lease.as_ref().map(|lease| lease.token),
            });
        }
    }
    client.note(Note::Looked);
}

/// Gets to know the tasks that are there, and gives the work that goes on although its process is gone.
pub(super) async fn take_over(world: &Arc<World>) -> Vec<(TaskId, Token)> {
    let mut entropy = Entropy::from_seed(world.seed ^ 902);
    let mut left = Vec::new();
    for versioned in every_task(world).await {
        let Some(task) = versioned.record.as_task() else { continue };
        let mut known = world.known();
        known.tasks.push(task.id().clone());
        known.questions.extend(task.state.question.as_ref().map(|asked| (task.id().clone(), asked.id.clone())));
        if let Some(lease) = task.state.lease.as_ref().filter(|_| entropy.chance(OUTLIVES)) {
            left.push((task.id().clone(), lease.token));
        }
    }
    left
}
