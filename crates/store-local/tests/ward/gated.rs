//! A disk whose syncs or reads can be held up.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use ekiden_store_local::disk::fake::FakeDisk;
use ekiden_store_local::disk::{Disk, DiskFile, DiskFolder, How, LockGuard};

/// Whether calls are held up, and how many are.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<(bool, usize)>,
    moved: Condvar,
}

impl Gate {
    fn close(&self) {
        self.state.lock().unwrap().0 = true;
    }

    fn open(&self) {
        self.state.lock().unwrap().0 = false;
        self.moved.notify_all();
    }

    fn wait_until_held(&self) {
        let state = self.state.lock().unwrap();
        drop(self.moved.wait_while(state, |(_, held)| *held == 0).unwrap());
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        self.moved.notify_all();
        let mut state = self.moved.wait_while(state, |(closed, _)| *closed).unwrap();
        state.1 -= 1;
    }
}

#[derive(Debug)]
pub(crate) struct GatedDisk {
    disk: FakeDisk,
    syncs: Arc<Gate>,
    reads: Arc<Gate>,
    panics: Arc<AtomicBool>,
    checkpoint_fails: Arc<AtomicBool>,
}

#[derive(Debug)]
struct GatedFile {
    file: Box<dyn DiskFile>,
    syncs: Arc<Gate>,
    reads: Arc<Gate>,
    panics: Arc<AtomicBool>,
    /// Whether writes fail; of the log's files never.
    fails: Arc<AtomicBool>,
}

impl GatedDisk {
    pub(crate) fn new(disk: FakeDisk) -> Self {
        let (syncs, reads) = (Arc::default(), Arc::default());
        Self { disk, syncs, reads, panics: Arc::default(), checkpoint_fails: Arc::default() }
    }

    pub(crate) fn hold_syncs(&self) {
        self.syncs.close();
    }

    pub(crate) fn let_syncs_go(&self) {
        self.syncs.open();
    }

    pub(crate) fn wait_until_held(&self) {
        self.syncs.wait_until_held();
    }

    /// From now on whichever thread syncs a file panics.
    pub(crate) fn panic_at_syncs(&self) {
        self.panics.store(true, Ordering::Relaxed);
    }

    /// From now on the file of the checkpoint takes no write.
    pub(crate) fn fail_checkpoint(&self) {
        self.checkpoint_fails.store(true, Ordering::Relaxed);
    }

    pub(crate) fn hold_reads(&self) {
        self.reads.close();
    }

    pub(crate) fn let_reads_go(&self) {
        self.reads.open();
    }

    pub(crate) fn wait_until_a_read_is_held(&self) {
        self.reads.wait_until_held();
    }
}

impl Disk for GatedDisk {
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
        let (syncs, reads, panics) = (self.syncs.clone(), self.reads.clone(), self.panics.clone());
        let is_checkpoint = path.file_name().is_some_and(|name| name == "checkpoint.redb");
        let fails = if is_checkpoint { self.checkpoint_fails.clone() } else { Arc::default() };
        Ok(Box::new(GatedFile { file: self.disk.open(path, how)?, syncs, reads, panics, fails }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.disk.sync_folder(folder)
    }

    fn open_folder(&self, folder: &Path) -> io::Result<Box<dyn DiskFolder>> {
        self.disk.open_folder(folder)
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        self.disk.free_bytes(folder)
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        self.disk.lock(path)
    }
}

impl DiskFile for GatedFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.reads.pass();
        self.file.read_at(into, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Other.into());
        }
        self.file.write_at(bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.syncs.pass();
        assert!(!self.panics.load(Ordering::Relaxed), "a test wants the thread that syncs to panic");
        self.file.sync_data()
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
