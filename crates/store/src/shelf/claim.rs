//! Claims: the heads of the asked lines are merged, so the cost follows the lines, not the backlog.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use ekiden_core::claim::{self, Claim, ClaimPool, Kinds};
use ekiden_core::hash;
use ekiden_core::id::{Kind, Namespace, OpId};
use ekiden_core::index::Index;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::limits;
use ekiden_core::order::Rank;
use ekiden_core::record::{Record, Versioned};
use ekiden_core::task::Task;
use smallvec::SmallVec;

use super::claimed_tasks::ClaimedBy;
use super::indexes::{Pool, Waiting};
use super::listed::Listed;
use super::space::{Body, Entry, Slot, Stamp};
use super::{Put, Scribe, Shelf};
use crate::op::{Answer, Claimed};

/// A line that the claim asks for: its pool (by place in the claim) and its kind.
struct Asked<'c> {
    pool: usize,
    kind: Cow<'c, Kind>,
    passed: usize,
}

/// The first task of a line that was not looked at: its place in the order of claims, its line (by place) and its slot.
type Head = Reverse<(Rank, Listed, usize, Slot)>;

/// The heads of the asked lines, the best first. Most claims ask for one line, which needs no heap.
#[derive(Default)]
struct Heads {
    /// The only one there is.
    only: Option<Head>,
    many: BinaryHeap<Head>,
}

impl Heads {
    fn push(&mut self, head: Head) {
        if self.only.is_none() && self.many.is_empty() {
            self.only = Some(head);
        } else {
            self.many.extend(self.only.take());
            self.many.push(head);
        }
    }

    fn pop(&mut self) -> Option<Head> {
        self.only.take().or_else(|| self.many.pop())
    }
}

impl Shelf {
    pub(crate) fn claim(&mut self, claim: &Claim, scribe: &mut dyn Scribe) -> Answer {
        if let Some(before) = self.taken_by(claim) {
            let visited = before.len();
            return Answer::Claimed(Claimed { tasks: before, visited });
        }
        let mut rooms: SmallVec<[usize; 1]> = claim.pools.iter().map(|pool| self.room(pool)).collect();
        let mut visited = self.promote(claim, &rooms, scribe);
        let mut asked = self.asked(claim, &rooms);
        visited += asked.len();
        let mut heads = Heads::default();
        for (at, line) in asked.iter().enumerate() {
            self.head(claim, line, at, None).into_iter().for_each(|head| heads.push(head));
        }
        let (mut tasks, mut bytes) = (Vec::new(), 0);
        while tasks.len() < claim.limit
            && bytes < limits::CLAIM_BYTES_MAX
            && let Some(Reverse((rank, listed, at, slot))) = heads.pop()
        {
            let Some(line) = asked.get_mut(at) else { continue };
            let (Some(room), Some(pool)) = (rooms.get_mut(line.pool), claim.pools.get(line.pool)) else { continue };
            if *room == 0 {
                continue;
            }
            visited += 1;
            match self.take(claim, pool, slot, scribe) {
                Some(versioned) => {
                    if tasks.is_empty() {
                        tasks.reserve_exact(claim.limit);
                    }
                    bytes += versioned.record.as_task().map_or(0, |task| task.content_bytes());
                    tasks.push(versioned);
                    *room -= 1;
                }
                None => line.passed += 1,
            }
            if line.passed < limits::CLAIM_SKIP_MAX && tasks.len() < claim.limit {
                // Where none was passed over, whoever comes next stands at the head.
                let after = Some((rank, &listed)).filter(|_| line.passed > 0);
                self.head(claim, line, at, after).into_iter().for_each(|head| heads.push(head));
            }
        }
        Answer::Claimed(Claimed { tasks, visited })
    }

    /// Tasks that a claim will most likely take while their bodies are away, so that they can be read before anybody waits for
    /// them. Looks at twice as many as it may take.
    pub fn away_for(&self, claim: &Claim) -> Vec<Key> {
        let most = claim.limit.saturating_mul(2);
        let pools = claim.pools.iter().filter_map(|asked| Some((asked, self.pool(asked)?)));
        let lines = pools.flat_map(|(asked, pool)| {
            let lines: Vec<_> = match &claim.kinds {
                Kinds::Any => pool.ready.values().take(most).collect(),
                Kinds::Only(kinds) => kinds.iter().filter_map(|kind| pool.ready.get(kind)).collect(),
            };
            lines.into_iter().map(move |line| (asked, line))
        });
        let slots = lines.flat_map(|(asked, line)| line.iter().take(claim.limit).map(move |slot| (asked, *slot)));
        let entries = slots.take(most).filter_map(|(asked, slot)| {
            let entry = self.spaces.get(&asked.namespace)?.entries.at(slot);
            entry.is_away().then(|| entry.listed.key(&asked.namespace))
        });
        entries.collect()
    }

    /// C14, C26: what this claim took before and still holds, in the order of a claim, as far as it asks for it. `None` if its
    /// holder has nothing under its id where it asks.
    fn taken_by(&self, claim: &Claim) -> Option<Vec<Versioned>> {
        let (mine, mut holds, mut tasks) = (ClaimedBy::by(claim), false, Vec::new());
        for pool in &claim.pools {
            let Some(space) = self.spaces.get(&pool.namespace) else { continue };
            for slot in space.claimed.of(&mine) {
                holds = true;
                let entry = space.entries.at(*slot);
                let names = entry.names();
                if *names.pool == pool.pool && claim.kinds.contains(names.kind) {
                    tasks.extend(entry.task(&pool.namespace).map(|task| entry.versioned(task)));
                }
            }
        }
        tasks.sort_by_key(|versioned| versioned.record.as_task().map(|task| task.spec.order()));
        holds.then_some(tasks)
    }

    fn room(&self, pool: &ClaimPool) -> usize {
        pool.room(pool.counter().and_then(|key| self.counter(&key)).unwrap_or(0))
    }

    fn pool(&self, pool: &ClaimPool) -> Option<&Pool> {
        self.spaces.get(&pool.namespace)?.lists.pools.get(&pool.pool)
    }

    /// The lines that have claimable tasks, in pools that have room.
    fn asked<'c>(&self, claim: &'c Claim, rooms: &[usize]) -> SmallVec<[Asked<'c>; 1]> {
        let open = claim.pools.iter().zip(rooms).enumerate().filter(|(_, (_, room))| **room > 0);
        let mut asked = SmallVec::new();
        for (pool, (name, _)) in open {
            let Some(lines) = self.pool(name).map(|pool| &pool.ready) else { continue };
            let line = |kind| Asked { pool, kind, passed: 0 };
            match &claim.kinds {
                Kinds::Any => {
                    let kinds = some_of(lines.keys(), lines.len(), claim.id);
                    asked.extend(kinds.into_iter().map(|kind| line(Cow::Owned(kind.clone()))));
                }
                Kinds::Only(kinds) => {
                    let kinds = kinds.iter().filter(|kind| lines.contains_key(*kind));
                    asked.extend(kinds.map(|kind| line(Cow::Borrowed(kind))));
                }
            }
        }
        asked
    }

    fn head(&self, claim: &Claim, line: &Asked<'_>, at: usize, after: Option<(Rank, &Listed)>) -> Option<Head> {
        let pool = claim.pools.get(line.pool)?;
        let space = self.spaces.get(&pool.namespace)?;
        let ready = space.lists.pools.get(&pool.pool)?.ready.get(&*line.kind)?;
        let (rank, slot) = ready.head(&space.entries, after)?;
        Some(Reverse((rank, space.entries.place(slot).clone(), at, slot)))
    }

    fn take(&mut self, claim: &Claim, pool: &ClaimPool, slot: Slot, scribe: &mut dyn Scribe) -> Option<Versioned> {
        let counted = pool.running_max.is_some();
        let space = self.spaces.get_mut(&pool.namespace)?;
        space.entries.at(slot).index.ready.filter(|ready| ready.at <= claim.now)?;
        let changed = match space.own(slot) {
            Some(task) => claim.take_in_place(task, counted).ok().map(|()| None)?,
            None => {
                let task = body(space.entries.at(slot), &pool.namespace, scribe)?;
                Some(claim.take(&task, counted).ok()?)
            }
        };
        if let Some(key) = pool.counter() {
            self.count_up(claim, key, scribe);
        }
        self.rewrite(claim, &pool.namespace, slot, changed, scribe)
    }

    fn count_up(&mut self, claim: &Claim, key: Key, scribe: &mut dyn Scribe) {
        let running = self.counter(&key).unwrap_or(0);
        let found = self.stamp(&key).unwrap_or(Stamp { revision: 0, created_by: claim.id, last: claim.id });
        let stamp = Stamp { revision: self.next_revision(), ..found };
        self.put_other(key, Record::Counter(running.saturating_add(1)), Index::default(), stamp, scribe);
    }

    /// Writes a task that changed in the name of a claim: this one, or that which was changed in its slot.
    fn rewrite(
        &mut self,
        claim: &Claim,
        namespace: &Namespace,
        slot: Slot,
        changed: Option<Task>,
        scribe: &mut dyn Scribe,
    ) -> Option<Versioned> {
        let revision = self.next_revision();
        let space = self.spaces.get_mut(namespace)?;
        let old = space.entries.at(slot);
        let (before, stamp) = (old.claim(), Stamp { revision, last: claim.id, ..old.stamp });
        let in_place = changed.is_none();
        let task = match changed {
            Some(task) => Arc::new(task),
            None => old.here()?.clone(),
        };
        let same_spec = old.here().is_none() || old.has(&task.spec);
        let versioned = stamp.on(Key::task(namespace, task.id()), Record::Task(task.clone()));
        let index = Index::of(&versioned.key, &versioned.record);
        let ready = index.ready.is_some();
        scribe.put(Put { key: &versioned.key, record: &versioned.record, stamp, same_spec, ready });
        if in_place {
            space.moved(slot, task, stamp, index);
        } else {
            space
                .replace(slot, &task, Body::Here(task.clone()), stamp, index)
                .into_iter()
                .for_each(|old| scribe.replaced(old));
        }
        let after = space.entries.at(slot).claim();
        space.claimed.update(slot, before, after);
        Some(versioned)
    }

    /// C15: what became due in the asked lines gets its ready entry. Says how much was looked at.
    fn promote(&mut self, claim: &Claim, rooms: &[usize], scribe: &mut dyn Scribe) -> usize {
        let mut due: Vec<(&Namespace, Slot)> = Vec::new();
        let mut visited = 0;
        for (pool, _) in claim.pools.iter().zip(rooms).filter(|(_, room)| **room > 0) {
            let Some(space) = self.spaces.get(&pool.namespace) else { continue };
            let Some(lines) = space.lists.pools.get(&pool.pool).map(|found| &found.waiting) else { continue };
            let mut look = |waiting: &Waiting| {
                visited += 1;
                let left = limits::CLAIM_PROMOTE_MAX - due.len();
                let ids = waiting.iter().take_while(|(at, _)| *at <= claim.now).take(left);
                due.extend(ids.filter_map(|(_, id)| Some((&pool.namespace, space.find(id)?))));
            };
            match &claim.kinds {
                Kinds::Only(kinds) => kinds.iter().filter_map(|kind| lines.get(kind)).for_each(&mut look),
                // What is beyond is promoted by maintenance.
                Kinds::Any => lines.values().take(limits::KINDS_A_POOL_MAX).for_each(&mut look),
            }
        }
        for (namespace, slot) in &due {
            let entry = self.spaces.get(namespace).map(|space| space.entries.at(*slot));
            let task = entry.and_then(|entry| body(entry, namespace, scribe));
            if let Some(task) = task.and_then(|task| claim::promote(&task, claim.now)) {
                self.rewrite(claim, namespace, *slot, Some(task), scribe);
            }
        }
        visited + due.len()
    }
}

/// The task, from wherever it is.
fn body(entry: &Entry, namespace: &Namespace, scribe: &mut dyn Scribe) -> Option<Arc<Task>> {
    entry.task(namespace).or_else(|| scribe.fetch(&entry.listed.id.key(RecordKind::Task, namespace)))
}

/// All kinds of a pool, up to the limit. Beyond it each claim begins at another place, so that no kind is left out for long.
fn some_of<'a>(kinds: impl Iterator<Item = &'a Kind> + Clone, count: usize, claim: OpId) -> Vec<&'a Kind> {
    if count <= limits::KINDS_A_POOL_MAX {
        return kinds.collect();
    }
    let start = usize::try_from(hash::of_bytes(&claim.as_bits().to_be_bytes())).unwrap_or(0) % count;
    kinds.cycle().skip(start).take(limits::KINDS_A_POOL_MAX).collect()
}
