//! What a claim costs, counted: while there is memory for them, the tasks that are claimed next are read before anybody asks.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ekiden_core::id::Namespace;
use ekiden_core::limits;
use ekiden_core::task::Phase;
use ekiden_core::time::Millis;
use ekiden_store::{CountScope, Store};
use ekiden_store_local::disk::fake::{Call, FakeDisk};
use ekiden_store_local::{LocalStore, Options};
use ward::gated::GatedDisk;
use ward::{FOLDER, Ward, block_on, options};

/// A disk that was full of tasks when its store was closed, and who handed them in.
fn filled(tasks: usize, later: Option<Millis>) -> (FakeDisk, Ward) {
    let (disk, mut ward) = (FakeDisk::new(1), Ward::new(1));
    let store = LocalStore::open(Path::new(FOLDER), options(Arc::new(disk.clone()))).unwrap();
    for _ in 0..tasks {
        block_on(ward.enqueue_for(&store, later)).unwrap();
    }
    block_on(store.close()).unwrap();
    (disk, ward)
}

/// No checkpoint comes between, and nothing is cached: a read under a claim is seen.
fn quiet(disk: &FakeDisk) -> Options {
    Options {
        checkpoint_every: Duration::from_secs(3_600),
        memory_bytes: 32 << 20,
        cache_bytes: 0,
        ..options(Arc::new(disk.clone()))
    }
}

/// Tasks that are ready, and tasks that become due while nobody looks: a claim promotes those, and needs their bodies for it.
#[test]
fn a_claim_after_a_reopen_reads_nothing_from_the_disk() {
    for later in [None, Some(Millis::from_secs(3_600))] {
        let (disk, mut ward) = filled(300, later);
        let store = LocalStore::open(Path::new(FOLDER), quiet(&disk)).unwrap();
        ward.wait(Millis::from_secs(7_200));
        let before = disk.calls(Call::Read);
        block_on(ward.claim(&store)).unwrap();
        assert!(ward.holds() > 0);
        assert_eq!(disk.calls(Call::Read), before, "due after {later:?}");
    }
}

/// What is read ahead has its maximum, however large the tasks are.
#[test]
fn bodies_are_read_ahead_only_while_there_is_memory_for_them() {
    let (disk, _) = filled(1_000, None);
    let reads = |memory_bytes| {
        let before = disk.calls(Call::Read);
        let store = LocalStore::open(Path::new(FOLDER), Options { memory_bytes, ..quiet(&disk) }).unwrap();
        let reads = disk.calls(Call::Read) - before;
        drop(store);
        reads
    };
    let (none, few, all) = (reads(0), reads(16 << 10), reads(32 << 20));
    assert!(none < few && few - none < (all - none) / 2, "{none}, {few} and {all} reads");
}

/// A body that is away is read before the lock is taken: a slow disk holds up whoever claims, and nobody else.
#[test]
fn a_claim_that_has_to_read_holds_nobody_up() {
    let (disk, mut ward) = filled(100, None);
    let disk = Arc::new(GatedDisk::new(disk));
    let options = Options {
        checkpoint_every: Duration::from_secs(3_600),
        memory_bytes: 0,
        cache_bytes: 0,
        ..options(disk.clone())
    };
    let store = Arc::new(LocalStore::open(Path::new(FOLDER), options).unwrap());
    disk.hold_reads();
    let claimer = {
        let store = store.clone();
        std::thread::spawn(move || block_on(ward.claim(&*store)).map(|()| ward.holds()))
    };
    disk.wait_until_a_read_is_held();
    let scope = CountScope { namespace: Namespace::new("default").unwrap(), pool: None };
    let looker = std::thread::spawn(move || block_on(store.counts(scope)).unwrap().get(Phase::Queued));
    ward::until("somebody else is served", || looker.is_finished().then_some(()));
    assert_eq!(looker.join().unwrap(), 100, "nothing is claimed yet");
    disk.let_reads_go();
    assert!(claimer.join().unwrap().unwrap() > 0);
}

/// A page reads so many places of lists, and those of a small pool are not among those of all pools.
#[test]
fn a_small_pool_beside_many_ended_tasks_is_listed_at_once() {
    let disk = FakeDisk::new(1);
    let store = LocalStore::open(Path::new(FOLDER), options(Arc::new(disk.clone()))).unwrap();
    let (mut small, mut large) = (Ward::of_pool(1, "small"), Ward::of_pool(2, "large"));
    block_on(small.hold(&store, 5));
    block_on(async {
        for _ in 0..5 {
            small.finish_one(&store).await.unwrap();
        }
        for _ in 0..3 * limits::PAGE_SCAN_MAX / 500 {
            large.hold(&store, 500).await;
            for _ in 0..500 {
                large.finish_one(&store).await.unwrap();
            }
        }
        // The checkpoint of a close lets everything rest that has ended.
        store.close().await.unwrap();
    });
    let store = LocalStore::open(Path::new(FOLDER), quiet(&disk)).unwrap();
    let told = [&small, &large].map(|ward| block_on(store.tasks(ward.ended())).unwrap());
    assert_eq!(told.each_ref().map(|page| page.items.len()), [5, 100]);
    assert_eq!(told[0].cursor, None);
}
