//! What the clients of the load ask for: tasks of every sort, with few keys and lanes, so that they meet. Nothing is purged,
//! so that the records at the end tell everything.

use ekiden::core::{
    Hold, IdempotencyKey, Keep, Kind, LaneKey, LaneSpec, Millis, OnParentFailure, OpId, PoolName, Priority,
    RetryPolicy, Start, TaskEnvelope, TaskId, Unique, UniqueHold, UniqueKey,
};
use ekiden::store::Entropy;
use ekiden::{NewTask, When, Wishes};

use super::{KINDS, POOLS, named};

/// A task to hand in.
pub(super) fn task(entropy: &mut Entropy, id: &TaskId, op: OpId, known: &[TaskId]) -> NewTask {
    let kind = Kind::new(*entropy.pick(&KINDS)).expect("a letter is a valid id");
    let pool = PoolName::new(*entropy.pick(&POOLS)).expect("a plain word is a valid id");
    let mut task = NewTask::new(named(id), pool, TaskEnvelope::json(kind, "{}"));
    task.op = Some(op);
    task.priority = *entropy.pick(&[Priority::NORMAL, Priority::NORMAL, Priority::HIGH]);
    if entropy.chance(20) {
        task.when = When::After(Millis::new(u64::try_from(entropy.below(400)).unwrap_or(0)));
    }
    task.expires_after = entropy.chance(3).then(|| Millis::new(300));
    task.lane = entropy.chance(25).then(|| lane(entropy));
    task.unique = entropy.chance(15).then(|| unique(entropy));
    task.idempotency = entropy.chance(15).then(|| idempotency(entropy));
    if entropy.chance(20) && !known.is_empty() {
        task.parents = vec![entropy.pick(known).clone()];
    }
    task.on_parent_failure = *entropy.pick(&[OnParentFailure::Block, OnParentFailure::Cancel, OnParentFailure::Run]);
    task.start = if entropy.chance(6) { Start::Held } else { Start::Released };
    task.wishes = Wishes {
        attempts_max: Some(u32::try_from(1 + entropy.below(4)).unwrap_or(1)),
        retry: Some(RetryPolicy::Fixed { delay: Millis::new(50) }),
        timeout: None,
        keep: Some(Keep::Forever),
        keep_dead: Some(Keep::Forever),
    };
    task
}

fn lane(entropy: &mut Entropy) -> LaneSpec {
    let lane = |key: &str, width, hold| LaneSpec { key: LaneKey::new(key).expect("a word is a valid id"), width, hold };
    entropy
        .pick(&[
            lane("s-1", 1, Hold::UntilFinal),
            lane("s-2", 1, Hold::UntilFinal),
            lane("wide", 2, Hold::UntilFinal),
            lane("loose", 1, Hold::WhileRunning),
        ])
        .clone()
}

/// A key always has the same hold; mixed holds are nobody's promise.
fn unique(entropy: &mut Entropy) -> Unique {
    let unique = |key: &str, hold| Unique { key: UniqueKey::new(key).expect("a word is a valid id"), hold };
    entropy
        .pick(&[
            unique("open-1", UniqueHold::WhileOpen),
            unique("open-2", UniqueHold::WhileOpen),
            unique("timed", UniqueHold::For(Millis::new(500))),
        ])
        .clone()
}

/// Many keys: one that was used once makes no second task for a day.
fn idempotency(entropy: &mut Entropy) -> IdempotencyKey {
    IdempotencyKey::new(format!("i-{}", entropy.below(200))).expect("a word is a valid id")
}
