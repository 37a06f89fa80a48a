//! The front door: what happens to every request before it has a route and after it has an answer. Host, origin and token
//! are checked first, whatever the path and the method.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};
use ekiden::Error;
use ekiden_core::id::Namespace;
use ekiden_core::reason::{Language, ReasonCode, Refusal};
use hyper::body::Incoming;
use tower_service::Service as _;

use crate::access::{Caller, Scope};
use crate::answer;
use crate::call::{Call, check_headers};
use crate::finish::{Finish, words};
use crate::guard::Guard;
use crate::language;
use crate::metrics::Counted;
use crate::query::{Query, wrong};
use crate::route::{Route, Runs};
use crate::shared::Shared;

/// Receives every request of a server.
pub(crate) struct Front {
    shared: Arc<Shared>,
    guard: Guard,
    router: Router,
}

/// What is known of a request before it has a route.
#[derive(Clone)]
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
        let router = router(&shared, routes);
        Self { shared, guard, router }
    }

    /// Answers a request, whatever it is.
    pub(crate) async fn receive(&self, mut request: Request<Incoming>) -> Response {
        let request_id = HeaderValue::from_str(&format!("req-{:016x}", self.shared.ids.number()))
            .expect("hexadecimal digits are a header value");
        let mut arrival = Arrival {
            caller: Caller::Unknown,
            language: language::of(request.headers()),
            request_id: request_id.clone(),
            begun: self.shared.clock.monotonic(),
        };
        let mut response = match self.admit(request.uri(), request.headers(), arrival.begun) {
            Ok(caller) => {
                arrival.caller = caller;
                request.extensions_mut().insert(arrival);
                match self.router.clone().call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
            Err(refusal) => {
                let response = arrival.refuse(&refusal.into());
                self.shared.metrics.answered("refused", response.status().as_u16(), Duration::ZERO);
                response
            }
        };
        answer::secure(response.headers_mut(), &request_id);
        if self.shared.stop.is_cancelled() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
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

fn router(shared: &Arc<Shared>, routes: &'static [Route]) -> Router {
    let mut router = Router::new();
    for route in routes {
        router = router.route(route.path, endpoint(shared.clone(), route));
    }
    let lost = |shared: &Arc<Shared>, code: ReasonCode| {
        let shared = shared.clone();
        move |request: Request| std::future::ready(nowhere(&shared, &request, code))
    };
    router
        .method_not_allowed_fallback(lost(shared, ReasonCode::MethodNotAllowed))
        .fallback(lost(shared, ReasonCode::RouteNotFound))
}

fn endpoint(shared: Arc<Shared>, route: &'static Route) -> MethodRouter {
    let filter = MethodFilter::try_from(route.method.clone()).expect("the table has ordinary methods");
    on(filter, move |request: Request| serve(shared.clone(), route, request))
}

/// A request without a route. Whoever needs a token learns nothing of which paths there are.
fn nowhere(shared: &Shared, request: &Request, code: ReasonCode) -> Response {
    let Some(arrival) = request.extensions().get::<Arrival>() else { return fault() };
    let refusal = arrival.caller.check(Scope::Read, None).err().unwrap_or_else(|| Refusal::new(code));
    let response = arrival.refuse(&refusal.into());
    shared.metrics.answered("none", response.status().as_u16(), Duration::ZERO);
    response
}

/// A request that has its route.
async fn serve(shared: Arc<Shared>, route: &'static Route, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let Some(arrival) = parts.extensions.remove::<Arrival>() else { return fault() };
    let params = if route.path.contains('{') {
        match RawPathParams::from_request_parts(&mut parts, &()).await {
            Ok(params) => Some(params),
            Err(_) => return arrival.refuse(&wrong("path", "it is not text in UTF-8").into()),
        }
    } else {
        None
    };
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
        Ok(()) => carry_out(call, &arrival).await,
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

/// Nothing brought the request here.
fn fault() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}
