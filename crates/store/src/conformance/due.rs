//! Cases: what is due, and that an entry comes and goes with what its record says.

use std::sync::Arc;

use ekiden_core::claim::{Claim, LeaseTerm};
use ekiden_core::commit::Expect;
use ekiden_core::event::Event;
use ekiden_core::id::{IdempotencyKey, QuestionId, ScheduleId, SweepId, UniqueKey};
use ekiden_core::index::DueIndex;
use ekiden_core::key::Key;
use ekiden_core::lane::{Hold, LaneSpec};
use ekiden_core::lease::Token;
use ekiden_core::limits;
use ekiden_core::newer::Newer;
use ekiden_core::plan::{Beat, ClearDead, DeclareDead, Enqueue, Forget, Goodbye, Purge, PurgeWhen, Purged, due_event};
use ekiden_core::record::Record;
use ekiden_core::retry::{FailureKind, RetryPolicy};
use ekiden_core::runner::{Runner, RunnerStatus, Silence};
use ekiden_core::schedule::{Every, Missed, Overlap, Schedule};
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::task::{Question, Spec};
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::unique::{Unique, UniqueHold};

use super::Lab;
use super::lab::{delete, lane, ns, other_ns, runner, task_key};
use crate::query::{DueEntry, DueQuery};

const SECOND: Millis = Millis::from_secs(1);
const TICK: Millis = Millis::new(1);

/// Asserts that a record is listed from `at` on, and not a millisecond before. Time passes.
async fn listed_from(lab: &Lab, index: DueIndex, at: Timestamp, name: &str) {
    lab.wait(at.since(lab.now() + TICK));
    lab.lists_due(index, &[]).await;
    lab.wait(TICK);
    lab.lists_due(index, &[name]).await;
}

/// C19
pub async fn a_delayed_task_is_due_to_be_promoted_until_it_is(lab: Lab) {
    let at = lab.now() + SECOND;
    lab.enqueue("ready").await;
    lab.enqueue_with("t", |spec| spec.run_at = Some(at)).await;
    listed_from(&lab, DueIndex::Promote, at, "t").await;
    lab.run(&due_event(DueIndex::Promote, task_key("t")).expect("tasks become due")).await.expect("it became due");
    lab.lists_due(DueIndex::Promote, &[]).await;
    assert!(lab.task("t").await.is_some_and(|task| task.state.promoted));
    assert_eq!(lab.take_all(2).await.len(), 2);
}

/// C19
pub async fn a_task_out_of_its_lane_is_due_to_join_again(lab: Lab) {
    let slow = LaneSpec { key: lane("l"), width: 1, hold: Hold::WhileRunning };
    let policy = lab.policy(|policy| policy.retry = RetryPolicy::Fixed { delay: SECOND });
    lab.enqueue_with("t", |spec| (spec.lane, spec.policy) = (Some(Arc::new(slow)), policy)).await;
    let failed = lab.fail(&*lab.take().await).await;
    lab.lists_due(DueIndex::Promote, &[]).await;
    listed_from(&lab, DueIndex::Rejoin, failed.state.next_run_at, "t").await;
    lab.run(&due_event(DueIndex::Rejoin, task_key("t")).expect("tasks rejoin")).await.expect("it became due");
    lab.lists_due(DueIndex::Rejoin, &[]).await;
    assert_eq!(lab.take().await.state.attempts, 2);
}

/// C19
pub async fn a_lease_with_a_deadline_is_due_then_and_one_without_never(lab: Lab) {
    lab.enqueue("beating").await;
    lab.take().await;
    lab.enqueue("t").await;
    let task = lab.claim(Claim { lease: LeaseTerm::For(SECOND), ..lab.claim_one() }).await.remove(0);
    let deadline = lab.now() + SECOND;
    listed_from(&lab, DueIndex::Lease, deadline, "t").await;
    lab.succeed(&task).await;
    lab.lists_due(DueIndex::Lease, &[]).await;
}

/// C19
pub async fn a_task_that_can_expire_is_due_unless_it_runs_or_ended(lab: Lab) {
    let end = lab.now() + SECOND;
    for name in ["t-1", "t-2", "t-3"] {
        lab.enqueue_with(name, |spec| spec.expires_at = Some(end)).await;
        lab.wait(TICK);
    }
    assert_eq!(lab.take().await.id().as_str(), "t-1");
    lab.cancel("t-2").await;
    listed_from(&lab, DueIndex::Expire, end, "t-3").await;
    lab.run(&due_event(DueIndex::Expire, task_key("t-3")).expect("tasks expire")).await.expect("it expired");
    lab.lists_due(DueIndex::Expire, &[]).await;
}

/// C19
pub async fn a_question_with_a_deadline_is_due_until_it_is_answered(lab: Lab) {
    lab.enqueue("t").await;
    let token = Token(lab.take().await.state.execution_no);
    let deadline = lab.now() + SECOND;
    let q = QuestionId::new("q").expect("a valid id");
    let question =
        Question { id: q.clone(), text: "?".into(), choices: Vec::new(), deadline: Some(deadline), default: None };
    lab.changed("t", Event::Asked { token, question: Box::new(question) }).await;
    listed_from(&lab, DueIndex::Expire, deadline, "t").await;
    lab.changed("t", Event::Answered { question: q, content: "!".into() }).await;
    lab.lists_due(DueIndex::Expire, &[]).await;
}

/// C19
pub async fn an_ended_task_is_due_to_be_purged_when_it_was_kept_long_enough(lab: Lab) {
    let week = Millis::from_days(7);
    for name in ["done", "dead", "open"] {
        lab.enqueue(name).await;
        lab.wait(TICK);
    }
    lab.succeed(&*lab.take().await).await;
    let end = lab.now() + week;
    let token = Token(lab.take().await.state.execution_no);
    lab.changed("dead", Event::Failed { token, kind: FailureKind::Permanent, error: "no".into() }).await;
    listed_from(&lab, DueIndex::Purge, end, "done").await;
    let purge = Purge { task: task_key("done"), when: PurgeWhen::Due };
    assert_eq!(lab.run(&purge).await.expect("a purge"), Purged::Gone);
    lab.lists_due(DueIndex::Purge, &[]).await;
    assert_eq!(lab.task("done").await, None);
}

fn hello(lab: &Lab) -> Beat {
    let now = lab.now();
    Beat {
        runner: Runner {
            namespace: ns(),
            id: runner("r"),
            started_at: now,
            last_heartbeat: now,
            status: RunnerStatus::Running,
            lease: Millis::from_secs(30),
            project_root: String::new(),
            pools: Vec::new(),
            kinds: Vec::new(),
            newer: Newer::NONE,
        },
    }
}

/// C19
pub async fn a_runner_is_due_when_silent_stopped_or_dead_and_not_found_empty_twice(lab: Lab) {
    let key = Key::runner(&ns(), &runner("r"));
    lab.run(&hello(&lab)).await.expect("a beat");
    lab.wait(Millis::from_secs(20));
    lab.run(&hello(&lab)).await.expect("a beat");
    let silent = lab.now() + Millis::from_secs(30);
    listed_from(&lab, DueIndex::Runner, silent, "r").await;
    lab.run(&hello(&lab)).await.expect("a beat");
    lab.lists_due(DueIndex::Runner, &[]).await;
    lab.run(&Goodbye { runner: key.clone() }).await.expect("a goodbye");
    lab.lists_due(DueIndex::Runner, &["r"]).await;
    let declare = DeclareDead { runner: key.clone(), silence: Silence::ByClock };
    lab.run(&declare).await.expect("a stopped runner may be declared dead");
    lab.lists_due(DueIndex::Runner, &["r"]).await;
    lab.run(&ClearDead { runner: key.clone() }).await.expect("nothing was found");
    let again = lab.now() + Millis::from_secs(30);
    listed_from(&lab, DueIndex::Runner, again, "r").await;
    lab.run(&ClearDead { runner: key }).await.expect("nothing was found");
    lab.wait(Millis::from_days(1));
    lab.lists_due(DueIndex::Runner, &[]).await;
}

/// C19
pub async fn a_sweep_is_due_until_it_is_gone(lab: Lab) {
    let filter = ekiden_core::filter::TaskFilter::all(ns());
    let key = lab.start_sweep("s", SweepWork::Cancel(filter)).await;
    lab.lists_due(DueIndex::Sweep, &["s"]).await;
    lab.sweep(&key).await;
    lab.lists_due(DueIndex::Sweep, &[]).await;
}

fn schedule(lab: &Lab, name: &str, next_at: Timestamp) -> Schedule {
    Schedule {
        id: ScheduleId::new(name).expect("a valid id"),
        every: Every::Interval { period: SECOND, anchor: lab.now() },
        missed: Missed::Latest,
        overlap: Overlap::Skip,
        paused: false,
        template: Arc::new(lab.spec("template")),
        next_at: Some(next_at),
        last: None,
        newer: Newer::NONE,
    }
}

async fn put_schedule(lab: &Lab, schedule: Schedule) -> Key {
    let key = Key::schedule(&ns(), &schedule.id);
    let expect = lab.get(&key).await.map_or(Expect::Absent, |found| Expect::At(found.revision));
    lab.put(&key, expect, Record::Schedule(Arc::new(schedule))).await;
    key
}

/// C3, C19
pub async fn an_entry_follows_its_record(lab: Lab) {
    let (soon, later) = (lab.now() + SECOND, lab.now() + Millis::from_secs(5));
    let moved = schedule(&lab, "s", later);
    put_schedule(&lab, schedule(&lab, "s", soon)).await;
    put_schedule(&lab, moved.clone()).await;
    lab.wait(SECOND);
    lab.lists_due(DueIndex::Schedule, &[]).await;
    listed_from(&lab, DueIndex::Schedule, later, "s").await;
    put_schedule(&lab, Schedule { paused: true, ..moved.clone() }).await;
    lab.lists_due(DueIndex::Schedule, &[]).await;
    let key = put_schedule(&lab, moved).await;
    lab.lists_due(DueIndex::Schedule, &["s"]).await;
    lab.commit(vec![delete(key)]).await;
    lab.lists_due(DueIndex::Schedule, &[]).await;
}

/// C19
pub async fn keys_and_signals_are_due_to_be_forgotten_when_their_time_is_over(lab: Lab) {
    let unique = Unique { key: UniqueKey::new("u").expect("a valid id"), hold: UniqueHold::For(SECOND) };
    let idempotency = IdempotencyKey::new("i").expect("a valid id");
    let spec = Spec { unique: Some(Arc::new(unique.clone())), ..lab.spec("t") };
    lab.new_task(Enqueue { idempotency: Some(idempotency.clone()), ..lab.plan_of(spec) }).await;
    lab.take().await;
    lab.cancel("t").await;
    let begun = lab.now();
    let signal = Key::signal(&ns(), &runner("runner-1"), &super::lab::id("t"));
    let expected = [
        (begun + SECOND, Key::unique(&ns(), &unique.key)),
        (begun + limits::SIGNAL_KEPT, signal),
        (begun + limits::IDEMPOTENCY_KEPT, Key::idempotency(&ns(), &idempotency)),
    ];
    for (at, record) in expected {
        let forget = Forget { record: record.clone(), when: PurgeWhen::Due };
        assert!(!lab.run(&forget).await.expect("too early"), "{record} is kept until its time is over");
        listed_from(&lab, DueIndex::Forget, at, &record.name).await;
        assert!(lab.run(&forget).await.expect("its time is over"));
        assert_eq!(lab.get(&record).await, None);
        lab.lists_due(DueIndex::Forget, &[]).await;
    }
}

/// C19, C22
pub async fn the_oldest_come_first_until_and_with_the_moment_up_to_the_limit(lab: Lab) {
    let start = lab.now();
    for (name, after) in [("c", 30), ("a", 10), ("e", 50), ("b", 20), ("d", 40)] {
        put_schedule(&lab, schedule(&lab, name, start + Millis::new(after))).await;
    }
    lab.wait(Millis::from_secs(60));
    let due = async |namespace, until: u64, limit| {
        let query = DueQuery { namespace, index: DueIndex::Schedule, until: start + Millis::new(until), limit };
        let found = lab.store().due(query).await.expect("a read on a store without faults");
        found
            .into_iter()
            .map(|DueEntry { key, at }| (key.name.to_string(), at.since(start).as_u64()))
            .collect::<Vec<_>>()
    };
    lab.lists_due(DueIndex::Schedule, &["a", "b", "c", "d", "e"]).await;
    let entry = |name: &str, after| (name.to_owned(), after);
    assert_eq!(due(ns(), 30, 10).await, [entry("a", 10), entry("b", 20), entry("c", 30)]);
    assert_eq!(due(ns(), 29, 10).await, [entry("a", 10), entry("b", 20)]);
    assert_eq!(due(ns(), 99, 2).await, [entry("a", 10), entry("b", 20)]);
    assert_eq!(due(ns(), 9, 2).await, []);
    assert_eq!(due(other_ns(), 99, 10).await, []);
}

/// C19
pub async fn every_list_is_apart(lab: Lab) {
    let at = lab.now();
    put_schedule(&lab, schedule(&lab, "schedule", at)).await;
    let id = SweepId::new("sweep").expect("a valid id");
    let work = SweepWork::Admit { lane: lane("l") };
    let sweep = Sweep::new(id.clone(), work, at);
    lab.put(&Key::sweep(&ns(), &id), Expect::Absent, Record::Sweep(Arc::new(sweep))).await;
    for index in DueIndex::ALL {
        let expected: &[&str] = match index {
            DueIndex::Schedule => &["schedule"],
            DueIndex::Sweep => &["sweep"],
            _ => &[],
        };
        lab.lists_due(index, expected).await;
    }
}
