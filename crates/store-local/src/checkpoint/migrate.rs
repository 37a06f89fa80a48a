//! Checkpoints of older formats are brought to today's when they are opened, in one transaction: a crash leaves the old one.

use ekiden_store::StoreError;
use redb::{Durability, ReadableTable, TableDefinition};

use super::places::{Listing, Moves};
use super::{Checkpoint, FORMAT, META, PLACES, guarded, keys};
use crate::codec::Unreadable;

/// Where format 1 kept its lists: a row for each place.
pub(super) const ROWS: TableDefinition<'_, &[u8], ()> = TableDefinition::new("lists");

/// 1 MiB of rows are gathered before they are written.
const ROWS_AT_ONCE: usize = 16_384;

impl Checkpoint {
    /// Brings an older format to today's. Nothing happens to today's, to a newer one, and to one that is just being made.
    pub(super) fn migrate(&self) -> Result<(), StoreError> {
        guarded(&self.path, || self.replace_rows().map_err(|source| self.error(source)))
    }

    /// Format 1: lists were rows.
    fn replace_rows(&self) -> Result<(), redb::Error> {
        let Ok(database) = self.database() else { return Ok(()) };
        let mut transaction = database.begin_write()?;
        transaction.set_quick_repair(true);
        transaction.set_durability(Durability::Immediate)?;
        let is_old = transaction.open_table(META)?.get("format")?.is_some_and(|format| format.value() == 1);
        if !is_old {
            return Ok(transaction.abort()?);
        }
        tracing::info!(path = %self.path.display(), "the checkpoint has an older format and is written anew");
        {
            let rows = transaction.open_table(ROWS)?;
            let mut lists = transaction.open_table(PLACES)?;
            let mut all = rows.iter()?.peekable();
            while all.peek().is_some() {
                let mut moves = Moves::default();
                for row in all.by_ref().take(ROWS_AT_ONCE) {
                    let (key, _) = row?;
                    let (prefix, place) = keys::split_listed(key.value())
                        .and_then(|(prefix, _)| Ok((prefix, keys::place(prefix, key.value())?)))
                        .map_err(|error: Unreadable| redb::Error::Corrupted(error.to_string()))?;
                    moves.add_to(prefix, place, Listing::Enter);
                }
                moves.write(&mut lists)?;
            }
            let mut meta = transaction.open_table(META)?;
            meta.insert("format", FORMAT)?;
            meta.insert("min_reader", FORMAT)?;
        }
        transaction.delete_table(ROWS)?;
        Ok(transaction.commit()?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ekiden_core::filter::TaskFilter;
    use ekiden_core::id::Namespace;
    use ekiden_store::ListOrder;
    use ekiden_store::shelf::Listed;
    use redb::ReadableDatabase;

    use super::super::keys::List;
    use super::super::{Lists, places};
    use super::*;
    use crate::disk::SystemDisk;

    /// Format 1 had a row for each place, in a table of its own.
    fn age(checkpoint: &Checkpoint, lists: &[(List<'_>, Vec<Listed>)]) {
        let transaction = checkpoint.database().unwrap().begin_write().unwrap();
        {
            let mut rows = transaction.open_table(ROWS).unwrap();
            for (list, places) in lists {
                for place in places {
                    rows.insert(keys::listed(&list.prefix("default"), place).as_slice(), ()).unwrap();
                }
            }
            let mut meta = transaction.open_table(META).unwrap();
            meta.insert("format", 1).unwrap();
            meta.insert("min_reader", 1).unwrap();
        }
        transaction.delete_table(PLACES).unwrap();
        transaction.commit().unwrap();
    }

    #[test]
    fn a_checkpoint_of_the_first_format_keeps_its_lists() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Checkpoint::open(Arc::new(SystemDisk), folder.path(), 1 << 20).unwrap();
        let place = |at| Listed::of_generated(ekiden_core::time::Timestamp::from_millis(at), 7);
        let (pool, dead) = (List::Pool("mail"), List::Phase(ekiden_core::task::Phase::Dead));
        let listed = [(pool, (0..500).map(place).collect::<Vec<_>>()), (dead, vec![place(3)])];
        let old = open();
        age(&old, &listed);
        drop(old);

        let checkpoint = open();
        let transaction = checkpoint.database().unwrap().begin_read().unwrap();
        let lists = transaction.open_table(PLACES).unwrap();
        for (list, expected) in &listed {
            let found = places::behind(&lists, &list.prefix("default"), ListOrder::OldestFirst, None, 1_000).unwrap();
            assert_eq!(found, *expected);
        }
        assert!(transaction.open_table(ROWS).is_err(), "the old lists are gone");
        assert_eq!(transaction.open_table(META).unwrap().get("format").unwrap().unwrap().value(), FORMAT);
        let filter = TaskFilter::all(Namespace::new("default").unwrap());
        let seen = checkpoint.snapshot().unwrap().places(&filter, Lists::Phases, ListOrder::NewestFirst, None).unwrap();
        assert_eq!(seen.places, [place(3)], "found where listings look");
    }
}
