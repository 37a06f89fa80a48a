//! Building the index again from the checkpoint.

use std::sync::Arc;

use ekiden_core::id::{Namespace, PoolName};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::record::Record;
use ekiden_core::task::Phase;
use ekiden_store::StoreError;
use ekiden_store::shelf::Shelf;
use hashbrown::HashMap;
use redb::{ReadTransaction, ReadableDatabase, ReadableTable};

use super::{CARDS, COUNTS, Checkpoint, FORMAT, LOG, META, OTHERS, guarded, keys};
use crate::codec::{Unreadable, check_writable, kind_of, read_card, read_other, unseal};
use crate::error;
use crate::log::Reaches;

/// What the checkpoint holds.
pub(crate) struct Loaded {
    pub(crate) shelf: Shelf,
    /// The last batch of the log that it has.
    pub(crate) sequence: u64,
    /// How far its log goes at least.
    pub(crate) log: Reaches,
    /// Records that are no tasks and that only a newer version may write, with the version that did.
    pub(crate) sealed_off: HashMap<Key, u8>,
}

/// How many tasks of a pool rest in a phase.
pub(crate) type RestCount = (Namespace, PoolName, Phase, u64);

impl Checkpoint {
    /// Reads what the index needs.
    pub(crate) fn load(&self) -> Result<Loaded, StoreError> {
        guarded(&self.path, || self.load_all())
    }

    fn load_all(&self) -> Result<Loaded, StoreError> {
        let transaction = self.database()?.begin_read().map_err(|source| self.error(source))?;
        let meta = transaction.open_table(META).map_err(|source| self.error(source))?;
        let number = |name: &str| -> Result<u64, StoreError> {
            let found = meta.get(name).map_err(|source| self.error(source))?;
            found
                .map(|value| value.value())
                .ok_or_else(|| error::damaged(self.path.display(), format!("{name} is missing")))
        };
        let (format, min_reader) = (number("format")?, number("min_reader")?);
        if min_reader > FORMAT {
            return Err(error::too_new(&self.path, format));
        }
        let mut shelf = Shelf::default();
        shelf.resume(number("revision")?);
        for (namespace, pool, phase, tasks) in self.rest_counts(&transaction)? {
            shelf.restore_count(&namespace, &pool, phase, tasks);
        }
        let sealed_off = self.load_others(&transaction, &mut shelf)?;
        self.load_cards(&transaction, &mut shelf)?;
        let log = meta.get(LOG).map_err(|source| self.error(source))?;
        let log = match log.map_or(0, |log| log.value()) {
            0 => Reaches::Nowhere,
            1 => Reaches::Checkpoint,
            2 => Reaches::ASegment,
            other => return Err(error::damaged(self.path.display(), format!("its log is {other}"))),
        };
        Ok(Loaded { shelf, sequence: number("sequence")?, log, sealed_off })
    }

    /// How many tasks rest.
    pub(crate) fn resting(&self) -> Result<Vec<RestCount>, StoreError> {
        self.rest_counts(&self.database()?.begin_read().map_err(|source| self.error(source))?)
    }

    fn rest_counts(&self, transaction: &ReadTransaction) -> Result<Vec<RestCount>, StoreError> {
        let table = transaction.open_table(COUNTS).map_err(|source| self.error(source))?;
        let mut counts = Vec::new();
        for entry in table.iter().map_err(|source| self.error(source))? {
            let (key, count) = entry.map_err(|source| self.error(source))?;
            let (namespace, pool, phase) =
                read_count(key.value()).map_err(|error| error::unreadable(self.path.display(), &error))?;
            counts.push((namespace, pool, phase, count.value()));
        }
        Ok(counts)
    }

    /// Everything that is no task. Gives what may only be looked at.
    fn load_others(&self, transaction: &ReadTransaction, shelf: &mut Shelf) -> Result<HashMap<Key, u8>, StoreError> {
        let mut sealed_off = HashMap::new();
        let table = transaction.open_table(OTHERS).map_err(|source| self.error(source))?;
        for entry in table.iter().map_err(|source| self.error(source))? {
            let (key, value) = entry.map_err(|source| self.error(source))?;
            let read = || {
                let (number, name) = key.value().split_first().ok_or(Unreadable::Short)?;
                let key_of = key_of(kind_of(*number)?, name)?;
                let mut reader = unseal(key.value(), value.value())?;
                let stamp = reader.stamp()?;
                let versions = reader.versions();
                let record = read_other(key_of.kind, reader.rest(), versions)?;
                Ok((key_of, stamp, record))
            };
            let (key, stamp, record) = read().map_err(|error| error::unreadable(self.path.display(), &error))?;
            shelf.restore(&key, record, stamp);
            if let Err(Unreadable::TooNew { version }) = check_writable(value.value()) {
                tracing::warn!(%key, version, "a record was written by a newer version, and is left alone");
                sealed_off.insert(key, version);
            }
        }
        Ok(sealed_off)
    }

    fn load_cards(&self, transaction: &ReadTransaction, shelf: &mut Shelf) -> Result<(), StoreError> {
        let table = transaction.open_table(CARDS).map_err(|source| self.error(source))?;
        let snapshot = self.snapshot()?;
        for entry in table.iter().map_err(|source| self.error(source))? {
            let (key, value) = entry.map_err(|source| self.error(source))?;
            let read =
                || Ok((key_of(RecordKind::Task, key.value())?, read_card(&mut unseal(key.value(), value.value())?)?));
            let (key, card) = read().map_err(|error| error::unreadable(self.path.display(), &error))?;
            if check_writable(value.value()).is_err() {
                // It can be looked at, but nothing here may hand it out.
                tracing::warn!(%key, "a task was written by a newer version, and is left alone");
                continue;
            }
            if !card.index.held {
                shelf.restore_away(&key, card.created_at, card.stamp, card.index, card.names);
            } else if let Some((task, stamp)) = snapshot.task(&key)? {
                // Lists of what is held need the lease.
                shelf.restore(&key, Record::Task(task), stamp);
            } else {
                return Err(error::damaged(format!("{key} in {}", self.path.display()), "its body is missing"));
            }
        }
        Ok(())
    }
}

pub(super) fn key_of(kind: RecordKind, bytes: &[u8]) -> Result<Key, Unreadable> {
    let (namespace, name) = keys::split(bytes)?;
    let name = std::str::from_utf8(name).map_err(|error| Unreadable::Content(error.to_string()))?;
    Ok(Key { kind, namespace: namespace_of(namespace)?, name: Arc::from(name) })
}

fn read_count(bytes: &[u8]) -> Result<(Namespace, PoolName, Phase), Unreadable> {
    let (namespace, rest) = keys::split(bytes)?;
    let (pool, rest) = keys::split(rest)?;
    let pool = PoolName::new(pool).map_err(|refusal| Unreadable::Content(refusal.to_string()))?;
    let [number] = rest else { return Err(Unreadable::Short) };
    let phase = Phase::ALL.get(usize::from(*number)).ok_or(Unreadable::Short)?;
    Ok((namespace_of(namespace)?, pool, *phase))
}

fn namespace_of(text: &str) -> Result<Namespace, Unreadable> {
    Namespace::new(text).map_err(|refusal| Unreadable::Content(refusal.to_string()))
}
