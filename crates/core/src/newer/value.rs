//! A value of which nothing is known but its shape.

use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value as a self-describing format gives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// Nothing.
    Nil,
    /// Yes or no.
    Bool(bool),
    /// A number from zero on.
    Unsigned(u64),
    /// A number below zero.
    Negative(i64),
    /// A number with a fraction, as its bits: they stay as they are.
    Float(u64),
    /// Text.
    Text(Box<str>),
    /// Bytes.
    Bytes(Box<[u8]>),
    /// Values.
    List(Vec<Value>),
    /// Values by key.
    Map(Vec<(Value, Value)>),
}

impl Value {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// Whether a field can be called so.
    pub(super) const fn is_key(&self) -> bool {
        matches!(self, Self::Unsigned(_) | Self::Text(_))
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Nil => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Negative(value) => serializer.serialize_i64(*value),
            Self::Float(bits) => serializer.serialize_f64(f64::from_bits(*bits)),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Bytes(value) => serializer.serialize_bytes(value),
            Self::List(values) => serializer.collect_seq(values),
            Self::Map(entries) => serializer.collect_map(entries.iter().map(|(key, value)| (key, value))),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nil)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Nil)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or(Value::Negative(value), Value::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value.to_bits()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::text(value))
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Value, E> {
        Ok(Value::Bytes(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}

/// Stands for bytes in a format of text.
const HEX: &str = "~hex";

/// Stands for a map whose keys are not all texts, in a format that has no other maps: key, value, key, value.
const MAP: &str = "~map";

/// A value on its way into a format of text, JSON, which has neither bytes nor keys that are numbers.
pub(super) struct Folded<'a>(pub(super) &'a Value);

impl Serialize for Folded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Bytes(bytes) => {
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                serializer.collect_map([(HEX, digits)])
            }
            Value::List(values) => serializer.collect_seq(values.iter().map(Folded)),
            Value::Map(entries) if entries.iter().all(|(key, _)| is_plain(key)) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, &Folded(value))?;
                }
                map.end()
            }
            Value::Map(entries) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(MAP, &Pairs(entries))?;
                map.end()
            }
            other => other.serialize(serializer),
        }
    }
}

/// Whether a key is a text that cannot be taken for one of ours.
fn is_plain(key: &Value) -> bool {
    matches!(key, Value::Text(name) if !name.starts_with('~'))
}

struct Pairs<'a>(&'a [(Value, Value)]);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(2 * self.0.len()))?;
        for value in self.0.iter().flat_map(|(key, value)| [key, value]) {
            list.serialize_element(&Folded(value))?;
        }
        list.end()
    }
}

/// The value that was folded; `None` if none is folded like this.
pub(super) fn unfold(value: Value) -> Option<Value> {
    let entries = match value {
        Value::List(values) => return values.into_iter().map(unfold).collect::<Option<_>>().map(Value::List),
        Value::Map(entries) => entries,
        other => return Some(other),
    };
    match entries.as_slice() {
        [(Value::Text(name), Value::Text(digits))] if **name == *HEX => {
            crate::payload::from_hex(digits).map(|bytes| Value::Bytes(bytes.as_ref().into()))
        }
        [(Value::Text(name), Value::List(_))] if **name == *MAP => {
            let Some((_, Value::List(values))) = entries.into_iter().next() else { return None };
            let mut values = values.into_iter().map(unfold);
            let mut pairs = Vec::with_capacity(values.len() / 2);
            while let Some(key) = values.next() {
                pairs.push((key?, values.next()??));
            }
            Some(Value::Map(pairs))
        }
        _ => {
            let unfolded = entries.into_iter().map(|(key, value)| Some((key, unfold(value)?)));
            unfolded.collect::<Option<_>>().map(Value::Map)
        }
    }
}
