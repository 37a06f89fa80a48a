//! The checkpointer: one thread that carries what is in the log over to the checkpoint, in large transactions behind everybody's
//! back, lets go of what need not be in memory, and keeps spare segments at hand.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::thread;

use ekiden_core::key::{Key, RecordKind};
use ekiden_core::reason::ReasonCode;
use ekiden_store::StoreError;

use crate::checkpoint::{Changed, Row, Upto, sorted};
use crate::committer::{tell, with_source};
use crate::error;
use crate::log::LogError;
use crate::reserve;
use crate::shared::Shared;

/// 256 tasks that leave memory under one hold of the lock: some 50 µs that a caller may have to wait.
const LEAVE_AT_ONCE: usize = 256;

/// 4,096 bodies that are brought after a checkpoint: more than is claimed until the next one.
const BRING_MAX: usize = 4_096;

/// 32 bodies between two looks at the memory that is left: with the largest payloads that is 8 MiB.
const BRING_AT_ONCE: usize = 32;

/// Runs until the store is closed and the committer is done.
pub(crate) fn run(shared: &Shared) {
    loop {
        let goes_on = rest(shared);
        if shared.spares.is_wanting() {
            let prepared = shared.spares.prepare();
            if let Err(error) = &prepared {
                tracing::warn!(error = with_source(error), "no spare segment could be made");
            }
            shared.set_spares_lack_files(matches!(prepared, Err(LogError::Scarce { .. })));
            shared.room.notify_waiters();
        }
        if goes_on || shared.options.checkpoint_on_close {
            write_with_reserve(shared);
        }
        if !goes_on {
            return;
        }
    }
}

/// Waits for the time of the next checkpoint, or until one is wanted. False when the store is no longer open.
fn rest(shared: &Shared) -> bool {
    let mut desk = shared.desk();
    let mut waited = false;
    while desk.is_running() {
        let is_wanted = std::mem::take(&mut desk.is_upkeep_wanted);
        if is_wanted || desk.is_checkpoint_wanted(&shared.options) || shared.spares.is_wanting() && waited {
            return true;
        }
        // Without room for the reserve nothing new comes in that would be a reason to look for room again.
        let is_due = desk.is_checkpoint_due() || shared.is_checkpoint_full();
        if waited && is_due {
            return true;
        }
        if !is_due && !shared.spares.is_wanting() {
            desk = shared.sleep_till_change(desk);
            waited = false;
            continue;
        }
        desk = shared.wait_for_upkeep(desk, shared.options.checkpoint_every);
        waited = true;
    }
    false
}

/// Writes one checkpoint, if it must be with the room that is kept for it. Only a full disk is tried again: after any other failure
/// it is unknown what the disk has of the file, and the log behind it must stay.
fn write_with_reserve(shared: &Shared) {
    while let Err(error) = shared.checkpoint.open_again().and_then(|()| write(shared)) {
        if error::is_spoiled(&error) {
            continue;
        }
        if error::is_passing(&error) {
            tracing::warn!(%error, "the checkpoint could not be opened and is tried again");
            return;
        }
        if error.code() != ReasonCode::StoreFull {
            stop(shared, &error);
            return;
        }
        tracing::warn!(%error, "the checkpoint could not be written and is tried again");
        shared.set_checkpoint_full(true);
        if !reserve::spend(shared) {
            shared.exhaust();
            return;
        }
    }
    reserve::keep(shared);
    bring_heads(shared);
}

fn stop(shared: &Shared, error: &StoreError) {
    if shared.desk().is_running() {
        tracing::error!(%error, "the checkpoint failed, and the store takes nothing more until it is opened again");
        shared.stop(&with_source(error));
    }
}

/// After this the file can be written again, or the store takes nothing more, whichever thread wrote.
fn mend(shared: &Shared, error: &StoreError) {
    if error.code() == ReasonCode::StoreFull || error::is_spoiled(error) || error::is_passing(error) {
        reopen(shared);
    } else {
        stop(shared, error);
    }
}

/// Writes one checkpoint and lets go of what it has.
pub(crate) fn write(shared: &Shared) -> Result<(), StoreError> {
    let _one_at_a_time = shared.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
    let (frozen, wait) = {
        let mut desk = shared.desk();
        if desk.has_failed() {
            return Ok(());
        }
        let frozen = desk.freeze();
        let may_wait = !shared.is_log_full();
        let wait = frozen.as_ref().filter(|_| may_wait).and_then(|frozen| desk.wait_for_log(frozen.revision));
        (frozen, wait)
    };
    // The checkpoint runs ahead of the log only where that has no room: what waits for room cannot be waited for by what makes it.
    if let Some(wait) = wait
        && wait.blocking_recv().is_err()
    {
        return Ok(());
    }
    let Some(frozen) = frozen else {
        let visitors = shared.desk().take_visitors();
        leave(shared, &visited(&visitors));
        return Ok(());
    };
    let rows = sorted(&frozen.changes);
    let Some(log) = shared.desk().begin_write(&frozen) else { return Ok(()) };
    let upto = Upto { sequence: frozen.sequence, revision: frozen.revision, log };
    shared.checkpoint.write(&rows, upto).inspect_err(|error| mend(shared, error))?;
    let (waiters, visitors) = {
        let mut desk = shared.desk();
        (desk.thaw(), desk.take_visitors())
    };
    tell(waiters);
    shared.room.notify_waiters();
    shared.log().release(frozen.sequence);
    shared.wake_committer();
    leave(shared, &written(&rows));
    leave(shared, &visited(&visitors));
    Ok(())
}

/// A task and the revision that it had.
type Seen<'a> = (&'a Key, u64);

/// The tasks that were written, in the order of their ids.
fn written<'a>(rows: &[Row<'a>]) -> Vec<Seen<'a>> {
    let tasks = rows.iter().filter_map(|row| match row.changed {
        Changed::Put { stamp, .. } if row.key.kind == RecordKind::Task => Some((row.key, stamp.revision)),
        Changed::Put { .. } | Changed::Gone { .. } => None,
    });
    tasks.collect()
}

fn visited(visitors: &[(Key, u64)]) -> Vec<Seen<'_>> {
    visitors.iter().map(|(key, revision)| (key, *revision)).collect()
}

/// Tasks that rest leave memory, and bodies too when there are too many. The oldest rest first, as lists are quick at their head.
fn leave(shared: &Shared, tasks: &[Seen<'_>]) {
    let mut awake = Vec::new();
    for some in tasks.chunks(LEAVE_AT_ONCE) {
        let mut desk = shared.desk();
        desk.generation += 1;
        awake.extend(some.iter().filter(|(key, revision)| !desk.shelf.let_rest(key, *revision)));
    }
    // Of bodies the youngest go first: what is oldest will be claimed first, and stays in memory if it can.
    for some in awake.rchunks(LEAVE_AT_ONCE) {
        let mut desk = shared.desk();
        if desk.shelf.bytes_here() <= shared.options.memory_bytes {
            return;
        }
        desk.generation += 1;
        for (key, revision) in some.iter().rev() {
            desk.shelf.put_away(key, *revision);
        }
    }
}

/// Brings the bodies of tasks that will be claimed next, while there is memory for them, so that claims need not read the disk.
pub(crate) fn bring_heads(shared: &Shared) {
    let (heads, snapshot) = {
        let mut desk = shared.desk();
        if !desk.is_running() || desk.shelf.bytes_here() >= shared.options.memory_bytes {
            return;
        }
        let heads = desk.shelf.heads_away(BRING_MAX);
        match desk.snapshot(&shared.checkpoint) {
            Ok(snapshot) if !heads.is_empty() => (heads, snapshot),
            _ => return,
        }
    };
    for some in heads.chunks(BRING_AT_ONCE) {
        let found: Vec<_> = some.iter().filter_map(|key| Some((key, snapshot.task(key).ok()??))).collect();
        let mut desk = shared.desk();
        for (key, (task, stamp)) in found {
            desk.shelf.bring(key, task, stamp.revision);
        }
        if desk.shelf.bytes_here() >= shared.options.memory_bytes {
            return;
        }
    }
}

/// redb takes nothing more after an I/O error.
fn reopen(shared: &Shared) {
    if let Err(error) = shared.checkpoint.reopen() {
        tracing::error!(%error, "the checkpoint could not be opened again");
    }
    shared.desk().forget_snapshot();
}

/// 5: beside somebody who waits for an answer this thread gets a quarter of a processor, which is enough to keep up.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Lets those who answer go first: nobody waits for a checkpoint unless it is far behind.
fn step_back() {
    // On Linux a thread has a priority of its own. Where it cannot be lowered, all is as before.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

/// Starts the thread. It ends after the committer.
pub(crate) fn start(shared: Arc<Shared>, committer: thread::JoinHandle<()>) -> std::io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name("ekiden-checkpoint".to_owned()).spawn(move || {
        step_back();
        // Callers wait for this thread too: for room, and on a full disk for what the log cannot take.
        if catch_unwind(AssertUnwindSafe(|| run(&shared))).is_err() {
            tracing::error!("the checkpointer panicked, and the store takes nothing more until it is opened again");
            shared.stop("the checkpointer panicked");
        }
        // A panic there has failed the store already.
        let _ = committer.join();
        shared.leave_folder();
    })
}
