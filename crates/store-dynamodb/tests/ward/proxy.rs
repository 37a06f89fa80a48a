//! A bad line to a DynamoDB server: a proxy on the loopback that loses requests and replies, and answers like a busy service.

use std::sync::{Arc, Mutex};

use ekiden_store::entropy::Entropy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What happens to a request, each in percent.
#[derive(Clone, Copy)]
pub(crate) struct Faults {
    /// It never arrives.
    pub(crate) request_lost: u32,
    /// It arrives, and its answer does not.
    pub(crate) reply_lost: u32,
    /// The service says that there is too much to do.
    pub(crate) throttled: u32,
    /// A transaction met another one.
    pub(crate) conflicted: u32,
}

/// A request or an answer, whole.
struct Message {
    bytes: Vec<u8>,
    body_at: usize,
}

/// Listens in front of a server, and says where.
pub(crate) async fn in_front_of(server: String, faults: Faults, seed: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let dice = Arc::new(Mutex::new(Entropy::from_seed(seed)));
    drop(tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, dice) = (server.clone(), dice.clone());
            drop(tokio::spawn(async move { serve(client, &server, faults, &dice).await }));
        }
    }));
    format!("http://{address}")
}

/// One connection; it ends when a fault cuts it. `None` is the end.
async fn serve(mut client: TcpStream, server: &str, faults: Faults, dice: &Mutex<Entropy>) -> Option<()> {
    let mut server = TcpStream::connect(server.strip_prefix("http://")?).await.ok()?;
    loop {
        let request = read(&mut client).await?;
        let rolls = |percent| dice.lock().unwrap().chance(percent);
        if rolls(faults.request_lost) {
            return None;
        }
        let target = request.header("x-amz-target").unwrap_or_default();
        // Tables are made once, before there is anything to lose.
        let about_items = !target.contains("Table");
        if about_items && rolls(faults.throttled) {
            client.write_all(&refusal("ThrottlingException", "")).await.ok()?;
            continue;
        }
        if target.ends_with("TransactWriteItems") && rolls(faults.conflicted) {
            let count = String::from_utf8_lossy(request.body()).matches("\"TableName\"").count();
            let reasons = vec![r#"{"Code":"TransactionConflict"}"#; count].join(",");
            let refusal = refusal("TransactionCanceledException", &format!(r#","CancellationReasons":[{reasons}]"#));
            client.write_all(&refusal).await.ok()?;
            continue;
        }
        server.write_all(&request.bytes).await.ok()?;
        let reply = read(&mut server).await?;
        if about_items && rolls(faults.reply_lost) {
            return None;
        }
        client.write_all(&reply.bytes).await.ok()?;
    }
}

fn refusal(code: &str, more: &str) -> Vec<u8> {
    let body = format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"planted"{more}}}"#);
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: ";
    format!("{head}{}\r\n\r\n{body}", body.len()).into_bytes()
}

async fn read(from: &mut TcpStream) -> Option<Message> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        if let Some(body_at) = head {
            let message = Message { bytes: bytes.clone(), body_at };
            let length: usize = message.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            if bytes.len() >= body_at + length {
                return Some(message);
            }
        }
        let count = from.read(&mut chunk).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&chunk[..count]);
    }
}

impl Message {
    fn header(&self, wanted: &str) -> Option<String> {
        let head = String::from_utf8_lossy(&self.bytes[..self.body_at]).into_owned();
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim().to_owned())
    }

    fn body(&self) -> &[u8] {
        &self.bytes[self.body_at..]
    }
}
