//! Tasks are handed in: settings and wishes become the task's own policy, and one commit a task writes it.

use std::sync::Arc;

use ekiden_core::claim::Claim;
use ekiden_core::id::{Namespace, OpId, PoolName};
use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::order::Rank;
use ekiden_core::plan::{self, Enqueue, View};
use ekiden_core::pool::{Policy, PoolSettings, Profile};
use ekiden_core::reason::ReasonCode;
use ekiden_core::task::Spec;
use ekiden_core::time::Timestamp;
use ekiden_core::transition::Start;
use ekiden_store::{Claimed, PlanError, StoreError, StoreExt};

use super::StoreQueue;
use super::settings::Source;
use crate::bell::Bell;
use crate::error::{Error, Result};
use crate::port::{Enqueued, Leased, NewTask, Settlement, Verdict, When, Wishes};
use crate::stand::Standing;

impl StoreQueue {
    pub(super) async fn hand_in(&self, mut tasks: Vec<NewTask>) -> Vec<Result<Enqueued>> {
        match tasks.pop() {
            Some(task) if tasks.is_empty() => vec![Box::pin(self.hand_in_alone(Box::new(task))).await],
            last => {
                tasks.extend(last);
                Box::pin(self.hand_in_many(tasks, self.now())).await
            }
        }
    }

    /// One task is by far the most usual, and is spared the lists; what rarely happens is boxed, so that the rest stays small.
    pub(super) async fn hand_in_alone(&self, task: Box<NewTask>) -> Result<Enqueued> {
        let now = self.now();
        let known = self.settings(&task.task.namespace, &task.pool).await?;
        self.admit(&task.task.namespace, &task.envelope.task_type).await?;
        let handed_in = self.hand_in_one(self.prepare(*task, &known, now)?, now);
        handed_in.await
    }

    /// Looks at what it was given where it is: what is moved inside a future is kept twice, and one of more than a kilobyte costs the
    /// system's allocator several times as much as a smaller one.
    #[expect(clippy::manual_async_fn, reason = "the arguments of one are kept twice")]
    fn hand_in_one(&self, prepared: Prepared, now: Timestamp) -> impl Future<Output = Result<Enqueued>> + Send {
        async move {
            let Prepared { id, plan } = &prepared;
            if let Some(guest) = self.guest_of(plan, now) {
                return Box::pin(self.hand_over(*id, plan, guest, now)).await;
            }
            match self.store().run_seen(plan, *id, now, nothing_there(plan)).await {
                Ok(enqueued) => Ok(self.handed_in(&enqueued, &[])),
                Err(PlanError::Store(error)) if error.retryable => {
                    Box::pin(self.hand_in_again(*id, plan, error.into())).await
                }
                Err(error) => Err(error.into()),
            }
        }
    }

    /// Hands in, and serves a claim that waits for it in the same request.
    async fn hand_over(&self, id: OpId, plan: &Enqueue, guest: Guest, now: Timestamp) -> Result<Enqueued> {
        let Guest { standing, claim } = guest;
        let (first, claimed) = self.store().run_seen_and_claim(plan, id, now, nothing_there(plan), claim).await;
        let enqueued = match first {
            Ok(enqueued) => Ok(self.handed_in(&enqueued, &names_of(claimed.as_ref().ok()))),
            Err(PlanError::Store(error)) if error.retryable => self.hand_in_again(id, plan, error.into()).await,
            Err(error) => Err(error.into()),
        };
        self.serve(standing, claimed).await;
        enqueued
    }

    /// Gives a claim what was taken for it. Whoever waited for an error or for nothing hears nothing, and looks by itself. What
    /// was taken for somebody who went away goes back.
    async fn serve(&self, standing: Standing, claimed: Result<Claimed, StoreError>) {
        let Some(leased) = claimed.ok().map(|claimed| self.given(claimed)).filter(|leased| !leased.is_empty()) else {
            return;
        };
        if let Err(unheard) = standing.serve(leased) {
            self.give_back(unheard).await;
        }
    }

    /// Gives back what was taken for claims that went away.
    pub(super) async fn give_back(&self, unheard: Vec<Leased>) {
        let back = |leased: Leased| Settlement { id: self.op_id(), lease: leased.lease, verdict: Verdict::Returned };
        for outcome in self.settle(unheard.into_iter().map(back).collect(), None).await.settled {
            if let Err(error) = outcome {
                tracing::warn!(%error, "cannot give back what was taken for a claim that went away");
            }
        }
    }

    /// A claim that waits for a task like this one, if it may run at once. Only a store of this process knows a claim behind an
    /// enqueue for free.
    fn guest_of(&self, plan: &Enqueue, now: Timestamp) -> Option<Guest> {
        let spec = &plan.spec;
        let runs_now = plan.start == Start::Released
            && plan.parents.is_empty()
            && spec.after_group.is_none()
            && spec.run_at.is_none_or(|at| at <= now);
        if !runs_now || self.store().info().shared {
            return None;
        }
        let take = |bell: &Bell| bell.stands.take(&spec.pool, &spec.envelope.task_type);
        let standing = self.notifiers.with(&spec.namespace, take).flatten()?;
        let claim = self.known_claim(&standing.ask)?;
        Some(Guest { standing, claim })
    }

    /// The first try may have happened; only a repetition under its own id can tell.
    async fn hand_in_again(&self, id: OpId, plan: &Enqueue, failed: Error) -> Result<Enqueued> {
        let again = self.carry_out_as(id, plan, View::default()).await;
        again.map(|enqueued| self.handed_in(&enqueued, &[])).map_err(|error| error.after(Some(&failed)))
    }

    async fn hand_in_many(&self, tasks: Vec<NewTask>, now: Timestamp) -> Vec<Result<Enqueued>> {
        let mut answers: Vec<Option<Result<Enqueued>>> = Vec::with_capacity(tasks.len());
        let mut places = Vec::with_capacity(tasks.len());
        let mut plans = Vec::with_capacity(tasks.len());
        let mut views = Vec::with_capacity(tasks.len());
        let mut later = Vec::new();
        let mut last = None;
        for (at, task) in tasks.into_iter().enumerate() {
            let known = match self.known_of(&task, &mut last).await {
                Ok(known) => self.admit(&task.task.namespace, &task.envelope.task_type).await.map(|()| known),
                Err(error) => Err(error),
            };
            match known.and_then(|known| self.prepare(task, &known, now)) {
                Ok(apart) if apart.may_close_a_circle() => {
                    later.push((at, apart));
                    answers.push(None);
                }
                Ok(Prepared { id, plan }) => {
                    places.push(at);
                    views.push(nothing_there(&plan));
                    plans.push((id, plan));
                    answers.push(None);
                }
                Err(error) => answers.push(Some(Err(error))),
            }
        }
        let guest = plans.first().and_then(|(_, plan)| self.guest_of(plan, now));
        let (standing, claim) = guest.map(|guest| (guest.standing, guest.claim)).unzip();
        let (outcomes, claimed) = self.store().run_all_and_claim(&plans, views, claim, now).await;
        let outcomes = self.persist_all(&plans, outcomes, now).await;
        let taken = names_of(claimed.as_ref().and_then(|claimed| claimed.as_ref().ok()));
        for ((place, (id, plan)), outcome) in places.into_iter().zip(plans).zip(outcomes) {
            // Its parents may have been handed in by this very request, after it looked for them.
            if outcome.as_ref().is_err_and(|error| error.code() == ReasonCode::DependencyUnknown) {
                later.push((place, Prepared { id, plan }));
                continue;
            }
            if let Some(slot) = answers.get_mut(place) {
                *slot = Some(outcome.map(|enqueued| self.handed_in(&enqueued, &taken)));
            }
        }
        if let (Some(standing), Some(claimed)) = (standing, claimed) {
            self.serve(standing, claimed).await;
        }
        later.sort_by_key(|(place, _)| *place);
        for (place, prepared) in later {
            let enqueued = self.carry_out_as(prepared.id, &prepared.plan, View::default()).await;
            let answer = enqueued.map(|enqueued| self.handed_in(&enqueued, &[]));
            if let Some(slot) = answers.get_mut(place) {
                *slot = Some(answer);
            }
        }
        answers.into_iter().flatten().collect()
    }

    /// What is known of the pool of a task. Tasks that are handed in together mostly go to one pool, which is looked at once.
    async fn known_of(&self, task: &NewTask, last: &mut Option<(Namespace, PoolName, Known)>) -> Result<Known> {
        match last {
            Some((namespace, pool, known)) if *namespace == task.task.namespace && *pool == task.pool => {
                Ok(known.clone())
            }
            _ => {
                let known = self.settings(&task.task.namespace, &task.pool).await?;
                *last = Some((task.task.namespace.clone(), task.pool.clone(), known.clone()));
                Ok(known)
            }
        }
    }

    /// `taken` are the names of tasks that a claim took right behind them, in order: for those nobody has to be woken.
    fn handed_in(&self, enqueued: &plan::Enqueued, taken: &[&str]) -> Enqueued {
        match enqueued {
            plan::Enqueued::New(task) => {
                if taken.binary_search(&task.id().as_str()).is_ok() {
                    self.announcer.tell(task);
                } else {
                    self.announce(task);
                }
                Enqueued { id: task.id().clone(), is_new: true }
            }
            plan::Enqueued::Existing(id) => Enqueued { id: id.clone(), is_new: false },
        }
    }

    fn prepare(&self, task: NewTask, known: &Known, now: Timestamp) -> Result<Prepared> {
        let (start, idempotency, parents) = (task.start, task.idempotency.clone(), task.parents.clone());
        let id = task.op.unwrap_or_else(|| self.op_id_at(now));
        let spec = Arc::new(self.spec(task, known, now)?);
        Ok(Prepared { id, plan: Enqueue { spec, start, parents, idempotency } })
    }

    /// What a task is, given what is known of its pool.
    pub(super) fn spec(&self, task: NewTask, (settings, source): &Known, now: Timestamp) -> Result<Spec> {
        let policy = match source {
            Source::Set => settings.policy.clone(),
            Source::Default => self.default_policy(settings, &task),
        };
        let policy = with_wishes(policy, &task.wishes);
        let run_at = match task.when {
            When::Now => None,
            When::After(delay) => Some(now + delay.check_or_zero("delay")?),
            // A moment is meant by the clock on the wall, which may have been set back since this process started.
            When::At(at) => Some(self.clock.lead().when_shown(at, now)),
        };
        let mut spec = Spec::new(task.task.namespace, task.pool, task.task.id, task.envelope, policy, now);
        spec.rank = Rank::from(task.priority);
        spec.title = task.title;
        spec.run_at = run_at;
        spec.expires_at = match task.expires_after {
            Some(life) => Some(now + life.check("expires_after", limits::DURATION_MAX)?),
            None => None,
        };
        spec.lane = task.lane.map(Arc::new);
        spec.on_parent_failure = task.on_parent_failure;
        spec.unique = task.unique.map(Arc::new);
        spec.group = task.group;
        spec.session = task.session;
        spec.labels = task.labels;
        spec.after_group = task.after_group;
        Ok(spec)
    }

    /// The pool's policy, or that of the kind where the pool has no word of its own.
    fn default_policy(&self, settings: &PoolSettings, task: &NewTask) -> Arc<Policy> {
        match Profile::of(self.store().info().name, &task.envelope.task_type) {
            Profile::Embedded => settings.policy.clone(),
            other => other.settings().policy,
        }
    }
}

/// The settings of a pool, and whose word they are.
type Known = (Arc<PoolSettings>, Source);

/// A task to write, and the id of the commit that does.
struct Prepared {
    id: OpId,
    plan: Enqueue,
}

impl Prepared {
    /// Whether it waits for a group and others may wait for its own. Each of these must see those before it.
    fn may_close_a_circle(&self) -> bool {
        self.plan.spec.group.is_some() && self.plan.spec.after_group.is_some()
    }
}

/// A claim that is served together with an enqueue.
struct Guest {
    standing: Standing,
    claim: Claim,
}

/// The names of the tasks that a claim took, sorted.
fn names_of(claimed: Option<&Claimed>) -> Vec<&str> {
    let tasks = claimed.map_or(&[][..], |claimed| &claimed.tasks);
    let mut names: Vec<&str> = tasks.iter().map(|taken| &*taken.key.name).collect();
    names.sort_unstable();
    names
}

/// An id is new unless somebody repeats a request, and then the conflict shows what is there.
fn nothing_there(plan: &Enqueue) -> View {
    let mut view = View::default();
    view.insert(Key::task(&plan.spec.namespace, &plan.spec.id), None);
    view
}

fn with_wishes(policy: Arc<Policy>, wishes: &Wishes) -> Arc<Policy> {
    if *wishes == Wishes::default() {
        return policy;
    }
    let mut policy = Arc::unwrap_or_clone(policy);
    let Wishes { attempts_max, retry, timeout, keep, keep_dead } = wishes.clone();
    policy.attempts_max = attempts_max.unwrap_or(policy.attempts_max);
    policy.retry = retry.unwrap_or(policy.retry);
    policy.timeout = timeout.unwrap_or(policy.timeout);
    policy.keep = keep.unwrap_or(policy.keep);
    policy.keep_dead = keep_dead.unwrap_or(policy.keep_dead);
    Arc::new(policy)
}
