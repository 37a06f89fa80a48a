//! Claims that stand where tasks are handed in: served in the same request, given back when their owner is gone.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use ekiden_core::newer::Newer;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use ekiden::core::{
    EventName, Kind, Millis, Namespace, OpId, PoolName, Runner, RunnerId, RunnerStatus, TaskEnvelope, TaskId,
};
use ekiden::store::{Address, Clock, MemoryStore, SystemClock};
use ekiden::{Ask, Ekiden, Heard, NewTask, Queue, Settlement, TaskRef, TaskState, Verdict};

fn namespace() -> Namespace {
    Namespace::new("default").unwrap()
}

fn pool() -> PoolName {
    PoolName::new("default").unwrap()
}

fn kind() -> Kind {
    Kind::new("job").unwrap()
}

fn task(name: &str) -> NewTask {
    let task = TaskRef { namespace: namespace(), id: TaskId::new(name).unwrap() };
    NewTask::new(task, pool(), TaskEnvelope::json(kind(), "{}"))
}

/// A queue, and what a living runner asks of it.
async fn queue_and_ask(ekiden: &Ekiden) -> (Arc<dyn Queue>, Ask) {
    let queue = ekiden.queue().clone();
    let holder = RunnerId::new("runner-1").unwrap();
    let now = SystemClock.now();
    let runner = Runner {
        namespace: namespace(),
        id: holder.clone(),
        started_at: now,
        last_heartbeat: now,
        status: RunnerStatus::Running,
        lease: Millis::from_secs(30),
        project_root: String::new(),
        pools: vec![pool()],
        kinds: vec![kind()],
        newer: Newer::NONE,
    };
    queue.beat(runner).await.unwrap();
    // Settings of a pool are known once somebody asked.
    queue.pool(namespace(), pool()).await.unwrap();
    let ask = Ask {
        id: OpId::from_bits(1),
        namespace: namespace(),
        pools: [pool()].into(),
        kinds: [kind()].into(),
        limit: 2,
        holder,
    };
    (queue, ask)
}

/// R13: who stands and waits is given what is handed in, without a look of its own, and everybody hears of both changes.
#[tokio::test]
async fn a_claim_that_stands_is_served_by_the_enqueue() {
    let ekiden = Ekiden::builder(Arc::new(MemoryStore::new())).build();
    let (queue, ask) = queue_and_ask(&ekiden).await;
    let bell = queue.bell(&namespace());
    let mut changes = queue.subscribe(namespace()).await.unwrap();
    let mut stand = bell.stands.join(ask);
    let rung = bell.ready.heard();
    for outcome in queue.enqueue(vec![task("a"), task("b"), task("c")]).await {
        assert!(outcome.unwrap().is_new);
    }
    let leased = stand.served().await;
    let ids: Vec<_> = leased.iter().map(|leased| leased.spec.id.as_str()).collect();
    assert_eq!(ids, ["a", "b"], "as many as were asked for, in order");
    assert_ne!(bell.ready.heard(), rung, "somebody else may want the third");
    let mut heard = Vec::new();
    while heard.len() < 5 {
        let Some(Heard::Change(change)) = changes.next().await else { panic!("missed a change") };
        heard.push((change.id.as_str().to_owned(), change.event.unwrap()));
    }
    let enqueued = ["a", "b", "c"].map(|id| (id.to_owned(), EventName::Enqueued));
    let claimed = ["a", "b"].map(|id| (id.to_owned(), EventName::Claimed));
    assert_eq!(heard, [&enqueued[..], &claimed[..]].concat());

    // One that is taken at once rings for nobody.
    let rung = bell.ready.heard();
    let ask = Ask { id: OpId::from_bits(2), limit: 9, ..queue_and_ask(&ekiden).await.1 };
    let mut stand = bell.stands.join(ask);
    queue.enqueue(vec![task("d")]).await.remove(0).unwrap();
    assert_eq!(stand.served().await.len(), 2, "the third, which was left over, and the new one");
    assert_eq!(bell.ready.heard(), rung);
}

/// R13, R19: a task that was taken for somebody who went away meanwhile goes back at once, with no attempt spent.
#[tokio::test]
async fn what_was_taken_for_somebody_who_went_away_goes_back() {
    let folder = tempfile::tempdir().unwrap();
    let address: Address = format!("local:{}", folder.path().join("data").display()).parse().unwrap();
    let ekiden = Ekiden::builder(address.open().await.unwrap()).build();
    let (queue, ask) = queue_and_ask(&ekiden).await;
    let bell = queue.bell(&namespace());
    let stand = bell.stands.join(ask.clone());
    let mut enqueue = pin!(queue.enqueue(vec![task("a")]));
    let first = poll_fn(|context| Poll::Ready(enqueue.as_mut().poll(context))).await;
    assert!(first.is_pending(), "a durable store syncs first");
    drop(stand);
    enqueue.await.remove(0).unwrap();
    let status = queue.get_status(TaskRef { namespace: namespace(), id: TaskId::new("a").unwrap() }).await.unwrap();
    assert_eq!((status.state, status.attempts), (TaskState::Queued, 0));

    // And whoever asks next gets it, with a token of its own.
    let leased = queue.dequeue_ready(Ask { id: OpId::from_bits(2), ..ask }).await.unwrap();
    assert_eq!(leased[0].lease.token.0, 2);
    let end = Settlement { id: OpId::from_bits(3), lease: leased[0].lease.clone(), verdict: Verdict::Succeeded(None) };
    assert_eq!(queue.settle(vec![end], None).await.settled.remove(0).unwrap().state, TaskState::Succeeded);
    ekiden.close().await.unwrap();
}

/// R13, R19: a task that was handed to a claim whose owner went away before taking it goes to the next claim.
#[tokio::test]
async fn a_task_of_a_claim_whose_owner_went_away_goes_to_the_next_claim() {
    let ekiden = Ekiden::builder(Arc::new(MemoryStore::new())).build();
    let (queue, ask) = queue_and_ask(&ekiden).await;
    let bell = queue.bell(&namespace());
    let stand = bell.stands.join(ask.clone());
    queue.enqueue(vec![task("a")]).await.remove(0).unwrap();
    let status = async || queue.get_status(TaskRef { namespace: namespace(), id: TaskId::new("a").unwrap() }).await;
    assert_eq!(status().await.unwrap().state, TaskState::Running, "it was handed over");
    drop(stand);
    let leased = queue.dequeue_ready(Ask { id: OpId::from_bits(2), ..ask }).await.unwrap();
    assert_eq!((leased.len(), leased[0].lease.token.0, leased[0].attempts), (1, 2, 1));
}

/// R13: what may not run yet is handed to nobody.
#[tokio::test]
async fn a_claim_that_stands_is_not_given_what_is_not_due() {
    let ekiden = Ekiden::builder(Arc::new(MemoryStore::new())).build();
    let (queue, ask) = queue_and_ask(&ekiden).await;
    let bell = queue.bell(&namespace());
    let stand = bell.stands.join(ask);
    let mut later = task("later");
    later.when = ekiden::When::After(Millis::from_secs(60));
    let mut held = task("held");
    held.start = ekiden::core::Start::Held;
    for outcome in queue.enqueue(vec![later, held]).await {
        outcome.unwrap();
    }
    assert!(stand.leave().await.is_empty());
}
