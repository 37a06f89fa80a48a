//! What is written into the log while tasks run. Alone in its file: a process has one log.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use ekiden::core::RetryPolicy;
use ekiden::{Context, TaskError, TaskState};
use lab::{Job, START, lab, secs, while_running};
use tracing::field::{Field, Visit};

type Line = BTreeMap<String, String>;

/// Keeps every event with its fields.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Line>>>);

struct Fields(Line);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("ekiden") && *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields(Line::new());
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// R22: whoever reads the log is told, once.
#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_is_logged_once() {
    let log = Log::default();
    let _here = tracing::subscriber::set_default(log.clone());
    let lab = lab();
    for by_ms in [-86_400_000, 3_600_000] {
        lab.clock.jump(by_ms);
        for n in 0..10 {
            lab.job(n).await;
        }
    }
    let lines = log.0.lock().unwrap().clone();
    let told = lines.iter().filter(|line| line["message"] == "clock_jumped");
    let told: Vec<_> = told.map(|line| ["by_ms", "ahead_ms"].map(|name| line[name].clone())).collect();
    assert_eq!(told, [["-86400000", "86400000"], ["3600000", "82800000"]]);
    let back = lines.iter().find(|line| line["message"] == "clock_jumped").unwrap();
    assert_eq!((back["from"].as_str(), back["to"].as_str()), ("2027-01-15T08:00:00.000Z", "2027-01-14T08:00:00.000Z"));
}

/// R14: the document's log events, with the document's fields.
#[tokio::test(start_paused = true)]
async fn a_life_is_logged_with_its_fields() {
    let log = Log::default();
    tracing::subscriber::set_global_default(log.clone()).unwrap();
    let lab = lab();
    let retry = RetryPolicy::Fixed { delay: secs(9).into() };
    let good = lab.client.enqueue(Job { n: 0 }).await.unwrap().id;
    let bad = lab.client.enqueue(Job { n: 1 }).max_attempts(2).retry(retry).await.unwrap().id;
    let runner = lab.runner().handler(|job: Job, _: Context| async move {
        if job.n == 1 { Err(TaskError::retryable("no luck")) } else { Ok(()) }
    });
    while_running(runner, async {
        lab.until(&good, TaskState::Succeeded).await;
        lab.until(&bad, TaskState::Dead).await;
    })
    .await;
    let lines = log.0.lock().unwrap().clone();
    let of = |id: &ekiden::core::TaskId| -> Vec<Line> {
        lines.iter().filter(|line| line.get("task_id").is_some_and(|found| found == id.as_str())).cloned().collect()
    };
    let names = |lines: &[Line]| -> Vec<String> { lines.iter().map(|line| line["message"].clone()).collect() };
    assert_eq!(names(&of(&good)), ["enqueued", "started", "succeeded"]);
    let life = of(&bad);
    assert_eq!(names(&life), ["enqueued", "started", "failed", "retry_scheduled", "started", "failed", "dead"]);
    assert!(life.iter().all(|line| line["task_type"] == "job"));
    let attempts: Vec<_> = life.iter().skip(1).map(|line| line["attempt"].as_str()).collect();
    assert_eq!(attempts, ["1", "1", "1", "2", "2", "2"]);
    assert_eq!((life[2]["error"].as_str(), life[5]["error"].as_str()), ("no luck", "no luck"));
    assert_eq!(life[3]["next_run_at"], (START + secs(9).into()).to_string());
    assert_eq!(life[3]["backoff"], ekiden::core::Millis::from_secs(9).to_string());
}
