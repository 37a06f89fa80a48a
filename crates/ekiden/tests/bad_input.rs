//! Stores that fail, handlers that return too much, and what else nobody asked for: every task still ends exactly once.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ekiden::core::{Millis, Question, QuestionId, ReasonCode, RetryPolicy, limits};
use ekiden::store::MemoryStore;
use ekiden::store::layers::{Faults, Faulty};
use ekiden::{Context, Done, TaskError, TaskRecord, TaskState};
use lab::{Job, Lab, lab, lab_on, passes, secs, start, while_running};

/// Hands in until it is in: a caller repeats a request whose outcome it does not know.
async fn hand_in(lab: &Lab, n: u64) {
    loop {
        let task = lab.client.enqueue(Job { n }).id(format!("task {n}")).max_attempts(20);
        let task = if n.is_multiple_of(3) { task.serial_key(format!("key {}", n % 2)) } else { task };
        match task.retry(RetryPolicy::Fixed { delay: Millis::new(500) }).await {
            Ok(_) => return,
            Err(error) if error.code() == ReasonCode::TaskExists => return,
            Err(error) => assert!(error.is_retryable() || error.is_unknown(), "{error}"),
        }
    }
}

/// Asks until the store answers: where most reads fail, so do all tries of one request now and then.
async fn all_tasks(lab: &Lab) -> Vec<TaskRecord> {
    loop {
        match lab.client.list(lab.client.all(), None, 100).await {
            Ok(page) => return page.items,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

/// Twenty tasks through a store with these faults: handlers run at least once each, every task ends once, and well.
async fn survives(faults: Faults, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let store = Arc::new(Faulty::new(MemoryStore::new(), faults, seed));
        let lab = lab_on(store, seed);
        let ran: Arc<Mutex<HashMap<u64, u32>>> = Arc::default();
        let seen = ran.clone();
        let runner = start(lab.runner().concurrency(4).lease(secs(20)).handler(move |job: Job, context: Context| {
            let runs = {
                let mut seen = seen.lock().unwrap();
                let runs = seen.entry(job.n).or_default();
                *runs += 1;
                *runs
            };
            async move {
                passes(Duration::from_millis(100 * (job.n % 5))).await;
                context.progress(1, 2);
                match (job.n % 4, runs) {
                    (1, 1) => Err(TaskError::retryable("first try")),
                    (2, 1) => Ok(Done::Snoozed(secs(1))),
                    (3, 1) => panic!("first try"),
                    _ => Done::with(&job.n),
                }
            }
        }));
        for n in 0..20 {
            hand_in(&lab, n).await;
        }
        let all = async {
            loop {
                match lab.client.counts_by_state().await {
                    Ok(counts) if counts.get(TaskState::Succeeded) == 20 => return,
                    _ => passes(secs(1)).await,
                }
            }
        };
        if tokio::time::timeout(secs(3_600), all).await.is_err() {
            panic!("seed {seed}: stuck with {:?}", lab.client.counts_by_state().await);
        }
        runner.end().await;
        for record in all_tasks(&lab).await {
            assert_eq!(record.state, TaskState::Succeeded, "seed {seed}: {record:?}");
            assert_eq!(record.outcomes.succeeded, 1, "seed {seed}: {record:?}");
            assert!(record.runner.is_none());
        }
        assert_eq!(ran.lock().unwrap().len(), 20);
    }
}

/// R16, R19: requests that are refused now and then.
#[tokio::test(start_paused = true)]
async fn tasks_survive_a_store_that_refuses() {
    survives(Faults { refused: 30, read_failed: 20, ..Faults::default() }, 0..40).await;
}

/// R16, R19: replies that are lost after the work was done.
#[tokio::test(start_paused = true)]
async fn tasks_survive_lost_replies() {
    survives(Faults { reply_lost: 30, ..Faults::default() }, 100..140).await;
}

/// R16, R19: requests that are lost, so that nobody knows.
#[tokio::test(start_paused = true)]
async fn tasks_survive_lost_requests() {
    survives(Faults { request_lost: 30, ..Faults::default() }, 200..240).await;
}

/// R16, R19: everything at once, and slow.
#[tokio::test(start_paused = true)]
async fn tasks_survive_everything_at_once() {
    let faults =
        Faults { refused: 10, reply_lost: 15, request_lost: 15, read_failed: 15, delay_max: Duration::from_millis(80) };
    survives(faults, 300..340).await;
}

/// R16, R19: a store that is down more often than not.
#[tokio::test(start_paused = true)]
async fn tasks_survive_a_store_that_is_mostly_down() {
    survives(Faults { refused: 35, reply_lost: 20, request_lost: 20, read_failed: 40, ..Faults::default() }, 400..430)
        .await;
}

/// R16: what a handler returns and no store can keep is a failure that says so, at once and for good.
#[tokio::test(start_paused = true)]
async fn results_and_questions_that_are_too_large_are_told() {
    let lab = lab();
    let (result, question, choices) = (lab.job(0).await, lab.job(1).await, lab.job(2).await);
    let just = lab.job(3).await;
    let runner = lab.runner().handler(|job: Job, _: Context| async move {
        let ask = |text: String, choices: usize| {
            let id = QuestionId::new("q").unwrap();
            let choices = vec![Arc::from("yes"); choices];
            Done::Asked(Box::new(Question { id, text: Arc::from(text), choices, deadline: None, default: None }))
        };
        match job.n {
            0 => Done::Succeeded(Some(Bytes::from(vec![b'1'; limits::RESULT_BYTES_MAX + 1]))),
            1 => ask("?".repeat(limits::QUESTION_BYTES_MAX + 1), 0),
            2 => ask("?".to_owned(), limits::QUESTION_CHOICES_MAX + 1),
            _ => Done::Succeeded(Some(Bytes::from(vec![b'1'; limits::RESULT_BYTES_MAX]))),
        }
    });
    while_running(runner, async {
        for (id, field) in [(&result, "result"), (&question, "question"), (&choices, "choices")] {
            let dead = lab.until(id, TaskState::Dead).await;
            let error = dead.last_error.unwrap();
            assert!(error.contains(field), "{error}");
            assert_eq!((dead.attempts, dead.reason), (1, Some(ReasonCode::PermanentFailure)));
        }
        lab.until(&just, TaskState::Succeeded).await;
    })
    .await;
}

/// R8, R16: a wait beyond all reason is cut or told, and errors of any length are kept short.
#[tokio::test(start_paused = true)]
async fn absurd_waits_and_errors_leave_nothing_running() {
    let lab = lab();
    let (snoozed, later, wordy) = (lab.job(0).await, lab.job(1).await, lab.job(2).await);
    let runner = lab.runner().handler(|job: Job, _: Context| async move {
        match job.n {
            0 => Ok(Done::Snoozed(Duration::MAX)),
            1 => Err(TaskError::retry_after(Duration::MAX, "later")),
            _ => Err(TaskError::permanent("失".repeat(1_000_000))),
        }
    });
    while_running(runner, async {
        let dead = lab.until(&wordy, TaskState::Dead).await;
        assert!(dead.last_error.unwrap().len() <= limits::ERROR_BYTES_MAX);
        let waits = lab.until(&later, TaskState::RetryScheduled).await;
        assert_eq!(waits.next_run_at, Some(lab.now() + limits::DURATION_MAX));
        let dead = lab.until(&snoozed, TaskState::Dead).await;
        let error = dead.last_error.unwrap();
        assert!(error.contains("DURATION_INVALID") && error.contains("delay"), "{error}");
    })
    .await;
}

/// R8, R6: a snooze of nothing and a retry at once do not stop the others.
#[tokio::test(start_paused = true)]
async fn a_snooze_of_nothing_starves_nobody() {
    let lab = lab();
    lab.job(0).await;
    let other = lab.job(1).await;
    let runner = lab.runner().concurrency(1).handler(|job: Job, context: Context| async move {
        if job.n == 0 && context.token().0 < 500 { Done::Snoozed(Duration::ZERO) } else { Done::Succeeded(None) }
    });
    while_running(runner, async {
        lab.until_count(TaskState::Succeeded, 2).await;
        assert_eq!(lab.state(&other).await, TaskState::Succeeded);
    })
    .await;
}

/// R8: a handler's error is kept with its causes.
#[tokio::test(start_paused = true)]
async fn an_error_is_kept_with_its_causes() {
    #[derive(Debug)]
    struct Outer(std::num::ParseIntError);
    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("cannot read the number")
        }
    }
    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let lab = lab();
    let id = lab.client.enqueue(Job { n: 0 }).max_attempts(1).await.unwrap().id;
    let runner = lab.runner().handler(|_: Job, _: Context| async { "x".parse::<u8>().map(drop).map_err(Outer) });
    let dead = while_running(runner, lab.until(&id, TaskState::Dead)).await;
    assert_eq!(dead.last_error.as_deref(), Some("cannot read the number: invalid digit found in string"));
}
