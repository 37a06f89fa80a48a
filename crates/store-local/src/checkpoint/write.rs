//! Writing the checkpoint: everything that changed since the last one, in one transaction.

use std::ops::Bound;
use std::sync::Arc;

use ekiden_core::id::Namespace;
use ekiden_core::index::{DueIndex, Index};
use ekiden_core::key::RecordKind;
use ekiden_core::record::Record;
use ekiden_core::task::{Phase, Task};
use ekiden_store::StoreError;
use ekiden_store::shelf::{Names, Stamp};
use hashbrown::HashMap;
use redb::{CursorError, Durability, ReadableTable, Table, WriteTransaction};

use super::keys::{self, List};
use super::places::{Listing, Moves};
use super::{CARDS, COUNTS, Changed, Checkpoint, FORMAT, LOG, META, OTHERS, PAYLOADS, PLACES, Row, TASKS, guarded};
use crate::codec::{self, Card, PAYLOAD_INLINE_MAX, Pen, put_body, put_card, read_card, seal, seal_record, unseal};
use crate::log::Reaches;

/// How far a checkpoint goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upto {
    /// The last batch that it has.
    pub(crate) sequence: u64,
    /// The latest revision that it has.
    pub(crate) revision: u64,
    /// Whether the log has that batch too. If it had no room, nothing of the log is needed any more.
    pub(crate) log: Reaches,
}

impl Checkpoint {
    /// Makes changes in the order of their keys durable.
    pub(crate) fn write(&self, changes: &[Row<'_>], upto: Upto) -> Result<(), StoreError> {
        guarded(&self.path, || self.write_all(changes, upto))
    }

    fn write_all(&self, changes: &[Row<'_>], upto: Upto) -> Result<(), StoreError> {
        let mut transaction = self.database()?.begin_write().map_err(|source| self.error(source))?;
        // A reopen after a crash then reads the allocator's state instead of walking all trees.
        transaction.set_quick_repair(true);
        transaction.set_durability(Durability::Immediate).map_err(|source| self.error(redb::Error::from(source)))?;
        fill(&transaction, changes, upto).map_err(|source| self.error(source))?;
        transaction.commit().map_err(|source| self.error(source))
    }
}

fn fill(transaction: &WriteTransaction, changes: &[Row<'_>], upto: Upto) -> Result<(), redb::Error> {
    let mut tasks = transaction.open_table(TASKS)?;
    let mut beside = Beside {
        cards: transaction.open_table(CARDS)?,
        payloads: transaction.open_table(PAYLOADS)?,
        moves: Moves::default(),
        counts: HashMap::new(),
        count_key: Vec::new(),
        pen: Pen::default(),
    };
    let (of_tasks, of_others) = changes.split_at(changes.partition_point(|row| row.key.kind == RecordKind::Task));
    for run in of_tasks.chunk_by(|one, next| one.is_new() && next.is_new()) {
        beside.put_run(&mut tasks, run)?;
    }
    put_others(&mut transaction.open_table(OTHERS)?, of_others)?;
    beside.moves.write(&mut transaction.open_table(PLACES)?)?;
    let mut counts = transaction.open_table(COUNTS)?;
    for (key, by) in beside.counts {
        let before = counts.get(key.as_slice())?.map_or(0, |count| count.value());
        match before.saturating_add_signed(by) {
            0 => drop(counts.remove(key.as_slice())?),
            count => drop(counts.insert(key.as_slice(), count)?),
        }
    }
    let Upto { sequence, revision, log } = upto;
    let mut meta = transaction.open_table(META)?;
    for (name, value) in [("format", FORMAT), ("min_reader", FORMAT), ("sequence", sequence), ("revision", revision)] {
        meta.insert(name, value)?;
    }
    meta.insert(LOG, number_of(log))?;
    Ok(())
}

/// See [`LOG`].
pub(super) const fn number_of(log: Reaches) -> u64 {
    match log {
        Reaches::Nowhere => 0,
        Reaches::Checkpoint => 1,
        Reaches::ASegment => 2,
    }
}

/// A table of sealed values.
type Sealed<'t> = Table<'t, &'static [u8], &'static [u8]>;

/// Writes the records that are no tasks.
fn put_others(others: &mut Sealed<'_>, rows: &[Row<'_>]) -> Result<(), redb::Error> {
    for Row { key, changed, .. } in rows {
        let bytes = keys::other(key);
        match changed {
            Changed::Put { record, stamp, .. } => {
                let value = seal_record(&bytes, |into| {
                    codec::put_stamp(stamp, into);
                    codec::put_other(record, into)
                });
                others.insert(bytes.as_slice(), value.as_slice())?;
            }
            Changed::Gone { .. } => drop(others.remove(bytes.as_slice())?),
        }
    }
    Ok(())
}

/// 8 rows: fewer that stand in one gap of the table are not worth a cursor.
const RUN_MIN: usize = 8;

/// What stands beside the tasks, while it is written.
struct Beside<'t> {
    cards: Sealed<'t>,
    payloads: Sealed<'t>,
    /// What changes in the lists of resting tasks.
    moves: Moves,
    /// By how much each count of resting tasks changes.
    counts: HashMap<Vec<u8>, i64>,
    /// The key of the count that is looked for, in one buffer for all.
    count_key: Vec<u8>,
    pen: Pen,
}

/// A task as it goes into its table.
struct Filed<'a> {
    row: &'a Row<'a>,
    task: &'a Task,
    key: Vec<u8>,
    card: Card,
    value: Vec<u8>,
}

impl Beside<'_> {
    /// Writes tasks that stand in order: new ones, or a single one of any sort.
    fn put_run(&mut self, tasks: &mut Sealed<'_>, mut rows: &[Row<'_>]) -> Result<(), redb::Error> {
        // New tasks mostly stand in one gap, behind all older ones, and redb makes whole pages of what it is told at once.
        // What it finds to stand elsewhere, or to be there already, goes the ordinary way.
        while rows.len() >= RUN_MIN {
            let taken = self.insert_into_gap(tasks, rows)?;
            rows = rows.get(taken..).unwrap_or_default();
            if taken < RUN_MIN {
                let (some, rest) = rows.split_at(rows.len().min(RUN_MIN));
                self.put_each(tasks, some)?;
                rows = rest;
            }
        }
        self.put_each(tasks, rows)
    }

    /// Writes tasks wherever they stand.
    fn put_each(&mut self, tasks: &mut Sealed<'_>, rows: &[Row<'_>]) -> Result<(), redb::Error> {
        for row in rows {
            match row.changed {
                Changed::Put { record: Record::Task(task), stamp, spec } => {
                    let filed = self.file(row, task, *stamp);
                    let old = tasks.insert(filed.key.as_slice(), filed.value.as_slice())?;
                    let old = old.and_then(|old| card_of(&filed.key, old.value()));
                    self.follow(&filed, old.as_ref(), *spec)?;
                }
                Changed::Put { .. } => {}
                Changed::Gone { .. } => self.remove(tasks, row)?,
            }
        }
        Ok(())
    }

    /// Inserts rows into the gap of the table that the first belongs to, up to one that does not; says how many.
    fn insert_into_gap(&mut self, tasks: &mut Sealed<'_>, rows: &[Row<'_>]) -> Result<usize, redb::Error> {
        let first = rows.first().map(|row| keys::task(row.key)).unwrap_or_default();
        let mut gap = tasks.lower_bound_mut(Bound::Included(first.as_slice()))?;
        let mut taken = 0;
        for row in rows {
            let Changed::Put { record: Record::Task(task), stamp, spec } = row.changed else { break };
            let filed = self.file(row, task, *stamp);
            match gap.insert_before(filed.key.as_slice(), filed.value.as_slice()) {
                Ok(()) => self.follow(&filed, None, *spec)?,
                Err(CursorError::UnorderedKey) => break,
                Err(error) => return Err(error.into()),
            }
            taken += 1;
        }
        gap.close()?;
        Ok(taken)
    }

    fn file<'a>(&mut self, row: &'a Row<'a>, task: &'a Arc<Task>, stamp: Stamp) -> Filed<'a> {
        let key = keys::task(row.key);
        let index = Index::of(row.key, &Record::Task(task.clone()));
        let card = Card { created_at: task.spec.created_at, stamp, index, names: Names::of(task) };
        let value = seal_record(&key, |into| {
            put_card(&card, into);
            put_body(task, &mut self.pen, into)
        });
        Filed { row, task, key, card, value }
    }

    /// Everything that a task needs beside its own row, which replaced one with the old card.
    fn follow(&mut self, filed: &Filed<'_>, old: Option<&Card>, new_spec: bool) -> Result<(), redb::Error> {
        let Filed { row, task, key, card, .. } = filed;
        let rests = card.index.is_at_rest();
        if let Some(old) = old {
            if old.index.is_at_rest() {
                self.list(row, old, Listing::Leave);
            } else if rests {
                self.cards.remove(key.as_slice())?;
            }
        }
        if rests {
            self.list(row, card, Listing::Enter);
        } else {
            let sealed = seal(key, |into| put_card(card, into));
            self.cards.insert(key.as_slice(), sealed.as_slice())?;
        }
        let payload = &task.spec.envelope.payload;
        if new_spec && payload.len() > PAYLOAD_INLINE_MAX {
            let sealed = seal(key, |into| into.extend_from_slice(payload));
            self.payloads.insert(key.as_slice(), sealed.as_slice())?;
        }
        Ok(())
    }

    fn remove(&mut self, tasks: &mut Sealed<'_>, row: &Row<'_>) -> Result<(), redb::Error> {
        let bytes = keys::task(row.key);
        let old = tasks.remove(bytes.as_slice())?.and_then(|old| card_of(&bytes, old.value()));
        match old {
            Some(old) if old.index.is_at_rest() => self.list(row, &old, Listing::Leave),
            _ => drop(self.cards.remove(bytes.as_slice())?),
        }
        self.payloads.remove(bytes.as_slice())?;
        Ok(())
    }

    fn list(&mut self, row: &Row<'_>, card: &Card, listing: Listing) {
        let (namespace, names) = (row.key.namespace.as_str(), &card.names);
        let phase = card.index.phase.map(List::Phase);
        let group = names.group.as_ref().map(|group| List::Group(group.as_str()));
        let session = names.session.as_ref().map(|session| List::Session(session.as_str()));
        let lists = [Some(List::Pool(names.pool.as_str())), phase, group, session];
        let place = row.place(card.created_at);
        for list in lists.into_iter().flatten() {
            self.moves.add(list, namespace, place.clone(), listing);
        }
        for purge in card.index.due.iter().filter(|due| due.index == DueIndex::Purge) {
            self.moves.add(List::Purge, namespace, place.clone().at(purge.at), listing);
        }
        if let Some(phase) = card.index.phase {
            self.count(&row.key.namespace, names, phase, listing);
        }
    }

    fn count(&mut self, namespace: &Namespace, names: &Names, phase: Phase, listing: Listing) {
        let by = match listing {
            Listing::Enter => 1,
            Listing::Leave => -1,
        };
        self.count_key.clear();
        keys::write_count(namespace, names.pool.as_str(), phase, &mut self.count_key);
        *self.counts.entry_ref(self.count_key.as_slice()).or_default() += by;
    }
}

/// The card of a value that is about to be replaced. A damaged one is replaced like any other; its entries stay behind,
/// point to nothing, and are a finding of `check`.
fn card_of(key: &[u8], value: &[u8]) -> Option<Card> {
    read_card(&mut unseal(key, value).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use ekiden_core::id::{Kind, OpId, PoolName, TaskId};
    use ekiden_core::key::Key;
    use ekiden_core::plan::Enqueue;
    use ekiden_core::pool::Profile;
    use ekiden_core::task::{Spec, TaskEnvelope};
    use ekiden_core::time::Timestamp;
    use ekiden_core::transition::Start;
    use ekiden_store::entropy::Entropy;
    use ekiden_store::{MemoryStore, Store, StoreExt};
    use redb::{ReadableDatabase, ReadableTableMetadata};

    use super::super::{Changes, sorted};
    use super::*;
    use crate::disk::fake::FakeDisk;

    const NOON: Timestamp = Timestamp::from_millis(1_794_744_000_000);

    /// A task that was just handed in.
    fn queued() -> Task {
        let envelope = TaskEnvelope::json(Kind::new("k").unwrap(), "{}");
        let (namespace, id) = (Namespace::new("n").unwrap(), TaskId::from_bits(1));
        let policy = Profile::Embedded.settings().policy;
        let key = Key::task(&namespace, &id);
        let spec = Spec::new(namespace, PoolName::new("p").unwrap(), id, envelope, policy, NOON);
        let plan = Enqueue { spec: Arc::new(spec), start: Start::Released, parents: vec![], idempotency: None };
        let store = MemoryStore::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found = runtime.block_on(async {
            store.run(&plan, OpId::from_bits(1), NOON).await.unwrap();
            store.get(vec![key]).await.unwrap().remove(0).unwrap()
        });
        found.record.as_task().unwrap().as_ref().clone()
    }

    /// Ids of both sorts in two namespaces, which come again and stand between each other.
    fn key(entropy: &mut Entropy) -> Key {
        let namespace = Namespace::new(entropy.pick(&["n", "nn"])).unwrap();
        let number = entropy.below(600);
        let id = match entropy.chance(20) {
            true => TaskId::new(format!("task-{number}")).unwrap(),
            false => TaskId::from_bits(u128::try_from(number).unwrap() << 100),
        };
        Key::task(&namespace, &id)
    }

    fn change(entropy: &mut Entropy, like: &Task, key: &Key, revision: u64) -> Changed {
        if entropy.chance(15) {
            return Changed::Gone { revision };
        }
        let mut task = like.clone();
        let spec = Arc::make_mut(&mut task.spec);
        (spec.namespace, spec.id) = (key.namespace.clone(), TaskId::new(&*key.name).unwrap());
        let long = if entropy.chance(5) { 3_000 } else { entropy.below(300) };
        spec.envelope.payload = "x".repeat(long).into();
        if entropy.chance(60) {
            (task.state.phase, task.state.promoted, task.state.finished_at) = (Phase::Succeeded, false, Some(NOON));
        }
        let stamp = Stamp { revision, created_by: OpId::from_bits(1), last: OpId::from_bits(2) };
        Changed::Put { record: Record::Task(Arc::new(task)), stamp, spec: true }
    }

    #[test]
    fn whatever_is_written_in_any_order_is_there_once_and_its_lists_follow() {
        let like = queued();
        for seed in 0..3 {
            let mut entropy = Entropy::from_seed(seed);
            let disk = Arc::new(FakeDisk::new(seed));
            let checkpoint = Checkpoint::open(disk, Path::new("/"), 1 << 20).unwrap();
            let mut model = BTreeMap::new();
            for revision in 1..12 {
                let mut changes = Changes::new();
                for _ in 0..entropy.below(400) {
                    let key = key(&mut entropy);
                    let changed = change(&mut entropy, &like, &key, revision);
                    match &changed {
                        Changed::Put { record, .. } => model.insert(key.clone(), record.as_task().unwrap().clone()),
                        Changed::Gone { .. } => model.remove(&key),
                    };
                    changes.insert(key, changed);
                }
                let rows = sorted(&changes);
                assert!(rows.is_sorted_by(|one, next| one.key < next.key), "seed {seed}");
                checkpoint.write(&rows, Upto { sequence: revision, revision, log: Reaches::Checkpoint }).unwrap();
                let snapshot = checkpoint.snapshot().unwrap();
                for (key, task) in &model {
                    assert_eq!(snapshot.task(key).unwrap().unwrap().0, *task, "seed {seed}");
                }
                let transaction = checkpoint.database().unwrap().begin_read().unwrap();
                let rows = transaction.open_table(TASKS).unwrap().len().unwrap();
                assert_eq!(rows, u64::try_from(model.len()).unwrap(), "seed {seed}");
                assert!(checkpoint.verify().unwrap().is_empty(), "seed {seed}");
            }
        }
    }
}
