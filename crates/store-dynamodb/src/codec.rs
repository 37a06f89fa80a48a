//! How records look as items. Items in, records out, or an error that says what is wrong; nothing is sent from here.
//!
//! A task and a runner carry the attributes of the document, which other programs read and write, and ours beside them, all
//! named `ek_…`. Every other record is one value with its index entry. `docs/formats.md` lists them.

pub(crate) mod attributes;
mod foreign;
pub(crate) mod other;
pub(crate) mod places;
mod revision;
pub(crate) mod runner;
pub(crate) mod said;
mod short;
mod task;
#[cfg(test)]
mod tests;
mod words;

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use ekiden_core::id::{Namespace, OpId};
use ekiden_core::index::Index;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::record::{Record, Versioned};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use revision::Guard;
pub(crate) use task::stands_apart;

use attributes as at;

/// An item as DynamoDB gives and takes it.
pub(crate) type Item = HashMap<String, AttributeValue>;

/// The version that this program writes into every record, and the lowest that it lets write one of its records.
pub(crate) const RECORD_VERSION: u8 = 1;
/// See [`RECORD_VERSION`].
pub(crate) const MIN_WRITER: u8 = 1;

/// Why an item is no record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// An attribute that every such item has is not there, or is of another type.
    #[error("attribute {0} is missing or of another type")]
    Missing(&'static str),
    /// A text, number or name is not one.
    #[error("{0}")]
    Content(String),
    /// Written by a newer version, which allows no older one to write.
    #[error("written by version {version}, which older ones may not write")]
    TooNew {
        /// The version that wrote it.
        version: u64,
    },
}

/// What a put writes: attributes to set, and attributes that must not be there.
pub(crate) struct Encoded {
    pub(crate) set: Item,
    pub(crate) remove: Vec<&'static str>,
}

impl Encoded {
    /// Sets an attribute, or removes it where there is no value.
    fn put(&mut self, name: &'static str, value: Option<AttributeValue>) {
        match value {
            Some(value) => drop(self.set.insert(name.to_owned(), value)),
            None => self.remove.push(name),
        }
    }

    /// Leaves out what an item that meets a guard has already: every write of a task sent its whole payload otherwise.
    pub(crate) fn without_known(mut self, guard: &Guard) -> Self {
        if guard.has_asked(&self.set) {
            for name in task::ASKED {
                self.set.remove(name);
            }
            self.remove.retain(|name| !task::ASKED.contains(name));
        }
        self
    }

    /// Where the task stands, and its order there.
    pub(crate) fn place(&self) -> Option<(String, String)> {
        Some((get_text(&self.set, at::PLACE)?.to_owned(), get_text(&self.set, at::PLACE_ORDER)?.to_owned()))
    }
}

/// The attributes of a record but for its key and its stamp. `shards` is how many parts a line of ready tasks has.
pub(crate) fn encode(record: &Record, index: &Index, key: &Key, shards: u32) -> Encoded {
    let mut encoded = Encoded { set: Item::new(), remove: Vec::new() };
    encoded.put(at::VERSION, Some(number(RECORD_VERSION)));
    encoded.put(at::MIN_WRITER, Some(number(MIN_WRITER)));
    match record {
        Record::Task(task) => task::encode(task, index, shards, &mut encoded),
        Record::Runner(runner) => runner::encode(runner, &mut encoded),
        other => other::encode(other, index, key, &mut encoded),
    }
    encoded
}

/// The primary key of a record's item.
pub(crate) fn key_of(key: &Key) -> Item {
    let [hash, range] = key_names(key.kind);
    let (first, second) = match key.kind {
        RecordKind::Task | RecordKind::Runner => (key.namespace.to_string(), key.name.to_string()),
        kind => (key.namespace.to_string(), other::sort_key(kind, &key.name)),
    };
    Item::from([(hash.to_owned(), text(first)), (range.to_owned(), text(second))])
}

/// The names of the two attributes that make the primary key.
pub(crate) const fn key_names(kind: RecordKind) -> [&'static str; 2] {
    match kind {
        RecordKind::Task => [at::NAMESPACE, at::TASK_ID],
        RecordKind::Runner => [at::NAMESPACE, at::RUNNER_ID],
        _ => [at::PK, at::SK],
    }
}

/// The key of the record that an item of a table for this kind holds; `None` for items that are no records.
pub(crate) fn parse_key(kind: RecordKind, item: &Item) -> Option<Key> {
    let [hash, range] = key_names(kind);
    let namespace = Namespace::new(get_text(item, hash)?).ok()?;
    let name = get_text(item, range)?;
    let (kind, name) = match kind {
        RecordKind::Task | RecordKind::Runner => (kind, name),
        _ => other::parse_sort_key(name)?,
    };
    Some(Key { kind, namespace, name: name.into() })
}

/// The record of an item, as a store gives it.
pub(crate) fn decode(key: Key, item: &Item) -> Result<Versioned, Unreadable> {
    let min_writer = get_number(item, at::MIN_WRITER).unwrap_or(0);
    if min_writer > u64::from(RECORD_VERSION) {
        return Err(Unreadable::TooNew { version: get_number(item, at::VERSION).unwrap_or(min_writer) });
    }
    let record = match key.kind {
        RecordKind::Task => Record::Task(task::decode(&key, item)?.into()),
        RecordKind::Runner => Record::Runner(runner::decode(&key, item)?.into()),
        _ => other::decode(item)?,
    };
    let revision = revision::of_item(&record, item);
    let (created_by, last) = (get_op(item, at::CREATED_BY), get_op(item, at::LAST));
    Ok(Versioned { key, record, revision, created_by, last })
}

/// The revision of an item that is gone. Its payload may stand apart, and nobody asks for it any more.
pub(crate) fn counted(key: &Key, item: &Item) -> Option<ekiden_core::record::Revision> {
    let mut item = item.clone();
    item.entry(at::PAYLOAD.to_owned()).or_insert_with(|| AttributeValue::B(Blob::new(Vec::new())));
    decode(key.clone(), &item).ok().map(|found| found.revision)
}

/// The revision that a put leaves behind.
pub(crate) fn revision_of(record: &Record, nonce: &str, encoded: &Encoded) -> ekiden_core::record::Revision {
    revision::of_parts(record, nonce, &encoded.set)
}

pub(crate) fn text(value: impl Into<String>) -> AttributeValue {
    AttributeValue::S(value.into())
}

pub(crate) fn number(value: impl ToString) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

pub(crate) fn op(id: OpId) -> AttributeValue {
    AttributeValue::B(Blob::new(id.as_bits().to_be_bytes()))
}

pub(crate) fn get_text<'a>(item: &'a Item, name: &str) -> Option<&'a str> {
    item.get(name)?.as_s().ok().map(String::as_str)
}

pub(crate) fn get_number<T: std::str::FromStr>(item: &Item, name: &str) -> Option<T> {
    item.get(name)?.as_n().ok()?.parse().ok()
}

fn get_bytes<'a>(item: &'a Item, name: &str) -> Option<&'a [u8]> {
    item.get(name)?.as_b().ok().map(AsRef::as_ref)
}

/// Who wrote an item; zero for items that no op of ours wrote.
fn get_op(item: &Item, name: &str) -> OpId {
    let bits = get_bytes(item, name).and_then(|bytes| bytes.try_into().ok());
    OpId::from_bits(bits.map_or(0, u128::from_be_bytes))
}

/// MessagePack with the names of fields, so that fields can come and go; names that we know are short.
fn pack<T: Serialize>(value: &T) -> AttributeValue {
    let bytes = rmp_serde::to_vec_named(value).expect("a record has no value that cannot be written");
    AttributeValue::B(Blob::new(short::shorten(&bytes)))
}

fn unpack<T: DeserializeOwned>(item: &Item, name: &'static str) -> Result<T, Unreadable> {
    let bytes = get_bytes(item, name).ok_or(Unreadable::Missing(name))?;
    rmp_serde::from_slice(&short::lengthen(bytes)?).map_err(|error| Unreadable::Content(format!("{name}: {error}")))
}
