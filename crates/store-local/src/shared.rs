//! What the callers, the committer and the checkpointer of one store share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::task::Task;
use ekiden_store::shelf::Stamp;
use ekiden_store::{Happened, Hints, Op, Outcome, StoreError};
use tokio::sync::Notify;

use crate::Options;
use crate::checkpoint::{Checkpoint, Snapshot};
use crate::desk::{Desk, is_growth, names};
use crate::disk::LockGuard;
use crate::durability::{Basis, Wait};
use crate::error;
use crate::log::{Log, Spares};

pub(crate) struct Shared {
    desk: Mutex<Desk>,
    /// Something waits for the committer.
    work: Condvar,
    /// Something waits for the checkpointer.
    upkeep: Condvar,
    /// The checkpoint caught up, so that new tasks may come in.
    pub(crate) room: Notify,
    log: Mutex<Log>,
    pub(crate) spares: Spares,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) hints: Hints,
    pub(crate) options: Options,
    pub(crate) folder: PathBuf,
    /// The log has no room for its next batch, which the checkpoint takes instead.
    is_log_full: AtomicBool,
    /// It has none because no file can be opened.
    log_lacks_files: AtomicBool,
    /// No spare segment can be opened.
    spares_lack_files: AtomicBool,
    /// The checkpoint could not be written because the disk is full, or there is no reserve for the next one.
    is_checkpoint_full: AtomicBool,
    /// Neither the log nor the checkpoint has room for another batch, and the reserve is spent.
    exhausted: AtomicBool,
    /// Held by whoever writes a checkpoint.
    pub(crate) checkpointing: Mutex<()>,
    /// Keeps other processes away; gone once the store was closed.
    lock: Mutex<Option<LockGuard>>,
}

/// A task as the checkpoint has it, and its key.
type Body = ((Arc<Task>, Stamp), Key);

impl Shared {
    pub(crate) fn new(
        desk: Desk,
        log: Log,
        checkpoint: Checkpoint,
        options: Options,
        folder: PathBuf,
        lock: LockGuard,
    ) -> Self {
        Self {
            desk: Mutex::new(desk),
            work: Condvar::new(),
            upkeep: Condvar::new(),
            room: Notify::new(),
            spares: log.spares(),
            log: Mutex::new(log),
            checkpoint,
            hints: Hints::new(),
            options,
            folder,
            is_log_full: AtomicBool::new(false),
            log_lacks_files: AtomicBool::new(false),
            spares_lack_files: AtomicBool::new(false),
            is_checkpoint_full: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
            checkpointing: Mutex::new(()),
            lock: Mutex::new(Some(lock)),
        }
    }

    /// The lock is never held across an await, and a panic inside it leaves nothing half done: records are replaced whole.
    pub(crate) fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go of the folder, when both threads have ended.
    pub(crate) fn leave_folder(&self) {
        self.desk().forget_snapshot();
        self.checkpoint.close();
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait_for_work<'a>(&self, desk: MutexGuard<'a, Desk>) -> MutexGuard<'a, Desk> {
        self.work.wait(desk).unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wait_for_upkeep<'a>(&self, desk: MutexGuard<'a, Desk>, most: Duration) -> MutexGuard<'a, Desk> {
        self.upkeep.wait_timeout(desk, most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// The same for as long as nothing changes: a store that nobody uses costs no processor time.
    pub(crate) fn sleep_till_change<'a>(&self, mut desk: MutexGuard<'a, Desk>) -> MutexGuard<'a, Desk> {
        desk.is_upkeep_asleep = true;
        let mut desk = self.upkeep.wait(desk).unwrap_or_else(PoisonError::into_inner);
        desk.is_upkeep_asleep = false;
        desk
    }

    /// The checkpoint has what the log could not take.
    pub(crate) fn wake_committer(&self) {
        self.work.notify_all();
    }

    /// Lets the checkpointer do its work without waiting for its time.
    pub(crate) fn want_upkeep(&self) {
        self.desk().is_upkeep_wanted = true;
        self.upkeep.notify_all();
    }

    pub(crate) fn wake_all(&self) {
        self.work.notify_all();
        self.upkeep.notify_all();
        self.room.notify_waiters();
    }

    /// Asks for a checkpoint that has what the log cannot take, and waits for it or until it is time to try the log again. Nobody
    /// who makes room waits for the log meanwhile.
    pub(crate) fn wait_for_room(&self, sequence: u64, lacks_files: bool, most: Duration) {
        self.log_lacks_files.store(lacks_files, Ordering::Relaxed);
        self.is_log_full.store(true, Ordering::Relaxed);
        self.room.notify_waiters();
        let mut desk = self.desk();
        desk.let_checkpoint_go_ahead();
        self.upkeep.notify_all();
        if !desk.is_in_checkpoint(sequence) {
            drop(self.work.wait_timeout(desk, most).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The committer goes on.
    pub(crate) fn has_room(&self) {
        self.is_log_full.store(false, Ordering::Relaxed);
        self.log_lacks_files.store(false, Ordering::Relaxed);
        self.exhausted.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_log_full(&self) -> bool {
        self.is_log_full.load(Ordering::Relaxed)
    }

    pub(crate) fn set_spares_lack_files(&self, lack: bool) {
        self.spares_lack_files.store(lack, Ordering::Relaxed);
    }

    /// Whether new tasks are refused because no file can be opened, and not for want of room.
    pub(crate) fn lacks_files(&self) -> bool {
        self.log_lacks_files.load(Ordering::Relaxed) || self.spares_lack_files.load(Ordering::Relaxed)
    }

    /// Why new tasks are refused while [`is_full`](Self::is_full).
    fn refusal(&self) -> StoreError {
        if self.lacks_files() { error::scarce(&self.folder) } else { error::full(&self.folder) }
    }

    /// The log makes no files while the checkpoint lacks room.
    pub(crate) fn set_checkpoint_full(&self, is_full: bool) {
        self.is_checkpoint_full.store(is_full, Ordering::Relaxed);
        self.spares.set_disk_full(is_full);
    }

    pub(crate) fn is_checkpoint_full(&self) -> bool {
        self.is_checkpoint_full.load(Ordering::Relaxed)
    }

    /// Takes nothing more. What was carried out is still written to the log and answered.
    pub(crate) fn stop(&self, why: &str) {
        self.desk().stop(why);
        self.wake_all();
    }

    /// There is nothing left to make room with. What waits for the log waits on, but nobody for it, and nothing more is taken.
    pub(crate) fn exhaust(&self) {
        let is_log_full = self.is_log_full();
        self.exhausted.store(is_log_full, Ordering::Relaxed);
        if is_log_full {
            self.desk().let_go(StoreError { happened: Happened::Unknown, ..self.refusal() });
        }
    }

    /// Whether new tasks are refused because the disk is nearly full, or no file can be opened.
    pub(crate) fn is_full(&self) -> bool {
        !self.spares.has_reserve() || self.is_checkpoint_full() || self.is_log_full() || self.lacks_files()
    }

    /// Lets new tasks wait until the checkpoint has caught up, so that memory and log stay bounded, and until a spare segment is
    /// there, so that what remains of the last one is left to tasks that are here.
    pub(crate) async fn room(&self, ops: &[Op]) {
        if !ops.iter().any(is_growth) {
            return;
        }
        loop {
            let mut freed = std::pin::pin!(self.room.notified());
            freed.as_mut().enable();
            if self.is_full() || !self.is_behind() {
                return;
            }
            self.want_upkeep();
            freed.await;
        }
    }

    fn is_behind(&self) -> bool {
        let desk = self.desk();
        desk.is_running() && (desk.is_behind(&self.options) || self.spares.ready() == 0)
    }

    /// Carries ops out in the index and leaves the changes to the committer. What callers are told must wait until it is durable,
    /// each outcome by what it rests on.
    pub(crate) fn carry_out(&self, ops: Vec<Op>) -> Result<(Vec<(Outcome, Basis)>, Wait), StoreError> {
        let mut refused = Vec::new();
        let mut desk = self.bring(&ops, &mut refused)?;
        let was_idle = desk.is_idle();
        let full = self.is_full();
        let exhausted = self.exhausted.load(Ordering::Relaxed);
        let mut outcomes = Vec::with_capacity(ops.len());
        for op in ops {
            let refusal = refused.iter().find(|(key, _)| names(&op, key)).map(|(_, error)| error.clone());
            let outcome = match refusal {
                Some(error) => (Err(error), Basis::Nothing),
                None if exhausted || (full && is_growth(&op)) => (Err(self.refusal()), Basis::Nothing),
                None => match desk.check_writable(&op) {
                    Ok(()) => desk.carry_out(op, &self.hints, &self.checkpoint),
                    Err(error) => (Err(error), Basis::Nothing),
                },
            };
            outcomes.push(outcome);
        }
        let revision = outcomes.iter().map(|(_, basis)| basis.revision()).max().unwrap_or(0);
        let wait = desk.wait_for(revision);
        if was_idle && !desk.is_idle() {
            self.work.notify_one();
        }
        if desk.is_checkpoint_wanted(&self.options) || desk.is_upkeep_asleep && desk.is_checkpoint_due() {
            desk.is_upkeep_asleep = false;
            self.upkeep.notify_one();
        }
        Ok((outcomes, wait))
    }

    /// Brings the tasks that ops name and that rest, and the bodies that claims will most likely come for. Reads happen without
    /// the lock; if the checkpoint moved on meanwhile, what was read may be old, and is read again. A body is taken only if it
    /// is the one that is away, and is not read twice: a claim that needs another one reads it by itself.
    fn bring<'a>(
        &'a self,
        ops: &[Op],
        refused: &mut Vec<(Key, StoreError)>,
    ) -> Result<MutexGuard<'a, Desk>, StoreError> {
        let mut desk = self.desk();
        desk.is_open()?;
        let (mut missing, mut away) = (desk.missing(ops), desk.away(ops));
        while !missing.is_empty() || !away.is_empty() {
            let (kept, generation) = (desk.kept_snapshot(), desk.generation);
            drop(desk);
            let snapshot = kept.map_or_else(|| self.checkpoint.snapshot().map(Arc::new), Ok)?;
            refused.clear();
            let mut found = Vec::with_capacity(missing.len());
            for key in &missing {
                match snapshot.task_to_change(key) {
                    Ok(Some((task, stamp))) => found.push((key.clone(), task, stamp)),
                    Ok(None) => {}
                    Err(error) => refused.push((key.clone(), error)),
                }
            }
            let bodies = bodies(&snapshot, std::mem::take(&mut away));
            desk = self.desk();
            desk.is_open()?;
            for ((task, stamp), key) in bodies {
                desk.shelf.bring(&key, task, stamp.revision);
            }
            if desk.generation == generation {
                desk.keep_snapshot(snapshot);
                desk.wake(found);
                return Ok(desk);
            }
            missing = desk.missing(ops);
        }
        Ok(desk)
    }
}

/// Bodies for claims, as many as a claim gives out at once.
fn bodies(snapshot: &Snapshot, keys: Vec<Key>) -> Vec<Body> {
    let (mut bodies, mut bytes) = (Vec::with_capacity(keys.len()), 0);
    for key in keys {
        if bytes >= limits::CLAIM_BYTES_MAX {
            break;
        }
        if let Ok(Some((task, stamp))) = snapshot.task(&key) {
            bytes += task.content_bytes();
            bodies.push(((task, stamp), key));
        }
    }
    bodies
}
