//! A small seeded load over any store: clients that hand in, claim, work, settle in every way, cancel, die and come back late;
//! maintenance beside them; then quiet, until nothing is left to do. Time is virtual and moved by the load itself. On a
//! single-threaded runtime, over a store that a seed repeats, the whole run repeats.

mod client;
mod maintenance;
mod rest;
mod wishes;
mod world;

use std::sync::Arc;

use ekiden_store::Store;

use crate::facts::FinalState;
use crate::history::History;
use client::Worker;
use world::World;

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

/// Runs the load, lets everything come to rest, and gives what the clients saw and what the store says at the end.
pub async fn run(store: Arc<dyn Store>, options: Options) -> (History, FinalState) {
    let world = World::new(store, options.seed);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..options.clients {
        let worker = Worker::new(world.clone(), number, options.tasks / options.clients.max(1));
        clients.spawn(worker.run());
    }
    let upkeep = tokio::spawn(maintenance::run_beside(world.clone()));
    clients.join_all().await;
    world.stop();
    upkeep.await.expect("maintenance ends when it is told to");
    let last = rest::come_to_rest(&world).await;
    (world.recorder.history(), last)
}
