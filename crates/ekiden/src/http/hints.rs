//! Bells of namespaces that a server rings: one stream of hints each, opened when somebody listens. Without it everything
//! still works, by looking now and then.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ekiden_core::id::Namespace;
use ekiden_core::time::Timestamp;
use ekiden_store::clock::{Clock, SystemClock};
use hashbrown::HashMap;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::line::Line;
use super::stream::{Event, Stream};
use super::{locked, path};
use crate::backoff::Backoff;
use crate::bell::Bell;

/// One second before a stream of hints is opened again: a listener looks as often by itself. The wait grows to
/// [`REOPEN_MAX`] while that fails.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// 50 ms before a stream of changes is opened again.
pub(super) const REOPEN_AFTER: Duration = Duration::from_millis(50);

/// Five seconds at most: soon enough after an outage, and little to ask of a server that refuses.
pub(super) const REOPEN_MAX: Duration = Duration::from_secs(5);

/// The bells of a queue's namespaces.
pub(super) struct Bells {
    line: Line,
    rung: Mutex<HashMap<Namespace, Rung>>,
}

struct Rung {
    bell: Arc<Bell>,
    /// Who rings it; it goes with the runtime that it was started on.
    ringer: Option<AbortHandle>,
}

impl Bells {
    pub(super) fn new(line: Line) -> Self {
        Self { line, rung: Mutex::default() }
    }

    /// The bell of a namespace. Who asks on a runtime has it rung from there.
    pub(super) fn of(self: &Arc<Self>, namespace: &Namespace) -> Arc<Bell> {
        let mut rung = locked(&self.rung);
        let known = rung.entry_ref(namespace).or_insert_with(|| Rung { bell: Arc::default(), ringer: None });
        let silent = known.ringer.as_ref().is_none_or(AbortHandle::is_finished);
        if silent && let Ok(runtime) = Handle::try_current() {
            let ring = ring(self.line.clone(), namespace.clone(), Arc::downgrade(&known.bell));
            known.ringer = Some(runtime.spawn(ring).abort_handle());
        }
        known.bell.clone()
    }
}

impl Drop for Bells {
    fn drop(&mut self) {
        for rung in locked(&self.rung).values() {
            if let Some(ringer) = &rung.ringer {
                ringer.abort();
            }
        }
    }
}

/// Rings a bell for as long as anybody has it.
async fn ring(line: Line, namespace: Namespace, bell: Weak<Bell>) {
    let path = path::of(&namespace).plain("hints");
    let mut waits = Backoff::new(TRY_AGAIN, REOPEN_MAX);
    loop {
        if let Ok(response) = line.stream(&path).await {
            waits.reset();
            let mut stream = Stream::new(response);
            // Whatever happened while nobody listened is worth a look.
            let Some(()) = bell.upgrade().map(|bell| ring_all(&bell)) else { return };
            while let Ok(Some(event)) = stream.next().await {
                let Some(bell) = bell.upgrade() else { return };
                pass_on(&bell, &event);
            }
        }
        tokio::time::sleep(waits.next(line.random())).await;
        if bell.strong_count() == 0 {
            return;
        }
    }
}

fn ring_all(bell: &Bell) {
    bell.ready.ring();
    bell.work.ring();
    bell.stop.ring();
}

fn pass_on(bell: &Bell, event: &Event) {
    #[derive(Deserialize)]
    struct Ready {
        at: Option<String>,
    }

    match event.name.as_str() {
        "ready" => {
            let ready = serde_json::from_str::<Ready>(&event.data).ok();
            match ready.and_then(|ready| Timestamp::parse(&ready.at?).ok()) {
                Some(at) => bell.ready_at(at, SystemClock.now()),
                None => bell.ready.ring(),
            }
        }
        "work" => bell.work.ring(),
        "stop" => bell.stop.ring(),
        _ => {}
    }
}
