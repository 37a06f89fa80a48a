//! Patience within bounds: what met throttling or a conflict of transactions is sent again after a random wait.

use std::future::Future;
use std::time::Duration;

use crate::error::Failure;
use crate::shared::Shared;

/// 8 tries: with waits that double from 10 ms on they take less than three seconds, well below any lease of a runner.
const TRIES_MAX: u32 = 8;

/// 10 ms before the second try.
const WAIT_MIN: Duration = Duration::from_millis(10);

/// Half a second at most before any.
const WAIT_MAX: Duration = Duration::from_millis(500);

impl Shared {
    /// Sends until it is something else than busy, or patience ends.
    pub(crate) async fn patiently<T, F>(&self, mut send: impl FnMut() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut tries = 1;
        loop {
            match send().await {
                Err(Failure::Busy(_)) if tries < TRIES_MAX => self.pause(tries).await,
                other => return other,
            }
            tries += 1;
        }
    }

    /// Waits a random part of a wait that doubles with each try, so that those who met do not meet again.
    pub(crate) async fn pause(&self, tries: u32) {
        let longest = WAIT_MIN.saturating_mul(1 << tries.min(10)).min(WAIT_MAX);
        let micros = usize::try_from(longest.as_micros()).unwrap_or(1).max(1);
        let drawn = u64::try_from(self.below(micros)).unwrap_or(0);
        tokio::time::sleep(Duration::from_micros(drawn)).await;
    }
}
