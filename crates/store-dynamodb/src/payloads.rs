//! Large payloads apart from their tasks: an item of our own table each, written once before the task and read with it. A task's item
//! is written with every step of its life, and the documented index holds it whole, so a kilobyte in it costs eight units.
//!
//! The item is named by the task and the op that created it, so that no later task of the same id ever loses its payload to an
//! earlier one. An op that ends between the two writes leaves a payload that belongs to nobody; a full check finds it.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::id::{Namespace, OpId};
use ekiden_core::key::{Key, RecordKind, SEPARATOR};
use ekiden_core::record::Record;
use ekiden_store::StoreError;

use crate::codec::{self, Encoded, Item, attributes as at, get_text, text};
use crate::expression::{Change, Effect, Words};
use crate::shared::Shared;

/// What the partitions of payloads begin with.
pub(crate) const PARTITION: &str = "\u{1f}payloads";

/// The payload of a new task that stands apart.
fn apart(write: &Write) -> Option<&[u8]> {
    match (&write.action, &write.expect) {
        // A task that is there keeps its payload: what was asked for never changes.
        (Action::Put(..), Expect::At(_)) => None,
        (Action::Put(Record::Task(task), _), _) => {
            codec::stands_apart(&task.spec).then_some(&*task.spec.envelope.payload)
        }
        _ => None,
    }
}

/// Says in the item of a new task where its payload is.
pub(crate) fn refer(write: &Write, by: OpId, encoded: &mut Encoded) {
    if apart(write).is_some() {
        encoded.set.insert(at::APART.to_owned(), text(reference(by)));
    }
}

fn reference(by: OpId) -> String {
    format!("{:032x}", by.as_bits())
}

fn key_of(namespace: &Namespace, id: &str, reference: &str) -> Item {
    Item::from([
        (at::PK.to_owned(), text(format!("{PARTITION}{SEPARATOR}{namespace}"))),
        (at::SK.to_owned(), text(format!("{id}{SEPARATOR}{reference}"))),
    ])
}

/// The key of the payload that an item of a task refers to.
fn key_in(item: &Item) -> Option<Item> {
    let key = codec::parse_key(RecordKind::Task, item)?;
    Some(key_of(&key.namespace, &key.name, get_text(item, at::APART)?))
}

impl Shared {
    /// Writes the large payloads of a commit's new tasks, before the commit itself.
    pub(crate) async fn store_payloads(&self, commit: &Commit) -> Result<(), StoreError> {
        for write in commit.writes() {
            let Some(payload) = apart(write) else { continue };
            let mut words = Words::default();
            let value = AttributeValue::B(Blob::new(payload.to_vec()));
            let (name, value) = (words.name(at::PAYLOAD), words.value(value));
            let put = Change {
                table: self.names.ekiden.clone(),
                key: key_of(&write.key.namespace, &write.key.name, &reference(commit.id())),
                effect: Effect::Update(format!("SET {name} = {value}")),
                condition: None,
                words,
            };
            self.change(&put).await?;
        }
        Ok(())
    }

    /// Removes the payloads of a commit that surely did not happen, or of tasks that a commit removed.
    pub(crate) async fn drop_payloads(&self, keys: Vec<Item>) {
        for key in keys {
            let table = self.names.ekiden.clone();
            let gone = Change { table, key, effect: Effect::Delete, condition: None, words: Words::default() };
            if let Err(failure) = self.change(&gone).await {
                tracing::warn!(error = %StoreError::from(failure), "a payload without a task is left behind");
            }
        }
    }

    /// The payloads that a commit wrote.
    pub(crate) fn new_payloads(commit: &Commit) -> Vec<Item> {
        let new = commit.writes().iter().filter(|write| apart(write).is_some());
        new.map(|write| key_of(&write.key.namespace, &write.key.name, &reference(commit.id()))).collect()
    }

    /// The payloads of tasks that a commit is about to remove. Asked for before, as nobody can tell afterwards.
    pub(crate) async fn payloads_to_go(&self, commit: &Commit) -> Result<Vec<Item>, StoreError> {
        let mut keys = Vec::new();
        for write in commit.writes() {
            if write.key.kind == RecordKind::Task && matches!(write.action, Action::Delete) {
                let table = self.table(RecordKind::Task);
                let item = self.get_item(table, &codec::key_of(&write.key)).await?;
                keys.extend(item.as_ref().and_then(key_in));
            }
        }
        Ok(keys)
    }

    /// Puts payloads that stand apart into the items that were read, as if they had been there.
    pub(crate) async fn fetch_payloads<'a>(&self, items: impl Iterator<Item = &'a mut Item>) -> Result<(), StoreError> {
        let waiting: Vec<(Item, &mut Item)> = items.filter_map(|item| Some((key_in(item)?, item))).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let keys = waiting.iter().map(|(key, _)| (self.names.ekiden.clone(), key.clone())).collect();
        let name = |item: &Item| Some((get_text(item, at::PK)?.to_owned(), get_text(item, at::SK)?.to_owned()));
        let mut found: HashMap<_, _> =
            self.get_items(keys).await?.into_iter().filter_map(|(_, item)| Some((name(&item)?, item))).collect();
        for (key, item) in waiting {
            let payload = name(&key).and_then(|name| found.remove(&name)).and_then(|mut item| item.remove(at::PAYLOAD));
            if let Some(payload) = payload {
                item.insert(at::PAYLOAD.to_owned(), payload);
            }
        }
        Ok(())
    }

    /// Whether a payload's task is there and refers to it.
    pub(crate) async fn has_task(&self, payload: &Item) -> Result<bool, StoreError> {
        let Some(task) = task_of(payload) else { return Ok(true) };
        let item = self.get_item(self.table(RecordKind::Task), &codec::key_of(&task)).await?;
        let refers = item.as_ref().and_then(key_in);
        Ok(refers.is_some_and(|key| key.iter().all(|(name, value)| payload.get(name) == Some(value))))
    }
}

/// The task that a payload belongs to; `None` for items that are no payloads.
pub(crate) fn task_of(payload: &Item) -> Option<Key> {
    let namespace = get_text(payload, at::PK)?.strip_prefix(PARTITION)?.strip_prefix(SEPARATOR)?;
    let (id, _) = get_text(payload, at::SK)?.rsplit_once(SEPARATOR)?;
    Some(Key { kind: RecordKind::Task, namespace: Namespace::new(namespace).ok()?, name: id.into() })
}
