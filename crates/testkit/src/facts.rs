//! What a history speaks of: the operations with the facts that the laws need, and what the store says at the end.
//! Plain data; payloads, errors in full and everything that no law asks about stay out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ekiden_core::attempt::Outcome;
use ekiden_core::id::{IdempotencyKey, OpId, TaskId};
use ekiden_core::lane::LaneSpec;
use ekiden_core::lease::Token;
use ekiden_core::reason::ReasonCode;
use ekiden_core::task::{Phase, Task};
use ekiden_core::unique::Unique;
use serde::{Deserialize, Serialize};

use crate::history::{History, Line, What};

/// Something that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// A task is handed in.
    Enqueue(Box<EnqueueFacts>),
    /// A runner asks for tasks.
    Claim {
        /// The claim's id; a repeated claim has the same.
        claim: OpId,
    },
    /// A holder says how its attempt ended.
    Settle {
        /// The op's id; a repeated settlement has the same.
        op: OpId,
        /// The task.
        task: TaskId,
        /// Whose attempt.
        token: Token,
        /// How it ended.
        outcome: Outcome,
    },
    /// Somebody wants a task to stop.
    Cancel {
        /// The task.
        task: TaskId,
    },
    /// Somebody wants a task to run again, as itself or as a new one.
    Retry {
        /// The task.
        task: TaskId,
    },
    /// A lease is taken away. Record every one, also those of a server's own maintenance: without them an old holder that
    /// still runs beside its successor looks like a broken promise.
    LeaseLost {
        /// The task.
        task: TaskId,
        /// The lease, where the caller knows it.
        token: Option<Token>,
    },
    /// The work of a cancelled attempt has come to its end.
    EndAttempt {
        /// The task.
        task: TaskId,
        /// Whose attempt.
        token: Token,
    },
    /// An ended task is removed.
    Purge {
        /// The task.
        task: TaskId,
    },
}

/// What is asked for by an enqueue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnqueueFacts {
    /// The op's id; a repeated enqueue has the same.
    pub op: OpId,
    /// The task that would be made.
    pub task: TaskId,
    /// Its unique key.
    pub unique: Option<Unique>,
    /// Its idempotency key.
    pub idempotency: Option<IdempotencyKey>,
    /// Its lane.
    pub lane: Option<LaneSpec>,
    /// Whether it joins its lane later than this: it is held, or waits for other tasks.
    pub waits: bool,
    /// How many tasks it waits for.
    #[serde(default)]
    pub parents: usize,
    /// Its budget of attempts.
    pub attempts_max: u32,
}

/// Whether something happened by this very request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    /// It happened now.
    Fresh,
    /// It had happened before; this is the first answer again.
    Repeated,
    /// The interface does not say which.
    Untold,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To an enqueue or a retry: the task that will run.
    Enqueued {
        /// The task.
        task: TaskId,
        /// Whether it is new.
        ack: Ack,
    },
    /// To a claim: what was handed out.
    Claimed(Vec<Grant>),
    /// To anything else.
    Done(Ack),
}

/// A task handed to a runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The task.
    pub task: TaskId,
    /// The fencing token.
    pub token: Token,
}

/// Something that is true by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// The work of an attempt begins. Written by the one who executes, before the first step of the work.
    Started {
        /// The task.
        task: TaskId,
        /// The attempt.
        token: Token,
    },
    /// The work of an attempt is over. Written after its last step and before anybody is told.
    Finished {
        /// The task.
        task: TaskId,
        /// The attempt.
        token: Token,
    },
    /// How a handler says that its attempt ended. Written before it returns.
    Said {
        /// The task.
        task: TaskId,
        /// The attempt.
        token: Token,
        /// How it ended.
        outcome: Outcome,
    },
    /// What the store said of a task at the end.
    Observed {
        /// The task.
        task: TaskId,
        /// How it was found.
        found: Box<FinalTask>,
    },
    /// Somebody begins to look at everything in the store, as one does after a restart.
    Looking,
    /// What the one who looks found of a task.
    Found {
        /// The task.
        task: TaskId,
        /// Where it is in its life.
        phase: Phase,
        /// The number of its latest attempt.
        execution_no: u64,
        /// The attempt that has not ended.
        lease: Option<Token>,
    },
    /// That was everything. Without this line a look is not over, and what it did not find proves nothing.
    Looked,
}

/// What the store says at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinalState {
    /// Every task that is there.
    pub tasks: BTreeMap<TaskId, FinalTask>,
    /// Whether workers and maintenance went on until nothing was left to do. Only then can a task be called stuck.
    pub quiesced: bool,
    /// Tasks that may be unfinished even so.
    pub allowed: BTreeSet<TaskId>,
    /// Records that are still due after maintenance went on until nothing moved, each with its list. A load that does not look has
    /// none.
    pub due: BTreeSet<String>,
}

/// A task at the end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalTask {
    /// Where it is in its life.
    pub phase: Phase,
    /// The attempts counted.
    pub attempts: u32,
    /// Its budget of attempts.
    pub attempts_max: u32,
    /// The number of its latest attempt.
    pub execution_no: u64,
    /// How many attempts are recorded as succeeded.
    pub successes: u32,
    /// The attempt that succeeded, if it is still kept in full.
    pub succeeded_by: Option<Token>,
    /// Whether an attempt has not ended.
    pub leased: bool,
    /// What it still waits for.
    pub waits_for: Vec<TaskId>,
    /// Whether it was told that a parent failed, and stays blocked for good.
    pub given_up: bool,
    /// Its lane.
    pub lane: Option<LaneSpec>,
}

impl From<&Task> for FinalTask {
    fn from(task: &Task) -> Self {
        let state = &task.state;
        let winner = state.recent.iter().find(|attempt| attempt.outcome == Some(Outcome::Succeeded));
        Self {
            phase: state.phase,
            attempts: state.attempts,
            attempts_max: task.spec.policy.attempts_max,
            execution_no: state.execution_no,
            successes: state.outcomes.succeeded,
            succeeded_by: winner.map(|attempt| Token(attempt.execution_no)),
            leased: state.lease.is_some(),
            waits_for: state.waits_for.clone(),
            given_up: state.reason == Some(ReasonCode::DependencyFailed),
            lane: task.spec.lane.as_deref().cloned(),
        }
    }
}

impl FinalState {
    /// What a process that looked at the end wrote into the history.
    pub fn observed(history: &History) -> Self {
        let tasks = history.lines().iter().filter_map(|line| match &line.what {
            What::Note(Note::Observed { task, found }) => Some((task.clone(), FinalTask::clone(found))),
            _ => None,
        });
        Self { tasks: tasks.collect(), ..Self::default() }
    }

    /// The same, of a run that went on until nothing was left to do.
    #[must_use]
    pub fn quiesced(self) -> Self {
        Self { quiesced: true, ..self }
    }
}

impl Call {
    /// The task that it is about, if it is about one.
    pub fn task(&self) -> Option<&TaskId> {
        match self {
            Self::Enqueue(facts) => Some(&facts.task),
            Self::Claim { .. } => None,
            Self::Settle { task, .. }
            | Self::Cancel { task }
            | Self::Retry { task }
            | Self::LeaseLost { task, .. }
            | Self::EndAttempt { task, .. }
            | Self::Purge { task } => Some(task),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enqueue(facts) => {
                write!(f, "enqueue {}", facts.task)?;
                if let Some(unique) = &facts.unique {
                    write!(f, " unique {} {:?}", unique.key, unique.hold)?;
                }
                if let Some(key) = &facts.idempotency {
                    write!(f, " idempotency {key}")?;
                }
                if let Some(lane) = &facts.lane {
                    write!(f, " lane {} {:?} width {}", lane.key, lane.hold, lane.width)?;
                }
                write!(f, " attempts_max {} op {}", facts.attempts_max, facts.op)
            }
            Self::Claim { claim } => write!(f, "claim {claim}"),
            Self::Settle { op, task, token, outcome } => {
                write!(f, "settle {task} token {token} {} op {op}", outcome.as_str())
            }
            Self::Cancel { task } => write!(f, "cancel {task}"),
            Self::Retry { task } => write!(f, "retry {task}"),
            Self::LeaseLost { task, token: Some(token) } => write!(f, "lease_lost {task} token {token}"),
            Self::LeaseLost { task, token: None } => write!(f, "lease_lost {task}"),
            Self::EndAttempt { task, token } => write!(f, "end_attempt {task} token {token}"),
            Self::Purge { task } => write!(f, "purge {task}"),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enqueued { task, ack } => write!(f, "{task} ({ack:?})"),
            Self::Claimed(grants) => {
                for (at, Grant { task, token }) in grants.iter().enumerate() {
                    write!(f, "{}{task} token {token}", if at == 0 { "" } else { ", " })?;
                }
                if grants.is_empty() { f.write_str("nothing") } else { Ok(()) }
            }
            Self::Done(ack) => write!(f, "({ack:?})"),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { task, token } => write!(f, "work starts {task} token {token}"),
            Self::Finished { task, token } => write!(f, "work ends {task} token {token}"),
            Self::Observed { task, found } => write!(f, "observed {task} {}", found.phase),
            Self::Looking => f.write_str("looks at everything"),
            Self::Found { task, phase, execution_no, lease } => {
                write!(f, "found {task} {phase}, execution_no {execution_no}")?;
                if lease.is_some() { f.write_str(", leased") } else { Ok(()) }
            }
            Self::Said { task, token, outcome } => write!(f, "said of {task} token {token}: {}", outcome.as_str()),
            Self::Looked => f.write_str("has seen everything"),
        }
    }
}

impl fmt::Display for FinalTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { phase, attempts, attempts_max, execution_no, successes, .. } = self;
        write!(
            f,
            "{phase}, attempts {attempts} of {attempts_max}, execution_no {execution_no}, successes {successes}"
        )?;
        if let Some(token) = self.succeeded_by {
            write!(f, ", succeeded by {token}")?;
        }
        if self.leased {
            f.write_str(", still leased")?;
        }
        if !self.waits_for.is_empty() {
            write!(f, ", waits for {:?}", self.waits_for)?;
        }
        Ok(())
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, process, n, client, op, .. } = self;
        write!(f, "{at} {process}#{n} {client}: ")?;
        match &self.what {
            What::Invoke(call) => write!(f, "{call}"),
            What::Ok(reply) => write!(f, "ok of #{op}: {reply}"),
            What::Fail(why) => write!(f, "fail of #{op}: {why}"),
            What::Unknown(why) => write!(f, "unknown of #{op}: {why}"),
            What::Note(note) => write!(f, "{note}"),
        }
    }
}
