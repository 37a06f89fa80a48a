//! Waits between tries: each twice as long as the one before, up to a maximum, and spread, so that many who lost the same server
//! do not come back at the same moment.

use std::time::Duration;

/// The waits of one who tries again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Waits from the first to the longest.
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The next wait, give or take a quarter.
    pub(crate) fn next(&mut self, random: u64) -> Duration {
        let wait = self.next;
        self.next = self.longest.min(wait * 2);
        wait * 3 / 4 + wait / 2 * u32::try_from(random % 1_000).unwrap_or(0) / 1_000
    }

    /// Something was answered: the next wait is the first again.
    pub(crate) const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_spread() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(100), ms(500));
        let waits: Vec<Duration> = (0..5).map(|_| backoff.next(500)).collect();
        assert_eq!(waits, [ms(100), ms(200), ms(400), ms(500), ms(500)]);
        backoff.reset();
        assert_eq!(backoff.next(0), ms(75));
        backoff.reset();
        assert!((ms(124)..=ms(125)).contains(&backoff.next(999)));
    }
}
