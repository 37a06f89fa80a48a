//! Ids grant nothing: what one namespace uses, publishes or guesses is nothing in another.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::sync::Arc;

use ekiden::core::{Namespace, Timestamp};
use ekiden_server::{Scope, Tokens};
use ekiden_testkit::{foreseen_tails, tail_of_task};
use lab::{Lab, Reply, within};
use serde_json::{Value, json};

const CLAIM: &str = "01900000-0000-7000-8000-00000000000a";

/// A server with a token for each of the namespaces a and b.
struct Two {
    lab: Lab,
    tokens: [(&'static str, String); 2],
    _folder: tempfile::TempDir,
}

impl Two {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::at(folder.path());
        let mut lab = Lab::with(|builder| builder.tokens(tokens.clone())).await;
        // Whoever is bound to a namespace is not told how many claims wait in all of them.
        let watcher = tokens.create("watcher", Scope::Read, vec![], Timestamp::ZERO).unwrap();
        let tokens = ["a", "b"].map(|name| {
            let only = vec![Namespace::new(name).unwrap()];
            (name, tokens.create(name, Scope::Run, only, Timestamp::ZERO).unwrap())
        });
        lab.token = Some(watcher);
        let two = Self { lab, tokens, _folder: folder };
        for name in ["a", "b"] {
            let reply = two.send(name, "PUT", "runners/r", json!({})).await;
            assert_eq!(reply.status, 204, "{reply:?}");
        }
        two
    }

    /// What a namespace asks for, with its own token.
    async fn send(&self, name: &str, method: &str, path: &str, body: Value) -> Reply {
        let (_, token) = self.tokens.iter().find(|(of, _)| *of == name).unwrap();
        let headers = [("authorization", &*format!("Bearer {token}")), ("content-type", "application/json")];
        self.lab.ask(method, &format!("/api/v1/namespaces/{name}/{path}"), &headers, body.to_string().as_bytes()).await
    }

    async fn task(&self, name: &str, secret: &str) -> String {
        let task = json!({"task_type": "k", "payload": {"secret": secret}});
        let reply = self.send(name, "POST", "tasks", task).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    async fn claim(&self, name: &str, wait_ms: u64) -> Reply {
        let reply = self.send(name, "POST", "claims", claim(wait_ms)).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply
    }
}

fn claim(wait_ms: u64) -> Value {
    json!({"id": CLAIM, "runner": "r", "task_types": ["k"], "limit": 9, "wait_ms": wait_ms})
}

fn ids(claimed: &Value) -> Vec<&str> {
    claimed["tasks"].as_array().unwrap().iter().map(|task| task["task"]["id"].as_str().unwrap()).collect()
}

/// Q12: a token of one namespace repeats a claim of another one, runner id included. It reads nothing, and hands nothing to the
/// other's runners.
#[tokio::test]
async fn a_token_of_one_namespace_reads_nothing_of_another_by_its_claim_ids() {
    let two = Two::new().await;
    let mine = two.task("a", "of a").await;
    assert_eq!(ids(&two.claim("a", 0).await.json()), [&mine]);
    let stolen = two.claim("b", 0).await;
    assert_eq!(stolen.json(), json!({"tasks": []}));
    let settling = two.send("b", "POST", "settlements", json!({"claim": claim(0)})).await;
    assert!(!settling.text().contains("of a") && ids(&settling.json()).is_empty(), "{settling:?}");

    let theirs = two.task("b", "of b").await;
    assert_eq!(ids(&two.claim("b", 0).await.json()), [&theirs]);
    assert_eq!(ids(&two.claim("a", 0).await.json()), [&mine], "a is not fed by b");
    let token = json!([{"task_id": mine, "token": 1, "verdict": {"outcome": "succeeded"}}]);
    let foreign = two.send("b", "POST", "settlements", json!({"settlements": token})).await.json();
    assert_eq!(foreign["settled"][0]["error"]["reason_code"], "TASK_NOT_FOUND");
}

/// Q12: a claim that waits under the id of another namespace's claim gets the tasks of its own.
#[tokio::test]
async fn a_waiting_claim_of_one_namespace_is_not_served_from_another() {
    let two = Arc::new(Two::new().await);
    let waiting = ["a", "b"].map(|name| {
        let two = two.clone();
        tokio::spawn(async move { two.claim(name, 20_000).await })
    });
    two.lab.until_metric("ekiden_claims_waiting 2").await;
    let made = [two.task("b", "of b").await, two.task("a", "of a").await];
    let [a, b] = waiting;
    let (a, b) = (within(a).await.unwrap(), within(b).await.unwrap());
    assert_eq!((ids(&b.json()), ids(&a.json())), (vec![&*made[0]], vec![&*made[1]]));
    assert!(!a.text().contains("of b") && !b.text().contains("of a"));
}

/// Every answer publishes the name of its request, refusals too.
#[tokio::test]
async fn ids_are_not_foreseen_from_the_names_of_requests() {
    let two = Two::new().await;
    let unknown = [("authorization", "Bearer ekd_0000")];
    let refused = two.lab.ask("GET", "/api/v1/namespaces/a/tasks", &unknown, b"").await;
    assert_eq!(refused.status, 401);
    let number = u64::from_str_radix(refused.headers["ekiden-request-id"].trim_start_matches("req-"), 16).unwrap();
    let tails = foreseen_tails(number);
    for _ in 0..8 {
        let id = two.task("a", "of a").await;
        assert!(!tails.contains(&tail_of_task(&id).unwrap()), "{id} follows from the name of a request");
    }
}
