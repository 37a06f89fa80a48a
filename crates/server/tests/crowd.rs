//! A crowd that does not mean well: connections that never send a whole request, bodies that trickle, and answers that are never
//! read. Others are answered meanwhile, and all of them are closed when their time is over.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::time::Duration;

use ekiden::core::Timestamp;
use ekiden_server::{Scope, Tokens, limits};
use lab::{Lab, Wire, within};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const HALF_OPEN: usize = 1_000;
const SLOW: usize = 200;

/// More than the server has places for.
const STRANGERS: usize = limits::CONNECTIONS_MAX + 104;

/// Both ends of every connection are files of this process, and some more.
const FILES: u64 = 2 * STRANGERS as u64 + 200;

/// Five seconds for headers and for bodies: long enough that the crowd is there together, and short for a test.
const TIME: Duration = Duration::from_secs(5);

/// Ten seconds for the headers of the large crowd, which takes longer to come.
const LONG_TIME: Duration = Duration::from_secs(10);

/// One second: how soon others are answered.
const SOON: Duration = Duration::from_secs(1);

fn raise_the_limit_of_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < FILES) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum: limit.maximum }).unwrap();
    }
}

/// What one of a crowd without a token sends.
fn stranger(number: usize, lab: &Lab) -> Vec<u8> {
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", lab.address);
    match number % 10 {
        0 => request("/openapi.json").repeat(50).into_bytes(),
        1 => request("/api/v1").repeat(50).into_bytes(),
        2..6 => b"GET /health HTTP/1.1\r\nhost: x\r\n".to_vec(),
        _ => Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_without_a_token_keeps_nobody_out_who_has_one_and_is_closed() {
    raise_the_limit_of_files();
    let folder = tempfile::tempdir().unwrap();
    let tokens = Tokens::at(folder.path());
    let token = tokens.create("ci", Scope::Run, vec![], Timestamp::ZERO).unwrap();
    let mut lab = Lab::with(|builder| builder.headers_within(LONG_TIME).write_within(TIME).tokens(tokens)).await;
    lab.token = Some(token);
    // It came before all others, and stays.
    let mut early = lab.connect().await;
    let mut most = 0;
    let mut crowd: Vec<Wire> = Vec::new();
    for number in 0..STRANGERS {
        let mut wire = lab.connect().await;
        let sent = stranger(number, &lab);
        wire.send(&sent).await;
        crowd.push(wire);
        if number % 100 == 0 || number + 50 > STRANGERS {
            // Both on a connection of its own and on one that is known.
            let answered = tokio::time::timeout(SOON, async {
                lab.task().await;
                early.request(&lab, "GET", "/api/v1", &[], b"").await;
                assert_eq!(early.reply().await.status, 200);
            });
            answered.await.expect("others are answered within a second");
            most = most.max(connections(&lab).await);
        }
    }
    assert!(most > limits::CONNECTIONS_MAX * 9 / 10, "the crowd was there together: {most}");
    let alone = async { while connections(&lab).await > 2 {} };
    within(alone).await;
    early.request(&lab, "GET", "/api/v1", &[], b"").await;
    assert_eq!(early.reply().await.status, 200);
}

/// How many connections the server counts.
async fn connections(lab: &Lab) -> usize {
    let metrics = lab.get("/metrics").await;
    let line = metrics.text().lines().find_map(|line| line.strip_prefix("ekiden_http_connections "));
    line.unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_half_open_and_slow_connections_stops_nobody_and_is_closed() {
    raise_the_limit_of_files();
    let lab = Lab::with(|builder| builder.headers_within(TIME).body_within(TIME)).await;
    let mut crowd: Vec<Wire> = Vec::new();
    for number in 0..HALF_OPEN {
        let mut wire = lab.connect().await;
        // Some are silent from the first byte, some stop within a line, some before the last one.
        wire.send([&b""[..], b"GET /health HT", b"GET /health HTTP/1.1\r\nhost: x\r\n"][number % 3]).await;
        crowd.push(wire);
    }
    let head = format!(
        "POST /api/v1/namespaces/n/tasks HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n{{",
        lab.address
    );
    let mut slow: Vec<Wire> = Vec::new();
    for _ in 0..SLOW {
        let mut wire = lab.connect().await;
        wire.send(head.as_bytes()).await;
        slow.push(wire);
    }

    // While they are there, everybody else is served. A byte now and then buys nobody time.
    let mut most = 0;
    for round in 0..200 {
        lab.task().await;
        if round % 20 == 0 {
            most = most.max(connections(&lab).await);
            for wire in &mut slow {
                wire.send(b" ").await;
            }
        }
    }
    assert!(most >= HALF_OPEN, "the crowd was there together: {most}");

    for wire in &mut crowd {
        wire.closed().await;
    }
    for wire in &mut slow {
        let reply = wire.reply().await;
        assert!(reply.status == 408 || reply.status == 0, "{reply:?}");
        wire.closed().await;
    }
    let alone = async {
        while connections(&lab).await > 1 {
            tokio::task::yield_now().await;
        }
    };
    within(alone).await;
    lab.task().await;
}
