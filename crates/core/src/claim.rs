//! Claims: what a runner asks for, and the pure part of giving it. A store finds candidates; this file says yes or no.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::id::{Kind, Namespace, OpId, PoolName, RunnerId};
use crate::key::Key;
use crate::lease::{Lease, Until};
use crate::limits;
use crate::reason::{ReasonCode, Refusal};
use crate::task::{Spec, Task};
use crate::time::{Millis, Timestamp};
use crate::transition::{Decision, Effects, claim_in_place, decide};

/// Which kinds a claim is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kinds {
    /// Any kind.
    Any,
    /// Only these.
    Only(Arc<[Kind]>),
}

impl Kinds {
    /// Whether this kind is among them.
    pub fn contains(&self, kind: &Kind) -> bool {
        match self {
            Self::Any => true,
            Self::Only(kinds) => kinds.contains(kind),
        }
    }
}

/// How long the leases of a claim last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseTerm {
    /// As long as the holder's record is renewed.
    Heartbeat,
    /// For this long (mailboxes).
    For(Millis),
}

/// A pool that a claim asks, with what the claimer knows of its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimPool {
    /// The namespace.
    pub namespace: Namespace,
    /// The pool.
    pub pool: PoolName,
    /// Whether it rests.
    pub paused: bool,
    /// How many of it may run at once.
    pub running_max: Option<u32>,
}

impl ClaimPool {
    /// A pool without limits.
    pub fn open(namespace: Namespace, pool: PoolName) -> Self {
        Self { namespace, pool, paused: false, running_max: None }
    }

    /// The counter to read before and to raise with each claim; `None` where there is no limit.
    pub fn counter(&self) -> Option<Key> {
        self.running_max.map(|_| Key::running(&self.namespace, &self.pool))
    }

    /// How many tasks may be taken, given what the counter says.
    pub fn room(&self, running: i64) -> usize {
        match self.running_max {
            _ if self.paused => 0,
            None => usize::MAX,
            Some(limit) => usize::try_from(i64::from(limit) - running).unwrap_or(0),
        }
    }
}

/// A runner asks for tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The caller's name for it; repeated when the reply got lost.
    pub id: OpId,
    /// The moment by the caller's clock.
    pub now: Timestamp,
    /// The pools to look in.
    pub pools: Vec<ClaimPool>,
    /// The kinds to look for.
    pub kinds: Kinds,
    /// How many tasks at most.
    pub limit: usize,
    /// Who will hold them.
    pub holder: RunnerId,
    /// For how long.
    pub lease: LeaseTerm,
}

impl Claim {
    /// Refuses claims for nothing, for too much, or with an absurd lease.
    pub fn check(&self) -> Result<(), Refusal> {
        let kinds = match &self.kinds {
            Kinds::Any => 1,
            Kinds::Only(kinds) => kinds.len(),
        };
        for (field, value, max) in [
            ("pools", self.pools.len(), limits::CLAIM_POOLS_MAX.min(self.distinct_pools())),
            ("kinds", kinds, limits::CLAIM_KINDS_MAX),
            ("limit", self.limit, limits::CLAIM_TASKS_MAX),
        ] {
            if value == 0 || value > max {
                return Err(Refusal::new(ReasonCode::ClaimInvalid)
                    .with("field", field)
                    .with("value", value)
                    .with("max", max));
            }
        }
        match self.lease {
            LeaseTerm::Heartbeat => Ok(()),
            LeaseTerm::For(span) => span.check("lease", limits::LEASE_MAX).map(drop),
        }
    }

    fn distinct_pools(&self) -> usize {
        if self.pools.len() < 2 {
            // As most claims are: no list for them.
            return self.pools.len();
        }
        let mut pools: Vec<_> = self.pools.iter().map(|pool| (&pool.namespace, &pool.pool)).collect();
        pools.sort_unstable();
        pools.dedup();
        pools.len()
    }

    /// Whether this claim, or an earlier try of it, took the lease. The holder is compared too, since an id alone grants nothing.
    /// The caller compares the namespace.
    pub fn took(&self, lease: &Lease) -> bool {
        lease.claim == self.id && lease.holder == self.holder
    }

    /// Whether it asks for tasks of this namespace, pool and kind.
    pub fn asks_for(&self, spec: &Spec) -> bool {
        let same_pool = |asked: &ClaimPool| asked.namespace == spec.namespace && asked.pool == spec.pool;
        self.kinds.contains(&spec.envelope.task_type) && self.pools.iter().any(same_pool)
    }

    /// Whether it asks for anything in this namespace.
    pub fn asks_in(&self, namespace: &Namespace) -> bool {
        self.pools.iter().any(|asked| asked.namespace == *namespace)
    }

    /// The task as taken by this claim, or the reason why it cannot be. `counted` says that the pool's counter goes up with it.
    pub fn take(&self, task: &Task, counted: bool) -> Result<Task, Refusal> {
        let event = Event::Claimed { claim: self.id, holder: self.holder.clone(), until: self.until(), counted };
        match decide(task, &event, self.now)? {
            Decision::Change(change) => Ok(Task { spec: task.spec.clone(), state: change.state }),
            Decision::AlreadyDone | Decision::NothingToDo => Ok(task.clone()),
        }
    }

    /// The same for a task that nobody else has: it is changed where it is, and left as it is where it cannot be taken.
    pub fn take_in_place(&self, task: &mut Task, counted: bool) -> Result<(), Refusal> {
        claim_in_place(task, self.id, &self.holder, self.until(), counted, self.now)
    }

    fn until(&self) -> Until {
        match self.lease {
            LeaseTerm::Heartbeat => Until::Heartbeat,
            LeaseTerm::For(span) => Until::At(self.now + span),
        }
    }
}

/// The task with its ready entry, if it became due and nothing but its own record must be written for it.
pub fn promote(task: &Task, now: Timestamp) -> Option<Task> {
    match decide(task, &Event::BecameDue, now) {
        Ok(Decision::Change(change)) if change.effects == Effects::default() => {
            Some(Task { spec: task.spec.clone(), state: change.state })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::lease::Token;
    use crate::newer::Newer;

    fn claim() -> Claim {
        let pool = ClaimPool::open(Namespace::new("default").unwrap(), PoolName::new("p").unwrap());
        Claim {
            id: OpId::from_bits(1),
            now: Timestamp::ZERO,
            pools: vec![pool],
            kinds: Kinds::Any,
            limit: 1,
            holder: RunnerId::new("r").unwrap(),
            lease: LeaseTerm::Heartbeat,
        }
    }

    #[test]
    fn claims_for_nothing_or_too_much_are_refused() {
        assert!(claim().check().is_ok());
        let kind = Kind::new("k").unwrap();
        let pool = claim().pools.remove(0);
        let wrong = [
            Claim { pools: vec![], ..claim() },
            Claim { pools: vec![pool.clone(), pool.clone()], ..claim() },
            Claim { pools: vec![pool; 65], ..claim() },
            Claim { kinds: Kinds::Only([].into()), ..claim() },
            Claim { kinds: Kinds::Only(vec![kind; 65].into()), ..claim() },
            Claim { limit: 0, ..claim() },
            Claim { limit: 257, ..claim() },
        ];
        for claim in wrong {
            assert_eq!(claim.check().unwrap_err().code, ReasonCode::ClaimInvalid, "{claim:?}");
        }
        let absurd = Claim { lease: LeaseTerm::For(Millis::ZERO), ..claim() };
        assert_eq!(absurd.check().unwrap_err().code, ReasonCode::DurationInvalid);
    }

    #[test]
    fn a_claim_took_what_its_id_and_its_holder_took() {
        let lease = Lease {
            holder: claim().holder,
            claim: claim().id,
            token: Token(1),
            until: Until::Heartbeat,
            counted: false,
            newer: Newer::NONE,
        };
        assert!(claim().took(&lease));
        assert!(!Claim { id: OpId::from_bits(2), ..claim() }.took(&lease));
        assert!(!Claim { holder: RunnerId::new("other").unwrap(), ..claim() }.took(&lease));
    }

    #[test]
    fn a_claim_asks_for_its_namespaces_pools_and_kinds() {
        let spec = fixtures::spec("t");
        let pool = ClaimPool::open(spec.namespace.clone(), spec.pool.clone());
        let asking = Claim { pools: vec![pool.clone()], ..claim() };
        let other = Kind::new("other").unwrap();
        assert!(asking.asks_for(&spec) && asking.asks_in(&spec.namespace));
        assert!(
            Claim { kinds: Kinds::Only([spec.envelope.task_type.clone()].into()), ..asking.clone() }.asks_for(&spec)
        );
        assert!(!Claim { kinds: Kinds::Only([other].into()), ..asking.clone() }.asks_for(&spec));
        let elsewhere = ClaimPool { pool: PoolName::new("elsewhere").unwrap(), ..pool.clone() };
        let elsewhere = Claim { pools: vec![elsewhere], ..asking.clone() };
        assert!(!elsewhere.asks_for(&spec) && elsewhere.asks_in(&spec.namespace));
        let foreign = ClaimPool { namespace: Namespace::new("foreign").unwrap(), ..pool };
        let foreign = Claim { pools: vec![foreign], ..asking };
        assert!(!foreign.asks_for(&spec) && !foreign.asks_in(&spec.namespace));
    }

    #[test]
    fn room_follows_limit_pause_and_count() {
        let open = claim().pools.remove(0);
        assert_eq!(open.room(9), usize::MAX);
        let limited = ClaimPool { running_max: Some(3), ..open.clone() };
        assert_eq!([limited.room(1), limited.room(3), limited.room(7)], [2, 0, 0]);
        assert_eq!(ClaimPool { paused: true, ..open }.room(0), 0);
    }
}
