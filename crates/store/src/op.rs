//! Ops and their answers. Everything is owned: an op can be kept, repeated and sent elsewhere.

use ekiden_core::claim::Claim;
use ekiden_core::commit::Commit;
use ekiden_core::id::OpId;
use ekiden_core::key::Key;
use ekiden_core::record::{Revision, Versioned};
use smallvec::SmallVec;

use crate::error::StoreError;

/// What a store is asked to do.
#[derive(Clone, Debug)]
pub enum Op {
    /// Guarded writes, all or none.
    Commit(Commit),
    /// Tasks for a runner.
    Claim(Claim),
}

impl Op {
    /// The caller's name for it.
    pub const fn id(&self) -> OpId {
        match self {
            Self::Commit(commit) => commit.id(),
            Self::Claim(claim) => claim.id,
        }
    }
}

/// What came of one op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The commit is durable.
    Applied(Applied),
    /// An expectation was not met; nothing was written.
    Conflict(Conflict),
    /// The claim's tasks, which may be none.
    Claimed(Claimed),
}

/// One op's answer, or why there is none.
pub type Outcome = Result<Answer, StoreError>;

/// A commit that is durable, now or since an earlier try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The revision of each put record, in the order of the writes; `None` for other writes. After a repeated commit it
    /// is the record's revision now, which may come from a later commit.
    pub revisions: SmallVec<[Option<Revision>; 1]>,
}

/// What was found instead of what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Every key whose expectation failed, with the record that is there.
    pub found: Vec<(Key, Option<Versioned>)>,
}

/// Tasks that a claim took, now or in an earlier try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The tasks as written, best first.
    pub tasks: Vec<Versioned>,
    /// How many records and index entries were looked at. It depends on what was asked, never on how many tasks wait.
    pub visited: usize,
}
