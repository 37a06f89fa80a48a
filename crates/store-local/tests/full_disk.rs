//! The local store on a real file system that is soon full: what is refused for want of space has not happened, what is there
//! comes to its end, new tasks are taken when there is room again, and what was acknowledged is there when it is opened anew.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::sync::Arc;
use std::time::Duration;

use ekiden_core::reason::ReasonCode;
use ekiden_store::clock::ManualClock;
use ekiden_store::{CheckDepth, Happened, Store};
use ekiden_store_local::{LocalStore, Options};
use ekiden_testkit::rig::{self, SmallDisk};
use ekiden_testkit::workload::{self, NOON, Scene};
use ekiden_testkit::{Recorder, What, check};
use ward::{Ward, block_on, until};

/// 48 MiB: the checkpoint's file grows in steps of megabytes, and its reserve must hold one.
const DISK_MEBIBYTES: u64 = 48;

fn small() -> Options {
    Options {
        segment_bytes: 256 << 10,
        reserve_bytes: 8 << 20,
        checkpoint_every: Duration::from_millis(5),
        ..Options::default()
    }
}

#[test]
fn a_full_disk_refuses_new_tasks_while_old_ones_come_to_their_end() {
    let Some(disk) = rig::provide(SmallDisk::make(DISK_MEBIBYTES)) else { return };
    let store = LocalStore::open(&disk.folder(), small()).unwrap();
    let mut ward = Ward::new(1);
    for _ in 0..200 {
        block_on(ward.enqueue(&store)).unwrap();
    }
    // To the last byte: from now on there is only what the store has kept for itself.
    disk.fill().unwrap();
    let refused = until("new tasks are refused", || block_on(ward.enqueue(&store)).err());
    assert_eq!((refused.happened, refused.code()), (Happened::NotApplied, ReasonCode::StoreFull));
    assert!(refused.retryable);
    for _ in 0..200 {
        block_on(ward.beat(&store)).unwrap();
        block_on(ward.finish_one(&store)).unwrap();
    }
    disk.empty().unwrap();
    until("new tasks are taken again", || block_on(ward.enqueue(&store)).ok());
    block_on(ward.look(&store)).unwrap();
    drop(store);
    let store = LocalStore::open(&disk.folder(), small()).unwrap();
    block_on(ward.look(&store)).unwrap();
    assert_eq!(block_on(store.check(CheckDepth::Full)).unwrap(), []);
}

/// A store that meets the end of the disk may be closed there, and opened there again.
#[test]
fn a_store_on_a_full_disk_can_be_opened_again_and_emptied() {
    let Some(disk) = rig::provide(SmallDisk::make(DISK_MEBIBYTES)) else { return };
    let store = LocalStore::open(&disk.folder(), small()).unwrap();
    let mut ward = Ward::new(2);
    for _ in 0..100 {
        block_on(ward.enqueue(&store)).unwrap();
    }
    disk.fill().unwrap();
    until("new tasks are refused", || block_on(ward.enqueue(&store)).err());
    drop(store);
    let store = LocalStore::open(&disk.folder(), small()).unwrap();
    block_on(ward.look(&store)).unwrap();
    for _ in 0..100 {
        block_on(ward.finish_one(&store)).unwrap();
    }
    block_on(ward.look(&store)).unwrap();
}

#[test]
fn what_a_full_disk_refuses_has_not_happened_and_what_it_acknowledged_stays() {
    let Some(disk) = rig::provide(SmallDisk::make(DISK_MEBIBYTES)) else { return };
    let clock = Arc::new(ManualClock::new(NOON));
    let recorder = Recorder::new("p", clock.clone());
    let scene = |store| Scene { store, clock: clock.clone(), recorder: recorder.clone(), seed: 3 };
    let open = || Arc::new(LocalStore::open(&disk.folder(), small()).unwrap());
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    // Dropped with everything that still works in it, as a process that ends.
    runtime().block_on(async {
        let store = open();
        disk.fill().unwrap();
        tokio::spawn(workload::go_on(scene(store), 4));
        while refused(&recorder) < 20 {
            tokio::task::yield_now().await;
        }
        disk.empty().unwrap();
        let mut acknowledged = recorder.acknowledged();
        let enough = *acknowledged.borrow() + 100;
        acknowledged.wait_for(|count| *count > enough).await.unwrap();
    });
    let violations = runtime().block_on(async {
        let scene = scene(open());
        workload::look(&scene).await;
        let last = workload::come_to_rest(scene).await;
        check(&recorder.history(), &last)
    });
    assert!(violations.is_empty(), "{violations:#?}");
}

fn refused(recorder: &Recorder) -> usize {
    let full = |what: &What| matches!(what, What::Fail(why) if why.contains("STORE_FULL"));
    recorder.history().lines().iter().filter(|line| full(&line.what)).count()
}
