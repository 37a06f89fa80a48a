//! Changes: what the log holds, one behind another. A change of state does not repeat the spec.

use std::sync::Arc;

use bytes::Bytes;
use ekiden_core::id::Namespace;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::record::Record;
use ekiden_core::task::{Spec, State};
use ekiden_store::shelf::{Put, Stamp};

use super::reader::{put_stamp, put_text};
use super::{OURS, Pen, Reader, Unreadable, kind_of, may_write, number_of, put_other, read_other, read_value, sized};

/// What became of a record.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one at a time is read, and most are tasks")]
pub(crate) enum Change {
    /// It is gone.
    Deleted(Key, u64),
    /// A record that is no task is this.
    Other(Key, Stamp, Record),
    /// A task is this.
    Task(Key, Stamp, Spec, State),
    /// A task has this state, and the spec that it had.
    State(Key, Stamp, State),
}

const DELETED: u8 = 1;
/// Without versions, as they were written once; read for ever.
const OLD_OTHER: u8 = 2;
const OLD_TASK: u8 = 3;
const OLD_STATE: u8 = 4;
/// The number is followed by the versions of the record.
const OTHER: u8 = 5;
const TASK: u8 = 6;
const STATE: u8 = 7;

pub(crate) fn write_delete(key: &Key, revision: u64, into: &mut Vec<u8>) {
    into.push(DELETED);
    write_key(key, into);
    into.extend_from_slice(&revision.to_le_bytes());
}

pub(crate) fn write_put(put: &Put<'_>, pen: &mut Pen, into: &mut Vec<u8>) {
    let at = into.len();
    let begin = |what: u8, into: &mut Vec<u8>| {
        into.extend_from_slice(&[what, 0, 0]);
        write_key(put.key, into);
        put_stamp(&put.stamp, into);
    };
    let versions = match put.record {
        Record::Task(task) if put.same_spec => {
            begin(STATE, into);
            sized(into, |into| pen.state(&task.state, into))
        }
        Record::Task(task) => {
            begin(TASK, into);
            let state = sized(into, |into| pen.state(&task.state, into));
            let spec = sized(into, |into| pen.spec(&task.spec, into));
            let payload = &task.spec.envelope.payload;
            into.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
            into.extend_from_slice(payload);
            state.with(spec)
        }
        record => {
            begin(OTHER, into);
            sized(into, |into| put_other(record, into))
        }
    };
    if let Some(place) = into.get_mut(at + 1..at + 3) {
        place.copy_from_slice(&[versions.version, versions.min_writer]);
    }
}

/// The changes of one batch.
pub(crate) struct ChangeReader<'a>(Reader<'a>);

impl<'a> ChangeReader<'a> {
    pub(crate) const fn new(batch: &'a [u8]) -> Self {
        Self(Reader::new(batch))
    }
}

impl Iterator for ChangeReader<'_> {
    type Item = Result<Change, Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let change = read_change(&mut self.0);
        if change.is_err() {
            // What follows cannot be told apart any more.
            self.0.rest();
        }
        Some(change)
    }
}

fn read_change(reader: &mut Reader<'_>) -> Result<Change, Unreadable> {
    let what = reader.u8()?;
    let versions = if matches!(what, OTHER | TASK | STATE) { reader.take_versions()? } else { OURS };
    // Whoever replays a change writes it into the checkpoint, so one that may not write it may not replay it either.
    may_write(versions)?;
    let key = read_key(reader)?;
    if what == DELETED {
        return Ok(Change::Deleted(key, reader.u64()?));
    }
    let stamp = reader.stamp()?;
    match what {
        OTHER | OLD_OTHER => {
            let record = read_other(key.kind, reader.sized()?, versions)?;
            Ok(Change::Other(key, stamp, record))
        }
        TASK | OLD_TASK if key.kind == RecordKind::Task => {
            let state = read_value(reader.sized()?, versions)?;
            let mut spec: Spec = read_value(reader.sized()?, versions)?;
            spec.envelope.payload = Bytes::copy_from_slice(reader.sized()?);
            Ok(Change::Task(key, stamp, spec, state))
        }
        STATE | OLD_STATE if key.kind == RecordKind::Task => {
            Ok(Change::State(key, stamp, read_value(reader.sized()?, versions)?))
        }
        other => Err(Unreadable::Content(format!("no change has the number {other}"))),
    }
}

fn write_key(key: &Key, into: &mut Vec<u8>) {
    into.push(number_of(key.kind));
    put_text(key.namespace.as_str(), into);
    put_text(&key.name, into);
}

fn read_key(reader: &mut Reader<'_>) -> Result<Key, Unreadable> {
    let kind = kind_of(reader.u8()?)?;
    let namespace = Namespace::new(reader.text()?).map_err(|refusal| Unreadable::Content(refusal.to_string()))?;
    Ok(Key { kind, namespace, name: Arc::from(reader.text()?) })
}
