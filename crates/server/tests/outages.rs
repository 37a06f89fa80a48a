//! A server that is away for a while, or that ends every stream: clients go on waiting, and pause before they ask again.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::time::Duration;

use ekiden::{Ekiden, TaskState};
use ekiden_testkit::{CUT_OFF, ENDED, Refusals, RefusingLine};
use lab::{Lab, within};
use serde_json::json;

/// Five requests to follow the changes, each of which is asked once: some three seconds.
const CUT: u64 = 5;

/// A second of a server that ends every stream at once, and how often it may be asked for one meanwhile.
const SECOND: Duration = Duration::from_secs(1);
const ASKED_MAX: u64 = 30;

/// R16: a client that waits for a task goes on waiting while the server is away, and learns of the end.
#[tokio::test]
async fn waiting_for_a_task_outlasts_an_outage() {
    let lab = Lab::new().await;
    let line = RefusingLine::start(lab.address, Refusals::NONE, 0).await.unwrap();
    let client = Ekiden::connect(&line.url(), None).await.unwrap().namespace("n").unwrap();
    let id = client.enqueue_json("k", &json!(1)).await.unwrap().id;
    line.cut_off(CUT);
    let waits = tokio::spawn({
        let (client, id) = (client.clone(), id.clone());
        async move { client.wait(&id).await }
    });
    within(async {
        while line.seen().get(CUT_OFF) != Some(&CUT) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    lab.ekiden.namespace("n").unwrap().cancel(&id).await.unwrap();
    assert_eq!(within(waits).await.unwrap().unwrap().state, TaskState::Cancelled);
}

/// R16: a stream that ends as soon as it begins is opened again after a pause that grows.
#[tokio::test]
async fn streams_that_end_at_once_are_opened_again_after_a_pause() {
    let lab = Lab::new().await;
    let line = RefusingLine::start(lab.address, Refusals::NONE, 0).await.unwrap();
    let client = Ekiden::connect(&line.url(), None).await.unwrap().namespace("n").unwrap();
    line.end_streams();
    let mut changes = client.subscribe().await.unwrap();
    let a_second = tokio::time::timeout(SECOND, async { while changes.next().await.is_some() {} }).await;
    assert!(a_second.is_err(), "the subscription goes on");
    let asked = line.seen()[ENDED];
    assert!((2..=ASKED_MAX).contains(&asked), "{asked} streams were asked for in a second");
}
