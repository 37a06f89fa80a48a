//! The one place that reads the clock. Everything else takes a moment as an argument.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ekiden_core::time::{Millis, Timestamp};

/// Something that knows the time.
pub trait Clock: Send + Sync {
    /// The moment, UTC. It may jump.
    fn now(&self) -> Timestamp;

    /// How long ago something fixed was. It never jumps and never runs back; only differences mean anything.
    fn monotonic(&self) -> Duration;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    fn monotonic(&self) -> Duration {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        ORIGIN.get_or_init(Instant::now).elapsed()
    }
}

/// A clock that stands still until somebody moves it, for tests and simulations.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicI64,
    passed: AtomicU64,
}

impl ManualClock {
    /// A clock that shows this moment.
    pub const fn new(start: Timestamp) -> Self {
        Self { now: AtomicI64::new(start.as_millis()), passed: AtomicU64::new(0) }
    }

    /// Time passes.
    pub fn advance(&self, by: Millis) -> Timestamp {
        // One step, so that two who move the clock at once never turn it back.
        let millis = i64::try_from(by.as_u64()).unwrap_or(i64::MAX);
        let before = self.now.fetch_add(millis, Ordering::SeqCst);
        self.passed.fetch_add(by.as_u64(), Ordering::SeqCst);
        Timestamp::from_millis(before.saturating_add(millis))
    }

    /// The clock jumps, also backwards, while no time passes.
    pub fn set(&self, to: Timestamp) {
        self.now.store(to.as_millis(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.passed.load(Ordering::SeqCst))
    }
}

/// A clock that follows tokio's: on a paused runtime time passes only while everybody waits, and then at once.
#[derive(Debug)]
pub struct TokioClock {
    start: Timestamp,
    origin: tokio::time::Instant,
    jumped: AtomicI64,
}

impl TokioClock {
    /// A clock that shows this moment now. Inside a runtime only.
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
    pub fn new(start: Timestamp) -> Self {
        Self { start, origin: tokio::time::Instant::now(), jumped: AtomicI64::new(0) }
    }

    /// The clock jumps by so many milliseconds, also backwards, while no time passes.
    pub fn jump(&self, by_ms: i64) {
        self.jumped.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.monotonic().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(
            self.start.as_millis().saturating_add(passed).saturating_add(self.jumped.load(Ordering::SeqCst)),
        )
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }
}
