//! How records look when they are stored. A change here is a change of every store's data: it needs a new version.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::fmt::Write as _;
use std::sync::Arc;

use ekiden_core::dependency::Edge;
use ekiden_core::event::Event;
use ekiden_core::id::{
    GroupId, Kind, LaneKey, Namespace, PoolName, RunnerId, ScheduleId, SessionId, TaskId, UniqueKey,
};
use ekiden_core::lane::{Lane, LaneMember, LaneSpec, Place};
use ekiden_core::lease::{Token, Until};
use ekiden_core::mailbox::MessageFields;
use ekiden_core::newer::Newer;
use ekiden_core::order::{Priority, Rank};
use ekiden_core::pool::Profile;
use ekiden_core::record::{Pool, Record, Signal};
use ekiden_core::retry::FailureKind;
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::schedule::{Every, Missed, Overlap, Schedule};
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_core::task::{Phase, Spec, Task};
use ekiden_core::time::Millis;
use ekiden_core::unique::{KeyRecord, Unique, UniqueHold};

mod samples;
use samples::{NOW, after, claim, running, token};

#[test]
fn every_kind_of_record_is_stored_like_this() {
    let mut text = String::new();
    for record in records() {
        let stored = serde_json::to_string_pretty(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&stored).unwrap(), record, "what was stored is read back");
        let _ = writeln!(text, "{stored}\n");
    }
    insta::assert_snapshot!("records", text);
}

#[test]
fn the_samples_of_the_other_tests_are_stored_and_read_back() {
    for task in samples::tasks() {
        let stored = serde_json::to_string(&task).unwrap();
        assert_eq!(serde_json::from_str::<Task>(&stored).unwrap(), task);
        assert!(samples::events(&task).len() > 40, "and events exist for each");
    }
    assert!(samples::LATER > NOW && samples::parent().as_str() == "parent");
}

fn records() -> Vec<Record> {
    let id = |name: &str| TaskId::new(name).unwrap();
    let runner = RunnerId::new("runner-1").unwrap();
    let schedule = Schedule {
        id: ScheduleId::new("nightly").unwrap(),
        every: Every::Cron { expression: "0 3 * * *".to_owned(), time_zone: "Asia/Tokyo".to_owned() },
        missed: Missed::Latest,
        overlap: Overlap::Skip,
        paused: false,
        template: running(|_| {}).spec,
        next_at: Some(NOW),
        last: None,
        newer: Newer::NONE,
    };
    let release = SweepWork::Release { parent: id("parent"), phase: Phase::Succeeded };
    let link = SweepWork::Link { child: id("child"), parents: vec![id("parent")] };
    vec![
        Record::from(full_task()),
        Record::from(Runner {
            namespace: Namespace::new("default").unwrap(),
            id: runner.clone(),
            started_at: NOW,
            last_heartbeat: NOW,
            status: RunnerStatus::Dead { since: NOW, cleared: 1, check_at: NOW },
            lease: Millis::from_secs(30),
            project_root: "somewhere".to_owned(),
            pools: vec![PoolName::new("work").unwrap()],
            kinds: vec![Kind::new("greet").unwrap()],
            newer: Newer::NONE,
        }),
        Record::Pool(Arc::new(Pool {
            name: PoolName::new("work").unwrap(),
            settings: Profile::Mailbox.settings(),
            newer: Newer::NONE,
        })),
        Record::Lane(Arc::new(Lane { next: 3, places: vec![id("a")], waiting: 2, ..Lane::empty(1) })),
        Record::LaneMember(LaneMember { task: id("b"), newer: Newer::NONE }),
        Record::Edge(Edge { parent: id("parent"), child: id("child"), newer: Newer::NONE }),
        Record::Unique(KeyRecord { task: id("a"), expires_at: None, newer: Newer::NONE }),
        Record::Idempotency(KeyRecord { task: id("a"), expires_at: Some(NOW), newer: Newer::NONE }),
        Record::Schedule(Arc::new(schedule)),
        Record::Sweep(Arc::new(Sweep::new(Sweep::release_id(&id("parent")), release, NOW))),
        Record::Sweep(Arc::new(Sweep { ended_at: Some(NOW), ..Sweep::new(Sweep::link_id(&id("child")), link, NOW) })),
        Record::Signal(Signal { runner, task: id("a"), token: Token(2), at: NOW, newer: Newer::NONE }),
        Record::Counter(-1),
    ]
}

/// A task with something in every field: failed once, running again, cancelled in the middle.
fn full_task() -> Task {
    let first = running(|spec: &mut Spec| {
        spec.title = Some(Arc::from("Grüße an Aoi"));
        spec.rank = Rank::from(Priority::HIGH);
        spec.run_at = Some(NOW);
        spec.expires_at = Some(NOW + Millis::from_days(1));
        spec.lane = Some(Arc::new(LaneSpec::serial(LaneKey::new("k").unwrap())));
        spec.unique =
            Some(Arc::new(Unique { key: UniqueKey::new("u").unwrap(), hold: UniqueHold::For(Millis::from_secs(9)) }));
        spec.group = Some(GroupId::new("g").unwrap());
        spec.session = Some(SessionId::new("s").unwrap());
        spec.labels.insert(Arc::from("team"), Arc::from("駅伝"));
        spec.retry_of = Some(TaskId::new("old").unwrap());
        spec.message = Some(Box::new(MessageFields::default()));
    });
    let kind = FailureKind::RetryAfter(Millis::ZERO);
    let failed = after(&first, Event::Failed { token: token(&first), kind, error: Arc::from("oops") });
    assert_eq!(failed.state.place, Place::Held);
    let mut second = after(&failed, claim(Until::At(NOW + Millis::from_secs(60))));
    second.state.has_dependents = true;
    let reason = ekiden_core::reason::ReasonCode::CancelRequested;
    after(&second, Event::CancelRequested { reason, note: Some(Arc::from("by hand")) })
}
