//! A client of the load: hands tasks in, and is a runner too. It dies now and then, and its old work goes on, comes back late
//! or is never heard of again.

use std::sync::Arc;

use ekiden_core::attempt::Stage;
use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{GroupId, QuestionId, RunnerId, SweepId, TaskId};
use ekiden_core::key::Key;
use ekiden_core::lease::Token;
use ekiden_core::newer::Newer;
use ekiden_core::plan::{Beat, Draft, Enqueue, Enqueued, Goodbye, Happen, Plan, Retry, Stop};
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Record;
use ekiden_core::retry::FailureKind;
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::task::Question;
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::transition::Start;
use ekiden_store::StoreExt;

use super::maintenance::held_by;
use super::wishes;
use super::world::{Actor, LEASE, LIMITED, Sent, World, namespace, pool, task_key, token_of};
use crate::facts::{Call, EnqueueFacts, Note};

/// 7: steps for each task that a client hands in: claims, work, settlements, and what goes wrong.
const STEPS_A_TASK: usize = 7;

/// How long a client works.
#[derive(Clone, Copy)]
pub(super) enum Steps {
    /// So many, then it leaves.
    Some(usize),
    /// Until its process is no more.
    Endless,
}

impl Steps {
    pub(super) const fn for_tasks(tasks: usize) -> Self {
        Self::Some(tasks * STEPS_A_TASK)
    }

    const fn left_after(self, done: usize) -> bool {
        match self {
            Self::Some(steps) => done < steps,
            Self::Endless => true,
        }
    }
}

/// A task that this client holds, or held when it was another incarnation.
struct Held {
    task: TaskId,
    token: Token,
    started: bool,
}

/// A client.
pub(super) struct Worker {
    actor: Actor,
    number: usize,
    steps: Steps,
    runner: RunnerId,
    beat_at: Option<Timestamp>,
    held: Vec<Held>,
}

impl Worker {
    pub(super) fn new(world: Arc<World>, number: usize, steps: Steps) -> Self {
        let stream = u64::try_from(number).unwrap_or(0);
        let mut actor = Actor::new(world, &format!("client-{number}"), stream);
        let runner = actor.runner_id(number);
        Self { actor, number, steps, runner, beat_at: None, held: Vec::new() }
    }

    /// The same client with work in hand that was begun before its time.
    pub(super) fn with_work(mut self, work: impl IntoIterator<Item = (TaskId, Token)>) -> Self {
        self.held.extend(work.into_iter().map(|(task, token)| Held { task, token, started: true }));
        self
    }

    /// Works off its steps, then leaves: with a goodbye, or just silent. What it holds is left to others.
    pub(super) async fn run(mut self) {
        let mut done = 0;
        while self.steps.left_after(done) {
            self.step().await;
            done += 1;
            tokio::task::yield_now().await;
        }
        if self.actor.entropy.chance(50) {
            self.actor.quietly(&Goodbye { runner: Key::runner(&namespace(), &self.runner) }).await;
        }
    }

    async fn step(&mut self) {
        match self.actor.entropy.below(100) {
            0..18 => self.enqueue().await,
            18..40 => self.claim().await,
            40..75 => self.work().await,
            75..80 => self.cancel().await,
            80..83 => self.retry().await,
            83..87 => self.answer().await,
            87..89 => self.bulk_cancel().await,
            89..91 => self.reconcile().await,
            91..93 => self.die(),
            93..97 => self.pass_time(2_000),
            97 => self.family().await,
            98 => self.heir().await,
            _ if self.actor.entropy.chance(30) => self.pass_time(250_000),
            _ => self.pass_time(10_000),
        }
    }

    fn pass_time(&mut self, millis_max: usize) {
        let millis = u64::try_from(self.actor.entropy.below(millis_max)).unwrap_or(0);
        self.actor.world.clock.advance(Millis::new(millis));
    }

    async fn enqueue(&mut self) {
        let (plan, facts) = wishes::task(&mut self.actor);
        let (op, held) = (facts.op, plan.start == Start::Held);
        let answer = self.actor.hand_in(&plan, op, &Call::Enqueue(Box::new(facts))).await;
        let Sent::Done(done) = answer else { return };
        if let Enqueued::New(task) = &done {
            self.actor.world.known().tasks.push(task.id().clone());
        }
        if held && self.actor.entropy.chance(70) {
            self.actor.quietly(&Happen { task: task_key(done.id()), event: Event::Released }).await;
        }
    }

    /// A parent with more children than one step of a sweep tells: more than its writes, or its bytes, allow. Of its failure it
    /// tells twice as many a step as of its success, since their edges stay.
    async fn family(&mut self) {
        let (parent, facts) = wishes::child(&mut self.actor, Vec::new(), Start::Held);
        let Some(parent) = self.hand_in(parent, facts).await else { return };
        for _ in 0..24 {
            let (child, facts) = wishes::child(&mut self.actor, vec![parent.clone()], Start::Released);
            self.hand_in(child, facts).await;
        }
        if self.actor.entropy.chance(50) {
            self.actor.quietly(&Happen { task: task_key(&parent), event: Event::Released }).await;
        } else {
            self.actor.cancel(&parent).await;
        }
    }

    /// A child of more parents than one commit links it to.
    async fn heir(&mut self) {
        let mut parents = Vec::new();
        for _ in 0..9 + self.actor.entropy.below(8) {
            let (parent, facts) = wishes::child(&mut self.actor, Vec::new(), Start::Released);
            parents.extend(self.hand_in(parent, facts).await);
        }
        let (child, facts) = wishes::child(&mut self.actor, parents, Start::Released);
        self.hand_in(child, facts).await;
    }

    /// Hands in; the task, if it is surely there.
    async fn hand_in(&mut self, plan: Enqueue, facts: EnqueueFacts) -> Option<TaskId> {
        let op = facts.op;
        let answer = self.actor.hand_in(&plan, op, &Call::Enqueue(Box::new(facts))).await;
        let Sent::Done(Enqueued::New(task)) = answer else { return None };
        self.actor.world.known().tasks.push(task.id().clone());
        Some(task.id().clone())
    }

    /// A runner claims only if a beat was acknowledged within half a lease; a dead one starts anew.
    async fn claim(&mut self) {
        let now = self.actor.world.now();
        let fresh = self.beat_at.is_some_and(|at| now.since(at).as_u64() * 2 < LEASE.as_u64());
        if (!fresh || self.actor.entropy.chance(20)) && !self.beat().await {
            return;
        }
        let pools = [
            ClaimPool::open(namespace(), pool("work")),
            ClaimPool::open(namespace(), pool("mail")),
            ClaimPool { running_max: Some(LIMITED.1), ..ClaimPool::open(namespace(), pool(LIMITED.0)) },
        ];
        let mail = self.actor.entropy.chance(30);
        let lease = if mail { LeaseTerm::For(Millis::from_secs(2)) } else { LeaseTerm::Heartbeat };
        let claim = Claim {
            id: self.actor.op(),
            now: self.actor.world.now(),
            pools: pools.into_iter().filter(|_| !mail || self.actor.entropy.chance(70)).collect(),
            kinds: Kinds::Any,
            limit: 1 + self.actor.entropy.below(3),
            holder: self.runner.clone(),
            lease,
        };
        if claim.pools.is_empty() {
            return;
        }
        for task in self.actor.claim(&claim).await {
            let held = Held { task: task.id().clone(), token: token_of(&task), started: false };
            self.held.push(held);
        }
    }

    async fn beat(&mut self) -> bool {
        let now = self.actor.world.now();
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
        match self.actor.quietly(&Beat { runner }).await {
            Sent::Done(_) => {
                self.beat_at = Some(now);
                true
            }
            Sent::Refused(_) => {
                self.die();
                false
            }
            Sent::GaveUp => false,
        }
    }

    /// A new incarnation. What the old one held goes on here, as work of a runner that will be declared dead, or is lost.
    fn die(&mut self) {
        self.runner = self.actor.runner_id(self.number);
        self.beat_at = None;
        let entropy = &mut self.actor.entropy;
        self.held.retain(|_| entropy.chance(60));
    }

    /// Begins a task's work, or ends it and settles.
    async fn work(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let at = self.actor.entropy.below(self.held.len());
        let returned = self.actor.entropy.chance(5);
        let Some(held) = self.held.get_mut(at) else { return };
        let (task, token) = (held.task.clone(), held.token);
        if !held.started && !returned {
            held.started = true;
            self.actor.record.note(Note::Started { task, token });
            return;
        }
        let held = self.held.swap_remove(at);
        if held.started {
            self.actor.record.note(Note::Finished { task: task.clone(), token });
            self.settle(&task, token).await;
        } else {
            self.actor.settle(&task, token, Event::Returned { token }).await;
        }
    }

    async fn settle(&mut self, task: &TaskId, token: Token) {
        let question = self.question();
        let delay = Millis::new(u64::try_from(self.actor.entropy.below(5_000)).unwrap_or(0));
        let failed = |kind| Event::Failed { token, kind, error: Arc::from("it did not work") };
        let event = match self.actor.entropy.below(100) {
            0..50 => Event::Succeeded { token, result: None },
            50..65 => failed(FailureKind::Retryable),
            65..69 => failed(FailureKind::Permanent),
            69..72 => failed(FailureKind::RetryAfter(delay)),
            72..74 => failed(FailureKind::Crashed),
            74..80 => Event::Snoozed { token, delay },
            80..86 => Event::Interrupted { token },
            86..90 => Event::TimedOut { token },
            _ => Event::Asked { token, question: Box::new(question.clone()) },
        };
        let asked = matches!(event, Event::Asked { .. });
        match self.actor.settle(task, token, event).await {
            Sent::Done(_) if asked => self.actor.world.known().questions.push((task.clone(), question.id)),
            Sent::Refused(ReasonCode::TaskCancelled) => {
                let event = Event::AttemptEnded { token, stage: Stage::Verified };
                self.actor.release(task, event).await;
            }
            _ => {}
        }
    }

    fn question(&mut self) -> Question {
        let id =
            QuestionId::new(format!("q-{:016x}", self.actor.entropy.next_u64())).expect("hex digits are a valid id");
        let soon = self.actor.world.now() + Millis::from_secs(5);
        Question {
            id,
            text: Arc::from("may I?"),
            choices: Vec::new(),
            deadline: self.actor.entropy.chance(30).then_some(soon),
            default: self.actor.entropy.chance(50).then(|| Arc::from("yes")),
        }
    }

    fn some_task(&mut self) -> Option<TaskId> {
        let known = self.actor.world.known().tasks.clone();
        if known.is_empty() { None } else { Some(self.actor.entropy.pick(&known).clone()) }
    }

    async fn cancel(&mut self) {
        if let Some(task) = self.some_task() {
            self.actor.cancel(&task).await;
        }
    }

    async fn retry(&mut self) {
        let Some(task) = self.some_task() else { return };
        let new_id = self.actor.entropy.task_id(self.actor.world.now());
        let op = self.actor.op();
        let plan = Retry { task: task_key(&task), new_id };
        self.actor.hand_in(&plan, op, &Call::Retry { task }).await;
    }

    async fn answer(&mut self) {
        let asked = self.actor.world.known().questions.pop();
        if let Some((task, question)) = asked {
            let event = Event::Answered { question, content: Arc::from("yes") };
            self.actor.quietly(&Happen { task: task_key(&task), event }).await;
        }
    }

    async fn bulk_cancel(&mut self) {
        let group = wishes::group(&mut self.actor.entropy);
        let name = format!("cancel-{:016x}", self.actor.entropy.next_u64());
        let sweep = SweepId::new(name).expect("letters and digits are a valid id");
        self.actor.quietly(&BulkCancel { sweep, group }).await;
    }

    /// Gives back what this runner holds by the store's word and knows nothing of: the tasks of claims without an answer.
    async fn reconcile(&mut self) {
        let world = self.actor.world.clone();
        for task in held_by(&world, &self.runner).await {
            let found = world.read(|| world.store.get_one(task_key(&task))).await.flatten();
            let lease = found.and_then(|found| found.record.as_task()?.state.lease.clone());
            let Some(lease) = lease.filter(|lease| lease.holder == self.runner) else { continue };
            let mine = self.held.iter().any(|held| held.task == task && held.token == lease.token);
            if mine {
                continue;
            }
            let token = lease.token;
            if let Sent::Refused(ReasonCode::TaskCancelled) =
                self.actor.settle(&task, token, Event::Returned { token }).await
            {
                self.actor.release(&task, Event::AttemptEnded { token, stage: Stage::Verified }).await;
            }
        }
    }
}

/// Asks for the cancellation of a whole group.
struct BulkCancel {
    sweep: SweepId,
    group: GroupId,
}

impl Plan for BulkCancel {
    type Done = ();

    fn draft(&self, draft: &mut Draft<'_>) -> Result<(), Stop> {
        let key = Key::sweep(&namespace(), &self.sweep);
        draft.need(std::slice::from_ref(&key))?;
        if !draft.created(&key)? {
            let filter = TaskFilter { group: Some(self.group.clone()), ..TaskFilter::all(namespace()) };
            let sweep = Sweep::new(self.sweep.clone(), SweepWork::Cancel(filter), draft.now());
            draft.put(key, Record::Sweep(Arc::new(sweep)));
        }
        Ok(())
    }
}
