//! Runners elsewhere: signs of life, goodbyes, and what they hold or should stop.

use ekiden_wire as wire;

use super::Answered;
use crate::answer;
use crate::call::Call;
use crate::limits;

/// The runners of a namespace.
pub(crate) async fn list(call: Call) -> Answered {
    let share = call.room_for_answer(limits::PAGE_ANSWER_BYTES).await?;
    let runners = call.queue().runners(call.namespace()?).await?;
    Ok(answer::ok(&wire::RunnerList { items: runners.into_iter().map(Into::into).collect() })?.within(share))
}

/// A sign of life.
pub(crate) async fn beat(mut call: Call) -> Answered {
    let beat: wire::Beat = call.json().await?;
    let runner = beat.into_core(call.namespace()?, call.id("id")?, call.shared.clock.now());
    call.queue().beat(runner).await?;
    Ok(answer::nothing())
}

/// A runner ends cleanly.
pub(crate) async fn goodbye(call: Call) -> Answered {
    call.queue().goodbye(call.namespace()?, call.id("id")?).await?;
    Ok(answer::nothing())
}

/// What a runner was asked to stop.
pub(crate) async fn signals(call: Call) -> Answered {
    let signals = call.queue().signals(call.namespace()?, call.id("id")?).await?;
    answer::ok(&wire::SignalList { items: signals.into_iter().map(Into::into).collect() })
}

/// What a runner holds.
pub(crate) async fn held(call: Call) -> Answered {
    // Each lease comes with its task, and tasks may be large.
    let share = call.room_for_answer(limits::PAGE_ANSWER_BYTES).await?;
    let held = call.queue().held(call.namespace()?, call.id("id")?).await?;
    let items = held.into_iter().map(|lease| wire::HeldLease { task_id: lease.task.id, token: lease.token.0 });
    Ok(answer::ok(&wire::Held { items: items.collect() })?.within(share))
}
