//! What a log does when nothing goes wrong.

use std::sync::Arc;

use super::*;
use crate::disk::SystemDisk;
use crate::disk::fake::{Call, Fault};
use crate::log::Reserve;

#[test]
fn what_was_appended_comes_back_in_order() {
    let disk = FakeDisk::new(1);
    let (mut log, replayed) = open(&disk, 512, 0).unwrap();
    assert!(replayed.is_empty());
    let lengths = [0, 1, 7, 8, 9, 100, 424, 425, 2_000, 3, 448, 0];
    for (sequence, length) in (1..).zip(lengths) {
        assert_eq!(commit(&mut log, &batch(sequence, length)).unwrap(), sequence);
    }
    drop(log);
    let (log, replayed) = open(&disk.restart(), 512, 4).unwrap();
    let expected: Replayed =
        (5..).zip(&lengths[4..]).map(|(sequence, length)| (sequence, batch(sequence, *length))).collect();
    assert_eq!(replayed, expected);
    assert_eq!(log.last(), 12);
}

#[test]
fn a_batch_costs_one_write_and_one_sync() {
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, 16 << 20, 0).unwrap();
    let before = Call::ALL.map(|call| disk.calls(call));
    for sequence in 1..=100 {
        commit(&mut log, &batch(sequence, 5_000)).unwrap();
    }
    for (call, before) in Call::ALL.into_iter().zip(before) {
        let expected = if matches!(call, Call::Write | Call::Sync) { 100 } else { 0 };
        assert_eq!(disk.calls(call) - before, expected, "{call:?}");
    }
}

#[test]
fn a_batch_is_written_only_after_the_one_before_was_synced() {
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, 4_096, 0).unwrap();
    let before = disk.calls(Call::Sync);
    log.append(b"one").unwrap();
    log.append(b"two").unwrap();
    assert_eq!(disk.calls(Call::Sync) - before, 1);
}

#[test]
fn released_segments_are_recycled_and_their_old_batches_never_come_back() {
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, 512, 0).unwrap();
    let made = |disk: &FakeDisk| disk.calls(Call::Allocate);
    for sequence in 1..=30 {
        commit(&mut log, &batch(sequence, 100)).unwrap();
    }
    log.release(30);
    assert_eq!(log.spares().prepare().unwrap(), Reserve::Kept);
    assert_eq!(log.spares().ready(), 3);
    let before = made(&disk);
    // The shorter batches leave whole old ones behind them in every recycled segment.
    for sequence in 31..=36 {
        commit(&mut log, &batch(sequence, 150)).unwrap();
    }
    assert_eq!(made(&disk), before, "the segments were made from released ones");
    assert!(disk.contents(&segment_path(35)).is_some_and(|bytes| bytes[200..].iter().any(|byte| *byte != 0)));
    let (_, replayed) = open(&disk.restart(), 512, 30).unwrap();
    let expected: Replayed = (31..=36).map(|sequence| (sequence, batch(sequence, 150))).collect();
    assert_eq!(replayed, expected);
}

#[test]
fn spares_are_durable_and_written_when_they_are_ready() {
    for seed in 0..40 {
        let disk = FakeDisk::new(seed);
        let (mut log, _) = open(&disk, 512, 0).unwrap();
        for sequence in 1..=6 {
            commit(&mut log, &batch(sequence, 100)).unwrap();
        }
        let writes = disk.calls(Call::Write);
        assert_eq!(log.spares().prepare().unwrap(), Reserve::Kept);
        assert!(disk.calls(Call::Write) > writes, "blocks that were never written make appends slow");
        log.release(6);
        log.spares().prepare().unwrap();
        let ready = log.spares().ready();
        let expected = names(&disk);
        let disk = disk.power_cut(seed);
        assert_eq!(names(&disk), expected, "seed {seed}");
        assert_eq!(open(&disk, 512, 6).unwrap().0.spares().ready(), ready);
    }
}

#[test]
fn release_keeps_every_segment_that_holds_a_later_batch() {
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, 512, 0).unwrap();
    for sequence in 1..=12 {
        commit(&mut log, &batch(sequence, 100)).unwrap();
    }
    let live = log.bytes_live();
    let segments = |disk: &FakeDisk| names(disk).into_iter().filter(|name| name.ends_with(".log")).count();
    let before = segments(&disk);
    // Three batches fit into a segment, so number 5 is not the last of its own.
    log.release(5);
    log.spares().prepare().unwrap();
    assert_eq!(segments(&disk), before - 1);
    assert!(log.bytes_live() < live);
    let (_, replayed) = open(&disk.restart(), 512, 5).unwrap();
    assert_eq!(replayed.first().map(|batch| batch.0), Some(6));
    assert_eq!(replayed.len(), 7);
}

#[test]
fn a_log_without_files_begins_behind_its_checkpoint() {
    let (mut log, replayed) = open_short(&FakeDisk::new(1), 512, 41, Reaches::Nowhere).unwrap();
    assert!(replayed.is_empty());
    assert_eq!(commit(&mut log, b"a").unwrap(), 42);
}

#[test]
fn a_log_that_had_no_room_for_the_end_of_its_checkpoint_goes_on_behind_it() {
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, 512, 0).unwrap();
    for sequence in 1..=2 {
        commit(&mut log, &batch(sequence, 100)).unwrap();
    }
    let disk = disk.restart();
    let (mut log, replayed) = open_short(&disk, 512, 100, Reaches::ASegment).unwrap();
    assert!(replayed.is_empty());
    assert_eq!(commit(&mut log, b"a").unwrap(), 101);
    let (_, replayed) = open(&disk.power_cut(1), 512, 100).unwrap();
    assert_eq!(replayed, [(101, b"a".to_vec())]);
}

/// What the log had no room for is in a durable checkpoint. Whatever fails while the log goes on behind it, it opens there.
#[test]
fn what_a_checkpoint_has_can_be_left_out_and_the_log_goes_on_behind_it() {
    let mut went_on = false;
    for nth in 1..20 {
        let disk = FakeDisk::new(nth);
        let (mut log, _) = open(&disk, 512, 0).unwrap();
        log.spares().prepare().unwrap();
        for sequence in 1..=3 {
            commit(&mut log, &batch(sequence, 200)).unwrap();
        }
        log.release(8);
        log.leave_out(9);
        assert_eq!(log.last(), 8);
        disk.fail(&Call::CHANGES, nth, Fault::PowerOff);
        let done = commit(&mut log, &batch(9, 200));
        went_on = done.is_ok();
        disk.fail_no_more();
        if went_on {
            assert_eq!(log.spares().prepare().unwrap(), Reserve::Kept);
            assert_eq!(names(&disk).iter().filter(|name| name.ends_with(".log")).count(), 1, "nothing else is needed");
        }
        let disk = disk.power_cut(nth);
        let (mut log, replayed) = open_short(&disk, 512, 8, Reaches::ASegment).unwrap();
        assert!(replayed == [(9, batch(9, 200))] || replayed.is_empty() && !went_on, "call {nth}");
        assert_eq!(commit(&mut log, b"a").unwrap(), if replayed.is_empty() { 9 } else { 10 });
        let (_, again) = open(&disk.power_cut(nth), 512, 8).unwrap();
        assert_eq!(again.len(), replayed.len() + 1, "call {nth}");
        if went_on {
            break;
        }
    }
    assert!(went_on, "the last life has no failure");
}

#[test]
fn a_replay_that_is_refused_ends_the_opening() {
    let disk = FakeDisk::new(1);
    let (mut log, _) = open(&disk, 512, 0).unwrap();
    commit(&mut log, b"a").unwrap();
    let refused =
        Log::open(Arc::new(disk), Path::new(FOLDER), options(512), 0, Reaches::Nowhere, &mut |_, _| Err("no".into()));
    assert!(matches!(refused, Err(LogError::Replay { sequence: 1, .. })));
}

/// A log that is hardly used takes two files; one that goes on keeps as many ready as it then needs.
#[test]
fn the_further_spares_are_made_when_the_log_goes_on_to_its_second_segment() {
    let disk = FakeDisk::new(1);
    let options = LogOptions { spares_wanted: 2, ..options(4_096) };
    let (mut log, _) = open_at(Arc::new(disk.clone()), options, 0).unwrap();
    let spares = log.spares();
    let prepare = |log: &mut Log, batches: u64| {
        (0..batches).for_each(|sequence| {
            commit(log, &batch(sequence, 700)).unwrap();
        });
        spares.prepare().unwrap();
        (spares.is_wanting(), spares.ready(), names(&disk).len())
    };
    assert_eq!(prepare(&mut log, 0), (false, 1, 2));
    assert_eq!(prepare(&mut log, 5), (false, 1, 2));
    assert_eq!(prepare(&mut log, 1), (false, 2, 4), "two segments and two spares");
}

#[test]
fn spares_are_prepared_on_another_thread_while_the_log_appends() {
    let folder = tempfile::tempdir().unwrap();
    let options = LogOptions { spares_at_open: 2, spares_wanted: 2, ..options(4_096) };
    let mut batches = Vec::new();
    let open = |batches: &mut Vec<u64>| {
        Log::open(
            Arc::new(SystemDisk),
            &folder.path().join("a/log"),
            options,
            0,
            Reaches::Nowhere,
            &mut |sequence, bytes| {
                assert_eq!(bytes, batch(sequence, 700));
                batches.push(sequence);
                Ok(())
            },
        )
    };
    let mut log = open(&mut batches).unwrap();
    let (spares, stop) = (log.spares(), std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                spares.prepare().unwrap();
            }
        });
        for sequence in 1..=100 {
            commit(&mut log, &batch(sequence, 700)).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    drop(log);
    open(&mut batches).unwrap();
    assert_eq!(batches, (1..=100).collect::<Vec<_>>());
}
