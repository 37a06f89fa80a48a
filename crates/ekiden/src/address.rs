//! Where a store is: the addresses that people write, and what can be done with the store there.

use std::fmt;
#[cfg(feature = "local")]
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use ekiden_core::reason::{ReasonCode, Refusal};
#[cfg(feature = "dynamodb")]
use ekiden_store::{CheckDepth, Finding};
use ekiden_store::{MemoryStore, Store};

use crate::client::Ekiden;
use crate::error::{Error, Result};

/// The address of a store, as text `memory:`, `local:DIR` or `dynamodb:`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// `memory:`, a new store in this process, which keeps nothing.
    Memory,
    /// `local:DIR`, a folder of this machine. A relative one is relative to the working directory.
    #[cfg(feature = "local")]
    Local(PathBuf),
    /// `dynamodb:`, tables on DynamoDB Local; `dynamodb:?endpoint=URL`, on another server.
    #[cfg(feature = "dynamodb")]
    Dynamodb(ekiden_store_dynamodb::Location),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        let wrong = |why: &str| {
            let refusal = Refusal::new(ReasonCode::UrlInvalid).with("url", url.chars().take(64).collect::<String>());
            Err(if why.is_empty() { refusal } else { refusal.with("why", why) }.into())
        };
        match url.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("memory", _)) => wrong("nothing comes behind memory:"),
            Some(("local", "")) => wrong("the folder is missing, as in local:./data"),
            Some(("local", path)) if path.starts_with("//") => wrong("a folder of this machine has no host"),
            #[cfg(feature = "local")]
            Some(("local", path)) => Ok(Self::Local(PathBuf::from(path))),
            #[cfg(feature = "dynamodb")]
            Some(("dynamodb", location)) => Ok(Self::Dynamodb(location.parse()?)),
            _ => wrong(""),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory:"),
            #[cfg(feature = "local")]
            Self::Local(folder) => write!(f, "local:{}", folder.display()),
            #[cfg(feature = "dynamodb")]
            Self::Dynamodb(location) => write!(f, "dynamodb:{location}"),
        }
    }
}

impl Address {
    /// The server that gets the AWS keys of this process, if the address names one. AWS itself does not count, nor does a server
    /// without TLS, which gets no keys.
    pub fn gets_keys(&self) -> Option<&str> {
        match self {
            #[cfg(feature = "dynamodb")]
            Self::Dynamodb(location) => location.gets_keys(),
            _ => None,
        }
    }

    /// Opens the store there, or makes it.
    pub async fn open(&self) -> Result<Arc<dyn Store>> {
        match self {
            Self::Memory => Ok(Arc::new(MemoryStore::new())),
            #[cfg(feature = "local")]
            Self::Local(folder) => Ok(Arc::new(local::open(folder.clone()).await?)),
            #[cfg(feature = "dynamodb")]
            Self::Dynamodb(location) => {
                Ok(Arc::new(ekiden_store_dynamodb::DynamoStore::open(location.options()).await?))
            }
        }
    }

    /// Opens the store there, and makes none.
    pub async fn open_existing(&self) -> Result<Arc<dyn Store>> {
        #[cfg(feature = "local")]
        if let Self::Local(folder) = self {
            local::must_exist(folder)?;
        }
        #[cfg(feature = "dynamodb")]
        if let Self::Dynamodb(location) = self {
            return Ok(Arc::new(ekiden_store_dynamodb::DynamoStore::open_existing(location.options()).await?));
        }
        self.open().await
    }
}

#[cfg(feature = "dynamodb")]
impl Address {
    /// Looks for what is wrong with the store there. Nothing is made or mended.
    pub async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>> {
        if let Self::Dynamodb(location) = self {
            let store = ekiden_store_dynamodb::DynamoStore::open_to_check(location.options()).await?;
            let findings = store.check_all(depth).await?;
            store.close().await?;
            return Ok(findings);
        }
        let store = self.open_existing().await?;
        let findings = store.check(depth).await?;
        store.close().await?;
        Ok(findings)
    }

    /// Counts all tasks of a shared store anew, slowly, and repairs numbers that drifted. Says how many did. Stores of one process
    /// count exactly, and need none of it.
    pub async fn recount(&self) -> Result<u64> {
        let Self::Dynamodb(location) = self else {
            return Err(Refusal::new(ReasonCode::StoreCannot).with("url", self).into());
        };
        let store = ekiden_store_dynamodb::DynamoStore::open_existing(location.options()).await?;
        let repaired = store.recount().await?;
        store.close().await?;
        Ok(repaired)
    }
}

/// What only a local store can do.
#[cfg(feature = "local")]
impl Address {
    /// Makes the store's files as small as they can be. No process may have it open.
    pub async fn compact(&self) -> Result<ekiden_store_local::Compacted> {
        let folder = self.local_folder()?;
        Ok(local::apart(move || ekiden_store_local::LocalStore::compact(&folder, local::Options::default())).await?)
    }

    /// Copies the store, which no process may have open, to a new folder. Whoever has one open copies it with
    /// [`LocalStore::backup`](ekiden_store_local::LocalStore::backup).
    pub async fn backup(&self, to: PathBuf) -> Result<()> {
        let folder = self.local_folder()?;
        local::must_exist(&folder)?;
        let store = local::open(folder).await?;
        Ok(local::apart(move || store.backup(&to)).await?)
    }

    fn local_folder(&self) -> Result<PathBuf> {
        match self {
            Self::Local(folder) => Ok(folder.clone()),
            _ => Err(Refusal::new(ReasonCode::StoreCannot).with("url", self).into()),
        }
    }
}

#[cfg(feature = "local")]
mod local {
    use std::path::{Path, PathBuf};

    use ekiden_core::reason::{ReasonCode, Refusal};
    use ekiden_store_local::LocalStore;
    pub(super) use ekiden_store_local::Options;

    use crate::error::Result;

    pub(super) fn must_exist(folder: &Path) -> Result<()> {
        if LocalStore::is_at(folder) {
            return Ok(());
        }
        Err(Refusal::new(ReasonCode::StoreNotFound).with("path", folder.display()).into())
    }

    pub(super) async fn open(folder: PathBuf) -> Result<LocalStore> {
        Ok(apart(move || LocalStore::open(&folder, Options::default())).await?)
    }

    /// Does something slow where it holds nobody up.
    pub(super) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => done,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

#[cfg(feature = "http")]
impl Ekiden {
    /// Opens the queue behind a server, with the token that it asks for.
    pub async fn connect(url: &str, token: Option<&str>) -> Result<Self> {
        Ok(Self::over(Arc::new(crate::http::HttpQueue::connect(url, token).await?)))
    }
}

impl Ekiden {
    /// Opens the queue at an address: `memory:` keeps everything in this process, `local:DIR` in a folder of this machine, which
    /// is made if it is not there, `dynamodb:` (a feature of that name) in tables of a DynamoDB server; `http://HOST:PORT` is the queue of a server that needs no token. Such a folder belongs to one process at a time; a second one is told `STORE_IN_USE`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ekiden::Ekiden;
    ///
    /// let url = "local:./data";
    /// # let folder = tempfile::tempdir()?;
    /// # let url = &format!("local:{}", folder.path().join("data").display());
    /// let ekiden = Ekiden::open(url).await?;
    /// let task = ekiden.namespace("default")?.enqueue_raw("greet", "text/plain", "hello").await?;
    /// ekiden.close().await?;
    ///
    /// let again = Ekiden::open(url).await?;
    /// assert_eq!(again.namespace("default")?.get_status(&task.id).await?.state, ekiden::TaskState::Queued);
    /// assert!(Ekiden::open("redis://localhost").await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn open(url: &str) -> Result<Self> {
        #[cfg(feature = "http")]
        if url.starts_with("http:") || url.starts_with("https:") {
            return Self::connect(url, None).await;
        }
        Ok(Self::builder(url.parse::<Address>()?.open().await?).build())
    }
}
