//! Cases: a store whose process died without a word is opened again. What was applied is there, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use ekiden_core::claim::{Claim, ClaimPool, LeaseTerm};
use ekiden_core::commit::{Commit, Expect, Write};
use ekiden_core::dependency::Edge;
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{IdempotencyKey, QuestionId, ScheduleId, SweepId, UniqueKey};
use ekiden_core::index::DueIndex;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lane::{Lane, LaneMember, LaneSpec};
use ekiden_core::lease::{Evidence, Token};
use ekiden_core::newer::Newer;
use ekiden_core::plan::{Enqueue, Enqueued};
use ekiden_core::pool::Profile;
use ekiden_core::record::{Pool, Record, Signal, Versioned};
use ekiden_core::retry::FailureKind;
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::schedule::{Every, Missed, Overlap, Schedule};
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::task::{Phase, Question};
use ekiden_core::time::Millis;
use ekiden_core::transition::Start;
use ekiden_core::unique::KeyRecord;

use super::Lab;
use super::lab::{add, delete, id, ids, lane, ns, pool, runner, task_key};
use crate::ext::StoreExt;
use crate::op::{Answer, Op};
use crate::query::ListOrder;

/// Kills and reopens. False where nothing survives, which a store must say of itself.
async fn reopened(lab: &Lab) -> bool {
    let survives = lab.reopen().await;
    assert!(survives || lab.store().info().durable.is_empty(), "a store that forgets must say so");
    survives
}

const PHASES: [(&str, Phase); 9] = [
    ("pending", Phase::Pending),
    ("blocked", Phase::Blocked),
    ("queued", Phase::Queued),
    ("retry", Phase::RetryScheduled),
    ("running", Phase::Running),
    ("asking", Phase::NeedsInput),
    ("succeeded", Phase::Succeeded),
    ("dead", Phase::Dead),
    ("cancelled", Phase::Cancelled),
];

/// One task in each phase, each reached in an honest way.
async fn one_in_each_phase(lab: &Lab) {
    for name in ["retry", "asking", "succeeded", "dead", "running"] {
        lab.enqueue(name).await;
        let task = lab.take().await;
        let token = Token(task.state.execution_no);
        let question = Question {
            id: QuestionId::new("q").expect("a valid id"),
            text: "?".into(),
            choices: vec!["yes".into()],
            deadline: Some(lab.now() + Millis::from_secs(60)),
            default: None,
        };
        let event = match name {
            "retry" => Event::Failed { token, kind: FailureKind::Retryable, error: "oops".into() },
            "asking" => Event::Asked { token, question: Box::new(question) },
            "succeeded" => Event::Succeeded { token, result: Some("42".into()) },
            "dead" => Event::Failed { token, kind: FailureKind::Permanent, error: "no".into() },
            _ => continue,
        };
        lab.changed(name, event).await;
    }
    lab.new_task(Enqueue { start: Start::Held, ..lab.plan_of(lab.spec("pending")) }).await;
    lab.enqueue_child("blocked", &["pending"]).await;
    lab.enqueue("cancelled").await;
    lab.cancel("cancelled").await;
    lab.enqueue("queued").await;
}

/// C9
pub async fn tasks_of_every_phase_survive_to_the_letter(lab: Lab) {
    one_in_each_phase(&lab).await;
    let mut before: BTreeMap<&str, Versioned> = BTreeMap::new();
    for (name, phase) in PHASES {
        assert_eq!(lab.phase(name).await, phase);
        before.extend(lab.get(&task_key(name)).await.map(|found| (name, found)));
    }
    let counts = lab.counts().await;
    if !reopened(&lab).await {
        return;
    }
    for (name, found) in before {
        assert_eq!(lab.get(&task_key(name)).await, Some(found));
    }
    if counts.exact {
        assert_eq!(lab.counts().await, counts);
    }
    for (name, phase) in PHASES {
        let filter = TaskFilter { phases: vec![phase], ..TaskFilter::all(ns()) };
        assert_eq!(lab.list(filter, ListOrder::OldestFirst, 10).await, [name]);
    }
}

/// One record of each kind but tasks and counters, with its key.
pub fn one_of_each_kind(lab: &Lab) -> Vec<(Key, Record)> {
    let (now, namespace) = (lab.now(), ns());
    let held = KeyRecord { task: id("t"), expires_at: Some(now + Millis::from_secs(60)), newer: Newer::NONE };
    let status = RunnerStatus::Dead { since: now, cleared: 1, check_at: now };
    let (started_at, last_heartbeat, lease) = (now, now, Millis::from_secs(30));
    let runner_record = Runner {
        namespace: ns(),
        id: runner("r"),
        started_at,
        last_heartbeat,
        status,
        lease,
        project_root: "/somewhere".to_owned(),
        pools: vec![pool("work")],
        kinds: Vec::new(),
        newer: Newer::NONE,
    };
    let schedule = Schedule {
        id: ScheduleId::new("daily").expect("a valid id"),
        every: Every::Interval { period: Millis::from_secs(9), anchor: now },
        missed: Missed::All,
        overlap: Overlap::Allow,
        paused: false,
        template: Arc::new(lab.spec("template")),
        next_at: Some(now),
        last: None,
        newer: Newer::NONE,
    };
    let settings = Profile::Workspace.settings();
    let sweep_id = SweepId::new("s").expect("a valid id");
    let sweep = Sweep::new(sweep_id, SweepWork::Purge(TaskFilter::all(ns())), now);
    let signal = Signal { runner: runner("r"), task: id("t"), token: Token(7), at: now, newer: Newer::NONE };
    let member = LaneMember { task: id("t"), newer: Newer::NONE };
    let natural = |record: Record| (record.natural_key(&namespace).expect("it says where it belongs"), record);
    vec![
        natural(Record::from(runner_record)),
        natural(Record::Pool(Arc::new(Pool { name: pool("work"), settings, newer: Newer::NONE }))),
        natural(Record::Edge(Edge { parent: id("p"), child: id("c"), newer: Newer::NONE })),
        natural(Record::Schedule(Arc::new(schedule))),
        natural(Record::Sweep(Arc::new(sweep))),
        natural(Record::Signal(signal)),
        (Key::lane(&namespace, &lane("l")), Record::Lane(Arc::new(Lane::empty(3)))),
        (Key::lane_member(&namespace, &lane("l"), 5), Record::LaneMember(member)),
        (Key::unique(&namespace, &UniqueKey::new("u").expect("a valid id")), Record::Unique(held.clone())),
        (Key::idempotency(&namespace, &IdempotencyKey::new("i").expect("a valid id")), Record::Idempotency(held)),
    ]
}

/// C9
pub async fn records_of_every_kind_survive_to_the_letter(lab: Lab) {
    let records = one_of_each_kind(&lab);
    let counter = Key::running(&ns(), &pool("work"));
    let mut writes: Vec<Write> =
        records.iter().map(|(key, record)| Write::put(key.clone(), Expect::Absent, record.clone())).collect();
    writes.push(add(counter.clone(), 3));
    assert_eq!(writes.len() + 1, RecordKind::ALL.len(), "every kind but tasks");
    lab.commit(writes).await;
    let keys: Vec<Key> = records.into_iter().map(|(key, _)| key).chain([counter]).collect();
    let before = lab.store().clone().get(keys.clone()).await.expect("a read on a store without faults");
    let mut due = Vec::new();
    for index in DueIndex::ALL {
        due.push(lab.due(index).await);
    }
    if !reopened(&lab).await {
        return;
    }
    assert_eq!(lab.store().get(keys.clone()).await.expect("a read on a store without faults"), before);
    for key in keys {
        assert_eq!(lab.names(key.kind, "", 10).await, [key.name.to_string()], "{:?}", key.kind);
    }
    for (index, before) in DueIndex::ALL.into_iter().zip(due) {
        assert_eq!(lab.due(index).await, before, "due in {index:?}");
    }
}

/// C9, C13
pub async fn claims_go_on_where_they_stopped(lab: Lab) {
    for name in ["a", "b", "c"] {
        lab.enqueue(name).await;
        lab.wait(Millis::new(1));
    }
    let at = lab.now() + Millis::from_secs(1);
    lab.enqueue_with("delayed", |spec| spec.run_at = Some(at)).await;
    let a = lab.claim(Claim { lease: LeaseTerm::For(Millis::from_secs(5)), ..lab.claim_one() }).await.remove(0);
    if !reopened(&lab).await {
        return;
    }
    assert_eq!(lab.take().await.id(), &id("b"));
    let held = TaskFilter::held_by(ns(), runner("runner-1"));
    lab.lists(held.clone(), &["a", "b"]).await;
    lab.wait(Millis::from_secs(1));
    assert_eq!(ids(&lab.take_all(2).await), ["c", "delayed"]);
    lab.wait(Millis::from_secs(5));
    lab.lists_due(DueIndex::Lease, &["a"]).await;
    assert!(lab.reopen().await);
    lab.lists_due(DueIndex::Lease, &["a"]).await;
    lab.succeed(&a).await;
    lab.lists_due(DueIndex::Lease, &[]).await;
    lab.lists(held, &["b", "c", "delayed"]).await;
}

/// C9
pub async fn a_lane_goes_on_over_many_deaths(lab: Lab) {
    let serial = Arc::new(LaneSpec::serial(lane("l")));
    for number in 0..5 {
        lab.enqueue_with(&format!("t-{number}"), |spec| spec.lane = Some(serial.clone())).await;
    }
    for number in 0..5 {
        if !reopened(&lab).await {
            return;
        }
        let task = lab.take().await;
        assert_eq!(task.id().to_string(), format!("t-{number}"));
        assert!(lab.reopen().await);
        lab.nothing_to_claim().await;
        lab.succeed(&task).await;
    }
    assert!(lab.reopen().await);
    assert_eq!(lab.get(&Key::lane(&ns(), &lane("l"))).await, None);
    lab.nothing_to_claim().await;
}

/// C2, C9
pub async fn revisions_stay_valid_and_stale_ones_stay_stale(lab: Lab) {
    let key = Key::lane(&ns(), &lane("l"));
    let record = |width| Record::Lane(Arc::new(Lane::empty(width)));
    let old = lab.put(&key, Expect::Absent, record(1)).await;
    let current = lab.put(&key, Expect::At(old.clone()), record(2)).await;
    if !reopened(&lab).await {
        return;
    }
    let stale = lab.commit(vec![Write::put(key.clone(), Expect::At(old), record(3))]).await;
    assert!(matches!(stale, Answer::Conflict(_)), "{stale:?}");
    let next = lab.put(&key, Expect::At(current.clone()), record(4)).await;
    assert_ne!(next, current, "a new revision, not one given out before the death");
    assert_eq!(lab.get(&key).await.map(|found| found.record), Some(record(4)));
}

/// C5, C9, C14
pub async fn repeated_ids_are_recognised(lab: Lab) {
    let pools = vec![ClaimPool { running_max: Some(5), ..ClaimPool::open(ns(), pool("work")) }];
    let (enqueue, op, now) = (lab.plan_of(lab.spec("t")), lab.op(), lab.now());
    lab.store().run(&enqueue, op, now).await.expect("an enqueue");
    let claim = Claim { pools, ..lab.claim_one() };
    let first = lab.claim_now(claim.clone()).await.tasks;
    lab.enqueue("other").await;
    let key = Key::lane(&ns(), &lane("l"));
    let commit_id = lab.op();
    let write = Write::put(key.clone(), Expect::Absent, Record::Lane(Arc::new(Lane::empty(1))));
    lab.commit_as(commit_id, vec![write.clone(), add(Key::running(&ns(), &pool("p")), 1)]).await;
    if !reopened(&lab).await {
        return;
    }
    let again = lab.commit_as(commit_id, vec![write, add(Key::running(&ns(), &pool("p")), 1)]).await;
    assert!(matches!(again, Answer::Applied(_)), "{again:?}");
    assert_eq!(lab.counter(&Key::running(&ns(), &pool("p"))).await, 1);
    let enqueued = lab.store().run(&enqueue, op, now).await.expect("an enqueue");
    assert!(matches!(&enqueued, Enqueued::New(task) if task.id() == &id("t")), "{enqueued:?}");
    if lab.store().info().exact_index {
        assert_eq!(first.len(), 1);
        assert_eq!(lab.claim_now(claim).await.tasks, first);
        assert_eq!(lab.counter(&Key::running(&ns(), &pool("work"))).await, 1);
    }
}

/// C1, C9
pub async fn nothing_that_conflicted_or_was_deleted_is_there(lab: Lab) {
    let [kept, gone, wrong] = ["kept", "gone", "wrong"].map(|name| Key::lane(&ns(), &lane(name)));
    let record = || Record::Lane(Arc::new(Lane::empty(1)));
    lab.put(&kept, Expect::Absent, record()).await;
    lab.put(&gone, Expect::Absent, record()).await;
    lab.commit(vec![delete(gone.clone())]).await;
    let before = lab.get(&kept).await;
    let half = Commit::new(
        lab.op(),
        vec![
            Write::put(wrong.clone(), Expect::Absent, record()),
            Write::put(kept.clone(), Expect::Absent, Record::Lane(Arc::new(Lane::empty(9)))),
        ],
    );
    let answers = lab.apply(vec![Op::Commit(half.expect("a well-formed commit"))]).await;
    assert!(matches!(answers.as_slice(), [Answer::Conflict(_)]));
    if !reopened(&lab).await {
        return;
    }
    assert_eq!([lab.get(&kept).await, lab.get(&gone).await, lab.get(&wrong).await], [before, None, None]);
    assert_eq!(lab.names(RecordKind::Lane, "", 10).await, ["kept"]);
}

/// C9, C16
pub async fn a_pools_count_survives(lab: Lab) {
    let limited = || vec![ClaimPool { running_max: Some(2), ..ClaimPool::open(ns(), pool("work")) }];
    for name in ["a", "b", "c"] {
        lab.enqueue(name).await;
    }
    let taken = lab.take_by(Claim { pools: limited(), ..lab.claim_one() }, 2).await;
    if !reopened(&lab).await {
        return;
    }
    let full = lab.claim_now(Claim { pools: limited(), ..lab.claim_one() }).await;
    assert_eq!(full.tasks, []);
    lab.changed(taken[0].id().as_str(), Event::LeaseLost { evidence: Evidence::Operator }).await;
    lab.succeed(&taken[1]).await;
    assert!(lab.reopen().await);
    assert_eq!(lab.counter(&Key::running(&ns(), &pool("work"))).await, 0);
}
