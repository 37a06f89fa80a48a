//! Claims and settlements: how runners elsewhere get tasks and end them. A claim may wait; while it does nothing is claimed
//! for it, so that a runner which went away costs nobody a task.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use ekiden::{Ask, Bell, Chime, Error, HeardChime, Leased, Settled, Settlement};
use ekiden_core::id::Namespace;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_wire::{self as wire, Text};

use super::Answered;
use crate::answer::{self, ItemErrors};
use crate::budget::Share;
use crate::call::{Call, glance};
use crate::limits;
use crate::metrics::Counted;
use crate::room::Place;

/// 64 bytes of a settlement's outcome: a state, and a moment that few have.
const OUTCOME_BYTES: usize = 64;

/// Gives tasks out.
pub(crate) async fn claim(mut call: Call) -> Answered {
    let claim: wire::Claim = call.json().await?;
    let wait = wait_of(&claim)?;
    let ask = Ask::from_wire(claim, call.namespace()?, || call.shared.ids.op())?;
    let bell = (!wait.is_zero()).then(|| Listening::to(&call, &ask.namespace));
    let mut leased = ask_once(&call, ask.clone()).await?;
    call.keep_claim_of_body();
    if let (Some(bell), true) = (bell, leased.is_empty()) {
        leased = Box::pin(ask_later(&call, ask, wait, bell)).await?;
    }
    let mut text = Text::with_room(512);
    text.plain(r#"{"tasks":"#);
    write(&mut text, &leased);
    text.plain("}");
    Ok(answer::text(StatusCode::OK, text))
}

/// What tasks take with their leases. 256 bytes: the names of all fields, and what most tasks have in them beside the payload.
fn room_for(leased: &[Leased]) -> usize {
    leased.iter().map(|leased| 256 + leased.spec.envelope.payload.len()).sum()
}

/// Writes tasks with their leases.
fn write(text: &mut Text, leased: &[Leased]) {
    text.make_room(room_for(leased));
    text.list(leased, |text, leased| {
        text.leased(leased.lease.token.0, leased.attempts, leased.answer.as_ref(), &leased.spec);
    });
}

/// Ends attempts, and gives tasks out.
pub(crate) async fn settle(mut call: Call) -> Answered {
    let bytes = call.json_bytes().await?;
    let Ends { sent, answers, ask, wait, mut claim_error } = ends(&call, &bytes)?;
    drop(bytes);
    let refused = answers.iter().flatten().count();
    let room = OUTCOME_BYTES * sent.len() + limits::ITEM_ERROR_BYTES * refused;
    let mut share = Share::default();
    call.count_answer(&mut share, room)?;
    let bell = ask.as_ref().filter(|_| !wait.is_zero()).map(|ask| Listening::to(&call, &ask.namespace));
    let (queue, then) = (call.queue().clone(), ask.clone());
    // What the body takes is counted for as long as its results are there, whoever has gone away meanwhile.
    let body = std::mem::take(&mut call.share);
    let work = Box::pin(async move { (queue.settle(sent, then).await, body) });
    let (done, body) = call.finish(work).await?;
    call.share = body;
    call.keep_claim_of_body();
    let mut outcomes = done.settled.into_iter();
    let mut errors = ItemErrors::of(&call);
    let outcomes = answers.into_iter().filter_map(|answer| answer.map(Err).or_else(|| outcomes.next()));
    // 512 more: most claims are for one task, which fits.
    let mut text = Text::with_room(512 + room);
    text.plain(r#"{"settled":"#);
    text.list(outcomes, |text, outcome| match outcome {
        Ok(Settled { state, next_run_at, .. }) => text.settled(state, next_run_at),
        Err(error) => {
            text.value(&wire::SettledOrError::Error { error: errors.detail(error) });
        }
    });

    let mut leased = done.leased;
    // Whoever has an end to write again should know it now.
    if let (Some(ask), Some(bell), Ok([]), true) = (ask, bell, leased.as_deref(), errors.is_empty()) {
        leased = Box::pin(ask_later(&call, ask, wait, bell)).await;
    }
    let mut tasks = leased.unwrap_or_else(|error| {
        claim_error = Some(error);
        Vec::new()
    });
    // Where there is no room for the tasks, what was settled is told all the same: the same claim is given the same tasks.
    if !tasks.is_empty()
        && let Err(refusal) = call.count_answer(&mut share, room + room_for(&tasks))
    {
        claim_error = Some(Error::from(refusal).in_doubt());
        tasks.clear();
    }
    text.plain(r#","tasks":"#);
    write(&mut text, &tasks);
    if let Some(error) = claim_error {
        text.plain(r#","claim_error":"#);
        text.value(&errors.detail(error));
    }
    text.plain("}");
    errors.log();
    Ok(answer::text(StatusCode::OK, text).within(share))
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
    let namespace = call.namespace()?;
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
    let asked = settle.claim.map(|claim| {
        let wait = wait_of(&claim)?;
        Ask::from_wire(claim, namespace, || call.shared.ids.op()).map(|ask| (ask, wait))
    });
    let (ask, wait, claim_error) = match asked.transpose() {
        Ok(Some((ask, wait))) => (Some(ask), wait, None),
        Ok(None) => (None, Duration::ZERO, None),
        Err(refusal) => (None, Duration::ZERO, Some(refusal.into())),
    };
    Ok(Ends { sent, answers, ask, wait, claim_error })
}

/// The notifier of a namespace, held for as long as a claim may wait, and what it had told before the claim was made.
struct Listening {
    bell: Arc<Bell>,
    heard: HeardChime,
}

impl Listening {
    fn to(call: &Call, namespace: &Namespace) -> Self {
        let bell = call.queue().bell(namespace);
        Self { heard: bell.ready.heard(), bell }
    }
}

/// How long a claim waits. A longer wait than there is would end early without a word, and look like an empty queue.
fn wait_of(claim: &wire::Claim) -> Result<Duration, Refusal> {
    let wait = Duration::from_millis(claim.wait_ms);
    if wait > limits::CLAIM_WAIT_MAX {
        return Err(Refusal::new(ReasonCode::DurationInvalid)
            .with("field", "wait_ms")
            .with("duration_ms", claim.wait_ms)
            .with("max_ms", limits::CLAIM_WAIT_MAX.as_millis()));
    }
    Ok(wait)
}

/// Asks, and hears the answer to its end: what was given out for nobody would wait for its lease to run out.
async fn ask_once(call: &Call, ask: Ask) -> Result<Vec<Leased>, Error> {
    let queue = call.queue().clone();
    call.finish(Box::pin(async move { queue.dequeue_ready(ask).await })).await?
}

/// Waits for something to be there: to be served by whoever hands it in, or for a reason to look. The same claim asks again, so
/// that no repetition of it gets more than one answer. Callers box it: the request of one who need not wait stays small.
async fn ask_later(call: &Call, ask: Ask, wait: Duration, listening: Listening) -> Result<Vec<Leased>, Error> {
    let shared = &call.shared;
    let Listening { bell, heard } = listening;
    let mut deadline = pin!(tokio::time::sleep(wait));
    let place = shared.rooms.enter(&ask, heard);
    let _counted = Counted::new(&shared.metrics.waiting);
    loop {
        let mut stand = bell.stands.join(ask.clone());
        let mut ended = None;
        let goes_on = tokio::select! {
            biased;
            () = shared.stop.cancelled() => false,
            refusal = shared.tokens.ended(&call.caller) => {
                ended = Some(refusal);
                false
            }
            leased = stand.served() => {
                if !leased.is_empty() {
                    return Ok(leased);
                }
                true
            }
            heard = worth_a_look(call, &bell, &place, &ask.namespace) => heard.map(|()| true)?,
            () = &mut deadline => false,
        };
        let leased = stand.leave().await;
        if let (Some(refusal), []) = (ended, leased.as_slice()) {
            return Err(refusal.into());
        }
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
async fn worth_a_look(call: &Call, bell: &Bell, place: &Place<'_>, namespace: &Namespace) -> Result<(), Error> {
    let (shared, queue) = (&call.shared, call.queue());
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
