//! Who waits for the disk, and how they are told. Waking a runtime from another thread costs a system call, so of all who
//! waited on one thread only the first is woken from there, and wakes the others where they are.

use std::thread::{self, ThreadId};

use ekiden_store::StoreError;
use tokio::sync::oneshot;

/// The side of somebody who waits.
pub(crate) struct Wait(oneshot::Receiver<Word>);

/// The side of whoever will tell.
pub(crate) struct Waiter {
    thread: ThreadId,
    told: oneshot::Sender<Word>,
}

/// What somebody is told, and whom to pass it on to. Whoever goes away without a look passes it on as well.
struct Word {
    outcome: Result<(), StoreError>,
    others: Vec<oneshot::Sender<Word>>,
}

/// Somebody who waits, on this thread.
pub(crate) fn wait() -> (Waiter, Wait) {
    let (told, wait) = oneshot::channel();
    (Waiter { thread: thread::current().id(), told }, Wait(wait))
}

impl Wait {
    /// Waits. `None` if nobody will tell any more.
    pub(crate) async fn told(self) -> Option<Result<(), StoreError>> {
        self.0.await.ok().map(|word| word.outcome.clone())
    }

    /// The same, on a thread of its own.
    pub(crate) fn told_here(self) -> Option<Result<(), StoreError>> {
        self.0.blocking_recv().ok().map(|word| word.outcome.clone())
    }
}

/// Tells all of them.
pub(crate) fn tell(waiters: impl IntoIterator<Item = Waiter>, outcome: &Result<(), StoreError>) {
    let mut threads: Vec<(ThreadId, oneshot::Sender<Word>, Vec<oneshot::Sender<Word>>)> = Vec::new();
    for Waiter { thread, told } in waiters {
        match threads.iter_mut().find(|(known, ..)| *known == thread) {
            Some((_, _, others)) => others.push(told),
            None => threads.push((thread, told, Vec::new())),
        }
    }
    for (_, first, others) in threads {
        // One that nobody hears is dropped, and passes on what it says.
        let _ = first.send(Word { outcome: outcome.clone(), others });
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        for other in self.others.drain(..) {
            // Whoever went away does not need the answer.
            let _ = other.send(Self { outcome: self.outcome.clone(), others: Vec::new() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everybody_hears_although_only_the_first_is_told() {
        let (waiters, waits): (Vec<_>, Vec<_>) = (0..3).map(|_| wait()).unzip();
        tell(waiters, &Ok(()));
        for wait in waits {
            assert!(matches!(wait.told().await, Some(Ok(()))));
        }
    }

    #[tokio::test]
    async fn a_first_one_who_goes_away_holds_nobody_up() {
        for tells_before in [true, false] {
            let (waiters, mut waits): (Vec<_>, Vec<_>) = (0..3).map(|_| wait()).unzip();
            let first = waits.remove(0);
            if tells_before {
                tell(waiters, &Ok(()));
                drop(first);
            } else {
                drop(first);
                tell(waiters, &Ok(()));
            }
            for wait in waits {
                assert!(matches!(wait.told().await, Some(Ok(()))));
            }
        }
    }

    #[tokio::test]
    async fn those_of_another_thread_wait_for_nobody_here() {
        let (here, waits_here) = wait();
        let (there, waits_there) = thread::spawn(wait).join().unwrap();
        tell([here, there], &Ok(()));
        assert!(matches!(waits_there.told().await, Some(Ok(()))), "although the first one has not looked yet");
        assert!(matches!(waits_here.told().await, Some(Ok(()))));
    }

    #[tokio::test]
    async fn who_is_forgotten_hears_nothing() {
        let (waiter, wait) = wait();
        drop(waiter);
        assert!(wait.told().await.is_none());
    }
}
