//! Tasks of a line that are not due yet. What became due gets its ready entry before a claim looks for the best (C15). When the next
//! one is due is remembered for a second, with what this process adds to it, so that most claims need not ask.

use std::collections::HashMap;
use std::time::Duration;

use ekiden_core::claim::{self, Claim};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::limits;
use ekiden_core::record::Versioned;
use ekiden_core::task::Spec;
use ekiden_core::time::Timestamp;
use ekiden_store::StoreError;

use crate::client::Range;
use crate::codec::{Item, attributes as at, get_text, places, text};
use crate::shared::{Shared, lock};
use crate::tables::PLACE_INDEX;

/// One second: how old the answer may be. What another process puts off meanwhile is found so much later at most; it polls no more
/// often than that either.
const AGE_MAX: Duration = Duration::from_secs(1);

/// 16 entries of a first look: half a read unit, like a look at nothing.
const FIRST_ENTRIES: usize = 16;

/// 4,096 lines: a cache, not a list; beyond it everything is read again.
const LINES_MAX: usize = 4_096;

/// 4 KiB of payload: a larger task is read again rather than remembered.
const KNOWN_BYTES_MAX: usize = 4 * 1024;

/// 256 tasks of a list that are remembered by name: as many as one claim promotes.
const ADDED_MAX: usize = limits::CLAIM_PROMOTE_MAX;

/// When the next task of each waiting list is due.
#[derive(Default)]
pub(crate) struct Waiting(HashMap<String, Next>);

#[derive(Default)]
struct Next {
    /// When the list was asked; `None` if it has to be asked.
    read_at: Option<Duration>,
    /// The first that was there and not due.
    first: Option<Timestamp>,
    /// What this process put there within the last second or so: the index may not show it yet.
    added: Vec<Added>,
}

/// A task that this process made wait.
struct Added {
    key: Key,
    due: Timestamp,
    noted: Duration,
}

impl Waiting {
    /// Whether nothing can have become due, as far as anybody here knows.
    fn is_known_empty(&self, place: &str, until: Timestamp, now: Duration) -> bool {
        let Some(next) = self.0.get(place) else { return false };
        let is_young = next.read_at.is_some_and(|read_at| now.saturating_sub(read_at) < AGE_MAX);
        is_young && next.first.into_iter().chain(next.added.iter().map(|added| added.due)).all(|due| due > until)
    }

    /// The answer of a list that was asked at `sent`.
    fn note(&mut self, place: String, first: Option<Timestamp>, sent: Duration) {
        if self.0.len() >= LINES_MAX {
            self.0.clear();
        }
        let next = self.0.entry(place).or_default();
        (next.read_at, next.first) = (Some(sent), first);
        next.added.retain(|added| sent.saturating_sub(added.noted) < AGE_MAX);
    }

    /// This process put a task there. A list that no claim has asked for is not kept.
    fn add(&mut self, place: &str, key: Key, due: Timestamp, now: Duration) {
        let Some(next) = self.0.get_mut(place) else { return };
        next.added.retain(|added| added.key != key && now.saturating_sub(added.noted) < AGE_MAX);
        if next.added.len() < ADDED_MAX {
            next.added.push(Added { key, due, noted: now });
        } else {
            // Not by name any more, but the list is asked when it is due.
            next.first = Some(next.first.map_or(due, |first| first.min(due)));
        }
    }

    /// What this process put there a moment ago and is due.
    fn due_of_own(&self, place: &str, until: Timestamp) -> Vec<Key> {
        let added = self.0.get(place).into_iter().flat_map(|next| &next.added);
        added.filter(|added| added.due <= until).map(|added| added.key.clone()).collect()
    }

    /// These have been seen to.
    fn seen_to(&mut self, place: &str, keys: &[Key]) {
        if let Some(next) = self.0.get_mut(place) {
            next.added.retain(|added| !keys.contains(&added.key));
        }
    }
}

impl Shared {
    /// C15: what became due in a line gets its ready entry, so many at most. Says how many entries were due.
    pub(crate) async fn promote_line(&self, claim: &Claim, place: String, left: usize) -> Result<usize, StoreError> {
        let sent = self.clock.monotonic();
        if left == 0 || lock(&self.waiting).is_known_empty(&place, claim.now, sent) {
            return Ok(0);
        }
        let range = Range::of(&self.names.queue, Some(PLACE_INDEX), at::PLACE, text(&*place));
        let moment = |item: &Item| places::parse_moment(get_text(item, at::PLACE_ORDER)?);
        let mut items = self.query(&range, FIRST_ENTRIES.min(left)).await?;
        let due = items.iter().take_while(|item| moment(item).is_some_and(|at| at <= claim.now)).count();
        let first = items.get(due).and_then(moment);
        if due == items.len() && due == FIRST_ENTRIES {
            let due_now = range.only(at::PLACE_ORDER, "<", text(places::due_until(claim.now)));
            items = self.query(&due_now, left).await?;
        } else {
            items.truncate(due);
        }
        let mut keys: Vec<Key> =
            items.iter().filter_map(|item| crate::codec::parse_key(RecordKind::Task, item)).collect();
        let own = lock(&self.waiting).due_of_own(&place, claim.now);
        for key in own {
            if keys.len() < left && !keys.contains(&key) {
                keys.push(key);
            }
        }
        // Where something was due, more may be.
        let first = if items.is_empty() { first } else { Some(claim.now) };
        lock(&self.waiting).note(place.clone(), first, sent);
        if keys.is_empty() {
            return Ok(0);
        }
        for found in self.get(&keys).await?.into_iter().flatten() {
            let promoted = found.record.as_task().and_then(|task| claim::promote(task, claim.now));
            if let Some(task) = promoted {
                // Whoever was quicker has done it, or something better.
                self.write_task(claim, None, &found, task).await?;
            }
        }
        lock(&self.waiting).seen_to(&place, &keys);
        Ok(keys.len())
    }

    /// Enters what this process wrote into what it remembers of lines: a task became ready, or has to wait.
    pub(crate) fn note_place(&self, key: &Key, entry: (String, String), known: Option<Versioned>) {
        let ((place, order), now) = (entry, self.clock.monotonic());
        if places::is_ready(&place) {
            let known = known.filter(|known| known.record.as_task().is_some_and(|task| is_small(&task.spec)));
            lock(&self.heads).enter(&place, order, key.clone(), known, now);
        } else if let Some(at) = places::parse_moment(&order).filter(|_| places::is_waiting(&place)) {
            lock(&self.waiting).add(&place, key.clone(), at, now);
        }
    }
}

/// Whether a task is small enough to be remembered.
fn is_small(spec: &Spec) -> bool {
    spec.envelope.payload.len() <= KNOWN_BYTES_MAX
}

/// What is left of the entries that one claim may promote.
pub(crate) const fn left_of(promoted: usize) -> usize {
    limits::CLAIM_PROMOTE_MAX.saturating_sub(promoted)
}
