//! What a runner is told before it starts; mistakes are told before anything runs.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ekiden_core::id::{Kind, PoolName};
use ekiden_core::limits;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::time::Millis;

use super::{Ended, Runner};
use crate::client::{Client, default_pool};
use crate::context::Context;
use crate::error::Result;
use crate::handler::{Handling, IntoDone, Payload, TaskHandler};
use crate::registry::Registry;

/// Chooses what a runner does.
#[must_use = "a runner does nothing until it is run"]
pub struct RunnerBuilder {
    client: Client,
    registry: Registry,
    pools: Vec<String>,
    limits: Vec<(String, usize)>,
    name: String,
    project_root: String,
    concurrency: Option<usize>,
    lease: Option<Duration>,
    poll: Option<Duration>,
    grace: Duration,
    cancel_grace: Duration,
    maintenance: bool,
}

/// What a runner was told, checked.
pub(crate) struct Options {
    pub(super) name: String,
    pub(super) project_root: String,
    pub(super) calls: BTreeMap<Kind, Handling>,
    /// Kinds without a limit of their own, in portions that one claim can ask for.
    pub(super) open_kinds: Vec<Arc<[Kind]>>,
    pub(super) limited_kinds: Vec<(Kind, usize)>,
    pub(super) pools: Arc<[PoolName]>,
    pub(super) concurrency: Option<usize>,
    pub(super) lease: Option<Millis>,
    pub(super) poll: Option<Duration>,
    pub(super) grace: Duration,
    pub(super) cancel_grace: Duration,
    pub(super) maintenance: bool,
}

impl Options {
    /// The longest time that a handler may take to end by itself.
    pub(super) fn stop_within(&self) -> Duration {
        self.calls.values().map(|handling| handling.stop_within).max().unwrap_or_default()
    }
}

impl RunnerBuilder {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            registry: Registry::new(),
            pools: Vec::new(),
            limits: Vec::new(),
            name: "runner".to_owned(),
            project_root: String::new(),
            concurrency: None,
            lease: None,
            poll: None,
            grace: Duration::from_secs(30),
            cancel_grace: Duration::from_millis(500),
            maintenance: true,
        }
    }

    /// A handler as an async fn with a typed payload.
    pub fn handler<P, F, Fut, R>(mut self, handler: F) -> Self
    where
        P: Payload,
        F: Fn(P, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = R> + Send + 'static,
        R: IntoDone + 'static,
    {
        self.registry = self.registry.handler(handler);
        self
    }

    /// A handler as an object.
    pub fn task_handler(mut self, handler: impl TaskHandler) -> Self {
        self.registry = self.registry.task_handler(handler);
        self
    }

    /// The handlers of a registry, beside those that were named one by one.
    pub fn handlers(mut self, registry: Registry) -> Self {
        self.registry = self.registry.and(registry);
        self
    }

    /// A pool to work for; `default` if none is named. Several are served by priority, then age.
    pub fn pool(mut self, pool: impl Into<String>) -> Self {
        self.pools.push(pool.into());
        self
    }

    /// How many tasks run at once; the pool's setting if nobody says, which is one a processor core.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = Some(tasks);
        self
    }

    /// How many tasks of one kind run at once on this runner.
    pub fn limit(mut self, task_type: impl Into<String>, tasks: usize) -> Self {
        self.limits.push((task_type.into(), tasks));
        self
    }

    /// What its record is called; each start adds something of its own.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The folder that it works for, for people who read its record; empty if nobody says.
    pub fn project_root(mut self, folder: impl Into<String>) -> Self {
        self.project_root = folder.into();
        self
    }

    /// How long it may be silent before others take its tasks; the pool's setting if nobody says.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// How often it looks when nothing wakes it; the pool's setting if nobody says.
    pub fn poll(mut self, period: Duration) -> Self {
        self.poll = Some(period);
        self
    }

    /// How long handlers may go on after a shutdown was asked for; 30 seconds if nobody says.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long a cancelled handler may take to end by itself; half a second if nobody says, and longer for handlers that
    /// ask for it with [`TaskHandler::stop_within`].
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.cancel_grace = grace;
        self
    }

    /// Leaves what is due (retries, lost leases, schedules, purges) to other processes.
    pub fn without_maintenance(mut self) -> Self {
        self.maintenance = false;
        self
    }

    /// Checks it all.
    pub fn build(self) -> Result<Runner> {
        let wrong = |why: &str| Refusal::new(ReasonCode::RunnerInvalid).with("why", why);
        let calls = self.registry.calls()?;
        for handling in calls.values() {
            handling.check()?;
        }
        let mut limited_kinds = Vec::new();
        for (task_type, limit) in self.limits {
            let kind = Kind::new(&task_type)?;
            if !calls.contains_key(&kind) {
                return Err(wrong("a limit for a kind without a handler").with("task_type", task_type).into());
            }
            if limit == 0 {
                return Err(wrong("a limit of zero").with("task_type", task_type).into());
            }
            limited_kinds.push((kind, limit));
        }
        let is_open = |kind: &&Kind| !limited_kinds.iter().any(|(limited, _)| limited == *kind);
        let open: Vec<Kind> = calls.keys().filter(is_open).cloned().collect();
        let mut pools = self.pools.iter().map(PoolName::new).collect::<Result<Vec<_>, _>>()?;
        if pools.is_empty() {
            pools.push(default_pool());
        }
        pools.sort();
        pools.dedup();
        if pools.len() > limits::CLAIM_POOLS_MAX {
            return Err(wrong("too many pools").with("max", limits::CLAIM_POOLS_MAX).into());
        }
        if self.concurrency == Some(0) {
            return Err(wrong("a concurrency of zero").into());
        }
        if self.poll == Some(Duration::ZERO) {
            return Err(wrong("a poll of zero").into());
        }
        let lease = self.lease.map(Millis::from);
        if let Some(lease) = lease {
            lease.check("lease", limits::LEASE_MAX)?;
            if lease < limits::LEASE_MIN {
                return Err(wrong("a lease below the minimum").with("min", limits::LEASE_MIN).into());
            }
        }
        let options = Options {
            name: self.name,
            project_root: clip(self.project_root),
            calls,
            open_kinds: open.chunks(limits::CLAIM_KINDS_MAX).map(Arc::from).collect(),
            limited_kinds,
            pools: pools.into(),
            concurrency: self.concurrency,
            lease,
            poll: self.poll,
            grace: self.grace,
            cancel_grace: self.cancel_grace,
            maintenance: self.maintenance,
        };
        Ok(Runner::new(self.client, options))
    }

    /// Builds it and runs it until the future is ready.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<Ended> {
        self.build()?.run_until(shutdown).await
    }

    /// Builds it and runs it until SIGINT or SIGTERM; a second one ends it at once.
    #[cfg(unix)]
    pub async fn run(self) -> Result<Ended> {
        self.build()?.run().await
    }
}

fn clip(mut folder: String) -> String {
    let mut end = folder.len().min(limits::PROJECT_ROOT_BYTES_MAX);
    while !folder.is_char_boundary(end) {
        end -= 1;
    }
    folder.truncate(end);
    folder
}
