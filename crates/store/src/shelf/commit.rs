//! Commits: recognise a repetition, look at every expectation, then write.

use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::id::OpId;
use ekiden_core::index::Index;
use ekiden_core::key::Key;
use ekiden_core::record::{Record, Revision, Versioned};

use super::space::Stamp;
use super::{Look, Scribe, Shelf};
use crate::error::StoreError;
use crate::op::{Answer, Applied, Conflict, Outcome};

impl Shelf {
    pub(crate) fn commit(&mut self, commit: Commit, scribe: &mut dyn Scribe) -> Outcome {
        Ok(match self.judge(&commit) {
            Verdict::Repeated => Answer::Applied(Applied {
                revisions: commit.writes().iter().map(|write| self.revision_now(write)).collect(),
            }),
            Verdict::Unmet => {
                let unmet = commit.writes().iter().filter(|write| !meets(write, self.stamp(&write.key).as_ref()));
                let found = unmet.map(|write| Ok((write.key.clone(), self.found(&write.key, scribe)?)));
                Answer::Conflict(Conflict { found: found.collect::<Result<_, StoreError>>()? })
            }
            Verdict::Met => {
                let id = commit.id();
                let writes = commit.into_writes().into_iter();
                Answer::Applied(Applied { revisions: writes.map(|write| self.write(id, write, scribe)).collect() })
            }
        })
    }

    fn found(&self, key: &Key, scribe: &mut dyn Scribe) -> Result<Option<Versioned>, StoreError> {
        match (self.look(key), self.stamp(key)) {
            (Look::Here(versioned), _) => Ok(Some(versioned)),
            (Look::Away, Some(stamp)) => match scribe.fetch(key) {
                Some(task) => Ok(Some(stamp.on(key.clone(), Record::Task(task)))),
                None => Err(StoreError::unavailable("the record that is in the way cannot be read")),
            },
            _ => Ok(None),
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

    fn write(&mut self, id: OpId, write: Write, scribe: &mut dyn Scribe) -> Option<Revision> {
        match write.action {
            Action::Check => None,
            Action::Delete => {
                self.delete(&write.key, scribe);
                None
            }
            Action::Put(record, index) => Some(Revision::number(self.put(write.key, record, &index, id, scribe))),
            Action::Add(by) => {
                self.add(id, write, by, scribe);
                None
            }
        }
    }

    fn add(&mut self, id: OpId, write: Write, by: i64, scribe: &mut dyn Scribe) {
        let value = self.counter(&write.key).unwrap_or(0);
        let found = self.stamp(&write.key).unwrap_or(Stamp { revision: 0, created_by: id, last: id });
        let stamp = Stamp { revision: self.next_revision(), ..found };
        self.put_other(write.key, Record::Counter(value.saturating_add(by)), &Index::default(), stamp, scribe);
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
