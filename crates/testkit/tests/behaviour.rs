//! The behaviour suite on the in-process queue: over the memory store, and over one that fails now and then.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::sync::Arc;

use async_trait::async_trait;
use ekiden::StoreQueue;
use ekiden::core::Timestamp;
use ekiden::store::layers::{Faults, Faulty, Retrying};
use ekiden::store::{ManualClock, MemoryStore, Store};
use ekiden_store::entropy::Entropy;
use ekiden_testkit::behaviour::{Bench, Factory};

/// A queue in this process, over a store that is made for each case.
struct InProcess {
    store: fn() -> Arc<dyn Store>,
}

#[async_trait]
impl Factory for InProcess {
    async fn open(&self) -> Bench {
        let clock = Arc::new(ManualClock::new(Timestamp::parse("2026-11-17T08:00:00.500Z").unwrap()));
        let queue = StoreQueue::with((self.store)(), clock.clone(), Entropy::from_seed(1), Vec::new());
        Bench { queue: Arc::new(queue), clock, keep: Box::new(()) }
    }
}

const MEMORY: InProcess = InProcess { store: || Arc::new(MemoryStore::new()) };

/// Every fourth op fails in one of three ways; with enough tries nobody above notices.
const FAULTY: InProcess = InProcess {
    store: || {
        let faults = Faults { refused: 9, reply_lost: 9, request_lost: 9, read_failed: 9, ..Faults::default() };
        Arc::new(Retrying::new(Faulty::new(MemoryStore::new(), faults, 7), 40))
    },
};

ekiden_testkit::behaviour_suite!(memory, MEMORY);
ekiden_testkit::behaviour_suite!(retrying_over_faulty, FAULTY);
