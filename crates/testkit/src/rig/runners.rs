//! Real runners in a child, as a service has them: heartbeats on their own thread, maintenance, handlers that take their time.
//! Whoever stops the process stops all of it at once.

use std::sync::Arc;
use std::time::Duration;

use ekiden::core::RetryPolicy;
use ekiden::{Client, Context, Done, Ekiden, Payload, Runner, TaskError};
use ekiden_core::time::Millis;
use ekiden_store::entropy::Entropy;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::fleet::{Noted, pass};
use crate::history;
use crate::recorded::Recorded;
use crate::workload::Scene;

/// The pool of the chores; the one that a load at rest looks after.
const POOL: &str = "work";

/// 4 ms between two tasks: somewhat less than two runners can do, so that there is always something running.
const PERIOD: Duration = Duration::from_millis(4);

/// Takes a while, fails so often, then succeeds.
#[derive(Serialize, Deserialize)]
struct Chore {
    millis: u64,
    failures: u64,
}

impl Payload for Chore {
    const TASK_TYPE: &'static str = "chore";
}

async fn carry_out(chore: Chore, context: Context, record: history::Client) -> Result<Done, TaskError> {
    let _noted = Noted::begin(&context, record);
    pass(Duration::from_millis(chore.millis)).await;
    if context.token().0 <= chore.failures {
        Err(TaskError::retryable("not this time"))
    } else {
        Ok(Done::Succeeded(None))
    }
}

/// Hands in chores and lets two runners do them, until somebody says that it is enough.
pub(super) async fn run(scene: &Scene, lease: Duration, mut enough: watch::Receiver<bool>) -> ekiden::Result<()> {
    let record = scene.recorder.client("service");
    let store = Recorded::new(scene.store.clone(), record.clone());
    let ekiden = Ekiden::builder(Arc::new(store)).seed(scene.seed).build();
    let client = ekiden.namespace("default")?;
    let mut running = Vec::new();
    for _ in 0..2 {
        let record = record.clone();
        let runner = Runner::builder(&client)
            .handler(move |chore: Chore, context| carry_out(chore, context, record.clone()))
            .pool(POOL)
            .concurrency(4)
            .lease(lease)
            .build()?;
        let stop = runner.stop();
        running.push((stop, tokio::spawn(runner.run_until_stopped())));
    }
    let mut entropy = Entropy::from_seed(scene.seed);
    let mut period = tokio::time::interval(PERIOD);
    while !*enough.borrow_and_update() {
        period.tick().await;
        hand_in(&client, &mut entropy).await;
    }
    for (stop, runner) in running {
        stop.gently();
        runner.await.expect("a runner ends without a panic")?;
    }
    Ok(())
}

/// What is refused is as a caller would find it.
async fn hand_in(client: &Client, entropy: &mut Entropy) {
    let millis = u64::try_from(entropy.below(40)).unwrap_or(0);
    let failures = if entropy.chance(20) { 1 } else { 0 };
    let retry = RetryPolicy::Fixed { delay: Millis::new(50) };
    let mut task = client.enqueue(Chore { millis, failures }).pool(POOL).retry(retry);
    if entropy.chance(20) {
        task = task.serial_key(entropy.pick(&["a", "b"]));
    }
    if entropy.chance(10) {
        task = task.unique(entropy.pick(&["u", "v"]));
    }
    let _ = task.await;
}
