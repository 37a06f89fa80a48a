//! A runner that waits stands where tasks are handed in.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ekiden_core::id::{Kind, PoolName};

use crate::client::{Client, Ekiden};
use crate::context::Context;
use crate::handler::{Done, TaskError, TaskHandler};
use crate::record::TaskState;
use crate::runner::{Runner, Stop};
use crate::stand::Standing;

struct Job;

#[async_trait]
impl TaskHandler for Job {
    fn task_type(&self) -> &str {
        "job"
    }

    async fn execute(&self, _: Bytes, _: Context) -> Result<Done, TaskError> {
        Ok(Done::Succeeded(None))
    }
}

type Running = tokio::task::JoinHandle<crate::error::Result<crate::runner::Ended>>;

async fn running() -> (Client, Stop, Running) {
    let client = Ekiden::open("memory:").await.unwrap().namespace("default").unwrap();
    // It looks by itself once an hour: what happens sooner was not its own idea.
    let runner = Runner::builder(&client).task_handler(Job).concurrency(2).poll(Duration::from_secs(3_600));
    let runner = runner.build().unwrap();
    let stop = runner.stop();
    (client, stop, tokio::spawn(runner.run_until_stopped()))
}

/// The claim of the runner, once it stands.
async fn standing(client: &Client) -> Standing {
    let bell = client.queue().bell(client.namespace());
    let (pool, kind) = (PoolName::new("default").unwrap(), Kind::new("job").unwrap());
    let stands = async {
        loop {
            match bell.stands.take(&pool, &kind) {
                Some(standing) => return standing,
                None => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), stands).await.expect("an idle runner stands")
}

/// R13: whoever stands is given one task, and stands again when it has room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_runner_stands_again_and_again() {
    let (client, stop, running) = running().await;
    for _ in 0..3 {
        // Left to itself the claim looks once more, and comes back.
        drop(standing(&client).await);
        let mut changes = client.subscribe().await.unwrap();
        let task = client.enqueue_json("job", &serde_json::json!(1)).await.unwrap();
        let ends = async {
            while client.get_status(&task.id).await.unwrap().state != TaskState::Succeeded {
                changes.next().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ends).await.expect("it runs without a poll");
    }
    stop.gently();
    assert_eq!(running.await.unwrap().unwrap().settled, 3);
}

/// R17: what is given to a runner that is about to stop goes back, with no attempt spent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_stops_hands_back_what_it_was_just_given() {
    let (client, stop, running) = running().await;
    let standing = standing(&client).await;
    stop.gently();
    let task = client.enqueue_json("job", &serde_json::json!(1)).await.unwrap();
    let leased = client.queue().dequeue_ready(standing.ask.clone()).await.unwrap();
    assert_eq!(leased.len(), 1);
    standing.serve(leased).unwrap();
    let ended = running.await.unwrap().unwrap();
    assert_eq!(ended.handed_back, [task.id.clone()]);
    let record = client.get_status(&task.id).await.unwrap();
    assert_eq!((record.state, record.attempts), (TaskState::Queued, 0));
}
