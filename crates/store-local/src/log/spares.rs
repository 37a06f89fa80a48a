//! Spare segments: files of full length whose blocks are taken and written, so that an append overwrites and neither waits
//! for the file system nor finds the disk full. Made anew, or from segments that were released. Any thread may prepare
//! them while the log appends.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::LogOptions;
use super::error::LogError;
use super::segment::{Closed, Name, Spare};
use crate::disk::{self, Disk, DiskFile, DiskFolder, How};

/// A file, and the name that it has.
pub(super) type NamedFile = (Name, Box<dyn DiskFile>);

/// The log's stock of files. Clones share it.
#[derive(Clone, Debug)]
pub struct Spares {
    shared: Arc<Shared>,
}

/// Whether the log can go on when the disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reserve {
    /// As many spares as are wanted.
    Kept,
    /// The disk has no room for the spares that are wanted. What is there can still be used.
    Short,
}

#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// The folder, open.
    names: Box<dyn DiskFolder>,
    options: LogOptions,
    /// Held by whoever makes or recycles files. Taken before the shelf, never after.
    work: Mutex<()>,
    shelf: Mutex<Shelf>,
    poisoned: AtomicBool,
}

#[derive(Debug, Default)]
struct Shelf {
    /// Ready for use: content, length and name are durable.
    ready: Vec<Spare>,
    /// Segments that nobody needs, which still have their old names.
    released: Vec<(Name, u64)>,
    /// The number of the next file that is made.
    next: u64,
    /// How many files should be ready.
    wanted: usize,
    /// The latest attempt to fill the stock failed.
    is_short: bool,
    /// No file is made anew.
    is_disk_full: bool,
}

impl Spares {
    /// The stock of a folder that is there.
    pub(super) fn new(disk: Arc<dyn Disk>, folder: &Path, options: LogOptions) -> io::Result<Self> {
        let names = disk.open_folder(folder)?;
        let shelf = Mutex::new(Shelf { wanted: options.spares_at_open, ..Shelf::default() });
        let (work, poisoned) = (Mutex::default(), AtomicBool::new(false));
        let folder = folder.to_owned();
        Ok(Self { shared: Arc::new(Shared { disk, folder, names, options, work, shelf, poisoned }) })
    }

    /// Recycles what was released and fills the stock. Slow (it may write and sync whole segments); appends go on
    /// meanwhile, but for one that needs a new segment while there is no spare. After `Short`, try again later.
    pub fn prepare(&self) -> Result<Reserve, LogError> {
        let _work = self.shared.work.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = self.shared.shelf().wanted;
        let prepared = self.shared.fill(wanted);
        // Whatever kept the spare from being made: without it the log cannot promise to go on. Too many open files say nothing of
        // the disk.
        if !matches!(prepared, Err(LogError::Scarce { .. })) {
            self.shared.shelf().is_short = !matches!(prepared, Ok(Reserve::Kept));
        }
        prepared
    }

    /// False from the moment that a spare could not be made until one could: take no new work in, only finish what is there.
    pub fn has_reserve(&self) -> bool {
        !self.shared.shelf().is_short
    }

    /// While the disk is full no file is made: what is left of the disk belongs to the checkpoint. Released segments still become
    /// spares.
    pub fn set_disk_full(&self, is_full: bool) {
        self.shared.shelf().is_disk_full = is_full;
    }

    /// Whether [`prepare`](Self::prepare) has something to do.
    pub fn is_wanting(&self) -> bool {
        let shelf = self.shared.shelf();
        shelf.is_short || !shelf.released.is_empty() || shelf.ready.len() < shelf.wanted
    }

    /// How many spares are ready for use.
    pub fn ready(&self) -> usize {
        self.shared.shelf().ready.len()
    }

    /// A file of one segment's length, open, made now if there is none.
    pub(super) fn take(&self) -> Result<NamedFile, LogError> {
        let mut spare = self.take_any()?;
        match spare.open(&*self.shared.disk, &self.shared.folder) {
            Ok(()) => Ok((spare.name, spare.file.expect("it was opened"))),
            Err(source) => {
                // Nothing was written to it.
                let path = spare.name.in_folder(&self.shared.folder);
                self.shared.shelf().ready.push(spare);
                Err(self.shared.scarce(source).unwrap_or_else(LogError::io("open", &path)))
            }
        }
    }

    fn take_any(&self) -> Result<Spare, LogError> {
        if let Some(spare) = self.shared.shelf().ready.pop() {
            return Ok(spare);
        }
        let _work = self.shared.work.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever worked while we waited may have made one; otherwise one is wanted now, whatever is wanted in general.
        if self.shared.fill(1)? == Reserve::Short {
            self.shared.shelf().is_short = true;
        }
        let spare = self.shared.shelf().ready.pop();
        spare.ok_or_else(|| self.no_space())
    }

    /// A file made to measure, for a batch that is larger than a segment.
    pub(super) fn make(&self, bytes: u64) -> Result<NamedFile, LogError> {
        let _work = self.shared.work.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.draft(bytes)?.ok_or_else(|| self.no_space())
    }

    /// Takes segments back that nobody needs any more. Does no I/O: that is left to whoever prepares.
    pub(super) fn release(&self, segments: impl IntoIterator<Item = Closed>) {
        let segments = segments.into_iter().map(|segment| (Name::Segment(segment.first), segment.bytes));
        self.shared.shelf().released.extend(segments);
    }

    /// Takes in a spare that an earlier process left behind, under a name that is durable.
    pub(super) fn adopt(&self, name: Name, file: Box<dyn DiskFile>) {
        self.shared.shelf().ready.push(Spare { name, file: Some(file) });
    }

    /// The folder, open.
    pub(super) fn names(&self) -> &dyn DiskFolder {
        &*self.shared.names
    }

    /// Numbers of new files begin behind this one.
    pub(super) fn number_after(&self, number: u64) {
        let mut shelf = self.shared.shelf();
        shelf.next = shelf.next.max(number.saturating_add(1));
    }

    /// From now on as many spares are kept ready as a log in use needs.
    pub(super) fn want_all(&self) {
        self.shared.shelf().wanted = self.shared.options.spares_wanted;
    }

    pub(super) fn poison(&self) {
        self.shared.poisoned.store(true, Ordering::Release);
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.shared.poisoned.load(Ordering::Acquire)
    }

    fn no_space(&self) -> LogError {
        let source = io::ErrorKind::StorageFull.into();
        LogError::NoSpace { folder: self.shared.folder.clone(), source }
    }
}

impl Shared {
    /// Nothing panics while it is held, and every change of it is one step.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        let mut shelf = self.shelf();
        shelf.next += 1;
        shelf.next - 1
    }

    fn fill(&self, wanted: usize) -> Result<Reserve, LogError> {
        if self.poisoned.load(Ordering::Acquire) {
            return Err(LogError::Poisoned { folder: self.folder.clone() });
        }
        self.recycle()?;
        while self.shelf().ready.len() < wanted {
            let Some((draft, file)) = self.draft(self.options.segment_bytes)? else { return Ok(Reserve::Short) };
            let name = Name::Spare(self.number());
            self.rename(draft, name)?;
            self.sync_names()?;
            self.shelf().ready.push(Spare { name, file: Some(file) });
        }
        Ok(Reserve::Kept)
    }

    /// Released segments become spares under new names, which are durable before anybody writes to the files: a file with
    /// a segment's name must never have another segment's content. What is too many or of another length is removed.
    fn recycle(&self) -> Result<(), LogError> {
        let mut renamed = Vec::new();
        let mut changed = false;
        let mut outcome = Ok(());
        let released = std::mem::take(&mut self.shelf().released);
        let mut released = released.into_iter();
        for (segment, bytes) in released.by_ref() {
            let kept = self.shelf().ready.len() + renamed.len();
            let step = if bytes == self.options.segment_bytes && kept < self.options.spares_max {
                let mut spare = Spare { name: Name::Spare(self.number()), file: None };
                self.rename(segment, spare.name).map(|()| {
                    // One that cannot be opened now is opened when it is needed.
                    let _ = spare.open(&*self.disk, &self.folder);
                    renamed.push(spare);
                })
            } else {
                self.remove(segment)
            };
            changed = true;
            match step {
                // Somebody else removed it, which is as good.
                Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    self.shelf().released.push((segment, bytes));
                    outcome = Err(error);
                    break;
                }
                Ok(()) => {}
            }
        }
        self.shelf().released.extend(released);
        if changed {
            self.sync_names()?;
        }
        self.shelf().ready.extend(renamed);
        outcome
    }

    /// A new file of this length, its blocks taken, written and synced; none if the disk is full.
    fn draft(&self, bytes: u64) -> Result<Option<NamedFile>, LogError> {
        if self.shelf().is_disk_full {
            return Ok(None);
        }
        let draft = Name::Draft(self.number());
        let path = draft.in_folder(&self.folder);
        let made = self.disk.open(&path, How::New).and_then(|file| {
            file.allocate(0, bytes)?;
            // Blocks that are only allocated are marked as written one by one later, and each mark costs a journal commit.
            disk::write_zeros(&*file, 0, bytes)?;
            file.sync_data()?;
            Ok(file)
        });
        let source = match made {
            Ok(file) => return Ok(Some((draft, file))),
            Err(source) => source,
        };
        // If it cannot be removed either, the next open does it.
        let _ = self.disk.remove(&path);
        if disk::is_full(&source) {
            return Ok(None);
        }
        Err(self.scarce(source).unwrap_or_else(LogError::io("make", &path)))
    }

    /// The error of a file that cannot be opened now, or the error as it was.
    fn scarce(&self, source: io::Error) -> Result<LogError, io::Error> {
        let folder = self.folder.clone();
        if disk::is_passing(&source) { Ok(LogError::Scarce { folder, source }) } else { Err(source) }
    }

    fn rename(&self, from: Name, to: Name) -> Result<(), LogError> {
        let (from, to) = (from.in_folder(&self.folder), to.in_folder(&self.folder));
        self.disk.rename(&from, &to).map_err(LogError::io("rename", &from))
    }

    fn remove(&self, name: Name) -> Result<(), LogError> {
        let path = name.in_folder(&self.folder);
        self.disk.remove(&path).map_err(LogError::io("remove", &path))
    }

    fn sync_names(&self) -> Result<(), LogError> {
        self.names.sync().map_err(|source| {
            // Nobody knows which names are durable now, those of segments included.
            self.poisoned.store(true, Ordering::Release);
            LogError::io("sync", &self.folder)(source)
        })
    }
}
