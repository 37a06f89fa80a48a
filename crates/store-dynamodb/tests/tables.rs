//! The tables on a DynamoDB server: made, accepted, mended or refused, and what a life in them costs.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType, TableDescription,
};
use ekiden_core::claim::Claim;
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{RunnerId, TaskId};
use ekiden_core::lease::Token;
use ekiden_core::task::Phase;
use ekiden_core::time::Millis;
use ekiden_store::{ListOrder, Store, StoreExt, TaskQuery};
use ekiden_store_dynamodb::DynamoStore;

use ward::{Bench, Ward, client, ns};

fn keys(schema: &[KeySchemaElement]) -> Vec<(&str, &KeyType)> {
    schema.iter().map(|key| (key.attribute_name(), key.key_type())).collect()
}

async fn describe(client: &Client, table: &str) -> TableDescription {
    client.describe_table().table_name(table).send().await.unwrap().table.unwrap()
}

fn schema(hash: &str, range: &str) -> Vec<KeySchemaElement> {
    let of = |name, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().unwrap();
    vec![of(hash, KeyType::Hash), of(range, KeyType::Range)]
}

fn strings(names: &[&str]) -> Vec<AttributeDefinition> {
    let of = |name: &&str| {
        AttributeDefinition::builder().attribute_name(*name).attribute_type(ScalarAttributeType::S).build().unwrap()
    };
    names.iter().map(of).collect()
}

/// Q1, Q2
#[tokio::test]
async fn a_new_store_makes_the_documented_tables() {
    let bench = Bench::open().await;
    let queue = describe(&bench.foreign, &bench.queue()).await;
    assert_eq!(keys(queue.key_schema()), [("namespace", &KeyType::Hash), ("task_id", &KeyType::Range)]);
    let index =
        queue.global_secondary_indexes().iter().find(|index| index.index_name() == Some("status-index")).unwrap();
    assert_eq!(keys(index.key_schema()), [("status", &KeyType::Hash), ("created_at", &KeyType::Range)]);
    assert_eq!(index.projection().unwrap().projection_type(), Some(&ProjectionType::All));
    let runners = describe(&bench.foreign, &format!("{}pm-runner-runners", bench.options.table_prefix)).await;
    assert_eq!(keys(runners.key_schema()), [("namespace", &KeyType::Hash), ("runner_id", &KeyType::Range)]);
}

/// Q1: a table that another program made as documented, with an index of its own, is used as it is and gets what it lacks.
#[tokio::test]
async fn a_documented_table_is_accepted_and_gets_its_missing_indexes() {
    let ward = Ward::open().await;
    let options = ward.options();
    let (foreign, table) = (client(&options), format!("{}pm-runner-queue", options.table_prefix));
    let index = |name: &str, hash: &str| {
        let all = Projection::builder().projection_type(ProjectionType::All).build();
        let index = GlobalSecondaryIndex::builder().index_name(name).set_key_schema(Some(schema(hash, "created_at")));
        index.projection(all).build().unwrap()
    };
    let create = foreign.create_table().table_name(&table).billing_mode(BillingMode::PayPerRequest);
    let create = create.set_key_schema(Some(schema("namespace", "task_id")));
    let names = strings(&["namespace", "task_id", "status", "created_at", "task_group_id"]);
    let create = create.set_attribute_definitions(Some(names));
    let create = create.global_secondary_indexes(index("status-index", "status"));
    create.global_secondary_indexes(index("task-group-index", "task_group_id")).send().await.unwrap();
    let put = foreign.put_item().table_name(&table);
    let text = |text: &str| aws_sdk_dynamodb::types::AttributeValue::S(text.to_owned());
    let put = put.item("namespace", text("n")).item("task_id", text("theirs")).item("status", text("COMPLETE"));
    put.item("created_at", text("2026-11-15T12:00:00Z")).item("task_group_id", text("g")).send().await.unwrap();

    let first = DynamoStore::open(options.clone()).await.unwrap();
    let found = describe(&foreign, &table).await;
    let mut names: Vec<&str> = found.global_secondary_indexes().iter().filter_map(|index| index.index_name()).collect();
    names.sort_unstable();
    let ours = ["due", "group", "list", "place", "session"].map(|name| format!("ekiden-{name}-index"));
    let mut expected: Vec<&str> = ours.iter().map(String::as_str).chain(["status-index", "task-group-index"]).collect();
    expected.sort_unstable();
    assert_eq!(names, expected);
    let theirs = foreign.get_item().table_name(&table).key("namespace", text("n")).key("task_id", text("theirs"));
    assert_eq!(theirs.send().await.unwrap().item.unwrap().len(), 5, "their item is as it was");
    drop(first);
    DynamoStore::open(options).await.unwrap();
}

/// Q1
#[tokio::test]
async fn a_table_with_other_keys_is_refused_and_left_alone() {
    let ward = Ward::open().await;
    let options = ward.options();
    let (foreign, table) = (client(&options), format!("{}pm-runner-runners", options.table_prefix));
    let create = foreign.create_table().table_name(&table).billing_mode(BillingMode::PayPerRequest);
    let create = create.set_key_schema(Some(schema("namespace", "id")));
    create.set_attribute_definitions(Some(strings(&["namespace", "id"]))).send().await.unwrap();
    let refused = DynamoStore::open(options).await.unwrap_err();
    assert_eq!(refused.code().as_str(), "TABLE_UNFIT");
    assert!(!refused.retryable);
    assert_eq!(keys(describe(&foreign, &table).await.key_schema()).len(), 2);
}

/// Q13: nobody listens there, which is certain, so a caller may try again.
#[tokio::test]
async fn an_endpoint_that_does_not_answer_is_unavailable() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let options = ekiden_store_dynamodb::Options { endpoint: format!("http://{address}"), ..Default::default() };
    let refused = DynamoStore::open(options).await.unwrap_err();
    assert_eq!(refused.code().as_str(), "STORE_UNAVAILABLE");
    let options = ekiden_store_dynamodb::Options { endpoint: "ftp://example.com".into(), ..Default::default() };
    assert_eq!(DynamoStore::open(options).await.unwrap_err().code().as_str(), "URL_INVALID");
}

/// Q7: at most 12 write units for a life (enqueue, claim, complete) of an item under 1 KB, the documented index included.
#[tokio::test]
async fn a_life_costs_at_most_twelve_write_units() {
    let bench = Bench::open().await;
    // The first task of a namespace and a line enters both, once a process.
    bench.enqueue("n").await;
    bench.claim("n").await.unwrap();
    let start = bench.store.units().write;
    let id = bench.enqueue("n").await;
    let enqueued = bench.store.units().write;
    let task = bench.claim("n").await.unwrap();
    let claimed = bench.store.units().write;
    bench.happen("n", id.as_str(), Event::Succeeded { token: Token(task.state.execution_no), result: None }).await;
    let ended = bench.store.units().write;
    assert_eq!(bench.task("n", id.as_str()).await.state.phase, Phase::Succeeded);
    let costs = [enqueued - start, claimed - enqueued, ended - claimed];
    assert!(costs.iter().all(|cost| *cost > 0.0), "the server tells what writes cost: {costs:?}");
    assert!(ended - start <= 12.0, "enqueue, claim, complete cost {costs:?}");
}

/// Q7: at most 2.5 read units for a poll that finds nothing, the look for foreign items included.
#[tokio::test]
async fn an_idle_poll_costs_at_most_two_and_a_half_read_units() {
    let bench = Bench::open().await;
    bench.enqueue("n").await;
    bench.claim("n").await.unwrap();
    let start = bench.store.units();
    for _ in 0..60 {
        assert!(bench.claim("n").await.is_none());
    }
    let end = bench.store.units();
    let mean = (end.read - start.read) / 60.0;
    // DynamoDB Local says that looking at nothing is free, so what was read before has to show that reads are counted.
    assert!(start.read > 0.0, "the server tells what reads cost");
    // Half a unit is left for the list of lines, which these quick polls share and polls a second apart do not.
    assert!(mean <= 2.0, "{mean} read units a poll");
    assert_eq!(end.write, start.write, "an idle poll writes nothing");
}

/// Q7: the claim costs the same, and finds its task, however many tasks other namespaces have queued.
#[tokio::test]
async fn other_namespaces_neither_starve_a_claim_nor_make_it_dearer() {
    let bench = Bench::open().await;
    let cost = async || {
        bench.enqueue("mine").await;
        let start = bench.store.units();
        let task = bench.claim("mine").await.unwrap();
        let end = bench.store.units();
        assert_eq!(task.spec.namespace.as_str(), "mine");
        (end.write - start.write, end.read - start.read)
    };
    cost().await;
    // Both looks for foreign items, at the young and at all, take their turns.
    let alone = [cost().await, cost().await];
    for number in 0..100 {
        bench.enqueue(&format!("other-{}", number % 10)).await;
    }
    let crowded = [cost().await, cost().await];
    assert_eq!(crowded.map(|cost| cost.0), alone.map(|cost| cost.0), "write units");
    // A page of 25 foreign items of less than 1 KB each, eventually consistent, is four units at most.
    for (crowded, alone) in crowded.iter().zip(&alone) {
        assert!(crowded.1 <= alone.1 + 4.0, "read units {crowded:?} after {alone:?}");
    }
}

/// Ids that sort by creation are listed by the table, others by an index; together they are one listing, from either end.
#[tokio::test]
async fn generated_and_chosen_ids_are_one_listing() {
    let bench = Bench::open().await;
    let start = bench.now();
    let mut made = Vec::new();
    for number in 0..24_u64 {
        let created_at = start + Millis::new(number / 3);
        let generated = TaskId::generate(created_at, &[u8::try_from(number).unwrap() * 9; 10]);
        let id = match number % 4 {
            0 => TaskId::new(format!("a-{number}")).unwrap(),
            1 => TaskId::new(format!("task-{number}")).unwrap(),
            // Generated, but at another moment than it was created.
            2 => TaskId::generate(start, &[u8::try_from(number).unwrap(); 10]),
            _ => generated,
        };
        let chosen = id.clone();
        bench.enqueue_with("n", |spec| (spec.id, spec.created_at) = (chosen, created_at)).await;
        made.push((created_at, id));
    }
    made.sort();
    for (order, limit) in [(ListOrder::OldestFirst, 1), (ListOrder::OldestFirst, 5), (ListOrder::NewestFirst, 3)] {
        let (mut listed, mut cursor) = (Vec::new(), None);
        loop {
            let query = TaskQuery { filter: TaskFilter::all(ns("n")), order, cursor, limit };
            let page = bench.store.tasks(query).await.unwrap();
            listed.extend(page.items.iter().map(|found| found.record.as_task().unwrap().id().clone()));
            cursor = page.cursor;
            if cursor.is_none() {
                break;
            }
        }
        let mut expected: Vec<TaskId> = made.iter().map(|(_, id)| id.clone()).collect();
        if order == ListOrder::NewestFirst {
            expected.reverse();
        }
        assert_eq!(listed, expected, "{order:?} in pages of {limit}");
    }
}

/// Q1: processes that start together make the tables once, and share the work: each task goes to one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_on_the_same_tables_share_the_work() {
    let ward = Ward::open().await;
    let options = ward.options();
    let opening: Vec<_> = (0..4).map(|_| tokio::spawn(DynamoStore::open(options.clone()))).collect();
    let mut stores = Vec::new();
    for opened in opening {
        stores.push(Arc::new(opened.await.unwrap().expect("all of them find or make the tables")));
    }
    let bench = Arc::new(Bench::on(ward, options).await);
    for _ in 0..100 {
        bench.enqueue("n").await;
    }
    let claimers: Vec<_> = stores
        .into_iter()
        .enumerate()
        .map(|(number, store)| {
            let bench = bench.clone();
            tokio::spawn(async move {
                let (mut taken, mut idle) = (Vec::new(), 0);
                while idle < 3 {
                    let holder = RunnerId::new(format!("runner-{number}")).unwrap();
                    let claimed = store.claim(Claim { holder, limit: 3, ..bench.claim_of("n") }).await.unwrap().tasks;
                    idle = if claimed.is_empty() { idle + 1 } else { 0 };
                    taken.extend(claimed.into_iter().map(|found| found.key.name.to_string()));
                }
                taken
            })
        })
        .collect();
    let mut all = Vec::new();
    for claimer in claimers {
        all.extend(claimer.await.unwrap());
    }
    assert_eq!(all.len(), 100, "no task went to two, and none was left");
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 100);
}

/// Q13: the address of a server is all that a program needs to say.
#[tokio::test]
async fn an_address_opens_the_tables_of_a_server() {
    let endpoint = ward::serve().await;
    let url = format!("dynamodb:?endpoint={endpoint}");
    let address: ekiden::store::Address = url.parse().unwrap();
    assert_eq!(address.to_string(), url);
    let missing = address.open_existing().await.map(drop).unwrap_err();
    assert_eq!(missing.code().as_str(), "STORE_NOT_FOUND");
    let ekiden = ekiden::Ekiden::open(&url).await.unwrap();
    let task = ekiden.namespace("default").unwrap().enqueue_raw("greet", "text/plain", "hello").await.unwrap();
    ekiden.close().await.unwrap();
    let again = ekiden::Ekiden::builder(address.open_existing().await.unwrap()).build();
    let found = again.namespace("default").unwrap().get_status(&task.id).await.unwrap();
    assert_eq!(found.state, ekiden::TaskState::Queued);
}
