//! Every call that a log makes fails once, in each way that it can.

use std::io::ErrorKind;

use super::crash::Witness;
use super::*;
use crate::disk::fake::{Call, Fault};

/// Everything that a log does: a beginning, batches of all sizes, spares, a checkpoint and what it frees.
fn work(witness: &mut Witness, log: &mut Log) -> Result<(), LogError> {
    for (turn, length) in [30, 0, 300, 300, 1_500, 300, 8, 300, 300, 300].into_iter().enumerate() {
        let sequence = log.last() + 1;
        if witness.append(log, batch(sequence, length)).is_ok() {
            witness.sync(log)?;
        }
        if turn == 1 || turn == 7 {
            let _ = log.spares().prepare();
        }
        if turn == 6 {
            witness.checkpoint(log, sequence.saturating_sub(2));
        }
    }
    // Had an append failed for good, this fails as well.
    witness.append(log, b"last".to_vec())?;
    witness.sync(log)
}

/// In which life of the log the fault happens: while it is begun, or while it is recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    First,
    Second,
}

/// Gives whether the fault happened at all.
fn run(life: Life, call: Call, nth: u64, fault: Fault) -> bool {
    let place = format!("{fault:?} at {call:?} number {nth} of the {life:?} life");
    let mut witness = Witness::new(FakeDisk::new(nth), None, options(512));
    if life == Life::Second {
        let mut log = witness.open().unwrap().expect("no fault is planned yet");
        work(&mut witness, &mut log).unwrap();
        witness.append(&mut log, batch(99, 200)).unwrap();
        witness.disk = witness.disk.power_cut(nth);
    }
    witness.disk.fail(&[call], nth, fault);
    if let Some(mut log) = witness.open().unwrap_or_else(|error| panic!("{place}: {error}"))
        && work(&mut witness, &mut log).is_err()
    {
        assert!(matches!(log.append(b"more"), Err(LogError::Poisoned { .. })), "{place}: not poisoned");
        assert!(matches!(log.sync(), Err(LogError::Poisoned { .. })), "{place}: not poisoned");
    }
    let happened = witness.disk.faults() > 0;
    // The next process reads what the kernel remembers, works on, and only then does the power go.
    witness.disk = if fault == Fault::PowerOff { witness.disk.power_cut(nth) } else { witness.disk.restart() };
    for seed in 0..2 {
        let opened = witness.open().unwrap_or_else(|error| panic!("{place}: {error}"));
        let mut log = opened.expect("the only fault is over");
        work(&mut witness, &mut log).unwrap_or_else(|error| panic!("{place}: {error}"));
        witness.disk = witness.disk.power_cut(nth + seed);
    }
    witness.open().unwrap_or_else(|error| panic!("{place}: {error}"));
    happened
}

#[test]
fn every_call_may_fail_once_and_nothing_that_was_synced_is_lost() {
    let faults = [Fault::Error(ErrorKind::Other), Fault::Error(ErrorKind::StorageFull), Fault::Short, Fault::PowerOff];
    for call in Call::ALL {
        for fault in faults {
            let failed = [Life::First, Life::Second]
                .into_iter()
                .map(|life| (1..).take_while(|nth| run(life, call, *nth, fault)).count())
                .sum::<usize>();
            let is_used = !matches!(call, Call::FreeBytes | Call::Lock | Call::SetLen);
            assert_eq!(failed > 0, is_used, "{call:?}");
        }
    }
}

#[test]
fn a_failed_sync_is_not_tried_again() {
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, 4_096, 0).unwrap();
    commit(&mut log, b"one").unwrap();
    disk.fail(&[Call::Sync], 1, Fault::Error(ErrorKind::Other));
    log.append(b"two").unwrap();
    assert!(matches!(log.sync(), Err(LogError::Io { action: "sync", .. })));
    let calls = disk.calls(Call::Sync);
    assert!(matches!(log.sync(), Err(LogError::Poisoned { .. })));
    assert!(matches!(log.append(b"three"), Err(LogError::Poisoned { .. })));
    assert_eq!(disk.calls(Call::Sync), calls);
}

#[test]
fn nothing_is_appended_behind_a_short_write() {
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, 4_096, 0).unwrap();
    commit(&mut log, b"one").unwrap();
    disk.fail(&[Call::Write], 1, Fault::Short);
    assert!(matches!(log.append(&batch(2, 1_000)), Err(LogError::ShortWrite { wanted: 1_024, .. })));
    assert!(matches!(log.append(b"two"), Err(LogError::Poisoned { .. })));
    let (mut log, replayed) = open(&disk.restart(), 4_096, 0).unwrap();
    assert_eq!(replayed, [(1, b"one".to_vec())]);
    assert_eq!(commit(&mut log, b"two").unwrap(), 2);
}

#[test]
fn a_folder_that_cannot_be_synced_stops_the_log() {
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, 4_096, 0).unwrap();
    disk.fail(&[Call::SyncFolder], 1, Fault::Error(ErrorKind::Other));
    assert!(log.spares().prepare().is_err());
    assert!(!log.has_reserve());
    assert!(matches!(log.append(b"one"), Err(LogError::Poisoned { .. })));
}

#[test]
fn a_spare_that_cannot_be_made_harms_nothing() {
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, 4_096, 0).unwrap();
    for call in [Call::Open, Call::Allocate, Call::Write, Call::Sync, Call::Rename] {
        disk.fail(&[call], 1, Fault::Error(ErrorKind::Other));
        assert!(log.spares().prepare().is_err(), "{call:?}");
        assert!(!log.has_reserve());
        commit(&mut log, b"one").unwrap();
    }
    log.spares().prepare().unwrap();
    assert!(log.has_reserve());
}
