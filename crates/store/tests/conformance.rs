//! The conformance suite, on the memory store and on a memory store that survives by its journal.

mod journaled;

use std::sync::Arc;

use async_trait::async_trait;
use ekiden_store::conformance::Factory;
use ekiden_store::{MemoryStore, Store};
use journaled::Journaled;

struct Memory;

#[async_trait]
impl Factory for Memory {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(MemoryStore::new())
    }

    async fn reopen(&self, _old: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        None
    }

    fn random_sequences(&self) -> usize {
        20_000
    }
}

ekiden_store::suite!(memory, Memory);
ekiden_store::suite!(journaled_memory, Journaled::default());
