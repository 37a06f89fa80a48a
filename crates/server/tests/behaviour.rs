//! The behaviour suite through HTTP: a server on a real socket in front of the memory store and of the local store, and the
//! queue that speaks to it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use ekiden::core::Timestamp;
use ekiden::store::{LocalOptions, LocalStore, ManualClock, MemoryStore, Store};
use ekiden::{Ekiden, HttpQueue};
use ekiden_server::{Events, Server, Upkeep};
use ekiden_testkit::behaviour::{Bench, Factory};
use tokio::task::JoinHandle;

/// A queue behind a server, over a store that is made for each case.
struct Http {
    store: fn() -> Kept,
}

/// A store, and what must outlive it.
type Kept = (Arc<dyn Store>, Box<dyn Any + Send + Sync>);

/// Ends the server with the case.
struct Serving(JoinHandle<()>, #[expect(dead_code, reason = "kept for its end")] Box<dyn Any + Send + Sync>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[async_trait]
impl Factory for Http {
    async fn open(&self) -> Bench {
        let clock = Arc::new(ManualClock::new(Timestamp::parse("2026-11-17T08:00:00.500Z").unwrap()));
        let (store, keep) = (self.store)();
        let events = Arc::new(Events::new());
        let ekiden = Ekiden::builder(store).clock(clock.clone()).seed(1).observer(events.clone()).build();
        let server = Server::builder(ekiden.queue().clone(), events).clock(clock.clone()).upkeep(Upkeep::Elsewhere);
        let server = server.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let url = format!("http://{}", server.local_addr());
        let serving = tokio::spawn(server.serve(std::future::pending()));
        let queue = HttpQueue::connect(&url, None).await.unwrap();
        Bench { queue: Arc::new(queue), clock, keep: Box::new(Serving(serving, keep)) }
    }
}

const MEMORY: Http = Http { store: || (Arc::new(MemoryStore::new()), Box::new(())) };

const LOCAL: Http = Http {
    store: || {
        let folder = tempfile::tempdir().unwrap();
        let small = LocalOptions { segment_bytes: 256 << 10, reserve_bytes: 64 << 10, ..LocalOptions::default() };
        let options = LocalOptions { checkpoint_on_close: false, ..small };
        (Arc::new(LocalStore::open(&folder.path().join("data"), options).unwrap()), Box::new(folder))
    },
};

ekiden_testkit::behaviour_suite!(memory, MEMORY);
ekiden_testkit::behaviour_suite!(local, LOCAL);
