//! The heads of lines, as far as this process knows them. One look at the ready index serves all claims of this process for a
//! moment, and what this process itself makes ready is entered without a look. A head is a hint, as the index is: a task is taken by
//! a conditional write to its item, and a claim that goes home with nothing has asked the index itself.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::record::Versioned;

use crate::foreign::Found;
use crate::shared::lock;

/// 100 ms: how old a look may be. What another process made ready meanwhile, and ought to come first, waits no longer.
const AGE_MAX: Duration = Duration::from_millis(100);

/// One second: what this process wrote longer ago is read again, because others had time to take it, and a write in vain costs five
/// times what a read does. Also how long an index may take to show it.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// 64 entries of a head: as many as one look asks for at most.
const ENTRIES_MAX: usize = 64;

/// 256 heads: with 64 entries each, of at most 4 KiB of payload, some 100 MB if that many lines are full and in use. More are kept only
/// while claims ask for more at once.
const HEADS_KEPT: usize = 256;

/// What this process knows of the beginnings of lines.
#[derive(Default)]
pub(crate) struct Heads {
    by_place: HashMap<Arc<str>, Head>,
    /// What claims are about to take, which others leave alone.
    picked: HashSet<Key>,
    /// How many heads there may be before unused ones are dropped.
    tidy_at: usize,
}

#[derive(Default)]
struct Head {
    /// By their order.
    entries: BTreeMap<String, Entry>,
    reach: Reach,
    /// When the look was sent; `None` if what it found is no longer believed.
    read_at: Option<Duration>,
    used_at: Duration,
    /// How many tasks were picked since the look.
    picks: usize,
    /// Held by the one who looks.
    looking: Arc<tokio::sync::Mutex<()>>,
}

/// How far the index was read.
#[derive(Default)]
enum Reach {
    /// Up to this order. What is entered behind it could pass by entries that nobody has read.
    To(String),
    #[default]
    End,
}

struct Entry {
    key: Key,
    known: Option<(Versioned, Duration)>,
}

/// What a claim must read before it can pick.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    Nothing,
    /// The head, from its beginning.
    All,
    /// What comes behind this order.
    Behind(String),
}

/// An entry of the index: its order and the task's key.
pub(crate) type Listed = (String, Key);

impl Heads {
    /// What is missing of a part for a claim that began at `since`.
    pub(crate) fn lack(&mut self, place: &Arc<str>, since: Duration, now: Duration) -> Lack {
        let head = self.head(place, now);
        let Some(read_at) = head.read_at else { return Lack::All };
        let is_newer = read_at >= since;
        // C13: a task that nobody here has seen is overtaken by so many others at most.
        let is_good = now.saturating_sub(read_at) < AGE_MAX && head.picks < limits::CLAIM_WINDOW_MAX;
        match &head.reach {
            _ if !is_newer && !is_good => Lack::All,
            _ if !head.entries.is_empty() => Lack::Nothing,
            Reach::To(last) => Lack::Behind(last.clone()),
            // Nothing in an old answer says nothing.
            Reach::End if is_newer => Lack::Nothing,
            Reach::End => Lack::All,
        }
    }

    /// Held while somebody looks, so that claims which come meanwhile share the answer.
    pub(crate) fn looking(&mut self, place: &Arc<str>, now: Duration) -> Arc<tokio::sync::Mutex<()>> {
        self.head(place, now).looking.clone()
    }

    fn head(&mut self, place: &Arc<str>, now: Duration) -> &mut Head {
        if !self.by_place.contains_key(place) && self.by_place.len() >= self.tidy_at.max(HEADS_KEPT) {
            self.by_place.retain(|_, head| now.saturating_sub(head.used_at) < KNOWN_FOR);
            self.tidy_at = 2 * self.by_place.len();
        }
        let head = self.by_place.entry(place.clone()).or_default();
        head.used_at = now;
        head
    }

    /// The answer to a look that was sent at `sent`.
    pub(crate) fn found(&mut self, place: &Arc<str>, lack: &Lack, found: Vec<Listed>, is_end: bool, sent: Duration) {
        let picked = &self.picked;
        let Some(head) = self.by_place.get_mut(place) else { return };
        let mut before = std::mem::take(&mut head.entries);
        if *lack == Lack::All {
            // An index may be behind what this process wrote a moment ago.
            let is_young =
                |entry: &Entry| entry.known.as_ref().is_some_and(|(_, noted)| sent.saturating_sub(*noted) < KNOWN_FOR);
            before.retain(|_, entry| is_young(entry));
            (head.read_at, head.picks) = (Some(sent), 0);
        }
        head.reach = match found.last() {
            Some((last, _)) if !is_end => Reach::To(last.clone()),
            _ => Reach::End,
        };
        for (order, key) in found.into_iter().filter(|(_, key)| !picked.contains(key)) {
            let known = before.remove(&order).filter(|entry| entry.key == key).and_then(|entry| entry.known);
            head.entries.insert(order, Entry { key, known });
        }
        for (order, entry) in before {
            head.enter(order, entry);
        }
    }

    /// This process made a task ready. Lines that no claim has asked for are not kept.
    pub(crate) fn enter(&mut self, place: &str, order: String, key: Key, known: Option<Versioned>, now: Duration) {
        if self.picked.contains(&key) {
            return;
        }
        if let Some(head) = self.by_place.get_mut(place).filter(|head| head.read_at.is_some()) {
            head.enter(order, Entry { key, known: known.map(|known| (known, now)) });
        }
    }
}

impl Head {
    fn enter(&mut self, order: String, entry: Entry) {
        if matches!(&self.reach, Reach::To(last) if order > *last) {
            return;
        }
        self.entries.insert(order, entry);
        if self.entries.len() > ENTRIES_MAX {
            self.entries.pop_last();
            let last = self.entries.last_key_value().map(|(order, _)| order.clone());
            self.reach = last.map_or(Reach::End, Reach::To);
        }
    }
}

/// A task that a claim may take.
pub(crate) struct Pick {
    /// The line, by its place in the claim.
    line: usize,
    key: Key,
    /// The task as this process wrote it a moment ago, or as it was read.
    pub(crate) found: Option<Found>,
    place: Arc<str>,
    order: String,
    is_spent: bool,
}

impl Pick {
    /// Its line, its key, and the task.
    pub(crate) fn take(&mut self) -> (usize, Key, Option<Found>) {
        (self.line, self.key.clone(), self.found.take())
    }
}

/// What one claim picked. Others leave it alone until this is dropped; what was not spent by then goes back.
pub(crate) struct Picks<'a> {
    heads: &'a Mutex<Heads>,
    all: Vec<Pick>,
}

impl<'a> Picks<'a> {
    pub(crate) const fn from(heads: &'a Mutex<Heads>) -> Self {
        Self { heads, all: Vec::new() }
    }

    /// Picks the best of some parts, given as (line, place), and gives their numbers. Stops where a part has to be read on first.
    pub(crate) fn more(&mut self, parts: &[(usize, Arc<str>)], want: usize, now: Duration) -> Vec<usize> {
        let mut heads = lock(self.heads);
        let mut first: BinaryHeap<Reverse<(String, usize)>> = BinaryHeap::new();
        for (at, (_, place)) in parts.iter().enumerate() {
            let head = heads.by_place.get(place);
            let order = head.and_then(|head| head.entries.first_key_value()).map(|(order, _)| order.clone());
            first.extend(order.map(|order| Reverse((order, at))));
        }
        let start = self.all.len();
        while self.all.len() < start + want
            && let Some(Reverse((_, at))) = first.pop()
        {
            let Heads { by_place, picked, .. } = &mut *heads;
            let Some((line, place)) = parts.get(at) else { continue };
            let Some(head) = by_place.get_mut(place) else { continue };
            let Some((order, Entry { key, known })) = head.entries.pop_first() else { continue };
            if picked.insert(key.clone()) {
                head.picks += 1;
                let is_young = |noted: Duration| now.saturating_sub(noted) < KNOWN_FOR;
                let known = known.filter(|(_, noted)| is_young(*noted));
                let found = known.map(|(versioned, _)| Found { versioned, disputed: false });
                self.all.push(Pick { line: *line, key, found, place: place.clone(), order, is_spent: false });
            }
            match (head.entries.first_key_value(), &head.reach) {
                (Some((order, _)), _) => first.push(Reverse((order.clone(), at))),
                (None, Reach::To(_)) => break,
                (None, Reach::End) => {}
            }
        }
        (start..self.all.len()).collect()
    }

    /// A pick whose task has to be read.
    pub(crate) fn unknown(&self, number: usize) -> Option<(usize, Key)> {
        let pick = self.all.get(number).filter(|pick| pick.found.is_none())?;
        Some((number, pick.key.clone()))
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut Pick> {
        self.all.get_mut(number)
    }

    /// The pick does not go back: its task was taken, or is no longer there to be taken.
    pub(crate) fn spend(&mut self, number: usize) {
        if let Some(pick) = self.all.get_mut(number) {
            pick.is_spent = true;
        }
    }

    /// Others are at work in this part, so what was known before `since` is no longer believed.
    pub(crate) fn doubt(&mut self, number: usize, since: Duration) {
        let Some(pick) = self.all.get(number) else { return };
        if let Some(head) = lock(self.heads).by_place.get_mut(&pick.place)
            && head.read_at.is_some_and(|read_at| read_at < since)
        {
            head.read_at = None;
        }
    }
}

impl Drop for Picks<'_> {
    fn drop(&mut self) {
        let mut heads = lock(self.heads);
        for pick in self.all.drain(..) {
            heads.picked.remove(&pick.key);
            if let Some(head) = heads.by_place.get_mut(&pick.place).filter(|_| !pick.is_spent) {
                head.enter(pick.order, Entry { key: pick.key, known: None });
            }
        }
    }
}

#[cfg(test)]
mod tests;
