//! Moving everything: from store to store, and through lines of JSON.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ekiden_core::commit::{Expect, Write};
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{LaneKey, Namespace, SweepId, UniqueKey};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lane::LaneSpec;
use ekiden_core::limits;
use ekiden_core::newer::Newer;
use ekiden_core::plan::Enqueued;
use ekiden_core::record::Record;
use ekiden_core::task::{Phase, Spec};
use ekiden_core::unique::{Unique, UniqueHold};
use ekiden_store::conformance::lab::{Lab, add, id, note, note_key, ns, pool};
use ekiden_store::conformance::reopen::one_of_each_kind;
use ekiden_store::conformance::{Factory, run_case};
use ekiden_store::layers::{Faults, Faulty};
use ekiden_store::transfer::{Existing, TransferError, export, import, transfer};
use ekiden_store::{CheckDepth, CountScope, MemoryStore, RecordQuery, Store, TaskQuery};

/// Memory stores, or the one that is given.
#[derive(Clone, Default)]
struct Memory(Option<Arc<MemoryStore>>);

#[async_trait]
impl Factory for Memory {
    async fn open(&self) -> Arc<dyn Store> {
        self.0.clone().unwrap_or_default()
    }

    async fn reopen(&self, _: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        None
    }

    fn random_sequences(&self) -> usize {
        0
    }
}

async fn lab_over(store: &Arc<MemoryStore>) -> Lab {
    Lab::open(Arc::new(Memory(Some(store.clone())))).await
}

/// All records of a store, by key.
async fn everything(store: &dyn Store) -> BTreeMap<Key, Record> {
    let mut found = Vec::new();
    for namespace in store.namespaces(None, 1_000).await.unwrap().items {
        for kind in RecordKind::ALL {
            let (namespace, mut cursor) = (namespace.clone(), None);
            loop {
                let page = if kind == RecordKind::Task {
                    let filter = TaskFilter::all(namespace.clone());
                    store.tasks(TaskQuery { cursor, ..TaskQuery::oldest(filter, 1_000) }).await.unwrap()
                } else {
                    let (namespace, prefix) = (namespace.clone(), String::new());
                    store.records(RecordQuery { namespace, kind, prefix, cursor, limit: 1_000 }).await.unwrap()
                };
                found.extend(page.items);
                cursor = page.cursor;
                if cursor.is_none() {
                    break;
                }
            }
        }
    }
    found.into_iter().map(|found| (found.key, found.record)).collect()
}

/// Every kind of record, every phase, three namespaces, payloads of all sorts, and more tasks than fit one page.
async fn fill(lab: &Lab) {
    let mut writes: Vec<Write> =
        one_of_each_kind(lab).into_iter().map(|(key, record)| Write::put(key, Expect::Absent, record)).collect();
    writes.push(add(Key::running(&ns(), &pool("work")), 3));
    lab.commit(writes).await;
    for name in ["受信箱", "other"] {
        for phase in Phase::ALL {
            let namespace = Namespace::new(name).unwrap();
            lab.store_task(lab.in_phase(Spec { namespace, ..lab.spec(phase.as_str()) }, phase)).await;
        }
    }
    let payloads: [Vec<u8>; 5] = [
        Vec::new(),
        vec![0, 159, 146, 150, 255],
        (0..=31).collect(),
        "\"\\\n 襷 🙂 </script> \u{2028}".into(),
        vec![7; limits::PAYLOAD_BYTES_MAX],
    ];
    for (n, payload) in payloads.into_iter().enumerate() {
        lab.enqueue_with(&format!("payload-{n}"), |spec| spec.envelope.payload = payload.into()).await;
    }
    lab.enqueue_many((0..600).map(|n| lab.spec(&format!("many-{n:03}"))).collect()).await;
}

fn filled() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    run_case(Memory(Some(store.clone())), |lab| async move { fill(&lab).await });
    store
}

async fn exported(store: &dyn Store) -> Vec<u8> {
    let mut lines = Vec::new();
    export(store, &mut lines, &mut |_| {}).await.unwrap();
    lines
}

async fn imported(lines: &[u8], to: &MemoryStore, existing: Existing) -> Result<u64, TransferError> {
    import(&mut &*lines, to, existing, &mut |_| {}).await.map(|moved| moved.records)
}

#[tokio::test]
async fn everything_arrives_to_the_letter() {
    let from = tokio::task::spawn_blocking(filled).await.unwrap();
    let before = everything(&*from).await;
    let kinds: Vec<_> = RecordKind::ALL.into_iter().filter(|kind| before.keys().any(|key| key.kind == *kind)).collect();
    assert_eq!(kinds, RecordKind::ALL, "the test has every kind");
    let to = MemoryStore::new();
    let (mut heard, mut total) = (Vec::new(), None);
    let mut hear = |progress: ekiden_store::transfer::Progress| {
        heard.push(progress.moved.records);
        total = progress.tasks_total;
    };
    let moved = transfer(&*from, &to, Existing::Refuse, &mut hear).await.unwrap();
    assert_eq!(everything(&to).await, before);
    assert_eq!(usize::try_from(moved.records).unwrap(), before.len());
    assert_eq!((moved.namespaces, moved.skipped, Some(moved.tasks)), (3, 0, total));
    assert!(heard.len() > 3 && heard.is_sorted() && heard.last() == Some(&moved.records), "{heard:?}");
    assert_eq!(to.check(CheckDepth::Full).await.unwrap(), []);
    let scope = |name| CountScope { namespace: Namespace::new(name).unwrap(), pool: None };
    for name in ["default", "other", "受信箱"] {
        assert_eq!(to.counts(scope(name)).await.unwrap(), from.counts(scope(name)).await.unwrap());
    }
}

#[tokio::test]
async fn lines_bring_everything_back_to_the_letter() {
    let from = tokio::task::spawn_blocking(filled).await.unwrap();
    let lines = exported(&*from).await;
    let text = std::str::from_utf8(&lines).unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    let to = MemoryStore::new();
    imported(&lines, &to, Existing::Refuse).await.unwrap();
    assert_eq!(everything(&to).await, everything(&*from).await);
    assert_eq!(exported(&to).await, lines, "and the same lines come out again");
}

/// A target that fails now and then gets every record once: a repeated commit is recognised.
#[tokio::test]
async fn lost_replies_neither_lose_nor_double_anything() {
    let from = tokio::task::spawn_blocking(filled).await.unwrap();
    let to = Arc::new(MemoryStore::new());
    let faults = Faults { refused: 2, reply_lost: 3, request_lost: 2, ..Faults::default() };
    let moved = transfer(&*from, &Faulty::new(to.clone(), faults, 3), Existing::Refuse, &mut |_| {}).await.unwrap();
    let arrived = everything(&*to).await;
    assert_eq!(arrived, everything(&*from).await);
    assert_eq!((usize::try_from(moved.records).unwrap(), moved.skipped), (arrived.len(), 0));
}

/// Work goes on in the target where it stopped: the lane's next comes when its head has ended, a key is still held, a child is
/// released by its parent, and whoever holds a lease may still settle.
#[test]
fn lanes_keys_dependencies_and_leases_go_on_after_a_transfer() {
    run_case(Memory::default(), |lab| async move {
        let lane = |spec: &mut Spec| spec.lane = Some(Arc::new(LaneSpec::serial(LaneKey::new("deploy").unwrap())));
        let key = Unique { key: UniqueKey::new("once").unwrap(), hold: UniqueHold::WhileOpen };
        lab.enqueue_with("first", lane).await;
        let head = lab.take().await;
        lab.enqueue_with("second", lane).await;
        lab.enqueue_child("child", &["first"]).await;
        lab.enqueue_with("unique", |spec| spec.unique = Some(Arc::new(key.clone()))).await;

        let to = Arc::new(MemoryStore::new());
        transfer(&*lab.store(), &*to, Existing::Refuse, &mut |_| {}).await.unwrap();
        let moved = lab_over(&to).await;
        // Both labs draw the same ids; the second goes on behind those that the first has used.
        for _ in 0..100 {
            moved.op();
        }
        let twin = Spec { unique: Some(Arc::new(key)), ..moved.spec("twin") };
        match moved.run(&moved.plan_of(twin)).await {
            Ok(Enqueued::Existing(task)) => assert_eq!(task, id("unique")),
            other => panic!("the key is held, got {other:?}"),
        }
        assert_eq!(moved.take_ids(10).await, ["unique"], "the others wait");
        moved.succeed(&head).await;
        for name in moved.names(RecordKind::Sweep, "", 10).await {
            moved.sweep(&Key::sweep(&ns(), &SweepId::new(name).unwrap())).await;
        }
        let mut next = moved.take_ids(10).await;
        next.sort();
        assert_eq!(next, ["child", "second"]);
        assert_eq!(lab.phase("first").await, Phase::Running, "the source is as it was");
        moved.finish().await;
    });
}

#[tokio::test]
async fn a_target_that_has_something_is_refused_before_anything_is_written() {
    let from = Arc::new(MemoryStore::new());
    let to = Arc::new(MemoryStore::new());
    let lab = lab_over(&from).await;
    for name in ["a", "b", "c"] {
        let namespace = Namespace::new(name).unwrap();
        lab.store_task(lab.in_phase(Spec { namespace, ..lab.spec("t") }, Phase::Queued)).await;
    }
    let taken = Key::pool(&Namespace::new("b").unwrap(), &pool("work"));
    let target = lab_over(&to).await;
    let settings = Arc::new(ekiden_core::record::Pool {
        name: pool("work"),
        settings: ekiden_core::pool::Profile::Embedded.settings(),
        newer: Newer::NONE,
    });
    target.put(&taken, Expect::Absent, Record::Pool(settings)).await;
    let before = everything(&*to).await;

    let refused = transfer(&*from, &*to, Existing::Refuse, &mut |_| {}).await.unwrap_err();
    assert_eq!((refused.refusal.code.as_str(), refused.moved.records), ("IMPORT_EXISTS", 0));
    assert_eq!(refused.refusal.context["namespace"], "b");
    assert_eq!(everything(&*to).await, before);

    let lines = exported(&*from).await;
    let refused = imported(&lines, &to, Existing::Refuse).await.unwrap_err();
    assert_eq!((refused.refusal.code.as_str(), refused.moved.records), ("IMPORT_EXISTS", 1), "a file is read once");
    assert_eq!(refused.refusal.context["line"], "3");

    let moved = import(&mut &*lines, &*to, Existing::Skip, &mut |_| {}).await.unwrap();
    assert_eq!((moved.records, moved.skipped, moved.different), (2, 1, 0));
    assert_eq!(everything(&*to).await.len(), 4, "and what was there before is still there");
}

#[tokio::test]
async fn what_exists_is_kept_and_counted_when_it_is_to_be_skipped() {
    let (from, to) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let (source, target) = (lab_over(&from).await, lab_over(&to).await);
    for name in ["same", "other", "new"] {
        source.put(&note_key(name), Expect::Absent, note("one")).await;
    }
    target.put(&note_key("same"), Expect::Absent, note("one")).await;
    target.put(&note_key("other"), Expect::Absent, note("two")).await;
    let moved = transfer(&*from, &*to, Existing::Skip, &mut |_| {}).await.unwrap();
    assert_eq!((moved.records, moved.skipped, moved.different), (1, 2, 1));
    assert_eq!(target.get(&note_key("other")).await.unwrap().record, note("two"));
}

/// Three records in lines 2 to 4.
async fn short_export() -> Vec<String> {
    let store = Arc::new(MemoryStore::new());
    let lab = lab_over(&store).await;
    for name in ["a", "b", "c"] {
        lab.enqueue(name).await;
    }
    String::from_utf8(exported(&*store).await).unwrap().lines().map(|line| format!("{line}\n")).collect()
}

#[tokio::test]
async fn bad_input_is_refused_with_its_line_and_nothing_behind_it_is_imported() {
    let lines = short_export().await;
    let [head, a, b, c, end] = lines.iter().map(String::as_str).collect::<Vec<_>>()[..] else { panic!("{lines:?}") };
    let newer = head.replace("\"version\":1,\"min_reader\":1", "\"version\":9,\"min_reader\":9");
    let foreign = head.replace("ekiden-export", "tar");
    let wrong_kind = b.replace("\"kind\":\"task\"", "\"kind\":\"pool\"");
    let wrong_name = b.replace("\"name\":\"b\"", "\"name\":\"x\"");
    let wrong_id = b.replace("\"namespace\":\"default\"", "\"namespace\":\"\"");
    let counter = r#"{"key":{"kind":"counter","namespace":"default","name":"x"},"record":{"counter":1}}"#;
    let too_deep = format!("{}{}\n", "[".repeat(5_000), "]".repeat(5_000));
    let too_long = format!("\"{}\"\n", "x".repeat(limits::TRANSFER_LINE_BYTES_MAX));
    let more = end.replace("\"records\":3", "\"records\":4");
    let wrong: Vec<(&str, String, &str, &str, u64)> = vec![
        ("nothing", String::new(), "IMPORT_CUT", "1", 0),
        ("no first line", [a, b, c, end].concat(), "IMPORT_INVALID", "1", 0),
        ("another format", [&foreign, a, end].concat(), "IMPORT_INVALID", "1", 0),
        ("a newer version", [&newer, a, end].concat(), "IMPORT_TOO_NEW", "1", 0),
        ("garbage", [head, a, "garbage\n", c, end].concat(), "IMPORT_INVALID", "3", 0),
        ("an empty line", [head, a, "\n", c, end].concat(), "IMPORT_INVALID", "3", 0),
        ("an empty object", [head, a, "{}\n", c, end].concat(), "IMPORT_INVALID", "3", 0),
        ("deep nesting", [head, a, &too_deep, end].concat(), "IMPORT_INVALID", "3", 0),
        ("too long a line", [head, a, &too_long, end].concat(), "IMPORT_INVALID", "3", 0),
        ("another kind", [head, a, &wrong_kind, end].concat(), "COMMIT_INVALID", "3", 0),
        ("another key", [head, a, &wrong_name, end].concat(), "COMMIT_INVALID", "3", 0),
        ("an empty id", [head, a, &wrong_id, end].concat(), "IMPORT_INVALID", "3", 0),
        ("a name that is none", [head, a, counter, "\n", end].concat(), "IMPORT_INVALID", "3", 0),
        ("the same twice", [head, a, a, c, end].concat(), "IMPORT_EXISTS", "5", 2),
        ("a line missing", [head, a, c, end].concat(), "IMPORT_CUT", "4", 0),
        ("other totals", [head, a, b, c, &more].concat(), "IMPORT_CUT", "5", 0),
        ("no end", [head, a, b, c].concat(), "IMPORT_CUT", "5", 0),
        ("no last line end", [head, a, b, c, end.trim_end()].concat(), "IMPORT_CUT", "5", 0),
        ("two files in one", [head, a, b, c, end, head].concat(), "IMPORT_INVALID", "6", 3),
    ];
    for (what, text, code, line, records) in wrong {
        let to = MemoryStore::new();
        let error = imported(text.as_bytes(), &to, Existing::Refuse).await.unwrap_err();
        let context = &error.refusal.context;
        assert_eq!((error.refusal.code.as_str(), context["line"].as_str()), (code, line), "{what}: {error}");
        let there = u64::try_from(everything(&to).await.len()).unwrap();
        assert_eq!((error.moved.records, there), (records, records), "{what}: it says what was imported");
    }
    let mut bytes = [head, a].concat().into_bytes();
    bytes.extend(b"{\"key\":\"\xff\xfe\"}\n");
    let error = imported(&bytes, &MemoryStore::new(), Existing::Refuse).await.unwrap_err();
    assert_eq!((error.refusal.code.as_str(), error.refusal.context["line"].as_str()), ("IMPORT_INVALID", "3"));
}

#[tokio::test]
async fn a_file_that_was_cut_anywhere_is_never_taken_for_a_whole_one() {
    let whole = short_export().await.concat().into_bytes();
    for length in 0..whole.len() {
        let to = MemoryStore::new();
        let error = imported(&whole[..length], &to, Existing::Refuse).await.unwrap_err();
        assert_eq!(error.refusal.code.as_str(), "IMPORT_CUT", "{length} of {} bytes: {error}", whole.len());
        imported(&whole, &to, Existing::Skip).await.unwrap();
        assert_eq!(everything(&to).await.len(), 3, "the whole file mends it");
    }
}

/// A file whose every byte may be damaged is read or refused, and nothing else.
#[tokio::test]
async fn no_flipped_byte_stops_anything_but_the_import() {
    let whole = short_export().await.concat().into_bytes();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x15;
        let to = MemoryStore::new();
        let moved = imported(&bytes, &to, Existing::Refuse).await;
        let there = u64::try_from(everything(&to).await.len()).unwrap();
        assert_eq!(moved.unwrap_or_else(|error| error.moved.records), there, "byte {at}");
        assert_eq!(to.check(CheckDepth::Full).await.unwrap(), [], "byte {at}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_an_error() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let error = export(&MemoryStore::new(), &mut Full, &mut |_| {}).await.unwrap_err();
    assert_eq!(error.refusal.code.as_str(), "FILE_UNAVAILABLE");
}
