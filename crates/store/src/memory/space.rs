//! The tasks of one namespace: each in a slot, found by its name, standing in lists by its slot.

use std::sync::Arc;

use ekiden_core::id::OpId;
use ekiden_core::index::{DueIndex, Index};
use ekiden_core::key::Key;
use ekiden_core::order::Rank;
use ekiden_core::record::{Record, Revision, Versioned};
use ekiden_core::task::{Phase, Task};
use ekiden_core::time::Timestamp;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

use super::indexes::Lists;
use super::listed::{Ident, Listed};

/// Where a task is kept, as long as it exists.
pub(super) type Slot = u32;

/// A task as kept, with the index entries that it has.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) listed: Listed,
    pub(super) task: Arc<Task>,
    pub(super) stamp: Stamp,
    pub(super) marks: Marks,
}

/// What is remembered of every record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) revision: u64,
    pub(super) created_by: OpId,
    pub(super) last: OpId,
}

impl Stamp {
    pub(super) const fn revision(&self) -> Revision {
        Revision::number(self.revision)
    }

    pub(super) fn on(&self, key: Key, record: Record) -> Versioned {
        Versioned { key, record, revision: self.revision(), created_by: self.created_by, last: self.last }
    }
}

/// The index entries of a task that core computed, kept blindly. What they say of the names that a task never changes
/// (pool, kind, id, group, session) is left out: the task itself has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) ready: Option<ReadyMark>,
    pub(super) due: Box<[(DueIndex, Timestamp)]>,
    pub(super) phase: Option<Phase>,
    pub(super) held: bool,
}

/// Claimable from a moment on, at this rank of its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadyMark {
    pub(super) rank: Rank,
    pub(super) at: Timestamp,
}

impl Marks {
    pub(super) fn of(index: &Index) -> Self {
        Self {
            ready: index.ready.as_ref().map(|ready| ReadyMark { rank: ready.order.rank, at: ready.at }),
            due: index.due.iter().map(|due| (due.index, due.at)).collect(),
            phase: index.count.as_ref().map(|count| count.phase),
            held: index.holder.is_some(),
        }
    }
}

impl Entry {
    pub(super) fn key(&self) -> Key {
        Key::task(&self.task.spec.namespace, self.task.id())
    }

    pub(super) fn versioned(&self) -> Versioned {
        self.stamp.on(self.key(), Record::Task(self.task.clone()))
    }

    /// The claim that holds it.
    pub(super) fn claim(&self) -> Option<OpId> {
        self.task.state.lease.as_ref().filter(|_| self.marks.held).map(|lease| lease.claim)
    }

    /// Whether another version of the task stands under the same names at the same place.
    fn is_placed_as(&self, listed: &Listed, task: &Task) -> bool {
        let (own, other) = (&self.task.spec, &task.spec);
        Arc::ptr_eq(own, other)
            || (self.listed == *listed
                && own.pool == other.pool
                && own.envelope.task_type == other.envelope.task_type
                && own.group == other.group
                && own.session == other.session)
    }
}

/// Slots, some of them free.
#[derive(Debug, Default)]
pub(super) struct Entries {
    slots: Vec<Option<Entry>>,
    free: Vec<Slot>,
}

impl Entries {
    pub(super) fn at(&self, slot: Slot) -> &Entry {
        self.find(slot).expect("tables and lists name only slots in use")
    }

    pub(super) fn place(&self, slot: Slot) -> &Listed {
        &self.at(slot).listed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        (0..).zip(&self.slots).filter_map(|(slot, entry)| Some((slot, entry.as_ref()?)))
    }

    fn find(&self, slot: Slot) -> Option<&Entry> {
        self.slots.get(usize::try_from(slot).ok()?)?.as_ref()
    }

    fn cell(&mut self, slot: Slot) -> &mut Option<Entry> {
        let at = usize::try_from(slot).expect("a slot fits an address");
        self.slots.get_mut(at).expect("tables and lists name only slots in use")
    }

    fn add(&mut self, entry: Entry) -> Slot {
        if let Some(slot) = self.free.pop() {
            *self.cell(slot) = Some(entry);
            return slot;
        }
        let slot = Slot::try_from(self.slots.len()).expect("four billion tasks do not fit into memory");
        self.slots.push(Some(entry));
        slot
    }

    fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let removed = self.cell(slot).take();
        self.free.push(slot);
        removed
    }
}

/// One namespace.
#[derive(Debug, Default)]
pub(super) struct Space {
    pub(super) entries: Entries,
    pub(super) lists: Lists,
    table: HashTable<Slot>,
    hasher: DefaultHashBuilder,
}

impl Space {
    pub(super) fn find(&self, id: &Ident) -> Option<Slot> {
        self.table.find(self.hasher.hash_one(id), |slot| self.entries.place(*slot).id == *id).copied()
    }

    pub(super) fn get(&self, id: &Ident) -> Option<&Entry> {
        self.find(id).map(|slot| self.entries.at(slot))
    }

    /// Keeps a task that was not there.
    pub(super) fn add(&mut self, id: Ident, task: Arc<Task>, stamp: Stamp, marks: Marks) -> Slot {
        let hash = self.hasher.hash_one(&id);
        let listed = Listed { created_at: task.spec.created_at, id };
        let slot = self.entries.add(Entry { listed, task, stamp, marks });
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.table.insert_unique(hash, slot, |slot| hasher.hash_one(&entries.place(*slot).id));
        self.lists.add(entries, slot, entries.at(slot));
        slot
    }

    /// Replaces a task, and moves it only in the lists where it stands elsewhere now.
    pub(super) fn replace(&mut self, slot: Slot, task: Arc<Task>, stamp: Stamp, marks: Marks) {
        let old = self.entries.at(slot);
        let listed = Listed { created_at: task.spec.created_at, id: old.listed.id.clone() };
        let new = Entry { task, stamp, marks, listed };
        if old.is_placed_as(&new.listed, &new.task) {
            self.lists.shift(&self.entries, slot, old, &new);
            *self.entries.cell(slot) = Some(new);
        } else {
            self.lists.remove(&self.entries, slot, old);
            *self.entries.cell(slot) = Some(new);
            self.lists.add(&self.entries, slot, self.entries.at(slot));
        }
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let entry = self.entries.at(slot);
        self.lists.remove(&self.entries, slot, entry);
        let hash = self.hasher.hash_one(&entry.listed.id);
        if let Ok(found) = self.table.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
        self.entries.remove(slot)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty() && self.lists.is_empty()
    }
}
