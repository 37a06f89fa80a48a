//! Where the hints of a store go. Most stores are never watched, and asking a channel who listens takes its lock, so that is not
//! asked before somebody did.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::broadcast;

use crate::store::Hint;

/// 4,096 hints: a watcher that is further behind polls anyway.
const HINTS_KEPT: usize = 4_096;

/// Gives hints to whoever watches a store.
#[derive(Debug)]
pub struct Hints {
    sender: broadcast::Sender<Hint>,
    /// Whether anybody ever watched.
    watched: AtomicBool,
}

impl Hints {
    /// Nobody watches yet.
    pub fn new() -> Self {
        Self { sender: broadcast::channel(HINTS_KEPT).0, watched: AtomicBool::new(false) }
    }

    /// Hears all hints from now on.
    pub fn watch(&self) -> broadcast::Receiver<Hint> {
        let receiver = self.sender.subscribe();
        self.watched.store(true, Ordering::Release);
        receiver
    }

    /// Whether anybody watches.
    pub fn are_heard(&self) -> bool {
        self.watched.load(Ordering::Acquire) && self.sender.receiver_count() > 0
    }

    /// Gives a hint. Nobody listening any more is as good as nobody listening.
    pub fn send(&self, hint: Hint) {
        let _ = self.sender.send(hint);
    }
}

impl Default for Hints {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use ekiden_core::id::Namespace;

    use super::*;

    #[test]
    fn hints_are_heard_as_long_as_somebody_watches() {
        let hints = Hints::new();
        let hint = || Hint::Ready(Namespace::new("n").unwrap());
        hints.send(hint());
        assert!(!hints.are_heard());
        let mut watcher = hints.watch();
        assert!(hints.are_heard());
        hints.send(hint());
        assert!(matches!(watcher.try_recv(), Ok(Hint::Ready(_))));
        assert!(watcher.try_recv().is_err(), "nothing from before");
        drop(watcher);
        assert!(!hints.are_heard());
    }
}
