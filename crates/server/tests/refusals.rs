//! Requests that cannot be carried out: each is told what is wrong, in its language, and none hurts the server.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::time::Duration;

use ekiden_server::routes;
use lab::Lab;
use serde_json::json;

const JSON: (&str, &str) = ("content-type", "application/json");
const TASKS: &str = "/api/v1/namespaces/n/tasks";

#[tokio::test]
async fn a_refusal_has_one_shape_in_both_languages() {
    let lab = Lab::new().await;
    let ask = async |language: &str| {
        lab.ask("GET", "/api/v1/namespaces/n/tasks/nobody", &[("accept-language", language)], b"").await
    };
    let english = ask("en").await;
    assert_eq!(english.status, 404);
    let error = &english.json()["error"];
    assert_eq!((&error["category"], &error["reason_code"]), (&json!("EXECUTION"), &json!("TASK_NOT_FOUND")));
    assert_eq!((&error["outcome"], &error["retryable"]), (&json!("not_applied"), &json!(false)));
    assert_eq!(error["context"]["task_id"], "nobody");
    assert_eq!(error["request_id"].as_str(), english.headers.get("ekiden-request-id").map(String::as_str));
    let japanese = ask("ja-JP,en;q=0.5").await.json();
    assert_eq!(japanese["error"]["reason_code"], "TASK_NOT_FOUND");
    let message = japanese["error"]["message"].as_str().unwrap();
    assert!(message.chars().any(|c| ('ぁ'..='ヿ').contains(&c)), "{message}");
    assert_ne!(japanese["error"]["message"], error["message"]);
}

#[tokio::test]
async fn what_is_wrong_in_a_body_is_named() {
    let lab = Lab::new().await;
    for (body, field) in [
        (r#"{"task_type":"k","priorty":1}"#, "priorty"),
        (r#"{"task_type":"k","policy":{"retry":{"fixed":{"delay":1}}}}"#, "policy.retry"),
        (r#"{"task_type":7}"#, "task_type"),
        (r#"{"task_type":"k","depends_on":["a",""]}"#, "depends_on[1]"),
        (r#"{"task_type":"k","delay_ms":1,"run_at":"2030-01-01T00:00:00.000Z"}"#, "run_at"),
    ] {
        let reply = lab.ask("POST", TASKS, &[JSON], body.as_bytes()).await;
        assert_eq!((reply.status, reply.reason().as_str()), (400, "REQUEST_INVALID"), "{body}");
        let error = reply.json();
        let found = error["error"]["context"]["field"].as_str().unwrap();
        assert!(found.contains(field), "{body}: {error}");
        assert!(error["error"]["context"]["why"].is_string(), "{error}");
    }
}

#[tokio::test]
async fn an_array_is_refused_where_an_object_is_expected() {
    let lab = Lab::new().await;
    for (method, path, body) in [
        ("PUT", "pools/p", "[true]"),
        ("POST", "tasks", r#" ["id", "k"]"#),
        ("POST", "claims", r#"[null,"r",null,["k"],1,0]"#),
        ("POST", "settlements", "[[]]"),
        ("POST", "tasks/batch", "\n\t[[]]"),
        ("PUT", "runners/r", "[]"),
    ] {
        let reply = lab.ask(method, &format!("/api/v1/namespaces/n/{path}"), &[JSON], body.as_bytes()).await;
        assert_eq!((reply.status, reply.reason().as_str()), (400, "REQUEST_INVALID"), "{path} {body}");
        let error = reply.json();
        let why = error["error"]["context"]["why"].as_str().unwrap();
        assert!(why.contains("an array where an object"), "{path} {body}: {error}");
    }
}

#[tokio::test]
async fn garbage_is_refused_on_every_route_and_never_a_fault() {
    let lab = Lab::new().await;
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_in = format!(r#"{{"task_type":"k","payload":{deep}}}"#);
    let bodies: [&[u8]; 14] = [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\"text\"",
        b"\x00\xff\xfe",
        b"{\"task_type\":\"k\\u0000\"}",
        b"{\"task_type\":\"k\",\"priority\":99999999999999999999999}",
        b"{\"task_type\":\"k\",\"priority\":1e400}",
        b"{\"task_type\":\"k\",\"delay_ms\":-1}",
        b"{\"task_type\":\"k\",\"task_type\":\"k\"}",
        b"{}{}",
        deep.as_bytes(),
        deep_in.as_bytes(),
    ];
    for route in routes().iter().filter(|route| matches!(route.method.as_str(), "POST" | "PUT")) {
        for body in bodies {
            let path = route.path.replace("{ns}", "n").replace("{execution_no}", "1").replace("{id}", "i");
            let reply = lab.ask(route.method.as_str(), &path.replace("{pool}", "p"), &[JSON], body).await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
            // Some of it is well formed for some routes; what matters is that nothing breaks.
            assert!(reply.status < 500 && reply.status >= 200, "{} {shown}: {reply:?}", route.operation);
            if reply.status >= 400 {
                assert!(reply.json()["error"]["reason_code"].is_string());
            }
        }
    }
    assert!(lab.get("/metrics").await.text().contains("ekiden_http_panics_total 0"));
}

#[tokio::test]
async fn odd_paths_and_queries_are_refused_or_just_names() {
    let lab = Lab::new().await;
    for (path, status, reason) in [
        ("/api/v1/namespaces/n/tasks/..%2f..%2fetc", 404, "TASK_NOT_FOUND"),
        ("/api/v1/namespaces/n/tasks/%00", 400, "ID_INVALID"),
        ("/api/v1/namespaces/%ff/tasks", 400, "REQUEST_INVALID"),
        ("/api/v1/namespaces/n/tasks/../../../etc", 404, "ROUTE_NOT_FOUND"),
        ("/api/v1/namespaces//tasks", 400, "ID_INVALID"),
        ("/api/v1/namespaces/n/tasks/", 404, "ROUTE_NOT_FOUND"),
        ("//api/v1", 404, "ROUTE_NOT_FOUND"),
        ("/api/v1/namespaces/n/tasks?limit=x", 400, "REQUEST_INVALID"),
        ("/api/v1/namespaces/n/tasks?limit=0", 400, "QUERY_INVALID"),
        ("/api/v1/namespaces/n/tasks?limit=99999", 400, "QUERY_INVALID"),
        ("/api/v1/namespaces/n/tasks?limit=-1", 400, "REQUEST_INVALID"),
        ("/api/v1/namespaces/n/tasks?cursor=garbage", 400, "QUERY_INVALID"),
        ("/api/v1/namespaces/n/tasks?stat=queued", 400, "REQUEST_INVALID"),
        ("/api/v1/namespaces/n/tasks?state=asleep", 400, "REQUEST_INVALID"),
        ("/api/v1/namespaces/n/tasks?pool=a&pool=b", 400, "REQUEST_INVALID"),
        ("/api/v1/namespaces/n/tasks?order=random", 400, "REQUEST_INVALID"),
        ("/api/v1/namespaces/n/tasks/t/attempts/x/log", 400, "REQUEST_INVALID"),
        ("/api/v1/namespaces/n/tasks/t/attempts/1/log?follow=1", 400, "REQUEST_INVALID"),
    ] {
        let reply = lab.get(path).await;
        assert_eq!((reply.status, reply.reason().as_str()), (status, reason), "{path}");
    }
}

#[tokio::test]
async fn media_types_and_sizes_are_checked() {
    let lab = Lab::new().await;
    let body = br#"{"task_type":"k"}"#;
    for headers in
        [&[][..], &[("content-type", "text/plain")], &[("content-type", "application/x-www-form-urlencoded")]]
    {
        let reply = lab.ask("POST", TASKS, headers, body).await;
        assert_eq!((reply.status, reply.reason().as_str()), (415, "MEDIA_TYPE_UNSUPPORTED"));
    }
    // The length that is announced is enough to refuse.
    let reply = lab.ask("POST", TASKS, &[JSON, ("content-length", "99999999")], b"").await;
    assert_eq!((reply.status, reply.reason().as_str()), (413, "BODY_TOO_LARGE"));
    let chunk = "x".repeat(1 << 20);
    let chunked = format!("{:x}\r\n{chunk}\r\n", chunk.len()).repeat(3) + "0\r\n\r\n";
    let reply = lab.ask("POST", TASKS, &[JSON, ("transfer-encoding", "chunked")], chunked.as_bytes()).await;
    assert_eq!((reply.status, reply.reason().as_str()), (413, "BODY_TOO_LARGE"));
    let payload = json!({"task_type": "k", "payload": "x".repeat(300 * 1024)}).to_string();
    let reply = lab.ask("POST", TASKS, &[JSON], payload.as_bytes()).await;
    assert_eq!((reply.status, reply.reason().as_str()), (413, "PAYLOAD_TOO_LARGE"));
    let reply = lab.ask("GET", TASKS, &[("x-much", &"x".repeat(20 * 1024))], b"").await;
    assert_eq!((reply.status, reply.reason().as_str()), (431, "HEADERS_TOO_LARGE"));
    let reply = lab.ask("GET", TASKS, &[("x-more", &"x".repeat(200 * 1024))], b"").await;
    assert_eq!(reply.status, 431);
    let many = json!({"tasks": vec![json!({"task_type": "k"}); 1_001]}).to_string();
    let reply = lab.ask("POST", "/api/v1/namespaces/n/tasks/batch", &[JSON], many.as_bytes()).await;
    assert_eq!((reply.status, reply.reason().as_str()), (400, "REQUEST_INVALID"));
}

#[tokio::test]
async fn what_is_no_http_is_answered_or_closed() {
    let lab = Lab::new().await;
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
    ] {
        let mut wire = lab.connect().await;
        wire.send(garbage).await;
        let reply = wire.head().await;
        assert!(reply.status == 400 || reply.status == 0 || reply.status == 505, "{reply:?}");
        wire.closed().await;
    }
    assert_eq!(lab.get("/health").await.status, 200);
}

#[tokio::test]
async fn headers_and_bodies_that_do_not_come_are_not_waited_for() {
    let moment = Duration::from_millis(100);
    let lab = Lab::with(|builder| builder.headers_within(moment).body_within(moment)).await;
    let mut half = lab.connect().await;
    half.send(b"GET /health HTTP/1.1\r\nhost: ").await;
    half.closed().await;
    let mut slow = lab.connect().await;
    slow.request(&lab, "POST", TASKS, &[JSON, ("content-length", "100")], b"{").await;
    let reply = slow.reply().await;
    assert_eq!((reply.status, reply.reason().as_str()), (408, "REQUEST_TIMEOUT"));
}

#[tokio::test]
async fn connections_beyond_the_maximum_are_turned_away() {
    let lab = Lab::with(|builder| builder.connections_max(1)).await;
    let mut first = lab.connect().await;
    let body = br#"{"task_type":"a"}"#;
    first.request(&lab, "POST", TASKS, &[JSON, ("content-length", "17"), ("expect", "100-continue")], b"").await;
    assert_eq!(first.head().await.status, 100, "its request is being carried out");
    let mut second = lab.connect().await;
    let turned_away = second.reply().await;
    assert_eq!((turned_away.status, turned_away.reason().as_str()), (503, "SERVER_BUSY"));
    first.send(body).await;
    assert_eq!(first.reply().await.status, 201, "a connection that is needed stays");
}

#[tokio::test]
async fn a_connection_that_rests_gives_way_to_a_new_one() {
    let lab = Lab::with(|builder| builder.connections_max(2)).await;
    let mut silent = lab.connect().await;
    let mut rest = Vec::new();
    for round in 0..3 {
        let mut next = lab.connect().await;
        next.request(&lab, "GET", "/health", &[], b"").await;
        assert_eq!(next.reply().await.status, 200);
        rest.push(next);
        match round {
            0 => assert!(!is_closed(&silent), "there is a place for each"),
            1 => silent.closed().await,
            _ => rest[0].closed().await,
        }
    }
    assert!(!is_closed(&rest[1]), "the one that came later stays");
}

fn is_closed(wire: &lab::Wire) -> bool {
    wire.stream.try_read(&mut [0]).is_ok()
}

#[tokio::test]
async fn a_connection_may_rest_between_requests_but_not_for_ever() {
    let moment = Duration::from_millis(50);
    let lab = Lab::with(|builder| builder.headers_within(moment)).await;
    let mut wire = lab.connect().await;
    for _ in 0..3 {
        wire.request(&lab, "GET", "/health", &[], b"").await;
        assert_eq!(wire.reply().await.status, 200);
        // Two that say nothing are closed one after the other: twice the limit has passed.
        lab.connect().await.closed().await;
        lab.connect().await.closed().await;
    }
    let lab = Lab::with(|builder| builder.rests_for(moment)).await;
    lab.connect().await.closed().await;
    let mut wire = lab.connect().await;
    wire.request(&lab, "GET", "/health", &[], b"").await;
    assert_eq!(wire.reply().await.status, 200);
    wire.closed().await;
}

#[tokio::test]
async fn a_body_may_come_in_pieces_and_requests_behind_each_other() {
    let lab = Lab::new().await;
    let mut wire = lab.connect().await;
    for _ in 0..2 {
        wire.request(&lab, "POST", TASKS, &[JSON, ("content-length", "17")], b"{\"task_t").await;
        // Somebody else is answered meanwhile, so the first piece has been read.
        assert_eq!(lab.get("/health").await.status, 200);
        wire.send(b"ype\":\"a\"").await;
        assert_eq!(lab.get("/health").await.status, 200);
        wire.send(b"}").await;
        assert_eq!(wire.reply().await.status, 201);
    }
    for _ in 0..3 {
        wire.request(&lab, "POST", TASKS, &[JSON], br#"{"task_type":"a"}"#).await;
    }
    for _ in 0..3 {
        assert_eq!(wire.reply().await.status, 201);
    }
}
