//! Claims and settlements: how tasks are given out and how their attempts end.

use std::sync::Arc;

use ekiden_core::attempt::Stage;
use ekiden_core::id::{Kind, OpId, PoolName, RunnerId, TaskId};
use ekiden_core::task::Phase;
use ekiden_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::content::Encoding;
use crate::error::ErrorDetail;
use crate::moment;
use crate::spec::Spec;
use crate::task::{AnswerGiven, Progress, Question};

/// A runner asks for tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The caller's name for the request. The same again, after a lost reply, gives the same tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::OpId>))]
    pub id: Option<OpId>,
    /// Who will hold them. It must have given a sign of life.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub runner: RunnerId,
    /// The pools to look in; `default` if none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<crate::schema::Id>, max_items = 64))]
    pub pools: Vec<PoolName>,
    /// The types to look for.
    #[cfg_attr(feature = "schema", schema(value_type = Vec<crate::schema::Id>, min_items = 1, max_items = 64))]
    pub task_types: Vec<Kind>,
    /// How many tasks at most.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 256))]
    pub limit: usize,
    /// How long to wait for a first task. With settlements in the same request, their answer waits too.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schema(maximum = 60_000))]
    pub wait_ms: u64,
}

const fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The tasks that were given out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Claimed {
    /// The tasks with their leases.
    pub tasks: Vec<LeasedTask>,
}

/// A task with its lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LeasedTask {
    /// The fencing token, which every settlement names.
    pub token: u64,
    /// Executions started and counted, this one included.
    pub attempts: u32,
    /// The answer to the question that the last attempt asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerGiven>,
    /// What was asked for.
    pub task: Spec,
}

/// Attempts that ended, and a claim for what comes next, in one request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Settle {
    /// The ends of attempts.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub settlements: Vec<Settlement>,
    /// What to claim after them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
}

/// The end of one attempt.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Settlement {
    /// The caller's name for it, repeated when the reply got lost. The same verdict of one attempt is recognised without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::OpId>))]
    pub id: Option<OpId>,
    /// The task.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub task_id: TaskId,
    /// The fencing token of the attempt.
    pub token: u64,
    /// How it ended.
    pub verdict: Verdict,
}

/// How an attempt ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "outcome", deny_unknown_fields)]
pub enum Verdict {
    /// Well.
    Succeeded {
        /// What the handler returned.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Json))]
        result: Option<Box<RawValue>>,
        /// How the result stands here.
        #[serde(default, skip_serializing_if = "Encoding::is_json")]
        result_encoding: Encoding,
    },
    /// Badly.
    Failed {
        /// What happened, for people.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        error: Arc<str>,
        /// Whether trying again is pointless.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        permanent: bool,
        /// The wait before the next attempt, instead of the policy's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
    /// By its time limit.
    TimedOut,
    /// By the wish to go on later; no attempt is spent.
    Snoozed {
        /// How much later.
        delay_ms: u64,
    },
    /// By a question.
    Asked {
        /// The question.
        question: Box<Question>,
    },
    /// By the runner's shutdown; no attempt is spent.
    Interrupted,
    /// It never began; no attempt is spent.
    Returned,
    /// After a cancel: how far the attempt is stopped.
    Stopped {
        /// How far.
        #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Stage))]
        stage: Stage,
    },
}

/// What came of a settlement with a following claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SettleAnswer {
    /// One answer a settlement, in order.
    pub settled: Vec<SettledOrError>,
    /// The tasks that were claimed.
    #[serde(default)]
    pub tasks: Vec<LeasedTask>,
    /// Why none were, where the claim failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_error: Option<ErrorDetail>,
}

/// A task after a settlement, or why there was none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum SettledOrError {
    /// It was refused, or its outcome is not known.
    Error {
        /// Why.
        error: ErrorDetail,
    },
    /// It is written.
    Settled(Settled),
}

/// A task after a settlement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Settled {
    /// Where it is now.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::TaskState))]
    pub state: Phase,
    /// When it runs again, if it does.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub next_run_at: Option<Timestamp>,
}

/// The holder of a lease says how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Progressed {
    /// The fencing token of the attempt.
    pub token: u64,
    /// How far.
    pub progress: Progress,
}

/// What a runner holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Held {
    /// The leases, a page of them.
    pub items: Vec<HeldLease>,
}

/// A lease that a runner holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeldLease {
    /// The task.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub task_id: TaskId,
    /// The fencing token.
    pub token: u64,
}
