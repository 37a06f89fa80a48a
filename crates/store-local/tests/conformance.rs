//! The conformance suite on the local store: in a real folder, in one that hardly keeps anything in memory and never rests,
//! and on a disk that loses its power whenever a case kills the store.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ekiden_store::Store;
use ekiden_store::conformance::Factory;
use ekiden_store_local::disk::fake::FakeDisk;
use ekiden_store_local::{LocalStore, Options};

/// Small files, and no checkpoint at the end: a close leaves what a crash leaves.
fn small() -> Options {
    Options { segment_bytes: 256 << 10, reserve_bytes: 64 << 10, checkpoint_on_close: false, ..Options::default() }
}

/// Memory for nothing, and a checkpoint all the time.
fn restless() -> Options {
    Options { checkpoint_every: Duration::from_millis(1), memory_bytes: 0, segment_bytes: 16 << 10, ..small() }
}

/// Stores in folders of their own, which go with the factory.
struct Folders {
    options: fn() -> Options,
    random_sequences: usize,
    folders: Mutex<HashMap<usize, tempfile::TempDir>>,
}

impl Folders {
    fn new(options: fn() -> Options, random_sequences: usize) -> Self {
        Self { options, random_sequences, folders: Mutex::default() }
    }

    fn keep(&self, folder: tempfile::TempDir) -> Arc<dyn Store> {
        let store: Arc<dyn Store> = Arc::new(LocalStore::open(&folder.path().join("data"), (self.options)()).unwrap());
        self.folders.lock().unwrap().insert(address(&store), folder);
        store
    }
}

fn address(store: &Arc<dyn Store>) -> usize {
    Arc::as_ptr(store).cast::<()>() as usize
}

#[async_trait]
impl Factory for Folders {
    async fn open(&self) -> Arc<dyn Store> {
        self.keep(tempfile::tempdir().unwrap())
    }

    async fn reopen(&self, old: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        let folder = self.folders.lock().unwrap().remove(&address(&old)).unwrap();
        // A case may have closed it.
        let _ = old.close().await;
        Some(self.keep(folder))
    }

    fn random_sequences(&self) -> usize {
        self.random_sequences
    }
}

/// Stores on fake disks, which lose what was not synced.
#[derive(Default)]
struct PowerCuts {
    disks: Mutex<HashMap<usize, Arc<FakeDisk>>>,
    seed: AtomicU64,
}

impl PowerCuts {
    fn keep(&self, disk: FakeDisk) -> Arc<dyn Store> {
        let disk = Arc::new(disk);
        let options = Options { disk: disk.clone(), ..restless() };
        let store: Arc<dyn Store> = Arc::new(LocalStore::open(Path::new("/data"), options).unwrap());
        self.disks.lock().unwrap().insert(address(&store), disk);
        store
    }

    fn next_seed(&self) -> u64 {
        self.seed.fetch_add(1, Ordering::Relaxed)
    }
}

#[async_trait]
impl Factory for PowerCuts {
    async fn open(&self) -> Arc<dyn Store> {
        self.keep(FakeDisk::new(self.next_seed()))
    }

    async fn reopen(&self, old: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        let disk = self.disks.lock().unwrap().remove(&address(&old)).unwrap();
        Some(self.keep(disk.power_cut(self.next_seed())))
    }

    fn random_sequences(&self) -> usize {
        200
    }
}

ekiden_store::suite!(folder, Folders::new(small, 100));
ekiden_store::suite!(restless_folder, Folders::new(restless, 100));
ekiden_store::suite!(power_cuts, PowerCuts::default());

/// The folder of a store that is in use belongs to it alone.
#[test]
fn a_folder_belongs_to_one_store_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("data");
    let first = LocalStore::open(&path, small()).unwrap();
    let refused = LocalStore::open(&path, small()).unwrap_err();
    assert_eq!(refused.code().as_str(), "STORE_IN_USE");
    drop(first);
    LocalStore::open(&path, small()).unwrap();
}
