//! The index that a store of one process keeps in memory: tasks by name, lines, listings, due lists and counts, with the
//! rules of commits and claims on top. The memory store is a shelf and nothing else; a durable store writes down what its
//! [`Scribe`] hears, and may put the bodies of tasks [away](Shelf::put_away) or let whole tasks [rest](Shelf::let_rest)
//! elsewhere until somebody asks for them.

mod check;
mod claim;
mod claimed_tasks;
mod commit;
mod indexes;
mod listed;
mod listing;
mod mainly;
mod run;
mod space;
mod spaces;

use std::sync::Arc;

use ekiden_core::brief::Brief;
use ekiden_core::id::{Namespace, OpId, PoolName};
use ekiden_core::index::{Dues, Index};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::record::{Record, Versioned};
use ekiden_core::task::{Phase, Task};
use ekiden_core::time::Timestamp;
use hashbrown::HashMap;

use crate::op::{Op, Outcome};
use crate::query::{CountScope, Counts, DueEntry, DueQuery, Page};

pub use listed::{Listed, cursor_of, parse_cursor};
pub use listing::{Candidate, Scan};
pub use space::{Names, Stamp};

use listed::Ident;
use space::{Body, Entry, Slot};
use spaces::Spaces;

/// Hears of every change while it is made, in order, and brings what is away.
pub trait Scribe {
    /// A record was created or replaced.
    fn put(&mut self, put: Put<'_>);

    /// A record was deleted. Deletions are numbered like revisions.
    fn deleted(&mut self, key: &Key, revision: u64);

    /// A task was replaced, and this is what it was. Whoever holds a lock may drop it later.
    fn replaced(&mut self, old: Arc<Task>);

    /// A task in few words, where the store keeps it so and they say all of it. Asked under the lock: whoever can, made it before.
    fn brief(&mut self, task: &Arc<Task>) -> Option<Box<Brief>>;

    /// The task whose body was put away; `None` where it cannot be read, and the claim passes over it.
    fn fetch(&mut self, key: &Key) -> Option<Arc<Task>>;
}

/// A record that was created or replaced.
pub struct Put<'a> {
    /// Its key.
    pub key: &'a Key,
    /// Its content.
    pub record: &'a Record,
    /// What is remembered of it.
    pub stamp: Stamp,
    /// Whether it is a task whose spec is the one that was there before.
    pub same_spec: bool,
    /// Whether it can be claimed now or later.
    pub ready: bool,
}

/// Everything that the index holds.
#[derive(Debug, Default)]
pub struct Shelf {
    revision: u64,
    spaces: Spaces,
    /// Records that are no tasks.
    others: HashMap<Key, Other>,
}

/// A record that is no task, and the index entries that it has.
#[derive(Debug)]
struct Other {
    record: Record,
    stamp: Stamp,
    due: Dues,
}

/// What a commit finds under a key.
struct Found {
    stamp: Option<Stamp>,
    /// Of a task.
    place: Option<Spot>,
}

/// Where a task is.
enum Spot {
    Slot(Slot),
    /// Nowhere yet; by this name it would be found.
    New(Ident),
}

/// What the shelf knows of a key.
#[derive(Debug)]
pub enum Look {
    /// Nothing. A store that lets tasks rest elsewhere looks there.
    Nothing,
    /// The record.
    Here(Versioned),
    /// A task whose body is elsewhere.
    Away,
}

impl Shelf {
    /// Carries out one op. Everything that it changes is told to the scribe before this returns. What it needs of the op is taken
    /// out of it; the rest is left to the caller, who need not drop it under a lock.
    pub fn carry_out(&mut self, op: &mut Op, scribe: &mut dyn Scribe) -> Outcome {
        match op {
            Op::Commit(commit) => self.commit(commit, scribe),
            Op::Claim(claim) => {
                claim.check()?;
                Ok(self.claim(claim, scribe))
            }
        }
    }

    /// The number of the latest change.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Numbers go on behind this one.
    pub fn resume(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// What is here under a key.
    pub fn look(&self, key: &Key) -> Look {
        if key.kind == RecordKind::Task {
            return self.entry(key).map_or(Look::Nothing, |entry| entry.look(&key.namespace));
        }
        let other = self.others.get(key);
        other.map_or(Look::Nothing, |other| Look::Here(other.stamp.on(key.clone(), other.record.clone())))
    }

    /// What is remembered of the record under a key, if it is here.
    pub fn stamp(&self, key: &Key) -> Option<Stamp> {
        if key.kind == RecordKind::Task {
            return self.entry(key).map(|entry| entry.stamp);
        }
        self.others.get(key).map(|other| other.stamp)
    }

    /// What is due, oldest first.
    pub fn due(&self, query: &DueQuery) -> Vec<DueEntry> {
        let Some(space) = self.spaces.get(&query.namespace) else { return Vec::new() };
        let list = space.lists.due(query.index).iter();
        let due = list.take_while(|(at, ..)| *at <= query.until).take(query.limit);
        due.map(|(at, kind, id)| DueEntry { key: id.key(*kind, &query.namespace), at: *at }).collect()
    }

    /// How many tasks there are, those that rest elsewhere included.
    pub fn counts(&self, scope: &CountScope) -> Counts {
        let mut counts = Counts::zero();
        let Some(space) = self.spaces.get(&scope.namespace) else { return counts };
        for (phase, count) in &mut counts.by_phase {
            *count = space.tally.count(scope.pool.as_ref(), *phase);
        }
        counts
    }

    /// A page of the namespaces that have anything, behind one, in order.
    pub fn namespaces(&self, after: Option<&Namespace>, limit: usize) -> Page<Namespace> {
        let mut names = self.spaces.names(after).peekable();
        let items: Vec<_> = names.by_ref().take(limit).cloned().collect();
        let cursor = names.peek().and(items.last()).map(ToString::to_string);
        Page { items, cursor }
    }

    /// What is here under a key, and where it is or would be.
    fn find(&self, key: &Key) -> Found {
        if key.kind != RecordKind::Task {
            return Found { stamp: self.others.get(key).map(|other| other.stamp), place: None };
        }
        let id = Ident::of(&key.name);
        let space = self.spaces.get(&key.namespace);
        match space.and_then(|space| Some((space.find(&id)?, space))) {
            Some((slot, space)) => Found { stamp: Some(space.entries.at(slot).stamp), place: Some(Spot::Slot(slot)) },
            None => Found { stamp: None, place: Some(Spot::New(id)) },
        }
    }

    fn entry(&self, key: &Key) -> Option<&Entry> {
        self.spaces.get(&key.namespace)?.get(&Ident::of(&key.name))
    }

    fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    fn counter(&self, key: &Key) -> Option<i64> {
        self.others.get(key)?.record.as_counter()
    }

    /// Creates or replaces a record and its index entries, in the name of an op. Gives its new revision.
    fn put(&mut self, key: &Key, found: Found, record: Record, index: Index, by: OpId, scribe: &mut dyn Scribe) -> u64 {
        let revision = self.next_revision();
        let created_by = found.stamp.map_or(by, |stamp| stamp.created_by);
        let stamp = Stamp { revision, created_by, last: by };
        match &record {
            Record::Task(_) => self.put_task(key, found.place, &record, index, stamp, scribe),
            _ => self.put_other(key.clone(), record, index, stamp, scribe),
        }
        revision
    }

    fn put_task(
        &mut self,
        key: &Key,
        place: Option<Spot>,
        record: &Record,
        index: Index,
        stamp: Stamp,
        scribe: &mut dyn Scribe,
    ) {
        let Record::Task(task) = record else { return };
        let ready = index.ready.is_some();
        let space = self.spaces.open(&key.namespace);
        let (slot, before) = match place {
            Some(Spot::Slot(slot)) => {
                let old = space.entries.at(slot);
                let before = old.claim();
                let same_spec = old.has(&task.spec);
                scribe.put(Put { key, record, stamp, same_spec, ready });
                let body = scribe.brief(task).map_or_else(|| Body::Here(task.clone()), Body::Brief);
                space.replace(slot, task, body, stamp, index).into_iter().for_each(|old| scribe.replaced(old));
                (slot, before)
            }
            Some(Spot::New(id)) => {
                scribe.put(Put { key, record, stamp, same_spec: false, ready });
                (space.add(id, task.clone(), stamp, index), None)
            }
            None => return,
        };
        let after = space.entries.at(slot).claim();
        space.claimed.update(slot, before, after);
    }

    /// Keeps a task as it was.
    fn place(&mut self, key: &Key, task: Arc<Task>, stamp: Stamp, index: Index) {
        let id = Ident::of(&key.name);
        let space = self.spaces.open(&key.namespace);
        let (slot, before) = match space.find(&id) {
            Some(slot) => {
                let before = space.entries.at(slot).claim();
                space.replace(slot, &task, Body::Here(task.clone()), stamp, index);
                (slot, before)
            }
            None => (space.add(id, task, stamp, index), None),
        };
        let after = space.entries.at(slot).claim();
        space.claimed.update(slot, before, after);
    }

    fn put_other(&mut self, key: Key, record: Record, index: Index, stamp: Stamp, scribe: &mut dyn Scribe) {
        scribe.put(Put { key: &key, record: &record, stamp, same_spec: false, ready: false });
        self.place_other(key, record, index, stamp);
    }

    fn place_other(&mut self, key: Key, record: Record, index: Index, stamp: Stamp) {
        let due = index.due;
        let lists = &mut self.spaces.open(&key.namespace).lists;
        match self.others.get_mut(&key) {
            Some(old) if old.due == due => *old = Other { record, stamp, due },
            old => {
                if let Some(old) = old {
                    lists.remove_other(&key, &old.due);
                }
                lists.add_other(&key, &due);
                self.others.insert(key, Other { record, stamp, due });
            }
        }
    }

    fn delete(&mut self, key: &Key, scribe: &mut dyn Scribe) {
        if self.stamp(key).is_some() {
            let revision = self.next_revision();
            self.displace(key);
            scribe.deleted(key, revision);
        }
    }

    fn displace(&mut self, key: &Key) {
        let Some(space) = self.spaces.get_mut(&key.namespace) else { return };
        if key.kind == RecordKind::Task {
            let Some(slot) = space.find(&Ident::of(&key.name)) else { return };
            let before = space.remove(slot).and_then(|entry| entry.claim());
            space.claimed.update(slot, before, None);
        } else {
            let Some(old) = self.others.remove(key) else { return };
            space.lists.remove_other(key, &old.due);
        }
        if space.is_empty() {
            self.spaces.remove(&key.namespace);
        }
    }
}

/// What a durable store does with its index.
impl Shelf {
    /// Puts a record where it was before the store was closed. Nobody is told.
    pub fn restore(&mut self, key: &Key, record: Record, stamp: Stamp) {
        self.resume(stamp.revision);
        let index = Index::of(key, &record);
        match record {
            Record::Task(task) => self.place(key, task, stamp, index),
            record => self.place_other(key.clone(), record, index, stamp),
        }
    }

    /// Takes a record out again. Nobody is told.
    pub fn restore_deleted(&mut self, key: &Key, revision: u64) {
        self.resume(revision);
        self.displace(key);
    }

    /// Puts a task where it was, while its body stays elsewhere.
    pub fn restore_away(&mut self, key: &Key, created_at: Timestamp, stamp: Stamp, index: Index, names: Names) {
        self.resume(stamp.revision);
        let space = self.spaces.open(&key.namespace);
        let names = space.shared_names(names);
        space.add_away(Listed { created_at, id: Ident::of(&key.name) }, stamp, index, names);
    }

    /// Counts tasks that rest elsewhere.
    pub fn restore_count(&mut self, namespace: &Namespace, pool: &PoolName, phase: Phase, tasks: u64) {
        // A namespace in which nobody rests is not there because somebody once did.
        if tasks > 0 {
            self.spaces.open(namespace).tally.add(pool, phase, tasks);
        }
    }

    /// Takes in a task that rested elsewhere, unless it is here. It was counted all along.
    pub fn wake(&mut self, key: &Key, task: Arc<Task>, stamp: Stamp) {
        let space = self.spaces.open(&key.namespace);
        let id = Ident::of(&key.name);
        if space.find(&id).is_none() {
            let index = Index::of(key, &Record::Task(task.clone()));
            space.wake(id, task, stamp, index);
        }
    }

    /// Drops a task that rests elsewhere from now on, if it is as it was at this revision and nothing will happen to it by
    /// itself. It stays counted. Says whether it went.
    pub fn let_rest(&mut self, key: &Key, revision: u64) -> bool {
        let Some(space) = self.spaces.get_mut(&key.namespace) else { return false };
        let Some(slot) = space.find(&Ident::of(&key.name)) else { return false };
        let entry = space.entries.at(slot);
        let rests = entry.stamp.revision == revision && entry.index.is_at_rest();
        if rests {
            space.let_rest(slot);
        }
        rests
    }

    /// Puts the body of a task away, if it is as it was at this revision and nobody holds it. Says whether it went.
    pub fn put_away(&mut self, key: &Key, revision: u64) -> bool {
        let Some(space) = self.spaces.get_mut(&key.namespace) else { return false };
        let Some(slot) = space.find(&Ident::of(&key.name)) else { return false };
        let entry = space.entries.at(slot);
        let goes = entry.stamp.revision == revision && !entry.index.held && entry.here().is_some();
        if goes {
            space.put_away(slot);
        }
        goes
    }

    /// Tasks that claims come for next while their bodies are away: those at the head of a line, then those that become due
    /// first, which a claim promotes. Looks at twice so many entries at most, shared out among the lines.
    pub fn heads_away(&self, limit: usize) -> Vec<Key> {
        let pools = || {
            let spaces = self.spaces.iter();
            spaces.flat_map(|(namespace, space)| space.lists.pools.values().map(move |pool| (namespace, space, pool)))
        };
        let share = |lines: usize| (limit / lines.max(1)).max(1);
        let of_ready = share(pools().map(|(.., pool)| pool.ready.len()).sum());
        let of_waiting = share(pools().map(|(.., pool)| pool.waiting.len()).sum());
        let ready = pools().flat_map(|(namespace, space, pool)| {
            let slots = pool.ready.values().flat_map(move |line| line.iter().take(of_ready));
            slots.map(move |slot| (namespace, space.entries.at(*slot)))
        });
        let waiting = pools().flat_map(|(namespace, space, pool)| {
            let places = pool.waiting.values().flat_map(move |line| line.iter().take(of_waiting));
            places.filter_map(move |(_, id)| Some((namespace, space.get(id)?)))
        });
        let heads = ready.take(limit).chain(waiting.take(limit));
        let away = heads.filter(|(_, entry)| entry.is_away());
        away.map(|(namespace, entry)| entry.listed.key(namespace)).take(limit).collect()
    }

    /// Brings a body that was away, if the task is as it was at this revision.
    pub fn bring(&mut self, key: &Key, task: Arc<Task>, revision: u64) {
        let Some(space) = self.spaces.get_mut(&key.namespace) else { return };
        if let Some(slot) = space.find(&Ident::of(&key.name)) {
            space.bring(slot, task, revision);
        }
    }

    /// About how many bytes the bodies take that are here.
    pub fn bytes_here(&self) -> usize {
        self.spaces.values().map(|space| space.bytes_here).sum()
    }
}
