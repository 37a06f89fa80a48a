//! Writes the history of a queue: what passes through the port, whatever is behind it, and what came of it. Where [`Recorded`]
//! sees the commits of one process, this sees what a caller sees, also of a server on the other end of a line.
//!
//! What a server does by itself does not pass through: the leases that it took away are read from the records of the tasks
//! afterwards ([`taken_away`]). Commands on many tasks are not taken apart; a load that is to be judged sends none.
//!
//! [`Recorded`]: crate::Recorded

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use ekiden::core::{
    EventName, FailureKind, Namespace, OpId, Outcome, Pool, PoolName, PoolSettings, Progress, QuestionId, Runner,
    RunnerId, Schedule, ScheduleId, Signal, Stage, Start, Sweep, SweepId, Timestamp, Token, limits,
};
use ekiden::store::{Clock, CountScope, Counts, Entropy, Page, SystemClock, TaskQuery};
use ekiden::{
    Ask, Bell, Bulk, Enqueued, Explanation, Failure, LeaseRef, Leased, Maintained, NewSchedule, NewTask, Queue,
    QueueInfo, Result, Settled, SettledAndLeased, Settlement, Subscription, TaskRecord, TaskRef, Verdict,
};

use crate::facts::{Ack, Call, EnqueueFacts, FinalTask, Grant, Reply};
use crate::history::{Client, Line, Pending, What};

/// A queue whose history is written.
pub struct RecordedQueue {
    inner: Arc<dyn Queue>,
    client: Client,
    ids: Mutex<Entropy>,
}

impl RecordedQueue {
    /// Puts the layer around a queue.
    pub fn new(inner: Arc<dyn Queue>, client: Client) -> Self {
        Self { inner, client, ids: Mutex::new(Entropy::from_system()) }
    }

    fn op_id(&self) -> OpId {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).op_id(SystemClock.now())
    }

    /// One end of an attempt, through any of the methods that can write it.
    fn invoke_settle(&self, op: OpId, lease: &LeaseRef, verdict: &Verdict) -> Option<Pending> {
        let (task, token) = (lease.task.id.clone(), lease.token);
        let settle = |outcome| Some(Call::Settle { op, task: task.clone(), token, outcome });
        let call = match verdict {
            Verdict::Succeeded(_) => settle(Outcome::Succeeded),
            Verdict::Failed(failure) if failure.kind == FailureKind::Crashed => settle(Outcome::Crashed),
            Verdict::Failed(_) => settle(Outcome::Failed),
            Verdict::TimedOut => settle(Outcome::TimedOut),
            Verdict::Snoozed(_) => settle(Outcome::Snoozed),
            Verdict::Asked(_) => settle(Outcome::Asked),
            Verdict::Interrupted => settle(Outcome::Interrupted),
            Verdict::Returned => settle(Outcome::Returned),
            Verdict::Stopped(Stage::Verified) => Some(Call::EndAttempt { task, token }),
            // On its way to the end, which no law asks about.
            Verdict::Stopped(Stage::Signalled | Stage::Exited) => None,
        };
        call.map(|call| self.client.invoke(call))
    }

    fn invoke_claim(&self, ask: &Ask) -> Pending {
        self.client.invoke(Call::Claim { claim: ask.id })
    }
}

fn end<T>(pending: Pending, outcome: &Result<T>, reply: impl FnOnce(&T) -> Reply) {
    match outcome {
        Ok(done) => pending.ok(reply(done)),
        Err(error) if error.is_unknown() => pending.unknown(error),
        Err(error) => pending.fail(error),
    }
}

/// The port does not say whether something happened now or by an earlier try of the same request.
fn done<T>(_: &T) -> Reply {
    Reply::Done(Ack::Untold)
}

#[expect(clippy::ptr_arg, reason = "it is called with what a result holds")]
fn granted(leased: &Vec<Leased>) -> Reply {
    let grant = |leased: &Leased| Grant { task: leased.lease.task.id.clone(), token: leased.lease.token };
    Reply::Claimed(leased.iter().map(grant).collect())
}

fn facts(task: &NewTask, op: OpId) -> Call {
    Call::Enqueue(Box::new(EnqueueFacts {
        op,
        task: task.task.id.clone(),
        unique: task.unique.clone(),
        idempotency: task.idempotency.clone(),
        lane: task.lane.clone(),
        waits: task.start == Start::Held || !task.parents.is_empty() || task.after_group.is_some(),
        parents: task.parents.len(),
        // A budget that is left to the pool is not known here, and nothing is held against it.
        attempts_max: task.wishes.attempts_max.unwrap_or(u32::MAX),
    }))
}

/// The leases that were taken away, by the word of the tasks' own records, as lines of a process of that name. The moments are
/// the ones that stand there, so the clocks of both sides must be one.
pub fn taken_away<'a>(records: impl IntoIterator<Item = &'a TaskRecord>, process: &str) -> Vec<Line> {
    let (process, client): (Arc<str>, Arc<str>) = (Arc::from(process), Arc::from("maintenance"));
    let mut lines: Vec<Line> = Vec::new();
    let mut add = |at: Timestamp, op: Option<u64>, what| {
        let n = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        let (process, client) = (process.clone(), client.clone());
        lines.push(Line { at: at.as_millis(), process, n, client, op: op.unwrap_or(n), what });
        n
    };
    let lost = |task: &TaskRecord, token| What::Invoke(Call::LeaseLost { task: task.id.clone(), token });
    for record in records {
        for line in record.history.iter().filter(|line| line.event == EventName::LeaseLost) {
            let op = add(line.at, None, lost(record, Some(Token(line.execution_no))));
            add(line.at, Some(op), What::Ok(Reply::Done(Ack::Fresh)));
        }
        if record.history.len() >= limits::HISTORY_LINES_MAX {
            // What went before is not kept: any lease of it may have been lost at any time.
            add(record.created_at, None, lost(record, None));
        }
    }
    lines
}

impl From<&TaskRecord> for FinalTask {
    fn from(record: &TaskRecord) -> Self {
        let winner = record.recent.iter().find(|attempt| attempt.outcome == Some(Outcome::Succeeded));
        Self {
            phase: record.state,
            attempts: record.attempts,
            attempts_max: record.max_attempts,
            execution_no: record.execution_no,
            successes: record.outcomes.succeeded,
            succeeded_by: winner.map(|attempt| Token(attempt.execution_no)),
            leased: record.runner.is_some(),
            waits_for: record.waits_for.clone(),
            given_up: record.reason == Some(ekiden::core::ReasonCode::DependencyFailed),
            // Not part of a record; the enqueue says it.
            lane: None,
        }
    }
}

#[async_trait]
impl Queue for RecordedQueue {
    fn info(&self) -> QueueInfo {
        self.inner.info()
    }

    async fn enqueue(&self, mut tasks: Vec<NewTask>) -> Vec<Result<Enqueued>> {
        let mut pending = Vec::with_capacity(tasks.len());
        for task in &mut tasks {
            let op = *task.op.get_or_insert_with(|| self.op_id());
            pending.push(self.client.invoke(facts(task, op)));
        }
        let outcomes = self.inner.enqueue(tasks).await;
        for (pending, outcome) in pending.into_iter().zip(&outcomes) {
            end(pending, outcome, |enqueued| {
                let ack = if enqueued.is_new { Ack::Fresh } else { Ack::Repeated };
                Reply::Enqueued { task: enqueued.id.clone(), ack }
            });
        }
        outcomes
    }

    async fn dequeue_ready(&self, ask: Ask) -> Result<Vec<Leased>> {
        let pending = self.invoke_claim(&ask);
        let outcome = self.inner.dequeue_ready(ask).await;
        end(pending, &outcome, granted);
        outcome
    }

    async fn mark_succeeded(&self, lease: LeaseRef, result: Option<Bytes>) -> Result<Settled> {
        let pending = self.invoke_settle(self.op_id(), &lease, &Verdict::Succeeded(None));
        let outcome = self.inner.mark_succeeded(lease, result).await;
        pending.into_iter().for_each(|pending| end(pending, &outcome, done));
        outcome
    }

    async fn mark_failed(&self, lease: LeaseRef, failure: Failure) -> Result<Settled> {
        let pending = self.invoke_settle(self.op_id(), &lease, &Verdict::Failed(failure.clone()));
        let outcome = self.inner.mark_failed(lease, failure).await;
        pending.into_iter().for_each(|pending| end(pending, &outcome, done));
        outcome
    }

    async fn settle(&self, settlements: Vec<Settlement>, then: Option<Ask>) -> SettledAndLeased {
        let invoke = |one: &Settlement| self.invoke_settle(one.id, &one.lease, &one.verdict);
        let pending: Vec<_> = settlements.iter().map(invoke).collect();
        let claim = then.as_ref().map(|ask| self.invoke_claim(ask));
        let outcome = self.inner.settle(settlements, then).await;
        for (pending, outcome) in pending.into_iter().zip(&outcome.settled) {
            pending.into_iter().for_each(|pending| end(pending, outcome, done));
        }
        claim.into_iter().for_each(|pending| end(pending, &outcome.leased, granted));
        outcome
    }

    async fn cancel(&self, task: TaskRef, note: Option<Arc<str>>) -> Result<TaskRecord> {
        let pending = self.client.invoke(Call::Cancel { task: task.id.clone() });
        let outcome = self.inner.cancel(task, note).await;
        end(pending, &outcome, done);
        outcome
    }

    async fn retry(&self, task: TaskRef) -> Result<TaskRecord> {
        let pending = self.client.invoke(Call::Retry { task: task.id.clone() });
        let outcome = self.inner.retry(task).await;
        end(pending, &outcome, |record: &TaskRecord| Reply::Enqueued { task: record.id.clone(), ack: Ack::Untold });
        outcome
    }

    async fn report(&self, lease: LeaseRef, progress: Progress) -> Result<()> {
        self.inner.report(lease, progress).await
    }

    async fn beat(&self, runner: Runner) -> Result<()> {
        self.inner.beat(runner).await
    }

    async fn goodbye(&self, namespace: Namespace, runner: RunnerId) -> Result<()> {
        self.inner.goodbye(namespace, runner).await
    }

    async fn signals(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<Signal>> {
        self.inner.signals(namespace, runner).await
    }

    async fn held(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<LeaseRef>> {
        self.inner.held(namespace, runner).await
    }

    async fn runners(&self, namespace: Namespace) -> Result<Vec<Runner>> {
        self.inner.runners(namespace).await
    }

    async fn get_status(&self, task: TaskRef) -> Result<TaskRecord> {
        self.inner.get_status(task).await
    }

    async fn counts_by_state(&self, scope: CountScope) -> Result<Counts> {
        self.inner.counts_by_state(scope).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRecord>> {
        self.inner.tasks(query).await
    }

    async fn explain(&self, task: TaskRef) -> Result<Explanation> {
        self.inner.explain(task).await
    }

    async fn subscribe(&self, namespace: Namespace) -> Result<Subscription> {
        self.inner.subscribe(namespace).await
    }

    async fn release(&self, task: TaskRef) -> Result<TaskRecord> {
        self.inner.release(task).await
    }

    async fn answer(&self, task: TaskRef, question: QuestionId, content: Arc<str>) -> Result<TaskRecord> {
        self.inner.answer(task, question, content).await
    }

    async fn start_bulk(&self, id: SweepId, bulk: Bulk) -> Result<Arc<Sweep>> {
        self.inner.start_bulk(id, bulk).await
    }

    async fn bulk(&self, namespace: Namespace, id: SweepId) -> Result<Option<Arc<Sweep>>> {
        self.inner.bulk(namespace, id).await
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>> {
        self.inner.namespaces(after, limit).await
    }

    async fn pools(&self, namespace: Namespace, cursor: Option<String>, limit: usize) -> Result<Page<Pool>> {
        self.inner.pools(namespace, cursor, limit).await
    }

    async fn pool(&self, namespace: Namespace, pool: PoolName) -> Result<PoolSettings> {
        self.inner.pool(namespace, pool).await
    }

    async fn set_pool(&self, namespace: Namespace, pool: PoolName, settings: PoolSettings) -> Result<()> {
        self.inner.set_pool(namespace, pool, settings).await
    }

    async fn set_schedule(&self, schedule: NewSchedule) -> Result<Arc<Schedule>> {
        self.inner.set_schedule(schedule).await
    }

    async fn schedules(&self, namespace: Namespace) -> Result<Vec<Arc<Schedule>>> {
        self.inner.schedules(namespace).await
    }

    async fn remove_schedule(&self, namespace: Namespace, schedule: ScheduleId) -> Result<()> {
        self.inner.remove_schedule(namespace, schedule).await
    }

    async fn maintain(&self, namespace: Namespace) -> Result<Maintained> {
        self.inner.maintain(namespace).await
    }

    async fn next_due(&self, namespace: Namespace) -> Result<Option<Timestamp>> {
        self.inner.next_due(namespace).await
    }

    fn bell(&self, namespace: &Namespace) -> Arc<Bell> {
        self.inner.bell(namespace)
    }
}
