//! A server on a real socket, over a store in memory, and a client of a few lines that sends exactly what it is told.
#![allow(dead_code, reason = "each file of tests uses a part of it")]

mod port;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ekiden::Ekiden;
use ekiden::Queue;
use ekiden::store::MemoryStore;
use ekiden_server::{Events, Server, ServerBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use port::{Gate, Port};

/// Half a minute: far more than anything takes here, so that only what hangs runs into it.
pub(crate) const GENEROUS: Duration = Duration::from_secs(30);

pub(crate) struct Lab {
    pub(crate) address: SocketAddr,
    pub(crate) ekiden: Ekiden,
    pub(crate) token: Option<String>,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

impl Lab {
    pub(crate) async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    pub(crate) async fn with(choose: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        Self::around(|queue| queue, choose).await
    }

    /// A server over a queue with another layer.
    pub(crate) async fn behind(layer: impl FnOnce(Arc<dyn Queue>) -> Arc<dyn Queue>) -> Self {
        Self::around(layer, |builder| builder).await
    }

    /// A server over a queue with a gate.
    pub(crate) async fn gated(gate: &Arc<Gate>) -> Self {
        Self::gated_with(gate, |builder| builder).await
    }

    /// The same, with further choices.
    pub(crate) async fn gated_with(gate: &Arc<Gate>, choose: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let gate = gate.clone();
        Self::around(|inner| Arc::new(Port { inner, gate }), choose).await
    }

    async fn around(
        layer: impl FnOnce(Arc<dyn Queue>) -> Arc<dyn Queue>,
        choose: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Self {
        let events = Arc::new(Events::new());
        let ekiden = Ekiden::builder(Arc::new(MemoryStore::new())).observer(events.clone()).build_around(layer);
        let builder = choose(Server::builder(ekiden.queue().clone(), events));
        let server = builder.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(server.serve(async move {
            stopped.await.ok();
        }));
        Self { address, ekiden, token: None, stop: Some(stop), serving: Some(serving) }
    }

    /// Tells the server to end.
    pub(crate) fn stop(&mut self) {
        self.stop.take().map(|stop| stop.send(()).ok());
    }

    /// Waits until it has.
    pub(crate) async fn ended(&mut self) {
        self.stop();
        within(self.serving.take().unwrap()).await.unwrap();
    }

    pub(crate) async fn connect(&self) -> Wire {
        Wire { stream: TcpStream::connect(self.address).await.unwrap(), read: Vec::new() }
    }

    /// Sends one request with further headers.
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut wire = self.connect().await;
        wire.request(self, method, path, headers, body).await;
        let mut reply = wire.reply().await;
        if method == "HEAD" {
            reply.body.clear();
        }
        reply
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, body).await
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: Value) -> Reply {
        self.ask(method, path, &[("content-type", "application/json")], body.to_string().as_bytes()).await
    }

    /// Waits until the server says this line of itself.
    pub(crate) async fn until_metric(&self, line: &str) {
        let said = async {
            while !self.get("/metrics").await.text().lines().any(|said| said == line) {
                tokio::task::yield_now().await;
            }
        };
        within(said).await;
    }

    /// A runner that gave a sign of life.
    pub(crate) async fn runner(&self, id: &str) {
        let reply = self.send("PUT", &format!("/api/v1/namespaces/n/runners/{id}"), json!({})).await;
        assert_eq!(reply.status, 204, "{reply:?}");
    }

    /// A task of the kind `k`, by its id.
    pub(crate) async fn task(&self) -> String {
        let reply = self.post("/api/v1/namespaces/n/tasks", json!({"task_type": "k", "payload": {"a": 1}})).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    /// A claim of the runner `r`.
    pub(crate) async fn claim(&self, wait_ms: u64) -> Reply {
        let claim = json!({"runner": "r", "task_types": ["k"], "wait_ms": wait_ms});
        self.post("/api/v1/namespaces/n/claims", claim).await
    }
}

/// A connection.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Wire {
    pub(crate) async fn request(&mut self, lab: &Lab, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut text = format!("{method} {path} HTTP/1.1\r\n");
        let given = |name: &str| headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        if !given("host") {
            text.push_str(&format!("host: {}\r\n", lab.address));
        }
        if let (Some(token), false) = (&lab.token, given("authorization")) {
            text.push_str(&format!("authorization: Bearer {token}\r\n"));
        }
        if !given("content-length") && !given("transfer-encoding") {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body);
        self.send(&bytes).await;
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        // A server that closed early is seen by what it answered.
        let _ = self.stream.write_all(bytes).await;
    }

    /// Reads until `done` says so or the server closes; says whether it closed.
    async fn fill(&mut self, done: impl Fn(&[u8]) -> bool) -> bool {
        while !done(&self.read) {
            let mut piece = [0; 16 * 1024];
            let read = within(self.stream.read(&mut piece)).await.unwrap_or(0);
            if read == 0 {
                return true;
            }
            self.read.extend_from_slice(&piece[..read]);
        }
        false
    }

    /// The head of an answer, and its headers.
    pub(crate) async fn head(&mut self) -> Reply {
        self.fill(|read| find(read, b"\r\n\r\n").is_some()).await;
        let Some(end) = find(&self.read, b"\r\n\r\n") else {
            return Reply { status: 0, headers: BTreeMap::new(), body: std::mem::take(&mut self.read) };
        };
        let rest = self.read.split_off(end + 4);
        let head = String::from_utf8(std::mem::replace(&mut self.read, rest)).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Reply { status, headers, body: Vec::new() }
    }

    /// An answer with its body.
    pub(crate) async fn reply(&mut self) -> Reply {
        let mut reply = self.head().await;
        if let Some(length) = reply.headers.get("content-length") {
            let length: usize = length.parse().unwrap();
            if reply.status != 204 && reply.status != 304 {
                self.fill(|read| read.len() >= length).await;
                let rest = self.read.split_off(length.min(self.read.len()));
                reply.body = std::mem::replace(&mut self.read, rest);
            }
        } else if reply.headers.contains_key("transfer-encoding") {
            self.fill(|read| find(read, b"0\r\n\r\n").is_some()).await;
            reply.body = unchunked(&std::mem::take(&mut self.read));
        }
        reply
    }

    /// What a stream has said so far, once it contains `text`.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        let filled = self.fill(|read| find(&unchunked(read), text.as_bytes()).is_some());
        // Signs of life keep a stream from being silent, so the whole of it has its limit.
        let closed = tokio::time::timeout(GENEROUS, filled).await.unwrap_or(true);
        let said = String::from_utf8(unchunked(&self.read)).unwrap();
        assert!(!closed || said.contains(text), "the stream ended without {text:?}: {said}");
        said
    }

    /// Waits until a stream has come to its end.
    pub(crate) async fn closed_or_done(&mut self) {
        self.fill(|read| read.ends_with(b"0\r\n\r\n")).await;
    }

    /// Waits until the server closes.
    pub(crate) async fn closed(&mut self) {
        assert!(self.fill(|_| false).await);
    }
}

pub(crate) fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// The content of as many chunks as there are.
fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(end) = find(bytes, b"\r\n") {
        let Ok(length) = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).unwrap(), 16) else { break };
        let Some(chunk) = bytes.get(end + 2..end + 2 + length) else { break };
        content.extend_from_slice(chunk);
        bytes = bytes.get(end + 4 + length..).unwrap_or_default();
    }
    content
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The reason code of a refusal.
    pub(crate) fn reason(&self) -> String {
        self.json()["error"]["reason_code"].as_str().unwrap().to_owned()
    }
}

/// Waits for something that comes at once, unless something hangs.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(GENEROUS, future).await.expect("it hangs")
}
