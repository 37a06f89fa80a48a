//! Time as data: UTC milliseconds, and durations in milliseconds. Reading a clock happens elsewhere.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits;
use crate::reason::{ReasonCode, Refusal};

/// A moment, in milliseconds since 1970-01-01T00:00:00Z. Its text is always 24 characters, so that texts sort like moments.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00.000Z.
    pub const ZERO: Self = Self(0);
    /// 9999-12-30T00:00:00.000Z: from here on some time zone may have left the year 9999.
    pub const MAX: Self = Self(253_402_128_000_000);

    /// From milliseconds since the epoch, held inside [`Self::ZERO`] and [`Self::MAX`].
    pub const fn from_millis(millis: i64) -> Self {
        if millis < 0 {
            Self::ZERO
        } else if millis > Self::MAX.0 {
            Self::MAX
        } else {
            Self(millis)
        }
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Reads an RFC 3339 text of any width and offset; foreign programs write seconds, microseconds and offsets.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let wrong = || Refusal::new(ReasonCode::TimeInvalid).with("time", text.chars().take(64).collect::<String>());
        let parsed: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
        let millis = parsed.as_millisecond();
        if (0..=Self::MAX.0).contains(&millis) { Ok(Self(millis)) } else { Err(wrong()) }
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub const fn since(self, earlier: Self) -> Millis {
        let gap = self.0 - earlier.0;
        if gap < 0 { Millis::ZERO } else { Millis::new(gap as u64) }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In range by construction; jiff's own text drops trailing zeros, ours never does.
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => write!(f, "{moment:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Add<Millis> for Timestamp {
    type Output = Self;
    fn add(self, span: Millis) -> Self {
        Self::from_millis(self.0.saturating_add(i64::try_from(span.0).unwrap_or(i64::MAX)))
    }
}

impl Sub<Millis> for Timestamp {
    type Output = Self;
    fn sub(self, span: Millis) -> Self {
        Self::from_millis(self.0.saturating_sub(i64::try_from(span.0).unwrap_or(i64::MAX)))
    }
}

/// A duration in whole milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(u64);

impl Millis {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// From milliseconds.
    pub const fn new(millis: u64) -> Self {
        Self(millis)
    }

    /// From seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// From days of 24 hours.
    pub const fn from_days(days: u64) -> Self {
        Self::from_secs(days.saturating_mul(86_400))
    }

    /// As a number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// As the standard library's type, for waiting.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// Refuses zero and anything above `limit`, naming the `field`: both are mistakes in the unit, not wishes.
    pub fn check(self, field: &'static str, limit: Self) -> Result<Self, Refusal> {
        if self.0 == 0 || self > limit {
            return Err(Refusal::new(ReasonCode::DurationInvalid)
                .with("field", field)
                .with("duration_ms", self.0)
                .with("max_ms", limit.0));
        }
        Ok(self)
    }

    /// As [`Self::check`], but zero is a meaning of its own here ("now", "at once").
    pub fn check_or_zero(self, field: &'static str) -> Result<Self, Refusal> {
        if self == Self::ZERO { Ok(self) } else { self.check(field, limits::DURATION_MAX) }
    }
}

/// How far the time of a process is ahead of its machine's clock, because that clock was set back while the process ran. It
/// shrinks by a [`limits::CLOCK_SLEW`]th of the time that passes, until both show the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClockLead(Millis);

impl ClockLead {
    /// Both show the same.
    pub const NONE: Self = Self(Millis::ZERO);

    /// The process is ahead by so much.
    pub const fn new(by: Millis) -> Self {
        Self(by)
    }

    /// By how much the process is ahead.
    pub const fn as_millis(self) -> Millis {
        self.0
    }

    /// What is left of it when so much time has passed.
    #[must_use]
    pub const fn after(self, passed: Millis) -> Self {
        Self(Millis(self.0.0.saturating_sub(passed.0 / limits::CLOCK_SLEW)))
    }

    /// What the machine's clock shows while it is `now` for the process.
    pub fn shown(self, now: Timestamp) -> Timestamp {
        now - self.0
    }

    /// What the machine's clock showed at an earlier moment of the process, had it gone as it goes now.
    pub fn was_shown(self, earlier: Timestamp, now: Timestamp) -> Timestamp {
        // The process slows down: on the machine's clock 20 ms pass while 19 pass here.
        let passed = now.since(earlier).0.saturating_mul(limits::CLOCK_SLEW) / (limits::CLOCK_SLEW - 1);
        self.shown(now) - Millis(passed)
    }

    /// The moment of the process at which the machine's clock will show this.
    pub fn when_shown(self, shown: Timestamp, now: Timestamp) -> Timestamp {
        shown + self.after(shown.since(self.shown(now))).0
    }
}

impl From<Duration> for Millis {
    /// Rounds up, so that a wait is never shorter than asked for.
    fn from(span: Duration) -> Self {
        Self(u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

impl fmt::Debug for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_24_characters_and_sorts_like_the_moment() {
        let moments = [0, 1, 999, 1_000, 1_763_193_600_000, 1_763_193_600_500, Timestamp::MAX.as_millis()];
        let texts: Vec<String> = moments.iter().map(|ms| Timestamp::from_millis(*ms).to_string()).collect();
        assert!(texts.iter().all(|text| text.len() == 24), "{texts:?}");
        assert!(texts.is_sorted(), "{texts:?}");
        assert_eq!(texts[4], "2025-11-15T08:00:00.000Z");
    }

    #[test]
    fn foreign_widths_and_offsets_are_read() {
        for text in ["2025-11-15T08:00:00Z", "2025-11-15T08:00:00.000000Z", "2025-11-15T17:00:00+09:00"] {
            assert_eq!(Timestamp::parse(text).unwrap().as_millis(), 1_763_193_600_000, "{text}");
        }
        for text in ["", "yesterday", "2025-11-15", "1969-12-31T23:59:59Z", "2025-13-01T00:00:00Z"] {
            assert_eq!(Timestamp::parse(text).unwrap_err().code, ReasonCode::TimeInvalid, "{text}");
        }
    }

    #[test]
    fn arithmetic_saturates_and_durations_round_up() {
        assert_eq!(Timestamp::MAX + Millis::new(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::ZERO - Millis::new(5), Timestamp::ZERO);
        assert_eq!(Millis::from(Duration::from_micros(1_001)), Millis::new(2));
        assert_eq!(Timestamp::from_millis(5).since(Timestamp::from_millis(9)), Millis::ZERO);
    }

    #[test]
    fn zero_and_absurd_durations_are_refused_by_name() {
        for span in [Millis::ZERO, Millis::from_days(4_000)] {
            let refusal = span.check("timeout", limits::DURATION_MAX).unwrap_err();
            assert_eq!(refusal.code, ReasonCode::DurationInvalid);
            assert_eq!(refusal.context.get("field").map(String::as_str), Some("timeout"));
        }
        assert!(Millis::ZERO.check_or_zero("delay").is_ok());
    }
}
