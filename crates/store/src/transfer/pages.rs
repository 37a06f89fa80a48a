//! Reads everything that a store keeps, page by page: namespaces in order, and in each one kind after the other.

use std::collections::VecDeque;

use ekiden_core::filter::TaskFilter;
use ekiden_core::id::Namespace;
use ekiden_core::key::RecordKind;
use ekiden_core::limits;
use ekiden_core::record::Versioned;

use crate::error::StoreError;
use crate::query::{CountScope, Page, RecordQuery, TaskQuery};
use crate::store::Store;

/// Every kind, in an order in which nothing is there before what it stands on: a task finds its pool, lane, keys and
/// edges, and whatever acts by itself (schedules, sweeps, the end of a silent runner) finds the tasks.
pub(crate) const ORDER: [RecordKind; RecordKind::ALL.len()] = [
    RecordKind::Pool,
    RecordKind::Lane,
    RecordKind::LaneMember,
    RecordKind::Edge,
    RecordKind::Unique,
    RecordKind::Idempotency,
    RecordKind::Counter,
    RecordKind::Task,
    RecordKind::Signal,
    RecordKind::Schedule,
    RecordKind::Sweep,
    RecordKind::Runner,
];

/// The pages of a store.
pub(crate) struct Pages<'a> {
    store: &'a dyn Store,
    namespaces: Namespaces<'a>,
    /// The namespace that is being read, and the kinds that are left of it.
    current: Option<(Namespace, VecDeque<RecordKind>)>,
    cursor: Option<String>,
}

impl<'a> Pages<'a> {
    pub(crate) fn of(store: &'a dyn Store) -> Self {
        Self { store, namespaces: Namespaces::of(store), current: None, cursor: None }
    }

    /// The next page, which has at least one record; `None` when all was read.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Versioned>>, StoreError> {
        loop {
            let Some((namespace, kinds)) = &mut self.current else {
                let Some(namespace) = self.namespaces.next().await? else { return Ok(None) };
                self.current = Some((namespace, VecDeque::from(ORDER)));
                continue;
            };
            let Some(kind) = kinds.front().copied() else {
                self.current = None;
                continue;
            };
            let page = page_of(self.store, namespace, kind, self.cursor.take(), limits::TRANSFER_PAGE_ITEMS).await?;
            self.cursor = page.cursor;
            if self.cursor.is_none() {
                kinds.pop_front();
            }
            if !page.items.is_empty() {
                return Ok(Some(page.items));
            }
        }
    }
}

async fn page_of(
    store: &dyn Store,
    namespace: &Namespace,
    kind: RecordKind,
    cursor: Option<String>,
    limit: usize,
) -> Result<Page<Versioned>, StoreError> {
    let namespace = namespace.clone();
    if kind == RecordKind::Task {
        return store.tasks(TaskQuery { cursor, ..TaskQuery::oldest(TaskFilter::all(namespace), limit) }).await;
    }
    store.records(RecordQuery { namespace, kind, prefix: String::new(), cursor, limit }).await
}

/// Whether a namespace has any record. A store may list one that became empty.
pub(crate) async fn has_anything(store: &dyn Store, namespace: &Namespace) -> Result<bool, StoreError> {
    for kind in ORDER {
        let mut cursor = None;
        loop {
            let page = page_of(store, namespace, kind, cursor, 1).await?;
            if !page.items.is_empty() {
                return Ok(true);
            }
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
    }
    Ok(false)
}

/// How many tasks a namespace has.
pub(crate) async fn tasks_of(store: &dyn Store, namespace: Namespace) -> Result<u64, StoreError> {
    Ok(store.counts(CountScope { namespace, pool: None }).await?.by_phase.values().sum())
}

/// The namespaces of a store, in order, read as far as they are needed.
pub(crate) struct Namespaces<'a> {
    store: &'a dyn Store,
    read: VecDeque<Namespace>,
    /// The last one that was read.
    after: Option<Namespace>,
    ended: bool,
}

impl<'a> Namespaces<'a> {
    pub(crate) const fn of(store: &'a dyn Store) -> Self {
        Self { store, read: VecDeque::new(), after: None, ended: false }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<Namespace>, StoreError> {
        self.fill().await?;
        Ok(self.read.pop_front())
    }

    /// Whether one is among them. Whoever asks asks in order.
    pub(crate) async fn has(&mut self, name: &Namespace) -> Result<bool, StoreError> {
        loop {
            self.fill().await?;
            match self.read.front() {
                Some(front) if front < name => self.read.pop_front(),
                front => return Ok(front == Some(name)),
            };
        }
    }

    async fn fill(&mut self) -> Result<(), StoreError> {
        while self.read.is_empty() && !self.ended {
            let page = self.store.namespaces(self.after.clone(), limits::PAGE_ITEMS_MAX).await?;
            self.after = page.cursor.map(Namespace::new).transpose()?;
            self.ended = self.after.is_none();
            self.read.extend(page.items);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_turn() {
        for kind in RecordKind::ALL {
            assert_eq!(ORDER.iter().filter(|ordered| **ordered == kind).count(), 1, "{kind:?}");
        }
    }
}
