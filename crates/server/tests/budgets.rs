//! What requests may hold of a server: bodies and streams have their share, pages and claims their size.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::time::Duration;

use ekiden::core::Timestamp;
use ekiden_server::{Scope, Tokens, limits};
use lab::{Lab, Reply, Wire};
use serde_json::json;

const BATCH: &str = "/api/v1/namespaces/n/tasks/batch";
const TASKS: &str = "/api/v1/namespaces/n/tasks";
const JSON: (&str, &str) = ("content-type", "application/json");

/// A batch of 900 KiB: one fits a budget of 1 MiB, two do not.
fn large_batch() -> Vec<u8> {
    let task = json!({"task_type": "k", "payload": "x".repeat(225 * 1024)});
    json!({"tasks": vec![task; 4]}).to_string().into_bytes()
}

/// Sends all of a body but its last byte.
async fn nearly(lab: &Lab, body: &[u8]) -> Wire {
    let mut wire = lab.connect().await;
    let (most, _) = body.split_at(body.len() - 1);
    wire.request(lab, "POST", BATCH, &[JSON, ("content-length", &body.len().to_string())], most).await;
    wire
}

async fn is_busy(lab: &Lab, body: &[u8]) -> bool {
    let reply = lab.ask("POST", BATCH, &[JSON], body).await;
    if reply.status != 200 {
        assert_eq!((reply.status, reply.reason().as_str()), (503, "SERVER_BUSY"));
        assert_eq!(reply.json()["error"]["retryable"], true);
    }
    reply.status == 503
}

/// A large body that is nearly there and has its share, seen by others that have none.
async fn holding(lab: &Lab, body: &[u8]) -> Wire {
    lab::within(async {
        loop {
            let mut wire = nearly(lab, body).await;
            tokio::select! {
                // One of those who look had the share at that moment, or for too long.
                reply = wire.reply() => assert!([503, 408].contains(&reply.status)),
                () = async { while !is_busy(lab, body).await {} } => return wire,
            }
        }
    })
    .await
}

#[tokio::test]
async fn bodies_share_a_budget_and_small_requests_need_none_of_it() {
    let lab = Lab::with(|builder| builder.bodies_bytes_max(1 << 20)).await;
    let body = large_batch();
    assert!(!is_busy(&lab, &body).await);
    let mut first = holding(&lab, &body).await;
    lab.task().await;
    lab.runner("r").await;
    assert_eq!(lab.claim(0).await.status, 200);
    first.send(b"}").await;
    assert_eq!(first.reply().await.status, 200, "the one that came first is carried out");
    assert!(!is_busy(&lab, &body).await, "and gave its share back");
}

#[tokio::test]
async fn a_large_body_that_stops_gives_its_share_back() {
    let step = Duration::from_millis(500);
    let lab = Lab::with(|builder| builder.bodies_bytes_max(1 << 20).body_step_within(step)).await;
    let body = large_batch();
    let mut stops = holding(&lab, &body).await;
    let reply = stops.reply().await;
    assert_eq!((reply.status, reply.reason().as_str()), (408, "REQUEST_TIMEOUT"));
    assert_eq!(reply.json()["error"]["retryable"], true);
    assert!(!is_busy(&lab, &body).await);
}

#[tokio::test]
async fn an_answer_larger_than_the_budget_is_sent_when_it_is_the_only_one() {
    let lab = Lab::with(|builder| builder.answers_bytes_max(64 << 10)).await;
    let task = json!({"task_type": "k", "id": "large", "payload": "x".repeat(225 * 1024)});
    assert_eq!(lab.post(TASKS, task).await.status, 201);
    for _ in 0..2 {
        assert_eq!(lab.get(&format!("{TASKS}/large")).await.status, 200);
    }
    assert_eq!(lab.get(TASKS).await.status, 200);
    assert_eq!(lab.post(&format!("{TASKS}/large/cancel"), json!({})).await.status, 200);
}

#[tokio::test]
async fn a_token_leaves_streams_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = Tokens::at(folder.path());
    let make = |name: &str| tokens.create(name, Scope::Run, vec![], Timestamp::ZERO).unwrap();
    let (ours, theirs) = (make("ours"), make("theirs"));
    let mut lab = Lab::with(|builder| builder.tokens(tokens.clone())).await;
    lab.token = Some(ours.clone());
    let mut streams = Vec::new();
    for _ in 0..limits::STREAMS_MAX / limits::A_TOKENS_PART {
        streams.push(stream(&lab).await);
    }
    assert!(streams.iter().all(|(_, reply)| reply.status == 200));
    assert_eq!(stream(&lab).await.1.status, 503);
    lab.token = Some(theirs);
    assert_eq!(stream(&lab).await.1.status, 200);
    drop(streams);
    lab.token = Some(ours);
    lab::within(async { while stream(&lab).await.1.status != 200 {} }).await;
}

#[tokio::test]
async fn runners_and_schedules_of_a_namespace_have_a_maximum_together() {
    let lab = Lab::new().await;
    let types: Vec<String> = (0..500).map(|number| format!("{number:0120}")).collect();
    let beat = json!({"task_types": types});
    let schedule = json!({"every": {"cron": {"expression": "0 3 * * *"}}, "task": {"task_type": "k", "payload": "x".repeat(250 << 10)}});
    for (what, body, most) in [("runners", beat, 100), ("schedules", schedule, 20)] {
        let set = async |namespace: &str, name: &str| {
            lab.send("PUT", &format!("/api/v1/namespaces/{namespace}/{what}/{name}"), body.clone()).await
        };
        let mut count = 0;
        let refused = loop {
            let reply = set("n", &format!("name-{count}")).await;
            if reply.status >= 300 {
                break reply;
            }
            count += 1;
            assert!(count < most, "{what} have no maximum");
        };
        assert_eq!((refused.status, refused.reason().as_str()), (400, "NUMBER_OUT_OF_RANGE"), "{refused:?}");
        assert_eq!(refused.json()["error"]["context"]["field"], what);
        assert!(set("n", "name-0").await.status < 300, "what is there stays and may change");
        assert!(set("other", "name").await.status < 300);
        let list = lab.get(&format!("/api/v1/namespaces/n/{what}")).await;
        assert_eq!(list.json()["items"].as_array().unwrap().len(), count);
        assert!(list.body.len() < limits::PAGE_ANSWER_BYTES);
    }
    let gone = lab.ask("DELETE", "/api/v1/namespaces/n/schedules/name-1", &[], b"").await;
    assert_eq!(gone.status, 204);
}

async fn stream(lab: &Lab) -> (Wire, Reply) {
    let mut wire = lab.connect().await;
    wire.request(lab, "GET", "/api/v1/namespaces/n/events", &[], b"").await;
    let head = wire.head().await;
    (wire, head)
}

#[tokio::test]
async fn pages_and_claims_end_when_their_tasks_are_large() {
    const COUNT: usize = 40;
    let lab = Lab::new().await;
    lab.runner("r").await;
    let payload = "x".repeat(250 * 1024);
    for _ in 0..COUNT {
        assert_eq!(lab.post(TASKS, json!({"task_type": "k", "payload": payload})).await.status, 201);
    }
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = lab.get(&format!("{TASKS}?limit=1000&cursor={cursor}")).await;
        assert!(page.body.len() < 5 << 20, "{}", page.body.len());
        let page = page.json();
        ids.extend(page["items"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = next.to_owned();
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), COUNT, "every task once");
    let mut claimed = 0;
    while claimed < COUNT {
        let claim = json!({"runner": "r", "task_types": ["k"], "limit": 256});
        let reply = lab.post("/api/v1/namespaces/n/claims", claim).await;
        assert!(reply.body.len() < 5 << 20, "{}", reply.body.len());
        let tasks = reply.json()["tasks"].as_array().unwrap().len();
        assert!(tasks > 0);
        claimed += tasks;
    }
    assert_eq!(claimed, COUNT);
}
