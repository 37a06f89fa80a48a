//! A runner takes tasks and runs handlers: what arrives, in which order, when, and over which port.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use ekiden::core::{EventName, OnParentFailure, Outcome, ReasonCode};
use ekiden::store::{MemoryStore, TokioClock};
use ekiden::{Context, Done, Payload, Runner, TaskError, TaskHandler, TaskState};
use lab::port::{Knobs, Port};
use lab::{Gauge, Job, Other, START, happened, lab, lab_with, ms, nothing, passes, secs, start, while_running};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{Barrier, oneshot};

/// R1: eight handlers meet, which they could not if one waited for another.
#[tokio::test(start_paused = true)]
async fn handlers_run_at_the_same_time() {
    let lab = lab();
    let barrier = Arc::new(Barrier::new(8));
    let mut ids = Vec::new();
    for n in 0..8 {
        ids.push(lab.job(n).await);
    }
    let runner = lab.runner().concurrency(8).handler(move |_: Job, _: Context| {
        let barrier = barrier.clone();
        async move {
            barrier.wait().await;
        }
    });
    while_running(runner, async {
        for id in &ids {
            lab.until(id, TaskState::Succeeded).await;
        }
    })
    .await;
    assert_eq!(lab.ms(), 0, "no time had to pass");
}

/// R1: were a lock held while a handler runs, its own requests would wait for ever.
#[tokio::test(start_paused = true)]
async fn a_handler_may_use_the_queue_that_runs_it() {
    let lab = lab();
    let parent = lab.job(3).await;
    let runner = lab.runner().concurrency(1).handler(|job: Job, context: Context| async move {
        let client = context.client();
        assert_eq!(client.get_status(&context.task().id).await?.state, TaskState::Running);
        assert_eq!(client.counts_by_state().await?.get(TaskState::Running), 1);
        if job.n > 0 {
            client.enqueue(Job { n: job.n - 1 }).await?;
        }
        client.cancel(&client.enqueue(Job { n: 0 }).held().await?.id).await?;
        Ok::<_, ekiden::Error>(())
    });
    while_running(runner, lab.until_count(TaskState::Succeeded, 4)).await;
    assert_eq!(lab.state(&parent).await, TaskState::Succeeded);
    assert_eq!(lab.count(TaskState::Cancelled).await, 4);
}

/// Payload and content type.
type Arrived = (Bytes, Arc<str>);

struct Bytewise {
    seen: Mutex<Option<oneshot::Sender<Arrived>>>,
}

#[async_trait]
impl TaskHandler for Bytewise {
    fn task_type(&self) -> &'static str {
        "bytes"
    }

    async fn execute(&self, payload: Bytes, context: Context) -> Result<Done, TaskError> {
        let envelope = &context.task().envelope;
        assert_eq!(envelope.payload, payload);
        let seen = self.seen.lock().unwrap().take().unwrap();
        seen.send((payload, envelope.content_type.clone())).unwrap();
        Done::with(&"seen")
    }
}

/// R2, R3: a handler as an object gets what was handed in, byte by byte, whatever it is.
#[tokio::test(start_paused = true)]
async fn bytes_and_content_type_arrive_unchanged() {
    let lab = lab();
    let bytes: Vec<u8> = (0..=255).collect();
    let id = lab.client.enqueue_raw("bytes", "application/x-odd; a=1", bytes.clone()).await.unwrap().id;
    let (seen, see) = oneshot::channel();
    let runner = lab.runner().task_handler(Bytewise { seen: Mutex::new(Some(seen)) });
    let record = while_running(runner, lab.until(&id, TaskState::Succeeded)).await;
    let (payload, content_type) = see.await.unwrap();
    assert_eq!(payload, bytes);
    assert_eq!(&*content_type, "application/x-odd; a=1");
    assert_eq!(record.envelope.payload, bytes);
    assert_eq!(record.result::<String>().unwrap().unwrap(), "seen");
}

/// R3: each kind finds its own handler, and a second one for a kind is refused before anything runs.
#[tokio::test(start_paused = true)]
async fn each_kind_has_one_handler() {
    let lab = lab();
    let twice = lab.runner().handler(nothing).handler(nothing).build().unwrap_err();
    assert_eq!(twice.code(), ReasonCode::HandlerTwice);
    let object = Bytewise { seen: Mutex::new(None) };
    let mixed = lab.runner().task_handler(object).task_handler(Bytewise { seen: Mutex::new(None) }).build();
    assert_eq!(mixed.unwrap_err().code(), ReasonCode::HandlerTwice);

    let (words, mut said) = unbounded_channel();
    let other_words = words.clone();
    let job = lab.job(1).await;
    let other = lab.client.enqueue(Other { n: 2 }).await.unwrap().id;
    let runner = lab
        .runner()
        .handler(move |job: Job, _: Context| {
            words.send(("job", job.n)).unwrap();
            async {}
        })
        .handler(move |other: Other, _: Context| {
            other_words.send(("other", other.n)).unwrap();
            async {}
        });
    while_running(runner, async {
        lab.until(&job, TaskState::Succeeded).await;
        lab.until(&other, TaskState::Succeeded).await;
    })
    .await;
    let mut heard = vec![said.recv().await.unwrap(), said.recv().await.unwrap()];
    heard.sort_unstable();
    assert_eq!(heard, [("job", 1), ("other", 2)]);
}

/// R3: what cannot be meant is told before anything runs.
#[tokio::test(start_paused = true)]
async fn a_runner_that_cannot_be_meant_is_refused() {
    let lab = lab();
    let code = |outcome: ekiden::Result<Runner>| outcome.unwrap_err().code();
    assert_eq!(code(lab.runner().build()), ReasonCode::RunnerInvalid, "no handler");
    let with = || lab.runner().handler(nothing);
    assert_eq!(code(with().concurrency(0).build()), ReasonCode::RunnerInvalid);
    assert_eq!(code(with().limit("job", 0).build()), ReasonCode::RunnerInvalid);
    assert_eq!(code(with().limit("nobody", 1).build()), ReasonCode::RunnerInvalid);
    assert_eq!(code(with().lease(ms(1)).build()), ReasonCode::RunnerInvalid);
    assert_eq!(code(with().lease(secs(1_000_000)).build()), ReasonCode::DurationInvalid);
    assert_eq!(code(with().poll(ms(0)).build()), ReasonCode::RunnerInvalid, "it would never rest");
    assert!(with().pool("").build().is_err());
}

/// R4, R5, R9: the record and the counts follow a task through its life.
#[tokio::test(start_paused = true)]
async fn status_and_counts_follow_a_life() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let id = lab.client.enqueue(Job { n: 1 }).delay(secs(10)).title("one").await.unwrap().id;
    let fresh = lab.status(&id).await;
    assert_eq!((fresh.state, fresh.attempts, fresh.max_attempts, fresh.execution_no), (TaskState::Queued, 0, 5, 0));
    assert_eq!((fresh.created_at, fresh.next_run_at), (START, Some(START + secs(10).into())));

    let (go, gone) = oneshot::channel::<()>();
    let gone = Mutex::new(Some(gone));
    let runner = start(lab.runner().handler(move |_: Job, context: Context| {
        let gone = gone.lock().unwrap().take();
        async move {
            match gone {
                Some(gone) => {
                    gone.await.unwrap();
                    Err(TaskError::retry_after(secs(60), "not yet"))
                }
                None => Done::with(&context.attempt()),
            }
        }
    }));
    happened(&mut changes, &id, EventName::Claimed).await;
    let running = lab.status(&id).await;
    assert_eq!((running.state, running.attempts, running.execution_no), (TaskState::Running, 1, 1));
    assert_eq!((running.started_at, running.next_run_at), (Some(START + secs(10).into()), None));
    assert!(running.runner.is_some());
    assert_eq!(lab.count(TaskState::Running).await, 1);
    go.send(()).unwrap();

    happened(&mut changes, &id, EventName::Failed).await;
    let waits = lab.status(&id).await;
    assert_eq!(
        (waits.state, waits.attempts, waits.last_error.as_deref()),
        (TaskState::RetryScheduled, 1, Some("not yet"))
    );
    assert_eq!(waits.next_run_at, Some(START + secs(70).into()));
    assert_eq!(lab.count(TaskState::RetryScheduled).await, 1);

    let done = lab.until(&id, TaskState::Succeeded).await;
    assert_eq!((done.attempts, done.execution_no, done.finished_at), (2, 2, Some(START + secs(70).into())));
    assert_eq!(done.result::<u32>().unwrap().unwrap(), 2);
    let outcomes: Vec<_> = done.recent.iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Failed), Some(Outcome::Succeeded)]);
    runner.end().await;
    let counts = lab.client.counts_by_state().await.unwrap();
    assert_eq!(counts.by_phase.len(), 9);
    assert_eq!(counts.by_phase.values().sum::<u64>(), 1);
    assert_eq!(counts.get(TaskState::Succeeded), 1);
}

/// R11: everything a runner does passes through the port that it was given.
#[tokio::test(start_paused = true)]
async fn a_runner_knows_only_the_port() {
    let knobs = Arc::new(Knobs::default());
    let store = Arc::new(MemoryStore::new());
    let lab = lab_with(store, Arc::new(TokioClock::new(START)), 7, |builder| {
        let knobs = knobs.clone();
        builder.build_around(|inner| Arc::new(Port { inner, knobs }))
    });
    let ids = [lab.job(1).await, lab.job(2).await];
    while_running(lab.runner().handler(nothing), async {
        for id in &ids {
            lab.until(id, TaskState::Succeeded).await;
        }
        passes(secs(40)).await;
    })
    .await;
    for name in ["enqueue", "dequeue_ready", "settle", "beat", "maintain", "held", "goodbye", "next_due"] {
        assert!(knobs.calls(name) > 0, "{name} was never asked for");
    }
    assert_eq!(knobs.calls("goodbye"), 1);
}

/// R11: a runner that has nothing to do asks for little, and for the same however long it waits.
#[tokio::test(start_paused = true)]
async fn an_idle_runner_is_quiet() {
    let knobs = Arc::new(Knobs::default());
    let lab = lab_with(Arc::new(MemoryStore::new()), Arc::new(TokioClock::new(START)), 7, |builder| {
        let knobs = knobs.clone();
        builder.build_around(|inner| Arc::new(Port { inner, knobs }))
    });
    while_running(lab.runner().handler(nothing), passes(secs(3_600))).await;
    for (name, most) in
        [("dequeue_ready", 3_700), ("next_due", 3_700), ("maintain", 4_900), ("beat", 490), ("signals", 1)]
    {
        assert!(knobs.calls(name) <= most, "{name}: {} in an hour", knobs.calls(name));
    }
}

/// R13: an enqueue wakes an idle runner at once; a delayed task starts to the millisecond.
#[tokio::test(start_paused = true)]
async fn an_idle_runner_is_woken_at_once_and_at_the_exact_time() {
    let lab = lab();
    let (words, mut said) = unbounded_channel();
    let clock = lab.clock.clone();
    let runner = start(lab.runner().concurrency(2).handler(move |job: Job, _: Context| {
        words.send((job.n, ekiden::store::Clock::now(&*clock))).unwrap();
        async {}
    }));
    passes(ms(12_345)).await;
    let now = lab.now();
    lab.job(1).await;
    assert_eq!(said.recv().await.unwrap(), (1, now), "not a millisecond later");

    for (n, delay) in [(4, 7_777), (2, 1_003), (3, 1_004), (5, 90_001)] {
        lab.client.enqueue(Job { n }).delay(ms(delay)).await.unwrap();
    }
    for (n, delay) in [(2, 1_003), (3, 1_004), (4, 7_777), (5, 90_001)] {
        assert_eq!(said.recv().await.unwrap(), (n, now + ms(delay).into()));
    }
    runner.end().await;
}

/// R13: also while the runner is busy with other things, no delayed task waits for a poll.
#[tokio::test(start_paused = true)]
async fn a_busy_runner_starts_delayed_tasks_on_time() {
    let lab = lab();
    let (words, mut said) = unbounded_channel();
    let clock = lab.clock.clone();
    let runner = lab.runner().concurrency(64).poll(secs(3_600)).handler(move |job: Job, _: Context| {
        words.send((job.n, ekiden::store::Clock::now(&*clock))).unwrap();
        passes(ms(job.n % 7))
    });
    let runner = start(runner);
    for n in 1..=200 {
        lab.client.enqueue(Job { n }).delay(ms(n * 13)).await.unwrap();
    }
    for n in 1..=200 {
        assert_eq!(said.recv().await.unwrap(), (n, START + ms(n * 13).into()));
    }
    runner.end().await;
}

/// A task of nearly the largest size.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Large {
    text: String,
}

impl Payload for Large {
    const TASK_TYPE: &'static str = "large";
}

/// C11: a claim gives fewer tasks when they are large. The others do not wait for a poll while there is room.
#[tokio::test(start_paused = true)]
async fn large_tasks_that_one_claim_leaves_are_started_at_once() {
    let lab = lab();
    for _ in 0..40 {
        lab.client.enqueue(Large { text: "x".repeat(250_000) }).await.unwrap();
    }
    let (words, mut said) = unbounded_channel();
    let runner = start(lab.runner().concurrency(64).poll(secs(3_600)).handler(move |_: Large, _: Context| {
        words.send(()).unwrap();
        passes(secs(7_200))
    }));
    for started in 0..40 {
        let next = tokio::time::timeout(secs(60), said.recv()).await;
        assert!(next.is_ok(), "{started} of 40 tasks run");
    }
    runner.end().await;
}

/// R21: parents first, then their children; what a failed parent means is the child's to say.
#[tokio::test(start_paused = true)]
async fn children_run_after_their_parents() {
    let lab = lab();
    let (words, mut said) = unbounded_channel();
    let a = lab.job(1).await;
    let b = lab.client.enqueue(Job { n: 2 }).delay(secs(5)).await.unwrap().id;
    let c = lab.client.enqueue(Job { n: 3 }).depends_on([&a, &b]).await.unwrap().id;
    let doomed = lab.client.enqueue(Job { n: 100 }).await.unwrap().id;
    let blocked = lab.client.enqueue(Job { n: 4 }).depends_on([&doomed]).await.unwrap().id;
    let stubborn = lab.client.enqueue(Job { n: 5 }).depends_on([&doomed]).on_parent_failure(OnParentFailure::Run);
    let stubborn = stubborn.await.unwrap().id;
    let given_up = lab.client.enqueue(Job { n: 6 }).depends_on([&doomed]).on_parent_failure(OnParentFailure::Cancel);
    let given_up = given_up.await.unwrap().id;
    assert_eq!(lab.state(&c).await, TaskState::Blocked);
    let runner = lab.runner().handler(move |job: Job, _: Context| {
        words.send(job.n).unwrap();
        async move { if job.n == 100 { Err(TaskError::permanent("doomed")) } else { Ok(()) } }
    });
    while_running(runner, async {
        lab.until(&c, TaskState::Succeeded).await;
        lab.until(&stubborn, TaskState::Succeeded).await;
        lab.until(&given_up, TaskState::Cancelled).await;
    })
    .await;
    assert_eq!(lab.ms(), 5_000, "no poll between a parent's end and its child");
    assert_eq!(lab.state(&blocked).await, TaskState::Blocked);
    assert_eq!(lab.client.explain(&blocked).await.unwrap().reasons[0].code, ReasonCode::DependencyFailed);
    let mut order = Vec::new();
    while let Some(n) = said.recv().await {
        order.push(n);
    }
    assert!(order.ends_with(&[2, 3]) && !order.contains(&4) && !order.contains(&6), "{order:?}");
}

/// R21: higher priorities first, then the older ones; delayed ones when their time has come.
#[tokio::test(start_paused = true)]
async fn tasks_run_by_priority_then_age() {
    let lab = lab();
    let (words, mut said) = unbounded_channel();
    for (n, priority) in [(1, 0), (2, -10), (3, 20), (4, 0), (5, 10), (6, 20)] {
        passes(ms(1)).await;
        lab.client.enqueue(Job { n }).priority(priority).await.unwrap();
    }
    lab.client.enqueue(Job { n: 7 }).priority(100).delay(ms(250)).await.unwrap();
    let runner = lab.runner().concurrency(1).handler(move |job: Job, _: Context| {
        words.send(job.n).unwrap();
        passes(ms(100))
    });
    while_running(runner, lab.until_count(TaskState::Succeeded, 7)).await;
    let mut order = Vec::new();
    while let Some(n) = said.recv().await {
        order.push(n);
    }
    assert_eq!(order, [3, 6, 5, 7, 1, 4, 2]);
}

/// R21: dead tasks keep their payload and can be run again, one by one and all that match.
#[tokio::test(start_paused = true)]
async fn dead_tasks_keep_their_payload_and_run_again() {
    let lab = lab();
    let mended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let fixed = mended.clone();
    let runner = start(lab.runner().handler(move |_: Job, _: Context| {
        let fixed = fixed.load(Ordering::SeqCst);
        async move { if fixed { Ok(()) } else { Err(TaskError::permanent("broken")) } }
    }));
    let mut ids = Vec::new();
    for n in 0..60 {
        ids.push(lab.client.enqueue(Job { n }).group("g").await.unwrap().id);
    }
    lab.until_count(TaskState::Dead, 60).await;
    let dead = lab.client.list(lab.in_state(&[TaskState::Dead]), None, 100).await.unwrap();
    assert_eq!(dead.items.len(), 60);
    assert!(dead.items.iter().all(|record| !record.envelope.payload.is_empty()));

    mended.store(true, Ordering::SeqCst);
    let again = lab.client.retry(&ids[0]).await.unwrap();
    assert_eq!(again.retry_of.as_ref(), Some(&ids[0]));
    assert_eq!(again.envelope, lab.status(&ids[0]).await.envelope);
    lab.until(&again.id, TaskState::Succeeded).await;

    let sweep = lab.client.retry_all(lab.in_state(&[TaskState::Dead])).await.unwrap();
    lab.until_count(TaskState::Succeeded, 60).await;
    passes(secs(5)).await;
    assert!(lab.client.bulk(&sweep.id).await.unwrap().is_none(), "the sweep has ended");
    assert_eq!(lab.count(TaskState::Succeeded).await, 60, "each once, also the one that was retried by hand");
    runner.end().await;
}

/// R22: a kind that nobody handles is not claimed, and the reason can be read.
#[tokio::test(start_paused = true)]
async fn a_kind_that_nobody_handles_waits_and_says_so() {
    let lab = lab();
    let id = lab.client.enqueue(Other { n: 1 }).await.unwrap().id;
    let elsewhere = lab.client.enqueue(Job { n: 1 }).pool("elsewhere").await.unwrap().id;
    let runner = start(lab.runner().handler(nothing));
    passes(secs(100)).await;
    for id in [&id, &elsewhere] {
        let why = lab.client.explain(id).await.unwrap();
        assert_eq!((why.record.state, why.record.execution_no), (TaskState::Queued, 0));
        assert_eq!(why.reasons[0].code, ReasonCode::NoHandler);
    }
    let helper = start(lab.runner().pool("elsewhere").handler(nothing).handler(|_: Other, _: Context| async {}));
    lab.until(&elsewhere, TaskState::Succeeded).await;
    assert_eq!(lab.state(&id).await, TaskState::Queued, "its pool is another");
    runner.end().await;
    helper.end().await;
}

/// R1: a thousand tasks pass through one runner, each once.
#[tokio::test(start_paused = true)]
async fn a_thousand_tasks_run_once_each() {
    let lab = lab();
    let gauge = Gauge::default();
    let inside = gauge.clone();
    let tasks: Vec<_> = (0..1_000).map(|n| lab.client.enqueue(Job { n })).collect();
    assert!(lab.client.enqueue_all(tasks).await.iter().all(Result::is_ok));
    let runner = lab.runner().concurrency(50).handler(move |_: Job, _: Context| {
        let inside = inside.enter();
        async move {
            passes(ms(10)).await;
            drop(inside);
        }
    });
    while_running(runner, lab.until_count(TaskState::Succeeded, 1_000)).await;
    assert_eq!((gauge.all(), gauge.most()), (1_000, 50));
    assert_eq!(lab.ms(), 200, "no slot was ever left empty");
}
