//! Commits on the memory store: recognise a repetition, look at every expectation, then write.

use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::id::OpId;
use ekiden_core::index::Index;
use ekiden_core::record::{Record, Revision, Versioned};

use super::Shelf;
use crate::op::{Answer, Applied, Conflict};
use crate::store::Hint;

impl Shelf {
    pub(super) fn commit(&mut self, commit: Commit, hint: &mut impl FnMut(Hint)) -> Answer {
        if self.was_applied(&commit) {
            return Answer::Applied(Applied {
                revisions: commit.writes().iter().map(|write| self.revision_now(write)).collect(),
            });
        }
        let unmet: Vec<_> = commit.writes().iter().filter(|write| !self.meets(write)).collect();
        if !unmet.is_empty() {
            let found = unmet.into_iter().map(|write| (write.key.clone(), self.get(&write.key).cloned())).collect();
            return Answer::Conflict(Conflict { found });
        }
        let id = commit.id();
        let revisions = commit.into_writes().into_iter().map(|write| self.write(id, write, hint)).collect();
        Answer::Applied(Applied { revisions })
    }

    /// C5: any put of it is there, or it held only deletes and all are done.
    fn was_applied(&self, commit: &Commit) -> bool {
        let bears_id = |write: &Write| {
            matches!(write.action, Action::Put(..))
                && self
                    .get(&write.key)
                    .is_some_and(|found| found.created_by == commit.id() || found.last == commit.id())
        };
        let is_deleted = |write: &Write| matches!(write.action, Action::Delete) && self.get(&write.key).is_none();
        commit.writes().iter().any(bears_id) || commit.writes().iter().all(is_deleted)
    }

    fn revision_now(&self, write: &Write) -> Option<Revision> {
        match write.action {
            Action::Put(..) => self.get(&write.key).map(|found| found.revision.clone()),
            Action::Check | Action::Delete | Action::Add(_) => None,
        }
    }

    fn meets(&self, write: &Write) -> bool {
        match (&write.expect, self.get(&write.key)) {
            (Expect::Any, _) | (Expect::Absent, None) => true,
            (Expect::At(revision), Some(found)) => *revision == found.revision,
            (Expect::Absent, Some(_)) | (Expect::At(_), None) => false,
        }
    }

    fn write(&mut self, id: OpId, write: Write, hint: &mut impl FnMut(Hint)) -> Option<Revision> {
        match write.action {
            Action::Check => None,
            Action::Delete => {
                self.delete(&write.key, hint);
                None
            }
            Action::Put(record, index) => {
                let created_by = self.get(&write.key).map_or(id, |found| found.created_by);
                let revision = self.next_revision();
                let versioned = Versioned { key: write.key, record, revision: revision.clone(), created_by, last: id };
                self.put(versioned, index, hint);
                Some(revision)
            }
            Action::Add(by) => {
                self.add(id, write, by, hint);
                None
            }
        }
    }

    fn add(&mut self, id: OpId, write: Write, by: i64, hint: &mut impl FnMut(Hint)) {
        let found = self.get(&write.key);
        let value = found.and_then(|found| found.record.as_counter()).unwrap_or(0);
        let (created_by, last) = found.map_or((id, id), |found| (found.created_by, found.last));
        let record = Record::Counter(value.saturating_add(by));
        let revision = self.next_revision();
        self.put(Versioned { key: write.key, record, revision, created_by, last }, Index::default(), hint);
    }
}
