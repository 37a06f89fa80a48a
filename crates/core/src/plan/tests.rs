//! Laws of the plans, on a map that stands for a store: what they read, what they write together, how many writes they make.

mod by_hand;
mod groups;
mod lanes;
mod schedules;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::commit::{Action, Commit, Expect};
use crate::event::Event;
use crate::fixtures::{NOON, spec};
use crate::id::{Kind, LaneKey, OpId, RunnerId, TaskId, UniqueKey};
use crate::key::{Key, RecordKind};
use crate::lane::{LaneSpec, Place};
use crate::lease::{Token, Until};
use crate::limits;
use crate::mailbox::MessageFields;
use crate::record::{Record, Revision, Versioned};
use crate::sweep::{Sweep, SweepWork};
use crate::task::{Phase, Spec, Task};
use crate::time::{ClockLead, Millis, Timestamp};
use crate::transition::Start;
use crate::unique::{Unique, UniqueHold};

/// Records by key; every commit is checked as a store would.
#[derive(Default)]
struct Shelf {
    records: BTreeMap<Key, Versioned>,
    ops: u128,
    now: Option<Timestamp>,
    lead: ClockLead,
    lanes: Lanes,
    /// Of the last plan: how often it had to read, and its commit.
    reads: usize,
    last: Option<Commit>,
}

impl Shelf {
    fn run<P: Plan>(&mut self, plan: &P) -> Result<P::Done, ReasonCode> {
        self.ops += 1;
        self.run_as(OpId::from_bits(self.ops), plan)
    }

    fn run_as<P: Plan>(&mut self, op: OpId, plan: &P) -> Result<P::Done, ReasonCode> {
        let mut view = View::default();
        self.reads = 0;
        loop {
            let now = self.now.unwrap_or(NOON);
            if let Some(single) = plan.single(op, &view, now) {
                let [drawn, single] = [
                    Draft::drawn(plan, op, &view, now, self.lanes),
                    single.map_err(Stop::from).map(|(done, commit)| (done, Some(commit))),
                ]
                .map(|drafted| drafted.map(|(_, commit)| commit));
                assert_eq!(single, drawn, "a plan that comes to one write says the same without a draft");
            }
            match Draft::of(plan, op, &view, now, self.lanes) {
                Err(Stop::Refused(refusal)) => return Err(refusal.code),
                Err(Stop::Need(needs)) => {
                    self.reads += 1;
                    assert!(self.reads < 50, "a plan that always needs more");
                    self.read(&mut view, needs);
                }
                Ok((done, commit)) => {
                    if let Some(commit) = &commit {
                        self.write(commit);
                    }
                    self.last = commit;
                    return Ok(done);
                }
            }
        }
    }

    fn read(&self, view: &mut View, needs: Vec<Need>) {
        for need in needs {
            match need {
                Need::Record(key) => view.insert(key.clone(), self.records.get(&key).cloned()),
                Need::Page(page) => {
                    let matching = self.records.values().filter(|found| {
                        found.key.kind == page.kind
                            && found.key.namespace == page.namespace
                            && found.key.name.starts_with(&page.prefix)
                    });
                    view.insert_page(page.clone(), matching.take(page.limit).cloned().collect());
                }
            }
        }
    }

    fn write(&mut self, commit: &Commit) {
        for write in commit.writes() {
            let found = self.records.get(&write.key);
            match (&write.expect, found) {
                (Expect::Absent, None) | (Expect::Any, _) => {}
                (Expect::At(revision), Some(found)) if *revision == found.revision => {}
                other => panic!("{} expected {other:?}", write.key),
            }
            let created_by = found.map_or(commit.id(), |found| found.created_by);
            match &write.action {
                Action::Check => {}
                Action::Delete => drop(self.records.remove(&write.key)),
                Action::Add(by) => {
                    let sum = found.and_then(|found| found.record.as_counter()).unwrap_or(0) + by;
                    self.put(write.key.clone(), Record::Counter(sum), created_by, commit.id());
                }
                Action::Put(record, _) => self.put(write.key.clone(), record.clone(), created_by, commit.id()),
            }
        }
    }

    fn put(&mut self, key: Key, record: Record, created_by: OpId, last: OpId) {
        self.ops += 1;
        let revision = Revision::number(self.ops as u64);
        self.records.insert(key.clone(), Versioned { key, record, revision, created_by, last });
    }

    fn enqueue(&mut self, id: &str, change: impl FnOnce(&mut Spec)) -> Arc<Task> {
        let mut wish = spec(id);
        change(&mut wish);
        self.enqueue_after(wish, &[])
    }

    fn enqueue_after(&mut self, spec: Spec, parents: &[&str]) -> Arc<Task> {
        let parents = parents.iter().map(|parent| TaskId::new(parent).unwrap()).collect();
        let plan = Enqueue { spec: Arc::new(spec), start: Start::Released, parents, idempotency: None };
        match self.run(&plan).unwrap() {
            Enqueued::New(task) => task,
            other => panic!("{other:?}"),
        }
    }

    fn happen(&mut self, id: &str, event: Event) -> Result<Happened, ReasonCode> {
        self.run(&Happen { task: key(id), event })
    }

    /// Takes a task as a claim would, and settles it well.
    fn finish(&mut self, id: &str) {
        let holder = RunnerId::new("r").unwrap();
        let claim = Event::Claimed { claim: OpId::from_bits(1), holder, until: Until::Heartbeat, counted: false };
        let token = Token(self.happen(id, claim).unwrap().task().state.execution_no);
        self.happen(id, Event::Succeeded { token, result: None }).unwrap();
    }

    fn task(&self, id: &str) -> Arc<Task> {
        self.records[&key(id)].record.as_task().unwrap().clone()
    }

    fn kinds_written(&self) -> Vec<(RecordKind, bool)> {
        let writes = self.last.iter().flat_map(|commit| commit.writes());
        writes.map(|write| (write.key.kind, matches!(write.action, Action::Put(..)))).collect()
    }

    fn release_step(&mut self, parent: &str) -> Swept {
        let sweep = Key::sweep(&spec("x").namespace, &Sweep::release_id(&TaskId::new(parent).unwrap()));
        let Some(Record::Sweep(found)) = self.records.get(&sweep).map(|found| found.record.clone()) else {
            return Swept::Ended;
        };
        let prefix = Key::prefix(parent);
        let edges = self.records.keys().filter(|key| key.kind == RecordKind::Edge && key.name.starts_with(&prefix));
        let item = |key: &Key| SweepItem { key: key.clone(), new_id: TaskId::new("unused").unwrap() };
        let items = edges.map(item).collect();
        self.run(&SweepStep { sweep, seen: found, items, next: None }).unwrap()
    }
}

fn key(id: &str) -> Key {
    Key::task(&spec("x").namespace, &TaskId::new(id).unwrap())
}

fn serial(spec: &mut Spec) {
    spec.lane = Some(Arc::new(LaneSpec::serial(LaneKey::new("lane").unwrap())));
}

#[test]
fn a_plain_enqueue_reads_once_and_writes_once() {
    let mut shelf = Shelf::default();
    shelf.enqueue("a", |_| {});
    assert_eq!(shelf.reads, 1);
    assert_eq!(shelf.kinds_written(), [(RecordKind::Task, true)]);
}

#[test]
fn a_settlement_writes_nothing_but_the_task_when_nobody_waits() {
    let mut shelf = Shelf::default();
    shelf.enqueue("a", |_| {});
    shelf.finish("a");
    assert_eq!(shelf.kinds_written(), [(RecordKind::Task, true)]);
}

/// R21
#[test]
fn the_first_child_marks_its_parent_and_later_ones_only_check_it() {
    let mut shelf = Shelf::default();
    shelf.enqueue("parent", |_| {});
    let unmarked = shelf.records[&key("parent")].revision.clone();
    shelf.enqueue_after(spec("child-1"), &["parent"]);
    assert!(shelf.task("parent").state.has_dependents);
    assert_ne!(
        shelf.records[&key("parent")].revision,
        unmarked,
        "a settlement that read the parent before must conflict"
    );
    shelf.enqueue_after(spec("child-2"), &["parent"]);
    assert!(shelf.kinds_written().contains(&(RecordKind::Task, false)), "the parent is checked, not written");
    shelf.finish("parent");
    assert_eq!(shelf.kinds_written(), [(RecordKind::Task, true), (RecordKind::Sweep, true)]);
    assert_eq!(shelf.release_step("parent"), Swept::Ended);
    assert_eq!(shelf.task("child-1").state.phase, Phase::Queued);
    assert_eq!(shelf.task("child-2").state.phase, Phase::Queued);
    assert!(shelf.records.keys().all(|key| !matches!(key.kind, RecordKind::Edge | RecordKind::Sweep)));
}

#[test]
fn a_sweep_step_never_makes_more_than_25_writes() {
    let mut shelf = Shelf::default();
    shelf.enqueue("parent", |_| {});
    for n in 0..40 {
        let mut child = spec(&format!("child-{n:02}"));
        if n % 2 == 0 {
            serial(&mut child);
        }
        shelf.enqueue_after(child, &["parent"]);
    }
    shelf.finish("parent");
    let mut steps = 0;
    while shelf.release_step("parent") != Swept::Ended {
        let writes = shelf.last.as_ref().unwrap().writes().len();
        assert!((2..=limits::COMMIT_WRITES_MAX).contains(&writes), "{writes}");
        steps += 1;
        assert!(steps < 40, "each step must get on");
    }
    let released = (0..40).filter(|n| shelf.task(&format!("child-{n:02}")).state.phase == Phase::Queued).count();
    assert_eq!(released, 40);
    let held = (0..40).filter(|n| shelf.task(&format!("child-{n:02}")).state.place == Place::Held).count();
    assert_eq!(held, 1, "of the twenty in the serial lane one has the place");
}

#[test]
fn a_sweep_step_never_makes_a_commit_of_too_many_bytes() {
    let mut shelf = Shelf::default();
    let large = |id: &str| {
        let mut large = spec(id);
        large.envelope.payload = vec![b'x'; limits::PAYLOAD_BYTES_MAX].into();
        large
    };
    shelf.enqueue("parent", |_| {});
    for n in 0..30 {
        shelf.enqueue_after(large(&format!("child-{n:02}")), &["parent"]);
    }
    shelf.finish("parent");
    let steps = (0..30).take_while(|_| shelf.release_step("parent") != Swept::Ended).count();
    assert_eq!(steps, 2, "three commits for seven and a half mebibytes");
    assert!((0..30).all(|n| shelf.task(&format!("child-{n:02}")).state.phase == Phase::Queued));
}

#[test]
fn a_stale_page_changes_nothing() {
    let mut shelf = Shelf::default();
    shelf.enqueue("parent", |_| {});
    shelf.enqueue_after(spec("child"), &["parent"]);
    shelf.finish("parent");
    let sweep = Key::sweep(&spec("x").namespace, &Sweep::release_id(&TaskId::new("parent").unwrap()));
    let Record::Sweep(found) = shelf.records[&sweep].record.clone() else { panic!("no sweep") };
    let seen = Arc::new(Sweep { changed: 1, ..Sweep::clone(&found) });
    let step = SweepStep { sweep, seen, items: vec![], next: None };
    assert_eq!(shelf.run(&step).unwrap(), Swept::Stale);
    assert!(shelf.last.is_none());
}

#[test]
fn a_release_ends_unheard_when_its_parent_runs_again() {
    let mut shelf = Shelf::default();
    shelf.enqueue("parent", |spec| Arc::make_mut(&mut spec.policy).reopen = true);
    shelf.enqueue_after(spec("child"), &["parent"]);
    let holder = RunnerId::new("r").unwrap();
    let claim = Event::Claimed { claim: OpId::from_bits(1), holder, until: Until::Heartbeat, counted: false };
    shelf.happen("parent", claim).unwrap();
    let kind = crate::retry::FailureKind::Permanent;
    shelf.happen("parent", Event::Failed { token: Token(1), kind, error: Arc::from("no") }).unwrap();
    shelf.run(&Retry { task: key("parent"), new_id: TaskId::new("unused").unwrap() }).unwrap();
    assert_eq!(shelf.release_step("parent"), Swept::Ended);
    assert_eq!(shelf.task("child").state.reason, None, "the child never heard of a failure that is no more");
    shelf.finish("parent");
    shelf.release_step("parent");
    assert_eq!(shelf.task("child").state.phase, Phase::Queued);
}

/// W8
#[test]
fn a_cycle_is_refused_with_its_path_and_nothing_is_written() {
    let mut shelf = Shelf::default();
    let held = |id: &str, parents: Vec<TaskId>| Enqueue {
        spec: Arc::new(spec(id)),
        start: Start::Held,
        parents,
        idempotency: None,
    };
    shelf.run(&held("a", vec![])).unwrap();
    shelf.run(&held("b", vec![TaskId::new("a").unwrap()])).unwrap();
    shelf.run(&held("c", vec![TaskId::new("b").unwrap()])).unwrap();
    let before = shelf.records.clone();
    let close = AddParents { task: key("a"), parents: vec![TaskId::new("c").unwrap()] };
    assert_eq!(shelf.run(&close).unwrap_err(), ReasonCode::DependencyCycle);
    let itself = held("d", vec![TaskId::new("d").unwrap()]);
    assert_eq!(shelf.run(&itself).unwrap_err(), ReasonCode::DependencyCycle);
    assert_eq!(shelf.records, before);
    let mut view = View::default();
    for id in ["a", "b", "c"] {
        view.insert(key(id), shelf.records.get(&key(id)).cloned());
    }
    let Err(Stop::Refused(refusal)) = Draft::of(&close, OpId::from_bits(9), &view, NOON, Lanes::Admit) else {
        panic!("accepted")
    };
    assert_eq!(refusal.context["path"], "a → c → b → a");
}

#[test]
fn too_many_or_unknown_parents_are_refused() {
    let mut shelf = Shelf::default();
    let with = |parents: Vec<TaskId>| Enqueue {
        spec: Arc::new(spec("child")),
        start: Start::Released,
        parents,
        idempotency: None,
    };
    let ids = |count: usize| (0..count).map(|n| TaskId::new(format!("p{n}")).unwrap()).collect::<Vec<_>>();
    assert_eq!(shelf.run(&with(ids(limits::PARENTS_MAX + 1))).unwrap_err(), ReasonCode::DependencyTooMany);
    assert_eq!(shelf.run(&with(ids(1))).unwrap_err(), ReasonCode::DependencyUnknown);
    assert!(shelf.records.is_empty());
}

/// R21
#[test]
fn more_than_eight_parents_are_waited_for_from_the_first_commit_and_linked_by_a_sweep() {
    let mut shelf = Shelf::default();
    let names: Vec<String> = (0..20).map(|n| format!("p{n:02}")).collect();
    for name in &names {
        shelf.enqueue(name, |_| {});
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let child = shelf.enqueue_after(spec("child"), &names);
    assert_eq!((child.state.phase, child.state.waits_for.len()), (Phase::Blocked, 20));
    // Two of the parents whose edges are still to come end in between, well and badly.
    shelf.finish("p19");
    let cancel = Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None };
    shelf.happen("p18", cancel).unwrap();
    let sweep = Key::sweep(&spec("x").namespace, &Sweep::link_id(child.id()));
    let mut steps = 0;
    while let Some(Record::Sweep(seen)) = shelf.records.get(&sweep).map(|found| found.record.clone()) {
        shelf.run(&SweepStep { sweep: sweep.clone(), seen, items: vec![], next: None }).unwrap();
        steps += 1;
    }
    assert_eq!(steps, 2, "eight at a time");
    let child = shelf.task("child");
    assert_eq!((child.state.waits_for.len(), child.state.reason), (19, Some(ReasonCode::DependencyFailed)));
    assert_eq!(shelf.records.keys().filter(|key| key.kind == RecordKind::Edge).count(), 18);
}

#[test]
fn a_full_enqueue_fits_into_one_commit() {
    let mut shelf = Shelf::default();
    for n in 0..9 {
        shelf.enqueue(&format!("p{n}"), |_| {});
    }
    let mut full = spec("child");
    serial(&mut full);
    full.unique = Some(Arc::new(Unique { key: UniqueKey::new("u").unwrap(), hold: UniqueHold::WhileOpen }));
    full.after_group = Some(crate::id::GroupId::new("g").unwrap());
    let parents = (0..9).map(|n| TaskId::new(format!("p{n}")).unwrap()).collect();
    let idempotency = Some(crate::id::IdempotencyKey::new("i").unwrap());
    let plan = Enqueue { spec: Arc::new(full), start: Start::Released, parents, idempotency };
    shelf.run(&plan).unwrap();
    let writes = shelf.last.as_ref().unwrap().writes().len();
    assert_eq!(writes, 21, "eight marks, eight edges, two keys, two sweeps, the task");
}

/// R20
#[test]
fn the_commit_that_frees_a_place_admits_the_next() {
    let mut shelf = Shelf::default();
    for id in ["a", "b", "c"] {
        shelf.enqueue(id, serial);
    }
    assert_eq!([shelf.task("a").state.place, shelf.task("c").state.place], [Place::Held, Place::Waiting(1)]);
    shelf.finish("a");
    assert_eq!((shelf.task("b").state.place, shelf.task("b").state.promoted), (Place::Held, true));
    let writes = shelf.last.as_ref().unwrap().writes().len();
    assert_eq!(writes, 4, "the settled task, the lane, the member's number, the next task");
    shelf.finish("b");
    shelf.finish("c");
    assert!(
        shelf.records.keys().all(|key| !matches!(key.kind, RecordKind::Lane | RecordKind::LaneMember)),
        "nothing is left behind"
    );
}

#[test]
fn a_settlement_that_meets_conflicts_leaves_its_neighbour_to_a_sweep() {
    let mut shelf = Shelf::default();
    for id in ["a", "b"] {
        shelf.enqueue(id, serial);
    }
    shelf.lanes = Lanes::Defer;
    shelf.finish("a");
    assert!(matches!(shelf.task("b").state.place, Place::Waiting(_)), "the neighbour was not touched");
    let sweep = Key::sweep(&spec("x").namespace, &Sweep::admit_id(&LaneKey::new("lane").unwrap()));
    assert!(shelf.records.contains_key(&sweep));
    shelf.lanes = Lanes::Admit;
    let Record::Sweep(seen) = shelf.records[&sweep].record.clone() else { panic!("no sweep") };
    let step = SweepStep { sweep: sweep.clone(), seen, items: vec![], next: None };
    assert_eq!(shelf.run(&step).unwrap(), Swept::Ended);
    assert_eq!(shelf.task("b").state.place, Place::Held);
    assert!(!shelf.records.contains_key(&sweep));
}

/// M7
#[test]
fn a_newer_message_replaces_the_older_ones_nobody_has_taken() {
    let mut shelf = Shelf::default();
    let newer = |spec: &mut Spec| {
        serial(spec);
        spec.message = Some(Box::new(MessageFields { supersede: true, ..MessageFields::default() }));
    };
    shelf.enqueue("v1", newer);
    shelf.enqueue("v2", newer);
    assert_eq!(
        (shelf.task("v1").state.phase, shelf.task("v1").state.reason),
        (Phase::Cancelled, Some(ReasonCode::Superseded))
    );
    let claim = Event::Claimed {
        claim: OpId::from_bits(1),
        holder: RunnerId::new("r").unwrap(),
        until: Until::Heartbeat,
        counted: false,
    };
    shelf.happen("v2", claim).unwrap();
    shelf.enqueue("v3", newer);
    assert_eq!(shelf.task("v2").state.phase, Phase::Running, "a message that was taken stays");
    shelf.enqueue("v4", newer);
    let phases = ["v3", "v4"].map(|id| shelf.task(id).state.phase);
    assert_eq!(phases, [Phase::Cancelled, Phase::Queued]);
}

#[test]
fn a_repeated_enqueue_finds_its_own_task() {
    let mut shelf = Shelf::default();
    let plan = Enqueue { spec: Arc::new(spec("a")), start: Start::Released, parents: vec![], idempotency: None };
    let op = OpId::from_bits(77);
    let first = shelf.run_as(op, &plan).unwrap();
    assert_eq!(shelf.run_as(op, &plan).unwrap(), first);
    assert!(shelf.last.is_none());
    assert_eq!(
        shelf.run(&plan).unwrap_err(),
        ReasonCode::TaskExists,
        "another request with the same id is another matter"
    );
}

#[test]
fn a_unique_key_is_free_again_when_its_task_has_ended() {
    let mut shelf = Shelf::default();
    let unique =
        |hold| move |spec: &mut Spec| spec.unique = Some(Arc::new(Unique { key: UniqueKey::new("u").unwrap(), hold }));
    shelf.enqueue("a", unique(UniqueHold::WhileOpen));
    let mut second = spec("b");
    unique(UniqueHold::WhileOpen)(&mut second);
    let plan = Enqueue { spec: Arc::new(second), start: Start::Released, parents: vec![], idempotency: None };
    assert_eq!(shelf.run(&plan).unwrap(), Enqueued::Existing(TaskId::new("a").unwrap()));
    shelf.finish("a");
    assert!(matches!(shelf.run(&plan).unwrap(), Enqueued::New(_)));
}

/// R18
#[test]
fn a_purge_takes_only_what_nobody_needs() {
    let mut shelf = Shelf::default();
    shelf.enqueue("parent", |_| {});
    shelf.enqueue_after(spec("child"), &["parent"]);
    shelf.finish("parent");
    let purge = |id: &str, when| Purge { task: key(id), when };
    assert_eq!(
        shelf.run(&purge("parent", PurgeWhen::OnDemand)),
        Ok(Purged::Kept),
        "too young: its enqueue may be repeated"
    );
    shelf.now = Some(NOON + limits::PURGE_AGE_MIN);
    assert_eq!(shelf.run(&purge("parent", PurgeWhen::OnDemand)), Ok(Purged::Kept), "its child has not been told");
    assert_eq!(shelf.run(&purge("child", PurgeWhen::OnDemand)), Ok(Purged::Kept), "not ended");
    shelf.release_step("parent");
    assert_eq!(shelf.run(&purge("parent", PurgeWhen::Due)), Ok(Purged::Kept), "kept for seven days");
    shelf.now = Some(NOON + Millis::from_days(7));
    assert_eq!(shelf.run(&purge("parent", PurgeWhen::Due)), Ok(Purged::Gone));
    assert!(!shelf.records.contains_key(&key("parent")));
}

/// R18
#[test]
fn an_ended_task_that_is_needed_stands_before_no_other_in_the_list() {
    let mut shelf = Shelf::default();
    let listed = |shelf: &Shelf| {
        let record = &shelf.records[&key("parent")].record;
        crate::index::Index::of(&key("parent"), record).due_at(crate::index::DueIndex::Purge).unwrap()
    };
    shelf.enqueue("parent", |spec| {
        Arc::make_mut(&mut spec.policy).keep = crate::pool::Keep::For(Millis::from_secs(1));
    });
    shelf.enqueue_after(spec("child"), &["parent"]);
    let cancel = Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None };
    shelf.happen("parent", cancel.clone()).unwrap();
    assert_eq!(listed(&shelf), NOON + limits::PURGE_AGE_MIN, "not before it may go");
    shelf.release_step("parent");
    let purge = Purge { task: key("parent"), when: PurgeWhen::Due };
    let mut look = listed(&shelf);
    for day in [0, 10] {
        look = look + Millis::from_days(day);
        shelf.now = Some(look);
        assert_eq!(shelf.run(&purge), Ok(Purged::Kept), "its child waits");
        let wait = Millis::new(look.since(NOON).as_u64() / 10).max(limits::PURGE_LOOK_MIN);
        assert_eq!(listed(&shelf), look + wait);
    }
    shelf.happen("child", cancel).unwrap();
    assert_eq!(shelf.run(&purge), Ok(Purged::Kept), "nobody looks before the time that was noted");
    shelf.now = Some(listed(&shelf));
    assert_eq!(shelf.run(&purge), Ok(Purged::Gone));
}

/// R21
#[test]
fn a_bulk_command_that_was_carried_out_is_not_started_again() {
    let mut shelf = Shelf::default();
    let namespace = spec("x").namespace;
    let work = SweepWork::Cancel(crate::filter::TaskFilter::all(namespace.clone()));
    let start = |now| {
        let sweep = Sweep::new(crate::id::SweepId::new("bulk").unwrap(), work.clone(), now);
        StartSweep { namespace: namespace.clone(), sweep: Arc::new(sweep) }
    };
    shelf.enqueue("old", |_| {});
    let seen = shelf.run(&start(NOON)).unwrap();
    let sweep = Key::sweep(&namespace, &seen.id);
    let items = vec![SweepItem { key: key("old"), new_id: TaskId::new("unused").unwrap() }];
    let step = SweepStep { sweep: sweep.clone(), seen, items, next: None };
    assert_eq!(shelf.run(&step), Ok(Swept::Ended));
    shelf.now = Some(NOON + limits::BULK_KEPT);
    let again = shelf.run(&start(shelf.now.unwrap())).unwrap();
    assert_eq!((again.created_at, again.ended_at, again.changed), (NOON, Some(NOON), 1));
    assert!(shelf.last.is_none());
    assert_eq!(shelf.run(&Forget { record: sweep, when: PurgeWhen::Due }), Ok(true));
    assert_eq!(shelf.run(&start(shelf.now.unwrap())).unwrap().ended_at, None);
}

/// R21
#[test]
fn a_retry_reopens_or_makes_a_new_task_and_returns_the_one_that_runs() {
    let mut shelf = Shelf::default();
    let die = |shelf: &mut Shelf, id: &str| {
        let holder = RunnerId::new("r").unwrap();
        shelf
            .happen(id, Event::Claimed { claim: OpId::from_bits(1), holder, until: Until::Heartbeat, counted: false })
            .unwrap();
        let kind = crate::retry::FailureKind::Permanent;
        shelf.happen(id, Event::Failed { token: Token(1), kind, error: Arc::from("no") }).unwrap();
    };
    for (id, reopen, runs) in [("a", true, "a"), ("b", false, "new")] {
        shelf.enqueue(id, |spec| Arc::make_mut(&mut spec.policy).reopen = reopen);
        die(&mut shelf, id);
        let done = shelf.run(&Retry { task: key(id), new_id: TaskId::new("new").unwrap() }).unwrap();
        assert_eq!(done.id().as_str(), runs);
        assert_eq!(shelf.task(runs).state.phase, Phase::Queued);
    }
    assert_eq!(shelf.task("new").spec.retry_of, Some(TaskId::new("b").unwrap()));
    assert_eq!(shelf.task("b").state.phase, Phase::Dead, "dead tasks are kept");
    let twice = shelf.run(&Retry { task: key("b"), new_id: TaskId::new("newer").unwrap() }).unwrap();
    assert_eq!(twice, Enqueued::Existing(TaskId::new("new").unwrap()), "pressing twice runs once");
    die(&mut shelf, "new");
    let again = shelf.run(&Retry { task: key("b"), new_id: TaskId::new("newest").unwrap() }).unwrap();
    assert_eq!(again.id().as_str(), "newest", "when the task in its place died too, the next one takes it");
}

#[test]
fn oversized_and_absurd_wishes_are_refused_and_nothing_is_written() {
    let mut shelf = Shelf::default();
    type Wish = fn(&mut Spec);
    let wishes: [(Wish, ReasonCode); 5] = [
        (|spec| spec.envelope.payload = vec![b' '; limits::PAYLOAD_BYTES_MAX + 1].into(), ReasonCode::PayloadTooLarge),
        (|spec| spec.run_at = Some(spec.created_at + Millis::from_days(9_999)), ReasonCode::DurationInvalid),
        (|spec| Arc::make_mut(&mut spec.policy).attempts_max = 0, ReasonCode::NumberOutOfRange),
        (
            |spec| spec.labels = (0..33).map(|n| (Arc::from(n.to_string()), Arc::from("x"))).collect(),
            ReasonCode::LabelsInvalid,
        ),
        (
            |spec| {
                let key = LaneKey::new("l").unwrap();
                spec.lane = Some(Arc::new(LaneSpec { key, width: 0, hold: crate::lane::Hold::UntilFinal }));
            },
            ReasonCode::LaneInvalid,
        ),
    ];
    for (change, code) in wishes {
        let mut wish = spec("a");
        change(&mut wish);
        let plan = Enqueue { spec: Arc::new(wish), start: Start::Released, parents: vec![], idempotency: None };
        assert_eq!(shelf.run(&plan).unwrap_err(), code);
    }
    shelf.enqueue("b", |spec| spec.envelope.task_type = Kind::new("k").unwrap());
    let large = Event::Succeeded { token: Token(1), result: Some(vec![0; limits::RESULT_BYTES_MAX + 1].into()) };
    assert_eq!(shelf.happen("b", large).unwrap_err(), ReasonCode::PayloadTooLarge);
    assert_eq!(shelf.records.len(), 1);
}
