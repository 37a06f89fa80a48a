//! Commits: one conditional write, or a transaction. What was not as expected is read again and judged: it may be our own write
//! that came through although its answer got lost.

use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::key::RecordKind;
use ekiden_core::limits;
use ekiden_core::record::{Record, Revision, Versioned};
use ekiden_store::{Answer, Applied, Conflict, Happened, Hint, Outcome, StoreError};

use crate::codec::{self, Guard, Item};
use crate::error::Failure;
use crate::expression::{Change, Expected, expected};
use crate::payloads;
use crate::shared::Shared;

/// A commit made ready to be sent.
struct Prepared {
    changes: Vec<Change>,
    /// The revision of each put when it is done.
    revisions: Vec<Option<Revision>>,
    /// Where each put of a task leaves it, and its order there.
    places: Vec<Option<(String, String)>>,
    /// Whether an expectation names a revision that this store never gave out.
    never: bool,
}

impl Shared {
    pub(crate) async fn commit(&self, commit: &Commit) -> Outcome {
        self.enter(commit).await?;
        self.store_payloads(commit).await?;
        let to_go = self.payloads_to_go(commit).await?;
        let outcome = self.send_until_known(commit).await;
        match &outcome {
            Ok(Answer::Applied(_)) => self.drop_payloads(to_go).await,
            Ok(Answer::Conflict(_)) => self.drop_payloads(Self::new_payloads(commit)).await,
            // What nobody knows the outcome of stays; a repetition of the commit finds it.
            _ => {}
        }
        outcome
    }

    async fn send_until_known(&self, commit: &Commit) -> Outcome {
        let prepared = self.prepare(commit);
        let only_looks = matches!(commit.writes(), [Write { action: Action::Check, .. }]);
        for tries in 1.. {
            if !only_looks && !prepared.never {
                match self.send(&prepared.changes).await {
                    Ok(gone) => return Ok(self.applied(commit, prepared, gone)),
                    Err(Failure::Unmet(_)) => {}
                    Err(Failure::Failed(error)) if error.happened == Happened::Unknown => {
                        return self.was_applied(commit, prepared).await.ok_or(error);
                    }
                    Err(other) => return Err(other.into()),
                }
            }
            let keys: Vec<_> = commit.writes().iter().map(|write| write.key.clone()).collect();
            let found = self.get_raw(&keys).await?;
            match judge(commit, &found) {
                Verdict::Repeated => return Ok(self.repeated(commit, prepared, &found)),
                Verdict::Unmet => return Ok(conflict(commit, found)),
                Verdict::Met if only_looks => {
                    return Ok(Answer::Applied(Applied { revisions: vec![None].into() }));
                }
                // It changed between the write and the look, so the write is worth another try.
                Verdict::Met if tries < limits::CONFLICTS_MAX => {}
                Verdict::Met => break,
            }
        }
        Err(StoreError::unavailable("others change the same records all the time"))
    }

    /// Namespaces and lines are entered before anything that needs them.
    async fn enter(&self, commit: &Commit) -> Result<(), StoreError> {
        for write in commit.writes() {
            match &write.action {
                Action::Put(record, _) => {
                    self.enter_namespace(&write.key.namespace).await?;
                    if let Record::Task(task) = record {
                        self.enter_line(&task.spec).await?;
                    }
                }
                Action::Add(_) => self.enter_namespace(&write.key.namespace).await?,
                Action::Check | Action::Delete => {}
            }
        }
        Ok(())
    }

    fn prepare(&self, commit: &Commit) -> Prepared {
        let mut prepared = Prepared { changes: Vec::new(), revisions: Vec::new(), places: Vec::new(), never: false };
        for write in commit.writes() {
            let Write { key, expect, action } = write;
            let table = self.table(key.kind).to_owned();
            let guarded = expected(key, expect).unwrap_or_else(|_| {
                prepared.never = true;
                Expected::default()
            });
            let (mut revision, mut place) = (None, None);
            prepared.changes.push(match action {
                Action::Check => Change::check(table, key, guarded),
                Action::Delete => Change::delete(table, key, guarded),
                Action::Add(by) => Change::add(table, key, *by, &self.nonce(), commit.id(), None),
                Action::Put(record, index) => {
                    let (mut encoded, nonce) = (codec::encode(record, index, key, self.parts_of(record)), self.nonce());
                    payloads::refer(write, commit.id(), &mut encoded);
                    revision = Some(codec::revision_of(record, &nonce, &encoded));
                    place = encoded.place();
                    match expect {
                        Expect::Absent => Change::create(table, key, encoded, &nonce, commit.id(), guarded),
                        _ => Change::put(table, key, encoded, &nonce, commit.id(), guarded),
                    }
                }
            });
            prepared.revisions.push(revision);
            prepared.places.push(place);
        }
        prepared
    }

    async fn send(&self, changes: &[Change]) -> Result<Option<Item>, Failure> {
        match changes {
            [change] => self.change(change).await,
            changes => self.transact(changes).await.map(|()| None),
        }
    }

    /// `gone` is the item that a single delete removed.
    fn applied(&self, commit: &Commit, mut prepared: Prepared, gone: Option<Item>) -> Answer {
        self.note_places(commit, &mut prepared);
        for Write { key, expect, action } in commit.writes() {
            if matches!(action, Action::Check) {
                continue;
            }
            if let Action::Put(_, index) = action
                && index.ready.is_some()
            {
                self.hint(Hint::Ready(key.namespace.clone()));
            }
            self.hint(Hint::Changed(key.clone()));
            if key.kind != RecordKind::Task {
                continue;
            }
            let before = match (expect, &gone) {
                (Expect::At(revision), _) => Guard::parse(key.kind, revision).and_then(|guard| guard.counted),
                (Expect::Any, Some(gone)) => {
                    let gone = codec::counted(key, gone);
                    gone.and_then(|gone| Guard::parse(key.kind, &gone)?.counted)
                }
                _ => None,
            };
            if let Action::Put(_, index) = action
                && !index.held
            {
                self.note_holder(key, None);
            }
            let after = match action {
                Action::Put(Record::Task(task), index) => index.phase.map(|phase| (task.spec.pool.clone(), phase)),
                _ => None,
            };
            self.count(&key.namespace, before, after);
        }
        Answer::Applied(Applied { revisions: prepared.revisions.into() })
    }

    /// Claims of this process need not look for what it has just written. A new task need not even be read.
    fn note_places(&self, commit: &Commit, prepared: &mut Prepared) {
        let places = std::mem::take(&mut prepared.places);
        for ((write, revision), place) in commit.writes().iter().zip(&prepared.revisions).zip(places) {
            let Some(place) = place else { continue };
            let known = match (&write.expect, &write.action, revision) {
                (Expect::Absent, Action::Put(record, _), Some(revision)) => Some(Versioned {
                    key: write.key.clone(),
                    record: record.clone(),
                    revision: revision.clone(),
                    created_by: commit.id(),
                    last: commit.id(),
                }),
                _ => None,
            };
            self.note_place(&write.key, place, known);
        }
    }

    /// After a reply got lost: whether the commit is there. `None` says nothing, for it may still arrive.
    async fn was_applied(&self, commit: &Commit, prepared: Prepared) -> Option<Answer> {
        let keys: Vec<_> = commit.writes().iter().map(|write| write.key.clone()).collect();
        let found = self.get_raw(&keys).await.ok()?;
        matches!(judge(commit, &found), Verdict::Repeated).then(|| self.repeated(commit, prepared, &found))
    }

    /// The commit is there. If it is this very try that came through, it counts like any other.
    fn repeated(&self, commit: &Commit, prepared: Prepared, found: &[Option<Versioned>]) -> Answer {
        let now = |(write, found): (&Write, &Option<Versioned>)| {
            let is_put = matches!(write.action, Action::Put(..));
            found.as_ref().filter(|_| is_put).map(|found| found.revision.clone())
        };
        let revisions: Vec<Option<Revision>> = commit.writes().iter().zip(found).map(now).collect();
        let mut pairs = revisions.iter().flatten().zip(prepared.revisions.iter().flatten());
        if pairs.any(|(now, sent)| now == sent) {
            return self.applied(commit, Prepared { revisions, ..prepared }, None);
        }
        for write in commit.writes() {
            self.hint(Hint::Changed(write.key.clone()));
        }
        Answer::Applied(Applied { revisions: revisions.into() })
    }
}

/// What becomes of a commit.
enum Verdict {
    Repeated,
    Unmet,
    Met,
}

/// C5: a commit was applied if any put of it is there, or if it held only deletes and all are done.
fn judge(commit: &Commit, found: &[Option<Versioned>]) -> Verdict {
    let (mut met, mut deleted) = (true, true);
    for (write, found) in commit.writes().iter().zip(found) {
        let bears_id = |found: &Versioned| found.created_by == commit.id() || found.last == commit.id();
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

fn meets(write: &Write, found: Option<&Versioned>) -> bool {
    match (&write.expect, found) {
        (Expect::Any, _) | (Expect::Absent, None) => true,
        (Expect::At(revision), Some(found)) => *revision == found.revision,
        (Expect::Absent, Some(_)) | (Expect::At(_), None) => false,
    }
}

fn conflict(commit: &Commit, found: Vec<Option<Versioned>>) -> Answer {
    let unmet = commit.writes().iter().zip(found).filter(|(write, found)| !meets(write, found.as_ref()));
    Answer::Conflict(Conflict { found: unmet.map(|(write, found)| (write.key.clone(), found)).collect() })
}
