//! What the clients of a load share: the store, the clock, the record, and how an op is sent, recorded and repeated.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ekiden_core::attempt::Outcome;
use ekiden_core::claim::Claim;
use ekiden_core::event::Event;
use ekiden_core::id::{Namespace, OpId, PoolName, QuestionId, RunnerId, TaskId};
use ekiden_core::key::Key;
use ekiden_core::lease::Token;
use ekiden_core::limits;
use ekiden_core::plan::{Enqueued, Happen, Happened, Plan, Purge, Purged};
use ekiden_core::reason::ReasonCode;
use ekiden_core::retry::FailureKind;
use ekiden_core::task::Task;
use ekiden_core::time::{Millis, Timestamp};
use ekiden_store::clock::{Clock, ManualClock};
use ekiden_store::entropy::Entropy;
use ekiden_store::{PlanError, Store, StoreError, StoreExt};

use super::Scene;
use crate::facts::{Ack, Call, Grant, Reply};
use crate::history::{Client, Recorder};

/// 2026-11-15T12:00:00Z: when every load begins.
pub const NOON: Timestamp = Timestamp::from_millis(1_794_744_000_000);

/// 6: how often a doubtful or refused op is sent; then the client gives up, as a real one would.
const TRIES: usize = 6;

/// 40: how often a read is tried. Reads decide nothing, so the load does not study what happens without them.
const READS: usize = 40;

/// The pool whose running tasks are limited, and to how many.
pub(super) const LIMITED: (&str, u32) = ("limited", 2);

/// How long a runner may be silent. Short against the steps of the load's time, so that runners are declared dead alive.
pub(super) const LEASE: Millis = Millis::from_secs(5);

/// What clients share.
pub(super) struct World {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) seed: u64,
    /// What every task carries.
    pub(super) payload: Bytes,
    known: Arc<Mutex<Known>>,
    stopped: Arc<AtomicBool>,
}

/// What clients tell each other.
#[derive(Default)]
pub(super) struct Known {
    pub(super) tasks: Vec<TaskId>,
    pub(super) questions: Vec<(TaskId, QuestionId)>,
}

pub(super) fn namespace() -> Namespace {
    Namespace::new("default").expect("a plain word is a valid id")
}

pub(super) fn pool(name: &str) -> PoolName {
    PoolName::new(name).expect("a plain word is a valid id")
}

pub(super) fn task_key(task: &TaskId) -> Key {
    Key::task(&namespace(), task)
}

impl World {
    pub(super) fn new(store: Arc<dyn Store>, seed: u64) -> Arc<Self> {
        let clock = Arc::new(ManualClock::new(NOON));
        let recorder = Recorder::new("load", clock.clone());
        // Every fourth load has payloads of the largest size, of which a commit holds twelve.
        let payload = match seed % 4 {
            3 => Bytes::from(format!("\"{}\"", "x".repeat(limits::PAYLOAD_BYTES_MAX - 2))),
            _ => Bytes::from_static(b"{}"),
        };
        Self::with(Scene { store, clock, recorder, seed }, payload)
    }

    pub(super) fn of(scene: Scene) -> Arc<Self> {
        Self::with(scene, Bytes::from_static(b"{}"))
    }

    fn with(scene: Scene, payload: Bytes) -> Arc<Self> {
        let Scene { store, clock, recorder, seed } = scene;
        let (known, stopped) = (Arc::default(), Arc::default());
        Arc::new(Self { store, clock, recorder, seed, payload, known, stopped })
    }

    /// The same world, seen through another store.
    pub(super) fn beside(&self, store: Arc<dyn Store>) -> Arc<Self> {
        let (clock, recorder) = (self.clock.clone(), self.recorder.clone());
        let (known, stopped) = (self.known.clone(), self.stopped.clone());
        Arc::new(Self { store, clock, recorder, seed: self.seed, payload: self.payload.clone(), known, stopped })
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// A read that is repeated until it succeeds; `None` if the store never answers.
    pub(super) async fn read<T, F: Future<Output = Result<T, StoreError>>>(&self, read: impl Fn() -> F) -> Option<T> {
        for _ in 0..READS {
            if let Ok(found) = read().await {
                return Some(found);
            }
        }
        None
    }
}

/// Somebody with a name in the history and a stream of chance.
pub(super) struct Actor {
    pub(super) world: Arc<World>,
    pub(super) record: Client,
    pub(super) entropy: Entropy,
}

/// What became of an op after all its tries.
pub(super) enum Sent<T> {
    /// It happened.
    Done(T),
    /// The rules said no.
    Refused(ReasonCode),
    /// The store never gave a clear answer.
    GaveUp,
}

/// What a refusal proves. Behind a layer that repeats by itself, an op can happen in a first, hidden try and be refused in the
/// second; where that matters to a law the refusal is recorded as doubt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusals {
    Certain,
    Doubtful,
}

impl Actor {
    pub(super) fn new(world: Arc<World>, name: &str, stream: u64) -> Self {
        let record = world.recorder.client(name);
        let entropy = Entropy::from_seed(world.seed.wrapping_mul(1_009).wrapping_add(stream));
        Self { world, record, entropy }
    }

    pub(super) fn op(&mut self) -> OpId {
        self.entropy.op_id(self.world.now())
    }

    /// Carries out a plan, repeated under its own id while its outcome is in doubt, each try recorded by itself.
    async fn send<P>(
        &self,
        plan: &P,
        id: OpId,
        call: &Call,
        refusals: Refusals,
        reply: impl Fn(&P::Done) -> Reply,
    ) -> Sent<P::Done>
    where
        P: Plan + Sync,
        P::Done: Send,
    {
        for _ in 0..TRIES {
            let pending = self.record.invoke(call.clone());
            match self.world.store.run(plan, id, self.world.now()).await {
                Ok(done) => {
                    pending.ok(reply(&done));
                    return Sent::Done(done);
                }
                Err(PlanError::Refused(refusal)) => {
                    match refusals {
                        Refusals::Certain => pending.fail(&refusal),
                        Refusals::Doubtful => pending.unknown(&refusal),
                    }
                    return Sent::Refused(refusal.code);
                }
                Err(PlanError::Store(error)) if error.happened == ekiden_store::Happened::NotApplied => {
                    pending.fail(error);
                }
                Err(PlanError::Store(error)) => pending.unknown(error),
            }
            tokio::task::yield_now().await;
        }
        Sent::GaveUp
    }

    /// Carries out a plan that no law asks about.
    pub(super) async fn quietly<P>(&mut self, plan: &P) -> Sent<P::Done>
    where
        P: Plan + Sync,
        P::Done: Send,
    {
        let id = self.op();
        for _ in 0..TRIES {
            match self.world.store.run(plan, id, self.world.now()).await {
                Ok(done) => return Sent::Done(done),
                Err(PlanError::Refused(refusal)) => return Sent::Refused(refusal.code),
                Err(PlanError::Store(_)) => tokio::task::yield_now().await,
            }
        }
        Sent::GaveUp
    }

    /// An enqueue or a retry.
    pub(super) async fn hand_in<P>(&self, plan: &P, id: OpId, call: &Call) -> Sent<Enqueued>
    where
        P: Plan<Done = Enqueued> + Sync,
    {
        let retry = matches!(call, Call::Retry { .. });
        let refusals = if retry { Refusals::Doubtful } else { Refusals::Certain };
        self.send(plan, id, call, refusals, |done: &Enqueued| {
            let ack = if matches!(done, Enqueued::New(_)) { Ack::Fresh } else { Ack::Repeated };
            Reply::Enqueued { task: done.id().clone(), ack }
        })
        .await
    }

    pub(super) async fn settle(&mut self, task: &TaskId, token: Token, event: Event) -> Sent<Happened> {
        let outcome = match &event {
            Event::Succeeded { .. } => Outcome::Succeeded,
            Event::Failed { kind: FailureKind::Crashed, .. } => Outcome::Crashed,
            Event::Failed { .. } => Outcome::Failed,
            Event::TimedOut { .. } => Outcome::TimedOut,
            Event::Snoozed { .. } => Outcome::Snoozed,
            Event::Interrupted { .. } => Outcome::Interrupted,
            Event::Asked { .. } => Outcome::Asked,
            _ => Outcome::Returned,
        };
        let op = self.op();
        let call = Call::Settle { op, task: task.clone(), token, outcome };
        self.happen(task, event, op, &call, Refusals::Certain).await
    }

    pub(super) async fn cancel(&mut self, task: &TaskId) -> Sent<Happened> {
        let op = self.op();
        let event = Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None };
        self.happen(task, event, op, &Call::Cancel { task: task.clone() }, Refusals::Certain).await
    }

    /// Takes a lease away, or ends a cancelled attempt.
    pub(super) async fn release(&mut self, task: &TaskId, event: Event) -> Sent<Happened> {
        let op = self.op();
        let call = match &event {
            Event::AttemptEnded { token, .. } => Call::EndAttempt { task: task.clone(), token: *token },
            _ => Call::LeaseLost { task: task.clone(), token: None },
        };
        self.happen(task, event, op, &call, Refusals::Doubtful).await
    }

    async fn happen(&self, task: &TaskId, event: Event, op: OpId, call: &Call, refusals: Refusals) -> Sent<Happened> {
        let plan = Happen { task: task_key(task), event };
        self.send(&plan, op, call, refusals, |done| {
            Reply::Done(if matches!(done, Happened::Changed(_)) { Ack::Fresh } else { Ack::Repeated })
        })
        .await
    }

    /// Removes an ended task. That it was kept is no news, and is not recorded as a removal.
    pub(super) async fn purge(&mut self, plan: &Purge, task: &TaskId) {
        let id = self.op();
        let call = Call::Purge { task: task.clone() };
        let pending = self.record.invoke(call);
        match self.world.store.run(plan, id, self.world.now()).await {
            Ok(Purged::Gone) => pending.ok(Reply::Done(Ack::Fresh)),
            Ok(Purged::Kept) => pending.fail("it is kept"),
            Err(error) => pending.unknown(error),
        }
    }

    /// Claims, repeating the claim under its own id while its outcome is in doubt.
    pub(super) async fn claim(&self, claim: &Claim) -> Vec<Arc<Task>> {
        for _ in 0..TRIES {
            let pending = self.record.invoke(Call::Claim { claim: claim.id });
            match self.world.store.claim(claim.clone()).await {
                Ok(claimed) => {
                    let tasks: Vec<Arc<Task>> =
                        claimed.tasks.iter().filter_map(|versioned| versioned.record.as_task().cloned()).collect();
                    let grant = |task: &Arc<Task>| Grant { task: task.id().clone(), token: token_of(task) };
                    pending.ok(Reply::Claimed(tasks.iter().map(grant).collect()));
                    return tasks;
                }
                Err(error) if error.happened == ekiden_store::Happened::NotApplied => pending.fail(error),
                Err(error) => pending.unknown(error),
            }
            tokio::task::yield_now().await;
        }
        Vec::new()
    }

    pub(super) fn runner_id(&mut self, number: usize) -> RunnerId {
        let name = format!("runner-{number}.{:08x}", self.entropy.next_u64() >> 32);
        RunnerId::new(name).expect("letters and digits are a valid id")
    }
}

/// The token of a task that was just claimed.
pub(super) fn token_of(task: &Task) -> Token {
    Token(task.state.execution_no)
}
