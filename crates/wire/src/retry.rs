//! Waits between attempts.

use ekiden_core::retry::{Jitter, RetryPolicy};
use ekiden_core::time::Millis;
use serde::{Deserialize, Serialize};

/// How long to wait between attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "policy", deny_unknown_fields)]
pub enum Retry {
    /// Grows from `base_ms` by `factor_percent` up to `cap_ms`.
    Exponential {
        /// The first wait.
        #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Span))]
        base_ms: u64,
        /// Growth a step, in percent: 200 doubles.
        #[serde(default = "doubled")]
        #[cfg_attr(feature = "schema", schema(minimum = 100, maximum = 10_000))]
        factor_percent: u32,
        /// No wait is longer.
        #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Span))]
        cap_ms: u64,
        /// Whether waits are spread: `equal` or `none`.
        #[serde(default = "spread")]
        #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Jitter))]
        jitter: Jitter,
    },
    /// The same wait each time.
    Fixed {
        /// The wait.
        #[cfg_attr(feature = "schema", schema(value_type = crate::schema::Span))]
        delay_ms: u64,
    },
    /// These waits in order; the last one repeats.
    Steps {
        /// The waits.
        #[cfg_attr(feature = "schema", schema(value_type = Vec<crate::schema::Span>, min_items = 1, max_items = 10))]
        delays_ms: Vec<u64>,
    },
    /// No second attempt after a failure.
    Never,
}

const fn doubled() -> u32 {
    200
}

const fn spread() -> Jitter {
    Jitter::Equal
}

impl From<&RetryPolicy> for Retry {
    fn from(policy: &RetryPolicy) -> Self {
        match policy {
            RetryPolicy::Exponential { base, factor_percent, cap, jitter } => Self::Exponential {
                base_ms: base.as_u64(),
                factor_percent: *factor_percent,
                cap_ms: cap.as_u64(),
                jitter: *jitter,
            },
            RetryPolicy::Fixed { delay } => Self::Fixed { delay_ms: delay.as_u64() },
            RetryPolicy::Steps { delays } => {
                Self::Steps { delays_ms: delays.iter().map(|delay| delay.as_u64()).collect() }
            }
            RetryPolicy::Never => Self::Never,
        }
    }
}

impl From<Retry> for RetryPolicy {
    fn from(retry: Retry) -> Self {
        match retry {
            Retry::Exponential { base_ms, factor_percent, cap_ms, jitter } => {
                Self::Exponential { base: Millis::new(base_ms), factor_percent, cap: Millis::new(cap_ms), jitter }
            }
            Retry::Fixed { delay_ms } => Self::Fixed { delay: Millis::new(delay_ms) },
            Retry::Steps { delays_ms } => Self::Steps { delays: delays_ms.into_iter().map(Millis::new).collect() },
            Retry::Never => Self::Never,
        }
    }
}
