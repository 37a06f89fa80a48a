//! The lists of one namespace, sorted for the questions that are asked. Kept blindly: what core computed goes in, and comes
//! out when the record changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ekiden_core::id::{GroupId, Kind, PoolName, RunnerId, SessionId};
use ekiden_core::index::{Due, DueIndex, Ready};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::order::Rank;
use ekiden_core::task::Phase;
use ekiden_core::time::Timestamp;

use super::listed::{Ident, Listed};
use super::mainly::Mainly;
use super::run::Run;
use super::space::{Entries, Entry, NamesRef, Slot, Stood};

/// Claimable tasks of one kind, by rank, then by creation.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Line(BTreeMap<Rank, Run<Slot>>);

/// Tasks of a line that are not due yet, earliest first.
pub(crate) type Waiting = BTreeSet<(Timestamp, Ident)>;

/// A place in a due list.
pub(crate) type DuePlace = (Timestamp, RecordKind, Ident);

/// One pool of a namespace. It is here while it has tasks.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Pool {
    pub(crate) all: Run<Slot>,
    /// By kind: a claim for any kind finds the lines that have tasks.
    pub(crate) ready: BTreeMap<Kind, Line>,
    /// What will be claimable, by kind.
    pub(crate) waiting: BTreeMap<Kind, Waiting>,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Lists {
    pub(crate) all: Run<Slot>,
    pub(crate) phases: [Run<Slot>; Phase::ALL.len()],
    pub(crate) pools: Mainly<PoolName, Pool>,
    pub(crate) groups: Mainly<GroupId, Run<Slot>>,
    pub(crate) sessions: Mainly<SessionId, Run<Slot>>,
    pub(crate) held: Mainly<RunnerId, Run<Slot>>,
    /// Records other than tasks, by kind.
    pub(crate) names: BTreeMap<RecordKind, BTreeSet<Arc<str>>>,
    due: [Run<DuePlace>; DueIndex::ALL.len()],
}

impl Line {
    /// In the order of claims.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.0.values().flat_map(Run::iter)
    }

    /// The first claimable task behind a place, or the first of all.
    pub(crate) fn head(&self, entries: &Entries, after: Option<(Rank, &Listed)>) -> Option<(Rank, Slot)> {
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
    fn stand(&mut self, entries: &Entries, kind: &Kind, rank: Rank, slot: Slot, behind: usize) {
        // Few kinds: looking twice costs less than a kind that is cloned for each task.
        let line = match self.ready.get_mut(kind) {
            Some(line) => line,
            None => self.ready.entry(kind.clone()).or_default(),
        };
        insert(line.0.entry(rank).or_default(), entries, slot, behind);
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
}

impl Lists {
    /// A task enters everywhere.
    pub(crate) fn add(&mut self, entries: &Entries, slot: Slot, new: &Entry) {
        let names = new.names();
        let behind = insert(&mut self.all, entries, slot, 0);
        let pool = self.pools.open(names.pool);
        insert(&mut pool.all, entries, slot, behind);
        if let Some(group) = names.group {
            insert(self.groups.open(group), entries, slot, behind);
        }
        if let Some(session) = names.session {
            insert(self.sessions.open(session), entries, slot, behind);
        }
        if let Some(ready) = new.index.ready {
            pool.stand(entries, names.kind, ready.rank, slot, behind);
        }
        if let Some(phase) = new.index.phase {
            insert(self.phase_mut(phase), entries, slot, behind);
        }
        self.list_due(&new.listed.id, names, &new.index.due);
        self.hold(entries, slot, new.holder());
    }

    /// A task leaves everywhere.
    pub(crate) fn remove(&mut self, entries: &Entries, slot: Slot, old: &Entry) {
        let names = old.names();
        self.unlist_due(&old.listed.id, names, &old.index.due);
        self.let_go(entries, slot, old.holder());
        remove(&mut self.all, entries, slot);
        if let Some(pool) = self.pools.get_mut(names.pool) {
            remove(&mut pool.all, entries, slot);
            if let Some(ready) = old.index.ready {
                pool.step_out(entries, names.kind, ready.rank, slot);
            }
            if pool.all.is_empty() {
                self.pools.remove(names.pool);
            }
        }
        if let Some(phase) = old.index.phase {
            remove(self.phase_mut(phase), entries, slot);
        }
        if let Some(group) = names.group {
            remove_named(&mut self.groups, group, entries, slot);
        }
        if let Some(session) = names.session {
            remove_named(&mut self.sessions, session, entries, slot);
        }
    }

    /// A task changed, but not its names nor its place: only what moved is touched.
    pub(crate) fn shift(
        &mut self,
        entries: &Entries,
        slot: Slot,
        names: NamesRef<'_>,
        before: Stood<'_>,
        after: Stood<'_>,
    ) {
        let (old, new) = (before.index, after.index);
        let rank = |ready: &Option<Ready>| ready.map(|ready| ready.rank);
        let (left, joined) = (rank(&old.ready), rank(&new.ready));
        if left != joined
            && let Some(pool) = self.pools.get_mut(names.pool)
        {
            left.into_iter().for_each(|rank| pool.step_out(entries, names.kind, rank, slot));
            joined.into_iter().for_each(|rank| pool.stand(entries, names.kind, rank, slot, 0));
        }
        if old.phase != new.phase {
            old.phase.into_iter().for_each(|phase| remove(self.phase_mut(phase), entries, slot));
            if let Some(phase) = new.phase {
                insert(self.phase_mut(phase), entries, slot, 0);
            }
        }
        if old.due != new.due {
            let id = &entries.place(slot).id;
            self.unlist_due(id, names, &old.due);
            self.list_due(id, names, &new.due);
        }
        if before.holder != after.holder {
            self.let_go(entries, slot, before.holder);
            self.hold(entries, slot, after.holder);
        }
    }

    /// A record that is no task enters.
    pub(crate) fn add_other(&mut self, key: &Key, due: &[Due]) {
        self.names.entry(key.kind).or_default().insert(key.name.clone());
        for Due { index, at } in due {
            self.list((*at, key.kind, Ident::of(&key.name)), *index);
        }
    }

    /// A record that is no task leaves.
    pub(crate) fn remove_other(&mut self, key: &Key, due: &[Due]) {
        if let Some(names) = self.names.get_mut(&key.kind) {
            names.remove(&key.name);
            if names.is_empty() {
                self.names.remove(&key.kind);
            }
        }
        for Due { index, at } in due {
            self.unlist(&(*at, key.kind, Ident::of(&key.name)), *index);
        }
    }

    pub(crate) fn phase(&self, phase: Phase) -> &Run<Slot> {
        self.phases.get(phase as usize).expect("there is a list for each phase")
    }

    pub(crate) fn due(&self, index: DueIndex) -> &Run<DuePlace> {
        self.due.get(index as usize).expect("there is a list for each due index")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.names.is_empty()
    }

    fn phase_mut(&mut self, phase: Phase) -> &mut Run<Slot> {
        self.phases.get_mut(phase as usize).expect("there is a list for each phase")
    }

    fn due_mut(&mut self, index: DueIndex) -> &mut Run<DuePlace> {
        self.due.get_mut(index as usize).expect("there is a list for each due index")
    }

    fn list(&mut self, place: DuePlace, index: DueIndex) {
        let sought = place.clone();
        self.due_mut(index).insert(place, 0, |other| other.cmp(&sought));
    }

    fn unlist(&mut self, place: &DuePlace, index: DueIndex) {
        self.due_mut(index).remove(place, |other| other.cmp(place));
    }

    fn list_due(&mut self, id: &Ident, names: NamesRef<'_>, due: &[Due]) {
        for Due { index, at } in due {
            self.list((*at, RecordKind::Task, id.clone()), *index);
            if *index == DueIndex::Promote {
                let pool = self.pools.open(names.pool);
                pool.waiting.entry(names.kind.clone()).or_default().insert((*at, id.clone()));
            }
        }
    }

    fn unlist_due(&mut self, id: &Ident, names: NamesRef<'_>, due: &[Due]) {
        for Due { index, at } in due {
            self.unlist(&(*at, RecordKind::Task, id.clone()), *index);
            let pool = self.pools.get_mut(names.pool).filter(|_| *index == DueIndex::Promote);
            let Some(pool) = pool else { continue };
            if let Some(waiting) = pool.waiting.get_mut(names.kind) {
                waiting.remove(&(*at, id.clone()));
                if waiting.is_empty() {
                    pool.waiting.remove(names.kind);
                }
            }
        }
    }

    fn hold(&mut self, entries: &Entries, slot: Slot, holder: Option<&RunnerId>) {
        if let Some(runner) = holder {
            insert(self.held.open(runner), entries, slot, 0);
        }
    }

    fn let_go(&mut self, entries: &Entries, slot: Slot, holder: Option<&RunnerId>) {
        if let Some(runner) = holder {
            remove_named(&mut self.held, runner, entries, slot);
        }
    }
}

fn insert(run: &mut Run<Slot>, entries: &Entries, slot: Slot, behind: usize) -> usize {
    let place = entries.place(slot);
    run.insert(slot, behind, |other| entries.place(*other).cmp(place))
}

fn remove(run: &mut Run<Slot>, entries: &Entries, slot: Slot) {
    let place = entries.place(slot);
    run.remove(&slot, |other| entries.place(*other).cmp(place));
}

fn remove_named<K>(runs: &mut Mainly<K, Run<Slot>>, name: &K, entries: &Entries, slot: Slot)
where
    K: Clone + Eq + std::hash::Hash,
{
    if let Some(run) = runs.get_mut(name) {
        remove(run, entries, slot);
        if run.is_empty() {
            runs.remove(name);
        }
    }
}
