//! Writing the checkpoint: everything that changed since the last one, in one transaction.

use ekiden_core::id::Namespace;
use ekiden_core::index::{DueIndex, Index};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::record::Record;
use ekiden_core::task::{Phase, Task};
use ekiden_store::StoreError;
use ekiden_store::shelf::{Listed, Names, Stamp};
use hashbrown::HashMap;
use redb::{Durability, ReadableTable, Table, WriteTransaction};

use super::keys::{self, List};
use super::places::{Listing, Moves};
use super::{CARDS, COUNTS, Changed, Changes, Checkpoint, FORMAT, LOG, META, OTHERS, PAYLOADS, PLACES, TASKS, guarded};
use crate::codec::{self, Card, PAYLOAD_INLINE_MAX, Pen, put_body, put_card, read_card, seal, seal_record, unseal};

impl Checkpoint {
    /// Makes the changes durable: the checkpoint then has everything up to this batch of the log.
    pub(crate) fn write(&self, changes: &Changes, sequence: u64, revision: u64) -> Result<(), StoreError> {
        guarded(&self.path, || self.write_all(changes, sequence, revision))
    }

    fn write_all(&self, changes: &Changes, sequence: u64, revision: u64) -> Result<(), StoreError> {
        let mut transaction = self.database()?.begin_write().map_err(|source| self.error(source))?;
        // A reopen after a crash then reads the allocator's state instead of walking all trees.
        transaction.set_quick_repair(true);
        transaction.set_durability(Durability::Immediate).map_err(|source| self.error(redb::Error::from(source)))?;
        self.fill(&transaction, changes, sequence, revision).map_err(|source| self.error(source))?;
        transaction.commit().map_err(|source| self.error(source))
    }

    fn fill(
        &self,
        transaction: &WriteTransaction,
        changes: &Changes,
        sequence: u64,
        revision: u64,
    ) -> Result<(), redb::Error> {
        let mut others = transaction.open_table(OTHERS)?;
        let mut pages = Pages {
            tasks: transaction.open_table(TASKS)?,
            cards: transaction.open_table(CARDS)?,
            payloads: transaction.open_table(PAYLOADS)?,
            moves: Moves::default(),
            counts: HashMap::new(),
            pen: Pen::default(),
        };
        // In the order of the keys neighbours share pages.
        let mut sorted: Vec<_> = changes.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        for (key, changed) in sorted {
            match changed {
                Changed::Put { record: Record::Task(task), stamp, spec } => pages.put(key, task, *stamp, *spec)?,
                Changed::Put { record, stamp, .. } => {
                    let bytes = keys::other(key);
                    let value = seal_record(&bytes, |into| {
                        codec::put_stamp(stamp, into);
                        codec::put_other(record, into)
                    });
                    others.insert(bytes.as_slice(), value.as_slice())?;
                }
                Changed::Gone { .. } if key.kind == RecordKind::Task => pages.remove(key)?,
                Changed::Gone { .. } => drop(others.remove(keys::other(key).as_slice())?),
            }
        }
        pages.moves.write(&mut transaction.open_table(PLACES)?)?;
        let mut counts = transaction.open_table(COUNTS)?;
        for (key, by) in pages.counts {
            let before = counts.get(key.as_slice())?.map_or(0, |count| count.value());
            match before.saturating_add_signed(by) {
                0 => drop(counts.remove(key.as_slice())?),
                count => drop(counts.insert(key.as_slice(), count)?),
            }
        }
        let mut meta = transaction.open_table(META)?;
        for (name, value) in
            [("format", FORMAT), ("min_reader", FORMAT), ("sequence", sequence), ("revision", revision)]
        {
            meta.insert(name, value)?;
        }
        // What was in a batch has a log beside it from then on.
        meta.insert(LOG, u64::from(sequence > 0))?;
        Ok(())
    }
}

/// The tables of tasks, while they are written.
struct Pages<'t> {
    tasks: Table<'t, &'static [u8], &'static [u8]>,
    cards: Table<'t, &'static [u8], &'static [u8]>,
    payloads: Table<'t, &'static [u8], &'static [u8]>,
    /// What changes in the lists of resting tasks.
    moves: Moves,
    /// By how much each count of resting tasks changes.
    counts: HashMap<Vec<u8>, i64>,
    pen: Pen,
}

impl Pages<'_> {
    fn put(&mut self, key: &Key, task: &std::sync::Arc<Task>, stamp: Stamp, new_spec: bool) -> Result<(), redb::Error> {
        let bytes = keys::task(key);
        let index = Index::of(key, &Record::Task(task.clone()));
        let card = Card { created_at: task.spec.created_at, stamp, index, names: Names::of(task) };
        let value = seal_record(&bytes, |into| {
            put_card(&card, into);
            put_body(task, &mut self.pen, into)
        });
        let old = self.tasks.insert(bytes.as_slice(), value.as_slice())?.and_then(|old| card_of(&bytes, old.value()));
        let rests = card.index.is_at_rest();
        if let Some(old) = old {
            if old.index.is_at_rest() {
                self.list(key, &old, Listing::Leave);
            } else if rests {
                self.cards.remove(bytes.as_slice())?;
            }
        }
        if rests {
            self.list(key, &card, Listing::Enter);
        } else {
            let sealed = seal(&bytes, |into| put_card(&card, into));
            self.cards.insert(bytes.as_slice(), sealed.as_slice())?;
        }
        let payload = &task.spec.envelope.payload;
        if new_spec && payload.len() > PAYLOAD_INLINE_MAX {
            let sealed = seal(&bytes, |into| into.extend_from_slice(payload));
            self.payloads.insert(bytes.as_slice(), sealed.as_slice())?;
        }
        Ok(())
    }

    fn remove(&mut self, key: &Key) -> Result<(), redb::Error> {
        let bytes = keys::task(key);
        let old = self.tasks.remove(bytes.as_slice())?.and_then(|old| card_of(&bytes, old.value()));
        match old {
            Some(old) if old.index.is_at_rest() => self.list(key, &old, Listing::Leave),
            _ => drop(self.cards.remove(bytes.as_slice())?),
        }
        self.payloads.remove(bytes.as_slice())?;
        Ok(())
    }

    fn list(&mut self, key: &Key, card: &Card, listing: Listing) {
        let (namespace, names) = (key.namespace.as_str(), &card.names);
        let phase = card.index.phase.map(List::Phase);
        let group = names.group.as_ref().map(|group| List::Group(group.as_str()));
        let session = names.session.as_ref().map(|session| List::Session(session.as_str()));
        let lists = [Some(List::Pool(names.pool.as_str())), phase, group, session];
        let place = Listed::new(card.created_at, &key.name);
        for list in lists.into_iter().flatten() {
            self.moves.add(list, namespace, place.clone(), listing);
        }
        for purge in card.index.due.iter().filter(|due| due.index == DueIndex::Purge) {
            self.moves.add(List::Purge, namespace, place.clone().at(purge.at), listing);
        }
        if let Some(phase) = card.index.phase {
            self.count(&key.namespace, names, phase, listing);
        }
    }

    fn count(&mut self, namespace: &Namespace, names: &Names, phase: Phase, listing: Listing) {
        let by = match listing {
            Listing::Enter => 1,
            Listing::Leave => -1,
        };
        *self.counts.entry(keys::count(namespace, names.pool.as_str(), phase)).or_default() += by;
    }
}

/// The card of a value that is about to be replaced. A damaged one is replaced like any other; its entries stay behind,
/// point to nothing, and are a finding of `check`.
fn card_of(key: &[u8], value: &[u8]) -> Option<Card> {
    read_card(&mut unseal(key, value).ok()?).ok()
}
