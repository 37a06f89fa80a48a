//! A client of the load: hands tasks in, and is a runner too. It dies now and then, and its old work goes on, comes back late
//! or is never heard of again. What is refused or fails is as a caller would find it; the laws judge.

use ekiden_core::newer::Newer;
use std::sync::Arc;
use std::time::Duration;

use ekiden::core::{
    FailureKind, Kind, Millis, OpId, PoolName, Progress, Question, QuestionId, ReasonCode, Runner, RunnerId,
    RunnerStatus, Stage, TaskId, Timestamp, Token,
};
use ekiden::store::{Clock, Entropy, SystemClock};
use ekiden::{Ask, Enqueued, Failure, LeaseRef, Leased, Queue, Result, Settlement, Verdict};

use super::{KINDS, LEASE, POOLS, Traffic, named, namespace, wishes};
use crate::facts::Note;
use crate::fleet::pass;
use crate::history;
use crate::recorded_queue::RecordedQueue;

/// A task that this client holds, or held when it was another incarnation.
struct Held {
    lease: LeaseRef,
    started: bool,
}

/// A client.
pub(super) struct Worker {
    traffic: Arc<Traffic>,
    number: usize,
    queue: RecordedQueue,
    record: history::Client,
    pub(super) entropy: Entropy,
    runner: RunnerId,
    beat_at: Option<Timestamp>,
    held: Vec<Held>,
}

impl Worker {
    pub(super) fn new(traffic: Arc<Traffic>, number: usize, queue: RecordedQueue, record: history::Client) -> Self {
        let stream = u64::try_from(number).unwrap_or(0);
        let mut entropy = Entropy::from_seed(traffic.seed.wrapping_mul(1_009).wrapping_add(stream));
        let runner = runner_id(number, &mut entropy);
        Self { traffic, number, queue, record, entropy, runner, beat_at: None, held: Vec::new() }
    }

    /// Works until it is told to stop, then leaves without a word. What it holds is left to others.
    pub(super) async fn run(mut self) {
        while !self.traffic.is_stopped() {
            self.step().await;
            tokio::task::yield_now().await;
        }
    }

    async fn step(&mut self) {
        match self.entropy.below(100) {
            0..18 => self.enqueue().await,
            18..42 => self.claim().await,
            42..82 => self.work().await,
            82..86 => self.cancel().await,
            86..89 => self.retry().await,
            89..92 => self.answer().await,
            92..95 => self.reconcile().await,
            95..97 => drop(self.queue.maintain(namespace()).await),
            97..99 => self.die(),
            _ => self.pause().await,
        }
    }

    /// Some milliseconds of nothing, so that not everybody is always in the middle of a request.
    async fn pause(&mut self) {
        let span = Duration::from_millis(u64::try_from(self.entropy.below(20)).unwrap_or(0));
        pass(span).await;
    }

    pub(super) fn op(&mut self) -> OpId {
        self.entropy.op_id(SystemClock.now())
    }

    async fn enqueue(&mut self) {
        let known = self.latest();
        let tasks = (0..1 + self.entropy.below(3)).map(|_| {
            let id = self.entropy.task_id(SystemClock.now());
            let op = self.op();
            wishes::task(&mut self.entropy, &id, op, &known)
        });
        let tasks: Vec<_> = tasks.collect();
        let held: Vec<bool> = tasks.iter().map(|task| task.start == ekiden::core::Start::Held).collect();
        let answers = self.queue.enqueue(tasks).await;
        for (answer, held) in answers.into_iter().zip(held) {
            if let Ok(Enqueued { id, is_new: true }) = answer {
                self.traffic.known().tasks.push(id.clone());
                if held && self.entropy.chance(70) {
                    let _ = self.queue.release(named(&id)).await;
                }
            }
        }
    }

    /// The latest are the ones that run or wait.
    fn latest(&self) -> Vec<TaskId> {
        let known = self.traffic.known();
        let from = known.tasks.len().saturating_sub(24);
        known.tasks.get(from..).unwrap_or_default().to_vec()
    }

    pub(super) fn ask(&mut self, limit: usize) -> Ask {
        let pool = |name: &&str| PoolName::new(*name).expect("a plain word is a valid id");
        let kind = |name: &&str| Kind::new(*name).expect("a letter is a valid id");
        Ask {
            id: self.op(),
            namespace: namespace(),
            pools: POOLS.iter().map(pool).collect(),
            kinds: KINDS.iter().map(kind).collect(),
            limit,
            holder: self.runner.clone(),
        }
    }

    /// A runner claims only if a beat was acknowledged within half a lease; a dead one starts anew.
    async fn claim(&mut self) {
        if !self.is_fresh().await {
            return;
        }
        let limit = 1 + self.entropy.below(3);
        let ask = self.ask(limit);
        let leased = self.queue.dequeue_ready(ask).await;
        self.take(leased);
    }

    fn take(&mut self, leased: Result<Vec<Leased>>) {
        let held = |leased: Leased| Held { lease: leased.lease, started: false };
        self.held.extend(leased.unwrap_or_default().into_iter().map(held));
    }

    pub(super) async fn is_fresh(&mut self) -> bool {
        let now = SystemClock.now();
        let fresh = self.beat_at.is_some_and(|at| now.since(at).as_u64() * 4 < LEASE.as_u64());
        fresh || self.beat(now).await
    }

    async fn beat(&mut self, now: Timestamp) -> bool {
        let runner = Runner {
            namespace: namespace(),
            id: self.runner.clone(),
            started_at: now,
            last_heartbeat: now,
            status: RunnerStatus::Running,
            lease: LEASE,
            project_root: String::new(),
            pools: Vec::new(),
            kinds: Vec::new(),
            newer: Newer::NONE,
        };
        match self.queue.beat(runner).await {
            Ok(()) => {
                self.beat_at = Some(now);
                true
            }
            Err(error) => {
                if error.code() == ReasonCode::RunnerDead {
                    self.die();
                }
                false
            }
        }
    }

    /// A new incarnation. What the old one held goes on here, as work of a runner that will be declared dead, or is lost.
    fn die(&mut self) {
        self.runner = runner_id(self.number, &mut self.entropy);
        self.beat_at = None;
        let entropy = &mut self.entropy;
        self.held.retain(|_| entropy.chance(60));
    }

    /// Begins a task's work, says how far it is, or ends it and settles.
    async fn work(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.entropy.below(self.held.len());
        let returned = self.entropy.chance(5);
        let report = self.entropy.chance(10);
        let Some(held) = self.held.get_mut(at) else { return };
        let (task, token) = (held.lease.task.id.clone(), held.lease.token);
        if !held.started && !returned {
            held.started = true;
            return self.record.note(Note::Started { task, token });
        }
        if held.started && report {
            let progress = Progress { done: 1, total: Some(2), note: None };
            let lease = held.lease.clone();
            let _ = self.queue.report(lease, progress).await;
            return;
        }
        let held = self.held.swap_remove(at);
        if held.started {
            self.record.note(Note::Finished { task, token });
            let verdict = self.verdict();
            self.settle(held.lease, verdict).await;
        } else {
            self.settle(held.lease, Verdict::Returned).await;
        }
    }

    fn verdict(&mut self) -> Verdict {
        let delay = Millis::new(u64::try_from(self.entropy.below(300)).unwrap_or(0));
        let failed = |kind| Verdict::Failed(Failure { kind, message: Arc::from("it did not work") });
        match self.entropy.below(100) {
            0..50 => Verdict::Succeeded(None),
            50..65 => failed(FailureKind::Retryable),
            65..69 => failed(FailureKind::Permanent),
            69..72 => failed(FailureKind::RetryAfter(delay)),
            72..74 => failed(FailureKind::Crashed),
            74..80 => Verdict::Snoozed(delay),
            80..86 => Verdict::Interrupted,
            86..90 => Verdict::TimedOut,
            _ => Verdict::Asked(Box::new(self.question())),
        }
    }

    fn question(&mut self) -> Question {
        let id = QuestionId::new(format!("q-{:016x}", self.entropy.next_u64())).expect("hex digits are a valid id");
        Question { id, text: Arc::from("may I?"), choices: Vec::new(), deadline: None, default: None }
    }

    /// Some settle alone, some ask for more work with the same request.
    async fn settle(&mut self, lease: LeaseRef, verdict: Verdict) {
        let question = match &verdict {
            Verdict::Asked(question) => Some(question.id.clone()),
            _ => None,
        };
        let outcome = match verdict {
            Verdict::Succeeded(result) if self.entropy.chance(30) => {
                self.queue.mark_succeeded(lease.clone(), result).await
            }
            Verdict::Failed(failure) if self.entropy.chance(30) => self.queue.mark_failed(lease.clone(), failure).await,
            verdict => {
                let then = if self.entropy.chance(40) && self.is_fresh().await { Some(self.ask(1)) } else { None };
                let settlement = Settlement { id: self.op(), lease: lease.clone(), verdict };
                let answer = self.queue.settle(vec![settlement], then).await;
                self.take(answer.leased);
                answer.settled.into_iter().next().unwrap_or_else(|| Err(ReasonCode::ServerForeign.into()))
            }
        };
        match outcome {
            Ok(_) => {
                let asked = question.map(|question| (lease.task.id, question));
                self.traffic.known().questions.extend(asked);
            }
            Err(error) if error.code() == ReasonCode::TaskCancelled => {
                let verdict = Verdict::Stopped(Stage::Verified);
                let settlement = Settlement { id: self.op(), lease, verdict };
                self.queue.settle(vec![settlement], None).await;
            }
            Err(_) => {}
        }
    }

    async fn cancel(&mut self) {
        let known = self.latest();
        if !known.is_empty() {
            let task = named(self.entropy.pick(&known));
            let _ = self.queue.cancel(task, None).await;
        }
    }

    async fn retry(&mut self) {
        let known = self.latest();
        if !known.is_empty() {
            let task = named(self.entropy.pick(&known));
            let _ = self.queue.retry(task).await;
        }
    }

    async fn answer(&mut self) {
        let asked = self.traffic.known().questions.pop();
        if let Some((task, question)) = asked {
            let _ = self.queue.answer(named(&task), question, Arc::from("yes")).await;
        }
    }

    /// Gives back what this runner holds by the queue's word and knows nothing of: the tasks of claims without an answer.
    async fn reconcile(&mut self) {
        let Ok(held) = self.queue.held(namespace(), self.runner.clone()).await else { return };
        let mine = |lease: &LeaseRef, token: Token| {
            self.held.iter().any(|held| held.lease.task == lease.task && held.lease.token == token)
        };
        let strange: Vec<LeaseRef> = held.into_iter().filter(|lease| !mine(lease, lease.token)).collect();
        for lease in strange {
            self.settle(lease, Verdict::Returned).await;
        }
    }

    /// Does what can be claimed, well. Says whether there was anything.
    pub(super) async fn finish_some(&mut self) -> bool {
        if !self.is_fresh().await {
            return false;
        }
        let ask = self.ask(16);
        let leased = self.queue.dequeue_ready(ask).await.unwrap_or_default();
        let any = !leased.is_empty();
        let mut settlements = Vec::new();
        for leased in leased {
            let (task, token) = (leased.lease.task.id.clone(), leased.lease.token);
            self.record.note(Note::Started { task: task.clone(), token });
            self.record.note(Note::Finished { task, token });
            let verdict = Verdict::Succeeded(None);
            settlements.push(Settlement { id: self.op(), lease: leased.lease, verdict });
        }
        self.queue.settle(settlements, None).await;
        any
    }
}

fn runner_id(number: usize, entropy: &mut Entropy) -> RunnerId {
    let name = format!("runner-{number}.{:08x}", entropy.next_u64() >> 32);
    RunnerId::new(name).expect("letters and digits are a valid id")
}
