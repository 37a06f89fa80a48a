//! The one place that reads the clock. Everything else takes a moment as an argument.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ekiden_core::limits;
use ekiden_core::time::{ClockLead, Millis, Timestamp};

/// Something that knows the time.
pub trait Clock: Send + Sync {
    /// The moment, UTC. It may jump.
    fn now(&self) -> Timestamp;

    /// How long ago something fixed was. It never jumps and never runs back; only differences mean anything.
    fn monotonic(&self) -> Duration;

    /// How far [`Self::now`] is ahead of what the machine's clock shows.
    fn lead(&self) -> ClockLead;
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

    fn lead(&self) -> ClockLead {
        ClockLead::NONE
    }
}

/// How many nanoseconds of its millisecond have passed, by the machine's clock.
#[expect(clippy::disallowed_methods, reason = "this is the file that reads the clock")]
pub(crate) fn nanos_of_the_millisecond() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos() % 1_000_000
}

/// 100 ms between two comparisons with the monotonic clock: reading both each time would cost every request a system call more.
const LOOK_MS: i64 = 100;

/// One minute: an anchor no older than this keeps slow drift between the two clocks from looking like a step.
const ANCHOR_KEPT: Duration = Duration::from_secs(60);

/// 8 tries to read both clocks without a pause of the process between them.
const READ_TRIES: usize = 8;

/// Never a moment that the clock shows: the next reading compares.
const COMPARE: i64 = i64::MIN;

/// The time of a process: UTC as another clock shows it, but never set back.
///
/// Where the other clock is set forward, this one follows at once. Where it is set back, by up to
/// [`limits::CLOCK_LEAD_MAX`], this one goes on by the monotonic clock, a little slower, until both show the same
/// ([`ClockLead`]): whatever the process started ends in time and in order. Either is told in the log, once.
pub struct SteadyClock {
    when_set_back: WhenSetBack,
    /// What the source showed at the last comparison while that was the time of the process too, or else [`COMPARE`].
    compared: AtomicI64,
    anchor: Mutex<Anchor>,
    source: Arc<dyn Clock>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhenSetBack {
    GoOn,
    Follow,
}

/// What both clocks showed at one moment, and how far the process was ahead then.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    shown: i64,
    at: Duration,
    lead: ClockLead,
    /// The latest moment that a comparison gave out.
    latest: i64,
}

/// A clock that was set.
struct Jump {
    from: Timestamp,
    to: Timestamp,
    by_ms: i64,
    lead: ClockLead,
}

impl SteadyClock {
    /// For a store that one process has to itself.
    pub fn new(source: Arc<dyn Clock>) -> Self {
        Self::with(source, WhenSetBack::GoOn)
    }

    /// For a store that several machines write to: they read each other's times, so this one shows what its source shows, and
    /// only tells when that was set.
    pub fn following(source: Arc<dyn Clock>) -> Self {
        Self::with(source, WhenSetBack::Follow)
    }

    fn with(source: Arc<dyn Clock>, when_set_back: WhenSetBack) -> Self {
        let (shown, at) = read_both(&*source);
        let anchor = Anchor { shown, at, lead: ClockLead::NONE, latest: shown };
        Self { when_set_back, compared: AtomicI64::new(shown), anchor: Mutex::new(anchor), source }
    }

    /// Compares both clocks. The moment of the process, and how far it is ahead.
    fn compare(&self) -> (Timestamp, ClockLead) {
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        let (shown, at) = read_both(&*self.source);
        let jump = anchor.advance(shown, at, self.when_set_back);
        let lead = anchor.lead_at(at);
        let own = lead_ms(lead).saturating_add(shown);
        // A step too small to count makes the clock stand for a moment, and does not take it back.
        let now = match self.when_set_back {
            WhenSetBack::GoOn => own.max(anchor.latest),
            WhenSetBack::Follow => own,
        };
        anchor.latest = now;
        self.compared.store(if now == shown { shown } else { COMPARE }, Ordering::Release);
        drop(anchor);
        if let Some(jump) = jump {
            jump.tell();
        }
        (Timestamp::from_millis(now), lead)
    }
}

impl Anchor {
    fn lead_at(&self, at: Duration) -> ClockLead {
        self.lead.after(Millis::new(millis(at.saturating_sub(self.at)).unsigned_abs()))
    }

    /// Moves to what the clocks show now. Says whether the source was set since.
    fn advance(&mut self, shown: i64, at: Duration, when_set_back: WhenSetBack) -> Option<Jump> {
        let passed = at.saturating_sub(self.at);
        let due = self.shown.saturating_add(millis(passed));
        let by_ms = shown.saturating_sub(due);
        let is_set = by_ms.unsigned_abs() >= limits::CLOCK_STEP_MIN.as_u64();
        if !is_set && passed < ANCHOR_KEPT {
            return None;
        }
        let mut lead = self.lead_at(at);
        if is_set {
            let ahead = Millis::new(u64::try_from(lead_ms(lead).saturating_sub(by_ms)).unwrap_or(0));
            let kept = when_set_back == WhenSetBack::GoOn && ahead <= limits::CLOCK_LEAD_MAX;
            lead = if kept { ClockLead::new(ahead) } else { ClockLead::NONE };
            if !kept {
                self.latest = shown;
            }
        }
        (self.shown, self.at, self.lead) = (shown, at, lead);
        let [from, to] = [due, shown].map(Timestamp::from_millis);
        is_set.then_some(Jump { from, to, by_ms, lead })
    }
}

impl Jump {
    fn tell(&self) {
        let Self { from, to, by_ms, lead } = self;
        let ahead_ms = lead.as_millis().as_u64();
        tracing::warn!(%from, %to, by_ms, ahead_ms, "clock_jumped");
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> Timestamp {
        let shown = self.source.now();
        let since = shown.as_millis().wrapping_sub(self.compared.load(Ordering::Acquire));
        if (0..LOOK_MS).contains(&since) { shown } else { self.compare().0 }
    }

    fn monotonic(&self) -> Duration {
        self.source.monotonic()
    }

    fn lead(&self) -> ClockLead {
        self.compare().1
    }
}

/// What both clocks show at one moment. Should the process have been paused in between, they are read again.
fn read_both(source: &dyn Clock) -> (i64, Duration) {
    let mut before = source.monotonic();
    for _ in 1..READ_TRIES {
        let (shown, after) = (source.now(), source.monotonic());
        if millis(after.saturating_sub(before)) < LOOK_MS {
            return (shown.as_millis(), after);
        }
        before = after;
    }
    (source.now().as_millis(), source.monotonic())
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn lead_ms(lead: ClockLead) -> i64 {
    i64::try_from(lead.as_millis().as_u64()).unwrap_or(i64::MAX)
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
        // Time passes before the clock shows it: what reads both in between sees a clock that is behind, which is made up for.
        self.passed.fetch_add(by.as_u64(), Ordering::SeqCst);
        let before = self.now.fetch_add(millis, Ordering::SeqCst);
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

    fn lead(&self) -> ClockLead {
        ClockLead::NONE
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

    fn lead(&self) -> ClockLead {
        ClockLead::NONE
    }
}

#[cfg(test)]
mod tests;
