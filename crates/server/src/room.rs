//! Where claims wait. Those that ask for the same stand in one line and share what they have heard of the bell: the first
//! listens, and leaves the place to the next as soon as it has heard. One task that arrives wakes one claim, however many wait.

use std::sync::{Arc, Mutex, PoisonError};

use ekiden::{Ask, HeardChime};
use ekiden_core::id::{Kind, Namespace, PoolName};
use hashbrown::HashMap;
use tokio::sync::{Mutex as Line, MutexGuard};

/// What the claims of one line have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Same {
    namespace: Namespace,
    pools: Arc<[PoolName]>,
    kinds: Arc<[Kind]>,
}

/// The lines of a server, each with what it has heard of its namespace's bell.
#[derive(Default)]
pub(crate) struct Rooms(Mutex<HashMap<Same, Arc<Line<HeardChime>>>>);

/// A place in a line.
pub(crate) struct Place<'a> {
    rooms: &'a Rooms,
    same: Same,
    line: Option<Arc<Line<HeardChime>>>,
}

impl Rooms {
    /// Goes to the end of the line. Who opens it says what has been heard so far.
    pub(crate) fn enter(&self, ask: &Ask, heard: HeardChime) -> Place<'_> {
        let same = Same { namespace: ask.namespace.clone(), pools: ask.pools.clone(), kinds: ask.kinds.clone() };
        let line = self.lines().entry(same.clone()).or_insert_with(|| Arc::new(Line::new(heard))).clone();
        Place { rooms: self, same, line: Some(line) }
    }

    fn lines(&self) -> std::sync::MutexGuard<'_, HashMap<Same, Arc<Line<HeardChime>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Waits to be the first. Whoever leaves, for whatever reason, lets the next one come.
    pub(crate) async fn first(&self) -> MutexGuard<'_, HeardChime> {
        self.line.as_ref().expect("a place has its line until it is given up").lock().await
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.rooms.lines();
        self.line = None;
        // Under the lock nobody can join, so a line that only the map knows is empty.
        if lines.get(&self.same).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.same);
        }
    }
}
