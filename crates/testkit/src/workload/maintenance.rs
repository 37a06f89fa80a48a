//! Maintenance as any process may do it: promotes, rejoins, expires, takes lost leases away, declares runners dead, advances
//! sweeps, forgets and purges. Everything comes from the due lists; every step may be done twice.

use std::sync::Arc;

use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{RunnerId, TaskId};
use ekiden_core::index::DueIndex;
use ekiden_core::key::Key;
use ekiden_core::lease::Evidence;
use ekiden_core::limits;
use ekiden_core::plan::{ClearDead, DeclareDead, Forget, Purge, PurgeWhen, due_event};
use ekiden_core::runner::{RunnerStatus, Silence};
use ekiden_store::entropy::Entropy;
use ekiden_store::{DueEntry, DueQuery, StoreExt, TaskQuery};

use super::world::{Actor, World, namespace};

/// 8: a page of due entries. Small, so that several pages are needed.
const PAGE: usize = 8;

/// 8: the items of a sweep that are read for one step where payloads are small; enough for one commit to empty a lane.
const SWEEP_ITEMS: usize = 8;

/// Looks after the store until the clients are done.
pub(super) async fn run_beside(world: Arc<World>) {
    run_as(Actor::new(world, "maintenance", 900)).await;
}

/// The same beside one of several processes.
pub(super) async fn run_beside_as(world: Arc<World>, number: usize) {
    let stream = 1_000 + u64::try_from(number).unwrap_or(0);
    run_as(Actor::new(world, &format!("maintenance-{number}"), stream)).await;
}

async fn run_as(mut upkeep: Actor) {
    while !upkeep.world.is_stopped() {
        let index = *upkeep.entropy.pick(&DueIndex::ALL);
        page(&mut upkeep, index).await;
        for _ in 0..upkeep.entropy.below(6) {
            tokio::task::yield_now().await;
        }
    }
}

/// Does one page of a due list. Says whether there was anything.
pub(super) async fn page(upkeep: &mut Actor, index: DueIndex) -> bool {
    let query = DueQuery { namespace: namespace(), index, until: upkeep.world.now(), limit: PAGE };
    let world = upkeep.world.clone();
    let due = world.read(|| world.store.due(query.clone())).await.unwrap_or_default();
    let any = !due.is_empty();
    for entry in due {
        one(upkeep, index, entry).await;
    }
    any
}

async fn one(upkeep: &mut Actor, index: DueIndex, entry: DueEntry) {
    let key = entry.key;
    match index {
        DueIndex::Lease => {
            let event = Event::LeaseLost { evidence: Evidence::Deadline };
            upkeep.release(&task_of(&key), event).await;
        }
        DueIndex::Runner => runner(upkeep, key).await,
        DueIndex::Sweep => sweep(upkeep, key).await,
        DueIndex::Forget => {
            upkeep.quietly(&Forget { record: key, when: PurgeWhen::Due }).await;
        }
        DueIndex::Purge => {
            let task = task_of(&key);
            upkeep.purge(&Purge { task: key, when: PurgeWhen::Due }, &task).await;
        }
        _ => {
            if let Some(happen) = due_event(index, key) {
                upkeep.quietly(&happen).await;
            }
        }
    }
}

fn task_of(key: &Key) -> TaskId {
    TaskId::new(&key.name).expect("the name of a task's record is its id")
}

/// A silent runner is declared dead; what a dead one held is taken away.
async fn runner(upkeep: &mut Actor, key: Key) {
    let world = upkeep.world.clone();
    let found = world.read(|| world.store.get_one(key.clone())).await.flatten();
    let Some(runner) = found.and_then(|found| found.record.as_runner().cloned()) else { return };
    if !matches!(runner.status, RunnerStatus::Dead { .. }) {
        upkeep.quietly(&DeclareDead { runner: key, silence: Silence::ByClock }).await;
        return;
    }
    let held = held_by(&world, &runner.id).await;
    for task in &held {
        let event = Event::LeaseLost { evidence: Evidence::RunnerDead(runner.id.clone()) };
        upkeep.release(task, event).await;
    }
    if held.is_empty() {
        upkeep.quietly(&ClearDead { runner: key }).await;
    }
}

/// The first tasks that a runner holds.
pub(super) async fn held_by(world: &World, runner: &RunnerId) -> Vec<TaskId> {
    let query = TaskQuery::oldest(TaskFilter::held_by(namespace(), runner.clone()), PAGE);
    let page = world.read(|| world.store.tasks(query.clone())).await;
    page.into_iter().flat_map(|page| page.items).map(|found| task_of(&found.key)).collect()
}

async fn sweep(upkeep: &mut Actor, key: Key) {
    let world = upkeep.world.clone();
    let seed = upkeep.entropy.next_u64();
    // Few, so that sweeps take several pages; as many as a queue reads where one commit does not hold them all.
    let items = if world.payload.len() > SWEEP_ITEMS { limits::SWEEP_ITEMS_MAX } else { SWEEP_ITEMS };
    let read = || {
        let mut ids = Entropy::from_seed(seed);
        let now = world.now();
        world.store.sweep_step(key.clone(), items, move || ids.task_id(now))
    };
    let step = world.read(read).await.flatten();
    if let Some(step) = step {
        upkeep.quietly(&step).await;
    }
}
