//! How records look on disk. Bytes in, records out, or an error that says what is wrong; no file is touched here.
//!
//! A **change** is what the log holds: a key and what became of it. A **card** is what the index needs to know of a task, so
//! that opening a store with a million tasks decodes none of them. A **sealed** value has a checksum over its key and itself,
//! so that neither a flipped bit nor a swapped page is ever taken for a record. `docs/formats.md` draws all three.

mod card;
mod change;
mod direct;
mod numbered;
mod reader;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use ekiden_core::key::RecordKind;
use ekiden_core::newer::{self, Versions};
use ekiden_core::record::Record;
use ekiden_core::task::{Spec, State, Task};
use serde::de::DeserializeOwned;

use numbered::put_named;

pub(crate) use card::{Card, put_card, read_card};
pub(crate) use change::{Change, ChangeReader, write_delete, write_put};
pub(crate) use direct::Pen;
pub(crate) use reader::{Reader, put_stamp};

/// The version that this program writes into every record, and the lowest that it lets write one of its records. A record with
/// fields that only a newer version understands keeps that one's.
pub(crate) const OURS: Versions = Versions { version: 3, min_writer: 1 };

/// 1 KiB: a payload up to this stands in the task's own value, where one read finds both; a larger one stands apart, so that a
/// change of state does not write it again.
pub(crate) const PAYLOAD_INLINE_MAX: usize = 1_024;

/// Why bytes are no record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// They end too early, or say impossible things.
    #[error("the bytes end in the middle or have an impossible length")]
    Short,
    /// The checksum is not theirs.
    #[error("the checksum does not fit")]
    Checksum,
    /// A text, number or name is not one.
    #[error("{0}")]
    Content(String),
    /// Written by a newer version, which allows no older one to write.
    #[error("written by version {version}, which older ones may not write")]
    TooNew {
        /// The version that wrote it.
        version: u8,
    },
}

/// Reads a value of a record with these versions. Only what a newer version wrote can have fields that are not known here, so
/// only that is looked at with care.
pub(crate) fn read_value<T: DeserializeOwned>(bytes: &[u8], versions: Versions) -> Result<T, Unreadable> {
    let plain = || rmp_serde::from_slice(bytes);
    let careful = || {
        let value = rmp_serde::from_slice(bytes).map_err(|error| error.to_string())?;
        newer::read(value, versions, false).map_err(|error| error.to_string())
    };
    let read = if versions.version > OURS.version { careful() } else { plain().map_err(|error| error.to_string()) };
    read.map_err(Unreadable::Content)
}

/// Appends a length and what is put.
fn sized<T>(into: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let at = into.len();
    into.extend_from_slice(&[0; 4]);
    let said = put(into);
    let bytes = u32::try_from(into.len() - at - 4).unwrap_or(u32::MAX);
    if let Some(length) = into.get_mut(at..at + 4) {
        length.copy_from_slice(&bytes.to_le_bytes());
    }
    said
}

/// The body of a task: state, spec, and the payload if it is small.
#[must_use]
pub(crate) fn put_body(task: &Task, pen: &mut Pen, into: &mut Vec<u8>) -> Versions {
    let state = sized(into, |into| pen.state(&task.state, into));
    let spec = sized(into, |into| pen.spec(&task.spec, into));
    let payload = &task.spec.envelope.payload;
    let inline = payload.len() <= PAYLOAD_INLINE_MAX;
    into.push(u8::from(inline));
    if inline {
        into.extend_from_slice(payload);
    }
    state.with(spec)
}

/// Reads what [`put_body`] wrote; `payload` brings one that stands apart.
pub(crate) fn read_body<E: From<Unreadable>>(
    reader: &mut Reader<'_>,
    payload: impl FnOnce() -> Result<Bytes, E>,
) -> Result<Task, E> {
    let versions = reader.versions();
    let state: State = read_value(reader.sized()?, versions)?;
    let mut spec: Spec = read_value(reader.sized()?, versions)?;
    let inline = reader.u8()? == 1;
    spec.envelope.payload = if inline { Bytes::copy_from_slice(reader.rest()) } else { payload()? };
    Ok(Task { spec: Arc::new(spec), state })
}

/// Appends a record that is no task, with the names of its fields, and says which versions it has.
#[must_use]
pub(crate) fn put_other(record: &Record, into: &mut Vec<u8>) -> Versions {
    put_named(record, into)
}

pub(crate) fn read_other(kind: RecordKind, bytes: &[u8], versions: Versions) -> Result<Record, Unreadable> {
    let record: Record = read_value(bytes, versions)?;
    if record.kind() == kind { Ok(record) } else { Err(Unreadable::Content("a record of another kind".to_owned())) }
}

/// 1 KiB: what most sealed values stay below, so that they are written without moving.
const SEALED_BYTES: usize = 1_024;

/// Puts the version before something of ours and a checksum before both. The checksum covers the key as well.
pub(crate) fn seal(key: &[u8], content: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    seal_record(key, |into| {
        content(into);
        OURS
    })
}

/// The same for a record, or a part of one, that says which versions it has.
pub(crate) fn seal_record(key: &[u8], content: impl FnOnce(&mut Vec<u8>) -> Versions) -> Vec<u8> {
    let mut value = Vec::with_capacity(SEALED_BYTES);
    value.extend_from_slice(&[0; 6]);
    let Versions { version, min_writer } = content(&mut value);
    if let Some(place) = value.get_mut(4..6) {
        place.copy_from_slice(&[version, min_writer]);
    }
    let checksum = checksum_of(key, value.get(4..).unwrap_or_default());
    if let Some(place) = value.get_mut(..4) {
        place.copy_from_slice(&checksum.to_le_bytes());
    }
    value
}

/// The content of a sealed value.
pub(crate) fn unseal<'a>(key: &[u8], value: &'a [u8]) -> Result<Reader<'a>, Unreadable> {
    let mut reader = Reader::new(value);
    let checksum = reader.u32()?;
    if checksum != checksum_of(key, reader.peek()) {
        return Err(Unreadable::Checksum);
    }
    reader.take_versions()?;
    Ok(reader)
}

/// Refuses a sealed value that this version may read, but not write.
pub(crate) fn check_writable(value: &[u8]) -> Result<(), Unreadable> {
    let [_, _, _, _, version, min_writer, ..] = value else { return Err(Unreadable::Short) };
    may_write(Versions { version: *version, min_writer: *min_writer })
}

fn may_write(Versions { version, min_writer }: Versions) -> Result<(), Unreadable> {
    if min_writer > OURS.version { Err(Unreadable::TooNew { version }) } else { Ok(()) }
}

fn checksum_of(key: &[u8], content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), content)
}

/// The number that stands for a kind of record on disk. Numbers are never given to another kind.
pub(crate) fn number_of(kind: RecordKind) -> u8 {
    u8::try_from(RecordKind::ALL.iter().position(|other| *other == kind).unwrap_or_default()).unwrap_or(u8::MAX)
}

pub(crate) fn kind_of(number: u8) -> Result<RecordKind, Unreadable> {
    let kind = RecordKind::ALL.get(usize::from(number)).copied();
    kind.ok_or_else(|| Unreadable::Content(format!("no kind of record has the number {number}")))
}
