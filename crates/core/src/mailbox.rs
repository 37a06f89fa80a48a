//! What only messages in mailboxes have (seed 003). A message is a task, its recipient a pool, its type a kind.

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::order::Rank;
use crate::reason::{ReasonCode, Refusal};

/// A message's priority number: smaller first, default 5, 0 for none, which comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessagePriority(u32);

impl Default for MessagePriority {
    fn default() -> Self {
        Self(5)
    }
}

impl MessagePriority {
    /// Checks that it has five digits at most.
    pub fn new(number: u32) -> Result<Self, Refusal> {
        if number > limits::MAILBOX_PRIORITY_MAX {
            return Err(Refusal::new(ReasonCode::PriorityOutOfRange)
                .with("value", number)
                .with("min", 0)
                .with("max", limits::MAILBOX_PRIORITY_MAX));
        }
        Ok(Self(number))
    }

    /// The number as it was given.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number as it is written and sorted: none becomes the last.
    pub const fn sorted(self) -> u32 {
        if self.0 == 0 { limits::MAILBOX_PRIORITY_MAX } else { self.0 }
    }
}

impl From<MessagePriority> for Rank {
    fn from(priority: MessagePriority) -> Self {
        Self(i32::try_from(priority.sorted()).unwrap_or(i32::MAX))
    }
}

/// What a message has beyond a task. Ordering key, dedupe key and expiry are the task's lane, unique key and `expires_at`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MessageFields {
    /// Its priority number.
    pub priority: MessagePriority,
    /// Whether it replaces older, undelivered messages of its ordering key.
    #[serde(default)]
    pub supersede: bool,
}

impl MessageFields {
    /// Refuses numbers out of range.
    pub fn check(&self) -> Result<(), Refusal> {
        MessagePriority::new(self.priority.0).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M3
    #[test]
    fn smaller_numbers_first_and_none_last() {
        let rank = |number| Rank::from(MessagePriority::new(number).unwrap());
        assert!(rank(1) < rank(5) && rank(5) < rank(99_998));
        assert_eq!(rank(0), rank(99_999));
        assert_eq!(Rank::from(MessagePriority::default()), rank(5));
        assert_eq!(MessagePriority::new(100_000).unwrap_err().code, ReasonCode::PriorityOutOfRange);
    }
}
