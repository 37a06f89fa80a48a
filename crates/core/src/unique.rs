//! Unique keys and idempotency keys: two ways in which a second enqueue is not a second task.

use serde::{Deserialize, Serialize};

use crate::id::{TaskId, UniqueKey};
use crate::limits;
use crate::newer::Newer;
use crate::reason::Refusal;
use crate::time::{Millis, Timestamp};

/// How long a unique key is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UniqueHold {
    /// Until the task ends.
    WhileOpen,
    /// For this long after the enqueue, ended or not.
    For(Millis),
    /// Until the task is purged (a mailbox's dedupe key).
    WhileKept,
}

/// A key that only one task of a namespace may have at a time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Unique {
    /// The key.
    pub key: UniqueKey,
    /// How long it is taken.
    pub hold: UniqueHold,
}

impl Unique {
    /// Refuses periods that cannot be meant.
    pub fn check(&self) -> Result<(), Refusal> {
        match self.hold {
            UniqueHold::For(span) => span.check("unique.for", limits::DURATION_MAX).map(drop),
            UniqueHold::WhileOpen | UniqueHold::WhileKept => Ok(()),
        }
    }
}

/// The record behind a unique key or an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// The task that took the key.
    pub task: TaskId,
    /// When the record goes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

impl KeyRecord {
    /// Whether the key still answers for its task.
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|end| now < end)
    }
}
