//! Every route and every method against everybody who must not come in, made of the route table.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::sync::Arc;

use ekiden::Ekiden;
use ekiden::core::{Namespace, Timestamp};
use ekiden::store::MemoryStore;
use ekiden_server::{Events, Scope, Server, Tokens, routes};
use lab::{Lab, Reply};

const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"];

/// A path that the route takes.
fn path(template: &str) -> String {
    template.replace("{ns}", "n").replace("{execution_no}", "1").replace("{id}", "i").replace("{pool}", "p")
}

async fn ask(lab: &Lab, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
    let mut wire = lab.connect().await;
    wire.request(lab, method, path, headers, b"").await;
    // Streams have no end, and HEAD has no body: the status says enough.
    wire.head().await
}

fn is_secured(reply: &Reply) {
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(reply.headers.get(name).map(String::as_str), Some(value), "{reply:?}");
    }
    assert!(reply.headers["content-security-policy"].contains("default-src 'none'"));
    assert!(reply.headers["content-security-policy"].contains("frame-ancestors 'none'"));
    assert!(reply.headers.contains_key("ekiden-request-id"));
}

#[tokio::test]
async fn pages_of_other_sites_reach_no_route_by_any_method() {
    let lab = Lab::new().await;
    let foreign = [
        ("host", "evil.example"),
        ("host", "localhost"),
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ];
    let nowhere = ["/nothing", "/api/v1/namespaces/n/nothing"].map(str::to_owned);
    for path in routes().iter().map(|route| path(route.path)).chain(nowhere) {
        for method in METHODS {
            for header in foreign {
                let reply = ask(&lab, method, &path, &[header]).await;
                assert_eq!(reply.status, 403, "{method} {path} {header:?}: {reply:?}");
                is_secured(&reply);
            }
        }
    }
}

#[tokio::test]
async fn a_route_is_open_to_its_scope_and_those_above_only() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = Tokens::at(folder.path());
    let make = |name: &str, scope, names: Vec<Namespace>| tokens.create(name, scope, names, Timestamp::ZERO).unwrap();
    let scopes = [Scope::Read, Scope::Run, Scope::Admin].map(|scope| (scope, make(scope.as_str(), scope, vec![])));
    let elsewhere = make("elsewhere", Scope::Admin, vec![Namespace::new("elsewhere").unwrap()]);
    let lab = Lab::with(|builder| builder.tokens(tokens.clone())).await;
    for route in routes() {
        let (method, path) = (route.method.as_str(), path(route.path));
        let open = route.scope == Scope::Open;
        let reply = ask(&lab, method, &path, &[]).await;
        assert_eq!(reply.status == 401, !open, "{method} {path} without a token: {reply:?}");
        is_secured(&reply);
        let unknown = ask(&lab, method, &path, &[("authorization", "Bearer ekd_0000")]).await;
        assert_eq!(unknown.status, 401, "{method} {path} with an unknown token: {unknown:?}");
        for (scope, token) in &scopes {
            let reply = ask(&lab, method, &path, &[("authorization", &format!("Bearer {token}"))]).await;
            let refused = reply.status == 403;
            assert_eq!(refused, *scope < route.scope, "{method} {path} with {}: {reply:?}", scope.as_str());
            assert_ne!(reply.status, 401);
            assert_ne!(reply.status, 500);
        }
        let reply = ask(&lab, method, &path, &[("authorization", &format!("Bearer {elsewhere}"))]).await;
        assert_eq!(reply.status == 403, route.path.contains("{ns}"), "{method} {path} from elsewhere: {reply:?}");
    }
    for path in ["/nothing", "/api/v1/namespaces/n/nothing"] {
        assert_eq!(ask(&lab, "GET", path, &[]).await.status, 401, "nobody learns which paths there are");
    }
    let listed = lab.ask("GET", "/api/v1/namespaces", &[("authorization", &format!("Bearer {elsewhere}"))], b"").await;
    assert_eq!(listed.json()["items"], serde_json::json!(["elsewhere"]));
}

#[tokio::test]
async fn methods_that_a_path_does_not_know_are_told_which_it_does() {
    let lab = Lab::new().await;
    for route in routes() {
        let path = path(route.path);
        let known: Vec<&str> = routes()
            .iter()
            .filter(|other| other.path == route.path)
            .map(|other| other.method.as_str())
            .flat_map(|method| if method == "GET" { vec!["GET", "HEAD"] } else { vec![method] })
            .collect();
        for method in METHODS.into_iter().filter(|method| !known.contains(method)) {
            let reply = ask(&lab, method, &path, &[]).await;
            assert_eq!(reply.status, 405, "{method} {path}: {reply:?}");
            let allowed: Vec<&str> = reply.headers["allow"].split(',').map(str::trim).collect();
            assert!(known.iter().all(|method| allowed.contains(method)), "{path}: {allowed:?}");
        }
    }
}

#[tokio::test]
async fn an_address_that_others_reach_needs_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = Tokens::at(folder.path());
    let events = Arc::new(Events::new());
    let ekiden = Ekiden::builder(Arc::new(MemoryStore::new())).observer(events.clone()).build();
    let bind = async |tokens: Option<Tokens>| {
        let builder = Server::builder(ekiden.queue().clone(), events.clone());
        let builder = if let Some(tokens) = tokens { builder.tokens(tokens) } else { builder };
        builder.bind("0.0.0.0:0".parse().unwrap()).await
    };
    assert_eq!(bind(None).await.unwrap_err().code.as_str(), "BIND_UNSAFE");
    assert_eq!(bind(Some(tokens.clone())).await.unwrap_err().code.as_str(), "BIND_UNSAFE");
    tokens.create("ci", Scope::Read, vec![], Timestamp::ZERO).unwrap();
    let server = bind(Some(tokens)).await.unwrap();
    let taken = Server::builder(ekiden.queue().clone(), events.clone());
    let again = taken.bind(([127, 0, 0, 1], server.local_addr().port()).into()).await;
    assert_eq!(again.unwrap_err().code.as_str(), "ADDRESS_TAKEN");
}

#[tokio::test]
async fn a_server_that_others_reach_or_that_had_tokens_is_refused_without_a_live_one() {
    let folder = tempfile::tempdir().unwrap();
    let had = Tokens::at(folder.path().join("had"));
    had.create("ci", Scope::Admin, vec![], Timestamp::ZERO).unwrap();
    had.revoke("ci").unwrap();
    let never = Tokens::at(folder.path().join("never"));
    let live = Tokens::at(folder.path().join("live"));
    live.create("ci", Scope::Admin, vec![], Timestamp::ZERO).unwrap();
    let events = Arc::new(Events::new());
    let ekiden = Ekiden::builder(Arc::new(MemoryStore::new())).observer(events.clone()).build();
    let builder = |tokens: &Tokens| Server::builder(ekiden.queue().clone(), events.clone()).tokens(tokens.clone());
    let all = ["0.0.0.0:0", "[::]:0", "[::ffff:127.0.0.1]:0"];
    for (address, host, tokens) in all.iter().map(|address| (*address, None, &never)).chain([
        ("127.0.0.1:0", Some("jobs.example.com"), &never),
        ("[::1]:0", Some("localhost"), &never),
        ("127.0.0.1:0", None, &had),
        ("[::1]:0", None, &had),
        ("0.0.0.0:0", Some("jobs.example.com"), &had),
    ]) {
        let build = |tokens| match host {
            Some(host) => builder(tokens).host(host),
            None => builder(tokens),
        };
        let address: std::net::SocketAddr = address.parse().unwrap();
        let refused = build(tokens).bind(address).await.unwrap_err();
        assert_eq!(refused.code.as_str(), "BIND_UNSAFE", "{address} {host:?} {tokens:?}");
        // Some machines have no IPv6 to bind.
        if address.is_ipv4() {
            build(tokens).allow_anonymous_admin().bind(address).await.unwrap();
            build(&live).bind(address).await.unwrap();
        }
    }
    builder(&never).bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
}

#[tokio::test]
async fn who_has_no_token_stays_outside_behind_a_proxy_and_after_the_last_token() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = Tokens::at(folder.path());
    tokens.create("ci", Scope::Read, vec![], Timestamp::ZERO).unwrap();
    for anonymous in [false, true] {
        let clock = Arc::new(ekiden::store::ManualClock::new(Timestamp::ZERO));
        let lab = Lab::with(|builder| {
            let builder = builder.tokens(tokens.clone()).host("jobs.example.com").clock(clock.clone());
            if anonymous { builder.allow_anonymous_admin() } else { builder }
        });
        let lab = lab.await;
        let asked = async || lab.get("/api/v1").await.reason();
        assert_eq!(asked().await, "TOKEN_MISSING", "{anonymous}");
        tokens.revoke("ci").unwrap();
        clock.advance(ekiden::core::Millis::from_secs(2));
        assert_eq!(asked().await, "TOKEN_MISSING", "{anonymous}");
        std::fs::remove_file(folder.path().join("tokens.json")).unwrap();
        clock.advance(ekiden::core::Millis::from_secs(2));
        assert_eq!(asked().await, "TOKEN_MISSING", "{anonymous}");
        tokens.create("ci", Scope::Read, vec![], Timestamp::ZERO).unwrap();
    }
}

#[tokio::test]
async fn a_revoked_token_is_refused_by_a_running_server() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = Tokens::at(folder.path());
    let token = tokens.create("ci", Scope::Read, vec![], Timestamp::ZERO).unwrap();
    let clock = Arc::new(ekiden::store::ManualClock::new(Timestamp::ZERO));
    let mut lab = Lab::with(|builder| builder.tokens(tokens.clone()).clock(clock.clone())).await;
    lab.token = Some(token);
    assert_eq!(lab.get("/api/v1").await.status, 200);
    tokens.revoke("ci").unwrap();
    clock.advance(ekiden::core::Millis::from_secs(2));
    assert_eq!(lab.get("/api/v1").await.reason(), "TOKEN_INVALID");
    lab.token = None;
    assert_eq!(lab.get("/api/v1").await.reason(), "TOKEN_MISSING", "the door does not open with the last token");
}
