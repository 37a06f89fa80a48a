//! Cards: what the index knows of a task. They follow from the record, as index entries do, and spare an open the decoding.

use ekiden_core::id::{GroupId, Kind, PoolName, SessionId};
use ekiden_core::index::{Due, DueIndex, Dues, Index, Ready};
use ekiden_core::order::Rank;
use ekiden_core::reason::Refusal;
use ekiden_core::task::Phase;
use ekiden_core::time::Timestamp;
use ekiden_store::shelf::{Names, Stamp};

use super::reader::{put_stamp, put_text};
use super::{Reader, Unreadable};

/// What the index knows of a task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) created_at: Timestamp,
    pub(crate) stamp: Stamp,
    pub(crate) index: Index,
    pub(crate) names: Names,
}

/// Stands for "no phase".
const NONE: u8 = u8::MAX;

pub(crate) fn put_card(card: &Card, into: &mut Vec<u8>) {
    let Card { created_at, stamp, index, names } = card;
    put_time(*created_at, into);
    put_stamp(stamp, into);
    into.push(index.phase.map_or(NONE, |phase| phase as u8));
    into.push(u8::from(index.held));
    into.push(u8::from(index.ready.is_some()));
    if let Some(ready) = index.ready {
        into.extend_from_slice(&ready.rank.0.to_le_bytes());
        put_time(ready.at, into);
    }
    into.push(u8::try_from(index.due.len()).unwrap_or(u8::MAX));
    for Due { index, at } in &index.due {
        into.push(*index as u8);
        put_time(*at, into);
    }
    let optional = |name: Option<&str>| name.unwrap_or_default().to_owned();
    put_text(names.pool.as_str(), into);
    put_text(names.kind.as_str(), into);
    put_text(&optional(names.group.as_ref().map(GroupId::as_str)), into);
    put_text(&optional(names.session.as_ref().map(SessionId::as_str)), into);
}

pub(crate) fn read_card(reader: &mut Reader<'_>) -> Result<Card, Unreadable> {
    let (created_at, stamp) = (reader.time()?, reader.stamp()?);
    let phase = match reader.u8()? {
        NONE => None,
        number => Some(*Phase::ALL.get(usize::from(number)).ok_or(Unreadable::Short)?),
    };
    let held = reader.u8()? == 1;
    let ready = match reader.u8()? {
        1 => Some(Ready { rank: Rank(reader.i32()?), at: reader.time()? }),
        _ => None,
    };
    let count = reader.u8()?;
    let due: Result<Dues, Unreadable> = (0..count)
        .map(|_| {
            let number = reader.u8()?;
            let index = DueIndex::ALL.get(usize::from(number)).ok_or(Unreadable::Short)?;
            Ok(Due { index: *index, at: reader.time()? })
        })
        .collect();
    let index = Index { ready, due: due?, phase, held };
    let pool = PoolName::new(reader.text()?).map_err(wrong_name)?;
    let kind = Kind::new(reader.text()?).map_err(wrong_name)?;
    let group = optional(reader.text()?).map(GroupId::new).transpose().map_err(wrong_name)?;
    let session = optional(reader.text()?).map(SessionId::new).transpose().map_err(wrong_name)?;
    Ok(Card { created_at, stamp, index, names: Names { pool, kind, group, session } })
}

/// No id is empty.
fn optional(name: &str) -> Option<&str> {
    Some(name).filter(|name| !name.is_empty())
}

fn wrong_name(refusal: Refusal) -> Unreadable {
    Unreadable::Content(refusal.to_string())
}

fn put_time(at: Timestamp, into: &mut Vec<u8>) {
    into.extend_from_slice(&at.as_millis().to_le_bytes());
}
