//! A request as its handler sees it: admitted, with its namespace read and its caller known. Bodies are read here, whole,
//! within their limit and their time.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use axum::http::{HeaderValue, Uri};
use bytes::{Bytes, BytesMut};
use ekiden::{Queue, TaskRef};
use ekiden_core::id::{Namespace, TaskId};
use ekiden_core::reason::{Language, ReasonCode, Refusal};
use ekiden_wire::Glance;
use http_body::{Body as _, Frame};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use crate::access::Caller;
use crate::finish::{Finish, Work, words};
use crate::hush::hushed;
use crate::query::{Query, wrong};
use crate::route::Route;
use crate::router::Params;
use crate::shared::Shared;

/// A request under way.
pub(crate) struct Call {
    /// The server.
    pub(crate) shared: Arc<Shared>,
    /// Where it arrived.
    pub(crate) route: &'static Route,
    /// Who sent it.
    pub(crate) caller: Caller,
    /// The caller's language.
    pub(crate) language: Language,
    /// Whether its headers say that the body is JSON.
    pub(crate) is_json: bool,
    pub(crate) idempotency_key: Option<HeaderValue>,
    pub(crate) last_event_id: Option<HeaderValue>,
    pub(crate) uri: Uri,
    pub(crate) params: Params,
    pub(crate) namespace: Option<Namespace>,
    /// Nobody else has it; the lock only lets the rest be shared while something is awaited.
    pub(crate) body: Mutex<Incoming>,
}

impl Call {
    /// The port.
    pub(crate) fn queue(&self) -> &Arc<dyn Queue> {
        &self.shared.queue
    }

    /// The namespace of the path.
    pub(crate) fn namespace(&self) -> Result<Namespace, Refusal> {
        self.namespace.clone().ok_or_else(|| wrong("ns", "the path names no namespace"))
    }

    /// The task of the path.
    pub(crate) fn task(&self) -> Result<TaskRef, Refusal> {
        Ok(TaskRef { namespace: self.namespace()?, id: self.id::<TaskId>("id")? })
    }

    /// An id of the path.
    pub(crate) fn id<I: TryFrom<String, Error = Refusal>>(&self, name: &str) -> Result<I, Refusal> {
        I::try_from(self.param(name)?.to_owned())
    }

    /// A part of the path, decoded once.
    pub(crate) fn param(&self, name: &str) -> Result<&str, Refusal> {
        let found = self.params.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| value.as_str()).ok_or_else(|| wrong(name, "missing"))
    }

    /// What stands behind the question mark.
    pub(crate) fn query(&self) -> Result<Query<'_>, Refusal> {
        Query::parse(self.uri.query(), self.route.query)
    }

    /// Does something to its end, also if the caller goes away meanwhile.
    pub(crate) async fn finish<T: Send + 'static>(&self, work: Work<T>) -> Result<T, Refusal> {
        Finish::always(work, self.shared.rest.clone()).await.map_err(|panic| {
            tracing::error!(why = words(&panic), "a part of a request panicked");
            self.shared.metrics.panics.inc();
            Refusal::new(ReasonCode::ServerFault)
        })
    }

    /// The body as JSON.
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Refusal> {
        parse(&self.json_bytes().await?)
    }

    /// The body, which is to be JSON. For those who [`glance`] at it where nothing is awaited.
    pub(crate) async fn json_bytes(&mut self) -> Result<Bytes, Refusal> {
        self.must_be_json()?;
        self.bytes().await
    }

    /// The body as JSON, or what no body stands for.
    pub(crate) async fn json_or_default<T: DeserializeOwned + Default>(&mut self) -> Result<T, Refusal> {
        let bytes = self.bytes().await?;
        if bytes.is_empty() {
            return Ok(T::default());
        }
        self.must_be_json()?;
        parse(&bytes)
    }

    /// Refuses a body of another media type.
    fn must_be_json(&self) -> Result<(), Refusal> {
        if self.is_json {
            return Ok(());
        }
        Err(Refusal::new(ReasonCode::MediaTypeUnsupported).with("expected", "application/json"))
    }

    /// The body, whole.
    pub(crate) async fn bytes(&mut self) -> Result<Bytes, Refusal> {
        let within = self.shared.options.body_within;
        let limit = self.route.body_bytes_max();
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut read = pin!(whole(body, limit));
        // Most bodies are there with their headers, and need no timer.
        let at_once = poll_fn(|context| Poll::Ready(read.as_mut().poll(context))).await;
        match at_once {
            Poll::Ready(read) => read,
            Poll::Pending => {
                let read = tokio::time::timeout(within, read).await;
                read.unwrap_or_else(|_| Err(Refusal::new(ReasonCode::RequestTimeout)))
            }
        }
    }
}

/// A body, within its limit.
async fn whole(body: &mut Incoming, limit: usize) -> Result<Bytes, Refusal> {
    let too_large = || Refusal::new(ReasonCode::BodyTooLarge).with("limit", limit);
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    // Most bodies come in one piece, which is then used where it is.
    let mut whole = Bytes::new();
    let mut pieces = BytesMut::new();
    while let Some(frame) = frame(body).await {
        let frame = frame.map_err(|_| wrong("body", "it broke off, or is not what its headers say"))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + pieces.len() + data.len() > limit {
            return Err(too_large());
        }
        if whole.is_empty() && pieces.is_empty() {
            whole = data;
        } else {
            pieces.extend_from_slice(&std::mem::take(&mut whole));
            pieces.extend_from_slice(&data);
        }
    }
    Ok(if pieces.is_empty() { whole } else { pieces.freeze() })
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

/// JSON that came in a body, of a shape that nearly everybody writes in the same way.
pub(crate) fn glance<T: Glance + DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    std::str::from_utf8(bytes).ok().and_then(T::glance).map_or_else(|| parse(bytes), Ok)
}

/// JSON that came in a body. Only what is wrong is read a second time, to say where.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes).or_else(|_| {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let value: T = serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| wrong(&error.path().to_string(), error.inner()))?;
        deserializer.end().map_err(|error| wrong(".", error))?;
        Ok(value)
    })
}
