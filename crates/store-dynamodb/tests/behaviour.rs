//! The behaviour suite on the queue over a DynamoDB server in this process, or on any other that `EKIDEN_DYNAMODB_ENDPOINT` names:
//! plain, and behind a bad line.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::sync::Arc;

use async_trait::async_trait;
use ekiden::StoreQueue;
use ekiden::core::Timestamp;
use ekiden::store::ManualClock;
use ekiden_store::Store;
use ekiden_store::entropy::Entropy;
use ekiden_store::layers::Retrying;
use ekiden_store_dynamodb::DynamoStore;
use ekiden_testkit::behaviour::{Bench, Factory};
use ekiden_testkit::proxy::Faults;

use ward::{Ward, seed};

/// 12 tries: that so many in a row fail happens once in many years.
const TRIES: usize = 12;

/// Everything but indexes that are behind: the suite asks for what is there at once, which only exact indexes promise.
const BAD_LINE: Faults = Faults { stale: 0, ..Faults::SOME };

/// A queue in this process, over tables that are made for each case.
struct Tables(Option<Faults>);

#[async_trait]
impl Factory for Tables {
    async fn open(&self) -> Bench {
        let clock = Arc::new(ManualClock::new(Timestamp::parse("2026-11-17T08:00:00.500Z").unwrap()));
        let ward = match self.0 {
            Some(faults) => Ward::open_behind(faults, seed()).await,
            None => Ward::open().await,
        };
        let store = DynamoStore::open(ward.options()).await.unwrap();
        let store: Arc<dyn Store> =
            if self.0.is_some() { Arc::new(Retrying::new(store, TRIES)) } else { Arc::new(store) };
        let queue = StoreQueue::with(store, clock.clone(), Entropy::from_seed(1), Vec::new());
        Bench { queue: Arc::new(queue), clock, keep: Box::new(ward) }
    }
}

ekiden_testkit::behaviour_suite!(tables, Tables(None));
ekiden_testkit::behaviour_suite!(bad_line, Tables(Some(BAD_LINE)));
