//! One line to a server: requests that are repeated while that can help, and answers in the words of the wire.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_store::Happened;
use ekiden_store::entropy::{Entropy, Spring};
use ekiden_wire as wire;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::path::Path;
use crate::backoff::Backoff;
use crate::error::{Error, Result};
use crate::wire::error as told;

/// 8 tries over two and a half seconds: as long as a server takes to start again.
const TRIES: u32 = 8;

/// The wait before the second try; it doubles each time, and is spread.
const FIRST_WAIT: Duration = Duration::from_millis(20);

/// 15 seconds: no request but a long poll takes a server as long; then its line is taken for dead.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

const JSON: HeaderValue = HeaderValue::from_static("application/json");

#[cfg(unix)]
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// 5 seconds to reach a server.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// 45 seconds without a byte: servers send a comment every 15, so the stream is dead.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(45);

/// With these a proxy asks for another try.
const PASSING: [StatusCode; 2] = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];

/// A line to a server. Cheap to clone; connections are shared and kept.
#[derive(Clone)]
pub(super) struct Line {
    http: reqwest::Client,
    base: Arc<str>,
    /// Spreads the waits between tries.
    chance: Arc<Spring>,
}

impl Line {
    pub(super) fn new(url: &str, token: Option<&str>) -> Result<Self> {
        let base = server_origin(url)?;
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(token) = token {
            let wrong = |_| {
                Error::from(Refusal::new(ReasonCode::TokenInvalid).with("why", "it has characters that no token has"))
            };
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(wrong)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(CONNECT_WITHIN)
            .tcp_nodelay(true)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Error::from(Refusal::new(ReasonCode::ServerUnreachable).with("why", error)))?;
        Ok(Self { http, base: base.into(), chance: Arc::new(Entropy::from_system().into()) })
    }

    /// Reads something.
    pub(super) async fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<T> {
        self.ask(&Method::GET, path, None).await.1
    }

    /// Sends something, and reads the answer.
    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &Path,
        body: &impl Serialize,
    ) -> Result<T> {
        self.send_patiently(method, path, body, Duration::ZERO).await.1
    }

    /// The same, where the answer may take so much longer; says also whether an earlier try may have happened.
    pub(super) async fn send_patiently<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &Path,
        body: &impl Serialize,
        longer: Duration,
    ) -> (Repeated, Result<T>) {
        let body = match serde_json::to_vec(body) {
            Ok(body) => Bytes::from(body),
            Err(error) => return (Repeated::No, Err(Error::payload(error))),
        };
        self.persist(&method, path, Some(body), longer).await
    }

    /// Sends a body that was written before, and says also whether an earlier try may have happened.
    pub(super) async fn send_body<T: DeserializeOwned>(&self, path: &Path, body: Bytes) -> (Repeated, Result<T>) {
        self.persist(&Method::POST, path, Some(body), Duration::ZERO).await
    }

    /// Sends something without a body, where an earlier try may matter.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &Path,
        body: Option<Bytes>,
    ) -> (Repeated, Result<T>) {
        self.persist(method, path, body, Duration::ZERO).await
    }

    async fn persist<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &Path,
        body: Option<Bytes>,
        longer: Duration,
    ) -> (Repeated, Result<T>) {
        self.repeat(|| self.once(method, path, body.clone(), longer)).await
    }

    /// One try. For what is soon followed by the next anyway, such as a sign of life.
    pub(super) async fn once<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &Path,
        body: Option<Bytes>,
        longer: Duration,
    ) -> Result<T> {
        let (status, _, bytes) = self.exchange(method, path, body.map(|body| (JSON, body)), longer).await?;
        read(status, &bytes)
    }

    /// Reads bytes of any kind, and what the headers say about them.
    #[cfg(unix)]
    pub(super) async fn read_octets(&self, path: &Path) -> Result<(HeaderMap, Bytes)> {
        self.persist_octets(&Method::GET, path, None).await
    }

    /// Sends bytes of any kind, and reads the answer.
    #[cfg(unix)]
    pub(super) async fn send_octets<T: DeserializeOwned>(&self, path: &Path, body: Bytes) -> Result<T> {
        let (_, bytes) = self.persist_octets(&Method::POST, path, Some((OCTETS, body))).await?;
        read(StatusCode::OK, &bytes)
    }

    #[cfg(unix)]
    async fn persist_octets(
        &self,
        method: &Method,
        path: &Path,
        body: Option<(HeaderValue, Bytes)>,
    ) -> Result<(HeaderMap, Bytes)> {
        let once = || async {
            let (status, headers, bytes) = self.exchange(method, path, body.clone(), Duration::ZERO).await?;
            if status.is_success() { Ok((headers, bytes)) } else { Err(refused(status, &bytes)) }
        };
        self.repeat(once).await.1
    }

    /// Tries until an answer settles it, or trying cannot help.
    async fn repeat<T, F: Future<Output = Result<T>>>(&self, once: impl Fn() -> F) -> (Repeated, Result<T>) {
        let mut waits = Backoff::new(FIRST_WAIT, Duration::MAX);
        let mut earlier: Option<Error> = None;
        for tries in 1.. {
            let outcome = once().await.map_err(|error| error.after(earlier.as_ref()));
            match outcome {
                Err(error) if error.is_retryable() && tries < TRIES => {
                    tokio::time::sleep(waits.next(self.random())).await;
                    earlier = Some(error);
                }
                settled => return (Repeated::after(earlier.as_ref()), settled),
            }
        }
        unreachable!("the loop has no end of its own")
    }

    pub(super) fn random(&self) -> u64 {
        self.chance.next_u64()
    }

    /// A request and its whole answer, whatever it is.
    async fn exchange(
        &self,
        method: &Method,
        path: &Path,
        body: Option<(HeaderValue, Bytes)>,
        longer: Duration,
    ) -> Result<(StatusCode, HeaderMap, Bytes)> {
        let mut request = self.http.request(method.clone(), self.url(path)).timeout(ANSWER_WITHIN + longer);
        if let Some((content_type, body)) = body {
            request = request.header(CONTENT_TYPE, content_type).body(body);
        }
        let response = request.send().await.map_err(|error| self.broken(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.map_err(|error| self.broken(&error))?;
        Ok((status, headers, bytes))
    }

    /// Opens a stream of events. Its headers are here, so the server has subscribed.
    pub(super) async fn stream(&self, path: &Path) -> Result<Response> {
        self.open(path, "text/event-stream").await
    }

    /// Opens a stream of anything.
    pub(super) async fn open(&self, path: &Path, accept: &'static str) -> Result<Response> {
        let request = self.http.get(self.url(path)).header(ACCEPT, HeaderValue::from_static(accept));
        let opened = tokio::time::timeout(ANSWER_WITHIN, request.send()).await;
        let response = match opened {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.broken(&error)),
            Err(_) => return Err(Error::told(ReasonCode::RequestTimeout.into(), Happened::NotApplied, true)),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = response.bytes().await.map_err(|error| self.broken(&error))?;
        Err(refused(status, &bytes))
    }

    fn url(&self, path: &Path) -> String {
        format!("{}{}", self.base, path.as_str())
    }

    /// A request that found no server did not happen; one that lost its connection may have.
    fn broken(&self, error: &reqwest::Error) -> Error {
        let (code, happened) = if error.is_connect() {
            (ReasonCode::ServerUnreachable, Happened::NotApplied)
        } else {
            (ReasonCode::ReplyLost, Happened::Unknown)
        };
        let mut causes = vec![error.to_string()];
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            causes.push(inner.to_string());
            cause = inner.source();
        }
        let why = causes.last().map_or("", String::as_str);
        Error::told(Refusal::new(code).with("url", &self.base).with("why", why), happened, true)
    }
}

/// Whether an earlier try of a request may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeated {
    /// This was the first that can have.
    No,
    /// One before it may have.
    Perhaps,
}

impl Repeated {
    /// An error about a part of a request. That the last try did not carry it out says nothing about those before.
    pub(super) fn doubted(self, error: Error) -> Error {
        match self {
            Self::No => error,
            Self::Perhaps => error.in_doubt(),
        }
    }

    fn after(earlier: Option<&Error>) -> Self {
        if earlier.is_some_and(Error::is_unknown) { Self::Perhaps } else { Self::No }
    }
}

/// Scheme, host and port of a server's address, in one spelling, as a connection to it uses them. A token belongs to exactly
/// one of them: a name and the address that it stands for are two.
pub fn server_origin(url: &str) -> Result<String> {
    let wrong = |why: &str| {
        let shown: String = url.chars().take(64).collect();
        Error::from(Refusal::new(ReasonCode::UrlInvalid).with("url", shown).with("why", why))
    };
    let parsed = reqwest::Url::parse(url).map_err(|error| wrong(&error.to_string()))?;
    if parsed.scheme() != "http" {
        return Err(wrong("a server is reached by http; put a proxy that speaks TLS on this machine in between"));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(wrong("tokens do not belong into addresses"));
    }
    if !parsed.path().trim_end_matches('/').is_empty() || parsed.query().is_some() {
        return Err(wrong("nothing comes behind host and port"));
    }
    Ok(parsed.as_str().trim_end_matches('/').to_owned())
}

fn read<T: DeserializeOwned>(status: StatusCode, bytes: &Bytes) -> Result<T> {
    if !status.is_success() {
        return Err(refused(status, bytes));
    }
    // An answer without a body reads as nothing.
    let text: &[u8] = if bytes.is_empty() { b"null" } else { bytes };
    // What looks like success may be one, told by something in between.
    serde_json::from_slice(text).map_err(|error| foreign(status, &error.to_string()).in_doubt())
}

fn refused(status: StatusCode, bytes: &Bytes) -> Error {
    match serde_json::from_slice::<wire::ErrorBody>(bytes) {
        Ok(body) => told(&body.error),
        Err(_) if status.is_server_error() || PASSING.contains(&status) => {
            // A proxy's answer: the server may have heard of the request.
            let refusal = Refusal::new(ReasonCode::ReplyLost).with("status", status.as_u16());
            Error::told(refusal, Happened::Unknown, true)
        }
        Err(_) if status == StatusCode::PAYLOAD_TOO_LARGE => {
            Refusal::new(ReasonCode::BodyTooLarge).with("status", status.as_u16()).into()
        }
        Err(_) => foreign(status, "no error of the known shape"),
    }
}

fn foreign(status: StatusCode, why: &str) -> Error {
    Refusal::new(ReasonCode::ServerForeign).with("status", status.as_u16()).with("why", why).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_no_server_are_refused_by_name() {
        for url in ["", "localhost", "https://a", "http://token@a", "http://a/b", "http://a?x=1", "ftp://a"] {
            assert_eq!(server_origin(url).unwrap_err().code(), ReasonCode::UrlInvalid, "{url}");
        }
        assert_eq!(server_origin("http://127.0.0.1:7707/").unwrap(), "http://127.0.0.1:7707");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_changed_nothing() {
        // A port that was free a moment ago, and that nobody else may listen on meanwhile.
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", taken.local_addr().unwrap());
        drop(taken);
        let line = Line::new(&url, None).unwrap();
        let error = line.once::<wire::Info>(&Method::GET, &super::super::path::root(), None, Duration::ZERO).await;
        let error = error.unwrap_err();
        assert_eq!(
            (error.code(), error.is_unknown(), error.is_retryable()),
            (ReasonCode::ServerUnreachable, false, true)
        );
        assert_eq!(error.refusal().context.get("url").map(String::as_str), Some(url.as_str()), "it says which");
    }
}
