//! Maintenance over a store that cannot read one record: what is behind that record is done all the same.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use async_trait::async_trait;
use ekiden::core::{
    GroupId, Kind, Millis, Namespace, OpId, PoolName, Runner, RunnerId, RunnerStatus, SweepId, TaskEnvelope,
    TaskFilter, TaskId, Timestamp,
};
use ekiden::store::{Clock, Entropy, ManualClock};
use ekiden::{Ask, Bulk, NewTask, Queue, StoreQueue, TaskRef, TaskState};
use ekiden_core::key::Key;
use ekiden_core::newer::Newer;
use ekiden_core::record::Versioned;
use ekiden_store::{
    CheckDepth, CountScope, Counts, DueEntry, DueQuery, Finding, Hint, Info, MemoryStore, Op, Outcome, Page,
    RecordQuery, Store, StoreError, TaskQuery,
};
use tokio::sync::broadcast;

/// A store in which whatever has to do with one name fails.
struct Unreadable {
    inner: Arc<MemoryStore>,
    name: &'static str,
}

impl Unreadable {
    fn check(&self, name: &str) -> Result<(), StoreError> {
        if name == self.name { Err(StoreError::unavailable("planted: it cannot be read")) } else { Ok(()) }
    }
}

#[async_trait]
impl Store for Unreadable {
    fn info(&self) -> Info {
        self.inner.info()
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        self.inner.apply(ops).await
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        keys.iter().try_for_each(|key| self.check(&key.name))?;
        self.inner.get(keys).await
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        self.inner.due(query).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        self.inner.tasks(query).await
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        self.inner.records(query).await
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        self.inner.counts(scope).await
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        self.inner.namespaces(after, limit).await
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.inner.watch()
    }

    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        self.inner.check(depth).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

/// The queue over such a store, one that can read everything, and their clock.
struct Scene {
    queue: StoreQueue,
    sound: StoreQueue,
    clock: Arc<ManualClock>,
}

impl Scene {
    fn new(name: &'static str) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::parse("2026-11-17T08:00:00.000Z").unwrap()));
        let inner = Arc::new(MemoryStore::new());
        let queue =
            |store: Arc<dyn Store>, seed| StoreQueue::with(store, clock.clone(), Entropy::from_seed(seed), Vec::new());
        let sound = queue(inner.clone(), 1);
        let queue = queue(Arc::new(Unreadable { inner, name }), 2);
        Self { queue, sound, clock }
    }

    async fn add(&self, name: &str) {
        let envelope = TaskEnvelope::json(Kind::new("work").unwrap(), "{}");
        let task = NewTask::new(named(name), PoolName::new("default").unwrap(), envelope);
        let group = Some(GroupId::new(name).unwrap());
        self.sound.enqueue_one(Box::new(NewTask { group, ..task })).await.unwrap();
    }

    async fn state(&self, name: &str) -> TaskState {
        self.sound.get_status(named(name)).await.unwrap().state
    }
}

fn namespace() -> Namespace {
    Namespace::new("default").unwrap()
}

fn named(name: &str) -> TaskRef {
    TaskRef { namespace: namespace(), id: TaskId::new(name).unwrap() }
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_cannot_be_read_holds_up_no_other() {
    let scene = Scene::new("first");
    for name in ["first", "second"] {
        scene.add(name).await;
        let filter = TaskFilter { group: Some(GroupId::new(name).unwrap()), ..TaskFilter::all(namespace()) };
        scene.sound.start_bulk(SweepId::new(name).unwrap(), Bulk::Cancel(filter)).await.unwrap();
        scene.clock.advance(Millis::new(1));
    }
    let done = scene.queue.maintain(namespace()).await.unwrap();
    assert!(done.swept > 0 && done.next_tick.is_some(), "{done:?}");
    assert_eq!((scene.state("first").await, scene.state("second").await), (TaskState::Queued, TaskState::Cancelled));
    assert!(scene.queue.maintain(namespace()).await.is_err(), "a round that could do nothing says why");
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_cannot_be_read_holds_up_no_other() {
    let scene = Scene::new("first");
    for name in ["first", "second"] {
        let runner = Runner {
            namespace: namespace(),
            id: RunnerId::new(name).unwrap(),
            started_at: scene.clock.now(),
            last_heartbeat: scene.clock.now(),
            status: RunnerStatus::Running,
            lease: Millis::from_secs(5),
            project_root: String::new(),
            pools: Vec::new(),
            kinds: Vec::new(),
            newer: Newer::NONE,
        };
        scene.sound.beat(runner).await.unwrap();
        scene.add(&format!("task-of-{name}")).await;
        let ask = Ask {
            id: OpId::generate(scene.clock.now(), &[u8::try_from(name.len()).unwrap(); 10]),
            namespace: namespace(),
            pools: [PoolName::new("default").unwrap()].into(),
            kinds: [Kind::new("work").unwrap()].into(),
            limit: 1,
            holder: RunnerId::new(name).unwrap(),
        };
        assert_eq!(scene.sound.dequeue_ready(ask).await.unwrap().len(), 1);
        scene.clock.advance(Millis::new(1));
    }
    scene.clock.advance(Millis::from_secs(10));
    scene.queue.maintain(namespace()).await.unwrap();
    let states = (scene.state("task-of-first").await, scene.state("task-of-second").await);
    assert_eq!(states, (TaskState::Running, TaskState::Queued));
}
