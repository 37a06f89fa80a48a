//! Revisions (Q15): what we wrote last, and everything of the item that another program may write. A write names all of it.
//!
//! The parts are joined by a character that no word of ours contains. A task's revision also says how the task was counted,
//! because a transaction tells nobody what it replaced, and what was asked for, as a hash: a write that leaves it as it is need not
//! send it again.

use aws_sdk_dynamodb::types::AttributeValue;
use ekiden_core::hash;
use ekiden_core::id::PoolName;
use ekiden_core::key::{RecordKind, SEPARATOR};
use ekiden_core::record::{Record, Revision};
use ekiden_core::task::Phase;

use super::attributes as at;
use super::{Item, get_bytes, get_text};

/// What a foreign program may change of an item.
const fn watched(kind: RecordKind) -> &'static [&'static str] {
    match kind {
        RecordKind::Task => &[at::STATUS, at::CLAIMED_BY, at::UPDATED_AT],
        RecordKind::Runner => &[at::STATUS, at::LAST_HEARTBEAT],
        _ => &[],
    }
}

/// A revision taken apart: attributes that must have these values, or not be there.
pub(crate) struct Guard {
    /// Attribute and value; `None` means that it must not be there.
    pub(crate) parts: Vec<(&'static str, Option<AttributeValue>)>,
    /// How the task was counted.
    pub(crate) counted: Option<(PoolName, Phase)>,
    /// What was asked for, as a hash.
    asked: Option<u64>,
}

impl Guard {
    /// Takes a revision apart; `None` for one that this store never gave out.
    pub(crate) fn parse(kind: RecordKind, revision: &Revision) -> Option<Self> {
        let mut parts = revision.as_text()?.split(SEPARATOR);
        let value = |part: &str| (!part.is_empty()).then(|| AttributeValue::S(part.to_owned()));
        let mut guard = Self { parts: vec![(at::REVISION, value(parts.next()?))], counted: None, asked: None };
        for name in watched(kind) {
            guard.parts.push((name, value(parts.next()?)));
        }
        if kind == RecordKind::Task {
            let (pool, phase) = (PoolName::new(parts.next()?).ok()?, parts.next()?);
            let phase = Phase::ALL.into_iter().find(|known| known.as_str() == phase)?;
            guard.counted = Some((pool, phase));
            guard.asked = parts.next().and_then(|hash| u64::from_str_radix(hash, 16).ok());
        }
        Some(guard)
    }

    /// Whether an op of ours wrote the item.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.parts.first(), Some((_, Some(_))))
    }

    /// Whether the item has what was asked for as these attributes say it.
    pub(super) fn has_asked(&self, attributes: &Item) -> bool {
        self.is_ours() && self.asked == Some(asked(attributes))
    }
}

/// The revision of an item as read.
pub(super) fn of_item(record: &Record, item: &Item) -> Revision {
    of_parts(record, get_text(item, at::REVISION).unwrap_or_default(), item)
}

/// The revision of an item with these attributes.
pub(super) fn of_parts(record: &Record, nonce: &str, item: &Item) -> Revision {
    let mut text = nonce.to_owned();
    let mut push = |part: &str| {
        text.push(SEPARATOR);
        text.push_str(part);
    };
    for name in watched(record.kind()) {
        push(get_text(item, name).unwrap_or_default());
    }
    if let Record::Task(task) = record {
        push(task.spec.pool.as_str());
        push(task.state.phase.as_str());
        push(&format!("{:x}", asked(item)));
    }
    Revision::text(&text)
}

/// What never changes in a task's life, as it is stored. A payload that stands apart is not part of it: it is written once.
fn asked(item: &Item) -> u64 {
    let texts = [at::FORM, at::PROMPT].map(|name| get_text(item, name).unwrap_or_default().as_bytes());
    let is_apart = get_text(item, at::FORM) == Some(super::task::FORM_APART);
    let bytes = [at::SPEC, at::PAYLOAD].map(|name| get_bytes(item, name).filter(|_| name == at::SPEC || !is_apart));
    let hashes = texts.into_iter().chain(bytes.map(Option::unwrap_or_default)).map(hash::of_bytes);
    hash::of_bytes(&hashes.flat_map(u64::to_be_bytes).collect::<Vec<u8>>())
}
