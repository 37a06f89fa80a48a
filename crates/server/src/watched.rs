//! A connection that is watched for headers which do not come: resting between two requests is fine for long, stopping in
//! the middle of one is not, and neither is opening a connection to say nothing. No timer runs while requests come whole.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// Whether a request of a connection is being answered. Cheap to clone; all clones are of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy(Arc<AtomicBool>);

impl Busy {
    pub(crate) fn set(&self, busy: bool) {
        self.0.store(busy, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream that gives up on headers that have begun and do not end.
pub(crate) struct Watched {
    stream: TokioIo<TcpStream>,
    busy: Busy,
    headers_within: Duration,
    /// Whether a part of the next request has come, or must: the first is what a connection is opened for.
    begun: bool,
    limit: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    pub(crate) fn new(stream: TcpStream, busy: Busy, headers_within: Duration) -> Self {
        Self { stream: TokioIo::new(stream), busy, headers_within, begun: true, limit: None }
    }
}

impl Read for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.busy.is_set() {
            self.begun = false;
            self.limit = None;
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(read) => {
                self.begun = true;
                Poll::Ready(read)
            }
            Poll::Pending if self.begun => {
                let within = self.headers_within;
                let limit = self.limit.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
                limit.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Write for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
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
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }
}
