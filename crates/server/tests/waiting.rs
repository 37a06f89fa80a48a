//! Claims that wait, and clients that do not.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::sync::Arc;

use ekiden_server::Upkeep;
use lab::{Gate, Lab, within};
use serde_json::{Value, json};

const CLAIMS: &str = "/api/v1/namespaces/n/claims";
const SETTLEMENTS: &str = "/api/v1/namespaces/n/settlements";

/// Waits until so many claims wait, by what the server tells of itself.
async fn until_waiting(lab: &Lab, count: usize) {
    lab.until_metric(&format!("ekiden_claims_waiting {count}")).await;
}

#[tokio::test]
async fn a_waiting_claim_hears_of_a_task_at_once() {
    let lab = Arc::new(Lab::new().await);
    lab.runner("r").await;
    let waiting = tokio::spawn({
        let lab = lab.clone();
        async move { lab.claim(20_000).await }
    });
    until_waiting(&lab, 1).await;
    let id = lab.task().await;
    let claimed = within(waiting).await.unwrap().json();
    assert_eq!(claimed["tasks"][0]["task"]["id"], id.as_str());
}

#[tokio::test]
async fn of_many_waiting_claims_each_task_goes_to_one() {
    let lab = Arc::new(Lab::new().await);
    lab.runner("r").await;
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let lab = lab.clone();
            tokio::spawn(async move { lab.claim(20_000).await.json() })
        })
        .collect();
    until_waiting(&lab, 8).await;
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(lab.task().await);
    }
    let mut given = Vec::new();
    for claim in waiting {
        let claimed: Value = within(claim).await.unwrap();
        assert_eq!(claimed["tasks"].as_array().unwrap().len(), 1);
        given.push(claimed["tasks"][0]["task"]["id"].as_str().unwrap().to_owned());
    }
    ids.sort();
    given.sort();
    assert_eq!(ids, given);
    until_waiting(&lab, 0).await;
}

#[tokio::test]
async fn a_task_that_becomes_due_is_given_out_when_it_does() {
    let lab = Lab::with(|builder| builder.upkeep(Upkeep::Elsewhere)).await;
    lab.runner("r").await;
    lab.post("/api/v1/namespaces/n/tasks", json!({"task_type": "k", "delay_ms": 50})).await;
    let claimed = lab.claim(20_000).await.json();
    assert_eq!(claimed["tasks"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_claim_that_waited_in_vain_is_answered_with_nothing() {
    let lab = Lab::new().await;
    lab.runner("r").await;
    assert_eq!(lab.claim(10).await.json(), json!({"tasks": []}));
    let stranger = json!({"runner": "stranger", "task_types": ["k"], "wait_ms": 10});
    let reply = lab.post(CLAIMS, stranger).await;
    assert!(reply.status >= 400 || reply.json()["tasks"] == json!([]), "{reply:?}");
}

#[tokio::test]
async fn settling_and_claiming_is_one_request() {
    let lab = Arc::new(Lab::new().await);
    lab.runner("r").await;
    let (first, second) = (lab.task().await, lab.task().await);
    let claimed = lab.claim(0).await.json();
    let settle = |task: &Value, wait_ms: u64| {
        json!({
            "settlements": [{"task_id": task["task"]["id"], "token": task["token"], "verdict": {"outcome": "succeeded"}}],
            "claim": {"runner": "r", "task_types": ["k"], "wait_ms": wait_ms},
        })
    };
    assert_eq!(claimed["tasks"][0]["task"]["id"], first.as_str());
    let next = lab.post(SETTLEMENTS, settle(&claimed["tasks"][0], 20_000)).await.json();
    assert_eq!(next["settled"][0]["state"], "succeeded");
    assert_eq!(next["tasks"][0]["task"]["id"], second.as_str());

    let waiting = tokio::spawn({
        let (lab, settle) = (lab.clone(), settle(&next["tasks"][0], 20_000));
        async move { lab.post(SETTLEMENTS, settle).await.json() }
    });
    until_waiting(&lab, 1).await;
    let found = lab.get(&format!("/api/v1/namespaces/n/tasks/{second}")).await.json();
    assert_eq!(found["state"], "succeeded", "what ended is written before the wait");
    let third = lab.task().await;
    let last = within(waiting).await.unwrap();
    assert_eq!((&last["settled"][0]["state"], &last["tasks"][0]["task"]["id"]), (&json!("succeeded"), &json!(third)));
}

#[tokio::test]
async fn the_same_claim_twice_gives_the_same_tasks() {
    let lab = Lab::new().await;
    lab.runner("r").await;
    lab.task().await;
    lab.task().await;
    let claim = json!({"id": "01900000-0000-7000-8000-000000000001", "runner": "r", "task_types": ["k"]});
    let first = lab.post(CLAIMS, claim.clone()).await.json();
    let again = lab.post(CLAIMS, claim).await.json();
    assert_eq!(first["tasks"][0]["task"]["id"], again["tasks"][0]["task"]["id"]);
    assert_eq!(again["tasks"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn nothing_is_claimed_for_who_went_away() {
    let lab = Lab::new().await;
    lab.runner("r").await;
    let mut wire = lab.connect().await;
    let claim = json!({"runner": "r", "task_types": ["k"], "wait_ms": 60_000}).to_string();
    wire.request(&lab, "POST", CLAIMS, &[("content-type", "application/json")], claim.as_bytes()).await;
    until_waiting(&lab, 1).await;
    drop(wire);
    until_waiting(&lab, 0).await;
    let id = lab.task().await;
    let found = lab.get(&format!("/api/v1/namespaces/n/tasks/{id}")).await.json();
    assert_eq!((&found["state"], &found["execution_no"]), (&json!("queued"), &json!(0)));
}

#[tokio::test]
async fn a_mutation_comes_to_its_end_without_its_client() {
    let gate = Gate::closed();
    let mut lab = Lab::gated(&gate).await;
    let mut wire = lab.connect().await;
    let json = [("content-type", "application/json")];
    wire.request(&lab, "POST", "/api/v1/namespaces/n/tasks", &json, br#"{"task_type":"k","id":"left"}"#).await;
    within(gate.came.acquire()).await.unwrap().forget();
    drop(wire);
    // Nobody waits for it any more: only the one that asks is counted.
    lab.until_metric("ekiden_http_requests_running 1").await;
    lab.until_metric("ekiden_http_connections 1").await;
    gate.open.add_permits(1);
    // A shutdown waits for what goes on by itself.
    lab.ended().await;
    let found = lab.ekiden.namespace("n").unwrap().get_status(&"left".to_owned().try_into().unwrap()).await.unwrap();
    assert_eq!(found.id.as_str(), "left");
}

#[tokio::test]
async fn a_shutdown_waits_for_requests_under_way() {
    let gate = Gate::closed();
    let mut lab = Lab::gated(&gate).await;
    let mut wire = lab.connect().await;
    let json = [("content-type", "application/json")];
    wire.request(&lab, "POST", "/api/v1/namespaces/n/tasks", &json, br#"{"task_type":"k"}"#).await;
    within(gate.came.acquire()).await.unwrap().forget();
    lab.stop();
    gate.open.add_permits(1);
    let reply = wire.reply().await;
    assert_eq!((reply.status, reply.headers["connection"].as_str()), (201, "close"));
    lab.ended().await;
}

#[tokio::test]
async fn a_panic_is_a_fault_that_is_counted_and_hurts_nobody_else() {
    let lab = Lab::gated(&Gate::closed()).await;
    let reply = lab.ask("POST", "/api/v1/namespaces/n/tasks/panic/retry", &[], b"").await;
    assert_eq!((reply.status, reply.reason().as_str()), (500, "SERVER_FAULT"));
    let error = &reply.json()["error"];
    assert_eq!((error["retryable"].as_bool(), error["outcome"].as_str()), (Some(true), Some("unknown")));
    assert!(!reply.text().contains("wanted"), "what is inside stays inside");
    lab.until_metric("ekiden_http_panics_total 1").await;
}
