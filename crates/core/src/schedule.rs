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
use crate::time::{ClockLead, Millis, Timestamp};

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

    /// Refuses one schedule more where the others of its namespace are many, or hand in much.
    pub fn check_beside<'a>(&self, others: impl Iterator<Item = &'a Self>) -> Result<(), Refusal> {
        let (mut count, mut bytes) = (1, self.payload_bytes());
        for other in others.filter(|other| other.id != self.id) {
            (count, bytes) = (count + 1, bytes + other.payload_bytes());
        }
        if count > limits::SCHEDULES_MAX || bytes > limits::SCHEDULES_BYTES_MAX {
            let refusal = Refusal::new(ReasonCode::NumberOutOfRange).with("field", "schedules").with("value", count);
            return Err(refusal.with("max", limits::SCHEDULES_MAX).with("bytes_max", limits::SCHEDULES_BYTES_MAX));
        }
        Ok(())
    }

    fn payload_bytes(&self) -> usize {
        self.template.envelope.payload.len()
    }

    /// The ticks to enqueue now, and the next moment to look. Pure: any process may ask, a guarded write picks one.
    ///
    /// A cron expression is read off the machine's clock, also where the time of the process is ahead of it.
    pub fn due(&self, now: Timestamp, lead: ClockLead) -> Result<(Vec<Timestamp>, Timestamp), Refusal> {
        if lead == ClockLead::NONE || matches!(self.every, Every::Interval { .. }) {
            return self.ticks(self.next_at, now);
        }
        let first = self.every.next(lead.was_shown(self.next_at, now) - CRON_PRECISION)?;
        let (ticks, next) = self.ticks(first, lead.shown(now))?;
        // The process tells ticks apart by its own time: the machine's clock shows some hours twice.
        let own = |tick| lead.when_shown(tick, now);
        Ok((ticks.into_iter().map(own).collect(), own(next)))
    }

    /// Where the machine's clock was set back: when it shows the next tick, if the record says otherwise. A cron expression whose
    /// next tick was computed before would come late by what the process slows down, or at a moment that is no tick any more.
    pub fn moved(&self, now: Timestamp, lead: ClockLead) -> Result<Option<Timestamp>, Refusal> {
        if lead == ClockLead::NONE || self.next_at <= now || matches!(self.every, Every::Interval { .. }) {
            return Ok(None);
        }
        let tick = self.every.next(lead.shown(self.next_at) - CRON_PRECISION)?;
        let moved = lead.when_shown(tick, now);
        let differs = moved.since(self.next_at).max(self.next_at.since(moved)) > CRON_PRECISION;
        Ok(differs.then_some(moved))
    }

    fn ticks(&self, first: Timestamp, now: Timestamp) -> Result<(Vec<Timestamp>, Timestamp), Refusal> {
        let mut ticks = Vec::new();
        let mut next = first;
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

/// Half a second: two ticks of a cron expression are at least a second apart.
const CRON_PRECISION: Millis = Millis::new(500);

impl Every {
    /// The moment of the process at which the next tick comes.
    pub fn coming(&self, now: Timestamp, lead: ClockLead) -> Result<Timestamp, Refusal> {
        match self {
            Self::Interval { .. } => self.next(now),
            Self::Cron { .. } => Ok(lead.when_shown(self.next(lead.shown(now))?, now)),
        }
    }

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
    use std::ops::Range;

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
        let ticks =
            |missed| schedule(every.clone(), missed, Timestamp::from_millis(60_000)).due(now, ClockLead::NONE).unwrap();
        let minute = |n: i64| Timestamp::from_millis(n * 60_000);
        assert_eq!(ticks(Missed::All), (vec![minute(1), minute(2), minute(3)], minute(4)));
        assert_eq!(ticks(Missed::Latest), (vec![minute(3)], minute(4)));
        assert_eq!(ticks(Missed::Skip), (vec![], minute(4)));
        let punctual = schedule(every.clone(), Missed::Skip, minute(3)).due(now, ClockLead::NONE).unwrap();
        assert_eq!(punctual, (vec![minute(3)], minute(4)));
    }

    /// A schedule whose process is ahead of its machine's clock, looked at now and then: the ticks, by that clock.
    fn ticks_by_the_wall(
        every: Every,
        next_at: Timestamp,
        back: Millis,
        looks: std::iter::StepBy<Range<u64>>,
    ) -> Vec<Timestamp> {
        let (start, mut found) = (at("2026-11-17T12:00:00Z"), schedule(every, Missed::All, next_at));
        let (mut ticks, mut names) = (Vec::new(), std::collections::BTreeSet::new());
        for second in looks {
            let (passed, lead) = (Millis::from_secs(second), ClockLead::new(back));
            let lead = lead.after(passed);
            let shown = start - back + passed;
            let now = shown + lead.as_millis();
            found.next_at = found.moved(now, lead).unwrap().unwrap_or(found.next_at);
            assert_eq!(found.moved(now, lead).unwrap(), None, "what was moved stays there");
            if found.next_at <= now {
                let (made, next) = found.due(now, lead).unwrap();
                assert!(next > now, "{next} is over at {now}");
                found.next_at = next;
                for tick in made {
                    assert!(names.insert(found.tick_id(tick).unwrap()), "{tick} comes twice");
                    ticks.push(shown);
                }
            }
        }
        ticks
    }

    #[test]
    fn a_cron_expression_follows_the_clock_that_was_set_back_and_repeats_no_tick() {
        let (day, hour) = (86_400, 3_600);
        // It ticked at 09:00 today, and the clock goes back nine hours: not again today, and tomorrow at 09:00.
        let daily = || cron("0 9 * * *", "UTC");
        let ticks = ticks_by_the_wall(
            daily(),
            at("2026-11-18T09:00:00Z"),
            Millis::from_secs(9 * hour),
            (0..3 * day).step_by(60),
        );
        assert_eq!(ticks.len(), 2, "{ticks:?}");
        for (tick, wanted) in ticks.iter().zip(["2026-11-18T09:00:00Z", "2026-11-19T09:00:00Z"]) {
            assert!(tick.since(at(wanted)) <= Millis::from_secs(60) && *tick >= at(wanted), "{tick}");
        }
        // A whole day: the next morning comes after 21 hours by either clock.
        let ticks =
            ticks_by_the_wall(daily(), at("2026-11-18T09:00:00Z"), Millis::from_secs(day), (0..2 * day).step_by(60));
        assert!(ticks[0] >= at("2026-11-17T09:00:00Z") && ticks[0] < at("2026-11-17T09:01:01Z"), "{ticks:?}");
        assert_eq!(ticks.len(), 2);
    }

    #[test]
    fn a_cron_expression_of_every_minute_goes_on_every_minute() {
        for back in [2, 30, 3_599, 32_417, 86_400] {
            let ticks = ticks_by_the_wall(
                cron("* * * * *", "UTC"),
                at("2026-11-17T12:01:00Z"),
                Millis::from_secs(back),
                (0..7_200).step_by(1),
            );
            assert_eq!(ticks.len(), 119, "{} after {back} s", ticks.len());
            assert!(ticks.iter().all(|tick| tick.as_millis() % 60_000 <= 2_000), "{back}");
        }
    }

    #[test]
    fn an_interval_counts_the_time_of_the_process() {
        let every = Every::Interval { period: Millis::from_secs(60), anchor: at("2026-11-17T12:00:00Z") };
        let ticks = ticks_by_the_wall(every, at("2026-11-17T12:01:00Z"), Millis::from_days(1), (0..3_600).step_by(1));
        assert_eq!(ticks.len(), 57 - 1, "an hour is 57 minutes for a process that slows down by a twentieth");
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
