//! A crowd that does not mean well: a thousand connections that never send a whole request, and hundreds of bodies that trickle.
//! Others are answered meanwhile, and all of them are closed when their time is over.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::time::Duration;

use lab::{Lab, Wire, within};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const HALF_OPEN: usize = 1_000;
const SLOW: usize = 200;

/// Both ends of every connection are files of this process, and some more.
const FILES: u64 = 2 * (HALF_OPEN as u64 + SLOW as u64) + 200;

/// Five seconds for headers and for bodies: long enough that the crowd is there together, and short for a test.
const TIME: Duration = Duration::from_secs(5);

fn raise_the_limit_of_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < FILES) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(FILES), maximum: limit.maximum }).unwrap();
    }
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
