//! Leases: signs of life while handlers block, silent runners, fencing, clocks that jump, and several processes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use ekiden::core::{EventName, Overlap, ReasonCode, TaskId, Token};
use ekiden::store::{Clock, MemoryStore, SystemClock};
use ekiden::{Context, Ekiden, Ended, LeaseRef, Runner, StopReason, TaskState};
use lab::port::{Knobs, Port};
use lab::{Gauge, Job, Lab, START, happened, lab, lab_with, ms, nothing, passes, secs, start};
use tokio::sync::mpsc::unbounded_channel;

/// R15: twice as many handlers as there are worker threads block them for five leases each. Beats go on: no lease is lost,
/// and no two acknowledged beats are further apart than a third of a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_handlers_stall_no_beat() {
    const HANDLERS: usize = 4;
    // Long enough that the pauses of a busy machine are small against a third of it.
    let lease = ms(1_800);
    let knobs = Arc::new(Knobs::default());
    let seen = knobs.clone();
    let ekiden = Ekiden::builder(Arc::new(MemoryStore::new())).seed(7);
    let client = ekiden.build_around(|inner| Arc::new(Port { inner, knobs })).namespace("default").unwrap();
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(client.enqueue(Job { n }).await.unwrap().id);
    }
    let mut changes = client.subscribe().await.unwrap();
    let blocking = move |_: Job, _: Context| async move {
        // Nobody ever sends: the worker thread is blocked for five leases.
        let (_silent, word) = std::sync::mpsc::channel::<()>();
        let _ = word.recv_timeout(lease * 5);
    };
    let runner = start(Runner::builder(&client).concurrency(HANDLERS).lease(lease).handler(blocking));
    for _ in 0..HANDLERS {
        lab::heard(&mut changes, |change| change.event == Some(EventName::Succeeded)).await;
    }
    let ended = SystemClock.monotonic();
    for id in &ids {
        let record = client.get_status(id).await.unwrap();
        assert_eq!((record.state, record.attempts, record.execution_no), (TaskState::Succeeded, 1, 1));
        assert_eq!(record.outcomes.lost, 0);
    }
    let beats = seen.beats.lock().unwrap().clone();
    let since_the_last = ended.saturating_sub(beats[beats.len() - 1]);
    let worst = beats.windows(2).map(|pair| pair[1] - pair[0]).chain([since_the_last]).max().unwrap();
    assert!(beats.len() >= 30, "{} beats", beats.len());
    assert!(worst < lease / 3, "worst gap {worst:?}, a third of the lease is {:?}", lease / 3);
    runner.end().await;
}

/// Two processes on one store; the first one's port can be made to lose its beats.
fn two_processes() -> (Lab, Arc<Knobs>, Lab) {
    let plain = lab();
    let knobs = Arc::new(Knobs::default());
    let first = lab_with(plain.store.clone(), plain.clock.clone(), 1, |builder| {
        let knobs = knobs.clone();
        builder.build_around(|inner| Arc::new(Port { inner, knobs }))
    });
    (first, knobs, plain)
}

/// R19, R7: a silent runner's task goes to another; the first one's word changes nothing any more, and tokens rise.
#[tokio::test(start_paused = true)]
async fn who_lost_the_lease_cannot_change_the_task() {
    let (first, knobs, second) = two_processes();
    let id = first.job(1).await;
    let mut changes = first.client.subscribe().await.unwrap();
    let (words, mut said) = unbounded_channel();
    let tell = words.clone();
    let slow = start(first.runner().name("slow").without_maintenance().lease(secs(10)).handler(
        move |_: Job, context: Context| {
            tell.send(("slow", context.token())).unwrap();
            async {
                passes(secs(100)).await;
                ekiden::Done::with(&"slow")
            }
        },
    ));
    happened(&mut changes, &id, EventName::Claimed).await;
    knobs.mute.store(true, Ordering::SeqCst);
    let quick = start(second.runner().name("quick").lease(secs(10)).handler(move |_: Job, context: Context| {
        words.send(("quick", context.token())).unwrap();
        async {
            passes(secs(200)).await;
            ekiden::Done::with(&"quick")
        }
    }));
    assert_eq!(said.recv().await.unwrap(), ("slow", Token(1)));
    assert_eq!(said.recv().await.unwrap(), ("quick", Token(2)));
    let taken = second.ms();
    assert!((10_000..13_000).contains(&taken), "after its lease, not before: {taken}");

    passes(secs(101)).await;
    let record = second.status(&id).await;
    assert_eq!((record.state, record.execution_no, record.attempts), (TaskState::Running, 2, 2));
    assert_eq!(record.outcomes.lost, 1);
    let stale = LeaseRef::new(second.client.task(&id), Token(1));
    let refused = second.client.queue().mark_succeeded(stale, None).await.unwrap_err();
    assert_eq!(refused.code(), ReasonCode::LeaseLost);
    let done = second.until(&id, TaskState::Succeeded).await;
    assert_eq!(done.result::<String>().unwrap().unwrap(), "quick");
    assert_eq!((done.outcomes.succeeded, done.execution_no), (1, 2));
    knobs.mute.store(false, Ordering::SeqCst);
    assert_eq!(slow.end().await.settled, 0, "its word was refused");
    quick.end().await;
}

/// R19: an attempt whose task another runner took does not run on beside it: it is told to stop as soon as its runner can know,
/// by a heartbeat or by a report that is refused, and dropped if it does not stop.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_superseded_is_stopped() {
    for (obeys, is_heard) in [(true, true), (false, true), (true, false)] {
        let (first, knobs, second) = two_processes();
        let id = first.job(1).await;
        let mut changes = first.client.subscribe().await.unwrap();
        let (gauge, reasons) = (Gauge::default(), Arc::new(Mutex::new(Vec::new())));
        let (slow_gauge, said) = (gauge.clone(), reasons.clone());
        let slow = start(first.runner().name("slow").without_maintenance().lease(secs(10)).handler(
            move |_: Job, context: Context| {
                let (inside, said) = (slow_gauge.enter(), said.clone());
                async move {
                    let _inside = inside;
                    loop {
                        context.progress(1, 2);
                        tokio::select! {
                            () = context.cancelled(), if obeys => break,
                            () = passes(secs(1)) => {}
                        }
                    }
                    said.lock().unwrap().extend(context.stop_reason());
                }
            },
        ));
        happened(&mut changes, &id, EventName::Claimed).await;
        knobs.mute.store(true, Ordering::SeqCst);
        knobs.silent.store(true, Ordering::SeqCst);
        let working = |_: Job, _: Context| passes(secs(200));
        let quick = start(second.runner().name("quick").lease(secs(10)).handler(working));
        happened(&mut second.client.subscribe().await.unwrap(), &id, EventName::Claimed).await;
        assert_eq!(gauge.inside(), 1, "nothing told it yet");
        knobs.mute.store(!is_heard, Ordering::SeqCst);
        knobs.silent.store(is_heard, Ordering::SeqCst);
        passes(secs(5)).await;
        assert_eq!(gauge.inside(), 0, "it runs on beside its successor");
        assert_eq!(*reasons.lock().unwrap(), if obeys { vec![StopReason::LeaseLost] } else { Vec::new() });
        assert_eq!(second.until(&id, TaskState::Succeeded).await.execution_no, 2);
        knobs.mute.store(false, Ordering::SeqCst);
        assert_eq!(slow.end().await, Ended::default(), "nothing of it is left to be written");
        quick.end().await;
    }
}

/// R19: a lease is not lost by time alone: as long as nobody took the task, the late word counts.
#[tokio::test(start_paused = true)]
async fn a_late_settlement_counts_while_nobody_took_the_task() {
    let (first, knobs, second) = two_processes();
    let id = first.job(1).await;
    let mut changes = first.client.subscribe().await.unwrap();
    let runner =
        start(first.runner().without_maintenance().lease(secs(10)).handler(|_: Job, _: Context| passes(secs(60))));
    happened(&mut changes, &id, EventName::Claimed).await;
    knobs.mute.store(true, Ordering::SeqCst);
    passes(secs(30)).await;
    second.client.maintain().await.unwrap();
    let lost = second.status(&id).await;
    assert_eq!((lost.state, lost.outcomes.lost), (TaskState::Queued, 1));
    let done = first.until(&id, TaskState::Succeeded).await;
    assert_eq!((done.execution_no, done.outcomes.lost, done.outcomes.succeeded), (1, 0, 1));
    knobs.mute.store(false, Ordering::SeqCst);
    runner.end().await;
}

/// R19: a runner that was declared dead begins anew under another name, and works on.
#[tokio::test(start_paused = true)]
async fn a_runner_that_was_declared_dead_begins_anew() {
    let (first, knobs, second) = two_processes();
    let runner = start(first.runner().without_maintenance().lease(secs(10)).handler(nothing));
    passes(secs(1)).await;
    knobs.mute.store(true, Ordering::SeqCst);
    let idle = first.job(1).await;
    first.until(&idle, TaskState::Succeeded).await;
    passes(secs(20)).await;
    let waiting = first.job(2).await;
    passes(secs(60)).await;
    assert_eq!(first.state(&waiting).await, TaskState::Queued, "who is not heard claims nothing");
    second.client.maintain().await.unwrap();
    knobs.mute.store(false, Ordering::SeqCst);
    first.until(&waiting, TaskState::Succeeded).await;
    assert_eq!(second.client.runners().await.unwrap().len(), 2, "the dead one and its successor");
    runner.end().await;
}

/// R7: a task whose runners keep dying is dead after three lost attempts in a row, whatever its budget.
#[tokio::test(start_paused = true)]
async fn a_poison_task_is_dead_after_three_lost_attempts() {
    let (first, knobs, second) = two_processes();
    let id = first.client.enqueue(Job { n: 1 }).max_attempts(100).await.unwrap().id;
    for attempt in 1..=3 {
        knobs.gone.store(false, Ordering::SeqCst);
        let mut changes = first.client.subscribe().await.unwrap();
        let deadly = |_: Job, _: Context| std::future::pending::<()>();
        let runner = start(first.runner().without_maintenance().lease(secs(10)).handler(deadly));
        happened(&mut changes, &id, EventName::Claimed).await;
        knobs.gone.store(true, Ordering::SeqCst);
        let ended = runner.end_at_once().await;
        assert_eq!(ended.unsettled, std::slice::from_ref(&id), "nobody hears its last word");
        passes(secs(20)).await;
        second.client.maintain().await.unwrap();
        let record = second.status(&id).await;
        assert_eq!((record.execution_no, record.outcomes.lost), (attempt, u32::try_from(attempt).unwrap()));
        assert_eq!(record.state, if attempt < 3 { TaskState::Queued } else { TaskState::Dead });
    }
    assert_eq!(second.status(&id).await.reason, Some(ReasonCode::CrashLimit));
}

/// R22: the wall clock jumps by an hour, there and back, while tasks run: no lease is lost, nothing is done twice.
#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_costs_no_lease() {
    for jumps in [[3_600_000, -3_600_000], [-3_600_000, 3_600_000]] {
        let lab = lab();
        let gauge = Gauge::default();
        let inside = gauge.clone();
        let mut ids = Vec::new();
        for n in 0..10 {
            ids.push(lab.job(n).await);
        }
        let runner = start(lab.runner().concurrency(10).lease(secs(10)).handler(move |_: Job, _: Context| {
            let inside = inside.enter();
            async move {
                passes(secs(120)).await;
                drop(inside);
            }
        }));
        for jump in jumps {
            passes(secs(30)).await;
            lab.clock.jump(jump);
        }
        for id in &ids {
            let done = lab.until(id, TaskState::Succeeded).await;
            assert_eq!((done.attempts, done.execution_no, done.outcomes.lost), (1, 1, 0));
        }
        assert_eq!(gauge.all(), 10);
        let late = lab.job(99).await;
        lab.until(&late, TaskState::Succeeded).await;
        runner.end().await;
    }
}

/// R22: time limits follow the monotonic clock, whatever the wall clock does.
#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_moves_no_time_limit() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let id = lab.client.enqueue(Job { n: 1 }).timeout(secs(60)).max_attempts(1).await.unwrap().id;
    let runner = start(lab.runner().handler(|_: Job, _: Context| std::future::pending::<()>()));
    happened(&mut changes, &id, EventName::Claimed).await;
    lab.clock.jump(3_600_000);
    passes(secs(59)).await;
    assert_eq!(lab.state(&id).await, TaskState::Running);
    lab.clock.jump(-7_200_000);
    passes(secs(2)).await;
    assert_eq!(lab.state(&id).await, TaskState::Dead);
    runner.end().await;
}

/// R20, R19: runners of several processes share the work; no task runs twice.
#[tokio::test(start_paused = true)]
async fn several_processes_share_the_work() {
    let lab = lab();
    let others = [lab.process(8), lab.process(9)];
    let ran: Arc<Mutex<Vec<(usize, u64)>>> = Arc::default();
    let mut runners = Vec::new();
    for (place, process) in [&lab, &others[0], &others[1]].into_iter().enumerate() {
        let ran = ran.clone();
        runners.push(start(process.runner().concurrency(4).handler(move |job: Job, _: Context| {
            ran.lock().unwrap().push((place, job.n));
            passes(ms(700))
        })));
    }
    for n in 0..300 {
        lab.job(n).await;
    }
    lab.until_count(TaskState::Succeeded, 300).await;
    for runner in runners {
        runner.end().await;
    }
    let ran = ran.lock().unwrap().clone();
    let mut tasks: Vec<_> = ran.iter().map(|(_, n)| *n).collect();
    tasks.sort_unstable();
    assert_eq!(tasks, (0..300).collect::<Vec<_>>(), "each once");
    for place in 0..3 {
        assert!(ran.iter().filter(|(at, _)| *at == place).count() > 50, "every process had its share");
    }
}

/// R19: a schedule that two processes keep ticks once a tick.
#[tokio::test(start_paused = true)]
async fn each_tick_of_a_schedule_comes_once() {
    let lab = lab();
    let other = lab.process(8);
    let ran: Arc<Mutex<Vec<TaskId>>> = Arc::default();
    let mut runners = Vec::new();
    for process in [&lab, &other] {
        let ran = ran.clone();
        runners.push(start(process.runner().handler(move |_: Job, context: Context| {
            ran.lock().unwrap().push(context.task().id.clone());
            async {}
        })));
    }
    let schedule = lab.client.schedule("minutely", lab.client.enqueue(Job { n: 1 })).every(secs(60));
    schedule.overlap(Overlap::Allow).await.unwrap();
    passes(secs(3_600)).await;
    for runner in runners {
        runner.end().await;
    }
    let mut ran = ran.lock().unwrap().clone();
    let all = ran.len();
    ran.sort();
    ran.dedup();
    assert_eq!(all, ran.len(), "no tick twice");
    assert!((59..=61).contains(&all), "{all} ticks in an hour");
    assert!(lab.now() >= START);
}

/// R13: a tick starts at its moment, not at the next look.
#[tokio::test(start_paused = true)]
async fn ticks_come_on_time() {
    let lab = lab();
    let late: Arc<Mutex<Vec<i64>>> = Arc::default();
    let (client, seen) = (lab.client.clone(), late.clone());
    let clock = lab.process(9);
    let runner = start(lab.runner().handler(move |_: Job, _: Context| {
        seen.lock().unwrap().push(clock.ms() % 300);
        async {}
    }));
    client.schedule("often", client.enqueue(Job { n: 1 })).every(ms(300)).overlap(Overlap::Allow).await.unwrap();
    passes(secs(30)).await;
    runner.end().await;
    let late = late.lock().unwrap();
    assert!((98..=101).contains(&late.len()), "{} ticks in thirty seconds", late.len());
    assert!(late.iter().all(|late| *late <= 2), "{late:?}");
}
