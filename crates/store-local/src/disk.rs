//! The one seam between the store and files. The log and the checkpoint know only these two traits, so that a fake can
//! forget what was not synced and fail at any call. Blocking: whoever calls owns a thread that may wait.

#[cfg(any(test, feature = "faults"))]
pub mod fake;
mod owned;
#[cfg(any(test, feature = "faults"))]
pub mod planted;
mod system;

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use owned::Found;
pub use system::SystemDisk;

/// 1 MiB of zeros at a time: enough for the disk's full speed, small enough to keep around.
const ZEROS: &[u8] = &[0; 1 << 20];

/// Which file an open wants to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// One that is there.
    Existing,
    /// One that is not there yet.
    New,
    /// Either.
    OrNew,
}

/// Held until dropped: nobody else has the lock.
pub type LockGuard = Box<dyn Send + Sync>;

/// Folders and the names in them. A name that was made, changed or removed is durable only when its folder was synced.
pub trait Disk: Send + Sync + Debug {
    /// Makes a folder that only its owner may enter, with its parents, and syncs the parents. One that is there is kept.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Refuses a folder that is a link, no folder at all, or another user's. One that is missing is fine.
    fn check_folder(&self, folder: &Path) -> io::Result<()>;

    /// The names in a folder, in no order.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Opens a file for reading and writing. A new one is for its owner's eyes only. A link is not followed, and what is no
    /// regular file, or another user's, is an error.
    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name; one that has that name already is gone with the same step.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Opens a folder, so that its names can be made durable when the process can open nothing more.
    fn open_folder(&self, folder: &Path) -> io::Result<Box<dyn DiskFolder>>;

    /// What an unprivileged user may still write to the file system of this folder.
    fn free_bytes(&self, folder: &Path) -> io::Result<u64>;

    /// Takes the exclusive lock that a file stands for, or fails with `WouldBlock`. The file is made if it is missing.
    fn lock(&self, path: &Path) -> io::Result<LockGuard>;
}

/// An open folder.
pub trait DiskFolder: Send + Sync + Debug {
    /// Makes the names in it durable.
    fn sync(&self) -> io::Result<()>;
}

/// An open file. No call moves a cursor: they take an offset, so one handle serves several threads.
#[expect(clippy::len_without_is_empty, reason = "nobody asks a file whether it is empty")]
pub trait DiskFile: Send + Sync + Debug {
    /// Reads what is there, perhaps less than asked; nothing at or behind the end.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes, perhaps less than asked.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes content and length durable. After a failure nothing may be assumed of what was written since the last
    /// success, and trying again proves nothing.
    fn sync_data(&self) -> io::Result<()>;

    /// The length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// Cuts or extends with zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Takes the space for a part of the file, so that later writes to it do not find the disk full. Extends the file to
    /// the part's end if it was shorter.
    fn allocate(&self, from: u64, bytes: u64) -> io::Result<()>;
}

/// Reads until `into` is full or the file ends; gives how much that was.
pub fn read_full(file: &dyn DiskFile, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(as_u64(done)))? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}

/// Writes everything, in as many steps as the file wants. Not for the log's batches: a short write there is a failure.
pub fn write_full(file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        match file.write_at(rest, offset.saturating_add(as_u64(done)))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => done += written,
        }
    }
    Ok(())
}

/// Writes zeros from one offset up to another.
pub fn write_zeros(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<()> {
    let mut at = from;
    while at < to {
        let part = usize::try_from(to - at).unwrap_or(usize::MAX).min(ZEROS.len());
        write_full(file, ZEROS.get(..part).unwrap_or(ZEROS), at)?;
        at += as_u64(part);
    }
    Ok(())
}

/// Whether an error says that the disk, or somebody's share of it, is full.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The error numbers of a system and a process with too many open files, and of one without memory: `ENFILE`, `EMFILE` and `ENOMEM`, the
/// same on every Unix.
const PASSING: [i32; 3] = [23, 24, 12];

/// Whether an error says that something is scarce now, and nothing of the disk.
pub fn is_passing(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| PASSING.contains(&code))
}

/// What a call failed on, if that is not the path that it was asked for.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub(crate) struct At {
    pub(crate) path: PathBuf,
    source: io::Error,
}

impl At {
    /// Names the path that a call failed on.
    pub(crate) fn name(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
        let path = path.to_owned();
        move |source| io::Error::new(source.kind(), Self { path, source })
    }

    /// The path that an error names by itself.
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// A length in memory as a length on disk.
pub(crate) fn as_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
