//! Streams: the changes of a namespace's tasks, with replay, and the rings of its bell.

use std::pin::pin;
use std::sync::Arc;

use ekiden::{Bell, TaskChange};
use ekiden_core::id::Namespace;
use ekiden_core::time::Timestamp;
use ekiden_wire as wire;
use tokio::time::sleep;

use super::Answered;
use crate::call::Call;
use crate::events::Taken;
use crate::limits;
use crate::query::wrong;
use crate::shared::Shared;
use crate::stream::{self, Gone, Writer, event};

const EVENTS: &str = "text/event-stream";

/// Something to read, so that nobody on the way takes the stream for dead.
const SIGN: &str = ": still here\n\n";

/// The changes of a namespace from a cursor on, or from now on.
pub(crate) async fn events(call: Call) -> Answered {
    let query = call.query()?;
    let header = match &call.last_event_id {
        Some(value) => Some(value.to_str().map_err(|_| wrong("Last-Event-ID", "it is no cursor"))?),
        None => None,
    };
    let cursor = query.text("cursor").or(header.filter(|cursor| !cursor.is_empty()));
    let events = &call.shared.events;
    let known = cursor.map(|cursor| events.number_of(cursor));
    let seen = known.flatten().unwrap_or_else(|| events.here());
    let tell = Tell { shared: call.shared.clone(), namespace: call.namespace()?, seen };
    let known = known.is_none_or(|number| number.is_some());
    Ok(stream::open(&call, EVENTS, |writer| tell.tell(writer, known))?)
}

/// A stream of changes.
struct Tell {
    shared: Arc<Shared>,
    namespace: Namespace,
    /// The number behind which it goes on.
    seen: u64,
}

impl Tell {
    async fn tell(mut self, writer: Writer, known: bool) -> Result<(), Gone> {
        if known {
            // A place to go on from, also if nothing happens before the stream breaks off.
            let here = self.shared.events.cursor(self.seen);
            writer.write(format!(": from here on\nid: {here}\n\n")).await?;
        } else {
            self.reset(&writer, "UNKNOWN_CURSOR", self.seen).await?;
        }
        let mut heard = self.shared.events.chime.heard();
        // The chime rings for all namespaces; only what is written here puts the next sign off.
        let mut sign = pin!(sleep(limits::STREAM_SIGN));
        loop {
            let taken = self.shared.events.take(&self.namespace, self.seen);
            let more = taken.more;
            if self.pass_on(&writer, taken).await? {
                sign.set(sleep(limits::STREAM_SIGN));
            }
            if more {
                continue;
            }
            tokio::select! {
                () = self.shared.events.chime.since(&mut heard) => {}
                () = self.shared.stop.cancelled() => break,
                () = writer.gone() => return Err(Gone),
                () = &mut sign => {
                    writer.write(SIGN).await?;
                    sign.set(sleep(limits::STREAM_SIGN));
                }
            }
        }
        // What happened up to the end is told before the last word.
        let taken = self.shared.events.take(&self.namespace, self.seen);
        self.pass_on(&writer, taken).await?;
        let last = self.shared.events.cursor(self.seen);
        writer.write(event("end", Some(&last), "{}")).await
    }

    /// Writes what was taken, and says whether that was anything.
    async fn pass_on(&mut self, writer: &Writer, taken: Taken) -> Result<bool, Gone> {
        self.seen = taken.seen;
        let has_missed = taken.missed.is_some();
        if let Some(missed) = taken.missed {
            self.reset(writer, "TOO_SLOW", missed).await?;
        }
        if taken.changes.is_empty() {
            return Ok(has_missed);
        }
        let mut text = String::with_capacity(taken.changes.len() * 256);
        for (number, change) in taken.changes {
            text.push_str(&event("change", Some(&self.shared.events.cursor(number)), &json(change)));
        }
        writer.write(text).await?;
        Ok(true)
    }

    /// How many were missed is not counted by namespace, and the number of all would tell of the others.
    async fn reset(&self, writer: &Writer, reason: &str, seen: u64) -> Result<(), Gone> {
        let data = wire::Reset { reason_code: reason.to_owned(), missed: None };
        let data = serde_json::to_string(&data).unwrap_or_default();
        let here = self.shared.events.cursor(seen);
        writer.write(event("reset", Some(&here), &data)).await
    }
}

fn json(change: TaskChange) -> String {
    serde_json::to_string(&wire::TaskChange::from(change)).unwrap_or_default()
}

/// The rings of a namespace's bell, for runners elsewhere.
pub(crate) async fn hints(call: Call) -> Answered {
    let namespace = call.namespace()?;
    let bell = call.queue().bell(&namespace);
    let shared = call.shared.clone();
    let heard = (bell.ready.heard(), bell.work.heard(), bell.stop.heard());
    // A notifier that was not held until now knows of no moment.
    if let Some(due) = call.queue().next_due(namespace).await? {
        bell.ready_at(due, shared.clock.now());
    }
    Ok(stream::open(&call, EVENTS, |writer| pass_rings(shared, bell, heard, writer))?)
}

type AllHeard = (ekiden::HeardChime, ekiden::HeardChime, ekiden::HeardChime);

async fn pass_rings(shared: Arc<Shared>, bell: Arc<Bell>, heard: AllHeard, writer: Writer) -> Result<(), Gone> {
    let (mut ready, mut work, mut stop) = heard;
    // The reader need not wait for the first ring to know that it is heard, and learns of the moment that was rung for before
    // it listened.
    let mut told: Option<Timestamp> = bell.earliest(shared.clock.now());
    let mut first = ": listening\n\n".to_owned();
    first.extend(told.map(ready_at));
    writer.write(first).await?;
    loop {
        let rings = tokio::select! {
            () = bell.ready.since(&mut ready) => {
                // A ring may be for now, for later, or for both; whoever wakes up for nothing looks and waits again.
                let mut text = event("ready", None, r#"{"at":null}"#);
                let earliest = bell.earliest(shared.clock.now());
                if let Some(at) = earliest.filter(|_| earliest != told) {
                    text.push_str(&ready_at(at));
                    told = earliest;
                }
                text
            }
            () = bell.work.since(&mut work) => event("work", None, "{}"),
            () = bell.stop.since(&mut stop) => event("stop", None, "{}"),
            () = shared.stop.cancelled() => break,
            () = writer.gone() => return Err(Gone),
            () = sleep(limits::STREAM_SIGN) => SIGN.to_owned(),
        };
        writer.write(rings).await?;
    }
    writer.write(event("end", None, "{}")).await
}

fn ready_at(at: Timestamp) -> String {
    event("ready", None, &format!(r#"{{"at":"{at}"}}"#))
}
