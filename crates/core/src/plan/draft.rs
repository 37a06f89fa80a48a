//! A commit in the making. It reads through its own writes to the view, and remembers for each write what was read.

use std::sync::Arc;

use crate::commit::{Action, Commit, Expect, Write, large_bytes};
use crate::id::OpId;
use crate::index::Index;
use crate::key::Key;
use crate::plan::view::{Need, PageNeed, View};
use crate::plan::{Plan, Stop};
use crate::record::{Record, Versioned};
use crate::task::Task;
use crate::time::Timestamp;

/// What is to be written, so far.
#[derive(Clone, Debug)]
pub struct Draft<'v> {
    id: OpId,
    view: &'v View,
    now: Timestamp,
    lanes: Lanes,
    /// In no order; so few, at most 25, are found by looking at each.
    writes: Vec<(Key, Pending)>,
}

/// What becomes of those who wait when a place in a lane gets free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Lanes {
    /// The same commit admits the next.
    #[default]
    Admit,
    /// A sweep does, because this commit met too many conflicts.
    Defer,
}

#[derive(Clone, Debug)]
enum Pending {
    /// Guarded by what the view says was there.
    Guarded(Change),
    /// Whatever is there.
    Blind(Change),
}

#[derive(Clone, Debug)]
enum Change {
    Check,
    Put(Record),
    Delete,
    Add(i64),
}

impl<'v> Draft<'v> {
    /// An empty draft over what was read, for the commit of this name.
    pub fn new(id: OpId, view: &'v View, now: Timestamp) -> Self {
        Self { id, view, now, lanes: Lanes::Admit, writes: Vec::new() }
    }

    /// Drafts a plan and makes the commit of it. `None` when the plan is content with things as they are.
    pub fn of<P: Plan + ?Sized>(
        plan: &P,
        id: OpId,
        view: &'v View,
        now: Timestamp,
        lanes: Lanes,
    ) -> Result<(P::Done, Option<Commit>), Stop> {
        match plan.single(id, view, now) {
            Some(Ok((done, commit))) => Ok((done, Some(commit))),
            Some(Err(refusal)) => Err(refusal.into()),
            None => Self::drawn(plan, id, view, now, lanes),
        }
    }

    /// The same, however simple the plan is.
    pub(crate) fn drawn<P: Plan + ?Sized>(
        plan: &P,
        id: OpId,
        view: &'v View,
        now: Timestamp,
        lanes: Lanes,
    ) -> Result<(P::Done, Option<Commit>), Stop> {
        let mut draft = Self { lanes, ..Self::new(id, view, now) };
        let done = plan.draft(&mut draft)?;
        let commit = draft.commit()?;
        Ok((done, commit))
    }

    /// The moment for which the draft is made.
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether this draft admits members of lanes itself.
    pub(crate) const fn lanes(&self) -> Lanes {
        self.lanes
    }

    /// How many writes there are so far.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// How many bytes a commit counts of these writes.
    pub fn bytes(&self) -> usize {
        let puts = self.writes.iter().map(|(_, pending)| match pending {
            Pending::Guarded(Change::Put(record)) | Pending::Blind(Change::Put(record)) => large_bytes(record),
            _ => 0,
        });
        puts.sum()
    }

    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Whether this very commit created the record: its reply got lost, and it is being drafted again.
    pub fn created(&self, key: &Key) -> Result<bool, Stop> {
        Ok(self.read(key)?.is_some_and(|versioned| versioned.created_by == self.id))
    }

    /// Whether the record as read was written by an op with the id of this commit.
    pub(crate) fn wrote(&self, key: &Key) -> Result<bool, Stop> {
        Ok(self.read(key)?.is_some_and(|versioned| versioned.was_written_by(self.id)))
    }

    /// Whether something, or its absence, was read under a key.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        self.view.knows(key)
    }

    /// Makes sure that all of these were read, asking for all that are missing at once.
    pub fn need(&self, keys: &[Key]) -> Result<(), Stop> {
        let missing: Vec<Need> =
            keys.iter().filter(|key| self.view.record(key).is_none()).map(|key| Need::Record((*key).clone())).collect();
        if missing.is_empty() { Ok(()) } else { Err(Stop::Need(missing)) }
    }

    /// A record as it will be after this draft.
    pub fn record(&self, key: &Key) -> Result<Option<Record>, Stop> {
        match self.pending(key) {
            Some(Pending::Guarded(Change::Put(record))) => Ok(Some(record.clone())),
            Some(Pending::Guarded(Change::Delete) | Pending::Blind(Change::Delete)) => Ok(None),
            _ => Ok(self.read(key)?.map(|versioned| versioned.record.clone())),
        }
    }

    /// A task as it will be after this draft.
    pub fn task(&self, key: &Key) -> Result<Option<Arc<Task>>, Stop> {
        match self.pending(key) {
            Some(Pending::Guarded(Change::Put(record))) => Ok(record.as_task().cloned()),
            Some(Pending::Guarded(Change::Delete) | Pending::Blind(Change::Delete)) => Ok(None),
            _ => Ok(self.read(key)?.and_then(|versioned| versioned.record.as_task().cloned())),
        }
    }

    /// The first records with a prefix, without those that this draft deletes.
    pub fn page(&self, need: &PageNeed) -> Result<Vec<Versioned>, Stop> {
        let page = self.view.page(need).ok_or_else(|| Stop::Need(vec![Need::Page(need.clone())]))?;
        let deleted = |versioned: &&Versioned| {
            matches!(
                self.pending(&versioned.key),
                Some(Pending::Guarded(Change::Delete) | Pending::Blind(Change::Delete))
            )
        };
        Ok(page.iter().filter(|versioned| !deleted(versioned)).cloned().collect())
    }

    /// Whether a page holds all there is. A full one may go on beyond what was read.
    pub fn page_is_whole(&self, need: &PageNeed) -> Result<bool, Stop> {
        let page = self.view.page(need).ok_or_else(|| Stop::Need(vec![Need::Page(need.clone())]))?;
        Ok(page.len() < need.limit)
    }

    /// Writes a record, guarded by what was read.
    pub fn put(&mut self, key: Key, record: impl Into<Record>) {
        self.set(key, Pending::Guarded(Change::Put(record.into())));
    }

    /// Deletes a record, guarded by what was read.
    pub fn delete(&mut self, key: Key) {
        self.set(key, Pending::Guarded(Change::Delete));
    }

    /// Deletes a record whatever is there. For records that only this task can own. What this draft itself would put is no
    /// such record yet: another may own it by the time of the commit, so its guard stays.
    pub fn delete_blind(&mut self, key: Key) {
        let pending = match self.pending(&key) {
            Some(Pending::Guarded(_)) => Pending::Guarded(Change::Delete),
            _ => Pending::Blind(Change::Delete),
        };
        self.set(key, pending);
    }

    /// Makes the commit depend on a record that it does not change.
    pub fn check(&mut self, key: Key) {
        if self.pending(&key).is_none() {
            self.set(key, Pending::Guarded(Change::Check));
        }
    }

    /// Adds to a counter.
    pub fn add(&mut self, key: Key, by: i64) {
        match self.writes.iter_mut().find(|(known, _)| *known == key) {
            Some((_, Pending::Blind(Change::Add(sum)))) => *sum += by,
            Some(_) => {}
            None => self.set(key, Pending::Blind(Change::Add(by))),
        }
    }

    /// The tasks to which something happens: their history goes on. A mark or a place is no event.
    pub(crate) fn happened(&self) -> Vec<Arc<Task>> {
        let before = |key: &Key| self.view.record(key)??.record.as_task().cloned();
        let written = self.writes.iter().filter_map(|(key, pending)| match pending {
            Pending::Guarded(Change::Put(record)) => Some((key, record.as_task()?)),
            _ => None,
        });
        let goes_on =
            |key: &Key, task: &Task| before(key).is_none_or(|before| before.state.history != task.state.history);
        written.filter(|(key, task)| goes_on(key, task)).map(|(_, task)| task.clone()).collect()
    }

    /// The commit, if there is anything to write. Its writes stand in the order of their keys.
    pub fn commit(mut self) -> Result<Option<Commit>, Stop> {
        if self.writes.is_empty() {
            return Ok(None);
        }
        self.writes.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let mut writes = Vec::with_capacity(self.writes.len());
        for (key, pending) in self.writes {
            writes.extend(write(self.view, key, pending)?);
        }
        Ok(Some(Commit::new(self.id, writes)?))
    }

    fn pending(&self, key: &Key) -> Option<&Pending> {
        self.writes.iter().find(|(known, _)| known == key).map(|(_, pending)| pending)
    }

    fn set(&mut self, key: Key, pending: Pending) {
        match self.writes.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = pending,
            None => {
                if self.writes.is_empty() {
                    // Usually there is one.
                    self.writes.reserve_exact(1);
                }
                self.writes.push((key, pending));
            }
        }
    }

    fn read(&self, key: &Key) -> Result<Option<&'v Versioned>, Stop> {
        read(self.view, key)
    }
}

fn read<'v>(view: &'v View, key: &Key) -> Result<Option<&'v Versioned>, Stop> {
    view.record(key).ok_or_else(|| Stop::Need(vec![Need::Record(key.clone())]))
}

/// A guarded delete of a record that was never there (put and deleted inside one draft) is no write at all.
fn write(view: &View, key: Key, pending: Pending) -> Result<Option<Write>, Stop> {
    let (expect, change) = match pending {
        Pending::Blind(change) => (Expect::Any, change),
        Pending::Guarded(change) => match (read(view, &key)?, change) {
            (None, Change::Delete) => return Ok(None),
            (None, change) => (Expect::Absent, change),
            (Some(versioned), change) => (Expect::At(versioned.revision.clone()), change),
        },
    };
    let action = match change {
        Change::Check => Action::Check,
        Change::Delete => Action::Delete,
        Change::Add(0) => return Ok(None),
        Change::Add(by) => Action::Add(by),
        Change::Put(record) => {
            let index = Index::of(&key, &record);
            Action::Put(record, index)
        }
    };
    Ok(Some(Write { key, expect, action }))
}
