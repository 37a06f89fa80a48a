//! Work that is carried to its end although nobody waits for it any more: the client of a mutation may go away at any
//! moment, and what it asked for must not be left in the middle.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio_util::task::TaskTracker;

/// Work that somebody waits for.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Why work has no outcome: it panicked.
pub(crate) type Panicked = Box<dyn Any + Send>;

/// Work that goes on by itself when it is dropped before its end. It costs nothing while somebody waits for it.
pub(crate) struct Finish<T: Send + 'static> {
    work: Option<Work<T>>,
    /// Who carries it on; nobody, if it may be dropped.
    rest: Option<TaskTracker>,
}

impl<T: Send + 'static> Finish<T> {
    /// Work that must come to its end.
    pub(crate) fn always(work: Work<T>, rest: TaskTracker) -> Self {
        Self { work: Some(work), rest: Some(rest) }
    }

    /// Work that ends when nobody waits for it.
    pub(crate) fn while_heard(work: Work<T>) -> Self {
        Self { work: Some(work), rest: None }
    }
}

impl<T: Send + 'static> Future for Finish<T> {
    type Output = Result<T, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        let done = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(done)) => Ok(done),
            Err(panic) => Err(panic),
        };
        self.work = None;
        Poll::Ready(done)
    }
}

impl<T: Send + 'static> Drop for Finish<T> {
    fn drop(&mut self) {
        if let (Some(work), Some(rest)) = (self.work.take(), self.rest.take())
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            rest.spawn_on(async move { drop(work.await) }, &runtime);
        }
    }
}

/// What somebody said when it panicked.
pub(crate) fn words(panic: &Panicked) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it said nothing")
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn what_must_end_ends_without_its_listener_and_the_rest_does_not() {
        for must_end in [true, false] {
            let tracker = TaskTracker::new();
            let (go, gone) = oneshot::channel::<()>();
            let (told, tell) = oneshot::channel();
            let work: Work<()> = Box::pin(async move {
                gone.await.ok();
                told.send(()).ok();
            });
            let mut finish = if must_end { Finish::always(work, tracker.clone()) } else { Finish::while_heard(work) };
            let started = futures_poll(&mut finish).await;
            assert!(started.is_pending());
            drop(finish);
            go.send(()).ok();
            assert_eq!(tell.await.is_ok(), must_end);
            tracker.close();
            tracker.wait().await;
        }
    }

    #[tokio::test]
    async fn a_panic_is_an_outcome() {
        let panic = Finish::<()>::while_heard(Box::pin(async { panic!("planted") })).await.unwrap_err();
        assert_eq!(words(&panic), "planted");
    }

    async fn futures_poll<T: Send + 'static>(finish: &mut Finish<T>) -> Poll<Result<T, Panicked>> {
        std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *finish).poll(context))).await
    }
}
