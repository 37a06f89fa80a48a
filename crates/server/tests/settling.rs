//! A runner behind a way to its server that turns requests away for a while: what a handler returned is not lost.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ekiden::core::{Language, ReasonCode, limits};
use ekiden::{Context, Done, Ekiden, Payload, Runner, TaskState};
use ekiden_wire::ErrorBody;
use lab::{Lab, within};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// 10 settlements: more than one request is repeated for, so that the runner has to send it again later.
const REFUSED: usize = 10;

/// 56 results of the largest size: some 21 MiB on the way, where a request may have 16.
const TOGETHER: usize = 56;

#[derive(Serialize, Deserialize)]
struct Job;

impl Payload for Job {
    const TASK_TYPE: &'static str = "job";
}

/// Reads the head and the body of a request.
async fn request(client: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let begins = head.len();
        if client.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
        if let Some(value) = head[begins..].to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    client.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

/// Answers a settlement with an error of the server while there are some left, and sends everything else on. A connection has one
/// request.
async fn pass_on(client: TcpStream, server: SocketAddr, code: ReasonCode, left: Arc<AtomicUsize>) -> Option<()> {
    let mut client = BufReader::new(client);
    let (head, body) = request(&mut client).await?;
    let takes_one = |left: usize| left.checked_sub(1);
    let is_refused = head.lines().next()?.contains("/settlements")
        && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, takes_one).is_ok();
    if is_refused {
        let error = ekiden::wire::detail(&code.into(), Language::En);
        let text = serde_json::to_string(&ErrorBody { error }).unwrap();
        let head = "HTTP/1.1 500 Refused\r\nconnection: close\r\ncontent-type: application/json";
        let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        return client.get_mut().write_all(answer.as_bytes()).await.ok();
    }
    let mut upstream = TcpStream::connect(server).await.ok()?;
    let own = client.get_ref().local_addr().ok()?.to_string();
    let head = head.replace(&own, &server.to_string()).replacen("\r\n", "\r\nconnection: close\r\n", 1);
    upstream.write_all(&[head.as_bytes(), &body].concat()).await.ok()?;
    tokio::io::copy_bidirectional(client.get_mut(), &mut upstream).await.ok().map(drop)
}

/// R16: neither a body that came too slowly nor a server that was busy or had a fault makes a failure of a success.
#[tokio::test]
async fn a_settlement_that_was_turned_away_is_sent_again_and_its_task_succeeds() {
    for code in [ReasonCode::RequestTimeout, ReasonCode::ServerBusy, ReasonCode::ServerFault] {
        let lab = Lab::new().await;
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", proxy.local_addr().unwrap());
        let (server, left) = (lab.address, Arc::new(AtomicUsize::new(REFUSED)));
        let refused = left.clone();
        let passing = tokio::spawn(async move {
            while let Ok((client, _)) = proxy.accept().await {
                tokio::spawn(pass_on(client, server, code, refused.clone()));
            }
        });
        let client = Ekiden::connect(&url, None).await.unwrap().namespace("n").unwrap();
        let task = client.enqueue(Job).await.unwrap();
        let handler = |_: Job, _: Context| async { Ok::<_, ekiden::TaskError>(Done::Succeeded(None)) };
        let runner = Runner::builder(&client).handler(handler).build().unwrap();
        let stop = runner.stop();
        let running = tokio::spawn(runner.run_until_stopped());
        let record = within(client.wait(&task.id)).await.unwrap();
        assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 1), "{code}: {:?}", record.last_error);
        assert_eq!(left.load(Ordering::SeqCst), 0, "{code}");
        stop.gently();
        running.await.unwrap().unwrap();
        passing.abort();
    }
}

/// R16: results that together are larger than a request may be are sent in several, and every task succeeds.
#[tokio::test]
async fn results_beyond_the_largest_request_are_settled_in_parts() {
    let lab = Lab::new().await;
    let url = format!("http://{}", lab.address);
    let client = Ekiden::connect(&url, None).await.unwrap().namespace("n").unwrap();
    let tasks = client.enqueue_all((0..TOGETHER).map(|_| client.enqueue(Job))).await;
    // Text that is no JSON, and of which every byte is escaped: six times as long on the way.
    let result = vec![1; limits::RESULT_BYTES_MAX];
    let all_run = Arc::new(tokio::sync::Barrier::new(TOGETHER));
    let handler = move |_: Job, _: Context| {
        let (result, all_run) = (result.clone(), all_run.clone());
        async move {
            all_run.wait().await;
            Ok::<_, ekiden::TaskError>(Done::Succeeded(Some(result.into())))
        }
    };
    let runner = Runner::builder(&client).handler(handler).concurrency(TOGETHER).build().unwrap();
    let stop = runner.stop();
    let running = tokio::spawn(runner.run_until_stopped());
    for task in tasks {
        let record = within(client.wait(&task.unwrap().id)).await.unwrap();
        assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 1), "{:?}", record.last_error);
    }
    stop.gently();
    running.await.unwrap().unwrap();
}
