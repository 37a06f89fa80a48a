//! What people set: pools, schedules, and commands on many tasks. Pool settings are known for up to a second.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use ekiden_core::id::{Namespace, PoolName, ScheduleId, SweepId};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::newer::Newer;
use ekiden_core::plan::{RemoveSchedule, SetPool, SetSchedule, StartSweep};
use ekiden_core::pool::{PoolSettings, Profile};
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::record::{Pool, Record};
use ekiden_core::schedule::Schedule;
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::transition::Start;
use ekiden_store::{Page, RecordQuery};
use hashbrown::HashMap;

use super::StoreQueue;
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
    pub(super) settings: Arc<PoolSettings>,
    source: Source,
    read_at: Duration,
}

/// The pools that are known, by namespace, so that they are found without a copy of their names.
pub(super) type KnownPools = HashMap<Namespace, HashMap<PoolName, Known>>;

impl StoreQueue {
    fn known_pools(&self) -> RwLockReadGuard<'_, KnownPools> {
        self.pools.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_pools_mut(&self) -> RwLockWriteGuard<'_, KnownPools> {
        self.pools.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn settings(&self, namespace: &Namespace, pool: &PoolName) -> Result<(Arc<PoolSettings>, Source)> {
        match self.known_settings(namespace, pool) {
            Some(known) => Ok(known),
            // Rare, and large: the usual way stays small.
            None => Box::pin(self.read_settings(namespace, pool)).await,
        }
    }

    /// A page of the pools that somebody set.
    pub(super) async fn page_of_pools(
        &self,
        namespace: Namespace,
        cursor: Option<String>,
        limit: usize,
    ) -> Result<Page<Pool>> {
        let query = RecordQuery { namespace, kind: RecordKind::Pool, prefix: String::new(), cursor, limit };
        let page = self.read(|| self.store().records(query.clone())).await?;
        let pools = page.items.into_iter().filter_map(|found| match found.record {
            Record::Pool(pool) => Some(Pool::clone(&pool)),
            _ => None,
        });
        Ok(Page { items: pools.collect(), cursor: page.cursor })
    }

    /// The settings, if they were read a moment ago.
    pub(super) fn known_settings(&self, namespace: &Namespace, pool: &PoolName) -> Option<(Arc<PoolSettings>, Source)> {
        self.with_known(namespace, pool, self.clock.monotonic(), |known| (known.settings.clone(), known.source))
    }

    /// What somebody who has just looked at the clock wants to know of them.
    pub(super) fn with_known<T>(
        &self,
        namespace: &Namespace,
        pool: &PoolName,
        now: Duration,
        look: impl FnOnce(&Known) -> T,
    ) -> Option<T> {
        let pools = self.known_pools();
        let known = pools.get(namespace)?.get(pool)?;
        (now.saturating_sub(known.read_at) < KNOWN_FOR).then(|| look(known))
    }

    async fn read_settings(&self, namespace: &Namespace, pool: &PoolName) -> Result<(Arc<PoolSettings>, Source)> {
        let read_at = self.clock.monotonic();
        let found = self.records(vec![Key::pool(namespace, pool)]).await?.pop().flatten();
        let (settings, source) = match found.map(|found| found.record) {
            Some(Record::Pool(pool)) => (Arc::new(pool.settings.clone()), Source::Set),
            _ => (Arc::new(self.default_settings()), Source::Default),
        };
        if settings.running_max.is_some() {
            self.limited.store(true, Ordering::Relaxed);
        }
        let mut known = self.known_pools_mut();
        if known.values().map(HashMap::len).sum::<usize>() >= KNOWN_MAX {
            known.clear();
        }
        let pools = known.entry(namespace.clone()).or_default();
        pools.insert(pool.clone(), Known { settings: settings.clone(), source, read_at });
        Ok((settings, source))
    }

    /// Whether a pool is known to have a limit, so that the end of one task is the turn of another.
    pub(super) fn is_limited(&self, namespace: &Namespace, pool: &PoolName) -> bool {
        if !self.limited.load(Ordering::Relaxed) {
            return false;
        }
        let known = self.known_pools();
        let pool = known.get(namespace).and_then(|pools| pools.get(pool));
        pool.is_some_and(|known| known.settings.running_max.is_some())
    }

    /// Runner settings and limits of a pool do not depend on the kind of its tasks; any but `prompt` stands for all.
    fn default_settings(&self) -> PoolSettings {
        let any = ekiden_core::id::Kind::new("any").expect("three letters are a valid id");
        Profile::of(self.store().info().name, &any).settings()
    }

    pub(super) async fn change_pool(&self, namespace: Namespace, name: PoolName, settings: PoolSettings) -> Result<()> {
        let pool = Arc::new(Pool { name: name.clone(), settings, newer: Newer::NONE });
        self.carry_out(&SetPool { namespace: namespace.clone(), pool }).await?;
        if let Some(pools) = self.known_pools_mut().get_mut(&namespace) {
            pools.remove(&name);
        }
        self.notifiers.with(&namespace, |bell| bell.ready.ring());
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
        let known = self.settings(&new.task.task.namespace, &new.task.pool).await?;
        self.admit(&new.task.task.namespace, &new.task.envelope.task_type).await?;
        let schedule = Schedule {
            id: new.id,
            every: new.every,
            missed: new.missed,
            overlap: new.overlap,
            paused: new.paused,
            template: Arc::new(self.spec(new.task, &known, now)?),
            next_at: Some(now),
            last: None,
            newer: Newer::NONE,
        };
        let others = self.all_schedules(&namespace).await?;
        schedule.check_beside(others.iter().map(|other| &**other))?;
        let schedule = self.carry_out(&SetSchedule { schedule, lead: self.clock.lead() }).await?;
        self.needs_maintenance(&namespace);
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
        self.needs_maintenance(&namespace);
        Ok(sweep)
    }

    pub(super) async fn sweep(&self, namespace: &Namespace, id: &SweepId) -> Result<Option<Arc<Sweep>>> {
        let found = self.records(vec![Key::sweep(namespace, id)]).await?.pop().flatten();
        Ok(found.and_then(|found| match found.record {
            // One that was carried out is kept for callers who ask again; nothing of it is under way.
            Record::Sweep(sweep) => Some(sweep).filter(|sweep| sweep.ended_at.is_none()),
            _ => None,
        }))
    }
}
