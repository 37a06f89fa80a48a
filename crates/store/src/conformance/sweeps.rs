//! Cases: sweeps. Much work in small commits, by anybody, and nothing of it twice.

use std::sync::Arc;

use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::UniqueKey;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lane::LaneSpec;
use ekiden_core::lease::Token;
use ekiden_core::limits;
use ekiden_core::plan::{Enqueued, Lanes, Purge, PurgeWhen, Purged, Retry, SweepStep, Swept};
use ekiden_core::record::Record;
use ekiden_core::retry::FailureKind;
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::task::{Origin, Phase, Spec, Task};
use ekiden_core::time::Millis;
use ekiden_core::unique::{Unique, UniqueHold};

use super::Lab;
use super::lab::{at_once, id, kind, lane, ns, pool, task_key};
use crate::ext::StoreExt;
use crate::op::Answer;
use crate::query::ListOrder;

fn work() -> TaskFilter {
    TaskFilter { pool: Some(pool("work")), ..TaskFilter::all(ns()) }
}

async fn sweep_of(lab: &Lab, key: &Key) -> Arc<Sweep> {
    match lab.get(key).await.map(|found| found.record) {
        Some(Record::Sweep(sweep)) => sweep,
        other => panic!("{key} is no sweep but {other:?}"),
    }
}

async fn die(lab: &Lab, task: &Task) -> Arc<Task> {
    let token = Token(task.state.execution_no);
    let event = Event::Failed { token, kind: FailureKind::Permanent, error: "no".into() };
    lab.changed(task.id().as_str(), event).await
}

/// A parent that ended and has this many children, and the sweep that will tell them.
async fn told(lab: &Lab, children: usize) -> Key {
    lab.enqueue("parent").await;
    for number in 0..children {
        lab.enqueue_child(&format!("c-{number:02}"), &["parent"]).await;
    }
    lab.succeed(&*lab.take().await).await;
    Key::sweep(&ns(), &Sweep::release_id(&id("parent")))
}

/// C1
pub async fn sixty_children_are_released_in_small_commits(lab: Lab) {
    let sweep = told(&lab, 60).await;
    let mut steps = 0;
    while let Some(step) = lab.sweep_step(&sweep, 60).await {
        let before = sweep_of(&lab, &sweep).await;
        assert_eq!((before.changed, before.passed), (60 - step.items.len() as u64, 0), "nobody is counted twice");
        let commit = lab.draft(&step, Lanes::Admit).await;
        assert!(commit.writes().len() <= limits::SWEEP_WRITES_MAX + 1, "{} writes", commit.writes().len());
        assert!(matches!(lab.store().commit(commit).await, Ok(Answer::Applied(_))));
        steps += 1;
        assert!(steps <= 60, "the sweep does not come to an end");
    }
    assert!(steps >= 5, "60 children cost 120 writes, which are more than {steps} commits");
    assert_eq!(lab.names(RecordKind::Edge, "", 100).await, Vec::<String>::new());
    assert_eq!(lab.take_all(60).await.len(), 60);
}

/// C1
pub async fn large_payloads_are_swept_in_commits_that_hold_them(lab: Lab) {
    let large = bytes::Bytes::from(format!("\"{}\"", "x".repeat(limits::PAYLOAD_BYTES_MAX - 2)));
    for number in 0..14 {
        lab.enqueue_with(&format!("t-{number:02}"), |spec| spec.envelope.payload = large.clone()).await;
    }
    lab.wait(Millis::new(1));
    let sweep = lab.start_sweep("s", SweepWork::Cancel(work())).await;
    lab.sweep(&sweep).await;
    lab.count_is(Phase::Cancelled, 14).await;
}

/// C2, C5
pub async fn repeated_and_stale_steps_do_nothing_twice(lab: Lab) {
    let sweep = told(&lab, 8).await;
    let first = lab.sweep_step(&sweep, 3).await.expect("there is work");
    let commit = lab.draft(&first, Lanes::Admit).await;
    let store = lab.store();
    assert!(matches!(store.commit(commit.clone()).await, Ok(Answer::Applied(_))));
    let after = (lab.get(&sweep).await, lab.get(&task_key("c-00")).await);
    assert!(matches!(store.commit(commit).await, Ok(Answer::Applied(_))), "a repeated commit is applied already");
    assert_eq!(lab.run(&first).await.expect("no refusal"), Swept::Stale);
    assert_eq!((lab.get(&sweep).await, lab.get(&task_key("c-00")).await), after);
    assert_eq!(sweep_of(&lab, &sweep).await.changed, 3);
    let second = lab.sweep_step(&sweep, 100).await.expect("there is work");
    assert_eq!(lab.run(&second).await.expect("no refusal"), Swept::Ended);
    for step in [first, second] {
        assert_eq!(lab.run(&step).await.expect("no refusal"), Swept::Ended, "the sweep is gone");
    }
    assert_eq!(lab.get(&sweep).await, None);
    assert_eq!(lab.take_all(8).await.len(), 8);
}

/// C2, C12
pub async fn steps_that_race_do_each_item_once(lab: Lab) {
    for number in 0..9 {
        lab.enqueue(&format!("t-{number}")).await;
    }
    let sweep = lab.start_sweep("s", SweepWork::Cancel(work())).await;
    for _ in 0..2 {
        let step = lab.sweep_step(&sweep, 4).await.expect("there is work");
        let swept = at_once(4, |_| {
            let (lab, step): (Lab, SweepStep) = (lab.clone(), step.clone());
            async move { lab.run(&step).await.expect("no refusal") }
        })
        .await;
        assert_eq!(swept.iter().filter(|swept| matches!(swept, Swept::On(_))).count(), 1, "{swept:?}");
    }
    assert_eq!(sweep_of(&lab, &sweep).await.changed, 8);
    lab.sweep(&sweep).await;
    lab.count_is(Phase::Cancelled, 9).await;
}

/// C1
pub async fn a_cancel_sweep_cancels_what_matches_and_nothing_younger(lab: Lab) {
    let elsewhere = pool("elsewhere");
    lab.enqueue("done").await;
    lab.succeed(&*lab.take().await).await;
    lab.enqueue("running").await;
    let running = lab.take().await;
    lab.wait(Millis::new(1));
    lab.enqueue("waiting").await;
    lab.enqueue_with("elsewhere", |spec| spec.pool = elsewhere).await;
    let sweep = lab.start_sweep("s", SweepWork::Cancel(work())).await;
    lab.wait(Millis::new(1));
    lab.enqueue("later").await;
    let step = lab.sweep_step(&sweep, 3).await.expect("there is work");
    assert!(step.next.is_some(), "four tasks match the filter's pool");
    let Swept::On(on) = lab.run(&step).await.expect("no refusal") else { panic!("the sweep goes on") };
    assert_eq!((on.changed, on.passed), (2, 1), "one had ended");
    assert_eq!(*on, *sweep_of(&lab, &sweep).await);
    lab.sweep(&sweep).await;
    let ended = sweep_of(&lab, &sweep).await;
    assert_eq!((ended.ended_at, ended.changed), (Some(lab.now()), 2), "it is remembered for a day");
    let expected = [
        ("done", Phase::Succeeded),
        ("running", Phase::Cancelled),
        ("waiting", Phase::Cancelled),
        ("elsewhere", Phase::Queued),
        ("later", Phase::Queued),
    ];
    for (name, phase) in expected {
        assert_eq!(lab.phase(name).await, phase, "{name}");
    }
    assert_eq!(lab.names(RecordKind::Signal, "", 10).await.len(), 1, "the running one is told");
    lab.end_attempt(&running).await;
}

/// C1
pub async fn a_cancel_sweep_through_a_lane_strands_nobody(lab: Lab) {
    let serial = Arc::new(LaneSpec::serial(lane("l")));
    for number in 0..12 {
        let of = kind(if number < 9 { "drop" } else { "keep" });
        let name = format!("t-{number:02}");
        lab.enqueue_with(&name, |spec| (spec.lane, spec.envelope.task_type) = (Some(serial.clone()), of)).await;
        lab.wait(Millis::new(1));
    }
    let filter = TaskFilter { kind: Some(kind("drop")), ..work() };
    let sweep = lab.start_sweep("s", SweepWork::Cancel(filter)).await;
    lab.sweep(&sweep).await;
    lab.sweep(&Key::sweep(&ns(), &Sweep::admit_id(&lane("l")))).await;
    for name in ["t-09", "t-10", "t-11"] {
        let task = lab.take().await;
        assert_eq!(task.id().as_str(), name);
        lab.nothing_to_claim().await;
        lab.succeed(&task).await;
    }
    lab.count_is(Phase::Cancelled, 9).await;
    assert_eq!(lab.get(&Key::lane(&ns(), &lane("l"))).await, None);
    assert_eq!(lab.names(RecordKind::LaneMember, "", 10).await, Vec::<String>::new());
}

fn retry_dead() -> SweepWork {
    SweepWork::Retry(TaskFilter { phases: vec![Phase::Dead], ..work() })
}

/// C1
pub async fn a_retry_sweep_makes_new_tasks_that_point_at_the_old(lab: Lab) {
    for name in ["a", "b"] {
        lab.enqueue(name).await;
        die(&lab, &*lab.take().await).await;
    }
    lab.enqueue("fine").await;
    lab.wait(Millis::new(1));
    let sweep = lab.start_sweep("s", retry_dead()).await;
    lab.sweep(&sweep).await;
    assert_eq!([lab.phase("a").await, lab.phase("b").await], [Phase::Dead, Phase::Dead], "dead is final");
    let queued = TaskFilter { phases: vec![Phase::Queued], ..work() };
    let names = lab.list(queued, ListOrder::OldestFirst, 10).await;
    assert_eq!(names.len(), 3);
    lab.count_is(Phase::Dead, 2).await;
    let mut repeats = Vec::new();
    for name in names.iter().filter(|name| *name != "fine") {
        let task = lab.task(name).await.expect("it is there");
        assert_eq!((task.state.attempts, task.spec.created_at), (0, lab.now()));
        repeats.extend(task.spec.retry_of.as_ref().map(ToString::to_string));
    }
    repeats.sort();
    assert_eq!(repeats, ["a", "b"]);
}

/// C1
pub async fn a_retry_sweep_reopens_where_the_policy_says_so(lab: Lab) {
    let policy = lab.policy(|policy| (policy.reopen, policy.attempts_max) = (true, 1));
    lab.enqueue_with("t", |spec| spec.policy = policy).await;
    die(&lab, &*lab.take().await).await;
    let sweep = lab.start_sweep("s", retry_dead()).await;
    lab.sweep(&sweep).await;
    let again = lab.take().await;
    assert_eq!((again.id(), again.state.attempts, again.state.execution_no), (&id("t"), 1, 2));
    assert_eq!(lab.list(TaskFilter::all(ns()), ListOrder::OldestFirst, 10).await, ["t"]);
}

/// C1
pub async fn a_refused_retry_leaves_nothing_of_itself_behind(lab: Lab) {
    let policy = lab.policy(|policy| policy.reopen = true);
    let unique = Unique { key: UniqueKey::new("u").expect("a valid id"), hold: UniqueHold::WhileOpen };
    let (unique, serial) = (Some(Arc::new(unique)), Some(Arc::new(LaneSpec::serial(lane("l")))));
    lab.enqueue_spec(Spec { policy, unique: unique.clone(), lane: serial.clone(), ..lab.spec("old") }).await;
    die(&lab, &*lab.take().await).await;
    let holder = lab.enqueue_spec(Spec { unique, pool: pool("elsewhere"), ..lab.spec("holder") }).await;
    let sweep = lab.start_sweep("s", retry_dead()).await;
    lab.sweep(&sweep).await;
    assert_eq!(lab.phase("old").await, Phase::Dead, "{} has its key", holder.id());
    assert_eq!(lab.get(&Key::lane(&ns(), &lane("l"))).await, None, "it holds no place in its lane");
    lab.enqueue_with("next", |spec| spec.lane = serial).await;
    assert_eq!(lab.take().await.id(), &id("next"));
}

/// C1
pub async fn a_retried_task_takes_its_kept_key_along(lab: Lab) {
    for (name, hold) in [("kept", UniqueHold::WhileKept), ("timed", UniqueHold::For(Millis::from_days(1)))] {
        let unique = Unique { key: UniqueKey::new(name).expect("a valid id"), hold };
        let key = Key::unique(&ns(), &unique.key);
        lab.enqueue_with(name, |spec| spec.unique = Some(Arc::new(unique))).await;
        die(&lab, &*lab.take().await).await;
        let new_id = id(&format!("{name}-again"));
        let retried = lab.run(&Retry { task: task_key(name), new_id: new_id.clone() }).await.expect("it may run again");
        assert!(matches!(&retried, Enqueued::New(task) if task.id() == &new_id), "got {retried:?}");
        let Some(Record::Unique(held)) = lab.get(&key).await.map(|found| found.record) else { panic!("no key") };
        assert_eq!(held.task, new_id);
        assert_eq!(lab.take().await.id(), &new_id);
    }
}

/// C1
pub async fn a_purge_sweep_keeps_what_is_still_needed(lab: Lab) {
    let old = |name| Spec { pool: pool("work"), ..lab.spec(name) };
    for name in ["done", "foreign", "parent", "cancelled-but-running"] {
        let origin = if name == "foreign" { Origin::Foreign } else { Origin::Ours };
        lab.enqueue_spec(Spec { origin, ..old(name) }).await;
        if name == "parent" {
            lab.enqueue_child("child", &["parent"]).await;
        }
        let task = lab.take().await;
        match name {
            "parent" => die(&lab, &task).await,
            "cancelled-but-running" => lab.cancel(name).await,
            _ => lab.succeed(&task).await,
        };
        lab.wait(Millis::new(1));
    }
    lab.sweep(&Key::sweep(&ns(), &Sweep::release_id(&id("parent")))).await;
    lab.enqueue_with("open", |spec| spec.run_at = Some(spec.created_at + Millis::from_days(1))).await;
    lab.wait(limits::PURGE_AGE_MIN);
    lab.enqueue("young").await;
    lab.succeed(&*lab.take().await).await;
    let sweep = lab.start_sweep("s", SweepWork::Purge(work())).await;
    let step = lab.sweep_step(&sweep, 6).await.expect("there is work");
    let Swept::On(on) = lab.run(&step).await.expect("no refusal") else { panic!("the sweep goes on") };
    assert_eq!((on.changed, on.passed), (1, 5));
    lab.sweep(&sweep).await;
    let left = lab.list(TaskFilter::all(ns()), ListOrder::OldestFirst, 10).await;
    assert_eq!(left, ["foreign", "child", "parent", "cancelled-but-running", "open", "young"]);
}

/// C1
pub async fn a_parent_may_go_when_nobody_waits_for_it_any_more(lab: Lab) {
    lab.enqueue("parent").await;
    for number in 0..10 {
        lab.enqueue_child(&format!("c-{number}"), &["parent"]).await;
    }
    die(&lab, &*lab.take().await).await;
    lab.sweep(&Key::sweep(&ns(), &Sweep::release_id(&id("parent")))).await;
    lab.wait(limits::PURGE_AGE_MIN);
    let purge = Purge { task: task_key("parent"), when: PurgeWhen::OnDemand };
    for number in 0..10 {
        assert_eq!(lab.run(&purge).await.expect("a purge"), Purged::Kept, "{} wait for it", 10 - number);
        lab.cancel(&format!("c-{number}")).await;
    }
    for _ in 0..10 {
        if lab.run(&purge).await.expect("a purge") == Purged::Gone {
            break;
        }
    }
    assert_eq!(lab.task("parent").await, None, "a few purges are enough");
    assert_eq!(lab.names(RecordKind::Edge, "", 10).await, Vec::<String>::new(), "its edges go with it");
}

/// C1
pub async fn a_purged_task_gives_its_kept_key_back(lab: Lab) {
    let unique = Unique { key: UniqueKey::new("u").expect("a valid id"), hold: UniqueHold::WhileKept };
    let key = Key::unique(&ns(), &unique.key);
    lab.enqueue_with("t", |spec| spec.unique = Some(Arc::new(unique))).await;
    lab.succeed(&*lab.take().await).await;
    assert!(lab.get(&key).await.is_some(), "kept beyond the end");
    lab.wait(limits::PURGE_AGE_MIN);
    let sweep = lab.start_sweep("s", SweepWork::Purge(work())).await;
    lab.sweep(&sweep).await;
    assert_eq!((lab.task("t").await, lab.get(&key).await), (None, None));
}
