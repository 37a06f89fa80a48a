//! A line to a server that refuses requests, as what stands between a runner and its server does: rate limits, a token that is
//! not known for a while, a path that is routed elsewhere, pages of a proxy, a busy server, and bodies that are too large for it.
//! Refused requests do not reach the server.
//!
//! Chance is seeded; in which order requests arrive is not.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ekiden_store::entropy::Entropy;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What is refused.
#[derive(Clone, Copy, Debug)]
pub struct Refusals {
    /// How many of a hundred requests are refused, whatever they ask for.
    pub percent: u32,
    /// The largest body that is let through.
    pub body_bytes_max: usize,
}

impl Refusals {
    /// Nothing.
    pub const NONE: Self = Self { percent: 0, body_bytes_max: usize::MAX };
}

/// The refusals of requests, by name: status line, media type and body. Only the server's own answers have its error shape.
const ANSWERS: [(&str, &str, &str, &str); 6] = [
    ("rate limit", "429 Too Many Requests", "text/plain", "slow down"),
    (
        "unknown token",
        "401 Unauthorized",
        "application/json",
        r#"{"error":{"category":"ACCESS","reason_code":"TOKEN_INVALID","message":"planted"}}"#,
    ),
    (
        "no route",
        "404 Not Found",
        "application/json",
        r#"{"error":{"category":"REQUEST","reason_code":"ROUTE_NOT_FOUND","message":"planted"}}"#,
    ),
    ("page of a proxy", "404 Not Found", "text/html", "<html><body>not here</body></html>"),
    ("page instead of an answer", "200 OK", "text/html", "<html><body>sign in</body></html>"),
    (
        "busy server",
        "503 Service Unavailable",
        "application/json",
        r#"{"error":{"category":"SERVER","reason_code":"SERVER_BUSY","message":"planted","retryable":true}}"#,
    ),
];

const TOO_LARGE: (&str, &str, &str, &str) =
    ("too large", "413 Content Too Large", "text/html", "<html><body>too large</body></html>");

/// The name of requests that were cut off, among what was seen.
pub const CUT_OFF: &str = "cut off";

/// The name of streams that were ended, among what was seen.
pub const ENDED: &str = "ended stream";

/// A line; it ends when this is dropped.
pub struct RefusingLine {
    address: SocketAddr,
    shared: Arc<Shared>,
    _listening: JoinSet<()>,
}

struct Shared {
    server: SocketAddr,
    refusals: Refusals,
    /// How many requests are still cut off without an answer.
    cut: AtomicU64,
    /// Whether streams end at once.
    ends_streams: AtomicBool,
    state: Mutex<(Entropy, BTreeMap<&'static str, u64>)>,
}

impl RefusingLine {
    /// Listens in front of a server.
    pub async fn start(server: SocketAddr, refusals: Refusals, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Mutex::new((Entropy::from_seed(seed), BTreeMap::new()));
        let shared =
            Arc::new(Shared { server, refusals, cut: AtomicU64::new(0), ends_streams: AtomicBool::new(false), state });
        let mut listening = JoinSet::new();
        listening.spawn(listen(listener, shared.clone()));
        Ok(Self { address, shared, _listening: listening })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts so many of the next requests off without an answer, of any sort.
    pub fn cut_off(&self, requests: u64) {
        self.shared.cut.store(requests, Ordering::SeqCst);
    }

    /// From now on streams of changes end as soon as they begin.
    pub fn end_streams(&self) {
        self.shared.ends_streams.store(true, Ordering::SeqCst);
    }

    /// How often each refusal was given.
    pub fn seen(&self) -> BTreeMap<&'static str, u64> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Every refusal of requests that there is.
    pub fn all() -> impl Iterator<Item = &'static str> {
        ANSWERS.iter().chain([&TOO_LARGE]).map(|(name, ..)| *name)
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let shared = shared.clone();
        connections.spawn(async move {
            let _ = serve(client, &shared).await;
        });
    }
}

/// A connection has one request, so that nothing has to be known of answers. `None` is the end.
async fn serve(client: TcpStream, shared: &Shared) -> Option<()> {
    let mut client = BufReader::new(client);
    let (head, body) = request(&mut client).await?;
    if shared.cut.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
        shared.count(CUT_OFF);
        return None;
    }
    if shared.ends_streams.load(Ordering::SeqCst) && head.lines().next()?.contains("/events") {
        shared.count(ENDED);
        let head =
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\ncontent-length: 0\r\n\r\n";
        return client.get_mut().write_all(head.as_bytes()).await.ok();
    }
    if let Some((_, status, media_type, text)) = shared.refuse(&head, body.len()) {
        let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: {media_type}");
        let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        return client.get_mut().write_all(answer.as_bytes()).await.ok();
    }
    let mut server = TcpStream::connect(shared.server).await.ok()?;
    let own = client.get_ref().local_addr().ok()?.to_string();
    let head = head.replace(&own, &shared.server.to_string()).replacen("\r\n", "\r\nconnection: close\r\n", 1);
    server.write_all(&[head.as_bytes(), &body].concat()).await.ok()?;
    tokio::io::copy_bidirectional(client.get_mut(), &mut server).await.ok().map(drop)
}

/// Reads the head and the body of a request.
async fn request(client: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let begins = head.len();
        if client.read_line(&mut head).await.ok()? == 0 {
            return None;
        }
        if let Some(value) = head.get(begins..)?.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    client.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

impl Shared {
    fn count(&self, what: &'static str) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner).1.entry(what).or_default() += 1;
    }

    /// The refusal of a request, if it gets one. The first question of a client, and streams, are let through.
    fn refuse(&self, head: &str, bytes: usize) -> Option<(&'static str, &'static str, &'static str, &'static str)> {
        if head.starts_with("GET ") {
            return None;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (dice, seen) = &mut *state;
        let refusal = if bytes > self.refusals.body_bytes_max {
            TOO_LARGE
        } else if dice.chance(self.refusals.percent) {
            *dice.pick(&ANSWERS)
        } else {
            return None;
        };
        *seen.entry(refusal.0).or_default() += 1;
        Some(refusal)
    }
}
