//! Schedules: when a task is enqueued by itself. A tick's id follows from schedule and moment, so it is its own idempotency key.

mod ticks;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::hash;
use crate::id::{IdempotencyKey, ScheduleId, TaskId};
use crate::limits;
use crate::newer::Newer;
use crate::reason::{ReasonCode, Refusal};
use crate::task::Spec;
use crate::time::{ClockLead, Millis, Timestamp};
use ticks::Ticks;

/// When ticks come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Every {
    /// A cron expression of five fields (six with seconds, seven with years), read in a time zone. Where a clock is set forward, times
    /// of day that it jumps over tick once it has jumped; where it is set back, those that it shows twice tick the first time.
    /// Expressions with a wildcard or a step in hour, minute or second tick whenever the clock shows a time that matches.
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
    /// None is made up for. A tick was missed once its successor has come and it is older than a minute
    /// ([`limits::TICK_SEEN_WITHIN`]).
    Skip,
    /// Each is made up for; of more than 1,000 ([`limits::MISSED_TICKS_MAX`]) the newest.
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
    /// The next tick, at which the due index lists the schedule; `None` where no tick comes any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
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
        if self.every.next(now)?.is_none() {
            return Err(self.every.invalid("no tick comes any more"));
        }
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

    /// The ticks to enqueue now, and the next moment to look, if any. Pure: any process may ask, a guarded write picks one.
    ///
    /// A cron expression is read off the machine's clock, also where the time of the process is ahead of it.
    pub fn due(&self, now: Timestamp, lead: ClockLead) -> Result<(Vec<Timestamp>, Option<Timestamp>), Refusal> {
        let ticks = Ticks::of(&self.every)?;
        let Some(first) = self.next_at.filter(|first| *first <= now) else { return Ok((Vec::new(), self.next_at)) };
        if lead == ClockLead::NONE || matches!(self.every, Every::Interval { .. }) {
            return Ok(self.to_make(&ticks, first, now));
        }
        let Some(first) = ticks.next(lead.was_shown(first, now) - CRON_PRECISION) else {
            return Ok((Vec::new(), None));
        };
        let (due, next) = self.to_make(&ticks, first, lead.shown(now));
        // The process tells ticks apart by its own time: the machine's clock shows some hours twice.
        let own = |tick| lead.when_shown(tick, now);
        Ok((due.into_iter().map(own).collect(), next.map(own)))
    }

    /// Where the machine's clock was set back: when it shows the next tick, if the record says otherwise. A cron expression whose
    /// next tick was computed before would come late by what the process slows down, or at a moment that is no tick any more.
    pub fn moved(&self, now: Timestamp, lead: ClockLead) -> Result<Option<Timestamp>, Refusal> {
        if lead == ClockLead::NONE || matches!(self.every, Every::Interval { .. }) {
            return Ok(None);
        }
        let Some(next_at) = self.next_at.filter(|next_at| *next_at > now) else { return Ok(None) };
        let Some(tick) = self.every.next(lead.shown(next_at) - CRON_PRECISION)? else { return Ok(None) };
        let moved = lead.when_shown(tick, now);
        let differs = moved.since(next_at).max(next_at.since(moved)) > CRON_PRECISION;
        Ok(differs.then_some(moved))
    }

    /// Of the ticks from `first` to `now`, those that are made, and the tick after all of them.
    fn to_make(&self, ticks: &Ticks, first: Timestamp, now: Timestamp) -> (Vec<Timestamp>, Option<Timestamp>) {
        if first > now {
            return (Vec::new(), Some(first));
        }
        let latest = ticks.latest(first, now);
        let made = match self.missed {
            _ if self.paused => Vec::new(),
            Missed::All => ticks.newest(first, now, limits::MISSED_TICKS_MAX),
            Missed::Latest => vec![latest],
            // Rounds may be slower than ticks, and then each round finds several.
            Missed::Skip if latest == first || now.since(latest) <= limits::TICK_SEEN_WITHIN => vec![latest],
            Missed::Skip => Vec::new(),
        };
        (made, ticks.next(latest))
    }
}

/// Half a second: two ticks of a cron expression are at least a second apart.
const CRON_PRECISION: Millis = Millis::new(500);

impl Every {
    /// The moment of the process at which the next tick comes, if one comes.
    pub fn coming(&self, now: Timestamp, lead: ClockLead) -> Result<Option<Timestamp>, Refusal> {
        match self {
            Self::Interval { .. } => self.next(now),
            Self::Cron { .. } => Ok(self.next(lead.shown(now))?.map(|tick| lead.when_shown(tick, now))),
        }
    }

    /// The first tick after `after`, or `None` where no tick comes any more.
    pub fn next(&self, after: Timestamp) -> Result<Option<Timestamp>, Refusal> {
        Ok(Ticks::of(self)?.next(after))
    }

    fn invalid(&self, why: &str) -> Refusal {
        let refusal = Refusal::new(ReasonCode::ScheduleInvalid).with("why", why);
        match self {
            Self::Cron { expression, time_zone } => refusal
                .with("expression", expression.chars().take(128).collect::<String>())
                .with("time_zone", time_zone.chars().take(64).collect::<String>()),
            Self::Interval { period, .. } => refusal.with("period", period),
        }
    }
}
