//! Commits: guarded writes to several records, all or none. A commit that exists is well formed.

use serde::{Deserialize, Serialize};

use crate::id::OpId;
use crate::index::Index;
use crate::key::{Key, RecordKind};
use crate::limits;
use crate::reason::{ReasonCode, Refusal};
use crate::record::{Record, Revision};

/// What a write expects to find.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// No record.
    Absent,
    /// The record as it was read.
    At(Revision),
    /// Whatever there is, or nothing.
    Any,
}

/// What a write does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Nothing; only the expectation counts.
    Check,
    /// Replaces or creates the record and its index entries.
    Put(Record, Index),
    /// Removes the record and its index entries.
    Delete,
    /// Adds to a counter, which begins at zero.
    Add(i64),
}

/// One write of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Which record.
    pub key: Key,
    /// What must be there.
    pub expect: Expect,
    /// What to do.
    pub action: Action,
}

impl Write {
    /// A put, with the index entries that follow from the record.
    pub fn put(key: Key, expect: Expect, record: Record) -> Self {
        let index = Index::of(&key, &record);
        Self { key, expect, action: Action::Put(record, index) }
    }
}

/// Up to 25 writes with distinct keys, applied together or not at all.
///
/// A put or check expects `Absent` or `At`, a delete `At` or `Any`, an add `Any`, and an add has a put beside it: so a
/// repeated commit can be recognised, and none can overwrite what it has not seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    id: OpId,
    writes: Vec<Write>,
}

impl Commit {
    /// Checks the writes and makes a commit of them.
    pub fn new(id: OpId, writes: Vec<Write>) -> Result<Self, Refusal> {
        if writes.is_empty() || writes.len() > limits::COMMIT_WRITES_MAX {
            return Err(Refusal::new(ReasonCode::CommitTooLarge)
                .with("writes", writes.len())
                .with("writes_max", limits::COMMIT_WRITES_MAX));
        }
        for (at, write) in writes.iter().enumerate() {
            // Each with each: at most 300 comparisons, and none where most commits have one write.
            if writes.iter().take(at).any(|earlier| earlier.key == write.key) {
                return Err(Refusal::new(ReasonCode::CommitKeyTwice).with("key", &write.key));
            }
            if let Some(why) = misfit(write) {
                return Err(invalid(&write.key, why));
            }
        }
        let puts = writes.iter().any(|write| matches!(write.action, Action::Put(..)));
        if let Some(add) = writes.iter().find(|write| !puts && matches!(write.action, Action::Add(_))) {
            return Err(invalid(&add.key, "an add needs a put beside it, or a repeated commit would add twice"));
        }
        let bytes: usize = writes.iter().map(bytes_of).sum();
        if bytes > limits::COMMIT_BYTES_MAX {
            return Err(Refusal::new(ReasonCode::CommitTooLarge)
                .with("bytes", bytes)
                .with("bytes_max", limits::COMMIT_BYTES_MAX));
        }
        Ok(Self { id, writes })
    }

    /// The caller's name for it.
    pub const fn id(&self) -> OpId {
        self.id
    }

    /// The writes.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Takes out what each write does, with its key. What is left is to be dropped, whenever it suits.
    pub fn take_actions(&mut self) -> impl Iterator<Item = (&Key, Action)> {
        self.writes.iter_mut().map(|write| (&write.key, std::mem::replace(&mut write.action, Action::Check)))
    }

    /// The writes, for a store to keep.
    pub fn into_writes(self) -> Vec<Write> {
        self.writes
    }
}

fn bytes_of(write: &Write) -> usize {
    if let Action::Put(record, _) = &write.action { large_bytes(record) } else { 0 }
}

/// What can be large in a record, in bytes; the rest is bounded by the number of writes.
pub(crate) fn large_bytes(record: &Record) -> usize {
    match record {
        Record::Task(task) => {
            task.spec.envelope.payload.len() + task.state.result.as_ref().map_or(0, |result| result.len())
        }
        _ => 0,
    }
}

/// Why a write makes no sense by itself, if it does not.
///
/// A put or check without an expectation would let a late repetition overwrite something newer. Only counters are added
/// to, whatever they hold; only a delete may not care what it finds.
fn misfit(write: &Write) -> Option<&'static str> {
    match (&write.action, &write.expect) {
        (Action::Put(record, _), _) if record.kind() != write.key.kind => {
            Some("the record is of another kind than its key")
        }
        (Action::Put(record, _), _) if !record.belongs_under(&write.key) => {
            Some("the record belongs under another key")
        }
        (Action::Put(..) | Action::Check, Expect::Any) => Some("a put or check must say what it expects"),
        (Action::Delete, Expect::Absent) => Some("a delete cannot expect that nothing is there"),
        (Action::Add(_), _) if write.key.kind != RecordKind::Counter => Some("only counters are added to"),
        (Action::Add(_), Expect::Absent | Expect::At(_)) => Some("an add takes whatever is there"),
        _ => None,
    }
}

fn invalid(key: &Key, why: &str) -> Refusal {
    Refusal::new(ReasonCode::CommitInvalid).with("key", key).with("why", why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::id::{Namespace, PoolName, TaskId};

    fn check(name: &str) -> Write {
        let namespace = Namespace::new("default").unwrap();
        Write { key: Key::task(&namespace, &TaskId::new(name).unwrap()), expect: Expect::Absent, action: Action::Check }
    }

    fn refused(writes: Vec<Write>) -> ReasonCode {
        Commit::new(OpId::from_bits(1), writes).unwrap_err().code
    }

    #[test]
    fn too_many_writes_and_none_are_refused() {
        assert_eq!(refused(vec![]), ReasonCode::CommitTooLarge);
        assert_eq!(refused((0..26).map(|n| check(&format!("t{n}"))).collect()), ReasonCode::CommitTooLarge);
        assert!(Commit::new(OpId::from_bits(1), (0..25).map(|n| check(&format!("t{n}"))).collect()).is_ok());
    }

    #[test]
    fn two_writes_to_one_key_are_refused() {
        assert_eq!(refused(vec![check("a"), check("b"), check("a")]), ReasonCode::CommitKeyTwice);
    }

    #[test]
    fn writes_that_make_no_sense_are_refused() {
        let task = Record::from(fixtures::task("a"));
        let namespace = Namespace::new("default").unwrap();
        let put = |key, expect| Write { key, expect, action: Action::Put(task.clone(), Index::default()) };
        let [a, b] = ["a", "b"].map(|id| Key::task(&namespace, &TaskId::new(id).unwrap()));
        let counter = Key::running(&namespace, &PoolName::new("p").unwrap());
        let add = |key, expect| Write { key, expect, action: Action::Add(1) };
        let senseless = [
            vec![put(b, Expect::Absent)],
            vec![put(Key::pool(&namespace, &PoolName::new("a").unwrap()), Expect::Absent)],
            vec![put(a.clone(), Expect::Any)],
            vec![Write { expect: Expect::Any, ..check("a") }],
            vec![Write { action: Action::Delete, ..check("a") }],
            vec![put(a.clone(), Expect::Absent), add(check("x").key, Expect::Any)],
            vec![put(a.clone(), Expect::Absent), add(counter.clone(), Expect::Absent)],
            vec![add(counter.clone(), Expect::Any)],
        ];
        for writes in senseless {
            assert_eq!(refused(writes.clone()), ReasonCode::CommitInvalid, "{writes:?}");
        }
        assert!(Commit::new(OpId::from_bits(1), vec![put(a, Expect::Absent), add(counter, Expect::Any)]).is_ok());
    }

    #[test]
    fn more_bytes_than_a_transaction_holds_are_refused() {
        let large = |n: usize| {
            let mut spec = fixtures::spec(&format!("t{n}"));
            spec.envelope.payload = vec![b'x'; limits::PAYLOAD_BYTES_MAX].into();
            let task = fixtures::born(spec);
            Write::put(Key::task(&task.spec.namespace, task.id()), Expect::Absent, Record::from(task.clone()))
        };
        assert_eq!(refused((0..13).map(large).collect()), ReasonCode::CommitTooLarge);
        assert!(Commit::new(OpId::from_bits(1), (0..12).map(large).collect()).is_ok());
    }
}
