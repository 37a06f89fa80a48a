//! The page of the server, asked for as a browser does.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use lab::Lab;
use serde_json::json;

fn text(reply: &lab::Reply) -> String {
    String::from_utf8(reply.body.clone()).unwrap()
}

#[tokio::test]
async fn the_page_shows_counts_tasks_pools_and_runners_of_a_namespace() {
    let lab = Lab::new().await;
    let page = lab.get("/").await;
    assert_eq!(page.status, 200);
    assert!(text(&page).contains("ekiden task add hello"), "an empty server says how to begin: {}", text(&page));

    let task =
        |id: &str, title: &str| json!({ "id": id, "task_type": "mail", "title": title, "pool": "out", "held": true });
    lab.post("/api/v1/namespaces/default/tasks", task("one", "<script>alert(1)</script>")).await;
    lab.post("/api/v1/namespaces/other/tasks", task("two", "elsewhere")).await;
    lab.send("PUT", "/api/v1/namespaces/default/pools/out", json!({ "paused": true, "running_max": 3 })).await;
    lab.send("PUT", "/api/v1/namespaces/default/runners/r-1", json!({ "pools": ["out"], "task_types": [] })).await;
    let page = lab.get("/").await;
    let html = text(&page);
    for part in
        ["<dt>pending<dd>1</div>", "<code>one</code>", "&lt;script&gt;alert(1)", "paused", "<code>r-1</code>", "alive"]
    {
        assert!(html.contains(part), "{part:?} in\n{html}");
    }
    assert!(!html.contains("<script") && !html.contains("two"), "{html}");
    assert!(html.contains("href=\"/?namespace=other\""), "{html}");
    let policy = &page.headers["content-security-policy"];
    assert!(policy.contains("default-src 'none'") && policy.contains("style-src 'self'"), "{policy}");
    assert!(text(&lab.get("/?namespace=other").await).contains("<code>two</code>"));
    assert_eq!(lab.get("/style.css").await.status, 200);
}

#[tokio::test]
async fn the_page_speaks_the_language_of_the_browser() {
    let lab = Lab::new().await;
    lab.post("/api/v1/namespaces/default/tasks", json!({ "id": "one", "task_type": "mail" })).await;
    let page = lab.ask("GET", "/", &[("accept-language", "ja,en;q=0.5")], b"").await;
    let html = text(&page);
    assert!(html.contains("<html lang=\"ja\">") && html.contains("待機中") && html.contains("秒前"), "{html}");
}
