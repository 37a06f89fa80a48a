//! The child of the fault rigs: opens the local store, on the machine's disk or on one with a bug planted in it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ekiden_store_local::disk::planted::{PlantedBug, PlantedDisk};
use ekiden_store_local::disk::{Disk, SystemDisk};
use ekiden_store_local::{LocalStore, Options};
use ekiden_testkit::rig::{self, Opened};

fn main() -> ExitCode {
    rig::serve(open)
}

async fn open(folder: PathBuf, word: String) -> Opened {
    let planted = |bug| -> Arc<dyn Disk> { Arc::new(PlantedDisk::new(Arc::new(SystemDisk), bug)) };
    let options = match word.as_str() {
        "sound" => small(),
        "restless" => {
            Options { checkpoint_every: Duration::from_millis(1), memory_bytes: 0, segment_bytes: 16 << 10, ..small() }
        }
        "no-sync" => Options { disk: planted(PlantedBug::SyncDoesNothing), ..small() },
        // In one segment: the seal of another would show that something is missing.
        // Each new task waits until the checkpoint has all others.
        "no-log-sync" => Options {
            disk: planted(PlantedBug::LogSyncHappensOnce),
            segment_bytes: 4 << 20,
            unwritten_bytes_max: 1,
            ..small()
        },
        // And without a checkpoint, which would show it too.
        "no-log-sync-unseen" => Options {
            disk: planted(PlantedBug::LogSyncHappensOnce),
            segment_bytes: 4 << 20,
            checkpoint_every: Duration::from_secs(3_600),
            ..small()
        },
        "ack-before-sync" => Options { disk: planted(PlantedBug::SyncHappensLate), ..small() },
        other => return Err(format!("no store is called \"{other}\"").into()),
    };
    Ok(Arc::new(LocalStore::open(&folder, options)?))
}

/// Small files and frequent checkpoints: faults meet segments that end and checkpoints that are written.
fn small() -> Options {
    let checkpoint_every = Duration::from_millis(10);
    Options { segment_bytes: 256 << 10, reserve_bytes: 64 << 10, checkpoint_every, ..Options::default() }
}
