//! What the clients of a load ask for: tasks of every kind, with few keys and lanes, so that they meet.

use std::sync::Arc;

use ekiden_core::dependency::OnParentFailure;
use ekiden_core::id::{GroupId, IdempotencyKey, Kind, LaneKey, TaskId, UniqueKey};
use ekiden_core::lane::{Hold, LaneSpec};
use ekiden_core::newer::Newer;
use ekiden_core::order::{Priority, Rank};
use ekiden_core::plan::Enqueue;
use ekiden_core::pool::{Keep, Policy, Timeout};
use ekiden_core::retry::RetryPolicy;
use ekiden_core::task::{Spec, TaskEnvelope};
use ekiden_core::time::Millis;
use ekiden_core::transition::Start;
use ekiden_core::unique::{Unique, UniqueHold};
use ekiden_store::entropy::Entropy;

use super::world::{Actor, LIMITED, namespace, pool};
use crate::facts::EnqueueFacts;

/// The pools of the load; one is asked twice as often.
const POOLS: [&str; 4] = ["work", "work", "mail", LIMITED.0];

/// A task without wishes of its own that waits for others, and what the history keeps of it.
pub(super) fn child(actor: &mut Actor, parents: Vec<TaskId>, start: Start) -> (Enqueue, EnqueueFacts) {
    let (plan, facts) = task(actor);
    let spec = Spec::clone(&plan.spec);
    let (parents_count, attempts_max) = (parents.len(), 4);
    let policy = Arc::new(Policy { attempts_max, ..Policy::clone(&spec.policy) });
    let facts = EnqueueFacts {
        unique: None,
        idempotency: None,
        lane: None,
        waits: true,
        parents: parents_count,
        attempts_max,
        ..facts
    };
    let spec = Spec { unique: None, lane: None, run_at: None, expires_at: None, policy, ..spec };
    (Enqueue { spec: Arc::new(spec), start, parents, idempotency: None }, facts)
}

/// A task to hand in, and what the history keeps of it.
pub(super) fn task(actor: &mut Actor) -> (Enqueue, EnqueueFacts) {
    let now = actor.world.now();
    let known = actor.world.known().tasks.clone();
    // Every third load crowds one serial lane, so that long lines form and are cancelled, admitted and reclaimed in bulk.
    let crowded = actor.world.seed.is_multiple_of(3);
    let (id, op) = (actor.entropy.task_id(now), actor.op());
    let payload = actor.world.payload.clone();
    let entropy = &mut actor.entropy;
    let kind = Kind::new(*entropy.pick(&["a", "b"])).expect("a letter is a valid id");
    let line = *entropy.pick(&POOLS);
    let mut spec = Spec::new(namespace(), pool(line), id, TaskEnvelope::json(kind, payload), policy(entropy), now);
    spec.rank = Rank::from(*entropy.pick(&[Priority::NORMAL, Priority::NORMAL, Priority::HIGH]));
    let soon = |entropy: &mut Entropy| now + Millis::new(u64::try_from(entropy.below(8_000)).unwrap_or(0));
    spec.run_at = entropy.chance(15).then(|| soon(entropy));
    spec.expires_at = entropy.chance(5).then(|| soon(entropy));
    spec.lane = if crowded {
        entropy.chance(90).then(|| Arc::new(LaneSpec::serial(lane_key("s-1"))))
    } else {
        entropy.chance(60).then(|| Arc::new(lane(entropy)))
    };
    spec.unique = entropy.chance(15).then(|| Arc::new(unique(entropy)));
    spec.group = entropy.chance(70).then(|| group(entropy));
    spec.on_parent_failure = *entropy.pick(&[OnParentFailure::Block, OnParentFailure::Cancel, OnParentFailure::Run]);
    let parents = if entropy.chance(20) { parents(entropy, &known) } else { Vec::new() };
    let start = if entropy.chance(8) { Start::Held } else { Start::Released };
    let idempotency = entropy.chance(15).then(|| idempotency(entropy));
    let facts = EnqueueFacts {
        op,
        task: spec.id.clone(),
        unique: spec.unique.as_deref().cloned(),
        idempotency: idempotency.clone(),
        lane: spec.lane.as_deref().cloned(),
        waits: start == Start::Held || !parents.is_empty(),
        parents: parents.len(),
        attempts_max: spec.policy.attempts_max,
    };
    (Enqueue { spec: Arc::new(spec), start, parents, idempotency }, facts)
}

fn policy(entropy: &mut Entropy) -> Arc<Policy> {
    let kept = [Keep::Forever, Keep::Forever, Keep::For(Millis::from_secs(20))];
    Arc::new(Policy {
        attempts_max: u32::try_from(1 + entropy.below(4)).unwrap_or(1),
        crashes_max: entropy.chance(50).then_some(2),
        retry: RetryPolicy::Fixed { delay: Millis::new(700) },
        timeout: Timeout::Never,
        keep: *entropy.pick(&kept),
        keep_dead: *entropy.pick(&kept),
        reopen: entropy.chance(50),
        newer: Newer::NONE,
    })
}

/// Two serial lanes, one of two places and one that is left after each attempt. The first is crowded.
fn lane(entropy: &mut Entropy) -> LaneSpec {
    let lane = |key: &str, width, hold| LaneSpec { key: lane_key(key), width, hold };
    entropy
        .pick(&[
            lane("s-1", 1, Hold::UntilFinal),
            lane("s-1", 1, Hold::UntilFinal),
            lane("s-2", 1, Hold::UntilFinal),
            lane("wide", 2, Hold::UntilFinal),
            lane("loose", 1, Hold::WhileRunning),
        ])
        .clone()
}

fn lane_key(key: &str) -> LaneKey {
    LaneKey::new(key).expect("a word is a valid id")
}

/// A key always has the same hold; mixed holds are nobody's promise.
fn unique(entropy: &mut Entropy) -> Unique {
    let unique = |key: &str, hold| Unique { key: UniqueKey::new(key).expect("a word is a valid id"), hold };
    entropy
        .pick(&[
            unique("open-1", UniqueHold::WhileOpen),
            unique("open-2", UniqueHold::WhileOpen),
            unique("timed", UniqueHold::For(Millis::from_secs(15))),
            unique("kept", UniqueHold::WhileKept),
        ])
        .clone()
}

/// One of two groups, by which tasks are cancelled together. The first is large enough to empty a lane at once.
pub(super) fn group(entropy: &mut Entropy) -> GroupId {
    GroupId::new(*entropy.pick(&["g-1", "g-1", "g-1", "g-2"])).expect("a word is a valid id")
}

fn idempotency(entropy: &mut Entropy) -> IdempotencyKey {
    IdempotencyKey::new(*entropy.pick(&["i-1", "i-2", "i-3"])).expect("a word is a valid id")
}

fn parents(entropy: &mut Entropy, known: &[TaskId]) -> Vec<TaskId> {
    if known.is_empty() {
        return Vec::new();
    }
    let mut parents: Vec<TaskId> = (0..=entropy.below(2)).map(|_| entropy.pick(known).clone()).collect();
    parents.sort();
    parents.dedup();
    parents
}
