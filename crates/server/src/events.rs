//! The latest changes of all namespaces, numbered, so that a stream that broke off can go on where it was. The numbers
//! belong to one start of the server, and a cursor says which. They are moments, not counts: a reader of one namespace learns
//! nothing from them of what happens in the others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ekiden::store::{Clock, SystemClock};
use ekiden::{Chime, Observer, TaskChange};
use ekiden_core::event::EventName;
use ekiden_core::id::{Kind, Namespace, PoolName, TaskId};
use ekiden_core::task::{Phase, Progress};
use ekiden_core::time::Timestamp;
use hashbrown::{HashMap, HashSet};

use crate::limits;

/// Hears of every change, as an observer of the queue, and keeps the latest.
pub struct Events {
    instance: String,
    clock: Arc<dyn Clock>,
    ring: Mutex<Ring>,
    /// The namespaces in which maintenance has something to do at once.
    needy: Mutex<HashSet<Namespace>>,
    /// Rings with each of them.
    pub(crate) work: Chime,
    counts: [AtomicU64; EventName::ALL.len()],
    /// Rings with every change.
    pub(crate) chime: Chime,
}

/// Changes with rising numbers.
#[derive(Default)]
struct Ring {
    changes: VecDeque<Kept>,
    /// The number of the latest change, or of a cursor that was given out since.
    last: u64,
    forgotten: Forgotten,
    /// How long the texts of all changes are together.
    text_bytes: usize,
    /// The names of the latest.
    names: Option<Arc<Names>>,
    /// The namespaces in which tasks changed since somebody asked, and whether that of the latest change is among them.
    touched: HashSet<Namespace>,
    is_touched: bool,
}

/// The numbers of the latest changes that are no longer kept.
#[derive(Default)]
struct Forgotten {
    by_namespace: HashMap<Namespace, u64>,
    /// Of all namespaces that are not listed.
    others: u64,
}

impl Forgotten {
    fn note(&mut self, namespace: &Namespace, number: u64) {
        if let Some(known) = self.by_namespace.get_mut(namespace) {
            *known = number;
            return;
        }
        if self.by_namespace.len() == limits::FORGOTTEN_MAX {
            self.by_namespace.clear();
            self.others = number;
        }
        self.by_namespace.insert(namespace.clone(), number);
    }

    fn latest(&self, namespace: &Namespace) -> u64 {
        self.by_namespace.get(namespace).copied().unwrap_or(self.others)
    }
}

/// A change as it is kept: small, and without anything of the task's own, which would live as long as the change does.
struct Kept {
    number: u64,
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
    /// The next number: the moment, unless that was given out before.
    fn number(&mut self, now: Duration) -> u64 {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.last = now.max(self.last + 1);
        self.last
    }

    /// Forgets the oldest change.
    fn pop(&mut self) -> Option<Kept> {
        let gone = self.changes.pop_front()?;
        self.text_bytes -= gone.text_bytes();
        self.forgotten.note(&gone.names.namespace, gone.number);
        Some(gone)
    }

    fn push(&mut self, change: TaskChange, now: Duration) {
        let number = self.number(now);
        let TaskChange { namespace, id, task_type, pool, event, state, attempt, error, next_run_at, progress, at } =
            change;
        let names = Names { namespace, task_type, pool };
        let names = match &self.names {
            Some(last) if **last == names => last.clone(),
            _ => {
                self.is_touched = false;
                self.names.insert(Arc::new(names)).clone()
            }
        };
        if !self.is_touched {
            note(&mut self.touched, &names.namespace);
            self.is_touched = true;
        }
        let more = More { error, next_run_at, progress };
        let more = if more == More::default() { None } else { Some(Box::new(more)) };
        let kept = Kept { number, names, id: Name::of(id), event, state, attempt, at, more };
        self.text_bytes += kept.text_bytes();
        self.changes.push_back(kept);
    }

    fn is_full(&self) -> bool {
        self.changes.len() > limits::CHANGES_KEPT || self.text_bytes > limits::CHANGES_TEXT_BYTES
    }
}

/// Adds a namespace to those that maintenance looks at next. It comes by sooner or later if there are too many.
fn note(namespaces: &mut HashSet<Namespace>, namespace: &Namespace) {
    if namespaces.len() < limits::TOUCHED_MAX && !namespaces.contains(namespace) {
        namespaces.insert(namespace.clone());
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
    /// How long the texts are that only few changes have.
    fn text_bytes(&self) -> usize {
        let Some(more) = self.more.as_deref() else { return 0 };
        let note = more.progress.as_ref().and_then(|progress| progress.note.as_ref());
        more.error.iter().chain(note).map(|text| text.len()).sum()
    }

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
    /// The number of the latest change that went by unseen, if any did.
    pub(crate) missed: Option<u64>,
    /// The changes, with their numbers.
    pub(crate) changes: Vec<(u64, TaskChange)>,
    /// Where to go on: behind this number.
    pub(crate) seen: u64,
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
        Self::by(Arc::new(SystemClock))
    }

    fn by(clock: Arc<dyn Clock>) -> Self {
        let mut random = [0; 8];
        // Where the system has no randomness left, starts cannot be told apart, and streams look anew by themselves.
        let _ = getrandom::fill(&mut random);
        Self {
            instance: format!("{:016x}", u64::from_be_bytes(random)),
            clock,
            ring: Mutex::default(),
            needy: Mutex::default(),
            work: Chime::default(),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            chime: Chime::default(),
        }
    }

    /// The cursor behind this number.
    pub(crate) fn cursor(&self, number: u64) -> String {
        format!("{}-{number}", self.instance)
    }

    /// A number that is higher than those of all changes so far, and lower than those to come.
    pub(crate) fn here(&self) -> u64 {
        let now = self.clock.monotonic();
        self.ring().number(now)
    }

    /// The number of a cursor; `None` if it is of another start, or of no server at all. What has been given out is told by
    /// the clock, not by the latest change, which may be another namespace's.
    pub(crate) fn number_of(&self, cursor: &str) -> Option<u64> {
        let (instance, number) = cursor.rsplit_once('-')?;
        let number: u64 = number.parse().ok()?;
        (instance == self.instance && number <= self.here()).then_some(number)
    }

    /// The changes of a namespace behind a number, as many as are told at once.
    pub(crate) fn take(&self, namespace: &Namespace, seen: u64) -> Taken {
        let now = self.clock.monotonic();
        let mut ring = self.ring();
        let mut taken = Taken { seen, ..Taken::default() };
        taken.missed = Some(ring.forgotten.latest(namespace)).filter(|forgotten| *forgotten > seen);
        let mut text_bytes = 0;
        let begin = ring.changes.partition_point(|change| change.number <= seen);
        let mut left = ring.changes.iter().skip(begin);
        for change in left.by_ref().take(PASSED_AT_ONCE) {
            taken.seen = change.number;
            if change.names.namespace == *namespace {
                text_bytes += change.text_bytes();
                taken.changes.push((change.number, change.told()));
                if taken.changes.len() == limits::CHANGES_AT_ONCE || text_bytes >= limits::STREAM_PIECE_BYTES {
                    break;
                }
            }
        }
        taken.more = left.next().is_some();
        if !taken.more {
            // Not the number of the last change, which may be another namespace's.
            taken.seen = ring.number(now);
        }
        taken
    }

    /// The namespaces in which tasks changed since this was last asked.
    pub(crate) fn take_touched(&self) -> HashSet<Namespace> {
        let mut ring = self.ring();
        ring.is_touched = false;
        std::mem::take(&mut ring.touched)
    }

    /// The namespaces in which maintenance has something to do at once.
    pub(crate) fn take_work(&self) -> HashSet<Namespace> {
        std::mem::take(&mut *self.needy.lock().unwrap_or_else(PoisonError::into_inner))
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
        let now = self.clock.monotonic();
        let mut ring = self.ring();
        ring.push(change, now);
        let gone = if ring.is_full() { ring.pop() } else { None };
        // One long text may push out several short ones.
        while ring.is_full() {
            ring.pop();
        }
        drop(ring);
        drop(gone);
        self.chime.ring();
    }

    fn needs_maintenance(&self, namespace: &Namespace) {
        note(&mut self.needy.lock().unwrap_or_else(PoisonError::into_inner), namespace);
        self.work.ring();
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("instance", &self.instance).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ekiden::store::ManualClock;
    use ekiden_core::time::Millis;

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
        let told = |taken: &Taken| taken.changes.iter().map(|(_, change)| change.id.to_string()).collect::<Vec<_>>();
        let all = events.take(&ours, 0);
        assert_eq!(told(&all), ["2", "4", "6", "8", "10"]);
        let seen = events.number_of(&events.cursor(all.changes[1].0)).unwrap();
        let taken = events.take(&ours, seen);
        assert_eq!(told(&taken), ["6", "8", "10"]);
        assert_eq!((taken.missed, taken.more), (None, false));
        events.observe(&change("ours", 11));
        assert_eq!(told(&events.take(&ours, taken.seen)), ["11"], "nothing is told twice, nothing is left out");
        assert_eq!(events.number_of(&events.cursor(u64::MAX)), None, "it has not happened");
        assert_eq!(events.number_of(&format!("{:016x}-1", 0)), None, "another start");
        for garbage in ["", "-", "x", "1", "-1", "ä-ö"] {
            assert_eq!(events.number_of(garbage), None);
        }
        assert_eq!(events.counts().sum::<u64>(), 11);
    }

    #[test]
    fn what_a_stream_says_does_not_depend_on_other_namespaces() {
        let ours = Namespace::new("ours").unwrap();
        let said = |theirs: u64| {
            let clock = Arc::new(ManualClock::new(Timestamp::ZERO));
            let events = Events::by(clock.clone());
            let mut said = Vec::new();
            for id in 0..4 {
                clock.advance(Millis::from_secs(1));
                events.observe(&change("ours", id));
                (0..theirs).for_each(|id| events.observe(&change("theirs", id)));
                clock.advance(Millis::from_secs(1));
                let taken = events.take(&ours, 0);
                // Cursors of moments that passed before the last change of others, after it, and of one to come.
                (0..theirs).for_each(|id| events.observe(&change("theirs", id)));
                let early = [1_500_000_000_u64, 500_000_000, 1_000].map(|ago| taken.seen - ago);
                let known = early.into_iter().chain([taken.seen + 500_000_000, taken.seen + 2_000_000_000]);
                clock.advance(Millis::from_secs(1));
                let known: Vec<_> = known.map(|number| events.number_of(&events.cursor(number)).is_some()).collect();
                assert_eq!(known, [true, true, true, true, false]);
                said.push((taken.missed, taken.seen, events.here(), taken.changes));
                clock.advance(Millis::from_secs(1));
            }
            said
        };
        assert_eq!(said(0), said(100));
    }

    #[test]
    fn a_stream_misses_nothing_because_others_are_loud() {
        let events = Events::new();
        let (ours, theirs) = (Namespace::new("ours").unwrap(), Namespace::new("theirs").unwrap());
        events.observe(&change("ours", 1));
        let seen = events.here();
        for id in 0..2 * limits::CHANGES_KEPT as u64 {
            events.observe(&change("theirs", id));
        }
        assert_eq!(events.take(&ours, seen).missed, None, "its only change was seen");
        assert!(events.take(&ours, 0).missed.is_some());
        assert!(events.take(&theirs, seen).missed.is_some());
    }

    #[test]
    fn maintenance_hears_of_each_namespace_once_and_of_no_other() {
        let events = Events::new();
        for id in 0..10 {
            events.observe(&change(if id < 5 { "a" } else { "b" }, id));
        }
        let names = ["a", "b"].map(|name| Namespace::new(name).unwrap());
        assert_eq!(events.take_touched(), names.clone().into_iter().collect());
        assert!(events.take_touched().is_empty());
        events.observe(&change("b", 11));
        assert_eq!(events.take_touched().len(), 1, "it changed again");
        events.needs_maintenance(&names[0]);
        assert_eq!(events.take_work(), [names[0].clone()].into_iter().collect());
        assert!(events.take_work().is_empty());
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
        let told = events.take(&ours, 0).changes.into_iter().map(|(_, change)| change);
        assert_eq!(told.collect::<Vec<_>>(), all);
    }

    #[test]
    fn what_the_ring_lost_is_told() {
        let events = Events::new();
        let ours = Namespace::new("ours").unwrap();
        for id in 0..limits::CHANGES_KEPT as u64 + 5 {
            events.observe(&change("ours", id));
        }
        let taken = events.take(&ours, 0);
        assert_eq!((taken.changes.len(), taken.more), (limits::CHANGES_AT_ONCE, true));
        let missed = taken.missed.unwrap();
        assert!(missed > 0 && missed < taken.changes[0].0, "what is left follows");
        assert_eq!(events.take(&ours, missed).missed, None);
    }
}
