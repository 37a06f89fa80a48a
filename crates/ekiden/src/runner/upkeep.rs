//! What is due, done by every runner now and then: no leader, safe by revision, spread by jitter.

use std::time::Duration;

use crate::client::Client;

/// One second between rounds, give or take a quarter.
const PERIOD: Duration = Duration::from_secs(1);

/// Maintains for ever.
pub(super) async fn maintain_on(client: Client) {
    let bell = client.queue().bell(client.namespace());
    let mut heard = bell.work.heard();
    loop {
        let mut wait = period(client.random());
        match client.maintain().await {
            Ok(done) if done.more && done.changed + done.swept + done.ticked + done.removed > 0 => {
                tokio::task::yield_now().await;
                continue;
            }
            Ok(done) => {
                let now = client.tools().clock.now();
                wait = done.next_tick.map_or(wait, |tick| wait.min(tick.since(now).as_duration()));
            }
            Err(error) => tracing::warn!(%error, "maintenance"),
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = bell.work.since(&mut heard) => {}
        }
    }
}

fn period(random: u64) -> Duration {
    PERIOD * 3 / 4 + PERIOD / 2 * u32::try_from(random % 1_000).unwrap_or(0) / 1_000
}
