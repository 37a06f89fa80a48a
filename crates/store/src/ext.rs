//! What every store can do because it is one: carry out plans, claim, read one thing. A store cannot override any of it.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::future::Future;

use ekiden_core::claim::Claim;
use ekiden_core::commit::Commit;
use ekiden_core::id::{OpId, TaskId};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::limits;
use ekiden_core::plan::{Draft, Lanes, Need, PageNeed, Plan, Stop, SweepItem, SweepStep, View};
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::record::{Record, Versioned};
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::time::Timestamp;

use crate::error::StoreError;
use crate::op::{Answer, Claimed, Conflict, Op, Outcome};
use crate::query::{ListOrder, Page, RecordQuery, TaskQuery};
use crate::store::Store;

/// Why a plan was not carried out.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PlanError {
    /// The rules say no. Nothing was written.
    #[error("{0}")]
    Refused(Refusal),
    /// The store could not answer; the error says whether it may have happened.
    #[error("{0}")]
    Store(#[source] StoreError),
}

impl PlanError {
    /// The stable reason.
    pub const fn code(&self) -> ReasonCode {
        match self {
            Self::Refused(refusal) => refusal.code,
            Self::Store(error) => error.refusal.code,
        }
    }
}

impl From<StoreError> for PlanError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// One answer a plan, and the claim's where one was asked for.
pub type RunAndClaimed<D> = (Vec<Result<D, PlanError>>, Option<Result<Claimed, StoreError>>);

/// Sugar over [`Store`].
pub trait StoreExt: Store {
    /// Carries out a plan: reads what it needs, commits, and drafts again when others were faster.
    ///
    /// After an unknown outcome the same plan may be run again with the same id. It then judges things as they are: what the
    /// first try did may have been overtaken since, so a refusal of a repeated run does not prove that nothing happened.
    fn run<P: Plan + Sync>(
        &self,
        plan: &P,
        id: OpId,
        now: Timestamp,
    ) -> impl Future<Output = Result<P::Done, PlanError>> + Send
    where
        P::Done: Send,
    {
        self.run_seen(plan, id, now, View::default())
    }

    /// The same, beginning with records that the caller has read already.
    fn run_seen<P: Plan + Sync>(
        &self,
        plan: &P,
        id: OpId,
        now: Timestamp,
        view: View,
    ) -> impl Future<Output = Result<P::Done, PlanError>> + Send
    where
        P::Done: Send,
    {
        let mut job: Job<P, &P> = Job::new(id, plan, view);
        async move { finish_alone(self, &mut job, &mut None, now).await }
    }

    /// The same, and then claims. The claim goes with the first commit in one call, behind it, where the store gets any.
    fn run_seen_and_claim<P: Plan + Sync>(
        &self,
        plan: &P,
        id: OpId,
        now: Timestamp,
        view: View,
        claim: Claim,
    ) -> impl Future<Output = (Result<P::Done, PlanError>, Result<Claimed, StoreError>)> + Send
    where
        P::Done: Send,
    {
        // Made here and not inside, where what is handed over would be kept twice.
        let mut alone: Alone<P, &P> = Alone::new(id, plan, view, Some(claim));
        async move { (alone.finish(self, now).await, alone.claimed(self).await) }
    }

    /// Carries out many plans, each with its own commit, sharing reads and writes. One answer a plan, in order.
    fn run_all<P: Plan + Sync>(
        &self,
        plans: &[(OpId, P)],
        now: Timestamp,
    ) -> impl Future<Output = Vec<Result<P::Done, PlanError>>> + Send
    where
        P::Done: Send,
    {
        async move {
            let mut jobs: Vec<Job<P, &P>> =
                plans.iter().map(|(id, plan)| Job::new(*id, plan, View::default())).collect();
            finish(self, &mut jobs, &mut None, now).await;
            jobs.into_iter().filter_map(|job| job.done).collect()
        }
    }

    /// Carries out many plans, beginning with records that the caller has read already, and then claims. The claim goes with
    /// the first commits in one call, behind them, where the store gets any.
    fn run_all_and_claim<P: Plan + Sync>(
        &self,
        plans: &[(OpId, P)],
        views: Vec<View>,
        claim: Option<Claim>,
        now: Timestamp,
    ) -> impl Future<Output = RunAndClaimed<P::Done>> + Send
    where
        P::Done: Send,
    {
        async move {
            let views = views.into_iter().chain(std::iter::repeat_with(View::default));
            let mut jobs: Vec<Job<P, &P>> =
                plans.iter().zip(views).map(|((id, plan), view)| Job::new(*id, plan, view)).collect();
            let mut last = claim.map(Last::Claim);
            finish(self, &mut jobs, &mut last, now).await;
            let claimed = match last {
                Some(Last::Claim(claim)) => Some(self.claim(claim).await),
                Some(Last::Claimed(outcome)) => Some(as_claimed(Some(outcome))),
                None => None,
            };
            (jobs.into_iter().filter_map(|job| job.done).collect(), claimed)
        }
    }

    /// The next step of a sweep: its record, and the page of so many items that comes next. `None` when the sweep is done.
    fn sweep_step(
        &self,
        sweep: Key,
        limit: usize,
        new_id: impl FnMut() -> TaskId + Send,
    ) -> impl Future<Output = Result<Option<SweepStep>, StoreError>> + Send {
        async move {
            let found = self.get_one(sweep.clone()).await?.map(|found| found.record);
            let Some(Record::Sweep(seen)) = found else { return Ok(None) };
            if seen.ended_at.is_some() {
                return Ok(None);
            }
            let page = sweep_page(self, &sweep, &seen, limit).await?;
            let mut new_id = new_id;
            let item = |found: Versioned| SweepItem { key: found.key, new_id: new_id() };
            let items = page.items.into_iter().map(item).collect();
            Ok(Some(SweepStep { sweep, seen, items, next: page.cursor }))
        }
    }

    /// One claim.
    fn claim(&self, claim: Claim) -> impl Future<Output = Result<Claimed, StoreError>> + Send {
        async move { as_claimed(self.apply(vec![Op::Claim(claim)]).await.pop()) }
    }

    /// One commit.
    fn commit(&self, commit: Commit) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        async move { self.apply(vec![Op::Commit(commit)]).await.pop().unwrap_or_else(|| Err(wrong_answer(false))) }
    }

    /// One record.
    fn get_one(&self, key: Key) -> impl Future<Output = Result<Option<Versioned>, StoreError>> + Send {
        async move { Ok(self.get(vec![key]).await?.pop().flatten()) }
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

/// A plan that goes alone, and a claim that goes with its first commit, where there is one. For those who keep all of it in
/// one place: what a future hands on to another one is kept twice.
pub struct Alone<P: Plan, B = P> {
    job: Job<P, B>,
    last: Option<Last>,
}

impl<P: Plan + Sync, B: Borrow<P> + Send + Sync> Alone<P, B> {
    /// A plan, beginning with records that the caller has read already.
    pub fn new(id: OpId, plan: B, view: View, claim: Option<Claim>) -> Self {
        Self { job: Job::new(id, plan, view), last: claim.map(Last::Claim) }
    }

    /// The plan.
    pub fn plan(&self) -> &P {
        self.job.plan.borrow()
    }

    /// Carries the plan out.
    pub async fn finish<S: Store + ?Sized>(&mut self, store: &S, now: Timestamp) -> Result<P::Done, PlanError>
    where
        P::Done: Send,
    {
        finish_alone(store, &mut self.job, &mut self.last, now).await
    }

    /// What was claimed with it, or is now, if the store got no commit.
    pub async fn claimed<S: Store + ?Sized>(&mut self, store: &S) -> Result<Claimed, StoreError>
    where
        P::Done: Send,
    {
        match self.last.take() {
            Some(Last::Claim(claim)) => Box::pin(store.claim(claim)).await,
            Some(Last::Claimed(outcome)) => as_claimed(Some(outcome)),
            None => as_claimed(None),
        }
    }
}

/// A plan on its way; whoever has it lends it or gives it away.
struct Job<P: Plan, B> {
    id: OpId,
    plan: B,
    view: View,
    /// Whether the view is the caller's word, which the store has not confirmed.
    hearsay: bool,
    conflicts: usize,
    done: Option<Result<P::Done, PlanError>>,
}

/// A claim that goes behind the commits of a batch.
enum Last {
    Claim(Claim),
    Claimed(Outcome),
}

fn as_claimed(outcome: Option<Outcome>) -> Result<Claimed, StoreError> {
    match outcome {
        Some(Ok(Answer::Claimed(claimed))) => Ok(claimed),
        Some(Err(error)) => Err(error),
        other => Err(wrong_answer(other.is_some())),
    }
}

async fn finish<S: Store + ?Sized, P: Plan + Sync, B: Borrow<P>>(
    store: &S,
    jobs: &mut [Job<P, B>],
    last: &mut Option<Last>,
    now: Timestamp,
) {
    refuse_ids_used_twice(jobs);
    let mut needs = Vec::with_capacity(jobs.len());
    for (at, job) in jobs.iter().enumerate().filter(|(_, job)| job.done.is_none()) {
        job.add_first_needs(at, &mut needs);
    }
    read(store, jobs, needs).await;
    while jobs.iter().any(|job| job.done.is_none()) {
        step(store, jobs, last, now).await;
    }
}

/// A store takes the second commit of an id for a repetition of the first, and would answer for both that they were applied.
fn refuse_ids_used_twice<P: Plan, B: Borrow<P>>(jobs: &mut [Job<P, B>]) {
    let mut ids = HashSet::with_capacity(jobs.len());
    for job in jobs {
        if !ids.insert(job.id) {
            let refusal = Refusal::new(ReasonCode::CommitInvalid).with("key", job.id);
            job.done =
                Some(Err(PlanError::Refused(refusal.with("why", "another change in the same request has its id"))));
        }
    }
}

/// Carries out a single plan. Most are: it shares nothing, so it needs no lists. What it has to read is boxed, since most need
/// not, and the way of those stays small.
async fn finish_alone<S: Store + ?Sized, P: Plan + Sync, B: Borrow<P>>(
    store: &S,
    job: &mut Job<P, B>,
    last: &mut Option<Last>,
    now: Timestamp,
) -> Result<P::Done, PlanError> {
    let mut needs = Vec::new();
    job.add_first_needs(0, &mut needs);
    if !needs.is_empty() {
        Box::pin(read(store, std::slice::from_mut(job), needs)).await;
    }
    loop {
        if let Some(done) = job.done.take() {
            return done;
        }
        match job.round(last, now) {
            Some(Round::Write(done, ops)) => {
                let outcomes = store.apply(ops).await;
                job.hear_alone(done, outcomes, last);
            }
            Some(Round::Read(needs)) => Box::pin(read(store, std::slice::from_mut(job), needs)).await,
            None => {}
        }
    }
}

/// What a single job needs of the store next.
enum Round<D> {
    Write(D, Vec<Op>),
    Read(Vec<(usize, Need)>),
}

/// One round: every job that can be drafted is committed, and what the others lack is read.
async fn step<S: Store + ?Sized, P: Plan + Sync, B: Borrow<P>>(
    store: &S,
    jobs: &mut [Job<P, B>],
    last: &mut Option<Last>,
    now: Timestamp,
) {
    let mut commits: Vec<(usize, P::Done, Commit)> = Vec::with_capacity(jobs.len());
    let mut needs: Vec<(usize, Need)> = Vec::new();
    for (at, job) in jobs.iter_mut().enumerate().filter(|(_, job)| job.done.is_none()) {
        match job.draft(now) {
            Ok((done, None)) => job.done = Some(Ok(done)),
            Ok((done, Some(commit))) if commits.len() < limits::APPLY_OPS_MAX => commits.push((at, done, commit)),
            Ok(_) => {}
            // A write that rests on old news meets a conflict; a refusal meets nothing, so it is looked at again.
            Err(Stop::Refused(_)) if job.hearsay => job.forget(),
            Err(Stop::Refused(refusal)) => job.done = Some(Err(PlanError::Refused(refusal))),
            Err(Stop::Need(missing)) => needs.extend(missing.into_iter().map(|need| (at, need))),
        }
    }
    read(store, jobs, needs).await;
    write(store, jobs, commits, last).await;
}

async fn write<S: Store + ?Sized, P: Plan, B: Borrow<P>>(
    store: &S,
    jobs: &mut [Job<P, B>],
    commits: Vec<(usize, P::Done, Commit)>,
    last: &mut Option<Last>,
) {
    if commits.is_empty() {
        return;
    }
    let mut waiting = Vec::with_capacity(commits.len());
    let mut ops = Vec::with_capacity(commits.len());
    for (at, done, commit) in commits {
        waiting.push((at, done));
        ops.push(Op::Commit(commit));
    }
    let claims = ops.len() < limits::APPLY_OPS_MAX && matches!(last, Some(Last::Claim(_)));
    if let Some(Last::Claim(claim)) = if claims { last.take() } else { None } {
        ops.push(Op::Claim(claim));
    }
    let mut outcomes = store.apply(ops).await;
    if claims {
        let outcome = if outcomes.len() > waiting.len() { outcomes.pop() } else { None };
        *last = Some(Last::Claimed(outcome.unwrap_or_else(|| Err(wrong_answer(false)))));
    }
    for ((at, done), outcome) in waiting.into_iter().zip(outcomes) {
        if let Some(job) = jobs.get_mut(at) {
            job.hear(done, outcome);
        }
    }
}

impl<P: Plan, B: Borrow<P>> Job<P, B> {
    fn new(id: OpId, plan: B, view: View) -> Self {
        Self { id, plan, hearsay: !view.is_empty(), view, conflicts: 0, done: None }
    }

    /// All that was read or heard is forgotten, and read again.
    fn forget(&mut self) {
        self.view = View::default();
        self.hearsay = false;
    }

    /// Who was told something by the caller may know enough; the draft asks for what it lacks.
    fn add_first_needs(&self, at: usize, needs: &mut Vec<(usize, Need)>) {
        if !self.hearsay {
            needs.extend(self.plan.borrow().reads().into_iter().map(|key| (at, Need::Record(key))));
        }
    }

    fn draft(&self, now: Timestamp) -> Result<(P::Done, Option<Commit>), Stop> {
        let lanes = if self.conflicts < limits::CONFLICTS_BEFORE_DEFERRING { Lanes::Admit } else { Lanes::Defer };
        Draft::of(self.plan.borrow(), self.id, &self.view, now, lanes)
    }

    /// The next round of a job that goes alone. `None` if that needs nothing of the store.
    fn round(&mut self, last: &mut Option<Last>, now: Timestamp) -> Option<Round<P::Done>> {
        match self.draft(now) {
            Ok((done, None)) => self.done = Some(Ok(done)),
            Ok((done, Some(commit))) => {
                let claim = last.take_if(|last| matches!(last, Last::Claim(_)));
                let Some(Last::Claim(claim)) = claim else {
                    return Some(Round::Write(done, vec![Op::Commit(commit)]));
                };
                return Some(Round::Write(done, vec![Op::Commit(commit), Op::Claim(claim)]));
            }
            Err(Stop::Refused(_)) if self.hearsay => self.forget(),
            Err(Stop::Refused(refusal)) => self.done = Some(Err(PlanError::Refused(refusal))),
            Err(Stop::Need(missing)) => return Some(Round::Read(missing.into_iter().map(|need| (0, need)).collect())),
        }
        None
    }

    /// The outcome of its commit, and behind it that of the claim, which is kept.
    fn hear_alone(&mut self, done: P::Done, mut outcomes: Vec<Outcome>, last: &mut Option<Last>) {
        if outcomes.len() > 1 {
            *last = outcomes.pop().map(Last::Claimed);
        }
        self.hear(done, outcomes.pop().unwrap_or_else(|| Err(wrong_answer(false))));
    }

    fn hear(&mut self, done: P::Done, outcome: Outcome) {
        match outcome {
            Ok(Answer::Applied(_)) => self.done = Some(Ok(done)),
            Ok(Answer::Conflict(conflict)) => self.meet(conflict),
            Ok(Answer::Claimed(_)) => self.done = Some(Err(wrong_answer(true).into())),
            Err(error) => self.done = Some(Err(error.into())),
        }
    }

    /// Others were faster. All that was read is forgotten but what the conflict itself shows.
    fn meet(&mut self, conflict: Conflict) {
        self.conflicts += 1;
        if self.conflicts > limits::CONFLICTS_MAX {
            let refusal = Refusal::new(ReasonCode::StoreBusy).with("conflicts", self.conflicts);
            self.done = Some(Err(PlanError::Store(StoreError { retryable: true, ..StoreError::invalid(refusal) })));
            return;
        }
        self.forget();
        for (key, found) in conflict.found {
            self.view.insert(key, found);
        }
    }
}

async fn read<S: Store + ?Sized, P: Plan, B: Borrow<P>>(store: &S, jobs: &mut [Job<P, B>], needs: Vec<(usize, Need)>) {
    let mut keys: Vec<(usize, Key)> = Vec::new();
    for (at, need) in needs {
        match need {
            Need::Record(key) => keys.push((at, key)),
            Need::Page(need) => {
                let found = page(store, &need).await;
                let Some(job) = jobs.get_mut(at) else { continue };
                match found {
                    Ok(found) => job.view.insert_page(need, found),
                    Err(error) => job.done = Some(Err(error.into())),
                }
            }
        }
    }
    while !keys.is_empty() {
        let rest = keys.split_off(keys.len().min(limits::GET_KEYS_MAX));
        let batch = std::mem::replace(&mut keys, rest);
        let found = store.get(batch.iter().map(|(_, key)| key.clone()).collect()).await;
        let mut found = found.map(Vec::into_iter);
        for (at, key) in batch {
            let Some(job) = jobs.get_mut(at) else { continue };
            match &mut found {
                // Where a store gave fewer answers, the rest counts as not there.
                Ok(found) => job.view.insert(key, found.next().flatten()),
                Err(error) => job.done = Some(Err(error.clone().into())),
            }
        }
    }
}

async fn sweep_page<S: Store + ?Sized>(
    store: &S,
    key: &Key,
    sweep: &Sweep,
    limit: usize,
) -> Result<Page<Versioned>, StoreError> {
    let cursor = sweep.cursor.clone();
    match &sweep.work {
        SweepWork::Release { parent, .. } => {
            let prefix = Key::prefix(parent.as_str());
            store
                .records(RecordQuery {
                    namespace: key.namespace.clone(),
                    kind: RecordKind::Edge,
                    prefix,
                    cursor,
                    limit,
                })
                .await
        }
        SweepWork::Cancel(filter)
        | SweepWork::Retry(filter)
        | SweepWork::Purge(filter)
        | SweepWork::Await { group: filter, .. } => {
            store.tasks(TaskQuery { filter: filter.clone(), order: ListOrder::OldestFirst, cursor, limit }).await
        }
        SweepWork::Admit { .. } | SweepWork::Link { .. } => Ok(Page { items: Vec::new(), cursor: None }),
    }
}

async fn page<S: Store + ?Sized>(store: &S, need: &PageNeed) -> Result<Vec<Versioned>, StoreError> {
    let query = RecordQuery {
        namespace: need.namespace.clone(),
        kind: need.kind,
        prefix: need.prefix.clone(),
        cursor: None,
        limit: need.limit,
    };
    Ok(store.records(query).await?.items)
}

/// A store that breaks C8. What it did cannot be known.
fn wrong_answer(answered: bool) -> StoreError {
    StoreError::unknown(if answered { "the store gave an answer of another kind" } else { "the store gave no answer" })
}
