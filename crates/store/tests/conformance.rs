//! The conformance suite on the memory store: plain, behind each layer, behind `Arc<dyn Store>`, and with a journal that
//! survives, so that every case really runs somewhere.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod journaled;

use std::sync::Arc;

use async_trait::async_trait;
use ekiden_store::conformance::Factory;
use ekiden_store::layers::{Faults, Faulty, Retrying, Traced};
use ekiden_store::{MemoryStore, Store};
use journaled::Journaled;

/// Opens stores that nothing survives of.
struct Fleeting {
    open: fn() -> Arc<dyn Store>,
    random_sequences: usize,
}

#[async_trait]
impl Factory for Fleeting {
    async fn open(&self) -> Arc<dyn Store> {
        (self.open)()
    }

    async fn reopen(&self, _: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        None
    }

    fn random_sequences(&self) -> usize {
        self.random_sequences
    }
}

const MEMORY: Fleeting = Fleeting { open: || Arc::new(MemoryStore::new()), random_sequences: 20_000 };

const TRACED: Fleeting = Fleeting { open: || Arc::new(Traced::new(MemoryStore::new())), random_sequences: 500 };

const WITHOUT_FAULTS: Fleeting =
    Fleeting { open: || Arc::new(Faulty::new(MemoryStore::new(), Faults::default(), 0)), random_sequences: 500 };

/// Every fourth op fails in one of three ways; with enough tries nobody above notices.
const WITH_FAULTS_AND_RETRIES: Fleeting = Fleeting {
    open: || {
        let faults = Faults { refused: 9, reply_lost: 9, request_lost: 9, read_failed: 9, ..Faults::default() };
        Arc::new(Retrying::new(Faulty::new(MemoryStore::new(), faults, 7), 40))
    },
    random_sequences: 500,
};

const BEHIND_ARC: Fleeting = Fleeting {
    open: || {
        let shared: Arc<dyn Store> = Arc::new(MemoryStore::new());
        Arc::new(shared)
    },
    random_sequences: 500,
};

ekiden_store::suite!(memory, MEMORY);
ekiden_store::suite!(traced, TRACED);
ekiden_store::suite!(faulty_without_faults, WITHOUT_FAULTS);
ekiden_store::suite!(retrying_over_faulty, WITH_FAULTS_AND_RETRIES);
ekiden_store::suite!(behind_arc, BEHIND_ARC);
ekiden_store::suite!(journaled_memory, Journaled::default());
