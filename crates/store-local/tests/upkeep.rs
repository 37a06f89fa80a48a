//! Looking after a store: backups of one that is in use, compacting, and moving everything in and out.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::id::{Namespace, OpId, TaskId};
use ekiden_core::index::DueIndex;
use ekiden_core::key::Key;
use ekiden_core::record::Record;
use ekiden_core::task::{Phase, Spec};
use ekiden_core::time::Timestamp;
use ekiden_store::conformance::lab::{Lab, add, id, ns, pool};
use ekiden_store::conformance::reopen::one_of_each_kind;
use ekiden_store::conformance::{Factory, run_case};
use ekiden_store::transfer::{Existing, export, transfer};
use ekiden_store::{CheckDepth, CountScope, DueQuery, MemoryStore, Op, Store};
use ekiden_store_local::{LocalStore, Options};

/// Small files, and hardly anything in memory.
fn small() -> Options {
    Options {
        segment_bytes: 256 << 10,
        reserve_bytes: 64 << 10,
        memory_bytes: 0,
        checkpoint_every: Duration::from_millis(5),
        ..Options::default()
    }
}

/// Gives the store that it was made with.
struct Given(Arc<dyn Store>);

#[async_trait]
impl Factory for Given {
    async fn open(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    async fn reopen(&self, _: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        None
    }

    fn random_sequences(&self) -> usize {
        0
    }
}

async fn lab_over(store: Arc<dyn Store>) -> Lab {
    Lab::open(Arc::new(Given(store))).await
}

struct Folder {
    root: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }
}

fn open(path: &Path) -> LocalStore {
    LocalStore::open(path, small()).unwrap()
}

/// The n-th task, with a payload that stands in its own row.
fn task(lab: &Lab, n: u64, phase: Phase) -> (Key, Record) {
    let mut spec = Spec { id: TaskId::new(format!("t-{n:06}")).unwrap(), ..lab.spec("t") };
    spec.envelope.payload = vec![b'x'; 3_000].into();
    let task = lab.in_phase(spec, phase);
    (Key::task(&ns(), task.id()), Record::from(task))
}

fn put(lab: &Lab, n: u64, phase: Phase) -> Op {
    let (key, record) = task(lab, n, phase);
    Op::Commit(Commit::new(OpId::from_bits(u128::from(n) + 1), vec![Write::put(key, Expect::Absent, record)]).unwrap())
}

async fn apply(store: &dyn Store, ops: Vec<Op>) {
    store.apply(ops).await.into_iter().for_each(|outcome| drop(outcome.unwrap()));
}

async fn tasks(store: &dyn Store) -> u64 {
    store.counts(CountScope { namespace: ns(), pool: None }).await.unwrap().by_phase.values().sum()
}

/// C19: what is due is found behind what was removed since the last checkpoint, however little is asked for. A disk without room for
/// a checkpoint could not be emptied otherwise.
#[tokio::test]
async fn what_is_due_is_found_behind_what_was_removed() {
    let folder = Folder::new();
    let quiet = || Options { checkpoint_every: Duration::from_secs(3_600), ..small() };
    let store = Arc::new(LocalStore::open(&folder.path("data"), quiet()).unwrap());
    let lab = lab_over(store.clone()).await;
    apply(&*store, (0..40).map(|n| put(&lab, n, Phase::Succeeded)).collect()).await;
    store.close().await.unwrap();
    drop((lab, store));
    // Now they rest in the checkpoint.
    let store = Arc::new(LocalStore::open(&folder.path("data"), quiet()).unwrap());
    let due = |limit| {
        let query = DueQuery { namespace: ns(), index: DueIndex::Purge, until: Timestamp::MAX, limit };
        let store = store.clone();
        async move { store.due(query).await.unwrap().into_iter().map(|entry| entry.key).collect::<Vec<_>>() }
    };
    let all = due(40).await;
    assert_eq!(all.len(), 40);
    for (gone, key) in (1..).zip(&all) {
        let delete = Write { key: key.clone(), expect: Expect::Any, action: Action::Delete };
        apply(&*store, vec![Op::Commit(Commit::new(OpId::from_bits(1_000 + gone), vec![delete]).unwrap())]).await;
        let gone = usize::try_from(gone).unwrap();
        for limit in [1, 3] {
            assert_eq!(due(limit).await, all.iter().skip(gone).take(limit).cloned().collect::<Vec<_>>(), "{gone} gone");
        }
    }
}

/// Everything that was acknowledged before a backup began is in it, while four callers go on writing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_backup_under_load_has_everything_that_was_acknowledged_before() {
    let folder = Folder::new();
    let store = Arc::new(open(&folder.path("data")));
    let lab = lab_over(store.clone()).await;
    let load = Arc::new(Load::default());
    let write = |_| tokio::spawn(load.clone().write(store.clone(), lab.clone()));
    let writers: Vec<_> = (0..4).map(write).collect();
    let mut before = Vec::new();
    for round in 1..=3 {
        while load.acknowledged().len() < 100 * round {
            tokio::task::yield_now().await;
        }
        before.push(load.acknowledged());
        let (store, to) = (store.clone(), folder.path(&format!("backup-{round}")));
        tokio::task::spawn_blocking(move || store.backup(&to)).await.unwrap().unwrap();
    }
    load.stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(store.check(CheckDepth::Full).await.unwrap(), [], "the store goes on as if nothing had been");

    for (round, before) in (1..).zip(before) {
        let path = folder.path(&format!("backup-{round}"));
        let copy = open(&path);
        assert_eq!(copy.check(CheckDepth::Full).await.unwrap(), [], "backup {round} is sound");
        let keys: Vec<_> = before.iter().map(|n| task(&lab, *n, Phase::Queued).0).collect();
        for some in keys.chunks(1_000) {
            assert!(copy.get(some.to_vec()).await.unwrap().iter().all(Option::is_some), "backup {round} has them all");
        }
        // It is a store like any other.
        let found = tasks(&copy).await;
        apply(&copy, vec![put(&lab, 900_000, Phase::Queued)]).await;
        copy.close().await.unwrap();
        assert_eq!(tasks(&open(&path)).await, found + 1);
    }
}

/// Callers that write task after task.
#[derive(Default)]
struct Load {
    stop: AtomicBool,
    next: AtomicU64,
    acknowledged: Mutex<Vec<u64>>,
}

impl Load {
    async fn write(self: Arc<Self>, store: Arc<LocalStore>, lab: Lab) {
        while !self.stop.load(Ordering::SeqCst) {
            let n = self.next.fetch_add(1, Ordering::SeqCst);
            let phase = if n.is_multiple_of(2) { Phase::Queued } else { Phase::Succeeded };
            apply(&*store, vec![put(&lab, n, phase)]).await;
            self.acknowledged.lock().unwrap().push(n);
        }
    }

    fn acknowledged(&self) -> Vec<u64> {
        self.acknowledged.lock().unwrap().clone()
    }
}

/// What one caller was told before it asked for the backup is there, to the letter, even if no checkpoint came in between.
#[tokio::test]
async fn a_backup_has_what_was_acknowledged_a_moment_ago() {
    let folder = Folder::new();
    let lazy = Options { checkpoint_every: Duration::from_secs(3_600), ..small() };
    let store = LocalStore::open(&folder.path("data"), lazy).unwrap();
    let lab = lab_over(Arc::new(MemoryStore::new())).await;
    for round in 0..3 {
        apply(&store, (0..50).map(|n| put(&lab, round * 50 + n, Phase::Queued)).collect()).await;
        let to = folder.path(&format!("backup-{round}"));
        store.backup(&to).unwrap();
        assert_eq!(exported(&open(&to)).await, exported(&store).await);
    }
}

async fn exported(store: &dyn Store) -> String {
    let mut lines = Vec::new();
    export(store, &mut lines, &mut |_| {}).await.unwrap();
    String::from_utf8(lines).unwrap()
}

#[tokio::test]
async fn a_backup_goes_to_a_new_folder_only() {
    let folder = Folder::new();
    let store = open(&folder.path("data"));
    std::fs::create_dir(folder.path("taken")).unwrap();
    std::fs::write(folder.path("file"), "").unwrap();
    std::fs::create_dir(folder.path("cut.partial")).unwrap();
    for name in ["taken", "file", "cut", "data"] {
        let refused = store.backup(&folder.path(name)).unwrap_err();
        assert_eq!(refused.code().as_str(), "BACKUP_EXISTS", "{name}");
    }
    store.backup(&folder.path("deep/er")).unwrap();
    assert_eq!(tasks(&open(&folder.path("deep/er"))).await, 0);
    store.close().await.unwrap();
    assert_eq!(store.backup(&folder.path("late")).unwrap_err().code().as_str(), "STORE_CLOSED");
}

/// Purged tasks leave room inside the file; compacting gives it back, and what is left is left as it was.
#[tokio::test]
async fn compacting_after_a_purge_gives_room_back_and_loses_nothing() {
    let folder = Folder::new();
    let path = folder.path("data");
    let store = open(&path);
    let lab = lab_over(Arc::new(MemoryStore::new())).await;
    for some in (0..4_000).collect::<Vec<_>>().chunks(500) {
        apply(&store, some.iter().map(|n| put(&lab, *n, Phase::Succeeded)).collect()).await;
    }
    let delete = |n: u64| {
        let write = Write { key: task(&lab, n, Phase::Succeeded).0, expect: Expect::Any, action: Action::Delete };
        Op::Commit(Commit::new(lab.op(), vec![write]).unwrap())
    };
    for some in (100..4_000).collect::<Vec<_>>().chunks(500) {
        apply(&store, some.iter().map(|n| delete(*n)).collect()).await;
    }
    let before = exported(&store).await;
    let refused = LocalStore::compact(&path, small()).unwrap_err();
    assert_eq!(refused.code().as_str(), "STORE_IN_USE");
    store.close().await.unwrap();

    let compacted = LocalStore::compact(&path, small()).unwrap();
    assert!(compacted.after_bytes * 4 < compacted.before_bytes, "{compacted:?}");
    let length = std::fs::metadata(path.join("checkpoint.redb")).unwrap().len();
    assert_eq!(length, compacted.after_bytes);
    let store = open(&path);
    assert_eq!(exported(&store).await, before);
    assert_eq!(store.check(CheckDepth::Full).await.unwrap(), []);
}

#[test]
fn compacting_makes_no_store_where_there_is_none() {
    let folder = Folder::new();
    assert_eq!(LocalStore::compact(&folder.path("none"), small()).unwrap_err().code().as_str(), "STORE_NOT_FOUND");
    assert!(!folder.path("none").exists() && !LocalStore::is_at(&folder.path("none")));
}

async fn fill(lab: &Lab) {
    let mut writes: Vec<Write> =
        one_of_each_kind(lab).into_iter().map(|(key, record)| Write::put(key, Expect::Absent, record)).collect();
    writes.push(add(Key::running(&ns(), &pool("work")), 3));
    lab.commit(writes).await;
    for name in ["受信箱", "other"] {
        for phase in Phase::ALL {
            let namespace = Namespace::new(name).unwrap();
            lab.store_task(lab.in_phase(Spec { namespace, ..lab.spec(phase.as_str()) }, phase)).await;
        }
    }
    for (n, payload) in [vec![], vec![0, 159, 255], vec![7; 250_000]].into_iter().enumerate() {
        lab.enqueue_with(&format!("payload-{n}"), |spec| spec.envelope.payload = payload.into()).await;
    }
    lab.enqueue_many((0..600).map(|n| lab.spec(&format!("many-{n:03}"))).collect()).await;
}

/// Memory to local, over a reopen, and back to memory: the same records, to the letter.
#[test]
fn everything_comes_back_from_the_disk_as_it_went_there() {
    let memory = Arc::new(MemoryStore::new());
    run_case(Given(memory.clone()), |lab| async move {
        fill(&lab).await;
        let before = exported(&*memory).await;
        let folder = Folder::new();
        let local = open(&folder.path("data"));
        let moved = transfer(&*memory, &local, Existing::Refuse, &mut |_| {}).await.unwrap();
        assert_eq!(
            exported(&local).await.lines().skip(1).collect::<Vec<_>>(),
            before.lines().skip(1).collect::<Vec<_>>()
        );
        local.close().await.unwrap();
        let local = open(&folder.path("data"));
        assert_eq!(local.check(CheckDepth::Full).await.unwrap(), []);
        let back = Arc::new(MemoryStore::new());
        let again = transfer(&local, &*back, Existing::Refuse, &mut |_| {}).await.unwrap();
        assert_eq!((again, exported(&*back).await), (moved, before));
        assert_eq!(back.check(CheckDepth::Full).await.unwrap(), []);
        let held = lab_over(back).await.get(&Key::task(&Namespace::new("other").unwrap(), &id("running"))).await;
        assert!(held.unwrap().record.as_task().unwrap().state.lease.is_some(), "leases go along");
    });
}
