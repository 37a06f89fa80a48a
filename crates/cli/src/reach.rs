//! How a command reaches its queue: a server by its address, the server that owns a data folder, or the store itself.

use ekiden::core::{Namespace, ReasonCode};
use ekiden::store::Address;
use ekiden::{Client, Ekiden, Result};

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
}

impl Reached {
    /// Lets go of the store, where it was opened here.
    pub(crate) async fn close(self) -> Result<()> {
        self.ekiden.close().await
    }
}

/// The queue that the settings name.
pub(crate) async fn reach(config: &Config, missing: Missing) -> Result<Reached> {
    let url = config.require("url")?;
    let namespace = Namespace::new(config.require("namespace")?)?;
    let ekiden = open(url, config.get("token"), missing).await?;
    let client = ekiden.namespace(namespace.as_str())?;
    Ok(Reached { ekiden, client })
}

async fn open(url: &str, token: Option<&str>, missing: Missing) -> Result<Ekiden> {
    if url.starts_with("http:") || url.starts_with("https:") {
        return Ekiden::connect(url, token).await;
    }
    let address: Address = url.parse()?;
    let opened = match missing {
        Missing::Make => address.open().await,
        Missing::Refuse => address.open_existing().await,
    };
    match opened {
        Ok(store) => Ok(Ekiden::builder(store).build()),
        // Another process has it; if that is a server, it says where.
        Err(error) if error.code() == ReasonCode::StoreInUse => match owner(&address) {
            Some(endpoint) => Ekiden::connect(&endpoint.url, token.or(endpoint.token.as_deref())).await,
            None => Err(error),
        },
        Err(error) => Err(error),
    }
}

fn owner(address: &Address) -> Option<Endpoint> {
    match address {
        Address::Local(folder) => Endpoint::read(folder),
        _ => None,
    }
}
