//! Copying the checkpoint into a new file, and making its own file as small as it can be. Rows are copied as they are: what is
//! sealed stays sealed under the same key.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use redb::{Database, Durability, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};

use ekiden_store::StoreError;

use super::write::number_of;
use super::{CARDS, COUNTS, Checkpoint, FILE, LOG, META, OTHERS, PAYLOADS, PLACES, TASKS};
use crate::disk::{Disk, How};
use crate::error;
use crate::log::Reaches;

/// 4,096 rows a transaction: a sync each, and nothing that has to be kept in memory for long.
const ROWS_AT_ONCE: usize = 4_096;

impl Checkpoint {
    /// Whether a folder has one.
    pub(crate) fn is_in(disk: &dyn Disk, folder: &Path) -> bool {
        disk.list(folder).is_ok_and(|names| names.iter().any(|name| name == FILE))
    }

    /// A view that has everything up to a revision; `None` if the latest checkpoint is older.
    pub(crate) fn view(&self, revision: u64) -> Result<Option<ReadTransaction>, StoreError> {
        let view = self.database()?.begin_read().map_err(|source| self.error(source))?;
        let meta = view.open_table(META).map_err(|source| self.error(source))?;
        let found = meta.get("revision").map_err(|source| self.error(source))?.map(|found| found.value());
        Ok((found >= Some(revision)).then_some(view))
    }

    /// Copies a view into this checkpoint, which is new and has no tables yet. The numbers about the whole come last: they make
    /// a checkpoint of what is there, to which no log belongs.
    pub(crate) fn fill_from(&self, view: &ReadTransaction) -> Result<(), StoreError> {
        let database = self.database()?;
        for table in [TASKS, CARDS, PAYLOADS, OTHERS, PLACES] {
            copy(view, &database, table).map_err(|source| self.error(source))?;
        }
        copy(view, &database, COUNTS).map_err(|source| self.error(source))?;
        copy(view, &database, META).map_err(|source| self.error(source))?;
        say(&database, Reaches::Nowhere).map_err(|source| self.error(source))
    }

    /// Says that the log has the last batch of the checkpoint.
    pub(crate) fn require_log(&self) -> Result<(), StoreError> {
        say(self.database()?.as_ref(), Reaches::Checkpoint).map_err(|source| self.error(source))
    }

    /// Gives room that is free inside the file back to the disk. Nobody else may have the file open. The length before and
    /// after.
    pub(crate) fn compact(&self) -> Result<(u64, u64), StoreError> {
        let before = self.bytes()?;
        let taken = self.database.write().unwrap_or_else(PoisonError::into_inner).take();
        let mut database = taken.and_then(Arc::into_inner).ok_or_else(|| error::in_use(&self.path))?;
        database.compact().map_err(|source| self.error(source))?;
        drop(database);
        Ok((before, self.bytes()?))
    }

    fn bytes(&self) -> Result<u64, StoreError> {
        let length = self.disk.open(&self.path, How::Existing).and_then(|file| file.len());
        length.map_err(|source| error::io(&self.path, source))
    }
}

fn say(database: &Database, log: Reaches) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    transaction.open_table(META)?.insert(LOG, number_of(log))?;
    Ok(transaction.commit()?)
}

/// Copies one table, in the order of its keys.
fn copy<K: redb::Key + 'static, V: redb::Value + 'static>(
    view: &ReadTransaction,
    into: &Database,
    definition: TableDefinition<'_, K, V>,
) -> Result<(), redb::Error> {
    let table = view.open_table(definition)?;
    let mut rows = table.iter()?.peekable();
    loop {
        let mut transaction = into.begin_write()?;
        transaction.set_quick_repair(true);
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut table = transaction.open_table(definition)?;
            for row in rows.by_ref().take(ROWS_AT_ONCE) {
                let (key, value) = row?;
                table.insert(key.value(), value.value())?;
            }
        }
        transaction.commit()?;
        if rows.peek().is_none() {
            return Ok(());
        }
    }
}
