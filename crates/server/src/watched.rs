//! A connection that is watched for requests which do not come, and for answers which are not read: resting between two
//! requests is fine for long, stopping in the middle of one is not, and neither is opening a connection to say nothing. While
//! requests come whole and answers are read, no timer is touched.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
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
    /// Whether a request of this connection came from a caller whom the server knows.
    is_known: AtomicBool,
    /// The token of the latest request; zero for none.
    token: AtomicUsize,
}

/// Which connections the server closes first when it has no room for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Worth {
    /// No caller of it is known.
    Unknown,
    /// Its token has more connections than its part.
    TooMany,
    /// Its client does not read what it asked for.
    Stuck,
    /// It rests between two requests.
    Resting,
    /// A request of a known caller is being answered.
    Needed,
}

impl Busy {
    /// A request begins; the answer's owner keeps what this gives.
    pub(crate) fn begin(&self) -> Answering {
        self.0.turn.fetch_add(1, Ordering::Relaxed);
        Answering(self.clone())
    }

    /// What the connection is worth at this moment.
    pub(crate) fn worth(&self) -> Worth {
        let Turns { is_stuck, is_known, .. } = &*self.0;
        if !is_known.load(Ordering::Relaxed) {
            Worth::Unknown
        } else if is_stuck.load(Ordering::Relaxed) {
            Worth::Stuck
        } else if self.turn().is_multiple_of(2) {
            Worth::Resting
        } else {
            Worth::Needed
        }
    }

    /// The token of the latest request, if there was one.
    pub(crate) fn token(&self) -> Option<usize> {
        Some(self.0.token.load(Ordering::Relaxed)).filter(|token| *token != 0)
    }

    fn is_known(&self) -> bool {
        self.0.is_known.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
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

impl Answering {
    /// The server knows who sends this request: the connection is worth more than one of a stranger, and counts as one of the
    /// caller's token, if there is one.
    pub(crate) fn is_of_known_caller(&self, token: usize) {
        let Turns { is_known, token: known, .. } = &*self.0.0;
        // Written once a connection; the line of memory stays shared after that.
        if !is_known.load(Ordering::Relaxed) || known.load(Ordering::Relaxed) != token {
            is_known.store(true, Ordering::Relaxed);
            known.store(token, Ordering::Relaxed);
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.0.turn.fetch_add(1, Ordering::Relaxed);
    }
}

/// How long a connection waits for its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For the end of headers that have begun, and for each request of a caller that is not known.
    pub(crate) headers_within: Duration,
    /// For a part of an answer to be taken.
    pub(crate) write_within: Duration,
    /// Between two requests of a known caller.
    pub(crate) rests_for: Duration,
}

/// A stream that gives up on headers that have begun and do not end, and on answers that are not read.
pub(crate) struct Watched {
    stream: TokioIo<TcpStream>,
    busy: Busy,
    patience: Patience,
    /// The turn that what follows belongs to.
    turn: u32,
    /// Whether a part of the next request has come, or must: the first is what a connection is opened for.
    begun: bool,
    limit: Option<Pin<Box<Sleep>>>,
    /// Runs while the client takes nothing of an answer.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    pub(crate) fn new(stream: TcpStream, busy: Busy, patience: Patience) -> Self {
        let turn = busy.turn();
        Self { stream: TokioIo::new(stream), busy, patience, turn, begun: true, limit: None, stalled: None }
    }

    /// What came of a write. One byte that is taken is progress, and gives the next as much time.
    fn wrote(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.busy.0.is_stuck.store(written.is_pending(), Ordering::Relaxed);
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let within = self.patience.write_within;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        stalled.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.busy.0.is_stuck.load(Ordering::Relaxed) {
            // Otherwise the system keeps what is not read for minutes, and its memory with it.
            let _ = self.stream.inner().set_zero_linger();
        }
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
        let within = self.patience.headers_within;
        let limit = self.limit.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        limit.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// The time between two requests. Its timer is left where it is when a request comes, and looks again when it fires: most
/// connections never rest for as long as they may, and setting it with each request would cost more than it gives.
pub(crate) struct Rest {
    busy: Busy,
    patience: Patience,
    /// The turn in which it is counted, and when the next request must have come.
    until: Option<(u32, Instant)>,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whom the timer wakes.
    heard_by: Option<Waker>,
}

impl Rest {
    pub(crate) const fn new(busy: Busy, patience: Patience) -> Self {
        Self { busy, patience, until: None, timer: None, heard_by: None }
    }

    fn at_most(&self) -> Duration {
        let Patience { rests_for, headers_within, .. } = self.patience;
        if self.busy.is_known() { rests_for } else { rests_for.min(headers_within) }
    }

    /// Ready when it has lasted too long. Asked whenever the connection has nothing to do.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(turn) = self.busy.rest() else {
            self.until = None;
            return Poll::Pending;
        };
        let until = match self.until {
            Some((counted_in, until)) if counted_in == turn => until,
            _ => now() + self.at_most(),
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
        self.wrote(context, written)
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
        self.wrote(context, written)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn patience(rests_for: Duration) -> Patience {
        let long = Duration::from_secs(3_600);
        Patience { headers_within: long, write_within: long, rests_for }
    }

    #[tokio::test]
    async fn a_timer_that_was_set_for_one_rest_does_not_end_the_next() {
        let busy = Busy::default();
        let mut rest = Rest::new(busy.clone(), patience(Duration::ZERO));
        poll_fn(|context| rest.poll(context)).await;
        rest.patience = patience(Duration::from_secs(3_600));
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
        let mut rest = Rest::new(busy.clone(), patience(Duration::ZERO));
        busy.0.is_stuck.store(true, Ordering::Relaxed);
        assert!(goes_on(&mut rest).await);
        busy.0.is_stuck.store(false, Ordering::Relaxed);
        poll_fn(|context| rest.poll(context)).await;
    }

    #[tokio::test]
    async fn a_caller_that_is_not_known_rests_no_longer_than_headers_take() {
        let busy = Busy::default();
        let limits = Patience { headers_within: Duration::ZERO, ..patience(Duration::from_secs(3_600)) };
        let mut rest = Rest::new(busy.clone(), limits);
        poll_fn(|context| rest.poll(context)).await;
        let answering = busy.begin();
        answering.is_of_known_caller(0);
        drop(answering);
        assert!(goes_on(&mut rest).await);
    }

    #[test]
    fn a_connection_is_worth_what_its_client_does() {
        let busy = Busy::default();
        let answering = busy.begin();
        assert_eq!(busy.worth(), Worth::Unknown, "whatever it asks for");
        answering.is_of_known_caller(0);
        assert_eq!(busy.worth(), Worth::Needed);
        busy.0.is_stuck.store(true, Ordering::Relaxed);
        assert_eq!(busy.worth(), Worth::Stuck);
        busy.0.is_stuck.store(false, Ordering::Relaxed);
        drop(answering);
        assert_eq!(busy.worth(), Worth::Resting);
    }

    async fn goes_on(rest: &mut Rest) -> bool {
        poll_fn(|context| Poll::Ready(rest.poll(context).is_pending())).await
    }
}
