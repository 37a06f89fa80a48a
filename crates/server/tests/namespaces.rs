//! Maintenance of stores with many namespaces: every one is served in time, whatever the others are, and names without anything
//! behind them cost nothing.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ekiden::core::{EventName, Kind, Millis, Namespace, OpId, PoolName, Runner, RunnerId, RunnerStatus, Timestamp};
use ekiden::store::{Clock, LocalOptions, LocalStore, MemoryStore, Store, SystemClock, TokioClock};
use ekiden::{Ask, Client, Ekiden, Observer, Queue, Settlement, TaskChange, Verdict};
use ekiden_server::{Events, Server};
use ekiden_testkit::rig;
use lab::{Gate, Lab, Port, within};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

/// 3,000 namespaces: three times as many as a server knew at most, and more than it looks at in a walk of half a minute.
const MANY: usize = 3_000;

const LEASE: Duration = Duration::from_secs(2);

fn noon() -> Timestamp {
    Timestamp::parse("2026-11-17T12:00:00.000Z").unwrap()
}

/// What happened, by event: in which namespaces.
#[derive(Default)]
struct Seen {
    events: Mutex<BTreeMap<&'static str, BTreeSet<Namespace>>>,
    changed: Notify,
}

impl Observer for Seen {
    fn observe(&self, change: &TaskChange) {
        if let Some(event) = change.event {
            self.events.lock().unwrap().entry(event.as_str()).or_default().insert(change.namespace.clone());
            self.changed.notify_one();
        }
    }
}

impl Seen {
    fn count(&self, event: EventName) -> usize {
        self.events.lock().unwrap().get(event.as_str()).map_or(0, BTreeSet::len)
    }

    /// Waits until this happened in so many namespaces.
    async fn until(&self, event: EventName, count: usize) {
        while self.count(event) < count {
            self.changed.notified().await;
        }
    }
}

fn client(ekiden: &Ekiden, number: usize) -> Client {
    ekiden.namespace(format!("n{number:05}")).unwrap()
}

async fn beat(client: &Client, clock: &dyn Clock) {
    let runner = Runner {
        namespace: client.namespace().clone(),
        id: RunnerId::new("r").unwrap(),
        started_at: clock.now(),
        last_heartbeat: clock.now(),
        status: RunnerStatus::Running,
        lease: Millis::from(LEASE),
        project_root: String::new(),
        pools: Vec::new(),
        kinds: Vec::new(),
        newer: Default::default(),
    };
    client.queue().beat(runner).await.unwrap();
}

async fn take(client: &Client, id: u128) -> ekiden::Leased {
    let ask = Ask {
        id: OpId::from_bits(id),
        namespace: client.namespace().clone(),
        pools: [PoolName::new("default").unwrap()].into(),
        kinds: [Kind::new("k").unwrap()].into(),
        limit: 1,
        holder: RunnerId::new("r").unwrap(),
    };
    client.queue().dequeue_ready(ask).await.unwrap().pop().unwrap()
}

/// A task whose runner says nothing more, a schedule, and a child whose parent has succeeded. None of it was maintained.
async fn fill(client: Client, number: usize, clock: Arc<dyn Clock>) {
    let id = 3 * number as u128 + 1;
    beat(&client, &*clock).await;
    let parent = client.enqueue_raw("k", "text/plain", "").await.unwrap();
    let leased = take(&client, id).await;
    client.enqueue_raw("k", "text/plain", "").depends_on([&parent.id]).await.unwrap();
    let settlement = Settlement { id: OpId::from_bits(id + 1), lease: leased.lease, verdict: Verdict::Succeeded(None) };
    client.queue().settle(vec![settlement], None).await.settled.pop().unwrap().unwrap();
    client.enqueue_raw("k", "text/plain", "").await.unwrap();
    take(&client, id + 2).await;
    client.schedule("s", client.enqueue_raw("k", "text/plain", "")).every(Duration::from_secs(1)).await.unwrap();
}

/// Fills so many namespaces, some at a time so that they share the syncs of a store.
async fn fill_all(store: &Arc<dyn Store>, clock: &Arc<dyn Clock>, count: usize) {
    let ekiden = Ekiden::builder(store.clone()).clock(clock.clone()).seed(1).build();
    let mut filling = JoinSet::new();
    for number in 0..count {
        filling.spawn(fill(client(&ekiden, number), number, clock.clone()));
        if filling.len() == 64 {
            filling.join_next().await.unwrap().unwrap();
        }
    }
    filling.join_all().await;
}

struct Served {
    ekiden: Ekiden,
    seen: Arc<Seen>,
    serving: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A server over a store that was used before.
async fn serve(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    layer: impl FnOnce(Arc<dyn Queue>) -> Arc<dyn Queue>,
) -> Served {
    let (events, seen) = (Arc::new(Events::new()), Arc::new(Seen::default()));
    let builder = Ekiden::builder(store).clock(clock.clone()).seed(2).observer(seen.clone()).observer(events.clone());
    let ekiden = builder.build_around(layer);
    let server = Server::builder(ekiden.queue().clone(), events).clock(clock);
    let server = server.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let serving = tokio::spawn(server.serve(std::future::pending()));
    Served { ekiden, seen, serving }
}

/// How long a server took to take back every lease, release every child and tick every schedule.
async fn time_to_serve(store: Arc<dyn Store>, clock: Arc<dyn Clock>, count: usize) -> Duration {
    let begun = clock.monotonic();
    let served = serve(store, clock.clone(), |queue| queue).await;
    for event in [EventName::LeaseLost, EventName::DependencyMet, EventName::Enqueued] {
        let done = served.seen.until(event, count);
        let waited = tokio::time::timeout(Duration::from_secs(240), done).await;
        assert!(waited.is_ok(), "{} in {} of {count} namespaces", event.as_str(), served.seen.count(event));
    }
    clock.monotonic().saturating_sub(begun)
}

/// R19: on a clock that stands still while anybody works, so that it shows how long namespaces wait for each other, and not how fast
/// the machine is.
#[tokio::test(start_paused = true)]
async fn every_namespace_is_served_within_three_leases_however_many_there_are() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new(noon()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    fill_all(&store, &clock, MANY).await;
    pass(LEASE).await;
    let took = time_to_serve(store, clock, MANY).await;
    assert!(took <= 3 * LEASE, "{took:?}");
}

/// R19: the same on a disk and by the machine's clock; 10,000 namespaces where there is time for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_namespace_of_a_folder_is_served_within_three_leases() {
    let count = if rig::is_long() { 10_000 } else { 200 };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let open = || -> Arc<dyn Store> { Arc::new(LocalStore::open(&path, LocalOptions::default()).unwrap()) };
    let store = open();
    fill_all(&store, &clock, count).await;
    pass(LEASE).await;
    store.close().await.unwrap();
    drop(store);
    let took = time_to_serve(open(), clock, count).await;
    assert!(took <= 3 * LEASE, "{took:?}");
    let seconds = took.as_secs_f64();
    rig::keep_result(&format!(
        "maintenance of a folder: {count} namespaces with a lost lease, a schedule and a blocked child each, all served {seconds:.1} s \
         after the start, at most {} s",
        3 * LEASE.as_secs()
    ))
    .unwrap();
}

/// R19
#[tokio::test(start_paused = true)]
async fn a_lease_is_taken_back_in_time_among_thousands_of_idle_namespaces() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new(noon()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let served = idle(store, clock.clone(), |queue| queue).await;
    let late = client(&served.ekiden, MANY);
    beat(&late, &*clock).await;
    late.enqueue_raw("k", "text/plain", "").await.unwrap();
    take(&late, 1).await;
    let begun = clock.monotonic();
    let lost = served.seen.until(EventName::LeaseLost, 1);
    tokio::time::timeout(Duration::from_secs(600), lost).await.unwrap();
    let took = clock.monotonic().saturating_sub(begun);
    assert!(took >= LEASE && took <= LEASE + Duration::from_secs(1), "{took:?}");
}

/// Lets time pass: that of a clock that stands still while anybody works, but for the store on a disk, whose time is the machine's.
async fn pass(time: Duration) {
    tokio::time::timeout(time, std::future::pending::<()>()).await.unwrap_err();
}

/// A server that has been round a store with nothing due.
async fn idle(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    layer: impl FnOnce(Arc<dyn Queue>) -> Arc<dyn Queue>,
) -> Served {
    let ekiden = Ekiden::builder(store.clone()).clock(clock.clone()).seed(1).build();
    for number in 0..MANY {
        client(&ekiden, number).enqueue_raw("k", "text/plain", "").await.unwrap();
    }
    let served = serve(store, clock, layer).await;
    pass(Duration::from_secs(5)).await;
    served
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_looks_at_few_of_its_namespaces() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new(noon()));
    let gate = Gate::closed();
    let port = gate.clone();
    let _served = idle(Arc::new(MemoryStore::new()), clock, |inner| Arc::new(Port { inner, gate: port })).await;
    let before = gate.maintained();
    assert!(before >= MANY, "each was looked at once: {before}");
    pass(Duration::from_secs(60)).await;
    let looks = gate.maintained() - before;
    assert!(looks <= 61 * 64, "{looks} looks in a minute");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_hangs_or_fails_stops_no_other() {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new(noon()));
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    fill_all(&store, &clock, 20).await;
    let ekiden = Ekiden::builder(store.clone()).clock(clock.clone()).seed(3).build();
    for name in ["hangs-1", "hangs-2", "fails-1", "fails-2", "panics"] {
        ekiden.namespace(name).unwrap().enqueue_raw("k", "text/plain", "").await.unwrap();
    }
    pass(LEASE).await;
    let begun = clock.monotonic();
    let served = serve(store, clock.clone(), |inner| Arc::new(Port { inner, gate: Gate::closed() })).await;
    let lost = served.seen.until(EventName::LeaseLost, 20);
    tokio::time::timeout(Duration::from_secs(600), lost).await.unwrap();
    let took = clock.monotonic().saturating_sub(begun);
    assert!(took <= 3 * LEASE, "{took:?}");
}

#[tokio::test]
async fn names_without_anything_behind_them_leave_nothing_and_stop_no_maintenance() {
    let lab = Lab::new().await;
    let mut wire = lab.connect().await;
    let header = [("content-type", "application/json")];
    let claim = json!({"runner": "r", "task_types": ["k"]}).to_string();
    for number in 0..1_100 {
        for (path, body) in [("settlements", r#"{"settlements":[]}"#), ("claims", claim.as_str())] {
            let path = format!("/api/v1/namespaces/invented-{number}/{path}");
            // A claim is a sign of life and leaves a runner's record: a few are enough.
            if path.ends_with("claims") && number % 100 != 0 {
                continue;
            }
            wire.request(&lab, "POST", &path, &header, body.as_bytes()).await;
            assert_eq!(wire.reply().await.status, 200, "{path}");
        }
    }
    let mut events = lab.connect().await;
    events.request(&lab, "GET", "/api/v1/namespaces/n/events", &[], b"").await;
    assert_eq!(events.head().await.status, 200);
    lab.send("PUT", "/api/v1/namespaces/n/runners/r", json!({"lease_ms": 100})).await;
    lab.task().await;
    assert_eq!(lab.claim(0).await.json()["tasks"].as_array().unwrap().len(), 1);
    within(events.until("\"event\":\"lease_lost\"")).await;
    let listed = lab.get("/api/v1/namespaces?limit=1000").await.json();
    let invented = listed["items"].as_array().unwrap().iter().filter(|name| name.as_str() != Some("n"));
    assert_eq!(invented.count(), 11, "those with a runner's record");
}
