//! Tasks in few bytes: MessagePack in which the fields of a task's own structures, and the words of its life, are numbers and not
//! names. A number is a place: the third field of a structure is 2, and stays 2 for ever, so new fields and words go to the end.
//! Whatever is rare keeps its name. The ordinary reader of MessagePack understands both.
//!
//! What only a newer version understands goes among the other fields again, as it came.

use std::fmt;

use ekiden_core::newer::{self, Versions};
use rmp::encode as put;
use serde::Serialize;
use serde::ser::{self, Serializer};

use super::OURS;

/// Whether the fields of a structure are numbered. None of these is ever read by a tag or flattened, which needs names.
#[inline]
fn is_numbered(structure: &str) -> bool {
    matches!(structure, "State" | "Spec" | "TaskEnvelope" | "Attempt" | "HistoryLine" | "Lease" | "Policy")
}

/// Whether the words of a kind are numbers.
#[inline]
fn is_counted(words: &str) -> bool {
    matches!(words, "Phase" | "EventName" | "Outcome")
}

/// The structure whose payload stands apart from its task, as the bytes that it is. The one of a schedule's template does not.
const ENVELOPE: &str = "TaskEnvelope";

/// Appends a part of a task, and says which versions what was appended has.
#[must_use]
pub(crate) fn put_numbered<T: Serialize>(value: &T, into: &mut Vec<u8>) -> Versions {
    put_value(value, Names::Numbers, into)
}

/// Appends a value with the names of all its fields and words.
#[must_use]
pub(crate) fn put_named<T: Serialize>(value: &T, into: &mut Vec<u8>) -> Versions {
    put_value(value, Names::All, into)
}

fn put_value<T: Serialize>(value: &T, names: Names, into: &mut Vec<u8>) -> Versions {
    let mut to = Numbered { into, names, versions: OURS };
    value.serialize(&mut to).expect("a record has no value that cannot be written");
    to.versions
}

/// What stands for fields and words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// Their names.
    All,
    /// Numbers, for those that have one.
    Numbers,
}

struct Numbered<'a> {
    into: &'a mut Vec<u8>,
    names: Names,
    /// The highest versions of anything that was put so far.
    versions: Versions,
}

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

// What a task has most of is written here: a state is encoded at every change, and the ways of `rmp` lead through a writer
// that may fail. Both write the same bytes.

/// A number, in as few bytes as it needs.
#[inline]
pub(super) fn put_uint(into: &mut Vec<u8>, value: u64) {
    let [a, b, c, d, e, f, g, h] = value.to_be_bytes();
    match value {
        0..0x80 => into.push(h),
        0x80..0x100 => into.extend_from_slice(&[0xcc, h]),
        0x100..0x1_0000 => into.extend_from_slice(&[0xcd, g, h]),
        0x1_0000..0x1_0000_0000 => into.extend_from_slice(&[0xce, e, f, g, h]),
        _ => into.extend_from_slice(&[0xcf, a, b, c, d, e, f, g, h]),
    }
}

/// A text with its length.
#[inline]
pub(super) fn put_str(into: &mut Vec<u8>, text: &str) -> Written {
    match u8::try_from(text.len()) {
        Ok(length @ 0..0x20) => into.push(0xa0 | length),
        Ok(length) => into.extend_from_slice(&[0xd9, length]),
        Err(_) => return done(put::write_str(into, text)),
    }
    into.extend_from_slice(text.as_bytes());
    Ok(())
}

/// How many entries a map has, or how many items a list.
#[inline]
pub(super) fn put_len(into: &mut Vec<u8>, items: usize, list: List) -> Written {
    match (u8::try_from(items), list) {
        (Ok(items @ 0..0x10), List::Map) => into.push(0x80 | items),
        (Ok(items @ 0..0x10), List::Array) => into.push(0x90 | items),
        (_, List::Map) => return done(put::write_map_len(into, count(items)?)),
        (_, List::Array) => return done(put::write_array_len(into, count(items)?)),
    }
    Ok(())
}

/// What is counted.
#[derive(Clone, Copy)]
pub(super) enum List {
    Map,
    Array,
}

impl<'a, 'b> Numbered<'b> {
    /// A variant with content: a map of one entry.
    fn variant(&'a mut self, name: &str) -> Written {
        put_len(self.into, 1, List::Map)?;
        put_str(self.into, name)
    }

    fn array(&'a mut self, items: Option<usize>) -> Result<Items<'a, 'b>, Unwritable> {
        let items = items.ok_or_else(|| Unwritable("a list of unknown length".to_owned()))?;
        put_len(self.into, items, List::Array)?;
        Ok(Items(self))
    }

    fn map(&'a mut self, entries: Option<usize>) -> Result<Items<'a, 'b>, Unwritable> {
        let entries = entries.ok_or_else(|| Unwritable("a map of unknown length".to_owned()))?;
        put_len(self.into, entries, List::Map)?;
        Ok(Items(self))
    }

    #[inline]
    fn fields(&'a mut self, of: &'static str, entries: usize) -> Result<Fields<'a, 'b>, Unwritable> {
        let at = self.into.len();
        put_len(self.into, entries, List::Map)?;
        let numbers = self.names == Names::Numbers;
        let next = (numbers && is_numbered(of)).then_some(0);
        Ok(Fields { to: self, next, is_envelope: numbers && of == ENVELOPE, at, entries })
    }
}

/// How many bytes the number of a map's entries takes.
const fn head_bytes(entries: usize) -> usize {
    match entries {
        0..16 => 1,
        16..0x1_0000 => 3,
        _ => 5,
    }
}

/// The items of a list, or the keys and values of a map.
struct Items<'a, 'b>(&'a mut Numbered<'b>);

/// The fields of a structure.
struct Fields<'a, 'b> {
    to: &'a mut Numbered<'b>,
    /// The place of the next field, where places count.
    next: Option<u8>,
    /// Whether its payload stands apart.
    is_envelope: bool,
    /// Where its bytes begin: with the number of its entries.
    at: usize,
    entries: usize,
}

impl Fields<'_, '_> {
    #[inline]
    fn put<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Written {
        if name == newer::FIELD {
            return self.mix(value);
        }
        match &mut self.next {
            Some(place) => {
                put_uint(self.to.into, u64::from(*place));
                *place += 1;
            }
            None => put_str(self.to.into, name)?,
        }
        if self.is_envelope && name == "payload" {
            return put_str(self.to.into, "");
        }
        value.serialize(&mut *self.to)
    }

    /// Puts what only a newer version understands where it was: among the fields. Rare, so nobody minds that it is written twice.
    fn mix<T: Serialize + ?Sized>(&mut self, newer: &T) -> Written {
        let mut list = Vec::new();
        newer.serialize(&mut Numbered { into: &mut list, names: self.to.names, versions: OURS })?;
        let mut rest = list.as_slice();
        let wrong = |error: &dyn fmt::Display| Unwritable(error.to_string());
        let items = rmp::decode::read_array_len(&mut rest).map_err(|error| wrong(&error))?;
        let mut number = || rmp::decode::read_int::<u8, _>(&mut rest).map_err(|error| wrong(&error));
        let (version, min_writer) = (number()?, number()?);
        self.to.versions = self.to.versions.with(Versions { version, min_writer });
        self.to.into.extend_from_slice(rest);
        // It was counted as one entry, and may be some.
        let entries = count(self.entries - 1)? + (items - 2) / 2;
        let mut head = Vec::new();
        done(put::write_map_len(&mut head, entries))?;
        let old = head_bytes(self.entries);
        self.to.into.splice(self.at..self.at + old, head);
        Ok(())
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
        done(put::write_bool(self.into, value))
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
        match u64::try_from(value) {
            Ok(value) => self.serialize_u64(value),
            Err(_) => done(put::write_sint(self.into, value)),
        }
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
        put_uint(self.into, value);
        Ok(())
    }

    fn serialize_f32(self, value: f32) -> Written {
        done(put::write_f32(self.into, value))
    }

    fn serialize_f64(self, value: f64) -> Written {
        done(put::write_f64(self.into, value))
    }

    fn serialize_char(self, value: char) -> Written {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, value: &str) -> Written {
        put_str(self.into, value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Written {
        done(put::write_bin(self.into, value))
    }

    fn serialize_none(self) -> Written {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        done(put::write_nil(self.into))
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Written {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, of: &'static str, place: u32, name: &'static str) -> Written {
        let is_number = self.names == Names::Numbers && is_counted(of);
        if is_number { self.serialize_u32(place) } else { self.serialize_str(name) }
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
