//! Disks with a bug planted in them, as they come up in real programs and machines. A test of durability that passes on one
//! of these tests nothing.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Disk, DiskFile, DiskFolder, How, LockGuard};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlantedBug {
    /// Syncing a file does nothing.
    SyncDoesNothing,
    /// Syncing a file answers at once, and is done only before the next write to it.
    SyncHappensLate,
    /// Of every open file in a folder called `log` only the first sync is done, and the first behind a new header. The headers of a log are there after a power
    /// cut and its batches are not, so that nothing looks damaged.
    LogSyncHappensOnce,
    /// Syncing a folder does nothing.
    FolderSyncDoesNothing,
    /// A sync that failed is tried again until it says that it worked.
    FailedSyncIsRetried,
    /// A write that took only a part is reported as whole.
    ShortWriteLooksWhole,
}

impl PlantedBug {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::SyncDoesNothing,
        Self::SyncHappensLate,
        Self::LogSyncHappensOnce,
        Self::FolderSyncDoesNothing,
        Self::FailedSyncIsRetried,
        Self::ShortWriteLooksWhole,
    ];
}

/// A disk with one bug.
#[derive(Debug)]
pub struct PlantedDisk {
    disk: Arc<dyn Disk>,
    bug: PlantedBug,
}

impl PlantedDisk {
    /// Plants a bug in a disk.
    pub fn new(disk: Arc<dyn Disk>, bug: PlantedBug) -> Self {
        Self { disk, bug }
    }
}

impl Disk for PlantedDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        self.disk.create_folder(folder)
    }

    fn check_folder(&self, folder: &Path) -> io::Result<()> {
        self.disk.check_folder(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.disk.list(folder)
    }

    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn DiskFile>> {
        let file = self.disk.open(path, how)?;
        let is_log = path.parent().is_some_and(|folder| folder.ends_with("log"));
        Ok(Box::new(PlantedFile {
            file,
            bug: self.bug,
            is_log,
            is_owed: AtomicBool::new(false),
            was_synced: AtomicBool::new(false),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        match self.bug {
            PlantedBug::FolderSyncDoesNothing => Ok(()),
            _ => self.disk.sync_folder(folder),
        }
    }

    fn open_folder(&self, folder: &Path) -> io::Result<Box<dyn DiskFolder>> {
        Ok(Box::new(PlantedFolder { folder: self.disk.open_folder(folder)?, bug: self.bug }))
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        self.disk.free_bytes(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        self.disk.lock(path)
    }
}

#[derive(Debug)]
struct PlantedFolder {
    folder: Box<dyn DiskFolder>,
    bug: PlantedBug,
}

impl DiskFolder for PlantedFolder {
    fn sync(&self) -> io::Result<()> {
        match self.bug {
            PlantedBug::FolderSyncDoesNothing => Ok(()),
            _ => self.folder.sync(),
        }
    }
}

#[derive(Debug)]
struct PlantedFile {
    file: Box<dyn DiskFile>,
    bug: PlantedBug,
    /// Whether it is in a folder called `log`.
    is_log: bool,
    /// A sync was promised and not done.
    is_owed: AtomicBool,
    /// It was synced before.
    was_synced: AtomicBool,
}

impl PlantedFile {
    /// Ten times: a disk without power never says yes.
    fn sync_until_ok(&self) -> io::Result<()> {
        let mut synced = self.file.sync_data();
        for _ in 0..10 {
            if synced.is_ok() {
                break;
            }
            synced = self.file.sync_data();
        }
        synced
    }
}

impl DiskFile for PlantedFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(into, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if self.is_owed.swap(false, Ordering::AcqRel) {
            self.file.sync_data()?;
        }
        // A header, on a file that may have been open before it became a segment.
        if offset == 0 {
            self.was_synced.store(false, Ordering::Release);
        }
        let written = self.file.write_at(bytes, offset)?;
        Ok(if self.bug == PlantedBug::ShortWriteLooksWhole { bytes.len() } else { written })
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.bug {
            PlantedBug::SyncDoesNothing => Ok(()),
            PlantedBug::SyncHappensLate => {
                self.is_owed.store(true, Ordering::Release);
                Ok(())
            }
            PlantedBug::LogSyncHappensOnce if self.is_log && self.was_synced.swap(true, Ordering::AcqRel) => Ok(()),
            PlantedBug::FailedSyncIsRetried => self.sync_until_ok(),
            PlantedBug::LogSyncHappensOnce | PlantedBug::FolderSyncDoesNothing | PlantedBug::ShortWriteLooksWhole => {
                self.file.sync_data()
            }
        }
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn allocate(&self, from: u64, bytes: u64) -> io::Result<()> {
        self.file.allocate(from, bytes)
    }
}
