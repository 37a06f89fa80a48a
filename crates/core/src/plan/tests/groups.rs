//! Laws of groups: a failure counts as long as it stands, whoever waits in a circle is refused, and no member is forgotten.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::id::GroupId;
use crate::retry::FailureKind;
use crate::sweep::SweepWork;

fn group(name: &str) -> Option<GroupId> {
    Some(GroupId::new(name).unwrap())
}

fn task_id(name: &str) -> TaskId {
    TaskId::new(name).unwrap()
}

impl Shelf {
    fn later(&mut self, millis: u64) {
        self.now = Some(self.now.unwrap_or(NOON) + Millis::new(millis));
    }

    /// Hands a task in now, or says why not.
    fn try_enqueue(&mut self, id: &str, parents: &[&str], change: impl FnOnce(&mut Spec)) -> Result<(), ReasonCode> {
        let mut wish = Spec { created_at: self.now.unwrap_or(NOON), ..spec(id) };
        change(&mut wish);
        let parents = parents.iter().map(|parent| task_id(parent)).collect();
        self.run(&Enqueue { spec: Arc::new(wish), start: Start::Released, parents, idempotency: None }).map(drop)
    }

    fn kill(&mut self, id: &str) {
        let token = self.claim(id);
        self.happen(id, Event::Failed { token, kind: FailureKind::Permanent, error: "no".into() }).unwrap();
    }

    fn await_sweep(&self, then: &str) -> Option<(Key, Arc<Sweep>)> {
        self.records.values().find_map(|found| match &found.record {
            Record::Sweep(sweep) if matches!(&sweep.work, SweepWork::Await { then: waits, .. } if waits.as_str() == then) => {
                Some((found.key.clone(), sweep.clone()))
            }
            _ => None,
        })
    }

    /// One step of the sweep that waits for a group, with a page as a store reads it: the oldest members from the cursor on.
    fn await_step(&mut self, then: &str, limit: usize) -> Swept {
        let Some((sweep, seen)) = self.await_sweep(then) else { return Swept::Ended };
        let SweepWork::Await { group, .. } = &seen.work else { panic!("it awaits") };
        let mut members: Vec<(String, Key)> = (self.records.values())
            .filter_map(|found| Some((found.record.as_task()?, found.key.clone())))
            .filter(|(task, _)| group.matches(task))
            .map(|(task, key)| (format!("{}/{}", task.spec.created_at, task.id()), key))
            .filter(|(place, _)| seen.cursor.as_ref().is_none_or(|cursor| place > cursor))
            .collect();
        members.sort();
        let next = (members.len() > limit).then(|| members[limit - 1].0.clone());
        members.truncate(limit);
        let item = |(_, key)| SweepItem { key, new_id: task_id("unused") };
        let items = members.into_iter().map(item).collect();
        self.run(&SweepStep { sweep, seen, items, next }).unwrap()
    }

    /// Steps until the sweep ends or waits.
    fn await_round(&mut self, then: &str, limit: usize) {
        for _ in 0..64 {
            match self.await_step(then, limit) {
                Swept::On(sweep) if sweep.due_at() <= self.now.unwrap_or(NOON) => {}
                _ => return,
            }
        }
        panic!("the sweep never comes to rest");
    }

    fn purge_on_demand(&mut self, id: &str) -> Purged {
        self.run(&Purge { task: key(id), when: PurgeWhen::OnDemand }).unwrap()
    }
}

/// R21, W8
#[test]
fn a_failed_member_is_not_purged_while_a_task_waits_for_its_group() {
    let mut shelf = Shelf::default();
    for id in ["a", "b", "c"] {
        shelf.try_enqueue(id, &[], |spec| spec.group = group("g")).unwrap();
    }
    shelf.try_enqueue("then", &[], |spec| spec.after_group = group("g")).unwrap();
    shelf.finish("b");
    shelf.kill("a");
    shelf.later(600_000);
    assert_eq!([shelf.purge_on_demand("a"), shelf.purge_on_demand("b")], [Purged::Kept, Purged::Gone]);
    shelf.finish("c");
    shelf.await_round("then", 2);
    assert_eq!(shelf.task("then").state.reason, Some(ReasonCode::DependencyFailed));
    assert_eq!(shelf.purge_on_demand("a"), Purged::Gone, "nothing waits for it any more");
}

/// R21, W8
#[test]
fn a_member_that_was_retried_counts_no_more_although_its_page_was_passed() {
    for reopen in [false, true] {
        let mut shelf = Shelf::default();
        for id in ["a", "b", "c", "d"] {
            shelf
                .try_enqueue(id, &[], |spec| {
                    spec.group = group("g");
                    Arc::make_mut(&mut spec.policy).reopen = reopen;
                })
                .unwrap();
            shelf.later(1);
        }
        shelf.try_enqueue("then", &[], |spec| spec.after_group = group("g")).unwrap();
        shelf.kill("a");
        shelf.finish("b");
        shelf.finish("c");
        shelf.await_round("then", 2);
        assert!(shelf.await_sweep("then").unwrap().1.cursor.is_some(), "the page of the failed member was passed");
        let again = shelf.run(&Retry { task: key("a"), new_id: task_id("a-2") }).unwrap().id().clone();
        shelf.finish("d");
        shelf.later(60_000);
        shelf.await_round("then", 2);
        assert_eq!(shelf.task("then").state.phase, Phase::Pending, "the retried member is waited for");
        shelf.finish(again.as_str());
        shelf.later(60_000);
        shelf.await_round("then", 2);
        let then = shelf.task("then");
        assert_eq!((then.state.phase, then.state.reason), (Phase::Queued, None), "reopen: {reopen}");
    }
}

/// W8
#[test]
fn tasks_that_would_wait_for_each_other_through_groups_are_refused() {
    let cycle = Err(ReasonCode::DependencyCycle);
    let waits = |own: &'static str, other: &'static str| {
        move |spec: &mut Spec| (spec.group, spec.after_group) = (group(own), group(other))
    };
    let mut shelf = Shelf::default();
    shelf.try_enqueue("a", &[], waits("1", "2")).unwrap();
    assert_eq!(shelf.try_enqueue("b", &[], waits("2", "1")), cycle);

    let mut shelf = Shelf::default();
    for (id, own, other) in [("a", "1", "2"), ("b", "2", "3")] {
        shelf.try_enqueue(id, &[], waits(own, other)).unwrap();
    }
    assert_eq!(shelf.try_enqueue("c", &[], waits("3", "1")), cycle);
    shelf.try_enqueue("d", &[], waits("4", "1")).unwrap();

    let mut shelf = Shelf::default();
    shelf.try_enqueue("a", &[], |spec| spec.after_group = group("1")).unwrap();
    assert_eq!(shelf.try_enqueue("b", &["a"], |spec| spec.group = group("1")), cycle, "its parent waits for its group");
    shelf.try_enqueue("b", &["a"], |_| {}).unwrap();
    shelf.try_enqueue("c", &["b"], |spec| spec.group = group("2")).unwrap();
    assert_eq!(shelf.try_enqueue("d", &[], waits("1", "2")), cycle, "c waits for b, and b for a");

    let mut shelf = Shelf::default();
    shelf.try_enqueue("a", &[], waits("1", "1")).unwrap();
    assert_eq!(shelf.try_enqueue("b", &[], waits("1", "1")), cycle);
}

/// What a generated life of a group consists of. The members that a step means are picked by number.
#[derive(Clone, Copy, Debug)]
enum Step {
    Join,
    Succeed(usize),
    Kill(usize),
    Retry(usize),
    Purge(usize),
    /// One step of the sweep that waits, with a page of so many members.
    Look(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => Just(Step::Join),
        3 => any::<usize>().prop_map(Step::Succeed),
        2 => any::<usize>().prop_map(Step::Kill),
        2 => any::<usize>().prop_map(Step::Retry),
        1 => any::<usize>().prop_map(Step::Purge),
        6 => (1usize..4).prop_map(Step::Look),
        1 => (1u64..400_000).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..80)
}

/// A group that a task waits for, and which of its members failed, whatever became of their records.
struct GroupLife {
    shelf: Shelf,
    members: usize,
    failed: BTreeSet<String>,
}

impl GroupLife {
    fn new(members: usize, reopen: bool) -> Self {
        let mut life = Self { shelf: Shelf::default(), members: 0, failed: BTreeSet::new() };
        for _ in 0..members {
            life.join(reopen);
        }
        life.shelf.later(1);
        life.shelf.try_enqueue("then", &[], |spec| spec.after_group = group("g")).unwrap();
        life
    }

    fn join(&mut self, reopen: bool) {
        self.members += 1;
        self.shelf.later(1);
        let join = |spec: &mut Spec| {
            spec.group = group("g");
            Arc::make_mut(&mut spec.policy).reopen = reopen;
        };
        self.shelf.try_enqueue(&format!("m-{:03}", self.members), &[], join).unwrap();
    }

    fn picked(&self, at: usize, wanted: impl Fn(&Task) -> bool) -> Option<String> {
        let tasks = self.shelf.records.values().filter_map(|found| found.record.as_task());
        let members = tasks.filter(|task| task.spec.group.is_some() && wanted(task));
        let ids: Vec<String> = members.map(|task| task.id().to_string()).collect();
        ids.get(at % ids.len().max(1)).cloned()
    }

    fn take(&mut self, step: Step, reopen: bool) {
        let is_open = |task: &Task| task.state.phase == Phase::Queued;
        let is_dead = |task: &Task| task.state.phase == Phase::Dead;
        match step {
            Step::Join => self.join(reopen),
            Step::Succeed(at) => {
                if let Some(id) = self.picked(at, is_open) {
                    self.shelf.finish(&id);
                }
            }
            Step::Kill(at) => {
                if let Some(id) = self.picked(at, is_open) {
                    self.shelf.kill(&id);
                    self.failed.insert(id);
                }
            }
            Step::Retry(at) => {
                let stands = |task: &Task| is_dead(task) && task.state.retried_as.is_none();
                if let Some(id) = self.picked(at, stands) {
                    self.members += 1;
                    self.shelf.later(1);
                    let new_id = task_id(&format!("m-{:03}", self.members));
                    self.shelf.run(&Retry { task: key(&id), new_id }).unwrap();
                    self.failed.remove(&id);
                }
            }
            Step::Purge(at) => {
                if let Some(id) = self.picked(at, |task| task.state.phase.is_final()) {
                    self.shelf.purge_on_demand(&id);
                }
            }
            Step::Look(limit) => drop(self.shelf.await_step("then", limit)),
            Step::Pass(millis) => self.shelf.later(millis),
        }
    }

    /// Whether the task that waits has its word, which agrees with the members.
    fn is_decided(&self) -> bool {
        let then = self.shelf.task("then");
        let is_open = |task: &Task| !task.state.phase.is_final();
        match (then.state.phase, then.state.reason) {
            (Phase::Pending, None) => return false,
            (Phase::Pending, Some(ReasonCode::DependencyFailed)) => assert!(!self.failed.is_empty(), "nothing failed"),
            (Phase::Queued, None) => {
                assert_eq!(self.failed, BTreeSet::new(), "it runs although members failed");
                assert_eq!(self.picked(0, is_open), None, "it runs although a member has not ended");
            }
            other => panic!("{other:?}"),
        }
        true
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// R21, W8
    #[test]
    fn a_group_is_judged_by_its_members_as_they_are(members in 0usize..7, reopen in any::<bool>(), steps in steps()) {
        let mut life = GroupLife::new(members, reopen);
        let mut decided = false;
        for step in steps {
            life.take(step, reopen);
            decided = life.is_decided();
            if decided {
                break;
            }
        }
        while !decided {
            life.take(Step::Succeed(0), reopen);
            life.take(Step::Pass(60_000), reopen);
            life.shelf.await_round("then", 2);
            decided = life.is_decided();
        }
    }
}
