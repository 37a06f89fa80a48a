//! What a disk allows: a log that only writes and syncs. It gets exactly the batches that the store's log got, so that the
//! difference is what the store does besides.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ekiden_store_local::disk::{Disk, DiskFile, How, LockGuard, SystemDisk};

use crate::Outcome;

/// The real disk, with a note of every batch that goes to the log.
#[derive(Debug, Default)]
pub struct NotingDisk {
    batches: Arc<Mutex<Vec<usize>>>,
}

impl NotingDisk {
    /// The lengths of the batches that were written and synced so far; they are forgotten here.
    pub fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *self.batches.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
struct NotingFile {
    file: Box<dyn DiskFile>,
    written: Mutex<usize>,
    batches: Arc<Mutex<Vec<usize>>>,
}

impl Disk for NotingDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        SystemDisk.create_folder(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        SystemDisk.list(folder)
    }

    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn DiskFile>> {
        let file = SystemDisk.open(path, how)?;
        if path.parent().and_then(Path::file_name).is_none_or(|folder| folder != "log") {
            return Ok(file);
        }
        Ok(Box::new(NotingFile { file, written: Mutex::new(0), batches: self.batches.clone() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemDisk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        SystemDisk.sync_folder(folder)
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        SystemDisk.free_bytes(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        SystemDisk.lock(path)
    }
}

impl DiskFile for NotingFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(into, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let written = self.file.write_at(bytes, offset)?;
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) += written;
        Ok(written)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        let batch = std::mem::take(&mut *self.written.lock().unwrap_or_else(PoisonError::into_inner));
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push(batch);
        Ok(())
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

/// 16 MiB, as long as a segment of the store's log: the raw log begins at its front again when it is full.
const FILE_BYTES: usize = 16 << 20;

/// How long writing and syncing these batches takes, one behind another, in a file whose blocks were written before.
pub fn replay(folder: &Path, batches: &[usize]) -> Outcome<Duration> {
    let path = folder.join("raw");
    std::fs::write(&path, vec![0; FILE_BYTES])?;
    let file = std::fs::OpenOptions::new().write(true).open(&path)?;
    file.sync_all()?;
    let bytes = vec![b'x'; batches.iter().copied().filter(|batch| *batch <= FILE_BYTES).max().unwrap_or(0)];
    let start = Instant::now();
    let mut at = 0;
    for batch in batches {
        let batch = bytes.get(..*batch).unwrap_or(&bytes);
        if at + batch.len() > FILE_BYTES {
            at = 0;
        }
        file.write_all_at(batch, u64::try_from(at)?)?;
        file.sync_data()?;
        at += batch.len();
    }
    let took = start.elapsed();
    std::fs::remove_file(path)?;
    Ok(took)
}
