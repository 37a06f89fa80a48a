//! What one token may hold of a server: whoever does not read, does not send or holds connections does so at its own cost, and what
//! was carried out is told.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use ekiden::core::Timestamp;
use ekiden_server::{Scope, ServerBuilder, Tokens};
use lab::{Gate, Lab, Reply, Wire, within};
use serde_json::{Value, json};
use tempfile::TempDir;

const OURS: &str = "/api/v1/namespaces/n";
const THEIRS: &str = "/api/v1/namespaces/m";
const JSON: (&str, &str) = ("content-type", "application/json");

/// A server with two tokens, each bound to a namespace. The lab's is ours.
struct Two {
    lab: Lab,
    theirs: String,
    _folder: TempDir,
}

impl Two {
    async fn with(choose: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::at(folder.path());
        let make = |namespace: &str| {
            let bound_to = vec![namespace.to_owned().try_into().unwrap()];
            tokens.create(namespace, Scope::Run, bound_to, Timestamp::ZERO).unwrap()
        };
        let (ours, theirs) = (make("n"), format!("Bearer {}", make("m")));
        let mut lab = Lab::with(|builder| choose(builder.tokens(tokens))).await;
        lab.token = Some(ours);
        Self { lab, theirs, _folder: folder }
    }

    async fn they_ask(&self, method: &str, path: &str, body: &[u8]) -> Reply {
        self.lab.ask(method, path, &[("authorization", &self.theirs), JSON], body).await
    }

    /// A connection of theirs with a request whose body does not come.
    async fn they_wait(&self) -> Wire {
        let mut wire = self.lab.connect().await;
        let headers = [("authorization", self.theirs.as_str()), JSON, ("content-length", "100")];
        wire.request(&self.lab, "POST", &format!("{THEIRS}/tasks"), &headers, b"{").await;
        wire
    }
}

/// A task of 250 KiB.
fn large_task(id: &str) -> Value {
    json!({"task_type": "k", "id": id, "payload": "x".repeat(250 * 1024)})
}

/// So many requests for the same on each of so many connections, and no answer read. More than both ends of a socket hold.
async fn unread(lab: &Lab, count: usize, path: &str, token: Option<&str>) -> Vec<Wire> {
    let mut wires = Vec::new();
    for _ in 0..count {
        let mut wire = lab.connect().await;
        let headers: Vec<(&str, &str)> = token.map(|token| ("authorization", token)).into_iter().collect();
        for _ in 0..12 {
            wire.request(lab, "GET", path, &headers, b"").await;
        }
        wires.push(wire);
    }
    wires
}

/// Tasks whose answer is not small.
fn batch() -> Vec<u8> {
    json!({"tasks": vec![json!({"task_type": "many"}); 1_000]}).to_string().into_bytes()
}

/// Status, outcome and whether to try again.
fn refused(reply: &Reply) -> (u16, String, bool) {
    let error = &reply.json()["error"];
    (reply.status, error["outcome"].as_str().unwrap().to_owned(), error["retryable"].as_bool().unwrap())
}

fn not_applied() -> (u16, String, bool) {
    (503, "not_applied".to_owned(), true)
}

/// Carries out what answers at length: a batch, a claim, and a settlement with the next claim.
async fn works(lab: &Lab) {
    let reply = lab.ask("POST", &format!("{OURS}/tasks/batch"), &[JSON], &batch()).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    for id in ["first", "second"] {
        lab.post(&format!("{OURS}/tasks"), large_task(id)).await;
    }
    lab.runner("r").await;
    let claimed = lab.claim(0).await;
    assert_eq!(claimed.status, 200, "{}", claimed.text());
    let settle = json!({
        "settlements": [{"task_id": "first", "token": 1, "verdict": {"outcome": "succeeded"}}],
        "claim": {"runner": "r", "task_types": ["k"]},
    });
    let settled = lab.post(&format!("{OURS}/settlements"), settle).await.json();
    assert_eq!(settled["tasks"][0]["task"]["id"], "second");
}

#[tokio::test]
async fn a_token_whose_answers_nobody_reads_costs_no_other_an_answer() {
    let two = Two::with(|builder| builder).await;
    let task = large_task("large").to_string();
    assert_eq!(two.they_ask("POST", &format!("{THEIRS}/tasks"), task.as_bytes()).await.status, 201);
    let path = format!("{THEIRS}/tasks/large");
    let _unread = unread(&two.lab, 150, &path, Some(&two.theirs)).await;
    within(async { while two.they_ask("GET", &path, b"").await.status != 503 {} }).await;
    works(&two.lab).await;
}

#[tokio::test]
async fn leases_of_a_runner_are_gathered_only_where_there_is_room_for_their_tasks() {
    let two = Two::with(|builder| builder).await;
    let held = format!("{THEIRS}/runners/r/held");
    assert_eq!(two.they_ask("GET", &held, b"").await.json(), json!({"items": []}));
    let task = large_task("large").to_string();
    assert_eq!(two.they_ask("POST", &format!("{THEIRS}/tasks"), task.as_bytes()).await.status, 201);
    let path = format!("{THEIRS}/tasks/large");
    let _unread = unread(&two.lab, 150, &path, Some(&two.theirs)).await;
    within(async { while two.they_ask("GET", &path, b"").await.status != 503 {} }).await;
    assert_eq!(refused(&two.they_ask("GET", &held, b"").await), not_applied());
    let ours = format!("{OURS}/runners/r/held");
    assert_eq!(two.lab.get(&ours).await.json(), json!({"items": []}));
}

#[tokio::test]
async fn strangers_who_read_nothing_cost_nobody_an_answer() {
    let two = Two::with(|builder| builder).await;
    for path in ["/openapi.json", "/docs"] {
        let _unread = unread(&two.lab, 400, path, None).await;
        for _ in 0..20 {
            let reply = two.lab.ask("POST", &format!("{OURS}/tasks/batch"), &[JSON], &batch()).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
    }
}

#[tokio::test]
async fn a_token_whose_bodies_do_not_come_leaves_room_for_those_of_others() {
    let two = Two::with(|builder| builder.bodies_bytes_max(2 << 20)).await;
    let body = json!({"tasks": vec![json!({"task_type": "k", "payload": "x".repeat(225 * 1024)}); 4]}).to_string();
    let body = body.as_bytes();
    let length = body.len().to_string();
    let headers = [("authorization", two.theirs.as_str()), JSON, ("content-length", &length)];
    let mut slow = Vec::new();
    for _ in 0..2 {
        let mut wire = two.lab.connect().await;
        wire.request(&two.lab, "POST", &format!("{THEIRS}/tasks/batch"), &headers, &body[..body.len() - 1]).await;
        slow.push(wire);
    }
    within(async { while two.they_ask("POST", &format!("{THEIRS}/tasks/batch"), body).await.status != 503 {} }).await;
    let reply = two.lab.ask("POST", &format!("{OURS}/tasks/batch"), &[JSON], body).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let mut statuses = Vec::new();
    for wire in &mut slow {
        wire.send(b"}").await;
        statuses.push(wire.reply().await.status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503], "one of theirs had room");
}

#[tokio::test]
async fn connections_of_a_token_that_has_too_many_give_way_to_others() {
    const PLACES: usize = 8;
    let two = Two::with(|builder| builder.connections_max(PLACES)).await;
    let mut crowd = Vec::new();
    for _ in 0..PLACES {
        crowd.push(two.they_wait().await);
    }
    let mut early = two.lab.connect().await;
    for round in 0..3 {
        // One that rests is worth more than one of a token that has too many.
        early.request(&two.lab, "GET", "/api/v1", &[], b"").await;
        assert_eq!(early.reply().await.status, 200, "round {round}");
        assert_eq!(two.lab.get("/api/v1").await.status, 200, "round {round}");
        for _ in 0..PLACES {
            crowd.push(two.they_wait().await);
        }
    }
    crowd[0].closed().await;
}

#[tokio::test]
async fn a_command_whose_answer_has_no_room_changes_nothing() {
    let lab = Lab::with(|builder| builder.answers_bytes_max(1 << 20)).await;
    lab.runner("r").await;
    let path = format!("{OURS}/tasks/large");
    assert_eq!(lab.post(&format!("{OURS}/tasks"), large_task("large")).await.status, 201);
    assert_eq!(lab.claim(0).await.status, 200);
    assert_eq!(lab.post(&format!("{OURS}/tasks"), large_task("next")).await.status, 201);
    let unread = unread(&lab, 12, &path, None).await;
    within(async { while lab.get(&path).await.status != 503 {} }).await;

    assert_eq!(refused(&lab.get(&path).await), not_applied());
    let cancel = lab.post(&format!("{path}/cancel"), json!({})).await;
    assert_eq!(refused(&cancel), not_applied());
    let batch = lab.ask("POST", &format!("{OURS}/tasks/batch"), &[JSON], &batch()).await;
    // What is left may be enough for the batch, if it is carried out at all.
    assert!(batch.status == 200 || refused(&batch) == not_applied(), "{}", batch.text());
    // What was settled is told, although there is no room for the next task.
    let settle = json!({
        "settlements": [{"task_id": "large", "token": 1, "verdict": {"outcome": "succeeded"}}],
        "claim": {"id": "01900000-0000-7000-8000-000000000001", "runner": "r", "task_types": ["k"]},
    });
    let settled = lab.post(&format!("{OURS}/settlements"), settle).await;
    assert_eq!((settled.status, &settled.json()["settled"][0]["state"]), (200, &json!("succeeded")), "{settled:?}");
    let error = &settled.json()["claim_error"];
    assert_eq!((&error["reason_code"], &error["outcome"]), (&json!("SERVER_BUSY"), &json!("unknown")));

    let claim = json!({"id": "01900000-0000-7000-8000-000000000001", "runner": "r", "task_types": ["k"]});
    assert_eq!(refused(&lab.post(&format!("{OURS}/claims"), claim.clone()).await), (503, "unknown".to_owned(), true));

    drop(unread);
    let mut given = lab.post(&format!("{OURS}/claims"), claim.clone()).await;
    within(async {
        while given.status != 200 {
            given = lab.post(&format!("{OURS}/claims"), claim.clone()).await;
        }
    })
    .await;
    assert_eq!(given.json()["tasks"][0]["task"]["id"], "next", "the same claim is given the same task");
    assert_eq!(lab.post(&format!("{OURS}/tasks/next/cancel"), json!({})).await.status, 200);
}

#[tokio::test]
async fn a_large_body_counts_for_as_long_as_it_is_carried_out() {
    let gate = Gate::closed();
    let lab = Lab::gated_with(&gate, |builder| builder.bodies_bytes_max(1 << 20)).await;
    let result = json!({"outcome": "succeeded", "result": "x".repeat(60 * 1024)});
    let settlement = json!({"task_id": "t", "token": 1, "verdict": result});
    let body = json!({"settlements": vec![settlement; 15]}).to_string();
    let mut wire = lab.connect().await;
    wire.request(&lab, "POST", &format!("{OURS}/settlements"), &[JSON], body.as_bytes()).await;
    within(gate.came.acquire()).await.unwrap().forget();
    drop(wire);
    lab.until_metric("ekiden_http_connections 1").await;
    // No JSON, so it is only read.
    let large = vec![b'x'; 512 * 1024];
    let read = async || lab.ask("POST", &format!("{OURS}/tasks/batch"), &[JSON], &large).await.status;
    assert_eq!(read().await, 503, "its results are still there");
    gate.open.add_permits(1);
    within(async { while read().await != 400 {} }).await;
}
