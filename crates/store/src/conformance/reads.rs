//! Cases: one call with many ops, reads in order, namespaces, hints, and the end of a store.

use std::time::Duration;

use ekiden_core::claim::{Claim, ClaimPool};
use ekiden_core::commit::{Commit, Expect, Write};
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{Namespace, UniqueKey};
use ekiden_core::index::DueIndex;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lease::Token;
use ekiden_core::limits;
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Record;
use ekiden_core::task::{Phase, Spec, Task};
use ekiden_core::time::Millis;
use ekiden_core::transition::Start;
use tokio::sync::broadcast;

use super::lab::{Lab, add, applied, delete, found, id, note, note_key, ns, other_ns, pool, task_key, tasks_of};
use crate::error::StoreError;
use crate::ext::StoreExt;
use crate::op::{Answer, Op};
use crate::query::{CountScope, DueQuery, ListOrder, RecordQuery, TaskQuery};
use crate::store::{CheckDepth, Hint};

/// How long a hint may take. Generous: only a store that gives none waits it out.
const HINT_WAIT: Duration = Duration::from_secs(10);

fn commit(lab: &Lab, writes: Vec<Write>) -> Op {
    Op::Commit(Commit::new(lab.op(), writes).expect("a well-formed commit"))
}

fn create(lab: &Lab, name: &str, text: &str) -> Op {
    commit(lab, vec![Write::put(note_key(name), Expect::Absent, note(text))])
}

fn new_task(lab: &Lab, name: &str) -> Op {
    let task = Record::from(lab.newborn(lab.spec(name), Start::Released));
    commit(lab, vec![Write::put(task_key(name), Expect::Absent, task)])
}

/// C18
pub async fn get_answers_in_the_order_of_the_keys(lab: Lab) {
    for name in ["b", "a", "c"] {
        lab.put(&note_key(name), Expect::Absent, note(name)).await;
    }
    lab.enqueue("a").await;
    let keys = vec![
        note_key("c"),
        task_key("unknown"),
        note_key("a"),
        task_key("a"),
        note_key("c"),
        note_key("unknown"),
        note_key("b"),
    ];
    let answers = lab.store().get(keys.clone()).await.expect("a read on a store without faults");
    assert_eq!(answers.len(), keys.len(), "one answer a key");
    for (key, answer) in keys.iter().zip(answers) {
        let known = !key.name.contains("unknown");
        assert_eq!(answer.map(|found| found.key), known.then(|| key.clone()));
    }
}

/// C18
pub async fn the_same_key_twice_is_answered_twice(lab: Lab) {
    lab.put(&note_key("a"), Expect::Absent, note("one")).await;
    let one = lab.get(&note_key("a")).await;
    assert!(one.is_some(), "it is there");
    let answers = lab.store().get(vec![note_key("a"), note_key("a")]).await.expect("a read");
    assert_eq!(answers, [one.clone(), one]);
}

/// C18
pub async fn as_many_keys_as_a_read_may_hold_are_answered(lab: Lab) {
    lab.put(&note_key("k-0007"), Expect::Absent, note("one")).await;
    let keys = (0..limits::GET_KEYS_MAX).map(|n| note_key(&format!("k-{n:04}"))).collect();
    let answers = lab.store().get(keys).await.expect("a read on a store without faults");
    let there: Vec<usize> = answers.iter().enumerate().filter(|(_, found)| found.is_some()).map(|(at, _)| at).collect();
    assert_eq!((answers.len(), there), (limits::GET_KEYS_MAX, vec![7]));
}

/// C8, C18
pub async fn no_keys_and_no_ops_have_no_answers(lab: Lab) {
    assert_eq!(lab.store().get(Vec::new()).await.expect("a read").len(), 0);
    assert_eq!(lab.store().apply(Vec::new()).await.len(), 0);
}

/// C18: a read after the answer sees the write, also from another handle.
pub async fn get_and_records_see_every_applied_commit(lab: Lab) {
    for n in 0..50 {
        let name = format!("k-{n:02}");
        assert_eq!(lab.get(&note_key(&name)).await, None, "nothing is there yet");
        let revision = lab.put(&note_key(&name), Expect::Absent, note("one")).await;
        assert_eq!(lab.get(&note_key(&name)).await.map(|found| found.revision), Some(revision));
        assert_eq!(lab.names(RecordKind::Unique, &name, 1).await, [name]);
    }
    let clone = lab.clone();
    let seen = tokio::spawn(async move { clone.names(RecordKind::Unique, "", 100).await.len() });
    assert_eq!(seen.await.expect("the task ends"), 50);
}

/// C8
pub async fn later_commits_of_one_call_see_earlier_ones(lab: Lab) {
    let ops = vec![
        create(&lab, "a", "one"),
        create(&lab, "a", "two"),
        commit(&lab, vec![delete(note_key("a"))]),
        create(&lab, "a", "three"),
    ];
    let first = ops.first().map(Op::id);
    let mut answers = lab.apply(ops).await.into_iter();
    applied(answers.next().expect("an answer"));
    let met = found(answers.next().expect("an answer")).remove(0).1.expect("the first commit's record");
    assert_eq!((met.record, Some(met.created_by)), (note("one"), first));
    applied(answers.next().expect("an answer"));
    applied(answers.next().expect("an answer"));
    assert_eq!(answers.next(), None);
    assert_eq!(lab.get(&note_key("a")).await.map(|found| found.record), Some(note("three")));
}

/// C8
pub async fn a_conflict_stops_no_other_op(lab: Lab) {
    lab.put(&note_key("taken"), Expect::Absent, note("one")).await;
    let ops = vec![create(&lab, "a", "one"), create(&lab, "taken", "two"), create(&lab, "b", "one")];
    let answers = lab.apply(ops).await;
    assert!(
        matches!(answers.as_slice(), [Answer::Applied(_), Answer::Conflict(_), Answer::Applied(_)]),
        "one answer an op, in order: {answers:?}"
    );
    assert_eq!(lab.names(RecordKind::Unique, "", 10).await, ["a", "b", "taken"]);
}

/// C8
pub async fn an_error_of_one_op_stops_no_other(lab: Lab) {
    let wrong = Claim { limit: 0, ..lab.claim_one() };
    let outcomes = lab.store().apply(vec![create(&lab, "a", "one"), Op::Claim(wrong), create(&lab, "b", "one")]).await;
    assert!(
        matches!(outcomes.as_slice(), [Ok(Answer::Applied(_)), Err(_), Ok(Answer::Applied(_))]),
        "one answer an op, in order: {outcomes:?}"
    );
    assert_eq!(lab.names(RecordKind::Unique, "", 10).await, ["a", "b"]);
}

/// C5, C8
pub async fn the_same_commit_twice_in_one_call_happens_once(lab: Lab) {
    let counter = Key::running(&ns(), &pool("work"));
    let writes = vec![Write::put(note_key("a"), Expect::Absent, note("one")), add(counter.clone(), 1)];
    let op = commit(&lab, writes);
    let answers: Vec<_> = lab.apply(vec![op.clone(), op.clone(), op]).await.into_iter().map(applied).collect();
    assert!(answers.iter().all(|answer| Some(answer) == answers.first()), "three times the same: {answers:?}");
    assert_eq!((answers.len(), lab.counter(&counter).await), (3, 1));
}

/// C8
pub async fn as_many_ops_as_a_call_may_hold_are_answered_in_order(lab: Lab) {
    let names: Vec<String> = (0..limits::APPLY_OPS_MAX).map(|n| format!("k-{n:04}")).collect();
    let answers = lab.apply(names.iter().map(|name| create(&lab, name, "one")).collect()).await;
    assert_eq!(answers.len(), names.len());
    let stored = lab.store().get(names.iter().map(|name| note_key(name)).collect()).await.expect("a read");
    for (answer, stored) in answers.into_iter().zip(stored) {
        assert_eq!(applied(answer), [stored.map(|stored| stored.revision)]);
    }
    assert_eq!(lab.names(RecordKind::Unique, "", 1_000).await, names);
}

/// C8: a runner ends one task and gets the next in one call.
pub async fn settle_and_claim_go_in_one_call(lab: Lab) {
    lab.enqueue("a").await;
    let first = lab.take().await;
    lab.enqueue("b").await;
    let held = lab.get(&task_key("a")).await.expect("it is held");
    let done = lab.after(&first, &Event::Succeeded { token: Token(1), result: None });
    let settle = commit(&lab, vec![Write::put(held.key, Expect::At(held.revision), Record::from(done))]);
    let answers = lab.apply(vec![settle, Op::Claim(lab.claim_one())]).await;
    let [Answer::Applied(_), Answer::Claimed(claimed)] = answers.as_slice() else {
        panic!("expected a settlement and a claim, got {answers:?}");
    };
    assert_eq!(lab.phase("a").await, Phase::Succeeded);
    let mut taken = tasks_of(claimed.clone());
    if taken.is_empty() && !lab.store().info().exact_index {
        taken = lab.claim(lab.claim_one()).await;
    }
    assert_eq!(taken.iter().map(|task| task.id().as_str()).collect::<Vec<_>>(), ["b"]);
}

/// C8: where the index is exact, a claim sees the commits before it in its own call, and not those after it.
pub async fn a_claim_sees_the_commits_before_it_in_its_call(lab: Lab) {
    let claim = || Op::Claim(Claim { limit: 10, ..lab.claim_one() });
    let ops = vec![claim(), new_task(&lab, "a"), claim(), new_task(&lab, "b"), new_task(&lab, "c"), claim()];
    let answers = lab.apply(ops).await;
    let taken: Vec<Vec<String>> = answers
        .into_iter()
        .filter_map(|answer| if let Answer::Claimed(claimed) = answer { Some(tasks_of(claimed)) } else { None })
        .map(|tasks| tasks.iter().map(|task| task.id().to_string()).collect())
        .collect();
    if lab.store().info().exact_index {
        assert_eq!(taken, [vec![], vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()]]);
    } else {
        assert_eq!((taken.len(), taken.first()), (3, Some(&Vec::new())));
    }
}

fn spec_in(lab: &Lab, namespace: &Namespace, name: &str) -> Spec {
    Spec { namespace: namespace.clone(), ..lab.spec(name) }
}

async fn both_have(lab: &Lab, name: &str, phase: Phase) {
    for namespace in [ns(), other_ns()] {
        lab.store_task(lab.in_phase(spec_in(lab, &namespace, name), phase)).await;
    }
}

async fn other_task(lab: &Lab, name: &str) -> Option<Task> {
    let found = lab.get(&Key::task(&other_ns(), &id(name))).await?;
    found.record.as_task().map(|task| Task::clone(task))
}

/// C22
pub async fn records_of_one_name_live_apart_in_two_namespaces(lab: Lab) {
    let [mine, other] =
        [ns(), other_ns()].map(|namespace| Key::unique(&namespace, &UniqueKey::new("k-1").expect("a valid id")));
    let revision = lab.put(&mine, Expect::Absent, note("mine")).await;
    assert_eq!(lab.get(&other).await, None);
    lab.put(&other, Expect::Absent, note("other")).await;
    lab.put(&mine, Expect::At(revision), note("mine again")).await;
    assert_eq!(lab.get(&other).await.map(|found| found.record), Some(note("other")));
    assert_eq!(lab.names(RecordKind::Unique, "", 10).await, ["k-1"]);
    applied(lab.commit(vec![delete(mine.clone())]).await);
    assert_eq!(lab.get(&mine).await, None);
    assert_eq!(lab.get(&other).await.map(|found| found.record), Some(note("other")));
    assert_eq!(lab.names(RecordKind::Unique, "", 10).await.len(), 0);
}

/// C22: a commit that names two namespaces writes both or none.
pub async fn a_commit_may_name_two_namespaces(lab: Lab) {
    let key = |namespace: Namespace, name| Key::unique(&namespace, &UniqueKey::new(name).expect("a valid id"));
    let put = |key| Write::put(key, Expect::Absent, note("one"));
    applied(lab.commit(vec![put(key(ns(), "a")), put(key(other_ns(), "b"))]).await);
    assert!(lab.get(&key(other_ns(), "b")).await.is_some(), "both were written");
    let unmet = found(lab.commit(vec![put(key(ns(), "b")), put(key(other_ns(), "b"))]).await);
    assert_eq!(unmet.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [key(other_ns(), "b")]);
    assert_eq!(lab.get(&key(ns(), "b")).await, None);
}

/// C22
pub async fn listings_stay_in_their_namespace(lab: Lab) {
    both_have(&lab, "both", Phase::Running).await;
    lab.store_task(lab.in_phase(spec_in(&lab, &other_ns(), "theirs"), Phase::Queued)).await;
    lab.lists(TaskFilter::all(ns()), &["both"]).await;
    lab.lists(TaskFilter::all(other_ns()), &["both", "theirs"]).await;
    lab.lists(TaskFilter { phases: vec![Phase::Queued], ..TaskFilter::all(ns()) }, &[]).await;
    let held = TaskFilter::held_by(ns(), super::lab::runner("runner-1"));
    applied(lab.commit(vec![delete(task_key("both"))]).await);
    lab.lists(held.clone(), &[]).await;
    lab.lists(TaskFilter { namespace: other_ns(), ..held }, &["both"]).await;
}

/// C22
pub async fn counts_stay_in_their_namespace(lab: Lab) {
    both_have(&lab, "both", Phase::Queued).await;
    lab.store_task(lab.in_phase(spec_in(&lab, &other_ns(), "theirs"), Phase::Queued)).await;
    applied(lab.commit(vec![delete(task_key("both"))]).await);
    for (namespace, queued) in [(ns(), 0), (other_ns(), 2)] {
        for pool in [None, Some(pool("work"))] {
            let scope = CountScope { namespace: namespace.clone(), pool };
            let counts = lab.store().counts(scope).await.expect("a read on a store without faults");
            assert!(!counts.exact || counts.get(Phase::Queued) == queued, "{namespace} has {queued}: {counts:?}");
        }
    }
}

/// C22
pub async fn due_lists_stay_in_their_namespace(lab: Lab) {
    let late = Some(lab.now() + Millis::from_secs(60));
    lab.store_task(lab.newborn(Spec { run_at: late, ..spec_in(&lab, &other_ns(), "theirs") }, Start::Released)).await;
    lab.store_task(lab.newborn(Spec { run_at: late, ..lab.spec("mine") }, Start::Released)).await;
    lab.wait(Millis::from_secs(60));
    lab.lists_due(DueIndex::Promote, &["mine"]).await;
    let theirs = DueQuery { namespace: other_ns(), index: DueIndex::Promote, until: lab.now(), limit: 10 };
    let expected = vec![Key::task(&other_ns(), &id("theirs"))];
    lab.soon(expected, || async {
        let due = lab.store().due(theirs.clone()).await.expect("a read on a store without faults");
        due.into_iter().map(|entry| entry.key).collect()
    })
    .await;
}

/// C22
pub async fn claims_take_only_from_the_namespaces_that_they_name(lab: Lab) {
    lab.enqueue_spec(spec_in(&lab, &other_ns(), "a")).await;
    lab.nothing_to_claim().await;
    lab.enqueue("a").await;
    let mine = lab.claim(Claim { limit: 10, ..lab.claim_one() }).await;
    assert_eq!(mine.iter().map(|task| &task.spec.namespace).collect::<Vec<_>>(), [&ns()]);
    assert_eq!(other_task(&lab, "a").await.map(|task| task.state.phase), Some(Phase::Queued));

    lab.enqueue("b").await;
    let both = [ns(), other_ns()].map(|namespace| ClaimPool::open(namespace, pool("work"))).to_vec();
    let mut left = 2;
    while left > 0 {
        let taken = lab.claim(Claim { pools: both.clone(), limit: 10, ..lab.claim_one() }).await;
        assert!(!taken.is_empty() && taken.len() <= left, "a claim that names two takes from both: {taken:?}");
        left -= taken.len();
    }
    assert_eq!(other_task(&lab, "a").await.map(|task| task.state.phase), Some(Phase::Running));
    assert_eq!(lab.phase("b").await, Phase::Running);
}

/// Waits until a hint comes. Others may come before it, and a watcher that was too slow may have lost some.
async fn hinted(hints: &mut broadcast::Receiver<Hint>, wanted: &Hint) {
    let arrival = tokio::time::timeout(HINT_WAIT, async {
        loop {
            match hints.recv().await {
                Ok(hint) if hint == *wanted => return,
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => panic!("the store stopped giving hints"),
            }
        }
    });
    assert!(arrival.await.is_ok(), "no hint {wanted:?} within {HINT_WAIT:?}");
}

/// C23
pub async fn a_task_that_becomes_claimable_gives_a_hint(lab: Lab) {
    let mut hints = lab.store().watch();
    lab.enqueue("a").await;
    hinted(&mut hints, &Hint::Ready(ns())).await;
    lab.store_task(lab.newborn(lab.spec("b"), Start::Held)).await;
    let mut hints = lab.store().watch();
    lab.changed("b", Event::Released).await;
    hinted(&mut hints, &Hint::Ready(ns())).await;
    let mut hints = lab.store().watch();
    lab.enqueue_spec(spec_in(&lab, &other_ns(), "c")).await;
    hinted(&mut hints, &Hint::Ready(other_ns())).await;
}

/// C23
pub async fn a_changed_record_gives_a_hint(lab: Lab) {
    let mut hints = lab.store().watch();
    lab.put(&note_key("a"), Expect::Absent, note("one")).await;
    hinted(&mut hints, &Hint::Changed(note_key("a"))).await;
    applied(lab.commit(vec![delete(note_key("a"))]).await);
    hinted(&mut hints, &Hint::Changed(note_key("a"))).await;
    lab.enqueue("t-1").await;
    hinted(&mut hints, &Hint::Changed(task_key("t-1"))).await;
    lab.take().await;
    hinted(&mut hints, &Hint::Changed(task_key("t-1"))).await;
}

/// C23: every watcher hears, whatever the others do.
pub async fn every_watcher_gets_the_hint(lab: Lab) {
    let mut first = lab.store().watch();
    let mut second = lab.store().watch();
    drop(lab.store().watch());
    lab.enqueue("a").await;
    hinted(&mut first, &Hint::Ready(ns())).await;
    hinted(&mut second, &Hint::Ready(ns())).await;
}

fn closed<T: std::fmt::Debug>(what: &str, outcome: Result<T, StoreError>) {
    // Not that nothing was written: behind a layer that lost the first of two tries, nobody could know.
    assert_eq!(outcome.expect_err("a closed store answers nothing").code(), ReasonCode::StoreClosed, "{what}");
}

/// C24
pub async fn a_closed_store_refuses_every_call(lab: Lab) {
    lab.enqueue("a").await;
    let store = lab.store();
    store.close().await.expect("an open store can be closed");
    let filter = TaskFilter::all(ns());
    let unique = RecordKind::Unique;
    closed("get", store.get(vec![task_key("a")]).await);
    closed("due", store.due(DueQuery { namespace: ns(), index: DueIndex::Purge, until: lab.now(), limit: 1 }).await);
    closed("tasks", store.tasks(TaskQuery { filter, order: ListOrder::OldestFirst, cursor: None, limit: 1 }).await);
    let query = RecordQuery { namespace: ns(), kind: unique, prefix: String::new(), cursor: None, limit: 1 };
    closed("records", store.records(query).await);
    closed("counts", store.counts(CountScope { namespace: ns(), pool: None }).await);
    closed("namespaces", store.namespaces(None, 1).await);
    closed("check", store.check(CheckDepth::Quick).await);
    closed("check", store.check(CheckDepth::Full).await);
    closed("claim", store.claim(lab.claim_one()).await);
    closed("close", store.close().await);
    let outcomes = store.apply(vec![create(&lab, "b", "one"), Op::Claim(lab.claim_one())]).await;
    assert_eq!(outcomes.len(), 2, "one answer an op, also when closed");
    outcomes.into_iter().for_each(|outcome| closed("apply", outcome));
}

/// C9, C24: what was applied stays, and what was refused after the close is not there.
pub async fn nothing_is_written_after_close(lab: Lab) {
    lab.put(&note_key("a"), Expect::Absent, note("one")).await;
    lab.enqueue("t-1").await;
    let before = lab.snapshot(&["t-1", "t-2"]).await;
    assert_eq!(before.len(), 2, "both are there");
    let store = lab.store();
    store.close().await.expect("an open store can be closed");
    let outcomes = store.apply(vec![create(&lab, "b", "one"), new_task(&lab, "t-2"), Op::Claim(lab.claim_one())]).await;
    outcomes.into_iter().for_each(|outcome| closed("apply", outcome));
    drop(store);
    if lab.reopen().await {
        assert_eq!(lab.snapshot(&["t-1", "t-2"]).await, before);
    }
}
