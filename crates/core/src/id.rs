//! Names of things. An id is checked once, when it is made; after that every holder may trust it.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
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

/// Reads an id where it stands.
struct Checked<T>(fn(&str) -> Result<T, Refusal>);

impl<T> Visitor<'_> for Checked<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        self.0(text).map_err(E::custom)
    }
}

macro_rules! text_ids {
    ($($(#[$doc:meta])* $name:ident = $field:literal;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

            /// The text itself, shared: names of records are made of ids, and a copy of each would cost every write.
            #[allow(dead_code, reason = "not every sort of id names a record")]
            pub(crate) fn share(&self) -> Arc<str> {
                self.0.clone()
            }
        }

        // By hand: a derived one would copy the text, and ids are most of what a store writes.
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Checked(|text| Self::new(text)))
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

        impl From<$name> for Arc<str> {
            fn from(id: $name) -> Self {
                id.0
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
        Self::from_bits(v7(now, random).as_u128())
    }

    /// The generated id with these bits: `task-` and a uuid in lower case.
    pub fn from_bits(bits: u128) -> Self {
        let mut text = [0; GENERATED_BYTES];
        Self(Arc::from(write_generated(bits, &mut text)))
    }

    /// The bits of a text that is a generated id; `None` for every other text. Among generated ids bits sort like texts,
    /// so a store may keep them instead.
    pub fn bits_of(text: &str) -> Option<u128> {
        // Stores ask this for every name that they meet, so the digits are read eight at a time.
        let text: &[u8; GENERATED_BYTES] = text.as_bytes().try_into().ok()?;
        let [b't', b'a', b's', b'k', b'-', digits @ ..] = text else { return None };
        let [a0, a1, a2, a3, a4, a5, a6, a7, b'-', b0, b1, b2, b3, b'-', c0, c1, c2, c3, b'-', rest @ ..] = digits
        else {
            return None;
        };
        let [d0, d1, d2, d3, b'-', e0, e1, e2, e3, f0, f1, f2, f3, f4, f5, f6, f7] = rest else { return None };
        let first = eight_digits([*a0, *a1, *a2, *a3, *a4, *a5, *a6, *a7])?;
        let second = eight_digits([*b0, *b1, *b2, *b3, *c0, *c1, *c2, *c3])?;
        let third = eight_digits([*d0, *d1, *d2, *d3, *e0, *e1, *e2, *e3])?;
        let fourth = eight_digits([*f0, *f1, *f2, *f3, *f4, *f5, *f6, *f7])?;
        Some((u128::from((first << 32) | second) << 64) | u128::from((third << 32) | fourth))
    }

    /// Compares a generated id, given by its bits, with any text.
    pub fn compare_bits(bits: u128, text: &str) -> Ordering {
        let mut own = [0; GENERATED_BYTES];
        write_generated(bits, &mut own).cmp(text)
    }
}

const GENERATED_PREFIX: &str = "task-";

/// 41: the prefix and the 36 characters of a uuid.
const GENERATED_BYTES: usize = GENERATED_PREFIX.len() + uuid::fmt::Hyphenated::LENGTH;

/// The number that eight hexadecimal digits in lower case stand for. All at once: each byte of a word is one digit.
fn eight_digits(text: [u8; 8]) -> Option<u64> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let text = u64::from_be_bytes(text);
    let letters = (text >> 6) & ONES;
    let values = (text & (0x0f * ONES)) + 9 * letters;
    // Written again, only digits give what was read; letters beyond `f` would, but have values beyond 15.
    let again = values + 0x30 * ONES + (((values + 6 * ONES) >> 4) & ONES) * 0x27;
    if again != text || values & (0xf0 * ONES) != 0 {
        return None;
    }
    let pairs = (values | (values >> 4)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | (pairs >> 8)) & 0x0000_ffff_0000_ffff;
    Some((fours | (fours >> 16)) & 0xffff_ffff)
}

fn write_generated(bits: u128, text: &mut [u8; GENERATED_BYTES]) -> &str {
    let (prefix, digits) = text.split_at_mut(GENERATED_PREFIX.len());
    prefix.copy_from_slice(GENERATED_PREFIX.as_bytes());
    Uuid::from_u128(bits).hyphenated().encode_lower(digits);
    std::str::from_utf8(text).expect("prefix and hexadecimal digits are text")
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

    #[test]
    fn bits_stand_for_generated_ids_and_for_no_others() {
        let id = TaskId::generate(Timestamp::from_millis(1_794_744_000_000), &[0xab; 10]);
        let bits = TaskId::bits_of(id.as_str()).unwrap();
        assert_eq!(TaskId::from_bits(bits), id);
        assert_eq!(TaskId::compare_bits(bits, id.as_str()), Ordering::Equal);
        assert_eq!(TaskId::compare_bits(bits, "task"), Ordering::Greater);
        assert_eq!(TaskId::compare_bits(bits, "task-f"), Ordering::Less);
        let simple = format!("task-{}", Uuid::from_u128(bits).simple());
        let upper = format!("task-{}", id.as_str().get(5..).unwrap().to_uppercase());
        for at in 0..id.as_str().len() {
            for byte in (0x20..0x7f).filter(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
                let mut text = id.as_str().as_bytes().to_vec();
                let before = std::mem::replace(&mut text[at], byte);
                let text = String::from_utf8(text).unwrap();
                assert_eq!(TaskId::bits_of(&text).is_some(), before == byte, "{text:?}");
            }
        }
        for bits in [0, u128::MAX, 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210] {
            assert_eq!(TaskId::bits_of(TaskId::from_bits(bits).as_str()), Some(bits));
        }
        for other in [simple.as_str(), upper.as_str(), "task-", "task-1", "", &format!("{id} "), &format!("{id}x")] {
            assert_eq!(TaskId::bits_of(other), None, "{other:?}");
        }
    }
}
