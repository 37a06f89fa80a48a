//! Pools: what they are set to, and the rules that their tasks take along.

use std::sync::Arc;

use ekiden_core::id::PoolName;
use ekiden_core::newer::Newer;
use ekiden_core::pool as core;
use ekiden_core::retry::RetryPolicy;
use ekiden_core::time::Millis;
use serde::{Deserialize, Serialize};

use crate::retry::Retry;

/// How long something may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Timeout {
    /// At most this long.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Span))]
    AfterMs(u64),
    /// No limit.
    Never,
}

/// How long ended tasks stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Purged this long after the end.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Span))]
    ForMs(u64),
    /// Until somebody purges by hand.
    Forever,
}

/// How many tasks a runner executes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Concurrency {
    /// One a processor core.
    Cores,
    /// This many.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Slots))]
    Fixed(u32),
}

/// The rules that a task takes along. What is left out is as the defaults of this version of the API say: five attempts,
/// three crashes, waits that double from one second to five minutes, no time limit, seven days of keeping, dead tasks
/// for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// The budget of attempts, the first one included.
    #[serde(skip_serializing_if = "usual::attempts_max")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1000))]
    pub attempts_max: u32,
    /// Crashed and lost attempts after which a task is dead, whatever its budget; `null` where this limit is off.
    #[serde(skip_serializing_if = "usual::crashes_max")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 1000))]
    pub crashes_max: Option<u32>,
    /// The waits between attempts.
    #[serde(skip_serializing_if = "usual::retry")]
    pub retry: Retry,
    /// The limit of one attempt.
    #[serde(skip_serializing_if = "usual::timeout")]
    pub timeout: Timeout,
    /// How long succeeded and cancelled tasks stay.
    #[serde(skip_serializing_if = "usual::keep")]
    pub keep: Keep,
    /// How long dead tasks stay.
    #[serde(skip_serializing_if = "usual::keep_dead")]
    pub keep_dead: Keep,
    /// Whether a dead task can run again as itself.
    #[serde(skip_serializing_if = "usual::reopen")]
    pub reopen: bool,
}

/// The defaults of this version of the API. They never change, or both sides would disagree about what was left out.
mod usual {
    use ekiden_core::retry::Jitter;

    use super::{Keep, Retry, Timeout};

    pub(super) const ATTEMPTS_MAX: u32 = 5;
    pub(super) const CRASHES_MAX: Option<u32> = Some(3);
    pub(super) const RETRY: Retry =
        Retry::Exponential { base_ms: 1_000, factor_percent: 200, cap_ms: 300_000, jitter: Jitter::Equal };
    pub(super) const TIMEOUT: Timeout = Timeout::Never;
    pub(super) const KEEP: Keep = Keep::ForMs(7 * 86_400_000);
    pub(super) const KEEP_DEAD: Keep = Keep::Forever;

    macro_rules! is_usual {
        ($($name:ident: $type:ty = $usual:expr;)+) => {
            $(#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
            pub(super) fn $name(value: &$type) -> bool {
                *value == $usual
            })+
        };
    }

    is_usual! {
        attempts_max: u32 = ATTEMPTS_MAX;
        crashes_max: Option<u32> = CRASHES_MAX;
        timeout: Timeout = TIMEOUT;
        keep: Keep = KEEP;
        keep_dead: Keep = KEEP_DEAD;
        reopen: bool = false;
    }

    pub(super) fn retry(value: &Retry) -> bool {
        *value == RETRY
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            attempts_max: usual::ATTEMPTS_MAX,
            crashes_max: usual::CRASHES_MAX,
            retry: usual::RETRY,
            timeout: usual::TIMEOUT,
            keep: usual::KEEP,
            keep_dead: usual::KEEP_DEAD,
            reopen: false,
        }
    }
}

impl Policy {
    pub(crate) fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// What a pool is set to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PoolSettings {
    /// No task of a paused pool is claimed.
    #[serde(default)]
    pub paused: bool,
    /// How many tasks of the pool may run at once, over all runners; `null` for no limit.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub running_max: Option<u32>,
    /// How many tasks a runner of this pool executes at once, unless it says otherwise.
    #[serde(default = "cores")]
    pub concurrency: Concurrency,
    /// How long a claim lasts without a sign of life.
    #[serde(default = "half_a_minute")]
    #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 86_400_000))]
    pub lease_ms: u64,
    /// How often a runner looks when nothing wakes it.
    #[serde(default = "a_second")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 86_400_000))]
    pub poll_ms: u64,
    /// What new tasks take along.
    #[serde(default)]
    pub policy: Policy,
}

const fn cores() -> Concurrency {
    Concurrency::Cores
}

const fn half_a_minute() -> u64 {
    30_000
}

const fn a_second() -> u64 {
    1_000
}

/// A pool with its settings, by itself or by default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Pool {
    /// Its name.
    #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Id))]
    pub name: PoolName,
    /// What it is set to.
    pub settings: PoolSettings,
}

/// The pools of a namespace that have settings of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PoolPage {
    /// The pools, by name.
    pub items: Vec<Pool>,
    /// Where the next page begins; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl From<core::Timeout> for Timeout {
    fn from(timeout: core::Timeout) -> Self {
        match timeout {
            core::Timeout::After(span) => Self::AfterMs(span.as_u64()),
            core::Timeout::Never => Self::Never,
        }
    }
}

impl From<Timeout> for core::Timeout {
    fn from(timeout: Timeout) -> Self {
        match timeout {
            Timeout::AfterMs(ms) => Self::After(Millis::new(ms)),
            Timeout::Never => Self::Never,
        }
    }
}

impl From<core::Keep> for Keep {
    fn from(keep: core::Keep) -> Self {
        match keep {
            core::Keep::For(span) => Self::ForMs(span.as_u64()),
            core::Keep::Forever => Self::Forever,
        }
    }
}

impl From<Keep> for core::Keep {
    fn from(keep: Keep) -> Self {
        match keep {
            Keep::ForMs(ms) => Self::For(Millis::new(ms)),
            Keep::Forever => Self::Forever,
        }
    }
}

impl From<core::Concurrency> for Concurrency {
    fn from(concurrency: core::Concurrency) -> Self {
        match concurrency {
            core::Concurrency::Cores => Self::Cores,
            core::Concurrency::Fixed(count) => Self::Fixed(count),
        }
    }
}

impl From<Concurrency> for core::Concurrency {
    fn from(concurrency: Concurrency) -> Self {
        match concurrency {
            Concurrency::Cores => Self::Cores,
            Concurrency::Fixed(count) => Self::Fixed(count),
        }
    }
}

impl From<&core::Policy> for Policy {
    fn from(policy: &core::Policy) -> Self {
        Self {
            attempts_max: policy.attempts_max,
            crashes_max: policy.crashes_max,
            retry: Retry::from(&policy.retry),
            timeout: policy.timeout.into(),
            keep: policy.keep.into(),
            keep_dead: policy.keep_dead.into(),
            reopen: policy.reopen,
        }
    }
}

impl From<Policy> for core::Policy {
    fn from(policy: Policy) -> Self {
        Self {
            attempts_max: policy.attempts_max,
            crashes_max: policy.crashes_max,
            retry: RetryPolicy::from(policy.retry),
            timeout: policy.timeout.into(),
            keep: policy.keep.into(),
            keep_dead: policy.keep_dead.into(),
            reopen: policy.reopen,
            newer: Newer::NONE,
        }
    }
}

impl From<&core::PoolSettings> for PoolSettings {
    fn from(settings: &core::PoolSettings) -> Self {
        Self {
            paused: settings.paused,
            running_max: settings.running_max,
            concurrency: settings.concurrency.into(),
            lease_ms: settings.lease.as_u64(),
            poll_ms: settings.poll.as_u64(),
            policy: Policy::from(&*settings.policy),
        }
    }
}

impl From<PoolSettings> for core::PoolSettings {
    fn from(settings: PoolSettings) -> Self {
        Self {
            paused: settings.paused,
            running_max: settings.running_max,
            concurrency: settings.concurrency.into(),
            lease: Millis::new(settings.lease_ms),
            poll: Millis::new(settings.poll_ms),
            policy: Arc::new(settings.policy.into()),
            newer: Newer::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_policy_takes_no_room_and_every_other_comes_through() {
        let embedded = core::Profile::Embedded.settings();
        let usual = Policy::from(&*embedded.policy);
        assert_eq!(serde_json::to_string(&usual).unwrap(), "{}");
        for profile in core::Profile::ALL {
            let settings = profile.settings();
            let text = serde_json::to_string(&PoolSettings::from(&settings)).unwrap();
            let read: PoolSettings = serde_json::from_str(&text).unwrap();
            assert_eq!(core::PoolSettings::from(read), settings, "{text}");
        }
    }

    #[test]
    fn a_typo_is_told() {
        let error = serde_json::from_str::<PoolSettings>(r#"{"pausd":true}"#).unwrap_err();
        assert!(error.to_string().contains("pausd"), "{error}");
    }
}
