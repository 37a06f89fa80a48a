//! The behaviour suite on the queue over a DynamoDB server in this process, or on any other that `EKIDEN_DYNAMODB_ENDPOINT` names.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::sync::Arc;

use async_trait::async_trait;
use ekiden::StoreQueue;
use ekiden::core::Timestamp;
use ekiden::store::ManualClock;
use ekiden_store::entropy::Entropy;
use ekiden_store_dynamodb::DynamoStore;
use ekiden_testkit::behaviour::{Bench, Factory};

use ward::Ward;

/// A queue in this process, over tables that are made for each case.
struct Tables;

#[async_trait]
impl Factory for Tables {
    async fn open(&self) -> Bench {
        let clock = Arc::new(ManualClock::new(Timestamp::parse("2026-11-17T08:00:00.500Z").unwrap()));
        let ward = Ward::open().await;
        let store = DynamoStore::open(ward.options()).await.unwrap();
        let queue = StoreQueue::with(Arc::new(store), clock.clone(), Entropy::from_seed(1), Vec::new());
        Bench { queue: Arc::new(queue), clock, keep: Box::new(ward) }
    }
}

ekiden_testkit::behaviour_suite!(tables, Tables);
