//! Cases: which namespaces there are.

use ekiden_core::commit::{Expect, Write};
use ekiden_core::id::{Namespace, UniqueKey};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::record::Record;
use ekiden_core::task::{Phase, Spec};

use super::Lab;
use super::lab::{applied, delete, note, ns, pool};
use super::reopen::one_of_each_kind;

fn named(name: &str) -> Namespace {
    Namespace::new(name).expect("a valid id")
}

fn note_in(namespace: &Namespace) -> Key {
    Key::unique(namespace, &UniqueKey::new("a").expect("a valid id"))
}

/// All namespaces behind one, over all pages of this size.
async fn names(lab: &Lab, after: Option<&str>, limit: usize) -> Vec<String> {
    let mut names = Vec::new();
    let mut after = after.map(named);
    loop {
        let page = lab.store().namespaces(after.clone(), limit).await.expect("a read on a store without faults");
        assert!(page.items.len() <= limit, "a page holds no more than was asked for");
        names.extend(page.items.iter().map(ToString::to_string));
        let Some(cursor) = page.cursor else { return names };
        assert!(Some(named(&cursor)) > after, "a cursor leads on, or its pages would never end");
        after = Some(named(&cursor));
    }
}

async fn all(lab: &Lab) -> Vec<String> {
    names(lab, None, 1_000).await
}

/// Nothing must be listed; a store whose index is not exact may still list what became empty.
async fn assert_none(lab: &Lab) {
    assert!(!lab.store().info().exact_index || all(lab).await.is_empty(), "{:?}", all(lab).await);
}

/// C25
pub async fn an_empty_store_has_no_namespaces(lab: Lab) {
    let page = lab.store().namespaces(None, 1).await.expect("a read on a store without faults");
    assert_eq!((page.items.len(), page.cursor), (0, None));
    assert_eq!(names(&lab, Some("m"), 1).await.len(), 0);
}

/// C25: names sort as bytes, whatever their language, and one that begins another comes before it.
pub async fn namespaces_come_once_and_in_byte_order(lab: Lab) {
    let mut sorted = ["Z", "a", "a b", "a-", "a/b", "aa", "b", "é", "受信箱", "駅伝", "🙂"];
    for name in ["駅伝", "b", "a/b", "Z", "é", "a", "🙂", "aa", "a-", "受信箱", "a b"] {
        lab.put(&note_in(&named(name)), Expect::Absent, note("one")).await;
        lab.store_task(lab.in_phase(Spec { namespace: named(name), ..lab.spec("t") }, Phase::Queued)).await;
    }
    sorted.sort_unstable();
    assert_eq!(all(&lab).await, sorted);
}

/// C25
pub async fn pages_of_any_size_give_every_namespace_once(lab: Lab) {
    let made: Vec<String> = (0..25).map(|n| format!("n-{n:02}")).collect();
    for name in &made {
        lab.put(&note_in(&named(name)), Expect::Absent, note("one")).await;
    }
    for limit in [1, 2, 24, 25, 26, 1_000] {
        assert_eq!(names(&lab, None, limit).await, made, "pages of {limit}");
        assert_eq!(names(&lab, Some("n-09"), limit).await, made[10..], "behind one, in pages of {limit}");
    }
    assert_eq!(names(&lab, Some("n-24"), 10).await.len(), 0);
}

/// C25
pub async fn any_kind_of_record_makes_its_namespace_known(lab: Lab) {
    let task = lab.in_phase(lab.spec("t"), Phase::Succeeded);
    let mut records = one_of_each_kind(&lab);
    records.push((Key::running(&ns(), &pool("work")), Record::Counter(1)));
    records.push((Key::task(&ns(), task.id()), Record::from(task)));
    assert_eq!(records.len(), RecordKind::ALL.len(), "every kind");
    for (key, record) in records {
        let put = Write::put(key.clone(), Expect::Absent, record);
        applied(lab.commit(vec![put]).await);
        assert_eq!(all(&lab).await, [ns().as_str()], "{:?}", key.kind);
        applied(lab.commit(vec![delete(key)]).await);
        assert_none(&lab).await;
    }
}

/// C25
pub async fn a_namespace_is_known_while_it_has_anything(lab: Lab) {
    for phase in Phase::ALL {
        let task = lab.in_phase(Spec { namespace: named("kept"), ..lab.spec("t") }, phase);
        let key = Key::task(&task.spec.namespace, task.id());
        lab.store_task(task).await;
        lab.put(&note_in(&named("kept")), Expect::Absent, note("one")).await;
        applied(lab.commit(vec![delete(note_in(&named("kept")))]).await);
        assert_eq!(all(&lab).await, ["kept"], "it has a task that is {phase}");
        applied(lab.commit(vec![delete(key)]).await);
        assert_none(&lab).await;
    }
}

/// C25
pub async fn a_listing_goes_on_behind_a_namespace_that_is_gone(lab: Lab) {
    for name in ["a", "b", "c", "d"] {
        lab.put(&note_in(&named(name)), Expect::Absent, note("one")).await;
    }
    let page = lab.store().namespaces(None, 2).await.expect("a read on a store without faults");
    assert_eq!((page.items, page.cursor.as_deref()), (vec![named("a"), named("b")], Some("b")));
    applied(lab.commit(vec![delete(note_in(&named("b")))]).await);
    assert_eq!(names(&lab, Some("b"), 2).await, ["c", "d"]);
    assert_eq!(names(&lab, Some("bb"), 2).await, ["c", "d"], "behind a name that never was");
}

/// C9, C25: also where everything that a namespace has has ended.
pub async fn namespaces_survive_with_what_is_in_them(lab: Lab) {
    for phase in Phase::ALL {
        let namespace = named(phase.as_str());
        lab.store_task(lab.in_phase(Spec { namespace, ..lab.spec("t") }, phase)).await;
    }
    lab.put(&note_in(&named("note")), Expect::Absent, note("one")).await;
    lab.put(&note_in(&named("gone")), Expect::Absent, note("one")).await;
    applied(lab.commit(vec![delete(note_in(&named("gone")))]).await);
    let mut known: Vec<&str> = Phase::ALL.iter().map(|phase| phase.as_str()).chain(["note"]).collect();
    known.sort_unstable();
    for _ in 0..2 {
        let mut found = all(&lab).await;
        found.retain(|name| lab.store().info().exact_index || name != "gone");
        assert_eq!(found, known);
        if !lab.reopen().await {
            return;
        }
    }
}
