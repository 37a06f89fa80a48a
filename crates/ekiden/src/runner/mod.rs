//! The runner: claims tasks, runs their handlers, and settles how each attempt ended.
//!
//! `shift.rs` is its life, `engine.rs` claims and settles, `desk.rs` lets attempts do so by themselves, `warden.rs` stops what
//! must stop, `pulse.rs` gives signs of life, `upkeep.rs` does what is due, `company.rs` notices when one of them fails. Handlers run on the runtime of whoever runs the
//! runner; what must not be stalled by them lives where [`Io`](crate::Io) says.

pub(crate) mod attempt;
mod builder;
mod company;
mod desk;
mod engine;
pub(crate) mod leash;
pub(crate) mod progress;
mod pulse;
mod shift;
mod table;
mod upkeep;
mod warden;
mod words;

use std::future::Future;
use std::sync::{Arc, OnceLock};

use ekiden_core::id::TaskId;
use ekiden_core::reason::Refusal;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

pub use builder::RunnerBuilder;
pub use leash::StopReason;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::io::IoHandle;
use builder::Options;
use shift::Shift;

/// Runs tasks. Build it, then run it until something says stop.
///
/// ```
/// use ekiden::{Context, Ekiden, Payload, Runner, TaskState};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Greet { name: String }
///
/// impl Payload for Greet {
///     const TASK_TYPE: &'static str = "greet";
/// }
///
/// # #[tokio::main] async fn main() -> Result<(), ekiden::Error> {
/// let client = Ekiden::open("memory:").await?.namespace("default")?;
/// let task = client.enqueue(Greet { name: "Aoi".into() }).await?;
///
/// let (done, wait) = tokio::sync::oneshot::channel();
/// let done = std::sync::Mutex::new(Some(done));
/// Runner::builder(&client)
///     .handler(move |greet: Greet, _: Context| {
///         assert_eq!(greet.name, "Aoi");
///         done.lock().unwrap().take().map(|done| done.send(()));
///         async {}
///     })
///     .run_until(async { wait.await.unwrap_or(()) })
///     .await?;
/// assert_eq!(client.get_status(&task.id).await?.state, TaskState::Succeeded);
/// # Ok(()) }
/// ```
pub struct Runner {
    client: Client,
    options: Options,
    stop: Stop,
}

/// Tells a runner to end, from anywhere.
#[derive(Clone, Debug)]
pub struct Stop {
    /// Follows from the other: who ends at once claims no more.
    gently: CancellationToken,
    at_once: CancellationToken,
    /// Why the runner ends, if one of its handlers asked for it.
    why: Arc<OnceLock<Refusal>>,
}

impl Default for Stop {
    fn default() -> Self {
        let at_once = CancellationToken::new();
        Self { gently: at_once.child_token(), at_once, why: Arc::default() }
    }
}

impl Stop {
    /// Claims no more, lets what runs finish within the grace, then interrupts it.
    pub fn gently(&self) {
        self.gently.cancel();
    }

    /// Whether nothing new may begin.
    fn is_over(&self) -> bool {
        self.gently.is_cancelled()
    }

    /// Ends gently, with an error.
    #[cfg(all(feature = "exec", target_os = "linux"))]
    pub(crate) fn give_up(&self, why: Refusal) {
        // The first reason is the one that is told.
        let _ = self.why.set(why);
        self.gently();
    }

    fn why(&self) -> Option<Error> {
        self.why.get().cloned().map(Error::from)
    }

    /// Interrupts what runs.
    pub fn at_once(&self) {
        self.at_once.cancel();
    }
}

/// What a runner leaves behind.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Ended {
    /// How many attempts it settled.
    pub settled: u64,
    /// What it handed back unfinished.
    pub handed_back: Vec<TaskId>,
    /// Attempts whose end it could not write down; others take them over when its lease is over.
    pub unsettled: Vec<TaskId>,
}

impl Runner {
    /// Starts to choose what a runner does.
    pub fn builder(client: &Client) -> RunnerBuilder {
        RunnerBuilder::new(client.clone())
    }

    pub(crate) fn new(client: Client, options: Options) -> Self {
        Self { client, options, stop: Stop::default() }
    }

    /// Ends it from elsewhere.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Runs until the future is ready, and then ends gently. A dropped run ends at once.
    ///
    /// An error says that a part of the runner failed. It has handed back what it held, as far as it could.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<Ended> {
        let stop = self.stop.clone();
        let mut run = Box::pin(self.run_until_stopped());
        tokio::select! {
            ended = &mut run => return ended,
            () = shutdown => stop.gently(),
        }
        run.await
    }

    /// Runs until SIGINT or SIGTERM; a second one ends it at once.
    #[cfg(unix)]
    pub async fn run(self) -> Result<Ended> {
        let stop = self.stop.clone();
        let mut run = Box::pin(self.run_until_stopped());
        let mut signals = crate::signal::Signals::new()?;
        tokio::select! {
            ended = &mut run => return ended,
            () = signals.next() => stop.gently(),
        }
        tokio::select! {
            ended = &mut run => return ended,
            () = signals.next() => stop.at_once(),
        }
        run.await
    }

    /// Runs until its [`Stop`] is used.
    pub async fn run_until_stopped(self) -> Result<Ended> {
        let io = IoHandle::start(&self.client.tools().io).map_err(|why| {
            company::failed("thread", format_args!("cannot start the thread for store traffic: {why}"))
        })?;
        // A caller that goes away takes the runner with it.
        let guard = self.stop.at_once.clone().drop_guard();
        let shift = Shift::new(self.client, Arc::new(self.options), self.stop, Handle::current());
        // The shift keeps its own thread alive: a run that is dropped still hands back what it held.
        let thread = io.clone();
        let ended = io.spawn(async move {
            let ended = shift.run().await;
            drop(thread);
            ended
        });
        let ended = ended.await;
        guard.disarm();
        ended.map_err(|why| company::failed("shift", why))?
    }
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("client", &self.client).finish_non_exhaustive()
    }
}
