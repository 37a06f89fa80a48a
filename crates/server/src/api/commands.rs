//! What people and runners do to one task: cancel, retry, release, answer, and say how far it is.

use ekiden::{Error, LeaseRef, TaskRecord};
use ekiden_core::lease::Token;
use ekiden_wire as wire;

use super::Answered;
use crate::answer;
use crate::call::Call;
use crate::limits;

/// Carries a command out once there is room to tell what came of it.
async fn told(call: &Call, command: impl Future<Output = Result<TaskRecord, Error>>) -> Answered {
    let share = call.room_for_answer(limits::TASK_ANSWER_BYTES).await?;
    Ok(answer::ok(&wire::Task::from(command.await?))?.within(share))
}

/// Ends a task.
pub(crate) async fn cancel(mut call: Call) -> Answered {
    let cancel: wire::Cancel = call.json_or_default().await?;
    told(&call, call.queue().cancel(call.task()?, cancel.note)).await
}

/// Runs a task again.
pub(crate) async fn retry(call: Call) -> Answered {
    told(&call, call.queue().retry(call.task()?)).await
}

/// Lets a held task go.
pub(crate) async fn release(call: Call) -> Answered {
    told(&call, call.queue().release(call.task()?)).await
}

/// Answers a task's question.
pub(crate) async fn answer(mut call: Call) -> Answered {
    let answer: wire::Answer = call.json().await?;
    told(&call, call.queue().answer(call.task()?, answer.question, answer.content)).await
}

/// Says how far an attempt is.
pub(crate) async fn progress(mut call: Call) -> Answered {
    let told: wire::Progressed = call.json().await?;
    let lease = LeaseRef::new(call.task()?, Token(told.token));
    call.queue().report(lease, told.progress.into()).await?;
    Ok(answer::nothing())
}
