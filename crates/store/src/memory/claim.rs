//! Claims on the memory store: the heads of the asked lines are merged, so the cost follows the lines, not the backlog.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Bound;
use std::sync::Arc;

use ekiden_core::claim::{self, Claim, ClaimPool, Kinds};
use ekiden_core::hash;
use ekiden_core::id::{Kind, OpId, TaskId};
use ekiden_core::index::{Index, Line};
use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::order::Order;
use ekiden_core::record::{Record, Versioned};
use ekiden_core::task::Task;
use ekiden_core::time::Timestamp;

use super::Shelf;
use crate::op::{Answer, Claimed};
use crate::store::Hint;

/// Tasks of a line that are not due yet, earliest first.
type Waiting = BTreeSet<(Timestamp, TaskId)>;

/// A line that the claim asks for: its pool (by place in the claim) and its kind.
struct Asked {
    pool: usize,
    line: Line,
    passed: usize,
}

impl Shelf {
    pub(super) fn claim(&mut self, claim: &Claim, hint: &mut impl FnMut(Hint)) -> Answer {
        let mut visited = 0;
        let before = self.taken_by(claim);
        if !before.is_empty() {
            visited += before.len();
            return Answer::Claimed(Claimed { tasks: before, visited });
        }
        let mut rooms: Vec<usize> = claim.pools.iter().map(|pool| self.room(pool)).collect();
        visited += self.promote(claim, &rooms, hint);
        let mut asked = self.asked(claim, &rooms);
        let mut heads: BinaryHeap<Reverse<(Order, Timestamp, usize)>> = BinaryHeap::new();
        for (at, line) in asked.iter().enumerate() {
            visited += 1;
            heads.extend(self.head(&line.line, None).map(|(order, due)| Reverse((order, due, at))));
        }
        let mut tasks = Vec::new();
        while let Some(Reverse((order, due, at))) = heads.pop() {
            let Some(line) = asked.get_mut(at) else { continue };
            let room = rooms.get(line.pool).copied().unwrap_or(0);
            if tasks.len() == claim.limit || room == 0 {
                continue;
            }
            visited += 1;
            let pool = claim.pools.get(line.pool);
            let taken =
                if due <= claim.now { pool.and_then(|pool| self.take(claim, pool, &order.id, hint)) } else { None };
            match taken {
                Some(versioned) => {
                    tasks.push(versioned);
                    rooms.iter_mut().skip(line.pool).take(1).for_each(|room| *room -= 1);
                }
                None => line.passed += 1,
            }
            if line.passed < limits::CLAIM_SKIP_MAX {
                heads.extend(self.head(&line.line, Some(&order)).map(|(order, due)| Reverse((order, due, at))));
            }
        }
        Answer::Claimed(Claimed { tasks, visited })
    }

    /// C14: what this claim took before and still holds, in the order of a claim.
    fn taken_by(&self, claim: &Claim) -> Vec<Versioned> {
        let mine = self.indexes.taken.get(&claim.id).into_iter().flatten();
        let mut tasks: Vec<Versioned> = mine.filter_map(|key| self.get(key)).cloned().collect();
        tasks.sort_by_key(|versioned| versioned.record.as_task().map(|task| task.spec.order()));
        tasks
    }

    fn room(&self, pool: &ClaimPool) -> usize {
        let running = pool.counter().and_then(|key| self.get(&key)?.record.as_counter());
        pool.room(running.unwrap_or(0))
    }

    /// The lines that have claimable tasks, in pools that have room.
    fn asked(&self, claim: &Claim, rooms: &[usize]) -> Vec<Asked> {
        let open = claim.pools.iter().zip(rooms).enumerate().filter(|(_, (_, room))| **room > 0);
        let mut asked = Vec::new();
        for (at, (pool, _)) in open {
            let Some(lines) = self.indexes.ready.get(&(pool.namespace.clone(), pool.pool.clone())) else { continue };
            let kinds: Vec<&Kind> = match &claim.kinds {
                Kinds::Any => some_of(lines.keys(), lines.len(), claim.id),
                Kinds::Only(kinds) => kinds.iter().filter(|kind| lines.contains_key(*kind)).collect(),
            };
            asked.extend(kinds.into_iter().map(|kind| Asked { pool: at, line: line(pool, kind), passed: 0 }));
        }
        asked
    }

    fn head(&self, line: &Line, after: Option<&Order>) -> Option<(Order, Timestamp)> {
        let lines = self.indexes.ready.get(&(line.namespace.clone(), line.pool.clone()))?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (order, at) = lines.get(&line.kind)?.range::<Order, _>((from, Bound::Unbounded)).next()?;
        Some((order.clone(), *at))
    }

    fn take(&mut self, claim: &Claim, pool: &ClaimPool, id: &TaskId, hint: &mut impl FnMut(Hint)) -> Option<Versioned> {
        let counter = pool.counter();
        let found = self.get(&Key::task(&pool.namespace, id))?.clone();
        let task = claim.take(found.record.as_task()?, counter.is_some()).ok()?;
        if let Some(key) = counter {
            self.count_up(claim, key, hint);
        }
        Some(self.put_task(found, task, claim, hint))
    }

    fn count_up(&mut self, claim: &Claim, key: Key, hint: &mut impl FnMut(Hint)) {
        let found = self.get(&key);
        let running = found.and_then(|found| found.record.as_counter()).unwrap_or(0);
        let (created_by, last) = found.map_or((claim.id, claim.id), |found| (found.created_by, found.last));
        let revision = self.next_revision();
        let record = Record::Counter(running.saturating_add(1));
        self.put(Versioned { key, record, revision, created_by, last }, Index::default(), hint);
    }

    fn put_task(&mut self, found: Versioned, task: Task, claim: &Claim, hint: &mut impl FnMut(Hint)) -> Versioned {
        let record = Record::Task(Arc::new(task));
        let index = Index::of(&found.key, &record);
        let versioned = Versioned { record, revision: self.next_revision(), last: claim.id, ..found };
        self.put(versioned.clone(), index, hint);
        versioned
    }

    /// C15: what became due in the asked lines gets its ready entry. Says how much was looked at.
    fn promote(&mut self, claim: &Claim, rooms: &[usize], hint: &mut impl FnMut(Hint)) -> usize {
        let mut due: Vec<Key> = Vec::new();
        let mut visited = 0;
        for (pool, _) in claim.pools.iter().zip(rooms).filter(|(_, room)| **room > 0) {
            for (line, waiting) in self.waiting_lines(claim, pool) {
                visited += 1;
                let left = limits::CLAIM_PROMOTE_MAX - due.len();
                let ids = waiting.iter().take_while(|(at, _)| *at <= claim.now).take(left);
                due.extend(ids.map(|(_, id)| Key::task(&line.namespace, id)));
            }
        }
        for key in &due {
            let Some(found) = self.get(key).cloned() else { continue };
            let promoted = found.record.as_task().and_then(|task| claim::promote(task, claim.now));
            if let Some(task) = promoted {
                self.put_task(found, task, claim, hint);
            }
        }
        visited + due.len()
    }

    fn waiting_lines<'a>(
        &'a self,
        claim: &'a Claim,
        pool: &'a ClaimPool,
    ) -> Box<dyn Iterator<Item = (&'a Line, &'a Waiting)> + 'a> {
        match &claim.kinds {
            Kinds::Only(kinds) => {
                Box::new(kinds.iter().filter_map(move |kind| self.indexes.waiting.get_key_value(&line(pool, kind))))
            }
            Kinds::Any => {
                let from = Line { namespace: pool.namespace.clone(), pool: pool.pool.clone(), kind: lowest_kind() };
                let lines = self.indexes.waiting.range(from..);
                let own = lines.take_while(move |(line, _)| line.namespace == pool.namespace && line.pool == pool.pool);
                // What is beyond is promoted by maintenance.
                Box::new(own.take(limits::KINDS_A_POOL_MAX))
            }
        }
    }
}

/// All kinds of a pool, up to the limit. Beyond it each claim begins at another place, so that no kind is left out for long.
fn some_of<'a>(kinds: impl Iterator<Item = &'a Kind> + Clone, count: usize, claim: OpId) -> Vec<&'a Kind> {
    if count <= limits::KINDS_A_POOL_MAX {
        return kinds.collect();
    }
    let start = usize::try_from(hash::of_bytes(&claim.as_bits().to_be_bytes())).unwrap_or(0) % count;
    kinds.cycle().skip(start).take(limits::KINDS_A_POOL_MAX).collect()
}

fn line(pool: &ClaimPool, kind: &Kind) -> Line {
    Line { namespace: pool.namespace.clone(), pool: pool.pool.clone(), kind: kind.clone() }
}

/// No kind sorts before a single space: ids are not empty and have no control characters.
fn lowest_kind() -> Kind {
    Kind::new(" ").expect("one space is a valid id")
}
