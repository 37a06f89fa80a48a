//! Reading everything in the checkpoint, to find what is damaged or does not belong together.

use ekiden_core::index::Index;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Record;
use ekiden_store::shelf::Names;
use ekiden_store::{Finding, StoreError};
use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata};

use super::load::key_of;
use super::{CARDS, Checkpoint, PLACES, Snapshot, TASKS, guarded, places};
use crate::codec::{Card, read_card, unseal};

/// 1,000 findings: whoever has more than these knows what to do.
const FINDINGS_MAX: usize = 1_000;

impl Checkpoint {
    /// Every record that cannot be read, or whose card or lists do not follow from it.
    pub(crate) fn verify(&self) -> Result<Vec<Finding>, StoreError> {
        guarded(&self.path, || self.verify_all())
    }

    fn verify_all(&self) -> Result<Vec<Finding>, StoreError> {
        let transaction = self.database()?.begin_read().map_err(|source| self.error(source))?;
        let tasks = transaction.open_table(TASKS).map_err(|source| self.error(source))?;
        let cards = transaction.open_table(CARDS).map_err(|source| self.error(source))?;
        let lists = transaction.open_table(PLACES).map_err(|source| self.error(source))?;
        let snapshot = self.snapshot()?;
        let (mut findings, mut live, mut listed) = (Vec::new(), 0, 0);
        for entry in tasks.iter().map_err(|source| self.error(source))? {
            let (bytes, value) = entry.map_err(|source| self.error(source))?;
            let read = || read_card(&mut unseal(bytes.value(), value.value())?);
            let (key, card) = match (key_of(RecordKind::Task, bytes.value()), read()) {
                (Ok(key), Ok(card)) => (key, card),
                (key, Err(error)) => {
                    findings.push(damaged(key.ok(), error.to_string()));
                    continue;
                }
                (Err(error), _) => {
                    findings.push(damaged(None, error.to_string()));
                    continue;
                }
            };
            if let Some(what) = misfit(&snapshot, &key, &card) {
                findings.push(damaged(Some(key), what));
            }
            if card.index.is_at_rest() {
                listed += entries(&card)
            } else {
                live += 1
            }
            if findings.len() >= FINDINGS_MAX {
                return Ok(findings);
            }
        }
        if cards.len().map_err(|source| self.error(source))? != live {
            findings.push(damaged(None, "the cards do not follow from the tasks".to_owned()));
        }
        match places::count(&lists) {
            Ok(count) if count == listed => {}
            Ok(_) => findings.push(damaged(None, "the lists do not follow from the tasks".to_owned())),
            Err(redb::Error::Corrupted(what)) => findings.push(damaged(None, what)),
            Err(source) => return Err(self.error(source)),
        }
        Ok(findings)
    }
}

/// In how many lists a task that rests stands.
fn entries(card: &Card) -> u64 {
    let named = [card.index.phase.is_some(), card.names.group.is_some(), card.names.session.is_some()];
    let count = 1 + named.into_iter().filter(|is_listed| *is_listed).count() + card.index.due.len();
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// What is wrong with a task's body, if anything is.
fn misfit(snapshot: &Snapshot, key: &Key, card: &Card) -> Option<String> {
    let task = match snapshot.task(key) {
        Ok(Some((task, _))) => task,
        Ok(None) => return Some("it cannot be found under its own key".to_owned()),
        Err(error) => return Some(error.to_string()),
    };
    let index = Index::of(key, &Record::Task(task.clone()));
    let follows = index == card.index && Names::of(&task) == card.names && task.spec.created_at == card.created_at;
    (!follows).then(|| "the index entries do not follow from the record".to_owned())
}

fn damaged(key: Option<Key>, what: String) -> Finding {
    Finding { code: ReasonCode::StoreDamaged, key, what }
}
