//! A task's life over HTTP: handed in, claimed, settled, looked at.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use lab::Lab;
use serde_json::json;

/// R19: a client that lost the reply sends the same request again.
#[tokio::test]
async fn a_task_named_by_its_op_id_alone_is_enqueued_once() {
    let lab = Lab::new().await;
    // The second body has a field that the fast reader leaves to serde.
    for (op, extra) in
        [("0192aaaa-0000-7000-8000-000000000001", None), ("0192aaaa-0000-7000-8000-000000000002", Some("t"))]
    {
        let mut task = json!({"task_type": "k", "op_id": op});
        if let Some(title) = extra {
            task["title"] = json!(title);
        }
        let first = lab.post("/api/v1/namespaces/n/tasks", task.clone()).await.json();
        let again = lab.post("/api/v1/namespaces/n/tasks", task.clone()).await.json();
        let batch = lab.post("/api/v1/namespaces/n/tasks/batch", json!({"tasks": [task]})).await.json();
        assert_eq!(again["task"]["id"], first["task"]["id"], "{first} {again}");
        assert_eq!(batch["tasks"][0]["task"]["id"], first["task"]["id"], "{first} {batch}");
    }
    let counts = lab.get("/api/v1/namespaces/n/counts").await.json();
    assert_eq!(counts["by_state"]["queued"], 2, "{counts}");
}

#[tokio::test]
async fn a_result_of_null_is_kept_alone_and_beside_a_failed_sibling() {
    let lab = Lab::new().await;
    for with_sibling in [false, true] {
        let (id, sibling) = (lab.task().await, lab.task().await);
        let claim = json!({"runner": "r", "task_types": ["k"], "limit": 2});
        assert_eq!(lab.post("/api/v1/namespaces/n/claims", claim).await.json()["tasks"][1]["token"], 1);
        let mut settlements =
            vec![json!({"task_id": id, "token": 1, "verdict": {"outcome": "succeeded", "result": null}})];
        if with_sibling {
            settlements.push(json!({"task_id": sibling, "token": 1, "verdict": {"outcome": "failed", "error": "e"}}));
        }
        let settled = lab.post("/api/v1/namespaces/n/settlements", json!({"settlements": settlements})).await;
        assert_eq!(settled.json()["settled"][0]["state"], "succeeded", "{settled:?}");
        let found = lab.get(&format!("/api/v1/namespaces/n/tasks/{id}")).await.json();
        assert_eq!(found.get("result"), Some(&json!(null)), "{found}");
    }
}

#[tokio::test]
async fn a_task_is_handed_in_claimed_and_settled() {
    let lab = Lab::new().await;
    lab.runner("r").await;
    let id = lab.task().await;
    let claimed = lab.claim(0).await.json();
    let task = &claimed["tasks"][0];
    assert_eq!((task["task"]["id"].as_str(), &task["task"]["payload"]), (Some(&*id), &json!({"a": 1})));

    let settle = json!({"settlements": [
        {"task_id": id, "token": task["token"], "verdict": {"outcome": "succeeded", "result": [1, 2]}},
        {"task_id": "nobody", "token": 1, "verdict": {"outcome": "succeeded"}},
    ]});
    let settled = lab.post("/api/v1/namespaces/n/settlements", settle).await;
    assert_eq!(settled.status, 200, "{settled:?}");
    assert_eq!(settled.json()["settled"][0]["state"], "succeeded");
    assert_eq!(settled.json()["settled"][1]["error"]["reason_code"], "TASK_NOT_FOUND");

    let found = lab.get(&format!("/api/v1/namespaces/n/tasks/{id}")).await.json();
    assert_eq!((found["state"].as_str(), &found["result"]), (Some("succeeded"), &json!([1, 2])));
    let attempts = lab.get(&format!("/api/v1/namespaces/n/tasks/{id}/attempts")).await.json();
    assert_eq!(attempts["items"][0]["outcome"], "succeeded");
    let history = lab.get(&format!("/api/v1/namespaces/n/tasks/{id}/history")).await.json();
    assert_eq!(history["items"].as_array().unwrap().len(), 3);
    let counts = lab.get("/api/v1/namespaces/n/counts").await.json();
    assert_eq!(counts["by_state"]["succeeded"], 1);
    let page =
        lab.get("/api/v1/namespaces/n/tasks?state=queued,succeeded&state=dead&limit=5&order=oldest").await.json();
    assert_eq!(page["items"][0]["id"], id.as_str());
    let namespaces = lab.get("/api/v1/namespaces").await.json();
    assert_eq!(namespaces["items"], json!(["n"]));
}

#[tokio::test]
async fn the_same_idempotency_key_finds_the_first_task() {
    let lab = Lab::new().await;
    let key = [("idempotency-key", "once"), ("content-type", "application/json; charset=utf-8")];
    let path = "/api/v1/namespaces/n/tasks";
    let first = lab.ask("POST", path, &key, br#"{"task_type":"k"}"#).await;
    let again = lab.ask("POST", path, &key, br#"{"task_type":"k"}"#).await;
    assert_eq!((first.status, again.status), (201, 200), "{again:?}");
    assert_eq!(first.json()["id"], again.json()["id"]);
    let other = lab.ask("POST", path, &key, br#"{"task_type":"k","idempotency_key":"other"}"#).await;
    assert_eq!((other.status, other.reason().as_str()), (400, "REQUEST_INVALID"));
}

#[tokio::test]
async fn a_batch_answers_each_task_by_itself() {
    let lab = Lab::new().await;
    let tasks =
        json!({"tasks": [{"task_type": "k"}, {"task_type": "k", "priority": 1000}, {"task_type": "k", "id": "mine"}]});
    let answer = lab.post("/api/v1/namespaces/n/tasks/batch", tasks).await.json();
    assert_eq!(answer["tasks"][0]["is_new"], true);
    assert_eq!(answer["tasks"][1]["error"]["reason_code"], "PRIORITY_OUT_OF_RANGE");
    assert_eq!(answer["tasks"][2]["id"], "mine");
}

#[tokio::test]
async fn people_cancel_retry_release_and_answer() {
    let lab = Lab::new().await;
    let held = lab.post("/api/v1/namespaces/n/tasks", json!({"task_type": "k", "held": true})).await.json();
    let path = format!("/api/v1/namespaces/n/tasks/{}", held["id"].as_str().unwrap());
    let command = async |name: &str| lab.ask("POST", &format!("{path}/{name}"), &[], b"").await;
    assert_eq!(command("release").await.json()["state"], "queued");
    assert_eq!(lab.get(&format!("{path}/explain")).await.json()["reasons"][0]["reason_code"], "NO_HANDLER");
    assert_eq!(command("cancel").await.json()["state"], "cancelled");
    let again = lab.post(&format!("{path}/cancel"), json!({"note": "again"})).await;
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(command("retry").await.json()["state"], "queued");
    let answer = lab.post(&format!("{path}/answer"), json!({"question": "q", "content": "yes"})).await;
    assert_eq!(answer.status, 409, "{answer:?}");
}

#[tokio::test]
async fn pools_schedules_runners_and_sweeps_can_be_set_and_seen() {
    let lab = Lab::new().await;
    lab.runner("r").await;
    let at = |rest: &str| format!("/api/v1/namespaces/n/{rest}");
    assert_eq!(lab.send("PUT", &at("pools/p"), json!({"running_max": 3})).await.status, 204);
    assert_eq!(lab.get(&at("pools/p")).await.json()["running_max"], 3);
    assert_eq!(lab.get(&at("pools")).await.json()["items"][0]["name"], "p");
    assert_eq!(lab.ask("POST", &at("pools/p/pause"), &[], b"").await.json()["paused"], true);
    assert_eq!(lab.ask("POST", &at("pools/p/resume"), &[], b"").await.json()["paused"], false);

    let schedule = json!({"every": {"cron": {"expression": "0 3 * * *"}}, "task": {"task_type": "k"}});
    let set = lab.send("PUT", &at("schedules/nightly"), schedule).await;
    assert_eq!((set.status, set.json()["id"].as_str()), (200, Some("nightly")), "{set:?}");
    assert_eq!(lab.get(&at("schedules")).await.json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(lab.ask("DELETE", &at("schedules/nightly"), &[], b"").await.status, 204);

    assert_eq!(lab.get(&at("runners")).await.json()["items"][0]["status"], "running");
    assert_eq!(lab.get(&at("runners/r/held")).await.json()["items"], json!([]));
    assert_eq!(lab.get(&at("runners/r/signals")).await.json()["items"], json!([]));
    assert_eq!(lab.ask("DELETE", &at("runners/r"), &[], b"").await.status, 204);

    lab.task().await;
    let sweep = |dry_run: bool| json!({"id": "s", "action": "cancel", "filter": {}, "dry_run": dry_run});
    let preview = lab.post(&at("sweeps"), sweep(true)).await;
    assert_eq!((preview.status, &preview.json()["matches"]), (200, &json!(1)));
    assert_eq!(lab.post(&at("sweeps"), sweep(false)).await.status, 202);
    assert_eq!(lab.get(&at("sweeps/nothing")).await.reason(), "SWEEP_NOT_FOUND");
    assert_eq!(lab.ask("POST", &at("maintain"), &[], b"").await.status, 200);
    let again = lab.post(&at("sweeps"), sweep(true)).await;
    assert_eq!(again.json()["matches"], json!(0), "what was cancelled matches still, and would not change");
    assert_eq!(lab.get(&at("due")).await.json(), json!({"next_at": null}));
}

#[tokio::test]
async fn a_filter_holds_as_much_as_the_description_says_and_no_more() {
    let lab = Lab::new().await;
    for (chars, status) in [(256, 200), (257, 400)] {
        let text = "x".repeat(chars);
        let sweep = json!({"action": "purge", "filter": {"text": text}, "dry_run": true});
        assert_eq!(lab.post("/api/v1/namespaces/n/sweeps", sweep).await.status, status);
        assert_eq!(lab.get(&format!("/api/v1/namespaces/n/tasks?text={text}")).await.status, status);
    }
    for (states, status) in [(9, 200), (10, 400)] {
        let sweep = json!({"action": "purge", "filter": {"states": vec!["dead"; states]}, "dry_run": true});
        assert_eq!(lab.post("/api/v1/namespaces/n/sweeps", sweep).await.status, status);
    }
}

#[tokio::test]
async fn the_server_says_how_it_is() {
    let lab = Lab::new().await;
    lab.task().await;
    assert_eq!(lab.get("/health").await.text(), "alive\n");
    assert_eq!(lab.get("/ready").await.text(), "ready\n");
    let metrics = lab.get("/metrics").await;
    for line in [
        "ekiden_http_requests_total{route=\"enqueueTask\",status=\"201\"} 1",
        "ekiden_task_changes_total{event=\"enqueued\"} 1",
        "ekiden_tasks{namespace=\"n\",state=\"queued\"} 1",
        "ekiden_http_panics_total 0",
    ] {
        assert!(metrics.text().contains(line), "{line}\n{}", metrics.text());
    }
    assert!(lab.get("/docs").await.text().contains("/api/v1/namespaces/{ns}/claims"));
    assert_eq!(lab.get("/api/v1").await.json()["store"], "memory");
}
