//! Moves everything that a store keeps to another store, or to lines of JSON and back. Needs only the contract, so it moves
//! from any store to any store.
//!
//! Records go as they are, leases and running tasks included; revisions are the target's own. Nothing is read or written
//! in one piece: memory is bounded whatever there is to move. What others change meanwhile may be moved as it was before or
//! after, so both stores should be at rest: a local store that belongs to this process is.

mod intake;
mod lines;
mod pages;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use ekiden_core::reason::Refusal;

use crate::error::StoreError;
use crate::store::Store;

pub use lines::{export, import};

use intake::Intake;
use pages::Pages;

/// What becomes of records that the target has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// A namespace that has anything in the target is refused, and nothing of it is moved.
    Refuse,
    /// They stay as they are. With this a move that was cut short goes on.
    Skip,
}

/// What was moved so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Namespaces that were come upon.
    pub namespaces: u64,
    /// Records that were written, tasks included.
    pub records: u64,
    /// Tasks among them.
    pub tasks: u64,
    /// Records that the target had already, and that stayed as they were.
    pub skipped: u64,
    /// Those among the skipped that the target has with another content.
    pub different: u64,
}

impl Moved {
    /// Records that were come upon, written or not.
    pub const fn seen(&self) -> u64 {
        self.records + self.skipped
    }
}

/// How far a move is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What was moved so far.
    pub moved: Moved,
    /// How many tasks there are in all, where that is known. Other records are not counted beforehand.
    pub tasks_total: Option<u64>,
}

/// Hears how far a move is, about once every 256 records.
pub type Watcher<'a> = dyn FnMut(Progress) + Send + 'a;

/// A move that ended early.
#[derive(Clone, Debug)]
pub struct TransferError {
    /// The stable reason, with its facts.
    pub refusal: Refusal,
    /// What was moved before it ended. It stays.
    pub moved: Moved,
    /// What the driver or the file said.
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {} records were moved before", self.refusal, self.moved.records)
    }
}

impl Error for TransferError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as &(dyn Error + 'static))
    }
}

/// Why a step could not be taken; what was moved before is known to whoever keeps count.
#[derive(Debug)]
pub(crate) struct Stop {
    refusal: Refusal,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Stop {
    fn after(self, moved: Moved) -> TransferError {
        TransferError { refusal: self.refusal, moved, source: self.source }
    }

    /// Says where in a file it happened.
    fn at_line(mut self, line: u64) -> Self {
        self.refusal = self.refusal.with("line", line);
        self
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, source: None }
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self { refusal: error.refusal, source: error.source }
    }
}

/// Moves all namespaces and all kinds of records. A target that has anything in one of the namespaces is refused before
/// anything is written, unless what exists is to be skipped.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use ekiden_store::MemoryStore;
/// use ekiden_store::transfer::{Existing, transfer};
///
/// let (from, to) = (MemoryStore::new(), MemoryStore::new());
/// let moved = transfer(&from, &to, Existing::Refuse, &mut |_| {}).await?;
/// assert_eq!(moved.records, 0, "there was nothing");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn transfer(
    from: &dyn Store,
    to: &dyn Store,
    existing: Existing,
    progress: &mut Watcher<'_>,
) -> Result<Moved, TransferError> {
    let mut intake = Intake::new(to, existing);
    match carry(from, &mut intake, progress).await {
        Ok(()) => Ok(intake.moved),
        Err(stop) => Err(stop.after(intake.moved)),
    }
}

async fn carry(from: &dyn Store, intake: &mut Intake<'_>, progress: &mut Watcher<'_>) -> Result<(), Stop> {
    let tasks_total = Some(intake.expect_all(from).await?);
    let mut pages = Pages::of(from);
    while let Some(page) = pages.next().await? {
        for found in page {
            intake.take(found.key, found.record, 0).await?;
        }
        intake.flush().await?;
        progress(Progress { moved: intake.moved, tasks_total });
    }
    Ok(())
}
