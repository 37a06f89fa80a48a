//! The behaviour suite on the queue over the local store: in a folder, and with hardly any memory on a disk in memory, which
//! is checkpointed all the time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ekiden::StoreQueue;
use ekiden::core::Timestamp;
use ekiden::store::{ManualClock, Store};
use ekiden_store::entropy::Entropy;
use ekiden_store_local::disk::fake::FakeDisk;
use ekiden_store_local::{LocalStore, Options};
use ekiden_testkit::behaviour::{Bench, Factory};

/// A queue in this process, over a store that is made for each case, and what must outlive it.
struct InProcess {
    store: fn() -> Kept,
}

type Kept = (Arc<dyn Store>, Box<dyn Any + Send + Sync>);

#[async_trait]
impl Factory for InProcess {
    async fn open(&self) -> Bench {
        let clock = Arc::new(ManualClock::new(Timestamp::parse("2026-11-17T08:00:00.500Z").unwrap()));
        let (store, keep) = (self.store)();
        let queue = StoreQueue::with(store, clock.clone(), Entropy::from_seed(1), Vec::new());
        Bench { queue: Arc::new(queue), clock, keep }
    }
}

fn small() -> Options {
    Options { segment_bytes: 256 << 10, reserve_bytes: 64 << 10, checkpoint_on_close: false, ..Options::default() }
}

const FOLDER: InProcess = InProcess {
    store: || {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::open(&folder.path().join("data"), small()).unwrap();
        (Arc::new(store), Box::new(folder))
    },
};

const RESTLESS: InProcess = InProcess {
    store: || {
        let disk = Arc::new(FakeDisk::new(1));
        let options = Options { disk, checkpoint_every: Duration::from_millis(1), memory_bytes: 0, ..small() };
        (Arc::new(LocalStore::open(Path::new("/data"), options).unwrap()), Box::new(()))
    },
};

ekiden_testkit::behaviour_suite!(folder, FOLDER);
ekiden_testkit::behaviour_suite!(restless, RESTLESS);
