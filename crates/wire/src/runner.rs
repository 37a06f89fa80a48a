//! Runners: signs of life, and what they were asked to stop.

use ekiden_core::id::{Kind, Namespace, PoolName, RunnerId, TaskId};
use ekiden_core::lease::Token;
use ekiden_core::newer::Newer;
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::{record, runner as core};
use serde::{Deserialize, Serialize};

use crate::moment;

/// A runner's sign of life, which renews all its leases; the first one makes its record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Beat {
    /// When this incarnation began; now, if it does not say.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub started_at: Option<Timestamp>,
    /// How long it may be silent before its tasks go to others.
    #[serde(default = "half_a_minute")]
    #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 86_400_000))]
    pub lease_ms: u64,
    /// Where it works, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_length = 1024))]
    pub project_root: String,
    /// The pools that it serves.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<crate::schema::Id>, max_items = 64))]
    pub pools: Vec<PoolName>,
    /// The types that it handles.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<crate::schema::Id>, max_items = 1024))]
    pub task_types: Vec<Kind>,
}

const fn half_a_minute() -> u64 {
    30_000
}

/// A runner as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Runner {
    /// Its id, which contains its incarnation.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub id: RunnerId,
    /// Whether it lives.
    pub status: RunnerState,
    /// When it began.
    #[serde(with = "moment")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Moment))]
    pub started_at: Timestamp,
    /// Its last sign of life.
    #[serde(with = "moment")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Moment))]
    pub last_heartbeat: Timestamp,
    /// Since when it counts as dead.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<crate::schema::Moment>))]
    pub dead_since: Option<Timestamp>,
    /// How long it may be silent.
    pub lease_ms: u64,
    /// Where it works, for people.
    #[serde(default)]
    pub project_root: String,
    /// The pools that it serves.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<crate::schema::Id>))]
    pub pools: Vec<PoolName>,
    /// The types that it handles.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(value_type = Vec<crate::schema::Id>))]
    pub task_types: Vec<Kind>,
}

/// Whether a runner lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunnerState {
    /// It gives signs of life.
    Running,
    /// It said goodbye.
    Stopped,
    /// It was declared dead.
    Dead,
}

/// The runners of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RunnerList {
    /// The runners, alive or not.
    pub items: Vec<Runner>,
}

/// A running task that somebody wants stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Signal {
    /// The task.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub task_id: TaskId,
    /// The fencing token of the attempt to stop.
    pub token: u64,
    /// When it was asked for.
    #[serde(with = "moment")]
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Moment))]
    pub at: Timestamp,
}

/// What a runner was asked to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SignalList {
    /// The signals.
    pub items: Vec<Signal>,
}

impl From<core::Runner> for Beat {
    fn from(runner: core::Runner) -> Self {
        Self {
            started_at: Some(runner.started_at),
            lease_ms: runner.lease.as_u64(),
            project_root: runner.project_root,
            pools: runner.pools,
            task_types: runner.kinds,
        }
    }
}

impl Beat {
    /// The runner's record as of now.
    pub fn into_core(self, namespace: Namespace, id: RunnerId, now: Timestamp) -> core::Runner {
        core::Runner {
            namespace,
            id,
            started_at: self.started_at.unwrap_or(now),
            last_heartbeat: now,
            status: core::RunnerStatus::Running,
            lease: Millis::new(self.lease_ms),
            project_root: self.project_root,
            pools: self.pools,
            kinds: self.task_types,
            newer: Newer::NONE,
        }
    }
}

impl From<core::Runner> for Runner {
    fn from(runner: core::Runner) -> Self {
        let (status, dead_since) = match runner.status {
            core::RunnerStatus::Running => (RunnerState::Running, None),
            core::RunnerStatus::Stopped => (RunnerState::Stopped, None),
            core::RunnerStatus::Dead { since, .. } => (RunnerState::Dead, Some(since)),
        };
        Self {
            id: runner.id,
            status,
            started_at: runner.started_at,
            last_heartbeat: runner.last_heartbeat,
            dead_since,
            lease_ms: runner.lease.as_u64(),
            project_root: runner.project_root,
            pools: runner.pools,
            task_types: runner.kinds,
        }
    }
}

impl Runner {
    /// The same in the words of core. How far the tasks of a dead one are cleared away is its server's business.
    pub fn into_core(self, namespace: Namespace) -> core::Runner {
        let status = match self.status {
            RunnerState::Running => core::RunnerStatus::Running,
            RunnerState::Stopped => core::RunnerStatus::Stopped,
            RunnerState::Dead => {
                let since = self.dead_since.unwrap_or(self.last_heartbeat);
                core::RunnerStatus::Dead { since, cleared: 0, check_at: since }
            }
        };
        core::Runner {
            namespace,
            id: self.id,
            started_at: self.started_at,
            last_heartbeat: self.last_heartbeat,
            status,
            lease: Millis::new(self.lease_ms),
            project_root: self.project_root,
            pools: self.pools,
            kinds: self.task_types,
            newer: Newer::NONE,
        }
    }
}

impl From<record::Signal> for Signal {
    fn from(signal: record::Signal) -> Self {
        Self { task_id: signal.task, token: signal.token.0, at: signal.at }
    }
}

impl Signal {
    /// The same in the words of core.
    pub fn into_core(self, runner: RunnerId) -> record::Signal {
        record::Signal { runner, task: self.task_id, token: Token(self.token), at: self.at, newer: Newer::NONE }
    }
}
