//! The latest changes of all namespaces, numbered, so that a stream that broke off can go on where it was. The numbers
//! belong to one start of the server, and a cursor says which.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ekiden::{Chime, Observer, TaskChange};
use ekiden_core::event::EventName;
use ekiden_core::id::{Kind, Namespace, PoolName, TaskId};
use ekiden_core::task::{Phase, Progress};
use ekiden_core::time::Timestamp;

use crate::limits;

/// Hears of every change, as an observer of the queue, and keeps the latest.
pub struct Events {
    instance: String,
    ring: Mutex<Ring>,
    counts: [AtomicU64; EventName::ALL.len()],
    /// Rings with every change.
    pub(crate) chime: Chime,
}

/// Changes with consecutive numbers.
struct Ring {
    /// The number of the first.
    first: u64,
    changes: VecDeque<Kept>,
    /// The names of the latest.
    names: Option<Arc<Names>>,
}

/// A change as it is kept: small, and without anything of the task's own, which would live as long as the change does.
struct Kept {
    names: Arc<Names>,
    id: Name,
    event: Option<EventName>,
    state: Phase,
    attempt: u64,
    at: Timestamp,
    more: Option<Box<More>>,
}

/// The names that a task shares with others. Mostly those of one change are also those of the next.
#[derive(PartialEq, Eq)]
struct Names {
    namespace: Namespace,
    task_type: Kind,
    pool: PoolName,
}

/// A task's own name; a generated one by its bits.
enum Name {
    Generated([u64; 2]),
    Other(TaskId),
}

/// What few changes have.
#[derive(PartialEq, Default)]
struct More {
    error: Option<Arc<str>>,
    next_run_at: Option<Timestamp>,
    progress: Option<Progress>,
}

impl Ring {
    fn push(&mut self, change: TaskChange) {
        let TaskChange { namespace, id, task_type, pool, event, state, attempt, error, next_run_at, progress, at } =
            change;
        let names = Names { namespace, task_type, pool };
        let names = match &self.names {
            Some(last) if **last == names => last.clone(),
            _ => self.names.insert(Arc::new(names)).clone(),
        };
        let more = More { error, next_run_at, progress };
        let more = if more == More::default() { None } else { Some(Box::new(more)) };
        self.changes.push_back(Kept { names, id: Name::of(id), event, state, attempt, at, more });
    }
}

impl Name {
    fn of(id: TaskId) -> Self {
        match TaskId::bits_of(id.as_str()) {
            Some(bits) => Self::Generated(
                [bits >> 64, bits & u128::from(u64::MAX)]
                    .map(|half| u64::try_from(half).expect("half of 128 bits are 64")),
            ),
            None => Self::Other(id),
        }
    }

    fn id(&self) -> TaskId {
        match self {
            Self::Generated([upper, lower]) => TaskId::from_bits(u128::from(*upper) << 64 | u128::from(*lower)),
            Self::Other(id) => id.clone(),
        }
    }
}

impl Kept {
    /// The change as it was told.
    fn told(&self) -> TaskChange {
        let Names { namespace, task_type, pool } = &*self.names;
        let more = self.more.as_deref();
        TaskChange {
            namespace: namespace.clone(),
            id: self.id.id(),
            task_type: task_type.clone(),
            pool: pool.clone(),
            event: self.event,
            state: self.state,
            attempt: self.attempt,
            error: more.and_then(|more| more.error.clone()),
            next_run_at: more.and_then(|more| more.next_run_at),
            progress: more.and_then(|more| more.progress.clone()),
            at: self.at,
        }
    }
}

/// What a stream tells next.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// The changes, with their numbers.
    pub(crate) changes: Vec<(u64, TaskChange)>,
    /// How many went by unseen.
    pub(crate) missed: u64,
    /// Where to go on.
    pub(crate) next: u64,
    /// Whether there is more right now.
    pub(crate) more: bool,
}

/// 4,096 changes of other namespaces that one look passes over, so that nobody holds the ring for long.
const PASSED_AT_ONCE: usize = 4_096;

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

impl Events {
    /// Nothing has happened yet.
    pub fn new() -> Self {
        let mut random = [0; 8];
        // Where the system has no randomness left, starts cannot be told apart, and streams look anew by themselves.
        let _ = getrandom::fill(&mut random);
        Self {
            instance: format!("{:016x}", u64::from_be_bytes(random)),
            ring: Mutex::new(Ring { first: 1, changes: VecDeque::new(), names: None }),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            chime: Chime::default(),
        }
    }

    /// The cursor behind this number.
    pub(crate) fn cursor(&self, number: u64) -> String {
        format!("{}-{number}", self.instance)
    }

    /// The number that the next change will have.
    pub(crate) fn next(&self) -> u64 {
        let ring = self.ring();
        ring.first + ring.changes.len() as u64
    }

    /// Where a stream with this cursor goes on; `None` if it is of another start, or of no server at all.
    pub(crate) fn after(&self, cursor: &str) -> Option<u64> {
        let (instance, number) = cursor.rsplit_once('-')?;
        let number: u64 = number.parse().ok()?;
        (instance == self.instance && number < self.next()).then_some(number + 1)
    }

    /// The changes of a namespace from a number on, as many as are told at once.
    pub(crate) fn take(&self, namespace: &Namespace, from: u64) -> Taken {
        let ring = self.ring();
        let missed = ring.first.saturating_sub(from);
        let begin = from.max(ring.first);
        let skip = usize::try_from(begin - ring.first).unwrap_or(usize::MAX);
        let mut taken = Taken { missed, next: begin, ..Taken::default() };
        for (change, number) in ring.changes.iter().skip(skip).zip(begin..).take(PASSED_AT_ONCE) {
            if taken.changes.len() == limits::CHANGES_AT_ONCE {
                break;
            }
            taken.next = number + 1;
            if change.names.namespace == *namespace {
                taken.changes.push((number, change.told()));
            }
        }
        taken.more = taken.next < ring.first + ring.changes.len() as u64;
        taken
    }

    /// How often each event happened, in the order of [`EventName::ALL`].
    pub(crate) fn counts(&self) -> impl Iterator<Item = u64> {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed))
    }

    fn ring(&self) -> std::sync::MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Events {
    fn observe(&self, change: &TaskChange) {
        self.keep(change.clone());
    }

    fn keep(&self, change: TaskChange) {
        if let Some(count) = change.event.and_then(|event| self.counts.get(event as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let mut ring = self.ring();
        let gone = if ring.changes.len() == limits::CHANGES_KEPT {
            ring.first += 1;
            ring.changes.pop_front()
        } else {
            None
        };
        ring.push(change);
        drop(ring);
        drop(gone);
        self.chime.ring();
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("instance", &self.instance).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(namespace: &str, id: u64) -> TaskChange {
        TaskChange {
            namespace: Namespace::new(namespace).unwrap(),
            id: TaskId::new(id.to_string()).unwrap(),
            task_type: Kind::new("k").unwrap(),
            pool: PoolName::new("p").unwrap(),
            event: Some(EventName::Enqueued),
            state: Phase::Queued,
            attempt: 0,
            error: None,
            next_run_at: None,
            progress: None,
            at: Timestamp::ZERO,
        }
    }

    #[test]
    fn a_stream_goes_on_where_it_was_and_sees_only_its_namespace() {
        let events = Events::new();
        let ours = Namespace::new("ours").unwrap();
        for id in 1..=10 {
            events.observe(&change(if id % 2 == 0 { "ours" } else { "theirs" }, id));
        }
        let after = events.after(&events.cursor(4)).unwrap();
        let taken = events.take(&ours, after);
        assert_eq!(taken.changes.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [6, 8, 10]);
        assert_eq!((taken.next, taken.missed, taken.more), (11, 0, false));
        assert_eq!(events.after(&events.cursor(11)), None, "it has not happened");
        assert_eq!(events.after(&format!("{:016x}-1", 0)), None, "another start");
        for garbage in ["", "-", "x", "1", "-1", "ä-ö"] {
            assert_eq!(events.after(garbage), None);
        }
        assert_eq!(events.counts().sum::<u64>(), 10);
    }

    #[test]
    fn a_change_is_told_as_it_was() {
        let events = Events::new();
        let ours = Namespace::new("ours").unwrap();
        let plain = change("ours", 1);
        let progress = Some(Progress { done: 1, total: Some(2), note: Some("half".into()) });
        let all = [
            TaskChange { id: TaskId::from_bits(1 << 100 | 7), ..plain.clone() },
            TaskChange { pool: PoolName::new("q").unwrap(), attempt: 3, state: Phase::Dead, ..plain.clone() },
            TaskChange { error: Some("x".into()), next_run_at: Some(Timestamp::from_millis(5)), ..plain.clone() },
            TaskChange { event: None, progress, ..plain.clone() },
            TaskChange { task_type: Kind::new("other").unwrap(), at: Timestamp::from_millis(9), ..plain },
        ];
        all.iter().for_each(|change| events.observe(change));
        let told = events.take(&ours, 1).changes.into_iter().map(|(_, change)| change);
        assert_eq!(told.collect::<Vec<_>>(), all);
    }

    #[test]
    fn what_the_ring_lost_is_counted() {
        let events = Events::new();
        let ours = Namespace::new("ours").unwrap();
        for id in 0..limits::CHANGES_KEPT as u64 + 5 {
            events.observe(&change("ours", id));
        }
        let taken = events.take(&ours, 1);
        assert_eq!((taken.missed, taken.changes.len(), taken.more), (5, limits::CHANGES_AT_ONCE, true));
    }
}
