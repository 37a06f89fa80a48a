//! Store errors, grouped by the one thing a caller must know: whether it may have happened.

use std::fmt;
use std::sync::Arc;

use ekiden_core::reason::{ReasonCode, Refusal};

/// Whether a failed request may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Happened {
    /// Certainly not.
    NotApplied,
    /// Perhaps. The same op, with the same id, may be sent again.
    Unknown,
}

/// A store could not answer. Conflicts and refusals of tasks are answers, not errors.
#[derive(Clone, Debug)]
pub struct StoreError {
    /// Whether it may have happened.
    pub happened: Happened,
    /// Whether trying again can help.
    pub retryable: bool,
    /// The stable reason, with its facts.
    pub refusal: Refusal,
    /// What the driver said.
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    /// The request itself is wrong; sending it again is pointless.
    pub fn invalid(refusal: Refusal) -> Self {
        Self { happened: Happened::NotApplied, retryable: false, refusal, source: None }
    }

    /// The store did not take the request, but may take the next one.
    pub fn unavailable(why: impl ToString) -> Self {
        let refusal = Refusal::new(ReasonCode::StoreUnavailable).with("why", why);
        Self { happened: Happened::NotApplied, retryable: true, refusal, source: None }
    }

    /// The reply got lost.
    pub fn unknown(why: impl ToString) -> Self {
        let refusal = Refusal::new(ReasonCode::StoreOutcomeUnknown).with("why", why);
        Self { happened: Happened::Unknown, retryable: true, refusal, source: None }
    }

    /// The store was closed.
    pub fn closed() -> Self {
        Self::invalid(Refusal::new(ReasonCode::StoreClosed))
    }

    /// Adds what the driver said.
    #[must_use]
    pub fn because(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(source)), ..self }
    }

    /// The stable reason.
    pub const fn code(&self) -> ReasonCode {
        self.refusal.code
    }
}

impl From<Refusal> for StoreError {
    fn from(refusal: Refusal) -> Self {
        Self::invalid(refusal)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let happened = match self.happened {
            Happened::NotApplied => "nothing was written",
            Happened::Unknown => "it may or may not have been written",
        };
        write!(f, "{}; {happened}", self.refusal)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn std::error::Error + 'static))
    }
}
