//! How a command reaches its queue: a server by its address, the server that owns a data folder, or the store itself.

use std::sync::Arc;

use ekiden::core::{Namespace, ReasonCode};
use ekiden::store::Address;
use ekiden::{Client, Ekiden, FolderLogs, HttpLogs, Logs, Result};

use crate::config::Config;
use crate::endpoint::Endpoint;

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
}

impl Reached {
    /// Lets go of the store, where it was opened here.
    pub(crate) async fn close(self) -> Result<()> {
        self.ekiden.close().await
    }
}

/// The queue that the settings name.
pub(crate) async fn reach(config: &Config, missing: Missing) -> Result<Reached> {
    let namespace = Namespace::new(config.require("namespace")?)?;
    let (ekiden, logs) = open(config, missing).await?;
    let client = ekiden.namespace(namespace.as_str())?;
    Ok(Reached { ekiden, client, logs })
}

type Opened = (Ekiden, Option<Arc<dyn Logs>>);

async fn open(config: &Config, missing: Missing) -> Result<Opened> {
    let (url, token) = (config.require("url")?, config.get("token"));
    if url.starts_with("http:") || url.starts_with("https:") {
        return connect(url, token).await;
    }
    let address: Address = url.parse()?;
    let opened = match missing {
        Missing::Make => address.open().await,
        Missing::Refuse => address.open_existing().await,
    };
    match opened {
        Ok(store) => {
            let logs = crate::serve::folder(config, &address).map(|folder| crate::serve::logs(&folder));
            Ok((Ekiden::builder(store).build(), logs.map(|logs: FolderLogs| Arc::new(logs) as _)))
        }
        // Another process has it; if that is a server, it says where.
        Err(error) if error.code() == ReasonCode::StoreInUse => match owner(&address) {
            Some(endpoint) => connect(&endpoint.url, token.or(endpoint.token.as_deref())).await,
            None => Err(error),
        },
        Err(error) => Err(error),
    }
}

async fn connect(url: &str, token: Option<&str>) -> Result<Opened> {
    let logs: Arc<dyn Logs> = Arc::new(HttpLogs::connect(url, token)?);
    Ok((Ekiden::connect(url, token).await?, Some(logs)))
}

fn owner(address: &Address) -> Option<Endpoint> {
    match address {
        Address::Local(folder) => Endpoint::read(folder),
        _ => None,
    }
}
