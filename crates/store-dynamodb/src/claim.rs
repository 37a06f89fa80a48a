//! Claims: the heads of the asked lines are merged, so the cost follows the lines, not the backlog. An index only says where to
//! look; a task is taken by a conditional write to its own item.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use ekiden_core::claim::{self, Claim, ClaimPool, Kinds};
use ekiden_core::commit::Expect;
use ekiden_core::hash;
use ekiden_core::id::{Kind, OpId};
use ekiden_core::index::Index;
use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::record::{Record, Versioned};
use ekiden_core::task::Task;
use ekiden_store::{Answer, Claimed, Happened, Hint, Outcome, StoreError};

use crate::client::Range;
use crate::codec::{self, attributes as at, get_text, places, text};
use crate::error::Failure;
use crate::expression::{Change, Words, condition};
use crate::foreign::Found;
use crate::shared::Shared;
use crate::tables::PLACE_INDEX;

/// 15 entries more than a claim wants: those at the head are often gone before it comes to them, or about to be taken by
/// another claim of this process. So many still cost half a read unit.
const HEADS_SPARE: usize = 15;

/// 64 entries that one look at a line asks for at most.
const HEADS_MAX: usize = 64;

/// 64 tasks that a claim may lose to others before it goes home with what it has.
const LOSSES_MAX: usize = 64;

/// A line that the claim asks for: its pool (by place in the claim), its kind, how many parts it has.
struct Asked {
    pool: usize,
    kind: Kind,
    parts: u32,
    passed: usize,
}

/// A part of a line, read as far as was needed.
struct Head {
    line: usize,
    range: Range,
    /// Orders and keys that were read and not looked at.
    entries: VecDeque<(String, Key)>,
    last: Option<String>,
    ended: bool,
}

/// What came of writing one task.
enum Written {
    Taken(Box<Versioned>),
    /// Somebody else was quicker.
    Lost,
    /// The pool has no room left.
    Full,
}

impl Shared {
    pub(crate) async fn claim(&self, claim: &Claim) -> Outcome {
        claim.check()?;
        let before = self.taken_before(claim).await?;
        if !before.is_empty() {
            let visited = before.len();
            return Ok(Answer::Claimed(Claimed { tasks: before, visited }));
        }
        self.adopt(claim).await;
        let rooms = self.rooms(claim).await?;
        let mut asked = self.asked(claim, &rooms).await?;
        let mut visited = asked.len();
        visited += self.promote(claim, &asked).await?;
        let tasks = self.take_best(claim, rooms, &mut asked, &mut visited).await?;
        Ok(Answer::Claimed(Claimed { tasks, visited }))
    }

    /// C14: what this claim took before and still holds, in the order of a claim.
    async fn taken_before(&self, claim: &Claim) -> Result<Vec<Versioned>, StoreError> {
        let keys = self.taken_by(claim.id);
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut tasks: Vec<Versioned> = self.get(&keys).await?.into_iter().flatten().collect();
        tasks.retain(|found| is_held_by(found, claim.id));
        tasks.sort_by_key(|found| found.record.as_task().map(|task| task.spec.order()));
        tasks.dedup_by(|one, other| one.key == other.key);
        Ok(tasks)
    }

    /// How many tasks each pool has room for.
    async fn rooms(&self, claim: &Claim) -> Result<Vec<usize>, StoreError> {
        let counters: Vec<Key> = claim.pools.iter().filter_map(ClaimPool::counter).collect();
        let mut found = if counters.is_empty() { Vec::new() } else { self.get_raw(&counters).await? }.into_iter();
        let mut running = |pool: &ClaimPool| {
            let counter = pool.counter().and_then(|_| found.next()).flatten();
            counter.and_then(|counter| counter.record.as_counter()).unwrap_or(0)
        };
        Ok(claim.pools.iter().map(|pool| pool.room(running(pool))).collect())
    }

    /// The lines of the asked kinds, in pools that have room.
    async fn asked(&self, claim: &Claim, rooms: &[usize]) -> Result<Vec<Asked>, StoreError> {
        let mut asked = Vec::new();
        for (at, (pool, _)) in claim.pools.iter().zip(rooms).enumerate().filter(|(_, (_, room))| **room > 0) {
            let lines = self.lines_of(&pool.namespace).await?;
            let mine: Vec<(&Kind, u32)> = match &claim.kinds {
                Kinds::Any => {
                    let all = lines.iter().filter(|((of, _), _)| *of == pool.pool);
                    some_of(all.map(|((_, kind), parts)| (kind, *parts)).collect(), claim.id)
                }
                Kinds::Only(kinds) => {
                    let parts = |kind: &Kind| lines.get(&(pool.pool.clone(), kind.clone())).copied();
                    kinds.iter().filter_map(|kind| Some((kind, parts(kind)?))).collect()
                }
            };
            let line = |(kind, parts): (&Kind, u32)| Asked { pool: at, kind: kind.clone(), parts, passed: 0 };
            asked.extend(mine.into_iter().map(line));
        }
        Ok(asked)
    }

    /// C15: what became due in the asked lines gets its ready entry. Says how much was looked at.
    async fn promote(&self, claim: &Claim, asked: &[Asked]) -> Result<usize, StoreError> {
        let mut due: Vec<Key> = Vec::new();
        for line in asked {
            let Some(pool) = claim.pools.get(line.pool) else { continue };
            let left = limits::CLAIM_PROMOTE_MAX - due.len();
            if left == 0 {
                break;
            }
            let place = places::waiting(&pool.namespace, &pool.pool, &line.kind);
            let range = Range::of(&self.names.queue, Some(PLACE_INDEX), at::PLACE, text(place));
            let range = range.only(at::PLACE_ORDER, "<", text(places::due_until(claim.now)));
            let found = self.query(&range, left).await?;
            due.extend(found.iter().filter_map(|item| codec::parse_key(ekiden_core::key::RecordKind::Task, item)));
        }
        let visited = due.len();
        for found in self.get_some(&due).await? {
            let promoted = found.record.as_task().and_then(|task| claim::promote(task, claim.now));
            if let Some(task) = promoted {
                // Whoever was quicker has done it, or something better.
                self.write_task(claim, None, &found, task).await?;
            }
        }
        Ok(visited)
    }

    async fn take_best(
        &self,
        claim: &Claim,
        mut rooms: Vec<usize>,
        asked: &mut [Asked],
        visited: &mut usize,
    ) -> Result<Vec<Versioned>, StoreError> {
        let mut heads = self.heads(claim, asked);
        let (mut tasks, mut losses) = (Vec::new(), 0);
        while tasks.len() < claim.limit && losses < LOSSES_MAX {
            let candidates = self.best(claim, claim.limit - tasks.len(), &mut heads, asked, &rooms, visited).await?;
            if candidates.is_empty() {
                break;
            }
            // Claims that fight for the same head lose most of their writes.
            let (candidates, reserved) = self.reserve(candidates);
            if candidates.is_empty() {
                continue;
            }
            let found = self.look(reserved.keys()).await?;
            *visited += candidates.len();
            for (line, found) in candidates.into_iter().zip(found) {
                let Some(line) = asked.get_mut(line) else { continue };
                let (Some(room), Some(pool)) = (rooms.get_mut(line.pool), claim.pools.get(line.pool)) else { continue };
                if *room == 0 {
                    continue;
                }
                let Some((found, task)) = found.and_then(|found| takeable(claim, pool, found)) else {
                    line.passed += 1;
                    continue;
                };
                self.note_taken(claim.id, &found.key);
                match self.write_task(claim, Some(pool), &found, task).await? {
                    Written::Taken(taken) => {
                        tasks.push(*taken);
                        *room -= 1;
                    }
                    Written::Lost => losses += 1,
                    Written::Full => *room = 0,
                }
            }
        }
        Ok(tasks)
    }

    fn heads(&self, claim: &Claim, asked: &[Asked]) -> Vec<Head> {
        let mut heads = Vec::new();
        for (at, line) in asked.iter().enumerate() {
            let Some(pool) = claim.pools.get(line.pool) else { continue };
            heads.extend((0..line.parts).map(|part| {
                let place = places::ready(&pool.namespace, &pool.pool, &line.kind, part);
                let range = Range::of(&self.names.queue, Some(PLACE_INDEX), at::PLACE, text(place));
                Head { line: at, range, entries: VecDeque::new(), last: None, ended: false }
            }));
        }
        heads
    }

    /// The next best entries over all heads, as (line, key). Lines that were passed over too often and pools without room have
    /// none.
    async fn best(
        &self,
        claim: &Claim,
        want: usize,
        heads: &mut [Head],
        asked: &[Asked],
        rooms: &[usize],
        visited: &mut usize,
    ) -> Result<Vec<(usize, Key)>, StoreError> {
        let page = (claim.limit + HEADS_SPARE).min(HEADS_MAX);
        let open = |head: &Head| {
            let line = asked.get(head.line);
            line.is_some_and(|line| {
                line.passed < limits::CLAIM_SKIP_MAX && rooms.get(line.pool).is_some_and(|room| *room > 0)
            })
        };
        let mut first: BinaryHeap<Reverse<(String, usize)>> = BinaryHeap::new();
        for (at, head) in heads.iter_mut().enumerate().filter(|(_, head)| open(head)) {
            *visited += self.read_on(head, page).await?;
            first.extend(head.entries.front().map(|(order, _)| Reverse((order.clone(), at))));
        }
        let mut best = Vec::new();
        while best.len() < want
            && let Some(Reverse((_, at))) = first.pop()
        {
            let Some(head) = heads.get_mut(at) else { continue };
            best.extend(head.entries.pop_front().map(|(_, key)| (head.line, key)));
            *visited += self.read_on(head, page).await?;
            first.extend(head.entries.front().map(|(order, _)| Reverse((order.clone(), at))));
        }
        Ok(best)
    }

    /// Reads on in a part of a line if nothing of it is left. Says how often it looked: a look costs the same whether it
    /// finds one entry or a page of them.
    async fn read_on(&self, head: &mut Head, page: usize) -> Result<usize, StoreError> {
        if !head.entries.is_empty() || head.ended {
            return Ok(0);
        }
        let range = match &head.last {
            Some(last) => head.range.clone().only(at::PLACE_ORDER, ">", text(last)),
            None => head.range.clone(),
        };
        let items = self.query(&range, page).await?;
        head.ended = items.len() < page;
        let entry = |item: &codec::Item| {
            let order = get_text(item, at::PLACE_ORDER)?.to_owned();
            Some((order, codec::parse_key(ekiden_core::key::RecordKind::Task, item)?))
        };
        head.entries = items.iter().filter_map(entry).collect();
        head.last = head.entries.back().map(|(order, _)| order.clone());
        Ok(1)
    }

    /// Writes a task that the claim changed. With a pool it is taken, and the pool's counter goes up in the same write.
    async fn write_task(
        &self,
        claim: &Claim,
        pool: Option<&ClaimPool>,
        found: &Versioned,
        task: Task,
    ) -> Result<Written, StoreError> {
        let (key, record) = (&found.key, Record::Task(Arc::new(task)));
        let index = Index::of(key, &record);
        let (encoded, nonce) = (codec::encode(&record, &index, key, self.parts_of(&record)), self.nonce());
        let revision = codec::revision_of(&record, &nonce, &encoded);
        let mut words = Words::default();
        let Ok(guard) = condition(key, &Expect::At(found.revision.clone()), &mut words) else {
            return Ok(Written::Lost);
        };
        let put = Change::put(self.table(key.kind).to_owned(), key, &encoded, &nonce, claim.id, guard, words);
        let counter = pool.and_then(|pool| Some((pool.counter()?, pool.running_max)));
        let sent = match counter {
            None => self.change(&put).await.map(drop),
            Some((counter, below)) => {
                let table = self.table(counter.kind).to_owned();
                let add = Change::add(table, &counter, 1, &self.nonce(), claim.id, below);
                self.transact(&[put, add]).await
            }
        };
        let mine = Versioned { revision, record, last: claim.id, ..found.clone() };
        let written = match sent {
            Ok(()) => Written::Taken(Box::new(mine)),
            Err(Failure::Unmet(unmet)) => {
                // A request that was repeated below may have met its own first try.
                let there = match unmet.found {
                    Some(mut item) => {
                        self.fetch_payloads(std::iter::once(&mut item)).await?;
                        codec::decode(key.clone(), &item).ok()
                    }
                    // A transaction does not show what it found.
                    None => self.get_raw(std::slice::from_ref(key)).await?.pop().flatten(),
                };
                match there.filter(|there| there.revision == mine.revision) {
                    Some(there) => Written::Taken(Box::new(there)),
                    None if unmet.places == [1] => Written::Full,
                    None => Written::Lost,
                }
            }
            Err(Failure::Failed(error)) if error.happened == Happened::Unknown => {
                let there = self.get_raw(std::slice::from_ref(key)).await.ok().and_then(|mut all| all.pop().flatten());
                let there = there.filter(|there| there.revision == mine.revision);
                Written::Taken(Box::new(there.ok_or(error)?))
            }
            Err(other) => return Err(other.into()),
        };
        if let Written::Taken(taken) = &written {
            self.wrote(found, taken, &index);
            if pool.is_some() {
                self.note_holder(key, Some(&claim.holder));
            }
        }
        Ok(written)
    }

    /// Counts and tells that a claim changed a task.
    fn wrote(&self, before: &Versioned, after: &Versioned, index: &Index) {
        let key = &after.key;
        let counted = |found: &Versioned, phase| Some((found.record.as_task()?.spec.pool.clone(), phase?));
        let phase_before = Index::of(key, &before.record).phase;
        self.count(&key.namespace, counted(before, phase_before), counted(after, index.phase));
        if index.ready.is_some() {
            self.hint(Hint::Ready(key.namespace.clone()));
        }
        self.hint(Hint::Changed(key.clone()));
    }

    /// The records that are there, of those asked for.
    async fn get_some(&self, keys: &[Key]) -> Result<Vec<Versioned>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.get(keys).await?.into_iter().flatten().collect())
    }
}

/// The task as this claim would take it, if it may: its own record decides, not the entry that led to it.
fn takeable(claim: &Claim, pool: &ClaimPool, found: Found) -> Option<(Versioned, Task)> {
    let found = Some(found).filter(|found| !found.disputed)?.versioned;
    let task = found.record.as_task()?;
    Index::of(&found.key, &found.record).ready.filter(|ready| ready.at <= claim.now)?;
    let taken = claim.take(task, pool.counter().is_some()).ok()?;
    Some((found, taken))
}

fn is_held_by(found: &Versioned, claim: OpId) -> bool {
    let task = found.record.as_task();
    let lease = task.and_then(|task| task.state.lease.as_ref()).filter(|lease| lease.claim == claim);
    lease.is_some() && Index::of(&found.key, &found.record).held
}

/// All kinds of a pool, up to the limit. Beyond it each claim begins at another place, so that no kind is left out for long.
fn some_of<T: Clone>(lines: Vec<T>, claim: OpId) -> Vec<T> {
    if lines.len() <= limits::KINDS_A_POOL_MAX {
        return lines;
    }
    let start = usize::try_from(hash::of_bytes(&claim.as_bits().to_be_bytes())).unwrap_or(0) % lines.len();
    lines.iter().cycle().skip(start).take(limits::KINDS_A_POOL_MAX).cloned().collect()
}
