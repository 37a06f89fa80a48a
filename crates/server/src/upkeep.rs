//! Maintenance by the server, in every namespace that its store has: a runner elsewhere may be the only one, and a server without
//! runners still has leases to end.
//!
//! A namespace is looked at when something in it is due, as its last look said; within a second after a task of it changed; at once
//! when something says that there is work; and now and then in a walk through all that the store lists, for what other processes
//! wrote. So the cost follows what is due and what happens, not the number of namespaces.

use std::sync::Arc;
use std::time::Duration;

use ekiden::Maintained;
use ekiden::store::Page;
use ekiden_core::id::Namespace;
use ekiden_core::time::{Millis, Timestamp};
use hashbrown::HashMap;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::agenda::Agenda;
use crate::api::logs;
use crate::finish::{Finish, words};
use crate::limits;
use crate::shared::Shared;

/// One second between two steps of the walk through all namespaces.
const PERIOD: Duration = limits::LOOK_AGAIN;

/// 60 steps: how often the store is asked again for namespaces that fit one step.
const STEPS_A_LISTING: u32 = 60;

/// One minute between two walks through all logs.
const LOGS_PERIOD: Duration = Duration::from_secs(60);

/// Does what is due until the server ends.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let stop = shared.stop.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = Maintenance::new(shared.clone()).run() => {}
        () = clear_logs(&shared) => {}
    }
}

/// Removes the logs of purged tasks, a page a minute and at once where there was more.
async fn clear_logs(shared: &Shared) {
    let Some(logs) = &shared.logs else { return std::future::pending().await };
    let mut after = None;
    loop {
        after = logs::clear(shared, logs, after).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot clear logs away");
            None
        });
        let pause = if after.is_some() { PERIOD } else { LOGS_PERIOD };
        tokio::time::sleep(pause).await;
    }
}

/// What is looked at next, and what is being looked at.
struct Maintenance {
    shared: Arc<Shared>,
    agenda: Agenda,
    walk: Walk,
    under_way: JoinSet<Done>,
    /// The namespaces that are being looked at; true where there is a reason to look once more.
    visited: HashMap<Namespace, bool>,
}

/// The walk through all namespaces that the store lists, a page a step.
#[derive(Default)]
struct Walk {
    after: Option<Namespace>,
    /// All namespaces, if one page holds them.
    all: Option<Vec<Namespace>>,
    steps: u32,
    is_listing: bool,
    /// Whether the first walk since the start is over. What was due before is found without a pause between its steps.
    has_been_round: bool,
}

/// Work that came to its end.
enum Done {
    /// A look at a namespace, and when the next one is needed.
    Visited(Namespace, Option<Timestamp>),
    /// A page of namespaces.
    Listed(Result<Page<Namespace>, ekiden::Error>),
}

impl Maintenance {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            agenda: Agenda::default(),
            walk: Walk::default(),
            under_way: JoinSet::new(),
            visited: HashMap::new(),
        }
    }

    async fn run(mut self) {
        let events = self.shared.events.clone();
        let mut heard = events.work.heard();
        let mut steps = tokio::time::interval(PERIOD);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let wait = self.start_visits();
            tokio::select! {
                Some(done) = self.under_way.join_next() => {
                    // What is joined catches panics itself and is never aborted.
                    if let Ok(done) = done {
                        self.end(done);
                    }
                }
                () = events.work.since(&mut heard) => self.look_now(events.take_work()),
                _ = steps.tick() => {
                    self.look_now(events.take_touched());
                    self.step();
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn look_now(&mut self, namespaces: impl IntoIterator<Item = Namespace>) {
        let now = self.shared.clock.now();
        namespaces.into_iter().for_each(|namespace| self.agenda.add(namespace, now));
    }

    /// Starts as many looks as there is room for. Says how long the next one may wait.
    fn start_visits(&mut self) -> Duration {
        let now = self.shared.clock.now();
        while self.under_way.len() < limits::NAMESPACES_AT_ONCE {
            let Some(namespace) = self.agenda.take(now) else {
                let wait = self.agenda.next().map_or(PERIOD, |at| at.since(now).as_duration());
                if !self.walk.has_been_round {
                    self.list();
                }
                return wait;
            };
            match self.visited.get_mut(&namespace) {
                Some(again) => *again = true,
                None => {
                    self.visited.insert(namespace.clone(), false);
                    self.under_way.spawn(visit(self.shared.clone(), namespace));
                }
            }
        }
        PERIOD
    }

    fn end(&mut self, done: Done) {
        match done {
            Done::Visited(namespace, next) => {
                let again = self.visited.remove(&namespace).unwrap_or_default();
                let next = if again { Some(self.shared.clock.now()) } else { next };
                if let Some(at) = next {
                    self.agenda.add(namespace, at);
                }
            }
            Done::Listed(Ok(page)) => {
                self.walk.is_listing = false;
                let is_first = self.walk.after.is_none();
                self.walk.after = page.cursor.and_then(|cursor| Namespace::new(cursor).ok());
                self.walk.has_been_round |= self.walk.after.is_none();
                self.walk.all = (is_first && self.walk.after.is_none()).then(|| page.items.clone());
                self.look_now(page.items);
            }
            Done::Listed(Err(error)) => {
                // The rest of a first walk goes on at the usual pace.
                (self.walk.is_listing, self.walk.has_been_round) = (false, true);
                tracing::warn!(%error, "cannot list namespaces");
            }
        }
    }

    /// One step of the walk.
    fn step(&mut self) {
        self.walk.steps = self.walk.steps.wrapping_add(1);
        match self.walk.all.take_if(|_| !self.walk.steps.is_multiple_of(STEPS_A_LISTING)) {
            Some(all) => {
                self.look_now(all.iter().cloned());
                self.walk.all = Some(all);
            }
            None => self.list(),
        }
    }

    fn list(&mut self) {
        if std::mem::replace(&mut self.walk.is_listing, true) {
            return;
        }
        let (queue, after) = (self.shared.queue.clone(), self.walk.after.clone());
        self.under_way.spawn(async move { Done::Listed(queue.namespaces(after, limits::NAMESPACES_A_STEP).await) });
    }
}

/// One round of maintenance in a namespace. Says when the next one is needed.
async fn visit(shared: Arc<Shared>, namespace: Namespace) -> Done {
    let (queue, of) = (shared.queue.clone(), namespace.clone());
    let maintained = Finish::while_heard(Box::pin(async move { queue.maintain(of).await })).await;
    let now = shared.clock.now();
    let later = Some(now + Millis::from(PERIOD));
    let next = match maintained {
        // Those that have waited meanwhile come first.
        Ok(Ok(done)) if done.more && has_done_something(done) => Some(now),
        Ok(Ok(done)) => done.next_tick,
        Ok(Err(error)) => {
            tracing::warn!(%error, namespace = namespace.as_str(), "maintenance");
            later
        }
        Err(panic) => {
            tracing::error!(why = words(&panic), namespace = namespace.as_str(), "maintenance panicked");
            later
        }
    };
    Done::Visited(namespace, next)
}

const fn has_done_something(done: Maintained) -> bool {
    done.changed + done.swept + done.ticked + done.removed > 0
}
