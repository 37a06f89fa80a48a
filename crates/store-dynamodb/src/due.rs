//! What is due, oldest first: lists of tasks by their index, lists of other records by theirs, runners by a look at all of a
//! namespace, which are few and beat too often for an index.

use ekiden_core::id::Namespace;
use ekiden_core::index::{DueIndex, Index};
use ekiden_core::key::RecordKind;
use ekiden_store::{DueEntry, DueQuery, StoreError};

use crate::client::Range;
use crate::codec::{self, attributes as at, get_text, places, runner, text};
use crate::shared::Shared;
use crate::tables::{DUE_INDEX, PLACE_INDEX};

/// 10,000 runners of a namespace that are looked at.
const RUNNERS_MAX: usize = 10_000;

impl Shared {
    pub(crate) async fn due(&self, query: &DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        let namespace = &query.namespace;
        let mut entries = match query.index {
            DueIndex::Promote => {
                let mut all = Vec::new();
                for (pool, kind) in self.lines_of(namespace).await?.keys() {
                    let place = places::waiting(namespace, pool, kind);
                    all.extend(self.entries(query, &self.names.queue, PLACES, place).await?);
                }
                all
            }
            DueIndex::Rejoin => self.entries(query, &self.names.queue, PLACES, places::rejoining(namespace)).await?,
            DueIndex::Lease | DueIndex::Expire | DueIndex::Purge => self.listed(query, &self.names.queue).await?,
            DueIndex::Sweep | DueIndex::Schedule => self.listed(query, &self.names.ekiden).await?,
            DueIndex::Forget => {
                let mut both = self.listed(query, &self.names.ekiden).await?;
                both.extend(self.due_runners(query).await?);
                both
            }
            DueIndex::Runner => self.due_runners(query).await?,
            DueIndex::Foreign => self.changed_by_others(query).await?,
        };
        entries.sort_by(|one, other| {
            (one.at, one.key.kind, &one.key.name).cmp(&(other.at, other.key.kind, &other.key.name))
        });
        entries.truncate(query.limit);
        Ok(entries)
    }

    async fn listed(&self, query: &DueQuery, table: &str) -> Result<Vec<DueEntry>, StoreError> {
        self.entries(query, table, DUES, places::due(query.index, &query.namespace)).await
    }

    async fn entries(
        &self,
        query: &DueQuery,
        table: &str,
        (index, [hash, order]): (&'static str, [&'static str; 2]),
        list: String,
    ) -> Result<Vec<DueEntry>, StoreError> {
        let range = Range::of(table, Some(index), hash, text(list));
        let range = range.only(order, "<", text(places::due_until(query.until)));
        let items = self.query(&range, query.limit).await?;
        let entry = |item: &codec::Item| entry(&query.namespace, get_text(item, order)?);
        Ok(items.iter().filter_map(entry).collect())
    }

    /// Runners of ours that core says are due. Those of other programs are nobody's to declare dead.
    async fn due_runners(&self, query: &DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        // A hint like any other list, so half the price will do.
        let range = Range { consistent: false, ..self.names_of(RecordKind::Runner, &query.namespace, "") };
        let mut due = Vec::new();
        for item in self.query(&range, RUNNERS_MAX).await?.iter().filter(|item| runner::is_ours(item)) {
            let Some(key) = codec::parse_key(RecordKind::Runner, item) else { continue };
            let found = self.read(key, item)?;
            let at = Index::of(&found.key, &found.record).due_at(query.index);
            due.extend(at.filter(|at| *at <= query.until).map(|at| DueEntry { key: found.key, at }));
        }
        Ok(due)
    }
}

const PLACES: (&str, [&str; 2]) = (PLACE_INDEX, [at::PLACE, at::PLACE_ORDER]);
const DUES: (&str, [&str; 2]) = (DUE_INDEX, [at::DUE, at::DUE_ORDER]);

fn entry(namespace: &Namespace, order: &str) -> Option<DueEntry> {
    let (at, key) = places::parse_due_order(namespace, order)?;
    Some(DueEntry { key, at })
}
