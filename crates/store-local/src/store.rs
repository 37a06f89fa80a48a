//! The store itself: a folder that belongs to one process.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_trait::async_trait;
use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::record::Versioned;
use ekiden_store::shelf::Look;
use ekiden_store::{
    CheckDepth, CountScope, Counts, DueEntry, DueQuery, Finding, Happened, Hint, Info, Op, Others, Outcome, Page,
    RecordQuery, Store, StoreError, TaskQuery, check_batch, check_namespaces,
};
use tokio::sync::broadcast;

use crate::durability::{Halt, Wait};
use crate::open::{self, Options};
use crate::shared::Shared;
use crate::{check, error, listing};

/// Keeps records in a folder of this machine. What it answered survives the death of the process and of the machine.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use ekiden_store::Store;
/// use ekiden_store_local::{LocalStore, Options};
///
/// let folder = tempfile::tempdir()?;
/// let store = LocalStore::open(&folder.path().join("data"), Options::default())?;
/// assert_eq!(store.info().name, "local");
/// store.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LocalStore {
    pub(crate) shared: Arc<Shared>,
    /// Ends when both threads have ended.
    threads: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalStore").field("folder", &self.shared.folder).finish_non_exhaustive()
    }
}

impl LocalStore {
    /// Opens the store in this folder, or makes it. Blocks while it reads what is there.
    pub fn open(folder: &Path, options: Options) -> Result<Self, StoreError> {
        let (shared, threads) = open::open(folder, options)?;
        Ok(Self { shared, threads: Mutex::new(Some(threads)) })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    fn end(&self) -> Option<JoinHandle<()>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Whoever drops a store without closing it has what a crash leaves: everything that was answered.
impl Drop for LocalStore {
    fn drop(&mut self) {
        // Closed or failed already is fine.
        let _ = self.shared.desk().close();
        self.shared.wake_all();
        if let Some(threads) = self.end() {
            let _ = threads.join();
        }
    }
}

/// Waits until what was answered is durable.
async fn durable(wait: Wait) -> Result<(), Halt> {
    let ended = |_| Err(Halt::unexplained(error::failed("the committer ended", Happened::Unknown)));
    match wait {
        None => Ok(()),
        Some(wait) => wait.await.unwrap_or_else(ended),
    }
}

/// Waits until what a read saw up to a revision is durable.
async fn seen(revision: u64, wait: Wait) -> Result<(), StoreError> {
    durable(wait).await.or_else(|halt| halt.judge_read(revision))
}

/// Does something slow on a thread of its own, so that no runtime is held up.
async fn apart<T: Send + 'static>(
    shared: &Shared,
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    let (done, ended) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Whoever went away does not need the answer.
        let _ = done.send(work());
    });
    thread.map_err(|source| error::io(&shared.folder, source))?;
    ended.await.map_err(|_| StoreError::unavailable(format!("{name} ended early")))
}

#[async_trait]
impl Store for LocalStore {
    fn info(&self) -> Info {
        let durable = "written to a log on this machine's disk and synced";
        Info { name: "local", durable, shared: false, exact_index: true, others: Others::Never }
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        let count = ops.len();
        if let Err(refusal) = check_batch("ops", count, limits::APPLY_OPS_MAX) {
            return vec![Err(refusal.into()); count];
        }
        self.shared.room(&ops).await;
        let (outcomes, wait) = match self.shared.carry_out(ops) {
            Ok(carried) => carried,
            Err(error) => return vec![Err(error); count],
        };
        match durable(wait).await {
            Ok(()) => outcomes.into_iter().map(|(outcome, _)| outcome).collect(),
            Err(halt) => outcomes.into_iter().map(|(outcome, basis)| halt.judge(outcome, basis)).collect(),
        }
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        check_batch("keys", keys.len(), limits::GET_KEYS_MAX)?;
        let mut found = Vec::with_capacity(keys.len());
        let mut elsewhere = Vec::new();
        let (snapshot, latest, wait) = {
            let mut desk = self.shared.desk();
            desk.is_open()?;
            let mut latest = 0;
            for (at, key) in keys.iter().enumerate() {
                let here = match desk.look(key) {
                    Some(Look::Here(versioned)) => {
                        latest = latest.max(versioned.revision.as_number().unwrap_or(0));
                        Some(versioned)
                    }
                    Some(Look::Nothing) => {
                        latest = latest.max(desk.gone(key).unwrap_or(0));
                        None
                    }
                    Some(Look::Away) | None => {
                        elsewhere.push(at);
                        None
                    }
                };
                found.push(here);
            }
            let snapshot = if elsewhere.is_empty() { None } else { Some(desk.snapshot(&self.shared.checkpoint)?) };
            (snapshot, latest, desk.wait_for(latest))
        };
        if let Some(snapshot) = snapshot {
            for at in elsewhere {
                if let (Some(key), Some(found)) = (keys.get(at), found.get_mut(at)) {
                    *found = snapshot.versioned(key)?;
                }
            }
        }
        seen(latest, wait).await?;
        Ok(found)
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        query.check()?;
        let (due, revision, wait) = listing::due(&self.shared, &query)?;
        seen(revision, wait).await?;
        Ok(due)
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        query.check()?;
        let (page, revision, wait) = listing::tasks(&self.shared, &query)?;
        seen(revision, wait).await?;
        Ok(page)
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        query.check()?;
        let (page, revision, wait) = {
            let mut desk = self.shared.desk();
            desk.is_open()?;
            let revision = desk.shelf.revision();
            (desk.shelf.records(&query), revision, desk.wait_for(revision))
        };
        seen(revision, wait).await?;
        Ok(page)
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        let (counts, revision, wait) = {
            let mut desk = self.shared.desk();
            desk.is_open()?;
            let revision = desk.shelf.revision();
            (desk.shelf.counts(&scope), revision, desk.wait_for(revision))
        };
        seen(revision, wait).await?;
        Ok(counts)
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        check_namespaces(limit)?;
        let (page, revision, wait) = {
            let mut desk = self.shared.desk();
            desk.is_open()?;
            let revision = desk.shelf.revision();
            (desk.shelf.namespaces(after.as_ref(), limit), revision, desk.wait_for(revision))
        };
        seen(revision, wait).await?;
        Ok(page)
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.shared.hints.watch()
    }

    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        self.shared.desk().is_open()?;
        match depth {
            CheckDepth::Quick => Ok(check::quick(&self.shared)),
            CheckDepth::Full => {
                let shared = self.shared.clone();
                apart(&self.shared, "ekiden-check", move || check::full(&shared)).await?
            }
        }
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.shared.desk().close()?;
        self.shared.wake_all();
        let Some(threads) = self.end() else { return Ok(()) };
        apart(&self.shared, "ekiden-close", move || drop(threads.join())).await?;
        if self.shared.desk().has_failed() {
            return Err(error::failed("the last writes failed", Happened::Unknown));
        }
        Ok(())
    }
}
