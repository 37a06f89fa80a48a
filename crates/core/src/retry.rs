//! When to try again. A policy is data: the same on every store, in every test, and readable in the record.

use serde::{Deserialize, Serialize};

use crate::hash;
use crate::id::TaskId;
use crate::limits;
use crate::reason::{ReasonCode, Refusal};
use crate::time::Millis;

/// How an attempt went wrong, as the handler or the runtime classified it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// May work next time.
    Retryable,
    /// Will never work.
    Permanent,
    /// May work after this wait.
    RetryAfter(Millis),
    /// Something of it died, as a process does by a signal. May work next time, but not for ever: crashes in a row have a
    /// limit of their own.
    Crashed,
}

/// What a policy answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Run again after this wait.
    After(Millis),
    /// Give up.
    Stop,
}

/// How long to wait between attempts. Replaceable per task.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "policy")]
pub enum RetryPolicy {
    /// Doubles (or grows by `factor_percent`) from `base` up to `cap`.
    Exponential {
        /// The first wait.
        base: Millis,
        /// Growth a step, in percent: 200 doubles.
        factor_percent: u32,
        /// No wait is longer.
        cap: Millis,
        /// Whether waits are spread.
        jitter: Jitter,
    },
    /// The same wait each time.
    Fixed {
        /// The wait.
        delay: Millis,
    },
    /// These waits in order; the last one repeats.
    Steps {
        /// The waits.
        delays: Vec<Millis>,
    },
    /// No second attempt after a failure.
    Never,
}

/// Spreads retries, so that tasks which failed together do not return together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    /// The computed wait, exactly.
    None,
    /// Half of the wait, plus a part of the other half chosen by the seed.
    Equal,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::Exponential {
            base: Millis::from_secs(1),
            factor_percent: 200,
            cap: Millis::from_secs(300),
            jitter: Jitter::Equal,
        }
    }
}

impl RetryPolicy {
    /// Checks every wait in it.
    pub fn check(&self) -> Result<(), Refusal> {
        match self {
            Self::Exponential { base, factor_percent, cap, .. } => {
                base.check("retry.base", limits::DURATION_MAX)?;
                cap.check("retry.cap", limits::DURATION_MAX)?;
                if !(100..=10_000).contains(factor_percent) {
                    return Err(Refusal::new(ReasonCode::NumberOutOfRange)
                        .with("field", "retry.factor_percent")
                        .with("value", factor_percent));
                }
                Ok(())
            }
            Self::Fixed { delay } => delay.check("retry.delay", limits::DURATION_MAX).map(drop),
            Self::Steps { delays } if delays.is_empty() || delays.len() > limits::ATTEMPTS_KEPT_MAX => {
                Err(Refusal::new(ReasonCode::NumberOutOfRange)
                    .with("field", "retry.delays")
                    .with("value", delays.len()))
            }
            Self::Steps { delays } => {
                delays.iter().try_for_each(|delay| delay.check("retry.delays", limits::DURATION_MAX).map(drop))
            }
            Self::Never => Ok(()),
        }
    }

    /// The wait before the next attempt, after `attempts` were started. The budget of attempts is not this function's.
    ///
    /// ```
    /// use ekiden_core::retry::{FailureKind, Jitter, Next, RetryPolicy};
    /// use ekiden_core::time::Millis;
    ///
    /// let (base, cap) = (Millis::from_secs(1), Millis::from_secs(60));
    /// let policy = RetryPolicy::Exponential { base, factor_percent: 200, cap, jitter: Jitter::None };
    /// assert_eq!(policy.next(3, FailureKind::Retryable, 0), Next::After(Millis::from_secs(4)));
    /// assert_eq!(policy.next(3, FailureKind::Permanent, 0), Next::Stop);
    /// ```
    pub fn next(&self, attempts: u32, kind: FailureKind, seed: u64) -> Next {
        match (kind, self) {
            (FailureKind::Permanent, _) | (FailureKind::Retryable | FailureKind::Crashed, Self::Never) => Next::Stop,
            (FailureKind::RetryAfter(delay), _) => Next::After(delay),
            (FailureKind::Retryable | FailureKind::Crashed, Self::Fixed { delay }) => Next::After(*delay),
            (FailureKind::Retryable | FailureKind::Crashed, Self::Steps { delays }) => {
                let step = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
                Next::After(delays.get(step).or(delays.last()).copied().unwrap_or(Millis::ZERO))
            }
            (
                FailureKind::Retryable | FailureKind::Crashed,
                Self::Exponential { base, factor_percent, cap, jitter },
            ) => {
                let wait = grow(*base, *factor_percent, attempts.saturating_sub(1), *cap);
                Next::After(spread(wait, *jitter, seed))
            }
        }
    }
}

/// The seed of an attempt's jitter: made of task and attempt alone, so it is the same wherever it is computed.
pub fn seed(task: &TaskId, execution_no: u64) -> u64 {
    hash::mix(hash::of_bytes(task.as_str().as_bytes()) ^ execution_no)
}

fn grow(base: Millis, factor_percent: u32, steps: u32, cap: Millis) -> Millis {
    let mut wait = u128::from(base.as_u64());
    let cap = u128::from(cap.as_u64());
    for _ in 0..steps {
        if wait >= cap || factor_percent <= 100 {
            break;
        }
        wait = wait * u128::from(factor_percent) / 100;
    }
    Millis::new(u64::try_from(wait.min(cap)).unwrap_or(u64::MAX))
}

fn spread(wait: Millis, jitter: Jitter, seed: u64) -> Millis {
    match jitter {
        Jitter::None => wait,
        Jitter::Equal => {
            let half = wait.as_u64() / 2;
            Millis::new(wait.as_u64() - half + seed % (half + 1))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// R8
    #[test]
    fn default_waits_double_from_one_second_to_five_minutes_with_equal_jitter() {
        let policy = RetryPolicy::default();
        for (attempts, full) in [(1, 1_000), (2, 2_000), (3, 4_000), (9, 256_000), (10, 300_000), (60, 300_000)] {
            for seed in [0, 1, 17, u64::MAX] {
                let Next::After(wait) = policy.next(attempts, FailureKind::Retryable, seed) else { panic!("stopped") };
                assert!((full / 2..=full).contains(&wait.as_u64()), "attempt {attempts}: {wait}");
            }
        }
    }

    /// R8
    #[test]
    fn the_same_task_and_attempt_wait_the_same_everywhere() {
        let task = TaskId::new("task-a").unwrap();
        assert_eq!(seed(&task, 3), seed(&task, 3));
        assert_ne!(seed(&task, 3), seed(&task, 4));
        // Stored data and other processes depend on this number.
        assert_eq!(
            RetryPolicy::default().next(1, FailureKind::Retryable, seed(&task, 1)),
            Next::After(Millis::new(571))
        );
    }

    /// R8
    #[test]
    fn handlers_overrule_the_policy() {
        let policy = RetryPolicy::Fixed { delay: Millis::from_secs(9) };
        assert_eq!(policy.next(1, FailureKind::Retryable, 0), Next::After(Millis::from_secs(9)));
        assert_eq!(policy.next(1, FailureKind::Permanent, 0), Next::Stop);
        assert_eq!(policy.next(1, FailureKind::RetryAfter(Millis::new(5)), 0), Next::After(Millis::new(5)));
        assert_eq!(RetryPolicy::Never.next(1, FailureKind::Retryable, 0), Next::Stop);
        let steps = RetryPolicy::Steps { delays: vec![Millis::new(1), Millis::new(2)] };
        assert_eq!(steps.next(1, FailureKind::Retryable, 0), Next::After(Millis::new(1)));
        assert_eq!(steps.next(9, FailureKind::Retryable, 0), Next::After(Millis::new(2)));
    }

    #[test]
    fn absurd_policies_are_refused() {
        let absurd = [
            RetryPolicy::Fixed { delay: Millis::ZERO },
            RetryPolicy::Steps { delays: vec![] },
            RetryPolicy::Steps { delays: vec![Millis::from_days(9_999)] },
            RetryPolicy::Exponential {
                base: Millis::ZERO,
                factor_percent: 200,
                cap: Millis::new(1),
                jitter: Jitter::None,
            },
            RetryPolicy::Exponential {
                base: Millis::new(1),
                factor_percent: 99,
                cap: Millis::new(1),
                jitter: Jitter::None,
            },
        ];
        for policy in absurd {
            assert!(policy.check().is_err(), "{policy:?}");
        }
        assert!(RetryPolicy::default().check().is_ok());
    }

    proptest! {
        /// R8
        #[test]
        fn no_wait_exceeds_the_cap(base in 1u64..1_000_000, factor in 100u32..10_000, cap in 1u64..10_000_000, attempts: u32, seed: u64) {
            let policy = RetryPolicy::Exponential {
                base: Millis::new(base), factor_percent: factor, cap: Millis::new(cap), jitter: Jitter::Equal,
            };
            let Next::After(wait) = policy.next(attempts, FailureKind::Retryable, seed) else { panic!("stopped") };
            prop_assert!(wait.as_u64() <= cap);
        }
    }
}
