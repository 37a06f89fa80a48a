//! How runners and attempts end: gently, at once, dropped, cancelled, blocked, and with a store that does not answer.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ekiden::core::{EventName, Outcome, ReasonCode, RunnerStatus};
use ekiden::store::{MemoryStore, TokioClock};
use ekiden::{Context, Done, Ekiden, Ended, Io, Runner, TaskError, TaskHandler, TaskState};
use lab::port::{Knobs, Port};
use lab::shop::Shop;
use lab::{Gauge, Job, Lab, START, happened, lab, lab_on, lab_with, ms, nothing, passes, secs, start};
use tokio::sync::mpsc::unbounded_channel;

/// R17: no new claims, and what runs may finish within the grace.
#[tokio::test(start_paused = true)]
async fn a_gentle_end_lets_handlers_finish() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let running = lab.job(1).await;
    let runner = start(lab.runner().concurrency(4).grace(secs(30)).handler(|_: Job, context: Context| async move {
        passes(secs(20)).await;
        assert!(!context.is_cancelled(), "it has its grace");
    }));
    happened(&mut changes, &running, EventName::Claimed).await;
    runner.stop.gently();
    let late = lab.job(2).await;
    let ended = runner.end().await;
    assert_eq!(lab.ms(), 20_000, "not longer than needed");
    assert_eq!((ended.settled, ended.handed_back.len(), ended.unsettled.len()), (1, 0, 0));
    assert_eq!(lab.state(&running).await, TaskState::Succeeded);
    assert_eq!(lab.status(&late).await.execution_no, 0, "it was not claimed");
    assert!(lab.client.runners().await.unwrap().iter().all(|runner| runner.status != RunnerStatus::Running));
}

/// R17: after the grace what runs is interrupted: claimable again, no attempt spent, and said so.
#[tokio::test(start_paused = true)]
async fn what_outlasts_the_grace_is_handed_back() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let id = lab.job(1).await;
    let told = Arc::new(AtomicBool::new(false));
    let tell = told.clone();
    let runner = start(lab.runner().grace(secs(30)).handler(move |_: Job, context: Context| {
        let tell = tell.clone();
        tokio::spawn(async move {
            context.cancelled().await;
            tell.store(true, Ordering::SeqCst);
        });
        std::future::pending::<()>()
    }));
    happened(&mut changes, &id, EventName::Claimed).await;
    let ended = runner.end().await;
    assert_eq!(lab.ms(), 30_000);
    assert_eq!((ended.handed_back, ended.unsettled.len()), (vec![id.clone()], 0));
    let record = lab.status(&id).await;
    assert_eq!((record.state, record.attempts, record.execution_no), (TaskState::Queued, 0, 1));
    assert_eq!(record.outcomes.interrupted, 1);
    assert!(told.load(Ordering::SeqCst), "spawned work heard of it");

    let next = start(lab.runner().handler(nothing));
    let done = lab.until(&id, TaskState::Succeeded).await;
    assert_eq!((done.attempts, done.execution_no), (1, 2));
    next.end().await;
}

/// R17: a second word ends at once, whatever the grace is.
#[tokio::test(start_paused = true)]
async fn an_end_at_once_waits_for_nobody() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let id = lab.job(1).await;
    let runner = start(lab.runner().grace(secs(3_600)).handler(|_: Job, _: Context| std::future::pending::<()>()));
    happened(&mut changes, &id, EventName::Claimed).await;
    runner.stop.gently();
    passes(secs(5)).await;
    let ended = runner.end_at_once().await;
    assert_eq!(lab.ms(), 5_000);
    assert_eq!(ended.handed_back, std::slice::from_ref(&id));
    assert_eq!(lab.state(&id).await, TaskState::Queued);
}

/// R17: who drops the run ends it at once; what ran is claimable, and nothing more is claimed.
#[tokio::test(start_paused = true)]
async fn a_dropped_run_hands_back_what_it_held() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let id = lab.job(1).await;
    let gauge = Gauge::default();
    let inside = gauge.clone();
    let runner = start(lab.runner().concurrency(2).handler(move |_: Job, _: Context| {
        let inside = inside.enter();
        async move {
            std::future::pending::<()>().await;
            drop(inside);
        }
    }));
    happened(&mut changes, &id, EventName::Claimed).await;
    passes(ms(10)).await;
    runner.run.abort();
    happened(&mut changes, &id, EventName::Interrupted).await;
    let later = lab.job(2).await;
    passes(secs(60)).await;
    assert_eq!(lab.status(&id).await.attempts, 0);
    assert_eq!((lab.state(&later).await, gauge.all(), gauge.inside()), (TaskState::Queued, 1, 0));
}

/// R17: a settlement that is on its way when the grace ends is not lost.
#[tokio::test(start_paused = true)]
async fn an_end_that_is_being_written_survives_the_end_of_the_grace() {
    let faults = ekiden::store::layers::Faults { delay_max: secs(2), ..Default::default() };
    for seed in 0..30 {
        let store = Arc::new(ekiden::store::layers::Faulty::new(MemoryStore::new(), faults, seed));
        let lab = lab_on(store, seed);
        let mut changes = lab.client.subscribe().await.unwrap();
        let id = lab.job(1).await;
        let runner = start(lab.runner().lease(secs(300)).grace(secs(10)).handler(|_: Job, _: Context| passes(secs(9))));
        happened(&mut changes, &id, EventName::Claimed).await;
        let ended = runner.end().await;
        let record = lab.status(&id).await;
        assert_ne!(record.state, TaskState::Running, "seed {seed}: {ended:?}");
        assert_eq!((ended.settled, ended.unsettled.len()), (1, 0), "seed {seed}");
    }
}

/// R15, R17: a handler that blocks its thread cannot be dropped; its task goes to others all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_handler_does_not_keep_its_task() {
    let client = Ekiden::builder(Arc::new(MemoryStore::new())).seed(7).build().namespace("default").unwrap();
    let mut changes = client.subscribe().await.unwrap();
    let id = client.enqueue(Job { n: 1 }).await.unwrap().id;
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let builder = Runner::builder(&client).grace(ms(20)).cancel_grace(ms(20));
    let runner = builder.handler(move |_: Job, _: Context| {
        let blocked = blocked.clone();
        async move {
            // Ends when the test does, or after a time that no machine needs.
            let _ = blocked.lock().unwrap().recv_timeout(secs(60));
        }
    });
    let runner = start(runner);
    happened(&mut changes, &id, EventName::Claimed).await;
    let ended = runner.end().await;
    let record = client.get_status(&id).await.unwrap();
    assert_eq!((ended.handed_back, ended.unsettled.len()), (vec![id], 0));
    assert_eq!((record.state, record.attempts), (TaskState::Queued, 0));
    drop(release);
}

/// Blocks its thread until the runner stops, lets other tasks of the runtime run, and blocks it again.
struct BlocksTwice {
    entered: Mutex<Option<tokio::sync::oneshot::Sender<()>>>,
    release: Mutex<mpsc::Receiver<()>>,
}

#[async_trait]
impl TaskHandler for BlocksTwice {
    fn task_type(&self) -> &str {
        "job"
    }

    fn stop_within(&self) -> Duration {
        secs(2)
    }

    async fn execute(&self, _: Bytes, context: Context) -> Result<Done, TaskError> {
        self.entered.lock().unwrap().take().expect("one task").send(()).unwrap();
        while !context.is_cancelled() {
            std::thread::yield_now();
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        // Ends when the test does, or after a time that no machine needs.
        let _ = self.release.lock().unwrap().recv_timeout(secs(60));
        Ok(Done::Succeeded(None))
    }
}

/// R17: what the runner says it handed back does not depend on a thread of the handlers being free at its end.
#[tokio::test]
async fn a_runner_tells_what_it_handed_back_although_a_handler_blocks_its_thread() {
    let client = Ekiden::builder(Arc::new(MemoryStore::new())).seed(7).build().namespace("default").unwrap();
    let mut changes = client.subscribe().await.unwrap();
    let id = client.enqueue(Job { n: 1 }).await.unwrap().id;
    let (release, released) = mpsc::channel::<()>();
    let (entered, inside) = tokio::sync::oneshot::channel();
    let handler = BlocksTwice { entered: Mutex::new(Some(entered)), release: Mutex::new(released) };
    let elsewhere = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let builder = Runner::builder(&client).grace(ms(20)).cancel_grace(ms(20)).task_handler(handler);
    let runner = builder.build().unwrap();
    let stop = runner.stop();
    let run = elsewhere.spawn(runner.run_until_stopped());
    inside.await.unwrap();
    stop.gently();
    happened(&mut changes, &id, EventName::Interrupted).await;
    let is_gone = async {
        while client.runners().await.unwrap().iter().any(|runner| runner.status == RunnerStatus::Running) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(secs(30), is_gone).await.expect("the runner says goodbye");
    release.send(()).unwrap();
    let ended = run.await.unwrap().unwrap();
    assert_eq!((ended.handed_back, ended.unsettled.len()), (vec![id], 0));
    elsewhere.shutdown_background();
}

/// R16: a blocked handler that runs out of time is settled without it; its slot stays taken until it returns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocked_handler_times_out_all_the_same() {
    let client = Ekiden::builder(Arc::new(MemoryStore::new())).seed(7).build().namespace("default").unwrap();
    let mut changes = client.subscribe().await.unwrap();
    let id = client.enqueue(Job { n: 0 }).timeout(ms(50)).max_attempts(1).await.unwrap().id;
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let builder = Runner::builder(&client).concurrency(1).cancel_grace(ms(20));
    let runner = start(builder.handler(move |job: Job, _: Context| {
        let blocked = blocked.clone();
        async move {
            if job.n == 0 {
                let _ = blocked.lock().unwrap().recv_timeout(secs(60));
            }
        }
    }));
    let timed_out = happened(&mut changes, &id, EventName::TimedOut);
    tokio::time::timeout(secs(30), timed_out).await.expect("its end is written while it blocks its thread");
    let record = client.get_status(&id).await.unwrap();
    assert_eq!((record.state, record.recent[0].outcome), (TaskState::Dead, Some(Outcome::TimedOut)));
    let next = client.enqueue(Job { n: 1 }).await.unwrap().id;
    release.send(()).unwrap();
    happened(&mut changes, &next, EventName::Succeeded).await;
    runner.end().await;
}

/// R15, R16: one handler blocks the only thread. Its time limit holds all the same, and its runner takes nothing that it could
/// not start, so that others can.
#[tokio::test]
async fn a_runner_without_a_free_thread_keeps_time_limits_and_takes_nothing() {
    let client = Ekiden::builder(Arc::new(MemoryStore::new())).seed(7).build().namespace("default").unwrap();
    let mut changes = client.subscribe().await.unwrap();
    // Long enough for many looks at whether there is something to do, and for a second task before it is over.
    let blocking = client.enqueue(Job { n: 0 }).timeout(ms(500)).max_attempts(1).await.unwrap().id;
    let (release, blocked) = mpsc::channel::<()>();
    let (entered, inside) = tokio::sync::oneshot::channel();
    let calls = Mutex::new(Some((entered, blocked)));
    let elsewhere = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let builder = Runner::builder(&client).name("blocked").concurrency(4).cancel_grace(ms(20));
    let runner = builder.handler(move |_: Job, _: Context| {
        let call = calls.lock().unwrap().take();
        async move {
            let (entered, blocked) = call.expect("it runs one task only");
            entered.send(()).unwrap();
            // Ends when the test does, or after a time that no machine needs.
            let _ = blocked.recv_timeout(secs(60));
        }
    });
    let runner = runner.build().unwrap();
    let stop = runner.stop();
    let run = elsewhere.spawn(runner.run_until_stopped());
    inside.await.unwrap();
    let waiting = client.enqueue(Job { n: 1 }).await.unwrap().id;
    let timed_out = happened(&mut changes, &blocking, EventName::TimedOut);
    tokio::time::timeout(secs(30), timed_out).await.expect("its end is written while it blocks its thread");
    assert_eq!(client.get_status(&blocking).await.unwrap().state, TaskState::Dead);
    assert_eq!(client.get_status(&waiting).await.unwrap().execution_no, 0, "nobody who cannot run it took it");

    let other = start(Runner::builder(&client).name("free").handler(nothing));
    let done = client.wait(&waiting).await.unwrap();
    assert_eq!((done.state, done.execution_no), (TaskState::Succeeded, 1));
    other.end().await;
    stop.gently();
    release.send(()).unwrap();
    let ended = run.await.unwrap().unwrap();
    assert_eq!((ended.settled, ended.handed_back.len(), ended.unsettled.len()), (1, 0, 0));
    elsewhere.shutdown_background();
}

/// R17: a store that never answers again keeps no runner from ending.
#[tokio::test(start_paused = true)]
async fn a_silent_store_keeps_no_runner_from_ending() {
    for at_once in [true, false] {
        let shop = Arc::new(Shop::default());
        let lab = lab_on(shop.clone(), 7);
        let mut changes = lab.client.subscribe().await.unwrap();
        let id = lab.job(1).await;
        let gauge = Gauge::default();
        let inside = gauge.clone();
        let runner = start(lab.runner().grace(secs(30)).handler(move |_: Job, _: Context| {
            let inside = inside.enter();
            async move {
                std::future::pending::<()>().await;
                drop(inside);
            }
        }));
        happened(&mut changes, &id, EventName::Claimed).await;
        passes(ms(1)).await;
        shop.shut();
        passes(secs(3)).await;
        let before = lab.ms();
        let ended = if at_once { runner.end_at_once().await } else { runner.end().await };
        let took = lab.ms() - before;
        assert!(took <= if at_once { 10_000 } else { 46_000 }, "at once: {at_once}, took {took} ms");
        assert_eq!((ended.settled, ended.unsettled), (0, vec![id]), "it says what it leaves behind");
        passes(ms(1)).await;
        assert_eq!(gauge.inside(), 0, "its handlers went with it");
    }
}

/// R16: time limits hold while the store is silent.
#[tokio::test(start_paused = true)]
async fn a_silent_store_suspends_no_time_limit() {
    let shop = Arc::new(Shop::default());
    let lab = lab_on(shop.clone(), 7);
    let mut changes = lab.client.subscribe().await.unwrap();
    let id = lab.client.enqueue(Job { n: 1 }).timeout(secs(10)).await.unwrap().id;
    let (words, mut said) = unbounded_channel();
    let runner = start(lab.runner().handler(move |_: Job, context: Context| {
        let words = words.clone();
        tokio::spawn(async move {
            context.cancelled().await;
            words.send(()).unwrap();
        });
        std::future::pending::<()>()
    }));
    happened(&mut changes, &id, EventName::Claimed).await;
    shop.shut();
    said.recv().await.unwrap();
    assert_eq!(lab.ms(), 10_000);
    runner.end_at_once().await;
}

/// R17: a runner that is stopped before the store ever answered ends.
#[tokio::test(start_paused = true)]
async fn a_runner_that_never_began_can_end() {
    let shop = Arc::new(Shop::default());
    shop.shut();
    let lab = lab_on(shop, 7);
    let runner = start(lab.runner().handler(nothing));
    passes(secs(5)).await;
    assert_eq!(runner.end().await.settled, 0);
}

/// R17: a cancel is told at once, and within a second when every wake-up is lost.
#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_the_handler_within_a_second() {
    for (deaf, most) in [(false, 0), (true, 1_000)] {
        let knobs = Arc::new(Knobs::default());
        knobs.deaf.store(deaf, Ordering::SeqCst);
        let lab = lab_with(Arc::new(MemoryStore::new()), Arc::new(TokioClock::new(START)), 7, |builder| {
            builder.build_around(|inner| Arc::new(Port { inner, knobs }))
        });
        let mut changes = lab.client.subscribe().await.unwrap();
        let id = lab.job(1).await;
        let (words, mut said) = unbounded_channel();
        let runner = start(lab.runner().handler(move |_: Job, context: Context| {
            let words = words.clone();
            async move {
                context.cancelled().await;
                words.send(()).unwrap();
            }
        }));
        happened(&mut changes, &id, EventName::Claimed).await;
        passes(ms(2_345)).await;
        let before = lab.ms();
        let record = lab.client.cancel(&id).await.unwrap();
        assert_eq!(record.state, TaskState::Cancelled, "final at once");
        said.recv().await.unwrap();
        assert!(lab.ms() - before <= most, "deaf: {deaf}, {} ms", lab.ms() - before);
        let told = lab.ms();
        happened(&mut changes, &id, EventName::AttemptEnded).await;
        assert_eq!((lab.ms(), lab.status(&id).await.outcomes.cancelled), (told, 1), "its end is written at once");
        runner.end().await;
    }
}

/// R20, R17: a cancelled handler has its grace, then it is dropped; the next of its lane begins only then.
#[tokio::test(start_paused = true)]
async fn the_next_of_a_lane_waits_until_the_cancelled_attempt_has_ended() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let first = lab.client.enqueue(Job { n: 0 }).serial_key("k").await.unwrap().id;
    let second = lab.client.enqueue(Job { n: 1 }).serial_key("k").await.unwrap().id;
    let gauge = Gauge::default();
    let inside = gauge.clone();
    let runner = start(lab.runner().concurrency(4).cancel_grace(secs(7)).handler(move |job: Job, _: Context| {
        let inside = inside.enter();
        async move {
            if job.n == 0 {
                std::future::pending::<()>().await;
            }
            drop(inside);
        }
    }));
    happened(&mut changes, &first, EventName::Claimed).await;
    passes(ms(1)).await;
    lab.client.cancel(&first).await.unwrap();
    let done = lab.until(&second, TaskState::Succeeded).await;
    assert_eq!((lab.ms(), gauge.most()), (7_001, 1), "dropped after its grace, and then the next one");
    assert_eq!(done.execution_no, 1);
    runner.end().await;
}

/// Runs a task until this request panics, and says how the runner ended.
async fn end_by_panic(lab: &Lab, knobs: &Knobs, request: &'static str) -> ekiden::Result<Ended> {
    let mut changes = lab.client.subscribe().await.unwrap();
    let id = lab.job(1).await;
    let runner = start(lab.runner().concurrency(2).handler(|_: Job, context: Context| async move {
        while !context.is_cancelled() {
            context.progress(1, 2);
            passes(ms(100)).await;
        }
        std::future::pending::<()>().await;
    }));
    happened(&mut changes, &id, EventName::Claimed).await;
    *knobs.panics.lock().unwrap() = Some(request);
    // Something for the engine to claim.
    lab.job(2).await;
    let ended = tokio::time::timeout(secs(60), runner.run).await.expect("it ends").unwrap();
    *knobs.panics.lock().unwrap() = None;
    let record = lab.status(&id).await;
    assert_eq!((record.state, record.attempts), (TaskState::Queued, 0), "{request}: it was handed back");
    assert!(lab.client.runners().await.unwrap().iter().all(|runner| runner.status != RunnerStatus::Running));
    ended
}

/// R16, R17: no runner lives on without one of its parts. It says which failed, and hands back what it held.
#[tokio::test(start_paused = true)]
async fn a_part_that_panics_ends_the_runner() {
    let parts = [
        ("pulse", "beat"),
        ("reporter", "report"),
        ("warden", "signals"),
        ("upkeep", "maintain"),
        ("engine", "dequeue_ready"),
    ];
    for (part, request) in parts {
        let knobs = Arc::new(Knobs::default());
        let lab = lab_with(Arc::new(MemoryStore::new()), Arc::new(TokioClock::new(START)), 7, |builder| {
            let knobs = knobs.clone();
            builder.build_around(|inner| Arc::new(Port { inner, knobs }))
        });
        let error = end_by_panic(&lab, &knobs, request).await.unwrap_err();
        assert_eq!(error.code(), ReasonCode::RunnerFailed);
        let context = &error.refusal().context;
        assert_eq!(context.get("part").map(String::as_str), Some(part), "{error}");
        assert!(context.get("why").unwrap().contains("as the test wanted"), "{error}");
    }
}

/// R16, R17: nor without its engine where that is driven beside the handlers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_panics_beside_its_handlers_ends_the_runner() {
    let knobs = Arc::new(Knobs::default());
    let lab = lab_with(Arc::new(MemoryStore::new()), Arc::new(TokioClock::new(START)), 7, |builder| {
        let knobs = knobs.clone();
        builder.io(Io::OwnThread).build_around(|inner| Arc::new(Port { inner, knobs }))
    });
    let error = end_by_panic(&lab, &knobs, "dequeue_ready").await.unwrap_err();
    assert_eq!(error.refusal().context.get("part").map(String::as_str), Some("engine"), "{error}");
}

/// R17: a grace that never ends is no reason to panic.
#[tokio::test(start_paused = true)]
async fn endless_graces_are_taken_as_meant() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let id = lab.job(1).await;
    let timed = lab.client.enqueue(Job { n: 1 }).timeout(secs(5)).max_attempts(1).await.unwrap().id;
    let runner = lab.runner().concurrency(2).grace(Duration::MAX).cancel_grace(Duration::MAX);
    let runner = start(runner.handler(|_: Job, context: Context| async move { context.cancelled().await }));
    happened(&mut changes, &id, EventName::Claimed).await;
    lab.client.cancel(&id).await.unwrap();
    happened(&mut changes, &id, EventName::AttemptEnded).await;
    lab.until(&timed, TaskState::Dead).await;
    runner.end().await;
}
