//! What a handler knows beside its payload, and how it talks back while it runs.

use std::sync::Arc;

use ekiden_core::attempt::Stage;
use ekiden_core::lease::Token;
#[cfg(all(feature = "exec", target_os = "linux"))]
use ekiden_core::reason::Refusal;
use ekiden_core::task::{Progress, QuestionAnswer, Spec};
#[cfg(all(feature = "exec", target_os = "linux"))]
use ekiden_core::time::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
#[cfg(all(feature = "exec", target_os = "linux"))]
use crate::error::Error;
use crate::error::Result;
use crate::port::{LeaseRef, Leased, Settlement, Verdict};
use crate::runner::Stop;
use crate::runner::leash::{Leash, StopReason};
use crate::runner::progress::Reporter;

/// A handler's surroundings. Cheap to clone, and alive for as long as somebody holds it.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    around: Arc<Surroundings>,
    spec: Arc<Spec>,
    lease: LeaseRef,
    attempts: u32,
    answer: Option<QuestionAnswer>,
    leash: Leash,
}

/// What all attempts of a runner share.
pub(crate) struct Surroundings {
    client: Client,
    pub(crate) reporter: Arc<Reporter>,
    /// Ends the runner that they belong to.
    stop: Stop,
}

impl Surroundings {
    pub(crate) fn of(client: Client, stop: Stop) -> Self {
        Self { client, reporter: Arc::default(), stop }
    }
}

impl Context {
    pub(crate) fn new(around: Arc<Surroundings>, leased: Leased) -> Self {
        let Leased { spec, lease: LeaseRef { task, token, .. }, attempts, answer } = leased;
        let (lease, leash) = (LeaseRef::new(task, token), Leash::default());
        Self { inner: Arc::new(Inner { around, spec, lease, attempts, answer, leash }) }
    }

    /// The lease of the attempt.
    pub(crate) fn lease(&self) -> &LeaseRef {
        &self.inner.lease
    }

    /// What holds the attempt's handler.
    pub(crate) fn leash(&self) -> &Leash {
        &self.inner.leash
    }

    /// The moment, by the clock that the runner goes by.
    #[cfg(all(feature = "exec", target_os = "linux"))]
    pub(crate) fn now(&self) -> Timestamp {
        self.client().tools().clock.now()
    }

    /// What the machine's clock shows, for programs that compare it with that.
    #[cfg(all(feature = "exec", target_os = "linux"))]
    pub(crate) fn shown(&self) -> Timestamp {
        let clock = &self.client().tools().clock;
        clock.lead().shown(clock.now())
    }

    /// The task as it was handed in: id, pool, labels, group and all else.
    pub fn task(&self) -> &Spec {
        &self.inner.spec
    }

    /// The fencing token: it rises with every attempt of the task. Whoever takes a side effect can refuse a smaller one.
    pub fn token(&self) -> Token {
        self.inner.lease.token
    }

    /// Which attempt of the budget this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.inner.attempts
    }

    /// The answer to the question that the attempt before asked.
    pub fn answer(&self) -> Option<&QuestionAnswer> {
        self.inner.answer.as_ref()
    }

    /// Whether the attempt should stop: the task was cancelled, its time is over, or the runner shuts down.
    pub fn is_cancelled(&self) -> bool {
        self.inner.leash.is_stopped()
    }

    /// Why the attempt should stop, if it should.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.inner.leash.reason()
    }

    /// Waits until the attempt should stop.
    pub async fn cancelled(&self) {
        self.inner.leash.token().cancelled().await;
    }

    /// The token behind [`Self::cancelled`], for work that is spawned.
    pub fn cancellation(&self) -> &CancellationToken {
        self.inner.leash.token()
    }

    /// Says how far the work is. Never waits: the latest word is passed on, a few times a second at most.
    pub fn progress(&self, done: u64, total: u64) {
        self.report(Progress { done, total: Some(total), note: None });
    }

    /// Says how far the work is, in full.
    pub fn report(&self, progress: Progress) {
        self.inner.around.reporter.say(&self.inner.lease, progress);
    }

    /// Says that the work has ended and only its output is on its way: the time limit of the attempt is kept.
    #[cfg(all(feature = "exec", target_os = "linux"))]
    pub(crate) fn work_is_over(&self) {
        self.inner.leash.work_is_over();
    }

    /// Takes note that something was refused to this attempt, perhaps because its task went to another.
    #[cfg(all(feature = "exec", target_os = "linux"))]
    pub(crate) fn was_refused(&self, error: &Error) {
        self.inner.around.reporter.doubts.note(&self.inner.lease, error);
    }

    /// Says how far a cancelled attempt is stopped, for whoever watches. That nothing of it is left is said by the runner, when
    /// the handler has ended; an attempt that was not cancelled has no stages.
    pub async fn stage(&self, stage: Stage) -> Result<()> {
        if stage == Stage::Verified || self.stop_reason() != Some(StopReason::Cancelled) {
            return Ok(());
        }
        let client = self.client();
        let lease = self.inner.lease.clone();
        let settlement = Settlement { id: client.op_id(), lease, verdict: Verdict::Stopped(stage) };
        let answer = client.queue().settle(vec![settlement], None).await.settled.pop();
        answer.map_or(Ok(()), |settled| settled.map(drop))
    }

    /// Ends the runner, because no attempt of this handler can run here any more. It takes nothing new, what runs may finish,
    /// and this is the error that it ends with.
    #[cfg(all(feature = "exec", target_os = "linux"))]
    pub(crate) fn give_up(&self, why: Refusal) {
        self.inner.around.stop.give_up(why);
    }

    /// To hand in further tasks.
    pub fn client(&self) -> &Client {
        &self.inner.around.client
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("task", &self.inner.spec.id).field("token", &self.token()).finish()
    }
}
