//! Tokens on a running server: what stays open ends with the token that it was opened with, and a token that is bound to a namespace
//! shows nothing of the others.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ekiden::FolderLogs;
use ekiden::core::{Namespace, Timestamp};
use ekiden::store::{Clock as _, SystemClock};
use ekiden_server::{Scope, Tokens};
use lab::{Lab, Reply, Wire, within};
use serde_json::{Value, json};

const N: &str = "/api/v1/namespaces/n";
const JSON: (&str, &str) = ("content-type", "application/json");

/// A server with tokens and logs in a folder.
struct Guarded {
    lab: Lab,
    tokens: Tokens,
    folder: tempfile::TempDir,
}

impl Guarded {
    /// Callers have the token `ci`, which allows everything.
    async fn new() -> Self {
        let mut guarded = Self::without_tokens().await;
        guarded.lab.token = Some(guarded.create("ci", vec![]));
        // Whoever made the token has waited until the server knows it.
        let known = async { while guarded.lab.get("/api/v1").await.status != 200 {} };
        within(known).await;
        guarded
    }

    async fn without_tokens() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::at(folder.path().join("server"));
        let logs = Arc::new(FolderLogs::at(folder.path().join("logs")));
        let lab = Lab::with(|builder| builder.tokens(tokens.clone()).logs(logs)).await;
        Self { lab, tokens, folder }
    }

    fn create(&self, name: &str, namespaces: Vec<&str>) -> String {
        let namespaces = namespaces.into_iter().map(|name| Namespace::new(name).unwrap()).collect();
        self.tokens.create(name, Scope::Admin, namespaces, Timestamp::ZERO).unwrap()
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("server/tokens.json")
    }

    async fn open(&self, method: &str, path: &str, body: &str) -> Wire {
        let mut wire = self.lab.connect().await;
        wire.request(&self.lab, method, path, &[JSON], body.as_bytes()).await;
        wire
    }

    /// Everything that stays open for a token: both streams, a log that is read along, and claims that wait.
    async fn open_all(&self) -> Open {
        self.lab.runner("r").await;
        let id = self.lab.task().await;
        assert_eq!(self.lab.claim(0).await.json()["tasks"].as_array().unwrap().len(), 1);
        let mut streams = Vec::new();
        let log = format!("{N}/tasks/{id}/attempts/1/log?follow=true");
        for path in [format!("{N}/events"), format!("{N}/hints"), log] {
            let mut stream = self.open("GET", &path, "").await;
            assert_eq!(stream.head().await.status, 200, "{path}");
            streams.push(stream);
        }
        let claim = json!({"runner": "r", "task_types": ["none"], "wait_ms": 60_000});
        let settle = json!({"settlements": [], "claim": claim});
        let claims = [("claims", claim), ("settlements", settle)];
        let mut waiting = Vec::new();
        for (path, body) in claims {
            waiting.push(self.open("POST", &format!("{N}/{path}"), &body.to_string()).await);
        }
        self.lab.until_metric("ekiden_claims_waiting 2").await;
        Open { streams, waiting }
    }
}

/// What stays open.
struct Open {
    streams: Vec<Wire>,
    waiting: Vec<Wire>,
}

impl Open {
    /// Waits until all of it has ended, and says what the claims were told.
    async fn ended(self, within_a: Duration) -> Vec<Reply> {
        let begun = SystemClock.monotonic();
        let mut replies = Vec::new();
        for mut wire in self.waiting {
            replies.push(wire.reply().await);
        }
        for mut stream in self.streams {
            stream.closed_or_done().await;
        }
        let took = SystemClock.monotonic().saturating_sub(begun);
        assert!(took <= within_a, "{took:?}");
        replies
    }
}

fn is_refused(replies: &[Reply], reason: &str) {
    assert_eq!(replies[0].reason(), reason);
    assert_eq!(replies[1].json()["claim_error"]["reason_code"], reason, "{:?}", replies[1]);
}

/// Changes the file as another process does.
fn rewrite(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut content: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut content);
    let new = path.with_extension("other");
    std::fs::write(&new, content.to_string()).unwrap();
    std::fs::rename(new, path).unwrap();
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn what_is_open_for_a_token_ends_within_a_second_of_its_revocation() {
    let mut guarded = Guarded::new().await;
    let open = guarded.open_all().await;
    let other = guarded.create("other", vec![]);
    let revoked = guarded.lab.token.replace(other);
    let known = async { while guarded.lab.get("/api/v1").await.status != 200 {} };
    within(known).await;
    let mut kept = guarded.open("GET", &format!("{N}/events"), "").await;
    assert_eq!(kept.head().await.status, 200);
    guarded.tokens.revoke("ci").unwrap();
    is_refused(&open.ended(SECOND).await, "TOKEN_INVALID");
    let id = guarded.lab.task().await;
    kept.until(&id).await;
    guarded.lab.token = revoked;
    assert_eq!(guarded.lab.get("/api/v1").await.reason(), "TOKEN_INVALID");
}

#[tokio::test]
async fn what_is_open_for_a_token_ends_within_a_second_when_it_allows_less() {
    let narrowed: [(&str, Value); 3] =
        [("scope", json!("read")), ("namespaces", json!(["elsewhere"])), ("sha256", json!("0".repeat(64)))];
    for (field, value) in narrowed {
        let guarded = Guarded::new().await;
        let open = guarded.open_all().await;
        rewrite(&guarded.file(), |content| content["tokens"][0][field] = value);
        is_refused(&open.ended(SECOND).await, "TOKEN_INVALID");
    }
}

#[tokio::test]
async fn what_is_open_ends_within_a_second_when_the_tokens_cannot_be_read() {
    let guarded = Guarded::new().await;
    let open = guarded.open_all().await;
    std::fs::write(guarded.file(), b"{").unwrap();
    is_refused(&open.ended(SECOND).await, "TOKEN_INVALID");
}

#[tokio::test]
async fn what_is_open_without_a_token_ends_within_a_second_of_the_first_token() {
    let guarded = Guarded::without_tokens().await;
    let open = guarded.open_all().await;
    guarded.create("first", vec![]);
    is_refused(&open.ended(SECOND).await, "TOKEN_MISSING");
}

#[tokio::test]
async fn a_body_that_comes_after_its_token_was_revoked_changes_nothing() {
    let mut guarded = Guarded::new().await;
    let body = json!({"task_type": "k", "id": "late"}).to_string();
    let (first, rest) = body.split_at(5);
    let mut slow = guarded.lab.connect().await;
    let length = body.len().to_string();
    let headers = [JSON, ("content-length", length.as_str())];
    slow.request(&guarded.lab, "POST", &format!("{N}/tasks"), &headers, first.as_bytes()).await;
    guarded.lab.until_metric("ekiden_http_requests_running 2").await;
    let other = guarded.create("other", vec![]);
    guarded.tokens.revoke("ci").unwrap();
    guarded.lab.token = Some(other);
    let known = async { while guarded.lab.get("/api/v1").await.status != 200 {} };
    within(known).await;
    slow.send(rest.as_bytes()).await;
    assert_eq!(slow.reply().await.reason(), "TOKEN_INVALID");
    assert_eq!(guarded.lab.get(&format!("{N}/tasks/late")).await.reason(), "TASK_NOT_FOUND");
}

/// The number in the cursor of each event.
fn cursors(said: &str) -> Vec<String> {
    said.lines().filter_map(|line| line.strip_prefix("id: ")).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_stream_shows_nothing_of_what_happens_in_other_namespaces() {
    let guarded = Guarded::new().await;
    let bound = guarded.create("bound", vec!["n"]);
    let bound = format!("Bearer {bound}");
    let header = [("authorization", bound.as_str())];
    let others = guarded.lab.ekiden.namespace("others").unwrap();
    let load = async |tasks: usize| {
        for _ in 0..tasks / 1_000 {
            let tasks = (0..1_000).map(|_| others.enqueue_raw("k", "text/plain", ""));
            assert!(others.enqueue_all(tasks).await.iter().all(Result::is_ok));
        }
    };
    let stream = async |path: String| {
        let mut wire = guarded.lab.connect().await;
        wire.request(&guarded.lab, "GET", &path, &header, b"").await;
        let head = wire.head().await;
        assert_eq!(head.status, 200, "{head:?}");
        wire
    };
    let known = async { while guarded.lab.ask("GET", "/api/v1", &header, b"").await.status != 200 {} };
    within(known).await;
    let mut events = stream(format!("{N}/events")).await;
    let first = guarded.lab.task().await;
    load(1_000).await;
    let second = guarded.lab.task().await;
    events.until(&first).await;
    let said = cursors(&events.until(&second).await);
    let numbers: Vec<u64> = said.iter().map(|cursor| cursor.rsplit_once('-').unwrap().1.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 3, "{said:?}");
    assert_ne!(numbers[2] - numbers[1], 1_001, "the number of changes elsewhere");
    // More than the server keeps, and all of it elsewhere.
    load(66_000).await;
    let mut again = stream(format!("{N}/events?cursor={}", said[2])).await;
    let third = guarded.lab.task().await;
    let said = again.until(&third).await;
    assert!(!said.contains("reset") && !said.contains("missed"), "{said}");
}

#[tokio::test]
async fn metrics_of_a_bound_token_have_its_own_namespaces_and_nothing_else() {
    let mut guarded = Guarded::new().await;
    for number in 0..40 {
        let path = format!("/api/v1/namespaces/a{number:02}/tasks");
        assert_eq!(guarded.lab.post(&path, json!({"task_type": "k"})).await.status, 201);
    }
    guarded.lab.post("/api/v1/namespaces/z/tasks", json!({"task_type": "k"})).await;
    guarded.lab.token = Some(guarded.create("bound", vec!["z"]));
    let known = async { while guarded.lab.get("/api/v1").await.status != 200 {} };
    within(known).await;
    let reply = guarded.lab.get("/metrics").await;
    let text = reply.text();
    assert!(text.contains("ekiden_tasks{namespace=\"z\",state=\"queued\"} 1\n"), "{text}");
    let foreign = text.lines().find(|line| !line.starts_with('#') && !line.contains("namespace=\"z\""));
    assert_eq!(foreign, None);
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn no_answer_to_a_bound_token_names_another_namespace() {
    let mut guarded = Guarded::new().await;
    for namespace in ["secret", "z"] {
        let path = format!("/api/v1/namespaces/{namespace}");
        guarded.lab.send("PUT", &format!("{path}/runners/r"), json!({})).await;
        guarded.lab.post(&format!("{path}/tasks"), json!({"task_type": "k", "id": "i"})).await;
        guarded.lab.send("PUT", &format!("{path}/pools/p"), json!({"paused": true})).await;
    }
    guarded.lab.token = Some(guarded.create("bound", vec!["z"]));
    let known = async { while guarded.lab.get("/api/v1").await.status != 200 {} };
    within(known).await;
    for route in ekiden_server::routes() {
        let path = route.path.replace("{ns}", "z").replace("{execution_no}", "1").replace("{id}", "i");
        let path = path.replace("{pool}", "p");
        // Streams have no end; they have tests of their own.
        if path.ends_with("/events") || path.ends_with("/hints") {
            continue;
        }
        let reply = guarded.lab.send(route.method.as_str(), &path, json!({})).await;
        assert!(!String::from_utf8_lossy(&reply.body).contains("secret"), "{} {path}: {reply:?}", route.method);
    }
    let page = guarded.lab.get("/?namespace=secret").await;
    assert_eq!(page.reason(), "SCOPE_MISSING");
}
