//! The checkpoint: all records as they were after some batch of the log, in one redb file. Answers never wait for it. It
//! holds payloads, tasks that rest, and what an open needs to build the index again.

mod backend;
mod changes;
mod copy;
mod keys;
mod load;
mod migrate;
mod places;
mod snapshot;
mod sorted;
mod verify;
mod write;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use ekiden_core::record::Record;
use ekiden_store::StoreError;
use ekiden_store::shelf::Stamp;
use redb::{Database, ReadableDatabase, TableDefinition};

use crate::disk::{Disk, How};
use crate::error;
use crate::log::Reaches;

pub(crate) use changes::Changes;
pub(crate) use load::Loaded;
pub(crate) use snapshot::{Lists, Snapshot};
pub(crate) use sorted::{Row, sorted};
pub(crate) use write::Upto;

/// Every task: card and body, sealed.
const TASKS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("tasks");
/// The cards of tasks that do not rest, sealed: what an open reads.
const CARDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("cards");
/// Payloads that are too large to stand with their tasks, sealed.
const PAYLOADS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("payloads");
/// All other records, sealed.
const OTHERS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("others");
/// Lists of tasks that rest, sealed, many places a value.
const PLACES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("places");
/// How many tasks rest, by namespace, pool and phase.
const COUNTS: TableDefinition<'_, &[u8], u64> = TableDefinition::new("counts");
/// Numbers about the whole.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// The number that says how far the log goes at least: 0 or nothing if there need not be one, 1 if it has the last batch of the
/// checkpoint, 2 if it had no room for that.
const LOG: &str = "log";

/// The format that this program writes, and the lowest program that may open it.
const FORMAT: u64 = 2;

pub(crate) const FILE: &str = "checkpoint.redb";

/// What a new file is called until it is whole.
const DRAFT: &str = "checkpoint.new";

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
        let names = disk.list(folder).map_err(|source| error::io(folder, source))?;
        if !names.iter().any(|name| name == FILE) {
            make(&disk, folder, &path)?;
        }
        let checkpoint = Self { disk, path, cache_bytes, database: RwLock::new(None) };
        checkpoint.reopen()?;
        checkpoint.migrate()?;
        Ok(checkpoint)
    }

    /// A view that stays as it is, of the latest commit.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let database = self.database()?;
        guarded(&self.path, || {
            let transaction = database.begin_read().map_err(|source| self.error(source))?;
            Snapshot::new(self.path.clone(), transaction)
        })
    }

    /// Opens the file again after an I/O error. Whoever reads meanwhile waits for it, instead of hearing that it is closed.
    pub(crate) fn reopen(&self) -> Result<(), StoreError> {
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        // The old one writes when it goes, so it has to be gone first.
        drop(database.take());
        *database = Some(Arc::new(open_database(self.disk.as_ref(), &self.path, self.cache_bytes)?));
        Ok(())
    }

    /// Opens the file if an earlier try to open it again failed.
    pub(crate) fn open_again(&self) -> Result<(), StoreError> {
        let is_open = self.database.read().unwrap_or_else(PoisonError::into_inner).is_some();
        if is_open { Ok(()) } else { self.reopen() }
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

/// Makes a new file under another name, and gives it its own when it is whole: a crash in between leaves none.
fn make(disk: &Arc<dyn Disk>, folder: &Path, path: &Path) -> Result<(), StoreError> {
    let draft = folder.join(DRAFT);
    match disk.remove(&draft) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(error::io(&draft, source)),
        _ => {}
    }
    let file = disk.open(&draft, How::New).map_err(|source| error::io(&draft, source))?;
    let database = Database::builder().create_with_backend(backend::Backend(file));
    let database = database.map_err(|source| redb_error(&draft, source))?;
    let new = Checkpoint {
        disk: disk.clone(),
        path: draft.clone(),
        cache_bytes: 0,
        database: RwLock::new(Some(Arc::new(database))),
    };
    new.write(&[], Upto { sequence: 0, revision: 0, log: Reaches::Nowhere })?;
    new.close();
    let file = disk.open(&draft, How::Existing).map_err(|source| error::io(&draft, source))?;
    file.sync_data().map_err(|source| error::io(&draft, source))?;
    disk.rename(&draft, path).map_err(|source| error::io(&draft, source))?;
    disk.sync_folder(folder).map_err(|source| error::io(folder, source))
}

fn open_database(disk: &dyn Disk, path: &Path, cache_bytes: usize) -> Result<Database, StoreError> {
    let file = disk.open(path, How::Existing).map_err(|source| error::io(path, source))?;
    // redb would make a new database of an empty file, and the loss of all tasks would go unnoticed.
    if file.len().map_err(|source| error::io(path, source))? == 0 {
        return Err(error::damaged(path.display(), "the file is empty"));
    }
    let mut builder = Database::builder();
    builder.set_cache_size(cache_bytes);
    guarded(path, || builder.create_with_backend(backend::Backend(file)).map_err(|source| redb_error(path, source)))
}

/// redb trusts its pages and panics when they make no sense; to us that is damage like any other.
fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(error::damaged(path.display(), "its pages make no sense")))
}

/// redb's errors, by what a caller can do.
fn redb_error(path: &Path, source: impl Into<redb::Error>) -> StoreError {
    match source.into() {
        // What redb finds in the file reaches us as an I/O error too: a wrong beginning, or an end that comes too early.
        redb::Error::Io(source)
            if matches!(source.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) =>
        {
            error::damaged(path.display(), source)
        }
        redb::Error::Io(source) => error::io(path, source),
        redb::Error::PreviousIo => error::spoiled(path),
        redb::Error::Corrupted(what) => error::damaged(path.display(), what),
        source @ (redb::Error::TableDoesNotExist(_) | redb::Error::TableTypeMismatch { .. }) => {
            error::damaged(path.display(), source)
        }
        source => StoreError::unavailable(format!("{}: {source}", path.display())),
    }
}
