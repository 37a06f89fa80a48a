//! Listings over what is in memory and what rests in the checkpoint, merged in one order.

use ekiden_core::filter::TaskFilter;
use ekiden_core::id::PoolName;
use ekiden_core::limits;
use ekiden_core::record::Versioned;
use ekiden_core::task::Phase;
use ekiden_store::shelf::{Candidate, Listed, Look, Scan, Shelf, cursor_of, parse_cursor};
use ekiden_store::{CountScope, DueEntry, DueQuery, ListOrder, Page, StoreError, TaskQuery};

use crate::checkpoint::{Lists, Snapshot};
use crate::durability::Wait;
use crate::shared::Shared;

/// 4 times: whoever lists while much goes to rest takes the lock for the whole look then, so that it ends.
const LOOKS_MAX: usize = 4;

/// A page of tasks, and the revision that has to be durable before it is told.
pub(crate) fn tasks(shared: &Shared, query: &TaskQuery) -> Result<(Page<Versioned>, u64, Wait), StoreError> {
    let after = query.cursor.as_deref().map(parse_cursor).transpose()?;
    for look in 1.. {
        let mut desk = shared.desk();
        desk.is_open()?;
        let (scan, snapshot) = (desk.shelf.scan(query, after.as_ref()), desk.snapshot(&shared.checkpoint)?);
        let generation = desk.generation;
        let by = shorter_lists(&desk.shelf, &query.filter);
        let places = || snapshot.places(&query.filter, by, query.order, after.as_ref());
        let (resting, mut desk) = if look < LOOKS_MAX {
            // Without the lock: this reads the disk.
            drop(desk);
            (places()?, shared.desk())
        } else {
            (places()?, desk)
        };
        if desk.generation != generation {
            // Something may have gone to rest between the two looks, and be in neither.
            continue;
        }
        let mut merged = Merged::new(query, scan, resting.more, resting.places.last().cloned());
        for place in resting.places {
            let key = place.key(&query.filter.namespace);
            match desk.look(&key) {
                // Deleted, but the checkpoint does not know yet.
                Some(Look::Nothing) => {}
                Some(Look::Here(task)) => merged.add_if_matching(query, place, task),
                Some(Look::Away) | None => merged.add(Candidate { listed: place, task: None }),
            }
        }
        let revision = desk.shelf.revision();
        let wait = desk.wait_for(revision);
        drop(desk);
        return Ok((merged.page(query, &snapshot)?, revision, wait));
    }
    unreachable!("the last look holds the lock")
}

/// Which lists have fewer places, by the tasks that are counted in them: a small pool is not searched for in the lists of all pools, nor a
/// rare phase in a large pool.
fn shorter_lists(shelf: &Shelf, filter: &TaskFilter) -> Lists {
    let Some(pool) = &filter.pool else { return Lists::Phases };
    let count = |pool: Option<&PoolName>, phases: &[Phase]| {
        let counts = shelf.counts(&CountScope { namespace: filter.namespace.clone(), pool: pool.cloned() });
        phases.iter().map(|phase| counts.get(*phase)).sum::<u64>()
    };
    let phases = if filter.phases.is_empty() { &Phase::ALL[..] } else { &filter.phases };
    if count(Some(pool), &Phase::ALL) <= count(None, phases) { Lists::Pool } else { Lists::Phases }
}

/// Candidates of both sources, up to the place that both have been read to.
struct Merged {
    found: Vec<Candidate>,
    /// What is behind this place was not read.
    horizon: Option<Listed>,
}

impl Merged {
    fn new(query: &TaskQuery, scan: Scan, more_rest: bool, last_resting: Option<Listed>) -> Self {
        let here = scan.last.filter(|_| scan.more);
        let resting = last_resting.filter(|_| more_rest);
        let horizon = match (here, resting) {
            (Some(here), Some(resting)) if before(query.order, &here, &resting) => Some(here),
            (Some(_), Some(resting)) => Some(resting),
            (here, resting) => here.or(resting),
        };
        Self { found: scan.found, horizon }
    }

    fn add_if_matching(&mut self, query: &TaskQuery, listed: Listed, task: Versioned) {
        if task.record.as_task().is_some_and(|task| query.filter.matches(task)) {
            self.add(Candidate { listed, task: Some(task) });
        }
    }

    fn add(&mut self, candidate: Candidate) {
        self.found.push(candidate);
    }

    fn page(mut self, query: &TaskQuery, snapshot: &Snapshot) -> Result<Page<Versioned>, StoreError> {
        match query.order {
            ListOrder::OldestFirst => self.found.sort_by(|one, other| one.listed.cmp(&other.listed)),
            ListOrder::NewestFirst => self.found.sort_by(|one, other| other.listed.cmp(&one.listed)),
        }
        self.found.dedup_by(|one, other| one.listed == other.listed);
        let horizon = self.horizon;
        let within = |listed: &Listed| horizon.as_ref().is_none_or(|end| !before(query.order, end, listed));
        let mut candidates = self.found.into_iter().filter(|candidate| within(&candidate.listed)).peekable();
        let (mut items, mut last, mut read, mut bytes) = (Vec::new(), None, 0, 0);
        while items.len() < query.limit && read < limits::PAGE_SCAN_MAX && bytes < limits::PAGE_BYTES_MAX {
            let Some(candidate) = candidates.next() else { break };
            read += 1;
            let task = match candidate.task {
                Some(task) => Some(task),
                None => snapshot.versioned(&candidate.listed.key(&query.filter.namespace))?,
            };
            let matching = task.filter(|task| task.record.as_task().is_some_and(|task| query.filter.matches(task)));
            bytes += matching.as_ref().and_then(|found| found.record.as_task()).map_or(0, |task| task.content_bytes());
            items.extend(matching);
            last = Some(candidate.listed);
        }
        let cursor = if candidates.peek().is_some() { last } else { horizon };
        Ok(Page { items, cursor: cursor.map(|place| cursor_of(&place)) })
    }
}

/// Whether one place comes before another in a listing.
fn before(order: ListOrder, one: &Listed, other: &Listed) -> bool {
    match order {
        ListOrder::OldestFirst => one < other,
        ListOrder::NewestFirst => one > other,
    }
}

/// What is due, oldest first, and the revision that has to be durable before it is told.
pub(crate) fn due(shared: &Shared, query: &DueQuery) -> Result<(Vec<DueEntry>, u64, Wait), StoreError> {
    // Twice as many, because some may be here again or gone; and more if most of those are.
    let mut count = query.limit.saturating_mul(2);
    loop {
        let (mut due, snapshot, generation) = {
            let mut desk = shared.desk();
            desk.is_open()?;
            (desk.shelf.due(query), desk.snapshot(&shared.checkpoint)?, desk.generation)
        };
        let resting = snapshot.due(&query.namespace, query.index, query.until, count)?;
        let more_rest = resting.len() == count;
        let mut desk = shared.desk();
        if desk.generation != generation {
            continue;
        }
        let here = due.len();
        due.extend(resting.into_iter().filter(|entry| desk.look(&entry.key).is_none()));
        if more_rest && due.len() - here < query.limit {
            count = count.saturating_mul(4);
            continue;
        }
        due.sort_by(|one, other| (one.at, &one.key).cmp(&(other.at, &other.key)));
        due.truncate(query.limit);
        let revision = desk.shelf.revision();
        let wait = desk.wait_for(revision);
        return Ok((due, revision, wait));
    }
}
