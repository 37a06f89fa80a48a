//! The bad line itself: each fault, alone and always, is what a client of DynamoDB would meet.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes, Put, PutRequest, TransactWriteItem, WriteRequest};
use ekiden_store_dynamodb::DynamoStore;
use ekiden_testkit::proxy::Faults;

use ward::{Ward, client};

const ALWAYS: u32 = 100;

/// The documented tables, reached without faults and with.
struct Line {
    plain: Client,
    bad: Client,
    table: String,
    _wards: [Ward; 2],
}

impl Line {
    async fn with(faults: Faults) -> Self {
        let bad = Ward::open_behind(faults, 1).await;
        let mut plain = Ward::open().await;
        plain.endpoint_of(&bad);
        let options = plain.options();
        DynamoStore::open(options.clone()).await.unwrap();
        let table = format!("{}pm-runner-queue", options.table_prefix);
        let behind = ekiden_store_dynamodb::Options { endpoint: bad.options().endpoint, ..options.clone() };
        let bad_client = client(&behind).config().to_builder().retry_config(RetryConfig::disabled()).build();
        Self { plain: client(&options), bad: Client::from_conf(bad_client), table, _wards: [plain, bad] }
    }

    async fn put(&self, by: &Client, id: &str) -> Result<(), Option<String>> {
        let put = by.put_item().table_name(&self.table).set_item(Some(item(id)));
        put.send().await.map(drop).map_err(|error| error.code().map(str::to_owned))
    }

    async fn is_there(&self, id: &str) -> bool {
        let get = self.plain.get_item().table_name(&self.table).consistent_read(true);
        get.set_key(Some(key(id))).send().await.unwrap().item.is_some()
    }

    async fn queued(&self, by: &Client, limit: i32) -> (usize, bool) {
        let query = by.query().table_name(&self.table).index_name("status-index").limit(limit);
        let query = query.key_condition_expression("#s = :s").expression_attribute_names("#s", "status");
        let page = query.expression_attribute_values(":s", text("QUEUED")).send().await.unwrap();
        (page.items().len(), page.last_evaluated_key.is_some())
    }
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn key(id: &str) -> std::collections::HashMap<String, AttributeValue> {
    [("namespace".to_owned(), text("n")), ("task_id".to_owned(), text(id))].into()
}

fn item(id: &str) -> std::collections::HashMap<String, AttributeValue> {
    let more = [("status".to_owned(), text("QUEUED")), ("created_at".to_owned(), text("2026-11-15T12:00:00Z"))];
    key(id).into_iter().chain(more).collect()
}

#[tokio::test]
async fn a_lost_request_never_arrives() {
    let line = Line::with(Faults { request_lost: ALWAYS, ..Faults::default() }).await;
    assert_eq!(line.put(&line.bad, "a").await, Err(None));
    assert!(!line.is_there("a").await);
}

#[tokio::test]
async fn a_lost_reply_has_been_carried_out() {
    let line = Line::with(Faults { reply_lost: ALWAYS, ..Faults::default() }).await;
    assert_eq!(line.put(&line.bad, "a").await, Err(None));
    assert!(line.is_there("a").await);
}

#[tokio::test]
async fn a_busy_service_says_so_and_does_nothing() {
    let line = Line::with(Faults { throttled: ALWAYS, ..Faults::default() }).await;
    let code = line.put(&line.bad, "a").await.unwrap_err().unwrap();
    assert!(code == "ThrottlingException" || code == "ProvisionedThroughputExceededException", "{code}");
    assert!(!line.is_there("a").await);
}

#[tokio::test]
async fn a_transaction_that_meets_another_says_which_change_did() {
    let line = Line::with(Faults { conflicted: ALWAYS, ..Faults::default() }).await;
    assert_eq!(line.put(&line.bad, "a").await, Err(Some("TransactionConflictException".to_owned())));
    let put = |id| {
        let put = Put::builder().table_name(&line.table).set_item(Some(item(id))).build().unwrap();
        TransactWriteItem::builder().put(put).build()
    };
    let send = line.bad.transact_write_items().transact_items(put("a")).transact_items(put("b"));
    let error = send.send().await.unwrap_err().into_service_error();
    assert_eq!(error.code(), Some("TransactionCanceledException"));
    let aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError::TransactionCanceledException(
        cancelled,
    ) = error
    else {
        panic!("{error}")
    };
    let codes: Vec<_> = cancelled.cancellation_reasons().iter().filter_map(|reason| reason.code()).collect();
    assert_eq!(codes.len(), 2);
    assert_eq!(codes.iter().filter(|code| **code == "None").count(), 1, "{codes:?}");
    assert!(!line.is_there("a").await && !line.is_there("b").await);
}

#[tokio::test]
async fn a_part_of_a_batch_is_left_and_comes_with_the_next() {
    let line = Line::with(Faults { partial: ALWAYS, ..Faults::default() }).await;
    let ids: Vec<String> = (0..8).map(|number| format!("t{number}")).collect();
    let write = |id: &String| {
        let put = PutRequest::builder().set_item(Some(item(id))).build().unwrap();
        WriteRequest::builder().put_request(put).build()
    };
    let (mut left, mut rounds) = (Some([(line.table.clone(), ids.iter().map(write).collect())].into()), 0);
    while let Some(items) = left.take() {
        let answer = line.bad.batch_write_item().set_request_items(Some(items)).send().await.unwrap();
        left = answer.unprocessed_items.filter(|left| !left.is_empty());
        rounds += 1;
    }
    assert!(rounds > 1, "something was left at first");
    let keys = KeysAndAttributes::builder().set_keys(Some(ids.iter().map(|id| key(id)).collect())).build().unwrap();
    let (mut left, mut found, mut rounds) = (Some([(line.table.clone(), keys)].into()), 0, 0);
    while let Some(keys) = left.take() {
        let answer = line.bad.batch_get_item().set_request_items(Some(keys)).send().await.unwrap();
        found += answer.responses.unwrap().values().map(Vec::len).sum::<usize>();
        left = answer.unprocessed_keys.filter(|left| !left.is_empty());
        rounds += 1;
    }
    assert!(rounds > 1 && found == 8, "{found} in {rounds} rounds");
    let (count, more) = line.queued(&line.bad, 8).await;
    assert!(count < 8 && more, "a page is shorter than asked for, and says that there is more");
}

#[tokio::test]
async fn a_stale_index_answers_as_it_did_a_moment_ago_and_then_as_it_is() {
    let line = Line::with(Faults { stale: ALWAYS, ..Faults::default() }).await;
    assert_eq!(line.queued(&line.bad, 8).await, (0, false));
    line.put(&line.plain, "a").await.unwrap();
    assert_eq!(line.queued(&line.plain, 8).await, (1, false));
    assert_eq!(line.queued(&line.bad, 8).await, (0, false), "it has not heard of it");
    assert_eq!(line.queued(&line.bad, 8).await, (1, false), "never twice in a row");
}

/// A process is killed at a request: that one has been carried out, and nothing is answered any more.
#[tokio::test]
async fn a_killed_process_gets_no_answer() {
    let line = Line::with(Faults::default()).await;
    let proxy = line._wards[1].proxy.as_ref().unwrap();
    proxy.kill_at(2);
    line.put(&line.bad, "a").await.unwrap();
    tokio::select! {
        answer = line.put(&line.bad, "b") => panic!("{answer:?}"),
        () = proxy.killed() => {}
    }
    assert!(line.is_there("a").await && line.is_there("b").await);
}
