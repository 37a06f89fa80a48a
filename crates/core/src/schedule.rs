//! Schedules: when a task is enqueued by itself. A tick's id follows from schedule and moment, so it is its own idempotency key.

use std::str::FromStr;
use std::sync::Arc;

use croner::Cron;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::hash;
use crate::id::{IdempotencyKey, ScheduleId, TaskId};
use crate::limits;
use crate::newer::Newer;
use crate::reason::{ReasonCode, Refusal};
use crate::task::Spec;
use crate::time::{Millis, Timestamp};

/// When ticks come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Every {
    /// A cron expression of five fields (six with seconds), read in a time zone.
    Cron {
        /// The expression.
        expression: String,
        /// An IANA name, such as `Asia/Tokyo`.
        time_zone: String,
    },
    /// A fixed interval, counted from the schedule's anchor.
    Interval {
        /// The interval.
        period: Millis,
        /// The moment that all ticks are multiples away from.
        anchor: Timestamp,
    },
}

/// What happens with ticks that nobody was there to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// Only the latest one is made up for.
    #[default]
    Latest,
    /// None is made up for.
    Skip,
    /// Each is made up for, up to a limit.
    All,
}

/// What happens at a tick while the previous task is still open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The tick is left out.
    #[default]
    Skip,
    /// Both run.
    Allow,
}

/// A schedule's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its name.
    pub id: ScheduleId,
    /// When ticks come.
    pub every: Every,
    /// What happens with missed ticks.
    #[serde(default)]
    pub missed: Missed,
    /// What happens when ticks overlap.
    #[serde(default)]
    pub overlap: Overlap,
    /// Whether it rests.
    #[serde(default)]
    pub paused: bool,
    /// What each tick enqueues; id and times are replaced.
    pub template: Arc<Spec>,
    /// The next tick; the due index lists the schedule at this moment.
    pub next_at: Timestamp,
    /// The task of the latest tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<TaskId>,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

impl Schedule {
    /// The idempotency key of a tick: two processes that see the same tick enqueue one task.
    pub fn tick_key(&self, at: Timestamp) -> Result<IdempotencyKey, Refusal> {
        IdempotencyKey::new(self.tick_name(at))
    }

    /// The id of a tick's task, the same in every process.
    pub fn tick_id(&self, at: Timestamp) -> Result<TaskId, Refusal> {
        TaskId::new(self.tick_name(at))
    }

    /// A long schedule name gives way to its hash, so that a tick's name stays an id.
    fn tick_name(&self, at: Timestamp) -> String {
        let readable = format!("tick/{}@{at}", self.id);
        if readable.len() <= limits::ID_BYTES_MAX {
            return readable;
        }
        format!("tick#{:032x}@{at}", hash::wide(self.id.as_str().as_bytes()))
    }

    /// Refuses a schedule that can never tick, or whose task no store could keep.
    pub fn check(&self, now: Timestamp) -> Result<(), Refusal> {
        self.every.next(now)?;
        self.template.check()
    }

    /// The ticks to enqueue now, and the next moment to look. Pure: any process may ask, a guarded write picks one.
    pub fn due(&self, now: Timestamp) -> Result<(Vec<Timestamp>, Timestamp), Refusal> {
        let mut ticks = Vec::new();
        let mut next = self.next_at;
        while next <= now && ticks.len() < limits::MISSED_TICKS_MAX {
            ticks.push(next);
            next = self.every.next(next)?;
        }
        if next <= now {
            next = self.every.next(now)?;
        }
        let kept = match self.missed {
            Missed::All => ticks,
            Missed::Latest => ticks.last().copied().into_iter().collect(),
            // A tick counts as seen when its successor has not come yet; older ones were missed.
            Missed::Skip if ticks.len() == 1 => ticks,
            Missed::Skip => Vec::new(),
        };
        Ok((if self.paused { Vec::new() } else { kept }, next))
    }
}

impl Every {
    /// The first tick after `after`.
    pub fn next(&self, after: Timestamp) -> Result<Timestamp, Refusal> {
        match self {
            Self::Interval { period, anchor } => {
                period.check("period", limits::DURATION_MAX)?;
                let passed = after.since(*anchor).as_u64();
                if after < *anchor {
                    return Ok(*anchor);
                }
                let steps = passed / period.as_u64() + 1;
                Ok(*anchor + Millis::new(steps.saturating_mul(period.as_u64())))
            }
            Self::Cron { expression, time_zone } => next_cron(expression, time_zone, after),
        }
    }
}

fn next_cron(expression: &str, time_zone: &str, after: Timestamp) -> Result<Timestamp, Refusal> {
    let wrong = |why: String| {
        Refusal::new(ReasonCode::ScheduleInvalid)
            .with("expression", expression.chars().take(128).collect::<String>())
            .with("time_zone", time_zone.chars().take(64).collect::<String>())
            .with("why", why)
    };
    let cron = Cron::from_str(expression).map_err(|error| wrong(error.to_string()))?;
    let zone = TimeZone::get(time_zone).map_err(|_| wrong("unknown time zone".to_owned()))?;
    let start =
        jiff::Timestamp::from_millisecond(after.as_millis()).map_err(|error| wrong(error.to_string()))?.to_zoned(zone);
    let next = cron.find_next_occurrence(&start, false).map_err(|error| wrong(error.to_string()))?;
    Ok(Timestamp::from_millis(next.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn cron(expression: &str, time_zone: &str) -> Every {
        Every::Cron { expression: expression.to_owned(), time_zone: time_zone.to_owned() }
    }

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn schedule(every: Every, missed: Missed, next_at: Timestamp) -> Schedule {
        let template = Arc::clone(&fixtures::task("template").spec);
        Schedule {
            id: ScheduleId::new("s").unwrap(),
            every,
            missed,
            overlap: Overlap::Skip,
            paused: false,
            template,
            next_at,
            last: None,
            newer: Newer::NONE,
        }
    }

    #[test]
    fn cron_follows_the_time_zone_and_its_daylight_saving() {
        let tokyo = cron("0 9 * * *", "Asia/Tokyo");
        assert_eq!(tokyo.next(at("2026-11-16T23:59:00Z")).unwrap(), at("2026-11-17T00:00:00Z"));
        let berlin = cron("30 2 * * *", "Europe/Berlin");
        // 2026-03-29 02:30 does not exist in Berlin; the tick comes when the clock has jumped.
        let skipped = berlin.next(at("2026-03-28T12:00:00Z")).unwrap();
        assert_eq!(skipped, at("2026-03-29T01:00:00Z"));
        assert_eq!(berlin.next(skipped).unwrap(), at("2026-03-30T00:30:00Z"));
    }

    #[test]
    fn an_hour_that_comes_twice_ticks_once_for_a_fixed_time() {
        let berlin = cron("30 2 * * *", "Europe/Berlin");
        let first = berlin.next(at("2026-10-24T12:00:00Z")).unwrap();
        assert_eq!(first, at("2026-10-25T00:30:00Z"));
        assert_eq!(berlin.next(first).unwrap(), at("2026-10-26T01:30:00Z"));
    }

    #[test]
    fn intervals_keep_their_anchor() {
        let every = Every::Interval { period: Millis::from_secs(60), anchor: at("2026-01-01T00:00:30Z") };
        assert_eq!(every.next(at("2026-01-01T00:00:00Z")).unwrap(), at("2026-01-01T00:00:30Z"));
        assert_eq!(every.next(at("2026-01-01T00:00:30Z")).unwrap(), at("2026-01-01T00:01:30Z"));
        assert_eq!(every.next(at("2026-01-01T09:10:11Z")).unwrap(), at("2026-01-01T09:10:30Z"));
    }

    #[test]
    fn missed_ticks_follow_their_policy() {
        let every = Every::Interval { period: Millis::from_secs(60), anchor: Timestamp::ZERO };
        let now = Timestamp::from_millis(200_000);
        let ticks = |missed| schedule(every.clone(), missed, Timestamp::from_millis(60_000)).due(now).unwrap();
        let minute = |n: i64| Timestamp::from_millis(n * 60_000);
        assert_eq!(ticks(Missed::All), (vec![minute(1), minute(2), minute(3)], minute(4)));
        assert_eq!(ticks(Missed::Latest), (vec![minute(3)], minute(4)));
        assert_eq!(ticks(Missed::Skip), (vec![], minute(4)));
        let punctual = schedule(every.clone(), Missed::Skip, minute(3)).due(now).unwrap();
        assert_eq!(punctual, (vec![minute(3)], minute(4)));
    }

    #[test]
    fn a_tick_has_one_key_in_every_process() {
        let every = Every::Interval { period: Millis::from_secs(60), anchor: Timestamp::ZERO };
        let a = schedule(every.clone(), Missed::All, Timestamp::ZERO);
        assert_eq!(a.tick_key(Timestamp::from_millis(60_000)).unwrap().as_str(), "tick/s@1970-01-01T00:01:00.000Z");
    }

    #[test]
    fn garbage_is_refused_with_its_reason() {
        for every in [cron("", "UTC"), cron("61 * * * *", "UTC"), cron("* * * * *", "Mars/Olympus")] {
            assert_eq!(every.next(Timestamp::ZERO).unwrap_err().code, ReasonCode::ScheduleInvalid);
        }
        let zero = Every::Interval { period: Millis::ZERO, anchor: Timestamp::ZERO };
        assert_eq!(zero.next(Timestamp::ZERO).unwrap_err().code, ReasonCode::DurationInvalid);
        // A date that never comes ends with a refusal, not with a loop.
        assert_eq!(cron("0 0 30 2 *", "UTC").next(Timestamp::ZERO).unwrap_err().code, ReasonCode::ScheduleInvalid);
    }
}
