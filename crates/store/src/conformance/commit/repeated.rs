//! Cases: commits that are sent again because a reply got lost.

use std::sync::Arc;

use ekiden_core::claim::Claim;
use ekiden_core::commit::{Expect, Write};
use ekiden_core::id::{Namespace, UniqueKey};
use ekiden_core::key::Key;
use ekiden_core::record::Record;
use ekiden_core::transition::Start;

use super::{is, put_at, put_new, running, subjects};
use crate::conformance::lab::{
    Lab, add, applied, check, delete, delete_at, found, note, note_key, ns, other_ns, task_key, tasks_of,
};

/// C5
pub async fn a_repeated_create_changes_nothing(lab: Lab) {
    for (key, first, _) in subjects(&lab) {
        let op = lab.op();
        let writes = vec![Write::put(key.clone(), Expect::Absent, first)];
        let revisions = applied(lab.commit_as(op, writes.clone()).await);
        let created = lab.get(&key).await;
        for _ in 0..2 {
            assert_eq!(applied(lab.commit_as(op, writes.clone()).await), revisions);
            assert_eq!(lab.get(&key).await, created);
        }
    }
}

/// C5
pub async fn a_repeated_replacement_changes_nothing(lab: Lab) {
    for (key, first, second) in subjects(&lab) {
        let op = lab.op();
        let old = lab.put(&key, Expect::Absent, first).await;
        let writes = vec![Write::put(key.clone(), Expect::At(old), second)];
        let revisions = applied(lab.commit_as(op, writes.clone()).await);
        let replaced = lab.get(&key).await;
        assert_eq!(applied(lab.commit_as(op, writes).await), revisions);
        assert_eq!(lab.get(&key).await, replaced);
    }
}

/// C5: the creator is remembered for as long as the record lives.
pub async fn a_repeated_create_is_known_after_others_replaced_the_record(lab: Lab) {
    for (key, first, second) in subjects(&lab) {
        let op = lab.op();
        let writes = vec![Write::put(key.clone(), Expect::Absent, first)];
        let created = applied(lab.commit_as(op, writes.clone()).await).remove(0).expect("a put has a revision");
        let now = lab.put(&key, Expect::At(created), second).await;
        let replaced = lab.get(&key).await;
        assert_eq!(applied(lab.commit_as(op, writes).await), [Some(now)], "the record's revision now");
        assert_eq!(lab.get(&key).await, replaced);
    }
}

/// C5: nothing proves any more that it happened, so its expectation is looked at anew.
pub async fn a_repeated_replacement_that_was_overwritten_conflicts(lab: Lab) {
    for (key, first, second) in subjects(&lab) {
        let op = lab.op();
        let old = lab.put(&key, Expect::Absent, first.clone()).await;
        let writes = vec![Write::put(key.clone(), Expect::At(old), second)];
        let mine = applied(lab.commit_as(op, writes.clone()).await).remove(0).expect("a put has a revision");
        lab.put(&key, Expect::At(mine), first).await;
        let current = lab.get(&key).await;
        assert_eq!(found(lab.commit_as(op, writes).await), [(key.clone(), current.clone())]);
        assert_eq!(lab.get(&key).await, current);
    }
}

/// C5
pub async fn one_put_that_is_still_there_proves_the_whole_commit(lab: Lab) {
    let [a, b] = [
        lab.put(&note_key("a"), Expect::Absent, note("one")).await,
        lab.put(&note_key("b"), Expect::Absent, note("one")).await,
    ];
    let op = lab.op();
    let writes = vec![put_at("a", &a, "two"), put_at("b", &b, "two"), add(running(), 7)];
    let mine = applied(lab.commit_as(op, writes.clone()).await);
    let over = mine.first().cloned().flatten().expect("a put has a revision");
    let now = lab.put(&note_key("a"), Expect::At(over), note("three")).await;
    let before = lab.snapshot(&[]).await;
    let again = applied(lab.commit_as(op, writes).await);
    assert_eq!(again.first(), Some(&Some(now)));
    assert_eq!(again.get(1), mine.get(1));
    assert_eq!(lab.snapshot(&[]).await, before, "neither put nor add was done again");
}

/// C5, C6
pub async fn a_repeated_add_is_not_doubled(lab: Lab) {
    let op = lab.op();
    let writes = vec![add(running(), 2), put_new("k-1", "one")];
    for _ in 0..3 {
        applied(lab.commit_as(op, writes.clone()).await);
        assert_eq!(lab.counter(&running()).await, 2);
    }
    applied(lab.commit(vec![add(running(), 1), put_new("k-2", "one")]).await);
    applied(lab.commit_as(op, writes).await);
    assert_eq!(lab.counter(&running()).await, 3, "nor after another add");
}

/// C5: what others made since is not this commit's to delete.
pub async fn a_repeated_commit_does_not_delete_again(lab: Lab) {
    let op = lab.op();
    lab.put(&note_key("gone"), Expect::Absent, note("one")).await;
    let writes = vec![delete(note_key("gone")), put_new("k-1", "one")];
    applied(lab.commit_as(op, writes.clone()).await);
    lab.put(&note_key("gone"), Expect::Absent, note("two")).await;
    applied(lab.commit_as(op, writes).await);
    is(&lab, "gone", "two").await;
}

/// C5
pub async fn a_repeated_commit_is_known_although_its_check_fails_now(lab: Lab) {
    let op = lab.op();
    let guard = lab.put(&note_key("guard"), Expect::Absent, note("one")).await;
    let writes = vec![check(note_key("guard"), Expect::At(guard.clone())), put_new("k-1", "one")];
    applied(lab.commit_as(op, writes.clone()).await);
    lab.put(&note_key("guard"), Expect::At(guard), note("two")).await;
    applied(lab.commit_as(op, writes).await);
}

/// C5
pub async fn repeated_deletes_with_nothing_left_are_applied(lab: Lab) {
    let (by_revision, blind) = (lab.op(), lab.op());
    let a = lab.put(&note_key("a"), Expect::Absent, note("one")).await;
    let b = lab.put(&note_key("b"), Expect::Absent, note("one")).await;
    lab.put(&note_key("c"), Expect::Absent, note("one")).await;
    let both = vec![delete_at(note_key("a"), a), delete_at(note_key("b"), b)];
    for _ in 0..2 {
        assert_eq!(applied(lab.commit_as(by_revision, both.clone()).await), [None, None]);
        assert_eq!(applied(lab.commit_as(blind, vec![delete(note_key("c"))]).await), [None]);
    }
    assert_eq!(lab.snapshot(&[]).await, []);
}

/// C5: a put would prove it, but there is none; a delete alone proves nothing while something is there.
pub async fn repeated_deletes_are_looked_at_anew_when_something_came_back(lab: Lab) {
    let op = lab.op();
    let a = lab.put(&note_key("a"), Expect::Absent, note("one")).await;
    lab.put(&note_key("b"), Expect::Absent, note("one")).await;
    let writes = vec![delete_at(note_key("a"), a), delete(note_key("b"))];
    applied(lab.commit_as(op, writes.clone()).await);
    lab.put(&note_key("b"), Expect::Absent, note("two")).await;
    assert_eq!(found(lab.commit_as(op, writes).await), [(note_key("a"), None)]);
    is(&lab, "b", "two").await;
}

/// C4, C5: deleting forgets the creator, which is why no young task is purged.
pub async fn a_repeated_create_after_a_delete_creates_again(lab: Lab) {
    let op = lab.op();
    let writes = vec![put_new("k-1", "one")];
    applied(lab.commit_as(op, writes.clone()).await);
    applied(lab.commit(vec![delete(note_key("k-1"))]).await);
    applied(lab.commit_as(op, writes).await);
    let created = lab.get(&note_key("k-1")).await.expect("it is there again");
    assert_eq!((created.created_by, created.last), (op, op));
}

/// C1, C5: a conflict leaves no trace of its id.
pub async fn a_commit_that_conflicted_is_applied_when_its_expectations_hold(lab: Lab) {
    let op = lab.op();
    lab.put(&note_key("taken"), Expect::Absent, note("one")).await;
    let writes = vec![put_new("k-1", "one"), put_new("taken", "two"), add(running(), 1)];
    assert_eq!(found(lab.commit_as(op, writes.clone()).await).len(), 1);
    applied(lab.commit(vec![delete(note_key("taken"))]).await);
    applied(lab.commit_as(op, writes).await);
    is(&lab, "k-1", "one").await;
    is(&lab, "taken", "two").await;
    assert_eq!(lab.counter(&running()).await, 1);
}

/// C5: index entries are not doubled either.
pub async fn a_repeated_enqueue_gives_one_task_to_claim(lab: Lab) {
    let op = lab.op();
    let task = lab.newborn(lab.spec("t-1"), Start::Released);
    let writes = vec![Write::put(task_key("t-1"), Expect::Absent, Record::Task(Arc::new(task)))];
    for _ in 0..2 {
        applied(lab.commit_as(op, writes.clone()).await);
    }
    assert_eq!(lab.take_ids(10).await, ["t-1"]);
    applied(lab.commit_as(op, writes).await);
    let again = lab.claim_now(Claim { limit: 10, ..lab.claim_one() }).await;
    assert!(tasks_of(again).is_empty(), "a repeated enqueue does not take a running task back");
}

/// C26, C5, C22: a commit is carried out although its id was used before, in another namespace or for other records.
pub async fn a_commit_id_says_nothing_of_records_that_it_did_not_put(lab: Lab) {
    let op = lab.op();
    let key = |namespace: Namespace, name| Key::unique(&namespace, &UniqueKey::new(name).expect("a valid id"));
    let keys = [key(ns(), "a"), key(other_ns(), "a"), key(ns(), "b")];
    for (number, of) in keys.iter().enumerate() {
        let content = note(&format!("t-{number}"));
        applied(lab.commit_as(op, vec![Write::put(of.clone(), Expect::Absent, content.clone())]).await);
        assert_eq!(lab.get(of).await.map(|found| found.record), Some(content), "{of} was written");
    }
    let theirs = lab.get(&keys[1]).await.expect("it was written");
    let mine = vec![delete(keys[0].clone())];
    applied(lab.commit_as(op, mine).await);
    assert_eq!((lab.get(&keys[0]).await, lab.get(&keys[1]).await), (None, Some(theirs)));
}
