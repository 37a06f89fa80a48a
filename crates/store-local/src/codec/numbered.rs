//! Tasks in few bytes: MessagePack in which the fields of a task's own structures, and the words of its life, are numbers and not
//! names. A number is a place: the third field of a structure is 2, and stays 2 for ever, so new fields and words go to the end.
//! Whatever is rare keeps its name. The ordinary reader of MessagePack understands both.

use std::fmt;

use rmp::encode as put;
use serde::Serialize;
use serde::ser::{self, Serializer};

/// The structures whose fields are numbered. None of them is ever read by a tag or flattened, which needs names.
const NUMBERED: [&str; 7] = ["State", "Spec", "TaskEnvelope", "Attempt", "HistoryLine", "Lease", "Policy"];

/// The words that are numbers.
const WORDS: [&str; 3] = ["Phase", "EventName", "Outcome"];

/// A payload stands apart from its task, as the bytes that it is.
const APART: (&str, &str) = ("TaskEnvelope", "payload");

/// Appends a value.
pub(crate) fn put_numbered<T: Serialize>(value: &T, into: &mut Vec<u8>) {
    value.serialize(&mut Numbered(into)).expect("a task has no value that cannot be written");
}

struct Numbered<'a>(&'a mut Vec<u8>);

/// What no task has.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unwritable(String);

impl ser::Error for Unwritable {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

type Written = Result<(), Unwritable>;

/// Memory takes everything.
fn done<T, E: fmt::Display>(written: Result<T, E>) -> Written {
    written.map(drop).map_err(|error| Unwritable(error.to_string()))
}

fn count(items: usize) -> Result<u32, Unwritable> {
    u32::try_from(items).map_err(|error| Unwritable(error.to_string()))
}

impl<'a, 'b> Numbered<'b> {
    /// A variant with content: a map of one entry.
    fn variant(&'a mut self, name: &str) -> Written {
        done(put::write_map_len(self.0, 1))?;
        done(put::write_str(self.0, name))
    }

    fn array(&'a mut self, items: Option<usize>) -> Result<Items<'a, 'b>, Unwritable> {
        let items = items.ok_or_else(|| Unwritable("a list of unknown length".to_owned()))?;
        done(put::write_array_len(self.0, count(items)?))?;
        Ok(Items(self))
    }

    fn map(&'a mut self, entries: Option<usize>) -> Result<Items<'a, 'b>, Unwritable> {
        let entries = entries.ok_or_else(|| Unwritable("a map of unknown length".to_owned()))?;
        done(put::write_map_len(self.0, count(entries)?))?;
        Ok(Items(self))
    }

    fn fields(&'a mut self, of: &'static str, entries: usize) -> Result<Fields<'a, 'b>, Unwritable> {
        done(put::write_map_len(self.0, count(entries)?))?;
        Ok(Fields { to: self, of, next: NUMBERED.contains(&of).then_some(0) })
    }
}

/// The items of a list, or the keys and values of a map.
struct Items<'a, 'b>(&'a mut Numbered<'b>);

/// The fields of a structure.
struct Fields<'a, 'b> {
    to: &'a mut Numbered<'b>,
    of: &'static str,
    /// The place of the next field, where places count.
    next: Option<u8>,
}

impl Fields<'_, '_> {
    fn put<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Written {
        match &mut self.next {
            Some(place) => {
                done(put::write_uint(self.to.0, u64::from(*place)))?;
                *place += 1;
            }
            None => done(put::write_str(self.to.0, name))?,
        }
        if (self.of, name) == APART {
            return done(put::write_str(self.to.0, ""));
        }
        value.serialize(&mut *self.to)
    }

    /// A field that is left out keeps its place.
    fn pass_over(&mut self) {
        if let Some(place) = &mut self.next {
            *place += 1;
        }
    }
}

impl<'a, 'b> Serializer for &'a mut Numbered<'b> {
    type Ok = ();
    type Error = Unwritable;
    type SerializeSeq = Items<'a, 'b>;
    type SerializeTuple = Items<'a, 'b>;
    type SerializeTupleStruct = Items<'a, 'b>;
    type SerializeTupleVariant = Items<'a, 'b>;
    type SerializeMap = Items<'a, 'b>;
    type SerializeStruct = Fields<'a, 'b>;
    type SerializeStructVariant = Fields<'a, 'b>;

    fn is_human_readable(&self) -> bool {
        false
    }

    fn serialize_bool(self, value: bool) -> Written {
        done(put::write_bool(self.0, value))
    }

    fn serialize_i8(self, value: i8) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(self, value: i64) -> Written {
        done(put::write_sint(self.0, value))
    }

    fn serialize_u8(self, value: u8) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(self, value: u64) -> Written {
        done(put::write_uint(self.0, value))
    }

    fn serialize_f32(self, value: f32) -> Written {
        done(put::write_f32(self.0, value))
    }

    fn serialize_f64(self, value: f64) -> Written {
        done(put::write_f64(self.0, value))
    }

    fn serialize_char(self, value: char) -> Written {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Written {
        done(put::write_str(self.0, value))
    }

    fn serialize_bytes(self, value: &[u8]) -> Written {
        done(put::write_bin(self.0, value))
    }

    fn serialize_none(self) -> Written {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        done(put::write_nil(self.0))
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Written {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, of: &'static str, place: u32, name: &'static str) -> Written {
        if WORDS.contains(&of) { self.serialize_u32(place) } else { self.serialize_str(name) }
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _of: &'static str,
        _place: u32,
        name: &'static str,
        value: &T,
    ) -> Written {
        self.variant(name)?;
        value.serialize(self)
    }

    fn serialize_seq(self, items: Option<usize>) -> Result<Self::SerializeSeq, Unwritable> {
        self.array(items)
    }

    fn serialize_tuple(self, items: usize) -> Result<Self::SerializeTuple, Unwritable> {
        self.array(Some(items))
    }

    fn serialize_tuple_struct(self, _name: &'static str, items: usize) -> Result<Items<'a, 'b>, Unwritable> {
        self.array(Some(items))
    }

    fn serialize_tuple_variant(
        self,
        _of: &'static str,
        _place: u32,
        name: &'static str,
        items: usize,
    ) -> Result<Items<'a, 'b>, Unwritable> {
        self.variant(name)?;
        self.array(Some(items))
    }

    fn serialize_map(self, entries: Option<usize>) -> Result<Self::SerializeMap, Unwritable> {
        self.map(entries)
    }

    fn serialize_struct(self, of: &'static str, entries: usize) -> Result<Self::SerializeStruct, Unwritable> {
        self.fields(of, entries)
    }

    fn serialize_struct_variant(
        self,
        _of: &'static str,
        _place: u32,
        name: &'static str,
        entries: usize,
    ) -> Result<Self::SerializeStructVariant, Unwritable> {
        self.variant(name)?;
        self.fields(name, entries)
    }
}

macro_rules! items {
    ($($list:ident :: $put:ident),+) => {$(
        impl ser::$list for Items<'_, '_> {
            type Ok = ();
            type Error = Unwritable;

            fn $put<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
                value.serialize(&mut *self.0)
            }

            fn end(self) -> Written {
                Ok(())
            }
        }
    )+};
}

items! {
    SerializeSeq::serialize_element, SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field, SerializeTupleVariant::serialize_field
}

impl ser::SerializeMap for Items<'_, '_> {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Written {
        key.serialize(&mut *self.0)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        value.serialize(&mut *self.0)
    }

    fn end(self) -> Written {
        Ok(())
    }
}

macro_rules! fields {
    ($($of:ident),+) => {$(
        impl ser::$of for Fields<'_, '_> {
            type Ok = ();
            type Error = Unwritable;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Written {
                self.put(name, value)
            }

            fn skip_field(&mut self, _name: &'static str) -> Written {
                self.pass_over();
                Ok(())
            }

            fn end(self) -> Written {
                Ok(())
            }
        }
    )+};
}

fields! { SerializeStruct, SerializeStructVariant }
