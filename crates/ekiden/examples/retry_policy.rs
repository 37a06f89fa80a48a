//! What a handler can say about a failure, and how long the task waits after each.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use ekiden::core::{Millis, RetryPolicy};
use ekiden::{Context, Done, Ekiden, Payload, Runner, TaskError, TaskRecord};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Fetch {
    page: String,
}

impl Payload for Fetch {
    const TASK_TYPE: &'static str = "fetch";
}

async fn fetch(task: Fetch, context: Context) -> Result<Done, TaskError> {
    match task.page.as_str() {
        // It will never work, so no further attempt is wasted on it: the task is dead at once.
        "missing" => Err(TaskError::permanent("404 not found")),
        // The server said when to come back, and it knows better than any policy.
        "busy" if context.attempt() == 1 => {
            Err(TaskError::retry_after(Duration::from_millis(200), "429 too many requests"))
        }
        // Not there yet, which is no failure: the task goes on later and no attempt is spent. The token counts on.
        "unfinished" if context.token().0 == 1 => Ok(Done::Snoozed(Duration::from_millis(100))),
        // Any other error is tried again as the task's policy says. So is a panic.
        "flaky" if context.attempt() < 3 => Err(TaskError::retryable("connection reset")),
        _ => Ok(Done::Succeeded(None)),
    }
}

/// Returns what became of each page.
pub(crate) async fn run() -> ekiden::Result<Vec<TaskRecord>> {
    let client = Ekiden::open("memory:").await?.namespace("crawler")?;
    // Without a word the waits double from 1 s to 5 min, with jitter, for five attempts in all. This task is in a hurry.
    let hurry = RetryPolicy::Steps { delays: vec![Millis::new(50), Millis::new(100)] };
    let mut tasks = Vec::new();
    for page in ["missing", "busy", "unfinished", "flaky"] {
        let task = client.enqueue(Fetch { page: page.to_owned() }).title(page).retry(hurry.clone()).max_attempts(4);
        tasks.push(task.await?);
    }

    let runner = Runner::builder(&client).handler(fetch).build()?;
    let stop = runner.stop();
    let running = tokio::spawn(runner.run_until_stopped());
    let mut records = Vec::new();
    for task in &tasks {
        records.push(client.wait(&task.id).await?);
    }
    stop.gently();
    running.await.expect("the runner does not panic")?;
    Ok(records)
}

#[tokio::main]
async fn main() -> ekiden::Result<()> {
    for record in run().await? {
        let page = record.title.as_deref().unwrap_or_default();
        let error = record.last_error.as_deref().unwrap_or("none");
        println!("{page}: {} after {} attempt(s), last error: {error}", record.state, record.attempts);
    }
    Ok(())
}
