//! Schedules: tasks that are handed in by themselves.

use std::sync::Arc;

use ekiden_core::id::{Namespace, ScheduleId, TaskId};
use ekiden_core::newer::Newer;
use ekiden_core::reason::Refusal;
use ekiden_core::schedule as core;
use ekiden_core::schedule::{Missed, Overlap};
use ekiden_core::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};

use crate::moment;
use crate::spec::{NewTask, Spec};

/// When ticks come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Every {
    /// By a cron expression in a time zone.
    Cron {
        /// The expression.
        expression: String,
        /// The time zone, by its IANA name.
        #[serde(default = "utc")]
        time_zone: String,
    },
    /// By a period.
    Interval {
        /// The period.
        #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Span))]
        period_ms: u64,
        /// A moment that ticks are counted from.
        #[serde(with = "moment")]
        #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Moment))]
        anchor: Timestamp,
    },
}

fn utc() -> String {
    "UTC".to_owned()
}

/// A schedule to set.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSchedule {
    /// When ticks come.
    pub every: Every,
    /// What happens with ticks that nobody was there to see: `latest`, `skip` or `all`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Missed))]
    pub missed: Missed,
    /// What happens when the task of the tick before has not ended: `skip` or `allow`.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Overlap))]
    pub overlap: Overlap,
    /// Whether it rests.
    #[serde(default)]
    pub paused: bool,
    /// What each tick hands in. It cannot be held, wait for other tasks or have an idempotency key.
    pub task: NewTask,
}

/// A schedule as it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Schedule {
    /// Its name.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub id: ScheduleId,
    /// When ticks come.
    pub every: Every,
    /// What happens with ticks that nobody was there to see.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Missed))]
    pub missed: Missed,
    /// What happens when the task of the tick before has not ended.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Overlap))]
    pub overlap: Overlap,
    /// Whether it rests.
    pub paused: bool,
    /// What each tick hands in.
    pub task: Spec,
    /// When it ticks next; absent where no tick comes any more.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "moment::optional")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub next_at: Option<Timestamp>,
    /// The task of its last tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Id>))]
    pub last: Option<TaskId>,
}

/// The schedules of a namespace.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ScheduleList {
    /// The schedules.
    pub items: Vec<Schedule>,
}

impl From<&core::Every> for Every {
    fn from(every: &core::Every) -> Self {
        match every {
            core::Every::Cron { expression, time_zone } => {
                Self::Cron { expression: expression.clone(), time_zone: time_zone.clone() }
            }
            core::Every::Interval { period, anchor } => Self::Interval { period_ms: period.as_u64(), anchor: *anchor },
        }
    }
}

impl From<Every> for core::Every {
    fn from(every: Every) -> Self {
        match every {
            Every::Cron { expression, time_zone } => Self::Cron { expression, time_zone },
            Every::Interval { period_ms, anchor } => Self::Interval { period: Millis::new(period_ms), anchor },
        }
    }
}

impl From<&core::Schedule> for Schedule {
    fn from(schedule: &core::Schedule) -> Self {
        Self {
            id: schedule.id.clone(),
            every: Every::from(&schedule.every),
            missed: schedule.missed,
            overlap: schedule.overlap,
            paused: schedule.paused,
            task: Spec::from(&*schedule.template),
            next_at: schedule.next_at,
            last: schedule.last.clone(),
        }
    }
}

impl Schedule {
    /// The same in the words of core.
    pub fn into_core(self, namespace: Namespace) -> Result<core::Schedule, Refusal> {
        Ok(core::Schedule {
            id: self.id,
            every: self.every.into(),
            missed: self.missed,
            overlap: self.overlap,
            paused: self.paused,
            template: Arc::new(self.task.into_core(namespace)?),
            next_at: self.next_at,
            last: self.last,
            newer: Newer::NONE,
        })
    }
}
