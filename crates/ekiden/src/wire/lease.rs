//! Claims, leases and settlements.

use std::sync::Arc;

use ekiden_core::attempt::clip;
use ekiden_core::id::{Namespace, OpId};
use ekiden_core::lease::Token;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::retry::FailureKind;
use ekiden_core::task::JSON;
use ekiden_core::time::Millis;
use ekiden_wire as wire;

use crate::client::default_pool;
use crate::port::{Ask, Failure, LeaseRef, Leased, Settled, Settlement, TaskRef, Verdict};

impl Ask {
    /// A claim that came over HTTP. `id` is drawn only if the sender made none.
    pub fn from_wire(claim: wire::Claim, namespace: Namespace, id: impl FnOnce() -> OpId) -> Result<Self, Refusal> {
        let pools = match claim.pools {
            Some(pools) => pools,
            None => vec![default_pool()],
        };
        Ok(Self {
            id: claim.id.unwrap_or_else(id),
            namespace,
            pools: pools.into(),
            kinds: claim.task_types.into(),
            limit: claim.limit,
            holder: claim.runner,
        })
    }

    /// The same as it goes over HTTP.
    pub fn to_wire(&self, wait_ms: u64) -> wire::Claim {
        wire::Claim {
            id: Some(self.id),
            runner: self.holder.clone(),
            pools: Some(self.pools.to_vec()),
            task_types: self.kinds.to_vec(),
            limit: self.limit,
            wait_ms,
        }
    }
}

impl From<Leased> for wire::LeasedTask {
    fn from(leased: Leased) -> Self {
        Self {
            token: leased.lease.token.0,
            attempts: leased.attempts,
            answer: leased.answer.map(Into::into),
            task: (&*leased.spec).into(),
        }
    }
}

impl Leased {
    /// A lease that came over HTTP.
    pub fn from_wire(leased: wire::LeasedTask, namespace: &Namespace) -> Result<Self, Refusal> {
        let task = TaskRef { namespace: namespace.clone(), id: leased.task.id.clone() };
        Ok(Self {
            spec: Arc::new(leased.task.into_core(namespace.clone())?),
            lease: LeaseRef::new(task, Token(leased.token)),
            attempts: leased.attempts,
            answer: leased.answer.map(Into::into),
        })
    }
}

impl Settlement {
    /// A settlement that came over HTTP. `id` is drawn only if the sender made none.
    pub fn from_wire(
        settlement: wire::Settlement,
        namespace: Namespace,
        id: impl FnOnce() -> OpId,
    ) -> Result<Self, Refusal> {
        let task = TaskRef { namespace, id: settlement.task_id };
        Ok(Self {
            id: settlement.id.unwrap_or_else(id),
            lease: LeaseRef::new(task, Token(settlement.token)),
            verdict: Verdict::from_wire(settlement.verdict)?,
        })
    }

    /// The same as it goes over HTTP.
    pub fn into_wire(self) -> wire::Settlement {
        wire::Settlement {
            id: Some(self.id),
            task_id: self.lease.task.id,
            token: self.lease.token.0,
            verdict: self.verdict.into_wire(),
        }
    }
}

impl Verdict {
    /// A verdict that came over HTTP.
    pub fn from_wire(verdict: wire::Verdict) -> Result<Self, Refusal> {
        Ok(match verdict {
            wire::Verdict::Succeeded { result: None, .. } => Self::Succeeded(None),
            wire::Verdict::Succeeded { result, result_encoding } => {
                Self::Succeeded(Some(wire::decode("result", result, result_encoding)?))
            }
            wire::Verdict::Failed { permanent: true, retry_after_ms: Some(_), .. } => {
                return Err(Refusal::new(ReasonCode::RequestInvalid)
                    .with("field", "retry_after_ms")
                    .with("why", "a permanent failure is not tried again"));
            }
            wire::Verdict::Failed { error, permanent, retry_after_ms } => {
                let kind = match retry_after_ms {
                    Some(ms) => FailureKind::RetryAfter(Millis::new(ms)),
                    None if permanent => FailureKind::Permanent,
                    None => FailureKind::Retryable,
                };
                Self::Failed(Failure { kind, message: error })
            }
            wire::Verdict::Crashed { error } => Self::Failed(Failure { kind: FailureKind::Crashed, message: error }),
            wire::Verdict::TimedOut => Self::TimedOut,
            wire::Verdict::Snoozed { delay_ms } => Self::Snoozed(Millis::new(delay_ms)),
            wire::Verdict::Asked { question } => Self::Asked(Box::new((*question).into())),
            wire::Verdict::Interrupted => Self::Interrupted,
            wire::Verdict::Returned => Self::Returned,
            wire::Verdict::Stopped { stage } => Self::Stopped(stage),
        })
    }

    /// The same as it goes over HTTP.
    pub fn into_wire(self) -> wire::Verdict {
        match self {
            Self::Succeeded(None) => wire::Verdict::Succeeded { result: None, result_encoding: wire::Encoding::Json },
            Self::Succeeded(Some(result)) => {
                let (result, result_encoding) = wire::encode(&result, JSON);
                wire::Verdict::Succeeded { result: Some(result), result_encoding }
            }
            // What is beyond the limit of a message is not kept, so it is not sent.
            Self::Failed(Failure { kind: FailureKind::Crashed, message }) => {
                wire::Verdict::Crashed { error: clip(&message) }
            }
            Self::Failed(failure) => wire::Verdict::Failed {
                error: clip(&failure.message),
                permanent: failure.kind == FailureKind::Permanent,
                retry_after_ms: match failure.kind {
                    FailureKind::RetryAfter(wait) => Some(wait.as_u64()),
                    FailureKind::Retryable | FailureKind::Permanent | FailureKind::Crashed => None,
                },
            },
            Self::TimedOut => wire::Verdict::TimedOut,
            Self::Snoozed(delay) => wire::Verdict::Snoozed { delay_ms: delay.as_u64() },
            Self::Asked(question) => wire::Verdict::Asked { question: Box::new((*question).into()) },
            Self::Interrupted => wire::Verdict::Interrupted,
            Self::Returned => wire::Verdict::Returned,
            Self::Stopped(stage) => wire::Verdict::Stopped { stage },
        }
    }
}

impl From<Settled> for wire::Settled {
    fn from(settled: Settled) -> Self {
        Self { state: settled.state, next_run_at: settled.next_run_at }
    }
}

impl From<wire::Settled> for Settled {
    fn from(settled: wire::Settled) -> Self {
        Self { state: settled.state, next_run_at: settled.next_run_at }
    }
}
