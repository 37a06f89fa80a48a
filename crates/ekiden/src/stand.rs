//! Claims that wait where tasks are handed in. Whoever hands one in serves the first claim that waits for its like in the same
//! request to the store: one sync for both, and nobody has to be woken to come and look.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ekiden_core::id::{Kind, PoolName};
use tokio::sync::oneshot;

use crate::port::{Ask, Leased};

/// 32 claims that are looked at for each task: those behind them hear the bell like everybody else.
const LOOKED_AT_MAX: usize = 32;

/// The claims that wait in a namespace, in the order in which they came.
#[derive(Debug, Default)]
pub struct Stands {
    waiting: Mutex<Waiting>,
    /// How many there are. Mostly there is none, and whoever hands a task in sees it here without the lock.
    count: AtomicUsize,
    /// Tasks that were handed to claims whose owners went away before they took them.
    unheard: Mutex<Vec<Leased>>,
    has_unheard: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    claims: BTreeMap<u64, Standing>,
}

/// A claim that waits, on the side of whoever serves it. Dropped unserved, its owner looks by itself.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) ask: Ask,
    served: oneshot::Sender<Vec<Leased>>,
}

/// A claim that waits, on the side of its owner. As long as it stands, its owner must not ask by itself: both would be given
/// the same tasks.
#[derive(Debug)]
pub struct Stand<'a> {
    stands: &'a Stands,
    number: u64,
    /// Nothing once it was heard.
    served: Option<oneshot::Receiver<Vec<Leased>>>,
}

impl Stands {
    /// Lets a claim wait.
    pub fn join(&self, ask: Ask) -> Stand<'_> {
        let (sender, served) = oneshot::channel();
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        waiting.claims.insert(number, Standing { ask, served: sender });
        self.count.store(waiting.claims.len(), Ordering::Release);
        Stand { stands: self, number, served: Some(served) }
    }

    /// The first claim that asks for such a task. It stands no more.
    pub(crate) fn take(&self, pool: &PoolName, kind: &Kind) -> Option<Standing> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut waiting = self.waiting();
        let asks = |standing: &Standing| standing.ask.pools.contains(pool) && standing.ask.kinds.contains(kind);
        let mut first = waiting.claims.iter().take(LOOKED_AT_MAX);
        let number = first.find_map(|(number, standing)| asks(standing).then_some(*number))?;
        self.remove(&mut waiting, number)
    }

    /// Keeps tasks that the owner of a claim has not taken, for the next claim to give back.
    fn keep_unheard(&self, leased: Vec<Leased>) {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner).extend(leased);
        self.has_unheard.store(true, Ordering::Release);
    }

    /// Takes them, to give them back.
    pub(crate) fn take_unheard(&self) -> Vec<Leased> {
        if !self.has_unheard.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.unheard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn remove(&self, waiting: &mut Waiting, number: u64) -> Option<Standing> {
        let removed = waiting.claims.remove(&number);
        self.count.store(waiting.claims.len(), Ordering::Release);
        removed
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Entries come and go whole, so a panic leaves nothing half done.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Standing {
    /// Hands the tasks over. Gives them back if their owner is gone.
    pub(crate) fn serve(self, leased: Vec<Leased>) -> Result<(), Vec<Leased>> {
        self.served.send(leased)
    }
}

impl Stand<'_> {
    /// Waits to be served. Nothing comes if whoever was about to serve it could not.
    pub async fn served(&mut self) -> Vec<Leased> {
        let Some(served) = &mut self.served else { return Vec::new() };
        let leased = served.await.unwrap_or_default();
        self.served = None;
        leased
    }

    /// Stops waiting. Somebody may be about to serve it: then that comes first.
    pub async fn leave(mut self) -> Vec<Leased> {
        let stood = self.stands.remove(&mut self.stands.waiting(), self.number).is_some();
        if stood { Vec::new() } else { self.served().await }
    }
}

impl Drop for Stand<'_> {
    fn drop(&mut self) {
        self.stands.remove(&mut self.stands.waiting(), self.number);
        let Some(served) = &mut self.served else { return };
        // From now on an enqueue that serves it learns that it came too late.
        served.close();
        if let Ok(leased) = served.try_recv()
            && !leased.is_empty()
        {
            self.stands.keep_unheard(leased);
        }
    }
}

#[cfg(test)]
mod tests {
    use ekiden_core::id::{Namespace, OpId, RunnerId};

    use super::*;

    fn ask(kind: &str) -> Ask {
        Ask {
            id: OpId::from_bits(1),
            namespace: Namespace::new("default").unwrap(),
            pools: [pool()].into(),
            kinds: [Kind::new(kind).unwrap()].into(),
            limit: 1,
            holder: RunnerId::new("r").unwrap(),
        }
    }

    fn pool() -> PoolName {
        PoolName::new("work").unwrap()
    }

    #[test]
    fn the_first_that_asks_for_such_a_task_is_taken_once() {
        let stands = Stands::default();
        let _other = stands.join(ask("b"));
        let _first = stands.join(ask("a"));
        let kind = Kind::new("a").unwrap();
        assert!(stands.take(&pool(), &kind).is_some());
        assert!(stands.take(&pool(), &kind).is_none());
        assert!(stands.take(&PoolName::new("elsewhere").unwrap(), &Kind::new("b").unwrap()).is_none());
    }

    #[test]
    fn whoever_went_away_is_not_found() {
        let stands = Stands::default();
        drop(stands.join(ask("a")));
        assert!(stands.take(&pool(), &Kind::new("a").unwrap()).is_none());
    }

    #[tokio::test]
    async fn who_leaves_hears_whoever_was_about_to_serve() {
        let stands = Stands::default();
        let (early, late) = (stands.join(ask("a")), stands.join(ask("a")));
        let standing = stands.take(&pool(), &Kind::new("a").unwrap()).unwrap();
        let mut leaves = std::pin::pin!(early.leave());
        let waits = std::future::poll_fn(|context| std::task::Poll::Ready(leaves.as_mut().poll(context))).await;
        assert!(waits.is_pending(), "it may be given something");
        standing.serve(Vec::new()).unwrap();
        assert!(leaves.await.is_empty());
        assert!(late.leave().await.is_empty(), "nobody was about to serve this one");
    }

    #[test]
    fn what_nobody_hears_comes_back() {
        let stands = Stands::default();
        let stand = stands.join(ask("a"));
        let standing = stands.take(&pool(), &Kind::new("a").unwrap()).unwrap();
        drop(stand);
        assert!(standing.serve(Vec::new()).is_err());
    }
}
