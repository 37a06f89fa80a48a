//! Seeded requests through the port over a store that fails, each repeated under its own ids until it is answered: some are cut
//! off in the middle, as by the end of their process, and some are repeated long after their answer. What an answer promised
//! holds. `EKIDEN_SEED` replays one seed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ekiden::core::{
    GroupId, Kind, Millis, Namespace, OpId, PoolName, ReasonCode, RunnerId, SweepId, TaskEnvelope, TaskFilter, TaskId,
    Timestamp, limits,
};
use ekiden::store::layers::{Faults, Faulty};
use ekiden::store::{Clock, CountScope, Entropy, ManualClock, MemoryStore, Store};
use ekiden::{Ask, Bulk, NewTask, Queue, StoreQueue, TaskRecord, TaskRef, TaskState};

/// More than half of all ops and reads go wrong, so that a request of several commits rarely comes to its end at once.
const FAULTS: Faults =
    Faults { refused: 30, reply_lost: 15, request_lost: 15, read_failed: 20, delay_max: Duration::from_millis(4) };

/// 200 tries: far more than any request needs.
const TRIES: usize = 200;

/// 500 rounds of maintenance, more than half of whose ops go wrong.
const ROUNDS: usize = 500;

/// One seed's queues: what the requests go through, and the same store without faults.
struct Scene {
    faulty: StoreQueue,
    sound: StoreQueue,
    clock: Arc<ManualClock>,
    dice: Entropy,
    payload: Bytes,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::parse("2026-11-17T08:00:00.000Z").unwrap()));
        let memory = Arc::new(MemoryStore::new());
        let faulty = Arc::new(Faulty::new(memory.clone(), FAULTS, seed));
        let queue =
            |store: Arc<dyn Store>, seed| StoreQueue::with(store, clock.clone(), Entropy::from_seed(seed), Vec::new());
        let bytes = if seed.is_multiple_of(3) { limits::PAYLOAD_BYTES_MAX } else { 10 };
        Self {
            faulty: queue(faulty, seed.wrapping_add(1)),
            sound: queue(memory, seed.wrapping_add(2)),
            clock: clock.clone(),
            dice: Entropy::from_seed(seed),
            payload: Bytes::from(format!("\"{}\"", "x".repeat(bytes - 2))),
        }
    }

    fn op(&mut self) -> OpId {
        self.dice.op_id(self.clock.now())
    }

    fn new_task(&mut self, name: &str) -> NewTask {
        let envelope = TaskEnvelope::json(Kind::new("work").unwrap(), self.payload.clone());
        let op = self.op();
        NewTask { op: Some(op), ..NewTask::new(named(name), pool(), envelope) }
    }

    /// Sends one request until it is answered. Some tries are cut off in the middle.
    async fn enqueue(&mut self, task: NewTask) {
        for _ in 0..TRIES {
            let cut = Duration::from_millis(u64::try_from(1 + self.dice.below(400)).unwrap());
            let sent = tokio::time::timeout(cut, self.faulty.enqueue(vec![task.clone()])).await;
            match sent.ok().and_then(|mut answers| answers.pop()) {
                Some(Ok(enqueued)) => return assert_eq!(enqueued.id, task.task.id),
                Some(Err(error)) => assert!(error.is_retryable() || error.is_unknown(), "{error}"),
                None => {}
            }
        }
        panic!("a request is answered within {TRIES} tries");
    }

    async fn start(&mut self, name: &str, bulk: &Bulk) {
        let id = SweepId::new(name).unwrap();
        for _ in 0..TRIES {
            match self.faulty.start_bulk(id.clone(), bulk.clone()).await {
                Ok(_) => return,
                Err(error) => assert!(error.is_retryable() || error.is_unknown(), "{error}"),
            }
        }
        panic!("a request is answered within {TRIES} tries");
    }

    /// Maintenance that fails all the time, until a bulk command is done.
    async fn carry_out(&mut self, name: &str) {
        let id = SweepId::new(name).unwrap();
        for _ in 0..ROUNDS {
            let _ = self.faulty.maintain(namespace()).await;
            self.clock.advance(Millis::from_secs(1));
            if self.sound.bulk(namespace(), id.clone()).await.unwrap().is_none() {
                return;
            }
        }
        panic!("{name} does not come to its end");
    }

    async fn settle_down(&self) {
        while !self.sound.maintain(namespace()).await.unwrap().is_idle() {}
    }

    async fn get(&self, name: &str) -> TaskRecord {
        self.sound.get_status(named(name)).await.unwrap()
    }

    async fn count(&self, state: TaskState) -> u64 {
        self.sound.counts_by_state(CountScope { namespace: namespace(), pool: None }).await.unwrap().get(state)
    }

    /// Runs the one task that comes next.
    async fn succeed_next(&mut self) {
        let ask = Ask {
            id: self.op(),
            namespace: namespace(),
            pools: [pool()].into(),
            kinds: [Kind::new("work").unwrap()].into(),
            limit: 1,
            holder: RunnerId::new("r").unwrap(),
        };
        let leased = self.sound.dequeue_ready(ask).await.unwrap().pop().unwrap();
        self.sound.mark_succeeded(leased.lease, None).await.unwrap();
    }
}

fn namespace() -> Namespace {
    Namespace::new("default").unwrap()
}

fn pool() -> PoolName {
    PoolName::new("default").unwrap()
}

fn named(name: &str) -> TaskRef {
    TaskRef { namespace: namespace(), id: TaskId::new(name).unwrap() }
}

/// Runs every seed on a runtime whose time passes by itself where everybody waits.
fn seeds(count: u64, mut run: impl AsyncFnMut(&mut Scene)) {
    let one = std::env::var("EKIDEN_SEED").ok().and_then(|seed| seed.parse().ok());
    let all = one.map_or((0..count).collect::<Vec<u64>>(), |seed| vec![seed]);
    for seed in all {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let scene = || runtime.block_on(run(&mut Scene::new(seed)));
        assert!(catch_unwind(AssertUnwindSafe(scene)).is_ok(), "seed {seed}");
    }
}

/// R21, W8
#[test]
fn random_enqueues_wait_for_all_of_their_parents() {
    seeds(30, async |scene| {
        let parents: Vec<String> = (0..scene.dice.below(40)).map(|number| format!("parent-{number:02}")).collect();
        for parent in &parents {
            let task = scene.new_task(parent);
            scene.enqueue(task).await;
        }
        let ids = parents.iter().map(|parent| TaskId::new(parent).unwrap()).collect();
        let child = NewTask { parents: ids, ..scene.new_task("child") };
        scene.enqueue(child.clone()).await;
        if scene.dice.chance(50) {
            scene.enqueue(child).await;
        }
        for left in (1..=parents.len()).rev() {
            let child = scene.get("child").await;
            assert_eq!((child.state, child.waits_for.len()), (TaskState::Blocked, left));
            scene.succeed_next().await;
            scene.settle_down().await;
        }
        assert_eq!(scene.get("child").await.state, TaskState::Queued);
    });
}

/// R21
#[test]
fn random_bulk_commands_reach_what_was_there_and_nothing_that_came_later() {
    seeds(30, async |scene| {
        let count = 1 + scene.dice.below(40);
        for number in 0..count {
            let task = scene.new_task(&format!("old-{number}"));
            scene.enqueue(task).await;
        }
        scene.clock.advance(Millis::from_secs(1));
        let bulk = Bulk::Cancel(TaskFilter::all(namespace()));
        scene.start("bulk", &bulk).await;
        scene.carry_out("bulk").await;
        assert_eq!(scene.count(TaskState::Cancelled).await, u64::try_from(count).unwrap());
        let young = NewTask { group: Some(GroupId::new("g").unwrap()), ..scene.new_task("young") };
        scene.enqueue(young).await;
        let hours = u64::try_from(scene.dice.below(20)).unwrap();
        scene.clock.advance(Millis::from_secs(1 + hours * 3_600));
        scene.start("bulk", &bulk).await;
        scene.carry_out("bulk").await;
        let young = scene.get("young").await;
        assert_eq!((young.state, young.reason), (TaskState::Queued, None::<ReasonCode>));
    });
}
