//! The port over HTTP where a first reply got lost and a second one refuses: whatever the second says, the first try may have
//! happened, and nobody is told otherwise.
#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use ekiden::core::{Kind, Namespace, OpId, PoolName, ReasonCode, TaskEnvelope, TaskId, Token};
use ekiden::{HttpQueue, LeaseRef, NewTask, Queue, Settlement, TaskRef, Verdict};

const REFUSAL: &str =
    r#"{"error":{"category":"STORE","reason_code":"STORE_FULL","message":"","outcome":"not_applied"}}"#;

/// The path of the next request on a connection.
fn read_request(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut first = String::new();
    stream.read_line(&mut first).ok().filter(|read| *read > 0)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    stream.read_exact(&mut vec![0; length]).ok()?;
    first.split(' ').nth(1).map(str::to_owned)
}

/// A server that loses its first reply to each path, and refuses every part of a request from then on.
fn serve(listener: &TcpListener) {
    let mut lost: Vec<String> = Vec::new();
    for stream in listener.incoming().map_while(Result::ok) {
        let mut stream = BufReader::new(stream);
        let Some(path) = read_request(&mut stream) else { continue };
        let body = if path == "/api/v1" {
            r#"{"version":"0","store":"memory","durable":""}"#.to_owned()
        } else if lost.contains(&path) {
            let part = if path.ends_with("/batch") { "tasks" } else { "settled" };
            format!(r#"{{"{part}":[{REFUSAL}]}}"#)
        } else {
            lost.push(path);
            continue;
        };
        let (length, stream) = (body.len(), stream.get_mut());
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
        write!(stream, "{head}content-length: {length}\r\n\r\n{body}").unwrap();
    }
}

#[tokio::test]
async fn a_part_that_is_refused_after_a_lost_reply_may_have_happened() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || serve(&listener));
    let queue = HttpQueue::connect(&url, None).await.unwrap();
    let task = TaskRef { namespace: Namespace::new("n").unwrap(), id: TaskId::new("t").unwrap() };
    let envelope = TaskEnvelope::json(Kind::new("k").unwrap(), "{}");
    let new = NewTask::new(task.clone(), PoolName::new("p").unwrap(), envelope);
    let enqueued = queue.enqueue(vec![new]).await.pop().unwrap().unwrap_err();
    assert_eq!((enqueued.code(), enqueued.is_unknown()), (ReasonCode::StoreFull, true));

    let lease = LeaseRef::new(task, Token(1));
    let settlement = Settlement { id: OpId::from_bits(1), lease, verdict: Verdict::Returned };
    let settled = queue.settle(vec![settlement], None).await.settled.pop().unwrap().unwrap_err();
    assert_eq!((settled.code(), settled.is_unknown()), (ReasonCode::StoreFull, true));
}
