//! The one error of the port: what happened, whether it may have taken effect, and whether trying again can help.

use std::fmt;
use std::sync::Arc;

use ekiden_core::reason::{Language, Message, ReasonCode, Refusal};
use ekiden_store::{Happened, PlanError, StoreError};

/// A request that was not carried out, or whose outcome is not known.
#[derive(Clone, Debug)]
pub struct Error {
    refusal: Refusal,
    happened: Happened,
    retryable: bool,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// What the port answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The stable reason.
    pub const fn code(&self) -> ReasonCode {
        self.refusal.code
    }

    /// The reason with the facts of this case.
    pub const fn refusal(&self) -> &Refusal {
        &self.refusal
    }

    /// Whether it may have happened all the same: the reply got lost. The same request may be sent again.
    pub fn is_unknown(&self) -> bool {
        self.happened == Happened::Unknown
    }

    /// Whether the same request may succeed later.
    pub const fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// What a person reads about it, in their language.
    pub fn message(&self, language: Language) -> &'static Message {
        self.code().message(language)
    }

    /// A later try failed too; what an earlier one left open stays open.
    pub(crate) fn after(self, earlier: Option<&Self>) -> Self {
        let happened = if earlier.is_some_and(Self::is_unknown) { Happened::Unknown } else { self.happened };
        Self { happened, ..self }
    }

    /// The same, of something that may have happened all the same.
    #[cfg(feature = "wire")]
    pub fn in_doubt(self) -> Self {
        Self { happened: Happened::Unknown, ..self }
    }

    /// An error that another process told of.
    #[cfg(feature = "wire")]
    pub(crate) const fn told(refusal: Refusal, happened: Happened, retryable: bool) -> Self {
        Self { refusal, happened, retryable, source: None }
    }

    pub(crate) fn payload(why: serde_json::Error) -> Self {
        let refusal = Refusal::new(ReasonCode::PayloadInvalid).with("why", &why);
        Self { source: Some(Arc::new(why)), ..Self::from(refusal) }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        // A fault may come after the change that was asked for.
        let happened = if refusal.code == ReasonCode::ServerFault { Happened::Unknown } else { Happened::NotApplied };
        let retryable = refusal.code.is_passing();
        Self { refusal, happened, retryable, source: None }
    }
}

impl From<ReasonCode> for Error {
    fn from(code: ReasonCode) -> Self {
        Refusal::new(code).into()
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let StoreError { happened, retryable, refusal, source } = error;
        Self { refusal, happened, retryable, source }
    }
}

impl From<PlanError> for Error {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Refused(refusal) => refusal.into(),
            PlanError::Store(error) => error.into(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.refusal)?;
        match self.happened {
            Happened::Unknown => f.write_str("; it may or may not have happened"),
            Happened::NotApplied => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn std::error::Error + 'static))
    }
}
