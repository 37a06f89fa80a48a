//! Keys of the checkpoint's tables. Ids have no control characters, so a zero byte ends each, and keys sort by their parts.

use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::task::Phase;
use ekiden_core::time::Timestamp;
use ekiden_store::shelf::Listed;

use crate::codec::{Unreadable, number_of};

const END: u8 = 0;

/// A list of tasks that rest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum List<'a> {
    Phase(Phase),
    Pool(&'a str),
    Group(&'a str),
    Session(&'a str),
    Purge,
}

impl List<'_> {
    /// What all keys of this list begin with.
    pub(crate) fn prefix(&self, namespace: &str) -> Vec<u8> {
        let mut prefix = Vec::with_capacity(96);
        self.write_prefix(namespace, &mut prefix);
        prefix
    }

    /// The same, into a buffer.
    pub(crate) fn write_prefix(&self, namespace: &str, key: &mut Vec<u8>) {
        key.extend_from_slice(namespace.as_bytes());
        key.push(END);
        let (tag, name) = match self {
            Self::Phase(phase) => (b's', phase.as_str()),
            Self::Pool(name) => (b'p', *name),
            Self::Group(name) => (b'g', *name),
            Self::Session(name) => (b'n', *name),
            Self::Purge => (b'd', ""),
        };
        key.push(tag);
        key.extend_from_slice(name.as_bytes());
        key.push(END);
    }
}

/// The key of a place in a list: by time, then by id. Moments are never negative.
pub(crate) fn listed(prefix: &[u8], place: &Listed) -> Vec<u8> {
    let id = place.id();
    let mut key = Vec::with_capacity(prefix.len() + 8 + id.len());
    key.extend_from_slice(prefix);
    key.extend_from_slice(&place.created_at().as_millis().to_be_bytes());
    key.extend_from_slice(id.as_bytes());
    key
}

/// The prefix of such a key, and the rest.
pub(crate) fn split_listed(key: &[u8]) -> Result<(&[u8], &[u8]), Unreadable> {
    let mut ends = key.iter().enumerate().filter(|(_, byte)| **byte == END).map(|(at, _)| at + 1);
    ends.nth(1).and_then(|end| key.split_at_checked(end)).ok_or(Unreadable::Short)
}

/// The place that an entry of a list stands for.
pub(crate) fn place(prefix: &[u8], key: &[u8]) -> Result<Listed, Unreadable> {
    let rest = key.strip_prefix(prefix).ok_or(Unreadable::Short)?;
    let (millis, id) = rest.split_first_chunk::<8>().ok_or(Unreadable::Short)?;
    let id = std::str::from_utf8(id).map_err(|error| Unreadable::Content(error.to_string()))?;
    Ok(Listed::new(Timestamp::from_millis(i64::from_be_bytes(*millis)), id))
}

/// The first key that no longer begins with this prefix. Prefixes end with a zero byte, so there is one.
pub(crate) fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

pub(crate) fn task(key: &Key) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(key.namespace.as_str().len() + key.name.len() + 1);
    bytes.extend_from_slice(key.namespace.as_str().as_bytes());
    bytes.push(END);
    bytes.extend_from_slice(key.name.as_bytes());
    bytes
}

pub(crate) fn other(key: &Key) -> Vec<u8> {
    let mut bytes = vec![number_of(key.kind)];
    bytes.extend_from_slice(&task(key));
    bytes
}

pub(crate) fn write_count(namespace: &Namespace, pool: &str, phase: Phase, key: &mut Vec<u8>) {
    key.extend_from_slice(namespace.as_str().as_bytes());
    key.push(END);
    key.extend_from_slice(pool.as_bytes());
    key.push(END);
    key.push(phase as u8);
}

/// The texts of a key: everything up to a zero byte, and what is behind it.
pub(crate) fn split(bytes: &[u8]) -> Result<(&str, &[u8]), Unreadable> {
    let at = bytes.iter().position(|byte| *byte == END).ok_or(Unreadable::Short)?;
    let (text, rest) = bytes.split_at(at);
    let text = std::str::from_utf8(text).map_err(|error| Unreadable::Content(error.to_string()))?;
    Ok((text, rest.get(1..).unwrap_or_default()))
}
