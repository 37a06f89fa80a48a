//! Runners elsewhere: signs of life, goodbyes, and what they hold or should stop.

use ekiden_wire as wire;

use super::Answered;
use crate::answer;
use crate::call::Call;

/// The runners of a namespace.
pub(crate) async fn list(call: Call) -> Answered {
    let runners = call.queue().runners(call.namespace()?).await?;
    answer::ok(&wire::RunnerList { items: runners.into_iter().map(Into::into).collect() })
}

/// A sign of life.
pub(crate) async fn beat(mut call: Call) -> Answered {
    let beat: wire::Beat = call.json().await?;
    let namespace = call.namespace()?;
    call.shared.namespaces.note(&namespace);
    let runner = beat.into_core(namespace, call.id("id")?, call.shared.clock.now());
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
    let held = call.queue().held(call.namespace()?, call.id("id")?).await?;
    let items = held.into_iter().map(|lease| wire::HeldLease { task_id: lease.task.id, token: lease.token.0 });
    answer::ok(&wire::Held { items: items.collect() })
}
