//! A small seeded load over any store: clients that hand in, claim, work, settle in every way, cancel, die and come back late;
//! maintenance beside them; then quiet, until nothing is left to do. Time is virtual and moved by the load itself. On a
//! single-threaded runtime, over a store that a seed repeats, the whole run repeats.
//!
//! [`run`] does it all in one process. For processes that get killed there are its parts: [`look`] at what the one before
//! left, [`go_on`] until the end of the process, [`come_to_rest`] in the last one.

mod apart;
mod client;
mod holder;
mod maintenance;
mod rest;
mod takeover;
mod wishes;
mod world;

use std::convert::Infallible;
use std::sync::Arc;

use ekiden_store::Store;
use ekiden_store::clock::ManualClock;

use crate::facts::FinalState;
use crate::history::{History, Recorder};
use client::{Steps, Worker};
use world::World;

pub use apart::Apart;
pub use holder::{Holder, LateSettlements};
pub use world::NOON;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// How many clients work at once.
    pub clients: usize,
    /// How many tasks they hand in, all together and about.
    pub tasks: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 0, clients: 4, tasks: 40 }
    }
}

/// Where a load takes place.
#[derive(Clone)]
pub struct Scene {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The time, which the load moves. In a later process it begins where the one before came to.
    pub clock: Arc<ManualClock>,
    /// Where the history is written; by the same clock.
    pub recorder: Arc<Recorder>,
    /// Decides everything that is left to chance.
    pub seed: u64,
}

/// Runs the load, lets everything come to rest, and gives what the clients saw and what the store says at the end.
pub async fn run(store: Arc<dyn Store>, options: Options) -> (History, FinalState) {
    let world = World::new(store, options.seed);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..options.clients {
        let steps = Steps::for_tasks(options.tasks / options.clients.max(1));
        clients.spawn(Worker::new(world.clone(), number, steps).run());
    }
    let upkeep = tokio::spawn(maintenance::run_beside(world.clone()));
    clients.join_all().await;
    world.stop();
    upkeep.await.expect("maintenance ends when it is told to");
    let last = rest::come_to_rest(&world).await;
    (world.recorder.history(), last)
}

/// Writes down everything that is in the store, as found by a process that has just opened it. Nobody may work meanwhile.
pub async fn look(scene: &Scene) {
    takeover::look(&World::of(scene.clone())).await;
}

/// Goes on with what is in the store and never ends: clients know the tasks of those before them, and some go on with what
/// their holders had in hand, as workers do that outlive the process they were connected to.
pub async fn go_on(scene: Scene, clients: usize) -> Infallible {
    let world = World::of(scene);
    let mut left = takeover::take_over(&world).await;
    for number in 0..clients {
        let share = left.len() / (clients - number);
        let worker = Worker::new(world.clone(), number, Steps::Endless).with_work(left.drain(..share));
        tokio::spawn(worker.run());
    }
    tokio::spawn(maintenance::run_beside(world));
    std::future::pending().await
}

/// Lets everything come to rest, and reads what became of it.
pub async fn come_to_rest(scene: Scene) -> FinalState {
    rest::come_to_rest(&World::of(scene)).await
}
