//! Looks for tables and indexes that are missing or unfit, and for items whose index entries do not follow from their records.

use ekiden_core::index::Index;
use ekiden_core::key::Key;
use ekiden_core::reason::ReasonCode;
use ekiden_store::{CheckDepth, Finding, StoreError};

use crate::codec::{self, Item, attributes as at};
use crate::shared::Shared;
use crate::tables::{fits, missing};

/// What an index is made of.
const ENTRIES: [&str; 8] =
    [at::PLACE, at::PLACE_ORDER, at::DUE, at::DUE_ORDER, at::LISTED, at::GROUPED, at::IN_SESSION, at::CREATED_ORDER];

impl Shared {
    pub(crate) async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        let mut findings = Vec::new();
        for (name, shape) in self.shapes() {
            let Some(table) = self.describe(name).await? else {
                let what = format!("table {name} is missing");
                findings.push(Finding { code: ReasonCode::StoreNotFound, key: None, what });
                continue;
            };
            if let Err(unfit) = fits(name, &shape, &table) {
                findings.push(Finding { code: unfit.code(), key: None, what: unfit.to_string() });
                continue;
            }
            for index in missing(&shape, &table) {
                let what = format!("table {name} lacks index {}", index.name);
                findings.push(Finding { code: ReasonCode::IndexMissing, key: None, what });
            }
            if depth == CheckDepth::Full {
                self.check_items(name, &mut findings).await?;
            }
        }
        Ok(findings)
    }

    async fn check_items(&self, table: &str, findings: &mut Vec<Finding>) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let (mut items, next) = self.scan(table, after).await?;
            if table == self.names.queue {
                self.fetch_payloads(items.iter_mut()).await?;
            }
            let ours = items.iter().filter(|item| item.contains_key(at::REVISION));
            for item in ours {
                if let Some(key) = codec::parse_key(self.kind_in(table), item) {
                    findings.extend(self.check_item(key, item));
                }
            }
            after = next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn check_item(&self, key: Key, item: &Item) -> Option<Finding> {
        let found = match codec::decode(key.clone(), item) {
            Ok(found) => found,
            Err(unreadable) => return Some(damaged(Some(key), unreadable.to_string())),
        };
        let index = Index::of(&key, &found.record);
        let encoded = codec::encode(&found.record, &index, &key, self.shards);
        let follows = |name: &&str| match (item.get(*name), encoded.set.get(*name)) {
            // A line may have had fewer parts when the task came.
            (Some(found), Some(expected)) if **name == *at::PLACE => {
                let line = |value: &aws_sdk_dynamodb::types::AttributeValue| {
                    let text = value.as_s().ok()?;
                    let line = text.rsplit_once(ekiden_core::key::SEPARATOR).map(|(line, _)| line.to_owned());
                    Some(if text.starts_with("ready") { line? } else { text.clone() })
                };
                line(found) == line(expected)
            }
            (found, expected) => found == expected,
        };
        let wrong = ENTRIES.iter().find(|name| !follows(name))?;
        Some(damaged(Some(key), format!("{wrong} does not follow from the record")))
    }
}

fn damaged(key: Option<Key>, what: String) -> Finding {
    Finding { code: ReasonCode::StoreDamaged, key, what }
}
