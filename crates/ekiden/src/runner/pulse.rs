//! Signs of life. One record a runner, renewed as often as core says; a runner that was declared dead begins anew.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ekiden_core::id::RunnerId;
use ekiden_core::newer::Newer;
use ekiden_core::reason::ReasonCode;
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::time::Millis;
use tokio::sync::watch;

use super::builder::Options;
use crate::client::Client;
use crate::error::Result;

/// A runner's life, shared by those who depend on it.
pub(super) struct Pulse {
    client: Client,
    options: Arc<Options>,
    lease: Millis,
    period: Duration,
    life: Mutex<Life>,
    alive: watch::Sender<bool>,
}

#[derive(Clone, Debug)]
struct Life {
    id: RunnerId,
    /// Rises with each new incarnation.
    incarnation: u64,
    /// When the last acknowledged beat was sent, by the monotonic clock.
    acknowledged: Option<Duration>,
}

impl Pulse {
    /// `period` is how often it beats.
    pub(super) fn new(client: Client, options: Arc<Options>, lease: Millis, period: Duration) -> Result<Self> {
        let life = Mutex::new(Life { id: new_id(&client, &options.name)?, incarnation: 0, acknowledged: None });
        Ok(Self { client, options, lease, period, life, alive: watch::Sender::new(false) })
    }

    fn life(&self) -> Life {
        self.life.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who claims now.
    pub(super) fn runner(&self) -> RunnerId {
        self.life().id
    }

    /// Which incarnation claims now.
    pub(super) fn incarnation(&self) -> u64 {
        self.life.lock().unwrap_or_else(PoisonError::into_inner).incarnation
    }

    /// Whether a beat was acknowledged within half a lease. Otherwise a claim might outlive its claimer's name.
    pub(super) fn may_claim(&self) -> bool {
        let now = self.client.tools().clock.monotonic();
        let acknowledged = self.life.lock().unwrap_or_else(PoisonError::into_inner).acknowledged;
        acknowledged.is_some_and(|at| now.saturating_sub(at) < self.lease.as_duration() / 2)
    }

    /// Waits for the first acknowledged beat.
    pub(super) async fn started(&self) {
        let mut alive = self.alive.subscribe();
        // The sender lives as long as this pulse.
        let _ = alive.wait_for(|alive| *alive).await;
    }

    /// Beats for ever.
    pub(super) async fn beat_on(self: Arc<Self>) {
        // A beat that hangs must not stop the next one: three may fail within a lease.
        let deadline = self.lease.as_duration() / 4;
        loop {
            let next = tokio::time::sleep(self.period);
            let wait = match tokio::time::timeout(deadline, self.beat()).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => {
                    tracing::warn!(runner_id = self.runner().as_str(), %error, "no beat");
                    Some(self.period / 4)
                }
                Err(_) => Some(Duration::ZERO),
            };
            match wait {
                None => next.await,
                Some(wait) => tokio::time::sleep(wait).await,
            }
        }
    }

    async fn beat(&self) -> Result<()> {
        let life = self.life();
        let sent = self.client.tools().clock.monotonic();
        match self.client.queue().beat(self.record(&life)).await {
            Ok(()) => {
                self.live(Life { acknowledged: Some(sent), ..life });
                self.alive.send_replace(true);
                Ok(())
            }
            Err(error) if error.code() == ReasonCode::RunnerDead => {
                // What this incarnation held goes to others; its handlers may still settle. The next one begins now.
                let id = new_id(&self.client, &self.options.name)?;
                tracing::warn!(runner_id = life.id.as_str(), next = id.as_str(), "declared dead, begins anew");
                self.live(Life { id, incarnation: life.incarnation + 1, acknowledged: None });
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn live(&self, life: Life) {
        *self.life.lock().unwrap_or_else(PoisonError::into_inner) = life;
    }

    fn record(&self, life: &Life) -> Runner {
        let now = self.client.tools().clock.now();
        Runner {
            namespace: self.client.namespace().clone(),
            id: life.id.clone(),
            started_at: now,
            last_heartbeat: now,
            status: RunnerStatus::Running,
            lease: self.lease,
            project_root: self.options.project_root.clone(),
            pools: self.options.pools.to_vec(),
            kinds: self.options.calls.keys().cloned().collect(),
            newer: Newer::NONE,
        }
    }
}

/// Each start is a new incarnation with a name of its own.
fn new_id(client: &Client, name: &str) -> Result<RunnerId> {
    Ok(RunnerId::new(format!("{name}.{:016x}", client.random()))?)
}
