//! How a command reaches its queue: a server by its address, the server that owns a data folder, the `dev` server of this
//! user, or the store itself.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use ekiden::core::{Namespace, ReasonCode, Refusal};
use ekiden::store::Address;
use ekiden::{Client, Ekiden, FolderLogs, HttpLogs, Logs, Result};

use crate::Outcome;
use crate::config::{Config, Found, Origin};
use crate::endpoint::{self, Endpoint};

/// What a command may do to a store that is not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Make it.
    Make,
    /// Say that it is not there.
    Refuse,
}

/// A queue that was reached; close it in the end.
pub(crate) struct Reached {
    ekiden: Ekiden,
    pub(crate) client: Client,
    /// What attempts wrote, where that is kept.
    pub(crate) logs: Option<Arc<dyn Logs>>,
    /// Whether nobody else can reach the store meanwhile.
    pub(crate) alone: bool,
    /// Whether a subscription hears what others do. Who has a shared store open by itself has to look.
    pub(crate) hears_all: bool,
}

impl Reached {
    /// Lets go of the store, where it was opened here.
    pub(crate) async fn close(self) -> Result<()> {
        self.ekiden.close().await
    }

    /// Refuses to wait for a change that nobody else can make, because this command has the store.
    pub(crate) fn must_be_shared(&self) -> Result<(), Refusal> {
        if self.alone { Err(Refusal::new(ReasonCode::StoreNotServed)) } else { Ok(()) }
    }
}

/// Reaches the queue that the settings name, does something with it, and lets go of it again.
pub(crate) fn visit(
    config: &Config,
    missing: Missing,
    act: impl AsyncFnOnce(&Reached) -> Outcome<ExitCode>,
) -> Outcome<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let reached = reach(config, missing).await?;
        let outcome = act(&reached).await;
        let closed = reached.close().await;
        let code = outcome?;
        closed?;
        Ok(code)
    })
}

/// The queue that the settings name.
pub(crate) async fn reach(config: &Config, missing: Missing) -> Result<Reached> {
    let namespace = Namespace::new(config.require("namespace")?)?;
    let Opened { ekiden, logs, way } = open(config, missing).await?;
    let client = ekiden.namespace(namespace.as_str())?;
    Ok(Reached { ekiden, client, logs, alone: way == Way::Alone, hears_all: way != Way::Shared })
}

/// How a queue was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By its server.
    Served,
    /// By itself, and nobody else can meanwhile.
    Alone,
    /// By itself, like others.
    Shared,
}

struct Opened {
    ekiden: Ekiden,
    logs: Option<Arc<dyn Logs>>,
    way: Way,
}

async fn open(config: &Config, missing: Missing) -> Result<Opened> {
    let url = config.require("url")?;
    if url.starts_with("http:") || url.starts_with("https:") {
        return connect(url, config.token_for(url, None)?).await;
    }
    let address = config.address()?;
    if config.origin("url") == Origin::Default
        && owner(&address).is_none_or(|owner| !owner.is_alive())
        && let Some((dev, folder)) = endpoint::of_dev()
    {
        return connect_found(config, &dev, &folder).await;
    }
    let opened = match missing {
        Missing::Make => address.open().await,
        Missing::Refuse => address.open_existing().await,
    };
    match opened {
        Ok(store) => {
            let way = if store.info().shared { Way::Shared } else { Way::Alone };
            // A store that is not on this machine has no folder here; what its commands write stays with their runner.
            let own = || endpoint::state_folder().filter(|_| way == Way::Shared);
            let logs = crate::serve::folder(config, &address).or_else(own).map(|folder| crate::serve::logs(&folder));
            let logs = logs.map(|logs: FolderLogs| Arc::new(logs) as _);
            Ok(Opened { ekiden: Ekiden::builder(store).build(), logs, way })
        }
        // Another process has it; if that is a server, it says where.
        Err(error) if error.code() == ReasonCode::StoreInUse => match (owner(&address), &address) {
            (Some(endpoint), Address::Local(folder)) => connect_found(config, &endpoint, folder).await,
            _ => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// A server that a file in this folder tells of.
async fn connect_found(config: &Config, endpoint: &Endpoint, folder: &Path) -> Result<Opened> {
    let file = endpoint::path(folder);
    let found = Found { file: &file, token: endpoint.token.as_deref() };
    connect(&endpoint.url, config.token_for(&endpoint.url, Some(found))?).await
}

async fn connect(url: &str, token: Option<&str>) -> Result<Opened> {
    let logs: Arc<dyn Logs> = Arc::new(HttpLogs::connect(url, token)?);
    Ok(Opened { ekiden: Ekiden::connect(url, token).await?, logs: Some(logs), way: Way::Served })
}

fn owner(address: &Address) -> Option<Endpoint> {
    match address {
        Address::Local(folder) => Endpoint::read(folder),
        _ => None,
    }
}
