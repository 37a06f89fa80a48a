//! The tasks of one namespace: each in a slot, found by its name, standing in lists by its slot.

use std::hash::BuildHasher;
use std::sync::Arc;

use ekiden_core::brief::Brief;
use ekiden_core::id::{GroupId, Kind, Namespace, OpId, PoolName, RunnerId, SessionId};
use ekiden_core::index::Index;
use ekiden_core::key::Key;
use ekiden_core::record::{Record, Revision, Versioned};
use ekiden_core::task::{Phase, Spec, Task};
use hashbrown::{DefaultHashBuilder, HashSet, HashTable};

use super::Look;
use super::claimed_tasks::{ClaimedBy, ClaimedTasks};
use super::indexes::Lists;
use super::listed::{Ident, Listed};
use super::mainly::Mainly;

/// Where a task is kept, as long as it exists.
pub(crate) type Slot = u32;

/// A task as kept, with the index entries that it has.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) listed: Listed,
    pub(crate) body: Body,
    pub(crate) stamp: Stamp,
    /// What core computed, kept blindly.
    pub(crate) index: Index,
}

/// The task itself.
#[derive(Debug)]
pub(crate) enum Body {
    Here(Arc<Task>),
    /// Here, in few words.
    Brief(Box<Brief>),
    /// Elsewhere; what lists need to know stays.
    Away(Arc<Names>),
}

/// The names that a task never changes and that lists are sorted by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Names {
    /// Its pool.
    pub pool: PoolName,
    /// Its kind.
    pub kind: Kind,
    /// Its group.
    pub group: Option<GroupId>,
    /// Its session.
    pub session: Option<SessionId>,
}

impl Names {
    /// The names of a task.
    pub fn of(task: &Task) -> Self {
        NamesRef::of(&task.spec).to_owned()
    }
}

/// The same, borrowed.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct NamesRef<'a> {
    pub(crate) pool: &'a PoolName,
    pub(crate) kind: &'a Kind,
    pub(crate) group: Option<&'a GroupId>,
    pub(crate) session: Option<&'a SessionId>,
}

impl<'a> NamesRef<'a> {
    fn of(spec: &'a Spec) -> Self {
        let (group, session) = (spec.group.as_ref(), spec.session.as_ref());
        Self { pool: &spec.pool, kind: &spec.envelope.task_type, group, session }
    }

    fn to_owned(self) -> Names {
        let (pool, kind) = (self.pool.clone(), self.kind.clone());
        Names { pool, kind, group: self.group.cloned(), session: self.session.cloned() }
    }
}

/// What is remembered of every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the change that made it so.
    pub revision: u64,
    /// The commit that created it.
    pub created_by: OpId,
    /// The commit or claim that wrote it last.
    pub last: OpId,
}

impl Stamp {
    pub(crate) const fn revision(&self) -> Revision {
        Revision::number(self.revision)
    }

    /// The record under a key, as read.
    pub fn on(&self, key: Key, record: Record) -> Versioned {
        Versioned { key, record, revision: self.revision(), created_by: self.created_by, last: self.last }
    }
}

/// Where a task stands in the lists that follow its state.
#[derive(Clone, Copy)]
pub(crate) struct Stood<'a> {
    pub(crate) index: &'a Index,
    pub(crate) holder: Option<&'a RunnerId>,
}

fn holder_of<'a>(task: &'a Task, index: &Index) -> Option<&'a RunnerId> {
    task.state.lease.as_ref().filter(|_| index.held).map(|lease| &lease.holder)
}

impl Entry {
    /// The task as it stands, if it is here in full.
    pub(crate) fn here(&self) -> Option<&Arc<Task>> {
        if let Body::Here(task) = &self.body { Some(task) } else { None }
    }

    /// The task of this namespace, unless it is away.
    pub(crate) fn task(&self, namespace: &Namespace) -> Option<Arc<Task>> {
        match &self.body {
            Body::Here(task) => Some(task.clone()),
            Body::Brief(brief) => {
                let Listed { created_at, id } = &self.listed;
                Some(Arc::new(brief.task(namespace.clone(), id.task_id(), *created_at)))
            }
            Body::Away(_) => None,
        }
    }

    /// Whether it is here in full, with this very spec.
    pub(crate) fn has(&self, spec: &Arc<Spec>) -> bool {
        self.here().is_some_and(|task| Arc::ptr_eq(&task.spec, spec))
    }

    pub(crate) const fn is_away(&self) -> bool {
        matches!(self.body, Body::Away(_))
    }

    pub(crate) fn look(&self, namespace: &Namespace) -> Look {
        self.task(namespace).map_or(Look::Away, |task| Look::Here(self.versioned(task)))
    }

    pub(crate) fn versioned(&self, task: Arc<Task>) -> Versioned {
        self.stamp.on(Key::task(&task.spec.namespace, task.id()), Record::Task(task))
    }

    pub(crate) fn names(&self) -> NamesRef<'_> {
        match &self.body {
            Body::Here(task) => NamesRef::of(&task.spec),
            Body::Brief(brief) => NamesRef { pool: brief.pool(), kind: brief.kind(), group: None, session: None },
            Body::Away(names) => NamesRef {
                pool: &names.pool,
                kind: &names.kind,
                group: names.group.as_ref(),
                session: names.session.as_ref(),
            },
        }
    }

    /// The claim that holds it.
    pub(crate) fn claim(&self) -> Option<ClaimedBy> {
        self.here()?.state.lease.as_ref().filter(|_| self.index.held).map(ClaimedBy::of)
    }

    /// Who holds it.
    pub(crate) fn holder(&self) -> Option<&RunnerId> {
        holder_of(self.here()?, &self.index)
    }

    /// About how many bytes its body takes here. Payload, result and errors are counted whole, all else as what a usual task has.
    fn bytes_here(&self) -> usize {
        match &self.body {
            Body::Here(task) => 1_024 + task.content_bytes(),
            Body::Brief(brief) => 256 + brief.payload_bytes(),
            Body::Away(_) => 0,
        }
    }

    /// Whether another version of the task stands under the same names at the same place.
    fn is_placed_as(&self, new: &Self) -> bool {
        let same_spec = new.here().is_some_and(|new| self.has(&new.spec));
        same_spec || (self.listed == new.listed && self.names() == new.names())
    }
}

/// 1,024 slots a chunk: memory grows in small steps, and nothing is ever copied to make room.
const CHUNK_SLOTS: usize = 1_024;

/// Slots, some of them free.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    chunks: Vec<Vec<Option<Entry>>>,
    free: Vec<Slot>,
}

impl Entries {
    pub(crate) fn at(&self, slot: Slot) -> &Entry {
        self.find(slot).expect("tables and lists name only slots in use")
    }

    pub(crate) fn place(&self, slot: Slot) -> &Listed {
        &self.at(slot).listed
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Slot, &Entry)> {
        (0..).zip(self.chunks.iter().flatten()).filter_map(|(slot, entry)| Some((slot, entry.as_ref()?)))
    }

    fn find(&self, slot: Slot) -> Option<&Entry> {
        let (chunk, place) = spot(slot);
        self.chunks.get(chunk)?.get(place)?.as_ref()
    }

    fn cell(&mut self, slot: Slot) -> &mut Option<Entry> {
        let (chunk, place) = spot(slot);
        let cell = self.chunks.get_mut(chunk).and_then(|chunk| chunk.get_mut(place));
        cell.expect("tables and lists name only slots in use")
    }

    /// Writes a task with the same spec over the one in a slot. Gives what was there.
    fn write(&mut self, slot: Slot, body: Body, stamp: Stamp, index: Index) -> Option<Arc<Task>> {
        let entry = self.cell(slot).as_mut()?;
        entry.stamp = stamp;
        entry.index = index;
        match std::mem::replace(&mut entry.body, body) {
            Body::Here(old) => Some(old),
            Body::Brief(_) | Body::Away(_) => None,
        }
    }

    fn add(&mut self, entry: Entry) -> Slot {
        if let Some(slot) = self.free.pop() {
            *self.cell(slot) = Some(entry);
            return slot;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK_SLOTS) {
            self.chunks.push(Vec::with_capacity(if self.chunks.is_empty() { 0 } else { CHUNK_SLOTS }));
        }
        let full = (self.chunks.len() - 1) * CHUNK_SLOTS;
        let chunk = self.chunks.last_mut().expect("a chunk with room was just made");
        chunk.push(Some(entry));
        Slot::try_from(full + chunk.len() - 1).expect("four billion tasks do not fit into memory")
    }

    fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let removed = self.cell(slot).take();
        self.free.push(slot);
        removed
    }
}

fn spot(slot: Slot) -> (usize, usize) {
    let slot = usize::try_from(slot).expect("a slot fits an address");
    (slot / CHUNK_SLOTS, slot % CHUNK_SLOTS)
}

/// How many tasks there are, by pool and phase, wherever they are kept.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Tally {
    all: [u64; Phase::ALL.len()],
    /// No zeros.
    pools: Mainly<PoolName, [u64; Phase::ALL.len()]>,
}

impl Tally {
    pub(crate) fn count(&self, pool: Option<&PoolName>, phase: Phase) -> u64 {
        let counts = match pool {
            None => Some(&self.all),
            Some(pool) => self.pools.get(pool),
        };
        counts.and_then(|counts| counts.get(phase as usize)).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, pool: &PoolName, phase: Phase, tasks: u64) {
        if tasks == 0 {
            return;
        }
        raise(&mut self.all, phase, tasks);
        raise(self.pools.open(pool), phase, tasks);
    }

    pub(crate) fn enter(&mut self, pool: &PoolName, phase: Option<Phase>) {
        phase.into_iter().for_each(|phase| self.add(pool, phase, 1));
    }

    /// A task of a pool goes from one phase to another: one look at the pool.
    fn follow(&mut self, pool: &PoolName, from: Option<Phase>, to: Option<Phase>) {
        let (Some(from), Some(to)) = (from, to) else {
            self.leave(pool, from);
            self.enter(pool, to);
            return;
        };
        if from == to {
            return;
        }
        lower(&mut self.all, from);
        raise(&mut self.all, to, 1);
        if let Some(counts) = self.pools.get_mut(pool) {
            lower(counts, from);
            raise(counts, to, 1);
        }
    }

    fn leave(&mut self, pool: &PoolName, phase: Option<Phase>) {
        let Some(phase) = phase else { return };
        lower(&mut self.all, phase);
        if let Some(counts) = self.pools.get_mut(pool) {
            lower(counts, phase);
            if counts.iter().all(|count| *count == 0) {
                self.pools.remove(pool);
            }
        }
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.pools.is_empty()
    }
}

fn raise(counts: &mut [u64], phase: Phase, by: u64) {
    if let Some(count) = counts.get_mut(phase as usize) {
        *count += by;
    }
}

fn lower(counts: &mut [u64], phase: Phase) {
    if let Some(count) = counts.get_mut(phase as usize) {
        *count -= 1;
    }
}

/// One namespace.
#[derive(Debug, Default)]
pub(crate) struct Space {
    pub(crate) entries: Entries,
    pub(crate) lists: Lists,
    pub(crate) tally: Tally,
    pub(crate) claimed: ClaimedTasks,
    pub(crate) bytes_here: usize,
    table: HashTable<Slot>,
    hasher: DefaultHashBuilder,
    recent: Recent,
    /// The names of tasks that are away: most share them.
    names: HashSet<Arc<Names>>,
}

/// 1,024 places: more than run at once in most processes, in 4 KiB.
const RECENT_MAX: usize = 1_024;

/// Where tasks are that were handed in or claimed a moment ago, by the hash of their names. Those are asked for most, and the table of
/// all tasks is too large for any cache. Old news does no harm: whoever looks there compares names.
#[derive(Debug, Default)]
struct Recent(Vec<Slot>);

impl Recent {
    fn get(&self, hash: u64) -> Option<Slot> {
        self.0.get(Self::place(hash)).copied()
    }

    fn note(&mut self, hash: u64, slot: Slot) {
        if self.0.is_empty() {
            self.0.resize(RECENT_MAX, slot);
        }
        if let Some(place) = self.0.get_mut(Self::place(hash)) {
            *place = slot;
        }
    }

    fn place(hash: u64) -> usize {
        // A remainder is below what divides it, and fits.
        usize::try_from(hash % RECENT_MAX as u64).unwrap_or_default()
    }
}

impl Space {
    pub(crate) fn find(&self, id: &Ident) -> Option<Slot> {
        let hash = self.hasher.hash_one(id);
        let recent =
            self.recent.get(hash).filter(|slot| self.entries.find(*slot).is_some_and(|entry| entry.listed.id == *id));
        recent.or_else(|| self.table.find(hash, |slot| self.entries.place(*slot).id == *id).copied())
    }

    pub(crate) fn get(&self, id: &Ident) -> Option<&Entry> {
        self.find(id).map(|slot| self.entries.at(slot))
    }

    /// Keeps a task that was not there.
    pub(crate) fn add(&mut self, id: Ident, task: Arc<Task>, stamp: Stamp, index: Index) -> Slot {
        self.tally.enter(&task.spec.pool, index.phase);
        self.wake(id, task, stamp, index)
    }

    /// Keeps a task that rested elsewhere.
    pub(crate) fn wake(&mut self, id: Ident, task: Arc<Task>, stamp: Stamp, index: Index) -> Slot {
        let listed = Listed { created_at: task.spec.created_at, id };
        self.enter(Entry { listed, body: Body::Here(task), stamp, index })
    }

    /// Keeps a task whose body is elsewhere.
    pub(crate) fn add_away(&mut self, listed: Listed, stamp: Stamp, index: Index, names: Arc<Names>) {
        self.tally.enter(&names.pool, index.phase);
        self.enter(Entry { listed, body: Body::Away(names), stamp, index });
    }

    fn enter(&mut self, entry: Entry) -> Slot {
        self.bytes_here += entry.bytes_here();
        let hash = self.hasher.hash_one(&entry.listed.id);
        let slot = self.entries.add(entry);
        let (entries, hasher) = (&self.entries, &self.hasher);
        self.table.insert_unique(hash, slot, |slot| hasher.hash_one(&entries.place(*slot).id));
        self.recent.note(hash, slot);
        self.lists.add(entries, slot, entries.at(slot));
        slot
    }

    /// Replaces a task, and moves it only in the lists where it stands elsewhere now. It is kept as `body` says. Gives what was
    /// there, if that was in full.
    pub(crate) fn replace(
        &mut self,
        slot: Slot,
        task: &Task,
        body: Body,
        stamp: Stamp,
        index: Index,
    ) -> Option<Arc<Task>> {
        let old = self.entries.at(slot);
        if old.has(&task.spec) {
            let bytes = old.bytes_here();
            let before = Stood { index: &old.index, holder: old.holder() };
            let after = Stood { index: &index, holder: holder_of(task, &index) };
            self.tally.follow(&task.spec.pool, before.index.phase, after.index.phase);
            self.lists.shift(&self.entries, slot, NamesRef::of(&task.spec), before, after);
            let old = self.entries.write(slot, body, stamp, index);
            self.bytes_here = self.bytes_here - bytes + self.entries.at(slot).bytes_here();
            return old;
        }
        let listed = Listed { created_at: task.spec.created_at, id: old.listed.id.clone() };
        let new = Entry { body, stamp, index, listed };
        self.bytes_here = self.bytes_here - old.bytes_here() + new.bytes_here();
        self.tally.leave(old.names().pool, old.index.phase);
        self.tally.enter(new.names().pool, new.index.phase);
        if old.is_placed_as(&new) {
            let [before, after] = [old, &new].map(|entry| Stood { index: &entry.index, holder: entry.holder() });
            self.lists.shift(&self.entries, slot, new.names(), before, after);
            *self.entries.cell(slot) = Some(new);
        } else {
            self.lists.remove(&self.entries, slot, old);
            *self.entries.cell(slot) = Some(new);
            self.lists.add(&self.entries, slot, self.entries.at(slot));
        }
        None
    }

    /// The task in a slot, to be changed where it is: only if it is here, nobody else has it, and no list knows it by its holder.
    pub(crate) fn own(&mut self, slot: Slot) -> Option<&mut Task> {
        match self.entries.cell(slot) {
            Some(Entry { body: Body::Here(task), index, .. }) if !index.held => Arc::get_mut(task),
            _ => None,
        }
    }

    /// A task that was [changed where it is](Self::own) stands elsewhere now.
    pub(crate) fn moved(&mut self, slot: Slot, task: Arc<Task>, stamp: Stamp, index: Index) {
        let before = Stood { index: &self.entries.at(slot).index, holder: None };
        let after = Stood { index: &index, holder: holder_of(&task, &index) };
        self.tally.follow(&task.spec.pool, before.index.phase, after.index.phase);
        self.lists.shift(&self.entries, slot, NamesRef::of(&task.spec), before, after);
        self.entries.write(slot, Body::Here(task), stamp, index);
        self.recent.note(self.hasher.hash_one(&self.entries.place(slot).id), slot);
    }

    pub(crate) fn remove(&mut self, slot: Slot) -> Option<Entry> {
        let removed = self.let_rest(slot)?;
        self.tally.leave(removed.names().pool, removed.index.phase);
        Some(removed)
    }

    /// Drops a task that is kept elsewhere; it stays counted.
    pub(crate) fn let_rest(&mut self, slot: Slot) -> Option<Entry> {
        let entry = self.entries.at(slot);
        self.bytes_here -= entry.bytes_here();
        self.lists.remove(&self.entries, slot, entry);
        let hash = self.hasher.hash_one(&entry.listed.id);
        if let Ok(found) = self.table.find_entry(hash, |other| *other == slot) {
            found.remove();
        }
        self.entries.remove(slot)
    }

    /// Drops the body of a task that is kept elsewhere.
    pub(crate) fn put_away(&mut self, slot: Slot) {
        let entry = self.entries.at(slot);
        let (bytes, names) = (entry.bytes_here(), entry.names().to_owned());
        self.bytes_here -= bytes;
        let names = self.shared_names(names);
        if let Some(entry) = self.entries.cell(slot) {
            entry.body = Body::Away(names);
        }
    }

    /// Takes a body back, if it is the one that was put away.
    pub(crate) fn bring(&mut self, slot: Slot, task: Arc<Task>, revision: u64) {
        if let Some(entry) = self.entries.cell(slot)
            && entry.stamp.revision == revision
            && entry.is_away()
        {
            entry.body = Body::Here(task);
            self.bytes_here += entry.bytes_here();
        }
    }

    /// One copy of equal names.
    pub(crate) fn shared_names(&mut self, names: Names) -> Arc<Names> {
        if self.names.len() >= NAMES_SHARED_MAX {
            self.names.retain(|names| Arc::strong_count(names) > 1);
        }
        self.names.get_or_insert_with(&names, |names| Arc::new(names.clone())).clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty() && self.lists.is_empty() && self.tally.is_zero()
    }
}

/// 65,536 different names: beyond it those that nobody needs any more are forgotten.
const NAMES_SHARED_MAX: usize = 65_536;
