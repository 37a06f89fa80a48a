//! What a newer version said and this one does not understand: fields without a name or number here, kept as they came. They
//! travel with the structure that they belong to, through every copy and change of it, and are written back behind the fields
//! that are known. A structure to which nothing was added carries one empty pointer.
//!
//! Whoever decodes a record that a newer version wrote does so through [`read`]; all others are decoded as ever.

mod read;
mod value;

use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use read::read;
pub use value::Value;
use value::{Folded, unfold};

/// The name under which a structure carries what it does not understand; no field has it. It is the last field wherever it
/// stands, so that it takes no number away from a field to come.
pub const FIELD: &str = "~";

/// Which version wrote a record, and the lowest that may write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Versions {
    /// The version whose fields it may have.
    pub version: u8,
    /// The lowest that may write it.
    pub min_writer: u8,
}

impl Versions {
    /// Where nobody said which version it was: newer than every program, so that each looks carefully.
    pub const UNTOLD: Self = Self { version: u8::MAX, min_writer: 1 };

    /// Both of each that is the higher: what holds for a whole of two parts.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { version: self.version.max(other.version), min_writer: self.min_writer.max(other.min_writer) }
    }
}

/// The fields of a structure that only a newer version understands. Nearly always none.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Newer(Option<Box<Said>>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Said {
    versions: Versions,
    /// By number or by name.
    fields: Vec<(Value, Value)>,
}

impl Newer {
    /// Nothing.
    pub const NONE: Self = Self(None);

    /// These fields, of a record with these versions.
    pub fn new(versions: Versions, fields: Vec<(Value, Value)>) -> Self {
        if fields.is_empty() { Self::NONE } else { Self(Some(Box::new(Said { versions, fields }))) }
    }

    /// Whether there is nothing that a version of this program's age could not say.
    pub const fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// The fields, by number or name.
    pub fn fields(&self) -> &[(Value, Value)] {
        self.0.as_ref().map_or(&[], |said| &said.fields)
    }

    /// Takes over what was said of the structure that this one replaces.
    pub(crate) fn inherit(&mut self, before: &Self) {
        if self.is_none() {
            self.clone_from(before);
        }
    }

    fn into_parts(self) -> Option<(Versions, Vec<(Value, Value)>)> {
        self.0.map(|said| (said.versions, said.fields))
    }
}

impl fmt::Debug for Newer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.fields()).finish()
    }
}

/// One list: version, lowest writer, and then each field, key and value.
impl Serialize for Newer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_text = serializer.is_human_readable();
        let versions = self.0.as_ref().map_or(Versions::UNTOLD, |said| said.versions);
        let mut list = serializer.serialize_seq(Some(2 + 2 * self.fields().len()))?;
        list.serialize_element(&versions.version)?;
        list.serialize_element(&versions.min_writer)?;
        for value in self.fields().iter().flat_map(|(key, value)| [key, value]) {
            if is_text { list.serialize_element(&Folded(value))? } else { list.serialize_element(value)? }
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for Newer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let is_text = deserializer.is_human_readable();
        deserializer.deserialize_seq(NewerVisitor { is_text })
    }
}

struct NewerVisitor {
    is_text: bool,
}

impl<'de> Visitor<'de> for NewerVisitor {
    type Value = Newer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a version, the lowest writer, and fields with their values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Newer, A::Error> {
        let short = || de::Error::custom("a version or a value is missing");
        let version = list.next_element()?.ok_or_else(short)?;
        let min_writer = list.next_element()?.ok_or_else(short)?;
        let whole = |value: Value| if self.is_text { unfold(value) } else { Some(value) };
        let mut fields = Vec::new();
        while let Some(key) = list.next_element()? {
            let (key, value) = (whole(key), list.next_element()?.ok_or_else(short)?);
            let field = key.filter(Value::is_key).zip(whole(value));
            fields.push(field.ok_or_else(|| de::Error::custom("no field looks like this"))?);
        }
        Ok(Newer::new(Versions { version, min_writer }, fields))
    }
}

#[cfg(test)]
mod tests;
