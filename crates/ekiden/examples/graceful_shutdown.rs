//! How a runner ends: it claims no more, what runs may finish within the grace, and the rest goes back unspent.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use ekiden::{Context, Ekiden, Ended, Payload, Runner, TaskRecord};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

#[derive(Serialize, Deserialize)]
struct Work {
    takes_ms: u64,
}

impl Payload for Work {
    const TASK_TYPE: &'static str = "work";
}

/// Returns what the runner left behind, and the two tasks: one that was quick enough and one that was not.
pub(crate) async fn run() -> ekiden::Result<(Ended, TaskRecord, TaskRecord)> {
    let client = Ekiden::open("memory:").await?.namespace("default")?;
    let quick = client.enqueue(Work { takes_ms: 100 }).await?;
    let slow = client.enqueue(Work { takes_ms: 60_000 }).await?;

    let (began, mut begun) = mpsc::unbounded_channel();
    let handler = move |work: Work, _: Context| {
        let began = began.clone();
        async move {
            // The receiver lives until both have begun.
            let _ = began.send(());
            // A handler that is interrupted is dropped where it awaits. `context.cancelled()` tells it before, where it has
            // something to put away.
            tokio::time::sleep(Duration::from_millis(work.takes_ms)).await;
        }
    };
    // A service calls `.run()` instead, which ends at SIGINT or SIGTERM, and at once at the second one.
    let both_began = async {
        begun.recv().await;
        begun.recv().await;
    };
    let grace = Duration::from_millis(500);
    let ended = Runner::builder(&client).handler(handler).concurrency(2).grace(grace).run_until(both_began).await?;
    Ok((ended, client.get_status(&quick.id).await?, client.get_status(&slow.id).await?))
}

#[tokio::main]
async fn main() -> ekiden::Result<()> {
    let (ended, quick, slow) = run().await?;
    println!("the quick task {}", quick.state);
    println!("the slow task is {} again, with {} attempts spent", slow.state, slow.attempts);
    println!("{} handed back, {} left behind", ended.handed_back.len(), ended.unsettled.len());
    Ok(())
}
