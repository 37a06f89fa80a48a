//! Writes small histories by hand, for the tests of the laws.

use std::cell::Cell;
use std::sync::Arc;

use ekiden_core::attempt::Outcome;
use ekiden_core::id::{OpId, TaskId};
use ekiden_core::lease::Token;
use ekiden_core::task::Phase;
use ekiden_core::time::Timestamp;
use ekiden_store::clock::ManualClock;

use crate::checker::{Law, check};
use crate::facts::{Ack, Call, EnqueueFacts, FinalState, FinalTask, Grant, Note, Reply};
use crate::history::{Client, Recorder};

/// The budget of every task.
pub(crate) const LIMIT: u32 = 3;

/// A history in the making, of one client, and what the store will say at the end.
pub(crate) struct Script {
    pub(crate) clock: Arc<ManualClock>,
    recorder: Arc<Recorder>,
    ids: Cell<u128>,
    pub(crate) last: FinalState,
}

pub(crate) fn id(task: &str) -> TaskId {
    TaskId::new(task).unwrap()
}

impl Script {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000)));
        let last = FinalState::default().quiesced();
        Self { recorder: Recorder::new("p", clock.clone()), clock, ids: Cell::new(1_000), last }
    }

    pub(crate) fn client(&self) -> Client {
        self.recorder.client("c")
    }

    fn op(&self) -> OpId {
        self.ids.set(self.ids.get() + 1);
        OpId::from_bits(self.ids.get())
    }

    pub(crate) fn enqueue_with(&self, task: &str, change: impl FnOnce(&mut EnqueueFacts)) -> Call {
        let (op, task) = (self.op(), id(task));
        let mut facts = EnqueueFacts {
            op,
            task,
            unique: None,
            idempotency: None,
            lane: None,
            waits: false,
            parents: 0,
            attempts_max: LIMIT,
        };
        change(&mut facts);
        Call::Enqueue(Box::new(facts))
    }

    pub(crate) fn enqueue_call(&self, task: &str) -> Call {
        self.enqueue_with(task, |_| {})
    }

    pub(crate) fn new_task(&self, task: &str, call: Call) {
        self.client().invoke(call).ok(Reply::Enqueued { task: id(task), ack: Ack::Fresh });
    }

    pub(crate) fn enqueue(&self, task: &str) {
        self.new_task(task, self.enqueue_call(task));
    }

    pub(crate) fn claim(&self, task: &str, token: u64) {
        let grant = Grant { task: id(task), token: Token(token) };
        self.client().invoke(Call::Claim { claim: self.op() }).ok(Reply::Claimed(vec![grant]));
    }

    pub(crate) fn settle_call(&self, task: &str, token: u64) -> Call {
        Call::Settle { op: self.op(), task: id(task), token: Token(token), outcome: Outcome::Succeeded }
    }

    pub(crate) fn succeed(&self, task: &str, token: u64) {
        self.done(self.settle_call(task, token), Ack::Fresh);
    }

    pub(crate) fn cancel(&self, task: &str) {
        self.done(Call::Cancel { task: id(task) }, Ack::Fresh);
    }

    pub(crate) fn done(&self, call: Call, ack: Ack) {
        self.client().invoke(call).ok(Reply::Done(ack));
    }

    pub(crate) fn start(&self, task: &str, token: u64) {
        self.client().note(Note::Started { task: id(task), token: Token(token) });
    }

    pub(crate) fn finish(&self, task: &str, token: u64) {
        self.client().note(Note::Finished { task: id(task), token: Token(token) });
    }

    /// What the store says of a task at the end. Tests change what they are about.
    pub(crate) fn end(&mut self, task: &str, phase: Phase) -> &mut FinalTask {
        let succeeded = phase == Phase::Succeeded;
        let found = FinalTask {
            phase,
            attempts: u32::from(succeeded),
            attempts_max: LIMIT,
            execution_no: 2,
            successes: u32::from(succeeded),
            succeeded_by: None,
            leased: false,
            waits_for: Vec::new(),
            given_up: false,
            lane: None,
        };
        self.last.tasks.insert(id(task), found);
        self.last.tasks.get_mut(&id(task)).unwrap()
    }

    #[track_caller]
    pub(crate) fn broken<const N: usize>(&self, laws: [Law; N]) {
        let violations = check(&self.recorder.history(), &self.last);
        let found: Vec<Law> = violations.iter().map(|violation| violation.law).collect();
        assert_eq!(found, laws, "{violations:#?}");
        assert!(violations.iter().all(|violation| !violation.evidence.is_empty()));
    }

    #[track_caller]
    pub(crate) fn legal(&self) {
        self.broken([]);
    }
}
