//! What people set: pools, schedules, and commands on many tasks. Pool settings are known for up to a second.

use std::sync::Arc;
use std::time::Duration;

use ekiden_core::id::{Namespace, PoolName, ScheduleId, SweepId};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::plan::{RemoveSchedule, SetPool, SetSchedule, StartSweep};
use ekiden_core::pool::{PoolSettings, Profile};
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::record::{Pool, Record};
use ekiden_core::schedule::Schedule;
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::transition::Start;

use super::{StoreQueue, locked};
use crate::error::Result;
use crate::port::{Bulk, NewSchedule};

/// One second: with a claim a second, a pause holds within two.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// 4,096 pools: a cache, not a list; beyond it everything is read again.
const KNOWN_MAX: usize = 4_096;

/// Where a pool's settings come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Somebody set them.
    Set,
    /// Nobody did.
    Default,
}

/// What is known of a pool, and since when.
#[derive(Clone, Debug)]
pub(super) struct Known {
    settings: Arc<PoolSettings>,
    source: Source,
    read_at: Duration,
}

impl StoreQueue {
    pub(super) async fn settings(&self, namespace: &Namespace, pool: &PoolName) -> Result<(Arc<PoolSettings>, Source)> {
        let name = (namespace.clone(), pool.clone());
        let read_at = self.clock.monotonic();
        let known = locked(&self.pools).get(&name).cloned();
        if let Some(known) = known.filter(|known| read_at.saturating_sub(known.read_at) < KNOWN_FOR) {
            return Ok((known.settings, known.source));
        }
        let found = self.records(vec![Key::pool(namespace, pool)]).await?.pop().flatten();
        let (settings, source) = match found.map(|found| found.record) {
            Some(Record::Pool(pool)) => (Arc::new(pool.settings.clone()), Source::Set),
            _ => (Arc::new(self.default_settings()), Source::Default),
        };
        let mut pools = locked(&self.pools);
        if pools.len() >= KNOWN_MAX {
            pools.clear();
        }
        pools.insert(name, Known { settings: settings.clone(), source, read_at });
        Ok((settings, source))
    }

    /// Whether a pool is known to have a limit, so that the end of one task is the turn of another.
    pub(super) fn is_limited(&self, namespace: &Namespace, pool: &PoolName) -> bool {
        let pools = locked(&self.pools);
        pools.get(&(namespace.clone(), pool.clone())).is_some_and(|known| known.settings.running_max.is_some())
    }

    /// Runner settings and limits of a pool do not depend on the kind of its tasks; any but `prompt` stands for all.
    fn default_settings(&self) -> PoolSettings {
        let any = ekiden_core::id::Kind::new("any").expect("three letters are a valid id");
        Profile::of(self.store().info().name, &any).settings()
    }

    pub(super) async fn change_pool(&self, namespace: Namespace, name: PoolName, settings: PoolSettings) -> Result<()> {
        let pool = Arc::new(Pool { name: name.clone(), settings });
        self.carry_out(&SetPool { namespace: namespace.clone(), pool }).await?;
        locked(&self.pools).remove(&(namespace.clone(), name));
        self.bell_of(&namespace).ready.ring();
        Ok(())
    }

    pub(super) async fn change_schedule(&self, new: NewSchedule) -> Result<Arc<Schedule>> {
        let now = self.now();
        let namespace = new.task.task.namespace.clone();
        let task = &new.task;
        if !task.parents.is_empty()
            || task.after_group.is_some()
            || task.start == Start::Held
            || task.idempotency.is_some()
        {
            let why = "what a schedule hands in cannot wait for others, be held, or have an idempotency key of its own";
            return Err(Refusal::new(ReasonCode::ScheduleInvalid).with("schedule", &new.id).with("why", why).into());
        }
        let schedule = Schedule {
            id: new.id,
            every: new.every,
            missed: new.missed,
            overlap: new.overlap,
            paused: new.paused,
            template: Arc::new(self.spec(new.task, now).await?),
            next_at: now,
            last: None,
        };
        let schedule = self.carry_out(&SetSchedule { schedule }).await?;
        self.bell_of(&namespace).work.ring();
        Ok(schedule)
    }

    pub(super) async fn all_schedules(&self, namespace: &Namespace) -> Result<Vec<Arc<Schedule>>> {
        let schedule = |record: Record| match record {
            Record::Schedule(schedule) => Some(schedule),
            _ => None,
        };
        Ok(self.listed(namespace, RecordKind::Schedule).await?.into_iter().filter_map(schedule).collect())
    }

    pub(super) async fn drop_schedule(&self, namespace: &Namespace, schedule: &ScheduleId) -> Result<()> {
        self.carry_out(&RemoveSchedule { schedule: Key::schedule(namespace, schedule) }).await
    }

    pub(super) async fn start_sweep(&self, id: SweepId, bulk: Bulk) -> Result<Arc<Sweep>> {
        let (namespace, work) = match bulk {
            Bulk::Cancel(filter) => (filter.namespace.clone(), SweepWork::Cancel(filter)),
            Bulk::Retry(filter) => (filter.namespace.clone(), SweepWork::Retry(filter)),
            Bulk::Purge(filter) => (filter.namespace.clone(), SweepWork::Purge(filter)),
        };
        let sweep = Arc::new(Sweep::new(id, work, self.now()));
        let sweep = self.carry_out(&StartSweep { namespace: namespace.clone(), sweep }).await?;
        self.bell_of(&namespace).work.ring();
        Ok(sweep)
    }

    pub(super) async fn sweep(&self, namespace: &Namespace, id: &SweepId) -> Result<Option<Arc<Sweep>>> {
        let found = self.records(vec![Key::sweep(namespace, id)]).await?.pop().flatten();
        Ok(found.and_then(|found| match found.record {
            Record::Sweep(sweep) => Some(sweep),
            _ => None,
        }))
    }
}
