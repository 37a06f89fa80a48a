//! A runner's record: its sign of life, which renews all its leases at once, and its end.

mod stored;

use serde::{Deserialize, Serialize};

use crate::id::{Kind, Namespace, PoolName, RunnerId};
use crate::limits;
use crate::newer::Newer;
use crate::pool::check_lease;
use crate::reason::{ReasonCode, Refusal};
use crate::time::{Millis, Timestamp};

/// Whether a runner lives, by its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "status")]
pub enum RunnerStatus {
    /// It beats.
    Running,
    /// It said goodbye.
    Stopped,
    /// It was declared dead. Final for this incarnation.
    Dead {
        /// When.
        since: Timestamp,
        /// How often nothing of it was found; the record leaves the due index at two.
        cleared: u8,
        /// When to look (again) for tasks that it held.
        check_at: Timestamp,
    },
}

/// One incarnation of a runner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "stored::Stored", into = "stored::Stored")]
pub struct Runner {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its name, which is new at each start.
    pub id: RunnerId,
    /// When it started.
    pub started_at: Timestamp,
    /// Its last sign of life.
    pub last_heartbeat: Timestamp,
    /// Whether it lives.
    pub status: RunnerStatus,
    /// How long it may be silent.
    pub lease: Millis,
    /// The folder that it works for.
    pub project_root: String,
    /// The pools that it serves.
    pub pools: Vec<PoolName>,
    /// The kinds that it handles; empty means any.
    pub kinds: Vec<Kind>,
    /// What only a newer version understands.
    pub newer: Newer,
}

impl Runner {
    /// Refuses a record that cannot be meant, or that is larger than what a runner may say of itself.
    pub fn check(&self) -> Result<(), Refusal> {
        check_lease(self.lease)?;
        for (field, value, max) in [
            ("project_root", self.project_root.len(), limits::PROJECT_ROOT_BYTES_MAX),
            ("pools", self.pools.len(), limits::CLAIM_POOLS_MAX),
            ("task_types", self.kinds.len(), limits::RUNNER_KINDS_MAX),
        ] {
            if value > max {
                return Err(Refusal::new(ReasonCode::NumberOutOfRange)
                    .with("field", field)
                    .with("value", value)
                    .with("max", max));
            }
        }
        Ok(())
    }

    /// How much it says of itself.
    pub fn bytes(&self) -> usize {
        let names =
            self.pools.iter().map(|pool| pool.as_str().len()).chain(self.kinds.iter().map(|kind| kind.as_str().len()));
        self.id.as_str().len() + self.project_root.len() + names.sum::<usize>()
    }

    /// Which of the other runners of a namespace must be forgotten before this one fits beside them: of those who are dead and
    /// left nothing behind, the ones who are so for longest. Refused if the others alone are too many.
    pub fn room_among<'a>(&self, others: impl Iterator<Item = &'a Self>) -> Result<Vec<&'a RunnerId>, Refusal> {
        let (mut count, mut bytes, mut dead) = (1, self.bytes(), Vec::new());
        for other in others {
            (count, bytes) = (count + 1, bytes + other.bytes());
            dead.extend(other.forget_at().map(|at| (at, other)));
        }
        dead.sort_by_key(|(at, _)| *at);
        let (mut dead, mut gone) = (dead.into_iter(), Vec::new());
        while count > limits::RUNNERS_MAX || bytes > limits::RUNNERS_BYTES_MAX {
            let Some((_, oldest)) = dead.next() else {
                let refusal = Refusal::new(ReasonCode::NumberOutOfRange).with("field", "runners").with("value", count);
                return Err(refusal.with("max", limits::RUNNERS_MAX).with("bytes_max", limits::RUNNERS_BYTES_MAX));
            };
            (count, bytes) = (count - 1, bytes - oldest.bytes());
            gone.push(&oldest.id);
        }
        Ok(gone)
    }

    /// A beat: the record to write, or the news that this incarnation is over and a new one must start.
    pub fn beat(&self, now: Timestamp) -> Result<Self, Refusal> {
        match self.status {
            RunnerStatus::Running => Ok(Self { last_heartbeat: now.max(self.last_heartbeat), ..self.clone() }),
            // A late beat must not revive who said goodbye.
            RunnerStatus::Stopped | RunnerStatus::Dead { .. } => {
                Err(Refusal::new(ReasonCode::RunnerDead).with("runner_id", &self.id))
            }
        }
    }

    /// A clean goodbye.
    pub fn stop(&self, now: Timestamp) -> Result<Self, Refusal> {
        match self.status {
            RunnerStatus::Stopped => Ok(self.clone()),
            RunnerStatus::Running | RunnerStatus::Dead { .. } => {
                Ok(Self { status: RunnerStatus::Stopped, ..self.beat(now)? })
            }
        }
    }

    /// Declares a silent runner dead. A stopped one is declared too, as it may have left tasks behind.
    pub fn declare_dead(&self, silence: Silence, now: Timestamp) -> Result<Self, Refusal> {
        let silent = match silence {
            Silence::ByClock => self.last_heartbeat + self.lease <= now,
            Silence::Watched(watched) => watched >= self.lease,
        };
        let alive = matches!(self.status, RunnerStatus::Running) && !silent;
        if alive || matches!(self.status, RunnerStatus::Dead { .. }) {
            return Err(Refusal::new(ReasonCode::LeaseAlive).with("runner_id", &self.id));
        }
        Ok(Self { status: RunnerStatus::Dead { since: now, cleared: 0, check_at: now }, ..self.clone() })
    }

    /// Notes that a search found nothing that this dead runner held. Two such notes, one lease apart, end the watch:
    /// a claim that it had sent before its death has arrived by then.
    pub fn note_cleared(&self, now: Timestamp) -> Option<Self> {
        let RunnerStatus::Dead { since, cleared, check_at } = self.status else { return None };
        if check_at > now {
            return None;
        }
        let status = RunnerStatus::Dead { since, cleared: cleared.saturating_add(1), check_at: now + self.lease };
        Some(Self { status, ..self.clone() })
    }

    /// When maintenance must look at this record.
    pub fn due_at(&self) -> Option<Timestamp> {
        match self.status {
            RunnerStatus::Running => Some(self.last_heartbeat + self.lease),
            RunnerStatus::Stopped => Some(self.last_heartbeat),
            RunnerStatus::Dead { cleared, check_at, .. } => (cleared < 2).then_some(check_at),
        }
    }

    /// When the record of a dead runner that left nothing behind may go.
    pub fn forget_at(&self) -> Option<Timestamp> {
        match self.status {
            RunnerStatus::Dead { cleared, since, .. } if cleared >= 2 => Some(since + limits::DEAD_RUNNER_KEPT),
            _ => None,
        }
    }

    /// Whether it counts as alive (Q9): its last beat is younger than its lease.
    pub fn is_alive(&self, now: Timestamp) -> bool {
        self.status == RunnerStatus::Running && now.since(self.last_heartbeat) < self.lease
    }

    /// The record as people see it (Q9): who has been silent for a lease is reported as stopped, whatever it said last.
    pub fn reported(self, now: Timestamp) -> Self {
        match self.status {
            RunnerStatus::Running if !self.is_alive(now) => Self { status: RunnerStatus::Stopped, ..self },
            _ => self,
        }
    }

    /// Whether it may claim: its last acknowledged beat is younger than half a lease.
    pub fn may_claim(&self, now: Timestamp) -> bool {
        self.status == RunnerStatus::Running && now.since(self.last_heartbeat).as_u64() < self.lease.as_u64() / 2
    }
}

/// How a runner's silence was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// By the store's one clock.
    ByClock,
    /// The record stayed unchanged for this long on the observer's monotonic clock.
    Watched(Millis),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner() -> Runner {
        Runner {
            namespace: Namespace::new("default").unwrap(),
            id: RunnerId::new("r.1").unwrap(),
            started_at: Timestamp::ZERO,
            last_heartbeat: Timestamp::from_millis(1_000),
            status: RunnerStatus::Running,
            lease: Millis::from_secs(120),
            project_root: String::new(),
            pools: vec![],
            kinds: vec![],
            newer: Newer::NONE,
        }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_record_larger_than_its_limits_is_refused() {
        let with = |change: fn(&mut Runner)| {
            let mut changed = runner();
            change(&mut changed);
            changed.check().map_err(|refusal| refusal.code)
        };
        let (range, duration) = (Err(ReasonCode::NumberOutOfRange), Err(ReasonCode::DurationInvalid));
        assert_eq!(with(|runner| runner.project_root = "é".repeat(512)), Ok(()));
        assert_eq!(with(|runner| runner.project_root = "é".repeat(513)), range);
        assert_eq!(with(|runner| runner.pools = vec![PoolName::new("p").unwrap(); 65]), range);
        assert_eq!(with(|runner| runner.kinds = vec![Kind::new("k").unwrap(); 1_025]), range);
        assert_eq!(with(|runner| runner.lease = Millis::new(99)), duration);
        assert_eq!(with(|runner| runner.lease = Millis::from_days(2)), duration);
    }

    /// Q9
    #[test]
    fn alive_means_younger_than_the_lease_to_the_millisecond() {
        assert!(runner().is_alive(at(120_999)));
        assert!(!runner().is_alive(at(121_000)));
        let stopped = runner().stop(at(2_000)).unwrap();
        assert!(!stopped.is_alive(at(2_000)));
        assert_eq!(stopped.beat(at(2_001)).unwrap_err().code, ReasonCode::RunnerDead, "a late beat revives nobody");
        assert_eq!(stopped.stop(at(2_001)).unwrap(), stopped);
    }

    /// Q9: everywhere the same word.
    #[test]
    fn who_is_silent_for_a_lease_is_reported_as_stopped() {
        assert_eq!(runner().reported(at(120_999)).status, RunnerStatus::Running);
        assert_eq!(runner().reported(at(121_000)).status, RunnerStatus::Stopped);
        let dead = runner().declare_dead(Silence::ByClock, at(121_000)).unwrap();
        assert_eq!(dead.clone().reported(at(999_999)), dead);
    }

    #[test]
    fn a_runner_more_finds_room_where_the_dead_leave_it_and_is_refused_elsewhere() {
        let of = |number: usize, status: RunnerStatus| {
            let kinds = vec![Kind::new("k".repeat(128)).unwrap(); 512];
            Runner { id: RunnerId::new(format!("r.{number}")).unwrap(), status, kinds, ..runner() }
        };
        let dead = |since: i64| RunnerStatus::Dead { since: at(since), cleared: 2, check_at: at(since) };
        let fit = limits::RUNNERS_BYTES_MAX / of(0, RunnerStatus::Running).bytes();
        let mut others: Vec<Runner> = (0..fit - 1).map(|number| of(number, RunnerStatus::Running)).collect();
        let new = of(fit, RunnerStatus::Running);
        assert_eq!(new.room_among(others.iter()), Ok(vec![]));
        others.push(of(fit + 1, RunnerStatus::Dead { since: at(0), cleared: 1, check_at: at(0) }));
        assert_eq!(new.room_among(others.iter()).unwrap_err().code, ReasonCode::NumberOutOfRange, "all are needed");
        others.extend([of(fit + 2, dead(20)), of(fit + 3, dead(10)), of(fit + 4, dead(30))]);
        assert!(new.room_among(others.iter()).is_err());
        let (oldest, next) = (others[fit + 1].id.clone(), others[fit].id.clone());
        others.truncate(fit + 2);
        others.remove(fit - 1);
        assert_eq!(new.room_among(others.iter()), Ok(vec![&oldest, &next]), "those who are dead for longest");
        let small: Vec<Runner> = (0..limits::RUNNERS_MAX)
            .map(|number| Runner { id: RunnerId::new(number.to_string()).unwrap(), ..runner() })
            .collect();
        assert!(runner().room_among(small.iter()).is_err());
        assert_eq!(runner().room_among(small[1..].iter()), Ok(vec![]));
    }

    #[test]
    fn death_is_final_for_the_incarnation() {
        assert_eq!(runner().declare_dead(Silence::ByClock, at(120_999)).unwrap_err().code, ReasonCode::LeaseAlive);
        let dead = runner().declare_dead(Silence::ByClock, at(121_000)).unwrap();
        assert_eq!(dead.beat(at(121_001)).unwrap_err().code, ReasonCode::RunnerDead);
        assert!(
            runner().declare_dead(Silence::Watched(Millis::from_secs(119)), at(999_999)).is_err(),
            "own clock proves nothing"
        );
    }

    #[test]
    fn a_dead_record_is_watched_until_found_empty_twice_one_lease_apart() {
        let dead = runner().declare_dead(Silence::ByClock, at(200_000)).unwrap();
        assert_eq!(dead.due_at(), Some(at(200_000)));
        let once = dead.note_cleared(at(200_000)).unwrap();
        assert_eq!(once.due_at(), Some(at(320_000)));
        assert!(once.note_cleared(at(319_999)).is_none());
        assert_eq!(once.note_cleared(at(320_000)).unwrap().due_at(), None);
    }

    #[test]
    fn claims_need_a_beat_within_half_a_lease_and_clocks_never_run_back() {
        assert!(runner().may_claim(at(60_999)));
        assert!(!runner().may_claim(at(61_000)));
        assert_eq!(runner().beat(at(0)).unwrap().last_heartbeat, at(1_000));
    }
}
