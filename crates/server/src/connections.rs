//! The connections that are open. When there is no room for another one, the least needed gives way: a client without a token
//! cannot keep out one that has it, and one with a token cannot keep out those with others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::limits;
use crate::watched::{Busy, Worth};

/// The connections that are open. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(crate) struct Connections {
    places: Arc<Semaphore>,
    /// How many connections of one token are never closed for those of others.
    of_token_max: usize,
    tracker: TaskTracker,
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    /// The number of the next connection: they rise in the order in which connections came.
    next: u64,
    all: BTreeMap<u64, Connection>,
}

struct Connection {
    busy: Busy,
    task: JoinHandle<()>,
}

/// Takes a connection off the list when it has ended, however that happened.
struct Listed {
    connections: Connections,
    number: u64,
    _place: OwnedSemaphorePermit,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let ended = self.connections.lock().all.remove(&self.number);
        drop(ended);
    }
}

impl Connections {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            places: Arc::new(Semaphore::new(most)),
            of_token_max: most / limits::A_TOKENS_PART,
            tracker: TaskTracker::new(),
            open: Arc::default(),
        }
    }

    /// A place for one more connection. Where there is none, the least needed connection is closed for it; `None` if all are
    /// needed.
    pub(crate) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Some(place);
        }
        self.shed().await;
        self.places.clone().try_acquire_owned().ok()
    }

    /// Closes the connection that is needed least, the oldest of those that are worth the same, and waits until it is gone. Says
    /// whether there was one.
    pub(crate) async fn shed(&self) -> bool {
        let Some(Connection { task, .. }) = self.lock().take_least(self.of_token_max) else { return false };
        task.abort();
        // It was aborted, or had ended by itself.
        let _ = task.await;
        true
    }

    /// Carries a connection on beside the others.
    pub(crate) fn spawn(
        &self,
        place: OwnedSemaphorePermit,
        busy: Busy,
        connection: impl Future<Output = ()> + Send + 'static,
    ) {
        // The task may end at once: it is listed before it can take itself off the list.
        let mut open = self.lock();
        let number = open.next;
        open.next += 1;
        let listed = Listed { connections: self.clone(), number, _place: place };
        let task = self.tracker.spawn(async move {
            let _listed = listed;
            connection.await;
        });
        open.all.insert(number, Connection { busy, task });
    }

    /// Waits until all have ended.
    pub(crate) async fn ended(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    /// Looks at every connection: this happens only when there is no place left, and their number has a maximum.
    fn take_least(&mut self, of_token_max: usize) -> Option<Connection> {
        let too_many = self.token_with_too_many(of_token_max);
        let mut least: Option<([Worth; 2], u64)> = None;
        for (number, connection) in &self.all {
            let own = connection.busy.worth();
            let worth = match own {
                Worth::Unknown => Worth::Unknown,
                _ if too_many.is_some() && connection.busy.token() == too_many => Worth::TooMany,
                worth => worth,
            };
            // Of those of one token, the ones that do not read or that rest go before the others.
            if least.is_none_or(|(other, _)| [worth, own] < other) {
                least = Some(([worth, own], *number));
            }
            if worth == Worth::Unknown {
                break;
            }
        }
        let (_, number) = least.filter(|([worth, _], _)| *worth < Worth::Needed)?;
        self.all.remove(&number)
    }

    /// The token that has more than its part of all connections, if one has. It is at most one: the part is half of them.
    fn token_with_too_many(&self, of_token_max: usize) -> Option<usize> {
        let mut counts: HashMap<usize, usize> = HashMap::new();
        for token in self.all.values().filter_map(|connection| connection.busy.token()) {
            *counts.entry(token).or_default() += 1;
        }
        counts.into_iter().find(|(_, count)| *count > of_token_max).map(|(token, _)| token)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    fn known() -> Busy {
        of_token(0)
    }

    fn of_token(token: usize) -> Busy {
        let busy = Busy::default();
        busy.begin().is_of_known_caller(token);
        busy
    }

    #[tokio::test]
    async fn the_oldest_stranger_gives_way_then_who_rests_and_never_who_is_answered() {
        let connections = Connections::new(4);
        let (answered, resting) = (known(), known());
        let _answering = answered.begin();
        let strangers = [Busy::default(), Busy::default()];
        for busy in [&answered, &strangers[0], &resting, &strangers[1]] {
            let place = connections.place().await.unwrap();
            connections.spawn(place, busy.clone(), pending());
        }
        let is_open = |busy: &Busy| connections.lock().all.values().any(|one| one.busy.is_same(busy));
        for gone in [&strangers[0], &strangers[1], &resting] {
            assert!(is_open(gone));
            let place = connections.place().await.unwrap();
            assert!(!is_open(gone));
            let busy = known();
            std::mem::forget(busy.begin());
            connections.spawn(place, busy, pending());
        }
        assert!(connections.place().await.is_none(), "all are needed");
        assert!(is_open(&answered));
    }

    #[tokio::test]
    async fn a_token_that_has_more_than_half_gives_way_before_others_that_rest() {
        let connections = Connections::new(4);
        let (crowd, others) = ([of_token(1), of_token(1), of_token(1), of_token(1)], [of_token(2), of_token(2)]);
        let _answering: Vec<_> = crowd.iter().take(3).map(Busy::begin).collect();
        for busy in crowd.iter().chain(&others) {
            let place = connections.place().await.unwrap();
            connections.spawn(place, busy.clone(), pending());
        }
        let is_open = |busy: &Busy| connections.lock().all.values().any(|one| one.busy.is_same(busy));
        assert!(!is_open(&crowd[3]), "first the one that rests");
        assert!(!is_open(&crowd[0]) && crowd[1..3].iter().chain(&others).all(is_open), "then the oldest");
        drop(connections.place().await.unwrap());
        assert!(!is_open(&others[0]) && crowd[1..3].iter().all(is_open), "half is not too many");
    }

    #[tokio::test]
    async fn who_has_ended_is_no_longer_listed() {
        let connections = Connections::new(1);
        for _ in 0..100 {
            let place = connections.place().await.unwrap();
            connections.spawn(place, known(), async {});
        }
        connections.ended().await;
        assert!(connections.lock().all.is_empty());
    }
}
