//! Revisions (Q15): what we wrote last, and everything of the item that another program may write. A write names all of it.
//!
//! The parts are joined by a character that no word of ours contains. A task's revision also says how the task was counted,
//! because a transaction tells nobody what it replaced.

use aws_sdk_dynamodb::types::AttributeValue;
use ekiden_core::id::PoolName;
use ekiden_core::key::{RecordKind, SEPARATOR};
use ekiden_core::record::{Record, Revision};
use ekiden_core::task::Phase;

use super::attributes as at;
use super::{Item, get_text};

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
}

impl Guard {
    /// Takes a revision apart; `None` for one that this store never gave out.
    pub(crate) fn parse(kind: RecordKind, revision: &Revision) -> Option<Self> {
        let mut parts = revision.as_text()?.split(SEPARATOR);
        let value = |part: &str| (!part.is_empty()).then(|| AttributeValue::S(part.to_owned()));
        let mut guard = Self { parts: vec![(at::REVISION, value(parts.next()?))], counted: None };
        for name in watched(kind) {
            guard.parts.push((name, value(parts.next()?)));
        }
        if kind == RecordKind::Task {
            let (pool, phase) = (PoolName::new(parts.next()?).ok()?, parts.next()?);
            let phase = Phase::ALL.into_iter().find(|known| known.as_str() == phase)?;
            guard.counted = Some((pool, phase));
        }
        Some(guard)
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
    }
    Revision::text(&text)
}
