//! What a version wrote is read for ever: the bytes in `fixtures/` were written once, and must give the same records. Each version
//! has files of its own. `EKIDEN_BLESS=1` writes files that are missing.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod direct;
mod newer;

use std::path::PathBuf;
use std::sync::Arc;

use ekiden_core::attempt::{Outcome, Stage};
use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::id::{GroupId, Kind, Namespace, OpId, PoolName, RunnerId, SessionId, TaskId};
use ekiden_core::index::Index;
use ekiden_core::key::Key;
use ekiden_core::order::Rank;
use ekiden_core::plan::Enqueue;
use ekiden_core::pool::Profile;
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Record;
use ekiden_core::task::{Progress, Spec, Task, TaskEnvelope};
use ekiden_core::time::{Millis, Timestamp};
use ekiden_core::transition::Start;
use ekiden_store::shelf::{Names, Put, Stamp};
use ekiden_store::{MemoryStore, Store, StoreExt};

use super::*;

const NOON: Timestamp = Timestamp::from_millis(1_794_744_000_000);

fn key() -> Key {
    Key::task(&Namespace::new("default").unwrap(), &TaskId::new("受付-1").unwrap())
}

fn stamp() -> Stamp {
    Stamp { revision: 7, created_by: OpId::from_bits(0x0101), last: OpId::from_bits(0x0202) }
}

/// A task with a bit of everything.
fn task() -> Arc<Task> {
    let envelope = TaskEnvelope::json(Kind::new("greet").unwrap(), r#"{"name":"花子"}"#);
    let policy = Profile::Embedded.settings().policy;
    let id = TaskId::new("受付-1").unwrap();
    let mut spec = Spec::new(key().namespace, PoolName::new("work").unwrap(), id, envelope, policy, NOON);
    spec.run_at = Some(NOON + Millis::from_secs(60));
    spec.group = Some(GroupId::new("g").unwrap());
    let plan = Enqueue { spec: Arc::new(spec), start: Start::Released, parents: vec![], idempotency: None };
    let store = MemoryStore::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let found = runtime.block_on(async {
        store.run(&plan, OpId::from_bits(0x0101), NOON).await.unwrap();
        store.get(vec![key()]).await.unwrap().remove(0).unwrap()
    });
    found.record.as_task().unwrap().clone()
}

/// One whose attempt runs, with every field that a number stands for: who moves a field or a word moves its number.
fn running() -> Arc<Task> {
    let mut spec = task().spec.as_ref().clone();
    spec.title = Some("朝の便".into());
    spec.expires_at = Some(NOON + Millis::from_secs(3_600));
    spec.session = Some(SessionId::new("s").unwrap());
    spec.labels = [("color".into(), "赤".into())].into();
    spec.retry_of = Some(TaskId::new("受付-0").unwrap());
    spec.rank = Rank(-10);
    spec.envelope.content_type = "text/plain".into();
    let plan = Enqueue { spec: Arc::new(spec), start: Start::Released, parents: vec![], idempotency: None };
    let pools =
        vec![ClaimPool { namespace: key().namespace, pool: plan.spec.pool.clone(), paused: false, running_max: None }];
    let claim = Claim {
        id: OpId::from_bits(0x0303),
        now: NOON + Millis::from_secs(61),
        pools,
        kinds: Kinds::Any,
        limit: 1,
        holder: RunnerId::new("runner-1").unwrap(),
        lease: LeaseTerm::Heartbeat,
    };
    let store = MemoryStore::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let claimed = runtime.block_on(async {
        store.run(&plan, OpId::from_bits(0x0101), NOON).await.unwrap();
        store.claim(claim).await.unwrap()
    });
    let mut task = claimed.tasks[0].record.as_task().unwrap().as_ref().clone();
    task.state.last_error = Some("雨".into());
    task.state.reason = Some(ReasonCode::PermanentFailure);
    task.state.result = Some(Bytes::from_static(b"{}"));
    task.state.progress = Some(Box::new(Progress { done: 1, total: Some(2), note: None }));
    task.state.finished_at = Some(NOON + Millis::from_secs(62));
    task.state.outcomes.set("failed", 2);
    for attempt in &mut task.state.recent {
        attempt.outcome = Some(Outcome::Cancelled);
        attempt.stage = Some(Stage::Verified);
    }
    Arc::new(task)
}

fn sealed(task: &Arc<Task>) -> Vec<u8> {
    let index = Index::of(&key(), &Record::Task(task.clone()));
    let card = Card { created_at: NOON, stamp: stamp(), index, names: Names::of(task) };
    seal_record(b"key", |into| {
        put_card(&card, into);
        put_body(task, &mut Pen::default(), into)
    })
}

fn batch(task: &Arc<Task>) -> Vec<u8> {
    let record = Record::Task(task.clone());
    let mut bytes = Vec::new();
    for same_spec in [false, true] {
        write_put(&put(&key(), &record, same_spec), &mut Pen::default(), &mut bytes);
    }
    let counter = Key::running(&key().namespace, &PoolName::new("work").unwrap());
    write_put(&put(&counter, &Record::Counter(3), false), &mut Pen::default(), &mut bytes);
    write_delete(&counter, 9, &mut bytes);
    bytes
}

fn put<'a>(key: &'a Key, record: &'a Record, same_spec: bool) -> Put<'a> {
    Put { key, record, stamp: stamp(), same_spec, ready: false }
}

/// The bytes that were written once.
fn fixture(name: &str, now: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    if !path.exists() && std::env::var_os("EKIDEN_BLESS").is_some() {
        std::fs::write(&path, now).unwrap();
    }
    std::fs::read(path).unwrap()
}

fn read_sealed(value: &[u8]) -> (Card, Task) {
    let mut reader = unseal(b"key", value).unwrap();
    let card = read_card(&mut reader).unwrap();
    let task = read_body::<Unreadable>(&mut reader, || Err(Unreadable::Short)).unwrap();
    (card, task)
}

/// C9
#[test]
fn a_task_of_any_version_is_read_for_ever() {
    for (name, task) in [("task.v1.bin", task()), ("task.v2.bin", running()), ("task.v3.bin", running())] {
        let (card, read) = read_sealed(&fixture(name, &sealed(&task)));
        assert_eq!(read, *task);
        assert_eq!((card.stamp, card.created_at, card.names), (stamp(), NOON, Names::of(&task)));
        assert_eq!(card.index, Index::of(&key(), &Record::Task(task)));
    }
}

/// C9
#[test]
fn a_batch_of_any_version_is_read_for_ever() {
    for (name, task) in [("batch.v1.bin", task()), ("batch.v2.bin", running()), ("batch.v3.bin", running())] {
        let bytes = fixture(name, &batch(&task));
        let changes: Vec<Change> = ChangeReader::new(&bytes).map(Result::unwrap).collect();
        match changes.as_slice() {
            [
                Change::Task(key_of, _, spec, state),
                Change::State(_, at, again),
                Change::Other(_, _, counter),
                Change::Deleted(_, 9),
            ] => {
                assert_eq!((key_of, *at), (&key(), stamp()));
                assert_eq!((spec, state), (task.spec.as_ref(), &task.state));
                assert_eq!(again, state);
                assert_eq!(*counter, Record::Counter(3));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The latest version is what this program writes, byte by byte.
#[test]
fn the_latest_fixtures_are_what_is_written_today() {
    assert_eq!(sealed(&running()), fixture("task.v3.bin", &sealed(&running())));
    assert_eq!(batch(&running()), fixture("batch.v3.bin", &batch(&running())));
}

/// Names would be most of what is written.
#[test]
fn fields_are_numbers_on_disk() {
    let mut bytes = Vec::new();
    assert_eq!(Pen::default().state(&running().state, &mut bytes), OURS);
    let mut named = Vec::new();
    rmp_serde::encode::write_named(&mut named, &running().state).unwrap();
    assert!(bytes.len() * 2 < named.len(), "{} of {} bytes", bytes.len(), named.len());
    assert_eq!(read_value::<State>(&bytes, OURS).unwrap(), running().state);
}

#[test]
fn a_record_that_only_newer_versions_may_write_is_read_but_not_written() {
    let mut value = sealed(&task());
    value[4] = OURS.version + 1;
    let checksum = checksum_of(b"key", &value[4..]).to_le_bytes();
    value[..4].copy_from_slice(&checksum);
    assert!(check_writable(&value).is_ok(), "newer, but anybody may write it");
    value[5] = OURS.version + 1;
    let checksum = checksum_of(b"key", &value[4..]).to_le_bytes();
    value[..4].copy_from_slice(&checksum);
    assert_eq!(read_sealed(&value).1, *task());
    assert!(matches!(check_writable(&value), Err(Unreadable::TooNew { version: 4 })));
}

/// Every bit of a sealed value and of its key counts.
#[test]
fn a_flipped_bit_or_another_key_never_passes_for_a_record() {
    let value = sealed(&task());
    for at in 0..value.len() * 8 {
        let mut broken = value.clone();
        broken[at / 8] ^= 1 << (at % 8);
        assert!(unseal(b"key", &broken).is_err(), "bit {at}");
    }
    assert!(unseal(b"yek", &value).is_err());
}

/// Bytes that end anywhere are an error, not a panic and not a record.
#[test]
fn a_batch_that_ends_in_the_middle_is_an_error() {
    let bytes = batch(&task());
    let whole = ChangeReader::new(&bytes).count();
    for end in 1..bytes.len() {
        let read: Vec<_> = ChangeReader::new(&bytes[..end]).collect();
        assert!(read.len() < whole || read.iter().any(Result::is_err), "{end} of {} bytes", bytes.len());
    }
}
