//! The lists of tasks that rest. A list is places in order, many of them in one value: ten thousand tasks that ended since the
//! last checkpoint are some hundred values, and not three rows each. What a list stands for is its prefix (`keys.rs`); a value
//! stands under the key of its first place.

use std::ops::Bound;

use ekiden_store::ListOrder;
use ekiden_store::shelf::Listed;
use hashbrown::HashMap;
use redb::{ReadableTable, Table};

use super::keys::{self, List};
use crate::codec::{Reader, Unreadable, seal, unseal};

/// 128 places a value: with generated ids some 3 KiB, so that a value has a page of redb to itself.
const PLACES_MAX: usize = 128;

/// 32: a value that is left with fewer is joined with the next one, so that what is taken out here and there leaves no ruins.
const PLACES_MIN: usize = 32;

/// The lists, while they are written.
pub(super) type Lists<'t> = Table<'t, &'static [u8], &'static [u8]>;

/// Whether a task comes or goes. Who does both in one list stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Listing {
    Leave,
    Enter,
}

/// What changes in the lists, gathered before it is written.
#[derive(Default)]
pub(super) struct Moves {
    lists: HashMap<Vec<u8>, Vec<(Listed, Listing)>>,
    /// The prefix that is looked for, in one buffer for all.
    prefix: Vec<u8>,
}

impl Moves {
    pub(super) fn add(&mut self, list: List<'_>, namespace: &str, place: Listed, listing: Listing) {
        let mut prefix = std::mem::take(&mut self.prefix);
        prefix.clear();
        list.write_prefix(namespace, &mut prefix);
        self.add_to(&prefix, place, listing);
        self.prefix = prefix;
    }

    /// The same, for a list that is known by its prefix.
    pub(super) fn add_to(&mut self, prefix: &[u8], place: Listed, listing: Listing) {
        match self.lists.get_mut(prefix) {
            Some(moves) => moves.push((place, listing)),
            None => drop(self.lists.insert(prefix.to_vec(), vec![(place, listing)])),
        }
    }

    /// Carries everything out, list by list.
    pub(super) fn write(self, lists: &mut Lists<'_>) -> Result<(), redb::Error> {
        let mut changes: Vec<_> = self.lists.into_iter().collect();
        changes.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        changes.into_iter().try_for_each(|(prefix, moves)| change(lists, &prefix, moves))
    }
}

/// Changes one list: each value that a move falls into is read and written once.
fn change(lists: &mut Lists<'_>, prefix: &[u8], mut moves: Vec<(Listed, Listing)>) -> Result<(), redb::Error> {
    moves.sort_unstable();
    let mut moves = moves.into_iter().peekable();
    while let Some((place, _)) = moves.peek() {
        let mut page = Page::around(lists, prefix, place)?;
        let mut merged = Vec::with_capacity(PLACES_MAX);
        let mut there = std::mem::take(&mut page.places).into_iter().peekable();
        while let Some((place, listing)) = moves.next_if(|(place, _)| page.reaches_to(place)) {
            merged.extend(std::iter::from_fn(|| there.next_if(|other| *other < place)));
            there.next_if_eq(&place);
            if listing == Listing::Enter && merged.last() != Some(&place) {
                merged.push(place);
            }
        }
        merged.extend(there);
        if merged.len() < PLACES_MIN && moves.peek().is_none() {
            page.join_next(lists, prefix, &mut merged)?;
        }
        page.replace(lists, prefix, &merged)?;
    }
    Ok(())
}

/// One value of a list, and what it borders on.
struct Page {
    /// Where it stands; nowhere if the list is empty.
    key: Option<Vec<u8>>,
    places: Vec<Listed>,
    /// The first place of the next value.
    next: Option<Listed>,
}

impl Page {
    /// The value that a place is in or would go to.
    fn around(lists: &Lists<'_>, prefix: &[u8], place: &Listed) -> Result<Self, redb::Error> {
        let (at, end) = (keys::listed(prefix, place), keys::behind(prefix));
        let before = lists.range::<&[u8]>(prefix..=at.as_slice())?.next_back();
        let found = match before {
            Some(row) => Some(row),
            None => lists.range::<&[u8]>(prefix..end.as_slice())?.next(),
        };
        let Some((key, value)) = found.transpose()? else {
            return Ok(Self { key: None, places: Vec::new(), next: None });
        };
        let places = read(key.value(), value.value())?;
        let key = key.value().to_vec();
        let next = first_behind(lists, prefix, &key)?;
        Ok(Self { key: Some(key), places, next })
    }

    /// Whether a place belongs here and not into the next value.
    fn reaches_to(&self, place: &Listed) -> bool {
        self.next.as_ref().is_none_or(|next| place < next)
    }

    /// Takes the places of the next value over.
    fn join_next(&mut self, lists: &mut Lists<'_>, prefix: &[u8], places: &mut Vec<Listed>) -> Result<(), redb::Error> {
        let Some(next) = self.next.take() else { return Ok(()) };
        let key = keys::listed(prefix, &next);
        if let Some(value) = lists.remove(key.as_slice())? {
            places.extend(read(&key, value.value())?);
        }
        self.next = first_behind(lists, prefix, &key)?;
        Ok(())
    }

    /// Writes these places instead, into as many values as they need. At the end of a list values are filled, as more will
    /// come behind them; elsewhere all get the same.
    fn replace(self, lists: &mut Lists<'_>, prefix: &[u8], places: &[Listed]) -> Result<(), redb::Error> {
        let first = places.first().map(|first| keys::listed(prefix, first));
        if let Some(old) = self.key.filter(|old| Some(old) != first.as_ref()) {
            lists.remove(old.as_slice())?;
        }
        let values = places.len().div_ceil(PLACES_MAX).max(1);
        let size = if self.next.is_none() { PLACES_MAX } else { places.len().div_ceil(values) };
        for some in places.chunks(size.max(1)) {
            let Some(first) = some.first() else { continue };
            let key = keys::listed(prefix, first);
            lists.insert(key.as_slice(), write(&key, some).as_slice())?;
        }
        Ok(())
    }
}

/// The first place of the value behind this key, in the same list.
fn first_behind(lists: &Lists<'_>, prefix: &[u8], key: &[u8]) -> Result<Option<Listed>, redb::Error> {
    let end = keys::behind(prefix);
    let range = (Bound::Excluded(key), Bound::Excluded(end.as_slice()));
    match lists.range::<&[u8]>(range)?.next().transpose()? {
        Some((key, _)) => keys::place(prefix, key.value()).map(Some).map_err(damaged),
        None => Ok(None),
    }
}

/// The places of a list behind one, in this order, at most so many.
pub(super) fn behind(
    lists: &impl ReadableTable<&'static [u8], &'static [u8]>,
    prefix: &[u8],
    order: ListOrder,
    after: Option<&Listed>,
    limit: usize,
) -> Result<Vec<Listed>, redb::Error> {
    let mut found = Vec::new();
    let (at, end) = (after.map(|after| keys::listed(prefix, after)), keys::behind(prefix));
    match order {
        ListOrder::OldestFirst => {
            // The value that the place itself is in has more behind it.
            let from = match &at {
                Some(at) => lists.range::<&[u8]>(prefix..=at.as_slice())?.next_back().transpose()?,
                None => None,
            };
            let from = from.map_or_else(|| prefix.to_vec(), |(key, _)| key.value().to_vec());
            for row in lists.range::<&[u8]>(from.as_slice()..end.as_slice())? {
                let (key, value) = row?;
                let places = read(key.value(), value.value())?.into_iter();
                found.extend(places.filter(|place| after.is_none_or(|after| place > after)));
                if found.len() >= limit {
                    break;
                }
            }
        }
        ListOrder::NewestFirst => {
            let until = at.as_ref().unwrap_or(&end);
            for row in lists.range::<&[u8]>(prefix..until.as_slice())?.rev() {
                let (key, value) = row?;
                let places = read(key.value(), value.value())?.into_iter().rev();
                found.extend(places.filter(|place| after.is_none_or(|after| place < after)));
                if found.len() >= limit {
                    break;
                }
            }
        }
    }
    found.truncate(limit);
    Ok(found)
}

/// How many places all lists have together; an error if one is out of order.
pub(super) fn count(lists: &impl ReadableTable<&'static [u8], &'static [u8]>) -> Result<u64, redb::Error> {
    let mut count = 0;
    let mut last: Option<(Vec<u8>, Listed)> = None;
    for row in lists.iter()? {
        let (key, value) = row?;
        let (prefix, _) = keys::split_listed(key.value()).map_err(damaged)?;
        let places = read(key.value(), value.value())?;
        let (Some(first), Some(end)) = (places.first(), places.last()) else {
            return Err(damaged(Unreadable::Content("a list with an empty value".to_owned())));
        };
        let follows = last.as_ref().is_none_or(|(list, last)| list != prefix || last < first);
        if !follows || keys::listed(prefix, first) != key.value() || !places.is_sorted_by(|one, next| one < next) {
            return Err(damaged(Unreadable::Content("a list that is out of order".to_owned())));
        }
        count += u64::try_from(places.len()).unwrap_or(u64::MAX);
        last = Some((prefix.to_vec(), end.clone()));
    }
    Ok(count)
}

/// Stands before a generated id, whose sixteen bytes follow. No other id is so short.
const GENERATED: u8 = 0;

fn write(key: &[u8], places: &[Listed]) -> Vec<u8> {
    seal(key, |into| {
        into.reserve(places.len() * 25);
        for place in places {
            into.extend_from_slice(&place.created_at().as_millis().to_le_bytes());
            match place.generated() {
                Some(bits) => {
                    into.push(GENERATED);
                    into.extend_from_slice(&bits.to_le_bytes());
                }
                None => {
                    let id = place.id();
                    into.push(u8::try_from(id.len()).unwrap_or(u8::MAX));
                    into.extend_from_slice(id.as_bytes());
                }
            }
        }
    })
}

fn read(key: &[u8], value: &[u8]) -> Result<Vec<Listed>, redb::Error> {
    let places = |mut reader: Reader<'_>| {
        let mut places = Vec::with_capacity(PLACES_MAX);
        while !reader.is_empty() {
            places.push(read_place(&mut reader)?);
        }
        Ok(places)
    };
    unseal(key, value).and_then(places).map_err(damaged)
}

fn read_place(reader: &mut Reader<'_>) -> Result<Listed, Unreadable> {
    let at = reader.time()?;
    match reader.u8()? {
        GENERATED => Ok(Listed::of_generated(at, reader.u128()?)),
        bytes => {
            let id = std::str::from_utf8(reader.bytes(usize::from(bytes))?);
            Ok(Listed::new(at, id.map_err(|error| Unreadable::Content(error.to_string()))?))
        }
    }
}

fn damaged(error: Unreadable) -> redb::Error {
    redb::Error::Corrupted(format!("a list of tasks: {error}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ekiden_core::time::Timestamp;
    use ekiden_store::entropy::Entropy;
    use redb::backends::InMemoryBackend;
    use redb::{Database, ReadableDatabase, ReadableTableMetadata};

    use super::super::PLACES;
    use super::*;

    /// A hundred moments, so that places share them, and ids of both sorts.
    fn place(entropy: &mut Entropy) -> Listed {
        let at = Timestamp::from_millis(i64::try_from(entropy.below(100)).unwrap());
        if entropy.chance(20) {
            Listed::new(at, &format!("named-{}", entropy.below(20)))
        } else {
            Listed::of_generated(at, u128::try_from(entropy.below(60)).unwrap())
        }
    }

    struct Bed {
        database: Database,
        model: BTreeSet<Listed>,
    }

    const LIST: List<'_> = List::Pool("mail");

    impl Bed {
        fn new() -> Self {
            let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
            Self { database, model: BTreeSet::new() }
        }

        fn change(&mut self, moves: Vec<(Listed, Listing)>) {
            let mut gathered = Moves::default();
            for (place, listing) in moves {
                match listing {
                    Listing::Enter => drop(self.model.insert(place.clone())),
                    Listing::Leave => drop(self.model.remove(&place)),
                }
                gathered.add(LIST, "default", place.clone(), listing);
                // Its neighbours must not notice.
                gathered.add(List::Pool("mai"), "default", place.clone(), listing);
                gathered.add(LIST, "defaults", place, listing);
            }
            let transaction = self.database.begin_write().unwrap();
            gathered.write(&mut transaction.open_table(PLACES).unwrap()).unwrap();
            transaction.commit().unwrap();
        }

        fn check(&self, after: &Listed) {
            let transaction = self.database.begin_read().unwrap();
            let lists = transaction.open_table(PLACES).unwrap();
            let prefix = LIST.prefix("default");
            let read = |order, after, limit| behind(&lists, &prefix, order, after, limit).unwrap();
            let all = usize::MAX;
            assert!(read(ListOrder::OldestFirst, None, all).iter().eq(&self.model));
            assert!(read(ListOrder::NewestFirst, None, all).iter().eq(self.model.iter().rev()));
            let later = self.model.iter().filter(|place| *place > after);
            let sooner = self.model.iter().rev().filter(|place| *place < after);
            assert!(read(ListOrder::OldestFirst, Some(after), 7).iter().eq(later.take(7)));
            assert!(read(ListOrder::NewestFirst, Some(after), 7).iter().eq(sooner.take(7)));
            assert_eq!(count(&lists).unwrap(), 3 * u64::try_from(self.model.len()).unwrap());
        }

        fn values(&self) -> u64 {
            self.database.begin_read().unwrap().open_table(PLACES).unwrap().len().unwrap() / 3
        }
    }

    #[test]
    fn random_moves_leave_what_a_sorted_set_holds() {
        for seed in 0..4 {
            let mut entropy = Entropy::from_seed(seed);
            let mut bed = Bed::new();
            for step in 0..40 {
                // It grows first and shrinks later; each place moves once a time, as a task does.
                let enters = if step < 20 { 80 } else { 15 };
                let places: BTreeSet<Listed> = (0..1 + entropy.below(400)).map(|_| place(&mut entropy)).collect();
                let listing = |entropy: &mut Entropy| {
                    if entropy.chance(enters) { Listing::Enter } else { Listing::Leave }
                };
                let moves = places.into_iter().map(|place| (place, listing(&mut entropy))).collect();
                bed.change(moves);
                bed.check(&place(&mut entropy));
            }
        }
    }

    #[test]
    fn a_list_that_is_appended_to_fills_its_values_and_one_that_empties_leaves_none() {
        let mut bed = Bed::new();
        let places: Vec<Listed> = (0..1_000).map(|at| Listed::of_generated(Timestamp::from_millis(at), 7)).collect();
        for some in places.chunks(10) {
            bed.change(some.iter().map(|place| (place.clone(), Listing::Enter)).collect());
        }
        assert_eq!(bed.values(), 1_000_u64.div_ceil(u64::try_from(PLACES_MAX).unwrap()));
        for some in places.chunks(7) {
            bed.change(some.iter().map(|place| (place.clone(), Listing::Leave)).collect());
        }
        assert_eq!(bed.values(), 0);
    }

    #[test]
    fn places_taken_out_here_and_there_leave_few_values() {
        let mut bed = Bed::new();
        let places: Vec<Listed> = (0..2_000).map(|at| Listed::of_generated(Timestamp::from_millis(at), 7)).collect();
        bed.change(places.iter().map(|place| (place.clone(), Listing::Enter)).collect());
        for place in places.iter().filter(|place| place.created_at().as_millis() % 50 != 0) {
            bed.change(vec![(place.clone(), Listing::Leave)]);
        }
        bed.check(&places[1_000]);
        assert!(bed.values() <= 4, "{} values for 40 places", bed.values());
    }

    #[test]
    fn who_leaves_and_enters_at_once_stays() {
        let mut bed = Bed::new();
        let place = Listed::new(Timestamp::from_millis(1), "a");
        bed.change(vec![(place.clone(), Listing::Enter)]);
        bed.change(vec![(place.clone(), Listing::Leave), (place.clone(), Listing::Enter)]);
        bed.check(&place);
        assert_eq!(bed.model.len(), 1);
    }

    #[test]
    fn a_damaged_list_is_told_and_not_read() {
        let mut bed = Bed::new();
        bed.change(vec![(Listed::new(Timestamp::from_millis(1), "a"), Listing::Enter)]);
        let transaction = bed.database.begin_write().unwrap();
        {
            let mut lists = transaction.open_table(PLACES).unwrap();
            let (key, mut value) = {
                let (key, value) = lists.first().unwrap().unwrap();
                (key.value().to_vec(), value.value().to_vec())
            };
            *value.last_mut().unwrap() ^= 1;
            lists.insert(key.as_slice(), value.as_slice()).unwrap();
        }
        transaction.commit().unwrap();
        let lists = bed.database.begin_read().unwrap().open_table(PLACES).unwrap();
        assert!(matches!(count(&lists), Err(redb::Error::Corrupted(_))));
    }
}
