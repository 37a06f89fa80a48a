//! Reads bodies, whole: each within its limit and its time, and all of them within a budget of the server.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ekiden_core::reason::{ReasonCode, Refusal};
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep, timeout};

use crate::access::Caller;
use crate::budget::{Budget, Share};
use crate::hush::hushed;
use crate::limits;
use crate::query::wrong;

/// How fast bodies must come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// All of a body.
    pub(crate) within: Duration,
    /// Each [`limits::BODY_STEP_BYTES`] of a body that takes a part of the budget.
    pub(crate) step_within: Duration,
}

/// What a body must keep to.
pub(crate) struct Terms<'a> {
    /// The most bytes it may have.
    pub(crate) limit: usize,
    pub(crate) pace: Pace,
    /// What all bodies share.
    pub(crate) budget: &'a Budget,
    /// Who sends it.
    pub(crate) caller: &'a Caller,
    /// What this one has of it.
    pub(crate) share: &'a mut Share,
}

/// A body, whole.
pub(crate) async fn read(body: &mut Incoming, terms: Terms<'_>) -> Result<Bytes, Refusal> {
    let within = terms.pace.within;
    let mut read = pin!(whole(body, terms));
    // Most bodies are there with their headers, and need no timer.
    let at_once = poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await;
    match at_once {
        Poll::Ready(read) => read,
        Poll::Pending => timeout(within, read).await.unwrap_or_else(|_| Err(too_slow())),
    }
}

fn too_slow() -> Refusal {
    Refusal::new(ReasonCode::RequestTimeout)
}

async fn whole(body: &mut Incoming, terms: Terms<'_>) -> Result<Bytes, Refusal> {
    let Terms { limit, pace, budget, caller, share } = terms;
    let too_large = || Refusal::new(ReasonCode::BodyTooLarge).with("limit", limit);
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    // Most bodies come in one piece, which is then used where it is.
    let mut whole = Bytes::new();
    let mut pieces = BytesMut::new();
    let mut step: Option<Step> = None;
    loop {
        let next = match &mut step {
            Some(step) => step.frame(body).await?,
            None => frame(body).await,
        };
        let Some(next) = next else { break };
        let next = next.map_err(|_| wrong("body", "it broke off, or is not what its headers say"))?;
        let Ok(data) = next.into_data() else { continue };
        let length = whole.len() + pieces.len() + data.len();
        if length > limit {
            return Err(too_large());
        }
        if length > limits::BODY_FREE_BYTES {
            budget.grow(share, caller, length)?;
            step.get_or_insert_with(|| Step::new(length, pace.step_within)).came(length);
        }
        if whole.is_empty() && pieces.is_empty() {
            whole = data;
        } else {
            let expected = usize::try_from(body.size_hint().lower()).map_or(length, |left| length.saturating_add(left));
            make_room(&mut pieces, length, expected);
            pieces.extend_from_slice(&std::mem::take(&mut whole));
            pieces.extend_from_slice(&data);
        }
    }
    Ok(if pieces.is_empty() { whole } else { pieces.freeze() })
}

/// Lets pieces grow to a length: to four times of it, so that little is copied on the way, but not beyond what is expected.
fn make_room(pieces: &mut BytesMut, length: usize, expected: usize) {
    if length > pieces.capacity() {
        let room = length.saturating_mul(4).min(expected).max(length);
        pieces.reserve(room - pieces.len());
    }
}

/// The time in which the next part of a large body must come: it holds what others could use.
struct Step {
    /// How long the body is to be by then.
    until: usize,
    within: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Step {
    fn new(length: usize, within: Duration) -> Self {
        Self { until: length + limits::BODY_STEP_BYTES, within, timer: Box::pin(sleep(within)) }
    }

    fn came(&mut self, length: usize) {
        if length >= self.until {
            *self = Self::new(length, self.within);
        }
    }

    async fn frame(&mut self, body: &mut Incoming) -> Result<Option<Result<Frame<Bytes>, hyper::Error>>, Refusal> {
        tokio::select! {
            biased;
            frame = frame(body) => Ok(frame),
            () = &mut self.timer => Err(too_slow()),
        }
    }
}

/// The next part of a body. Taking it wakes the connection to send more, which is this very task: where there is no more, it
/// is spared that.
async fn frame(body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    poll_fn(|context| {
        if body.is_end_stream() {
            return Poll::Ready(None);
        }
        let (polled, has_woken) = hushed(|| Pin::new(&mut *body).poll_frame(context));
        if has_woken && !body.is_end_stream() {
            context.waker().wake_by_ref();
        }
        polled
    })
    .await
}
