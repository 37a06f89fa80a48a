//! Records by key and by name, always as they are now.

use std::collections::HashMap;

use ekiden_core::id::Namespace;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::record::Versioned;
use ekiden_store::{Page, RecordQuery, StoreError};

use crate::client::Range;
use crate::codec::said::{Said, said};
use crate::codec::{self, Item, key_names, key_of, other, text};
use crate::error;
use crate::shared::Shared;

impl Shared {
    /// Records in the order of the keys, as our own attributes have them.
    pub(crate) async fn get_raw(&self, keys: &[Key]) -> Result<Vec<Option<Versioned>>, StoreError> {
        let found = self.get_said(keys).await?.into_iter();
        Ok(found.map(|found| found.map(|(versioned, _)| versioned)).collect())
    }

    /// The same, each with what another program said of it.
    pub(crate) async fn get_said(&self, keys: &[Key]) -> Result<Vec<Option<(Versioned, Option<Said>)>>, StoreError> {
        if let [key] = keys {
            let mut item = self.get_item(self.table(key.kind), &key_of(key)).await?;
            self.fetch_payloads(item.iter_mut()).await?;
            return Ok(vec![item.map(|item| self.read_said(key.clone(), &item)).transpose()?]);
        }
        let mut places: HashMap<&Key, Vec<usize>> = HashMap::with_capacity(keys.len());
        for (at, key) in keys.iter().enumerate() {
            places.entry(key).or_default().push(at);
        }
        let wanted = places.keys().map(|key| (self.table(key.kind).to_owned(), key_of(key))).collect();
        let mut found: Vec<_> = keys.iter().map(|_| None).collect();
        let mut items = self.get_items(wanted).await?;
        self.fetch_payloads(items.iter_mut().map(|(_, item)| item)).await?;
        for (table, item) in items {
            let Some(key) = codec::parse_key(self.kind_in(&table), &item) else { continue };
            for at in places.get(&key).into_iter().flatten() {
                if let Some(place) = found.get_mut(*at) {
                    *place = Some(self.read_said(key.clone(), &item)?);
                }
            }
        }
        Ok(found)
    }

    fn read_said(&self, key: Key, item: &Item) -> Result<(Versioned, Option<Said>), StoreError> {
        let versioned = self.read(key, item)?;
        let said = said(&versioned.key, &versioned.record, item);
        Ok((versioned, said))
    }

    /// The record of an item.
    pub(crate) fn read(&self, key: Key, item: &Item) -> Result<Versioned, StoreError> {
        let place = key.to_string();
        codec::decode(key, item).map_err(|unreadable| error::unreadable(place, &unreadable))
    }

    /// The kind whose keys the items of a table have.
    pub(crate) fn kind_in(&self, table: &str) -> RecordKind {
        if table == self.names.queue {
            RecordKind::Task
        } else if table == self.names.runners {
            RecordKind::Runner
        } else {
            RecordKind::Counter
        }
    }

    /// A page of records of a kind, by name.
    pub(crate) async fn records(&self, query: &RecordQuery) -> Result<Page<Versioned>, StoreError> {
        let nothing = || Ok(Page { items: Vec::new(), cursor: None });
        let start = match &query.cursor {
            Some(cursor) if cursor.starts_with(&query.prefix) => Some(cursor),
            // Behind the last name that can begin so.
            Some(cursor) if *cursor > query.prefix => return nothing(),
            _ => None,
        };
        let after = start.map(|cursor| key_of(&named(query.kind, &query.namespace, cursor)));
        let range = Range { after, ..self.names_of(query.kind, &query.namespace, &query.prefix) };
        let mut items = self.query(&range, query.limit + 1).await?;
        self.fetch_payloads(items.iter_mut()).await?;
        let more = items.len() > query.limit;
        let mut page = Vec::with_capacity(items.len());
        for item in items.iter().take(query.limit) {
            if let Some(key) = codec::parse_key(query.kind, item) {
                page.push(self.read(key, item)?);
            }
        }
        let cursor = page.last().filter(|_| more).map(|last| last.key.name.to_string());
        Ok(Page { items: page, cursor })
    }

    /// All items of a kind whose names begin so.
    pub(crate) fn names_of(&self, kind: RecordKind, namespace: &Namespace, prefix: &str) -> Range {
        let [hash, range] = key_names(kind);
        let partition = Range::of(self.table(kind), None, hash, text(namespace.as_str()));
        match kind {
            RecordKind::Task | RecordKind::Runner => partition.beginning(range, prefix),
            kind => partition.beginning(range, &format!("{}{prefix}", other::prefix(kind))),
        }
    }
}

fn named(kind: RecordKind, namespace: &Namespace, name: &str) -> Key {
    Key { kind, namespace: namespace.clone(), name: name.into() }
}
