//! The lease: the right to run a task. Its fencing token is the attempt's number, which only rises.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::hash;
use crate::id::{OpId, RunnerId, TaskId};
use crate::newer::Newer;
use crate::time::{Millis, Timestamp};

/// The fencing token: the `execution_no` of the attempt that holds or held the lease. Handlers use it to fence side effects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// How long a lease lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// As long as the runner's own record is renewed.
    Heartbeat,
    /// Until this moment of the store's clock (mailboxes).
    At(Timestamp),
    /// A foreign program holds it: only its own word, or a person's, ends it.
    Foreign,
}

/// The right to run a task, held by one runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Who holds it.
    pub holder: RunnerId,
    /// The claim that took it; the same claim again gets the same task.
    pub claim: OpId,
    /// The fencing token.
    pub token: Token,
    /// How long it lasts.
    pub until: Until,
    /// Whether the pool's running counter was raised for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counted: bool,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

impl Lease {
    /// The uuid that a mailbox hands out with a message. It follows from claim and task, so a repeated claim gives the same.
    pub fn uuid(&self, task: &TaskId) -> Uuid {
        uuid_of(self.claim, self.token, task)
    }
}

/// See [`Lease::uuid`].
pub(crate) fn uuid_of(claim: OpId, token: Token, task: &TaskId) -> Uuid {
    let bits = claim.as_bits();
    let mut seed = task.as_str().as_bytes().to_vec();
    seed.extend_from_slice(&bits.to_be_bytes());
    seed.extend_from_slice(&token.0.to_be_bytes());
    uuid::Builder::from_custom_bytes(hash::wide(&seed).to_be_bytes()).into_uuid()
}

/// A lease that was lost. Until the next claim or a final phase its holder may still settle: the late ack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateLease {
    /// The token that may still settle.
    pub token: Token,
    /// The claim that took it.
    pub claim: OpId,
    /// Who held it.
    pub holder: RunnerId,
}

/// Why a lease may be taken away. Time on one's own clock alone is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The lease has a deadline, and the store's one clock is past it.
    Deadline,
    /// The runner's record says that this incarnation is dead.
    RunnerDead(RunnerId),
    /// The task's process is known to have died (the runner itself says so, or its successor on the same host).
    ProcessDied(RunnerId),
    /// The holder's record stayed unchanged for this long on the observer's monotonic clock (stores without a clock).
    Unchanged {
        /// How long it was watched.
        watched: Millis,
        /// The length of the holder's lease.
        lease: Millis,
    },
    /// A person decided.
    Operator,
}

impl Evidence {
    /// Whether this evidence ends that lease now.
    pub fn convicts(&self, lease: &Lease, now: Timestamp) -> bool {
        match (self, lease.until) {
            (Self::Operator, _) => true,
            (_, Until::Foreign) => false,
            (Self::Deadline, Until::At(deadline)) => deadline <= now,
            (Self::Deadline, Until::Heartbeat) => false,
            (Self::RunnerDead(runner) | Self::ProcessDied(runner), _) => *runner == lease.holder,
            (Self::Unchanged { watched, lease }, _) => watched >= lease && *lease > Millis::ZERO,
        }
    }
}
