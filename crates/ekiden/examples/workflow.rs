//! Tasks that wait for others: a download, then one task for each size, then one that runs when the whole group has ended.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use ekiden::core::OnParentFailure;
use ekiden::{Context, Ekiden, Payload, Runner};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

#[derive(Serialize, Deserialize)]
enum Step {
    Download,
    Resize(u32),
    Publish,
}

impl Payload for Step {
    const TASK_TYPE: &'static str = "picture_step";
}

/// Returns the steps in the order in which they ran.
pub(crate) async fn run() -> ekiden::Result<Vec<String>> {
    let client = Ekiden::open("memory:").await?.namespace("pictures")?;
    // All is handed in at the beginning. What has to wait is blocked or held, and no runner sees it.
    let download = client.enqueue(Step::Download).await?;
    for width in [640, 320] {
        // A child follows when its parents have succeeded. Cancelled with a parent that fails, instead of blocked for ever.
        let resize = client.enqueue(Step::Resize(width)).depends_on([&download.id]).group("picture-1");
        resize.on_parent_failure(OnParentFailure::Cancel).await?;
    }
    // A group has ended when all its tasks have; it is handed in after the first of them, and may grow until then.
    let publish = client.enqueue(Step::Publish).after_group("picture-1").await?;

    let (did, mut done) = mpsc::unbounded_channel();
    let handler = move |step: Step, _: Context| {
        let said = match step {
            Step::Download => "download".to_owned(),
            Step::Resize(width) => format!("resize to {width}"),
            Step::Publish => "publish".to_owned(),
        };
        // The receiver outlives the runner.
        let _ = did.send(said);
        async {}
    };
    let published = async {
        // Its state is looked at by whoever cares; here only that it ended.
        let _ = client.wait(&publish.id).await;
    };
    Runner::builder(&client).handler(handler).concurrency(1).run_until(published).await?;

    let mut steps = Vec::new();
    while let Ok(step) = done.try_recv() {
        steps.push(step);
    }
    Ok(steps)
}

#[tokio::main]
async fn main() -> ekiden::Result<()> {
    for step in run().await? {
        println!("{step}");
    }
    Ok(())
}
