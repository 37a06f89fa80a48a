//! What can be seen from outside while tasks run: changes, log events, progress, questions.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use ekiden::core::{EventName, Progress, Question, QuestionId, ReasonCode};
use ekiden::store::{MemoryStore, TokioClock};
use ekiden::{Context, Done, Observer, TaskChange, TaskError, TaskState};
use lab::port::{Knobs, Port};
use lab::{Job, START, happened, heard, lab, lab_with, ms, passes, secs, start, while_running};

/// R10: who subscribes hears of every change, in order.
#[tokio::test(start_paused = true)]
async fn a_subscription_hears_every_change_in_order() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let mut elsewhere = lab.ekiden.namespace("elsewhere").unwrap().subscribe().await.unwrap();
    let id = lab.job(1).await;
    let runner = lab.runner().handler(|_: Job, context: Context| async move {
        if context.attempt() == 1 { Err(TaskError::retryable("once")) } else { Ok(()) }
    });
    while_running(runner, lab.until(&id, TaskState::Succeeded)).await;
    let expected = [
        (EventName::Enqueued, TaskState::Queued, 0),
        (EventName::Claimed, TaskState::Running, 1),
        (EventName::Failed, TaskState::RetryScheduled, 1),
        (EventName::Claimed, TaskState::Running, 2),
        (EventName::Succeeded, TaskState::Succeeded, 2),
    ];
    for (event, state, attempt) in expected {
        let change = heard(&mut changes, |change| change.event != Some(EventName::BecameDue)).await;
        assert_eq!((change.event, change.state, change.attempt), (Some(event), state, attempt));
        assert_eq!(change.id, id);
        assert_eq!(change.error.as_deref(), (event == EventName::Failed).then_some("once"));
    }
    assert!(tokio::time::timeout(secs(60), elsewhere.next()).await.is_err(), "another namespace hears nothing");
}

#[derive(Default)]
struct Tally(Mutex<BTreeMap<&'static str, u32>>);

impl Observer for Tally {
    fn observe(&self, change: &TaskChange) {
        *self.0.lock().unwrap().entry(change.event.map_or("progress", EventName::as_str)).or_default() += 1;
    }
}

/// R10: an observer hears the same without waiting for it.
#[tokio::test(start_paused = true)]
async fn an_observer_counts_every_change() {
    let tally = Arc::new(Tally::default());
    let lab = lab_with(Arc::new(MemoryStore::new()), Arc::new(TokioClock::new(START)), 7, |builder| {
        builder.observer(tally.clone()).build()
    });
    for n in 0..10 {
        lab.job(n).await;
    }
    while_running(lab.runner().handler(lab::nothing), lab.until_count(TaskState::Succeeded, 10)).await;
    let seen = tally.0.lock().unwrap().clone();
    assert_eq!(seen, BTreeMap::from([("enqueued", 10), ("claimed", 10), ("succeeded", 10)]));
}

/// R9, R10: progress can be seen while the attempt runs, the latest word a few times a second.
#[tokio::test(start_paused = true)]
async fn progress_is_seen_while_the_attempt_runs() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let id = lab.job(1).await;
    let runner = start(lab.runner().handler(|_: Job, context: Context| async move {
        for done in 1..=1_000 {
            context.progress(done, 1_000);
            passes(ms(10)).await;
        }
        context.report(Progress { done: 7, total: None, note: Some(Arc::from("x".repeat(100_000))) });
        passes(secs(1)).await;
    }));
    let mut words = 0;
    let mut last = 0;
    while last < 1_000 {
        let change = heard(&mut changes, |change| change.event.is_none()).await;
        let progress = change.progress.unwrap();
        assert!(progress.done >= last && change.state == TaskState::Running, "it only rises");
        assert_eq!(lab.status(&id).await.progress, Some(progress.clone()));
        if progress.total.is_none() {
            break;
        }
        last = progress.done;
        words += 1;
    }
    assert!((30..=60).contains(&words), "{words} words for ten seconds");
    let done = lab.until(&id, TaskState::Succeeded).await;
    assert!(done.progress.unwrap().note.unwrap().len() < 10_000, "a note is short");
    runner.end().await;
}

/// R9: a word that the store could not take is said again when it can, and a later one stands for it.
#[tokio::test(start_paused = true)]
async fn progress_that_did_not_get_through_is_told_later() {
    let knobs = Arc::new(Knobs::default());
    let port = knobs.clone();
    let lab = lab_with(Arc::new(MemoryStore::new()), Arc::new(TokioClock::new(START)), 7, |builder| {
        builder.build_around(|inner| Arc::new(Port { inner, knobs: port }))
    });
    let mut changes = lab.client.subscribe().await.unwrap();
    knobs.silent.store(true, Ordering::SeqCst);
    let id = lab.job(1).await;
    let runner = start(lab.runner().handler(|_: Job, context: Context| async move {
        context.progress(1, 3);
        passes(secs(5)).await;
        context.progress(2, 3);
        passes(secs(3_600)).await;
    }));
    passes(secs(10)).await;
    assert!(knobs.calls("report") > 30, "it is tried again and again");
    assert_eq!(lab.status(&id).await.progress, None);
    knobs.silent.store(false, Ordering::SeqCst);
    let told = heard(&mut changes, |change| change.event.is_none()).await;
    assert_eq!(told.progress, Some(Progress { done: 2, total: Some(3), note: None }));
    let calls = knobs.calls("report");
    passes(secs(60)).await;
    assert_eq!(knobs.calls("report"), calls, "and it is said once");
    runner.end().await;
}

/// R5, R9: a question ends the attempt and frees its slot; the answer comes to the next attempt.
#[tokio::test(start_paused = true)]
async fn a_question_is_answered_by_the_next_attempt() {
    let lab = lab();
    let mut changes = lab.client.subscribe().await.unwrap();
    let id = lab.client.enqueue(Job { n: 1 }).max_attempts(1).await.unwrap().id;
    let question = QuestionId::new("colour").unwrap();
    let asked = question.clone();
    let runner = start(lab.runner().concurrency(1).handler(move |job: Job, context: Context| {
        let id = asked.clone();
        async move {
            if job.n == 0 {
                return Ok(Done::Succeeded(None));
            }
            match context.answer() {
                Some(answer) => Done::with(&answer.content),
                None => Ok(Done::Asked(Box::new(Question {
                    id,
                    text: Arc::from("which colour?"),
                    choices: vec![Arc::from("red"), Arc::from("blue")],
                    deadline: None,
                    default: None,
                }))),
            }
        }
    }));
    happened(&mut changes, &id, EventName::Asked).await;
    let record = lab.status(&id).await;
    assert_eq!((record.state, record.attempts), (TaskState::NeedsInput, 0), "no attempt is spent");
    assert_eq!(record.question.unwrap().id, question);
    assert_eq!(lab.client.explain(&id).await.unwrap().reasons[0].code, ReasonCode::NeedsInput);
    let other = lab.job(0).await;
    lab.until(&other, TaskState::Succeeded).await;

    passes(secs(3_600)).await;
    let before = lab.ms();
    let wrong = QuestionId::new("size").unwrap();
    assert!(lab.client.answer(&id, &wrong, "blue").await.is_err(), "an answer belongs to its question");
    lab.client.answer(&id, &question, "blue").await.unwrap();
    let done = lab.until(&id, TaskState::Succeeded).await;
    assert_eq!(done.result::<String>().unwrap().unwrap(), "blue");
    assert_eq!((done.attempts, done.execution_no, lab.ms()), (1, 2, before), "at once");
    runner.end().await;
}
