//! Counts by phase: numbers in our own table that every process adds its differences to, some seconds late. They are
//! approximate by design: an exact number would be one item that every task of a pool writes to.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ekiden_core::id::{Namespace, PoolName};
use ekiden_core::key::SEPARATOR;
use ekiden_core::task::Phase;
use ekiden_store::{CountScope, Counts, Happened, StoreError};

use crate::client::Range;
use crate::codec::{Item, attributes as at, get_number, get_text, number, text};
use crate::expression::{Change, Effect, Words};
use crate::shared::{Shared, lock};

/// Five seconds: how late a difference may be.
const FLUSH_EVERY: Duration = Duration::from_secs(5);

/// 16,384 cells of a namespace, nine a pool.
const CELLS_MAX: usize = 16_384;

/// 25 cells in one transaction: a task's move from phase to phase is two of them, and is seen whole.
const CELLS_AT_ONCE: usize = 25;

/// 4 times that additions are sent under one name before their fate is left open.
const TRIES_MAX: u32 = 4;

/// A number that is kept.
type Cell = (Namespace, PoolName, Phase);

/// What this process has not added yet.
pub(crate) type Deltas = HashMap<Cell, i64>;

impl Shared {
    /// A task came, went, or moved from phase to phase.
    pub(crate) fn count(
        &self,
        namespace: &Namespace,
        before: Option<(PoolName, Phase)>,
        after: Option<(PoolName, Phase)>,
    ) {
        if before == after {
            return;
        }
        let mut deltas = lock(&self.deltas);
        for (cell, by) in [(before, -1), (after, 1)] {
            if let Some((pool, phase)) = cell {
                *deltas.entry((namespace.clone(), pool, phase)).or_default() += by;
            }
        }
    }

    /// Adds what was not added yet, one flush at a time: whoever counts meanwhile waits for it. What fails is tried again next
    /// time.
    pub(crate) async fn flush_counts(&self) -> Result<(), StoreError> {
        let _alone = self.flushing.lock().await;
        let mut left: Vec<(Cell, i64)> = lock(&self.deltas).drain().filter(|(_, by)| *by != 0).collect();
        while !left.is_empty() {
            let batch = left.split_off(left.len().saturating_sub(CELLS_AT_ONCE));
            if let Err(error) = self.add_counts(&batch).await {
                // One that may have arrived is not sent again: better one too few than one too many for ever.
                let again = if error.happened == Happened::NotApplied { batch } else { Vec::new() };
                let mut deltas = lock(&self.deltas);
                for (cell, by) in left.into_iter().chain(again) {
                    *deltas.entry(cell).or_default() += by;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Adds some differences, all or none, once: a plain update that is sent again after a lost reply would add twice.
    async fn add_counts(&self, batch: &[(Cell, i64)]) -> Result<(), StoreError> {
        let changes: Vec<Change> = batch.iter().map(|(cell, by)| self.addition(cell, *by)).collect();
        let name = self.nonce();
        for tries in 1.. {
            match self.transact_as(&changes, &name).await.map_err(StoreError::from) {
                Err(error) if error.happened == Happened::Unknown && tries < TRIES_MAX => self.pause(tries).await,
                other => return other,
            }
        }
        Ok(())
    }

    fn addition(&self, cell: &Cell, by: i64) -> Change {
        let mut words = Words::default();
        let (name, value) = (words.name(at::COUNT), words.value(number(by)));
        Change {
            table: self.names.ekiden.clone(),
            key: key_of(cell),
            effect: Effect::Update(format!("ADD {name} {value}")),
            condition: None,
            words,
        }
    }

    /// The counts of a scope, with all that this process knows.
    pub(crate) async fn counts(&self, scope: &CountScope) -> Result<Counts, StoreError> {
        self.flush_counts().await?;
        let mut range = Range::of(&self.names.ekiden, None, at::PK, text(partition(&scope.namespace)));
        if let Some(pool) = &scope.pool {
            range = range.beginning(at::SK, &format!("{pool}{SEPARATOR}"));
        }
        let mut sums: HashMap<Phase, i64> = HashMap::new();
        for item in self.query(&range, CELLS_MAX).await? {
            let phase = get_text(&item, at::SK).and_then(|cell| cell.rsplit_once(SEPARATOR)).map(|(_, phase)| phase);
            let phase = Phase::ALL.into_iter().find(|known| Some(known.as_str()) == phase);
            if let (Some(phase), Some(count)) = (phase, get_number::<i64>(&item, at::COUNT)) {
                *sums.entry(phase).or_default() += count;
            }
        }
        let mut counts = Counts { exact: false, ..Counts::zero() };
        for (phase, count) in &mut counts.by_phase {
            *count = u64::try_from(sums.get(phase).copied().unwrap_or(0)).unwrap_or(0);
        }
        Ok(counts)
    }
}

/// Adds differences every few seconds, as long as the store is there.
pub(crate) fn flush_regularly(store: &Arc<Shared>) {
    let store = Arc::downgrade(store);
    drop(tokio::spawn(flush_while_there(store)));
}

async fn flush_while_there(store: Weak<Shared>) {
    loop {
        tokio::time::sleep(FLUSH_EVERY).await;
        let Some(store) = store.upgrade() else { return };
        if store.open().is_err() {
            return;
        }
        if let Err(error) = store.flush_counts().await {
            tracing::warn!(%error, "counts could not be added and wait for the next time");
        }
    }
}

fn partition(namespace: &Namespace) -> String {
    format!("{SEPARATOR}counts{SEPARATOR}{namespace}")
}

/// The namespace of a partition of counts.
pub(crate) fn namespace_of(partition: &str) -> Option<Namespace> {
    Namespace::new(partition.strip_prefix(&format!("{SEPARATOR}counts{SEPARATOR}"))?).ok()
}

/// The item of a number.
pub(crate) fn key_of((namespace, pool, phase): &Cell) -> Item {
    Item::from([
        (at::PK.to_owned(), text(partition(namespace))),
        (at::SK.to_owned(), text(format!("{pool}{SEPARATOR}{phase}"))),
    ])
}
