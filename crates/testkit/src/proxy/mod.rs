//! A bad line to a DynamoDB server: a proxy on the loopback that shows what no emulator does. Requests and replies get lost,
//! the service is busy, transactions meet, batches and pages come in part, indexes are behind, and everything takes its time. A
//! process behind it can be killed at one of its requests ([`Proxy::kill_at`]).
//!
//! It knows what is asked for by `X-Amz-Target`, and nothing of what is stored. Chance is seeded; in which order requests of
//! one client arrive is not.

mod message;
mod part;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ekiden_store::clock::{Clock, SystemClock};
use ekiden_store::entropy::Entropy;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use message::Message;

/// 300 ms: an index that is further behind than this is an outage, not a lag; leases are longer by far.
const LAG_MAX: Duration = Duration::from_millis(300);

/// 1,024 answers of indexes that are kept to be given again.
const ANSWERS_KEPT: usize = 1_024;

/// What happens to a request, each in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// It never arrives.
    pub request_lost: u32,
    /// It arrives, and its answer does not.
    pub reply_lost: u32,
    /// The service says that there is too much to do.
    pub throttled: u32,
    /// A write or a transaction meets another transaction.
    pub conflicted: u32,
    /// A batch is carried out in part, a page is shorter than asked for.
    pub partial: u32,
    /// An index answers as it did a moment ago; never twice in a row.
    pub stale: u32,
    /// How long a request takes at most.
    pub delay_max: Duration,
    /// A planted bug: claims are written without their condition.
    pub unguarded_claims: bool,
}

impl Faults {
    /// Every fault now and then: about one request in ten.
    pub const SOME: Self = Self {
        request_lost: 1,
        reply_lost: 2,
        throttled: 2,
        conflicted: 4,
        partial: 8,
        stale: 8,
        delay_max: Duration::ZERO,
        unguarded_claims: false,
    };
}

/// A proxy; it ends when this is dropped.
pub struct Proxy {
    endpoint: String,
    line: Arc<Line>,
    _listening: JoinSet<()>,
}

struct Line {
    server: String,
    faults: Faults,
    state: Mutex<State>,
    killed: watch::Sender<bool>,
}

struct State {
    dice: Entropy,
    /// Requests until the process behind the line is killed.
    left: Option<u64>,
    /// What each index query was answered, and when; whether it was an old answer.
    answers: HashMap<String, Answered>,
    seen: BTreeMap<&'static str, u64>,
    asked: BTreeMap<String, u64>,
}

struct Answered {
    at: Duration,
    body: Value,
    was_stale: bool,
}

impl Proxy {
    /// Listens in front of a server, such as `http://127.0.0.1:8000`.
    pub async fn start(server: &str, faults: Faults, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let server = server.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let (answers, seen, asked) = (HashMap::new(), BTreeMap::new(), BTreeMap::new());
        let state = Mutex::new(State { dice: Entropy::from_seed(seed), left: None, answers, seen, asked });
        let line = Arc::new(Line { server, faults, state, killed: watch::Sender::new(false) });
        let mut listening = JoinSet::new();
        listening.spawn(listen(listener, line.clone()));
        Ok(Self { endpoint, line, _listening: listening })
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// From that many requests on, nothing is answered any more: [`Proxy::killed`] says so, and whoever waits for it ends the
    /// process. The last request has been carried out.
    pub fn kill_at(&self, requests: u64) {
        self.line.state().left = Some(requests);
    }

    /// Waits until the process behind the line is to be killed.
    pub async fn killed(&self) {
        let mut killed = self.line.killed.subscribe();
        // The sender lives as long as the proxy, so the wait ends by the flag only.
        let _ = killed.wait_for(|killed| *killed).await;
    }

    /// How often each fault happened so far.
    pub fn seen(&self) -> BTreeMap<&'static str, u64> {
        self.line.state().seen.clone()
    }

    /// How many requests of each operation came since this was last asked. That of an index has its name behind it.
    pub fn asked(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.line.state().asked)
    }
}

async fn listen(listener: TcpListener, line: Arc<Line>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let line = line.clone();
        connections.spawn(async move {
            let _ = serve(client, &line).await;
        });
    }
}

/// One connection; it ends when a fault cuts it. `None` is the end.
async fn serve(mut client: TcpStream, line: &Line) -> Option<()> {
    let mut server = TcpStream::connect(&line.server).await.ok()?;
    for stream in [&client, &server] {
        // Small messages that wait for each other: forty milliseconds each, unless somebody says so.
        stream.set_nodelay(true).ok()?;
    }
    loop {
        let request = Message::read(&mut client).await?;
        line.wait().await;
        let operation = request.operation();
        // Tables are made once, before there is anything to lose.
        if operation.contains("Table") {
            server.write_all(&request.bytes()).await.ok()?;
            let reply = Message::read(&mut server).await?;
            client.write_all(&reply.bytes()).await.ok()?;
            continue;
        }
        line.note(&operation, &request);
        if line.happens("request lost", line.faults.request_lost) {
            return None;
        }
        let reply = match line.refused(&operation, &request) {
            Some(refusal) => refusal,
            None => line.forward(&operation, request, &mut server).await?,
        };
        line.count_down().await;
        if line.happens("reply lost", line.faults.reply_lost) {
            return None;
        }
        client.write_all(&reply.bytes()).await.ok()?;
    }
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rolls the dice, and notes what it came to.
    fn happens(&self, what: &'static str, percent: u32) -> bool {
        let mut state = self.state();
        let happens = state.dice.chance(percent);
        if happens {
            *state.seen.entry(what).or_default() += 1;
        }
        happens
    }

    fn note(&self, operation: &str, request: &Message) {
        let index = if operation == "Query" { request.json().get("IndexName").cloned() } else { None };
        let name = index.map_or_else(|| operation.to_owned(), |index| format!("{operation} {index}"));
        *self.state().asked.entry(name).or_default() += 1;
    }

    fn below(&self, bound: usize) -> usize {
        self.state().dice.below(bound.max(1))
    }

    async fn wait(&self) {
        let longest = usize::try_from(self.faults.delay_max.as_micros()).unwrap_or(0);
        if longest > 0 {
            let micros = u64::try_from(self.below(longest)).unwrap_or(0);
            crate::fleet::pass(Duration::from_micros(micros)).await;
        }
    }

    /// The answer of a busy service, now and then.
    fn refused(&self, operation: &str, request: &Message) -> Option<Message> {
        if self.happens("throttled", self.faults.throttled) {
            let codes = ["ThrottlingException", "ProvisionedThroughputExceededException"];
            return Some(Message::refusal(codes.get(self.below(2)).unwrap_or(&"ThrottlingException"), json!({})));
        }
        let writes = ["UpdateItem", "PutItem", "DeleteItem"].contains(&operation);
        if (writes || operation == "TransactWriteItems") && self.happens("conflicted", self.faults.conflicted) {
            if writes {
                return Some(Message::refusal("TransactionConflictException", json!({})));
            }
            let count = request.json().get("TransactItems").and_then(Value::as_array).map_or(1, Vec::len);
            let (met, why) = (self.below(count), ["TransactionConflict", "ThrottlingError"]);
            let why = why.get(self.below(2)).unwrap_or(&"TransactionConflict");
            let reason = |at| json!({ "Code": if at == met { why } else { "None" } });
            let reasons: Vec<Value> = (0..count).map(reason).collect();
            return Some(Message::refusal("TransactionCanceledException", json!({ "CancellationReasons": reasons })));
        }
        None
    }

    /// Asks the server: for all of it, for a part of it, or not at all because an old answer will do.
    async fn forward(&self, operation: &str, request: Message, server: &mut TcpStream) -> Option<Message> {
        let mut body = request.json();
        let name = (operation == "Query" && body.get("IndexName").is_some()).then(|| body.to_string());
        let old = name.as_ref().and_then(|name| self.old_answer(name));
        let is_partial = self.happens_to_part(operation, &body);
        let left = if is_partial { part::take(operation, &mut body, |bound| self.below(bound)) } else { None };
        let planted = self.faults.unguarded_claims && operation == "UpdateItem" && part::unguard_claim(&mut body);
        let request = if is_partial || planted { request.with(&body) } else { request };
        server.write_all(&request.bytes()).await.ok()?;
        let reply = Message::read(server).await?;
        if !reply.is_ok() {
            return Some(reply);
        }
        if let Some(name) = name.filter(|_| !is_partial) {
            self.remember(name, reply.json(), old.is_some());
        }
        if let Some(old) = old {
            return Some(reply.with(&old));
        }
        Some(match left {
            Some((field, left)) => {
                let mut body = reply.json();
                part::leave(&mut body, field, left);
                reply.with(&body)
            }
            None => reply,
        })
    }

    fn happens_to_part(&self, operation: &str, body: &Value) -> bool {
        part::can_be_taken(operation, body) && self.happens("partial", self.faults.partial)
    }

    fn old_answer(&self, name: &str) -> Option<Value> {
        let now = SystemClock.monotonic();
        let body = {
            let state = self.state();
            let known = state.answers.get(name)?;
            (!known.was_stale && now.saturating_sub(known.at) < LAG_MAX).then(|| known.body.clone())
        }?;
        self.happens("stale", self.faults.stale).then_some(body)
    }

    fn remember(&self, name: String, body: Value, was_stale: bool) {
        let mut state = self.state();
        if state.answers.len() >= ANSWERS_KEPT {
            state.answers.clear();
        }
        state.answers.insert(name, Answered { at: SystemClock.monotonic(), body, was_stale });
    }

    /// A process that is to be killed gets no answer any more.
    async fn count_down(&self) {
        let is_last = {
            let mut state = self.state();
            if let Some(left) = &mut state.left {
                *left = left.saturating_sub(1);
            }
            state.left == Some(0)
        };
        if is_last {
            self.killed.send_replace(true);
            std::future::pending::<()>().await;
        }
    }
}
