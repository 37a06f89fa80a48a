//! Cases: records. Order, prefixes and pages of a listing by name, and that every kind comes back as it went in.

use std::collections::BTreeMap;
use std::sync::Arc;

use ekiden_core::commit::{Expect, Write};
use ekiden_core::dependency::{Edge, OnParentFailure};
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{GroupId, IdempotencyKey, LaneKey, ScheduleId, SessionId, SweepId, UniqueKey};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lane::{Lane, LaneMember, LaneSpec};
use ekiden_core::lease::Token;
use ekiden_core::newer::Newer;
use ekiden_core::order::{Priority, Rank};
use ekiden_core::pool::Profile;
use ekiden_core::record::{Pool, Record, Signal};
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::schedule::{Every, Missed, Overlap, Schedule};
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::task::{Phase, Question, Spec, Task};
use ekiden_core::time::Millis;
use ekiden_core::unique::{KeyRecord, Unique, UniqueHold};

use super::lab::{Lab, applied, delete, id, kind, note, note_key, ns, pool, question, runner, task_key, texts};
use crate::query::{ListOrder, Page, RecordQuery};

/// 2⁵³ + 1: the first whole number that a store which counts in floating point gets wrong.
const LARGE: u64 = 9_007_199_254_740_993;

/// Names that a store could mix up, cut or sort wrongly, in the order of their bytes.
const NAMES: [&str; 24] = [
    " ",
    " a",
    "#",
    "%",
    "%2F",
    "..",
    "/",
    "/a",
    "A",
    "Z",
    "a",
    "a b",
    "a#b",
    "a%20b",
    "a/b",
    "a_b",
    "ab",
    "e\u{301}",
    "{\"a\":1}",
    "é",
    "受信箱 #1",
    "駅伝",
    "～",
    "🙂",
];

async fn page(lab: &Lab, prefix: &str, cursor: Option<String>, limit: usize) -> (Vec<String>, Option<String>) {
    let query = RecordQuery { namespace: ns(), kind: RecordKind::Unique, prefix: prefix.to_owned(), cursor, limit };
    let Page { items, cursor } = lab.store().records(query).await.expect("a read on a store without faults");
    (items.into_iter().map(|item| item.key.name.to_string()).collect(), cursor)
}

async fn put_names(lab: &Lab, names: &[&str]) {
    for name in names {
        lab.put(&note_key(name), Expect::Absent, note(name)).await;
    }
}

/// C18
pub async fn records_come_in_the_byte_order_of_names(lab: Lab) {
    let mut sorted = NAMES;
    sorted.sort_unstable_by_key(|name| name.as_bytes());
    assert_eq!(sorted, NAMES, "the list itself is in order");
    for at in (0..NAMES.len()).map(|n| n * 7 % NAMES.len()) {
        put_names(&lab, NAMES.get(at..=at).unwrap_or_default()).await;
    }
    assert_eq!(lab.names(RecordKind::Unique, "", 1_000).await, NAMES);
}

/// C18: no two names share a record, however alike they look to a file system or an URL.
pub async fn names_that_look_alike_stay_apart(lab: Lab) {
    put_names(&lab, &NAMES).await;
    let all = lab.store().get(NAMES.iter().map(|name| note_key(name)).collect()).await.expect("a read");
    for (name, found) in NAMES.iter().zip(all) {
        assert_eq!(found.map(|found| (found.key, found.record)), Some((note_key(name), note(name))));
    }
    for name in NAMES {
        applied(lab.commit(vec![delete(note_key(name))]).await);
        assert_eq!(lab.get(&note_key(name)).await, None, "{name:?} is deleted");
    }
    assert_eq!(lab.names(RecordKind::Unique, "", 10).await.len(), 0);
}

/// C18
pub async fn pages_of_any_size_give_every_record_once(lab: Lab) {
    put_names(&lab, &NAMES).await;
    for limit in [1, 2, 5, NAMES.len() - 1, NAMES.len(), NAMES.len() + 1, 1_000] {
        assert_eq!(lab.names(RecordKind::Unique, "", limit).await, NAMES, "in pages of {limit}");
    }
}

/// C18
pub async fn a_prefix_gives_only_names_that_begin_with_it(lab: Lab) {
    put_names(&lab, &NAMES).await;
    for prefix in ["a", "a ", "/", "%", "受信", "é", "🙂", "e\u{301}", "zz"] {
        let expected: Vec<&str> = NAMES.into_iter().filter(|name| name.starts_with(prefix)).collect();
        for limit in [1, 2, 1_000] {
            assert_eq!(lab.names(RecordKind::Unique, prefix, limit).await, expected, "{prefix:?} by {limit}");
        }
    }
}

/// C18: the members of lane "a" are not those of lane "a b", although one name begins like the other.
pub async fn parts_of_a_name_do_not_run_into_each_other(lab: Lab) {
    let lanes = ["a", "a b", "ab", "a/b", "a#"];
    for (lane, n) in lanes.iter().flat_map(|lane| [(lane, 2), (lane, 10), (lane, 1)]) {
        let key = Key::lane_member(&ns(), &LaneKey::new(lane).expect("a valid id"), n);
        lab.put(
            &key,
            Expect::Absent,
            Record::LaneMember(LaneMember { task: id(&format!("{lane} {n}")), newer: Newer::NONE }),
        )
        .await;
    }
    for lane in lanes {
        for limit in [1, 2, 100] {
            let names = lab.names(RecordKind::LaneMember, &Key::prefix(lane), limit).await;
            let key = |n| Key::lane_member(&ns(), &LaneKey::new(lane).expect("a valid id"), n).name.to_string();
            assert_eq!(names, [key(1), key(2), key(10)], "the members of {lane:?} by {limit}");
        }
    }
}

/// C18: the children of a parent, whose id may hold what separates ids elsewhere.
pub async fn edges_are_found_by_their_parent_alone(lab: Lab) {
    for (parent, child) in [("a", "b c"), ("a b", "c"), ("a", "b"), ("a b c", "d"), ("ab", "c")] {
        let edge = Edge { parent: id(parent), child: id(child), newer: Newer::NONE };
        lab.put(&Key::edge(&ns(), &edge.parent, &edge.child), Expect::Absent, Record::Edge(edge)).await;
    }
    let name = |parent, child| Key::edge(&ns(), &id(parent), &id(child)).name.to_string();
    assert_eq!(lab.names(RecordKind::Edge, &Key::prefix("a"), 1).await, [name("a", "b"), name("a", "b c")]);
    assert_eq!(lab.names(RecordKind::Edge, &Key::prefix("a b"), 1).await, [name("a b", "c")]);
    assert_eq!(lab.names(RecordKind::Edge, "", 1).await.len(), 5);
}

/// C18
pub async fn a_cursor_stays_good_when_records_come_and_go(lab: Lab) {
    put_names(&lab, &["b", "d", "f", "h", "j"]).await;
    let (first, cursor) = page(&lab, "", None, 2).await;
    assert_eq!(first, ["b", "d"]);
    assert!(cursor.is_some(), "three follow");
    applied(lab.commit(["d", "f"].map(|name| delete(note_key(name))).to_vec()).await);
    put_names(&lab, &["a", "c", "g", "k"]).await;
    let (second, cursor) = page(&lab, "", cursor, 2).await;
    assert_eq!(second, ["g", "h"], "what came before the cursor is passed, what came after it is seen");
    applied(lab.commit(vec![delete(note_key("h"))]).await);
    let (third, cursor) = page(&lab, "", cursor, 2).await;
    assert_eq!(third, ["j", "k"]);
    if cursor.is_some() {
        assert_eq!(page(&lab, "", cursor, 2).await, (Vec::new(), None));
    }
}

/// C18
pub async fn a_cursor_stays_good_when_all_the_rest_is_gone(lab: Lab) {
    put_names(&lab, &["a-1", "a-2", "a-3", "b"]).await;
    let (first, cursor) = page(&lab, "a-", None, 1).await;
    assert_eq!(first, ["a-1"]);
    assert!(cursor.is_some(), "two follow");
    applied(lab.commit(["a-1", "a-2", "a-3"].map(|name| delete(note_key(name))).to_vec()).await);
    assert_eq!(page(&lab, "a-", cursor, 10).await, (Vec::new(), None), "and the page ends inside its prefix");
}

/// C18
pub async fn kinds_do_not_mix(lab: Lab) {
    for (key, record) in samples(&lab) {
        lab.put(&key, Expect::Absent, record).await;
    }
    for (key, _) in samples(&lab).into_iter().filter(|(key, _)| key.kind != RecordKind::Task) {
        assert_eq!(lab.names(key.kind, "", 10).await, [key.name.to_string()], "{:?}", key.kind);
    }
}

/// C18: unique and idempotency keys of one name are two records.
pub async fn one_name_in_two_kinds_is_two_records(lab: Lab) {
    let idempotency = Key::idempotency(&ns(), &IdempotencyKey::new("same").expect("a valid id"));
    let held = Record::Idempotency(KeyRecord { task: id("two"), expires_at: None, newer: Newer::NONE });
    lab.put(&note_key("same"), Expect::Absent, note("one")).await;
    lab.put(&idempotency, Expect::Absent, held.clone()).await;
    applied(lab.commit(vec![delete(note_key("same"))]).await);
    assert_eq!(lab.get(&idempotency).await.map(|found| found.record), Some(held));
    assert_eq!(lab.names(RecordKind::Unique, "", 10).await.len(), 0);
}

/// C18
pub async fn every_kind_of_record_comes_back_as_it_went_in(lab: Lab) {
    let samples = samples(&lab);
    let kinds: Vec<RecordKind> = samples.iter().map(|(key, _)| key.kind).collect();
    assert_eq!(kinds, RecordKind::ALL, "a sample of every kind");
    for (key, record) in samples {
        let revision = lab.put(&key, Expect::Absent, record.clone()).await;
        let stored = lab.get(&key).await.expect("it was put");
        assert_eq!((&stored.key, &stored.record, &stored.revision), (&key, &record, &revision));
        if key.kind == RecordKind::Task {
            lab.lists(TaskFilter::all(ns()), &[&key.name]).await;
        } else {
            let query = RecordQuery { namespace: ns(), kind: key.kind, prefix: String::new(), cursor: None, limit: 10 };
            let listed = lab.store().records(query).await.expect("a read on a store without faults");
            assert_eq!(listed.items, [stored], "the listing shows the record as get does");
        }
        let again = Write::put(key.clone(), Expect::At(revision), record.clone());
        applied(lab.commit(vec![again]).await);
        assert_eq!(lab.get(&key).await.map(|found| found.record), Some(record));
        applied(lab.commit(vec![delete(key.clone())]).await);
        assert_eq!(lab.get(&key).await, None);
    }
}

/// C18: the state of a task survives in every phase, beside what was asked for.
pub async fn a_task_comes_back_whole_in_every_phase(lab: Lab) {
    for phase in Phase::ALL {
        let mut spec = rich_spec(&lab, phase.as_str());
        spec.lane = None;
        let task = lab.in_phase(spec, phase);
        lab.store_task(task.clone()).await;
        assert_eq!(lab.task(phase.as_str()).await.as_deref(), Some(&task));
    }
    let mut names = Phase::ALL.map(Phase::as_str);
    names.sort_unstable();
    lab.soon(texts(&names), || lab.list(TaskFilter::all(ns()), ListOrder::OldestFirst, 4)).await;
}

/// C18
pub async fn payloads_of_any_bytes_come_back(lab: Lab) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let payloads = [&b""[..], b"{}", b"null", b"\0", "駅伝 🙂\r\n\"\\".as_bytes(), &every_byte];
    for (n, payload) in payloads.into_iter().enumerate() {
        let name = format!("t-{n}");
        lab.enqueue_with(&name, |spec| spec.envelope.payload = payload.to_vec().into()).await;
        let stored = lab.task(&name).await.expect("it was enqueued");
        assert_eq!(stored.spec.envelope.payload, payload);
        let taken = lab.take().await;
        assert_eq!(taken.spec.envelope.payload, payload, "also through a claim");
        let result = Some(payload.to_vec().into());
        lab.changed(&name, Event::Succeeded { token: Token(1), result }).await;
        let stored = lab.task(&name).await.expect("it stays");
        assert_eq!((&stored.state.result.as_deref(), &stored.spec), (&Some(payload), &taken.spec));
    }
}

/// C18: the longest names and the widest numbers.
pub async fn names_and_numbers_at_their_limits_come_back(lab: Lab) {
    let [long, wide] = ["x".repeat(128), "駅".repeat(42)];
    for name in [&long, &wide] {
        let edge = Edge { parent: id(name), child: id(name), newer: Newer::NONE };
        let key = Key::edge(&ns(), &edge.parent, &edge.child);
        lab.put(&key, Expect::Absent, Record::Edge(edge.clone())).await;
        assert_eq!(lab.get(&key).await.map(|found| found.record), Some(Record::Edge(edge)));
        assert_eq!(lab.names(RecordKind::Edge, &Key::prefix(name), 1).await, [key.name.to_string()]);
    }
    for (n, value) in [i64::MIN, -1, 0, i64::MAX].into_iter().enumerate() {
        let key = Key::running(&ns(), &pool(&format!("p-{n}")));
        lab.put(&key, Expect::Absent, Record::Counter(value)).await;
        assert_eq!(lab.get(&key).await.map(|found| found.record), Some(Record::Counter(value)));
    }
}

/// One record of each kind, in the order of the kinds, with every field that it can have.
fn samples(lab: &Lab) -> Vec<(Key, Record)> {
    let task = rich_task(lab);
    let lane = LaneKey::new("駅伝 lane").expect("a valid id");
    let places = vec![id("a"), id("b")];
    let held = KeyRecord { task: id("t-1"), expires_at: Some(lab.now() + Millis::from_days(1)), newer: Newer::NONE };
    let settings = Profile::Mailbox.settings();
    let edge = Edge { parent: id("a b"), child: id("c"), newer: Newer::NONE };
    let signal =
        Signal { runner: runner("r 1"), task: id("t-1"), token: Token(LARGE), at: lab.now(), newer: Newer::NONE };
    let [schedule, sweep, dead] = [rich_schedule(lab), rich_sweep(lab), dead_runner(lab)];
    vec![
        (task_key("t-1"), Record::from(task)),
        (Key::runner(&ns(), &runner("r.1")), dead),
        (
            Key::pool(&ns(), &pool("mail")),
            Record::Pool(Arc::new(Pool { name: pool("mail"), settings, newer: Newer::NONE })),
        ),
        (
            Key::lane(&ns(), &lane),
            Record::Lane(Arc::new(Lane {
                width: 2,
                next: LARGE,
                places,
                waiting: 7,
                width_since: lab.now(),
                newer: Newer::NONE,
            })),
        ),
        (Key::lane_member(&ns(), &lane, LARGE), Record::LaneMember(LaneMember { task: id("c"), newer: Newer::NONE })),
        (Key::edge(&ns(), &edge.parent, &edge.child), Record::Edge(edge)),
        (Key::unique(&ns(), &UniqueKey::new("u/1").expect("a valid id")), Record::Unique(held.clone())),
        (Key::idempotency(&ns(), &IdempotencyKey::new("i#1").expect("a valid id")), Record::Idempotency(held)),
        (Key::schedule(&ns(), &ScheduleId::new("每日").expect("a valid id")), schedule),
        (Key::sweep(&ns(), &SweepId::new("s-1").expect("a valid id")), sweep),
        (Key::signal(&ns(), &signal.runner, &signal.task), Record::Signal(signal)),
        (Key::running(&ns(), &pool("work")), Record::Counter(-5)),
    ]
}

fn rich_spec(lab: &Lab, name: &str) -> Spec {
    let label = |key: &str, value: &str| (Arc::from(key), Arc::from(value));
    let lane = LaneSpec::serial(LaneKey::new("a lane").expect("a valid id"));
    let unique = Unique { key: UniqueKey::new("a key").expect("a valid id"), hold: UniqueHold::WhileKept };
    Spec {
        rank: Rank::from(Priority::URGENT),
        title: Some(Arc::from("題名 🙂")),
        expires_at: Some(lab.now() + Millis::from_days(2)),
        lane: Some(Arc::new(lane)),
        on_parent_failure: OnParentFailure::Run,
        unique: Some(Arc::new(unique)),
        group: GroupId::new("g #1").ok(),
        session: SessionId::new("s/1").ok(),
        labels: BTreeMap::from([label("team", "駅伝"), label("empty", "")]),
        retry_of: Some(id("t-0")),
        ..lab.spec(name)
    }
}

/// Asked, answered and failed: lease, question, answer, error, attempts and history all leave their traces.
fn rich_task(lab: &Lab) -> Task {
    let asked = Question {
        choices: vec![Arc::from("はい"), Arc::from("no")],
        deadline: Some(lab.now() + Millis::from_secs(60)),
        default: Some(Arc::from("no")),
        ..question("which? 🙂")
    };
    let running = lab.in_phase(Spec { lane: None, ..rich_spec(lab, "t-1") }, Phase::Running);
    let event = Event::Asked { token: Token(1), question: Box::new(asked.clone()) };
    let mut task = lab.after(&running, &event);
    task.state.execution_no = LARGE;
    task.state.last_error = Some(Arc::from("oops\n\"quoted\""));
    task
}

fn rich_schedule(lab: &Lab) -> Record {
    Record::Schedule(Arc::new(Schedule {
        id: ScheduleId::new("每日").expect("a valid id"),
        every: Every::Cron { expression: "0 9 * * *".to_owned(), time_zone: "Asia/Tokyo".to_owned() },
        missed: Missed::All,
        overlap: Overlap::Allow,
        paused: true,
        template: Arc::new(rich_spec(lab, "template")),
        next_at: Some(lab.now()),
        last: Some(id("template")),
        newer: Newer::NONE,
    }))
}

fn rich_sweep(lab: &Lab) -> Record {
    let filter = TaskFilter {
        phases: vec![Phase::Dead, Phase::Queued],
        pool: Some(pool("work")),
        kind: Some(kind("greet")),
        text: Some(Arc::from("駅")),
        ..TaskFilter::all(ns())
    };
    let sweep = Sweep::new(SweepId::new("s-1").expect("a valid id"), SweepWork::Cancel(filter), lab.now());
    Record::Sweep(Arc::new(Sweep { cursor: Some("a cursor".to_owned()), changed: LARGE, passed: 3, ..sweep }))
}

fn dead_runner(lab: &Lab) -> Record {
    Record::from(Runner {
        namespace: ns(),
        id: runner("r.1"),
        started_at: lab.now(),
        last_heartbeat: lab.now() + Millis::new(1),
        status: RunnerStatus::Dead { since: lab.now(), cleared: 1, check_at: lab.now() + Millis::from_secs(60) },
        lease: Millis::from_secs(60),
        project_root: "projects/駅 伝 (1)".to_owned(),
        pools: vec![pool("work"), pool("mail")],
        kinds: vec![kind("greet"), kind("送る")],
        newer: Newer::NONE,
    })
}
