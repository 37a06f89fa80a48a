//! Errors as they go over HTTP.

use ekiden_core::reason::Language;
use ekiden_store::Happened;
use ekiden_wire as wire;

use crate::error::Error;

/// An error in the caller's language.
pub fn detail(error: &Error, language: Language) -> wire::ErrorDetail {
    let outcome = if error.is_unknown() { wire::Happened::Unknown } else { wire::Happened::NotApplied };
    wire::ErrorDetail { outcome, retryable: error.is_retryable(), ..wire::ErrorDetail::new(error.refusal(), language) }
}

/// The error that was told.
pub fn error(detail: &wire::ErrorDetail) -> Error {
    let happened = match detail.outcome {
        wire::Happened::NotApplied => Happened::NotApplied,
        wire::Happened::Unknown => Happened::Unknown,
    };
    Error::told(detail.refusal(), happened, detail.retryable)
}
