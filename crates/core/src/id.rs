//! Names of things. An id is checked once, when it is made; after that every holder may trust it.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::limits;
use crate::reason::{ReasonCode, Refusal};
use crate::time::Timestamp;

/// 1 to 128 bytes of UTF-8 without control characters. Stores that make file names of ids are narrower and say so themselves.
fn check(field: &'static str, text: &str) -> Result<(), Refusal> {
    let why = if text.is_empty() {
        "empty"
    } else if text.len() > limits::ID_BYTES_MAX {
        "longer than 128 bytes"
    } else if text.chars().any(char::is_control) {
        "control character"
    } else {
        return Ok(());
    };
    let shown: String = text.chars().take(64).flat_map(char::escape_default).collect();
    Err(Refusal::new(ReasonCode::IdInvalid).with("field", field).with("why", why).with("id", shown))
}

macro_rules! text_ids {
    ($($(#[$doc:meta])* $name:ident = $field:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text and makes it an id.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Refusal> {
                check($field, text.as_ref())?;
                Ok(Self(Arc::from(text.as_ref())))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Refusal;
            fn try_from(text: String) -> Result<Self, Refusal> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().to_owned()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }
    )+};
}

text_ids! {
    /// Names a task inside its namespace.
    TaskId = "task_id";
    /// Isolates tasks, pools, runners and records from those of other namespaces.
    Namespace = "namespace";
    /// Names a line of tasks; a mailbox's recipient is one too.
    PoolName = "pool";
    /// Selects the handler; `task_type` on the wire.
    Kind = "task_type";
    /// Names one incarnation of a runner: a restarted process has a new one.
    RunnerId = "runner_id";
    /// Tasks with one lane key share a lane.
    LaneKey = "lane";
    /// Groups tasks that belong together.
    GroupId = "group";
    /// The conversation or session that a task belongs to.
    SessionId = "session";
    /// A second enqueue with this key is recognised as a duplicate.
    UniqueKey = "unique_key";
    /// A repeated request with this key gets the first one's answer.
    IdempotencyKey = "idempotency_key";
    /// Names a schedule.
    ScheduleId = "schedule";
    /// Names a sweep.
    SweepId = "sweep";
    /// Names a question that a task asked.
    QuestionId = "question";
}

impl TaskId {
    /// A new id that sorts by creation: `task-` and a version 7 uuid from the given moment and 10 random bytes.
    pub fn generate(now: Timestamp, random: &[u8; 10]) -> Self {
        Self(Arc::from(format!("task-{}", v7(now, random))))
    }
}

/// Names one commit or claim. A caller makes it, and repeats it when a reply got lost, so that nothing happens twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OpId(Uuid);

impl OpId {
    /// From 128 bits that the caller drew.
    pub const fn from_bits(bits: u128) -> Self {
        Self(Uuid::from_u128(bits))
    }

    /// The 128 bits.
    pub const fn as_bits(self) -> u128 {
        self.0.as_u128()
    }

    /// A version 7 uuid from the given moment and 10 random bytes.
    pub fn generate(now: Timestamp, random: &[u8; 10]) -> Self {
        Self(v7(now, random))
    }
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

fn v7(now: Timestamp, random: &[u8; 10]) -> Uuid {
    uuid::Builder::from_unix_timestamp_millis(now.as_millis().unsigned_abs(), random).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_ids_are_refused_and_say_why() {
        let long = "x".repeat(129);
        for (text, why) in [("", "empty"), (long.as_str(), "longer than 128 bytes"), ("a\nb", "control character")] {
            let refusal = TaskId::new(text).unwrap_err();
            assert_eq!(refusal.code, ReasonCode::IdInvalid);
            assert_eq!(refusal.context.get("why").map(String::as_str), Some(why));
        }
        assert!(PoolName::new("受信箱 #1").is_ok());
        assert!(serde_json::from_str::<TaskId>("\"\"").is_err(), "a stored id is checked when read");
    }

    #[test]
    fn generated_ids_sort_by_time() {
        let early = TaskId::generate(Timestamp::from_millis(1_000), &[255; 10]);
        let late = TaskId::generate(Timestamp::from_millis(1_001), &[0; 10]);
        assert!(early < late);
        assert_eq!(early.as_str().len(), "task-".len() + 36);
    }
}
