//! The disk-full rig on a small journal: what is refused for want of space has not happened, work goes on when there is room again,
//! and what was acknowledged is there when the store is opened anew. A store that goes on behind half a line must be seen to lose.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "the bugs for other rigs")]
#[path = "../examples/rigged_journal/journal.rs"]
mod journal;

use std::sync::Arc;

use ekiden_store::clock::ManualClock;
use ekiden_testkit::rig::{self, SmallDisk};
use ekiden_testkit::workload::{self, NOON, Scene};
use ekiden_testkit::{Recorder, Violation, What, check};
use journal::{Care, Journal};

/// 8 MiB: filled in milliseconds, and more than a journal needs here.
const DISK_MEBIBYTES: u64 = 8;

#[test]
fn a_small_disk_is_filled_to_the_last_byte_and_emptied_again() {
    let Some(disk) = rig::provide(SmallDisk::make(DISK_MEBIBYTES)) else { return };
    let folder = disk.folder();
    std::fs::create_dir(&folder).unwrap();
    disk.fill_but(10_000).unwrap();
    let left = disk.free_bytes().unwrap();
    assert!((10_000..20_000).contains(&left), "{left} bytes are left");
    std::fs::write(folder.join("fits"), [1; 4_096]).unwrap();
    disk.fill().unwrap();
    assert_eq!(disk.free_bytes().unwrap(), 0);
    let refused = std::fs::write(folder.join("does not fit"), [1]).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull);
    disk.empty().unwrap();
    std::fs::write(folder.join("fits again"), vec![1; 1_000_000]).unwrap();
}

#[test]
fn what_a_full_disk_refuses_has_not_happened_and_what_it_acknowledged_stays() {
    let Some(disk) = rig::provide(SmallDisk::make(DISK_MEBIBYTES)) else { return };
    let violations = through_a_full_disk(&disk, Care::Full).unwrap();
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn a_full_disk_shows_a_store_that_goes_on_behind_half_a_line() {
    let Some(disk) = rig::provide(SmallDisk::make(DISK_MEBIBYTES)) else { return };
    let outcome = through_a_full_disk(&disk, Care::HalfLinesStay);
    assert!(outcome.is_err_and(|why| why.contains("journal line")), "half a line swallows the next");
}

/// A load meets a full disk and goes on when there is room again; then the store is opened anew and brought to rest. An error is a
/// store that cannot be opened.
fn through_a_full_disk(disk: &SmallDisk, care: Care) -> Result<Vec<Violation>, String> {
    let clock = Arc::new(ManualClock::new(NOON));
    let recorder = Recorder::new("p", clock.clone());
    let scene = |store| Scene { store, clock: clock.clone(), recorder: recorder.clone(), seed: 3 };
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    // Dropped with everything that still works in it, as a process that ends.
    runtime().block_on(async {
        let store = Journal::open(&disk.folder(), care).await.unwrap();
        // Room for a part of the load only, whose last line is cut in half.
        disk.fill_but(60_000).unwrap();
        tokio::spawn(workload::go_on(scene(Arc::new(store)), 4));
        while refused(&recorder) < 20 {
            tokio::task::yield_now().await;
        }
        disk.empty().unwrap();
        let mut acknowledged = recorder.acknowledged();
        let enough = *acknowledged.borrow() + 100;
        acknowledged.wait_for(|count| *count > enough).await.unwrap();
    });
    runtime().block_on(async {
        let store = Journal::open(&disk.folder(), care).await.map_err(|error| error.to_string())?;
        let scene = scene(Arc::new(store));
        workload::look(&scene).await;
        let last = workload::come_to_rest(scene).await;
        Ok(check(&recorder.history(), &last))
    })
}

fn refused(recorder: &Recorder) -> usize {
    let full = |what: &What| matches!(what, What::Fail(why) if why.contains("the disk is full"));
    recorder.history().lines().iter().filter(|line| full(&line.what)).count()
}
