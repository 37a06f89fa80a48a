//! What can be wrong with a log, by what its owner can do.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

/// The log could not be opened, written or synced.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file operation failed.
    #[error("cannot {action} \"{path}\"")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// The disk took only a part of a write. The log is poisoned.
    #[error("the disk took {written} of {wanted} bytes at offset {offset} of \"{path}\"")]
    ShortWrite {
        /// The segment.
        path: PathBuf,
        /// Where the write begins.
        offset: u64,
        /// Its length.
        wanted: usize,
        /// How much of it was taken.
        written: usize,
    },
    /// Something that was synced is no longer there as it was written. Nothing was changed.
    #[error("log segment \"{path}\" is damaged at offset {offset}, where batch {expected} is expected: {what}")]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// The sequence number of the batch that should be there.
        expected: u64,
        /// What was found instead.
        what: &'static str,
    },
    /// The segment was written by a newer Ekiden.
    #[error("log segment \"{path}\" has format {version}, and this program reads up to {known}")]
    Newer {
        /// The segment.
        path: PathBuf,
        /// Its format.
        version: u32,
        /// The newest format that this program knows.
        known: u32,
    },
    /// The disk is full and no spare segment is left. The batch was not written, and the log is as good as before.
    #[error("no space for another log segment in \"{folder}\"")]
    NoSpace {
        /// The log's folder.
        folder: PathBuf,
        /// What the disk said.
        source: io::Error,
    },
    /// No file can be opened for the next segment, as when the process has too many open. The batch was not written, and the log
    /// is as good as before.
    #[error("cannot open another log segment in \"{folder}\"")]
    Scarce {
        /// The log's folder.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The batch is larger than any may be. It was not written, and the log is as good as before.
    #[error("a batch of {bytes} bytes is larger than {max}")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// What is allowed.
        max: usize,
    },
    /// An earlier write or sync failed, so nobody knows what is on disk. Open the log again.
    #[error("the log in \"{folder}\" is closed since a write or sync failed")]
    Poisoned {
        /// The log's folder.
        folder: PathBuf,
    },
    /// Whoever was given the batch back did not want it.
    #[error("batch {sequence} of the log cannot be replayed")]
    Replay {
        /// The batch.
        sequence: u64,
        /// What was wrong with it.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl LogError {
    /// Whether nothing was written, and the same may work in a moment.
    pub(crate) const fn is_passing(&self) -> bool {
        matches!(self, Self::NoSpace { .. } | Self::Scarce { .. })
    }

    /// Turns what the disk said into an error that names what was tried.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
