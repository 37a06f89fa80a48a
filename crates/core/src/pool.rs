//! Pool settings, and the profiles that give each kind of pool its defaults.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{Kind, Namespace, RunnerId};
use crate::limits;
use crate::newer::Newer;
use crate::reason::{ReasonCode, Refusal};
use crate::retry::RetryPolicy;
use crate::time::Millis;

/// How long something may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timeout {
    /// At most this long.
    After(Millis),
    /// No limit.
    Never,
}

/// How long ended tasks stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Purged this long after the end.
    For(Millis),
    /// Until somebody purges by hand.
    Forever,
}

/// How many tasks a runner executes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Concurrency {
    /// One a processor core.
    Cores,
    /// This many.
    Fixed(u32),
}

/// The rules that a task takes along when it is enqueued. Shared by the tasks of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Policy {
    /// The budget of attempts, the first one included.
    pub attempts_max: u32,
    /// Crashed and lost attempts after which a task is dead, whatever its budget; `None` where this limit is off.
    pub crashes_max: Option<u32>,
    /// The waits between attempts.
    pub retry: RetryPolicy,
    /// The limit of one attempt.
    pub timeout: Timeout,
    /// How long succeeded and cancelled tasks stay.
    pub keep: Keep,
    /// How long dead tasks stay.
    pub keep_dead: Keep,
    /// Whether a dead task can run again as itself; otherwise a retry by hand makes a new task.
    pub reopen: bool,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

impl Policy {
    /// Refuses numbers and durations that cannot be meant.
    pub fn check(&self) -> Result<(), Refusal> {
        check_count("attempts_max", self.attempts_max, limits::ATTEMPTS_MAX)?;
        if let Some(crashes) = self.crashes_max {
            check_count("crashes_max", crashes, limits::ATTEMPTS_MAX)?;
        }
        if let Timeout::After(limit) = self.timeout {
            limit.check("timeout", limits::DURATION_MAX)?;
        }
        for (field, keep) in [("keep", self.keep), ("keep_dead", self.keep_dead)] {
            if let Keep::For(span) = keep {
                span.check(field, limits::DURATION_MAX)?;
            }
        }
        self.retry.check()
    }
}

/// Refuses a lease that delays would end, or that would outlast everybody's patience.
pub(crate) fn check_lease(lease: Millis) -> Result<(), Refusal> {
    lease.check("lease", limits::LEASE_MAX)?;
    if lease < limits::LEASE_MIN {
        return Err(Refusal::new(ReasonCode::DurationInvalid)
            .with("field", "lease")
            .with("duration_ms", lease.as_u64())
            .with("min_ms", limits::LEASE_MIN.as_u64()));
    }
    Ok(())
}

fn check_count(field: &'static str, value: u32, max: u32) -> Result<(), Refusal> {
    if value == 0 || value > max {
        return Err(Refusal::new(ReasonCode::NumberOutOfRange)
            .with("field", field)
            .with("value", value)
            .with("max", max));
    }
    Ok(())
}

/// What a pool is set to. A pool without settings has its profile's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSettings {
    /// No task of a paused pool is claimed.
    pub paused: bool,
    /// How many tasks of the pool may run at once, over all runners; `None` for no limit.
    pub running_max: Option<u32>,
    /// How many tasks a runner of this pool executes at once, unless it says otherwise.
    pub concurrency: Concurrency,
    /// How long a claim lasts without a sign of life; a mailbox's visibility.
    pub lease: Millis,
    /// How often a runner looks when nothing wakes it.
    pub poll: Millis,
    /// What new tasks take along.
    pub policy: Arc<Policy>,
    /// What only a newer version understands.
    #[serde(default, rename = "~", skip_serializing_if = "Newer::is_none")]
    pub newer: Newer,
}

impl PoolSettings {
    /// Refuses settings that cannot be meant.
    pub fn check(&self) -> Result<(), Refusal> {
        if let Some(limit) = self.running_max {
            check_count("running_max", limit, u32::MAX)?;
        }
        if let Concurrency::Fixed(count) = self.concurrency {
            check_count("concurrency", count, 10_000)?;
        }
        check_lease(self.lease)?;
        self.poll.check("poll", limits::LEASE_MAX)?;
        self.policy.check()
    }
}

/// Where a pool lives and what it is for, which decides its defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Pools on the memory and local stores.
    Embedded,
    /// `prompt` tasks on DynamoDB, as seed 000 documents them.
    DynamoPrompt,
    /// Other kinds on DynamoDB.
    DynamoOther,
    /// Pools of a workspace.
    Workspace,
    /// Requests under locks (seed 004).
    Request,
    /// Mailboxes.
    Mailbox,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 6] =
        [Self::Embedded, Self::DynamoPrompt, Self::DynamoOther, Self::Workspace, Self::Request, Self::Mailbox];

    /// The profile of a pool on the store of this name, for tasks of this kind.
    pub fn of(store: &str, kind: &Kind) -> Self {
        match store {
            "dynamodb" if kind.as_str() == PROMPT => Self::DynamoPrompt,
            "dynamodb" => Self::DynamoOther,
            "workspace" => Self::Workspace,
            _ => Self::Embedded,
        }
    }

    /// The defaults of this profile.
    pub fn settings(self) -> PoolSettings {
        let one = Concurrency::Fixed(1);
        let (attempts_max, concurrency, lease, poll) = match self {
            Self::Embedded => (5, Concurrency::Cores, Millis::from_secs(30), Millis::from_secs(1)),
            Self::DynamoPrompt => (1, one, Millis::from_secs(120), Millis::from_secs(1)),
            Self::DynamoOther => (5, one, Millis::from_secs(120), Millis::from_secs(1)),
            Self::Workspace => (1, one, Millis::from_secs(60), Millis::from_secs(1)),
            Self::Request => (1, one, Millis::from_secs(30 * 60), Millis::from_secs(1)),
            Self::Mailbox => (10, one, Millis::from_secs(60), Millis::from_secs(1)),
        };
        let (keep, keep_dead) = match self {
            Self::Embedded => (Keep::For(Millis::from_days(7)), Keep::Forever),
            Self::Mailbox => (Keep::For(Millis::from_days(7)), Keep::For(Millis::from_days(7))),
            Self::DynamoPrompt | Self::DynamoOther | Self::Workspace | Self::Request => (Keep::Forever, Keep::Forever),
        };
        PoolSettings {
            paused: false,
            // "1 a pool" in a workspace and "1 in all" for requests are limits over all runners, not per runner.
            running_max: matches!(self, Self::Workspace | Self::Request).then_some(1),
            concurrency,
            lease,
            poll,
            policy: Arc::new(Policy {
                attempts_max,
                crashes_max: (self != Self::Mailbox).then_some(3),
                retry: self.retry(),
                timeout: Timeout::Never,
                keep,
                keep_dead,
                reopen: matches!(self, Self::Workspace | Self::Request),
                newer: Newer::NONE,
            }),
            newer: Newer::NONE,
        }
    }

    /// How often a runner renews its record: four times a lease, so that three may fail. On DynamoDB with every poll, as seed 000
    /// says of runners, but never less often than four times a lease.
    pub fn beat(self, lease: Millis, poll: Millis) -> Millis {
        let quarter = Millis::new(lease.as_u64() / 4);
        match self {
            Self::DynamoPrompt | Self::DynamoOther => quarter.min(poll),
            Self::Embedded | Self::Workspace | Self::Request | Self::Mailbox => quarter,
        }
    }

    fn retry(self) -> RetryPolicy {
        match self {
            // A message that was not acknowledged is due again at the next poll; the visibility was its wait.
            Self::Mailbox => RetryPolicy::Fixed { delay: Millis::new(1) },
            _ => RetryPolicy::default(),
        }
    }
}

/// The kind of task that programs which follow seed 000 run. They know no other.
pub const PROMPT: &str = "prompt";

/// Whether a task of this kind may be handed in to a namespace in which a runner of another program was met (Q6). Such a
/// program would run a task of any kind as a prompt.
pub fn admit(namespace: &Namespace, kind: &Kind, met: Option<&RunnerId>) -> Result<(), Refusal> {
    match met {
        Some(runner) if kind.as_str() != PROMPT => Err(Refusal::new(ReasonCode::NamespaceShared)
            .with("namespace", namespace)
            .with("task_type", kind)
            .with("runner_id", runner)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Q6: also the message says who was met.
    #[test]
    fn a_namespace_with_foreign_runners_takes_prompts_only() {
        let (namespace, runner) = (Namespace::new("n").unwrap(), RunnerId::new("theirs").unwrap());
        let [prompt, other] = [PROMPT, "mail"].map(|kind| Kind::new(kind).unwrap());
        assert_eq!(admit(&namespace, &prompt, Some(&runner)), Ok(()));
        assert_eq!(admit(&namespace, &other, None), Ok(()));
        let refusal = admit(&namespace, &other, Some(&runner)).unwrap_err();
        assert_eq!(refusal.code, ReasonCode::NamespaceShared);
        assert!(refusal.to_string().contains("theirs"), "{refusal}");
    }

    /// Q8: with every poll on DynamoDB, four times a lease elsewhere.
    #[test]
    fn beats_come_with_every_poll_on_dynamodb() {
        let beat = |profile: Profile| profile.beat(profile.settings().lease, profile.settings().poll);
        assert_eq!(beat(Profile::Embedded), Millis::new(7_500), "heartbeat at lease / 4");
        assert_eq!(beat(Profile::DynamoPrompt), Millis::from_secs(1));
        assert_eq!(beat(Profile::DynamoOther), Millis::from_secs(1));
        let rare = Profile::DynamoOther.beat(Millis::from_secs(2), Millis::from_secs(60));
        assert_eq!(rare, Millis::new(500), "a lease is kept, however rarely somebody polls");
    }

    /// Q8: one task at a time, one attempt for prompts and five for others, two minutes of silence, nothing is purged.
    #[test]
    fn profiles_have_the_documented_defaults() {
        let table: Vec<_> = Profile::ALL
            .iter()
            .map(|profile| {
                let settings = profile.settings();
                settings.check().unwrap();
                (*profile, settings.policy.attempts_max, settings.lease.as_u64() / 1_000, settings.policy.keep)
            })
            .collect();
        let week = Keep::For(Millis::from_days(7));
        assert_eq!(
            table,
            [
                (Profile::Embedded, 5, 30, week),
                (Profile::DynamoPrompt, 1, 120, Keep::Forever),
                (Profile::DynamoOther, 5, 120, Keep::Forever),
                (Profile::Workspace, 1, 60, Keep::Forever),
                (Profile::Request, 1, 1_800, Keep::Forever),
                (Profile::Mailbox, 10, 60, week),
            ]
        );
        assert_eq!(Profile::Embedded.settings().policy.keep_dead, Keep::Forever, "dead tasks are kept");
        for dynamo in [Profile::DynamoPrompt, Profile::DynamoOther] {
            assert_eq!(dynamo.settings().concurrency, Concurrency::Fixed(1), "one task at a time");
        }
        assert_eq!(Profile::Mailbox.settings().policy.crashes_max, None, "no poison limit in mailboxes");
        assert_eq!(Profile::DynamoPrompt.settings().poll, Millis::from_secs(1));
        assert_eq!(Profile::Workspace.settings().running_max, Some(1));
    }

    #[test]
    fn absurd_settings_are_refused() {
        let good = Profile::Embedded.settings();
        let with = |change: fn(&mut PoolSettings)| {
            let mut settings = good.clone();
            change(&mut settings);
            settings.check().map_err(|refusal| refusal.code)
        };
        assert_eq!(with(|s| s.lease = Millis::ZERO), Err(ReasonCode::DurationInvalid));
        assert_eq!(with(|s| s.lease = Millis::new(1)), Err(ReasonCode::DurationInvalid));
        assert_eq!(with(|s| s.lease = Millis::from_days(2)), Err(ReasonCode::DurationInvalid));
        assert_eq!(with(|s| s.running_max = Some(0)), Err(ReasonCode::NumberOutOfRange));
        assert_eq!(with(|s| s.concurrency = Concurrency::Fixed(0)), Err(ReasonCode::NumberOutOfRange));
        assert_eq!(with(|s| Arc::make_mut(&mut s.policy).attempts_max = 0), Err(ReasonCode::NumberOutOfRange));
        assert_eq!(
            with(|s| Arc::make_mut(&mut s.policy).keep = Keep::For(Millis::ZERO)),
            Err(ReasonCode::DurationInvalid)
        );
        assert_eq!(
            with(|s| Arc::make_mut(&mut s.policy).timeout = Timeout::After(Millis::ZERO)),
            Err(ReasonCode::DurationInvalid)
        );
    }
}
