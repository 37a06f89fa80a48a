//! Reading with care: what a structure has no field for goes under [`FIELD`](super::FIELD), if it has that one.

use serde::de::value::{Error, StrDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::{FIELD, Newer, Value, Versions};

/// Reads something of a record with these versions. `is_text` says whether the value came from JSON, in which some things
/// look otherwise than in a binary format.
///
/// What was carried through a format that cannot mix it with the fields that are known is mixed in again here, so a program
/// that understands it does.
pub fn read<'de, T: Deserialize<'de>>(value: Value, versions: Versions, is_text: bool) -> Result<T, Error> {
    T::deserialize(Careful { value, how: How { versions, is_text } })
}

#[derive(Clone, Copy)]
struct How {
    versions: Versions,
    is_text: bool,
}

struct Careful {
    value: Value,
    how: How,
}

impl<'de> Deserializer<'de> for Careful {
    type Error = Error;

    fn is_human_readable(&self) -> bool {
        self.how.is_text
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let how = self.how;
        match self.value {
            Value::Nil => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Unsigned(value) => visitor.visit_u64(value),
            Value::Negative(value) => visitor.visit_i64(value),
            Value::Float(bits) => visitor.visit_f64(f64::from_bits(bits)),
            Value::Text(text) => visitor.visit_string(text.into_string()),
            Value::Bytes(bytes) => visitor.visit_byte_buf(bytes.into_vec()),
            Value::List(values) => visitor.visit_seq(Values { values: values.into_iter(), how }),
            Value::Map(entries) => visitor.visit_map(Entries::new(entries, Newer::NONE, how)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value == Value::Nil { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match (self.value, fields) {
            (Value::Map(entries), [known @ .., last]) if *last == FIELD => {
                let (known, newer) = part(entries, known, self.how)?;
                visitor.visit_map(Entries::new(known, newer, self.how))
            }
            (value, _) => Self { value, ..self }.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let how = self.how;
        match self.value {
            Value::Map(entries) => match <[_; 1]>::try_from(entries) {
                Ok([(name, content)]) => visitor.visit_enum(Variant { name, content: Some(content), how }),
                Err(_) => Err(de::Error::custom("a variant is a map of one entry")),
            },
            name => visitor.visit_enum(Variant { name, content: None, how }),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier
    }
}

/// Parts what a structure understands from what it does not.
fn part(entries: Vec<(Value, Value)>, known: &[&str], how: How) -> Result<(Vec<(Value, Value)>, Newer), Error> {
    let is_known = |key: &Value| match key {
        Value::Unsigned(number) => usize::try_from(*number).is_ok_and(|number| number < known.len()),
        Value::Text(name) => known.contains(&&**name),
        _ => false,
    };
    let (mut versions, mut ours, mut theirs) = (how.versions, Vec::with_capacity(entries.len()), Vec::new());
    for (key, value) in entries {
        if key == Value::text(FIELD) {
            let carried: Newer = Newer::deserialize(Careful { value, how })?;
            let Some((told, fields)) = carried.into_parts() else { continue };
            versions = told;
            let (again, still): (Vec<_>, Vec<_>) = fields.into_iter().partition(|(key, _)| is_known(key));
            ours.extend(again);
            theirs.extend(still);
        } else if is_known(&key) {
            ours.push((key, value));
        } else {
            theirs.push((key, value));
        }
    }
    Ok((ours, Newer::new(versions, theirs)))
}

struct Values {
    values: std::vec::IntoIter<Value>,
    how: How,
}

impl<'de> SeqAccess<'de> for Values {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let how = self.how;
        self.values.next().map(|value| seed.deserialize(Careful { value, how })).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.values.len())
    }
}

/// The entries of a map, and behind them what was not understood.
struct Entries {
    entries: std::vec::IntoIter<(Value, Value)>,
    value: Option<Value>,
    newer: Newer,
    how: How,
}

impl Entries {
    fn new(entries: Vec<(Value, Value)>, newer: Newer, how: How) -> Self {
        Self { entries: entries.into_iter(), value: None, newer, how }
    }
}

impl<'de> MapAccess<'de> for Entries {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        if let Some((key, value)) = self.entries.next() {
            self.value = Some(value);
            return seed.deserialize(Careful { value: key, how: self.how }).map(Some);
        }
        if self.newer.is_none() {
            return Ok(None);
        }
        let name: StrDeserializer<'_, Error> = FIELD.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        if let Some(value) = self.value.take() {
            return seed.deserialize(Careful { value, how: self.how });
        }
        let (versions, fields) = std::mem::take(&mut self.newer).into_parts().ok_or_else(|| {
            let missing: Error = de::Error::custom("a value is asked for before its key");
            missing
        })?;
        let mut list = vec![Value::Unsigned(versions.version.into()), Value::Unsigned(versions.min_writer.into())];
        list.extend(fields.into_iter().flat_map(|(key, value)| [key, value]));
        // As it is in a binary format, whatever the format is that the rest came from: nothing in it is folded.
        seed.deserialize(Careful { value: Value::List(list), how: How { is_text: false, ..self.how } })
    }
}

struct Variant {
    name: Value,
    content: Option<Value>,
    how: How,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(mut self, seed: V) -> Result<(V::Value, Self), Error> {
        let value = std::mem::replace(&mut self.name, Value::Nil);
        Ok((seed.deserialize(Careful { value, how: self.how })?, self))
    }
}

impl Variant {
    fn content(self) -> Careful {
        Careful { value: self.content.unwrap_or(Value::Nil), how: self.how }
    }
}

impl<'de> VariantAccess<'de> for Variant {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        <()>::deserialize(self.content())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.content())
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.content().deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Error> {
        self.content().deserialize_struct("", fields, visitor)
    }
}
