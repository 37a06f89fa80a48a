//! Reading the checkpoint: one view that stays as it is while others write.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{Namespace, TaskId};
use ekiden_core::index::DueIndex;
use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::record::{Record, Versioned};
use ekiden_core::task::{Phase, Task};
use ekiden_core::time::Timestamp;
use ekiden_store::shelf::{Listed, Stamp};
use ekiden_store::{DueEntry, ListOrder, StoreError};
use redb::{ReadOnlyTable, ReadTransaction};

use super::keys::{self, List};
use super::{PAYLOADS, PLACES, TASKS, guarded, places, redb_error};
use crate::codec::{Card, Reader, Unreadable, check_writable, read_body, read_card, unseal};
use crate::error;

/// A view of the checkpoint.
pub(crate) struct Snapshot {
    path: PathBuf,
    tasks: ReadOnlyTable<&'static [u8], &'static [u8]>,
    payloads: ReadOnlyTable<&'static [u8], &'static [u8]>,
    lists: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

/// Places of tasks that rest, behind some place.
#[derive(Debug, Default)]
pub(crate) struct Resting {
    pub(crate) places: Vec<Listed>,
    /// Whether there are more behind the last one.
    pub(crate) more: bool,
}

/// Where tasks of a pool are looked for, unless a group or session says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lists {
    /// In the list of the pool.
    Pool,
    /// In the lists of the phases.
    Phases,
}

impl Snapshot {
    pub(super) fn new(path: PathBuf, transaction: ReadTransaction) -> Result<Self, StoreError> {
        let tasks = transaction.open_table(TASKS).map_err(|source| redb_error(&path, source))?;
        let payloads = transaction.open_table(PAYLOADS).map_err(|source| redb_error(&path, source))?;
        let lists = transaction.open_table(PLACES).map_err(|source| redb_error(&path, source))?;
        Ok(Self { path, tasks, payloads, lists })
    }

    /// A task as the checkpoint has it.
    pub(crate) fn task(&self, key: &Key) -> Result<Option<(Arc<Task>, Stamp)>, StoreError> {
        guarded(&self.path, || self.read_task(key))
    }

    fn read_task(&self, key: &Key) -> Result<Option<(Arc<Task>, Stamp)>, StoreError> {
        let bytes = keys::task(key);
        let Some(value) = self.tasks.get(bytes.as_slice()).map_err(|source| redb_error(&self.path, source))? else {
            return Ok(None);
        };
        let (card, mut body) = self.card(key, &bytes, value.value())?;
        let task = read_body(&mut body, || self.payload(key, &bytes)).map_err(|error| match error {
            BodyError::Store(error) => error,
            BodyError::Unreadable(error) => self.unreadable(key, &error),
        })?;
        Ok(Some((Arc::new(task), card.stamp)))
    }

    /// The same, for a change: refuses what only a newer version may write.
    pub(crate) fn task_to_change(&self, key: &Key) -> Result<Option<(Arc<Task>, Stamp)>, StoreError> {
        let bytes = keys::task(key);
        match self.tasks.get(bytes.as_slice()).map_err(|source| redb_error(&self.path, source))? {
            None => Ok(None),
            Some(value) => {
                check_writable(value.value()).map_err(|error| self.unreadable(key, &error))?;
                self.task(key)
            }
        }
    }

    /// The largest generated id of a namespace, or the largest number there is if another id hides it.
    pub(crate) fn highest_id(&self, namespace: &Namespace) -> Result<Option<u128>, StoreError> {
        guarded(&self.path, || {
            let mut from = namespace.as_str().as_bytes().to_vec();
            from.extend_from_slice(b"\0task-");
            let end = keys::behind(&from);
            let mut range = self
                .tasks
                .range::<&[u8]>(from.as_slice()..end.as_slice())
                .map_err(|source| redb_error(&self.path, source))?;
            let last = range.next_back().transpose().map_err(|source| redb_error(&self.path, source))?;
            let name = last.as_ref().and_then(|(key, _)| keys::split(key.value()).ok());
            Ok(name.map(|(_, name)| std::str::from_utf8(name).ok().and_then(TaskId::bits_of).unwrap_or(u128::MAX)))
        })
    }

    /// A task as read.
    pub(crate) fn versioned(&self, key: &Key) -> Result<Option<Versioned>, StoreError> {
        Ok(self.task(key)?.map(|(task, stamp)| stamp.on(key.clone(), Record::Task(task))))
    }

    fn card<'a>(&self, key: &Key, bytes: &[u8], value: &'a [u8]) -> Result<(Card, Reader<'a>), StoreError> {
        let read = |value| {
            let mut reader = unseal(bytes, value)?;
            Ok((read_card(&mut reader)?, reader))
        };
        read(value).map_err(|error| self.unreadable(key, &error))
    }

    fn payload(&self, key: &Key, bytes: &[u8]) -> Result<Bytes, BodyError> {
        let found = self.payloads.get(bytes).map_err(|source| BodyError::Store(redb_error(&self.path, source)))?;
        let Some(value) = found else {
            return Err(BodyError::Store(error::damaged(self.place(key), "its payload is missing")));
        };
        let content = unseal(bytes, value.value())?.rest();
        Ok(Bytes::copy_from_slice(content))
    }

    /// The places of a listing, behind a place, in its order: at most a page's worth.
    pub(crate) fn places(
        &self,
        filter: &TaskFilter,
        by: Lists,
        order: ListOrder,
        after: Option<&Listed>,
    ) -> Result<Resting, StoreError> {
        let namespace = filter.namespace.as_str();
        let lists = if filter.held_by.is_some() {
            // What is held does not rest.
            return Ok(Resting::default());
        } else if let Some(group) = &filter.group {
            vec![List::Group(group.as_str())]
        } else if let Some(session) = &filter.session {
            vec![List::Session(session.as_str())]
        } else if let Some(pool) = filter.pool.as_ref().filter(|_| by == Lists::Pool) {
            vec![List::Pool(pool.as_str())]
        } else {
            Phase::ALL
                .into_iter()
                .filter(|phase| filter.phases.is_empty() || filter.phases.contains(phase))
                .map(List::Phase)
                .collect()
        };
        let mut found = Resting::default();
        guarded(&self.path, || {
            lists.iter().try_for_each(|list| self.extend(&mut found, &list.prefix(namespace), order, after))
        })?;
        match order {
            ListOrder::OldestFirst => found.places.sort_unstable(),
            ListOrder::NewestFirst => found.places.sort_unstable_by(|one, other| other.cmp(one)),
        }
        found.more |= found.places.len() > limits::PAGE_SCAN_MAX;
        found.places.truncate(limits::PAGE_SCAN_MAX);
        Ok(found)
    }

    fn extend(
        &self,
        found: &mut Resting,
        prefix: &[u8],
        order: ListOrder,
        after: Option<&Listed>,
    ) -> Result<(), StoreError> {
        let most = limits::PAGE_SCAN_MAX + 1;
        let mut read =
            places::behind(&self.lists, prefix, order, after, most).map_err(|source| redb_error(&self.path, source))?;
        found.more |= read.len() == most;
        read.truncate(limits::PAGE_SCAN_MAX);
        found.places.append(&mut read);
        Ok(())
    }

    /// Tasks that rest and were kept long enough, oldest first.
    pub(crate) fn due(
        &self,
        namespace: &Namespace,
        index: DueIndex,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<DueEntry>, StoreError> {
        if index != DueIndex::Purge {
            return Ok(Vec::new());
        }
        guarded(&self.path, || self.read_due(namespace, until, limit))
    }

    fn read_due(&self, namespace: &Namespace, until: Timestamp, limit: usize) -> Result<Vec<DueEntry>, StoreError> {
        let prefix = List::Purge.prefix(namespace.as_str());
        let places = places::behind(&self.lists, &prefix, ListOrder::OldestFirst, None, limit)
            .map_err(|source| redb_error(&self.path, source))?;
        let due = places.into_iter().take_while(|place| place.created_at() <= until);
        Ok(due.map(|place| DueEntry { key: place.key(namespace), at: place.created_at() }).collect())
    }

    fn place(&self, key: &Key) -> String {
        format!("{} in {}", key, self.path.display())
    }

    fn unreadable(&self, key: &Key, error: &Unreadable) -> StoreError {
        error::unreadable(self.place(key), error)
    }
}

/// What can go wrong while a body is read.
enum BodyError {
    Store(StoreError),
    Unreadable(Unreadable),
}

impl From<Unreadable> for BodyError {
    fn from(error: Unreadable) -> Self {
        Self::Unreadable(error)
    }
}
