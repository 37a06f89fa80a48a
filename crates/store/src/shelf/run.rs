//! A sorted list that is mostly appended to and taken from its head, as lines and listings are. Both cost the same however
//! long it is; anywhere else costs a search. What order means is the caller's to say, so that a list may hold mere slots.

use std::cmp::Ordering;
use std::collections::VecDeque;

/// 2 KiB a chunk: small enough to shift, large enough that a million entries have few chunks to search.
const CHUNK_BYTES: usize = 2 * 1_024;

/// 128 entries are looked through one by one: comparing so many numbers costs no more than a search by order, each step of which
/// looks up two entries.
const SCANNED_MAX: usize = 128;

/// Sorted entries, no two alike.
#[derive(Clone, Debug)]
pub(crate) struct Run<T> {
    /// Never empty ones.
    chunks: VecDeque<VecDeque<T>>,
    len: usize,
    /// Where the entry was that left last: those that leave together mostly do so one before the other.
    left: Spot,
}

/// Where an entry is, or would be: its chunk, and its place there.
#[derive(Clone, Copy, Debug, Default)]
struct Spot {
    chunk: usize,
    place: usize,
}

impl<T> Run<T> {
    const CHUNK_MAX: usize = CHUNK_BYTES / size_of::<T>();

    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.chunks.front()?.front()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// Adds an entry, unless it is there; `order` says how another one compares with it. Several lists often end alike, so
    /// the place is first looked for with so many entries behind it, and the answer is how many there are; 0 if not known.
    pub(crate) fn insert(&mut self, entry: T, behind: usize, order: impl Fn(&T) -> Ordering) -> usize {
        let before = |other: &T| order(other).is_lt();
        let spot = self.spot_from_end(behind, before).unwrap_or_else(|| self.spot(before));
        if self.at(spot).is_some_and(|found| order(found).is_eq()) {
            return 0;
        }
        self.len += 1;
        let last = self.chunks.len().saturating_sub(1);
        let Some(chunk) = self.chunks.get_mut(spot.chunk) else {
            self.push(entry);
            return 0;
        };
        let behind = if spot.chunk == last { chunk.len() - spot.place } else { 0 };
        chunk.insert(spot.place, entry);
        if chunk.len() > Self::CHUNK_MAX {
            let upper = chunk.split_off(Self::CHUNK_MAX / 2);
            self.chunks.insert(spot.chunk + 1, upper);
        }
        behind
    }

    /// Takes an entry out; `order` says how another one compares with it. Says whether it was there. Where it most likely is
    /// it is known by itself, which costs less than a search by order.
    pub(crate) fn remove(&mut self, entry: &T, order: impl Fn(&T) -> Ordering) -> bool
    where
        T: PartialEq,
    {
        let found = self.spot_of(entry).or_else(|| {
            let spot = self.spot(|other| order(other).is_lt());
            self.at(spot).filter(|found| order(found).is_eq()).map(|_| spot)
        });
        if let Some(spot) = found {
            self.take(spot);
            self.left = spot;
        }
        found.is_some()
    }

    /// The entries from the first that is not `before` on.
    pub(crate) fn since(&self, before: impl Fn(&T) -> bool) -> impl Iterator<Item = &T> {
        let Spot { chunk, place } = self.spot(before);
        let first = self.chunks.get(chunk).into_iter().flat_map(move |chunk| chunk.range(place..));
        first.chain(self.chunks.iter().skip(chunk + 1).flatten())
    }

    /// The entries that are `before`, the last one first.
    pub(crate) fn until(&self, before: impl Fn(&T) -> bool) -> impl Iterator<Item = &T> {
        let Spot { chunk, place } = self.spot(before);
        let last = self.chunks.get(chunk).into_iter().flat_map(move |chunk| chunk.range(..place).rev());
        last.chain(self.chunks.range(..chunk).rev().flat_map(|chunk| chunk.iter().rev()))
    }

    /// Where an entry is, if it is at the head, in a short list, or right before the one that left last.
    fn spot_of(&self, entry: &T) -> Option<Spot>
    where
        T: PartialEq,
    {
        let first = self.chunks.front()?;
        if first.front() == Some(entry) {
            return Some(Spot { chunk: 0, place: 0 });
        }
        if self.len <= SCANNED_MAX && self.chunks.len() == 1 {
            return first.iter().position(|other| other == entry).map(|place| Spot { chunk: 0, place });
        }
        let before = Spot { place: self.left.place.checked_sub(1)?, ..self.left };
        (self.at(before) == Some(entry)).then_some(before)
    }

    fn at(&self, spot: Spot) -> Option<&T> {
        self.chunks.get(spot.chunk)?.get(spot.place)
    }

    /// The first place whose entry is not `before`. Both ends are tried first.
    fn spot(&self, before: impl Fn(&T) -> bool) -> Spot {
        let is_before = |end: Option<&T>| end.is_some_and(&before);
        let (Some(first), Some(last)) = (self.chunks.front(), self.chunks.back()) else {
            return Spot { chunk: 0, place: 0 };
        };
        let chunk = if is_before(last.back()) {
            return Spot { chunk: self.chunks.len(), place: 0 };
        } else if !is_before(first.front()) {
            return Spot { chunk: 0, place: 0 };
        } else if is_before(last.front()) {
            self.chunks.len() - 1
        } else {
            self.chunks.partition_point(|chunk| is_before(chunk.back()))
        };
        let place = self.chunks.get(chunk).map_or(0, |chunk| chunk.partition_point(&before));
        Spot { chunk, place }
    }

    /// The place with so many entries behind it in the last chunk, if it is the right one.
    fn spot_from_end(&self, behind: usize, before: impl Fn(&T) -> bool) -> Option<Spot> {
        let last = self.chunks.back().filter(|_| behind > 0)?;
        let place = last.len().checked_sub(behind)?;
        let follows = before(last.get(place.checked_sub(1)?)?);
        (follows && !before(last.get(place)?)).then_some(Spot { chunk: self.chunks.len() - 1, place })
    }

    fn push(&mut self, entry: T) {
        match self.chunks.back_mut() {
            Some(last) if last.len() < Self::CHUNK_MAX => last.push_back(entry),
            // A list that filled a chunk most likely fills the next one too, which then need not grow step by step.
            Some(_) => {
                let mut chunk = VecDeque::with_capacity(Self::CHUNK_MAX);
                chunk.push_back(entry);
                self.chunks.push_back(chunk);
            }
            None => self.chunks.push_back(VecDeque::from([entry])),
        }
    }

    fn take(&mut self, spot: Spot) {
        let Some(chunk) = self.chunks.get_mut(spot.chunk) else { return };
        if chunk.remove(spot.place).is_some() {
            self.len -= 1;
        }
        if chunk.is_empty() {
            self.chunks.remove(spot.chunk);
        } else if chunk.len() < Self::CHUNK_MAX / 4 {
            self.merge(spot.chunk);
            self.merge(spot.chunk.saturating_sub(1));
        }
    }

    /// Joins a chunk with the next if both together stay small, so that entries taken out here and there leave no ruins.
    fn merge(&mut self, at: usize) {
        let len = |chunk: Option<&VecDeque<T>>| chunk.map_or(Self::CHUNK_MAX, VecDeque::len);
        if len(self.chunks.get(at)) + len(self.chunks.get(at + 1)) > Self::CHUNK_MAX / 2 {
            return;
        }
        if let Some(mut next) = self.chunks.remove(at + 1)
            && let Some(chunk) = self.chunks.get_mut(at)
        {
            chunk.append(&mut next);
        }
    }
}

impl<T> Default for Run<T> {
    fn default() -> Self {
        Self { chunks: VecDeque::new(), len: 0, left: Spot::default() }
    }
}

impl<T: PartialEq> PartialEq for Run<T> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::entropy::Entropy;

    fn check(run: &Run<u32>, model: &BTreeSet<u32>) {
        assert!(run.iter().eq(model.iter()));
        assert_eq!(run.len(), model.len());
        assert!(run.chunks.iter().all(|chunk| !chunk.is_empty() && chunk.len() <= Run::<u32>::CHUNK_MAX));
    }

    #[test]
    fn a_run_holds_what_a_sorted_set_holds() {
        for seed in 0..8 {
            let mut entropy = Entropy::from_seed(seed);
            let (mut run, mut model) = (Run::default(), BTreeSet::new());
            for step in 0..6_000 {
                let entry = u32::try_from(entropy.below(3_000)).unwrap();
                // First it grows, later it shrinks.
                if entropy.chance(if step < 3_000 { 80 } else { 20 }) {
                    // Right guesses and wrong ones.
                    let behind = model.range(entry..).count() + entropy.below(2);
                    let found = run.insert(entry, behind, |other| other.cmp(&entry));
                    assert!(found == 0 || found == model.range(entry..).count(), "seed {seed}");
                    model.insert(entry);
                } else {
                    assert_eq!(run.remove(&entry, |other| other.cmp(&entry)), model.remove(&entry));
                }
                assert_eq!(run.first(), model.first());
                if step % 500 == 0 {
                    check(&run, &model);
                    assert!(run.since(|other| *other < entry).eq(model.range(entry..)), "seed {seed}");
                    assert!(run.until(|other| *other < entry).eq(model.range(..entry).rev()), "seed {seed}");
                }
            }
            check(&run, &model);
        }
    }

    #[test]
    fn a_run_that_is_appended_to_and_taken_from_its_head_stays_dense() {
        let mut run = Run::default();
        for entry in 0..10_000 {
            run.insert(entry, 0, |other: &u32| other.cmp(&entry));
        }
        assert_eq!(run.chunks.len(), 10_000_usize.div_ceil(Run::<u32>::CHUNK_MAX));
        for entry in 0..9_999 {
            assert!(run.remove(&entry, |other| other.cmp(&entry)));
        }
        assert_eq!((run.len(), run.chunks.len(), run.first()), (1, 1, Some(&9_999)));
    }

    /// Whoever leaves right before the one that left last is found without a look at the order.
    #[test]
    fn entries_that_leave_one_before_the_other_are_not_searched_for() {
        let mut run = Run::default();
        for entry in 0..10_000 {
            run.insert(entry, 0, |other: &u32| other.cmp(&entry));
        }
        let looks = std::cell::Cell::new(0);
        for entry in (5_000..9_000).rev() {
            let order = |other: &u32| {
                looks.set(looks.get() + 1);
                other.cmp(&entry)
            };
            assert!(run.remove(&entry, order));
        }
        assert_eq!(run.len(), 6_000);
        assert!(run.iter().copied().eq((0..5_000).chain(9_000..10_000)));
        assert!(looks.get() < 1_000, "{} comparisons for 4,000 entries", looks.get());
    }

    #[test]
    fn entries_taken_out_here_and_there_leave_few_chunks() {
        let mut run = Run::default();
        for entry in 0..10_000 {
            run.insert(entry, 0, |other: &u32| other.cmp(&entry));
        }
        for entry in (0..10_000).filter(|entry| entry % 100 != 0) {
            assert!(run.remove(&entry, |other| other.cmp(&entry)));
        }
        assert_eq!(run.len(), 100);
        assert!(run.chunks.len() <= 2, "{}", run.chunks.len());
    }
}
