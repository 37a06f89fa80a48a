//! How much all logs of a folder take together, and which go when it is too much: of the namespaces that have most, those that were
//! written to longest ago. A namespace that has less than its part loses nothing to others.

use std::collections::BinaryHeap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// A tenth of the maximum goes at once, so that looking at all logs is rare.
const GOES_AT_ONCE: u64 = 10;

/// NAMESPACE/BUCKET/TASK/ATTEMPT: how deep below the root the log of an attempt is.
const DEPTH: usize = 4;

/// BUCKET/TASK/ATTEMPT: how deep it is below the folder of its namespace.
const DEPTH_IN_NAMESPACE: usize = DEPTH - 1;

/// The bytes of all logs of a folder.
#[derive(Debug)]
pub(super) struct Total {
    most: u64,
    /// Not known before the first write, which looks at the whole folder.
    bytes: Mutex<Option<u64>>,
}

/// The log of an attempt, ordered by when somebody wrote to it last.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AttemptLog {
    written_at: SystemTime,
    folder: PathBuf,
    bytes: u64,
}

impl Total {
    pub(super) const fn new(most: u64) -> Self {
        Self { most, bytes: Mutex::new(None) }
    }

    /// Counts what a log grew by. Where all logs are too long now, removes some through `remove`.
    pub(super) fn grew(&self, root: &Path, by: u64, remove: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
        let mut known = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let total = match *known {
            Some(before) => before + by,
            None => bytes_below(root, DEPTH)?,
        };
        *known = Some(total);
        if total <= self.most {
            return Ok(());
        }
        // Counted anew: whoever else removes files here does not say so.
        let mut namespaces = Vec::new();
        each(root, 1, &mut |folder| {
            namespaces.push((bytes_below(folder, DEPTH_IN_NAMESPACE)?, folder.to_owned()));
            Ok(())
        })?;
        let mut left: u64 = namespaces.iter().map(|(bytes, _)| bytes).sum();
        let part =
            part_of_each(namespaces.iter().map(|(bytes, _)| *bytes).collect(), self.most - self.most / GOES_AT_ONCE);
        for (bytes, folder) in namespaces {
            let mut too_much = bytes.saturating_sub(part);
            for log in oldest(&folder, too_much)? {
                remove(&log.folder)?;
                left = left.saturating_sub(log.bytes);
                too_much = too_much.saturating_sub(log.bytes);
                if too_much == 0 {
                    break;
                }
            }
        }
        *known = Some(left);
        Ok(())
    }

    /// Counts what was removed.
    pub(super) fn shrank(&self, by: u64) {
        let mut known = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        *known = known.map(|bytes| bytes.saturating_sub(by));
    }
}

/// What each may keep so that all of them fit: whoever has less keeps what it has, and leaves the rest of its part to the others.
fn part_of_each(mut sizes: Vec<u64>, most: u64) -> u64 {
    sizes.sort_unstable();
    let (mut left, mut others) = (most, sizes.len() as u64);
    for size in sizes {
        if size > left / others {
            return left / others;
        }
        (left, others) = (left - size, others - 1);
    }
    most
}

/// The oldest logs of a namespace, enough to free so many bytes; the oldest first.
fn oldest(namespace: &Path, to_free: u64) -> io::Result<Vec<AttemptLog>> {
    let mut held = 0;
    let mut logs: BinaryHeap<AttemptLog> = BinaryHeap::new();
    if to_free == 0 {
        return Ok(Vec::new());
    }
    each(namespace, DEPTH_IN_NAMESPACE, &mut |folder| {
        let log = measure(folder)?;
        held += log.bytes;
        logs.push(log);
        // The latest are not needed as long as the others free enough.
        while let Some(latest) = logs.peek()
            && held - latest.bytes >= to_free
        {
            held -= latest.bytes;
            logs.pop();
        }
        Ok(())
    })?;
    Ok(logs.into_sorted_vec())
}

/// How many bytes the files have in a folder and those below it.
pub(super) fn bytes_below(folder: &Path, depth: usize) -> io::Result<u64> {
    let mut bytes = 0;
    each(folder, depth, &mut |folder| {
        bytes += measure(folder)?.bytes;
        Ok(())
    })?;
    Ok(bytes)
}

/// Every folder that is so deep below this one.
fn each(folder: &Path, depth: usize, seen: &mut impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    if depth == 0 {
        return seen(folder);
    }
    for entry in entries(folder)? {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            each(&entry.path(), depth - 1, seen)?;
        }
    }
    Ok(())
}

fn measure(folder: &Path) -> io::Result<AttemptLog> {
    let mut log = AttemptLog { written_at: SystemTime::UNIX_EPOCH, folder: folder.to_owned(), bytes: 0 };
    for entry in entries(folder)? {
        // A segment may be dropped while this looks.
        let Ok(found) = entry.metadata() else { continue };
        log.bytes += found.len();
        log.written_at = log.written_at.max(found.modified()?);
    }
    Ok(log)
}

/// What is in a folder; nothing if it is gone.
fn entries(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder) {
        Ok(entries) => Ok(entries.flatten().collect()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_less_than_its_part_keeps_all_of_it() {
        assert_eq!(part_of_each(vec![], 10), 10);
        assert_eq!(part_of_each(vec![4, 6], 10), 10, "all fit");
        assert_eq!(part_of_each(vec![100, 2], 10), 8);
        assert_eq!(part_of_each(vec![9, 1, 9], 10), 4);
        assert_eq!(part_of_each(vec![7; 3], 10), 3);
    }
}
