//! The checkpoint: all records as they were after some batch of the log, in one redb file. Answers never wait for it. It
//! holds payloads, tasks that rest, and what an open needs to build the index again.

mod backend;
mod copy;
mod keys;
mod load;
mod snapshot;
mod verify;
mod write;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use ekiden_core::key::Key;
use ekiden_core::record::Record;
use ekiden_store::StoreError;
use ekiden_store::shelf::Stamp;
use hashbrown::HashMap;
use redb::{Database, ReadableDatabase, TableDefinition};

use crate::disk::{Disk, How};
use crate::error;

pub(crate) use load::Loaded;
pub(crate) use snapshot::Snapshot;

/// Every task: card and body, sealed.
const TASKS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("tasks");
/// The cards of tasks that do not rest, sealed: what an open reads.
const CARDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("cards");
/// Payloads that are too large to stand with their tasks, sealed.
const PAYLOADS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("payloads");
/// All other records, sealed.
const OTHERS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("others");
/// Lists of tasks that rest.
const LISTS: TableDefinition<'_, &[u8], ()> = TableDefinition::new("lists");
/// How many tasks rest, by namespace, pool and phase.
const COUNTS: TableDefinition<'_, &[u8], u64> = TableDefinition::new("counts");
/// Numbers about the whole.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The format that this program writes, and the lowest program that may open it.
const FORMAT: u64 = 1;

const FILE: &str = "checkpoint.redb";

/// What changed since the checkpoint, by key.
pub(crate) type Changes = HashMap<Key, Changed>;

/// What a record became.
#[derive(Debug)]
pub(crate) enum Changed {
    /// This.
    Put {
        /// The record.
        record: Record,
        /// What is remembered of it.
        stamp: Stamp,
        /// Whether a task's spec is new as well.
        spec: bool,
    },
    /// Nothing.
    Gone {
        /// The number of the deletion.
        revision: u64,
    },
}

/// The open file. It is opened anew after an I/O error, because redb takes nothing more then.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    cache_bytes: usize,
    /// `None` once it was closed.
    database: RwLock<Option<Arc<Database>>>,
}

impl Checkpoint {
    /// Opens the file in this folder, or makes it.
    pub(crate) fn open(disk: Arc<dyn Disk>, folder: &Path, cache_bytes: usize) -> Result<Self, StoreError> {
        let path = folder.join(FILE);
        let database = open_database(disk.as_ref(), &path, cache_bytes)?;
        disk.sync_folder(folder).map_err(|source| error::io(folder, source))?;
        Ok(Self { disk, path, cache_bytes, database: RwLock::new(Some(Arc::new(database))) })
    }

    /// A view that stays as it is, of the latest commit.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let transaction = self.database()?.begin_read().map_err(|source| self.error(source))?;
        Snapshot::new(self.path.clone(), transaction)
    }

    /// Opens the file again after an I/O error.
    pub(crate) fn reopen(&self) -> Result<(), StoreError> {
        // The old one writes when it goes, so it has to be gone first.
        self.close();
        let database = open_database(self.disk.as_ref(), &self.path, self.cache_bytes)?;
        *self.database.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(database));
        Ok(())
    }

    /// Closes the file.
    pub(crate) fn close(&self) {
        self.database.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn database(&self) -> Result<Arc<Database>, StoreError> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner).clone();
        database.ok_or_else(|| StoreError::unavailable(format!("{} is not open", self.path.display())))
    }

    fn error(&self, source: impl Into<redb::Error>) -> StoreError {
        redb_error(&self.path, source)
    }
}

fn open_database(disk: &dyn Disk, path: &Path, cache_bytes: usize) -> Result<Database, StoreError> {
    let file = disk.open(path, How::OrNew).map_err(|source| error::io(path, source))?;
    let mut builder = Database::builder();
    builder.set_cache_size(cache_bytes);
    builder.create_with_backend(backend::Backend(file)).map_err(|source| redb_error(path, source))
}

/// redb's errors, by what a caller can do.
fn redb_error(path: &Path, source: impl Into<redb::Error>) -> StoreError {
    match source.into() {
        redb::Error::Io(source) => error::io(path, source),
        redb::Error::Corrupted(what) => error::damaged(path.display(), what),
        source => StoreError::unavailable(format!("{}: {source}", path.display())),
    }
}
