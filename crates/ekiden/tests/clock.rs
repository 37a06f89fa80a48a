//! The machine's clock is set back while a process runs: what it started ends in time, and whoever asks is told.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ekiden::core::{Millis, ReasonCode, RetryPolicy, TaskId};
use ekiden::store::{Clock, LocalOptions, LocalStore, Store, TokioClock};
use ekiden::{Context, EkidenBuilder, TaskError, TaskState};
use lab::shop::Shop;
use lab::{Job, Lab, START, lab, lab_on, lab_with, ms, passes, secs, start};

const DAY_MS: i64 = 86_400_000;

/// How long a wait takes at most once the clock was set back: a nineteenth more, and a round of maintenance.
fn at_most(wait: Duration) -> Duration {
    wait * 20 / 19 + secs(2)
}

async fn reasons(lab: &Lab, id: &TaskId) -> Vec<ReasonCode> {
    lab.client.explain(id).await.unwrap().reasons.into_iter().map(|reason| reason.code).collect()
}

/// What ran, and how long after the start of the test.
#[derive(Clone)]
struct Ran(Arc<Mutex<Vec<(u64, Duration)>>>, Arc<TokioClock>);

impl Ran {
    fn of(lab: &Lab) -> Self {
        Self(Arc::default(), lab.clock.clone())
    }

    fn note(&self, n: u64) {
        self.0.lock().unwrap().push((n, self.1.monotonic()));
    }

    fn all(&self) -> Vec<(u64, Duration)> {
        self.0.lock().unwrap().clone()
    }

    fn order(&self) -> Vec<u64> {
        self.all().into_iter().map(|(n, _)| n).collect()
    }
}

/// R22, R9: a delay, a backoff and an interval that began before the clock went back a day end when their time has passed.
#[tokio::test(start_paused = true)]
async fn waits_end_in_time_when_the_clock_goes_back_a_day() {
    let lab = lab();
    let ran = Ran::of(&lab);
    let noted = ran.clone();
    let retry = RetryPolicy::Fixed { delay: secs(40).into() };
    let delayed = lab.client.enqueue(Job { n: 1 }).delay(secs(60)).await.unwrap().id;
    let failing = lab.client.enqueue(Job { n: 2 }).max_attempts(2).retry(retry).await.unwrap().id;
    lab.client.schedule("often", lab.client.enqueue(Job { n: 3 })).every(secs(30)).await.unwrap();
    let runner = start(lab.runner().handler(move |job: Job, context: Context| {
        noted.note(job.n);
        let fails = job.n == 2 && context.attempt() == 1;
        async move { if fails { Err(TaskError::retryable("no luck")) } else { Ok(()) } }
    }));
    passes(secs(10)).await;
    lab.clock.jump(-DAY_MS);
    passes(secs(290)).await;
    assert_eq!(lab.state(&delayed).await, TaskState::Succeeded);
    assert_eq!(lab.state(&failing).await, TaskState::Succeeded);
    let all = ran.all();
    let of = |n: u64| all.iter().filter(|(job, _)| *job == n).map(|(_, at)| *at).collect::<Vec<_>>();
    assert!(of(1)[0] >= secs(60) && of(1)[0] <= at_most(secs(60)), "{:?}", of(1));
    assert!(of(2)[1] >= secs(40) && of(2)[1] <= at_most(secs(40)), "{:?}", of(2));
    assert_eq!((of(1).len(), of(2).len()), (1, 2), "nothing runs twice");
    assert!((9..=10).contains(&of(3).len()), "every 30 s of 300: {:?}", of(3));
    runner.end().await;
}

/// R22: the order of a line stays as it was.
#[tokio::test(start_paused = true)]
async fn what_waited_before_the_clock_went_back_still_comes_first() {
    let lab = lab();
    let ran = Ran::of(&lab);
    lab.job(1).await;
    lab.clock.jump(-DAY_MS);
    passes(secs(1)).await;
    lab.job(2).await;
    let noted = ran.clone();
    let runner = start(lab.runner().concurrency(1).handler(move |job: Job, _: Context| {
        noted.note(job.n);
        async {}
    }));
    lab.until_count(TaskState::Succeeded, 2).await;
    assert_eq!(ran.order(), [1, 2]);
    runner.end().await;
}

/// R22, R21: a moment and a cron expression are meant by the clock on the wall, also where the process is ahead of it.
#[tokio::test(start_paused = true)]
async fn moments_and_cron_follow_the_clock_that_was_set_back() {
    let lab = lab();
    let ran = Ran::of(&lab);
    passes(secs(3_600)).await;
    lab.clock.jump(-9 * 3_600_000);
    let at = |wait: u64| lab.now() + Millis::from_secs(wait);
    let (soon, half_past) = (at(1_200), at(1_800).to_string());
    lab.client.enqueue(Job { n: 1 }).run_at(soon).await.unwrap();
    let minute_of_day = format!("{} {} * * *", &half_past[14..16], &half_past[11..13]);
    lab.client.schedule("daily", lab.client.enqueue(Job { n: 2 })).cron(minute_of_day, "UTC").await.unwrap();
    let noted = ran.clone();
    let runner = start(lab.runner().handler(move |job: Job, _: Context| {
        noted.note(job.n);
        async {}
    }));
    passes(secs(7_200)).await;
    let all = ran.all();
    let wanted = [(1, 4_800), (2, 5_400)];
    assert_eq!(all.len(), wanted.len(), "{all:?}");
    for ((n, at), (job, wanted)) in all.into_iter().zip(wanted) {
        assert!(n == job && at + secs(60) >= secs(wanted) && at <= secs(wanted + 2), "{n} at {at:?}, not {wanted}");
    }
    runner.end().await;
}

/// R22: whoever asks why a task waits is told, in the process that saw the step and in one that began after it.
#[tokio::test(start_paused = true)]
async fn an_explanation_tells_of_a_clock_that_was_set_back() {
    let lab = lab();
    let runner = start(lab.runner().handler(lab::nothing));
    passes(secs(1)).await;
    let id = lab.client.enqueue(Job { n: 1 }).delay(secs(60)).await.unwrap().id;
    assert_eq!(reasons(&lab, &id).await, [ReasonCode::NotDue]);
    lab.clock.jump(-DAY_MS);
    assert_eq!(reasons(&lab, &id).await, [ReasonCode::NotDue, ReasonCode::ClockSetBack]);
    runner.end().await;
    let restarted = lab.process(8);
    let runner = start(restarted.runner().handler(lab::nothing));
    passes(secs(1)).await;
    assert_eq!(reasons(&restarted, &id).await, [ReasonCode::NotDue, ReasonCode::ClockBehind]);
    let told = restarted.client.explain(&id).await.unwrap().reasons[1].context.clone();
    let about = |name: &str, wanted: i64| told[name].parse::<i64>().unwrap().abs_diff(wanted) <= 2_000;
    assert!(about("clock_back_ms", DAY_MS) && about("wait_ms", DAY_MS + 60_000), "{told:?}");
    passes(secs(120)).await;
    assert_eq!(restarted.state(&id).await, TaskState::Queued, "a time that the clock does not show is not due");
    restarted.clock.jump(DAY_MS);
    restarted.until(&id, TaskState::Succeeded).await;
    runner.end().await;
}

/// R22: where several machines read each other's times, nobody is ahead of its own clock.
#[tokio::test(start_paused = true)]
async fn a_store_of_several_machines_keeps_the_time_of_their_clocks() {
    let lab = lab_on(Arc::new(Shop::of_several_machines()), 7);
    let runner = start(lab.runner().handler(lab::nothing));
    passes(secs(1)).await;
    let before = lab.client.enqueue(Job { n: 1 }).delay(secs(60)).await.unwrap().id;
    lab.clock.jump(-DAY_MS);
    let after = lab.client.enqueue(Job { n: 2 }).delay(secs(60)).await.unwrap().id;
    assert_eq!(lab.status(&after).await.created_at, lab.now());
    assert_eq!(reasons(&lab, &before).await, [ReasonCode::NotDue, ReasonCode::ClockBehind]);
    passes(secs(63)).await;
    assert_eq!((lab.state(&before).await, lab.state(&after).await), (TaskState::Queued, TaskState::Succeeded));
    runner.end().await;
}

/// R22: the same on a disk, in real time.
#[tokio::test]
async fn a_wait_on_the_local_store_ends_in_time_when_the_clock_goes_back_a_day() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> =
        Arc::new(LocalStore::open(&folder.path().join("data"), LocalOptions::default()).unwrap());
    let lab = lab_with(store, Arc::new(TokioClock::new(START)), 7, EkidenBuilder::build);
    let retry = RetryPolicy::Fixed { delay: ms(500).into() };
    let failing = lab.client.enqueue(Job { n: 1 }).max_attempts(2).retry(retry).await.unwrap().id;
    let delayed = lab.client.enqueue(Job { n: 2 }).delay(ms(500)).await.unwrap().id;
    let runner = start(lab.runner().handler(|job: Job, context: Context| async move {
        if job.n == 1 && context.attempt() == 1 { Err(TaskError::retryable("no luck")) } else { Ok(()) }
    }));
    lab.until(&failing, TaskState::RetryScheduled).await;
    lab.clock.jump(-DAY_MS);
    let ended =
        async { (lab.until(&failing, TaskState::Succeeded).await, lab.until(&delayed, TaskState::Succeeded).await) };
    let (failing, delayed) = tokio::time::timeout(secs(30), ended).await.expect("a day of the clock is not waited for");
    assert_eq!((failing.execution_no, delayed.execution_no), (2, 1));
    assert!(failing.finished_at > Some(failing.created_at), "times go on in order");
    runner.end().await;
    lab.ekiden.close().await.unwrap();
}
