//! Wake-ups inside a process. Hints, never more: everything that waits also looks now and then by itself.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use ekiden_core::time::Timestamp;
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
