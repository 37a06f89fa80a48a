//! Which namespaces there are: a list in our own table. A namespace is entered before its first record is, and stays; whether
//! it still has anything is looked at when it is listed.

use std::collections::HashSet;

use ekiden_core::id::Namespace;
use ekiden_core::key::SEPARATOR;
use ekiden_store::{Page, StoreError};

use crate::client::Range;
use crate::codec::{Item, attributes as at, get_text, text};
use crate::expression::{Change, Effect, Words};
use crate::shared::{Shared, lock};

/// The namespaces that this process has entered.
pub(crate) type Known = HashSet<Namespace>;

impl Shared {
    /// Enters a namespace, unless this process did.
    pub(crate) async fn enter_namespace(&self, namespace: &Namespace) -> Result<(), StoreError> {
        if lock(&self.known).contains(namespace) {
            return Ok(());
        }
        let mut words = Words::default();
        let (name, value) = (words.name(at::VERSION), words.value(crate::codec::number(1)));
        let enter = Change {
            table: self.names.ekiden.clone(),
            key: Item::from([(at::PK.to_owned(), text(partition())), (at::SK.to_owned(), text(namespace.as_str()))]),
            effect: Effect::Update(format!("SET {name} = {value}")),
            condition: None,
            words,
        };
        self.change(&enter).await?;
        lock(&self.known).insert(namespace.clone());
        Ok(())
    }

    /// A page of the namespaces that have anything, behind one.
    pub(crate) async fn namespaces(
        &self,
        after: Option<Namespace>,
        limit: usize,
    ) -> Result<Page<Namespace>, StoreError> {
        let mut range = Range::of(&self.names.ekiden, None, at::PK, text(partition()));
        if let Some(after) = &after {
            range = range.only(at::SK, ">", text(after.as_str()));
        }
        let entered = self.query(&range, limit + 1).await?;
        let more = entered.len() > limit;
        let names: Vec<Namespace> =
            entered.iter().take(limit).filter_map(|item| Namespace::new(get_text(item, at::SK)?).ok()).collect();
        let cursor = names.last().filter(|_| more).map(ToString::to_string);
        let mut items = Vec::with_capacity(names.len());
        for name in names {
            if self.has_anything(&name).await? {
                items.push(name);
            }
        }
        Ok(Page { items, cursor })
    }

    async fn has_anything(&self, namespace: &Namespace) -> Result<bool, StoreError> {
        let names = &self.names;
        for (table, hash) in [(&names.queue, at::NAMESPACE), (&names.ekiden, at::PK), (&names.runners, at::NAMESPACE)] {
            let range = Range::of(table, None, hash, text(namespace.as_str()));
            if !self.query(&range, 1).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn partition() -> String {
    format!("{SEPARATOR}namespaces")
}
