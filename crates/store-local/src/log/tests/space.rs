//! What a log does when the disk is full.

use super::*;
use crate::log::Reserve;

const SEGMENT: u64 = 4_096;

#[test]
fn a_full_disk_leaves_the_reserve_and_is_told() {
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, SEGMENT, 0).unwrap();
    assert!(log.has_reserve());
    assert_eq!(log.spares().prepare().unwrap(), Reserve::Kept);
    disk.set_capacity(disk.used_bytes());

    // The spare is used up; then another cannot be made, and the log says so while it goes on in what it has.
    for sequence in 1..=4 {
        commit(&mut log, &batch(sequence, 1_200)).unwrap();
    }
    assert!(log.spares().is_wanting());
    assert_eq!(log.spares().prepare().unwrap(), Reserve::Short);
    assert!(!log.has_reserve());
    for sequence in 5..=6 {
        assert_eq!(commit(&mut log, &batch(sequence, 1_200)).unwrap(), sequence);
    }

    // Without room nothing is written, nothing is lost, and the log is not poisoned.
    assert!(matches!(log.append(&batch(7, 1_200)), Err(LogError::NoSpace { .. })));
    assert!(matches!(log.append(&batch(7, 9_000)), Err(LogError::NoSpace { .. })));
    assert_eq!(commit(&mut log, &batch(7, 100)).unwrap(), 7);

    disk.set_capacity(u64::MAX);
    assert_eq!(log.spares().prepare().unwrap(), Reserve::Kept);
    assert!(log.has_reserve());
    assert_eq!(commit(&mut log, &batch(8, 1_200)).unwrap(), 8);
    let (_, replayed) = open(&disk.power_cut(2), SEGMENT, 0).unwrap();
    assert_eq!(replayed.len(), 8);
}

#[test]
fn a_checkpoint_gives_the_reserve_back_on_a_full_disk() {
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, SEGMENT, 0).unwrap();
    log.spares().prepare().unwrap();
    disk.set_capacity(disk.used_bytes());
    for sequence in 1..=4 {
        commit(&mut log, &batch(sequence, 1_200)).unwrap();
    }
    assert_eq!(log.spares().prepare().unwrap(), Reserve::Short);
    log.release(4);
    assert_eq!(log.spares().prepare().unwrap(), Reserve::Kept);
    assert!(log.has_reserve());
}

#[test]
fn spares_survive_a_restart_on_a_full_disk() {
    let disk = FakeDisk::new(1);
    let (log, _) = open(&disk, SEGMENT, 0).unwrap();
    log.spares().prepare().unwrap();
    drop(log);
    let disk = disk.power_cut(3);
    disk.set_capacity(disk.used_bytes());
    let (mut log, _) = open(&disk, SEGMENT, 0).unwrap();
    assert_eq!(log.spares().prepare().unwrap(), Reserve::Kept);
    for sequence in 1..=6 {
        commit(&mut log, &batch(sequence, 1_200)).unwrap();
    }
}
