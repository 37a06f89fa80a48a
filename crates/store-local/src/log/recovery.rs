//! Reads a log back. Finds where it ends, tells a torn last batch from damage, and leaves the segment so that what was
//! read is durable and what was cut cannot come back.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::error::LogError;
use super::format::{self, ALIGN, BatchHeader, HeaderFault, SEGMENT_HEADER_BYTES, SegmentHeader, VERSION};
use super::segment::{self, BadName, Closed, Name, Segment};
use super::spares::Spares;
use super::{LogOptions, Reaches, Replay};
use crate::disk::{self, Disk, DiskFile, How, as_u64};

/// What an opened log goes on from.
pub(super) struct Recovered {
    pub(super) closed: VecDeque<Closed>,
    /// None if there is nothing to go on with: a new log, or one that had no room for the last batches of its checkpoint.
    pub(super) current: Option<Segment>,
    pub(super) next: u64,
}

/// What the checkpoint knows of its log.
#[derive(Clone, Copy)]
pub(super) struct Start {
    /// The last batch that the checkpoint has.
    pub(super) after: u64,
    pub(super) reaches: Reaches,
}

pub(super) fn recover(
    disk: &dyn Disk,
    folder: &Path,
    options: &LogOptions,
    spares: &Spares,
    from: Start,
    replay: &mut Replay<'_>,
) -> Result<Recovered, LogError> {
    let after = from.after;
    let mut firsts = survey(disk, folder, options, spares)?;
    // A name that was only remembered by the kernel when the process before us died becomes durable here.
    disk.sync_folder(folder).map_err(LogError::io("sync", folder))?;

    // The segment that begins last among those that can hold the first batch we need; all before it are in the checkpoint.
    let needless = firsts.partition_point(|first| *first <= after.saturating_add(1)).saturating_sub(1);
    let needless: Vec<_> = firsts.drain(..needless).collect();
    let Some(earliest) = firsts.first().copied() else {
        if from.reaches != Reaches::Nowhere {
            let (path, expected) = (folder.to_owned(), after.saturating_add(1));
            return Err(LogError::Damaged { path, offset: 0, expected, what: "there is no segment" });
        }
        return Ok(Recovered { closed: VecDeque::new(), current: None, next: after.saturating_add(1) });
    };
    if earliest > after.saturating_add(1) {
        let path = Name::Segment(earliest).in_folder(folder);
        let what = "the segment that holds it is missing";
        return Err(LogError::Damaged { path, offset: 0, expected: after.saturating_add(1), what });
    }
    let recovered = read_segments(disk, folder, spares, &firsts, from, replay)?;
    for first in needless {
        release(disk, folder, spares, first)?;
    }
    Ok(recovered)
}

/// Sorts the folder: gives the first sequence numbers of its segments in order, hands its spares to the stock, and removes
/// what somebody was still making.
fn survey(disk: &dyn Disk, folder: &Path, options: &LogOptions, spares: &Spares) -> Result<Vec<u64>, LogError> {
    let mut firsts = Vec::new();
    for text in disk.list(folder).map_err(LogError::io("list", folder))? {
        let path = folder.join(&text);
        match Name::parse(&text) {
            Ok(None) => {}
            Ok(Some(Name::Segment(first))) => firsts.push(first),
            Ok(Some(Name::Spare(number))) => {
                spares.number_after(number);
                let opened = disk.open(&path, How::Existing).and_then(|file| Ok((file.len()?, file)));
                let (length, file) = opened.map_err(LogError::io("open", &path))?;
                if length == options.segment_bytes && spares.ready() < options.spares_max {
                    spares.adopt(Name::Spare(number), file);
                } else {
                    disk.remove(&path).map_err(LogError::io("remove", &path))?;
                }
            }
            Ok(Some(Name::Draft(number))) => {
                spares.number_after(number);
                disk.remove(&path).map_err(LogError::io("remove", &path))?;
            }
            Err(BadName) => {
                return Err(LogError::Damaged {
                    path,
                    offset: 0,
                    expected: 0,
                    what: "the name has no sequence number",
                });
            }
        }
    }
    firsts.sort_unstable();
    Ok(firsts)
}

fn release(disk: &dyn Disk, folder: &Path, spares: &Spares, first: u64) -> Result<(), LogError> {
    let path = Name::Segment(first).in_folder(folder);
    let length = disk.open(&path, How::Existing).and_then(|file| file.len());
    let bytes = length.map_err(LogError::io("open", &path))?;
    spares.release([Closed { first, bytes, used: 0 }]);
    Ok(())
}

fn read_segments(
    disk: &dyn Disk,
    folder: &Path,
    spares: &Spares,
    firsts: &[u64],
    from: Start,
    replay: &mut Replay<'_>,
) -> Result<Recovered, LogError> {
    let after = from.after;
    let mut closed = VecDeque::new();
    let mut followers = firsts.iter().skip(1);
    for first in firsts {
        let image = Image::read(disk, folder, *first)?;
        let end = image.walk(after, replay)?;
        let used = as_u64(end.at);
        if let Some(follower) = followers.next() {
            if *follower != end.next {
                return Err(image.damaged(end, "the next segment does not go on from here"));
            }
            if image.sealed_for(end) != Some(end.next) {
                // We died between the beginning of the next segment and the seal.
                segment::seal(&*image.file, &image.path, &image.header, used, end.next)?;
            }
            closed.push_back(Closed { first: *first, bytes: image.header.bytes, used });
            continue;
        }
        if image.sealed_for(end).is_some() {
            return Err(image.damaged(end, "the next segment is missing"));
        }
        if image.later(end).is_some() {
            return Err(image.damaged(end, "a later batch stands behind it"));
        }
        if end.next <= after {
            if from.reaches == Reaches::Checkpoint {
                return Err(image.damaged(end, "the log ends here, and its checkpoint has this batch"));
            }
            // The log had no room for what the checkpoint has beyond it.
            closed.push_back(Closed { first: *first, bytes: image.header.bytes, used });
            spares.release(closed);
            return Ok(Recovered { closed: VecDeque::new(), current: None, next: after.saturating_add(1) });
        }
        image.settle(end)?;
        let current = Segment { path: image.path, file: image.file, header: image.header, at: used };
        return Ok(Recovered { closed, current: Some(current), next: end.next });
    }
    Ok(Recovered { closed, current: None, next: after.saturating_add(1) })
}

/// A segment in memory.
struct Image {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    header: SegmentHeader,
    bytes: Vec<u8>,
}

/// Where the whole batches of a segment end.
#[derive(Clone, Copy)]
struct End {
    at: usize,
    /// Where the last whole batch begins; at the end if there is none.
    last: usize,
    /// The sequence number that would have been next.
    next: u64,
}

impl Image {
    fn read(disk: &dyn Disk, folder: &Path, first: u64) -> Result<Self, LogError> {
        let path = Name::Segment(first).in_folder(folder);
        let read = disk.open(&path, How::Existing).and_then(|file| {
            let length = usize::try_from(file.len()?).map_err(std::io::Error::other)?;
            let mut bytes = vec![0; length];
            let read = disk::read_full(&*file, &mut bytes, 0)?;
            bytes.truncate(read);
            Ok((file, bytes))
        });
        let (file, bytes) = read.map_err(LogError::io("read", &path))?;
        let damaged = |path, offset, what| LogError::Damaged { path, offset, expected: first, what };
        let header = match SegmentHeader::decode(&bytes) {
            Ok(header) => header,
            Err(HeaderFault::Unreadable) => return Err(damaged(path, 0, "the segment's header is not readable")),
            Err(HeaderFault::Newer(version)) => return Err(LogError::Newer { path, version, known: VERSION }),
        };
        if header.first != first {
            return Err(damaged(path, 0, "name and header differ in the first sequence number"));
        }
        if header.bytes != as_u64(bytes.len()) {
            let offset = as_u64(bytes.len()).min(header.bytes);
            return Err(damaged(path, offset, "the file has another length than its header says"));
        }
        Ok(Self { path, file, header, bytes })
    }

    /// Replays the whole batches, in order, but for those that the checkpoint has.
    fn walk(&self, after: u64, replay: &mut Replay<'_>) -> Result<End, LogError> {
        let mut end = End { at: SEGMENT_HEADER_BYTES, last: SEGMENT_HEADER_BYTES, next: self.header.first };
        while let Some(header) = self.header_at(end.at)
            && header.sequence == end.next
            && let Some(body) = header.body(&self.bytes, end.at)
        {
            if header.sequence > after {
                replay(header.sequence, body).map_err(|source| LogError::Replay { sequence: end.next, source })?;
            }
            let at = end.at + format::framed_bytes(header.length);
            end = End { at, last: end.at, next: end.next.saturating_add(1) };
        }
        Ok(end)
    }

    /// Where the header of a batch stands that can only have been written after the one that is missing at the end was
    /// synced. What an earlier life of the file left behind has smaller numbers, and another salt.
    fn later(&self, end: End) -> Option<usize> {
        let mut places = (end.at..self.bytes.len()).step_by(ALIGN);
        places.find(|at| self.header_at(*at).is_some_and(|header| header.sequence > end.next))
    }

    /// The first batch of the next segment, if a seal behind the last whole batch says that there is one. Batches between the two
    /// were left out.
    fn sealed_for(&self, end: End) -> Option<u64> {
        format::sealed_for(&self.bytes, end.at, self.header.salt).filter(|next| *next >= end.next)
    }

    fn header_at(&self, at: usize) -> Option<BatchHeader> {
        BatchHeader::decode(&self.bytes, at, self.header.salt)
    }

    fn damaged(&self, end: End, what: &'static str) -> LogError {
        LogError::Damaged { path: self.path.clone(), offset: as_u64(end.at), expected: end.next, what }
    }

    /// Writes the last batch again and zeros behind it, and syncs. We may have read the batch from memory that a failed
    /// sync left there without storing it, and only writing it again brings it to the disk.
    fn settle(&self, end: End) -> Result<(), LogError> {
        let rest = self.bytes.get(end.at..).unwrap_or_default();
        let last = self.bytes.get(end.last..end.at).unwrap_or_default();
        let is_torn = rest.iter().any(|byte| *byte != 0);
        if last.is_empty() && !is_torn {
            return Ok(());
        }
        let zeros_until = if is_torn { as_u64(self.bytes.len()) } else { as_u64(end.at) };
        disk::write_full(&*self.file, last, as_u64(end.last))
            .and_then(|()| disk::write_zeros(&*self.file, as_u64(end.at), zeros_until))
            .and_then(|()| self.file.sync_data())
            .map_err(LogError::io("settle", &self.path))
    }
}
