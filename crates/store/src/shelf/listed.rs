//! A task's place in listings and lines: by creation, then by id.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use ekiden_core::id::{Namespace, TaskId};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::time::Timestamp;

use crate::error::StoreError;
use crate::query::wrong_cursor;

/// A name that compares as its text does. A generated id is kept as its bits: they compare and hash without a look at
/// another place in memory, which a million names would not have in any cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ident {
    /// The upper and lower bits; apart, they need no wider alignment than the rest.
    Generated(u64, u64),
    /// Any other text.
    Other(Arc<str>),
}

impl Ident {
    pub(crate) fn of(name: &Arc<str>) -> Self {
        TaskId::bits_of(name).map_or_else(|| Self::Other(name.clone()), Self::generated)
    }

    pub(crate) fn of_text(name: &str) -> Self {
        TaskId::bits_of(name).map_or_else(|| Self::Other(Arc::from(name)), Self::generated)
    }

    /// The name, of a task.
    pub(crate) fn task_id(&self) -> TaskId {
        match self {
            Self::Generated(upper, lower) => TaskId::from_bits(bits(*upper, *lower)),
            Self::Other(name) => TaskId::new(name).expect("a task's name was checked when it was made"),
        }
    }

    /// The key of the record with this name.
    pub(crate) fn key(&self, kind: RecordKind, namespace: &Namespace) -> Key {
        let name = match self {
            Self::Generated(upper, lower) => Key::task(namespace, &TaskId::from_bits(bits(*upper, *lower))).name,
            Self::Other(name) => name.clone(),
        };
        Key { kind, namespace: namespace.clone(), name }
    }

    fn generated(bits: u128) -> Self {
        let [upper, lower] = [bits >> 64, bits & u128::from(u64::MAX)];
        let half = |bits| u64::try_from(bits).expect("half of 128 bits are 64");
        Self::Generated(half(upper), half(lower))
    }
}

fn bits(upper: u64, lower: u64) -> u128 {
    u128::from(upper) << 64 | u128::from(lower)
}

impl Ord for Ident {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Generated(upper, lower), Self::Generated(upper_other, lower_other)) => {
                (upper, lower).cmp(&(upper_other, lower_other))
            }
            (Self::Generated(upper, lower), Self::Other(text)) => TaskId::compare_bits(bits(*upper, *lower), text),
            (Self::Other(text), Self::Generated(upper, lower)) => {
                TaskId::compare_bits(bits(*upper, *lower), text).reverse()
            }
            (Self::Other(one), Self::Other(other)) => one.cmp(other),
        }
    }
}

impl PartialOrd for Ident {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A place in a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    pub(crate) created_at: Timestamp,
    pub(crate) id: Ident,
}

impl Listed {
    /// The place of a task.
    pub fn new(created_at: Timestamp, id: &str) -> Self {
        Self { created_at, id: Ident::of_text(id) }
    }

    /// The place of a task with a generated id, by its bits.
    pub fn of_generated(created_at: Timestamp, bits: u128) -> Self {
        Self { created_at, id: Ident::generated(bits) }
    }

    /// The same task at another moment: in a list that is sorted by something else.
    pub fn at(self, at: Timestamp) -> Self {
        Self { created_at: at, ..self }
    }

    /// The bits of the task's id, if it was generated.
    pub fn generated(&self) -> Option<u128> {
        if let Ident::Generated(upper, lower) = self.id { Some(bits(upper, lower)) } else { None }
    }

    /// When the task was enqueued.
    pub const fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// The task's id.
    pub fn id(&self) -> Cow<'_, str> {
        match &self.id {
            Ident::Generated(upper, lower) => Cow::Owned(TaskId::from_bits(bits(*upper, *lower)).to_string()),
            Ident::Other(name) => Cow::Borrowed(name),
        }
    }

    /// The task's key.
    pub fn key(&self, namespace: &Namespace) -> Key {
        self.id.key(RecordKind::Task, namespace)
    }
}

/// A cursor that goes on behind a place.
pub fn cursor_of(listed: &Listed) -> String {
    format!("{}:{}", listed.created_at.as_millis(), listed.id())
}

/// The place behind which a cursor goes on.
pub fn parse_cursor(cursor: &str) -> Result<Listed, StoreError> {
    let wrong = || StoreError::invalid(wrong_cursor(cursor));
    let (millis, id) = cursor.split_once(':').ok_or_else(wrong)?;
    let created_at = millis.parse().map(Timestamp::from_millis).map_err(|_| wrong())?;
    let id = TaskId::new(id).map_err(|_| wrong())?;
    Ok(Listed::new(created_at, id.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;

    #[test]
    fn names_sort_like_their_texts() {
        let mut entropy = Entropy::from_seed(1);
        let mut texts: Vec<String> = ["", "a", "task", "task-", "task-0", "task-fffffff", "task-zz", "u", "受信箱"]
            .map(str::to_owned)
            .into_iter()
            .collect();
        for millis in [0, 1, 1_794_744_000_000, 1_794_744_000_000] {
            let id = entropy.task_id(Timestamp::from_millis(millis));
            texts.extend([id.to_string(), id.to_string().to_uppercase(), format!("{id}-"), format!("{id:.40}")]);
            texts.push(id.as_str().get(..30).unwrap().to_owned());
        }
        for one in &texts {
            for other in &texts {
                let (ident, ident_other) = (Ident::of_text(one), Ident::of(&Arc::from(other.as_str())));
                assert_eq!(ident.cmp(&ident_other), one.cmp(other), "{one} and {other}");
                assert_eq!(ident == ident_other, one == other);
            }
        }
    }
}
