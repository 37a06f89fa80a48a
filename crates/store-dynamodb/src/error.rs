//! What can go wrong below, in the words of the contract. The driver's own errors end here, told apart by their codes and never
//! by their texts.

use std::error::Error;
use std::io;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_store::{Happened, StoreError};

use crate::codec::{Item, Unreadable};

/// Why a request did not do what it was sent for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A condition was not met; nothing was written.
    Unmet(Unmet),
    /// Too much at once, or somebody else in between; nothing was written, and the next try may work.
    Busy(StoreError),
    /// Anything else.
    Failed(StoreError),
}

/// What was not as expected.
#[derive(Debug, Default)]
pub(crate) struct Unmet {
    /// The places of those changes in their transaction; empty for a request with one change.
    pub(crate) places: Vec<usize>,
    /// The item that was there instead, after an update of one item.
    pub(crate) found: Option<Item>,
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unmet(_) => Self::unavailable("a condition was not met where none was set"),
            Failure::Busy(error) | Failure::Failed(error) => error,
        }
    }
}

/// What a write met.
pub(crate) fn of_write<E>(error: SdkError<E>) -> Failure
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    match error.code() {
        Some("ConditionalCheckFailedException") => Failure::Unmet(Unmet::default()),
        Some(code) if is_busy(code) => Failure::Busy(StoreError::unavailable(code).because(error)),
        Some("ResourceNotFoundException") => {
            Failure::Failed(StoreError::unavailable("a table is missing").because(error))
        }
        Some("InternalServerError" | "ServiceUnavailable" | "ServiceUnavailableException") => {
            Failure::Failed(StoreError::unknown("the server failed").because(error))
        }
        Some(code) => {
            let refusal = Refusal::new(ReasonCode::StoreUnavailable).with("why", code.to_owned());
            Failure::Failed(StoreError::invalid(refusal).because(error))
        }
        None if never_sent(&error) => Failure::Failed(StoreError::unavailable("cannot reach DynamoDB").because(error)),
        None => Failure::Failed(StoreError::unknown("DynamoDB did not answer").because(error)),
    }
}

/// What an update of one item met. The item that did not meet the condition comes with the answer.
pub(crate) fn of_update(error: SdkError<UpdateItemError>) -> Failure {
    let found = match error.as_service_error() {
        Some(UpdateItemError::ConditionalCheckFailedException(failed)) => failed.item().cloned(),
        _ => return of_write(error),
    };
    Failure::Unmet(Unmet { places: Vec::new(), found })
}

/// What a transaction met. One that was cancelled says for each change why.
pub(crate) fn of_transaction(error: SdkError<TransactWriteItemsError>) -> Failure {
    let cancelled = match error.as_service_error() {
        Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => cancelled,
        _ => return of_write(error),
    };
    let codes: Vec<Option<String>> =
        cancelled.cancellation_reasons().iter().map(|reason| reason.code().map(str::to_owned)).collect();
    let is = |code: &Option<String>, wanted: &str| code.as_deref() == Some(wanted);
    let unmet: Vec<usize> =
        codes.iter().enumerate().filter(|(_, code)| is(code, "ConditionalCheckFailed")).map(|(at, _)| at).collect();
    if !unmet.is_empty() {
        return Failure::Unmet(Unmet { places: unmet, found: None });
    }
    let busy = ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"];
    if codes.iter().any(|code| busy.iter().any(|wanted| is(code, wanted))) {
        return Failure::Busy(StoreError::unavailable("others write the same items").because(error));
    }
    let why = codes.into_iter().flatten().find(|code| code != "None").unwrap_or_default();
    let refusal = Refusal::new(ReasonCode::StoreUnavailable).with("why", why);
    Failure::Failed(StoreError::invalid(refusal).because(error))
}

/// What a read met: nothing was written, whatever it was.
pub(crate) fn of_read<E>(error: SdkError<E>) -> Failure
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    match of_write(error) {
        Failure::Failed(error) => Failure::Failed(StoreError {
            happened: Happened::NotApplied,
            refusal: Refusal { code: ReasonCode::StoreUnavailable, ..error.refusal },
            ..error
        }),
        other => other,
    }
}

fn is_busy(code: &str) -> bool {
    [
        "ThrottlingException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "TransactionConflictException",
        "TransactionInProgressException",
        "ReplicatedWriteConflictException",
    ]
    .contains(&code)
}

/// Whether nobody can have got the request: it could not be made, or nobody listens there.
fn never_sent<E: Error + 'static>(error: &SdkError<E>) -> bool {
    if matches!(error, SdkError::ConstructionFailure(_)) {
        return true;
    }
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::ConnectionRefused
        {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// Something stored cannot be read; `place` says where it is.
pub(crate) fn unreadable(place: impl ToString, error: &Unreadable) -> StoreError {
    let code = match error {
        Unreadable::TooNew { .. } => ReasonCode::RecordTooNew,
        Unreadable::Missing(_) | Unreadable::Content(_) => ReasonCode::StoreDamaged,
    };
    StoreError::invalid(Refusal::new(code).with("place", place).with("why", error))
}

/// A table is there whose keys are not those of the document.
pub(crate) fn unfit(table: &str, why: impl ToString) -> StoreError {
    StoreError::invalid(Refusal::new(ReasonCode::TableUnfit).with("table", table).with("why", why))
}
