//! A runner's shift, from its first beat to its goodbye, and who takes the engine's turns meanwhile.
//!
//! Signs of life, cancels, time limits and maintenance live where [`Io`](crate::Io) says: on a thread of their own. The engine
//! is driven there too if its store is far away. If the store is in this process, it is driven beside the handlers, where
//! neither a claim nor a settlement has to wake another thread; should handlers block all threads there, the shift notices
//! within a moment and takes the turns itself.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ekiden_core::id::TaskId;
use ekiden_core::pool::{Concurrency, PoolSettings};
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::builder::Options;
use super::desk::Desk;
use super::engine::{Engine, Pace};
use super::progress::Reporter;
use super::pulse::Pulse;
use super::table::{Fate, Table};
use super::upkeep;
use super::warden::{Deadlines, Warden};
use super::words::Words;
use super::{Ended, Stop};
use crate::bell::Bell;
use crate::client::Client;
use crate::error::Result;
use crate::io::Io;

/// The wait before something that could not be written or read is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// Five seconds for the last settlements of a runner that ends.
const LAST_SETTLEMENTS: Duration = Duration::from_secs(5);

/// Ten seconds for a store that does not answer when everything must end at once.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A tenth of a second: how long handlers that block every thread may hold up a claim or a settlement.
const STALLED: Duration = Duration::from_millis(100);

/// A runner at work.
pub(super) struct Shift {
    client: Client,
    options: Arc<Options>,
    stop: Stop,
    handlers: Handle,
    table: Arc<Table>,
    words: Arc<Words>,
    reporter: Arc<Reporter>,
    deadlines: Arc<Deadlines>,
}

/// The engine, and what whoever drives it listens to.
#[derive(Clone)]
struct Seat {
    engine: Arc<Mutex<Engine>>,
    bell: Arc<Bell>,
    words: Arc<Words>,
    stop: Stop,
    /// How many turns were taken.
    turns: Arc<AtomicU64>,
}

impl Shift {
    pub(super) fn new(client: Client, options: Arc<Options>, stop: Stop, handlers: Handle) -> Self {
        Self {
            client,
            options,
            stop,
            handlers,
            table: Arc::default(),
            words: Arc::default(),
            reporter: Arc::default(),
            deadlines: Arc::default(),
        }
    }

    pub(super) async fn run(self) -> Ended {
        let mut seat = None;
        tokio::select! {
            outcome = self.live(&mut seat) => {
                if let Err(error) = outcome {
                    tracing::error!(%error, "runner ends early");
                }
            }
            () = self.patience_ends() => tracing::error!("the store did not answer in time, runner ends"),
        }
        self.table.lock().values().for_each(|run| run.leash.pull());
        // Whoever still holds the engine waits for a store that does not answer; what it knows is lost with it.
        let engine = seat.as_ref().and_then(|seat: &Seat| seat.engine.try_lock().ok());
        let mut ended = engine.map(|mut engine| engine.take_ended()).unwrap_or_default();
        ended.unsettled.extend(self.unended());
        ended
    }

    fn unended(&self) -> Vec<TaskId> {
        let runs = self.table.lock();
        runs.values().filter(|run| run.fate != Fate::Left).map(|run| run.lease.task.id.clone()).collect()
    }

    /// A store that does not answer must not keep a runner from ending: gently after everything that may take time has had
    /// it, at once soon after that was asked for.
    fn patience_ends(&self) -> impl Future<Output = ()> + use<> {
        let Options { grace, cancel_grace, .. } = *self.options;
        let gently = grace.saturating_add(cancel_grace).saturating_add(LAST_SETTLEMENTS).saturating_add(AT_ONCE);
        let stop = self.stop.clone();
        async move {
            stop.gently.cancelled().await;
            let in_time = async {
                stop.at_once.cancelled().await;
                tokio::time::sleep(AT_ONCE).await;
            };
            // Either way the patience is over.
            let _ = tokio::time::timeout(gently, in_time).await;
        }
    }

    async fn live(&self, seat: &mut Option<Seat>) -> Result<()> {
        let Some(settings) = self.settings().await else { return Ok(()) };
        let lease = self.options.lease.unwrap_or(settings.lease);
        let pulse = Arc::new(Pulse::new(self.client.clone(), self.options.clone(), lease)?);
        // They end with this set.
        let mut company = JoinSet::new();
        company.spawn(pulse.clone().beat_on());
        company.spawn(self.reporter.clone().pass_on(self.client.queue().clone()));
        company.spawn(self.warden(pulse.clone()).watch_on());
        if self.options.maintenance {
            company.spawn(upkeep::maintain_on(self.client.clone()));
        }
        tokio::select! {
            () = pulse.started() => {}
            () = self.stop.gently.cancelled() => return Ok(()),
        }
        let poll = self.options.poll.unwrap_or_else(|| settings.poll.as_duration());
        let concurrency = self.options.concurrency.unwrap_or_else(|| cores(settings.concurrency));
        let pace = Pace { poll, lease: lease.as_duration(), concurrency };
        let seat = seat.insert(self.seat(pulse.clone(), pace));
        if self.is_near() {
            self.handlers.spawn(seat.clone().drive(Gather::Beside));
            seat.stand_by(&self.table, poll).await;
        } else {
            seat.clone().drive(Gather::Apart).await;
        }
        self.wind_down(seat).await;
        company.shutdown().await;
        self.client.queue().goodbye(self.client.namespace().clone(), pulse.runner()).await
    }

    /// Whether the engine is driven beside the handlers. With everything on one runtime there is no other place.
    fn is_near(&self) -> bool {
        matches!(self.client.tools().io, Io::OwnThread) && self.client.queue().info().near
    }

    /// The settings of the first pool; a store that is not there yet is waited for.
    async fn settings(&self) -> Option<PoolSettings> {
        let pool = self.options.pools.first()?;
        loop {
            tokio::select! {
                settings = self.client.pool(pool.as_str()) => match settings {
                    Ok(settings) => return Some(settings),
                    Err(error) => tracing::warn!(%error, "cannot read the settings of the pool"),
                },
                () = self.stop.gently.cancelled() => return None,
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn warden(&self, pulse: Arc<Pulse>) -> Warden {
        Warden {
            client: self.client.clone(),
            table: self.table.clone(),
            pulse,
            words: self.words.clone(),
            cancel_grace: self.options.cancel_grace,
            deadlines: self.deadlines.clone(),
        }
    }

    fn seat(&self, pulse: Arc<Pulse>, pace: Pace) -> Seat {
        let desk = Desk {
            client: self.client.clone(),
            options: self.options.clone(),
            table: self.table.clone(),
            words: self.words.clone(),
            reporter: self.reporter.clone(),
            deadlines: self.deadlines.clone(),
            pulse,
            stop: self.stop.clone(),
            is_near: self.client.queue().info().near,
            next_slot: AtomicU64::new(0),
            settled: AtomicU64::new(0),
        };
        let engine = Engine::new(Arc::new(desk), self.handlers.clone(), pace);
        Seat {
            engine: Arc::new(Mutex::new(engine)),
            bell: self.client.queue().bell(self.client.namespace()),
            words: self.words.clone(),
            stop: self.stop.clone(),
            turns: Arc::default(),
        }
    }

    /// No more claims. What runs may finish within the grace, then it is interrupted.
    async fn wind_down(&self, seat: &Seat) {
        let mut engine = seat.engine.lock().await;
        tokio::select! {
            () = self.settle_until_idle(&mut engine) => return,
            () = self.stop.at_once.cancelled() => {}
            () = tokio::time::sleep(self.options.grace) => {}
        }
        for run in self.table.lock().values_mut().filter(|run| run.fate == Fate::Running) {
            run.fate = Fate::Interrupted;
            run.leash.stop.cancel();
            run.leash.pull();
        }
        let dropped = tokio::time::timeout(self.options.cancel_grace, self.settle_until_idle(&mut engine)).await;
        if dropped.is_err() {
            engine.leave_blocked();
        }
        let _ = tokio::time::timeout(LAST_SETTLEMENTS, async {
            while engine.has_ends() {
                engine.exchange(false).await;
                pause(&engine).await;
            }
        })
        .await;
    }

    async fn settle_until_idle(&self, engine: &mut Engine) {
        while self.table.open() > 0 || engine.has_ends() {
            let mut heard = self.words.chime.heard();
            engine.hear();
            if engine.has_ends() {
                engine.exchange(false).await;
            }
            if self.table.open() == 0 {
                pause(engine).await;
                continue;
            }
            let again = if engine.has_ends() { AGAIN } else { Duration::MAX };
            tokio::select! {
                () = self.words.chime.since(&mut heard) => {}
                () = tokio::time::sleep(again) => {}
            }
        }
    }
}

/// Only while something could not be written.
async fn pause(engine: &Engine) {
    if engine.has_ends() {
        tokio::time::sleep(AGAIN).await;
    }
}

/// Attempts tend to end together, and writing their ends together costs little more than writing one. Those that are about to
/// end get their turn on the processor before the first is written; nobody is waited for.
#[derive(Clone, Copy, Debug)]
enum Gather {
    /// They run on this runtime.
    Beside,
    /// They run on other threads.
    Apart,
}

impl Gather {
    async fn let_others_go_first(self) {
        match self {
            Self::Beside => tokio::task::yield_now().await,
            Self::Apart => std::thread::yield_now(),
        }
    }
}

impl Seat {
    /// Takes turns until the shift is over.
    async fn drive(self, gather: Gather) {
        while !self.stop.gently.is_cancelled() {
            let mut rung = self.bell.ready.heard();
            let mut said = self.words.chime.heard();
            let wait = {
                let mut engine = self.engine.lock().await;
                if self.stop.gently.is_cancelled() {
                    return;
                }
                engine.turn().await;
                engine.wait()
            };
            self.turns.fetch_add(1, Ordering::AcqRel);
            tokio::select! {
                biased;
                () = self.stop.gently.cancelled() => return,
                () = tokio::task::yield_now(), if wait.at_once => {}
                () = self.words.chime.since(&mut said) => gather.let_others_go_first().await,
                () = self.bell.ready.since(&mut rung), if wait.listens => {}
                () = tokio::time::sleep(wait.at_most) => {}
            }
        }
    }

    /// Takes a turn whenever the one who drives does not, because every thread there is blocked.
    async fn stand_by(&self, table: &Table, poll: Duration) {
        let mut before = (0, self.bell.ready.heard());
        loop {
            let idle = table.len() == 0;
            tokio::select! {
                () = self.stop.gently.cancelled() => return,
                () = tokio::time::sleep(if idle { poll.max(STALLED) } else { STALLED }) => {}
            }
            let (turns, rung) = (self.turns.load(Ordering::Acquire), self.bell.ready.heard());
            let waits = !self.words.is_empty() || rung != before.1 || idle;
            if turns == before.0
                && waits
                && let Ok(mut engine) = self.engine.try_lock()
            {
                engine.turn().await;
                self.turns.fetch_add(1, Ordering::AcqRel);
            }
            before = (self.turns.load(Ordering::Acquire), rung);
        }
    }
}

fn cores(concurrency: Concurrency) -> usize {
    match concurrency {
        Concurrency::Cores => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        Concurrency::Fixed(count) => usize::try_from(count).unwrap_or(1),
    }
}
