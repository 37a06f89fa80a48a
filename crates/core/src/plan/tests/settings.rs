//! Laws of what people set: schedules and their ticks, groups that are waited for, progress, bulk commands.

use super::*;
use crate::dependency::OnParentFailure;
use crate::filter::TaskFilter;
use crate::id::{GroupId, ScheduleId, SweepId};
use crate::newer::Newer;
use crate::schedule::{Every, Missed, Overlap, Schedule};
use crate::sweep::SweepWork;
use crate::task::Progress;

const MINUTE: Millis = Millis::from_secs(60);

pub(super) fn schedule(change: impl FnOnce(&mut Schedule)) -> Schedule {
    let mut schedule = Schedule {
        id: ScheduleId::new("s").unwrap(),
        every: Every::Interval { period: MINUTE, anchor: Timestamp::ZERO },
        missed: Missed::Latest,
        overlap: Overlap::Skip,
        paused: false,
        template: Arc::new(spec("template")),
        next_at: None,
        last: None,
        newer: Newer::NONE,
    };
    change(&mut schedule);
    schedule
}

impl Shelf {
    fn set(&mut self, schedule: Schedule) -> Arc<Schedule> {
        self.run(&SetSchedule { schedule, lead: self.lead }).unwrap()
    }

    /// The ids of the tasks that a tick at this moment hands in.
    pub(super) fn tick(&mut self, at: Timestamp) -> Vec<String> {
        self.now = Some(at);
        let schedule = Key::schedule(&spec("x").namespace, &ScheduleId::new("s").unwrap());
        let tasks = self.run(&Tick { schedule, lead: self.lead }).unwrap().tasks;
        tasks.iter().map(|task| task.id().to_string()).collect()
    }

    fn group_step(&mut self, then: &str, next: Option<&str>) -> Swept {
        let sweep = Key::sweep(
            &spec("x").namespace,
            &Sweep::await_id(&GroupId::new("g").unwrap(), &TaskId::new(then).unwrap()),
        );
        let Some(Record::Sweep(seen)) = self.records.get(&sweep).map(|found| found.record.clone()) else {
            return Swept::Ended;
        };
        let member = |found: &&Versioned| {
            found
                .record
                .as_task()
                .is_some_and(|task| task.spec.group.as_ref().is_some_and(|group| group.as_str() == "g"))
        };
        let item = |found: &Versioned| SweepItem { key: found.key.clone(), new_id: TaskId::new("unused").unwrap() };
        let items = self.records.values().filter(member).map(item).collect();
        self.run(&SweepStep { sweep, seen, items, next: next.map(str::to_owned) }).unwrap()
    }

    fn group_of(&mut self, members: &[&str], policy: OnParentFailure) {
        let group = GroupId::new("g").unwrap();
        for member in members {
            self.enqueue(member, |spec| spec.group = Some(group.clone()));
        }
        self.enqueue("then", |spec| {
            spec.after_group = Some(group.clone());
            spec.on_parent_failure = policy;
        });
    }
}

#[test]
fn a_tick_hands_in_one_task_and_names_the_next_moment_in_one_commit() {
    let mut shelf = Shelf::default();
    let set = shelf.set(schedule(|_| {}));
    assert_eq!(set.next_at, Some(NOON + MINUTE), "the first tick is the next multiple of the period");
    assert!(shelf.tick(NOON).is_empty(), "its time has not come");
    let name = format!("tick/s@{}", NOON + MINUTE);
    assert_eq!(shelf.tick(NOON + MINUTE), std::slice::from_ref(&name));
    let kinds: Vec<RecordKind> = shelf.kinds_written().into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [RecordKind::Task, RecordKind::Idempotency, RecordKind::Schedule]);
    assert!(shelf.tick(NOON + MINUTE).is_empty(), "who comes second finds nothing to do");
    assert_eq!(shelf.task(&name).spec.created_at, NOON + MINUTE);
}

#[test]
fn a_tick_is_left_out_while_the_last_task_is_open_unless_both_may_run() {
    let minute = |n: u64| NOON + Millis::from_secs(60 * n);
    for (overlap, second) in [(Overlap::Skip, 0), (Overlap::Allow, 1)] {
        let mut shelf = Shelf::default();
        shelf.set(schedule(|schedule| schedule.overlap = overlap));
        let first = shelf.tick(minute(1)).pop().unwrap();
        assert_eq!(shelf.tick(minute(2)).len(), second, "{overlap:?}");
        shelf.finish(&first);
        if overlap == Overlap::Skip {
            assert_eq!(shelf.tick(minute(3)).len(), 1);
        }
    }
}

#[test]
fn missed_ticks_are_made_up_for_a_few_a_commit_and_none_twice() {
    let mut shelf = Shelf::default();
    shelf.set(schedule(|schedule| (schedule.missed, schedule.overlap) = (Missed::All, Overlap::Allow)));
    let late = NOON + Millis::from_secs(60 * 10);
    let mut made: Vec<String> = Vec::new();
    for _ in 0..5 {
        let ticks = shelf.tick(late);
        assert!(ticks.len() <= limits::TICKS_A_COMMIT_MAX);
        made.extend(ticks);
    }
    let unique: std::collections::BTreeSet<&String> = made.iter().collect();
    assert_eq!((made.len(), unique.len()), (10, 10));
}

#[test]
fn a_schedule_that_is_set_again_keeps_its_next_tick_unless_its_times_change_or_it_rested() {
    let mut shelf = Shelf::default();
    shelf.set(schedule(|_| {}));
    shelf.now = Some(NOON + Millis::from_secs(90));
    assert_eq!(shelf.set(schedule(|_| {})).next_at, Some(NOON + MINUTE), "the tick that is due is not lost");
    let hourly = Every::Interval { period: Millis::from_secs(3_600), anchor: Timestamp::ZERO };
    assert_eq!(shelf.set(schedule(|schedule| schedule.every = hourly)).next_at, Some(NOON + Millis::from_secs(3_600)));
    shelf.set(schedule(|schedule| schedule.paused = true));
    assert!(shelf.tick(NOON + Millis::from_secs(600)).is_empty());
    let resumed = shelf.set(schedule(|_| {}));
    assert_eq!(resumed.next_at, Some(NOON + Millis::from_secs(660)), "what it slept through is not made up for");
}

#[test]
fn a_schedule_that_cannot_tick_is_refused_and_removing_it_takes_only_itself() {
    let mut shelf = Shelf::default();
    let cron = Every::Cron { expression: "61 * * * *".to_owned(), time_zone: "UTC".to_owned() };
    let wrong = SetSchedule { schedule: schedule(|schedule| schedule.every = cron), lead: ClockLead::NONE };
    assert_eq!(shelf.run(&wrong).unwrap_err(), ReasonCode::ScheduleInvalid);
    shelf.set(schedule(|_| {}));
    let task = shelf.tick(NOON + MINUTE).pop().unwrap();
    let key = Key::schedule(&spec("x").namespace, &ScheduleId::new("s").unwrap());
    shelf.run(&RemoveSchedule { schedule: key.clone() }).unwrap();
    assert_eq!(shelf.run(&RemoveSchedule { schedule: key }).unwrap_err(), ReasonCode::ScheduleNotFound);
    assert_eq!(shelf.task(&task).state.phase, Phase::Queued);
}

#[test]
fn what_waits_for_a_group_is_held_until_every_member_has_ended() {
    let mut shelf = Shelf::default();
    shelf.group_of(&["a", "b"], OnParentFailure::Block);
    assert_eq!(shelf.task("then").state.phase, Phase::Pending);
    shelf.finish("a");
    let Swept::On(sweep) = shelf.group_step("then", None) else { panic!("b is open") };
    assert_eq!(sweep.due_at(), NOON + limits::AWAIT_LOOK_MIN, "it looks again, but not at once");
    assert!(matches!(shelf.group_step("then", None), Swept::On(_)));
    assert!(shelf.last.is_none(), "an early look at what has not changed writes nothing");
    shelf.finish("b");
    assert_eq!(shelf.group_step("then", None), Swept::Ended);
    assert_eq!(shelf.task("then").state.phase, Phase::Queued);
}

#[test]
fn a_page_of_a_group_is_left_behind_with_its_failures_counted() {
    let mut shelf = Shelf::default();
    shelf.group_of(&["a"], OnParentFailure::Block);
    shelf.happen("a", Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None }).unwrap();
    let Swept::On(sweep) = shelf.group_step("then", Some("after a")) else { panic!("more pages follow") };
    assert_eq!(sweep.cursor.as_deref(), Some("after a"));
    assert!(matches!(sweep.work, SweepWork::Await { failed: 1, .. }));
}

#[test]
fn a_member_that_failed_decides_by_the_waiting_tasks_own_word() {
    for (policy, phase) in [
        (OnParentFailure::Block, Phase::Pending),
        (OnParentFailure::Cancel, Phase::Cancelled),
        (OnParentFailure::Run, Phase::Queued),
    ] {
        let mut shelf = Shelf::default();
        shelf.group_of(&["a", "b"], policy);
        shelf.finish("a");
        shelf.happen("b", Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None }).unwrap();
        assert_eq!(shelf.group_step("then", None), Swept::Ended);
        let then = shelf.task("then");
        assert_eq!(then.state.phase, phase, "{policy:?}");
        let expected = (policy != OnParentFailure::Run).then_some(ReasonCode::DependencyFailed);
        assert_eq!(then.state.reason, expected, "{policy:?}");
    }
}

#[test]
fn a_person_may_release_what_waits_for_a_group_and_the_sweep_ends() {
    let mut shelf = Shelf::default();
    shelf.group_of(&["a"], OnParentFailure::Block);
    shelf.happen("then", Event::Released).unwrap();
    assert_eq!(shelf.group_step("then", None), Swept::Ended);
    assert_eq!(shelf.task("then").state.phase, Phase::Queued);
}

/// R19
#[test]
fn only_the_holder_says_how_far_a_task_is() {
    let mut shelf = Shelf::default();
    shelf.enqueue("a", |_| {});
    let report = |token| Report {
        task: key("a"),
        token: Token(token),
        progress: Progress { done: 1, total: Some(2), note: Some("失敗".repeat(2_000).into()) },
    };
    assert_eq!(shelf.run(&report(1)).unwrap_err(), ReasonCode::TaskNotRunning);
    let holder = RunnerId::new("r").unwrap();
    let claim = Event::Claimed { claim: OpId::from_bits(1), holder, until: Until::Heartbeat, counted: false };
    shelf.happen("a", claim).unwrap();
    let told = shelf.run(&report(1)).unwrap();
    let progress = told.state.progress.as_ref().unwrap();
    assert_eq!((progress.done, progress.total), (1, Some(2)));
    assert!(progress.note.as_ref().unwrap().len() <= limits::ERROR_BYTES_MAX, "a long note is cut");
    assert_eq!(shelf.run(&report(2)).unwrap_err(), ReasonCode::LeaseLost);
    shelf.happen("a", Event::Succeeded { token: Token(1), result: None }).unwrap();
    assert_eq!(shelf.run(&report(1)).unwrap_err(), ReasonCode::TaskFinal);
}

#[test]
fn a_bulk_command_asked_for_twice_is_started_once() {
    let mut shelf = Shelf::default();
    let namespace = spec("x").namespace;
    let start = |now| {
        let work = SweepWork::Cancel(TaskFilter::all(namespace.clone()));
        let sweep = Arc::new(Sweep::new(SweepId::new("c").unwrap(), work, now));
        StartSweep { namespace: namespace.clone(), sweep }
    };
    let first = shelf.run(&start(NOON)).unwrap();
    assert_eq!(shelf.run(&start(NOON + MINUTE)).unwrap(), first);
    assert!(shelf.last.is_none());
}

/// R21: what a bulk command would change is what its plans change, phase by phase, so that a preview tells the truth.
#[test]
fn what_a_bulk_command_would_change_is_what_it_changes() {
    let all = TaskFilter::all(spec("x").namespace);
    for phase in Phase::ALL {
        let in_phase = || {
            let mut shelf = Shelf::default();
            let mut task = Arc::unwrap_or_clone(shelf.enqueue("a", |_| {}));
            task.state.phase = phase;
            shelf.put(key("a"), task.into(), OpId::from_bits(1), OpId::from_bits(1));
            shelf.last = None;
            shelf
        };
        let mut cancelled = in_phase();
        let cancel = Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None };
        let changed = cancelled.happen("a", cancel).is_ok() && cancelled.last.is_some();
        assert_eq!(SweepWork::Cancel(all.clone()).changes(phase, false), changed, "cancel of {phase}");
        let mut retried = in_phase();
        let retry = Retry { task: key("a"), new_id: TaskId::new("new").unwrap() };
        let changed = retried.run(&retry).is_ok() && retried.last.is_some();
        assert_eq!(SweepWork::Retry(all.clone()).changes(phase, false), changed, "retry of {phase}");
        assert!(!SweepWork::Retry(all.clone()).changes(phase, true), "what was retried has another in its place");
    }
}
