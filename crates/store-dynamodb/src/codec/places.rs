//! The texts that indexes are sorted by. Numbers have a fixed width, so that texts sort like what they stand for, and parts are
//! joined by a character that no id contains.

use ekiden_core::hash;
use ekiden_core::id::{GroupId, Kind, Namespace, PoolName, RunnerId, SessionId, TaskId};
use ekiden_core::index::DueIndex;
use ekiden_core::key::{Key, RecordKind, SEPARATOR};
use ekiden_core::order::Rank;
use ekiden_core::task::Spec;
use ekiden_core::time::Timestamp;

/// 15 digits hold every moment up to the year 9999 in milliseconds.
const MOMENT_DIGITS: usize = 15;

/// Two digits for the kind of a record in a due list.
const KIND_DIGITS: usize = 2;

fn join(parts: &[&str]) -> String {
    parts.join(&SEPARATOR.to_string())
}

const READY: &str = "ready";
const WAIT: &str = "wait";

/// A part of a line of claimable tasks.
pub(crate) fn ready(namespace: &Namespace, pool: &PoolName, kind: &Kind, shard: u32) -> String {
    join(&[READY, namespace.as_str(), pool.as_str(), kind.as_str(), &shard.to_string()])
}

/// The tasks of a line that are not due yet.
pub(crate) fn waiting(namespace: &Namespace, pool: &PoolName, kind: &Kind) -> String {
    join(&[WAIT, namespace.as_str(), pool.as_str(), kind.as_str()])
}

/// Whether a place is a part of a line of claimable tasks.
pub(crate) fn is_ready(place: &str) -> bool {
    place.split(SEPARATOR).next() == Some(READY)
}

/// Whether a place is a list of tasks that are not due yet.
pub(crate) fn is_waiting(place: &str) -> bool {
    place.split(SEPARATOR).next() == Some(WAIT)
}

/// The tasks that have to join their lane again.
pub(crate) fn rejoining(namespace: &Namespace) -> String {
    join(&["rejoin", namespace.as_str()])
}

/// What a runner holds.
pub(crate) fn held(namespace: &Namespace, runner: &RunnerId) -> String {
    join(&["held", namespace.as_str(), runner.as_str()])
}

/// What only another program brings further.
pub(crate) fn with_others(namespace: &Namespace) -> String {
    join(&["others", namespace.as_str()])
}

/// A group of a namespace.
pub(crate) fn group(namespace: &Namespace, group: &GroupId) -> String {
    join(&[namespace.as_str(), group.as_str()])
}

/// A session of a namespace.
pub(crate) fn session(namespace: &Namespace, session: &SessionId) -> String {
    join(&[namespace.as_str(), session.as_str()])
}

/// A due list of a namespace.
pub(crate) fn due(index: DueIndex, namespace: &Namespace) -> String {
    let name = match index {
        DueIndex::Promote => "promote",
        DueIndex::Rejoin => "rejoin",
        DueIndex::Lease => "lease",
        DueIndex::Expire => "expire",
        DueIndex::Purge => "purge",
        DueIndex::Runner => "runner",
        DueIndex::Sweep => "sweep",
        DueIndex::Schedule => "schedule",
        DueIndex::Forget => "forget",
        DueIndex::Foreign => "foreign",
    };
    join(&[name, namespace.as_str()])
}

/// The part of its line that a task stands in.
pub(crate) fn shard_of(id: &TaskId, shards: u32) -> u32 {
    u32::try_from(hash::of_bytes(id.as_str().as_bytes()) % u64::from(shards.max(1))).unwrap_or(0)
}

/// The order of claims: rank, creation, id. A rank may be negative, so it counts from the smallest there is.
pub(crate) fn claim_order(rank: Rank, spec: &Spec) -> String {
    format!("{:08x}{}", rank.0.abs_diff(i32::MIN), created_order(spec.created_at, spec.id.as_str()))
}

/// The order of listings: creation, id.
pub(crate) fn created_order(created_at: Timestamp, id: &str) -> String {
    format!("{}{id}", moment(created_at))
}

/// The order of a due list: moment, kind of record, name.
pub(crate) fn due_order(at: Timestamp, kind: RecordKind, name: &str) -> String {
    format!("{}{:0KIND_DIGITS$}{name}", moment(at), kind as u8)
}

/// What comes behind all that is due at a moment.
pub(crate) fn due_until(until: Timestamp) -> String {
    format!("{:0MOMENT_DIGITS$}", until.as_millis() + 1)
}

fn moment(at: Timestamp) -> String {
    format!("{:0MOMENT_DIGITS$}", at.as_millis())
}

/// The moment of an entry in a due list.
pub(crate) fn parse_moment(order: &str) -> Option<Timestamp> {
    Some(Timestamp::from_millis(order.get(..MOMENT_DIGITS)?.parse().ok()?))
}

/// The moment and the record of an entry in a due list.
pub(crate) fn parse_due_order(namespace: &Namespace, order: &str) -> Option<(Timestamp, Key)> {
    let (at, rest) = order.split_at_checked(MOMENT_DIGITS)?;
    let (kind, name) = rest.split_at_checked(KIND_DIGITS)?;
    let kind = *RecordKind::ALL.get(kind.parse::<usize>().ok()?)?;
    let at = Timestamp::from_millis(at.parse().ok()?);
    Some((at, Key { kind, namespace: namespace.clone(), name: name.into() }))
}

/// The creation and id of an entry in a listing.
pub(crate) fn parse_created_order(order: &str) -> Option<(Timestamp, &str)> {
    let (at, id) = order.split_at_checked(MOMENT_DIGITS)?;
    Some((Timestamp::from_millis(at.parse().ok()?), id))
}

/// Whether the id alone says when the task was made: it was generated at that very moment. Such tasks are listed by the
/// table itself, and cost no entry in the listing's index.
pub(crate) fn sorts_by_id(created_at: Timestamp, id: &str) -> bool {
    let bits = TaskId::bits_of(id);
    bits.is_some_and(|bits| i64::try_from(bits >> 80) == Ok(created_at.as_millis()))
}

/// What all ids that were generated at a moment or later sort behind.
pub(crate) fn first_id(at_ms: i64) -> String {
    format!("task-{:08x}-{:04x}", at_ms >> 16, at_ms & 0xffff)
}

/// Before and behind every generated id.
pub(crate) const GENERATED: [&str; 2] = ["task-", "task-g"];
