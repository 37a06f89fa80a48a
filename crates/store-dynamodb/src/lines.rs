//! Which lines there are: a small list in our own table, by namespace, that every process reads at most once a second. A line
//! is entered before its first task is, and stays; how many parts it has only grows.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ekiden_core::id::{Kind, Namespace, PoolName};
use ekiden_core::key::SEPARATOR;
use ekiden_core::record::Record;
use ekiden_core::task::Spec;
use ekiden_store::StoreError;

use crate::client::Range;
use crate::codec::{Item, attributes as at, get_number, get_text, number, text};
use crate::error::Failure;
use crate::expression::{Change, Effect, Words};
use crate::shared::{Shared, lock};

/// One second: how old the list may be. Another process's first task of a new kind waits so long for a claim of any kind.
const AGE_MAX: Duration = Duration::from_secs(1);

/// 16,384 lines of a namespace: 64 pools with 256 kinds each.
const LINES_MAX: usize = 16_384;

/// What this process knows of lines.
#[derive(Default)]
pub(crate) struct Lines(HashMap<Namespace, Space>);

#[derive(Default)]
struct Space {
    /// Each line with the number of its parts.
    lines: BTreeMap<(PoolName, Kind), u32>,
    read_at: Option<Duration>,
}

impl Shared {
    /// Enters the line of a task, unless this process knows that it is there with as many parts as it writes to.
    pub(crate) async fn enter_line(&self, spec: &Spec) -> Result<(), StoreError> {
        let line = (spec.pool.clone(), spec.envelope.task_type.clone());
        let known = |lines: &Lines| lines.0.get(&spec.namespace).and_then(|space| space.lines.get(&line)).copied();
        if known(&lock(&self.lines)).is_some_and(|parts| parts >= self.shards) {
            return Ok(());
        }
        let mut words = Words::default();
        let (name, value) = (words.name(at::SHARDS), words.value(number(self.shards)));
        let enter = Change {
            table: self.names.ekiden.clone(),
            key: Item::from([
                (at::PK.to_owned(), text(partition(&spec.namespace))),
                (at::SK.to_owned(), text(format!("{}{SEPARATOR}{}", line.0, line.1))),
            ]),
            effect: Effect::Update(format!("SET {name} = {value}")),
            condition: Some(format!("attribute_not_exists({name}) OR {name} < {value}")),
            words,
        };
        let parts = match self.change(&enter).await {
            Ok(_) => self.shards,
            Err(Failure::Unmet(unmet)) => {
                unmet.found.and_then(|found| get_number(&found, at::SHARDS)).unwrap_or(self.shards)
            }
            Err(other) => return Err(other.into()),
        };
        let mut lines = lock(&self.lines);
        let space = lines.0.entry(spec.namespace.clone()).or_default();
        let known = space.lines.entry(line).or_insert(parts);
        *known = parts.max(*known);
        Ok(())
    }

    /// How many parts the line of a task has: at least as many as this process was told, more if another one made it grow.
    pub(crate) fn parts_of(&self, record: &Record) -> u32 {
        let Record::Task(task) = record else { return self.shards };
        let lines = lock(&self.lines);
        let space = lines.0.get(&task.spec.namespace);
        let line = (task.spec.pool.clone(), task.spec.envelope.task_type.clone());
        space.and_then(|space| space.lines.get(&line)).copied().unwrap_or(1).max(self.shards)
    }

    /// The lines of a namespace with the numbers of their parts, in order.
    pub(crate) async fn lines_of(&self, namespace: &Namespace) -> Result<BTreeMap<(PoolName, Kind), u32>, StoreError> {
        let now = self.clock.monotonic();
        {
            let lines = lock(&self.lines);
            if let Some(space) = lines.0.get(namespace)
                && space.read_at.is_some_and(|read_at| now.saturating_sub(read_at) < AGE_MAX)
            {
                return Ok(space.lines.clone());
            }
        }
        let range = Range::of(&self.names.ekiden, None, at::PK, text(partition(namespace)));
        let items = self.query(&Range { consistent: false, ..range }, LINES_MAX).await?;
        let mut lines = lock(&self.lines);
        let space = lines.0.entry(namespace.clone()).or_default();
        space.read_at = Some(now);
        for item in &items {
            if let Some((line, parts)) = parse(item) {
                // What was entered a moment ago may not be in the answer yet, so nothing is forgotten.
                let known = space.lines.entry(line).or_insert(parts);
                *known = parts.max(*known);
            }
        }
        Ok(space.lines.clone())
    }
}

fn partition(namespace: &Namespace) -> String {
    format!("{SEPARATOR}lines{SEPARATOR}{namespace}")
}

fn parse(item: &Item) -> Option<((PoolName, Kind), u32)> {
    let (pool, kind) = get_text(item, at::SK)?.split_once(SEPARATOR)?;
    let line = (PoolName::new(pool).ok()?, Kind::new(kind).ok()?);
    Some((line, get_number(item, at::SHARDS)?))
}
