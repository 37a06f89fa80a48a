//! Thousands of requests that are nearly right, over raw sockets, to a real server: none is answered with a fault of the server,
//! none hangs, nothing panics, and memory does not grow with them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ekiden::store::{Clock, Entropy, SystemClock};
use ekiden_testkit::mutator::RawRequest;
use ekiden_testkit::rig::{Port, Program, Scratch, Served};
use serde_json::Value;

const REQUESTS: usize = 10_000;

/// 24 at once: most of the time is spent with requests that lack their end.
const THREADS: usize = 24;

/// 200 ms without a byte: what was sent is perhaps only a part, so the rest is declared to be missing.
const PATIENCE: Duration = Duration::from_millis(200);

/// 15 s after the end of what was sent: whoever has not answered or closed by then hangs.
const LIMIT: Duration = Duration::from_secs(15);

/// A body for each schema that a route takes.
fn body(schema: &str) -> &'static str {
    match schema {
        "Answer" => r#"{"question":"q-1","content":"yes"}"#,
        "Beat" => r#"{"lease_ms":2000,"pools":["default"],"task_types":["k"]}"#,
        "Cancel" => r#"{"note":"enough"}"#,
        "Claim" => r#"{"runner":"r-1","task_types":["k"],"pools":["default"],"limit":2,"wait_ms":0}"#,
        "EnqueueBatch" => r#"{"tasks":[{"task_type":"k","payload":{"a":1}},{"task_type":"k","payload":[1,2,3]}]}"#,
        "NewSchedule" => {
            r#"{"every":{"interval":{"period_ms":60000,"anchor":"2026-01-01T00:00:00Z"}},"task":{"task_type":"k","payload":{}}}"#
        }
        "NewSweep" => r#"{"action":"cancel","filter":{"pool":"default"},"dry_run":true}"#,
        "NewTask" => {
            r#"{"id":"t-1","task_type":"k","payload":{"a":1},"delay_ms":10,"priority":3,"lane":{"key":"s"},"labels":{"a":"b"}}"#
        }
        "PoolSettings" => r#"{"paused":false,"running_max":4,"lease_ms":60000}"#,
        "Progressed" => r#"{"token":1,"progress":{"done":1,"total":2}}"#,
        "Settle" => {
            r#"{"settlements":[{"task_id":"t-1","token":1,"verdict":{"outcome":"succeeded","result":{"b":2}}}],"claim":{"runner":"r-1","task_types":["k"]}}"#
        }
        _ => r#"{"a":1}"#,
    }
}

/// A valid request, or one that comes near, for every route of the description.
fn requests(description: &Value, host: &str) -> Vec<RawRequest> {
    let mut found = Vec::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        let target = path
            .replace("{ns}", "n")
            .replace("{pool}", "default")
            .replace("{id}", "t-1")
            .replace("{execution_no}", "1");
        for (method, route) in methods.as_object().unwrap() {
            let method = method.to_uppercase();
            let content = &route["requestBody"]["content"];
            let schema = content["application/json"]["schema"]["$ref"].as_str().unwrap_or_default();
            let body = if content.is_null() { "" } else { body(schema.rsplit('/').next().unwrap_or_default()) };
            let query = route["parameters"].as_array().into_iter().flatten().filter(|one| one["in"] == "query");
            let is_needed = query.clone().any(|one| one["required"] == true);
            let query: Vec<String> = query.map(|one| format!("{}=1", one["name"].as_str().unwrap())).collect();
            if !is_needed {
                found.push(RawRequest::new(&method, &target, host, body));
            }
            if !query.is_empty() {
                found.push(RawRequest::new(&method, &format!("{target}?{}", query.join("&")), host, body));
            }
        }
    }
    found
}

/// What came of a request: a status, or a connection that was closed without a word.
fn send(address: &str, bytes: &[u8]) -> Result<Option<u16>, String> {
    let mut stream = TcpStream::connect(address).map_err(|error| format!("cannot connect: {error}"))?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    // A server that closed early is seen by what it answered.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let mut ended = None;
    loop {
        let mut piece = [0; 4 * 1024];
        match stream.read(&mut piece) {
            Ok(0) => return Ok(status(&answer)),
            Ok(read) => {
                answer.extend_from_slice(&piece[..read]);
                if answer.windows(4).any(|four| four == b"\r\n\r\n") {
                    return Ok(status(&answer));
                }
            }
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                let now = SystemClock.monotonic();
                let since = *ended.get_or_insert_with(|| {
                    let _ = stream.shutdown(Shutdown::Write);
                    now
                });
                if now.saturating_sub(since) > LIMIT {
                    return Err(format!("neither answered nor closed within {LIMIT:?}"));
                }
            }
            // A reset is a way to close.
            Err(_) => return Ok(status(&answer)),
        }
    }
}

fn status(answer: &[u8]) -> Option<u16> {
    std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()
}

/// What the server has in memory, in KiB.
fn memory_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap()
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn random_mutations_of_every_request_find_no_fault_no_hang_and_no_growth() {
    let seed = std::env::var("EKIDEN_SEED").map_or(0, |seed| seed.parse().expect("seeds are numbers"));
    let scratch = Scratch::new().unwrap();
    let port = Port::free();
    let address = port.address();
    let program = Program::at(env!("CARGO_BIN_EXE_ekiden"));
    let mut server = Served::start(&program, Some(&scratch.path().join("store")), port);
    server.wait_ready().unwrap();
    let description = serde_json::from_str(&get(&address, "/openapi.json")).unwrap();
    let requests = requests(&description, &address);
    for request in &requests {
        let status = send(&address, &request.bytes()).unwrap();
        // What is there or may happen now is not the matter here, but every body must be one that a handler sees.
        let seen = status.is_some_and(|status| matches!(status, 200..=204 | 404 | 409));
        assert!(seen || request.target.contains(&b'?'), "{status:?} to a request with nothing wrong: {request:?}");
    }

    let (pid, next) = (server.pid(), AtomicUsize::new(0));
    let seen: Mutex<BTreeMap<Option<u16>, usize>> = Mutex::default();
    let faults: Mutex<Vec<String>> = Mutex::default();
    let peaks = [AtomicUsize::new(0), AtomicUsize::new(0)];
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= REQUESTS {
                        return;
                    }
                    let mut entropy = Entropy::from_seed(seed ^ u64::try_from(number).unwrap() << 20);
                    let bytes = entropy.pick(&requests).clone().mutated(&mut entropy);
                    let outcome = send(&address, &bytes);
                    let wrong = match &outcome {
                        Ok(status) => status.is_some_and(|status| status >= 500 && status != 503),
                        Err(_) => true,
                    };
                    if wrong {
                        let shown: String = bytes.escape_ascii().to_string().chars().take(2_000).collect();
                        faults.lock().unwrap().push(format!("request {number}: {outcome:?} to {shown}"));
                    }
                    *seen.lock().unwrap().entry(outcome.unwrap_or(None)).or_default() += 1;
                    if number % 100 == 0 {
                        let memory = usize::try_from(memory_kib(pid)).unwrap();
                        peaks[number * 2 / REQUESTS].fetch_max(memory, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (seen, faults) = (seen.into_inner().unwrap(), faults.into_inner().unwrap());
    assert!(faults.is_empty(), "seed {seed}: {} faults\n{}", faults.len(), faults.join("\n"));
    assert!(server.is_running(), "{}", server.log());
    assert!(!server.log().contains("panicked"), "{}", server.log());
    let metrics = get(&address, "/metrics");
    assert!(metrics.contains("ekiden_http_panics_total 0"), "{metrics}");
    let [first, second] = peaks.map(AtomicUsize::into_inner);
    let _ = writeln!(std::io::stderr(), "{REQUESTS} mutated requests: {seen:?}, memory {first} and {second} KiB");
    assert!(second * 10 <= first * 11 + 20 * 1024 * 10, "memory grew from {first} to {second} KiB");
}
