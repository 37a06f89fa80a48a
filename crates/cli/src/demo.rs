//! The demo's tasks and the handler that runs them. Each task shows one rule; its title says which.

use std::sync::Arc;
use std::time::Duration;

use ekiden::core::{Millis, Progress, RetryPolicy, TaskId};
use ekiden::{Client, Context, EnqueueBuilder, Payload, Runner, TaskError};
use serde::{Deserialize, Serialize};

use crate::language::Lang;
use crate::row::Row;

/// Fewer than there are tasks, so that some have to wait for a free place.
const CONCURRENCY: usize = 6;

/// One step of a leg: short enough to make a bar move, long enough to be seen.
const STEP: Duration = Duration::from_millis(100);

/// A leg of the relay: so many steps, some of which go wrong on purpose.
#[derive(Serialize, Deserialize)]
struct Leg {
    steps: u64,
    trouble: Trouble,
}

impl Payload for Leg {
    const TASK_TYPE: &'static str = "leg";
}

#[derive(Serialize, Deserialize)]
enum Trouble {
    None,
    /// This many attempts fail with this message, and may be repeated.
    Passing(u32, String),
    /// Every attempt would fail with this message; there is no second one.
    Lasting(String),
}

async fn run(leg: Leg, context: Context) -> Result<(), TaskError> {
    for step in 0..leg.steps {
        context.report(Progress { done: step, total: Some(leg.steps), note: None });
        tokio::time::sleep(STEP).await;
    }
    match leg.trouble {
        Trouble::Passing(times, why) if context.attempt() <= times => Err(TaskError::retryable(why)),
        Trouble::Lasting(why) => Err(TaskError::permanent(why)),
        Trouble::None | Trouble::Passing(..) => Ok(()),
    }
}

/// A runner for the demo's tasks.
pub(crate) fn runner(client: &Client) -> Result<Runner, ekiden::Error> {
    Runner::builder(client).handler(run).concurrency(CONCURRENCY).name("dev").build()
}

/// Hands every task in, and returns what is to be shown of each, in the order of the screen.
pub(crate) async fn hand_in(client: &Client, lang: Lang) -> Result<Vec<Row>, ekiden::Error> {
    let photos = TaskId::new("resize-photos")?;
    let calm = |steps| Leg { steps, trouble: Trouble::None };
    let unanswered = lang.pick("no answer (503)", "応答がありません (503)").to_owned();
    let unknown = lang.pick("no such address", "宛先が存在しません").to_owned();
    let waits = [900, 1_500].map(Millis::new).to_vec();
    let named = |id: &str, leg, en, ja| client.enqueue(leg).id(id).title(lang.pick(en, ja));

    let mut tasks = vec![
        named(photos.as_str(), calm(16), "reports its progress", "進捗を報告"),
        named(
            "call-api",
            Leg { steps: 4, trouble: Trouble::Passing(2, unanswered) },
            "fails twice",
            "2回失敗してから成功",
        )
        .retry(RetryPolicy::Steps { delays: waits }),
        named("send-mail", Leg { steps: 5, trouble: Trouble::Lasting(unknown) }, "cannot succeed", "成功しない"),
        named("report", calm(8), "starts later", "あとで開始").delay(Duration::from_millis(1_500)),
        named("publish", calm(6), "after resize-photos", "resize-photos の後").depends_on([&photos]),
    ];
    for id in ["deploy-1", "deploy-2", "deploy-3"] {
        tasks.push(named(id, calm(6), "one deploy at a time", "deploy は1件ずつ").serial_key("deploy"));
    }
    tasks.push(named("襷リレー", calm(10), "a name in Japanese", "日本語の名前"));

    let mut rows = Vec::new();
    for task in tasks {
        rows.push(enqueue(client, task).await?);
    }
    Ok(rows)
}

async fn enqueue(client: &Client, task: EnqueueBuilder) -> Result<Row, ekiden::Error> {
    let enqueued = task.await?;
    let record = client.get_status(&enqueued.id).await?;
    Ok(Row::new(record.id, record.title.unwrap_or_else(|| Arc::from("")), record.max_attempts))
}
