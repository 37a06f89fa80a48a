//! Streams: changes with replay, rings of the bell, logs that are read along; and how they end.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::sync::Arc;
use std::time::Duration;

use ekiden::core::{Namespace, TaskId};
use ekiden::{AttemptRef, FolderLogs, Logs as _, TaskRef};
use lab::{Lab, Wire};
use serde_json::{Value, json};
use tokio::time::interval;

const EVENTS: &str = "/api/v1/namespaces/n/events";

async fn stream(lab: &Lab, path: &str, headers: &[(&str, &str)]) -> Wire {
    let mut wire = lab.connect().await;
    wire.request(lab, "GET", path, headers, b"").await;
    let head = wire.head().await;
    assert_eq!((head.status, head.headers["content-type"].as_str()), (200, "text/event-stream"), "{head:?}");
    wire
}

/// The events that were told, by name, id and data.
fn told(text: &str) -> Vec<(String, String, Value)> {
    let field = |event: &str, name: &str| {
        let lines = event.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(other, _)| *other == name).map(|(_, value)| value.to_owned()).next_back().unwrap_or_default()
    };
    let events = text.split("\n\n").filter(|event| event.contains("event: "));
    events
        .map(|event| {
            (field(event, "event"), field(event, "id"), serde_json::from_str(&field(event, "data")).unwrap_or_default())
        })
        .collect()
}

#[tokio::test]
async fn changes_are_told_as_they_happen_and_again_from_a_cursor() {
    let lab = Lab::new().await;
    let mut first = stream(&lab, EVENTS, &[]).await;
    let ids = [lab.task().await, lab.task().await, lab.task().await];
    let events = told(&first.until(&ids[2]).await);
    assert_eq!(events.len(), 3);
    for ((name, _, data), id) in events.iter().zip(&ids) {
        assert_eq!((name.as_str(), &data["id"], &data["event"]), ("change", &json!(id), &json!("enqueued")));
    }
    for headers in [&[("last-event-id", events[0].1.as_str())][..], &[]] {
        let path = if headers.is_empty() { format!("{EVENTS}?cursor={}", events[0].1) } else { EVENTS.to_owned() };
        let again = told(&stream(&lab, &path, headers).await.until(&ids[2]).await);
        assert_eq!(again.iter().map(|(_, id, _)| id).collect::<Vec<_>>(), [&events[1].1, &events[2].1]);
    }
    let mut other = stream(&lab, "/api/v1/namespaces/other/events", &[("last-event-id", &events[0].1)]).await;
    lab.post("/api/v1/namespaces/other/tasks", json!({"task_type": "k", "id": "only"})).await;
    assert_eq!(told(&other.until("only").await).len(), 1, "other namespaces are not heard");
}

#[tokio::test]
async fn an_unknown_cursor_is_told_to_look_anew() {
    let lab = Lab::new().await;
    for cursor in ["0000000000000000-5", "garbage", "%00", "-"] {
        let mut wire = stream(&lab, &format!("{EVENTS}?cursor={cursor}"), &[]).await;
        let id = lab.task().await;
        let events = told(&wire.until(&id).await);
        assert_eq!((events[0].0.as_str(), &events[0].2["reason_code"]), ("reset", &json!("UNKNOWN_CURSOR")));
        assert_eq!(events[1].0, "change");
    }
}

#[tokio::test]
async fn streams_end_with_a_last_event_and_waiting_claims_with_nothing() {
    let mut lab = Lab::new().await;
    lab.runner("r").await;
    let mut events = stream(&lab, EVENTS, &[]).await;
    let mut hints = stream(&lab, "/api/v1/namespaces/n/hints", &[]).await;
    let mut claim = lab.connect().await;
    let body = json!({"runner": "r", "task_types": ["k"], "wait_ms": 60_000}).to_string();
    claim
        .request(&lab, "POST", "/api/v1/namespaces/n/claims", &[("content-type", "application/json")], body.as_bytes())
        .await;
    lab.until_metric("ekiden_claims_waiting 1").await;
    lab.stop();
    for stream in [&mut events, &mut hints] {
        assert!(stream.until("event: end").await.ends_with("event: end\ndata: {}\n\n"));
        stream.closed().await;
    }
    let reply = claim.reply().await;
    assert_eq!(reply.json(), json!({"tasks": []}));
    claim.closed().await;
    lab.ended().await;
    assert!(tokio::net::TcpStream::connect(lab.address).await.is_err(), "nobody listens any more");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_gives_signs_of_life_while_other_namespaces_change() {
    let lab = Lab::new().await;
    let mut quiet = stream(&lab, EVENTS, &[]).await;
    let mut second = interval(Duration::from_secs(1));
    let others = async {
        loop {
            second.tick().await;
            lab.post("/api/v1/namespaces/other/tasks", json!({"task_type": "k"})).await;
        }
    };
    tokio::select! {
        () = others => unreachable!("they go on"),
        _ = quiet.until(": still here") => {}
    }
}

#[tokio::test]
async fn the_bell_is_heard_elsewhere() {
    let lab = Lab::new().await;
    let mut hints = stream(&lab, "/api/v1/namespaces/n/hints", &[]).await;
    lab.task().await;
    hints.until("event: ready\ndata: {\"at\":null}").await;
    lab.post("/api/v1/namespaces/n/tasks", json!({"task_type": "k", "delay_ms": 3_600_000})).await;
    hints.until("event: ready\ndata: {\"at\":\"20").await;
}

#[tokio::test]
async fn there_are_only_so_many_streams() {
    let lab = Lab::with(|builder| builder.streams_max(1)).await;
    let first = stream(&lab, EVENTS, &[]).await;
    let refused = lab.get(EVENTS).await;
    assert_eq!((refused.status, refused.reason().as_str()), (503, "SERVER_BUSY"));
    drop(first);
    lab::within(async {
        loop {
            let mut wire = lab.connect().await;
            wire.request(&lab, "GET", EVENTS, &[], b"").await;
            if wire.head().await.status == 200 {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_log_is_written_by_its_holder_and_read_along() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::with(|builder| builder.logs(Arc::new(FolderLogs::at(folder.path().join("logs"))))).await;
    lab.runner("r").await;
    let id = lab.task().await;
    let log = format!("/api/v1/namespaces/n/tasks/{id}/attempts/1/log");
    let append = async |offset: u64, token: u64, text: &str| {
        lab.ask("POST", &format!("{log}?offset={offset}&token={token}"), &[], text.as_bytes()).await
    };
    assert_eq!(append(0, 1, "early").await.reason(), "LEASE_LOST", "nobody holds it");
    assert_eq!(lab.get(&log).await.reason(), "LOG_NOT_FOUND");
    let claimed = lab.claim(0).await.json();
    assert_eq!(claimed["tasks"][0]["token"], 1);

    let mut along = lab.connect().await;
    along.request(&lab, "GET", &format!("{log}?follow=true"), &[], b"").await;
    assert_eq!(along.head().await.status, 200);
    assert_eq!(append(0, 1, "hello ").await.json(), json!({"end": 6}));
    along.until("hello ").await;
    assert_eq!(append(6, 1, "world").await.json(), json!({"end": 11}));
    let wrong = append(6, 1, "world").await;
    assert_eq!((wrong.status, wrong.reason().as_str()), (409, "LOG_OFFSET_WRONG"));
    assert_eq!(wrong.json()["error"]["context"]["end"], "11");
    assert_eq!(append(11, 2, "!").await.reason(), "LEASE_LOST", "another's token");

    let part = lab.get(&format!("{log}?offset=4&limit=4")).await;
    assert_eq!((part.text(), part.headers["ekiden-log-start"].as_str()), ("o wo", "0"));
    assert_eq!(part.headers["ekiden-log-end"], "11");
    let settle = json!({"settlements": [{"task_id": id, "token": 1, "verdict": {"outcome": "succeeded"}}]});
    lab.post("/api/v1/namespaces/n/settlements", settle).await;
    assert_eq!(append(11, 1, " late").await.json(), json!({"end": 16}), "what was on its way arrives");
    along.until("hello world").await;
    along.closed_or_done().await;
}

#[tokio::test]
async fn the_server_does_what_is_due_by_itself() {
    let lab = Lab::new().await;
    let mut events = stream(&lab, EVENTS, &[]).await;
    lab.send("PUT", "/api/v1/namespaces/n/runners/r", json!({"lease_ms": 100})).await;
    lab.task().await;
    assert_eq!(lab.claim(0).await.json()["tasks"].as_array().unwrap().len(), 1);
    events.until("\"event\":\"lease_lost\"").await;
    let sweep = json!({"action": "cancel", "filter": {"states": ["queued"]}});
    assert_eq!(lab.post("/api/v1/namespaces/n/sweeps", sweep).await.status, 202);
    events.until("\"state\":\"cancelled\"").await;
}

#[tokio::test]
async fn a_reader_that_is_too_slow_is_told_that_it_missed_something() {
    let lab = Lab::new().await;
    let mut events = stream(&lab, EVENTS, &[]).await;
    let client = lab.ekiden.namespace("n").unwrap();
    // More than the ring keeps and the sockets hold, while nobody reads.
    for _ in 0..100 {
        let tasks = (0..1_000).map(|_| client.enqueue_raw("k", "text/plain", ""));
        assert!(client.enqueue_all(tasks).await.iter().all(Result::is_ok));
    }
    let said = events.until("event: reset").await;
    let (_, _, reset) = told(&said).into_iter().find(|(name, ..)| name == "reset").unwrap();
    assert_eq!(reset["reason_code"], "TOO_SLOW");
}

#[tokio::test]
async fn logs_of_tasks_that_are_gone_go_too() {
    let folder = tempfile::tempdir().unwrap();
    let logs = Arc::new(FolderLogs::at(folder.path().join("logs")));
    let task = TaskRef { namespace: Namespace::new("n").unwrap(), id: TaskId::new("gone").unwrap() };
    let attempt = AttemptRef { task, execution_no: 1 };
    logs.append(attempt.clone(), 0, "left".into()).await.unwrap();
    let _lab = Lab::with(|builder| builder.logs(logs.clone())).await;
    let gone = async { while logs.read(attempt.clone(), 0, 9).await.is_ok() {} };
    lab::within(gone).await;
}
