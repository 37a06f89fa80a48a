//! A memory store that keeps a journal of what it applied, and replays it when it is reopened. The memory store is
//! deterministic, so the copy is the original, revisions included. With it the suite's reopen cases really run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::record::Versioned;
use ekiden_store::conformance::Factory;
use ekiden_store::{
    CheckDepth, CountScope, Counts, DueEntry, DueQuery, Finding, Hint, Info, MemoryStore, Op, Outcome, Page,
    RecordQuery, Store, StoreError, TaskQuery,
};
use tokio::sync::broadcast;

/// What survives: the ops that were applied, in order.
type Disk = Arc<tokio::sync::Mutex<Vec<Op>>>;

struct JournaledStore {
    memory: MemoryStore,
    disk: Disk,
}

/// Opens journaled stores, and finds the disk of one that died.
#[derive(Default)]
pub(crate) struct Journaled {
    disks: Mutex<HashMap<usize, Disk>>,
}

impl Journaled {
    fn keep(&self, memory: MemoryStore, disk: Disk) -> Arc<dyn Store> {
        let store: Arc<dyn Store> = Arc::new(JournaledStore { memory, disk: disk.clone() });
        self.disks.lock().unwrap_or_else(PoisonError::into_inner).insert(address(&store), disk);
        store
    }
}

fn address(store: &Arc<dyn Store>) -> usize {
    Arc::as_ptr(store).cast::<()>() as usize
}

#[async_trait]
impl Factory for Journaled {
    async fn open(&self) -> Arc<dyn Store> {
        self.keep(MemoryStore::new(), Disk::default())
    }

    async fn reopen(&self, old: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        let disk = self.disks.lock().unwrap_or_else(PoisonError::into_inner).remove(&address(&old))?;
        let memory = MemoryStore::new();
        for op in disk.lock().await.iter() {
            for outcome in memory.apply(vec![op.clone()]).await {
                outcome.expect("what was applied once is applied again");
            }
        }
        Some(self.keep(memory, disk))
    }

    fn random_sequences(&self) -> usize {
        200
    }
}

#[async_trait]
impl Store for JournaledStore {
    fn info(&self) -> Info {
        Info { name: "journaled", durable: "in a journal that outlives the store", ..self.memory.info() }
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        // Held over the memory store's own work, so that the journal has the order in which things happened.
        let mut journal = self.disk.lock().await;
        let outcomes = self.memory.apply(ops.clone()).await;
        journal.extend(ops.into_iter().zip(&outcomes).filter(|(_, outcome)| outcome.is_ok()).map(|(op, _)| op));
        outcomes
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        self.memory.get(keys).await
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        self.memory.due(query).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        self.memory.tasks(query).await
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        self.memory.records(query).await
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        self.memory.counts(scope).await
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        self.memory.namespaces(after, limit).await
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.memory.watch()
    }

    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        self.memory.check(depth).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.memory.close().await
    }
}
