//! SIGKILL of a server under load: clients in this process speak to it over HTTP, it is killed at moments that a seed chooses,
//! also while it starts, and started again on the same folder and port. Everything that clients asked for is judged.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use ekiden::store::{Entropy, SystemClock};
use ekiden::{HttpQueue, Queue};
use tokio::sync::watch;

use super::process::{Ended, Program};
use super::scratch::Scratch;
use super::series::Plan;
use super::served::{Port, Served};
use super::tally::Tally;
use crate::checker::check;
use crate::fleet::pass;
use crate::history::Recorder;
use crate::traffic::Traffic;

/// 15 percent of the kills come while the server starts: recovery must survive them too.
const WHILE_STARTING: u32 = 15;

/// 60 ms: about what a server takes to start.
const STARTING_MAX: Duration = Duration::from_millis(60);

/// 3 ms after the last acknowledgement that was waited for: long enough for a kill to fall between two of them.
const AFTER_MAX: Duration = Duration::from_millis(3);

/// Two minutes without enough acknowledgements: clients that hang, or a server that refuses everything.
const LIMIT: Duration = Duration::from_secs(120);

/// What the folder of a server is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// It keeps what was synced.
    Sound,
    /// A planted bug: each kill takes everything back that came after the kill before, as if nothing had been synced.
    TakesBack,
}

/// Kills the server, again and again, and holds the laws against what clients saw. An error is a server that could not go on.
pub fn server_kills(program: &Program, disk: Disk, plan: &Plan) -> Result<Tally, Ended> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(Ended::because)?;
    let mut tally = Tally::begin(format!("kills of a server over HTTP, {} {disk:?}", program.name()));
    for number in 0..plan.series {
        runtime.block_on(one_series(program, disk, plan, plan.seed_of(number), &mut tally))?;
        if !tally.violations.is_empty() {
            break;
        }
    }
    Ok(tally.end())
}

async fn one_series(program: &Program, disk: Disk, plan: &Plan, seed: u64, tally: &mut Tally) -> Result<(), Ended> {
    let mut scratch = Scratch::new().map_err(Ended::because)?;
    scratch.set_kept(true);
    let folder = scratch.path().join("store");
    let recorder = Recorder::with_file("clients", Arc::new(SystemClock), &scratch.path().join("clients.jsonl"));
    let recorder = recorder.map_err(Ended::because)?;
    let mut acknowledged = recorder.acknowledged();
    let mut entropy = Entropy::from_seed(seed);
    let port = Port::free();
    let mut server = Served::start(program, Some(&folder), port);
    server.wait_ready()?;

    let traffic = Traffic::new(recorder, seed);
    let mut clients = Vec::new();
    for number in 0..plan.clients {
        clients.push(traffic.start(number, connect(port).await?));
    }
    let onlooker = connect(port).await?;
    for _ in 0..plan.faults_each {
        if entropy.chance(WHILE_STARTING) {
            server.kill();
            server = Served::start(program, Some(&folder), port);
            pass(part(&mut entropy, STARTING_MAX)).await;
        } else {
            let more = u64::try_from(1 + entropy.below(plan.acknowledged_max)).unwrap_or(1);
            wait_for(&mut acknowledged, more, &server).await?;
            pass(part(&mut entropy, AFTER_MAX)).await;
        }
        server.kill();
        tally.faults += 1;
        if disk == Disk::TakesBack {
            take_back(&folder, &scratch.path().join("copy")).map_err(Ended::because)?;
        }
        server = Served::start(program, Some(&folder), port);
        server.wait_ready()?;
        traffic.look(&*onlooker).await.map_err(|error| Ended::because(format!("{error}\n{}", server.log())))?;
    }
    traffic.stop();
    for client in clients {
        client.await.map_err(Ended::because)?;
    }
    let (history, last) = traffic.come_to_rest(onlooker).await;
    tally.count(&history);
    tally.tasks += last.tasks.len();
    tally.seeds.push(seed);
    let violations = check(&history, &last);
    scratch.set_kept(false);
    if !violations.is_empty() {
        scratch.set_kept(true);
        tally.evidence.push(scratch);
    }
    tally.violations.extend(violations);
    Ok(())
}

async fn connect(port: Port) -> Result<Arc<dyn Queue>, Ended> {
    Ok(Arc::new(HttpQueue::connect(&port.url(), None).await.map_err(Ended::because)?))
}

/// Waits until so many more operations were acknowledged.
async fn wait_for(acknowledged: &mut watch::Receiver<u64>, more: u64, server: &Served) -> Result<(), Ended> {
    let wanted = *acknowledged.borrow_and_update() + more;
    let enough = acknowledged.wait_for(|count| *count >= wanted);
    match tokio::time::timeout(LIMIT, enough).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(Ended::because(format!("no {more} operations within {LIMIT:?}:\n{}", server.log()))),
    }
}

/// A part of a span that a seed chooses. Decides nothing but the moment of a kill.
fn part(entropy: &mut Entropy, of: Duration) -> Duration {
    of / 1_000 * u32::try_from(entropy.below(1_000)).unwrap_or(0)
}

/// Puts back what was there at the last kill, and keeps what is there now for the next.
fn take_back(folder: &Path, copy: &Path) -> io::Result<()> {
    let next = copy.with_extension("next");
    copy_all(folder, &next)?;
    if copy.exists() {
        fs::remove_dir_all(folder)?;
        fs::rename(copy, folder)?;
    }
    fs::rename(next, copy)
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
