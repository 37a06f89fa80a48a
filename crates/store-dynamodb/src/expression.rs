//! Conditional writes as data: one change to one item, which goes alone or in a transaction.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;
use ekiden_core::commit::Expect;
use ekiden_core::id::OpId;
use ekiden_core::key::Key;

use crate::codec::{Encoded, Guard, Item, attributes as at, key_names, key_of, number, op, text};

/// A change to one item.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) table: String,
    pub(crate) key: Item,
    pub(crate) effect: Effect,
    pub(crate) condition: Option<String>,
    pub(crate) words: Words,
}

/// What is done to the item.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// By this update expression.
    Update(String),
    /// Made anew, with these attributes and its key: no expression to be read for what is not there yet.
    Create(Item),
    Delete,
    /// Nothing; only the condition counts.
    Check,
}

/// The names and values that expressions speak of. Every name has an alias: many of the document's words are reserved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    names: Vec<String>,
    values: Vec<AttributeValue>,
}

impl Words {
    pub(crate) fn name(&mut self, name: &str) -> String {
        let known = self.names.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        format!("#{at}")
    }

    pub(crate) fn value(&mut self, value: AttributeValue) -> String {
        self.values.push(value);
        format!(":{}", self.values.len() - 1)
    }

    /// DynamoDB refuses lists that are there and empty.
    pub(crate) fn names(&self) -> Option<HashMap<String, String>> {
        let names = self.names.iter().enumerate().map(|(at, name)| (format!("#{at}"), name.clone()));
        Some(names.collect::<HashMap<_, _>>()).filter(|names| !names.is_empty())
    }

    pub(crate) fn values(&self) -> Option<Item> {
        let values = self.values.iter().enumerate().map(|(at, value)| (format!(":{at}"), value.clone()));
        Some(values.collect::<Item>()).filter(|values| !values.is_empty())
    }
}

impl Change {
    /// Makes an item that is not there.
    pub(crate) fn create(table: String, key: &Key, encoded: Encoded, nonce: &str, by: OpId, expect: Expected) -> Self {
        let Expected { condition, words, .. } = expect;
        let (mut item, key) = (encoded.set, key_of(key));
        item.insert(at::REVISION.to_owned(), text(nonce));
        item.extend([at::LAST, at::CREATED_BY].map(|name| (name.to_owned(), op(by))));
        item.extend(key.clone());
        Self { table, key, effect: Effect::Create(item), condition, words }
    }

    /// Creates or replaces what we know of an item; attributes of other programs stay.
    pub(crate) fn put(table: String, key: &Key, encoded: Encoded, nonce: &str, by: OpId, expect: Expected) -> Self {
        let Expected { condition, mut words, guard } = expect;
        let encoded = match &guard {
            Some(guard) => encoded.without_known(guard),
            None => encoded,
        };
        let mut sets: Vec<String> = Vec::with_capacity(encoded.set.len() + 3);
        for (name, value) in encoded.set {
            let (name, value) = (words.name(&name), words.value(value));
            sets.push(format!("{name} = {value}"));
        }
        let (nonce, by) = (words.value(text(nonce)), words.value(op(by)));
        let (revision, last) = (words.name(at::REVISION), words.name(at::LAST));
        sets.push(format!("{revision} = {nonce}"));
        sets.push(format!("{last} = {by}"));
        // What an op of ours wrote before knows its creator.
        if !guard.is_some_and(|guard| guard.is_ours()) {
            let created = words.name(at::CREATED_BY);
            sets.push(format!("{created} = if_not_exists({created}, {by})"));
        }
        let mut update = format!("SET {}", sets.join(", "));
        if !encoded.remove.is_empty() {
            let removed: Vec<String> = encoded.remove.iter().map(|name| words.name(name)).collect();
            update = format!("{update} REMOVE {}", removed.join(", "));
        }
        Self { table, key: key_of(key), effect: Effect::Update(update), condition, words }
    }

    /// Adds to a counter, which begins at zero. `below` is what it must be below of before.
    pub(crate) fn add(table: String, key: &Key, by: i64, nonce: &str, op_id: OpId, below: Option<u32>) -> Self {
        let mut words = Words::default();
        let (count, revision) = (words.name(at::COUNT), words.name(at::REVISION));
        let (last, created) = (words.name(at::LAST), words.name(at::CREATED_BY));
        let (by, nonce, op_id) = (words.value(number(by)), words.value(text(nonce)), words.value(op(op_id)));
        let update = format!(
            "ADD {count} {by} SET {revision} = {nonce}, {last} = if_not_exists({last}, {op_id}), \
             {created} = if_not_exists({created}, {op_id})"
        );
        let condition = below.map(|below| {
            let below = words.value(number(below));
            format!("attribute_not_exists({count}) OR {count} < {below}")
        });
        Self { table, key: key_of(key), effect: Effect::Update(update), condition, words }
    }

    /// Removes an item.
    pub(crate) fn delete(table: String, key: &Key, expect: Expected) -> Self {
        let Expected { condition, words, .. } = expect;
        Self { table, key: key_of(key), effect: Effect::Delete, condition, words }
    }

    /// Only looks.
    pub(crate) fn check(table: String, key: &Key, expect: Expected) -> Self {
        let Expected { condition, words, .. } = expect;
        Self { table, key: key_of(key), effect: Effect::Check, condition, words }
    }
}

/// An expectation as a condition.
#[derive(Default)]
pub(crate) struct Expected {
    condition: Option<String>,
    words: Words,
    /// The revision that is expected, taken apart.
    guard: Option<Guard>,
}

/// The condition of an expectation. `Err` if the revision is none of this store: then nothing can have it.
pub(crate) fn expected(key: &Key, expect: &Expect) -> Result<Expected, NeverMet> {
    let (mut words, [hash, _]) = (Words::default(), key_names(key.kind));
    match expect {
        Expect::Any => Ok(Expected::default()),
        Expect::Absent => {
            let condition = Some(format!("attribute_not_exists({})", words.name(hash)));
            Ok(Expected { condition, words, guard: None })
        }
        Expect::At(revision) => {
            let guard = Guard::parse(key.kind, revision).ok_or(NeverMet)?;
            // Without it, an update of an item that nobody of ours wrote could create one that was deleted.
            let mut parts = vec![format!("attribute_exists({})", words.name(hash))];
            for (name, value) in &guard.parts {
                let name = words.name(name);
                parts.push(match value {
                    Some(value) => format!("{name} = {}", words.value(value.clone())),
                    None => format!("attribute_not_exists({name})"),
                });
            }
            Ok(Expected { condition: Some(parts.join(" AND ")), words, guard: Some(guard) })
        }
    }
}

/// No record can be as expected.
#[derive(Debug)]
pub(crate) struct NeverMet;
