//! A request as its handler sees it: admitted, with its namespace read and its caller known.

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderValue, Uri};
use bytes::Bytes;
use ekiden::{Queue, TaskRef};
use ekiden_core::id::{Namespace, TaskId};
use ekiden_core::reason::{Language, ReasonCode, Refusal};
use ekiden_wire::Glance;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use crate::access::Caller;
use crate::body::{self, Terms};
use crate::budget::Share;
use crate::finish::{Finish, Work, words};
use crate::limits;
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
    /// What the body takes of the budget that all bodies share.
    pub(crate) share: Share,
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

    /// Waits until an answer of so many bytes may be made.
    pub(crate) async fn room_for_answer(&self, bytes: usize) -> Result<Share, Refusal> {
        self.shared.answers.wait(&self.caller, bytes, limits::ANSWER_WAITS).await
    }

    /// Counts an answer of so many bytes before what it tells is carried out. A small one counts for nothing.
    pub(crate) fn count_answer(&self, share: &mut Share, bytes: usize) -> Result<(), Refusal> {
        if bytes <= limits::ANSWER_FREE_BYTES {
            return Ok(());
        }
        self.shared.answers.grow(share, &self.caller, bytes)
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
        let Shared { options, bodies, .. } = &*self.shared;
        let limit = self.route.body_bytes_max();
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        let (caller, share) = (&self.caller, &mut self.share);
        let read = body::read(body, Terms { limit, pace: options.pace, budget: bodies, caller, share }).await;
        // A body takes as long as its sender likes, and its sender's right may have ended meanwhile.
        self.shared.tokens.has_ended(&self.caller).map_or(read, Err)
    }

    /// Gives back what the body took of the server's budget, but for what is kept of a claim while it waits.
    pub(crate) fn keep_claim_of_body(&mut self) {
        self.share.shrink(limits::CLAIM_NAMES_BYTES);
    }
}

/// JSON that came in a body, of a shape that nearly everybody writes in the same way.
pub(crate) fn glance<T: Glance + DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    std::str::from_utf8(bytes).ok().and_then(T::glance).map_or_else(|| parse(bytes), Ok)
}

/// Refuses an array, whose items serde would take for the fields of an object in their order. Every body is an object.
fn must_be_object(bytes: &[u8]) -> Result<(), Refusal> {
    let is_array = bytes.trim_ascii_start().first() == Some(&b'[');
    if is_array { Err(wrong(".", "an array where an object is expected")) } else { Ok(()) }
}

/// JSON that came in a body. Only what is wrong is read a second time, to say where.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    must_be_object(bytes)?;
    serde_json::from_slice(bytes).or_else(|_| {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let value: T = serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| wrong(&error.path().to_string(), error.inner()))?;
        deserializer.end().map_err(|error| wrong(".", error))?;
        Ok(value)
    })
}
