//! What the local store survives: failing calls, power cuts, a full disk, flipped bits, and programs of another time. The
//! log's own laws are tested beside it; here it is the whole store that must keep its word.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::future::Future;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use ekiden_core::id::Namespace;
use ekiden_core::reason::ReasonCode;
use ekiden_core::task::Phase;
use ekiden_store::entropy::Entropy;
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

/// One call may go into several batches of the log. Each op is judged by its own batch: what was synced is applied, what was being
/// written is unknown, what never reached the disk is not applied. A repeated op that is durable stays applied.
#[test]
fn every_op_of_a_call_whose_second_batch_fails_is_judged_by_its_own_batch() {
    let disk = FakeDisk::new(1);
    let quiet = |disk: Arc<dyn Disk>| Options {
        checkpoint_every: Duration::from_secs(3_600),
        segment_bytes: 64 << 10,
        ..options(disk)
    };
    let gated = Arc::new(GatedDisk::new(disk.clone()));
    let store = LocalStore::open(Path::new(FOLDER), quiet(gated.clone())).unwrap();
    let mut ward = Ward::new(1);
    let before = ward.new_tasks(5, 1_000);
    assert_eq!(block_on(ward.enqueue_together(&store, &before)).done, 5);
    let both: Vec<_> = before.into_iter().chain(ward.new_tasks(60, 1_000)).collect();
    gated.hold_syncs();
    // The first sync is that of the first batch, because all batches are pending before it goes on.
    disk.fail(&[Call::Sync], 2, Fault::Error(ErrorKind::Other));
    let told = block_on(async {
        let mut together = std::pin::pin!(ward.enqueue_together(&store, &both));
        let mut unwoken = Context::from_waker(Waker::noop());
        assert!(together.as_mut().poll(&mut unwoken).is_pending());
        gated.let_syncs_go();
        together.await
    });
    let happened = |what| told.refused.iter().filter(|error| error.happened == what).count();
    let (unknown, not_applied) = (happened(Happened::Unknown), happened(Happened::NotApplied));
    assert!(told.done > 5 && unknown > 0 && not_applied > 0, "{} done, {unknown}, {not_applied}", told.done);
    assert!(told.refused.iter().all(|error| error.code() == ReasonCode::StoreFailed));
    drop(store);
    let store = LocalStore::open(Path::new(FOLDER), quiet(Arc::new(disk))).unwrap();
    block_on(ward.look(&store)).unwrap();
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
            answered(ward.work(&store, 20));
            disk.set_capacity(disk.used_bytes() + (((seed * 7 + life * 3) % 24) << 10));
            for _ in 0..4 {
                answered(ward.work(&store, 20));
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

/// Answers within 20 seconds, or the store hangs.
fn answered<T>(future: impl Future<Output = T>) -> T {
    let limited = async { tokio::time::timeout(Duration::from_secs(20), future).await };
    block_on(limited).expect("a store answers, also where it fails or has no room")
}

/// The thread that callers wait for is gone: they hear that it is unknown what became of their op, and later ones that nothing did.
#[test]
fn a_committer_that_panics_fails_the_store() {
    let disk = FakeDisk::new(1);
    let gated = Arc::new(GatedDisk::new(disk.clone()));
    let quiet = Options { checkpoint_every: Duration::from_secs(3_600), ..options(gated.clone()) };
    let store = LocalStore::open(Path::new(FOLDER), quiet).unwrap();
    let mut ward = Ward::new(1);
    block_on(ward.enqueue(&store)).unwrap();
    gated.panic_at_syncs();
    let unknown = answered(ward.enqueue(&store)).unwrap_err();
    assert_eq!((unknown.happened, unknown.code()), (Happened::Unknown, ReasonCode::StoreFailed));
    let refused = answered(ward.enqueue(&store)).unwrap_err();
    assert_eq!((refused.happened, refused.code()), (Happened::NotApplied, ReasonCode::StoreFailed));
    drop(store);
    let store = LocalStore::open(Path::new(FOLDER), options(Arc::new(disk.restart()))).unwrap();
    block_on(ward.look(&store)).unwrap();
}

/// A checkpoint that fails for another reason than a full disk is not tried again: what the disk has of it is unknown. Callers that wait
/// for it are refused.
#[test]
fn a_checkpoint_that_fails_ends_the_store() {
    let disk = FakeDisk::new(1);
    // Each new task waits until the checkpoint has all others.
    let gated = Arc::new(GatedDisk::new(disk.clone()));
    let waiting = Options { unwritten_bytes_max: 1, ..options(gated.clone()) };
    let store = LocalStore::open(Path::new(FOLDER), waiting).unwrap();
    let mut ward = Ward::new(1);
    for _ in 0..3 {
        block_on(ward.enqueue(&store)).unwrap();
    }
    gated.fail_checkpoint();
    let failed = loop {
        if let Err(error) = answered(ward.enqueue(&store)) {
            break error;
        }
    };
    assert_eq!(failed.code(), ReasonCode::StoreFailed);
    assert_eq!(answered(store.get(vec![])).unwrap_err().code(), ReasonCode::StoreFailed);
    drop(store);
    let disk = disk.power_cut(1);
    let store = LocalStore::open(Path::new(FOLDER), options(Arc::new(disk))).unwrap();
    block_on(ward.look(&store)).unwrap();
}

/// The file `lock` can be removed, as by a script that finds it stale. The checkpoint has a lock of its own.
#[test]
fn a_store_whose_lock_file_was_removed_keeps_others_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let store = LocalStore::open(&path, Options::default()).unwrap();
    let mut ward = Ward::new(1);
    block_on(ward.enqueue(&store)).unwrap();
    for _ in 0..2 {
        std::fs::remove_file(path.join("lock")).unwrap();
        assert_eq!(LocalStore::open(&path, Options::default()).unwrap_err().code(), ReasonCode::StoreInUse);
        block_on(ward.enqueue(&store)).unwrap();
    }
    drop(store);
    block_on(ward.look(&LocalStore::open(&path, Options::default()).unwrap())).unwrap();
}

/// A process that can open nothing more for a while, as when its clients have as many connections as it may have files. Tasks that are
/// here come to their end, new ones are refused at worst, not for want of room, and nothing of it lasts.
#[test]
fn random_times_without_files_lose_nothing_and_fail_nothing() {
    let mut refused = 0;
    for seed in seeds(60) {
        let disk = FakeDisk::new(seed);
        let store = LocalStore::open(Path::new(FOLDER), options(Arc::new(disk.clone()))).unwrap();
        let mut ward = Ward::new(seed);
        for _ in 0..3 {
            answered(ward.hold(&store, 20));
            disk.set_out_of_files(true);
            for _ in 0..20 {
                answered(ward.finish_one(&store)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                let Err(error) = answered(ward.enqueue(&store)) else { continue };
                refused += 1;
                let told = (error.happened, error.code(), error.retryable);
                assert_eq!(told, (Happened::NotApplied, ReasonCode::StoreUnavailable, true), "seed {seed}: {error}");
            }
            let findings = block_on(store.check(CheckDepth::Quick)).unwrap();
            assert!(findings.iter().all(|finding| finding.code == ReasonCode::StoreUnavailable), "{findings:?}");
            disk.set_out_of_files(false);
            ward::until("new tasks are taken again", || block_on(ward.enqueue(&store)).ok());
        }
        let disk = disk.power_cut(seed);
        drop(store);
        let store = LocalStore::open(Path::new(FOLDER), options(Arc::new(disk))).unwrap();
        block_on(ward.look(&store)).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        assert_eq!(block_on(store.check(CheckDepth::Full)).unwrap(), [], "seed {seed}");
    }
    assert!(refused > 20, "{refused} tasks were refused only");
}

/// The bytes of every segment of the log, in order, and the names.
fn segments(disk: &FakeDisk) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(FOLDER).join("log");
    let mut paths: Vec<_> = disk.list(&folder).unwrap().iter().map(|name| folder.join(name)).collect();
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "log"));
    paths.sort();
    paths.iter().map(|path| (path.clone(), disk.contents(path).unwrap())).collect()
}

/// Cuts a log in one of the ways in which a log can be cut: its last bytes are zeros, a file is shorter, files are missing.
fn cut(disk: &FakeDisk, entropy: &mut Entropy, path: &Path, used_bytes: usize) -> String {
    let later: Vec<_> = segments(disk).into_iter().map(|(path, _)| path).filter(|later| *later > *path).collect();
    let mut bytes = disk.contents(path).unwrap();
    // Behind the header of the file: without that it is no segment.
    let at = 64 + entropy.below(used_bytes - 64);
    let way = entropy.below(3);
    // With them the cut segment may be one that a later checkpoint needs no more.
    later.iter().for_each(|later| disk.remove(later).unwrap());
    match way {
        0 => {
            bytes[at..].fill(0);
            disk.plant(path, &bytes);
        }
        1 => disk.plant(path, &bytes[..at]),
        _ => disk.remove(path).unwrap(),
    }
    format!("{} cut at {at} in way {way}, {} later segments", path.display(), later.len())
}

/// A log that ends before its checkpoint has lost what was acknowledged after that. It is damage wherever and however it was cut.
#[test]
fn random_cuts_of_the_log_before_its_checkpoint_are_refused() {
    for seed in seeds(200) {
        let (mut entropy, mut ward, disk) = (Entropy::from_seed(seed), Ward::new(seed), FakeDisk::new(seed));
        let checkpointing = options(Arc::new(disk.clone()));
        let quiet = Options {
            checkpoint_every: Duration::from_secs(3_600),
            checkpoint_on_close: false,
            ..options(Arc::new(disk.clone()))
        };
        let store = LocalStore::open(Path::new(FOLDER), checkpointing).unwrap();
        block_on(ward.work(&store, 1 + seed as usize % 40));
        block_on(store.close()).unwrap();
        drop(store);
        // Opening removes what an earlier life of the segment left behind its last batch.
        drop(LocalStore::open(Path::new(FOLDER), quiet.clone()).unwrap());
        let (path, bytes) = segments(&disk).pop().unwrap();
        let used_bytes = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let store = LocalStore::open(Path::new(FOLDER), quiet.clone()).unwrap();
        block_on(ward.work(&store, entropy.below(30)));
        drop(store);
        let disk = disk.restart();
        // A checkpoint may have released the segment meanwhile.
        if used_bytes == 64 || disk.contents(&path).is_none() {
            continue;
        }
        let what = cut(&disk, &mut entropy, &path, used_bytes);
        let before = segments(&disk);
        for _ in 0..2 {
            let opened = LocalStore::open(Path::new(FOLDER), Options { disk: Arc::new(disk.clone()), ..quiet.clone() });
            let refused = opened.expect_err(&format!("seed {seed}: {what}"));
            assert_eq!(refused.code(), ReasonCode::StoreDamaged, "seed {seed}: {what}: {refused}");
            assert!(segments(&disk) == before, "seed {seed}: {what}: nothing is changed");
        }
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
