//! Counts by phase: numbers in our own table that every process adds its differences to, some seconds late. They are
//! approximate by design: an exact number would be one item that every task of a pool writes to.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ekiden_core::id::{Namespace, PoolName};
use ekiden_core::key::SEPARATOR;
use ekiden_core::task::Phase;
use ekiden_store::{CountScope, Counts, StoreError};

use crate::client::Range;
use crate::codec::{Item, attributes as at, get_number, get_text, number, text};
use crate::expression::{Change, Effect, Words};
use crate::shared::{Shared, lock};

/// Five seconds: how late a difference may be.
const FLUSH_EVERY: Duration = Duration::from_secs(5);

/// 16,384 cells of a namespace, nine a pool.
const CELLS_MAX: usize = 16_384;

/// What this process has not added yet.
pub(crate) type Deltas = HashMap<(Namespace, PoolName, Phase), i64>;

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

    /// Adds what was not added yet. What fails is tried again next time.
    pub(crate) async fn flush_counts(&self) -> Result<(), StoreError> {
        let mut left: Vec<_> = lock(&self.deltas).drain().filter(|(_, by)| *by != 0).collect();
        while let Some((cell, by)) = left.pop() {
            let mut words = Words::default();
            let (name, value) = (words.name(at::COUNT), words.value(number(by)));
            let add = Change {
                table: self.names.ekiden.clone(),
                key: key_of(&cell),
                effect: Effect::Update(format!("ADD {name} {value}")),
                condition: None,
                words,
            };
            if let Err(failure) = self.change(&add).await {
                let error = StoreError::from(failure);
                // One that may have arrived is not sent again: better one too few than one too many for ever.
                let again = (error.happened == ekiden_store::Happened::NotApplied).then_some((cell, by));
                let mut deltas = lock(&self.deltas);
                for (cell, by) in left.into_iter().chain(again) {
                    *deltas.entry(cell).or_default() += by;
                }
                return Err(error);
            }
        }
        Ok(())
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
pub(crate) fn key_of((namespace, pool, phase): &(Namespace, PoolName, Phase)) -> Item {
    Item::from([
        (at::PK.to_owned(), text(partition(namespace))),
        (at::SK.to_owned(), text(format!("{pool}{SEPARATOR}{phase}"))),
    ])
}
