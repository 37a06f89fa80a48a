//! Opening a folder: the lock, the checkpoint, what the log has beyond it, and then the two threads.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ekiden_core::id::TaskId;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Record;
use ekiden_core::task::Task;
use ekiden_store::shelf::{Look, Shelf, Stamp};
use ekiden_store::{StoreError, entropy::Entropy};
use hashbrown::HashMap;

use crate::checkpoint::{self, Changed, Changes, Checkpoint, Loaded, Snapshot};
use crate::codec::{Change, ChangeReader, Unreadable};
use crate::desk::Desk;
use crate::disk::{Disk, LockGuard, SystemDisk};
use crate::footprint::Room;
use crate::log::{self, Log, LogError, LogOptions, Reaches};
use crate::shared::Shared;
use crate::{checkpointer, committer, error, reserve};

/// How a store keeps its folder.
#[derive(Clone, Debug)]
pub struct Options {
    /// The disk; another one in tests.
    pub disk: Arc<dyn Disk>,
    /// How large a segment of the log is. On a small disk it is smaller, as are the reserve and what may wait for the checkpoint.
    pub segment_bytes: u64,
    /// How often the checkpoint follows the log.
    pub checkpoint_every: Duration,
    /// Whether a close ends with a checkpoint, so that the next open has no log to read.
    pub checkpoint_on_close: bool,
    /// How many bytes of changes may wait for the checkpoint before new tasks have to wait.
    pub unwritten_bytes_max: usize,
    /// How many bytes of tasks, bodies and payloads, stay in memory. The index is kept apart from this.
    pub memory_bytes: usize,
    /// How many bytes of the checkpoint's file are cached.
    pub cache_bytes: usize,
    /// How many bytes are kept for a full disk.
    pub reserve_bytes: usize,
}

impl Default for Options {
    /// For a machine of today: segments of 16 MiB; a checkpoint a second, which is about what a reopen has to read again;
    /// 64 MiB of changes that wait; 32 MiB of bodies, 32 MiB of cache and 16 MiB of reserve. A new store takes two segments,
    /// the reserve and its checkpoint from the disk.
    fn default() -> Self {
        Self {
            disk: Arc::new(SystemDisk),
            segment_bytes: 16 << 20,
            checkpoint_every: Duration::from_secs(1),
            checkpoint_on_close: true,
            unwritten_bytes_max: 64 << 20,
            memory_bytes: 32 << 20,
            cache_bytes: 32 << 20,
            reserve_bytes: 16 << 20,
        }
    }
}

/// Opens everything and starts the threads.
pub(crate) fn open(folder: &Path, options: Options) -> Result<(Arc<Shared>, JoinHandle<()>), StoreError> {
    let disk = options.disk.clone();
    disk.create_folder(folder).map_err(|source| error::io(folder, source))?;
    let lock = lock(disk.as_ref(), folder)?;
    // Behind a link is perhaps the log of another store, whose own lock is free.
    let log_folder = folder.join(log::FOLDER);
    disk.check_folder(&log_folder).map_err(|source| error::io(&log_folder, source))?;
    let room = Room::find(disk.as_ref(), folder)?;
    if !Checkpoint::is_in(disk.as_ref(), folder) {
        room.check_new(folder)?;
    }
    let options = room.fit(options);
    let (checkpoint, lock) = open_checkpoint(&disk, folder, options.cache_bytes, lock)?;
    let Loaded { mut shelf, sequence, log: reaches, sealed_off } = checkpoint.load()?;
    let mut replay = Replay { changes: Changes::new(), snapshot: checkpoint.snapshot()?, shelf: &mut shelf };
    let is_lost = find_log(disk.as_ref(), &log_folder, reaches)?;
    disk.create_folder(&log_folder).map_err(|source| error::io(&log_folder, source))?;
    let salt = Entropy::from_system().next_u64();
    let (segment_bytes, spares_max) = (options.segment_bytes, room.spares_max(options.segment_bytes));
    let log_options = LogOptions { segment_bytes, spares_wanted: 2, spares_max, ..LogOptions::new(salt) };
    let must_reach = if is_lost { Reaches::Nowhere } else { reaches };
    let log =
        Log::open(disk.clone(), &log_folder, log_options, sequence, must_reach, &mut |_, batch| replay.batch(batch))
            .map_err(|error| log_error(&log_folder, error))?;
    let Replay { changes, snapshot, .. } = replay;
    if reaches != Reaches::Checkpoint {
        require_log(&checkpoint)?;
    }
    if is_lost {
        let mark = log_folder.join(LOST);
        disk.remove(&mark).map_err(|source| error::io(&mark, source))?;
    }
    let mut known = HashMap::new();
    for namespace in shelf.namespaces(None, usize::MAX).items {
        let newest =
            changes.iter().map(|(key, _)| key).filter(|key| key.kind == RecordKind::Task && key.namespace == namespace);
        let newest = newest.filter_map(|key| TaskId::bits_of(&key.name)).max();
        let highest = snapshot.highest_id(&namespace)?.max(newest);
        known.extend(highest.map(|highest| (namespace, highest)));
    }
    let desk = Desk::new(shelf, changes, known, log.last() + 1, segment_bytes).with_sealed_off(sealed_off);
    let shared = Arc::new(Shared::new(desk, log, checkpoint, options, folder.to_owned(), lock));
    shared.spares.prepare().map_err(|error| log_error(&log_folder, error))?;
    reserve::keep(&shared);
    // Whoever claims first shall not wait for a disk whose pages nobody has read yet.
    checkpointer::bring_heads(&shared);
    let threads = committer::start(shared.clone()).and_then(|committer| checkpointer::start(shared.clone(), committer));
    Ok((shared.clone(), threads.map_err(|source| error::io(folder, source))?))
}

/// Keeps other processes out of a folder.
pub(crate) fn lock(disk: &dyn Disk, folder: &Path) -> Result<LockGuard, StoreError> {
    lock_file(disk, folder, &folder.join("lock"))
}

fn lock_file(disk: &dyn Disk, folder: &Path, path: &Path) -> Result<LockGuard, StoreError> {
    disk.lock(path).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => error::in_use(folder),
        _ => error::io(path, source),
    })
}

/// Opens the checkpoint under a lock of its own: the file `lock` can be removed while a store is open, and then keeps nobody out.
pub(crate) fn open_checkpoint(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    cache_bytes: usize,
    lock: LockGuard,
) -> Result<(Checkpoint, LockGuard), StoreError> {
    let guard = || lock_file(disk.as_ref(), folder, &folder.join(checkpoint::FILE));
    // Before anything is read of a file that is there; a new one has its name only when it is whole.
    let before = Checkpoint::is_in(disk.as_ref(), folder).then(guard).transpose()?;
    let checkpoint = Checkpoint::open(disk.clone(), folder, cache_bytes)?;
    let guard = before.map_or_else(guard, Ok)?;
    Ok((checkpoint, Box::new((guard, lock))))
}

/// A file of this name in the folder of a log says that somebody knows that the log is gone, and wants to go on without it.
const LOST: &str = "lost";

/// A log never goes by itself: without it, what was acknowledged after the last checkpoint would be gone unnoticed. Says whether it is
/// known that it, or its end, is lost.
fn find_log(disk: &dyn Disk, folder: &Path, reaches: Reaches) -> Result<bool, StoreError> {
    let names = match disk.list(folder) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(error::io(folder, source)),
        names => names.unwrap_or_default(),
    };
    let is_lost = names.iter().any(|name| name == LOST);
    let is_here = reaches == Reaches::Nowhere || names.iter().any(|name| Log::is_segment(name));
    if is_here && !is_lost {
        return Ok(false);
    }
    if !is_lost {
        let what = format!(
            "it belongs to the checkpoint and has no segment; a file named {LOST:?} in it lets the store go on with what the checkpoint has"
        );
        return Err(error::damaged(folder.display(), what));
    }
    tracing::warn!(folder = %folder.display(), "the log is lost, and with it what was acknowledged after the last checkpoint");
    Ok(true)
}

/// From now on the log reaches the checkpoint, and one that does not was cut. On a full disk this is left to the next checkpoint.
fn require_log(checkpoint: &Checkpoint) -> Result<(), StoreError> {
    let Err(error) = checkpoint.require_log() else { return Ok(()) };
    if error.code() != ReasonCode::StoreFull {
        return Err(error);
    }
    tracing::warn!(%error, "the checkpoint cannot say yet that a log belongs to it");
    checkpoint.reopen()
}

/// Puts back what the log has beyond the checkpoint.
struct Replay<'a> {
    changes: Changes,
    snapshot: Snapshot,
    shelf: &'a mut Shelf,
}

impl Replay<'_> {
    fn batch(&mut self, batch: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        for change in ChangeReader::new(batch) {
            self.change(change?)?;
        }
        Ok(())
    }

    fn change(&mut self, change: Change) -> Result<(), StoreError> {
        match change {
            Change::Deleted(key, revision) => {
                self.wake(&key)?;
                self.shelf.restore_deleted(&key, revision);
                self.changes.insert(key, Changed::Gone { revision });
            }
            Change::Other(key, stamp, record) => self.put(key, stamp, record, false),
            Change::Task(key, stamp, spec, state) => {
                self.wake(&key)?;
                self.put(key, stamp, Record::from(Task { spec: Arc::new(spec), state }), true);
            }
            Change::State(key, stamp, state) => {
                self.wake(&key)?;
                let before = match self.shelf.look(&key) {
                    Look::Here(versioned) => versioned.record.as_task().cloned(),
                    Look::Away => self.snapshot.task(&key)?.map(|(task, _)| task),
                    Look::Nothing => None,
                };
                let before =
                    before.ok_or_else(|| error::damaged(&key, "its state is in the log, but it is not there"))?;
                let seen = matches!(self.changes.get(&key), Some(Changed::Put { spec: true, .. }));
                self.put(key, stamp, Record::from(Task { spec: before.spec.clone(), state }), seen);
            }
        }
        Ok(())
    }

    fn put(&mut self, key: Key, stamp: Stamp, record: Record, spec: bool) {
        self.shelf.restore(&key, record.clone(), stamp);
        self.changes.insert(key, Changed::Put { record, stamp, spec });
    }

    /// Takes in a task that rests, so that its count moves with it.
    fn wake(&mut self, key: &Key) -> Result<(), StoreError> {
        if key.kind == RecordKind::Task
            && matches!(self.shelf.look(key), Look::Nothing)
            && self.changes.get(key).is_none()
            && let Some((task, stamp)) = self.snapshot.task(key)?
        {
            self.shelf.wake(key, task, stamp);
        }
        Ok(())
    }
}

fn log_error(folder: &Path, error: LogError) -> StoreError {
    match error {
        LogError::Replay { ref source, .. } if let Some(Unreadable::TooNew { version }) = source.downcast_ref() => {
            error::too_new(folder, u64::from(*version))
        }
        LogError::Damaged { .. } | LogError::Replay { .. } => {
            error::damaged(folder.display(), committer::with_source(&error)).because(error)
        }
        LogError::Newer { path, version, .. } => error::too_new(&path, u64::from(version)),
        LogError::NoSpace { source, .. } => error::io(folder, source),
        LogError::Io { path, source, .. } => error::io(&path, source),
        other => StoreError::unavailable(committer::with_source(&other)).because(other),
    }
}
