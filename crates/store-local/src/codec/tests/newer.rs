//! What a newer version wrote: every structure that can carry something more does, and none loses it.
//!
//! `batch.newer.bin` and `batch.newer-only.bin` stand for the log of such a version. The tests of the whole store read them too.

use ekiden_core::dependency::Edge;
use ekiden_core::id::{LaneKey, ScheduleId, SweepId};
use ekiden_core::key::RecordKind;
use ekiden_core::lane::{Lane, LaneMember};
use ekiden_core::lease::Token;
use ekiden_core::newer::{Newer, Value};
use ekiden_core::record::{Pool, Signal};
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::schedule::{Every, Missed, Overlap, Schedule};
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::task::Phase;
use ekiden_core::unique::KeyRecord;

use super::*;

/// 250: newer than any version that will ever read this.
const NEWER: Versions = Versions { version: 250, min_writer: 1 };

/// Two fields that no version will have: one by number, one by name.
fn said(of: &str) -> Newer {
    let nested =
        Value::Map(vec![(Value::Unsigned(0), Value::Bytes([1, 2].into())), (Value::text("of"), Value::text(of))]);
    Newer::new(NEWER, vec![(Value::Unsigned(120), nested), (Value::text("zz_later"), Value::Negative(-1))])
}

/// A task that waits and was tried once, with something more in each structure that has numbers.
fn said_of_task() -> Arc<Task> {
    let mut task = running().as_ref().clone();
    let spec = Arc::make_mut(&mut task.spec);
    spec.newer = said("spec");
    spec.envelope.newer = said("envelope");
    Arc::make_mut(&mut spec.policy).newer = said("policy");
    task.state.newer = said("state");
    task.state.lease.as_mut().unwrap().newer = said("lease");
    task.state.recent[0].newer = said("attempt");
    task.state.history[0].newer = said("history");
    // It runs, as far as the store is concerned.
    (task.state.finished_at, task.state.reason) = (None, None);
    task.state.recent[0].outcome = None;
    task.state.recent[0].stage = None;
    Arc::new(task)
}

/// One of each kind that is no task, with something more.
fn said_of_others() -> Vec<(Key, Record)> {
    let (namespace, task) = (key().namespace, TaskId::new("受付-1").unwrap());
    let (runner, work) = (RunnerId::new("runner-1").unwrap(), PoolName::new("work").unwrap());
    let mut settings = Profile::Embedded.settings();
    settings.newer = said("settings");
    Arc::make_mut(&mut settings.policy).newer = said("policy");
    let schedule = Schedule {
        id: ScheduleId::new("nightly").unwrap(),
        every: Every::Interval { period: Millis::from_secs(60), anchor: NOON },
        missed: Missed::Latest,
        overlap: Overlap::Allow,
        paused: false,
        template: said_of_task().spec.clone(),
        next_at: Some(NOON + Millis::from_secs(60)),
        last: None,
        newer: said("schedule"),
    };
    let release = SweepWork::Release { parent: task.clone(), phase: Phase::Succeeded };
    let unique = KeyRecord { task: task.clone(), expires_at: None, newer: said("key") };
    let at = |kind, name: &str| Key { kind, namespace: namespace.clone(), name: name.into() };
    vec![
        (
            Key::runner(&namespace, &runner),
            Record::from(Runner {
                namespace: namespace.clone(),
                id: runner.clone(),
                started_at: NOON,
                last_heartbeat: NOON,
                status: RunnerStatus::Running,
                lease: Millis::from_secs(3_600),
                project_root: String::new(),
                pools: vec![work.clone()],
                kinds: vec![],
                newer: said("runner"),
            }),
        ),
        (Key::pool(&namespace, &work), Record::Pool(Arc::new(Pool { name: work, settings, newer: said("pool") }))),
        (at(RecordKind::Lane, "l"), Record::Lane(Arc::new(Lane { newer: said("lane"), ..Lane::empty(1) }))),
        (
            Key::lane_member(&namespace, &LaneKey::new("l").unwrap(), 0),
            Record::LaneMember(LaneMember { task: task.clone(), newer: said("member") }),
        ),
        (
            Key::edge(&namespace, &task, &TaskId::new("b").unwrap()),
            Record::Edge(Edge { parent: task.clone(), child: TaskId::new("b").unwrap(), newer: said("edge") }),
        ),
        (at(RecordKind::Unique, "u"), Record::Unique(unique.clone())),
        (at(RecordKind::Idempotency, "i"), Record::Idempotency(unique)),
        (Key::schedule(&namespace, &schedule.id), Record::Schedule(Arc::new(schedule))),
        (
            Key::sweep(&namespace, &SweepId::new("s").unwrap()),
            Record::Sweep(Arc::new(Sweep {
                newer: said("sweep"),
                ..Sweep::new(SweepId::new("s").unwrap(), release, NOON + Millis::from_days(1))
            })),
        ),
        (
            Key::signal(&namespace, &runner, &task),
            Record::Signal(Signal { runner, task, token: Token(1), at: NOON, newer: said("signal") }),
        ),
    ]
}

fn newer_batch() -> Vec<u8> {
    let mut bytes = Vec::new();
    write_put(&put(&key(), &Record::Task(said_of_task()), false), &mut Pen::default(), &mut bytes);
    for (key, record) in said_of_others() {
        write_put(&put(&key, &record, false), &mut Pen::default(), &mut bytes);
    }
    bytes
}

/// Invariant 9
#[test]
fn whatever_a_newer_version_added_is_read_and_written_as_it_was() {
    let bytes = fixture("batch.newer.bin", &newer_batch());
    let mut changes = ChangeReader::new(&bytes).map(Result::unwrap);
    let Some(Change::Task(_, _, spec, state)) = changes.next() else { panic!("no task") };
    assert_eq!((&spec, &state), (said_of_task().spec.as_ref(), &said_of_task().state));
    for (key, record) in said_of_others() {
        match changes.next() {
            Some(Change::Other(found, _, read)) => assert_eq!((found, read), (key, record)),
            other => panic!("{key}: {other:?}"),
        }
    }
    assert!(changes.next().is_none());
    assert_eq!(newer_batch(), bytes, "and written again, byte by byte");
}

/// A reader that knows nothing of us finds the fields among the others, where the newer version put them.
#[test]
fn fields_that_are_not_known_stand_among_the_others() {
    let mut bytes = Vec::new();
    assert_eq!(Pen::default().state(&said_of_task().state, &mut bytes), NEWER, "and their version goes with them");
    let Value::Map(entries) = rmp_serde::from_slice(&bytes).unwrap() else { panic!("no map") };
    let known = entries.iter().filter(|(key, _)| matches!(key, Value::Unsigned(0..24))).count();
    assert_eq!(entries.len(), known + 2);
    assert_eq!(entries[known..], *said("state").fields());
    let mut named = Vec::new();
    assert_eq!(put_other(&said_of_others()[0].1, &mut named), NEWER);
    let Value::Map(record) = rmp_serde::from_slice(&named).unwrap() else { panic!("no map") };
    assert!(matches!(&record[0], (_, Value::Map(fields)) if fields.ends_with(said("runner").fields())), "{record:?}");
}

/// Seals and their checks see the versions of what is inside.
#[test]
fn a_sealed_value_keeps_the_version_of_what_is_carried() {
    let value = sealed(&said_of_task());
    assert_eq!(value[4..6], [NEWER.version, NEWER.min_writer]);
    assert!(check_writable(&value).is_ok());
    assert_eq!(read_sealed(&value).1, *said_of_task());
    assert_eq!(sealed(&running())[4..6], [OURS.version, OURS.min_writer], "nothing is carried");
}

/// More than fifteen entries take more bytes to count.
#[test]
fn many_fields_are_counted_right() {
    for count in [1_u64, 2, 11, 12, 13, 40] {
        let field = |n| (Value::Unsigned(100 + n), Value::text("x"));
        let newer = Newer::new(NEWER, (0..count).map(field).collect());
        let lane = Record::Lane(Arc::new(Lane { newer, ..Lane::empty(1) }));
        let mut bytes = Vec::new();
        let versions = put_other(&lane, &mut bytes);
        assert_eq!(read_other(RecordKind::Lane, &bytes, versions).unwrap(), lane, "{count} fields");
    }
}

/// What was never extended is written as the ordinary writer does.
#[test]
fn records_that_are_no_tasks_have_the_names_of_their_fields() {
    for (_, record) in said_of_others() {
        let mut extended = Vec::new();
        let _ = put_other(&record, &mut extended);
        // A program that does not look for more reads what it knows.
        let plain: Record = rmp_serde::from_slice(&extended).unwrap();
        if let Record::Schedule(schedule) = &plain {
            assert_eq!(
                schedule.template.envelope.payload,
                running().spec.envelope.payload,
                "nothing stands apart here"
            );
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        assert_eq!(put_other(&plain, &mut ours), OURS);
        rmp_serde::encode::write_named(&mut theirs, &plain).unwrap();
        assert_eq!(ours, theirs, "{:?}", plain.kind());
    }
}

/// A log is written into the checkpoint by whoever replays it.
#[test]
fn a_change_that_only_newer_versions_may_write_is_refused() {
    let mut now = Vec::new();
    write_put(&put(&key(), &Record::Task(running()), false), &mut Pen::default(), &mut now);
    now[1..3].copy_from_slice(&[NEWER.version, NEWER.version]);
    let bytes = fixture("batch.newer-only.bin", &now);
    let read: Vec<_> = ChangeReader::new(&bytes).collect();
    assert!(matches!(read.as_slice(), [Err(Unreadable::TooNew { version: 250 })]), "{read:?}");
}
