//! Who comes first. Two scales of priority meet in one rank, so that stores order by plain numbers.

use serde::{Deserialize, Serialize};

use crate::id::TaskId;
use crate::limits;
use crate::reason::{ReasonCode, Refusal};
use crate::time::Timestamp;

/// A task's priority: higher first, from −100 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(i32);

impl Priority {
    /// −10.
    pub const LOW: Self = Self(-10);
    /// 0, the default.
    pub const NORMAL: Self = Self(0);
    /// 10.
    pub const HIGH: Self = Self(10);
    /// 20.
    pub const URGENT: Self = Self(20);

    /// Checks the range.
    pub fn new(value: i32) -> Result<Self, Refusal> {
        if !(-limits::PRIORITY_MAX..=limits::PRIORITY_MAX).contains(&value) {
            return Err(Refusal::new(ReasonCode::PriorityOutOfRange)
                .with("value", value)
                .with("min", -limits::PRIORITY_MAX)
                .with("max", limits::PRIORITY_MAX));
        }
        Ok(Self(value))
    }

    /// The number.
    pub const fn get(self) -> i32 {
        self.0
    }
}

/// What stores sort by: smaller first. Made from a [`Priority`] or from a mailbox's number, which never meet in one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub i32);

impl From<Priority> for Rank {
    fn from(priority: Priority) -> Self {
        Self(-priority.0)
    }
}

/// The place of a task among those that can be claimed: rank, then creation, then id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Order {
    /// Smaller first.
    pub rank: Rank,
    /// Older first.
    pub created_at: Timestamp,
    /// Breaks ties, the same way everywhere.
    pub id: TaskId,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(priority: Priority, created_at: i64, id: &str) -> Order {
        Order { rank: priority.into(), created_at: Timestamp::from_millis(created_at), id: TaskId::new(id).unwrap() }
    }

    /// W9
    #[test]
    fn better_priority_first_then_first_in_first_out() {
        let mut line = [
            order(Priority::NORMAL, 1, "b"),
            order(Priority::LOW, 0, "z"),
            order(Priority::NORMAL, 1, "a"),
            order(Priority::URGENT, 9, "c"),
            order(Priority::HIGH, 9, "d"),
        ];
        line.sort();
        let ids: Vec<&str> = line.iter().map(|order| order.id.as_str()).collect();
        assert_eq!(ids, ["c", "d", "a", "b", "z"]);
    }

    #[test]
    fn priorities_out_of_range_are_refused() {
        for value in [-101, 101, i32::MAX, i32::MIN] {
            assert_eq!(Priority::new(value).unwrap_err().code, ReasonCode::PriorityOutOfRange);
        }
        assert_eq!(Priority::new(-100).unwrap().get(), -100);
    }
}
