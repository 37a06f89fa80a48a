//! The same load by clients that each have a store of their own, as processes have that share one server. Whoever drops the
//! work of one has killed it.

use std::sync::Arc;

use ekiden_store::Store;

use super::client::{Steps, Worker};
use super::world::World;
use super::{Options, maintenance, rest};
use crate::facts::FinalState;
use crate::history::History;

/// A load without clients.
pub struct Apart {
    world: Arc<World>,
    steps: Steps,
}

impl Apart {
    /// The store is the one by which everything comes to rest.
    pub fn new(store: Arc<dyn Store>, options: Options) -> Self {
        let steps = Steps::for_tasks(options.tasks / options.clients.max(1));
        Self { world: World::new(store, options.seed), steps }
    }

    /// One client works off its steps over its store, with maintenance beside it. No two have the same number.
    pub async fn work(&self, store: Arc<dyn Store>, number: usize) {
        let world = self.world.beside(store);
        let worker = Worker::new(world.clone(), number, self.steps);
        tokio::select! {
            () = worker.run() => {}
            () = maintenance::run_beside_as(world, number) => {}
        }
    }

    /// When nobody works any more: lets everything come to rest, and reads it.
    pub async fn come_to_rest(&self) -> (History, FinalState) {
        let last = rest::come_to_rest(&self.world).await;
        (self.world.recorder.history(), last)
    }
}
