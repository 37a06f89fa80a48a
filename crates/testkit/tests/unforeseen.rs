//! What a queue publishes tells nothing of the ids that it draws.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::sync::Arc;

use ekiden::core::{Namespace, TaskFilter};
use ekiden::store::{MemoryStore, Store, TaskQuery};
use ekiden::{Context, Ekiden, Payload, Runner, TaskState};
use ekiden_testkit::{foreseen_tails, tail_of_op};
use tokio::sync::oneshot;

#[derive(serde::Serialize, serde::Deserialize)]
struct Work;

impl Payload for Work {
    const TASK_TYPE: &'static str = "work";
}

/// Every member of a namespace sees the names of its runners.
#[tokio::test]
async fn claims_and_commits_are_not_foreseen_from_the_name_of_a_runner() {
    let store = Arc::new(MemoryStore::new());
    let client = Ekiden::builder(store.clone()).build().namespace("default").unwrap();
    let (began, running) = oneshot::channel();
    let began = Arc::new(std::sync::Mutex::new(Some(began)));
    let handler = move |_: Work, _: Context| {
        let began = began.clone();
        async move {
            if let Some(began) = began.lock().unwrap().take() {
                began.send(()).unwrap();
            }
            std::future::pending::<()>().await;
        }
    };
    let runner = Runner::builder(&client).handler(handler).build().unwrap();
    let stop = runner.stop();
    let ends = tokio::spawn(runner.run_until_stopped());
    client.enqueue(Work).await.unwrap();
    running.await.unwrap();
    let query = TaskQuery::oldest(TaskFilter::all(Namespace::new("default").unwrap()), 1);
    let found = store.tasks(query).await.unwrap().items.pop().unwrap();
    let task = found.record.as_task().unwrap();
    assert_eq!(task.state.phase, TaskState::Running);
    let lease = task.state.lease.as_ref().unwrap();
    let (_, number) = lease.holder.as_str().rsplit_once('.').unwrap();
    let tails = foreseen_tails(u64::from_str_radix(number, 16).unwrap());
    assert!(!tails.contains(&tail_of_op(lease.claim)), "the claim follows from {}", lease.holder);
    assert!(!tails.contains(&tail_of_op(found.created_by)), "the commit follows from {}", lease.holder);
    stop.at_once();
    ends.await.unwrap().unwrap();
}
