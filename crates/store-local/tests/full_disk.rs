//! The local store on a real file system that is soon full: what is refused for want of space has not happened, what is there
//! comes to its end, new tasks are taken when there is room again, and what was acknowledged is there when it is opened anew.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ekiden_core::id::Namespace;
use ekiden_core::limits;
use ekiden_core::reason::ReasonCode;
use ekiden_store::clock::ManualClock;
use ekiden_store::{CheckDepth, CountScope, Happened, Store, StoreError};
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

/// 64 MiB: a small partition, or what a container gets.
const SMALL_MEBIBYTES: u64 = 64;

#[test]
fn a_store_with_the_usual_options_works_on_a_disk_of_64_mebibytes() {
    let Some(disk) = rig::provide(SmallDisk::make(SMALL_MEBIBYTES)) else { return };
    let before = disk.free_bytes().unwrap();
    let store = LocalStore::open(&disk.folder(), Options::default()).unwrap();
    let taken = before - disk.free_bytes().unwrap();
    assert!(taken <= before / 2, "{taken} of {before} bytes are taken before the first task");
    let mut ward = Ward::new(4);
    // More than the log keeps, so that its segments have to go round.
    for _ in 0..20_000 {
        block_on(ward.enqueue(&store)).unwrap();
        block_on(ward.finish_one(&store)).unwrap();
        if disk.free_bytes().unwrap() < before / 4 {
            break;
        }
    }
    for _ in 0..100 {
        block_on(ward.enqueue(&store)).unwrap();
    }
    disk.fill().unwrap();
    until("new tasks are refused", || block_on(ward.enqueue(&store)).err());
    drop(store);
    let store = LocalStore::open(&disk.folder(), Options::default()).unwrap();
    for _ in 0..100 {
        block_on(ward.finish_one(&store)).unwrap();
    }
    disk.empty().unwrap();
    until("new tasks are taken again", || block_on(ward.enqueue(&store)).ok());
    block_on(ward.look(&store)).unwrap();
    assert_eq!(block_on(store.check(CheckDepth::Full)).unwrap(), []);
}

/// What the log has no room for goes into the checkpoint, for which there is a reserve. Nobody who makes room waits for the log.
#[test]
fn a_batch_larger_than_a_segment_is_answered_on_a_full_disk() {
    for (large, what) in [(false, "results"), (true, "tasks")] {
        let Some(disk) = rig::provide(SmallDisk::make(SMALL_MEBIBYTES)) else { return };
        let store = Arc::new(LocalStore::open(&disk.folder(), Options::default()).unwrap());
        let mut ward = Ward::new(5);
        block_on(ward.hold(&*store, 100));
        disk.fill().unwrap();
        let told = match large {
            true => block_on(ward.enqueue_at_once(&store, 17, limits::PAYLOAD_BYTES_MAX)),
            false => block_on(ward.settle_at_once(&store, 66, limits::RESULT_BYTES_MAX)),
        };
        assert!(large || told.refused.is_empty(), "{what}: {told:?}");
        assert!(told.refused.iter().all(is_refused_for_want_of_room), "{what}: {told:?}");
        comes_to_its_end(&disk, store, ward);
    }
}

#[test]
fn more_results_than_the_log_has_segments_for_are_taken_on_a_full_disk() {
    let Some(disk) = rig::provide(SmallDisk::make(SMALL_MEBIBYTES)) else { return };
    let slow = Options { checkpoint_every: Duration::from_secs(5), ..Options::default() };
    let store = Arc::new(LocalStore::open(&disk.folder(), slow).unwrap());
    let mut ward = Ward::new(6);
    block_on(ward.hold(&*store, 120));
    disk.fill().unwrap();
    for _ in 0..3 {
        let told = block_on(ward.settle_at_once(&store, 30, limits::RESULT_BYTES_MAX));
        assert_eq!(told.done, 30, "{told:?}");
    }
    comes_to_its_end(&disk, store, ward);
}

/// When the reserve is spent as well, what is on its way cannot be taken back. Nobody waits for it until there is room.
#[test]
fn results_beyond_the_reserve_keep_nobody_waiting_and_are_there_when_there_is_room() {
    let Some(disk) = rig::provide(SmallDisk::make(SMALL_MEBIBYTES)) else { return };
    let store = Arc::new(LocalStore::open(&disk.folder(), Options::default()).unwrap());
    let mut ward = Ward::new(7);
    block_on(ward.hold(&*store, 210));
    disk.fill().unwrap();
    let told = block_on(ward.settle_at_once(&store, 200, limits::RESULT_BYTES_MAX));
    assert!(told.refused.iter().all(|error| error.code() == ReasonCode::StoreFull && error.retryable), "{told:?}");
    assert!(told.refused.iter().any(|error| error.happened == Happened::Unknown), "{told:?}");
    let findings = block_on(store.check(CheckDepth::Quick)).unwrap();
    assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), [ReasonCode::StoreFull]);
    // Nobody waits for what does not come: refusals and reads are answered when they are first polled.
    let refused = at_once(ward.beat(&*store)).unwrap_err();
    assert!(is_refused_for_want_of_room(&refused), "{refused}");
    let scope = CountScope { namespace: Namespace::new("default").unwrap(), pool: None };
    let unseen = at_once(store.counts(scope)).unwrap_err();
    assert!(is_refused_for_want_of_room(&unseen), "{unseen}");
    assert_eq!(at_once(store.get(vec![])).unwrap(), []);
    disk.empty().unwrap();
    until("new tasks are taken again", || block_on(ward.enqueue(&*store)).ok());
    block_on(ward.look(&*store)).unwrap();
    drop(store);
    let store = LocalStore::open(&disk.folder(), Options::default()).unwrap();
    block_on(ward.look(&store)).unwrap();
    assert_eq!(block_on(store.check(CheckDepth::Full)).unwrap(), []);
}

/// The answer of what need not wait.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}

fn is_refused_for_want_of_room(error: &StoreError) -> bool {
    (error.happened, error.code(), error.retryable) == (Happened::NotApplied, ReasonCode::StoreFull, true)
}

/// New tasks are refused, `check` says so, the tasks that are held come to their end, and what comes back of the disk is used.
fn comes_to_its_end(disk: &SmallDisk, store: Arc<LocalStore>, mut ward: Ward) {
    let refused = until("new tasks are refused", || block_on(ward.enqueue(&*store)).err());
    assert!(is_refused_for_want_of_room(&refused), "{refused}");
    let findings = block_on(store.check(CheckDepth::Quick)).unwrap();
    assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), [ReasonCode::StoreFull]);
    for _ in 0..10 {
        block_on(ward.beat(&*store)).unwrap();
        block_on(ward.finish_one(&*store)).unwrap();
    }
    drop(store);
    let store = LocalStore::open(&disk.folder(), Options::default()).unwrap();
    block_on(ward.look(&store)).unwrap();
    for _ in 0..10 {
        block_on(ward.finish_one(&store)).unwrap();
    }
    disk.empty().unwrap();
    until("new tasks are taken again", || block_on(ward.enqueue(&store)).ok());
    block_on(ward.look(&store)).unwrap();
    assert_eq!(block_on(store.check(CheckDepth::Full)).unwrap(), []);
}

/// It took 113 MiB once.
#[test]
fn a_new_store_takes_half_of_113_mebibytes_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let store = LocalStore::open(folder.path(), Options::default()).unwrap();
    let taken = blocks(folder.path());
    assert!(taken <= 113 << 19, "{taken} bytes are taken before the first task");
    drop(store);
}

#[test]
fn a_disk_too_small_for_a_store_is_refused_with_what_a_store_needs() {
    let Some(disk) = rig::provide(SmallDisk::make(4)) else { return };
    let refused = LocalStore::open(&disk.folder(), Options::default()).unwrap_err();
    assert_eq!(refused.code(), ReasonCode::StoreFull);
    let fact = |name: &str| refused.refusal.context.get(name).unwrap();
    assert_eq!(fact("needed_bytes"), "8388608");
    assert_eq!(*fact("path"), disk.folder().display().to_string());
    assert!(fact("free_bytes").parse::<u64>().unwrap() <= 4 << 20);
}

#[test]
fn a_read_only_disk_is_refused_with_file_and_reason() {
    let Some(disk) = rig::provide(SmallDisk::make(SMALL_MEBIBYTES)) else { return };
    drop(LocalStore::open(&disk.folder(), Options::default()).unwrap());
    disk.make_read_only().unwrap();
    let refused = LocalStore::open(&disk.folder(), Options::default()).unwrap_err();
    let fact = |name: &str| refused.refusal.context.get(name).unwrap();
    assert_eq!(*fact("path"), disk.folder().join("lock").display().to_string());
    assert!(fact("why").contains("Read-only file system"), "{refused}");
}

/// What the files of a folder take on the disk.
fn blocks(folder: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let of = |entry: std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => blocks(&entry.path()),
        false => entry.metadata().unwrap().blocks() * 512,
    };
    entries.map(of).sum()
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
