//! Lanes: tasks with one key, of which only so many may run or be open. The gate is at release, never at claim: a task
//! behind its lane has no ready entry, so no store and no foreign program can take it.

use serde::{Deserialize, Serialize};

use crate::id::{LaneKey, TaskId};
use crate::limits;
use crate::newer::Newer;
use crate::reason::{ReasonCode, Refusal};
use crate::task::State;
use crate::time::Timestamp;

/// How long a task keeps its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Until it reaches a final phase: strict order, also across retries. Serial keys and ordering keys.
    UntilFinal,
    /// While it may run or runs: a task that is not due yet has not joined, and a retry stands in line again. Concurrency per key.
    WhileRunning,
}

/// The lane that a task asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LaneSpec {
    /// Which lane.
    pub key: LaneKey,
    /// How many places it has.
    pub width: u32,
    /// How long a place is kept.
    pub hold: Hold,
}

impl LaneSpec {
    /// One at a time, in order, until each has ended.
    pub fn serial(key: LaneKey) -> Self {
        Self { key, width: 1, hold: Hold::UntilFinal }
    }

    /// Refuses widths that cannot be meant.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.width == 0 || self.width > limits::LANE_WIDTH_MAX {
            return Err(Refusal::new(ReasonCode::LaneInvalid)
                .with("lane", &self.key)
                .with("width", self.width)
                .with("width_max", limits::LANE_WIDTH_MAX));
        }
        Ok(())
    }
}

/// A task's place in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// It has no lane, or has not joined it (again).
    #[default]
    None,
    /// It stands in line, at this number.
    Waiting(u64),
    /// It has a place.
    Held,
}

/// The record of a lane. Whoever changes it names the revision read, so two tasks never get one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// How many places there are, by the word of its youngest member. An older one that joins late, or again, does not change it.
    pub width: u32,
    /// The number of the next who has to wait.
    pub next: u64,
    /// Who has a place.
    pub places: Vec<TaskId>,
    /// How many wait.
    pub waiting: u64,
    /// When the member was created whose word the width is.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub width_since: Timestamp,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_unset(at: &Timestamp) -> bool {
    *at == Timestamp::ZERO
}

impl Lane {
    /// A lane that nobody has joined.
    pub fn empty(width: u32) -> Self {
        Self { width, next: 0, places: Vec::new(), waiting: 0, width_since: Timestamp::ZERO, newer: Newer::NONE }
    }

    /// A member that was created at this moment asks for this width.
    pub fn set_width(&mut self, width: u32, created_at: Timestamp) {
        if created_at >= self.width_since {
            (self.width, self.width_since) = (width, created_at);
        }
    }

    /// A newcomer joins: gets a place if one is free and nobody waits, else a number.
    pub fn join(&mut self, task: &TaskId) -> Place {
        if self.waiting == 0 && self.has_room() {
            self.places.push(task.clone());
            return Place::Held;
        }
        let number = self.next;
        self.next += 1;
        self.waiting += 1;
        Place::Waiting(number)
    }

    /// A member leaves, from its place or from the line.
    pub fn leave(&mut self, task: &TaskId, place: Place) {
        match place {
            Place::Held => self.places.retain(|holder| holder != task),
            Place::Waiting(_) => self.waiting = self.waiting.saturating_sub(1),
            Place::None => {}
        }
    }

    /// The first who waits gets a place.
    pub fn admit(&mut self, task: &TaskId) {
        self.waiting = self.waiting.saturating_sub(1);
        self.places.push(task.clone());
    }

    /// Whether somebody who waits can be admitted now.
    pub fn can_admit(&self) -> bool {
        self.waiting > 0 && self.has_room()
    }

    /// Whether the record can go: nobody is in the lane. `next` starts again at zero then, which is sound for the same reason.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty() && self.waiting == 0
    }

    fn has_room(&self) -> bool {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX) < self.width
    }
}

/// A task that waits in its lane; the record's key holds lane and number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneMember {
    /// Who waits.
    pub task: TaskId,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

/// Gives a waiting task its place. The phase stays: it was queued before and is queued now, but from here on it can be claimed.
pub(crate) fn take_place(state: &mut State, now: Timestamp) {
    state.place = Place::Held;
    state.promoted = state.next_run_at <= now;
    state.updated_at = now;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> TaskId {
        TaskId::new(text).unwrap()
    }

    /// R20
    #[test]
    fn a_serial_lane_admits_one_and_numbers_the_rest_in_order() {
        let mut lane = Lane::empty(1);
        assert_eq!(lane.join(&id("a")), Place::Held);
        assert_eq!(lane.join(&id("b")), Place::Waiting(0));
        assert_eq!(lane.join(&id("c")), Place::Waiting(1));
        assert!(!lane.can_admit());
        lane.leave(&id("a"), Place::Held);
        assert!(lane.can_admit());
        assert_eq!(lane.join(&id("d")), Place::Waiting(2), "a newcomer never overtakes those who wait");
        lane.admit(&id("b"));
        lane.leave(&id("c"), Place::Waiting(1));
        lane.leave(&id("d"), Place::Waiting(2));
        lane.leave(&id("b"), Place::Held);
        assert!(lane.is_empty());
    }

    #[test]
    fn widths_of_zero_and_beyond_the_limit_are_refused() {
        let spec = |width| LaneSpec { key: LaneKey::new("k").unwrap(), width, hold: Hold::UntilFinal };
        assert_eq!(spec(0).check().unwrap_err().code, ReasonCode::LaneInvalid);
        assert_eq!(spec(257).check().unwrap_err().code, ReasonCode::LaneInvalid);
        assert!(spec(256).check().is_ok());
    }
}
