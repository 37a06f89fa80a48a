//! Streams of events: an answer that stays open. Its writer is a task of its own, which ends when the reader goes away, and
//! says a last word when the server does.

use axum::http::HeaderValue;
use bytes::Bytes;
use ekiden_core::reason::Refusal;
use tokio::sync::mpsc;

use crate::answer::{Answer, Content};
use crate::call::Call;

/// Where a stream is written.
pub(crate) struct Writer {
    pieces: mpsc::Sender<Bytes>,
}

/// The reader has gone away.
#[derive(Debug)]
pub(crate) struct Gone;

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
/// headers follow. It ends with the right of its caller, whatever the writer or the reader is doing.
pub(crate) fn open<F>(
    call: &Call,
    content_type: &'static str,
    write: impl FnOnce(Writer) -> F,
) -> Result<Answer, Refusal>
where
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    let (shared, caller) = (call.shared.clone(), call.caller.clone());
    let place = shared.stream(&caller)?;
    // One piece on its way: whoever is slow is so here, and not in memory.
    let (pieces, read) = mpsc::channel(1);
    let writing = write(Writer { pieces });
    let tracker = shared.rest.clone();
    tracker.spawn(async move {
        shared.metrics.streams.inc();
        tokio::select! {
            // A reader that goes away is how most streams end.
            _ = writing => {}
            _ = shared.tokens.ended(&caller) => {}
        }
        shared.metrics.streams.dec();
        drop(place);
    });
    Ok(Answer::ok(HeaderValue::from_static(content_type), Content::Pieces(read)))
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
