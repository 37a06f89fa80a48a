//! The lists of one namespace, sorted for the questions that are asked. Kept blindly: what core computed goes in, and comes
//! out when the record changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ekiden_core::id::{GroupId, Kind, PoolName, RunnerId, SessionId};
use ekiden_core::index::DueIndex;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::order::Rank;
use ekiden_core::task::Phase;
use ekiden_core::time::Timestamp;
use hashbrown::HashMap;

use super::listed::{Ident, Listed};
use super::run::Run;
use super::space::{Entries, Entry, ReadyMark, Slot};

/// Claimable tasks of one kind, by rank, then by creation.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Line(BTreeMap<Rank, Run<Slot>>);

/// Tasks of a line that are not due yet, earliest first.
pub(super) type Waiting = BTreeSet<(Timestamp, Ident)>;

/// A place in a due list.
pub(super) type DuePlace = (Timestamp, RecordKind, Ident);

/// One pool of a namespace. It is here while it has tasks.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Pool {
    pub(super) all: Run<Slot>,
    /// By kind: a claim for any kind finds the lines that have tasks.
    pub(super) ready: BTreeMap<Kind, Line>,
    /// What will be claimable, by kind.
    pub(super) waiting: BTreeMap<Kind, Waiting>,
    counts: [u64; Phase::ALL.len()],
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Lists {
    pub(super) all: Run<Slot>,
    pub(super) phases: [Run<Slot>; Phase::ALL.len()],
    pub(super) pools: HashMap<PoolName, Pool>,
    pub(super) groups: HashMap<GroupId, Run<Slot>>,
    pub(super) sessions: HashMap<SessionId, Run<Slot>>,
    pub(super) held: HashMap<RunnerId, Run<Slot>>,
    /// Records other than tasks, by kind.
    pub(super) names: BTreeMap<RecordKind, BTreeSet<Arc<str>>>,
    due: [Run<DuePlace>; DueIndex::ALL.len()],
}

impl Line {
    /// The first claimable task behind a place, or the first of all.
    pub(super) fn head(&self, entries: &Entries, after: Option<(Rank, &Listed)>) -> Option<(Rank, Slot)> {
        let Some((rank, place)) = after else {
            let (rank, run) = self.0.first_key_value()?;
            return Some((*rank, *run.first()?));
        };
        let passed = |slot: &Slot| entries.place(*slot) <= place;
        let same = self.0.get(&rank).and_then(|run| run.since(passed).next());
        same.map(|slot| (rank, *slot)).or_else(|| {
            let (rank, run) = self.0.range(rank..).find(|(other, _)| **other > rank)?;
            Some((*rank, *run.first()?))
        })
    }
}

impl Pool {
    fn stand(&mut self, entries: &Entries, kind: &Kind, rank: Rank, slot: Slot) {
        // Few kinds: looking twice costs less than a kind that is cloned for each task.
        let line = match self.ready.get_mut(kind) {
            Some(line) => line,
            None => self.ready.entry(kind.clone()).or_default(),
        };
        insert(line.0.entry(rank).or_default(), entries, slot);
    }

    fn step_out(&mut self, entries: &Entries, kind: &Kind, rank: Rank, slot: Slot) {
        let Some(line) = self.ready.get_mut(kind) else { return };
        if let Some(run) = line.0.get_mut(&rank) {
            remove(run, entries, slot);
            if run.is_empty() {
                line.0.remove(&rank);
            }
        }
        if line.0.is_empty() {
            self.ready.remove(kind);
        }
    }

    fn count(&mut self, phase: Phase) {
        self.counts.iter_mut().skip(phase as usize).take(1).for_each(|count| *count += 1);
    }

    fn uncount(&mut self, phase: Phase) {
        self.counts.iter_mut().skip(phase as usize).take(1).for_each(|count| *count -= 1);
    }

    pub(super) fn counted(&self, phase: Phase) -> u64 {
        self.counts.get(phase as usize).copied().unwrap_or(0)
    }
}

impl Lists {
    /// A task enters everywhere.
    pub(super) fn add(&mut self, entries: &Entries, slot: Slot, new: &Entry) {
        let spec = &new.task.spec;
        insert(&mut self.all, entries, slot);
        let pool = self.pools.entry(spec.pool.clone()).or_default();
        insert(&mut pool.all, entries, slot);
        if let Some(group) = &spec.group {
            insert(self.groups.entry(group.clone()).or_default(), entries, slot);
        }
        if let Some(session) = &spec.session {
            insert(self.sessions.entry(session.clone()).or_default(), entries, slot);
        }
        if let Some(ready) = new.marks.ready {
            pool.stand(entries, &spec.envelope.task_type, ready.rank, slot);
        }
        if let Some(phase) = new.marks.phase {
            pool.count(phase);
            insert(self.phase_mut(phase), entries, slot);
        }
        self.list_due(new);
        self.hold(entries, slot, new);
    }

    /// A task leaves everywhere.
    pub(super) fn remove(&mut self, entries: &Entries, slot: Slot, old: &Entry) {
        let spec = &old.task.spec;
        self.unlist_due(old);
        self.let_go(entries, slot, old);
        remove(&mut self.all, entries, slot);
        if let Some(pool) = self.pools.get_mut(&spec.pool) {
            remove(&mut pool.all, entries, slot);
            if let Some(ready) = old.marks.ready {
                pool.step_out(entries, &spec.envelope.task_type, ready.rank, slot);
            }
            if let Some(phase) = old.marks.phase {
                pool.uncount(phase);
            }
            if pool.all.is_empty() {
                self.pools.remove(&spec.pool);
            }
        }
        if let Some(phase) = old.marks.phase {
            remove(self.phase_mut(phase), entries, slot);
        }
        if let Some(group) = &spec.group {
            remove_named(&mut self.groups, group, entries, slot);
        }
        if let Some(session) = &spec.session {
            remove_named(&mut self.sessions, session, entries, slot);
        }
    }

    /// A task changed, but not its names nor its place: only what moved is touched.
    pub(super) fn shift(&mut self, entries: &Entries, slot: Slot, old: &Entry, new: &Entry) {
        let rank = |ready: &Option<ReadyMark>| ready.map(|ready| ready.rank);
        let (left, joined) = (rank(&old.marks.ready), rank(&new.marks.ready));
        let moved = old.marks.phase != new.marks.phase;
        if (moved || left != joined)
            && let Some(pool) = self.pools.get_mut(&new.task.spec.pool)
        {
            let kind = &new.task.spec.envelope.task_type;
            if left != joined {
                left.into_iter().for_each(|rank| pool.step_out(entries, kind, rank, slot));
                joined.into_iter().for_each(|rank| pool.stand(entries, kind, rank, slot));
            }
            if moved {
                old.marks.phase.into_iter().for_each(|phase| pool.uncount(phase));
                new.marks.phase.into_iter().for_each(|phase| pool.count(phase));
            }
        }
        if moved {
            old.marks.phase.into_iter().for_each(|phase| remove(self.phase_mut(phase), entries, slot));
            new.marks.phase.into_iter().for_each(|phase| insert(self.phase_mut(phase), entries, slot));
        }
        if old.marks.due != new.marks.due {
            self.unlist_due(old);
            self.list_due(new);
        }
        if holder(old) != holder(new) {
            self.let_go(entries, slot, old);
            self.hold(entries, slot, new);
        }
    }

    /// A record that is no task enters.
    pub(super) fn add_other(&mut self, key: &Key, due: &[(DueIndex, Timestamp)]) {
        self.names.entry(key.kind).or_default().insert(key.name.clone());
        for (index, at) in due {
            self.due_mut(*index).insert((*at, key.kind, Ident::of(&key.name)), Ord::cmp);
        }
    }

    /// A record that is no task leaves.
    pub(super) fn remove_other(&mut self, key: &Key, due: &[(DueIndex, Timestamp)]) {
        if let Some(names) = self.names.get_mut(&key.kind) {
            names.remove(&key.name);
            if names.is_empty() {
                self.names.remove(&key.kind);
            }
        }
        for (index, at) in due {
            self.due_mut(*index).remove(&(*at, key.kind, Ident::of(&key.name)), Ord::cmp);
        }
    }

    pub(super) fn phase(&self, phase: Phase) -> &Run<Slot> {
        self.phases.get(phase as usize).expect("there is a list for each phase")
    }

    pub(super) fn due(&self, index: DueIndex) -> &Run<DuePlace> {
        self.due.get(index as usize).expect("there is a list for each due index")
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.names.is_empty()
    }

    fn phase_mut(&mut self, phase: Phase) -> &mut Run<Slot> {
        self.phases.get_mut(phase as usize).expect("there is a list for each phase")
    }

    fn due_mut(&mut self, index: DueIndex) -> &mut Run<DuePlace> {
        self.due.get_mut(index as usize).expect("there is a list for each due index")
    }

    fn list_due(&mut self, new: &Entry) {
        for (index, at) in &new.marks.due {
            let id = &new.listed.id;
            self.due_mut(*index).insert((*at, RecordKind::Task, id.clone()), Ord::cmp);
            if *index == DueIndex::Promote {
                let spec = &new.task.spec;
                let pool = self.pools.entry(spec.pool.clone()).or_default();
                pool.waiting.entry(spec.envelope.task_type.clone()).or_default().insert((*at, id.clone()));
            }
        }
    }

    fn unlist_due(&mut self, old: &Entry) {
        for (index, at) in &old.marks.due {
            let id = &old.listed.id;
            self.due_mut(*index).remove(&(*at, RecordKind::Task, id.clone()), Ord::cmp);
            let spec = &old.task.spec;
            let pool = self.pools.get_mut(&spec.pool).filter(|_| *index == DueIndex::Promote);
            let Some(pool) = pool else { continue };
            if let Some(waiting) = pool.waiting.get_mut(&spec.envelope.task_type) {
                waiting.remove(&(*at, id.clone()));
                if waiting.is_empty() {
                    pool.waiting.remove(&spec.envelope.task_type);
                }
            }
        }
    }

    fn hold(&mut self, entries: &Entries, slot: Slot, new: &Entry) {
        if let Some(runner) = holder(new) {
            insert(self.held.entry(runner.clone()).or_default(), entries, slot);
        }
    }

    fn let_go(&mut self, entries: &Entries, slot: Slot, old: &Entry) {
        if let Some(runner) = holder(old) {
            remove_named(&mut self.held, runner, entries, slot);
        }
    }
}

fn holder(entry: &Entry) -> Option<&RunnerId> {
    entry.task.state.lease.as_ref().filter(|_| entry.marks.held).map(|lease| &lease.holder)
}

fn insert(run: &mut Run<Slot>, entries: &Entries, slot: Slot) {
    let place = entries.place(slot);
    run.insert(slot, |one, other| order(entries, *one, *other, slot, place));
}

fn remove(run: &mut Run<Slot>, entries: &Entries, slot: Slot) {
    let place = entries.place(slot);
    run.remove(&slot, |one, other| order(entries, *one, *other, slot, place));
}

/// Compares two slots by their places, one of which is at hand.
fn order(entries: &Entries, one: Slot, other: Slot, known: Slot, place: &Listed) -> std::cmp::Ordering {
    let look = |slot| if slot == known { place } else { entries.place(slot) };
    if one == other { std::cmp::Ordering::Equal } else { look(one).cmp(look(other)) }
}

fn remove_named<K: Eq + std::hash::Hash>(runs: &mut HashMap<K, Run<Slot>>, name: &K, entries: &Entries, slot: Slot) {
    if let Some(run) = runs.get_mut(name) {
        remove(run, entries, slot);
        if run.is_empty() {
            runs.remove(name);
        }
    }
}
