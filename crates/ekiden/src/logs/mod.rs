//! The logs of attempts: what a task writes while it runs. A small port of its own beside the queue, as such bytes belong in
//! no store of tasks: there are many of them, and losing the last ones in a power cut loses no task.

mod folder;
mod name;
mod total;

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::Result;
use crate::port::TaskRef;

pub use folder::FolderLogs;

/// Names an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttemptRef {
    /// Its task.
    pub task: TaskRef,
    /// Its number.
    pub execution_no: u64,
}

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// Where the log begins by now; what was before is dropped.
    pub start: u64,
    /// Where it ends by now.
    pub end: u64,
    /// Where the bytes begin: where it was asked for, or later if that is dropped.
    pub offset: u64,
    /// The bytes.
    pub bytes: Bytes,
}

/// Where logs are kept. Who may write to which is decided by whoever has the tasks.
#[async_trait]
pub trait Logs: Send + Sync + 'static {
    /// Adds bytes at the end, and says where it is then. Another place than the end is refused with `LOG_OFFSET_WRONG` and the
    /// end, so that a repeated piece is recognised. A log that is longer than its maximum loses its oldest bytes.
    async fn append(&self, attempt: AttemptRef, offset: u64, bytes: Bytes) -> Result<u64>;

    /// At most so many bytes from an offset on; none beyond the end. What nobody wrote to is `LOG_NOT_FOUND`.
    async fn read(&self, attempt: AttemptRef, offset: u64, limit: usize) -> Result<LogPart>;

    /// Removes the logs of all attempts of a task, if there are any.
    async fn remove(&self, task: TaskRef) -> Result<()>;

    /// Some tasks that have logs, in an order of the implementation's own, behind one of them.
    async fn tasks(&self, after: Option<TaskRef>, limit: usize) -> Result<Vec<TaskRef>>;
}
