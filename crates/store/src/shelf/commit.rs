//! Commits: recognise a repetition, look at every expectation, then write.

use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::id::OpId;
use ekiden_core::index::Index;
use ekiden_core::key::Key;
use ekiden_core::record::{Record, Revision, Versioned};
use smallvec::SmallVec;

use super::space::Stamp;
use super::{Found, Look, Scribe, Shelf};
use crate::error::StoreError;
use crate::op::{Answer, Applied, Conflict, Outcome};

impl Shelf {
    pub(crate) fn commit(&mut self, commit: &mut Commit, scribe: &mut dyn Scribe) -> Outcome {
        let mut places = Places::new();
        Ok(match self.judge(commit, &mut places) {
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
                let mut revisions = SmallVec::with_capacity(places.len());
                // Its keys are distinct, so no write moves what was found for another.
                for ((key, action), found) in commit.take_actions().zip(places) {
                    revisions.push(self.write(id, key, action, found, scribe));
                }
                Answer::Applied(Applied { revisions })
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
    fn judge(&self, commit: &Commit, places: &mut Places) -> Verdict {
        let (mut met, mut deleted) = (true, true);
        for write in commit.writes() {
            let place = self.find(&write.key);
            let found = place.stamp;
            places.push(place);
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

    fn write(
        &mut self,
        id: OpId,
        key: &Key,
        action: Action,
        found: Found,
        scribe: &mut dyn Scribe,
    ) -> Option<Revision> {
        match action {
            Action::Check => None,
            Action::Delete => {
                self.delete(key, scribe);
                None
            }
            Action::Put(record, index) => Some(Revision::number(self.put(key, found, record, index, id, scribe))),
            Action::Add(by) => {
                self.add(id, key, by, found, scribe);
                None
            }
        }
    }

    fn add(&mut self, id: OpId, key: &Key, by: i64, found: Found, scribe: &mut dyn Scribe) {
        let value = self.counter(key).unwrap_or(0);
        let found = found.stamp.unwrap_or(Stamp { revision: 0, created_by: id, last: id });
        let stamp = Stamp { revision: self.next_revision(), ..found };
        self.put_other(key.clone(), Record::Counter(value.saturating_add(by)), Index::default(), stamp, scribe);
    }
}

/// What is found for each write of a commit. Most have one.
type Places = SmallVec<[Found; 1]>;

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
