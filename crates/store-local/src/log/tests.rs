//! Laws of the log, on a disk that forgets and fails. `EKIDEN_SEED` replays one seed of the random ones, `EKIDEN_SEEDS` sets
//! how many each runs.

mod crash;
mod damage;
mod faults;
mod plain;
mod space;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Log, LogError, LogOptions, Reaches};
use crate::disk::Disk;
use crate::disk::fake::FakeDisk;

const FOLDER: &str = "/data/log";

/// Batches that were replayed, in order.
type Replayed = Vec<(u64, Vec<u8>)>;

fn options(segment_bytes: u64) -> LogOptions {
    LogOptions { segment_bytes, ..LogOptions::new(0x5a17) }
}

fn open_at(disk: Arc<dyn Disk>, options: LogOptions, after: u64) -> Result<(Log, Replayed), LogError> {
    // A log is begun without a checkpoint, and reaches every checkpoint that is made later.
    let reaches = if after > 0 { Reaches::Checkpoint } else { Reaches::Nowhere };
    open_reaching(disk, options, after, reaches)
}

fn open_reaching(
    disk: Arc<dyn Disk>,
    options: LogOptions,
    after: u64,
    reaches: Reaches,
) -> Result<(Log, Replayed), LogError> {
    let mut replayed = Vec::new();
    let log = Log::open(disk, Path::new(FOLDER), options, after, reaches, &mut |sequence, bytes| {
        replayed.push((sequence, bytes.to_vec()));
        Ok(())
    })?;
    Ok((log, replayed))
}

fn open(disk: &FakeDisk, segment_bytes: u64, after: u64) -> Result<(Log, Replayed), LogError> {
    open_at(Arc::new(disk.clone()), options(segment_bytes), after)
}

/// Opens a log that may end before its checkpoint.
fn open_short(disk: &FakeDisk, segment_bytes: u64, after: u64, reaches: Reaches) -> Result<(Log, Replayed), LogError> {
    open_reaching(Arc::new(disk.clone()), options(segment_bytes), after, reaches)
}

/// Appends and syncs.
fn commit(log: &mut Log, bytes: &[u8]) -> Result<u64, LogError> {
    let sequence = log.append(bytes)?;
    log.sync()?;
    Ok(sequence)
}

/// A batch that differs from every other in every part.
fn batch(sequence: u64, length: usize) -> Vec<u8> {
    sequence.to_le_bytes().iter().cycle().take(length).enumerate().map(|(at, byte)| byte ^ (at as u8) ^ 0x55).collect()
}

fn segment_path(first: u64) -> PathBuf {
    Path::new(FOLDER).join(format!("{first:020}.log"))
}

/// The names in the log's folder.
fn names(disk: &FakeDisk) -> Vec<String> {
    disk.list(Path::new(FOLDER)).unwrap()
}

/// The seeds of a test, or the one that the environment names.
fn seeds(count: u64) -> Vec<u64> {
    let number = |name| Some(std::env::var(name).ok()?.parse::<u64>().expect("seeds are numbers"));
    match number("EKIDEN_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("EKIDEN_SEEDS").unwrap_or(count)).collect(),
    }
}
