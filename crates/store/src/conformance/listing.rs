//! Cases: listings of tasks. Order, filters, pages, and pages of a listing that changes meanwhile.

use std::sync::Arc;

use ekiden_core::claim::Claim;
use ekiden_core::commit::{Commit, Expect, Write};
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{GroupId, SessionId};
use ekiden_core::lease::Token;
use ekiden_core::limits;
use ekiden_core::record::{Record, Versioned};
use ekiden_core::retry::FailureKind;
use ekiden_core::task::{Phase, Spec};
use ekiden_core::time::Millis;
use ekiden_core::transition::Start;

use super::lab::{Lab, NOON, applied, delete, kind, ns, other_ns, pool, runner, task_key, texts};
use crate::op::Op;
use crate::query::{ListOrder, Page, TaskQuery};

use ListOrder::{NewestFirst, OldestFirst};

fn all() -> TaskFilter {
    TaskFilter::all(ns())
}

async fn page(lab: &Lab, filter: &TaskFilter, cursor: Option<String>, limit: usize) -> Page<Versioned> {
    let query = TaskQuery { filter: filter.clone(), order: OldestFirst, cursor, limit };
    lab.store().tasks(query).await.expect("a read on a store without faults")
}

fn names(page: &Page<Versioned>) -> Vec<String> {
    page.items.iter().map(|item| item.key.name.to_string()).collect()
}

/// Waits until a listing holds this many, then begins to page: what follows is about pages, not about lag.
async fn first_page(lab: &Lab, filter: &TaskFilter, there: usize, limit: usize) -> Page<Versioned> {
    lab.soon(there, || async { lab.list(filter.clone(), OldestFirst, 1_000).await.len() }).await;
    page(lab, filter, None, limit).await
}

/// Follows the cursors to the end.
async fn rest(lab: &Lab, filter: &TaskFilter, mut cursor: Option<String>, limit: usize) -> Vec<String> {
    let mut found = Vec::new();
    while cursor.is_some() {
        let next = page(lab, filter, cursor.clone(), limit).await;
        assert_ne!(next.cursor, cursor, "a cursor leads on, or its pages would never end");
        found.extend(names(&next));
        cursor = next.cursor;
    }
    found
}

/// C20
pub async fn tasks_are_listed_by_creation_from_either_end(lab: Lab) {
    for (name, second) in [("c", 2), ("a", 3), ("d", 0), ("b", 1)] {
        lab.enqueue_with(name, |spec| spec.created_at = NOON + Millis::from_secs(second)).await;
    }
    lab.soon(texts(&["d", "b", "c", "a"]), || lab.list(all(), OldestFirst, 10)).await;
    lab.soon(texts(&["a", "c", "b", "d"]), || lab.list(all(), NewestFirst, 10)).await;
}

/// C20
pub async fn tasks_of_one_moment_are_listed_by_id(lab: Lab) {
    for name in ["b", "Z", "駅", "a b", "a", "a:b"] {
        lab.enqueue(name).await;
    }
    lab.enqueue_with("0", |spec| spec.created_at = NOON + Millis::new(1)).await;
    let expected = ["Z", "a", "a b", "a:b", "b", "駅", "0"];
    let mut reversed = expected;
    reversed.reverse();
    for limit in [1, 2, 7, 100] {
        lab.soon(texts(&expected), || lab.list(all(), OldestFirst, limit)).await;
        lab.soon(texts(&reversed), || lab.list(all(), NewestFirst, limit)).await;
    }
}

/// C20
pub async fn pages_of_any_size_give_every_task_once(lab: Lab) {
    let created: Vec<String> = (0..23).map(|n| format!("t-{n:02}")).collect();
    for (n, name) in created.iter().enumerate() {
        let moment = NOON + Millis::new(n as u64 / 3);
        lab.enqueue_with(name, |spec| spec.created_at = moment).await;
    }
    for limit in [1, 2, 22, 23, 24, limits::PAGE_ITEMS_MAX] {
        lab.soon(created.clone(), || lab.list(all(), OldestFirst, limit)).await;
        let mut newest: Vec<String> = created.clone();
        newest.reverse();
        lab.soon(newest, || lab.list(all(), NewestFirst, limit)).await;
    }
}

/// C20
pub async fn an_item_is_the_record_as_get_gives_it(lab: Lab) {
    lab.enqueue("a").await;
    lab.take().await;
    let held = TaskFilter { phases: vec![Phase::Running], ..all() };
    let listed = first_page(&lab, &held, 1, 10).await;
    assert_eq!(listed.items.first().cloned(), lab.get(&task_key("a")).await);
}

async fn varied(lab: &Lab) {
    let put = |name: &str, phase, change: &dyn Fn(&mut Spec)| {
        let mut spec = lab.spec(name);
        change(&mut spec);
        lab.in_phase(spec, phase)
    };
    let (g, s) = (GroupId::new("g #1").ok(), SessionId::new("s/1").ok());
    for task in [
        put("a", Phase::Queued, &|_| {}),
        put("b", Phase::Running, &|spec| spec.pool = pool("mail")),
        put("c", Phase::Dead, &|spec| spec.envelope.task_type = kind("send")),
        put("d", Phase::Running, &|spec| spec.group.clone_from(&g)),
        put("e", Phase::Queued, &|spec| spec.session.clone_from(&s)),
        put("f", Phase::Running, &|spec| (spec.group, spec.session) = (g.clone(), s.clone())),
        put("h", Phase::Cancelled, &|spec| (spec.group, spec.pool) = (g.clone(), pool("mail"))),
    ] {
        lab.store_task(task).await;
    }
}

/// C20
pub async fn every_field_of_a_filter_selects(lab: Lab) {
    varied(&lab).await;
    lab.lists(all(), &["a", "b", "c", "d", "e", "f", "h"]).await;
    lab.lists(TaskFilter { phases: vec![Phase::Dead], ..all() }, &["c"]).await;
    lab.lists(TaskFilter { phases: vec![Phase::Succeeded], ..all() }, &[]).await;
    lab.lists(TaskFilter { pool: Some(pool("mail")), ..all() }, &["b", "h"]).await;
    lab.lists(TaskFilter { pool: Some(pool("mai")), ..all() }, &[]).await;
    lab.lists(TaskFilter { kind: Some(kind("send")), ..all() }, &["c"]).await;
    lab.lists(TaskFilter { group: GroupId::new("g #1").ok(), ..all() }, &["d", "f", "h"]).await;
    lab.lists(TaskFilter { session: SessionId::new("s/1").ok(), ..all() }, &["e", "f"]).await;
    lab.lists(TaskFilter::held_by(ns(), runner("runner-1")), &["b", "d", "f"]).await;
    lab.lists(TaskFilter::held_by(ns(), runner("runner-2")), &[]).await;
    lab.lists(TaskFilter::all(other_ns()), &[]).await;
}

/// C20
pub async fn fields_of_a_filter_combine(lab: Lab) {
    varied(&lab).await;
    let group = TaskFilter { group: GroupId::new("g #1").ok(), ..all() };
    let running = TaskFilter { phases: vec![Phase::Running], ..group.clone() };
    lab.lists(running.clone(), &["d", "f"]).await;
    lab.lists(TaskFilter { session: SessionId::new("s/1").ok(), ..running.clone() }, &["f"]).await;
    lab.lists(TaskFilter { pool: Some(pool("mail")), ..running }, &[]).await;
    lab.lists(TaskFilter { pool: Some(pool("mail")), ..group.clone() }, &["h"]).await;
    let held = TaskFilter::held_by(ns(), runner("runner-1"));
    lab.lists(TaskFilter { group: group.group, ..held.clone() }, &["d", "f"]).await;
    lab.lists(TaskFilter { pool: Some(pool("mail")), ..held.clone() }, &["b"]).await;
    lab.lists(TaskFilter { phases: vec![Phase::Queued], ..held.clone() }, &[]).await;
    lab.lists(TaskFilter { kind: Some(kind("send")), ..held }, &[]).await;
    let greet = TaskFilter { kind: Some(kind("greet")), pool: Some(pool("work")), ..all() };
    lab.lists(TaskFilter { phases: vec![Phase::Queued], ..greet.clone() }, &["a", "e"]).await;
    lab.lists(TaskFilter { text: Some(Arc::from("e")), phases: vec![Phase::Dead], ..greet }, &[]).await;
}

/// C20
pub async fn several_phases_are_listed_as_one(lab: Lab) {
    for (age, phase) in (1..).zip(Phase::ALL) {
        let created_at = NOON - Millis::new(age);
        lab.store_task(lab.in_phase(Spec { created_at, ..lab.spec(phase.as_str()) }, phase)).await;
    }
    let some = TaskFilter { phases: vec![Phase::Queued, Phase::Dead, Phase::Pending], ..all() };
    for limit in [1, 2, 100] {
        lab.soon(texts(&["dead", "queued", "pending"]), || lab.list(some.clone(), OldestFirst, limit)).await;
        lab.soon(texts(&["pending", "queued", "dead"]), || lab.list(some.clone(), NewestFirst, limit)).await;
    }
    let twice = TaskFilter { phases: vec![Phase::Dead, Phase::Dead], ..all() };
    lab.lists(twice, &["dead"]).await;
    let nine = TaskFilter { phases: Phase::ALL.to_vec(), ..all() };
    lab.soon(9, || async { lab.list(nine.clone(), OldestFirst, 2).await.len() }).await;
}

/// C20: a cancelled task is held until its attempt has truly ended.
pub async fn held_by_follows_the_attempt_not_the_phase(lab: Lab) {
    for name in ["a", "b", "c"] {
        lab.enqueue(name).await;
    }
    let mut taken = Vec::new();
    while taken.len() < 3 {
        let more = lab.claim(Claim { limit: 3 - taken.len(), ..lab.claim_one() }).await;
        assert!(!more.is_empty(), "three can be claimed");
        taken.extend(more);
    }
    let held = TaskFilter::held_by(ns(), runner("runner-1"));
    lab.lists(held.clone(), &["a", "b", "c"]).await;
    let cancelled = lab.cancel("a").await;
    lab.changed("b", Event::Succeeded { token: Token(1), result: None }).await;
    lab.lists(held.clone(), &["a", "c"]).await;
    lab.end_attempt(&cancelled).await;
    lab.lists(held, &["c"]).await;
}

/// C20
pub async fn text_is_found_in_id_title_error_and_payload(lab: Lab) {
    lab.enqueue("id-needle-1").await;
    lab.enqueue_with("title", |spec| spec.title = Some(Arc::from("a needle 針"))).await;
    lab.enqueue_with("payload", |spec| spec.envelope.payload = "{\"x\":\"needle\"}".into()).await;
    lab.enqueue("none").await;
    let failed = lab.in_phase(lab.spec("error"), Phase::Running);
    let event = Event::Failed { token: Token(1), kind: FailureKind::Permanent, error: Arc::from("no needle here") };
    lab.store_task(lab.after(&failed, &event)).await;
    let text = |text: &str| TaskFilter { text: Some(Arc::from(text)), ..all() };
    lab.lists(text("needle"), &["error", "id-needle-1", "payload", "title"]).await;
    lab.lists(text("needle 針"), &["title"]).await;
    lab.lists(text("NEEDLE"), &[]).await;
    lab.lists(TaskFilter { phases: vec![Phase::Dead], ..text("needle") }, &["error"]).await;
}

/// C20
pub async fn nothing_is_an_empty_last_page(lab: Lab) {
    assert_eq!(page(&lab, &all(), None, 10).await, Page { items: Vec::new(), cursor: None });
    lab.enqueue("a").await;
    applied(lab.commit(vec![delete(task_key("a"))]).await);
    for order in [OldestFirst, NewestFirst] {
        lab.soon(Vec::new(), || lab.list(all(), order, 1)).await;
    }
}

/// C20: a listing of all tasks does not care what becomes of them.
pub async fn tasks_that_change_phase_between_pages_are_listed_once(lab: Lab) {
    let created: Vec<String> = (0..6).map(|n| format!("t-{n}")).collect();
    for name in &created {
        lab.enqueue(name).await;
    }
    let first = first_page(&lab, &all(), 6, 2).await;
    let mut seen = names(&first);
    for name in ["t-0", "t-1", "t-3", "t-5"] {
        lab.cancel(name).await;
    }
    seen.extend(rest(&lab, &all(), first.cursor, 2).await);
    assert_eq!(seen, created);
}

/// C20: those that matched all along come exactly once, whatever the others do.
pub async fn tasks_that_match_all_along_are_listed_once(lab: Lab) {
    for n in 0..8 {
        let created_at = NOON + Millis::new(n * 10);
        lab.enqueue_with(&format!("t-{n}"), |spec| spec.created_at = created_at).await;
    }
    let queued = TaskFilter { phases: vec![Phase::Queued], ..all() };
    let first = first_page(&lab, &queued, 8, 3).await;
    let mut seen = names(&first);
    assert_eq!(seen, ["t-0", "t-1", "t-2"]);
    for name in ["t-0", "t-2", "t-3", "t-6"] {
        lab.cancel(name).await;
    }
    for (name, created_at) in [("early", NOON + Millis::new(5)), ("late", NOON + Millis::new(45))] {
        lab.enqueue_with(name, |spec| spec.created_at = created_at).await;
    }
    seen.extend(rest(&lab, &queued, first.cursor, 2).await);
    let all_along: Vec<&String> = seen.iter().filter(|name| ["t-1", "t-4", "t-5", "t-7"].contains(&&***name)).collect();
    assert_eq!(all_along, ["t-1", "t-4", "t-5", "t-7"]);
    let mut once = seen.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), seen.len(), "nobody comes twice: {seen:?}");
    assert!(!seen.contains(&"early".to_owned()), "what came before the cursor is passed: {seen:?}");
}

/// C20
pub async fn a_cursor_stays_good_when_its_task_is_gone(lab: Lab) {
    for n in 0..5 {
        lab.enqueue(&format!("t-{n}")).await;
    }
    let first = first_page(&lab, &all(), 5, 2).await;
    assert_eq!(names(&first), ["t-0", "t-1"]);
    assert!(first.cursor.is_some(), "three follow");
    applied(lab.commit(["t-0", "t-1", "t-2"].map(|name| delete(task_key(name))).to_vec()).await);
    let filter = all();
    lab.soon(texts(&["t-3", "t-4"]), || rest(&lab, &filter, first.cursor.clone(), 1)).await;
}

/// C20: newest first, tasks that come meanwhile belong before the first page and disturb none.
pub async fn newcomers_do_not_disturb_a_listing_from_the_newest(lab: Lab) {
    for n in 0..4 {
        lab.enqueue_with(&format!("t-{n}"), |spec| spec.created_at = NOON + Millis::new(n)).await;
    }
    lab.lists(all(), &["t-0", "t-1", "t-2", "t-3"]).await;
    let query = TaskQuery { filter: all(), order: NewestFirst, cursor: None, limit: 2 };
    let first = lab.store().tasks(query.clone()).await.expect("a read on a store without faults");
    assert_eq!(names(&first), ["t-3", "t-2"]);
    lab.enqueue_with("t-9", |spec| spec.created_at = NOON + Millis::new(9)).await;
    let next = TaskQuery { cursor: first.cursor, limit: 10, ..query };
    let second = lab.store().tasks(next).await.expect("a read on a store without faults");
    assert_eq!(names(&second), ["t-1", "t-0"]);
}

/// More tasks than a page may read: 1,200, of which three have a title, the last beyond what one page reads.
async fn many(lab: &Lab) -> usize {
    let total = limits::PAGE_SCAN_MAX + 200;
    let task = |n: usize| {
        let title = [100, 600, 1_150].contains(&n).then(|| Arc::from("needle"));
        let created_at = NOON + Millis::new(n as u64);
        lab.newborn(Spec { title, created_at, ..lab.spec(&format!("t-{n:04}")) }, Start::Released)
    };
    let put = |n| Write::put(task_key(&format!("t-{n:04}")), Expect::Absent, Record::from(task(n)));
    let numbers: Vec<usize> = (0..total).collect();
    let commits = numbers.chunks(limits::COMMIT_WRITES_MAX).map(|some| some.iter().map(|n| put(*n)).collect());
    let ops = commits.map(|writes| Op::Commit(Commit::new(lab.op(), writes).expect("a well-formed commit"))).collect();
    lab.apply(ops).await.into_iter().for_each(|answer| drop(applied(answer)));
    total
}

/// C20: a filter that lets little through ends, by pages that may be empty.
pub async fn a_filter_that_matches_little_of_much_comes_to_its_end(lab: Lab) {
    let total = many(&lab).await;
    lab.soon(total, || async { lab.list(all(), OldestFirst, 1_000).await.len() }).await;
    let needles = TaskFilter { text: Some(Arc::from("needle")), ..all() };
    for limit in [1, 2, 1_000] {
        let (mut cursor, mut found, mut pages) = (None, Vec::new(), 0);
        loop {
            let next = page(&lab, &needles, cursor, limit).await;
            assert!(next.items.len() <= limit, "a page holds no more than was asked for");
            found.extend(names(&next));
            pages += 1;
            cursor = next.cursor;
            if cursor.is_none() {
                break;
            }
            assert!(pages <= total, "the cursors come to an end");
        }
        assert_eq!(found, ["t-0100", "t-0600", "t-1150"], "in pages of {limit}");
    }
    for (name, order) in [("t-1199", OldestFirst), ("t-0000", NewestFirst)] {
        let one = TaskFilter { text: Some(Arc::from(name)), ..all() };
        assert_eq!(lab.list(one, order, 10).await, [name], "the last of all, after a page without any");
    }
    let nowhere = TaskFilter { text: Some(Arc::from("nowhere")), ..all() };
    assert_eq!(lab.list(nowhere, NewestFirst, 10).await.len(), 0);
}

/// C20
pub async fn more_tasks_than_a_page_holds_are_listed_once(lab: Lab) {
    let total = many(&lab).await;
    let expected: Vec<String> = (0..total).map(|n| format!("t-{n:04}")).collect();
    lab.soon(expected, || lab.list(all(), OldestFirst, limits::PAGE_ITEMS_MAX)).await;
    let queued = TaskFilter { phases: vec![Phase::Queued], ..all() };
    lab.soon(total, || async { lab.list(queued.clone(), NewestFirst, 333).await.len() }).await;
}
