//! The builder of a schedule: when ticks come, and what each hands in.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ekiden_core::id::ScheduleId;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::schedule::{Every, Missed, Overlap, Schedule};
use ekiden_core::time::{Millis, Timestamp};

use crate::client::Client;
use crate::enqueue::EnqueueBuilder;
use crate::error::Result;
use crate::port::{NewSchedule, NewTask};

/// A schedule in the making. Nothing happens until it is awaited.
#[must_use = "a schedule is set when it is awaited"]
#[derive(Debug)]
pub struct ScheduleBuilder {
    client: Client,
    parts: Result<(ScheduleId, NewTask)>,
    every: Option<Every>,
    missed: Missed,
    overlap: Overlap,
    paused: bool,
}

impl ScheduleBuilder {
    pub(crate) fn new(client: Client, name: &str, task: EnqueueBuilder) -> Self {
        let id = ScheduleId::new(name).map_err(Into::into);
        let parts = id.and_then(|id| Ok((id, task.into_task()?)));
        Self { client, parts, every: None, missed: Missed::default(), overlap: Overlap::default(), paused: false }
    }

    /// Ticks by a cron expression of five fields (six with seconds), read in a time zone such as `Asia/Tokyo`.
    pub fn cron(mut self, expression: impl Into<String>, time_zone: impl Into<String>) -> Self {
        self.every = Some(Every::Cron { expression: expression.into(), time_zone: time_zone.into() });
        self
    }

    /// Ticks at multiples of a period, counted from 1970-01-01T00:00Z, so that every process means the same moments.
    pub fn every(mut self, period: Duration) -> Self {
        self.every = Some(Every::Interval { period: Millis::from(period), anchor: Timestamp::ZERO });
        self
    }

    /// What happens with ticks that nobody was there to see; only the latest is made up for if nobody says.
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// What happens when the task of the tick before has not ended; the tick is left out if nobody says.
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// It rests until it is set again.
    pub fn paused(mut self) -> Self {
        self.paused = true;
        self
    }
}

impl IntoFuture for ScheduleBuilder {
    type Output = Result<Arc<Schedule>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Arc<Schedule>>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (id, task) = self.parts?;
            let missing =
                || Refusal::new(ReasonCode::ScheduleInvalid).with("why", "neither cron() nor every() was said");
            let every = self.every.ok_or_else(missing)?;
            let Self { client, missed, overlap, paused, .. } = self;
            client.queue().set_schedule(NewSchedule { id, every, missed, overlap, paused, task }).await
        })
    }
}
