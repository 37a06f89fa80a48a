//! A task that hands itself in by the clock. However many processes have a runner, each tick makes one task.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use ekiden::core::TaskId;
use ekiden::{Context, Ekiden, Payload, Runner};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

#[derive(Serialize, Deserialize)]
struct CleanUp;

impl Payload for CleanUp {
    const TASK_TYPE: &'static str = "clean_up";
}

/// Returns the tasks of the first two ticks. Their names tell schedule and moment.
pub(crate) async fn run() -> ekiden::Result<Vec<TaskId>> {
    let client = Ekiden::open("memory:").await?.namespace("default")?;
    // Setting it again changes it, so a program may do this at every start. `.cron("0 3 * * *", "Asia/Tokyo")` is the other form.
    client.schedule("clean-up", client.enqueue(CleanUp)).every(Duration::from_secs(1)).await?;

    let (ticked, mut ticks) = mpsc::unbounded_channel();
    let handler = move |_: CleanUp, context: Context| {
        // The receiver lives until two have come; later ones are nobody's business.
        let _ = ticked.send(context.task().id.clone());
        async {}
    };
    let mut seen = Vec::new();
    let two_ticks = async {
        while seen.len() < 2
            && let Some(task) = ticks.recv().await
        {
            seen.push(task);
        }
    };
    Runner::builder(&client).handler(handler).run_until(two_ticks).await?;
    client.remove_schedule("clean-up").await?;
    Ok(seen)
}

#[tokio::main]
async fn main() -> ekiden::Result<()> {
    for task in run().await? {
        println!("{task}");
    }
    Ok(())
}
