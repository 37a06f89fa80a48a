//! The server that `ekiden dev` puts in front of its tasks: on the usual port or the next free one, found by other commands
//! without being told where it is.

use std::net::SocketAddr;
use std::sync::Arc;

use ekiden::core::{ReasonCode, Refusal};
use ekiden::store::Address;
use ekiden::{Ekiden, FolderLogs};
use ekiden_server::{Events, Server, Tokens};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::endpoint::{Endpoint, Posted};
use crate::{Outcome, serve};

/// 16 ports are tried before any free one is taken: so the address is easy to guess.
const PORTS: u16 = 16;

/// A server that listens and does not answer yet.
pub(crate) struct Front {
    server: Server,
    keeps: Keeps,
}

/// What lives as long as the server does.
struct Keeps {
    _posted: Vec<Posted>,
    /// Where logs are that go with the memory store.
    _logs: Option<TempDir>,
}

/// A server that answers.
pub(crate) struct Served {
    url: String,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    keeps: Keeps,
}

impl Front {
    /// Listens, and says where to whoever looks for it.
    pub(crate) async fn listen(
        config: &Config,
        ekiden: &Ekiden,
        events: Arc<Events>,
        address: &Address,
    ) -> Outcome<Self> {
        let (tokens, logs, folder) = match address {
            Address::Local(folder) => (Some(Tokens::at(folder)), serve::logs(folder), None),
            _ => {
                let folder = tempfile::Builder::new().prefix("ekiden-dev-").tempdir()?;
                (None, FolderLogs::at(folder.path()), Some(folder))
            }
        };
        let logs = Arc::new(logs);
        let server = bind(serve::listen_address(config)?, async |at| {
            let builder = Server::builder(ekiden.queue().clone(), events.clone());
            let mut builder = builder.clock(ekiden.clock().clone()).logs(logs.clone());
            if let Some(tokens) = &tokens {
                builder = builder.tokens(tokens.clone());
            }
            builder.bind(at).await
        })
        .await?;
        let endpoint = serve::endpoint(&url(&server), server.owner_token());
        let keeps = Keeps { _posted: post(&endpoint, address), _logs: folder };
        Ok(Self { server, keeps })
    }

    /// Answers from now on.
    pub(crate) fn serve(self) -> Served {
        let Self { server, keeps } = self;
        let (stop, stopped) = oneshot::channel::<()>();
        let url = url(&server);
        let serving = tokio::spawn(async move {
            // Who is dropped without a word has stopped as well.
            server.serve(async move { drop(stopped.await) }).await;
        });
        Served { url, stop, serving, keeps }
    }
}

impl Served {
    /// Where it answers.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Finishes what is under way, and is found no more.
    pub(crate) async fn end(self) {
        let Self { stop, serving, keeps, .. } = self;
        drop(keeps);
        // It has ended already if nobody hears this.
        let _ = stop.send(());
        let _ = serving.await;
    }
}

fn url(server: &Server) -> String {
    format!("http://{}", server.local_addr())
}

/// The wanted address, the ports behind it, and then any.
async fn bind(
    wanted: SocketAddr,
    bind: impl AsyncFn(SocketAddr) -> Result<Server, Refusal>,
) -> Result<Server, Refusal> {
    let ports = (0..PORTS).map_while(|step| wanted.port().checked_add(step)).chain([0]);
    let mut refused = Refusal::new(ReasonCode::AddressTaken).with("address", wanted);
    for port in ports {
        match bind(SocketAddr::new(wanted.ip(), port)).await {
            Err(refusal) if refusal.code == ReasonCode::AddressTaken => refused = refusal,
            settled => return settled,
        }
    }
    Err(refused)
}

/// In the data folder for who names it, and in the user's own folder for who names nothing.
fn post(endpoint: &Endpoint, address: &Address) -> Vec<Posted> {
    let mut posted = Vec::new();
    if let Address::Local(folder) = address {
        posted.extend(endpoint.post_if_possible(folder));
    }
    match endpoint.post_as_dev() {
        Ok(found) => posted.extend(found),
        // Then commands need --url; that is no reason not to serve.
        Err(error) => tracing::warn!(%error, "cannot say where this server is"),
    }
    posted
}
