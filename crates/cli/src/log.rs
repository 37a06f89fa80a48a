//! What a process that stays says on stderr. A thread of its own writes it: a pipe that nobody reads takes 64 KiB and then holds
//! up whoever writes to it, and no runner, server or time limit may stand still for that. What the queue before the thread has
//! no room for is dropped, and counted.
//!
//! `tracing-appender` does the same, but at the end of a process it prints that it could not write, which waits for the same
//! reader.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// 4,096 lines: more than a burst has while somebody reads, and a few MiB at most.
const LINES_MAX: usize = 4_096;

/// One second at the end of the process for whoever reads to take the last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

static LOG: OnceLock<Queue> = OnceLock::new();

/// From now on what is said takes this way.
pub(crate) fn start() -> io::Result<()> {
    let queue = LOG.get_or_init(Queue::default);
    thread::Builder::new().name("log".to_owned()).spawn(|| queue.write_to(anstream::stderr()))?;
    Ok(())
}

/// Says a line without waiting. `false` if this process writes to stderr itself.
pub(crate) fn say(text: &str) -> bool {
    let queue = LOG.get();
    queue.into_iter().for_each(|queue| queue.push(format!("{text}\n").into_bytes()));
    queue.is_some()
}

/// Waits until everything is written, but no longer than a second.
pub(crate) fn end() {
    LOG.get().into_iter().for_each(|queue| queue.wait(LAST_LINES));
}

/// What events are written to. Each arrives as a whole.
pub(crate) struct Events;

impl Write for Events {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        LOG.get().into_iter().for_each(|queue| queue.push(event.to_vec()));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines that wait to be written.
#[derive(Default)]
struct Queue {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Default)]
struct Lines {
    waiting: VecDeque<Vec<u8>>,
    is_writing: bool,
    /// How many there was no room for since the start.
    dropped: u64,
}

impl Queue {
    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: Vec<u8>) {
        let mut lines = self.lines();
        if lines.waiting.len() < LINES_MAX {
            lines.waiting.push_back(line);
            self.changed.notify_all();
        } else {
            lines.dropped += 1;
        }
    }

    /// Writes what comes, for ever.
    fn write_to(&self, mut to: impl Write) {
        let mut told = 0;
        loop {
            let (line, dropped) = self.next();
            // Whoever does not listen any more misses nothing.
            let _ = to.write_all(&line).and_then(|()| to.flush());
            if dropped > told {
                told = dropped;
                // It waits behind those that came before the gap. Without room it is dropped and counted itself, and told later.
                tracing::warn!(dropped, "lines of this log were dropped, because nobody read it");
            }
        }
    }

    /// The next line, and how many were dropped so far.
    fn next(&self) -> (Vec<u8>, u64) {
        let mut lines = self.lines();
        lines.is_writing = false;
        loop {
            if let Some(line) = lines.waiting.pop_front() {
                lines.is_writing = true;
                return (line, lines.dropped);
            }
            self.changed.notify_all();
            lines = self.changed.wait(lines).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until nothing waits to be written.
    fn wait(&self, limit: Duration) {
        let is_busy = |lines: &mut Lines| lines.is_writing || !lines.waiting.is_empty();
        drop(self.changed.wait_timeout_while(self.lines(), limit, is_busy));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;

    /// Passes on what is written when somebody takes it.
    struct Pipe(mpsc::SyncSender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.send(line.to_vec()).map_err(io::Error::other)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// S20: what is said while nobody reads waits for nobody; what there is no room for is counted, and the rest comes in order.
    #[test]
    fn a_full_queue_drops_and_counts_and_goes_on_in_order() {
        let queue = Arc::new(Queue::default());
        (0..LINES_MAX + 7).for_each(|number| queue.push(number.to_string().into_bytes()));
        queue.wait(Duration::from_millis(10));
        let counts = |lines: &Lines| (lines.waiting.len(), lines.dropped, lines.is_writing);
        assert_eq!(counts(&queue.lines()), (LINES_MAX, 7, false));
        let (to, from) = mpsc::sync_channel(0);
        let writer = queue.clone();
        thread::spawn(move || writer.write_to(Pipe(to)));
        for number in 0..LINES_MAX {
            assert_eq!(from.recv().unwrap(), number.to_string().into_bytes());
        }
        queue.wait(LAST_LINES);
        assert_eq!(counts(&queue.lines()), (0, 7, false));
    }
}
