//! Keeps a connection from waking itself. Whoever takes a piece of a body from hyper wakes the side that sends it, which is
//! the same task: with every request it would be polled once more, for nothing.

use std::cell::Cell;
use std::sync::Arc;
use std::task::{Wake, Waker};

thread_local! {
    static HEARING: Cell<Hearing> = const { Cell::new(Hearing::Normal) };
}

/// What happens to wakes that this thread makes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hearing {
    Normal,
    Hushed,
    /// Hushed, and there was one.
    Missed,
}

/// Wakes the task of a connection, unless this thread is hushed. Wakes of other threads always come through.
struct Ear(Waker);

impl Wake for Ear {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        match HEARING.get() {
            Hearing::Normal => self.0.wake_by_ref(),
            Hearing::Hushed | Hearing::Missed => HEARING.set(Hearing::Missed),
        }
    }
}

/// The waker that a connection is polled with.
#[derive(Default)]
pub(crate) struct Hushable(Option<(Arc<Ear>, Waker)>);

impl Hushable {
    /// Around the waker of the task, and whether it is another than before.
    pub(crate) fn around(&mut self, task: &Waker) -> (&Waker, bool) {
        let is_new = !self.0.as_ref().is_some_and(|(ear, _)| ear.0.will_wake(task));
        if is_new {
            self.0 = None;
        }
        let (_, waker) = self.0.get_or_insert_with(|| {
            let ear = Arc::new(Ear(task.clone()));
            (ear.clone(), Waker::from(ear))
        });
        (waker, is_new)
    }
}

/// Does something that may wake a connection of this thread, and says whether it would have.
pub(crate) fn hushed<T>(act: impl FnOnce() -> T) -> (T, bool) {
    struct Hush;

    impl Drop for Hush {
        fn drop(&mut self) {
            HEARING.set(Hearing::Normal);
        }
    }

    HEARING.set(Hearing::Hushed);
    let _hush = Hush;
    let done = act();
    (done, HEARING.get() == Hearing::Missed)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_the_hushed_thread_is_not_heard() {
        let count = Arc::new(Count::default());
        let task = Waker::from(count.clone());
        let mut hushable = Hushable::default();
        let (waker, is_new) = hushable.around(&task);
        let waker = waker.clone();
        assert!(is_new);
        assert!(!hushed(|| ()).1);
        let ((), missed) = hushed(|| {
            waker.wake_by_ref();
            assert_eq!(count.0.load(Ordering::Relaxed), 0);
            std::thread::scope(|scope| {
                scope.spawn(|| waker.wake_by_ref());
            });
        });
        assert!(missed);
        assert_eq!(count.0.load(Ordering::Relaxed), 1, "another thread has a reason");
        waker.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert!(!hushable.around(&task).1);
        assert!(hushable.around(Waker::noop()).1, "another task");
    }
}
