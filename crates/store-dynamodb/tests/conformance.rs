//! The conformance suite on a DynamoDB server in this process, or on any other that `EKIDEN_DYNAMODB_ENDPOINT` names.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ekiden_store::Store;
use ekiden_store::conformance::Factory;
use ekiden_store_dynamodb::{DynamoStore, Options};

use ward::Ward;

/// Stores with tables of their own on one server a case.
struct Tables {
    shards: u32,
    random_sequences: usize,
    ward: tokio::sync::OnceCell<Ward>,
    opened: Mutex<HashMap<usize, Options>>,
}

impl Tables {
    fn new(shards: u32, random_sequences: usize) -> Self {
        Self { shards, random_sequences, ward: tokio::sync::OnceCell::new(), opened: Mutex::default() }
    }

    async fn keep(&self, options: Options) -> Arc<dyn Store> {
        let store: Arc<dyn Store> = Arc::new(DynamoStore::open(options.clone()).await.unwrap());
        self.opened.lock().unwrap().insert(address(&store), options);
        store
    }
}

fn address(store: &Arc<dyn Store>) -> usize {
    Arc::as_ptr(store).cast::<()>() as usize
}

#[async_trait]
impl Factory for Tables {
    async fn open(&self) -> Arc<dyn Store> {
        let ward = self.ward.get_or_init(Ward::open).await;
        self.keep(Options { ready_shards: self.shards, ..ward.options() }).await
    }

    async fn reopen(&self, old: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        // The old one is left as it is, as by a process that died.
        let options = self.opened.lock().unwrap().remove(&address(&old)).unwrap();
        Some(self.keep(options).await)
    }

    fn random_sequences(&self) -> usize {
        self.random_sequences
    }
}

ekiden_store::suite!(plain, Tables::new(1, 20));
ekiden_store::suite!(sharded, Tables::new(3, 20));
