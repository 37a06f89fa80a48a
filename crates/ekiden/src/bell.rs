//! Wake-ups inside a process. Hints, never more: everything that waits also looks now and then by itself.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use ekiden_core::id::Namespace;
use ekiden_core::time::Timestamp;
use hashbrown::HashMap;
use tokio::sync::Notify;

use crate::stand::Stands;

/// Rings when something in a namespace may be worth a look.
#[derive(Debug, Default)]
pub struct Bell {
    /// A task may be claimable, or will be at a known moment.
    pub ready: Chime,
    /// Maintenance has something to do.
    pub work: Chime,
    /// A running task was cancelled.
    pub stop: Chime,
    /// Claims that are served by whoever hands the next task in.
    pub stands: Stands,
    earliest: Moment,
}

impl Bell {
    /// A task will be claimable at this moment.
    pub fn ready_at(&self, at: Timestamp, now: Timestamp) {
        if self.earliest.lower(at, now) {
            self.ready.ring();
        }
    }

    /// The earliest moment that was rung for and is not over.
    pub fn earliest(&self, now: Timestamp) -> Option<Timestamp> {
        let earliest = self.earliest.0.load(Ordering::Acquire);
        (earliest > now.as_millis() && earliest != i64::MAX).then(|| Timestamp::from_millis(earliest))
    }
}

/// The notifiers of a queue's namespaces. One that no caller holds has nothing to wake, so the map does not keep it either.
#[derive(Debug, Default)]
pub(crate) struct NotifierMap {
    /// The first that a caller asked for, kept for good. Most processes have no other, and find it without a lock.
    first: OnceLock<(Namespace, Arc<Bell>)>,
    others: RwLock<Others>,
}

#[derive(Debug, Default)]
struct Others {
    by_namespace: HashMap<Namespace, Weak<Bell>>,
    /// How many entries there may be before those without a holder are removed.
    cleared_at: usize,
}

/// 64 entries are not worth a look for those without a holder.
const CLEARED_AT_MIN: usize = 64;

impl NotifierMap {
    /// The notifier of a namespace. It stays the same one for as long as any caller holds it.
    pub(crate) fn get(&self, namespace: &Namespace) -> Arc<Bell> {
        let (first, bell) = self.first.get_or_init(|| (namespace.clone(), Arc::default()));
        if first == namespace {
            return bell.clone();
        }
        self.held(namespace).unwrap_or_else(|| {
            let mut others = self.others.write().unwrap_or_else(PoisonError::into_inner);
            others.get(namespace)
        })
    }

    /// Does something with the notifier of a namespace, if any caller holds it.
    pub(crate) fn with<T>(&self, namespace: &Namespace, act: impl FnOnce(&Bell) -> T) -> Option<T> {
        let (first, bell) = self.first.get()?;
        if first == namespace { Some(act(bell)) } else { self.held(namespace).map(|bell| act(&bell)) }
    }

    fn held(&self, namespace: &Namespace) -> Option<Arc<Bell>> {
        let others = self.others.read().unwrap_or_else(PoisonError::into_inner);
        others.by_namespace.get(namespace)?.upgrade()
    }
}

impl Others {
    fn get(&mut self, namespace: &Namespace) -> Arc<Bell> {
        if let Some(bell) = self.by_namespace.get(namespace).and_then(Weak::upgrade) {
            return bell;
        }
        if self.by_namespace.len() >= self.cleared_at {
            self.by_namespace.retain(|_, bell| bell.strong_count() > 0);
            // Twice what is left, so that an entry costs the same on average however many there are.
            self.cleared_at = CLEARED_AT_MIN.max(2 * self.by_namespace.len());
        }
        let bell = Arc::default();
        self.by_namespace.insert(namespace.clone(), Arc::downgrade(&bell));
        bell
    }
}

#[derive(Debug)]
struct Moment(AtomicI64);

impl Default for Moment {
    fn default() -> Self {
        Self(AtomicI64::new(i64::MAX))
    }
}

impl Moment {
    /// Takes the moment if it is earlier than the one known, or if that one is over. Says whether it did.
    fn lower(&self, at: Timestamp, now: Timestamp) -> bool {
        let at = at.as_millis();
        let earlier = |known: i64| (at < known || known <= now.as_millis()).then_some(at);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, earlier).is_ok()
    }
}

/// Something that rings. A listener that was busy hears that it rang meanwhile; how often does not matter.
#[derive(Debug, Default)]
pub struct Chime {
    rung: AtomicU64,
    notify: Notify,
}

impl Chime {
    /// Wakes everybody who listens.
    pub fn ring(&self) {
        self.ring_for(1);
    }

    /// The same for several things at once.
    pub fn ring_for(&self, count: u64) {
        self.rung.fetch_add(count, Ordering::Release);
        self.notify.notify_waiters();
    }

    /// What a listener remembers of the past.
    pub fn heard(&self) -> Heard {
        Heard(self.rung.load(Ordering::Acquire))
    }

    /// Waits until it has rung since.
    pub async fn since(&self, heard: &mut Heard) {
        loop {
            // Asked for before the number is read, so that no ring falls between the two.
            let notified = self.notify.notified();
            let now = self.heard();
            if now != *heard {
                *heard = now;
                return;
            }
            notified.await;
        }
    }
}

/// 64: a listener that is further behind lets the rest go. By then looking once finds whatever there is.
const BEHIND_MAX: u64 = 64;

impl Chime {
    /// Waits for one ring more. Several who take turns with one memory wake once for each ring, and not all for every one.
    pub async fn one_more(&self, heard: &mut Heard) {
        let mut newest = *heard;
        self.since(&mut newest).await;
        heard.0 = heard.0.max(newest.0.saturating_sub(BEHIND_MAX)) + 1;
    }
}

/// How much of a chime somebody has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard(u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_ring_while_nobody_listens_is_heard_later() {
        let chime = Chime::default();
        let mut heard = chime.heard();
        chime.ring();
        chime.ring();
        chime.since(&mut heard).await;
        let waits = tokio::time::timeout(std::time::Duration::from_millis(1), chime.since(&mut heard));
        assert!(waits.await.is_err(), "two rings are one wake-up");
    }

    #[tokio::test]
    async fn rings_can_be_heard_one_by_one_but_not_without_end() {
        let chime = Chime::default();
        let mut heard = chime.heard();
        chime.ring();
        chime.ring();
        chime.one_more(&mut heard).await;
        chime.one_more(&mut heard).await;
        assert_eq!(heard, chime.heard());
        for _ in 0..1_000 {
            chime.ring();
        }
        let mut wakes = 0;
        while heard != chime.heard() {
            chime.one_more(&mut heard).await;
            wakes += 1;
        }
        assert_eq!(wakes, BEHIND_MAX);
    }

    #[test]
    fn the_map_keeps_no_notifier_that_nobody_holds() {
        let map = NotifierMap::default();
        let namespace = |number: u32| Namespace::new(format!("n{number}")).unwrap();
        map.get(&namespace(0));
        let held = map.get(&namespace(1));
        let mut heard = held.ready.heard();
        for number in 2..10_000 {
            drop(map.get(&namespace(number)));
        }
        assert!(map.others.read().unwrap().by_namespace.len() <= CLEARED_AT_MIN);
        assert_eq!(map.with(&namespace(2), |_| ()), None, "nothing waits there");
        map.with(&namespace(1), |bell| bell.ready.ring()).unwrap();
        assert_ne!(held.ready.heard(), heard);
        heard = held.ready.heard();
        assert_eq!(map.get(&namespace(1)).ready.heard(), heard, "a notifier stays the same while it is held");
    }

    #[test]
    fn the_earliest_moment_counts_until_it_is_over() {
        let bell = Bell::default();
        let at = Timestamp::from_millis;
        assert_eq!(bell.earliest(at(0)), None);
        bell.ready_at(at(50), at(0));
        bell.ready_at(at(90), at(0));
        assert_eq!(bell.earliest(at(10)), Some(at(50)));
        assert_eq!(bell.earliest(at(50)), None);
        bell.ready_at(at(90), at(60));
        assert_eq!(bell.earliest(at(60)), Some(at(90)));
    }
}
