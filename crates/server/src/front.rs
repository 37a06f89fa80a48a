//! The front door: what happens to every request before it has a route and after it has an answer. Host, origin and token
//! are checked first, whatever the path and the method.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Request, Response, Uri, header};
use ekiden::Error;
use ekiden_core::id::Namespace;
use ekiden_core::reason::{Language, ReasonCode, Refusal};
use hyper::body::Incoming;

use crate::access::{Caller, Scope};
use crate::answer::{self, Answer, Outgoing};
use crate::budget::Share;
use crate::call::Call;
use crate::finish::{Finish, words};
use crate::guard::Guard;
use crate::language;
use crate::limits;
use crate::metrics::Counted;
use crate::query::{Query, wrong};
use crate::route::{Route, Runs};
use crate::router::{Found, Params, Router, Row};
use crate::said::{Once, Said};
use crate::shared::Shared;
use crate::trodden::Trodden;
use crate::watched::Answering;

/// Receives every request of a server.
pub(crate) struct Front {
    shared: Arc<Shared>,
    guard: Guard,
    router: Router,
}

/// What is known of a request before it has a route.
struct Arrival {
    caller: Caller,
    language: Language,
    request_id: HeaderValue,
    begun: Duration,
}

/// Where a request goes.
struct Way {
    row: Arc<Row>,
    params: Params,
    /// Known before, if somebody has gone the same way.
    namespace: Option<Namespace>,
}

/// The part of a path that names the namespace.
const NAMESPACE: &str = "ns";

impl Arrival {
    fn id(&self) -> &str {
        self.request_id.to_str().unwrap_or_default()
    }

    fn refuse(&self, error: &Error) -> Answer {
        answer::refused(error, self.language, self.id())
    }
}

impl Front {
    pub(crate) fn new(shared: Arc<Shared>, guard: Guard, routes: &'static [Route]) -> Self {
        Self { shared, guard, router: Router::new(routes) }
    }

    /// Answers a request, whatever it is.
    pub(crate) async fn receive(
        &self,
        request: Request<Incoming>,
        answering: Answering,
        trodden: &Trodden,
    ) -> Response<Outgoing> {
        let (Parts { method, uri, headers, .. }, body) = request.into_parts();
        let said = Said::read(&headers);
        let mut arrival = Arrival {
            caller: Caller::Unknown,
            language: language::of(said.language),
            request_id: request_id(self.shared.ids.request()),
            begun: self.shared.clock.monotonic(),
        };
        let is_head = method == Method::HEAD;
        let mut answer = match self.admit(&uri, &said, arrival.begun) {
            Ok(caller) => {
                if !matches!(caller, Caller::Unknown) {
                    answering.is_of_known_caller(caller.token());
                }
                arrival.caller = caller;
                match self.find(&method, uri.path(), trodden, &arrival) {
                    Ok(way) => {
                        let row = way.row.clone();
                        let call = self.call(way, (method, uri, body), &said, &arrival, trodden);
                        serve(&row, call, &arrival, &self.shared).await
                    }
                    Err(lost) => *lost,
                }
            }
            Err(refusal) => self.refuse(&arrival, refusal, "refused"),
        };
        if is_head {
            answer = answer.beheaded();
        }
        if self.shared.stop.is_cancelled() {
            answer = answer.with(header::CONNECTION, HeaderValue::from_static("close"));
        }
        answer.into_response(headers, arrival.request_id, answering)
    }

    fn admit(&self, uri: &Uri, said: &Said<'_>, now: Duration) -> Result<Caller, Refusal> {
        let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
        if target + said.bytes > limits::HEADERS_BYTES_MAX {
            return Err(Refusal::new(ReasonCode::HeadersTooLarge).with("limit", limits::HEADERS_BYTES_MAX));
        }
        self.guard.check(uri, said)?;
        match said.authorization {
            Once::Missing => self.shared.tokens.caller(None, now),
            Once::Given(authorization) => self.shared.tokens.caller(Some(authorization.as_bytes()), now),
            Once::Repeated => Err(Refusal::new(ReasonCode::TokenInvalid)),
        }
    }

    /// The row that a request belongs to, or the answer to one that belongs nowhere.
    fn find(&self, method: &Method, path: &str, trodden: &Trodden, arrival: &Arrival) -> Result<Way, Box<Answer>> {
        if let Some((row, namespace)) = trodden.find(method, path) {
            return Ok(Way { row, params: Params::new(), namespace: Some(namespace) });
        }
        match self.router.find(method, path) {
            Found::Row(row, params) => Ok(Way { row: row.clone(), params, namespace: None }),
            Found::Garbled => Err(Box::new(self.refuse(arrival, wrong("path", "it is not text in UTF-8"), "none"))),
            Found::Nothing => Err(Box::new(self.lost(arrival, ReasonCode::RouteNotFound))),
            Found::OtherMethods(allow) => {
                let lost = self.lost(arrival, ReasonCode::MethodNotAllowed);
                Err(Box::new(lost.with(header::ALLOW, allow.clone())))
            }
        }
    }

    /// A request without a route. Whoever needs a token learns nothing of which paths there are.
    fn lost(&self, arrival: &Arrival, code: ReasonCode) -> Answer {
        let refusal = arrival.caller.check(Scope::Read, None).err().unwrap_or_else(|| Refusal::new(code));
        self.refuse(arrival, refusal, "none")
    }

    fn refuse(&self, arrival: &Arrival, refusal: Refusal, counted_as: &'static str) -> Answer {
        let answer = arrival.refuse(&refusal.into());
        self.shared.metrics.answered(counted_as, answer.status.as_u16(), Duration::ZERO);
        answer
    }

    /// What the handler of a request gets, if it may have it.
    fn call(
        &self,
        way: Way,
        (method, uri, body): (Method, Uri, Incoming),
        said: &Said<'_>,
        arrival: &Arrival,
        trodden: &Trodden,
    ) -> Result<Call, Refusal> {
        let Way { row, params, namespace } = way;
        let is_known = namespace.is_some();
        let mut call = Call {
            shared: self.shared.clone(),
            route: row.route,
            caller: arrival.caller.clone(),
            language: arrival.language,
            is_json: said.is_json(),
            idempotency_key: said.idempotency_key.cloned(),
            last_event_id: said.last_event_id.cloned(),
            uri,
            params,
            namespace,
            body: Mutex::new(body),
            share: Share::default(),
        };
        admit(&mut call, &row)?;
        if let Some(namespace) = call.namespace.as_ref().filter(|_| !is_known) {
            trodden.remember(method, call.uri.path(), row, namespace);
        }
        Ok(call)
    }
}

/// Sixteen digits behind a word.
fn request_id(number: u64) -> HeaderValue {
    let mut text = *b"req-0000000000000000";
    for (at, digit) in text.iter_mut().rev().take(16).enumerate() {
        let value = u8::try_from(number >> (4 * at) & 15).unwrap_or(0);
        *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
    }
    HeaderValue::from_bytes(&text).expect("hexadecimal digits are a header value")
}

/// A request that has its route.
async fn serve(row: &Row, call: Result<Call, Refusal>, arrival: &Arrival, shared: &Arc<Shared>) -> Answer {
    let _counted = Counted::new(&shared.metrics.running);
    let answer = match call {
        Ok(call) => carry_out(call, arrival).await,
        Err(refusal) => arrival.refuse(&refusal.into()),
    };
    let took = shared.clock.monotonic().saturating_sub(arrival.begun);
    shared.metrics.tallied(&row.tally, answer.status.as_u16(), took);
    answer
}

/// Reads and checks what every route has: scope, namespace and the names of the query.
fn admit(call: &mut Call, row: &Row) -> Result<(), Refusal> {
    // The scope first: without it, nothing is learned from what else is wrong.
    call.caller.check(call.route.scope, None)?;
    if call.namespace.is_none() && row.names.contains(&NAMESPACE) {
        call.namespace = Some(call.id(NAMESPACE)?);
    }
    if let Some(namespace) = &call.namespace {
        call.caller.check(call.route.scope, Some(namespace))?;
    }
    Query::parse(call.uri.query(), call.route.query).map(drop)
}

async fn carry_out(call: Call, arrival: &Arrival) -> Answer {
    let (shared, route) = (call.shared.clone(), call.route);
    let work = (route.handler)(call);
    let work = match route.runs {
        Runs::ToItsEnd => Finish::always(work, shared.rest.clone()),
        Runs::WhileHeard => Finish::while_heard(work),
    };
    let error = match work.await {
        // What everybody is told is there once, however many read it.
        Ok(Ok(answer)) if route.scope == Scope::Open => return answer,
        Ok(Ok(answer)) => match answer.counted(&shared.answers, &arrival.caller) {
            Ok(answer) => return answer,
            // What it changed stays changed. With the same ids the caller may ask for the answer again. Only a claim for large
            // tasks comes here: other answers are counted before anything is changed.
            Err(refusal) if route.method != Method::GET => Error::from(refusal).in_doubt(),
            Err(refusal) => refusal.into(),
        },
        Ok(Err(error)) => error,
        Err(panic) => {
            tracing::error!(
                request_id = arrival.id(),
                route = route.operation,
                why = words(&panic),
                "a handler panicked"
            );
            shared.metrics.panics.inc();
            ReasonCode::ServerFault.into()
        }
    };
    let answer = arrival.refuse(&error);
    if answer.status.is_server_error() {
        tracing::warn!(request_id = arrival.id(), route = route.operation, %error, "request failed");
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_has_sixteen_digits() {
        for (number, text) in
            [(0, "req-0000000000000000"), (0xfe09, "req-000000000000fe09"), (u64::MAX, "req-ffffffffffffffff")]
        {
            assert_eq!(request_id(number), text);
        }
    }
}
