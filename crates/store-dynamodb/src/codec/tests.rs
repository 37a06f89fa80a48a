//! Records go into items and come out as they were, and items say what the document asks of them.

use std::sync::Arc;

use ekiden_core::event::Event;
use ekiden_core::id::{GroupId, Kind, Namespace, OpId, PoolName, QuestionId, RunnerId, SessionId, TaskId};
use ekiden_core::index::DueIndex;
use ekiden_core::key::SEPARATOR;
use ekiden_core::lease::{Token, Until};
use ekiden_core::newer::Newer;
use ekiden_core::pool::Profile;
use ekiden_core::reason::ReasonCode;
use ekiden_core::retry::FailureKind;
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::task::{Origin, Phase, Question, Spec, Task, TaskEnvelope};
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::transition::{Decision, Start, birth, decide};

use super::*;

const NOW: Timestamp = Timestamp::from_millis(1_794_744_000_000);

fn spec(payload: &str) -> Spec {
    let (namespace, pool) = (Namespace::new("n").unwrap(), PoolName::new("p").unwrap());
    let envelope = TaskEnvelope::json(Kind::new("prompt").unwrap(), payload.to_owned());
    let policy = Profile::DynamoOther.settings().policy;
    Spec::new(namespace, pool, TaskId::new("t-1").unwrap(), envelope, policy, NOW)
}

fn born(spec: Spec, start: Start, parents: &[&str]) -> Task {
    let parents = parents.iter().map(|parent| TaskId::new(parent).unwrap()).collect();
    let state = birth(&spec, start, parents, NOW).state;
    Task { spec: Arc::new(spec), state }
}

fn after(task: &Task, event: Event) -> Task {
    match decide(task, &event, NOW) {
        Ok(Decision::Change(change)) => Task { spec: task.spec.clone(), state: change.state },
        other => panic!("expected a change, got {other:?}"),
    }
}

fn queued() -> Task {
    born(spec(r#"{"prompt":"hello"}"#), Start::Released, &[])
}

fn running() -> Task {
    let (claim, holder) = (OpId::from_bits(7), RunnerId::new("r-1").unwrap());
    after(&queued(), Event::Claimed { claim, holder, until: Until::Heartbeat, counted: false })
}

/// A task for each row of the table of words, with what the row says.
fn life() -> Vec<(Task, Phase, &'static str)> {
    let token = Token(1);
    let failed = |kind| Event::Failed { token, kind, error: Arc::from("oops") };
    let question = Question {
        id: QuestionId::new("q").unwrap(),
        text: Arc::from("which?"),
        choices: Vec::new(),
        deadline: Some(NOW + Millis::from_secs(60)),
        default: None,
    };
    let delayed = Spec { run_at: Some(NOW + Millis::from_secs(60)), ..spec("x") };
    let cancel = || Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None };
    vec![
        (born(spec("x"), Start::Held, &[]), Phase::Pending, "HELD"),
        (born(spec("x"), Start::Released, &["parent"]), Phase::Blocked, "HELD"),
        (queued(), Phase::Queued, "QUEUED"),
        (born(delayed, Start::Released, &[]), Phase::Queued, "HELD"),
        (running(), Phase::Running, "RUNNING"),
        (after(&running(), failed(FailureKind::Retryable)), Phase::RetryScheduled, "RUNNING"),
        (after(&running(), Event::Snoozed { token, delay: Millis::from_secs(9) }), Phase::Queued, "RUNNING"),
        (after(&running(), Event::Interrupted { token }), Phase::Queued, "RUNNING"),
        (
            after(&running(), Event::Asked { token, question: Box::new(question) }),
            Phase::NeedsInput,
            "AWAITING_RESPONSE",
        ),
        (after(&running(), Event::Succeeded { token, result: None }), Phase::Succeeded, "COMPLETE"),
        (after(&running(), failed(FailureKind::Permanent)), Phase::Dead, "ERROR"),
        (after(&queued(), cancel()), Phase::Cancelled, "CANCELLED"),
        (after(&running(), cancel()), Phase::Cancelled, "CANCELLED"),
    ]
}

fn item_of(record: &Record) -> (Key, Item) {
    let key = record.natural_key(&Namespace::new("n").unwrap()).unwrap();
    let encoded = encode(record, &Index::of(&key, record), &key, 1);
    let mut item = encoded.set;
    item.extend(key_of(&key));
    item.insert(at::REVISION.to_owned(), text("00ff"));
    item.insert(at::CREATED_BY.to_owned(), op(OpId::from_bits(1)));
    item.insert(at::LAST.to_owned(), op(OpId::from_bits(2)));
    (key, item)
}

/// Q4, Q5: one word for every phase; what was claimed once is never QUEUED again.
#[test]
fn every_phase_has_its_documented_word() {
    for (task, phase, word) in life() {
        assert_eq!(task.state.phase, phase);
        let (_, item) = item_of(&Record::from(task));
        assert_eq!(get_text(&item, at::STATUS), Some(word), "{phase}");
    }
}

/// Q3: the documented attributes are always there and never empty; two of them belong to one word each.
#[test]
fn items_carry_the_documented_attributes() {
    let always =
        [at::NAMESPACE, at::TASK_ID, at::GROUP, at::SESSION, at::STATUS, at::PROMPT, at::CREATED_AT, at::UPDATED_AT];
    for (task, phase, word) in life() {
        let (_, item) = item_of(&Record::from(task));
        for name in always {
            assert!(get_text(&item, name).is_some_and(|text| !text.is_empty()), "{name} of a task that is {phase}");
        }
        assert_eq!(get_text(&item, at::ERROR_MESSAGE), (word == "ERROR").then_some("oops"), "{phase}");
        assert_eq!(get_text(&item, at::CLAIMED_BY), (word == "RUNNING").then_some("r-1"), "{phase}");
    }
    let named = Spec { group: GroupId::new("g").ok(), session: SessionId::new("s").ok(), ..spec("x") };
    let (_, item) = item_of(&Record::from(born(named, Start::Released, &[])));
    assert_eq!([at::GROUP, at::SESSION].map(|name| get_text(&item, name)), [Some("g"), Some("s")]);
    let (_, item) = item_of(&Record::from(queued()));
    assert_eq!([at::GROUP, at::SESSION].map(|name| get_text(&item, name)), [Some("t-1"), Some("t-1")]);
    assert_eq!(get_text(&item, at::PROMPT), Some("hello"));
}

/// Q14: moments are written with 24 characters and sort as text.
#[test]
fn moments_have_one_width() {
    let (_, item) = item_of(&Record::from(queued()));
    for name in [at::CREATED_AT, at::UPDATED_AT] {
        assert_eq!(get_text(&item, name), Some("2026-11-15T12:00:00.000Z"));
    }
}

#[test]
fn a_task_comes_back_as_it_was() {
    for (task, phase, _) in life() {
        let record = Record::from(task);
        let (key, item) = item_of(&record);
        assert_eq!(parse_key(RecordKind::Task, &item), Some(key.clone()));
        let found = decode(key.clone(), &item).unwrap();
        assert_eq!(found.record, record, "{phase}");
        assert_eq!((found.key, found.created_by, found.last), (key, OpId::from_bits(1), OpId::from_bits(2)));
    }
}

#[test]
fn a_payload_comes_back_byte_for_byte() {
    let texts = [
        r#"{"prompt":"hello"}"#,
        r#"{"prompt":""}"#,
        r#"{ "prompt": "spaced" }"#,
        r#"{"prompt":"a","more":1}"#,
        "{\"prompt\":\"駅伝\\n\"}",
        "plain",
        "",
    ];
    let payloads = texts.iter().map(|text| text.as_bytes().to_vec()).chain([vec![0xff, 0x00, 0x80]]);
    for payload in payloads {
        let mut asked = spec("x");
        asked.envelope.payload = payload.clone().into();
        let (key, item) = item_of(&Record::from(born(asked, Start::Released, &[])));
        assert!(get_text(&item, at::PROMPT).is_some_and(|prompt| !prompt.is_empty()), "Q3: never empty");
        let found = decode(key, &item).unwrap();
        assert_eq!(found.record.as_task().unwrap().spec.envelope.payload, payload);
    }
}

/// Q15: whatever another program may change of an item makes another revision of it, and the guard names all of it.
#[test]
fn a_revision_sees_every_foreign_change() {
    let (key, item) = item_of(&Record::from(running()));
    let revision = decode(key.clone(), &item).unwrap().revision;
    for name in [at::REVISION, at::STATUS, at::CLAIMED_BY, at::UPDATED_AT] {
        let mut changed = item.clone();
        changed.insert(name.to_owned(), text("QUEUED"));
        assert_ne!(decode(key.clone(), &changed).unwrap().revision, revision, "{name}");
    }
    let guard = Guard::parse(RecordKind::Task, &revision).unwrap();
    let named: Vec<&str> = guard.parts.iter().map(|(name, _)| *name).collect();
    assert_eq!(named, [at::REVISION, at::STATUS, at::CLAIMED_BY, at::UPDATED_AT]);
    for (name, value) in guard.parts {
        assert_eq!(value.as_ref(), item.get(name), "{name}");
    }
    assert_eq!(guard.counted, Some((PoolName::new("p").unwrap(), Phase::Running)));
    let (key, item) = item_of(&Record::from(queued()));
    let guard = Guard::parse(RecordKind::Task, &decode(key, &item).unwrap().revision).unwrap();
    assert!(guard.parts.contains(&(at::CLAIMED_BY, None)), "what is not there must stay away");
}

/// Q15: what was asked for is sent once, and again only where the item does not have it as it would be written.
#[test]
fn a_write_leaves_out_what_the_item_surely_has() {
    let names = |record: &Record, revision: &ekiden_core::record::Revision| {
        let key = record.natural_key(&Namespace::new("n").unwrap()).unwrap();
        let guard = Guard::parse(RecordKind::Task, revision).unwrap();
        let encoded = encode(record, &Index::of(&key, record), &key, 1).without_known(&guard);
        let all: Vec<String> = encoded.set.into_keys().chain(encoded.remove.into_iter().map(str::to_owned)).collect();
        task::ASKED.into_iter().filter(|asked| all.iter().any(|name| name == asked)).count()
    };
    let (key, item) = item_of(&Record::from(queued()));
    let revision = decode(key.clone(), &item).unwrap().revision;
    assert_eq!(names(&Record::from(running()), &revision), 0, "a claim changes none of it");
    let other = born(spec(r#"{"prompt":"bye"}"#), Start::Released, &[]);
    assert_eq!(names(&Record::from(other), &revision), task::ASKED.len(), "another payload is written");
    let mut changed = item.clone();
    changed.insert(at::PROMPT.to_owned(), text("changed by another program"));
    let revision = decode(key.clone(), &changed).unwrap().revision;
    assert_eq!(names(&Record::from(running()), &revision), task::ASKED.len(), "so is what others changed");
    let mut foreign = item;
    foreign.remove(at::REVISION);
    let revision = decode(key, &foreign).unwrap().revision;
    assert_eq!(names(&Record::from(running()), &revision), task::ASKED.len(), "and all of an item that is not ours");
}

/// An item has room for one place and one due list. Should core ever compute more, this must be thought over.
#[test]
fn a_task_stands_in_one_place_and_one_due_list() {
    let lasting = |task: &Task| {
        let mut spec = (*task.spec).clone();
        spec.expires_at = Some(NOW + Millis::from_days(1));
        Arc::make_mut(&mut spec.policy).keep = ekiden_core::pool::Keep::For(Millis::from_days(1));
        Task { spec: Arc::new(spec), state: task.state.clone() }
    };
    for (task, phase, _) in life() {
        let task = lasting(&task);
        let index = Index::of(&Key::task(&task.spec.namespace, task.id()), &Record::from(task.clone()));
        let [promote, rejoin] = [DueIndex::Promote, DueIndex::Rejoin].map(|list| index.due_at(list).is_some());
        let places = [index.ready.is_some(), index.held, promote, rejoin];
        assert!(places.iter().filter(|there| **there).count() <= 1, "{phase}: {index:?}");
        let lists = index.due.iter().filter(|due| !matches!(due.index, DueIndex::Promote | DueIndex::Rejoin));
        assert!(lists.count() <= 1, "{phase}: {index:?}");
    }
}

/// Q6, Q14: an item with nothing but documented attributes is a task of kind `prompt` with one attempt, whatever the width of
/// its moments.
#[test]
fn a_foreign_item_is_a_prompt() {
    let item = |status: &str| {
        let all = [
            (at::NAMESPACE, "n"),
            (at::TASK_ID, "task-001"),
            (at::GROUP, "g"),
            (at::SESSION, "s"),
            (at::STATUS, status),
            (at::PROMPT, "do \"it\""),
            (at::CREATED_AT, "2026-11-15T12:00:00Z"),
            (at::UPDATED_AT, "2026-11-15T12:00:00.000000Z"),
            (at::CLAIMED_BY, "their-runner"),
        ];
        all.into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect::<Item>()
    };
    let words = [
        ("QUEUED", Phase::Queued),
        ("RUNNING", Phase::Running),
        ("COMPLETE", Phase::Succeeded),
        ("ERROR", Phase::Dead),
        ("CANCELLED", Phase::Cancelled),
    ];
    for (word, phase) in words {
        let item = item(word);
        let found = decode(parse_key(RecordKind::Task, &item).unwrap(), &item).unwrap();
        let task = found.record.as_task().unwrap();
        assert_eq!(task.state.phase, phase);
        assert_eq!((task.spec.created_at, task.spec.origin), (NOW, Origin::Foreign));
        assert_eq!(&task.spec.envelope.payload[..], br#"{"prompt":"do \"it\""}"#);
        assert_eq!((task.spec.envelope.task_type.as_str(), task.spec.pool.as_str()), ("prompt", "default"));
        assert_eq!(task.spec.policy.attempts_max, 1);
        let until = task.state.lease.as_ref().map(|lease| lease.until);
        assert_eq!(until, (phase == Phase::Running).then_some(Until::Foreign), "a foreign lease is nobody's to end");
    }
    let strange = item("PAUSED");
    assert!(decode(parse_key(RecordKind::Task, &strange).unwrap(), &strange).is_err());
}

/// Q2, Q9: a runner of ours says what the document asks, and one of another program is read, in either spelling.
#[test]
fn runners_are_written_and_read_as_documented() {
    let ours = Runner {
        namespace: Namespace::new("n").unwrap(),
        id: RunnerId::new("r.1").unwrap(),
        started_at: NOW,
        last_heartbeat: NOW + Millis::from_secs(1),
        status: RunnerStatus::Running,
        lease: Millis::from_secs(120),
        project_root: "src".to_owned(),
        pools: Vec::new(),
        kinds: Vec::new(),
        newer: Newer::NONE,
    };
    let (key, item) = item_of(&Record::from(ours.clone()));
    assert_eq!(decode(key, &item).unwrap().record, Record::from(ours.clone()));
    let said = [at::RUNNER_ID, at::STATUS, at::LAST_HEARTBEAT, at::STARTED_AT, at::PROJECT_ROOT];
    let said = said.map(|name| get_text(&item, name).unwrap());
    assert_eq!(said, ["r.1", "running", "2026-11-15T12:00:01.000Z", "2026-11-15T12:00:00.000Z", "src"]);
    let (_, item) = item_of(&Record::from(ours.stop(NOW + Millis::from_secs(2)).unwrap()));
    assert_eq!(get_text(&item, at::STATUS), Some("stopped"));
    for (word, alive) in [("RUNNING", true), ("running", true), ("STOPPED", false)] {
        let (key, mut theirs) = item_of(&Record::from(ours.clone()));
        theirs.remove(at::BODY);
        theirs.insert(at::STATUS.to_owned(), text(word));
        let found = decode(key, &theirs).unwrap();
        let runner = found.record.as_runner().unwrap();
        assert_eq!(runner.is_alive(NOW + Millis::from_secs(2)), alive, "{word}");
        assert!(!runner.is_alive(NOW + Millis::from_secs(121)), "silent for two minutes");
    }
}

/// A process that is too old for a record does not take it for something else.
#[test]
fn a_record_for_newer_writers_is_not_read() {
    let (key, mut item) = item_of(&Record::from(queued()));
    item.insert(at::MIN_WRITER.to_owned(), number(2));
    assert!(matches!(decode(key, &item), Err(Unreadable::TooNew { .. })));
}

#[test]
fn orders_sort_like_what_they_stand_for() {
    use ekiden_core::order::Rank;
    let task =
        |ms: i64, id: &str| Spec { created_at: Timestamp::from_millis(ms), id: TaskId::new(id).unwrap(), ..spec("x") };
    let orders = [
        places::claim_order(Rank(-20), &task(9, "z")),
        places::claim_order(Rank(0), &task(8, "z")),
        places::claim_order(Rank(0), &task(9, "a")),
        places::claim_order(Rank(0), &task(9, "b")),
        places::claim_order(Rank(0), &task(10, "a")),
        places::claim_order(Rank(99_999), &task(0, "a")),
    ];
    assert!(orders.is_sorted(), "{orders:?}");
    let namespace = Namespace::new("n").unwrap();
    let order = places::due_order(NOW, RecordKind::Signal, &format!("r{SEPARATOR}t"));
    let (at, key) = places::parse_due_order(&namespace, &order).unwrap();
    assert_eq!((at, key.kind, &*key.name), (NOW, RecordKind::Signal, "r\u{1f}t"));
    assert!(order < places::due_until(NOW) && order > places::due_until(NOW - Millis::new(1)));
}

#[test]
fn only_ids_generated_at_their_creation_sort_by_themselves() {
    let id = TaskId::generate(NOW, &[9; 10]);
    assert!(places::sorts_by_id(NOW, id.as_str()));
    assert!(!places::sorts_by_id(NOW + Millis::new(1), id.as_str()));
    assert!(!places::sorts_by_id(NOW, "task-001"));
    assert!(id.as_str() > places::first_id(NOW.as_millis()).as_str());
    assert!(id.as_str() < places::first_id(NOW.as_millis() + 1).as_str());
    assert!(id.as_str() > places::GENERATED[0] && id.as_str() < places::GENERATED[1]);
}
