//! The index entries of all records, sorted for the questions that are asked. Kept blindly: what core computed goes in,
//! and comes out when the record changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ekiden_core::id::{GroupId, Kind, Namespace, OpId, PoolName, RunnerId, SessionId, TaskId};
use ekiden_core::index::{DueIndex, Index, Line};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::order::Order;
use ekiden_core::record::Versioned;
use ekiden_core::task::Phase;
use ekiden_core::time::Timestamp;

use crate::query::{CountScope, Counts, DueEntry, DueQuery};

/// A place in a listing: tasks by creation.
pub(super) type Listed = (Timestamp, TaskId);

/// A listing that a filter can start from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Listing {
    All(Namespace),
    Phase(Namespace, Phase),
    Pool(Namespace, PoolName),
    Group(Namespace, GroupId),
    Session(Namespace, SessionId),
    Held(Namespace, RunnerId),
}

/// A line of claimable tasks.
pub(super) type ReadyLine = BTreeMap<Order, Timestamp>;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes {
    /// By pool, then kind: a claim for any kind finds the lines that have tasks.
    pub(super) ready: BTreeMap<(Namespace, PoolName), BTreeMap<Kind, ReadyLine>>,
    /// What will be claimable, by line, earliest first.
    pub(super) waiting: BTreeMap<Line, BTreeSet<(Timestamp, TaskId)>>,
    pub(super) listings: BTreeMap<Listing, BTreeSet<Listed>>,
    pub(super) names: BTreeMap<(Namespace, RecordKind), BTreeSet<Arc<str>>>,
    /// What a claim took and has not ended, so that a repeated claim finds it.
    pub(super) taken: BTreeMap<OpId, BTreeSet<Key>>,
    due: BTreeMap<(Namespace, DueIndex), BTreeSet<(Timestamp, Key)>>,
    counts: BTreeMap<(Namespace, Option<PoolName>, Phase), u64>,
}

impl Indexes {
    pub(super) fn insert(&mut self, versioned: &Versioned, index: &Index) {
        let key = &versioned.key;
        if let Some(ready) = &index.ready {
            let pool = (ready.line.namespace.clone(), ready.line.pool.clone());
            let line = self.ready.entry(pool).or_default().entry(ready.line.kind.clone()).or_default();
            line.insert(ready.order.clone(), ready.at);
        }
        for due in &index.due {
            self.due.entry((key.namespace.clone(), due.index)).or_default().insert((due.at, key.clone()));
        }
        if let Some((line, place)) = waiting(versioned, index) {
            self.waiting.entry(line).or_default().insert(place);
        }
        for (listing, place) in listings(versioned, index) {
            self.listings.entry(listing).or_default().insert(place);
        }
        for cell in cells(key, index) {
            *self.counts.entry(cell).or_default() += 1;
        }
        if let Some(holder) = &index.holder {
            self.taken.entry(holder.claim).or_default().insert(key.clone());
        }
        if key.kind != RecordKind::Task {
            self.names.entry((key.namespace.clone(), key.kind)).or_default().insert(key.name.clone());
        }
    }

    pub(super) fn remove(&mut self, versioned: &Versioned, index: &Index) {
        let key = &versioned.key;
        if let Some(ready) = &index.ready {
            let pool = (ready.line.namespace.clone(), ready.line.pool.clone());
            if let Some(lines) = self.ready.get_mut(&pool) {
                drop_from(lines, &ready.line.kind, |line| line.remove(&ready.order).is_some(), BTreeMap::is_empty);
                if lines.is_empty() {
                    self.ready.remove(&pool);
                }
            }
        }
        for due in &index.due {
            let place = (due.at, key.clone());
            drop_from(
                &mut self.due,
                &(key.namespace.clone(), due.index),
                |list| list.remove(&place),
                BTreeSet::is_empty,
            );
        }
        if let Some((line, place)) = waiting(versioned, index) {
            drop_from(&mut self.waiting, &line, |list| list.remove(&place), BTreeSet::is_empty);
        }
        for (listing, place) in listings(versioned, index) {
            drop_from(&mut self.listings, &listing, |list| list.remove(&place), BTreeSet::is_empty);
        }
        for cell in cells(key, index) {
            let last = |count: &u64| *count == 0;
            drop_from(&mut self.counts, &cell, |count| std::mem::replace(count, count.saturating_sub(1)) > 0, last);
        }
        if let Some(holder) = &index.holder {
            drop_from(&mut self.taken, &holder.claim, |keys| keys.remove(key), BTreeSet::is_empty);
        }
        if key.kind != RecordKind::Task {
            drop_from(
                &mut self.names,
                &(key.namespace.clone(), key.kind),
                |names| names.remove(&key.name),
                BTreeSet::is_empty,
            );
        }
    }

    pub(super) fn due(&self, query: &DueQuery) -> Vec<DueEntry> {
        let list = self.due.get(&(query.namespace.clone(), query.index)).into_iter().flatten();
        let due = list.take_while(|(at, _)| *at <= query.until).take(query.limit);
        due.map(|(at, key)| DueEntry { key: key.clone(), at: *at }).collect()
    }

    pub(super) fn counts(&self, scope: &CountScope) -> Counts {
        let mut counts = Counts::zero();
        for (phase, count) in &mut counts.by_phase {
            let cell = (scope.namespace.clone(), scope.pool.clone(), *phase);
            *count = self.counts.get(&cell).copied().unwrap_or(0);
        }
        counts
    }
}

/// Removes something from one of several collections, and the collection when it is empty.
fn drop_from<K: Ord, V>(
    map: &mut BTreeMap<K, V>,
    key: &K,
    remove: impl FnOnce(&mut V) -> bool,
    is_empty: fn(&V) -> bool,
) {
    let Some(found) = map.get_mut(key) else { return };
    remove(found);
    if is_empty(found) {
        map.remove(key);
    }
}

fn waiting(versioned: &Versioned, index: &Index) -> Option<(Line, (Timestamp, TaskId))> {
    let task = versioned.record.as_task()?;
    let due = index.due.iter().find(|due| due.index == DueIndex::Promote)?;
    Some((due.line.clone()?, (due.at, task.id().clone())))
}

fn listings(versioned: &Versioned, index: &Index) -> Vec<(Listing, Listed)> {
    let (Some(task), Some(count)) = (versioned.record.as_task(), &index.count) else { return Vec::new() };
    let namespace = || versioned.key.namespace.clone();
    let mut listings = vec![
        Listing::All(namespace()),
        Listing::Phase(namespace(), count.phase),
        Listing::Pool(namespace(), count.pool.clone()),
    ];
    listings.extend(index.group.clone().map(|group| Listing::Group(namespace(), group)));
    listings.extend(index.session.clone().map(|session| Listing::Session(namespace(), session)));
    listings.extend(index.holder.clone().map(|holder| Listing::Held(namespace(), holder.runner)));
    let place = (task.spec.created_at, task.id().clone());
    listings.into_iter().map(|listing| (listing, place.clone())).collect()
}

fn cells(key: &Key, index: &Index) -> Vec<(Namespace, Option<PoolName>, Phase)> {
    let Some(count) = &index.count else { return Vec::new() };
    [None, Some(count.pool.clone())].into_iter().map(|pool| (key.namespace.clone(), pool, count.phase)).collect()
}
