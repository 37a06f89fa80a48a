//! A connection that is watched for requests which do not come: resting between two is fine for long, stopping in the middle
//! of one is not, and neither is opening a connection to say nothing. While requests come whole, no timer is touched.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// Whether a request of a connection is being answered. Cheap to clone; all clones are of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy(Arc<Turns>);

#[derive(Debug, Default)]
struct Turns {
    /// Odd while a request is answered, until the last of the answer is handed over; one more with each change.
    turn: AtomicU32,
    /// Whether a part of an answer waits for its reader.
    is_stuck: AtomicBool,
}

impl Busy {
    /// A request begins; the answer's owner keeps what this gives.
    pub(crate) fn begin(&self) -> Answering {
        self.0.turn.fetch_add(1, Ordering::Relaxed);
        Answering(self.clone())
    }

    fn turn(&self) -> u32 {
        self.0.turn.load(Ordering::Relaxed)
    }

    /// The turn, if it is the caller's.
    fn rest(&self) -> Option<u32> {
        let turn = self.turn();
        (turn.is_multiple_of(2) && !self.0.is_stuck.load(Ordering::Relaxed)).then_some(turn)
    }
}

/// As long as it lives, a request is being answered.
#[derive(Debug)]
pub(crate) struct Answering(Busy);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.0.turn.fetch_add(1, Ordering::Relaxed);
    }
}

/// A stream that gives up on headers that have begun and do not end.
pub(crate) struct Watched {
    stream: TokioIo<TcpStream>,
    busy: Busy,
    headers_within: Duration,
    /// The turn that what follows belongs to.
    turn: u32,
    /// Whether a part of the next request has come, or must: the first is what a connection is opened for.
    begun: bool,
    limit: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    pub(crate) fn new(stream: TcpStream, busy: Busy, headers_within: Duration) -> Self {
        let turn = busy.turn();
        Self { stream: TokioIo::new(stream), busy, headers_within, turn, begun: true, limit: None }
    }
}

impl Read for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let turn = self.busy.turn();
        if turn != self.turn {
            self.turn = turn;
            self.begun = false;
            self.limit = None;
        }
        if !turn.is_multiple_of(2) {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            self.begun = true;
            return Poll::Ready(read);
        }
        if !self.begun {
            return Poll::Pending;
        }
        let within = self.headers_within;
        let limit = self.limit.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        limit.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// The time between two requests. Its timer is left where it is when a request comes, and looks again when it fires: most
/// connections never rest for as long as they may, and setting it with each request would cost more than it gives.
pub(crate) struct Rest {
    busy: Busy,
    at_most: Duration,
    /// The turn in which it is counted, and when the next request must have come.
    until: Option<(u32, Instant)>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whom the timer wakes.
    heard_by: Option<Waker>,
}

impl Rest {
    pub(crate) const fn new(busy: Busy, at_most: Duration) -> Self {
        Self { busy, at_most, until: None, timer: None, heard_by: None }
    }

    /// Ready when it has lasted too long. Asked whenever the connection has nothing to do.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(turn) = self.busy.rest() else {
            self.until = None;
            return Poll::Pending;
        };
        let until = match self.until {
            Some((counted_in, until)) if counted_in == turn => until,
            _ => now() + self.at_most,
        };
        self.until = Some((turn, until));
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        let is_heard = self.heard_by.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        if is_heard && !timer.is_elapsed() {
            return Poll::Pending;
        }
        while timer.as_mut().poll(context).is_ready() {
            if timer.deadline() >= until {
                return Poll::Ready(());
            }
            // It was set for an earlier rest.
            timer.as_mut().reset(until);
        }
        self.heard_by = Some(context.waker().clone());
        Poll::Pending
    }
}

#[expect(clippy::disallowed_methods, reason = "timers of the runtime go by the runtime's clock")]
fn now() -> Instant {
    Instant::now()
}

impl Write for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.busy.0.is_stuck.store(written.is_pending(), Ordering::Relaxed);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.busy.0.is_stuck.store(written.is_pending(), Ordering::Relaxed);
        written
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_timer_that_was_set_for_one_rest_does_not_end_the_next() {
        let busy = Busy::default();
        let mut rest = Rest::new(busy.clone(), Duration::ZERO);
        poll_fn(|context| rest.poll(context)).await;
        rest.at_most = Duration::from_secs(3_600);
        let answering = busy.begin();
        assert!(goes_on(&mut rest).await, "somebody is answered");
        drop(answering);
        for _ in 0..2 {
            assert!(goes_on(&mut rest).await);
        }
        assert!(rest.timer.is_some_and(|timer| !timer.is_elapsed()), "it is set anew");
    }

    #[tokio::test]
    async fn who_has_not_read_its_answer_does_not_rest() {
        let busy = Busy::default();
        let mut rest = Rest::new(busy.clone(), Duration::ZERO);
        busy.0.is_stuck.store(true, Ordering::Relaxed);
        assert!(goes_on(&mut rest).await);
        busy.0.is_stuck.store(false, Ordering::Relaxed);
        poll_fn(|context| rest.poll(context)).await;
    }

    async fn goes_on(rest: &mut Rest) -> bool {
        poll_fn(|context| Poll::Ready(rest.poll(context).is_pending())).await
    }
}
