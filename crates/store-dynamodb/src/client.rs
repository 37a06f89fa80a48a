//! Every request that is sent, a function each. Knows tables and items, nothing of tasks.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, KeysAndAttributes, Put, ReturnConsumedCapacity, ReturnValue,
    ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};

use crate::codec::Item;
use crate::error::{self, Failure};
use crate::expression::{Change, Effect, Words};
use crate::shared::Shared;

/// 100 items: DynamoDB's maximum for one batched read.
const BATCH_KEYS_MAX: usize = 100;

/// A range of one partition.
#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) table: String,
    pub(crate) index: Option<&'static str>,
    pub(crate) condition: String,
    pub(crate) words: Words,
    pub(crate) forward: bool,
    pub(crate) consistent: bool,
    /// Behind this primary key.
    pub(crate) after: Option<Item>,
}

impl Range {
    /// All of a partition, in order.
    pub(crate) fn of(table: &str, index: Option<&'static str>, hash: &str, value: AttributeValue) -> Self {
        let mut words = Words::default();
        let condition = format!("{} = {}", words.name(hash), words.value(value));
        let consistent = index.is_none();
        Self { table: table.to_owned(), index, condition, words, forward: true, consistent, after: None }
    }

    /// Only where the range key compares so.
    pub(crate) fn only(mut self, range: &str, comparison: &str, value: AttributeValue) -> Self {
        let (range, value) = (self.words.name(range), self.words.value(value));
        self.condition = format!("{} AND {range} {comparison} {value}", self.condition);
        self
    }

    /// Only where the range key begins so; everything where the beginning is empty.
    pub(crate) fn beginning(mut self, range: &str, prefix: &str) -> Self {
        if !prefix.is_empty() {
            let (range, value) = (self.words.name(range), self.words.value(AttributeValue::S(prefix.to_owned())));
            self.condition = format!("{} AND begins_with({range}, {value})", self.condition);
        }
        self
    }

    /// Only where the range key is between the two, both included.
    pub(crate) fn between(mut self, range: &str, low: &str, high: &str) -> Self {
        let range = self.words.name(range);
        let [low, high] = [low, high].map(|bound| self.words.value(AttributeValue::S(bound.to_owned())));
        self.condition = format!("{} AND {range} BETWEEN {low} AND {high}", self.condition);
        self
    }
}

impl Shared {
    /// Up to so many items of a range.
    pub(crate) async fn query(&self, range: &Range, limit: usize) -> Result<Vec<Item>, Failure> {
        let mut items = Vec::new();
        let mut after = range.after.clone();
        while items.len() < limit {
            let want = i32::try_from(limit - items.len()).unwrap_or(i32::MAX);
            let page = self
                .patiently(|| async {
                    let query =
                        self.client.query().table_name(&range.table).set_index_name(range.index.map(str::to_owned));
                    let query = query.key_condition_expression(&range.condition).scan_index_forward(range.forward);
                    let query = query.set_expression_attribute_names(range.words.names());
                    let query = query.set_expression_attribute_values(range.words.values());
                    let query = query.consistent_read(range.consistent).limit(want);
                    let query = query.return_consumed_capacity(ReturnConsumedCapacity::Total);
                    query.set_exclusive_start_key(after.clone()).send().await.map_err(error::of_read)
                })
                .await?;
            self.cost_of_read(page.consumed_capacity.iter());
            items.extend(page.items.unwrap_or_default());
            after = page.last_evaluated_key.filter(|key| !key.is_empty());
            if after.is_none() {
                break;
            }
        }
        Ok(items)
    }

    /// One page of a whole table, and where the next one begins.
    pub(crate) async fn scan(&self, table: &str, after: Option<Item>) -> Result<(Vec<Item>, Option<Item>), Failure> {
        let page = self
            .patiently(|| async {
                let scan = self.client.scan().table_name(table).consistent_read(true);
                scan.set_exclusive_start_key(after.clone()).send().await.map_err(error::of_read)
            })
            .await?;
        Ok((page.items.unwrap_or_default(), page.last_evaluated_key.filter(|key| !key.is_empty())))
    }

    /// One item as it is now.
    pub(crate) async fn get_item(&self, table: &str, key: &Item) -> Result<Option<Item>, Failure> {
        let found = self
            .patiently(|| async {
                let get = self.client.get_item().table_name(table).set_key(Some(key.clone())).consistent_read(true);
                let get = get.return_consumed_capacity(ReturnConsumedCapacity::Total);
                get.send().await.map_err(error::of_read)
            })
            .await?;
        self.cost_of_read(found.consumed_capacity.iter());
        Ok(found.item)
    }

    /// Many items as they are now, in no order. No key may come twice.
    pub(crate) async fn get_items(&self, keys: Vec<(String, Item)>) -> Result<Vec<(String, Item)>, Failure> {
        let mut found = Vec::with_capacity(keys.len());
        for chunk in keys.chunks(BATCH_KEYS_MAX) {
            let mut wanted: HashMap<String, Vec<Item>> = HashMap::new();
            for (table, key) in chunk {
                wanted.entry(table.clone()).or_default().push(key.clone());
            }
            let mut tries = 0;
            // A part of the answer may be missing, because it is too large or the table is busy.
            while !wanted.is_empty() {
                let requests = || {
                    let requests = wanted.iter().map(|(table, keys)| {
                        let request = KeysAndAttributes::builder().consistent_read(true).set_keys(Some(keys.clone()));
                        (table.clone(), request.build().expect("a request with keys"))
                    });
                    requests.collect::<HashMap<_, _>>()
                };
                let answer = self
                    .patiently(|| async {
                        let get = self.client.batch_get_item().set_request_items(Some(requests()));
                        let get = get.return_consumed_capacity(ReturnConsumedCapacity::Total);
                        get.send().await.map_err(error::of_read)
                    })
                    .await?;
                self.cost_of_read(answer.consumed_capacity.iter().flatten());
                let items = answer.responses.unwrap_or_default();
                let progress = items.values().any(|items| !items.is_empty());
                found.extend(
                    items
                        .into_iter()
                        .flat_map(|(table, items)| items.into_iter().map(move |item| (table.clone(), item))),
                );
                let left = answer.unprocessed_keys.unwrap_or_default();
                wanted = left.into_iter().map(|(table, left)| (table, left.keys)).collect();
                wanted.retain(|_, keys| !keys.is_empty());
                if !wanted.is_empty() && !progress {
                    tries += 1;
                    if tries > 8 {
                        let error = ekiden_store::StoreError::unavailable("DynamoDB leaves keys unread");
                        return Err(Failure::Busy(error));
                    }
                    self.pause(tries).await;
                }
            }
        }
        Ok(found)
    }

    /// Carries out one change, and gives the item that was there before a delete.
    pub(crate) async fn change(&self, change: &Change) -> Result<Option<Item>, Failure> {
        self.patiently(|| self.change_once(change)).await
    }

    async fn change_once(&self, change: &Change) -> Result<Option<Item>, Failure> {
        let (names, values) = (change.words.names(), change.words.values());
        match &change.effect {
            Effect::Update(expression) => {
                let update = self.client.update_item().table_name(&change.table).set_key(Some(change.key.clone()));
                let update = update.update_expression(expression).set_condition_expression(change.condition.clone());
                let update = update.set_expression_attribute_names(names).set_expression_attribute_values(values);
                let update =
                    update.return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
                let update = update.return_consumed_capacity(ReturnConsumedCapacity::Total);
                let done = update.send().await.map_err(error::of_update)?;
                self.cost_of_write(done.consumed_capacity.iter());
                Ok(None)
            }
            Effect::Create(item) => {
                let put = self.client.put_item().table_name(&change.table).set_item(Some(item.clone()));
                let put = put.set_condition_expression(change.condition.clone());
                let put = put.set_expression_attribute_names(names).set_expression_attribute_values(values);
                let put = put.return_consumed_capacity(ReturnConsumedCapacity::Total);
                let done = put.send().await.map_err(error::of_write)?;
                self.cost_of_write(done.consumed_capacity.iter());
                Ok(None)
            }
            Effect::Delete => {
                let delete = self.client.delete_item().table_name(&change.table).set_key(Some(change.key.clone()));
                let delete = delete.set_condition_expression(change.condition.clone());
                let delete = delete.set_expression_attribute_names(names).set_expression_attribute_values(values);
                let delete = delete.return_values(ReturnValue::AllOld);
                let delete = delete.return_consumed_capacity(ReturnConsumedCapacity::Total);
                let gone = delete.send().await.map_err(error::of_write)?;
                self.cost_of_write(gone.consumed_capacity.iter());
                Ok(gone.attributes)
            }
            Effect::Check => self.transact_once(std::slice::from_ref(change), None).await.map(|()| None),
        }
    }

    /// Carries out several changes, all or none.
    pub(crate) async fn transact(&self, changes: &[Change]) -> Result<(), Failure> {
        self.patiently(|| self.transact_once(changes, None)).await
    }

    /// The same under a name: within ten minutes DynamoDB carries out one name once.
    pub(crate) async fn transact_as(&self, changes: &[Change], name: &str) -> Result<(), Failure> {
        self.patiently(|| self.transact_once(changes, Some(name.to_owned()))).await
    }

    async fn transact_once(&self, changes: &[Change], name: Option<String>) -> Result<(), Failure> {
        let items = changes.iter().map(transact_item).collect();
        let send = self.client.transact_write_items().set_transact_items(Some(items));
        let send = send.set_client_request_token(name);
        let send = send.return_consumed_capacity(ReturnConsumedCapacity::Total);
        let done = send.send().await.map_err(error::of_transaction)?;
        self.cost_of_write(done.consumed_capacity.iter().flatten());
        Ok(())
    }
}

fn transact_item(change: &Change) -> TransactWriteItem {
    let (names, values) = (change.words.names(), change.words.values());
    let (table, key, condition) = (&change.table, change.key.clone(), change.condition.clone());
    let item = TransactWriteItem::builder();
    let complete = "all that a change needs is there";
    match &change.effect {
        Effect::Update(expression) => {
            let update = Update::builder().table_name(table).set_key(Some(key)).update_expression(expression);
            let update = update.set_condition_expression(condition).set_expression_attribute_names(names);
            item.update(update.set_expression_attribute_values(values).build().expect(complete)).build()
        }
        Effect::Create(new) => {
            let put = Put::builder().table_name(table).set_item(Some(new.clone())).set_condition_expression(condition);
            let put = put.set_expression_attribute_names(names).set_expression_attribute_values(values);
            item.put(put.build().expect(complete)).build()
        }
        Effect::Delete => {
            let delete = Delete::builder().table_name(table).set_key(Some(key)).set_condition_expression(condition);
            let delete = delete.set_expression_attribute_names(names).set_expression_attribute_values(values);
            item.delete(delete.build().expect(complete)).build()
        }
        Effect::Check => {
            let check = ConditionCheck::builder().table_name(table).set_key(Some(key));
            let check = check.set_condition_expression(condition).set_expression_attribute_names(names);
            item.condition_check(check.set_expression_attribute_values(values).build().expect(complete)).build()
        }
    }
}
