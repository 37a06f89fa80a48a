//! The server: a queue, an address, and the choices that an operator has. It decides nothing about tasks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ekiden::store::{Clock, Entropy, SystemClock};
use ekiden::{Chime, Logs, Queue};
use ekiden_core::reason::{ReasonCode, Refusal};
use socket2::SockRef;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept::accept;
use crate::budget::{Budget, Of};
use crate::events::Events;
use crate::front::Front;
use crate::guard::Guard;
use crate::limits;
use crate::metrics::Metrics;
use crate::room::Rooms;
use crate::routes;
use crate::shared::{Ids, Options, Shared};
use crate::token::{Desk, Tokens, draw};
use crate::upkeep;

/// Who does what is due in the namespaces of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Upkeep {
    /// The server itself.
    #[default]
    Own,
    /// Somebody else, as in tests that move the clock themselves.
    Elsewhere,
}

/// Chooses what a server is made of.
pub struct ServerBuilder {
    queue: Arc<dyn Queue>,
    events: Arc<Events>,
    clock: Arc<dyn Clock>,
    entropy: Entropy,
    tokens: Option<Tokens>,
    logs: Option<Arc<dyn Logs>>,
    upkeep: Upkeep,
    options: Options,
    allows_anonymous_admin: bool,
}

/// A server that listens. [`Self::serve`] answers.
pub struct Server {
    listener: TcpListener,
    bound: SocketAddr,
    front: Arc<Front>,
    shared: Arc<Shared>,
    upkeep: Upkeep,
    owner_token: String,
}

impl Server {
    /// A server over a queue. `events` must be an observer of that queue, or streams have nothing to tell.
    pub fn builder(queue: Arc<dyn Queue>, events: Arc<Events>) -> ServerBuilder {
        ServerBuilder {
            queue,
            events,
            clock: Arc::new(SystemClock),
            entropy: Entropy::from_system(),
            tokens: None,
            logs: None,
            upkeep: Upkeep::default(),
            options: Options::default(),
            allows_anonymous_admin: false,
        }
    }

    /// Where it listens.
    pub const fn local_addr(&self) -> SocketAddr {
        self.bound
    }

    /// A token that allows everything for as long as this server runs, for whoever started it. It is kept nowhere.
    pub fn owner_token(&self) -> &str {
        &self.owner_token
    }

    /// Answers until `shutdown` comes: then accepts nothing more, ends streams with a last event, lets waiting claims go,
    /// finishes what is under way, for a bounded time, and returns. The store is its opener's to close.
    pub async fn serve(self, shutdown: impl Future<Output = ()> + Send) {
        let Self { listener, front, shared, upkeep, .. } = self;
        let kept = match upkeep {
            Upkeep::Own => Some(tokio::spawn(upkeep::keep(shared.clone()))),
            Upkeep::Elsewhere => None,
        };
        // Also if this future is dropped: connections and streams must not outlive their server.
        let _ended = shared.stop.clone().drop_guard();
        let mut accepting = std::pin::pin!(accept(listener, front, &shared));
        tokio::select! {
            () = &mut accepting => {}
            () = shutdown => {}
            () = shared.tokens.watch() => {}
        }
        shared.stop.cancel();
        let finish = async {
            accepting.await;
            shared.rest.close();
            shared.rest.wait().await;
            if let Some(kept) = kept {
                // It ends by itself; a panic of it was logged when it happened.
                let _ = kept.await;
            }
        };
        if tokio::time::timeout(shared.options.finish_within, finish).await.is_err() {
            tracing::warn!("requests were still under way at the end of the shutdown's time");
        }
    }
}

impl ServerBuilder {
    /// The clock that the queue goes by, `Ekiden::clock`. Without, the machine's, which may be set back while the queue's is not.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Ids that a seed repeats, for tests: one published number of such a stream gives all its ids.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.entropy = Entropy::from_seed(seed);
        self
    }

    /// Tokens that callers must have, if there are any.
    #[must_use]
    pub fn tokens(mut self, tokens: Tokens) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Where the logs of attempts are kept. Without, there are none.
    #[must_use]
    pub fn logs(mut self, logs: Arc<dyn Logs>) -> Self {
        self.logs = Some(logs);
        self
    }

    /// Makes every caller an admin as long as there is no token, also where other machines reach the server. Without this
    /// such a server is refused.
    #[must_use]
    pub fn allow_anonymous_admin(mut self) -> Self {
        self.allows_anonymous_admin = true;
        self
    }

    /// A further name that the server answers for, as behind a proxy. A proxy brings callers from elsewhere, so the server
    /// then needs tokens.
    #[must_use]
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.options.hosts.push(name.into());
        self
    }

    /// Who does what is due.
    #[must_use]
    pub fn upkeep(mut self, upkeep: Upkeep) -> Self {
        self.upkeep = upkeep;
        self
    }

    /// How long a connection may rest between two requests, or before the first.
    #[must_use]
    pub fn rests_for(mut self, limit: Duration) -> Self {
        self.options.patience.rests_for = limit;
        self
    }

    /// How long the headers of a request may take, once they have begun.
    #[must_use]
    pub fn headers_within(mut self, limit: Duration) -> Self {
        self.options.patience.headers_within = limit;
        self
    }

    /// How long a client may take nothing of an answer that is sent to it.
    #[must_use]
    pub fn write_within(mut self, limit: Duration) -> Self {
        self.options.patience.write_within = limit;
        self
    }

    /// How long a body may take.
    #[must_use]
    pub fn body_within(mut self, limit: Duration) -> Self {
        self.options.pace.within = limit;
        self
    }

    /// How long each part of a large body may take.
    #[must_use]
    pub fn body_step_within(mut self, limit: Duration) -> Self {
        self.options.pace.step_within = limit;
        self
    }

    /// How many bytes the bodies of all requests may have that are not carried out yet.
    #[must_use]
    pub fn bodies_bytes_max(mut self, limit: usize) -> Self {
        self.options.bodies_bytes_max = limit;
        self
    }

    /// How many bytes the answers to all requests may have that their clients have not taken.
    #[must_use]
    pub fn answers_bytes_max(mut self, limit: usize) -> Self {
        self.options.answers_bytes_max = limit;
        self
    }

    /// How long a shutdown waits for requests under way.
    #[must_use]
    pub fn finish_within(mut self, limit: Duration) -> Self {
        self.options.finish_within = limit;
        self
    }

    /// How many connections there may be at once.
    #[must_use]
    pub fn connections_max(mut self, limit: usize) -> Self {
        self.options.connections_max = limit;
        self
    }

    /// How many streams there may be at once.
    #[must_use]
    pub fn streams_max(mut self, limit: usize) -> Self {
        self.options.streams_max = limit;
        self
    }

    /// Listens on an address, `127.0.0.1:0` for any free port of this machine only.
    pub async fn bind(self, address: SocketAddr) -> Result<Server, Refusal> {
        self.check(address)?;
        let taken = |error| Refusal::new(ReasonCode::AddressTaken).with("address", address).with("why", error);
        let listener = TcpListener::bind(address).await.map_err(taken)?;
        self.listen(listener)
    }

    /// Listens on a socket that somebody else has opened.
    pub fn listen(self, listener: TcpListener) -> Result<Server, Refusal> {
        let failed = |error: std::io::Error| Refusal::new(ReasonCode::AddressTaken).with("why", error);
        let bound = listener.local_addr().map_err(failed)?;
        // Connections inherit it.
        SockRef::from(&listener).set_send_buffer_size(limits::SEND_BUFFER_BYTES).map_err(failed)?;
        self.check(bound)?;
        let Self { queue, events, clock, entropy, tokens, logs, upkeep, options, allows_anonymous_admin } = self;
        let owner_token = draw()?;
        let guard = Guard::new(bound, &options.hosts);
        let tokens = Desk::new(tokens, is_reachable(bound, &options)).with_owner(&owner_token);
        let shared = Arc::new(Shared {
            queue,
            ids: Ids::new(clock.clone(), entropy),
            clock,
            events,
            logs,
            logged: Chime::default(),
            tokens: if allows_anonymous_admin { tokens.with_anonymous_admin() } else { tokens },
            metrics: Metrics::new(),
            rooms: Rooms::default(),
            streams: Budget::new(Of::Streams, options.streams_max),
            bodies: Budget::new(Of::Bodies, options.bodies_bytes_max),
            answers: Budget::new(Of::Answers, options.answers_bytes_max),
            stop: CancellationToken::new(),
            rest: TaskTracker::new(),
            options,
        });
        let front = Arc::new(Front::new(shared.clone(), guard, routes::all()));
        Ok(Server { listener, bound, front, shared, upkeep, owner_token })
    }

    /// A server that others can reach, or that had tokens, needs one now: without any, every caller is an admin.
    fn check(&self, address: SocketAddr) -> Result<(), Refusal> {
        let tokens = self.tokens.as_ref().map_or(Ok(None), Tokens::find)?;
        let why = match &tokens {
            Some(tokens) if !tokens.is_empty() => return Ok(()),
            _ if self.allows_anonymous_admin => return Ok(()),
            Some(_) => "every token was revoked",
            None if !address.ip().is_loopback() => "other machines reach this address",
            None if !self.options.hosts.is_empty() => "it answers for further host names, as behind a proxy",
            None => return Ok(()),
        };
        Err(Refusal::new(ReasonCode::BindUnsafe).with("address", address).with("why", why))
    }
}

/// Whether callers may come from other machines.
fn is_reachable(bound: SocketAddr, options: &Options) -> bool {
    !bound.ip().is_loopback() || !options.hosts.is_empty()
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("bound", &self.bound).finish_non_exhaustive()
    }
}
