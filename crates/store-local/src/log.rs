//! Appends batches to the log. Knows nothing of tasks: a batch is bytes with a sequence number and checksums.
//!
//! One batch is one write and one sync, and a batch is written only after the one before it was synced. So after a crash
//! at most the last batch is torn: whatever else does not read as it was written is damage, and is never passed over.

mod error;
mod format;
mod recovery;
mod segment;
mod spares;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use error::LogError;
pub use spares::{Reserve, Spares};

use crate::disk::{Disk, as_u64};
use format::{BATCH_BYTES_MAX, SEAL_BYTES, SEGMENT_HEADER_BYTES, SegmentHeader};
use segment::{Closed, Name, Segment};

/// The folder of a store's log, in the store's folder.
pub(crate) const FOLDER: &str = "log";

/// How a log keeps its files.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// The length of a segment, header included. A batch that does not fit gets a segment of its own length.
    pub segment_bytes: u64,
    /// How many spares [`Spares::prepare`] makes before the log goes on to its second segment: a log that is hardly used does
    /// without the others. With none the log cannot go on when the disk is full.
    pub spares_at_open: usize,
    /// How many spares it makes from then on.
    pub spares_wanted: usize,
    /// How many released segments are kept as spares; the rest is removed.
    pub spares_max: usize,
    /// A random number, for the checksums of segments that begin from now on. With it, bytes inside a batch cannot be made
    /// to look like a batch.
    pub salt: u64,
}

impl LogOptions {
    /// Segments of 16 MiB, which took 40 ms to make where it was measured: few enough to count, small enough to make and
    /// to read in one piece. One spare ahead, at most three kept.
    pub const fn new(salt: u64) -> Self {
        Self { segment_bytes: 16 << 20, spares_at_open: 1, spares_wanted: 1, spares_max: 3, salt }
    }
}

/// How far a log goes at least, by what its checkpoint says. One that ends before was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reaches {
    /// No log belongs to the checkpoint: the store is new, or a copy, or goes on without a log that is known to be lost.
    Nowhere,
    /// There is a segment. The log had no room for the last batches of the checkpoint.
    ASegment,
    /// The last batch of the checkpoint.
    Checkpoint,
}

/// Takes back the batches of a log that is opened, in order. An error ends the opening.
pub type Replay<'a> = dyn FnMut(u64, &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> + 'a;

/// An open log. One thread appends, syncs and releases; any thread may prepare its [`Spares`].
#[derive(Debug)]
pub struct Log {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    options: LogOptions,
    spares: Spares,
    /// Segments before the current one that were not released, oldest first.
    closed: VecDeque<Closed>,
    current: Segment,
    /// The sequence number of the next batch.
    next: u64,
    /// Batches before the next one were left out: it begins a segment.
    is_gap: bool,
    /// The last batch was written and not synced yet.
    is_unsynced: bool,
    /// Holds a batch with its header on the way to its one write.
    frame: Vec<u8>,
}

impl Log {
    /// Opens the log in this folder, or begins one there, and replays every whole batch after `after`, the last that the
    /// checkpoint already has. A torn last batch is cut off; a log that does not reach where it must is damaged. When this returns,
    /// everything that was replayed is durable, and the log reaches its checkpoint.
    ///
    /// The caller must hold whatever lock keeps other processes away.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        options: LogOptions,
        after: u64,
        reaches: Reaches,
        replay: &mut Replay<'_>,
    ) -> Result<Self, LogError> {
        disk.create_folder(folder).map_err(LogError::io("create", folder))?;
        let spares = Spares::new(disk.clone(), folder, options).map_err(LogError::io("open", folder))?;
        let from = recovery::Start { after, reaches };
        let recovered = recovery::recover(&*disk, folder, &options, &spares, from, replay)?;
        let (closed, next) = (recovered.closed, recovered.next);
        let current = match recovered.current {
            Some(segment) => segment,
            None => begin(&*disk, folder, &options, &spares, next, 0)?,
        };
        Ok(Self {
            disk,
            folder: folder.to_owned(),
            options,
            spares,
            closed,
            current,
            next,
            is_gap: false,
            is_unsynced: false,
            frame: Vec::new(),
        })
    }

    /// Whether a file of this name is a segment.
    pub(crate) fn is_segment(name: &str) -> bool {
        matches!(Name::parse(name), Ok(Some(Name::Segment(_))))
    }

    /// Whether a file of this name is a spare.
    pub(crate) fn is_spare(name: &str) -> bool {
        matches!(Name::parse(name), Ok(Some(Name::Spare(_))))
    }

    /// Writes a batch, which is not durable before [`sync`](Self::sync) returned. Gives its sequence number, one more than
    /// that of the batch before. A batch before it that was not synced yet is synced first.
    ///
    /// After [`LogError::NoSpace`], [`LogError::Scarce`] and [`LogError::TooLarge`] nothing was written and the log goes on; any other
    /// error poisons it.
    pub fn append(&mut self, bytes: &[u8]) -> Result<u64, LogError> {
        if bytes.len() > BATCH_BYTES_MAX {
            return Err(LogError::TooLarge { bytes: bytes.len(), max: BATCH_BYTES_MAX });
        }
        self.sync()?;
        let framed = format::framed_bytes(bytes.len());
        if self.is_gap || !self.current.has_room(framed) {
            self.roll(framed)?;
        }
        format::frame(&mut self.frame, self.current.header.salt, self.next, bytes);
        let Segment { path, file, at, .. } = &self.current;
        let wrote = segment::write_once(&**file, path, &self.frame, *at);
        self.or_poison(wrote)?;
        self.is_unsynced = true;
        self.current.at += as_u64(framed);
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Makes everything that was appended durable. An error poisons the log: it is unknown whether the last batch is on
    /// disk, and only opening the log again tells.
    pub fn sync(&mut self) -> Result<(), LogError> {
        if self.spares.is_poisoned() {
            return Err(LogError::Poisoned { folder: self.folder.clone() });
        }
        if !self.is_unsynced {
            return Ok(());
        }
        let synced = self.current.file.sync_data().map_err(LogError::io("sync", &self.current.path));
        self.or_poison(synced)?;
        self.is_unsynced = false;
        Ok(())
    }

    /// Leaves out the batches before this one, because a durable checkpoint has them and everything before. Does no I/O: the next
    /// batch begins a segment, so that no segment has a gap.
    pub fn leave_out(&mut self, before: u64) {
        debug_assert!(before > self.next, "what is in the log cannot be left out");
        self.next = before;
        self.is_gap = true;
    }

    /// Gives up segments that hold only batches up to this one, because a durable checkpoint has them. Does no I/O: the
    /// files go to the [`Spares`], whose next [`prepare`](Spares::prepare) recycles them.
    pub fn release(&mut self, upto: u64) {
        let firsts = self.closed.iter().skip(1).map(|segment| segment.first);
        let ends = firsts.chain([self.current.header.first]);
        let count = ends.take_while(|next| *next <= upto.saturating_add(1)).count();
        self.spares.release(self.closed.drain(..count.min(self.closed.len())));
    }

    /// The sequence number of the last batch that was appended or left out, or that the log was opened after.
    pub const fn last(&self) -> u64 {
        self.next - 1
    }

    /// What the batches that were not released take on disk. They are read when the log is opened.
    pub fn bytes_live(&self) -> u64 {
        self.closed.iter().map(|segment| segment.used).sum::<u64>() + self.current.at
    }

    /// False while the disk has no room for another spare: take no new work in, only finish what is there.
    pub fn has_reserve(&self) -> bool {
        self.spares.has_reserve()
    }

    /// The stock of files, for the thread that keeps it filled.
    pub fn spares(&self) -> Spares {
        self.spares.clone()
    }

    /// Goes on in a new segment that has room for this many bytes. Everything before is synced.
    fn roll(&mut self, framed: usize) -> Result<(), LogError> {
        let next = begin(&*self.disk, &self.folder, &self.options, &self.spares, self.next, framed)?;
        self.spares.want_all();
        let before = std::mem::replace(&mut self.current, next);
        // A segment that is still empty was replaced by its larger successor, which has the same name.
        if before.header.first < self.next {
            let Segment { path, file, header, at } = before;
            self.or_poison(segment::seal(&*file, &path, &header, at, self.next))?;
            self.closed.push_back(Closed { first: header.first, bytes: header.bytes, used: at });
        }
        if std::mem::take(&mut self.is_gap) {
            self.spares.release(self.closed.drain(..));
        }
        Ok(())
    }

    fn or_poison<T>(&self, outcome: Result<T, LogError>) -> Result<T, LogError> {
        outcome.inspect_err(|_| self.spares.poison())
    }
}

/// Begins the segment whose first batch is `first`, which takes this many bytes.
fn begin(
    disk: &dyn Disk,
    folder: &Path,
    options: &LogOptions,
    spares: &Spares,
    first: u64,
    framed: usize,
) -> Result<Segment, LogError> {
    let bytes = as_u64(SEGMENT_HEADER_BYTES + framed + SEAL_BYTES);
    let fits = bytes <= options.segment_bytes;
    let bytes = if fits { options.segment_bytes } else { bytes };
    let file = if fits { spares.take() } else { spares.make(bytes) };
    let header = SegmentHeader { first, bytes, salt: options.salt.wrapping_add(first) };
    let begun = file.and_then(|file| segment::activate(disk, folder, spares.names(), file, header));
    begun.inspect_err(|error| {
        // A full disk, or a file that cannot be opened, is known before anything was written.
        if !error.is_passing() {
            spares.poison();
        }
    })
}
