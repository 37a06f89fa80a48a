//! The moments at which a schedule ticks: cron expressions and intervals, searched forward. Knows nothing of tasks.

use std::str::FromStr;

use croner::Cron;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, civil};

use crate::limits;
use crate::reason::Refusal;
use crate::schedule::Every;
use crate::time::{Millis, Timestamp};

/// The ticks of an [`Every`], ready to be searched.
pub(super) enum Ticks {
    Interval {
        period: Millis,
        anchor: Timestamp,
    },
    /// At times of the day that are named one by one.
    Times(Cron, TimeZone),
    /// Every so often: at least one of second, minute and hour has a wildcard or a step.
    Often(Cron, TimeZone),
}

impl Ticks {
    /// Refuses what cannot be read. What can be read may still never tick.
    pub(super) fn of(every: &Every) -> Result<Self, Refusal> {
        match every {
            Every::Interval { period, anchor } => {
                period.check("period", limits::DURATION_MAX)?;
                Ok(Self::Interval { period: *period, anchor: *anchor })
            }
            Every::Cron { expression, .. } if expression.len() > limits::CRON_BYTES_MAX => {
                Err(every.invalid(&format!("the expression is longer than {} bytes", limits::CRON_BYTES_MAX)))
            }
            Every::Cron { expression, time_zone } => {
                let cron = Cron::from_str(expression).map_err(|error| every.invalid(&error.to_string()))?;
                let zone = TimeZone::get(time_zone).map_err(|_| every.invalid("unknown time zone"))?;
                let clock = [&cron.pattern.seconds, &cron.pattern.minutes, &cron.pattern.hours];
                let often = clock.iter().any(|part| part.from_wildcard || part.step != 1);
                Ok(if often { Self::Often(cron, zone) } else { Self::Times(cron, zone) })
            }
        }
    }

    /// The first tick after a moment, or `None` where no tick comes any more.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let next = match self {
            Self::Interval { anchor, .. } if after < *anchor => *anchor,
            Self::Interval { period, anchor } => {
                let steps = after.since(*anchor).as_u64() / period.as_u64() + 1;
                *anchor + Millis::new(steps.saturating_mul(period.as_u64()))
            }
            Self::Times(cron, zone) => next_time(cron, zone, instant(after)?)?,
            Self::Often(cron, zone) => {
                // A search that finds nothing has passed the last year of the expression or of the calendar.
                let found = cron.find_next_occurrence(&instant(after)?.to_zoned(zone.clone()), false).ok()?;
                moment(found.timestamp())
            }
        };
        // At the end of time the sum stands still.
        (next > after).then_some(next)
    }

    /// The latest tick that is not after `now`, given one that is not.
    ///
    /// Halves the time in which it can lie, so that it takes the same few searches after any number of missed ticks.
    pub(super) fn latest(&self, first: Timestamp, now: Timestamp) -> Timestamp {
        let is_over = |tick: &Timestamp| *tick <= now;
        // No tick lies after `end`.
        let (mut latest, mut end) = (first, now);
        while let Some(next) = self.next(latest).filter(is_over) {
            let middle = Timestamp::from_millis(latest.as_millis().midpoint(end.as_millis()));
            match self.next(middle).filter(is_over) {
                Some(later) => latest = later,
                None => (latest, end) = (next, middle.max(next)),
            }
        }
        latest
    }

    /// Ticks from `first` on that are not after `now`, oldest first. Where there are more than `max`, the newest of them.
    pub(super) fn newest(&self, first: Timestamp, now: Timestamp, max: usize) -> Vec<Timestamp> {
        let next = |tick: &Timestamp| self.next(*tick).filter(|next| *next <= now);
        let from = |tick| std::iter::successors(tick, next).take(max + 1);
        let all: Vec<Timestamp> = from(Some(first)).collect();
        if all.len() <= max {
            return all;
        }
        // More than `max` ticks lie behind `start`, and no more behind `end`.
        let (mut start, mut end) = (first.as_millis() - 1, now.as_millis());
        while end - start > 1 {
            let middle = start.midpoint(end);
            let behind = from(next(&Timestamp::from_millis(middle))).count();
            if behind > max { start = middle } else { end = middle }
        }
        from(next(&Timestamp::from_millis(end))).collect()
    }
}

/// The first named time of day after a moment. One that the clock jumps over comes when it has jumped, and one that the clock
/// shows twice comes the first time: each of them comes once.
fn next_time(cron: &Cron, zone: &TimeZone, after: jiff::Timestamp) -> Option<Timestamp> {
    let mut shown = zone.to_datetime(after);
    loop {
        // A date and time without a zone has no jumps.
        shown = cron.find_next_occurrence(&shown, false).ok()?;
        let at = when_shown(zone, shown)?;
        if at > after {
            return Some(moment(at));
        }
    }
}

/// The moment at which clocks of a zone show this first, or at which they jump over it.
fn when_shown(zone: &TimeZone, shown: civil::DateTime) -> Option<jiff::Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(shown);
    match ambiguous.offset() {
        AmbiguousOffset::Gap { before, .. } => {
            // By the offset before the jump this lies at or behind it.
            let behind = before.to_timestamp(shown).ok()?.checked_add(SignedDuration::from_secs(1)).ok()?;
            zone.preceding(behind).next().map(|jump| jump.timestamp())
        }
        AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => ambiguous.earlier().ok(),
    }
}

fn instant(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(at.as_millis()).ok()
}

fn moment(at: jiff::Timestamp) -> Timestamp {
    Timestamp::from_millis(at.as_millisecond())
}
