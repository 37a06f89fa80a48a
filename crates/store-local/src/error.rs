//! What can go wrong below, in the words of the contract. The drivers' own errors end here.

use std::io;
use std::path::Path;

use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_store::{Happened, StoreError};

use crate::codec::Unreadable;
use crate::disk::{self, At, Found};

/// Something stored cannot be read; `place` says where it is.
pub(crate) fn damaged(place: impl ToString, what: impl ToString) -> StoreError {
    StoreError::invalid(Refusal::new(ReasonCode::StoreDamaged).with("place", place).with("why", what))
}

/// A record's bytes are no record.
pub(crate) fn unreadable(place: impl ToString, error: &Unreadable) -> StoreError {
    match error {
        Unreadable::TooNew { version } => {
            StoreError::invalid(Refusal::new(ReasonCode::RecordTooNew).with("place", place).with("version", version))
        }
        Unreadable::Short | Unreadable::Checksum | Unreadable::Content(_) => damaged(place, error),
    }
}

/// A file could not be used, and nothing was written.
pub(crate) fn io(path: &Path, error: io::Error) -> StoreError {
    if let Some(found) = Found::of(&error) {
        let refusal = Refusal::new(ReasonCode::FileUnsafe).with("path", path.display()).with("found", found);
        return StoreError::invalid(refusal).because(error);
    }
    let code = if disk::is_full(&error) { ReasonCode::StoreFull } else { ReasonCode::StoreUnavailable };
    let path = At::of(&error).map_or(path, |at| &at.path);
    let refusal = Refusal::new(code).with("path", path.display()).with("why", &error);
    StoreError { happened: Happened::NotApplied, retryable: true, refusal, source: None }.because(error)
}

/// Whether something failed that may work in a moment, before anything was written.
pub(crate) fn is_passing(error: &StoreError) -> bool {
    error.source.as_ref().and_then(|source| source.downcast_ref()).is_some_and(disk::is_passing)
}

/// An earlier call on the file failed, perhaps a read. Nothing was written since, and the file can be opened again.
#[derive(Debug, thiserror::Error)]
#[error("an earlier read or write failed")]
struct Spoiled;

/// The checkpoint has to be opened again before it is used.
pub(crate) fn spoiled(path: &Path) -> StoreError {
    StoreError::unavailable(format!("{}: {Spoiled}", path.display())).because(Spoiled)
}

/// Whether the checkpoint has to be opened again before it is used.
pub(crate) fn is_spoiled(error: &StoreError) -> bool {
    error.source.as_ref().is_some_and(|source| source.is::<Spoiled>())
}

/// The folder belongs to another process.
pub(crate) fn in_use(path: &Path) -> StoreError {
    StoreError::invalid(Refusal::new(ReasonCode::StoreInUse).with("path", path.display()))
}

/// The folder was written by a newer version.
pub(crate) fn too_new(path: &Path, format: u64) -> StoreError {
    StoreError::invalid(Refusal::new(ReasonCode::StoreTooNew).with("path", path.display()).with("format", format))
}

/// The disk is full; nothing was written.
pub(crate) fn full(path: &Path) -> StoreError {
    let refusal = Refusal::new(ReasonCode::StoreFull).with("path", path.display());
    StoreError { happened: Happened::NotApplied, retryable: true, refusal, source: None }
}

/// No file can be opened for what comes next; nothing was written.
pub(crate) fn scarce(path: &Path) -> StoreError {
    let why = "no file can be opened: too many are open, or there is no memory";
    let refusal = Refusal::new(ReasonCode::StoreUnavailable).with("path", path.display()).with("why", why);
    StoreError { happened: Happened::NotApplied, retryable: true, refusal, source: None }
}

/// A write or sync failed, and the store takes nothing more until it is opened again.
pub(crate) fn failed(why: &str, happened: Happened) -> StoreError {
    let refusal = Refusal::new(ReasonCode::StoreFailed).with("why", why);
    StoreError { happened, retryable: false, refusal, source: None }
}
