//! Tasks are given out and come back: claims, settlements, progress.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{Namespace, OpId, PoolName, RunnerId};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lease::Token;
use ekiden_core::limits;
use ekiden_core::newer::Newer;
use ekiden_core::plan::{Goodbye, Happen, Happened, Report, View};
use ekiden_core::pool::PoolSettings;
use ekiden_core::record::{Record, Signal, Versioned};
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::task::{Phase, Progress, Task};
use ekiden_core::time::Millis;
use ekiden_store::{Alone, Claimed, PlanError, RecordQuery, StoreError, StoreExt, TaskQuery};

use super::StoreQueue;
use super::settings::Known;
use crate::error::{Error, Result};
use crate::port::{Ask, LeaseRef, Leased, Settled, SettledAndLeased, Settlement, TaskRef, Verdict};

impl StoreQueue {
    pub(super) async fn lease(&self, ask: Ask) -> Result<Vec<Leased>> {
        let unheard = self.notifiers.with(&ask.namespace, |bell| bell.stands.take_unheard()).unwrap_or_default();
        if !unheard.is_empty() {
            Box::pin(self.give_back(unheard)).await;
        }
        match self.store().claim(self.claim(&ask).await?).await {
            Ok(claimed) => Ok(self.given(claimed)),
            Err(error) => Box::pin(self.lease_again(&ask, error)).await,
        }
    }

    /// A passing error is met by the same claim again: under its id it gives what the first try may have taken.
    async fn lease_again(&self, ask: &Ask, failed: StoreError) -> Result<Vec<Leased>> {
        let again = || async { self.store().claim(self.claim(ask).await?).await.map_err(Error::from) };
        Ok(self.given(self.persist(Err(failed.into()), again).await?))
    }

    async fn claim(&self, ask: &Ask) -> Result<Claim> {
        let mut pools = Vec::with_capacity(ask.pools.len());
        let mut lease = limits::LEASE_MAX;
        for pool in ask.pools.iter() {
            let (settings, _) = self.settings(&ask.namespace, pool).await?;
            lease = lease.min(settings.lease);
            pools.push(claim_pool(ask, pool, &settings));
        }
        let claim = self.claim_from(ask, pools);
        if !self.has_just_beaten(&ask.namespace, &ask.holder) {
            // What cannot be asked for changes nothing.
            claim.check()?;
            Box::pin(self.beat_by_claim(ask, lease)).await?;
        }
        Ok(claim)
    }

    /// A claim is a sign of life: whoever holds tasks has a record, so that others find what it leaves behind. One that was
    /// declared dead or said goodbye is given nothing, as nobody looks any more at what such a one holds.
    async fn beat_by_claim(&self, ask: &Ask, lease: Millis) -> Result<()> {
        let found = self.records(vec![Key::runner(&ask.namespace, &ask.holder)]).await?.pop().flatten();
        let runner = match found.map(|found| found.record) {
            Some(Record::Runner(runner)) => Arc::unwrap_or_clone(runner),
            _ => Runner {
                namespace: ask.namespace.clone(),
                id: ask.holder.clone(),
                started_at: self.now(),
                last_heartbeat: self.now(),
                status: RunnerStatus::Running,
                lease,
                project_root: String::new(),
                pools: ask.pools.to_vec(),
                kinds: ask.kinds.to_vec(),
                newer: Newer::NONE,
            },
        };
        self.note_beat(runner).await
    }

    /// Whether a runner's beat went through this queue within half its lease: nobody can have given it up since, and what it
    /// claims now it keeps for a while.
    fn has_just_beaten(&self, namespace: &Namespace, runner: &RunnerId) -> bool {
        self.has_beaten_by(namespace, runner, self.clock.monotonic())
    }

    fn has_beaten_by(&self, namespace: &Namespace, runner: &RunnerId, now: Duration) -> bool {
        let beat = self.last_beat(namespace, runner);
        beat.is_some_and(|beat| now.saturating_sub(beat.at) < beat.lease.as_duration() / 2)
    }

    /// The claim, if the settings of all its pools are known and its holder is known to live.
    pub(super) fn known_claim(&self, ask: &Ask) -> Option<Claim> {
        let now = self.clock.monotonic();
        if !self.has_beaten_by(&ask.namespace, &ask.holder, now) {
            return None;
        }
        let mut pools = Vec::with_capacity(ask.pools.len());
        for pool in ask.pools.iter() {
            let asked = |known: &Known| claim_pool(ask, pool, &known.settings);
            pools.push(self.with_known(&ask.namespace, pool, now, asked)?);
        }
        Some(self.claim_from(ask, pools))
    }

    fn claim_from(&self, ask: &Ask, pools: Vec<ClaimPool>) -> Claim {
        Claim {
            id: ask.id,
            now: self.now(),
            pools,
            kinds: Kinds::Only(ask.kinds.clone()),
            limit: ask.limit,
            holder: ask.holder.clone(),
            lease: LeaseTerm::Heartbeat,
        }
    }

    /// A repeated claim also gives what was cancelled meanwhile; that is told by its signal, and is not to be run.
    pub(super) fn given(&self, claimed: Claimed) -> Vec<Leased> {
        self.tell_of_the_rest(&claimed);
        let mut leased = Vec::with_capacity(claimed.tasks.len());
        for versioned in claimed.tasks {
            let Some(task) = versioned.record.as_task().filter(|task| task.state.phase == Phase::Running).cloned()
            else {
                continue;
            };
            self.announcer.tell(&task);
            leased.push(Leased {
                spec: task.spec.clone(),
                attempts: task.state.attempts,
                answer: task.state.answer.as_deref().cloned(),
                lease: lease_of(&task, Some(versioned)),
            });
        }
        leased
    }

    /// A claim of large tasks ends before it has as many as were asked for (C11), and whoever asked takes it for the last there
    /// were. So runners with room look again.
    fn tell_of_the_rest(&self, claimed: &Claimed) {
        let tasks = || claimed.tasks.iter().filter_map(|versioned| versioned.record.as_task());
        if let Some(task) = tasks().next()
            && tasks().map(|task| task.content_bytes()).sum::<usize>() >= limits::CLAIM_BYTES_MAX
        {
            self.notifiers.with(&task.spec.namespace, |bell| bell.ready.ring());
        }
    }

    pub(super) async fn settle_marked(&self, lease: LeaseRef, verdict: Verdict) -> Result<Settled> {
        self.settle_one(Settlement { id: self.op_id(), lease, verdict }).await
    }

    fn settle_one(&self, settlement: Settlement) -> impl Future<Output = Result<Settled>> + Send {
        // Made here and not inside, where what is handed over would be kept twice.
        let (id, plan, view) = prepare(settlement);
        let mut alone = Alone::new(id, plan, view, None);
        async move {
            let first = alone.finish(self.store(), self.now()).await;
            self.settled_or_again(id, alone.plan(), first).await
        }
    }

    async fn settled_or_again(&self, id: OpId, plan: &Happen, first: Result<Happened, PlanError>) -> Result<Settled> {
        let happened = match first {
            Err(PlanError::Store(error)) if error.retryable => {
                let again = Box::pin(self.carry_out_as(id, plan, View::default())).await;
                again.map_err(|later| later.after(Some(&error.into())))
            }
            outcome => outcome.map_err(Error::from),
        };
        happened.map(|happened| self.settled(happened))
    }

    /// A settlement alone is spared the lists. Each way is a box of its own, of the size that it needs.
    pub(super) fn settle(
        &self,
        mut settlements: Vec<Settlement>,
        then: Option<Ask>,
    ) -> Pin<Box<dyn Future<Output = SettledAndLeased> + Send + '_>> {
        match (settlements.pop(), then) {
            (Some(one), None) if settlements.is_empty() => {
                let settled = self.settle_one(one);
                Box::pin(async { SettledAndLeased { settled: vec![settled.await], leased: Ok(Vec::new()) } })
            }
            (Some(one), Some(ask)) if settlements.is_empty() => match self.known_claim(&ask) {
                Some(claim) => Box::pin(self.settle_one_and_lease(one, ask, claim)),
                None => Box::pin(self.settle_and_lease(vec![one], Some(ask))),
            },
            (last, then) => {
                settlements.extend(last);
                Box::pin(self.settle_and_lease(settlements, then))
            }
        }
    }

    fn settle_one_and_lease(
        &self,
        settlement: Settlement,
        ask: Ask,
        claim: Claim,
    ) -> impl Future<Output = SettledAndLeased> + Send {
        let (id, plan, view) = prepare(settlement);
        let now = claim.now;
        let mut alone = Alone::new(id, plan, view, Some(claim));
        async move {
            let first = alone.finish(self.store(), now).await;
            let settled = self.settled_or_again(id, alone.plan(), first).await;
            let leased = match alone.claimed(self.store()).await {
                Ok(claimed) => Ok(self.given(claimed)),
                Err(error) => Box::pin(self.lease_again(&ask, error)).await,
            };
            SettledAndLeased { settled: vec![settled], leased }
        }
    }

    async fn settle_and_lease(&self, settlements: Vec<Settlement>, then: Option<Ask>) -> SettledAndLeased {
        let claim = match &then {
            Some(ask) => self.claim(ask).await.map(Some),
            None => Ok(None),
        };
        let now = self.now();
        let (mut plans, mut views) = (Vec::with_capacity(settlements.len()), Vec::with_capacity(settlements.len()));
        for settlement in settlements {
            let (id, plan, view) = prepare(settlement);
            plans.push((id, plan));
            views.push(view);
        }
        let (claim, refused) = match claim {
            Ok(claim) => (claim, None),
            Err(error) => (None, Some(error)),
        };
        let (outcomes, claimed) = self.store().run_all_and_claim(&plans, views, claim, now).await;
        let outcomes = self.persist_all(&plans, outcomes, now).await;
        let settled = outcomes.into_iter().map(|outcome| outcome.map(|happened| self.settled(happened))).collect();
        let leased = match (claimed, &then, refused) {
            (Some(Ok(claimed)), ..) => Ok(self.given(claimed)),
            (Some(Err(error)), Some(ask), _) => self.lease_again(ask, error).await,
            (_, _, Some(error)) => Err(error),
            (_, _, None) => {
                debug_assert!(then.is_none(), "a claim that was asked for has an answer");
                Ok(Vec::new())
            }
        };
        SettledAndLeased { settled, leased }
    }

    fn settled(&self, happened: Happened) -> Settled {
        let task = happened.task();
        if let Happened::Changed(task) = &happened {
            self.announce(task);
        }
        let waits = matches!(task.state.phase, Phase::Queued | Phase::RetryScheduled);
        Settled { state: task.state.phase, next_run_at: waits.then_some(task.state.next_run_at) }
    }

    pub(super) async fn note_progress(&self, lease: LeaseRef, progress: Progress) -> Result<()> {
        let plan = Report { task: lease.task.key(), token: lease.token, progress };
        let task = self.carry_out(&plan).await?;
        self.announcer.tell_progress(&task);
        Ok(())
    }

    pub(super) async fn note_goodbye(&self, namespace: &Namespace, runner: &RunnerId) -> Result<()> {
        self.forget_beats(&(namespace.clone(), runner.clone()));
        self.carry_out(&Goodbye { runner: Key::runner(namespace, runner) }).await.map(drop)
    }

    pub(super) async fn signals_for(&self, namespace: &Namespace, runner: &RunnerId) -> Result<Vec<Signal>> {
        let query = RecordQuery {
            namespace: namespace.clone(),
            kind: RecordKind::Signal,
            prefix: Key::prefix(runner.as_str()),
            cursor: None,
            limit: limits::PAGE_ITEMS_MAX,
        };
        let page = self.read(|| self.store().records(query.clone())).await?;
        let signal = |found: Versioned| match found.record {
            Record::Signal(signal) => Some(signal),
            _ => None,
        };
        Ok(page.items.into_iter().filter_map(signal).collect())
    }

    pub(super) async fn held_by(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<LeaseRef>> {
        let query = TaskQuery::oldest(TaskFilter::held_by(namespace, runner), limits::PAGE_ITEMS_MAX);
        let page = self.read(|| self.store().tasks(query.clone())).await?;
        let held = page.items.into_iter().filter_map(|found| {
            let task = found.record.as_task()?.clone();
            Some(lease_of(&task, Some(found)))
        });
        Ok(held.collect())
    }
}

/// What a claim says of a pool.
fn claim_pool(ask: &Ask, pool: &PoolName, settings: &PoolSettings) -> ClaimPool {
    ClaimPool {
        namespace: ask.namespace.clone(),
        pool: pool.clone(),
        paused: settings.paused,
        running_max: settings.running_max,
    }
}

/// The plan of a settlement, its id, and what it need not read.
fn prepare(settlement: Settlement) -> (OpId, Happen, View) {
    let event = settlement.event();
    let LeaseRef { task, seen, .. } = settlement.lease;
    let view = seen.map_or_else(View::default, |seen| View::default().with(*seen));
    (settlement.id, Happen { task: task.into_key(), event }, view)
}

fn lease_of(task: &Arc<Task>, seen: Option<Versioned>) -> LeaseRef {
    let task_ref = TaskRef { namespace: task.spec.namespace.clone(), id: task.spec.id.clone() };
    LeaseRef { task: task_ref, token: Token(task.state.execution_no), seen: seen.map(Box::new) }
}
