//! Invariant 9: what a newer version said of a record survives whatever this one does to it, and what only a newer one may write
//! is left alone. `fixtures/batch.newer.bin` is a batch of such a version's log: a task that runs and one record of each
//! other kind, each with two fields more in every structure that this version knows.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::event::Event;
use ekiden_core::id::{Namespace, OpId, PoolName, RunnerId, ScheduleId, TaskId};
use ekiden_core::key::Key;
use ekiden_core::lease::Token;
use ekiden_core::newer::Newer;
use ekiden_core::plan::{Beat, Happen, SetPool, SetSchedule};
use ekiden_core::pool::Profile;
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::{Pool, Record};
use ekiden_core::retry::FailureKind;
use ekiden_core::schedule::Schedule;
use ekiden_core::task::Phase;
use ekiden_core::time::{ClockLead, Millis, Timestamp};
use ekiden_store::transfer::{Existing, export, import};
use ekiden_store::{CheckDepth, MemoryStore, Op, Store, StoreExt};
use ekiden_store_local::disk::SystemDisk;
use ekiden_store_local::log::{Log, LogOptions, Reaches};
use ekiden_store_local::{LocalStore, Options};

/// A minute after the task of the fixture was claimed.
const NOW: Timestamp = Timestamp::from_millis(1_794_744_120_000);

/// No checkpoint but at a close, if that.
fn options(checkpoint_on_close: bool) -> Options {
    Options { checkpoint_every: Duration::from_secs(3_600), checkpoint_on_close, ..Options::default() }
}

fn open(path: &Path) -> LocalStore {
    LocalStore::open(path, options(false)).unwrap()
}

/// A folder whose log is this batch.
fn folder_of(fixture: &str, path: &Path) {
    let bytes = std::fs::read(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(fixture)).unwrap();
    let options = LogOptions { segment_bytes: 1 << 20, ..LogOptions::new(1) };
    std::fs::create_dir_all(path.join("log")).unwrap();
    let mut log =
        Log::open(Arc::new(SystemDisk), &path.join("log"), options, 0, Reaches::Nowhere, &mut |_, _| Ok(())).unwrap();
    log.append(&bytes).unwrap();
    log.sync().unwrap();
}

async fn lines(store: &dyn Store) -> String {
    let mut file = Vec::new();
    export(store, &mut file, &mut |_| {}).await.unwrap();
    String::from_utf8(file).unwrap()
}

/// Of which structures a newer version said something, and how often.
async fn said(store: &dyn Store) -> BTreeMap<String, usize> {
    let mut said = BTreeMap::new();
    for rest in lines(store).await.split("\"of\",\"").skip(1) {
        *said.entry(rest.split('"').next().unwrap().to_owned()).or_default() += 1;
    }
    said
}

/// Of everything in the fixture; a schedule has a spec, and a pool a policy.
fn all() -> BTreeMap<String, usize> {
    let once = ["state", "lease", "attempt", "history", "runner", "settings", "pool", "lane", "member", "edge"];
    let more = [("schedule", 1), ("sweep", 1), ("signal", 1), ("key", 2), ("spec", 2), ("envelope", 2), ("policy", 3)];
    once.map(|name| (name, 1)).into_iter().chain(more).map(|(name, count)| (name.to_owned(), count)).collect()
}

/// A lease that ended is gone, and what was said of it as well.
fn all_but_the_lease() -> BTreeMap<String, usize> {
    let mut all = all();
    all.remove("lease");
    all
}

fn namespace() -> Namespace {
    Namespace::new("default").unwrap()
}

fn task() -> Key {
    Key::task(&namespace(), &TaskId::new("受付-1").unwrap())
}

async fn record(store: &dyn Store, key: Key) -> Record {
    store.get(vec![key]).await.unwrap().remove(0).unwrap().record
}

/// Changes the task, the runner, the pool and the schedule as a program does that knows nothing of what was added.
async fn change_everything(store: &dyn Store) {
    let failed = Event::Failed { token: Token(1), kind: FailureKind::Retryable, error: "rain".into() };
    let op = |n: u128| OpId::from_bits(0xabcd + n);
    store.run(&Happen { task: task(), event: failed }, op(1), NOW).await.unwrap();
    let Record::Runner(runner) = record(store, Key::runner(&namespace(), &RunnerId::new("runner-1").unwrap())).await
    else {
        panic!("no runner")
    };
    let runner = ekiden_core::runner::Runner { newer: Newer::NONE, ..runner.as_ref().clone() };
    store.run(&Beat { runner }, op(2), NOW).await.unwrap();
    store.run(&set_pool(), op(3), NOW).await.unwrap();
    let Record::Schedule(schedule) =
        record(store, Key::schedule(&namespace(), &ScheduleId::new("nightly").unwrap())).await
    else {
        panic!("no schedule")
    };
    let schedule = Schedule { paused: true, newer: Newer::NONE, ..schedule.as_ref().clone() };
    store.run(&SetSchedule { schedule, lead: ClockLead::NONE }, op(4), NOW).await.unwrap();
}

/// Pauses the pool, with settings that somebody made who knows nothing of those that were there.
fn set_pool() -> SetPool {
    let mut settings = Profile::Embedded.settings();
    settings.paused = true;
    let pool = Pool { name: PoolName::new("work").unwrap(), settings, newer: Newer::NONE };
    SetPool { namespace: namespace(), pool: Arc::new(pool) }
}

/// C9: through the log, the checkpoint, a compaction, a backup, and an export.
#[tokio::test]
async fn what_a_newer_version_said_survives_every_change_and_every_way_of_keeping_it() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("data");
    folder_of("batch.newer.bin", &path);
    let store = open(&path);
    assert_eq!(said(&store).await, all(), "the log of a newer version");
    change_everything(&store).await;
    let changed = record(&store, task()).await.as_task().unwrap().clone();
    assert_eq!(changed.state.phase, Phase::RetryScheduled);
    assert_eq!(said(&store).await, all_but_the_lease(), "every record was changed");
    drop(store);

    let store = LocalStore::open(&path, options(true)).unwrap();
    assert_eq!(said(&store).await, all_but_the_lease(), "our own log");
    assert_eq!(*record(&store, task()).await.as_task().unwrap(), changed);
    store.close().await.unwrap();

    let store = open(&path);
    assert_eq!(said(&store).await, all_but_the_lease(), "the checkpoint");
    assert_eq!(*record(&store, task()).await.as_task().unwrap(), changed);
    assert_eq!(store.check(CheckDepth::Full).await.unwrap(), []);
    store.backup(&root.path().join("copy")).unwrap();
    let exported = lines(&store).await;
    drop(store);

    LocalStore::compact(&path, options(true)).unwrap();
    assert_eq!(said(&open(&path)).await, all_but_the_lease(), "a compaction");
    assert_eq!(said(&open(&root.path().join("copy"))).await, all_but_the_lease(), "a backup");

    let moved = LocalStore::open(&root.path().join("moved"), options(true)).unwrap();
    import(&mut exported.as_bytes(), &moved, Existing::Refuse, &mut |_| {}).await.unwrap();
    moved.close().await.unwrap();
    let moved = open(&root.path().join("moved"));
    assert_eq!(said(&moved).await, all_but_the_lease(), "an export");
    assert_eq!(*record(&moved, task()).await.as_task().unwrap(), changed);
}

/// An export of a newer version has its fields among the others.
#[tokio::test]
async fn fields_in_an_export_of_a_newer_version_survive_an_import() {
    let root = tempfile::tempdir().unwrap();
    folder_of("batch.newer.bin", &root.path().join("data"));
    let ours = lines(&open(&root.path().join("data"))).await;
    let newer = ours
        .replacen("\"records\":1", "\"records\":9", 1)
        .replacen("\"state\":{", "\"state\":{\"zz_state\":[1],", 1)
        .replacen("\"settings\":{", "\"settings\":{\"zz_settings\":{\"deep\":true},", 1);
    let path = root.path().join("moved");
    let store = LocalStore::open(&path, options(true)).unwrap();
    import(&mut newer.as_bytes(), &store, Existing::Refuse, &mut |_| {}).await.unwrap();
    store.close().await.unwrap();
    let store = open(&path);
    change_everything(&store).await;
    let moved = lines(&store).await;
    assert!(moved.contains("\"zz_state\",[1]") && moved.contains("\"zz_settings\",{\"deep\":true}"), "{moved}");
    assert_eq!(said(&store).await, all_but_the_lease());

    // Nothing is lost either in a store that only passes it on.
    let memory = MemoryStore::new();
    import(&mut moved.as_bytes(), &memory, Existing::Refuse, &mut |_| {}).await.unwrap();
    assert_eq!(lines(&memory).await.replace("\"store\":\"memory\"", "\"store\":\"local\""), moved);
}

/// A log that this version may not write into its checkpoint belongs to a newer one, and so does the folder.
#[test]
fn a_log_that_only_newer_versions_may_write_is_refused_and_stays_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("data");
    folder_of("batch.newer-only.bin", &path);
    let files = || {
        let entries = std::fs::read_dir(path.join("log")).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries.map(|file| (std::fs::read(&file).unwrap(), file)).collect();
        files.sort();
        files
    };
    let before = files();
    for _ in 0..2 {
        let error = LocalStore::open(&path, options(true)).unwrap_err();
        assert_eq!(error.code(), ReasonCode::StoreTooNew);
        assert_eq!(error.refusal.context.get("format").map(String::as_str), Some("250"));
        assert!(files() == before, "the log was changed");
    }
}

/// Makes the pool's record one that only version 250 and later may write.
fn seal_off_the_pool(path: &Path) {
    use redb::{Database, ReadableTable, TableDefinition};
    const OTHERS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("others");
    let database = Database::open(path.join("checkpoint.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let mut table = transaction.open_table(OTHERS).unwrap();
        let key = [&[2][..], b"default\0work"].concat();
        let mut value = table.get(key.as_slice()).unwrap().unwrap().value().to_vec();
        value[4..6].copy_from_slice(&[250, 250]);
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&key), &value[4..]);
        value[..4].copy_from_slice(&checksum.to_le_bytes());
        table.insert(key.as_slice(), value.as_slice()).unwrap();
    }
    transaction.commit().unwrap();
}

#[tokio::test]
async fn a_record_that_only_newer_versions_may_write_is_read_and_never_written() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("data");
    let store = LocalStore::open(&path, options(true)).unwrap();
    let pool = store.run(&set_pool(), OpId::from_bits(1), NOW).await.unwrap();
    store.close().await.unwrap();
    seal_off_the_pool(&path);

    let store = open(&path);
    let key = Key::pool(&namespace(), &pool.name);
    let found = store.get(vec![key.clone()]).await.unwrap().remove(0).unwrap();
    assert_eq!(found.record, Record::Pool(pool), "it is read");
    let refused = store.run(&set_pool(), OpId::from_bits(2), NOW + Millis::new(1)).await.unwrap_err();
    assert!(format!("{refused:?}").contains("RecordTooNew"), "{refused:?}");
    let check =
        Commit::new(OpId::from_bits(3), vec![Write { key, expect: Expect::At(found.revision), action: Action::Check }])
            .unwrap();
    store.apply(vec![Op::Commit(check)]).await.remove(0).unwrap();
}
