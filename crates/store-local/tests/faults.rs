//! What the local store survives: failing calls, power cuts, a full disk, flipped bits, and programs of another time. The
//! log's own laws are tested beside it; here it is the whole store that must keep its word.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use ekiden_core::id::Namespace;
use ekiden_core::reason::ReasonCode;
use ekiden_core::task::Phase;
use ekiden_store::{CheckDepth, CountScope, Happened, Store};
use ekiden_store_local::disk::Disk;
use ekiden_store_local::disk::fake::{Call, FakeDisk, Fault};
use ekiden_store_local::disk::planted::{PlantedBug, PlantedDisk};
use ekiden_store_local::{LocalStore, Options};
use ward::gated::GatedDisk;
use ward::{FOLDER, Ward, block_on, options, seeds};

/// Works until something fails or the rounds are over, loses power, and looks at what is left; several times.
fn lives(seed: u64, bug: Option<PlantedBug>, fault: impl Fn(&FakeDisk, u64)) -> Result<(), String> {
    let mut disk = FakeDisk::new(seed);
    let mut ward = Ward::new(seed);
    for life in 0..4 {
        fault(&disk, life);
        let under: Arc<dyn Disk> = Arc::new(disk.clone());
        let under = match bug {
            Some(bug) => Arc::new(PlantedDisk::new(under, bug)),
            None => under,
        };
        if let Ok(store) = LocalStore::open(Path::new(FOLDER), options(under)) {
            block_on(ward.work(&store, 30));
            disk.fail_no_more();
            disk = disk.power_cut(seed ^ life);
            drop(store);
        } else {
            disk.fail_no_more();
            disk = disk.power_cut(seed ^ life);
        }
        let opened = LocalStore::open(Path::new(FOLDER), options(Arc::new(disk.clone())));
        let store = opened.map_err(|error| format!("seed {seed}, life {life}: {error}"))?;
        block_on(ward.look(&store)).map_err(|what| format!("seed {seed}, life {life}: {what}"))?;
        let findings = block_on(store.check(CheckDepth::Full)).unwrap();
        if !findings.is_empty() {
            return Err(format!("seed {seed}, life {life}: {findings:?}"));
        }
    }
    Ok(())
}

/// What was answered survives any power cut.
#[test]
fn random_power_cuts_lose_nothing_that_was_answered() {
    for seed in seeds(150) {
        lives(seed, None, |_, _| {}).unwrap();
    }
}

/// Each bug that a disk, or a store that trusts it too much, could have is seen by the test above.
#[test]
fn planted_bugs_are_caught_by_power_cuts() {
    let syncs = [PlantedBug::SyncDoesNothing, PlantedBug::SyncHappensLate, PlantedBug::LogSyncHappensOnce];
    for bug in syncs.into_iter().chain([PlantedBug::FolderSyncDoesNothing]) {
        let caught = (0..200).any(|seed| lives(seed, Some(bug), |_, _| {}).is_err());
        assert!(caught, "{bug:?} was not noticed in 200 lives");
    }
}

/// A call that fails at any moment, of any kind: what was answered is there after a reopen.
#[test]
fn random_failing_calls_lose_nothing_that_was_answered() {
    for seed in seeds(300) {
        let nth = seed % 97 + 1;
        let fault = if seed % 2 == 0 { Fault::Error(ErrorKind::Other) } else { Fault::Short };
        lives(seed, None, |disk, _| disk.fail(&Call::CHANGES, nth, fault)).unwrap();
    }
}

/// A failed sync that is tried again until it succeeds has lost what it should have kept, and so has a short write that passes
/// for a whole one.
#[test]
fn planted_retries_are_caught_by_failing_calls() {
    for (bug, calls, fault) in [
        (PlantedBug::FailedSyncIsRetried, Call::Sync, Fault::Error(ErrorKind::Other)),
        (PlantedBug::ShortWriteLooksWhole, Call::Write, Fault::Short),
    ] {
        let caught =
            (0..400).any(|seed| lives(seed, Some(bug), |disk, _| disk.fail(&[calls], seed % 41 + 1, fault)).is_err());
        assert!(caught, "{bug:?} was not noticed in 400 lives");
    }
}

/// A failed sync is final: whoever waited for it hears that nobody knows, everybody later that nothing was written.
#[test]
fn a_failed_sync_closes_the_store_until_it_is_opened_again() {
    let disk = FakeDisk::new(1);
    let quiet = || Options { checkpoint_every: Duration::from_secs(3_600), ..options(Arc::new(disk.clone())) };
    let store = LocalStore::open(Path::new(FOLDER), quiet()).unwrap();
    let mut ward = Ward::new(1);
    block_on(ward.work(&store, 3));
    disk.fail(&[Call::Sync], 1, Fault::Error(ErrorKind::Other));
    let unknown = block_on(ward.enqueue(&store)).unwrap_err();
    assert_eq!((unknown.happened, unknown.code()), (Happened::Unknown, ReasonCode::StoreFailed));
    let refused = block_on(ward.enqueue(&store)).unwrap_err();
    assert_eq!((refused.happened, refused.code()), (Happened::NotApplied, ReasonCode::StoreFailed));
    assert_eq!(block_on(store.get(vec![])).unwrap_err().code(), ReasonCode::StoreFailed);
    drop(store);
    let store = LocalStore::open(Path::new(FOLDER), quiet()).unwrap();
    block_on(ward.look(&store)).unwrap();
    block_on(ward.enqueue(&store)).unwrap();
}

/// Whoever closes a store whose last write fails hears of it, and does not wait for a checkpoint of what is in no log.
#[test]
fn a_close_whose_last_write_fails_says_so() {
    let disk = FakeDisk::new(1);
    let gated = Arc::new(GatedDisk::new(disk.clone()));
    let quiet = Options { checkpoint_every: Duration::from_secs(3_600), ..options(gated.clone()) };
    let store = LocalStore::open(Path::new(FOLDER), quiet).unwrap();
    gated.hold_syncs();
    let (unknown, closed) = block_on(async {
        let mut ward = Ward::new(1);
        let (mut enqueue, mut close) = (std::pin::pin!(ward.enqueue(&store)), store.close());
        let mut unwoken = Context::from_waker(Waker::noop());
        assert!(enqueue.as_mut().poll(&mut unwoken).is_pending());
        gated.wait_until_held();
        assert!(close.as_mut().poll(&mut unwoken).is_pending());
        disk.fail(&[Call::Sync], 1, Fault::Error(ErrorKind::Other));
        gated.let_syncs_go();
        let closed = tokio::time::timeout(Duration::from_secs(20), close).await.expect("a close comes to its end");
        (enqueue.await.unwrap_err(), closed.unwrap_err())
    });
    assert_eq!((unknown.happened, unknown.code()), (Happened::Unknown, ReasonCode::StoreFailed));
    assert_eq!(closed.code(), ReasonCode::StoreFailed);
}

/// A full disk refuses new tasks and nothing else, and takes them again when there is room.
#[test]
fn a_full_disk_refuses_new_tasks_while_old_ones_come_to_their_end() {
    let disk = FakeDisk::new(1);
    // The checkpoint's file grows in steps of megabytes.
    let roomy = Options { reserve_bytes: 4 << 20, ..options(Arc::new(disk.clone())) };
    let store = LocalStore::open(Path::new(FOLDER), roomy).unwrap();
    let mut ward = Ward::new(1);
    for _ in 0..40 {
        block_on(ward.enqueue(&store)).unwrap();
    }
    disk.set_capacity(disk.used_bytes() + (32 << 10));
    let refused = ward::until("new tasks are refused", || block_on(ward.enqueue(&store)).err());
    assert_eq!((refused.happened, refused.code()), (Happened::NotApplied, ReasonCode::StoreFull));
    assert!(refused.retryable);
    let codes: Vec<_> = block_on(store.check(CheckDepth::Quick)).unwrap().iter().map(|finding| finding.code).collect();
    assert_eq!(codes, [ReasonCode::StoreFull]);
    for _ in 0..40 {
        block_on(ward.finish_one(&store)).unwrap();
    }
    disk.set_capacity(u64::MAX);
    ward::until("new tasks are taken again", || block_on(ward.enqueue(&store)).ok());
    block_on(ward.look(&store)).unwrap();
}

/// Wherever a disk becomes full, and whatever log and checkpoint do about it when the power goes.
#[test]
fn random_full_disks_and_power_cuts_lose_nothing_that_was_answered() {
    let mut refused = 0;
    for seed in seeds(100) {
        let mut disk = FakeDisk::new(seed);
        let mut ward = Ward::new(seed);
        for life in 0..4 {
            // Some batches are larger than a segment.
            let tight = Options { segment_bytes: 3 << 10, reserve_bytes: 256 << 10, ..options(Arc::new(disk.clone())) };
            let store = LocalStore::open(Path::new(FOLDER), tight).unwrap();
            block_on(ward.work(&store, 20));
            disk.set_capacity(disk.used_bytes() + (((seed * 7 + life * 3) % 24) << 10));
            for _ in 0..4 {
                block_on(ward.work(&store, 20));
                refused += usize::from(!block_on(store.check(CheckDepth::Quick)).unwrap().is_empty());
            }
            disk = disk.power_cut(seed ^ life);
            disk.set_capacity(u64::MAX);
            drop(store);
            let store = LocalStore::open(Path::new(FOLDER), options(Arc::new(disk.clone()))).unwrap();
            block_on(ward.look(&store)).unwrap_or_else(|what| panic!("seed {seed}, life {life}: {what}"));
            assert_eq!(block_on(store.check(CheckDepth::Full)).unwrap(), [], "seed {seed}, life {life}");
        }
    }
    assert!(refused > 100, "the disk was full {refused} times only");
}

/// Nobody has to change anything first: a store at rest looks by itself whether there is room again.
#[test]
fn a_store_at_rest_takes_new_tasks_again_when_there_is_room() {
    let disk = FakeDisk::new(1);
    let with_reserve = |reserve_bytes| Options { reserve_bytes, ..options(Arc::new(disk.clone())) };
    let mut ward = Ward::new(1);
    let store = LocalStore::open(Path::new(FOLDER), with_reserve(0)).unwrap();
    block_on(ward.enqueue(&store)).unwrap();
    block_on(store.close()).unwrap();
    drop(store);
    // Room for everything but the reserve.
    disk.set_capacity(disk.used_bytes() + (64 << 10));
    let store = LocalStore::open(Path::new(FOLDER), with_reserve(4 << 20)).unwrap();
    assert_eq!(block_on(ward.enqueue(&store)).unwrap_err().code(), ReasonCode::StoreFull);
    disk.set_capacity(u64::MAX);
    ward::until("new tasks are taken again", || block_on(ward.enqueue(&store)).ok());
}

/// A flipped bit anywhere in the checkpoint gives an error or changes nothing. It never gives a wrong record.
#[test]
fn flipped_bits_in_the_checkpoint_never_give_a_wrong_record() {
    let mut disk = FakeDisk::new(1);
    let store = LocalStore::open(Path::new(FOLDER), options(Arc::new(disk.clone()))).unwrap();
    let mut ward = Ward::new(1);
    block_on(ward.work(&store, 40));
    block_on(store.close()).unwrap();
    drop(store);
    let path = Path::new(FOLDER).join("checkpoint.redb");
    let sound = disk.contents(&path).unwrap();
    let used: Vec<usize> = (0..sound.len()).filter(|at| sound[*at] != 0).collect();
    let (mut refused, mut harmless) = (0, 0);
    for at in used.iter().step_by(used.len() / 400 + 1) {
        let mut bytes = sound.clone();
        bytes[*at] ^= 1 << (at % 8);
        disk = disk.restart();
        disk.plant(&path, &bytes);
        match LocalStore::open(Path::new(FOLDER), options(Arc::new(disk.clone()))) {
            Err(_) => refused += 1,
            Ok(store) => match block_on(ward.look_for_wrong(&store)) {
                Ok(()) => harmless += 1,
                Err(what) => panic!("a flipped bit at {at} was taken for a record: {what}"),
            },
        }
    }
    assert!(refused > 0 && harmless > 0, "{refused} refused, {harmless} harmless");
}

/// An empty checkpoint would be taken for a new one by redb, and a cut one for a disk that fails.
#[test]
fn an_empty_or_cut_checkpoint_is_damage_and_stays_as_it_is() {
    let mut disk = FakeDisk::new(1);
    let store = LocalStore::open(Path::new(FOLDER), options(Arc::new(disk.clone()))).unwrap();
    block_on(Ward::new(1).work(&store, 40));
    block_on(store.close()).unwrap();
    drop(store);
    let path = Path::new(FOLDER).join("checkpoint.redb");
    let sound = disk.contents(&path).unwrap();
    for length in [0, 1, 8, 9, 100, 512, 4_096, 8_192, sound.len() / 2, sound.len() - 4_096, sound.len() - 1] {
        disk = disk.restart();
        disk.plant(&path, &sound[..length]);
        let refused = LocalStore::open(Path::new(FOLDER), options(Arc::new(disk.clone()))).unwrap_err();
        assert_eq!(refused.code(), ReasonCode::StoreDamaged, "{length} bytes: {refused}");
        assert_eq!(refused.refusal.context.get("place").map(String::as_str), path.to_str(), "{length} bytes");
        assert!(disk.contents(&path).unwrap() == sound[..length], "{length} bytes were changed");
    }
}

/// The folder and all that is in it are for its owner's eyes only.
#[test]
fn a_folder_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let store = LocalStore::open(&path, Options::default()).unwrap();
    block_on(Ward::new(1).work(&store, 3));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for name in ["checkpoint.redb", "lock", "reserve"] {
        assert_eq!(mode(&path.join(name)), 0o600, "{name}");
    }
    for segment in std::fs::read_dir(path.join("log")).unwrap() {
        assert_eq!(mode(&segment.unwrap().path()), 0o600);
    }
}

/// A folder that a newer version wrote is refused, and what it holds stays as it is.
#[test]
fn a_folder_of_a_newer_format_is_refused() {
    use redb::{Database, ReadableDatabase, TableDefinition};
    const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    drop(LocalStore::open(&path, Options::default()).unwrap());
    let file = path.join("checkpoint.redb");
    let database = Database::open(&file).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(META).unwrap().insert("min_reader", 3).unwrap();
    transaction.commit().unwrap();
    drop(database);
    assert_eq!(LocalStore::open(&path, Options::default()).unwrap_err().code(), ReasonCode::StoreTooNew);
    let database = Database::open(&file).unwrap();
    let meta = database.begin_read().unwrap().open_table(META).unwrap();
    assert_eq!(meta.get("min_reader").unwrap().unwrap().value(), 3);
}

/// C9: a log that is gone was acknowledged. Only whoever knows that goes on without it; a backup needs none.
#[test]
fn a_lost_log_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("data"), folder.path().join("copy"));
    let store = LocalStore::open(&path, Options::default()).unwrap();
    let mut ward = Ward::new(1);
    block_on(ward.enqueue(&store)).unwrap();
    store.backup(&copy).unwrap();
    drop(store);
    std::fs::remove_dir_all(path.join("log")).unwrap();
    for _ in 0..2 {
        let refused = LocalStore::open(&path, Options::default()).unwrap_err();
        assert_eq!(refused.code(), ReasonCode::StoreDamaged);
        assert!(refused.to_string().contains("has no segment"), "{refused}");
        assert!(!path.join("log").join("00000000000000000001.log").exists(), "nothing is made in its place");
    }
    std::fs::create_dir_all(path.join("log")).unwrap();
    std::fs::write(path.join("log").join("lost"), "").unwrap();
    for path in [&path, &path, &copy] {
        block_on(ward.look(&LocalStore::open(path, Options::default()).unwrap())).unwrap();
    }
}

/// C9: what is not durable is not seen. While the sync is held up a look at the change waits, and answers when it is over.
#[test]
fn nothing_is_seen_before_it_is_durable() {
    let disk = Arc::new(GatedDisk::new(FakeDisk::new(1)));
    let quiet = Options { checkpoint_every: Duration::from_secs(3_600), ..options(disk.clone()) };
    let store = Arc::new(LocalStore::open(Path::new(FOLDER), quiet).unwrap());
    disk.hold_syncs();
    let writer = {
        let store = store.clone();
        std::thread::spawn(move || block_on(Ward::new(1).enqueue(&*store)))
    };
    disk.wait_until_held();
    let scope = CountScope { namespace: Namespace::new("default").unwrap(), pool: None };
    let mut look = store.counts(scope);
    let mut unwoken = Context::from_waker(Waker::noop());
    assert!(look.as_mut().poll(&mut unwoken).is_pending(), "the change is in no log yet");
    assert!(!writer.is_finished());
    disk.let_syncs_go();
    writer.join().unwrap().unwrap();
    assert_eq!(block_on(look).unwrap().get(Phase::Queued), 1);
}
