//! What a check finds in shared tables, what repairs it, and what large payloads cost.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]
#![allow(clippy::print_stdout, reason = "units are measured here, and printed for the documents")]

mod ward;

use std::sync::Arc;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use bytes::Bytes;
use ekiden_core::event::Event;
use ekiden_core::id::Kind;
use ekiden_core::lease::Token;
use ekiden_core::plan::{Purge, PurgeWhen, Purged};
use ekiden_core::task::TaskEnvelope;
use ekiden_core::time::Millis;
use ekiden_store::{CheckDepth, CountScope, Store, StoreExt};
use ekiden_store_dynamodb::{DynamoStore, Options, Units};

use ward::{Bench, key, ns};

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

/// The codes that a check finds, runs of the same once.
async fn codes(store: &DynamoStore, depth: CheckDepth) -> Vec<&'static str> {
    let findings = store.check_all(depth).await.unwrap();
    let mut codes: Vec<_> = findings.iter().map(|finding| finding.code.as_str()).collect();
    codes.dedup();
    codes
}

/// Makes a table with two keys and nothing else.
async fn make_table(bench: &Bench, name: &str, keys: [&str; 2]) {
    let mut create = bench.foreign.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
    for (name, kind) in keys.into_iter().zip([KeyType::Hash, KeyType::Range]) {
        let key = KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
        let definition = AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S);
        create = create.key_schema(key).attribute_definitions(definition.build().unwrap());
    }
    create.send().await.unwrap();
}

/// Q1, Q13: a check changes nothing, and says which tables and indexes are missing and which are of the first version.
#[tokio::test]
async fn a_check_reports_missing_tables_missing_indexes_and_old_tables() {
    let bench = Bench::open().await;
    assert_eq!(codes(&bench.store, CheckDepth::Full).await, Vec::<&str>::new());
    make_table(&bench, &format!("{}pm-runner-queue-stable", bench.options.table_prefix), ["task_id", "created_at"])
        .await;
    assert_eq!(codes(&bench.store, CheckDepth::Quick).await, ["TABLE_OLD"]);

    let bare = Options { table_prefix: format!("bare-{}", bench.options.table_prefix), ..bench.options.clone() };
    let empty = DynamoStore::open_to_check(bare.clone()).await.unwrap();
    assert_eq!(codes(&empty, CheckDepth::Quick).await, ["STORE_NOT_FOUND"]);
    make_table(&bench, &format!("{}pm-runner-queue", bare.table_prefix), ["namespace", "task_id"]).await;
    assert_eq!(codes(&empty, CheckDepth::Quick).await, ["INDEX_MISSING", "STORE_NOT_FOUND"]);
    assert_eq!(codes(&empty, CheckDepth::Quick).await, ["INDEX_MISSING", "STORE_NOT_FOUND"], "a check mends nothing");
    DynamoStore::open(bare).await.unwrap();
    assert_eq!(codes(&empty, CheckDepth::Quick).await, Vec::<&str>::new(), "an open does");
}

/// R9: numbers that drifted are found, and repaired by counting anew.
#[tokio::test]
async fn counts_that_drifted_are_found_and_repaired() {
    let bench = Bench::open().await;
    for _ in 0..3 {
        bench.enqueue("n").await;
    }
    assert_eq!(codes(&bench.store, CheckDepth::Full).await, Vec::<&str>::new());
    let update = bench.foreign.update_item().table_name(format!("{}pm-runner-ekiden", bench.options.table_prefix));
    let update = update.key("pk", text("\u{1f}counts\u{1f}n")).key("sk", text("default\u{1f}queued"));
    let update =
        update.update_expression("ADD n :by").expression_attribute_values(":by", AttributeValue::N("4".into()));
    update.send().await.unwrap();
    assert_eq!(codes(&bench.store, CheckDepth::Full).await, ["COUNTS_DRIFTED"]);
    assert_eq!(bench.store.recount().await.unwrap(), 1);
    assert_eq!(codes(&bench.store, CheckDepth::Full).await, Vec::<&str>::new());
    let counts = bench.store.counts(CountScope { namespace: ns("n"), pool: None }).await.unwrap();
    assert_eq!(counts.by_phase.values().sum::<u64>(), 3);
    assert_eq!(bench.store.recount().await.unwrap(), 0);
}

/// Q6, Q9: clocks that run ahead, and a foreign runner that died with its task, are found and left alone.
#[tokio::test]
async fn clocks_that_disagree_and_silent_foreign_runners_are_found() {
    let bench = Bench::open().await;
    bench.enqueue("n").await;
    bench.foreign_put("n", "theirs", "RUNNING").await;
    assert_eq!(codes(&bench.store, CheckDepth::Quick).await, Vec::<&str>::new());
    assert_eq!(codes(&bench.store, CheckDepth::Full).await, ["FOREIGN_RUNNER_SILENT"], "it has no record at all");
    let put = async |ahead: u64| {
        let put = bench.foreign.put_item().table_name(format!("{}pm-runner-runners", bench.options.table_prefix));
        let put = put.item("namespace", text("n")).item("runner_id", text("their-runner"));
        let beat = (bench.now() + Millis::from_secs(ahead)).to_string();
        let put = put.item("status", text("RUNNING")).item("last_heartbeat", text(&beat));
        put.item("started_at", text(&beat)).item("project_root", text("/")).send().await.unwrap();
    };
    put(0).await;
    assert_eq!(codes(&bench.store, CheckDepth::Full).await, Vec::<&str>::new());
    put(60).await;
    assert_eq!(codes(&bench.store, CheckDepth::Quick).await, ["CLOCK_SKEWED"]);
    assert_eq!(bench.foreign_get("n", "theirs").await["status"], "RUNNING", "never run again, never ended by a check");
}

/// Q7: a line that takes more than one part can is found; a line grows, everybody learns of it, and order and claims hold.
#[tokio::test]
async fn a_hot_line_is_found_and_grows() {
    let bench = Bench::open().await;
    let created = bench.now();
    for _ in 0..500 {
        bench.enqueue_with("n", |spec| spec.created_at = created).await;
    }
    assert_eq!(codes(&bench.store, CheckDepth::Quick).await, ["LINE_HOT"]);
    let wide = DynamoStore::open(Options { ready_shards: 4, ..bench.options.clone() }).await.unwrap();
    let wide = Bench::beside(&bench, wide);
    for _ in 0..20 {
        wide.enqueue("n").await;
    }
    // One that was told nothing and opens now learns how many parts there are.
    let late = Bench::beside(&bench, DynamoStore::open(bench.options.clone()).await.unwrap());
    for _ in 0..20 {
        late.enqueue("n").await;
    }
    assert!(parts(&bench).await.len() == 4, "{:?}", parts(&bench).await);
    let mut taken = 0;
    while late.claim("n").await.is_some() {
        taken += 1;
    }
    assert_eq!(taken, 540);
}

/// The places in which tasks of the line stand.
async fn parts(bench: &Bench) -> std::collections::BTreeSet<String> {
    let query = bench.foreign.scan().table_name(bench.queue()).projection_expression("ek_place");
    let found = query.send().await.unwrap().items.unwrap_or_default();
    found.into_iter().filter_map(|mut item| item.remove("ek_place")?.as_s().ok().cloned()).collect()
}

/// A life of a task with this payload, in write and read units.
async fn life(kind: &str, payload: &str) -> Units {
    let bench = Bench::open().await;
    let envelope = TaskEnvelope::json(Kind::new(kind).unwrap(), Bytes::from(payload.to_owned()));
    // Lists that are entered once cost nothing here.
    let first = bench.enqueue_with("n", |spec| spec.envelope = envelope.clone()).await;
    bench.claim("n").await.unwrap();
    bench.happen("n", first.as_str(), Event::Succeeded { token: Token(1), result: None }).await;
    let before = bench.store.units();
    let id = bench.enqueue_with("n", |spec| spec.envelope = envelope.clone()).await;
    let task = bench.claim("n").await.unwrap();
    assert_eq!(task.spec.envelope, envelope, "it arrives as it was");
    bench.happen("n", id.as_str(), Event::Succeeded { token: Token(1), result: None }).await;
    assert_eq!(bench.task("n", id.as_str()).await.spec.envelope, envelope);
    let after = bench.store.units();
    Units { read: after.read - before.read, write: after.write - before.write }
}

/// Q3: a large payload is paid for once; only that of a prompt stands in the item, where other programs read it.
#[tokio::test]
async fn a_large_payload_is_paid_for_once_unless_it_is_a_prompt() {
    let payload = format!(r#"{{"prompt":"{}"}}"#, "x".repeat(100 * 1024));
    let (apart, inside) = (life("mail", &payload).await, life("prompt", &payload).await);
    assert!(apart.write <= 101.0 + 16.0, "{apart:?}");
    assert!(inside.write > 700.0, "as a prompt it is written eight times: {inside:?}");
}

/// Q3: the item of a task whose payload stands apart has all documented attributes; the payload goes when the task goes.
#[tokio::test]
async fn a_payload_apart_goes_with_its_task() {
    let bench = Bench::open().await;
    let payload = "x".repeat(256 * 1024);
    let envelope = TaskEnvelope::json(Kind::new("mail").unwrap(), Bytes::from(payload));
    let id = bench.enqueue_with("n", |spec| spec.envelope = envelope.clone()).await;
    assert_eq!(bench.foreign_get("n", id.as_str()).await["prompt"], "mail");
    assert_eq!(payloads(&bench).await, 1);
    // A second one of the same id is refused, and takes nothing with it.
    let again = async {
        let plan = ekiden_core::plan::Enqueue {
            spec: Arc::new(ekiden_core::task::Spec {
                envelope: TaskEnvelope::json(Kind::new("mail").unwrap(), Bytes::from("y".repeat(10_000))),
                ..(*bench.task("n", id.as_str()).await.spec).clone()
            }),
            start: ekiden_core::transition::Start::Released,
            parents: Vec::new(),
            idempotency: None,
        };
        bench.store.run(&plan, ekiden_core::id::OpId::from_bits(99), bench.now()).await
    };
    assert!(again.await.is_err(), "its id is taken");
    assert_eq!(payloads(&bench).await, 1);
    assert_eq!(bench.task("n", id.as_str()).await.spec.envelope, envelope);
    bench.claim("n").await.unwrap();
    bench.happen("n", id.as_str(), Event::Succeeded { token: Token(1), result: None }).await;
    assert_eq!(codes(&bench.store, CheckDepth::Full).await, Vec::<&str>::new());
    let purge = Purge { task: key("n", id.as_str()), when: PurgeWhen::OnDemand };
    let later = bench.now() + Millis::from_days(1);
    let purged = bench.store.run(&purge, ekiden_core::id::OpId::from_bits(100), later).await.unwrap();
    assert_eq!(purged, Purged::Gone);
    assert_eq!(payloads(&bench).await, 0);
    // What a process that died left behind is found.
    let put = bench.foreign.put_item().table_name(format!("{}pm-runner-ekiden", bench.options.table_prefix));
    let put = put.item("pk", text("\u{1f}payloads\u{1f}n")).item("sk", text(&format!("{id}\u{1f}00")));
    put.send().await.unwrap();
    assert_eq!(codes(&bench.store, CheckDepth::Full).await, ["PAYLOAD_ORPHANED"]);
}

async fn payloads(bench: &Bench) -> i32 {
    let query = bench.foreign.query().table_name(format!("{}pm-runner-ekiden", bench.options.table_prefix));
    let query =
        query.key_condition_expression("pk = :p").expression_attribute_values(":p", text("\u{1f}payloads\u{1f}n"));
    query.send().await.unwrap().count
}
