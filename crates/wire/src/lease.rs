//! Claims and settlements: how tasks are given out and how their attempts end.

use std::sync::Arc;

use ekiden_core::attempt::Stage;
use ekiden_core::id::{Kind, OpId, PoolName, RunnerId, TaskId};
use ekiden_core::limits;
use ekiden_core::task::Phase;
use ekiden_core::time::Timestamp;
use serde::de::Error as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::bounded::{self, SETTLEMENTS_MAX};
use crate::content::{self, Encoding};
use crate::error::ErrorDetail;
use crate::moment;
use crate::spec::Spec;
use crate::task::{AnswerGiven, Progress, Question};

/// A runner asks for tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The caller's name for the request. The same again, after a lost reply, gives the same runner the same tasks, if it asks for them in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::OpId>))]
    pub id: Option<OpId>,
    /// Who will hold them. A claim is a sign of life; who holds tasks for longer than its lease gives more of them, or loses the tasks to others.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub runner: RunnerId,
    /// The pools to look in; `default` if this is left out.
    #[serde(
        default,
        deserialize_with = "bounded::capped_or_null::<_, _, { limits::CLAIM_POOLS_MAX }>",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<crate::schema::Id>>, min_items = 1, max_items = 64))]
    pub pools: Option<Vec<PoolName>>,
    /// The types to look for.
    #[serde(deserialize_with = "bounded::capped::<_, _, { limits::CLAIM_KINDS_MAX }>")]
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
    #[serde(default, deserialize_with = "bounded::list::<_, _, SETTLEMENTS_MAX>")]
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
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "outcome", deny_unknown_fields)]
pub enum Verdict {
    /// Well.
    Succeeded {
        /// What the handler returned. `null` is a result as well.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Json))]
        result: Option<Box<RawValue>>,
        /// How the result stands here.
        #[serde(default, skip_serializing_if = "Encoding::is_json")]
        #[cfg_attr(feature = "schema", schema(value_type = Option<Encoding>))]
        result_encoding: Encoding,
    },
    /// Badly.
    Failed {
        /// What happened, for people.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        error: Arc<str>,
        /// Whether trying again is pointless.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "schema", schema(value_type = Option<bool>))]
        permanent: bool,
        /// The wait before the next attempt, instead of the policy's. More than ten years is cut to ten years.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
    /// By the death of something that was needed for it, as of a process by a signal. Tried again like a failure, within the
    /// pool's limit of crashes in a row.
    Crashed {
        /// What happened, for people.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        error: Arc<str>,
    },
    /// By its time limit.
    TimedOut,
    /// By the wish to go on later; no attempt is spent.
    Snoozed {
        /// How much later.
        #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Delay))]
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

/// Every field that a verdict may have. What a result is made of stands in the document as it is, so it cannot be read after
/// the outcome is known: everything is read first, and what does not belong together is told then.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VerdictFields {
    outcome: OutcomeName,
    #[serde(default, deserialize_with = "content::any_json")]
    result: Option<Box<RawValue>>,
    result_encoding: Option<Encoding>,
    error: Option<Arc<str>>,
    permanent: Option<bool>,
    retry_after_ms: Option<u64>,
    delay_ms: Option<u64>,
    question: Option<Box<Question>>,
    stage: Option<Stage>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutcomeName {
    Succeeded,
    Failed,
    Crashed,
    TimedOut,
    Snoozed,
    Asked,
    Interrupted,
    Returned,
    Stopped,
}

impl<'de> Deserialize<'de> for Verdict {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = VerdictFields::deserialize(deserializer)?;
        let verdict = fields.take().map_err(D::Error::missing_field)?;
        match fields.left() {
            Some(field) => Err(D::Error::custom(format_args!("`{field}` does not belong to this outcome"))),
            None => Ok(verdict),
        }
    }
}

impl VerdictFields {
    /// The verdict, of the fields that belong to its outcome; or the name of the one that is missing.
    fn take(&mut self) -> Result<Verdict, &'static str> {
        Ok(match self.outcome {
            OutcomeName::Succeeded => Verdict::Succeeded {
                result: self.result.take(),
                result_encoding: self.result_encoding.take().unwrap_or_default(),
            },
            OutcomeName::Failed => Verdict::Failed {
                error: self.error.take().ok_or("error")?,
                permanent: self.permanent.take().unwrap_or_default(),
                retry_after_ms: self.retry_after_ms.take(),
            },
            OutcomeName::Crashed => Verdict::Crashed { error: self.error.take().ok_or("error")? },
            OutcomeName::TimedOut => Verdict::TimedOut,
            OutcomeName::Snoozed => Verdict::Snoozed { delay_ms: self.delay_ms.take().ok_or("delay_ms")? },
            OutcomeName::Asked => Verdict::Asked { question: self.question.take().ok_or("question")? },
            OutcomeName::Interrupted => Verdict::Interrupted,
            OutcomeName::Returned => Verdict::Returned,
            OutcomeName::Stopped => Verdict::Stopped { stage: self.stage.take().ok_or("stage")? },
        })
    }

    /// A field that is left.
    fn left(&self) -> Option<&'static str> {
        let fields = [
            // Some clients write every field that they know, and `null` where there is nothing.
            ("result", self.result.as_ref().is_some_and(|result| result.get() != "null")),
            ("result_encoding", self.result_encoding.is_some()),
            ("error", self.error.is_some()),
            ("permanent", self.permanent.is_some()),
            ("retry_after_ms", self.retry_after_ms.is_some()),
            ("delay_ms", self.delay_ms.is_some()),
            ("question", self.question.is_some()),
            ("stage", self.stage.is_some()),
        ];
        fields.into_iter().find(|(_, is_left)| *is_left).map(|(name, _)| name)
    }
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

/// A piece was added to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LogAppended {
    /// Where the log ends now, which is where the next piece goes.
    pub end: u64,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_comes_through_with_its_result_as_it_was() {
        for text in [
            r#"{"outcome":"succeeded","result":{"a": [1.50, "x"]}}"#,
            r#"{"outcome":"succeeded"}"#,
            r#"{"outcome":"failed","error":"e","retry_after_ms":5}"#,
            r#"{"outcome":"failed","error":"e","permanent":true}"#,
            r#"{"outcome":"crashed","error":"e"}"#,
            r#"{"outcome":"timed_out"}"#,
            r#"{"outcome":"snoozed","delay_ms":7}"#,
            r#"{"outcome":"asked","question":{"id":"q","text":"?"}}"#,
            r#"{"outcome":"interrupted"}"#,
            r#"{"outcome":"returned"}"#,
            r#"{"outcome":"stopped","stage":"exited"}"#,
        ] {
            let verdict: Verdict = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&verdict).unwrap(), text);
        }
    }

    #[test]
    fn a_verdict_with_the_fields_of_another_is_told() {
        for (text, why) in [
            (r#"{"outcome":"succeeded","error":"e"}"#, "`error` does not belong"),
            (r#"{"outcome":"snoozed"}"#, "missing field `delay_ms`"),
            (r#"{"outcome":"crashed","error":"e","permanent":true}"#, "`permanent` does not belong"),
            (r#"{"outcome":"succeeded","reslt":1}"#, "unknown field `reslt`"),
            (r#"{"outcome":"won"}"#, "unknown variant `won`"),
            (r#"{}"#, "missing field `outcome`"),
        ] {
            let error = serde_json::from_str::<Verdict>(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
