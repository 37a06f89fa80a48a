//! Commits on the memory store: recognise a repetition, look at every expectation, then write.

use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::id::OpId;
use ekiden_core::index::Index;
use ekiden_core::record::{Record, Revision};

use super::space::Stamp;
use super::{Hints, Shelf};
use crate::op::{Answer, Applied, Conflict};

impl Shelf {
    pub(super) fn commit(&mut self, commit: Commit, hints: &Hints<'_>) -> Answer {
        match self.judge(&commit) {
            Verdict::Repeated => Answer::Applied(Applied {
                revisions: commit.writes().iter().map(|write| self.revision_now(write)).collect(),
            }),
            Verdict::Unmet => {
                let unmet = commit.writes().iter().filter(|write| !meets(write, self.stamp(&write.key).as_ref()));
                Answer::Conflict(Conflict {
                    found: unmet.map(|write| (write.key.clone(), self.get(&write.key))).collect(),
                })
            }
            Verdict::Met => {
                let id = commit.id();
                let writes = commit.into_writes().into_iter();
                Answer::Applied(Applied { revisions: writes.map(|write| self.write(id, write, hints)).collect() })
            }
        }
    }

    /// C5: a commit was applied if any put of it is there, or if it held only deletes and all are done.
    fn judge(&self, commit: &Commit) -> Verdict {
        let (mut met, mut deleted) = (true, true);
        for write in commit.writes() {
            let found = self.stamp(&write.key);
            let bears_id = |stamp: &Stamp| stamp.created_by == commit.id() || stamp.last == commit.id();
            if matches!(write.action, Action::Put(..)) && found.as_ref().is_some_and(bears_id) {
                return Verdict::Repeated;
            }
            deleted &= matches!(write.action, Action::Delete) && found.is_none();
            met &= meets(write, found.as_ref());
        }
        match (deleted, met) {
            (true, _) => Verdict::Repeated,
            (false, true) => Verdict::Met,
            (false, false) => Verdict::Unmet,
        }
    }

    fn revision_now(&self, write: &Write) -> Option<Revision> {
        match write.action {
            Action::Put(..) => self.stamp(&write.key).map(|found| found.revision()),
            Action::Check | Action::Delete | Action::Add(_) => None,
        }
    }

    fn write(&mut self, id: OpId, write: Write, hints: &Hints<'_>) -> Option<Revision> {
        match write.action {
            Action::Check => None,
            Action::Delete => {
                self.delete(&write.key, hints);
                None
            }
            Action::Put(record, index) => Some(Revision::number(self.put(write.key, record, &index, id, hints))),
            Action::Add(by) => {
                self.add(id, write, by, hints);
                None
            }
        }
    }

    fn add(&mut self, id: OpId, write: Write, by: i64, hints: &Hints<'_>) {
        let value = self.counter(&write.key).unwrap_or(0);
        let found = self.stamp(&write.key).unwrap_or(Stamp { revision: 0, created_by: id, last: id });
        let stamp = Stamp { revision: self.next_revision(), ..found };
        self.put_other(write.key, Record::Counter(value.saturating_add(by)), &Index::default(), stamp, hints);
    }
}

/// What becomes of a commit.
enum Verdict {
    Repeated,
    Unmet,
    Met,
}

fn meets(write: &Write, found: Option<&Stamp>) -> bool {
    match (&write.expect, found) {
        (Expect::Any, _) | (Expect::Absent, None) => true,
        (Expect::At(revision), Some(found)) => *revision == found.revision(),
        (Expect::Absent, Some(_)) | (Expect::At(_), None) => false,
    }
}
