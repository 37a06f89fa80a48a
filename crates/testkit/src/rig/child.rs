//! The child's side of a rig: opens the store that it is told to, does its errand and says how far it is. It ends by itself when
//! the test that started it is gone, so that no killed test leaves a load behind.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ekiden_core::time::{Millis, Timestamp};
use ekiden_store::clock::{Clock, ManualClock, SystemClock};
use ekiden_store::{CheckDepth, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::errand::{Errand, Signal, Work};
use super::runners;
use crate::history::Recorder;
use crate::workload::{self, Holder, Scene};

/// A store, or why it could not be opened.
pub type Opened = Result<Arc<dyn Store>, Box<dyn Error + Send + Sync>>;

/// The whole `main` of a child. `open` gets the folder and the word that says which store to open there.
pub fn serve<F, O>(open: F) -> ExitCode
where
    F: FnOnce(PathBuf, String) -> O,
    O: Future<Output = Opened>,
{
    let argument = std::env::args().nth(1).unwrap_or_default();
    let errand: Errand = match serde_json::from_str(&argument) {
        Ok(errand) => errand,
        Err(error) => return failed(&format!("a rig starts this program with its errand as JSON: {error}")),
    };
    let (tell, enough) = watch::channel(false);
    std::thread::spawn(move || listen(&tell));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(run(open, errand, enough)),
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error.to_string()),
    }
}

pub(super) fn failed(why: &str) -> ExitCode {
    say(&Signal::Failed(why.to_owned()));
    ExitCode::FAILURE
}

/// One write a signal. A test that no longer listens is gone, and so is the reason to go on.
pub(super) fn say(signal: &Signal) {
    let mut line = serde_json::to_vec(signal).expect("a signal is plain data and can be written as JSON");
    line.push(b'\n');
    let mut out = io::stdout().lock();
    if out.write_all(&line).and_then(|()| out.flush()).is_err() {
        std::process::exit(3);
    }
}

/// A line from the test means that it is enough; the end of the stream is the test's own end.
pub(super) fn listen(tell: &watch::Sender<bool>) {
    for _ in io::stdin().lines().map_while(Result::ok) {
        tell.send_replace(true);
    }
    std::process::exit(3);
}

async fn run<F, O>(open: F, errand: Errand, enough: watch::Receiver<bool>) -> Result<(), Box<dyn Error + Send + Sync>>
where
    F: FnOnce(PathBuf, String) -> O,
    O: Future<Output = Opened>,
{
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(errand.at)));
    let recorder = Recorder::with_file(&errand.process, clock.clone(), &errand.history)?;
    let store = open(errand.folder.clone(), errand.store.clone()).await?;
    let damage = store.check(CheckDepth::Full).await?;
    if let Some(first) = damage.first() {
        return Err(format!("{} findings, the first: {first:?}", damage.len()).into());
    }
    let scene = Scene { store, clock, recorder, seed: errand.seed };
    workload::look(&scene).await;
    say(&Signal::Opened);
    match errand.work {
        Work::Load { clients } => load(scene, clients).await,
        Work::Rest => rest(scene).await,
        Work::Hold { rounds, tasks, lease_ms } => hold(scene, rounds, tasks, Millis::new(lease_ms)).await,
        Work::Run { lease_ms } => serve_runners(scene, Duration::from_millis(lease_ms), enough).await,
    }
}

async fn load(scene: Scene, clients: usize) -> Result<(), Box<dyn Error + Send + Sync>> {
    tokio::spawn(count(scene.recorder.acknowledged()));
    let never: Infallible = workload::go_on(scene, clients).await;
    match never {}
}

async fn count(mut acknowledged: watch::Receiver<u64>) {
    while acknowledged.changed().await.is_ok() {
        let count = *acknowledged.borrow_and_update();
        say(&Signal::Acknowledged(count));
    }
}

async fn rest(scene: Scene) -> Result<(), Box<dyn Error + Send + Sync>> {
    let store = scene.store.clone();
    workload::come_to_rest(scene).await;
    let damage = store.check(CheckDepth::Full).await?;
    if let Some(first) = damage.first() {
        return Err(format!("at rest {} findings, the first: {first:?}", damage.len()).into());
    }
    store.close().await?;
    say(&Signal::Rested);
    Ok(())
}

/// 1 ms: how closely the load's clock follows the machine's while tasks are held.
const TICK: Duration = Duration::from_millis(1);

async fn hold(scene: Scene, rounds: usize, tasks: usize, lease: Millis) -> Result<(), Box<dyn Error + Send + Sync>> {
    let ticking = follow_the_machine(&scene);
    let mut holder = Holder::new(scene.clone(), lease);
    for _ in 0..rounds {
        let held = holder.take(tasks).await.ok_or("the store gave no tasks to hold")?;
        say(&Signal::Holding(held));
        let given = holder.lose().await;
        let late = holder.settle_late().await;
        say(&Signal::Settled { given, refused: late.refused, accepted: late.accepted });
    }
    holder.leave().await;
    ticking.abort();
    rest(scene).await
}

async fn serve_runners(
    scene: Scene,
    lease: Duration,
    enough: watch::Receiver<bool>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let ticking = follow_the_machine(&scene);
    tokio::spawn(count(scene.recorder.acknowledged()));
    runners::run(&scene, lease, enough).await?;
    ticking.abort();
    rest(scene).await
}

/// From now on the scene's clock shows real time.
fn follow_the_machine(scene: &Scene) -> JoinHandle<()> {
    let clock = scene.clock.clone();
    clock.set(SystemClock.now());
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(TICK);
        loop {
            tick.tick().await;
            clock.set(SystemClock.now());
        }
    })
}
