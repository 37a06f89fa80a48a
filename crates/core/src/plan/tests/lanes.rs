//! Laws of lanes: a place is held by what may run, widths follow the youngest word, and no place stays empty behind a line.

use super::*;
use std::collections::BTreeMap;

use crate::attempt::Stage;
use crate::lane::{Hold, Lane};
use crate::retry::FailureKind;
use proptest::prelude::*;

fn at_most(spec: &mut Spec, width: u32) {
    let key = LaneKey::new("lane").unwrap();
    spec.lane = Some(Arc::new(LaneSpec { key, width, hold: Hold::WhileRunning }));
}

impl Shelf {
    fn member(&mut self, id: &str, width: u32) -> Arc<Task> {
        let now = self.now.unwrap_or(NOON);
        self.enqueue(id, |spec| {
            spec.created_at = now;
            at_most(spec, width);
        })
    }

    fn pass(&mut self, millis: u64) {
        self.now = Some(self.now.unwrap_or(NOON) + Millis::new(millis));
    }

    fn place(&self, id: &str) -> Place {
        self.task(id).state.place
    }

    fn lane(&self) -> Option<Arc<Lane>> {
        let key = Key::lane(&spec("x").namespace, &LaneKey::new("lane").unwrap());
        match self.records.get(&key)?.record {
            Record::Lane(ref lane) => Some(lane.clone()),
            _ => None,
        }
    }

    /// What maintenance does about the lane: tasks that are due join it, and its sweep fills it.
    fn keep_up(&mut self) {
        let due: Vec<String> = self
            .records
            .values()
            .filter_map(|found| found.record.as_task())
            .map(|task| task.id().to_string())
            .collect();
        for id in due {
            let before = self.lane();
            self.happen(&id, Event::BecameDue).unwrap();
            self.check_places(before);
        }
        let sweep = Key::sweep(&spec("x").namespace, &Sweep::admit_id(&LaneKey::new("lane").unwrap()));
        while let Some(Record::Sweep(seen)) = self.records.get(&sweep).map(|found| found.record.clone()) {
            let before = self.lane();
            self.run(&SweepStep { sweep: sweep.clone(), seen, items: Vec::new(), next: None }).unwrap();
            self.check_places(before);
        }
    }

    /// One commit gave no place that the lane does not have. It may have become narrower than what it holds.
    fn check_places(&self, before: Option<Arc<Lane>>) {
        let Some(after) = self.lane() else { return };
        let held = before.map_or(0, |before| before.places.len());
        assert!(after.places.len() <= held.max(after.width as usize), "{after:?} gave a place too many");
    }

    fn fail(&mut self, id: &str, token: Token, wait: u64) {
        let kind = FailureKind::RetryAfter(Millis::new(wait));
        self.happen(id, Event::Failed { token, kind, error: "no".into() }).unwrap();
    }
}

/// R20
#[test]
fn a_delayed_task_holds_no_place_before_it_is_due() {
    let mut shelf = Shelf::default();
    shelf.enqueue("later", |spec| {
        at_most(spec, 1);
        spec.run_at = Some(NOON + Millis::from_secs(60));
    });
    shelf.member("now", 1);
    assert_eq!([shelf.place("later"), shelf.place("now")], [Place::None, Place::Held]);
    shelf.pass(60_000);
    shelf.keep_up();
    assert_eq!(shelf.place("later"), Place::Waiting(0), "its turn is decided by when it is due");
    shelf.finish("now");
    assert_eq!(shelf.place("later"), Place::Held);
}

/// R20
#[test]
fn a_wider_newcomer_lets_in_those_who_wait() {
    let mut shelf = Shelf::default();
    for id in ["a", "b", "c", "d", "e", "f"] {
        shelf.member(id, 1);
    }
    shelf.pass(1);
    shelf.member("wide", 9);
    shelf.keep_up();
    for id in ["a", "b", "c", "d", "e", "f", "wide"] {
        assert_eq!(shelf.place(id), Place::Held, "{id}");
    }
}

/// R20
#[test]
fn an_old_member_that_rejoins_keeps_the_width_of_younger_ones() {
    let mut shelf = Shelf::default();
    shelf.member("old", 1);
    let token = shelf.claim("old");
    shelf.fail("old", token, 1_000);
    shelf.pass(500);
    for id in ["a", "b", "c"] {
        shelf.member(id, 3);
    }
    shelf.pass(500);
    shelf.keep_up();
    assert_eq!(shelf.lane().unwrap().width, 3);
    shelf.finish("a");
    assert_eq!(shelf.place("old"), Place::Held);
}

/// What a generated life of a lane consists of.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A task comes, with this width, due after so many milliseconds.
    Enqueue(u32, u64),
    /// The oldest task that may run is claimed.
    Claim,
    /// Of the running tasks, this one fails and is due again after so long.
    Fail(usize, u64),
    /// It is given back.
    Return(usize),
    /// It succeeds.
    Succeed(usize),
    /// Its lease is lost.
    Lose(usize),
    /// Of all open tasks, this one is cancelled; where it runs, its attempt ends.
    Cancel(usize),
    /// Time passes, and maintenance looks.
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u32..5, prop_oneof![Just(0u64), 1u64..3_000]).prop_map(|(width, delay)| Step::Enqueue(width, delay)),
        4 => Just(Step::Claim),
        1 => (any::<usize>(), 0u64..2_000).prop_map(|(at, wait)| Step::Fail(at, wait)),
        1 => any::<usize>().prop_map(Step::Return),
        2 => any::<usize>().prop_map(Step::Succeed),
        1 => any::<usize>().prop_map(Step::Lose),
        1 => any::<usize>().prop_map(Step::Cancel),
        3 => (0u64..1_500).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..60)
}

/// A lane under generated steps, with the width that its youngest member asked for.
#[derive(Default)]
struct LaneLife {
    shelf: Shelf,
    enqueued: usize,
    /// The widths of members, by their creation.
    asked: BTreeMap<Timestamp, u32>,
}

impl LaneLife {
    fn tasks(&self, wanted: impl Fn(&Task) -> bool) -> Vec<String> {
        let tasks = self.shelf.records.values().filter_map(|found| found.record.as_task());
        tasks.filter(|task| wanted(task)).map(|task| task.id().to_string()).collect()
    }

    fn picked(&self, at: usize, wanted: impl Fn(&Task) -> bool) -> Option<(String, Token)> {
        let tasks = self.tasks(wanted);
        let id = tasks.get(at % tasks.len().max(1))?.clone();
        let token = Token(self.shelf.task(&id).state.execution_no);
        Some((id, token))
    }

    fn take(&mut self, step: Step) {
        let runs = |task: &Task| task.state.phase == Phase::Running;
        let shelf = &mut self.shelf;
        match step {
            Step::Enqueue(width, delay) => {
                shelf.pass(1);
                let now = shelf.now.unwrap();
                self.enqueued += 1;
                self.asked.insert(now, width);
                shelf.enqueue(&format!("t-{:03}", self.enqueued), |spec| {
                    (spec.created_at, spec.run_at) = (now, Some(now + Millis::new(delay)));
                    Arc::make_mut(&mut spec.policy).attempts_max = 1_000;
                    Arc::make_mut(&mut spec.policy).crashes_max = None;
                    at_most(spec, width);
                });
            }
            Step::Claim => {
                let now = shelf.now.unwrap_or(NOON);
                let may_run = |task: &Task| {
                    let state = &task.state;
                    let waits = matches!(state.phase, Phase::Queued | Phase::RetryScheduled);
                    waits && state.place == Place::Held && state.next_run_at <= now
                };
                if let Some((id, _)) = self.picked(0, may_run) {
                    self.shelf.claim(&id);
                }
            }
            Step::Fail(at, wait) => {
                if let Some((id, token)) = self.picked(at, runs) {
                    self.shelf.fail(&id, token, wait);
                }
            }
            Step::Return(at) => self.settle(at, |token| Event::Returned { token }),
            Step::Succeed(at) => self.settle(at, |token| Event::Succeeded { token, result: None }),
            Step::Lose(at) => {
                let lost = Event::LeaseLost { evidence: crate::lease::Evidence::Operator };
                self.settle(at, |_| lost.clone());
            }
            Step::Cancel(at) => {
                if let Some((id, token)) = self.picked(at, |task| !task.state.phase.is_final()) {
                    let cancel = Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None };
                    self.shelf.happen(&id, cancel).unwrap();
                    // Only one that ran has an attempt to end.
                    let _ = self.shelf.happen(&id, Event::AttemptEnded { token, stage: Stage::Verified });
                }
            }
            Step::Pass(millis) => {
                shelf.pass(millis);
                shelf.keep_up();
            }
        }
    }

    fn settle(&mut self, at: usize, event: impl Fn(Token) -> Event) {
        if let Some((id, token)) = self.picked(at, |task| task.state.phase == Phase::Running) {
            self.shelf.happen(&id, event(token)).unwrap();
        }
    }

    /// What holds when maintenance has nothing more to do.
    fn check(&mut self) {
        self.shelf.keep_up();
        let held = self.tasks(|task| task.state.place == Place::Held);
        let waiting = self.tasks(|task| matches!(task.state.place, Place::Waiting(_)));
        let Some(lane) = self.shelf.lane() else {
            assert!(held.is_empty() && waiting.is_empty(), "members without a lane: {held:?} {waiting:?}");
            return;
        };
        let now = self.shelf.now.unwrap_or(NOON);
        let places: Vec<String> = lane.places.iter().map(ToString::to_string).collect();
        assert_eq!(places.iter().collect::<std::collections::BTreeSet<_>>(), held.iter().collect());
        assert_eq!(lane.waiting, waiting.len() as u64);
        assert!(waiting.is_empty() || held.len() >= lane.width as usize, "a place is free, and {waiting:?} wait");
        for id in &held {
            let state = &self.shelf.task(id).state;
            let is_due = state.phase == Phase::Running || state.next_run_at <= now;
            assert!(is_due, "{id} is not due before {} and holds a place", state.next_run_at);
        }
        let youngest = held.iter().chain(&waiting).map(|id| self.shelf.task(id).spec.created_at).max().unwrap();
        assert!(lane.width_since >= youngest, "a younger member said otherwise");
        assert_eq!(lane.width, self.asked[&lane.width_since]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// R20
    #[test]
    fn no_place_is_wasted_or_given_twice_whatever_happens_to_its_members(steps in steps()) {
        let mut life = LaneLife::default();
        for step in steps {
            let before = life.shelf.lane();
            life.take(step);
            if !matches!(step, Step::Pass(_)) {
                life.shelf.check_places(before);
            }
            life.check();
        }
        for _ in 0..life.enqueued * 2 + 8 {
            life.take(Step::Pass(3_000));
            life.take(Step::Claim);
            life.take(Step::Succeed(0));
        }
        prop_assert_eq!(life.tasks(|task| !task.state.phase.is_final()), Vec::<String>::new(), "all of them end");
        prop_assert!(life.shelf.lane().is_none(), "an empty lane leaves no record");
    }
}
