//! The committer: one thread that writes what callers left at the desk, syncs once for all of them, and tells them. While it
//! syncs, callers fill the next batch; a caller that is alone waits for one sync and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::codec::Pen;
use crate::desk::{Batch, send};
use crate::durability::Waiter;
use crate::log::LogError;
use crate::shared::Shared;

/// 100 ms: how soon a full disk is tried again, or another file.
const RETRY_FULL: Duration = Duration::from_millis(100);

/// 16 times: whoever was just answered usually comes again at once, and a batch that waits for them saves a sync. Yielding costs
/// nothing when nobody else wants to run.
const YIELDS_MAX: usize = 16;

/// 4 MiB: a buffer that had to be larger once is not kept.
const BUFFER_KEPT_MAX: usize = 4 << 20;

/// Runs until the store is closed and everything is written, or until a write fails.
pub(crate) fn run(shared: &Shared) {
    let mut served = 0;
    let (mut pen, mut bytes) = (Pen::default(), Vec::new());
    loop {
        gather(shared, served);
        let Some(batch) = next_batch(shared) else { return };
        let Some(told) = write(shared, batch, &mut pen, &mut bytes) else { return };
        served = told;
        bytes.clear();
        bytes.shrink_to(BUFFER_KEPT_MAX);
    }
}

/// Lets callers who were answered together come back together.
fn gather(shared: &Shared, served: usize) {
    let mut waiting = 0;
    for _ in 0..YIELDS_MAX {
        let now = shared.desk().waiting();
        if now >= served || (waiting > 0 && now == waiting) {
            return;
        }
        waiting = now;
        thread::yield_now();
    }
}

/// Waits for something to write; `None` when there will be nothing any more.
fn next_batch(shared: &Shared) -> Option<Batch> {
    let mut desk = shared.desk();
    loop {
        if let Some(batch) = desk.take_batch() {
            return Some(batch);
        }
        if !desk.is_running() {
            return None;
        }
        desk = shared.wait_for_work(desk);
    }
}

/// Writes a batch and tells everybody; how many, or `None` if it failed.
fn write(shared: &Shared, mut batch: Batch, pen: &mut Pen, bytes: &mut Vec<u8>) -> Option<usize> {
    for note in batch.notes.drain(..) {
        note.write(pen, bytes);
    }
    match append(shared, bytes, batch.sequence) {
        Ok(()) => {
            let told = {
                let mut desk = shared.desk();
                desk.reuse(batch.notes);
                desk.settle(batch.revision)
            };
            let count = told.len();
            tell(told);
            send(&shared.hints, batch.hints);
            Some(count)
        }
        Err(error) => {
            tracing::error!(%error, "the log failed, and the store takes nothing more until it is opened again");
            let why = with_source(&error);
            shared.desk().fail(&why, batch.revision);
            shared.wake_all();
            None
        }
    }
}

/// One write, one sync. What the log has no room for is durable when the checkpoint has it: until then nothing was written, and
/// the batch is as good as before.
fn append(shared: &Shared, bytes: &[u8], sequence: u64) -> Result<(), LogError> {
    while !shared.desk().is_in_checkpoint(sequence) {
        let mut log = shared.log();
        if log.last() + 1 < sequence {
            log.leave_out(sequence);
        }
        match log.append(bytes) {
            Ok(appended) => {
                debug_assert_eq!(appended, sequence, "the desk counts batches as the log does");
                log.sync()?;
                break;
            }
            Err(error) if error.is_passing() && shared.desk().is_running() => {
                drop(log);
                let lacks_files = matches!(error, LogError::Scarce { .. });
                shared.wait_for_room(sequence, lacks_files, RETRY_FULL);
            }
            Err(error) => return Err(error),
        }
    }
    shared.has_room();
    Ok(())
}

pub(crate) fn tell(waiters: Vec<Waiter>) {
    for waiter in waiters {
        // Whoever went away does not need the answer.
        let _ = waiter.send(Ok(()));
    }
}

pub(crate) fn with_source(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Starts the thread.
pub(crate) fn start(shared: Arc<Shared>) -> std::io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name("ekiden-commit".to_owned()).spawn(move || {
        // Callers wait for this thread: without it they would wait for ever.
        if catch_unwind(AssertUnwindSafe(|| run(&shared))).is_err() {
            tracing::error!("the committer panicked, and the store takes nothing more until it is opened again");
            shared.desk().fail("the committer panicked", u64::MAX);
        }
        shared.wake_all();
    })
}
