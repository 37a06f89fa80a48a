//! Claims and settlements: how runners elsewhere get tasks and end them. A claim may wait; while it does nothing is claimed
//! for it, so that a runner which went away costs nobody a task.

use std::pin::pin;
use std::time::Duration;

use axum::http::StatusCode;
use ekiden::{Ask, Chime, Error, HeardChime, Leased, Settled, Settlement};
use ekiden_core::id::Namespace;
use ekiden_wire::{self as wire, Text};

use super::Answered;
use crate::answer;
use crate::call::{Call, glance};
use crate::limits;
use crate::metrics::Counted;
use crate::query::wrong;
use crate::room::Place;

/// Gives tasks out.
pub(crate) async fn claim(mut call: Call) -> Answered {
    let claim: wire::Claim = call.json().await?;
    let wait = wait_of(&claim);
    let ask = Ask::from_wire(claim, noted(&call)?, || call.shared.ids.op())?;
    let bell = call.queue().bell(&ask.namespace);
    let heard = bell.ready.heard();
    let mut leased = ask_once(&call, ask.clone()).await?;
    if leased.is_empty() && !wait.is_zero() {
        leased = Box::pin(ask_later(&call, ask, wait, heard)).await?;
    }
    let mut text = Text::with_room(512);
    text.plain(r#"{"tasks":"#);
    write(&mut text, &leased);
    text.plain("}");
    Ok(answer::text(StatusCode::OK, text))
}

/// Writes tasks with their leases.
fn write(text: &mut Text, leased: &[Leased]) {
    // 256 bytes: the names of all fields, and what most tasks have in them beside the payload.
    text.make_room(leased.iter().map(|leased| 256 + leased.spec.envelope.payload.len()).sum());
    text.list(leased, |text, leased| {
        text.leased(leased.lease.token.0, leased.attempts, leased.answer.as_ref(), &leased.spec);
    });
}

/// Ends attempts, and gives tasks out.
pub(crate) async fn settle(mut call: Call) -> Answered {
    let bytes = call.json_bytes().await?;
    let Ends { sent, answers, ask, wait, mut claim_error } = ends(&call, &bytes)?;
    drop(bytes);
    let settled = answers.len();
    let heard = call.queue().bell(&call.namespace()?).ready.heard();
    let (queue, then) = (call.queue().clone(), ask.clone());
    let done = call.finish(Box::pin(async move { queue.settle(sent, then).await })).await?;
    let mut outcomes = done.settled.into_iter();
    let mut failed = false;
    let outcomes = answers.into_iter().filter_map(|answer| answer.map(Err).or_else(|| outcomes.next()));
    // 64 bytes: a state, and a moment that few have. 512 more: most claims are for one task, which fits.
    let mut text = Text::with_room(512 + 64 * settled);
    text.plain(r#"{"settled":"#);
    text.list(outcomes, |text, outcome| match outcome {
        Ok(Settled { state, next_run_at, .. }) => text.settled(state, next_run_at),
        Err(error) => {
            failed = true;
            let error = ekiden::wire::detail(&error, call.language);
            text.value(&wire::SettledOrError::Error { error });
        }
    });

    let mut leased = done.leased;
    // Whoever has an end to write again should know it now.
    if let (Some(ask), Ok([]), false, false) = (ask, leased.as_deref(), wait.is_zero(), failed) {
        leased = Box::pin(ask_later(&call, ask, wait, heard)).await;
    }
    let tasks = leased.unwrap_or_else(|error| {
        claim_error = Some(error);
        Vec::new()
    });
    text.plain(r#","tasks":"#);
    write(&mut text, &tasks);
    if let Some(error) = claim_error {
        text.plain(r#","claim_error":"#);
        text.value(&ekiden::wire::detail(&error, call.language));
    }
    text.plain("}");
    Ok(answer::text(StatusCode::OK, text))
}

/// What a runner sends when attempts have ended.
struct Ends {
    sent: Vec<Settlement>,
    /// For each that was named: why it is not sent, if it is not.
    answers: Vec<Option<Error>>,
    /// What it asks for then, and for how long it would wait.
    ask: Option<Ask>,
    wait: Duration,
    claim_error: Option<Error>,
}

/// Read here, in one go, so that nothing of the body is kept while somebody waits.
fn ends(call: &Call, bytes: &[u8]) -> Result<Ends, Error> {
    let settle: wire::Settle = glance(bytes)?;
    if settle.settlements.len() > limits::SETTLEMENTS_MAX {
        let refusal = wrong("settlements", "too many at once");
        return Err(refusal.with("limit", limits::SETTLEMENTS_MAX).into());
    }
    let namespace = noted(call)?;
    let mut answers: Vec<Option<Error>> = Vec::with_capacity(settle.settlements.len());
    let mut sent = Vec::with_capacity(settle.settlements.len());
    for settlement in settle.settlements {
        match Settlement::from_wire(settlement, namespace.clone(), || call.shared.ids.op()) {
            Ok(settlement) => {
                sent.push(settlement);
                answers.push(None);
            }
            Err(refusal) => answers.push(Some(refusal.into())),
        }
    }
    let wait = settle.claim.as_ref().map_or(Duration::ZERO, wait_of);
    let ask = settle.claim.map(|claim| Ask::from_wire(claim, namespace, || call.shared.ids.op())).transpose();
    let (ask, claim_error) = match ask {
        Ok(ask) => (ask, None),
        Err(refusal) => (None, Some(refusal.into())),
    };
    Ok(Ends { sent, answers, ask, wait, claim_error })
}

fn noted(call: &Call) -> Result<Namespace, Error> {
    let namespace = call.namespace()?;
    call.shared.namespaces.note(&namespace);
    Ok(namespace)
}

fn wait_of(claim: &wire::Claim) -> Duration {
    Duration::from_millis(claim.wait_ms).min(limits::CLAIM_WAIT_MAX)
}

/// Asks, and hears the answer to its end: what was given out for nobody would wait for its lease to run out.
async fn ask_once(call: &Call, ask: Ask) -> Result<Vec<Leased>, Error> {
    let queue = call.queue().clone();
    call.finish(Box::pin(async move { queue.dequeue_ready(ask).await })).await?
}

/// Waits for something to be there: to be served by whoever hands it in, or for a reason to look. The same claim asks again, so
/// that no repetition of it gets more than one answer. Callers box it: the request of one who need not wait stays small.
async fn ask_later(call: &Call, ask: Ask, wait: Duration, heard: HeardChime) -> Result<Vec<Leased>, Error> {
    let shared = &call.shared;
    let bell = call.queue().bell(&ask.namespace);
    let mut deadline = pin!(tokio::time::sleep(wait));
    let place = shared.rooms.enter(&ask, heard);
    let _counted = Counted::new(&shared.metrics.waiting);
    loop {
        let mut stand = bell.stands.join(ask.clone());
        let goes_on = tokio::select! {
            biased;
            () = shared.stop.cancelled() => false,
            leased = stand.served() => {
                if !leased.is_empty() {
                    return Ok(leased);
                }
                true
            }
            heard = worth_a_look(call, &place, &ask.namespace) => heard.map(|()| true)?,
            () = &mut deadline => false,
        };
        let leased = stand.leave().await;
        if !leased.is_empty() || !goes_on {
            return Ok(leased);
        }
        let leased = ask_once(call, ask.clone()).await?;
        if !leased.is_empty() {
            return Ok(leased);
        }
    }
}

/// Waits to be the first of the line, and then for one ring more, for a task to be due, or for a while. The next of the line
/// listens while this one asks.
async fn worth_a_look(call: &Call, place: &Place<'_>, namespace: &Namespace) -> Result<(), Error> {
    let (shared, queue) = (&call.shared, call.queue());
    let bell = queue.bell(namespace);
    let mut heard = place.first().await;
    if !has_rung(&bell.ready, *heard)
        && let Some(due) = queue.next_due(namespace.clone()).await?
    {
        bell.ready_at(due, shared.clock.now());
    }
    let now = shared.clock.now();
    let due = bell.earliest(now).map_or(limits::LOOK_AGAIN, |due| due.since(now).as_duration());
    tokio::select! {
        biased;
        () = bell.ready.one_more(&mut heard) => {}
        () = tokio::time::sleep(due.min(limits::LOOK_AGAIN)) => {}
    }
    Ok(())
}

fn has_rung(chime: &Chime, heard: HeardChime) -> bool {
    chime.heard() != heard
}
