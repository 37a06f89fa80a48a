//! What holds a running handler: it can be asked to stop, and dropped at its next await.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Why an attempt should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// Its task was cancelled.
    Cancelled,
    /// Its time is over.
    TimedOut,
    /// Its runner ends.
    ShutDown,
    /// Its lease went to another claim, or its task has ended without it: what it does is no longer wanted.
    LeaseLost,
}

#[derive(Debug, Default)]
pub(crate) struct Leash {
    /// Made when somebody asks for it: most handlers end before anybody does.
    stop: OnceLock<CancellationToken>,
    reason: OnceLock<StopReason>,
    is_pulled: AtomicBool,
    is_over: AtomicBool,
    pulled: Notify,
}

impl Leash {
    /// Asks the handler to stop. The first reason counts.
    pub(crate) fn stop(&self, reason: StopReason) {
        self.reason.get_or_init(|| reason);
        self.token().cancel();
    }

    /// Why the handler was asked to stop, if it was.
    pub(crate) fn reason(&self) -> Option<StopReason> {
        self.reason.get().copied()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.get().is_some_and(CancellationToken::is_cancelled)
    }

    /// Tells when the handler is asked to stop.
    pub(crate) fn token(&self) -> &CancellationToken {
        self.stop.get_or_init(CancellationToken::new)
    }

    /// The work has ended within its time, and only what it wrote is on its way.
    #[cfg(all(feature = "exec", target_os = "linux"))]
    pub(crate) fn work_is_over(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether the time limit concerns it no more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Drops the handler at its next await.
    pub(crate) fn pull(&self) {
        self.is_pulled.store(true, Ordering::Release);
        self.pulled.notify_waiters();
    }

    pub(crate) fn is_pulled(&self) -> bool {
        self.is_pulled.load(Ordering::Acquire)
    }

    /// Waits until it is pulled. Who looked whether it is while this existed misses nothing.
    pub(crate) fn pulled(&self) -> tokio::sync::futures::Notified<'_> {
        self.pulled.notified()
    }
}
