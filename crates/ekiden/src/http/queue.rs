//! The port's methods, one request each.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ekiden_core::attempt::clip;
use ekiden_core::id::{Namespace, PoolName, QuestionId, RunnerId, ScheduleId, SweepId};
use ekiden_core::lease::Token;
use ekiden_core::limits;
use ekiden_core::newer::Newer;
use ekiden_core::pool::PoolSettings;
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::{Pool, Signal};
use ekiden_core::runner::Runner;
use ekiden_core::schedule::Schedule;
use ekiden_core::sweep::Sweep;
use ekiden_core::task::{Phase, Progress};
use ekiden_core::time::Timestamp;
use ekiden_store::clock::{Clock, SystemClock};
use ekiden_store::{CountScope, Counts, ListOrder, Page, TaskQuery};
use ekiden_wire as wire;
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::batch::{self, Parts};
use super::line::Repeated;
use super::path::{self, Path};
use super::stream::Stream;
use super::{HttpQueue, hints};
use crate::backoff::Backoff;
use crate::bell::Bell;
use crate::change::{Heard, Subscription};
use crate::error::{Error, Result};
use crate::port::{
    Ask, Bulk, Enqueued, Explanation, Failure, LeaseRef, Leased, Maintained, NewSchedule, NewTask, Queue, QueueInfo,
    Settled, SettledAndLeased, Settlement, TaskRef, Verdict,
};
use crate::record::TaskRecord;
use crate::wire::{counts_from, error};

impl HttpQueue {
    /// Reads something that has to be put into the words of the port.
    async fn read<W: DeserializeOwned>(&self, path: &Path) -> Result<W> {
        self.line.read(path).await
    }

    /// A command on one task, which gives it back as it is then.
    async fn command(&self, task: &TaskRef, what: &str, body: &impl Serialize) -> Result<TaskRecord> {
        let path = of_task(task).plain(what);
        Ok(TaskRecord::from_wire(self.line.send(Method::POST, &path, body).await?)?)
    }

    /// Tasks of one namespace, handed in together, in as few requests as are taken.
    async fn hand_in(&self, namespace: &Namespace, tasks: Vec<NewTask>) -> Vec<Result<Enqueued>> {
        let named = tasks.into_iter().map(|mut task| {
            // Made once and repeated with the request, so that a lost reply costs no second task.
            task.op = task.op.or_else(|| Some(self.op_id()));
            task.into_wire()
        });
        let (mut parts, mut answers) = (Parts::of(named.collect()), Vec::new());
        while let Some(tasks) = parts.next() {
            let count = tasks.len();
            let batch = wire::EnqueueBatch { tasks };
            match self.hand_in_part(namespace, &batch).await {
                Ok(answered) => answers.extend(answered),
                Err(error) if batch::is_too_large(&error) && count > 1 => parts.halve(batch.tasks),
                Err(error) => answers.extend(std::iter::repeat_n(Err(error), count)),
            }
        }
        answers
    }

    async fn hand_in_part(&self, namespace: &Namespace, batch: &wire::EnqueueBatch) -> Result<Vec<Result<Enqueued>>> {
        let path = path::of(namespace).plain("tasks").plain("batch");
        let (repeated, answer) = self.line.send_body::<wire::EnqueueBatchAnswer>(&path, batch::body(batch)?).await;
        let answers = answer?.tasks.into_iter().map(|answer| match answer {
            wire::EnqueuedOrError::Task(enqueued) => Ok(enqueued.into()),
            wire::EnqueuedOrError::Error { error: detail } => Err(repeated.doubted(error(&detail))),
        });
        all(answers.collect(), batch.tasks.len())
    }

    /// Settlements of one namespace, in as few requests as are taken. The claim goes with the last.
    async fn settle_in(
        &self,
        namespace: &Namespace,
        settlements: Vec<Settlement>,
        then: Option<&Ask>,
    ) -> SettledAndLeased {
        let mut parts = Parts::of(settlements.into_iter().map(Settlement::into_wire).collect());
        let mut answer = SettledAndLeased { settled: Vec::new(), leased: Ok(Vec::new()) };
        while let Some(settlements) = parts.next() {
            let count = settlements.len();
            let then = then.filter(|_| parts.is_over());
            let request = wire::Settle { settlements, claim: then.map(|ask| ask.to_wire(0)) };
            match self.settle_part(namespace, &request).await {
                Ok(part) => {
                    answer.settled.extend(part.settled);
                    answer.leased = part.leased;
                }
                Err(error) if batch::is_too_large(&error) && count > 1 => parts.halve(request.settlements),
                Err(error) if batch::is_too_large(&error) && count == 1 => {
                    answer.settled.push(Err(batch::item_too_large(&error)));
                    if let Some(ask) = then {
                        answer.leased = self.dequeue_ready(ask.clone()).await;
                    }
                }
                Err(error) => {
                    answer.settled.extend(std::iter::repeat_n(Err(error.clone()), count));
                    if then.is_some() {
                        answer.leased = Err(error);
                    }
                }
            }
        }
        answer
    }

    async fn settle_part(&self, namespace: &Namespace, request: &wire::Settle) -> Result<SettledAndLeased> {
        let path = path::of(namespace).plain("settlements");
        let (repeated, answer) = self.line.send_body::<wire::SettleAnswer>(&path, batch::body(request)?).await;
        let answer = answer?;
        let settled = answer.settled.into_iter().map(|answer| match answer {
            wire::SettledOrError::Settled(settled) => Ok(settled.into()),
            wire::SettledOrError::Error { error: detail } => Err(repeated.doubted(error(&detail))),
        });
        let settled = all(settled.collect(), request.settlements.len())?;
        let leased = match answer.claim_error {
            Some(detail) => Err(repeated.doubted(error(&detail))),
            None => leased(answer.tasks, namespace),
        };
        Ok(SettledAndLeased { settled, leased })
    }

    async fn settle_one(&self, lease: LeaseRef, verdict: Verdict) -> Result<Settled> {
        let namespace = lease.task.namespace.clone();
        let settlement = Settlement { id: self.op_id(), lease, verdict };
        let answer = self.settle_in(&namespace, vec![settlement], None).await;
        answer.settled.into_iter().next().unwrap_or_else(|| Err(short_answer()))
    }

    async fn delete(&self, path: &Path, gone: ReasonCode) -> Result<()> {
        match self.line.ask::<()>(&Method::DELETE, path, None).await {
            // An earlier try whose reply got lost has done it.
            (Repeated::Perhaps, Err(error)) if error.code() == gone => Ok(()),
            (_, outcome) => outcome,
        }
    }
}

#[async_trait]
impl Queue for HttpQueue {
    fn info(&self) -> QueueInfo {
        self.info.clone()
    }

    async fn enqueue(&self, tasks: Vec<NewTask>) -> Vec<Result<Enqueued>> {
        let count = tasks.len();
        let mut answers: Vec<Option<Result<Enqueued>>> = (0..count).map(|_| None).collect();
        for (namespace, places, tasks) in by_namespace(tasks, |task| &task.task.namespace, limits::PAGE_ITEMS_MAX) {
            let answered = self.hand_in(&namespace, tasks).await;
            place(&mut answers, places, answered);
        }
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(short_answer()))).collect()
    }

    async fn dequeue_ready(&self, ask: Ask) -> Result<Vec<Leased>> {
        let path = path::of(&ask.namespace).plain("claims");
        let claimed: wire::Claimed = self.line.send(Method::POST, &path, &ask.to_wire(0)).await?;
        leased(claimed.tasks, &ask.namespace)
    }

    async fn mark_succeeded(&self, lease: LeaseRef, result: Option<Bytes>) -> Result<Settled> {
        self.settle_one(lease, Verdict::Succeeded(result)).await
    }

    async fn mark_failed(&self, lease: LeaseRef, failure: Failure) -> Result<Settled> {
        self.settle_one(lease, Verdict::Failed(failure)).await
    }

    async fn settle(&self, settlements: Vec<Settlement>, then: Option<Ask>) -> SettledAndLeased {
        let count = settlements.len();
        let mut answers: Vec<Option<Result<Settled>>> = (0..count).map(|_| None).collect();
        let mut groups = by_namespace(settlements, |one| &one.lease.task.namespace, limits::CLAIM_TASKS_MAX);
        // The claim goes with the last settlements of its namespace, or alone.
        if let Some(ask) = &then {
            let asks = |group: &(Namespace, Vec<usize>, Vec<Settlement>)| group.0 == ask.namespace;
            match groups.iter().rposition(asks) {
                Some(at) => {
                    let last = groups.remove(at);
                    groups.push(last);
                }
                None => groups.push((ask.namespace.clone(), Vec::new(), Vec::new())),
            }
        }
        let mut given = Ok(Vec::new());
        let last = groups.len().saturating_sub(1);
        for (at, (namespace, places, settlements)) in groups.into_iter().enumerate() {
            let ask = then.as_ref().filter(|_| at == last);
            let answer = self.settle_in(&namespace, settlements, ask).await;
            place(&mut answers, places, answer.settled);
            if ask.is_some() {
                given = answer.leased;
            }
        }
        let settled = answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(short_answer()))).collect();
        SettledAndLeased { settled, leased: given }
    }

    async fn report(&self, lease: LeaseRef, progress: Progress) -> Result<()> {
        // It would be cut over there: what nobody keeps need not be sent.
        let progress = Progress { note: progress.note.as_deref().map(clip), ..progress };
        let body = wire::Progressed { token: lease.token.0, progress: progress.into() };
        self.line.send(Method::POST, &of_task(&lease.task).plain("progress"), &body).await
    }

    async fn beat(&self, runner: Runner) -> Result<()> {
        let path = of_runner(&runner.namespace, &runner.id);
        let body = serde_json::to_vec(&wire::Beat::from(runner)).map_err(Error::payload)?;
        // Not repeated: the next beat follows soon, and only the latest counts.
        self.line.once(&Method::PUT, &path, Some(body.into()), Duration::ZERO).await
    }

    async fn goodbye(&self, namespace: Namespace, runner: RunnerId) -> Result<()> {
        self.delete(&of_runner(&namespace, &runner), ReasonCode::RunnerNotFound).await
    }

    async fn signals(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<Signal>> {
        let list: wire::SignalList = self.read(&of_runner(&namespace, &runner).plain("signals")).await?;
        Ok(list.items.into_iter().map(|signal| signal.into_core(runner.clone())).collect())
    }

    async fn held(&self, namespace: Namespace, runner: RunnerId) -> Result<Vec<LeaseRef>> {
        let held: wire::Held = self.read(&of_runner(&namespace, &runner).plain("held")).await?;
        let lease = |held: wire::HeldLease| {
            LeaseRef::new(TaskRef { namespace: namespace.clone(), id: held.task_id }, Token(held.token))
        };
        Ok(held.items.into_iter().map(lease).collect())
    }

    async fn runners(&self, namespace: Namespace) -> Result<Vec<Runner>> {
        let list: wire::RunnerList = self.read(&path::of(&namespace).plain("runners")).await?;
        Ok(list.items.into_iter().map(|runner| runner.into_core(namespace.clone())).collect())
    }

    async fn get_status(&self, task: TaskRef) -> Result<TaskRecord> {
        Ok(TaskRecord::from_wire(self.read(&of_task(&task)).await?)?)
    }

    async fn counts_by_state(&self, scope: CountScope) -> Result<Counts> {
        let path = path::of(&scope.namespace).plain("counts").maybe("pool", scope.pool);
        Ok(counts_from(self.read(&path).await?))
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<TaskRecord>> {
        let page: wire::TaskPage = self.read(&listing(&query)).await?;
        let items = page.items.into_iter().map(TaskRecord::from_wire).collect::<Result<_, _>>()?;
        Ok(Page { items, cursor: page.cursor })
    }

    async fn explain(&self, task: TaskRef) -> Result<Explanation> {
        Ok(Explanation::from_wire(self.read(&of_task(&task).plain("explain")).await?)?)
    }

    async fn subscribe(&self, namespace: Namespace) -> Result<Subscription> {
        let response = self.line.stream(&path::of(&namespace).plain("events")).await?;
        let (subscription, told) = Subscription::far(namespace.clone());
        tokio::spawn(follow(self.line.clone(), namespace, Stream::new(response), told));
        Ok(subscription)
    }

    async fn cancel(&self, task: TaskRef, note: Option<Arc<str>>) -> Result<TaskRecord> {
        self.command(&task, "cancel", &wire::Cancel { note }).await
    }

    async fn release(&self, task: TaskRef) -> Result<TaskRecord> {
        self.command(&task, "release", &Nothing {}).await
    }

    async fn retry(&self, task: TaskRef) -> Result<TaskRecord> {
        self.command(&task, "retry", &Nothing {}).await
    }

    async fn answer(&self, task: TaskRef, question: QuestionId, content: Arc<str>) -> Result<TaskRecord> {
        let body = wire::Answer { question, content };
        let path = of_task(&task).plain("answer");
        let (repeated, outcome) =
            self.line.send_patiently::<wire::Task>(Method::POST, &path, &body, Duration::ZERO).await;
        match outcome {
            Ok(task) => Ok(TaskRecord::from_wire(task)?),
            // Perhaps it was this very answer that closed the question.
            Err(error) if repeated == Repeated::Perhaps => {
                let record = self.get_status(task).await?;
                let given = record.answer.as_ref().map(|given| (&given.question, &given.content));
                if given == Some((&body.question, &body.content)) { Ok(record) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    async fn start_bulk(&self, id: SweepId, bulk: Bulk) -> Result<Arc<Sweep>> {
        let (action, filter) = match bulk {
            Bulk::Cancel(filter) => (wire::SweepAction::Cancel, filter),
            Bulk::Retry(filter) => (wire::SweepAction::Retry, filter),
            Bulk::Purge(filter) => (wire::SweepAction::Purge, filter),
        };
        let body = wire::NewSweep { id: Some(id), action, filter: wire::Filter::from(&filter), dry_run: false };
        let path = path::of(&filter.namespace).plain("sweeps");
        let sweep: wire::Sweep = self.line.send(Method::POST, &path, &body).await?;
        Ok(Arc::new(sweep.into_core(filter.namespace)))
    }

    async fn bulk(&self, namespace: Namespace, id: SweepId) -> Result<Option<Arc<Sweep>>> {
        let path = path::of(&namespace).plain("sweeps").name(id.as_str());
        match self.read::<wire::Sweep>(&path).await {
            Ok(sweep) => Ok(Some(Arc::new(sweep.into_core(namespace)))),
            Err(error) if error.code() == ReasonCode::SweepNotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>> {
        let path = path::root().plain("namespaces").maybe("after", after).with("limit", limit);
        let page: wire::NamespacePage = self.read(&path).await?;
        Ok(Page { items: page.items, cursor: page.cursor })
    }

    async fn pools(&self, namespace: Namespace, cursor: Option<String>, limit: usize) -> Result<Page<Pool>> {
        let path = path::of(&namespace).plain("pools").maybe("cursor", cursor).with("limit", limit);
        let page: wire::PoolPage = self.read(&path).await?;
        let pool = |pool: wire::Pool| Pool { name: pool.name, settings: pool.settings.into(), newer: Newer::NONE };
        Ok(Page { items: page.items.into_iter().map(pool).collect(), cursor: page.cursor })
    }

    async fn pool(&self, namespace: Namespace, pool: PoolName) -> Result<PoolSettings> {
        let settings: wire::PoolSettings = self.read(&of_pool(&namespace, &pool)).await?;
        Ok(settings.into())
    }

    async fn set_pool(&self, namespace: Namespace, pool: PoolName, settings: PoolSettings) -> Result<()> {
        let body = wire::PoolSettings::from(&settings);
        self.line.send(Method::PUT, &of_pool(&namespace, &pool), &body).await
    }

    async fn set_schedule(&self, schedule: NewSchedule) -> Result<Arc<Schedule>> {
        let namespace = schedule.task.task.namespace.clone();
        let path = of_schedule(&namespace, &schedule.id);
        let set: wire::Schedule = self.line.send(Method::PUT, &path, &schedule.into_wire()).await?;
        Ok(Arc::new(set.into_core(namespace)?))
    }

    async fn schedules(&self, namespace: Namespace) -> Result<Vec<Arc<Schedule>>> {
        let list: wire::ScheduleList = self.read(&path::of(&namespace).plain("schedules")).await?;
        let schedule = |schedule: wire::Schedule| Ok(Arc::new(schedule.into_core(namespace.clone())?));
        list.items.into_iter().map(schedule).collect()
    }

    async fn remove_schedule(&self, namespace: Namespace, schedule: ScheduleId) -> Result<()> {
        self.delete(&of_schedule(&namespace, &schedule), ReasonCode::ScheduleNotFound).await
    }

    async fn maintain(&self, namespace: Namespace) -> Result<Maintained> {
        let path = path::of(&namespace).plain("maintain");
        let done: wire::Maintained = self.line.send(Method::POST, &path, &Nothing {}).await?;
        Ok(done.into())
    }

    async fn next_due(&self, namespace: Namespace) -> Result<Option<Timestamp>> {
        let due: wire::Due = self.read(&path::of(&namespace).plain("due")).await?;
        Ok(due.next_at)
    }

    fn bell(&self, namespace: &Namespace) -> Arc<Bell> {
        self.bells.of(namespace)
    }
}

/// A body that says nothing.
#[derive(Serialize)]
struct Nothing {}

fn of_task(task: &TaskRef) -> Path {
    path::of(&task.namespace).plain("tasks").name(task.id.as_str())
}

fn of_runner(namespace: &Namespace, runner: &RunnerId) -> Path {
    path::of(namespace).plain("runners").name(runner.as_str())
}

fn of_pool(namespace: &Namespace, pool: &PoolName) -> Path {
    path::of(namespace).plain("pools").name(pool.as_str())
}

fn of_schedule(namespace: &Namespace, schedule: &ScheduleId) -> Path {
    path::of(namespace).plain("schedules").name(schedule.as_str())
}

fn listing(query: &TaskQuery) -> Path {
    let filter = &query.filter;
    let states: Vec<&str> = filter.phases.iter().copied().map(Phase::as_str).collect();
    path::of(&filter.namespace)
        .plain("tasks")
        .maybe("state", (!states.is_empty()).then(|| states.join(",")))
        .maybe("pool", filter.pool.as_ref())
        .maybe("task_type", filter.kind.as_ref())
        .maybe("group", filter.group.as_ref())
        .maybe("session", filter.session.as_ref())
        .maybe("held_by", filter.held_by.as_ref())
        .maybe("text", filter.text.as_ref())
        .with(
            "order",
            match query.order {
                ListOrder::NewestFirst => "newest",
                ListOrder::OldestFirst => "oldest",
            },
        )
        .maybe("cursor", query.cursor.as_ref())
        .with("limit", query.limit)
}

fn leased(tasks: Vec<wire::LeasedTask>, namespace: &Namespace) -> Result<Vec<Leased>> {
    Ok(tasks.into_iter().map(|task| Leased::from_wire(task, namespace)).collect::<Result<_, _>>()?)
}

/// Items of one namespace each, in requests of a size that a server takes, with the places that they stood in.
fn by_namespace<T>(
    items: Vec<T>,
    namespace: impl Fn(&T) -> &Namespace,
    size_max: usize,
) -> Vec<(Namespace, Vec<usize>, Vec<T>)> {
    let mut groups: Vec<(Namespace, Vec<usize>, Vec<T>)> = Vec::new();
    for (at, item) in items.into_iter().enumerate() {
        let name = namespace(&item);
        match groups.iter_mut().rev().find(|group| group.0 == *name).filter(|group| group.1.len() < size_max) {
            Some((_, places, items)) => {
                places.push(at);
                items.push(item);
            }
            None => groups.push((name.clone(), vec![at], vec![item])),
        }
    }
    groups
}

/// Puts answers where their questions stood.
fn place<T>(answers: &mut [Option<Result<T>>], places: Vec<usize>, answered: Vec<Result<T>>) {
    for (at, answer) in places.into_iter().zip(answered) {
        if let Some(slot) = answers.get_mut(at) {
            *slot = Some(answer);
        }
    }
}

/// As many answers as questions, or none at all.
fn all<T>(answers: Vec<T>, count: usize) -> Result<Vec<T>> {
    if answers.len() == count { Ok(answers) } else { Err(short_answer()) }
}

fn short_answer() -> Error {
    ekiden_core::reason::Refusal::new(ReasonCode::ServerForeign).with("why", "fewer answers than questions").into()
}

/// Tells a subscriber what a stream tells, and opens it again from where it broke, for as long as anybody listens.
async fn follow(
    line: super::line::Line,
    namespace: Namespace,
    mut stream: Stream,
    told: tokio::sync::mpsc::Sender<Heard>,
) {
    let mut cursor = None;
    let mut waits = Backoff::new(hints::REOPEN_AFTER, hints::REOPEN_MAX);
    loop {
        let opened = SystemClock.monotonic();
        loop {
            let event = tokio::select! {
                event = stream.next() => event,
                () = told.closed() => return,
            };
            let Ok(Some(event)) = event else { break };
            cursor = event.id.or(cursor);
            let heard = match event.name.as_str() {
                "change" => match serde_json::from_str::<wire::TaskChange>(&event.data) {
                    Ok(change) => Heard::Change(Box::new(change.into())),
                    // From a newer server, with words that this side does not know.
                    Err(_) => Heard::Missed(1),
                },
                "reset" => {
                    let reset = serde_json::from_str::<wire::Reset>(&event.data).ok();
                    Heard::Missed(reset.and_then(|reset| reset.missed).unwrap_or(1))
                }
                _ => continue,
            };
            if told.send(heard).await.is_err() {
                return;
            }
        }
        // A server that ends every stream at once is not asked for the next as quickly.
        if SystemClock.monotonic().saturating_sub(opened) >= hints::REOPEN_MAX {
            waits.reset();
        }
        stream = loop {
            tokio::select! {
                () = tokio::time::sleep(waits.next(line.random())) => {}
                () = told.closed() => return,
            }
            let path = path::of(&namespace).plain("events").maybe("cursor", cursor.as_ref());
            // Until the server can be reached again.
            if let Ok(response) = line.stream(&path).await {
                break Stream::new(response);
            }
        };
        // Without a cursor nobody knows what came meanwhile.
        if cursor.is_none() && told.send(Heard::Missed(1)).await.is_err() {
            return;
        }
    }
}
