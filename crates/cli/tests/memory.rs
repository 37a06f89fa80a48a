//! What a client that may do everything can make a real server hold in memory: bodies that do not end, batches of a million
//! items, and streams, pages, logs and claims that are asked for and never read, all at once.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ekiden_testkit::rig::{Port, Program, Scratch, Served};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// 256 MiB: what a server may grow by, whatever is sent to it.
const GROWTH_MAX: u64 = 256 << 20;

/// Both ends of connections are files, and the server's are its own.
const FILES: u64 = 8_192;

/// Far more than anything takes that is not stopped on purpose.
const GENEROUS: Duration = Duration::from_secs(60);

/// How long a sender tries to get rid of what the server does not take.
const STUBBORN: Duration = Duration::from_secs(3);

const NS: &str = "/api/v1/namespaces/n";

struct Attack {
    port: Port,
    pid: u32,
    /// Connections that stay open and are not read.
    unread: Vec<TcpStream>,
}

fn request(method: &str, path: &str, body: &str, length: usize) -> String {
    let head = "host: localhost\r\ncontent-type: application/json\r\n";
    format!("{method} {path} HTTP/1.1\r\n{head}content-length: {length}\r\n\r\n{body}")
}

impl Attack {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.port.address()).await.unwrap()
    }

    /// The request with the host that the server answers for.
    fn addressed(&self, request: &str) -> String {
        request.replacen("host: localhost", &format!("host: {}", self.port.address()), 1)
    }

    /// Sends a request and reads its status and its body.
    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let request = self.addressed(&request(method, path, body, body.len()));
        let request = request.replacen("host:", "connection: close\r\nhost:", 1);
        let mut stream = self.connect().await;
        let mut answer = Vec::new();
        let exchange = async {
            // A body that is refused early is not read to its end.
            let _ = stream.write_all(request.as_bytes()).await;
            let _ = stream.read_to_end(&mut answer).await;
        };
        timeout(GENEROUS, exchange).await.unwrap();
        let text = String::from_utf8_lossy(&answer).into_owned();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        (status, text.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned()))
    }

    /// Has a request carried out, and tries again while the server is busy with the attack, as clients do.
    async fn done(&self, method: &str, path: &str, body: &str) -> Value {
        let tries = async {
            loop {
                let (status, answer) = self.ask(method, path, body).await;
                if status != 503 {
                    assert!((200..300).contains(&status), "{status} {answer}");
                    return serde_json::from_str(&answer).unwrap_or_default();
                }
            }
        };
        timeout(GENEROUS, tries).await.unwrap()
    }

    /// Sends the same on many connections, and reads no answer.
    async fn unread(&mut self, count: usize, request: &str) {
        let request = self.addressed(request);
        for _ in 0..count {
            let mut stream = self.connect().await;
            let _ = timeout(STUBBORN, stream.write_all(request.as_bytes())).await;
            self.unread.push(stream);
        }
    }

    /// The most memory that the server has had so far.
    fn peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// The memory that it has now.
    fn now(&self) -> u64 {
        self.memory("VmRSS:")
    }

    fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
    }

    /// Bodies of 16 MB, of which all but the last byte is sent as far as the server takes it.
    async fn slow_bodies(&mut self, count: usize) {
        let length = 16 << 20;
        let head = self.addressed(&request("POST", &format!("{NS}/tasks/batch"), "", length));
        let body: Arc<[u8]> = vec![b' '; length - 1].into();
        let mut sending = Vec::new();
        for _ in 0..count {
            let mut stream = self.connect().await;
            let (head, body) = (head.clone(), body.clone());
            sending.push(tokio::spawn(async move {
                let _ = stream.write_all(head.as_bytes()).await;
                let _ = timeout(STUBBORN, stream.write_all(&body)).await;
                stream
            }));
        }
        for stream in sending {
            self.unread.push(stream.await.unwrap());
        }
    }

    /// Batches of 16 MB of the smallest items there are, on both ways to read them.
    async fn million_items(&self) {
        let fill = |open: &str, item: &str, close: &str| {
            let count = ((16 << 20) - open.len() - close.len() - 64) / (item.len() + 1);
            let mut text = String::with_capacity(16 << 20);
            text.push_str(open);
            (0..count).for_each(|_| text.extend([item, ","]));
            text + item + close
        };
        let task = r#"{"task_type":"a"}"#;
        let settlement = r#"{"task_id":"t","token":1,"verdict":{"outcome":"succeeded"}}"#;
        let (tasks, settlements) = (format!("{NS}/tasks/batch"), format!("{NS}/settlements"));
        let bodies = [
            (&tasks, fill(r#"{"tasks":["#, task, "]}")),
            (&tasks, fill(r#"{"tasks":[{"task_type":"a","title":"t"},"#, task, "]}")),
            (&tasks, fill(r#"{"tasks":[{"task_type":"a","depends_on":["#, r#""a""#, "]}]}")),
            (&settlements, fill(r#"{"settlements":["#, settlement, "]}")),
            (&settlements, fill(r#"{"claim":{"runner":"r","task_types":["#, r#""a""#, "]}}")),
        ];
        for (path, body) in &bodies {
            let (one, other) = tokio::join!(self.ask("POST", path, body), self.ask("POST", path, body));
            for (status, answer) in [one, other] {
                assert!(status < 500 || status == 503, "{status} {answer}");
            }
        }
    }

    /// Tasks of the largest size, one of them with a long log.
    async fn large_tasks(&self) {
        self.done("PUT", &format!("{NS}/runners/r"), "{}").await;
        self.done("POST", &format!("{NS}/tasks"), r#"{"task_type":"log","id":"logged"}"#).await;
        let claim = r#"{"runner":"r","task_types":["log"]}"#;
        let claimed = self.done("POST", &format!("{NS}/claims"), claim).await;
        assert_eq!(claimed["tasks"][0]["token"], 1);
        let log = "x".repeat(1 << 20);
        let path = format!("{NS}/tasks/logged/attempts/1/log?offset=0&token=1");
        self.done("POST", &path, &log).await;
        let task = json!({"task_type": "large", "payload": "x".repeat(250 << 10)});
        let batch = json!({"tasks": vec![task; 32]}).to_string();
        for _ in 0..8 {
            self.done("POST", &format!("{NS}/tasks/batch"), &batch).await;
        }
    }
}

fn raise_the_limit_of_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < FILES) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum: limit.maximum }).unwrap();
    }
}

/// Claims that wait for what nobody hands in, with names as long and as many as there may be.
fn waiting_claim() -> String {
    let names = |letter: &str| (0..64).map(|at| format!("{at:03}{}", letter.repeat(125))).collect::<Vec<_>>();
    let claim = json!({"runner": "r", "pools": names("p"), "task_types": names("t"), "wait_ms": 60_000}).to_string();
    request("POST", &format!("{NS}/claims"), &claim, claim.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_client_makes_the_server_grow_by_less_than_256_mib() {
    raise_the_limit_of_files();
    let scratch = Scratch::new().unwrap();
    let port = Port::free();
    let program = std::env::var_os("EKIDEN_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_ekiden").into());
    let server = Served::start(&Program::at(Path::new(&program)), Some(&scratch.path().join("data")), port);
    server.wait_ready().unwrap();
    let mut attack = Attack { port, pid: server.pid(), unread: Vec::new() };
    attack.done("POST", &format!("{NS}/tasks"), r#"{"task_type":"k"}"#).await;
    attack.large_tasks().await;
    // Tasks are what a store is for, and what it keeps of them in memory has limits of its own.
    let before = attack.now();
    let mut told = Vec::new();
    let mut tell = |what: &'static str, peak: u64| {
        told.push(format!("{what} {} MiB", peak.saturating_sub(before) >> 20));
    };

    attack.million_items().await;
    tell("million items", attack.peak());
    attack.slow_bodies(120).await;
    tell("slow bodies", attack.peak());
    attack.unread(200, &request("GET", &format!("{NS}/events"), "", 0)).await;
    let changes = json!({"tasks": vec![json!({"task_type": "k"}); 1_000]}).to_string();
    for _ in 0..20 {
        attack.done("POST", &format!("{NS}/tasks/batch"), &changes).await;
    }
    tell("streams", attack.peak());
    attack.unread(300, &request("GET", &format!("{NS}/tasks?limit=1000&order=oldest"), "", 0)).await;
    tell("pages", attack.peak());
    attack.unread(300, &request("GET", &format!("{NS}/tasks/logged/attempts/1/log"), "", 0)).await;
    tell("logs", attack.peak());
    let claim =
        json!({"id": "0192aaaa-0000-7000-8000-000000000001", "runner": "r", "task_types": ["large"], "limit": 256});
    let claim = claim.to_string();
    attack.unread(200, &request("POST", &format!("{NS}/claims"), &claim, claim.len())).await;
    tell("claims", attack.peak());
    attack.unread(1_000, &waiting_claim()).await;
    tell("waiting claims", attack.peak());
    let half = format!("GET /health HTTP/1.1\r\nx-long: {}", "x".repeat(24 << 10));
    attack.unread(1_000, &half).await;
    tell("half headers", attack.peak());

    // It is still there for others, and what it holds is bounded.
    attack.done("GET", &format!("{NS}/counts"), "").await;
    let grown = attack.peak() - before;
    assert!(grown < GROWTH_MAX, "grown by {} MiB: {told:?}", grown >> 20);
}
