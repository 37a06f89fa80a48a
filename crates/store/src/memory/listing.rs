//! Listings on the memory store: start from the narrowest listing that the filter names, read a bounded number.

use std::ops::Bound;

use ekiden_core::id::TaskId;
use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::record::Versioned;
use ekiden_core::time::Timestamp;

use super::Shelf;
use super::indexes::{Listed, Listing};
use crate::error::StoreError;
use crate::query::{ListOrder, Page, RecordQuery, TaskQuery, wrong_cursor};

impl Shelf {
    pub(super) fn tasks(&self, query: &TaskQuery) -> Result<Page<Versioned>, StoreError> {
        let after = query.cursor.as_deref().map(parse_cursor).transpose()?;
        let Some(listing) = self.indexes.listings.get(&narrowest(query)) else {
            return Ok(Page { items: Vec::new(), cursor: None });
        };
        let bound = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut places: Box<dyn Iterator<Item = &Listed>> = match query.order {
            ListOrder::OldestFirst => Box::new(listing.range((bound, Bound::Unbounded))),
            ListOrder::NewestFirst => Box::new(listing.range((Bound::Unbounded, bound)).rev()),
        };
        let mut items = Vec::new();
        let mut last = None;
        for place in places.by_ref().take(limits::PAGE_SCAN_MAX) {
            last = Some(place);
            let found = self.get(&Key::task(&query.filter.namespace, &place.1));
            items.extend(
                found.filter(|found| found.record.as_task().is_some_and(|task| query.filter.matches(task))).cloned(),
            );
            if items.len() == query.limit {
                break;
            }
        }
        let more = places.next().is_some();
        Ok(Page { items, cursor: last.filter(|_| more).map(|(at, id)| format!("{}:{id}", at.as_millis())) })
    }

    pub(super) fn records(&self, query: &RecordQuery) -> Page<Versioned> {
        let Some(names) = self.indexes.names.get(&(query.namespace.clone(), query.kind)) else {
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
        Page { items: page.into_iter().filter_map(|name| self.get(&key(name)).cloned()).collect(), cursor }
    }
}

fn narrowest(query: &TaskQuery) -> Listing {
    let filter = &query.filter;
    let namespace = || filter.namespace.clone();
    if let Some(runner) = &filter.held_by {
        Listing::Held(namespace(), runner.clone())
    } else if let Some(group) = &filter.group {
        Listing::Group(namespace(), group.clone())
    } else if let Some(session) = &filter.session {
        Listing::Session(namespace(), session.clone())
    } else if let [phase] = filter.phases.as_slice() {
        Listing::Phase(namespace(), *phase)
    } else if let Some(pool) = &filter.pool {
        Listing::Pool(namespace(), pool.clone())
    } else {
        Listing::All(namespace())
    }
}

fn parse_cursor(cursor: &str) -> Result<Listed, StoreError> {
    let wrong = || StoreError::invalid(wrong_cursor(cursor));
    let (millis, id) = cursor.split_once(':').ok_or_else(wrong)?;
    let at = millis.parse().map(Timestamp::from_millis).map_err(|_| wrong())?;
    Ok((at, TaskId::new(id).map_err(|_| wrong())?))
}
