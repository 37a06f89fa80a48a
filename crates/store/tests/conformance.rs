//! The memory store passes the suite.

use std::sync::Arc;

use async_trait::async_trait;
use ekiden_store::conformance::Factory;
use ekiden_store::{MemoryStore, Store};

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
