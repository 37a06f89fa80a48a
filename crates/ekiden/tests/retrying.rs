//! What becomes of attempts that fail: backoff, budget, verdicts of the handler, panics and timeouts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ekiden::core::{EventName, Millis, Outcome, ReasonCode, RetryPolicy};
use ekiden::{Context, Done, Payload, TaskError, TaskState, Undecodable};
use lab::{Job, Other, START, happened, lab, ms, passes, secs, start, while_running};
use tokio::sync::mpsc::unbounded_channel;

const fn steps(delay: u64) -> RetryPolicy {
    RetryPolicy::Fixed { delay: Millis::from_secs(delay) }
}

/// R6: while one task waits for its retry, the only slot serves others.
#[tokio::test(start_paused = true)]
async fn a_slot_is_free_during_backoff() {
    let lab = lab();
    let failing = lab.client.enqueue(Job { n: 0 }).retry(steps(3_600)).await.unwrap().id;
    let runner = start(lab.runner().concurrency(1).handler(|job: Job, _: Context| async move {
        if job.n == 0 { Err(TaskError::retryable("later")) } else { Ok(()) }
    }));
    lab.until(&failing, TaskState::RetryScheduled).await;
    for n in 1..=20 {
        let id = lab.job(n).await;
        lab.until(&id, TaskState::Succeeded).await;
    }
    assert_eq!(lab.ms(), 0, "nothing slept in its place");
    assert_eq!(lab.count(TaskState::RetryScheduled).await, 1);
    runner.end().await;
}

/// R7: five attempts, then dead for good.
#[tokio::test(start_paused = true)]
async fn a_task_is_dead_after_five_failures() {
    let lab = lab();
    let id = lab.job(1).await;
    let (words, mut said) = unbounded_channel();
    let runner = start(lab.runner().handler(move |_: Job, context: Context| {
        words.send((context.attempt(), context.token().0)).unwrap();
        async { Err::<(), _>(TaskError::retryable("no")) }
    }));
    let dead = lab.until(&id, TaskState::Dead).await;
    assert_eq!((dead.attempts, dead.execution_no, dead.reason), (5, 5, Some(ReasonCode::AttemptsExhausted)));
    assert_eq!(dead.outcomes.failed, 5);
    passes(secs(86_400)).await;
    runner.end().await;
    let mut attempts = Vec::new();
    while let Some(attempt) = said.recv().await {
        attempts.push(attempt);
    }
    assert_eq!(attempts, [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)], "never handed out again");
}

/// R8, R13: the waits of the task's own policy, and no attempt before its time.
#[tokio::test(start_paused = true)]
async fn retries_come_at_the_time_that_the_policy_says() {
    let lab = lab();
    let waits = [3_u64, 1, 60].map(Millis::from_secs).to_vec();
    let policy = RetryPolicy::Steps { delays: waits };
    let id = lab.client.enqueue(Job { n: 1 }).retry(policy).max_attempts(6).await.unwrap().id;
    let (words, mut said) = unbounded_channel();
    let clock = lab.clock.clone();
    let runner = lab.runner().handler(move |_: Job, _: Context| {
        words.send(ekiden::store::Clock::now(&*clock)).unwrap();
        async { Err::<(), _>(TaskError::retryable("no")) }
    });
    while_running(runner, lab.until(&id, TaskState::Dead)).await;
    for at in [0, 3, 4, 64, 124, 184] {
        assert_eq!(said.recv().await.unwrap(), START + Millis::from_secs(at));
    }
}

/// R13: also over many tasks with jittered waits, no attempt begins before its moment, and none a poll later.
#[tokio::test(start_paused = true)]
async fn no_retry_begins_before_its_moment_or_late() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let count = 100;
    for n in 0..count {
        lab.job(n).await;
    }
    let runner = lab.runner().concurrency(32).handler(|_: Job, context: Context| async move {
        if context.attempt() < 4 { Err(TaskError::retryable("again")) } else { Ok(()) }
    });
    while_running(runner, lab.until_count(TaskState::Succeeded, count)).await;
    let mut due = std::collections::HashMap::new();
    let mut retried = 0;
    for _ in 0..count * 9 {
        let change = lab::heard(&mut changes, |change| change.event != Some(EventName::BecameDue)).await;
        match change.event {
            Some(EventName::Failed) => _ = due.insert(change.id, change.next_run_at.unwrap()),
            Some(EventName::Claimed) => {
                if let Some(due) = due.remove(&change.id) {
                    assert_eq!(change.at, due);
                    retried += 1;
                }
            }
            _ => {}
        }
    }
    assert_eq!(retried, count * 3);
}

/// R8: permanent is dead at once; a wait that the handler names overrules the policy; a snooze spends nothing.
#[tokio::test(start_paused = true)]
async fn the_handlers_word_overrules_the_policy() {
    let lab = lab();
    let permanent = lab.job(0).await;
    let after = lab.client.enqueue(Job { n: 1 }).retry(RetryPolicy::Never).await.unwrap().id;
    let snoozed = lab.client.enqueue(Job { n: 2 }).max_attempts(1).await.unwrap().id;
    let runner = lab.runner().handler(|job: Job, context: Context| async move {
        match (job.n, context.token().0) {
            (0, _) => Err(TaskError::permanent("never")),
            (1, 1) => Err(TaskError::retry_after(secs(77), "busy")),
            (2, 1..=9) => Ok(Done::Snoozed(secs(10))),
            _ => Ok(Done::Succeeded(None)),
        }
    });
    while_running(runner, async {
        let dead = lab.until(&permanent, TaskState::Dead).await;
        assert_eq!((dead.attempts, dead.reason), (1, Some(ReasonCode::PermanentFailure)));
        assert_eq!(dead.last_error.as_deref(), Some("never"));
        let done = lab.until(&after, TaskState::Succeeded).await;
        assert_eq!((done.attempts, done.finished_at), (2, Some(START + Millis::from_secs(77))));
        let done = lab.until(&snoozed, TaskState::Succeeded).await;
        assert_eq!((done.attempts, done.execution_no, done.outcomes.snoozed), (1, 10, 9), "its budget was one");
        assert_eq!(done.finished_at, Some(START + Millis::from_secs(90)));
    })
    .await;
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Strict {
    number: u64,
}

impl Payload for Strict {
    const TASK_TYPE: &'static str = "strict";
    const UNDECODABLE: Undecodable = Undecodable::Die;
}

/// R8: a payload that does not decode is tried again, as another runner may know it, unless the handler opts out.
#[tokio::test(start_paused = true)]
async fn undecodable_payloads_are_retried_unless_the_handler_opts_out() {
    let lab = lab();
    let wrong = serde_json::json!({"n": "not a number"});
    let patient = lab.client.enqueue_json("job", &wrong).max_attempts(2).await.unwrap().id;
    let strict = lab.client.enqueue_json("strict", &wrong).await.unwrap().id;
    let garbage = lab.client.enqueue_raw("strict", "application/json", vec![0xff, 0, 0x7b]).await.unwrap().id;
    let runner = lab.runner().handler(lab::nothing).handler(|strict: Strict, _: Context| async move {
        assert!(strict.number > 0);
    });
    while_running(runner, async {
        let dead = lab.until(&patient, TaskState::Dead).await;
        assert_eq!((dead.attempts, dead.reason), (2, Some(ReasonCode::AttemptsExhausted)));
        assert!(dead.last_error.unwrap().contains("payload does not decode"));
        for id in [&strict, &garbage] {
            let dead = lab.until(id, TaskState::Dead).await;
            assert_eq!((dead.attempts, dead.reason), (1, Some(ReasonCode::PermanentFailure)));
        }
    })
    .await;
}

/// Panics when it is dropped.
struct Sore;

impl Drop for Sore {
    fn drop(&mut self) {
        panic!("sore");
    }
}

/// R16: a panic is a failure with its message, wherever it happens, and the runner goes on.
#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_with_its_message() {
    let lab = lab();
    let mut ids = Vec::new();
    for n in 0..4 {
        ids.push(lab.client.enqueue(Job { n }).max_attempts(1).await.unwrap().id);
    }
    let good = lab.client.enqueue(Other { n: 0 }).await.unwrap().id;
    let runner = lab
        .runner()
        .concurrency(1)
        .handler(|job: Job, _: Context| {
            assert!(job.n != 0, "before the first await");
            async move {
                passes(ms(5)).await;
                match job.n {
                    1 => panic!("after {} awaits", 1),
                    2 => std::panic::panic_any(17_u32),
                    _ => drop(Sore),
                }
            }
        })
        .handler(|_: Other, _: Context| async {});
    while_running(runner, async {
        for (id, message) in ids.iter().zip(["before the first await", "after 1 awaits", "without a message", "sore"]) {
            let dead = lab.until(id, TaskState::Dead).await;
            let error = dead.last_error.unwrap();
            assert!(error.starts_with("panicked: ") && error.contains(message), "{error}");
            assert_eq!(dead.outcomes.failed, 1);
        }
        lab.until(&good, TaskState::Succeeded).await;
    })
    .await;
}

/// R16: a handler that panics while it is dropped ends all the same, and so does the next one.
#[tokio::test(start_paused = true)]
async fn a_panic_while_dropped_ends_the_attempt_only() {
    let lab = lab();
    let id = lab.client.enqueue(Job { n: 0 }).max_attempts(2).timeout(secs(1)).await.unwrap().id;
    let good = lab.client.enqueue(Other { n: 0 }).delay(secs(60)).await.unwrap().id;
    let sore = |_: Job, _: Context| async {
        let _sore = Sore;
        std::future::pending::<()>().await;
    };
    let runner = lab.runner().concurrency(1).handler(sore).handler(|_: Other, _: Context| async {});
    while_running(runner, async {
        let dead = lab.until(&id, TaskState::Dead).await;
        assert_eq!((dead.attempts, dead.outcomes.timed_out), (2, 2));
        lab.until(&good, TaskState::Succeeded).await;
    })
    .await;
}

/// R16: a timeout is an outcome of its own; it also ends what does not listen and what would never end.
#[tokio::test(start_paused = true)]
async fn a_timeout_is_its_own_outcome() {
    let lab = lab();
    let limit = secs(30);
    let polite = lab.client.enqueue(Job { n: 0 }).timeout(limit).max_attempts(1).await.unwrap().id;
    let deaf = lab.client.enqueue(Job { n: 1 }).timeout(limit).max_attempts(1).await.unwrap().id;
    let endless = lab.client.enqueue(Job { n: 2 }).timeout(limit).max_attempts(2).retry(steps(5)).await.unwrap().id;
    let quick = lab.client.enqueue(Job { n: 3 }).timeout(limit).await.unwrap().id;
    let runner = lab.runner().concurrency(4).handler(|job: Job, context: Context| async move {
        match job.n {
            0 => context.cancelled().await,
            1 => loop {
                passes(Duration::from_millis(1)).await;
            },
            2 => std::future::pending().await,
            _ => passes(ms(29_999)).await,
        }
    });
    while_running(runner, async {
        for id in [&polite, &deaf] {
            let dead = lab.until(id, TaskState::Dead).await;
            assert_eq!(dead.last_error.as_deref(), Some("timed out after 30000ms"));
            assert_eq!(dead.recent[0].outcome, Some(Outcome::TimedOut));
            assert_eq!(dead.finished_at, Some(START + limit.into()));
        }
        lab.until(&quick, TaskState::Succeeded).await;
        let dead = lab.until(&endless, TaskState::Dead).await;
        assert_eq!((dead.attempts, dead.outcomes.timed_out), (2, 2));
        assert_eq!(dead.finished_at, Some(START + secs(65).into()));
    })
    .await;
}

/// R16: a limit that begins while the runner waits for a much later one is kept as well.
#[tokio::test(start_paused = true)]
async fn every_time_limit_is_kept_whatever_began_before_it() {
    let lab = lab();
    let runner = start(lab.runner().concurrency(8).handler(|_: Job, _: Context| std::future::pending::<()>()));
    let mut expected = Vec::new();
    for limit in [5_000, 10, 700, 3, 60_000, 10_000] {
        let task = lab.client.enqueue(Job { n: limit }).timeout(ms(limit)).max_attempts(1);
        expected.push((task.await.unwrap().id, lab.now() + Millis::new(limit)));
        passes(ms(1)).await;
    }
    for (id, at) in expected {
        assert_eq!(lab.until(&id, TaskState::Dead).await.finished_at, Some(at));
    }
    runner.end().await;
}

/// R7, R16: handlers that are dropped with their runtime leave nothing in Running, and spend nothing.
#[test]
fn a_handler_that_is_dropped_with_its_runtime_hands_its_task_back() {
    let store = Arc::new(ekiden::store::MemoryStore::new());
    let ekiden = ekiden::Ekiden::builder(store).seed(7).build();
    let client = ekiden.namespace("default").unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let started = Arc::new(AtomicU32::new(0));
    let (home, away) = (runtime(), runtime());
    let id = home.block_on(async { client.enqueue(Job { n: 1 }).await.unwrap().id });
    let mut changes = home.block_on(client.subscribe()).unwrap();
    let count = started.clone();
    let runner = ekiden::Runner::builder(&client).handler(move |_: Job, _: Context| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>()
    });
    away.block_on(async {
        let run = tokio::spawn(runner.build().unwrap().run_until_stopped());
        happened(&mut changes, &id, EventName::Claimed).await;
        tokio::task::yield_now().await;
        drop(run);
    });
    // Handler and run go with their runtime; the runner's own thread tells the store.
    drop(away);
    home.block_on(happened(&mut changes, &id, EventName::Interrupted));
    let record = home.block_on(client.get_status(&id)).unwrap();
    assert_eq!((record.state, record.attempts, record.execution_no), (TaskState::Queued, 0, 1));
}
