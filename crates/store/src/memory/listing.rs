//! Listings on the memory store: start from the narrowest listing that the filter names, read a bounded number.

use std::ops::Bound;

use ekiden_core::filter::TaskFilter;
use ekiden_core::id::TaskId;
use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::record::Versioned;
use ekiden_core::time::Timestamp;

use super::Shelf;
use super::indexes::Lists;
use super::listed::{Ident, Listed};
use super::run::Run;
use super::space::Slot;
use crate::error::StoreError;
use crate::query::{ListOrder, Page, RecordQuery, TaskQuery, wrong_cursor};

impl Shelf {
    pub(super) fn tasks(&self, query: &TaskQuery) -> Result<Page<Versioned>, StoreError> {
        let after = query.cursor.as_deref().map(parse_cursor).transpose()?;
        let space = self.spaces.get(&query.filter.namespace);
        let Some((space, listing)) = space.and_then(|space| Some((space, narrowest(&space.lists, &query.filter)?)))
        else {
            return Ok(Page { items: Vec::new(), cursor: None });
        };
        let place = |slot: &Slot| space.entries.place(*slot);
        let is_passed = |slot: &Slot| after.as_ref().is_some_and(|after| place(slot) <= after);
        let is_left = |slot: &Slot| after.as_ref().is_none_or(|after| place(slot) < after);
        let mut slots: Box<dyn Iterator<Item = &Slot>> = match query.order {
            ListOrder::OldestFirst => Box::new(listing.since(is_passed)),
            ListOrder::NewestFirst => Box::new(listing.until(is_left)),
        };
        let mut items = Vec::new();
        let mut last = None;
        for slot in slots.by_ref().take(limits::PAGE_SCAN_MAX) {
            let entry = space.entries.at(*slot);
            last = Some(entry);
            if query.filter.matches(&entry.task) {
                items.push(entry.versioned());
            }
            if items.len() == query.limit {
                break;
            }
        }
        let more = slots.next().is_some();
        let cursor =
            last.filter(|_| more).map(|last| format!("{}:{}", last.listed.created_at.as_millis(), last.task.id()));
        Ok(Page { items, cursor })
    }

    pub(super) fn records(&self, query: &RecordQuery) -> Page<Versioned> {
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
        Page { items: page.into_iter().filter_map(|name| self.get(&key(name))).collect(), cursor }
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

fn parse_cursor(cursor: &str) -> Result<Listed, StoreError> {
    let wrong = || StoreError::invalid(wrong_cursor(cursor));
    let (millis, id) = cursor.split_once(':').ok_or_else(wrong)?;
    let created_at = millis.parse().map(Timestamp::from_millis).map_err(|_| wrong())?;
    let id = TaskId::new(id).map_err(|_| wrong())?;
    Ok(Listed { created_at, id: Ident::of_text(id.as_str()) })
}
