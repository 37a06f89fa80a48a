//! Clients that do not read what they asked for: each is closed in its time, and one that reads slowly is not.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::time::Duration;

use ekiden_server::limits;
use lab::{Lab, Wire, within};
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::time::interval;

const EVENTS: &str = "/api/v1/namespaces/n/events";
const TASKS: &str = "/api/v1/namespaces/n/tasks";

/// Two seconds without progress: far more than a client needs that reads at all.
const UNREAD: Duration = Duration::from_secs(2);

/// Tasks whose payloads no socket holds.
async fn large_tasks(lab: &Lab, count: usize) {
    let payload = "x".repeat(250 * 1024);
    for _ in 0..count {
        assert_eq!(lab.post(TASKS, json!({"task_type": "k", "payload": payload})).await.status, 201);
    }
}

/// Reads until the server has closed the connection, orderly or not.
async fn gone(wire: &mut Wire) {
    let mut piece = vec![0; 1 << 20];
    let gone = async { while wire.stream.read(&mut piece).await.is_ok_and(|read| read > 0) {} };
    within(gone).await;
}

#[test]
fn whoever_does_not_read_or_send_is_gone_within_half_a_minute() {
    let half_a_minute = Duration::from_secs(30);
    assert!(limits::WRITE_WITHIN < half_a_minute && limits::HEADERS_WITHIN < half_a_minute);
}

#[tokio::test]
async fn an_answer_that_nobody_reads_ends_its_connection() {
    let lab = Lab::with(|builder| builder.write_within(UNREAD)).await;
    large_tasks(&lab, 16).await;
    let mut unread = lab.connect().await;
    unread.request(&lab, "GET", TASKS, &[], b"").await;
    let mut pipelined = lab.connect().await;
    for _ in 0..100 {
        pipelined.request(&lab, "GET", "/openapi.json", &[], b"").await;
    }
    lab.until_metric("ekiden_http_connections 3").await;
    lab.until_metric("ekiden_http_connections 1").await;
    gone(&mut unread).await;
    gone(&mut pipelined).await;
}

#[tokio::test]
async fn an_answer_of_which_a_byte_is_read_now_and_then_ends_its_connection_as_well() {
    let lab = Lab::with(|builder| builder.write_within(UNREAD)).await;
    large_tasks(&lab, 16).await;
    let mut wire = lab.connect().await;
    for _ in 0..4 {
        wire.request(&lab, "GET", TASKS, &[], b"").await;
    }
    let reading = async {
        let mut pause = interval(UNREAD / 20);
        while wire.stream.read(&mut [0]).await.is_ok_and(|read| read > 0) {
            pause.tick().await;
        }
    };
    lab.until_metric("ekiden_http_connections 2").await;
    tokio::select! {
        () = reading => {}
        () = lab.until_metric("ekiden_http_connections 1") => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_nobody_reads_is_closed_and_one_that_is_read_slowly_is_not() {
    let lab = Lab::with(|builder| builder.write_within(UNREAD)).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut wire = lab.connect().await;
        wire.request(&lab, "GET", EVENTS, &[], b"").await;
        assert_eq!(wire.head().await.status, 200);
        streams.push(wire);
    }
    let (mut slow, unread) = (streams.pop().unwrap(), streams.pop().unwrap());
    let client = lab.ekiden.namespace("n").unwrap();
    // Changes without an end: more than both sockets hold, and more than the slow one reads.
    let busy = tokio::spawn(async move {
        let mut pause = interval(UNREAD / 100);
        loop {
            let tasks = (0..500).map(|_| client.enqueue_raw("k", "text/plain", ""));
            assert!(client.enqueue_all(tasks).await.iter().all(Result::is_ok));
            pause.tick().await;
        }
    });
    let reading = tokio::spawn(async move {
        let (mut piece, mut pause) = (vec![0; 64 * 1024], interval(UNREAD / 16));
        loop {
            pause.tick().await;
            if !slow.stream.read(&mut piece).await.is_ok_and(|read| read > 0) {
                return;
            }
        }
    });
    lab.until_metric("ekiden_http_streams 1").await;
    // Twice as long as it takes to be closed, from now on.
    tokio::time::timeout(2 * UNREAD, lab.until_metric("ekiden_http_streams 0")).await.unwrap_err();
    assert!(!reading.is_finished(), "the slow reader is still there");
    busy.abort();
    reading.abort();
    drop(unread);
}
