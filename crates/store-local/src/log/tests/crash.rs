//! Random lives: appends, checkpoints, spares and faults in any order, ended by power cuts and crashes. Everything that was
//! synced is there again, nothing else but perhaps the batch that was being written, and all of it as it was written.

use std::collections::BTreeMap;
use std::sync::Arc;

use ekiden_store::entropy::Entropy;

use super::{open_at, options, seeds};
use crate::disk::Disk;
use crate::disk::fake::{Call, FakeDisk, Fault};
use crate::disk::planted::{PlantedBug, PlantedDisk};
use crate::log::{Log, LogError, LogOptions};

const LIVES: usize = 6;

/// What was done to a log, and what must be true of it.
pub(super) struct Witness {
    pub(super) disk: FakeDisk,
    bug: Option<PlantedBug>,
    options: LogOptions,
    /// Every batch that may be on disk.
    written: BTreeMap<u64, Vec<u8>>,
    /// The last batch that must be there.
    acked: u64,
    /// What the checkpoint has.
    after: u64,
}

impl Witness {
    pub(super) fn new(disk: FakeDisk, bug: Option<PlantedBug>, options: LogOptions) -> Self {
        Self { disk, bug, options, written: BTreeMap::new(), acked: 0, after: 0 }
    }

    fn disk(&self) -> Arc<dyn Disk> {
        let disk = Arc::new(self.disk.clone());
        match self.bug {
            Some(bug) => Arc::new(PlantedDisk::new(disk, bug)),
            None => disk,
        }
    }

    /// Opens the log and compares. None if a fault of the disk kept it from opening.
    pub(super) fn open(&mut self) -> Result<Option<Log>, String> {
        let faults = self.disk.faults();
        let (log, replayed) = match open_at(self.disk(), self.options, self.after) {
            Ok(opened) => opened,
            Err(_) if self.disk.faults() > faults => return Ok(None),
            Err(error) => return Err(format!("acked {}, after {}, refused: {error:?}", self.acked, self.after)),
        };
        for ((sequence, bytes), expected) in replayed.iter().zip(self.after + 1..) {
            if *sequence != expected || self.written.get(sequence) != Some(bytes) {
                return Err(format!("batch {expected} came back as another one, {sequence}"));
            }
        }
        let last = self.after + replayed.len() as u64;
        if last < self.acked || log.last() != last {
            return Err(format!("acked {}, after {}, but the log ends at {last}", self.acked, self.after));
        }
        self.written.retain(|sequence, _| *sequence <= last);
        self.acked = last;
        Ok(Some(log))
    }

    pub(super) fn append(&mut self, log: &mut Log, bytes: Vec<u8>) -> Result<(), LogError> {
        // Appending syncs what was appended before.
        let sequence = log.last() + 1;
        let before = log.last();
        self.written.insert(sequence, bytes.clone());
        assert_eq!(log.append(&bytes)?, sequence);
        self.acked = self.acked.max(before);
        Ok(())
    }

    pub(super) fn sync(&mut self, log: &mut Log) -> Result<(), LogError> {
        log.sync()?;
        self.acked = log.last();
        Ok(())
    }

    /// A checkpoint up to here is durable elsewhere.
    pub(super) fn checkpoint(&mut self, log: &mut Log, upto: u64) {
        self.after = self.after.max(upto.min(self.acked));
        log.release(self.after);
    }

    pub(super) const fn span(&self) -> (u64, u64) {
        (self.after, self.acked)
    }
}

/// A payload, sometimes made of what is on disk already, which must not be mistaken for it later.
fn payload(dice: &mut Entropy, witness: &Witness) -> Vec<u8> {
    let length = dice.below(*dice.clone().pick(&[1, 60, 60, 600, 600, 1_500, 5_000]));
    if dice.chance(20)
        && let Some(bytes) = witness.disk.contents(&super::segment_path(witness.after + 1))
    {
        return bytes.into_iter().skip(8 * dice.below(16)).take(length).collect();
    }
    (0..length).map(|_| dice.next_u64() as u8).collect()
}

fn plan_fault(dice: &mut Entropy, disk: &FakeDisk) {
    let nth = 1 + dice.below(80) as u64;
    let few = 1 + dice.below(12) as u64;
    let error = Fault::Error(std::io::ErrorKind::Other);
    match dice.below(8) {
        0..3 => disk.fail(&Call::CHANGES, nth, Fault::PowerOff),
        3 => disk.fail(&[Call::Sync], few, error),
        4 => disk.fail(&[Call::Write], few, Fault::Short),
        5 => disk.fail(&Call::CHANGES, nth, error),
        6 => disk.fail(&Call::ALL, nth, error),
        _ => {}
    }
}

fn live(witness: &mut Witness, dice: &mut Entropy, log: &mut Log) -> Result<(), LogError> {
    for _ in 0..dice.below(40) {
        match dice.below(10) {
            0..6 => {
                let bytes = payload(dice, witness);
                witness.append(log, bytes)?;
                if dice.chance(90) {
                    witness.sync(log)?;
                }
            }
            6..8 => {
                // What goes wrong with spares shows in the log, or is no harm.
                let _ = log.spares().prepare();
            }
            _ => {
                let (after, acked) = witness.span();
                let upto = after + dice.below((acked - after + 1) as usize) as u64;
                witness.checkpoint(log, upto);
            }
        }
    }
    Ok(())
}

/// Several lives of one log.
fn lives(seed: u64, bug: Option<PlantedBug>) -> Result<(), String> {
    let mut dice = Entropy::from_seed(seed);
    let segment_bytes = *dice.pick(&[512, 1_024, 1_024, 4_096]);
    let options = LogOptions { salt: dice.next_u64(), spares_max: dice.below(4), ..options(segment_bytes) };
    let mut witness = Witness::new(FakeDisk::new(seed), bug, options);
    for _ in 0..LIVES {
        plan_fault(&mut dice, &witness.disk);
        if let Some(mut log) = witness.open()? {
            let failed = live(&mut witness, &mut dice, &mut log).is_err();
            if failed && !matches!(log.append(b"one more"), Err(LogError::Poisoned { .. })) {
                return Err("a log that failed goes on".to_owned());
            }
        }
        witness.disk = match dice.chance(60) {
            true => witness.disk.power_cut(dice.next_u64()),
            // A machine that lost its power finds what a machine finds that lost its power.
            false if witness.disk.list(std::path::Path::new("/")).is_err() => witness.disk.power_cut(dice.next_u64()),
            false => witness.disk.restart(),
        };
    }
    witness.disk = witness.disk.power_cut(dice.next_u64());
    witness.open().map(|_| ())
}

#[test]
fn random_power_cuts_lose_nothing_that_was_synced() {
    for seed in seeds(4_000) {
        if let Err(broken) = lives(seed, None) {
            panic!("seed {seed} (replay: cargo xtask test --replay {seed}): {broken}");
        }
    }
}

#[test]
fn random_power_cuts_catch_every_planted_bug() {
    for bug in PlantedBug::ALL {
        let caught = (0..200).filter(|seed| lives(*seed, Some(bug)).is_err()).count();
        assert!(caught > 0, "{bug:?} was not noticed in 200 seeds");
    }
}
