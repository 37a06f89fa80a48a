//! What the description says of values is what the server does: for every parameter and every field of a body, the smallest and the
//! largest value that it allows are taken, and those just beyond are refused; so it is with `null`, missing and unknown fields.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod cases;
mod lab;

use cases::{Case, Schemas};
use ekiden_core::limits::PARENTS_MAX;
use lab::Lab;
use serde_json::{Value, json};

/// A value for each field that a server takes only if it fits what is there, by its name.
fn known(name: &str) -> Option<Value> {
    Some(match name {
        "task_id" => json!("t"),
        "token" => json!(1),
        "runner" => json!("r"),
        "question" => json!("q"),
        "expression" => json!("* * * * *"),
        "time_zone" => json!("UTC"),
        _ => return None,
    })
}

/// What the words of the description forbid and its schemas cannot: a schedule takes a task, but not each one.
const SAID_IN_WORDS: [&str; 4] = ["after_group", "depends_on", "held", "idempotency_key"];

/// A request, and whether the description allows it.
struct Request {
    what: String,
    method: String,
    path: String,
    body: Option<(&'static str, Vec<u8>)>,
    is_allowed: bool,
}

fn requests(description: &Value) -> Vec<Request> {
    let mut all = Vec::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, route) in methods.as_object().unwrap() {
            all.extend(of_route(&Schemas { description, known }, path, method, route));
        }
    }
    all
}

fn of_route(schemas: &Schemas<'_>, path: &str, method: &str, route: &Value) -> Vec<Request> {
    let operation = route["operationId"].as_str().unwrap();
    let parameters: Vec<&Value> = route["parameters"].as_array().into_iter().flatten().collect();
    let ids = |name: &str, value: Option<&str>| {
        parameters.iter().filter(|one| one["in"] == "path").fold(path.to_owned(), |path, one| {
            let usual = match one["name"].as_str().unwrap() {
                "ns" => "{ns}",
                "execution_no" => "1",
                // Reports and answers are for a task that is there.
                _ => "t",
            };
            let value = value.filter(|_| one["name"] == name).unwrap_or(usual);
            path.replace(&format!("{{{}}}", one["name"].as_str().unwrap()), value)
        })
    };
    let needed = needed_queries(&parameters);
    let with = |pairs: &[String]| match pairs {
        [] => ids("", None),
        pairs => format!("{}?{}", ids("", None), pairs.join("&")),
    };
    let usual_body = usual_body(schemas, route);
    let request = |what: &str, path: String, body: Option<(&'static str, Vec<u8>)>, is_allowed: bool| Request {
        what: format!("{operation} {what}"),
        method: method.to_uppercase(),
        path,
        body,
        is_allowed,
    };
    let mut all = vec![request("as it should be", with(&needed), usual_body.clone(), true)];
    for parameter in &parameters {
        let name = parameter["name"].as_str().unwrap();
        let said = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        for Case { at, value, is_allowed } in schemas.cases(&parameter["schema"], name) {
            let value = value.get(0).unwrap_or(&value);
            // Whatever stands in a path or a query is text.
            if value.is_null() || value.is_object() || value.is_array() {
                continue;
            }
            let text = said(value);
            if parameter["in"] == "path" {
                if !text.is_empty() {
                    all.push(request(
                        &at,
                        format!("{}{}", ids(name, Some(&text)), query(&needed)),
                        usual_body.clone(),
                        is_allowed,
                    ));
                }
            // A cursor is known to nobody but the listing that gave it out.
            } else if !(name == "cursor" && is_allowed) {
                let mut pairs: Vec<String> =
                    needed.iter().filter(|one| !one.starts_with(&format!("{name}="))).cloned().collect();
                pairs.push(format!("{name}={text}"));
                all.push(request(&at, with(&pairs), usual_body.clone(), is_allowed));
            }
        }
        if parameter["in"] == "query" && parameter["required"] == true {
            let pairs: Vec<String> =
                needed.iter().filter(|one| !one.starts_with(&format!("{name}="))).cloned().collect();
            all.push(request(&format!("without {name}"), with(&pairs), usual_body.clone(), false));
        }
    }
    all.extend(
        bodies(schemas, route).into_iter().map(|(what, body, is_allowed)| {
            request(&what, with(&needed), Some(("application/json", body)), is_allowed)
        }),
    );
    all
}

/// What a request must say behind the question mark.
fn needed_queries(parameters: &[&Value]) -> Vec<String> {
    let needed = parameters.iter().filter(|one| one["in"] == "query" && one["required"] == true);
    needed.map(|one| format!("{}=1", one["name"].as_str().unwrap())).collect()
}

/// A body that a route takes, if it takes any.
fn usual_body(schemas: &Schemas<'_>, route: &Value) -> Option<(&'static str, Vec<u8>)> {
    let content = &route["requestBody"]["content"];
    let schema = &content["application/json"]["schema"];
    if schema.is_object() {
        return Some(("application/json", schemas.sample(schema, 0).to_string().into_bytes()));
    }
    content.is_object().then(|| ("application/octet-stream", b"x".to_vec()))
}

/// What a body of JSON may say and what it may not, and no body at all: each with its name and whether it is allowed.
fn bodies(schemas: &Schemas<'_>, route: &Value) -> Vec<(String, Vec<u8>, bool)> {
    let schema = &route["requestBody"]["content"]["application/json"]["schema"];
    let Some(path) = schema["$ref"].as_str() else { return Vec::new() };
    let mut all = vec![("without a body".to_owned(), Vec::new(), route["requestBody"]["required"] != true)];
    for Case { at, value, is_allowed } in schemas.cases(schema, path.rsplit('/').next().unwrap()) {
        let is_excepted = SAID_IN_WORDS.iter().any(|field| at.contains(&format!("NewSchedule.task.{field}")));
        if !(is_excepted && is_allowed) {
            all.push((at, value.to_string().into_bytes(), is_allowed));
        }
    }
    all
}

fn query(pairs: &[String]) -> String {
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// A namespace with a task `t` that the runner `r` runs or has asked about, and one more of each type that a claim may ask for.
async fn prepare(lab: &Lab, namespace: &str, request: &Request) {
    let at = |rest: &str| format!("/api/v1/namespaces/{namespace}/{rest}");
    if request.what.contains("depends_on") {
        let parents = (0..=PARENTS_MAX).map(|number| format!("s{number}")).chain(["s".to_owned(), "s".repeat(128)]);
        let tasks: Vec<Value> = parents.map(|id| json!({"id": id, "task_type": "parent"})).collect();
        assert_eq!(lab.post(&at("tasks/batch"), json!({"tasks": tasks})).await.status, 200);
        return;
    }
    if request.method == "GET" || request.what.starts_with("enqueue") {
        return;
    }
    let tasks = json!({"tasks": [{"id": "t", "task_type": "k"}, {"task_type": "s0"}]});
    assert_eq!(lab.post(&at("tasks/batch"), tasks).await.status, 200);
    let claimed = lab.post(&at("claims"), json!({"runner": "r", "task_types": ["k"]})).await;
    assert_eq!(claimed.json()["tasks"][0]["token"], 1, "{claimed:?}");
    if request.what.starts_with("answerTask") {
        let verdict = json!({"outcome": "asked", "question": {"id": "q", "text": "?"}});
        let settle = json!({"settlements": [{"task_id": "t", "token": 1, "verdict": verdict}]});
        assert_eq!(lab.post(&at("settlements"), settle).await.status, 200);
    }
}

/// Whether the server says that the request is wrong. That something is not there or has ended is another matter.
async fn is_refused(lab: &Lab, request: &Request, path: &str) -> bool {
    let (media_type, body) = request.body.clone().unwrap_or(("application/json", Vec::new()));
    let mut wire = lab.connect().await;
    wire.request(lab, &request.method, path, &[("content-type", media_type), ("connection", "close")], &body).await;
    if path.contains("/events") || path.contains("/hints") || path.contains("follow=true") {
        return wire.head().await.status == 400;
    }
    let reply = wire.reply().await;
    assert!(reply.status < 500 && reply.status > 0, "{} {reply:?}", request.what);
    if matches!(reply.status, 400 | 413) {
        return true;
    }
    let answer: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let items = ["tasks", "settled"].map(|list| answer[list].as_array().cloned().unwrap_or_default()).concat();
    let errors = items.iter().map(|item| &item["error"]).chain([&answer["claim_error"]]);
    errors.into_iter().any(|error| error["category"] == "REQUEST")
}

/// Where the server does not do what the description says.
async fn differences(description: &Value) -> Vec<String> {
    let lab = Lab::new().await;
    let mut found = Vec::new();
    for (number, request) in requests(description).iter().enumerate() {
        let namespace = format!("n{number}");
        prepare(&lab, &namespace, request).await;
        let path = request.path.replace("{ns}", &namespace);
        if is_refused(&lab, request, &path).await == request.is_allowed {
            let body = request.body.as_ref().map(|(_, body)| String::from_utf8_lossy(body)).unwrap_or_default();
            let body: String = body.chars().take(200).collect();
            let (said, done) = if request.is_allowed { ("allows", "refuses") } else { ("forbids", "takes") };
            found.push(format!(
                "the description {said} and the server {done} {}: {} {path} {body}",
                request.what, request.method
            ));
        }
    }
    found
}

#[tokio::test]
async fn what_the_description_allows_is_taken_and_what_lies_just_beyond_is_refused() {
    let mut description: Value = serde_json::from_str(ekiden_server::openapi()).unwrap();
    let count = requests(&description).len();
    assert!(count > 500, "{count}");
    let found = differences(&description).await;
    assert!(found.is_empty(), "{} of {count}:\n{}", found.len(), found.join("\n"));

    // It can fail: descriptions that promise something else, each in one place, as one such promise would hide others.
    let paths = description["paths"].as_object_mut().unwrap();
    paths.retain(|path, _| path.ends_with("/claims") || path.ends_with("/runners/{id}"));
    for (at, said, told) in [
        ("Claim/properties/wait_ms/maximum", json!(60_001), "refuses claimTasks Claim.wait_ms the largest"),
        ("Claim/properties/limit/type", json!(["integer", "null"]), "refuses claimTasks Claim.limit null"),
        ("Claim/required", json!(["runner"]), "refuses claimTasks Claim with nothing optional"),
        ("Claim/required", json!(["runner", "task_types", "limit"]), "takes claimTasks Claim without limit"),
        ("Beat/properties/project_root/maxLength", json!(1_000), "takes beat Beat.project_root too long"),
    ] {
        let mut planted = description.clone();
        *planted.pointer_mut(&format!("/components/schemas/{at}")).unwrap() = said;
        let found = differences(&planted).await.join("\n");
        assert!(found.contains(told), "{told:?} is not among these:\n{found}");
    }
}
