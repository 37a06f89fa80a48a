//! A request as its handler sees it: admitted, with its namespace read and its caller known. Bodies are read here, whole,
//! within their limit and their time.

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderMap, Uri, header};
use bytes::{Bytes, BytesMut};
use ekiden::{Queue, TaskRef};
use ekiden_core::id::{Namespace, TaskId};
use ekiden_core::reason::{Language, ReasonCode, Refusal};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use crate::access::Caller;
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
    /// Its headers.
    pub(crate) headers: HeaderMap,
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

    /// The body, which is to be JSON. For those who [`parse`] it where nothing is awaited.
    pub(crate) async fn json_bytes(&mut self) -> Result<Bytes, Refusal> {
        self.must_be("application/json")?;
        self.bytes().await
    }

    /// The body as JSON, or what no body stands for.
    pub(crate) async fn json_or_default<T: DeserializeOwned + Default>(&mut self) -> Result<T, Refusal> {
        let bytes = self.bytes().await?;
        if bytes.is_empty() {
            return Ok(T::default());
        }
        self.must_be("application/json")?;
        parse(&bytes)
    }

    /// Refuses a body of another media type.
    fn must_be(&self, media_type: &str) -> Result<(), Refusal> {
        let given = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let named = given.split(';').next().unwrap_or_default().trim();
        if named.eq_ignore_ascii_case(media_type) {
            return Ok(());
        }
        Err(Refusal::new(ReasonCode::MediaTypeUnsupported).with("expected", media_type))
    }

    /// The body, whole.
    pub(crate) async fn bytes(&mut self) -> Result<Bytes, Refusal> {
        let limit = self.route.body_bytes_max();
        let too_large = || Refusal::new(ReasonCode::BodyTooLarge).with("limit", limit);
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        let said = http_body::Body::size_hint(body);
        if said.lower() > limit as u64 {
            return Err(too_large());
        }
        let read = async {
            // Most bodies come in one piece, which is then used where it is.
            let mut whole = Bytes::new();
            let mut pieces = BytesMut::new();
            while let Some(frame) = body.frame().await {
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
        };
        match tokio::time::timeout(self.shared.options.body_within, read).await {
            Ok(read) => read,
            Err(_) => Err(Refusal::new(ReasonCode::RequestTimeout)),
        }
    }
}

/// JSON that came in a body. Only what is wrong is read a second time, to say where.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(bytes).or_else(|_| {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let value: T = serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| wrong(&error.path().to_string(), error.inner()))?;
        deserializer.end().map_err(|error| wrong(".", error))?;
        Ok(value)
    })
}

/// How many bytes the headers of a request have.
pub(crate) fn check_headers(headers: &HeaderMap, uri: &Uri) -> Result<(), Refusal> {
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if target + bytes > limits::HEADERS_BYTES_MAX {
        return Err(Refusal::new(ReasonCode::HeadersTooLarge).with("limit", limits::HEADERS_BYTES_MAX));
    }
    Ok(())
}
