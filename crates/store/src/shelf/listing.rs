//! Listings: start from the narrowest listing that the filter names, read a bounded number.

use std::ops::Bound;

use ekiden_core::filter::TaskFilter;
use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::record::Versioned;

use super::indexes::Lists;
use super::listed::Listed;
use super::run::Run;
use super::space::Slot;
use super::{Look, Shelf};
use crate::query::{ListOrder, Page, RecordQuery, TaskQuery};

/// What a listing came upon.
#[derive(Debug, Default)]
pub struct Scan {
    /// What matches, or may match: at most as many as were asked for, and no more once they have the bytes of a page.
    pub found: Vec<Candidate>,
    /// The last place that was looked at.
    pub last: Option<Listed>,
    /// Whether there are places behind it.
    pub more: bool,
}

/// A task that belongs into a listing, or may.
#[derive(Debug)]
pub struct Candidate {
    /// Its place.
    pub listed: Listed,
    /// The task, if it is here; then it matches. Otherwise its body has to be looked at.
    pub task: Option<Versioned>,
}

impl Candidate {
    pub(crate) fn here(self) -> Option<Versioned> {
        self.task
    }
}

impl Shelf {
    /// The tasks of a page that are here, in its order, behind a place.
    pub fn scan(&self, query: &TaskQuery, after: Option<&Listed>) -> Scan {
        let mut scan = Scan::default();
        let space = self.spaces.get(&query.filter.namespace);
        let Some((space, listing)) = space.and_then(|space| Some((space, narrowest(&space.lists, &query.filter)?)))
        else {
            return scan;
        };
        let place = |slot: &Slot| space.entries.place(*slot);
        let is_passed = |slot: &Slot| after.is_some_and(|after| place(slot) <= after);
        let is_left = |slot: &Slot| after.is_none_or(|after| place(slot) < after);
        let mut slots: Box<dyn Iterator<Item = &Slot>> = match query.order {
            ListOrder::OldestFirst => Box::new(listing.since(is_passed)),
            ListOrder::NewestFirst => Box::new(listing.until(is_left)),
        };
        let (mut last, mut bytes) = (None, 0);
        for slot in slots.by_ref().take(limits::PAGE_SCAN_MAX) {
            let entry = space.entries.at(*slot);
            last = Some(&entry.listed);
            let task = match entry.look(&query.filter.namespace) {
                Look::Here(versioned) if matches(&query.filter, &versioned) => Some(versioned),
                Look::Away => None,
                Look::Here(_) | Look::Nothing => continue,
            };
            bytes += task.as_ref().map_or(0, content_bytes);
            scan.found.push(Candidate { listed: entry.listed.clone(), task });
            if scan.found.len() == query.limit || bytes >= limits::PAGE_BYTES_MAX {
                break;
            }
        }
        scan.last = last.cloned();
        scan.more = slots.next().is_some();
        scan
    }

    /// A page of records that are no tasks.
    pub fn records(&self, query: &RecordQuery) -> Page<Versioned> {
        let lists = self.spaces.get(&query.namespace).map(|space| &space.lists);
        let Some(names) = lists.and_then(|lists| lists.names.get(&query.kind)) else {
            return Page { items: Vec::new(), cursor: None };
        };
        let from = match &query.cursor {
            Some(cursor) if cursor.as_str() >= query.prefix.as_str() => Bound::Excluded(cursor.as_str()),
            _ => Bound::Included(query.prefix.as_str()),
        };
        let mut matching = names
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(|name| name.starts_with(query.prefix.as_str()))
            .peekable();
        let page: Vec<_> = matching.by_ref().take(query.limit).collect();
        let cursor = matching.peek().and(page.last()).map(|name| name.to_string());
        let key = |name: &std::sync::Arc<str>| Key {
            kind: query.kind,
            namespace: query.namespace.clone(),
            name: name.clone(),
        };
        Page { items: page.into_iter().filter_map(|name| here(self.look(&key(name)))).collect(), cursor }
    }
}

/// The shortest listing that has all that the filter asks for; `None` where there is nothing.
fn narrowest<'a>(lists: &'a Lists, filter: &TaskFilter) -> Option<&'a Run<Slot>> {
    if let Some(runner) = &filter.held_by {
        lists.held.get(runner)
    } else if let Some(group) = &filter.group {
        lists.groups.get(group)
    } else if let Some(session) = &filter.session {
        lists.sessions.get(session)
    } else if let [phase] = filter.phases.as_slice() {
        Some(lists.phase(*phase))
    } else if let Some(pool) = &filter.pool {
        lists.pools.get(pool).map(|pool| &pool.all)
    } else {
        Some(&lists.all)
    }
}

fn matches(filter: &TaskFilter, versioned: &Versioned) -> bool {
    versioned.record.as_task().is_some_and(|task| filter.matches(task))
}

fn content_bytes(versioned: &Versioned) -> usize {
    versioned.record.as_task().map_or(0, |task| task.content_bytes())
}

fn here(look: Look) -> Option<Versioned> {
    if let Look::Here(versioned) = look { Some(versioned) } else { None }
}
