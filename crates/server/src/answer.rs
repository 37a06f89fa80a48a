//! Answers: JSON, the status that fits a refusal, and the headers that every answer has.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use ekiden::Error;
use ekiden_core::reason::{Category, Language, ReasonCode};
use ekiden_wire::ErrorBody;
use serde::Serialize;

/// The name under which a request stands in the log.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("ekiden-request-id");

/// What an answer has to do with pages of other sites.
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// 12 headers: what an answer has, and what hyper adds, so that room is made once.
const HEADERS_USUAL: usize = 12;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// JSON with a status.
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Result<Response, Error> {
    let mut text = Vec::with_capacity(512);
    serde_json::to_writer(&mut text, value).map_err(|error| {
        tracing::error!(%error, "an answer cannot be written");
        Error::from(ReasonCode::ServerFault)
    })?;
    Ok(typed(status, JSON, text.into()))
}

/// JSON with the status 200.
pub(crate) fn ok<T: Serialize>(value: &T) -> Result<Response, Error> {
    json(StatusCode::OK, value)
}

/// Nothing to say.
pub(crate) fn nothing() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// Keeps the head of an answer, which says how long the rest would have been, and drops the rest.
pub(crate) fn behead(response: &mut Response) {
    let length = http_body::Body::size_hint(response.body()).exact();
    if let Some(length) = length {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(length.into());
    }
    *response.body_mut() = Body::empty();
}

/// Bytes of a content type.
pub(crate) fn typed(status: StatusCode, content_type: HeaderValue, bytes: Bytes) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().reserve(HEADERS_USUAL);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// An error, as its caller reads it.
pub(crate) fn refused(error: &Error, language: Language, request_id: &str) -> Response {
    let mut detail = ekiden::wire::detail(error, language);
    detail.request_id = Some(request_id.to_owned());
    if error.code().category() == Category::Store {
        // Where a store keeps its files is nobody's business outside.
        detail.context.remove("path");
    }
    let status = status(error.code());
    let body = serde_json::to_vec(&ErrorBody { error: detail }).unwrap_or_default();
    let mut response = typed(status, JSON, body.into());
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
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

/// What every answer has, whatever it is: nothing of it is stored, framed, guessed at or used by other sites.
pub(crate) fn secure(headers: &mut HeaderMap, request_id: HeaderValue) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A page that needs more says so itself, and is as strict for the rest.
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(REQUEST_ID, request_id);
}
