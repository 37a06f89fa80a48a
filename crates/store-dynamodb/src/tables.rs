//! The tables (Q1, Q2): their keys and indexes, made on first use, accepted where they are, mended where an index is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, CreateGlobalSecondaryIndexAction, GlobalSecondaryIndex,
    GlobalSecondaryIndexUpdate, IndexStatus, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType, TableDescription, TableStatus,
};
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_store::StoreError;

use crate::codec::attributes as at;
use crate::error::{self, Failure};
use crate::shared::Shared;

/// The table of the document that holds tasks.
pub(crate) const QUEUE: &str = "pm-runner-queue";
/// The table of the document that holds runners.
pub(crate) const RUNNERS: &str = "pm-runner-runners";
/// Our table for every other record.
pub(crate) const EKIDEN: &str = "pm-runner-ekiden";

/// The index of the document.
pub(crate) const STATUS_INDEX: &str = "status-index";
/// Where tasks stand: lines, and holders.
pub(crate) const PLACE_INDEX: &str = "ekiden-place-index";
/// What is due.
pub(crate) const DUE_INDEX: &str = "ekiden-due-index";
/// Tasks whose ids do not sort by creation.
pub(crate) const LIST_INDEX: &str = "ekiden-list-index";
/// Tasks of a group.
pub(crate) const GROUP_INDEX: &str = "ekiden-group-index";
/// Tasks of a session.
pub(crate) const SESSION_INDEX: &str = "ekiden-session-index";

/// 50 ms between two looks at a table that is being made.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// 12,000 looks, ten minutes: an index on a large table is filled by then, or somebody has to see what is wrong.
const LOOKS_MAX: u32 = 12_000;

/// The names of the three tables.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) queue: String,
    pub(crate) runners: String,
    pub(crate) ekiden: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        let [queue, runners, ekiden] = [QUEUE, RUNNERS, EKIDEN].map(|name| format!("{prefix}{name}"));
        Self { queue, runners, ekiden }
    }
}

/// What to do where a table is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Make it.
    Make,
    /// There is no store then.
    Refuse,
    /// Nothing: somebody looks for what is missing.
    Ignore,
}

/// What a table must be.
pub(crate) struct Shape {
    pub(crate) keys: [&'static str; 2],
    pub(crate) indexes: &'static [IndexShape],
}

/// What an index must be.
pub(crate) struct IndexShape {
    pub(crate) name: &'static str,
    pub(crate) keys: [&'static str; 2],
    /// Whether it holds whole items, as the document says of its own.
    pub(crate) whole: bool,
}

const fn ours(name: &'static str, keys: [&'static str; 2]) -> IndexShape {
    IndexShape { name, keys, whole: false }
}

pub(crate) const QUEUE_SHAPE: Shape = Shape {
    keys: [at::NAMESPACE, at::TASK_ID],
    indexes: &[
        IndexShape { name: STATUS_INDEX, keys: [at::STATUS, at::CREATED_AT], whole: true },
        ours(PLACE_INDEX, [at::PLACE, at::PLACE_ORDER]),
        ours(DUE_INDEX, [at::DUE, at::DUE_ORDER]),
        ours(LIST_INDEX, [at::LISTED, at::CREATED_ORDER]),
        ours(GROUP_INDEX, [at::GROUPED, at::CREATED_ORDER]),
        ours(SESSION_INDEX, [at::IN_SESSION, at::CREATED_ORDER]),
    ],
};

pub(crate) const RUNNERS_SHAPE: Shape = Shape { keys: [at::NAMESPACE, at::RUNNER_ID], indexes: &[] };

pub(crate) const EKIDEN_SHAPE: Shape =
    Shape { keys: [at::PK, at::SK], indexes: &[ours(DUE_INDEX, [at::DUE, at::DUE_ORDER])] };

impl Shared {
    /// The three tables with their shapes.
    pub(crate) fn shapes(&self) -> [(&str, Shape); 3] {
        let names = &self.names;
        [(&names.queue, QUEUE_SHAPE), (&names.runners, RUNNERS_SHAPE), (&names.ekiden, EKIDEN_SHAPE)]
    }

    /// Makes what is missing, and refuses what does not fit.
    pub(crate) async fn prepare_tables(&self, missing_table: Missing) -> Result<(), StoreError> {
        for (name, shape) in self.shapes() {
            let table = match self.describe(name).await? {
                Some(table) => table,
                None if missing_table == Missing::Refuse => {
                    return Err(StoreError::invalid(Refusal::new(ReasonCode::StoreNotFound).with("path", name)));
                }
                None => {
                    self.create(name, &shape).await?;
                    self.ready(name).await?
                }
            };
            fits(name, &shape, &table)?;
            for index in missing(&shape, &table) {
                self.add_index(name, index).await?;
                self.ready(name).await?;
            }
            if !is_ready(&table) {
                self.ready(name).await?;
            }
        }
        Ok(())
    }

    /// What is there under a name.
    pub(crate) async fn describe(&self, name: &str) -> Result<Option<TableDescription>, StoreError> {
        let answer = self
            .patiently(|| async {
                match self.client.describe_table().table_name(name).send().await {
                    Ok(answer) => Ok(answer.table),
                    Err(error) if error.code() == Some("ResourceNotFoundException") => Ok(None),
                    Err(error) => Err(error::of_read(error)),
                }
            })
            .await;
        Ok(answer?)
    }

    async fn create(&self, name: &str, shape: &Shape) -> Result<(), StoreError> {
        let create = self.client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
        let create = create.set_key_schema(Some(schema(shape.keys)));
        let names: BTreeSet<&str> =
            shape.keys.into_iter().chain(shape.indexes.iter().flat_map(|index| index.keys)).collect();
        let create = create.set_attribute_definitions(Some(names.into_iter().map(definition).collect()));
        let indexes: Vec<_> = shape.indexes.iter().map(new_index).collect();
        let create = create.set_global_secondary_indexes(Some(indexes).filter(|indexes| !indexes.is_empty()));
        match create.send().await {
            Ok(_) => Ok(()),
            // Another process was quicker.
            Err(error) if error.code() == Some("ResourceInUseException") => Ok(()),
            Err(error) => Err(error::of_read(error).into()),
        }
    }

    async fn add_index(&self, table: &str, index: &IndexShape) -> Result<(), StoreError> {
        let action = CreateGlobalSecondaryIndexAction::builder().index_name(index.name);
        let action = action.set_key_schema(Some(schema(index.keys))).projection(projection(index));
        let action = action.build().expect("an index with name, keys and projection");
        let update = self.client.update_table().table_name(table);
        let update = update.set_attribute_definitions(Some(index.keys.into_iter().map(definition).collect()));
        let update =
            update.global_secondary_index_updates(GlobalSecondaryIndexUpdate::builder().create(action).build());
        match update.send().await {
            Ok(_) => Ok(()),
            // Another process makes it.
            Err(error) if error.code() == Some("ResourceInUseException") => Ok(()),
            Err(error) => Err(error::of_read(error).into()),
        }
    }

    /// Waits until a table and its indexes can be used.
    async fn ready(&self, name: &str) -> Result<TableDescription, StoreError> {
        for _ in 0..LOOKS_MAX {
            if let Some(table) = self.describe(name).await?
                && is_ready(&table)
            {
                return Ok(table);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Err(Failure::Busy(StoreError::unavailable(format!("table {name} does not become ready"))).into())
    }
}

fn is_ready(table: &TableDescription) -> bool {
    let usable =
        |status: Option<&TableStatus>| matches!(status, None | Some(TableStatus::Active | TableStatus::Updating));
    let filled =
        |status: Option<&IndexStatus>| matches!(status, None | Some(IndexStatus::Active | IndexStatus::Updating));
    usable(table.table_status()) && table.global_secondary_indexes().iter().all(|index| filled(index.index_status()))
}

/// Refuses a table or index of ours or the document's whose keys are others.
pub(crate) fn fits(name: &str, shape: &Shape, table: &TableDescription) -> Result<(), StoreError> {
    let found = key_names(table.key_schema());
    if found != shape.keys {
        return Err(error::unfit(name, format!("its keys are {found:?}, not {:?}", shape.keys)));
    }
    let types: BTreeMap<&str, &ScalarAttributeType> = table
        .attribute_definitions()
        .iter()
        .map(|definition| (definition.attribute_name(), definition.attribute_type()))
        .collect();
    for key in shape.keys {
        if types.get(key) != Some(&&ScalarAttributeType::S) {
            return Err(error::unfit(name, format!("its key {key} is no string")));
        }
    }
    for index in shape.indexes {
        let there = table.global_secondary_indexes().iter().find(|there| there.index_name() == Some(index.name));
        if let Some(there) = there {
            let found = key_names(there.key_schema());
            if found != index.keys {
                let why = format!("the keys of {} are {found:?}, not {:?}", index.name, index.keys);
                return Err(error::unfit(name, why));
            }
        }
    }
    Ok(())
}

/// The indexes that a table lacks.
pub(crate) fn missing<'a>(shape: &'a Shape, table: &TableDescription) -> Vec<&'a IndexShape> {
    let there: BTreeSet<&str> =
        table.global_secondary_indexes().iter().filter_map(|index| index.index_name()).collect();
    shape.indexes.iter().filter(|index| !there.contains(index.name)).collect()
}

fn key_names(schema: &[KeySchemaElement]) -> Vec<&str> {
    let of = |wanted: KeyType| schema.iter().filter(move |key| *key.key_type() == wanted);
    of(KeyType::Hash).chain(of(KeyType::Range)).map(KeySchemaElement::attribute_name).collect()
}

fn schema([hash, range]: [&str; 2]) -> Vec<KeySchemaElement> {
    let element = |name, key_type| {
        let element = KeySchemaElement::builder().attribute_name(name).key_type(key_type);
        element.build().expect("a key with name and type")
    };
    vec![element(hash, KeyType::Hash), element(range, KeyType::Range)]
}

fn definition(name: &str) -> AttributeDefinition {
    let definition = AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S);
    definition.build().expect("an attribute with name and type")
}

fn projection(index: &IndexShape) -> Projection {
    let kind = if index.whole { ProjectionType::All } else { ProjectionType::KeysOnly };
    Projection::builder().projection_type(kind).build()
}

fn new_index(index: &IndexShape) -> GlobalSecondaryIndex {
    let new = GlobalSecondaryIndex::builder().index_name(index.name).set_key_schema(Some(schema(index.keys)));
    new.projection(projection(index)).build().expect("an index with name, keys and projection")
}
