//! Answers: JSON, the status that fits a refusal, and the headers that every answer has.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use ekiden::Error;
use ekiden_core::reason::{Category, Language, ReasonCode, Refusal};
use ekiden_wire::{ErrorBody, ErrorDetail, Text};
use http_body::{Body, Frame, SizeHint};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::access::Caller;
use crate::budget::{Budget, Share};
use crate::call::Call;
use crate::limits;
use crate::watched::Answering;

/// The name under which a request stands in the log.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("ekiden-request-id");

/// What an answer has to do with pages of other sites.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// 32 headers: a map with room for more, as somebody who sends many leaves it, is not kept for the connection's next requests.
const HEADERS_KEPT_MAX: usize = 32;

/// What a handler answers. The headers that every answer has come when it leaves.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    content_type: Option<HeaderValue>,
    further: Vec<(HeaderName, HeaderValue)>,
    content: Content,
    /// What was taken of the budget before it was made.
    share: Share,
}

/// What follows the head of an answer.
pub(crate) enum Content {
    /// All of it.
    Whole(Bytes),
    /// Pieces, as they come.
    Pieces(mpsc::Receiver<Bytes>),
}

/// What hyper sends. The request is being answered until this is gone.
pub(crate) struct Outgoing {
    content: Content,
    _answering: Answering,
}

impl Answer {
    /// Content with the status 200.
    pub(crate) fn ok(content_type: HeaderValue, content: Content) -> Self {
        let share = Share::default();
        Self { status: StatusCode::OK, content_type: Some(content_type), further: Vec::new(), content, share }
    }

    /// The same, made within a share of the budget for answers.
    pub(crate) fn within(self, share: Share) -> Self {
        Self { share, ..self }
    }

    /// Counts a large answer until its client has taken it. A stream counts for itself.
    pub(crate) fn counted(self, budget: &Budget, caller: &Caller) -> Result<Self, Refusal> {
        let Self { content, mut share, .. } = self;
        let content = match content {
            Content::Whole(bytes) if bytes.len() > limits::ANSWER_FREE_BYTES => {
                share.shrink(bytes.len());
                budget.grow(&mut share, caller, bytes.len())?;
                Content::Whole(share.hold(bytes))
            }
            content => content,
        };
        Ok(Self { content, share: Share::default(), ..self })
    }

    /// The same with one header more, which replaces what every answer has of its name.
    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.further.push((name, value));
        self
    }

    /// Keeps the head, which says how long the rest would have been, and drops the rest.
    pub(crate) fn beheaded(self) -> Self {
        let empty = Content::Whole(Bytes::new());
        match self.content {
            Content::Whole(bytes) => {
                let length = bytes.len().into();
                Self { content: empty, ..self }.with(header::CONTENT_LENGTH, length)
            }
            Content::Pieces(_) => Self { content: empty, ..self },
        }
    }

    /// What goes out. The map is the request's: hyper takes it back for the next, so its room is made once for a connection.
    pub(crate) fn into_response(
        self,
        mut headers: HeaderMap,
        request_id: HeaderValue,
        answering: Answering,
    ) -> Response<Outgoing> {
        if headers.capacity() > HEADERS_KEPT_MAX {
            headers = HeaderMap::new();
        }
        headers.clear();
        if let Some(content_type) = self.content_type {
            headers.insert(header::CONTENT_TYPE, content_type);
        }
        secure(&mut headers, request_id);
        for (name, value) in self.further {
            headers.insert(name, value);
        }
        let mut response = Response::new(Outgoing { content: self.content, _answering: answering });
        *response.status_mut() = self.status;
        *response.headers_mut() = headers;
        response
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Pieces(pieces) => pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Pieces(_) => SizeHint::default(),
        }
    }
}

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// JSON with a status.
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Result<Answer, Error> {
    let mut text = Vec::with_capacity(512);
    serde_json::to_writer(&mut text, value).map_err(|error| {
        tracing::error!(%error, "an answer cannot be written");
        Error::from(ReasonCode::ServerFault)
    })?;
    Ok(typed(status, JSON, text.into()))
}

/// JSON that was written by hand.
pub(crate) fn text(status: StatusCode, text: Text) -> Answer {
    typed(status, JSON, text.into_bytes().into())
}

/// JSON with the status 200.
pub(crate) fn ok<T: Serialize>(value: &T) -> Result<Answer, Error> {
    json(StatusCode::OK, value)
}

/// Nothing to say.
pub(crate) fn nothing() -> Answer {
    let content = Content::Whole(Bytes::new());
    let share = Share::default();
    Answer { status: StatusCode::NO_CONTENT, content_type: None, further: Vec::new(), content, share }
}

/// Bytes of a content type.
pub(crate) fn typed(status: StatusCode, content_type: HeaderValue, bytes: Bytes) -> Answer {
    Answer { status, ..Answer::ok(content_type, Content::Whole(bytes)) }
}

/// An error, as its caller reads it.
pub(crate) fn refused(error: &Error, language: Language, request_id: &str) -> Answer {
    let mut detail = detail(error, language);
    detail.request_id = Some(request_id.to_owned());
    let status = status(error.code());
    let body = serde_json::to_vec(&ErrorBody { error: detail }).unwrap_or_default();
    let answer = typed(status, JSON, body.into());
    match status {
        StatusCode::UNAUTHORIZED => answer.with(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
        StatusCode::SERVICE_UNAVAILABLE => answer.with(header::RETRY_AFTER, HeaderValue::from_static("1")),
        _ => answer,
    }
}

/// The facts of an error without those that name a place on the server's machine: where a store keeps its files is no caller's
/// business. The log has them.
fn detail(error: &Error, language: Language) -> ErrorDetail {
    let mut detail = ekiden::wire::detail(error, language);
    if error.code().category() == Category::Store {
        detail.context.retain(|name, fact| !matches!(name.as_str(), "path" | "place") && !fact.contains('/'));
    }
    detail
}

/// The errors of single items of a request, as its caller reads them.
pub(crate) struct ItemErrors<'a> {
    call: &'a Call,
    /// The first of them that the server is to blame for.
    fault: Option<Error>,
    count: usize,
}

impl<'a> ItemErrors<'a> {
    pub(crate) const fn of(call: &'a Call) -> Self {
        Self { call, fault: None, count: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn detail(&mut self, error: Error) -> ErrorDetail {
        let detail = detail(&error, self.call.language);
        self.count += 1;
        if self.fault.is_none() && status(error.code()).is_server_error() {
            self.fault = Some(error);
        }
        detail
    }

    /// Tells the log, as the answer has the status of a success. One line: what fails one item mostly fails all.
    pub(crate) fn log(&self) {
        if let Some(error) = &self.fault {
            tracing::warn!(route = self.call.route.operation, items = self.count, %error, "items of a request failed");
        }
    }
}

/// The status that fits a reason.
pub(crate) const fn status(code: ReasonCode) -> StatusCode {
    match code {
        ReasonCode::RouteNotFound
        | ReasonCode::TaskNotFound
        | ReasonCode::ScheduleNotFound
        | ReasonCode::RunnerNotFound
        | ReasonCode::LogNotFound
        | ReasonCode::SweepNotFound
        | ReasonCode::TokenNotFound => StatusCode::NOT_FOUND,
        ReasonCode::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        ReasonCode::MediaTypeUnsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ReasonCode::BodyTooLarge | ReasonCode::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ReasonCode::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        ReasonCode::LogOffsetWrong | ReasonCode::StoreCannot => StatusCode::CONFLICT,
        ReasonCode::TokenMissing | ReasonCode::TokenInvalid => StatusCode::UNAUTHORIZED,
        ReasonCode::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
        ReasonCode::ServerFault | ReasonCode::StoreDamaged => StatusCode::INTERNAL_SERVER_ERROR,
        other => match other.category() {
            Category::Request => StatusCode::BAD_REQUEST,
            Category::Access => StatusCode::FORBIDDEN,
            Category::Execution => StatusCode::CONFLICT,
            Category::Store | Category::Server => StatusCode::SERVICE_UNAVAILABLE,
        },
    }
}

/// What every answer has, whatever it is: nothing of it is stored, framed, guessed at or used by other sites. A page that needs
/// more than this content policy says so itself, and is as strict for the rest.
fn secure(headers: &mut HeaderMap, request_id: HeaderValue) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    );
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(REQUEST_ID, request_id);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_tells_a_caller_no_path_of_the_servers_machine() {
        let full = Refusal::new(ReasonCode::StoreFull).with("path", "data").with("why", "No space left on device");
        let damaged = Refusal::new(ReasonCode::StoreDamaged).with("place", "data").with("why", "/var/data is empty");
        let request = Refusal::new(ReasonCode::RequestInvalid).with("field", "a/b");
        for (refusal, left) in [(full, vec!["why"]), (damaged, vec![]), (request, vec!["field"])] {
            let detail = detail(&refusal.into(), Language::En);
            assert_eq!(detail.context.keys().collect::<Vec<_>>(), left, "{}", detail.reason_code);
        }
    }
}
