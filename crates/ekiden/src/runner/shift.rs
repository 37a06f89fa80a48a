//! A runner's shift, from its first beat to its goodbye, and who takes the engine's turns meanwhile.
//!
//! Signs of life, cancels, time limits and maintenance live where [`Io`](crate::Io) says: on a thread of their own. The engine
//! is driven there too if its store makes it wait. If the store answers at once, it is driven beside the handlers, where
//! neither a claim nor a settlement has to wake another thread. Should handlers block all threads there, nothing is claimed
//! that could not be started, and all that must go on does so on the own thread.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ekiden_core::id::{Kind, TaskId};
use ekiden_core::pool::{Concurrency, PoolSettings, Profile};
use ekiden_core::reason::ReasonCode;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use super::attempt::caught;
use super::builder::Options;
use super::company::{self, Company};
use super::desk::Desk;
use super::engine::{Engine, Pace};
use super::leash::StopReason;
use super::pulse::Pulse;
use super::table::{Fate, Table};
use super::upkeep;
use super::warden::Warden;
use super::words::Words;
use super::{Ended, Stop};
use crate::backoff::Backoff;
use crate::bell::Bell;
use crate::client::Client;
use crate::context::Surroundings;
use crate::error::{Error, Result};
use crate::io::Io;

/// The wait before something that could not be written or read is tried again.
const AGAIN: Duration = Duration::from_millis(200);

/// Five seconds: the longest wait between two tries, as for a token that is not known yet.
pub(super) const AGAIN_MAX: Duration = Duration::from_secs(5);

/// Five seconds for the last settlements of a runner that ends.
const LAST_SETTLEMENTS: Duration = Duration::from_secs(5);

/// Ten seconds for a store that does not answer when everything must end at once.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A runner at work.
pub(super) struct Shift {
    client: Client,
    options: Arc<Options>,
    stop: Stop,
    handlers: Handle,
    table: Arc<Table>,
}

/// The engine, and what whoever drives it listens to.
#[derive(Clone)]
struct Seat {
    engine: Arc<Mutex<Engine>>,
    bell: Arc<Bell>,
    words: Arc<Words>,
    stop: Stop,
}

impl Shift {
    pub(super) fn new(client: Client, options: Arc<Options>, stop: Stop, handlers: Handle) -> Self {
        Self { client, options, stop, handlers, table: Arc::default() }
    }

    /// What it leaves behind, or which of its parts failed; then too it handed back what it could.
    pub(super) async fn run(self) -> Result<Ended> {
        let mut seat = None;
        let mut failure = None;
        let outcome = tokio::select! {
            outcome = self.live(&mut seat, &mut failure) => outcome,
            () = self.patience_ends() => {
                tracing::error!("the store did not answer in time, runner ends");
                Ok(())
            }
        };
        self.table.lock().values().for_each(|run| run.leash().pull());
        // Whoever still holds the engine waits for a store that does not answer; what it knows is lost with it.
        let engine = seat.as_ref().and_then(|seat: &Seat| seat.engine.try_lock().ok());
        let mut ended = engine.map(|mut engine| engine.take_ended()).unwrap_or_default();
        ended.unsettled.extend(self.unended());
        match failure.or(outcome.err()).or(self.stop.why()) {
            Some(error) => {
                let Ended { settled, handed_back, unsettled } = ended;
                tracing::error!(%error, settled, ?handed_back, ?unsettled, "runner ends early");
                Err(error)
            }
            None => Ok(ended),
        }
    }

    fn unended(&self) -> Vec<TaskId> {
        let runs = self.table.lock();
        runs.values()
            .filter(|run| !matches!(run.fate, Fate::Left | Fate::Lost { .. }))
            .map(|run| run.task().clone())
            .collect()
    }

    /// A store that does not answer must not keep a runner from ending: gently after everything that may take time has had
    /// it, at once soon after that was asked for.
    fn patience_ends(&self) -> impl Future<Output = ()> + use<> {
        let Options { grace, cancel_grace, .. } = *self.options;
        let at_once = AT_ONCE.saturating_add(self.options.stop_within());
        let gently = grace.saturating_add(cancel_grace).saturating_add(LAST_SETTLEMENTS).saturating_add(at_once);
        let stop = self.stop.clone();
        async move {
            stop.gently.cancelled().await;
            let in_time = async {
                stop.at_once.cancelled().await;
                tokio::time::sleep(at_once).await;
            };
            // Either way the patience is over.
            let _ = tokio::time::timeout(gently, in_time).await;
        }
    }

    /// The failure of a part is noted as soon as it is known: what follows may take longer than there is patience.
    async fn live(&self, seat: &mut Option<Seat>, failure: &mut Option<Error>) -> Result<()> {
        let Some(settings) = self.settings().await else { return Ok(()) };
        let lease = self.options.lease.unwrap_or(settings.lease);
        let poll = self.options.poll.unwrap_or_else(|| settings.poll.as_duration());
        let beat = self.profile()?.beat(lease, poll.into()).as_duration();
        let pulse = Arc::new(Pulse::new(self.client.clone(), self.options.clone(), lease, beat)?);
        let desk = Arc::new(self.desk(pulse.clone()));
        let mut company = Company::default();
        company.start("pulse", pulse.clone().beat_on());
        company.start("reporter", desk.around.reporter.clone().pass_on(self.client.queue().clone()));
        company.start("warden", Warden::new(desk.clone()).watch_on());
        if self.options.maintenance {
            company.start("upkeep", upkeep::maintain_on(self.client.clone()));
        }
        let concurrency = self.options.concurrency.unwrap_or_else(|| cores(settings.concurrency));
        let pace = Pace { poll, lease: lease.as_duration(), concurrency };
        let mut work = Box::pin(self.work(desk, pace, seat));
        let worked = tokio::select! {
            worked = &mut work => worked,
            error = company.failure() => {
                *failure = Some(error);
                // Nobody knows what still holds, so nothing new is begun, and what runs is handed back while that is possible.
                self.stop.at_once();
                work.await
            }
        };
        company.end().await;
        match self.client.queue().goodbye(self.client.namespace().clone(), pulse.runner()).await {
            // Who was stopped before its first beat is known to nobody.
            Err(error) if error.code() != ReasonCode::RunnerNotFound => tracing::warn!(%error, "no goodbye"),
            _ => {}
        }
        worked
    }

    /// From the first beat to the last settlement.
    async fn work(&self, desk: Arc<Desk>, pace: Pace, seat: &mut Option<Seat>) -> Result<()> {
        tokio::select! {
            () = desk.pulse.started() => {}
            () = self.stop.gently.cancelled() => return Ok(()),
        }
        let seat = seat.insert(self.seat(desk, pace));
        let driven = self.drive(seat).await;
        if driven.is_err() {
            self.stop.at_once();
        }
        self.wind_down(seat).await;
        driven
    }

    /// Has turns taken until the shift is over. Who takes them beside the handlers is not waited for then: it may be there
    /// without a thread to run on.
    async fn drive(&self, seat: &Seat) -> Result<()> {
        let outcome = if self.is_beside() {
            let driver = self.handlers.spawn(caught(seat.clone().drive(Gather::Beside)));
            tokio::select! {
                biased;
                () = self.stop.gently.cancelled() => return Ok(()),
                outcome = driver => outcome.map_err(|_| company::failed("engine", "the runtime of the handlers is gone"))?,
            }
        } else {
            caught(seat.clone().drive(Gather::Apart)).await
        };
        outcome.map_err(|panic| company::panicked("engine", panic.as_ref()))
    }

    /// Whether the engine is driven beside the handlers: where its store is in this process and syncs nothing, so that
    /// no turn is ever suspended. With everything on one runtime there is no other place.
    fn is_beside(&self) -> bool {
        let info = self.client.queue().info();
        matches!(self.client.tools().io, Io::OwnThread) && info.near && info.durable.is_empty()
    }

    /// The settings of the first pool; a store that is not there yet is waited for.
    async fn settings(&self) -> Option<PoolSettings> {
        let pool = self.options.pools.first()?;
        let mut waits = Backoff::new(AGAIN, AGAIN_MAX);
        loop {
            tokio::select! {
                settings = self.client.pool(pool.as_str()) => match settings {
                    Ok(settings) => return Some(settings),
                    Err(error) => tracing::warn!(%error, "cannot read the settings of the pool"),
                },
                () = self.stop.gently.cancelled() => return None,
            }
            tokio::select! {
                () = tokio::time::sleep(waits.next(self.client.random())) => {}
                () = self.stop.gently.cancelled() => return None,
            }
        }
    }

    /// What kind of store its pools are on. Nothing that a runner asks of it depends on the kind of a task.
    fn profile(&self) -> Result<Profile> {
        let any = self.options.calls.keys().next().cloned();
        let any = any.map_or_else(|| Kind::new("any"), Ok)?;
        Ok(Profile::of(&self.client.queue().info().store, &any))
    }

    fn desk(&self, pulse: Arc<Pulse>) -> Desk {
        Desk {
            client: self.client.clone(),
            options: self.options.clone(),
            table: self.table.clone(),
            words: Arc::default(),
            around: Arc::new(Surroundings::of(self.client.clone(), self.stop.clone())),
            deadlines: Arc::default(),
            pulse,
            stop: self.stop.clone(),
            is_near: self.client.queue().info().near,
            settled: AtomicU64::new(0),
        }
    }

    fn seat(&self, desk: Arc<Desk>, pace: Pace) -> Seat {
        Seat {
            bell: self.client.queue().bell(self.client.namespace()),
            words: desk.words.clone(),
            stop: self.stop.clone(),
            engine: Arc::new(Mutex::new(Engine::new(desk, self.handlers.clone(), pace))),
        }
    }

    /// No more claims. What runs may finish within the grace, then it is interrupted.
    async fn wind_down(&self, seat: &Seat) {
        let mut engine = seat.engine.lock().await;
        engine.hurry();
        tokio::select! {
            () = self.settle_until_idle(&seat.words, &mut engine) => return,
            () = self.stop.at_once.cancelled() => {}
            () = tokio::time::sleep(self.options.grace) => {}
        }
        let stop_within = self.interrupt();
        if stop_within > Duration::ZERO {
            // In vain for those that do not stop by themselves; they are dropped now.
            let _ = tokio::time::timeout(stop_within, self.settle_until_idle(&seat.words, &mut engine)).await;
            self.table.lock().values().for_each(|run| run.leash().pull());
        }
        let dropped =
            tokio::time::timeout(self.options.cancel_grace, self.settle_until_idle(&seat.words, &mut engine)).await;
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

    /// Tells what runs to stop, and drops what needs no time for it. Says how much time the rest needs.
    fn interrupt(&self) -> Duration {
        let mut stop_within = Duration::ZERO;
        for run in self.table.lock().values_mut() {
            match run.fate {
                Fate::Running => {
                    run.fate = Fate::Interrupted;
                    run.leash().stop(StopReason::ShutDown);
                    if run.stop_within == Duration::ZERO {
                        run.leash().pull();
                    }
                }
                Fate::Cancelled { .. } | Fate::TimedOut { .. } | Fate::Lost { .. } => {}
                Fate::Interrupted | Fate::Left => continue,
            }
            stop_within = stop_within.max(run.stop_within);
        }
        stop_within
    }

    async fn settle_until_idle(&self, words: &Words, engine: &mut Engine) {
        while self.table.open() > 0 || engine.has_ends() {
            let mut heard = words.chime.heard();
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
                () = words.chime.since(&mut heard) => {}
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
            // Only the shift takes the engine from its driver, when the runner stops. A driver that waited for the lock could
            // be given it after the last settlement, on a blocked thread, and `run` would not get at what the engine counted.
            let Ok(mut engine) = self.engine.try_lock() else { return };
            if self.stop.gently.is_cancelled() {
                return;
            }
            let started = engine.turn().await;
            let wait = engine.wait();
            drop(engine);
            if started {
                // The attempts that were started are next in line on this runtime; the rest of this turn can wait for them.
                tokio::task::yield_now().await;
            }
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
}

fn cores(concurrency: Concurrency) -> usize {
    match concurrency {
        Concurrency::Cores => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        Concurrency::Fixed(count) => usize::try_from(count).unwrap_or(1),
    }
}
