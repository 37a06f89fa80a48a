//! Every other record, as an item of our own table: hash key is the namespace, range key the kind and the name.

use ekiden_core::index::Index;
use ekiden_core::key::{Key, RecordKind, SEPARATOR};
use ekiden_core::record::Record;

use super::attributes as at;
use super::{Encoded, Item, Unreadable, get_number, number, pack, places, text, unpack};

/// What all range keys of a kind begin with.
pub(crate) const fn prefix(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Task => "task\u{1f}",
        RecordKind::Runner => "runner\u{1f}",
        RecordKind::Pool => "pool\u{1f}",
        RecordKind::Lane => "lane\u{1f}",
        RecordKind::LaneMember => "member\u{1f}",
        RecordKind::Edge => "edge\u{1f}",
        RecordKind::Unique => "unique\u{1f}",
        RecordKind::Idempotency => "idempotency\u{1f}",
        RecordKind::Schedule => "schedule\u{1f}",
        RecordKind::Sweep => "sweep\u{1f}",
        RecordKind::Signal => "signal\u{1f}",
        RecordKind::Counter => "counter\u{1f}",
    }
}

pub(super) fn sort_key(kind: RecordKind, name: &str) -> String {
    format!("{}{name}", prefix(kind))
}

pub(super) fn parse_sort_key(sort_key: &str) -> Option<(RecordKind, &str)> {
    let (_, name) = sort_key.split_once(SEPARATOR)?;
    let kind = RecordKind::ALL.into_iter().find(|kind| sort_key.starts_with(prefix(*kind)))?;
    Some((kind, name))
}

pub(super) fn encode(record: &Record, index: &Index, key: &Key, encoded: &mut Encoded) {
    match record {
        Record::Counter(value) => encoded.put(at::COUNT, Some(number(value))),
        record => encoded.put(at::BODY, Some(pack(record))),
    }
    let due = index.due.first();
    encoded.put(at::DUE, due.map(|due| text(places::due(due.index, &key.namespace))));
    encoded.put(at::DUE_ORDER, due.map(|due| text(places::due_order(due.at, key.kind, &key.name))));
}

pub(super) fn decode(item: &Item) -> Result<Record, Unreadable> {
    match get_number(item, at::COUNT) {
        Some(value) => Ok(Record::Counter(value)),
        None => unpack(item, at::BODY),
    }
}
