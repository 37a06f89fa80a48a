//! The words of these tests: a laboratory in virtual time, tasks to hand in, and a runner to run them.
#![allow(dead_code, unreachable_pub, reason = "each test file uses the words that it needs")]

pub mod port;
pub mod shop;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ekiden::core::{EventName, TaskFilter, TaskId, Timestamp};
use ekiden::store::{Clock, MemoryStore, Store, TokioClock};
use ekiden::{
    Client, Context, Ekiden, EkidenBuilder, Ended, Heard, Io, Payload, Runner, RunnerBuilder, Stop, Subscription,
    TaskChange, TaskRecord, TaskState,
};
use tokio::task::JoinHandle;

/// Where time begins.
pub const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// A task that a test's handler gives a meaning.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Job {
    pub n: u64,
}

impl Payload for Job {
    const TASK_TYPE: &'static str = "job";
}

/// A second kind.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Other {
    pub n: u64,
}

impl Payload for Other {
    const TASK_TYPE: &'static str = "other";
}

/// A store, a clock, and a client of them.
pub struct Lab {
    pub store: Arc<dyn Store>,
    pub clock: Arc<TokioClock>,
    pub ekiden: Ekiden,
    pub client: Client,
}

/// Opens a laboratory over a memory store.
pub fn lab() -> Lab {
    lab_on(Arc::new(MemoryStore::new()), 7)
}

/// Opens a laboratory over this store, with ids from this seed.
pub fn lab_on(store: Arc<dyn Store>, seed: u64) -> Lab {
    lab_with(store, Arc::new(TokioClock::new(START)), seed, EkidenBuilder::build)
}

/// Opens a laboratory of which each part is given.
pub fn lab_with(
    store: Arc<dyn Store>,
    clock: Arc<TokioClock>,
    seed: u64,
    build: impl FnOnce(EkidenBuilder) -> Ekiden,
) -> Lab {
    let builder = Ekiden::builder(store.clone()).clock(clock.clone()).seed(seed).io(Io::Caller);
    let ekiden = build(builder);
    let client = ekiden.namespace("default").unwrap();
    Lab { store, clock, ekiden, client }
}

impl Lab {
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Milliseconds since the laboratory opened, by its wall clock.
    pub fn ms(&self) -> i64 {
        self.now().as_millis() - START.as_millis()
    }

    /// Another process on the same store: a queue, caches and bells of its own.
    pub fn process(&self, seed: u64) -> Self {
        lab_with(self.store.clone(), self.clock.clone(), seed, EkidenBuilder::build)
    }

    /// Hands in a job.
    pub async fn job(&self, n: u64) -> TaskId {
        self.client.enqueue(Job { n }).await.unwrap().id
    }

    pub fn runner(&self) -> RunnerBuilder {
        Runner::builder(&self.client)
    }

    pub async fn status(&self, id: &TaskId) -> TaskRecord {
        self.client.get_status(id).await.unwrap()
    }

    pub async fn state(&self, id: &TaskId) -> TaskState {
        self.status(id).await.state
    }

    pub async fn count(&self, state: TaskState) -> u64 {
        self.client.counts_by_state().await.unwrap().get(state)
    }

    /// All tasks in these states.
    pub fn in_state(&self, states: &[TaskState]) -> TaskFilter {
        TaskFilter { phases: states.to_vec(), ..self.client.all() }
    }

    /// Waits until the task is there; looks at it first, so it cannot miss it.
    pub async fn until(&self, id: &TaskId, state: TaskState) -> TaskRecord {
        let mut changes = self.client.subscribe().await.unwrap();
        loop {
            let record = self.status(id).await;
            if record.state == state {
                return record;
            }
            assert!(!record.state.is_final(), "{id} is {}, not {state}: {:?}", record.state, record.last_error);
            changed(&mut changes, id).await;
        }
    }

    /// Waits until so many tasks are there.
    pub async fn until_count(&self, state: TaskState, count: u64) {
        let mut changes = self.client.subscribe().await.unwrap();
        while self.count(state).await < count {
            // Another process may have done it: look again now and then.
            let _ = tokio::time::timeout(Duration::from_secs(1), changes.next()).await;
        }
    }
}

/// Waits for the next change of a task, or for a second: another process may have changed it.
async fn changed(changes: &mut Subscription, id: &TaskId) {
    let its = async {
        while let Some(heard) = changes.next().await {
            match heard {
                Heard::Change(change) if change.id != *id => {}
                _ => return,
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), its).await;
}

/// Waits for the next change of which this is true.
pub async fn heard(changes: &mut Subscription, wanted: impl Fn(&TaskChange) -> bool) -> TaskChange {
    loop {
        match changes.next().await.unwrap() {
            Heard::Change(change) if wanted(&change) => return *change,
            Heard::Change(_) => {}
            Heard::Missed(missed) => panic!("{missed} changes were missed"),
        }
    }
}

/// Waits until this happened to the task.
pub async fn happened(changes: &mut Subscription, id: &TaskId, event: EventName) -> TaskChange {
    heard(changes, |change| change.id == *id && change.event == Some(event)).await
}

/// Virtual time passes: stands for work, or for a wait until something long over must have happened.
pub async fn passes(span: Duration) {
    let _ = tokio::time::timeout(span, std::future::pending::<()>()).await;
}

pub const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A runner at work.
pub struct AtWork {
    pub stop: Stop,
    pub run: JoinHandle<ekiden::Result<Ended>>,
}

/// Starts a runner on this runtime.
pub fn start(builder: RunnerBuilder) -> AtWork {
    let runner = builder.build().unwrap();
    AtWork { stop: runner.stop(), run: tokio::spawn(runner.run_until_stopped()) }
}

impl AtWork {
    /// Ends it gently.
    pub async fn end(self) -> Ended {
        self.stop.gently();
        self.run.await.unwrap().unwrap()
    }

    /// Ends it at once.
    pub async fn end_at_once(self) -> Ended {
        self.stop.at_once();
        self.run.await.unwrap().unwrap()
    }
}

/// Runs while something happens, and ends gently when it has.
pub async fn while_running<T>(builder: RunnerBuilder, what: impl Future<Output = T>) -> T {
    let runner = start(builder);
    let seen = what.await;
    runner.end().await;
    seen
}

/// How many are inside, and how many were at most.
#[derive(Clone, Debug, Default)]
pub struct Gauge {
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
}

impl Gauge {
    pub fn enter(&self) -> Inside {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        self.all.fetch_add(1, Ordering::SeqCst);
        Inside(self.clone())
    }

    pub fn inside(&self) -> usize {
        self.inside.load(Ordering::SeqCst)
    }

    pub fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    pub fn all(&self) -> usize {
        self.all.load(Ordering::SeqCst)
    }
}

/// Leaves when it is dropped.
pub struct Inside(Gauge);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A handler that does nothing, well.
pub async fn nothing(_: Job, _: Context) {}
