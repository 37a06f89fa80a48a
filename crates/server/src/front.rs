//! The front door: what happens to every request before it has a route and after it has an answer. Host, origin and token
//! are checked first, whatever the path and the method.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, Method, Request, Uri, header};
use axum::response::Response;
use ekiden::Error;
use ekiden_core::id::Namespace;
use ekiden_core::reason::{Language, ReasonCode, Refusal};
use hyper::body::Incoming;

use crate::access::{Caller, Scope};
use crate::answer;
use crate::call::{Call, check_headers};
use crate::finish::{Finish, words};
use crate::guard::Guard;
use crate::language;
use crate::metrics::Counted;
use crate::query::{Query, wrong};
use crate::route::{Route, Runs};
use crate::router::{Found, Params, Router};
use crate::shared::Shared;

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

impl Arrival {
    fn id(&self) -> &str {
        self.request_id.to_str().unwrap_or_default()
    }

    fn refuse(&self, error: &Error) -> Response {
        answer::refused(error, self.language, self.id())
    }
}

impl Front {
    pub(crate) fn new(shared: Arc<Shared>, guard: Guard, routes: &'static [Route]) -> Self {
        Self { shared, guard, router: Router::new(routes) }
    }

    /// Answers a request, whatever it is.
    pub(crate) async fn receive(&self, request: Request<Incoming>) -> Response {
        let mut arrival = Arrival {
            caller: Caller::Unknown,
            language: language::of(request.headers()),
            request_id: request_id(self.shared.ids.number()),
            begun: self.shared.clock.monotonic(),
        };
        let is_head = *request.method() == Method::HEAD;
        let mut response = match self.admit(request.uri(), request.headers(), arrival.begun) {
            Ok(caller) => {
                arrival.caller = caller;
                self.pass_on(request, &arrival).await
            }
            Err(refusal) => self.refuse(&arrival, refusal, "refused"),
        };
        if is_head {
            answer::behead(&mut response);
        }
        answer::secure(response.headers_mut(), arrival.request_id);
        if self.shared.stop.is_cancelled() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// To the route that it belongs to.
    async fn pass_on(&self, request: Request<Incoming>, arrival: &Arrival) -> Response {
        match self.router.find(request.method(), request.uri().path()) {
            Found::Route(route, params) => serve(&self.shared, route, params, request, arrival).await,
            Found::Garbled => self.refuse(arrival, wrong("path", "it is not text in UTF-8"), "none"),
            Found::Nothing => self.lost(arrival, ReasonCode::RouteNotFound),
            Found::OtherMethods(allow) => {
                let mut response = self.lost(arrival, ReasonCode::MethodNotAllowed);
                response.headers_mut().insert(header::ALLOW, allow.clone());
                response
            }
        }
    }

    /// A request without a route. Whoever needs a token learns nothing of which paths there are.
    fn lost(&self, arrival: &Arrival, code: ReasonCode) -> Response {
        let refusal = arrival.caller.check(Scope::Read, None).err().unwrap_or_else(|| Refusal::new(code));
        self.refuse(arrival, refusal, "none")
    }

    fn refuse(&self, arrival: &Arrival, refusal: Refusal, counted_as: &'static str) -> Response {
        let response = arrival.refuse(&refusal.into());
        self.shared.metrics.answered(counted_as, response.status().as_u16(), Duration::ZERO);
        response
    }

    fn admit(&self, uri: &Uri, headers: &HeaderMap, now: Duration) -> Result<Caller, Refusal> {
        check_headers(headers, uri)?;
        self.guard.check(uri, headers)?;
        let mut authorizations = headers.get_all(header::AUTHORIZATION).iter();
        let authorization = authorizations.next();
        if authorizations.next().is_some() {
            return Err(Refusal::new(ReasonCode::TokenInvalid));
        }
        self.shared.tokens.caller(authorization.map(HeaderValue::as_bytes), now)
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
async fn serve(
    shared: &Arc<Shared>,
    route: &'static Route,
    params: Params,
    request: Request<Incoming>,
    arrival: &Arrival,
) -> Response {
    let (parts, body) = request.into_parts();
    let _counted = Counted::new(&shared.metrics.running);
    let mut call = Call {
        shared: shared.clone(),
        route,
        caller: arrival.caller.clone(),
        language: arrival.language,
        headers: parts.headers,
        uri: parts.uri,
        params,
        namespace: None,
        body: Mutex::new(body),
    };
    let response = match admit(&mut call) {
        Ok(()) => carry_out(call, arrival).await,
        Err(refusal) => arrival.refuse(&refusal.into()),
    };
    let took = shared.clock.monotonic().saturating_sub(arrival.begun);
    shared.metrics.answered(route.operation, response.status().as_u16(), took);
    response
}

/// Reads and checks what every route has: scope, namespace and the names of the query.
fn admit(call: &mut Call) -> Result<(), Refusal> {
    // The scope first: without it, nothing is learned from what else is wrong.
    call.caller.check(call.route.scope, None)?;
    if call.route.path.contains("{ns}") {
        let namespace: Namespace = call.id("ns")?;
        call.caller.check(call.route.scope, Some(&namespace))?;
        call.namespace = Some(namespace);
    }
    Query::parse(call.uri.query(), call.route.query).map(drop)
}

async fn carry_out(call: Call, arrival: &Arrival) -> Response {
    let (shared, route) = (call.shared.clone(), call.route);
    let work = (route.handler)(call);
    let work = match route.runs {
        Runs::ToItsEnd => Finish::always(work, shared.rest.clone()),
        Runs::WhileHeard => Finish::while_heard(work),
    };
    let error = match work.await {
        Ok(Ok(response)) => return response,
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
    let response = arrival.refuse(&error);
    if response.status().is_server_error() {
        tracing::warn!(request_id = arrival.id(), route = route.operation, %error, "request failed");
    }
    response
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
