//! Tasks are given out and come back: claims, settlements, progress, and the signs of life that hold leases.

use std::sync::Arc;

use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{Namespace, RunnerId};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lease::Token;
use ekiden_core::limits;
use ekiden_core::plan::{Beat, Goodbye, Happen, Happened, Report, View};
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::{Record, Signal, Versioned};
use ekiden_core::runner::Runner;
use ekiden_core::task::{Phase, Progress, Task};
use ekiden_store::{Claimed, PlanError, RecordQuery, StoreExt, TaskQuery};

use super::{StoreQueue, locked};
use crate::error::{Error, Result};
use crate::port::{Ask, LeaseRef, Leased, Settled, SettledAndLeased, Settlement, TaskRef, Verdict};

impl StoreQueue {
    pub(super) async fn lease(&self, ask: Ask) -> Result<Vec<Leased>> {
        let claim = self.claim(&ask).await?;
        let first = self.store.claim(claim.clone()).await.map_err(Error::from);
        let again = || async { self.store.claim(claim.clone()).await.map_err(Error::from) };
        Ok(self.given(self.persist(first, again).await?))
    }

    async fn claim(&self, ask: &Ask) -> Result<Claim> {
        let mut pools = Vec::with_capacity(ask.pools.len());
        for pool in ask.pools.iter() {
            let (settings, _) = self.settings(&ask.namespace, pool).await?;
            pools.push(ClaimPool {
                namespace: ask.namespace.clone(),
                pool: pool.clone(),
                paused: settings.paused,
                running_max: settings.running_max,
            });
        }
        Ok(Claim {
            id: ask.id,
            now: self.now(),
            pools,
            kinds: Kinds::Only(ask.kinds.to_vec()),
            limit: ask.limit,
            holder: ask.holder.clone(),
            lease: LeaseTerm::Heartbeat,
        })
    }

    /// A repeated claim also gives what was cancelled meanwhile; that is told by its signal, and is not to be run.
    fn given(&self, claimed: Claimed) -> Vec<Leased> {
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

    pub(super) async fn settle_marked(&self, lease: LeaseRef, verdict: Verdict) -> Result<Settled> {
        self.settle_one(Settlement { id: self.op_id(), lease, verdict }).await
    }

    async fn settle_one(&self, settlement: Settlement) -> Result<Settled> {
        let plan = Happen { task: settlement.lease.task.key(), event: settlement.event() };
        let view = settlement.lease.seen.map_or_else(View::default, |seen| View::default().with(seen));
        let happened = match self.store.run_seen(&plan, settlement.id, self.now(), view).await {
            Err(PlanError::Store(error)) if error.retryable => {
                let again = Box::pin(self.carry_out_as(settlement.id, &plan, View::default())).await;
                again.map_err(|later| later.after(Some(&error.into())))
            }
            outcome => outcome.map_err(Error::from),
        };
        happened.map(|happened| self.settled(happened))
    }

    /// A settlement alone is spared the lists; what rarely happens is boxed, so that the rest stays small.
    pub(super) async fn settle(&self, mut settlements: Vec<Settlement>, then: Option<Ask>) -> SettledAndLeased {
        match settlements.pop() {
            Some(one) if settlements.is_empty() && then.is_none() => {
                SettledAndLeased { settled: vec![self.settle_one(one).await], leased: Ok(Vec::new()) }
            }
            last => {
                settlements.extend(last);
                Box::pin(self.settle_and_lease(settlements, then)).await
            }
        }
    }

    async fn settle_and_lease(&self, settlements: Vec<Settlement>, then: Option<Ask>) -> SettledAndLeased {
        let asked = then.is_some();
        let claim = match then {
            Some(ask) => self.claim(&ask).await.map(Some),
            None => Ok(None),
        };
        let now = self.now();
        let (mut plans, mut views) = (Vec::with_capacity(settlements.len()), Vec::with_capacity(settlements.len()));
        for settlement in settlements {
            plans.push((settlement.id, Happen { task: settlement.lease.task.key(), event: settlement.event() }));
            views.push(settlement.lease.seen.map_or_else(View::default, |seen| View::default().with(seen)));
        }
        let (claim, refused) = match claim {
            Ok(claim) => (claim, None),
            Err(error) => (None, Some(error)),
        };
        let (outcomes, claimed) = self.store.run_all_and_claim(&plans, views, claim.clone(), now).await;
        let outcomes = self.persist_all(&plans, outcomes, now).await;
        let settled = outcomes.into_iter().map(|outcome| outcome.map(|happened| self.settled(happened))).collect();
        let leased = match (claimed, refused) {
            (Some(first), _) => self.given_after(first, claim).await,
            (None, Some(error)) => Err(error),
            (None, None) => {
                debug_assert!(!asked, "a claim that was asked for has an answer");
                Ok(Vec::new())
            }
        };
        SettledAndLeased { settled, leased }
    }

    async fn given_after(
        &self,
        first: Result<Claimed, ekiden_store::StoreError>,
        claim: Option<Claim>,
    ) -> Result<Vec<Leased>> {
        let again = || {
            let claim = claim.clone();
            async {
                match claim {
                    Some(claim) => self.store.claim(claim).await.map_err(Error::from),
                    None => Err(ReasonCode::ClaimInvalid.into()),
                }
            }
        };
        Ok(self.given(self.persist(first.map_err(Error::from), again).await?))
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

    pub(super) async fn note_beat(&self, runner: Runner) -> Result<()> {
        // A beat that does not get through in time is followed by the next one; only the latest moment counts.
        let id = runner.id.clone();
        let began = self.clock.monotonic();
        match self.store.run(&Beat { runner }, self.op_id(), self.now()).await {
            Ok(_) => {
                locked(&self.beats).insert(id, began);
                Ok(())
            }
            Err(PlanError::Refused(refusal)) => {
                locked(&self.beats).remove(&id);
                Err(refusal.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn note_goodbye(&self, namespace: &Namespace, runner: &RunnerId) -> Result<()> {
        locked(&self.beats).remove(runner);
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
        let page = self.read(|| self.store.records(query.clone())).await?;
        let signal = |found: Versioned| match found.record {
            Record::Signal(signal) => Some(signal),
            _ => None,
        };
        Ok(page.items.into_iter().filter_map(signal).collect())
    }

    pub(super) async fn held_by(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<LeaseRef>> {
        let query = TaskQuery::oldest(TaskFilter::held_by(namespace, runner), limits::PAGE_ITEMS_MAX);
        let page = self.read(|| self.store.tasks(query.clone())).await?;
        let held = page.items.into_iter().filter_map(|found| {
            let task = found.record.as_task()?.clone();
            Some(lease_of(&task, Some(found)))
        });
        Ok(held.collect())
    }
}

fn lease_of(task: &Arc<Task>, seen: Option<Versioned>) -> LeaseRef {
    let task_ref = TaskRef { namespace: task.spec.namespace.clone(), id: task.spec.id.clone() };
    LeaseRef { task: task_ref, token: Token(task.state.execution_no), seen }
}
