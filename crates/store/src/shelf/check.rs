//! Builds all index entries from the records alone and compares.

use ekiden_core::id::{Namespace, PoolName};
use ekiden_core::index::Index;
use ekiden_core::key::Key;
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Record;
use ekiden_core::task::Phase;
use hashbrown::HashMap;

use super::Shelf;
use super::claimed_tasks::ClaimedTasks;
use super::indexes::Lists;
use super::space::Tally;
use crate::store::Finding;

impl Shelf {
    /// What does not follow from the records. `resting` are the counts of tasks that rest elsewhere and are not here.
    pub fn check(&self, resting: impl IntoIterator<Item = (Namespace, PoolName, Phase, u64)>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut claims_follow = true;
        let mut rebuilt: HashMap<&Namespace, Lists> = HashMap::new();
        let mut tallies: HashMap<Namespace, Tally> = HashMap::new();
        for (namespace, pool, phase, tasks) in resting {
            tallies.entry(namespace).or_default().add(&pool, phase, tasks);
        }
        for (namespace, space) in self.spaces.iter() {
            let lists = rebuilt.entry(namespace).or_default();
            let mut claimed = ClaimedTasks::default();
            for (slot, entry) in space.entries.iter() {
                lists.add(&space.entries, slot, entry);
                claimed.update(slot, None, entry.claim());
                tallies.entry(namespace.clone()).or_default().enter(entry.names().pool, entry.index.phase);
                let key = entry.listed.id.key(ekiden_core::key::RecordKind::Task, namespace);
                if let Some(task) = entry.task(namespace)
                    && Index::of(&key, &Record::Task(task)) != entry.index
                {
                    findings.push(unlike(key));
                }
            }
            claims_follow &= claimed == space.claimed;
        }
        for (key, other) in &self.others {
            rebuilt.entry(&key.namespace).or_default().add_other(key, &other.due);
            let index = Index::of(key, &other.record);
            if index.due != other.due {
                findings.push(unlike(key.clone()));
            }
        }
        rebuilt.retain(|_, lists| !lists.is_empty());
        let kept: HashMap<_, _> = self.spaces.iter().map(|(namespace, space)| (namespace, &space.lists)).collect();
        let filled = kept.values().filter(|lists| !lists.is_empty()).count();
        let follows = filled == rebuilt.len() && rebuilt.iter().all(|(name, lists)| kept.get(name) == Some(&lists));
        if !follows || !claims_follow {
            findings.push(damaged(None, "the index does not follow from the records"));
        }
        let counted = |(namespace, tally): (&Namespace, &Tally)| {
            self.spaces.get(namespace).map_or_else(|| tally.is_zero(), |space| space.tally == *tally)
        };
        let counts_all = self.spaces.iter().all(|(name, space)| space.tally.is_zero() || tallies.contains_key(name));
        if !counts_all || !tallies.iter().all(counted) {
            findings.push(damaged(None, "the counts do not follow from the records"));
        }
        findings
    }
}

fn damaged(key: Option<Key>, what: &str) -> Finding {
    Finding { code: ReasonCode::StoreDamaged, key, what: what.to_owned() }
}

fn unlike(key: Key) -> Finding {
    damaged(Some(key), "the index entries do not follow from the record")
}
