//! The end of a load: everything that still can happen happens. Held tasks are released, questions answered, silent runners
//! declared dead, and a last runner takes what is left, until nothing moves any more. Then the store is read.

use std::collections::BTreeSet;
use std::sync::Arc;

use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::index::DueIndex;
use ekiden_core::limits;
use ekiden_core::plan::Happen;
use ekiden_core::record::Versioned;
use ekiden_core::task::{Phase, Task};
use ekiden_core::time::Millis;
use ekiden_store::{DueQuery, ListOrder, TaskQuery};

use super::maintenance::page;
use super::world::{Actor, LEASE, LIMITED, World, namespace, pool, token_of};
use crate::facts::{FinalState, FinalTask, Note};

/// 80: rounds until a load that has not come to rest is taken as stuck. Sound ones need about ten.
const ROUNDS_MAX: usize = 80;

/// How much time passes in a round.
const STEP: Millis = Millis::from_secs(4);

/// The same in late rounds. A process that was killed may have come minutes further than the one that follows it knows, and what
/// it put off until then is not stuck.
const LONG_STEP: Millis = Millis::from_secs(60);

/// 200: pages of one list in one round; a list that never empties is a defect to be seen, not waited for.
const PAGES_MAX: usize = 200;

/// Lets everything come to rest, and reads it.
pub(super) async fn come_to_rest(world: &Arc<World>) -> FinalState {
    let mut actor = Actor::new(world.clone(), "last", 901);
    let mut quiet = 0;
    for round in 0..ROUNDS_MAX {
        world.clock.advance(if round < ROUNDS_MAX / 2 { STEP } else { LONG_STEP });
        upkeep(&mut actor).await;
        let moved = help(&mut actor).await | work(&mut actor).await;
        // Longer than two leases and every wait of the load: a dead runner is looked at twice, one lease apart.
        quiet = if moved { 0 } else { quiet + 1 };
        if quiet * 4_000 > 3 * LEASE.as_u64() {
            break;
        }
    }
    // The longest time for which an ended task is kept, and a little more.
    world.clock.advance(limits::PURGE_AGE_MIN);
    world.clock.advance(STEP);
    upkeep(&mut actor).await;
    FinalState { due: still_due(&actor).await, ..observe(&actor).await }
}

async fn upkeep(actor: &mut Actor) {
    for index in DueIndex::ALL {
        for _ in 0..PAGES_MAX {
            if !page(actor, index).await {
                break;
            }
        }
    }
}

/// What maintenance could not do away with.
async fn still_due(actor: &Actor) -> BTreeSet<String> {
    let mut left = BTreeSet::new();
    for index in DueIndex::ALL {
        let query = DueQuery { namespace: namespace(), index, until: actor.world.now(), limit: 8 };
        let due = actor.world.read(|| actor.world.store.due(query.clone())).await.unwrap_or_default();
        left.extend(due.into_iter().map(|entry| format!("{index:?} {}", entry.key)));
    }
    left
}

/// Does what people do: releases and answers. Says whether anything was open.
async fn help(actor: &mut Actor) -> bool {
    let mut moved = false;
    for versioned in every_task(&actor.world).await {
        let Some(task) = versioned.record.as_task() else { continue };
        let event = match (&task.state.phase, &task.state.question) {
            (Phase::Pending, _) => Event::Released,
            (Phase::NeedsInput, Some(question)) => {
                Event::Answered { question: question.id.clone(), content: Arc::from("go on") }
            }
            (phase, _) => {
                let open = matches!(phase, Phase::Queued | Phase::RetryScheduled | Phase::Running);
                moved |= open || (phase.is_final() && task.state.lease.is_some());
                continue;
            }
        };
        moved = true;
        actor.quietly(&Happen { task: versioned.key.clone(), event }).await;
    }
    moved
}

/// Takes what can be claimed and does it well. The leases are short: what is lost in doubt comes back by itself.
async fn work(actor: &mut Actor) -> bool {
    let holder = actor.runner_id(99);
    let mut any = false;
    for _ in 0..PAGES_MAX {
        let open = |name: &str| ClaimPool::open(namespace(), pool(name));
        let claim = Claim {
            id: actor.op(),
            now: actor.world.now(),
            pools: vec![open("work"), open("mail"), ClaimPool { running_max: Some(LIMITED.1), ..open(LIMITED.0) }],
            kinds: Kinds::Any,
            limit: 4,
            holder: holder.clone(),
            lease: LeaseTerm::For(Millis::from_secs(3)),
        };
        let tasks = actor.claim(&claim).await;
        if tasks.is_empty() {
            break;
        }
        any = true;
        for task in tasks {
            finish(actor, &task).await;
        }
    }
    any
}

async fn finish(actor: &mut Actor, task: &Task) {
    let (id, token) = (task.id().clone(), token_of(task));
    actor.record.note(Note::Started { task: id.clone(), token });
    actor.record.note(Note::Finished { task: id.clone(), token });
    actor.settle(&id, token, Event::Succeeded { token, result: None }).await;
}

async fn observe(actor: &Actor) -> FinalState {
    for versioned in every_task(&actor.world).await {
        if let Some(task) = versioned.record.as_task() {
            let found = Box::new(FinalTask::from(task.as_ref()));
            actor.record.note(Note::Observed { task: task.id().clone(), found });
        }
    }
    FinalState::observed(&actor.world.recorder.history()).quiesced()
}

pub(super) async fn every_task(world: &World) -> Vec<Versioned> {
    let mut found = Vec::new();
    let mut cursor = None;
    loop {
        let filter = TaskFilter::all(namespace());
        let query = TaskQuery { filter, order: ListOrder::OldestFirst, cursor, limit: 50 };
        let page = world.read(|| world.store.tasks(query.clone())).await.expect("a store that answers now and then");
        found.extend(page.items);
        cursor = page.cursor;
        if cursor.is_none() {
            return found;
        }
    }
}
