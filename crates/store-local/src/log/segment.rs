//! Segments by name: which file of the folder is what, and how a prepared file becomes the next segment.

use std::path::{Path, PathBuf};

use super::error::LogError;
use super::format::{self, SegmentHeader};
use super::spares::NamedFile;
use crate::disk::{Disk, DiskFile, DiskFolder, How, as_u64};

/// A segment that is open for appending.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) file: Box<dyn DiskFile>,
    pub(super) header: SegmentHeader,
    /// Where the next batch goes.
    pub(super) at: u64,
}

impl Segment {
    /// Whether a batch fits in, and a seal behind it.
    pub(super) fn has_room(&self, framed: usize) -> bool {
        self.at.saturating_add(as_u64(framed + format::SEAL_BYTES)) <= self.header.bytes
    }
}

/// A segment behind the one that is written to.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) first: u64,
    /// The length of the file.
    pub(super) bytes: u64,
    /// What batches and header take of it.
    pub(super) used: u64,
}

/// What a name in the log's folder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// A segment, by the sequence number of its first batch.
    Segment(u64),
    /// A file of a segment's length that waits for its turn, by a number that no other has.
    Spare(u64),
    /// A file that is being made.
    Draft(u64),
}

impl Name {
    /// None for files that are not ours. An error for one that would be a segment if its name made sense.
    pub(super) fn parse(name: &str) -> Result<Option<Self>, BadName> {
        let Some((stem, kind)) = name.split_once('.') else { return Ok(None) };
        let number = || stem.parse().ok().filter(|_| stem.len() == 20);
        match kind {
            "log" => number().map(|number| Some(Self::Segment(number))).ok_or(BadName),
            "spare" => Ok(number().map(Self::Spare)),
            "draft" => Ok(number().map(Self::Draft)),
            _ => Ok(None),
        }
    }

    pub(super) fn in_folder(self, folder: &Path) -> PathBuf {
        folder.join(match self {
            Self::Segment(number) => format!("{number:020}.log"),
            Self::Spare(number) => format!("{number:020}.spare"),
            Self::Draft(number) => format!("{number:020}.draft"),
        })
    }
}

/// A name that ends like a segment's and is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadName;

/// A file of a segment's length.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) name: Name,
    /// Open before it is needed. One that could not be opened is opened when it is taken.
    pub(super) file: Option<Box<dyn DiskFile>>,
}

impl Spare {
    /// Opens the file, if it is not open.
    pub(super) fn open(&mut self, disk: &dyn Disk, folder: &Path) -> std::io::Result<()> {
        if self.file.is_none() {
            self.file = Some(disk.open(&self.name.in_folder(folder), How::Existing)?);
        }
        Ok(())
    }
}

/// Makes a segment of an open file that has the right length. Its header is durable before its name is: a file with a segment's
/// name has a segment's header.
pub(super) fn activate(
    disk: &dyn Disk,
    folder: &Path,
    names: &dyn DiskFolder,
    (from, file): NamedFile,
    header: SegmentHeader,
) -> Result<Segment, LogError> {
    let (old, path) = (from.in_folder(folder), Name::Segment(header.first).in_folder(folder));
    let bytes = header.encode();
    write_once(&*file, &old, &bytes, 0)?;
    file.sync_data().map_err(LogError::io("sync", &old))?;
    disk.rename(&old, &path).map_err(LogError::io("rename", &old))?;
    names.sync().map_err(LogError::io("sync", folder))?;
    Ok(Segment { path, file, header, at: as_u64(bytes.len()) })
}

/// Notes at the end of a segment that the batch with this number is in the next one, so that a log whose last segment went
/// missing is noticed.
pub(super) fn seal(
    file: &dyn DiskFile,
    path: &Path,
    header: &SegmentHeader,
    at: u64,
    next: u64,
) -> Result<(), LogError> {
    write_once(file, path, &format::seal(header.salt, next), at)?;
    file.sync_data().map_err(LogError::io("sync", path))
}

/// One write, which takes everything or has failed.
pub(super) fn write_once(file: &dyn DiskFile, path: &Path, bytes: &[u8], offset: u64) -> Result<(), LogError> {
    let written = file.write_at(bytes, offset).map_err(LogError::io("write", path))?;
    if written < bytes.len() {
        return Err(LogError::ShortWrite { path: path.to_owned(), offset, wanted: bytes.len(), written });
    }
    Ok(())
}
