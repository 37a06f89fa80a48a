//! Streams of events: an answer that stays open. Its writer is a task of its own, which ends when the reader goes away, and
//! says a last word when the server does.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use ekiden_core::reason::Refusal;
use http_body::Frame;
use tokio::sync::mpsc;

use crate::shared::Shared;

/// Where a stream is written.
pub(crate) struct Writer {
    pieces: mpsc::Sender<Bytes>,
}

/// The reader has gone away.
#[derive(Debug)]
pub(crate) struct Gone;

struct Pieces(mpsc::Receiver<Bytes>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

impl Writer {
    /// Writes a piece; a reader that is slow makes it wait.
    pub(crate) async fn write(&self, piece: impl Into<Bytes>) -> Result<(), Gone> {
        self.pieces.send(piece.into()).await.map_err(|_| Gone)
    }

    /// Waits until the reader has gone away.
    pub(crate) async fn gone(&self) {
        self.pieces.closed().await;
    }
}

/// Opens a stream, if there is a place for one more. What `write` needs to hear must be subscribed to by now: the answer's
/// headers follow.
pub(crate) fn open<F>(
    shared: &Arc<Shared>,
    content_type: &'static str,
    write: impl FnOnce(Writer) -> F,
) -> Result<Response, Refusal>
where
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    let place = shared.stream()?;
    // One piece on its way: whoever is slow is so here, and not in memory.
    let (pieces, read) = mpsc::channel(1);
    let writing = write(Writer { pieces });
    let shared = shared.clone();
    let tracker = shared.rest.clone();
    tracker.spawn(async move {
        shared.metrics.streams.inc();
        // A reader that goes away is how most streams end.
        let _ = writing.await;
        shared.metrics.streams.dec();
        drop(place);
    });
    let mut response = Response::new(Body::new(Pieces(read)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}

/// An event in the form that browsers read.
pub(crate) fn event(name: &str, id: Option<&str>, data: &str) -> String {
    let mut text = String::with_capacity(data.len() + 96);
    if let Some(id) = id {
        text.extend(["id: ", id, "\n"]);
    }
    text.extend(["event: ", name, "\ndata: ", data, "\n\n"]);
    text
}
