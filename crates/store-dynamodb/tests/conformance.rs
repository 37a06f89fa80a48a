//! The conformance suite on a DynamoDB server in this process, or on any other that `EKIDEN_DYNAMODB_ENDPOINT` names: plain,
//! with lines of three parts behind a bad line, and with indexes that are behind.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ekiden_store::Store;
use ekiden_store::conformance::Factory;
use ekiden_store::layers::Retrying;
use ekiden_store_dynamodb::{DynamoStore, Options};
use ekiden_testkit::proxy::Faults;

use ward::{Ward, seed};

/// 12 tries: that so many in a row fail happens once in many years.
const TRIES: usize = 12;

/// Stores with tables of their own on one server a case.
struct Tables {
    shards: u32,
    faults: Option<Faults>,
    random_sequences: usize,
    ward: tokio::sync::OnceCell<Ward>,
    opened: Mutex<HashMap<usize, Options>>,
}

impl Tables {
    fn plain() -> Self {
        let (ward, opened) = (tokio::sync::OnceCell::new(), Mutex::default());
        Self { shards: 1, faults: None, random_sequences: 20, ward, opened }
    }

    fn behind_a_bad_line() -> Self {
        Self { shards: 3, faults: Some(Faults { stale: 0, ..Faults::SOME }), ..Self::plain() }
    }

    /// With indexes that are behind half of the time. The naive model knows no lag, so there is nothing to compare it with.
    fn behind_in_time() -> Self {
        let faults = Faults { stale: 50, ..Faults::default() };
        Self { faults: Some(faults), random_sequences: 0, ..Self::plain() }
    }

    async fn keep(&self, options: Options) -> Arc<dyn Store> {
        let store = DynamoStore::open(options.clone()).await.unwrap();
        let store: Arc<dyn Store> =
            if self.faults.is_some() { Arc::new(Retrying::new(store, TRIES)) } else { Arc::new(store) };
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
        let open = async || match self.faults {
            Some(faults) => Ward::open_behind(faults, seed()).await,
            None => Ward::open().await,
        };
        let ward = self.ward.get_or_init(open).await;
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

ekiden_store::suite!(plain, Tables::plain());
ekiden_store::suite!(bad_line, Tables::behind_a_bad_line());
ekiden_store::suite!(lagging, Tables::behind_in_time());
