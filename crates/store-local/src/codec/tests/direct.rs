//! What is written field by field has the same bytes as what is written through serde, whatever a task has.

use std::collections::BTreeMap;

use ekiden_core::attempt::{Attempt, HistoryLine, Stage};
use ekiden_core::dependency::OnParentFailure;
use ekiden_core::event::EventName;
use ekiden_core::id::{LaneKey, QuestionId, UniqueKey};
use ekiden_core::lane::{LaneSpec, Place};
use ekiden_core::lease::{LateLease, Lease, Token, Until};
use ekiden_core::mailbox::MessageFields;
use ekiden_core::newer::{Newer, Value};
use ekiden_core::pool::{Keep, Timeout};
use ekiden_core::retry::RetryPolicy;
use ekiden_core::task::{Origin, Phase, Question, QuestionAnswer};
use ekiden_core::unique::{Unique, UniqueHold};
use ekiden_store::entropy::Entropy;

use super::super::numbered::put_numbered;
use super::*;

/// Draws tasks. Numbers come from every length that MessagePack has.
struct Draw(Entropy);

impl Draw {
    /// One in three: each field is there in many tasks, and many tasks lack some.
    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.0.chance(33).then(|| make(self))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn number(&mut self) -> u64 {
        let edges = [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff, 0x1_0000, 0xffff_ffff, 0x1_0000_0000, u64::MAX];
        self.of(&edges)
    }

    fn small(&mut self) -> u32 {
        u32::try_from(self.number()).unwrap_or(7)
    }

    fn time(&mut self) -> Timestamp {
        let edges = [0, -1, -40_000, 5, 200, 0xffff_ffff, 0x1_0000_0000, NOON.as_millis(), NOON.as_millis() + 1];
        Timestamp::from_millis(self.of(&edges))
    }

    fn text(&mut self) -> Arc<str> {
        let letters = self.of(&[0, 1, 31, 32, 85, 86, 255, 256, 70_000]);
        self.of(&["x", "雨"]).repeat(letters).into()
    }

    fn name(&mut self) -> String {
        let letters = self.of(&[1, 5, 31, 32, 41]);
        self.of(&["x", "雨"]).repeat(letters)
    }

    /// One in forty: a task has many structures that can carry something.
    fn newer(&mut self) -> Newer {
        let field = (Value::Unsigned(120), Value::text("later"));
        let versions = Versions { version: 250, min_writer: 2 };
        if self.0.chance(3) { Newer::new(versions, vec![field]) } else { Newer::NONE }
    }

    fn op(&mut self) -> OpId {
        OpId::from_bits(u128::from(self.number()) << 50)
    }

    fn runner(&mut self) -> RunnerId {
        RunnerId::new(self.name()).unwrap()
    }

    fn id(&mut self) -> TaskId {
        TaskId::new(self.name()).unwrap()
    }

    fn spec(&mut self) -> Spec {
        let mut policy = Profile::Embedded.settings().policy.as_ref().clone();
        policy.attempts_max = self.small();
        policy.retry = if self.0.chance(50) { policy.retry } else { RetryPolicy::Fixed { delay: Millis::new(3) } };
        policy.timeout = self.of(&[Timeout::Never, Timeout::After(Millis::new(70_000))]);
        policy.keep = self.of(&[Keep::Forever, Keep::For(Millis::from_days(90))]);
        policy.newer = self.newer();
        let labels = BTreeMap::from([(self.text(), self.text()), (self.text(), self.text())]);
        Spec {
            id: self.id(),
            namespace: Namespace::new(self.name()).unwrap(),
            pool: PoolName::new(self.name()).unwrap(),
            envelope: TaskEnvelope {
                task_type: Kind::new(self.name()).unwrap(),
                payload: Bytes::from_static(b"\xff never here"),
                content_type: self.of(&["application/json", "text/plain"]).into(),
                newer: self.newer(),
            },
            created_at: self.time(),
            rank: Rank(self.of(&[0, 10, -10, -200, 300])),
            policy: Arc::new(policy),
            title: self.maybe(Self::text),
            run_at: self.maybe(Self::time),
            expires_at: self.maybe(Self::time),
            lane: self.maybe(|draw| Arc::new(LaneSpec::serial(LaneKey::new(draw.name()).unwrap()))),
            on_parent_failure: self.of(&[OnParentFailure::Block, OnParentFailure::Cancel, OnParentFailure::Run]),
            unique: self.maybe(|draw| {
                let hold = draw.of(&[UniqueHold::WhileOpen, UniqueHold::For(Millis::new(9))]);
                Arc::new(Unique { key: UniqueKey::new(draw.name()).unwrap(), hold })
            }),
            group: self.maybe(|draw| GroupId::new(draw.name()).unwrap()),
            session: self.maybe(|draw| SessionId::new(draw.name()).unwrap()),
            labels: self.maybe(|_| labels).unwrap_or_default(),
            after_group: self.maybe(|draw| GroupId::new(draw.name()).unwrap()),
            retry_of: self.maybe(Self::id),
            origin: self.of(&[Origin::Ours, Origin::Foreign]),
            message: self.maybe(|_| Box::new(MessageFields::default())),
            newer: self.newer(),
        }
    }

    fn state(&mut self) -> State {
        let mut state = running().state.clone();
        state.phase = self.of(&Phase::ALL);
        state.attempts = self.small();
        state.execution_no = self.number();
        state.crashes = self.small();
        state.next_run_at = self.time();
        state.promoted = self.0.chance(50);
        state.place = self.of(&[Place::None, Place::Held, Place::Waiting(300)]);
        state.lease = self.maybe(|draw| Lease {
            holder: draw.runner(),
            claim: draw.op(),
            token: Token(draw.number()),
            until: draw.of(&[Until::Heartbeat, Until::At(NOON), Until::Foreign]),
            counted: draw.0.chance(50),
            newer: draw.newer(),
        });
        state.late = self
            .maybe(|draw| Box::new(LateLease { token: Token(draw.number()), claim: draw.op(), holder: draw.runner() }));
        state.waits_for = (0..self.of(&[0, 0, 1, 17])).map(|_| self.id()).collect();
        state.has_dependents = self.0.chance(50);
        state.retried_as = self.maybe(Self::id);
        let asked = QuestionId::new("q").unwrap();
        let question =
            Question { id: asked.clone(), text: self.text(), choices: vec![], deadline: None, default: None };
        state.question = self.maybe(|_| Box::new(question));
        let content = self.text();
        state.answer = self.maybe(|draw| Box::new(QuestionAnswer { question: asked, content, at: draw.time() }));
        state.last_error = self.maybe(Self::text);
        state.reason = self.maybe(|_| ReasonCode::PermanentFailure);
        state.result = self.maybe(|draw| match draw.below(3) {
            0 => Bytes::from_static(b"\xff\x00 no text"),
            _ => Bytes::copy_from_slice(draw.text().as_bytes()),
        });
        state.progress = self.maybe(|draw| Box::new(Progress { done: draw.number(), total: None, note: None }));
        state.updated_at = self.time();
        state.started_at = self.maybe(Self::time);
        state.finished_at = self.maybe(Self::time);
        state.recent = (0..self.of(&[0, 1, 2, 20])).map(|_| self.attempt()).collect();
        for outcome in Outcome::ALL {
            let count = self.maybe(Self::small).unwrap_or(0);
            state.outcomes.set(outcome.as_str(), count);
        }
        state.history = (0..self.of(&[0, 1, 3, 20])).map(|_| self.line()).collect();
        state.purge_after = self.maybe(Self::time);
        state.reopened_at = self.maybe(Self::time);
        state.newer = self.newer();
        state
    }

    fn attempt(&mut self) -> Attempt {
        Attempt {
            execution_no: self.number(),
            runner: self.runner(),
            started_at: self.time(),
            finished_at: self.maybe(Self::time),
            outcome: self.maybe(|draw| draw.of(Outcome::ALL)),
            error: self.maybe(Self::text),
            stage: self.maybe(|draw| draw.of(&[Stage::Signalled, Stage::Exited, Stage::Verified])),
            newer: self.newer(),
        }
    }

    fn line(&mut self) -> HistoryLine {
        HistoryLine {
            at: self.time(),
            event: self.of(EventName::ALL),
            phase: self.of(&Phase::ALL),
            execution_no: self.number(),
            note: self.maybe(Self::text),
            newer: self.newer(),
        }
    }
}

/// Writes a value both ways.
fn check<T: serde::Serialize>(value: &T, put: impl FnOnce(&mut Vec<u8>) -> Versions, seed: u64) {
    let (mut direct, mut general) = (Vec::new(), Vec::new());
    let versions = (put(&mut direct), put_numbered(value, &mut general));
    assert!(direct == general, "seed {seed}");
    assert_eq!(versions.0, versions.1, "seed {seed}");
}

#[test]
fn every_state_and_spec_has_the_bytes_that_serde_gives_it() {
    let mut pen = Pen::default();
    for seed in 0..2_000 {
        let mut draw = Draw(Entropy::from_seed(seed));
        let (state, spec) = (draw.state(), draw.spec());
        check(&state, |into| pen.state(&state, into), seed);
        check(&spec, |into| pen.spec(&spec, into), seed);
        // A policy that is known by now, and one that only looks the same.
        check(&spec, |into| pen.spec(&spec, into), seed);
        let copy = Spec { policy: Arc::new(spec.policy.as_ref().clone()), ..spec.clone() };
        check(&spec, |into| pen.spec(&copy, into), seed);
    }
}

/// The numbers of words are their places, and all of them fit into the one byte that they are given.
#[test]
fn every_word_has_its_number() {
    let mut pen = Pen::default();
    for (seed, event) in (0..).zip(EventName::ALL) {
        for phase in Phase::ALL {
            let mut state = running().state.clone();
            (state.phase, state.history[0].event, state.history[0].phase) = (phase, *event, phase);
            check(&state, |into| pen.state(&state, into), seed);
        }
    }
}
