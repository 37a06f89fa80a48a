//! Cases: commits. Expectations, all or none, what a record remembers, its index entries, and commits that are repeated.

mod repeated;

use ekiden_core::claim::{Claim, LeaseTerm};
use ekiden_core::commit::{Expect, Write};
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{GroupId, SessionId};
use ekiden_core::index::DueIndex;
use ekiden_core::key::Key;
use ekiden_core::lease::{Evidence, Token};
use ekiden_core::limits;
use ekiden_core::newer::Newer;
use ekiden_core::record::{Record, Revision};
use ekiden_core::runner::{Runner, RunnerStatus};
use ekiden_core::task::Phase;
use ekiden_core::time::Millis;
use ekiden_core::transition::Start;

use super::lab::{Lab, add, applied, check, delete, delete_at, found, note, note_key, ns, pool, runner, task_key};

pub use repeated::*;

const MINUTE: Millis = Millis::from_secs(60);

/// Records that stores keep in different ways, each with a second content.
fn subjects(lab: &Lab) -> Vec<(Key, Record, Record)> {
    let held = lab.newborn(lab.spec("t-1"), Start::Held);
    let released = lab.after(&held, &Event::Released);
    let early = living("r-1", lab);
    let late = Runner { last_heartbeat: lab.now() + MINUTE, ..early.clone() };
    vec![
        (note_key("k-1"), note("one"), note("two")),
        (task_key("t-1"), Record::from(held), Record::from(released)),
        (Key::runner(&ns(), &early.id), Record::from(early), Record::from(late)),
        (running(), Record::Counter(3), Record::Counter(-4)),
    ]
}

fn living(name: &str, lab: &Lab) -> Runner {
    Runner {
        namespace: ns(),
        id: runner(name),
        started_at: lab.now(),
        last_heartbeat: lab.now(),
        status: RunnerStatus::Running,
        lease: MINUTE,
        project_root: String::new(),
        pools: vec![pool("work")],
        kinds: Vec::new(),
        newer: Newer::NONE,
    }
}

fn running() -> Key {
    Key::running(&ns(), &pool("work"))
}

fn put_new(name: &str, text: &str) -> Write {
    Write::put(note_key(name), Expect::Absent, note(text))
}

fn put_at(name: &str, revision: &Revision, text: &str) -> Write {
    Write::put(note_key(name), Expect::At(revision.clone()), note(text))
}

async fn is(lab: &Lab, name: &str, text: &str) {
    assert_eq!(lab.get(&note_key(name)).await.map(|found| found.record), Some(note(text)), "the content of {name}");
}

/// C2
pub async fn a_put_that_expects_nothing_creates_once(lab: Lab) {
    for (key, first, second) in subjects(&lab) {
        let revisions = applied(lab.commit(vec![Write::put(key.clone(), Expect::Absent, first.clone())]).await);
        let created = lab.get(&key).await.expect("the put created it");
        assert_eq!((&created.key, &created.record), (&key, &first));
        assert_eq!(revisions, [Some(created.revision.clone())]);
        let again = lab.commit(vec![Write::put(key.clone(), Expect::Absent, second)]).await;
        assert_eq!(found(again), [(key.clone(), Some(created.clone()))]);
        assert_eq!(lab.get(&key).await, Some(created), "a conflict changes nothing");
    }
}

/// C2, C3
pub async fn a_put_replaces_only_the_revision_that_it_names(lab: Lab) {
    for (key, first, second) in subjects(&lab) {
        let old = lab.put(&key, Expect::Absent, first.clone()).await;
        let new = lab.put(&key, Expect::At(old.clone()), second.clone()).await;
        let replaced = lab.get(&key).await.expect("the record stays");
        assert_eq!((&replaced.record, &replaced.revision), (&second, &new));
        let stale = lab.commit(vec![Write::put(key.clone(), Expect::At(old), first)]).await;
        assert_eq!(found(stale), [(key.clone(), Some(replaced.clone()))]);
        assert_eq!(lab.get(&key).await, Some(replaced), "a conflict changes nothing");
    }
}

/// C2
pub async fn a_put_at_a_revision_does_not_create(lab: Lab) {
    for (key, first, second) in subjects(&lab) {
        let gone = lab.put(&key, Expect::Absent, first).await;
        applied(lab.commit(vec![delete(key.clone())]).await);
        let answer = lab.commit(vec![Write::put(key.clone(), Expect::At(gone), second)]).await;
        assert_eq!(found(answer), [(key.clone(), None)], "the conflict found nothing");
        assert_eq!(lab.get(&key).await, None);
    }
}

/// C2: a check is met or not, and writes nothing either way.
pub async fn a_check_looks_and_changes_nothing(lab: Lab) {
    for (key, first, second) in subjects(&lab) {
        assert_eq!(applied(lab.commit(vec![check(key.clone(), Expect::Absent)]).await), [None]);
        assert_eq!(lab.get(&key).await, None, "a check creates nothing");
        let old = lab.put(&key, Expect::Absent, first).await;
        assert_eq!(found(lab.commit(vec![check(key.clone(), Expect::Absent)]).await).len(), 1);
        applied(lab.commit(vec![check(key.clone(), Expect::At(old.clone()))]).await);
        let new = lab.put(&key, Expect::At(old.clone()), second).await;
        let current = lab.get(&key).await;
        let stale = lab.commit(vec![check(key.clone(), Expect::At(old))]).await;
        assert_eq!(found(stale), [(key.clone(), current.clone())]);
        applied(lab.commit(vec![check(key.clone(), Expect::At(new.clone()))]).await);
        assert_eq!(lab.get(&key).await, current);
        applied(lab.commit(vec![delete(key.clone())]).await);
        assert_eq!(found(lab.commit(vec![check(key.clone(), Expect::At(new))]).await), [(key, None)]);
    }
}

/// C2: a check beside a put decides over it.
pub async fn an_unmet_check_stops_the_puts_beside_it(lab: Lab) {
    let guard = lab.put(&note_key("guard"), Expect::Absent, note("one")).await;
    lab.put(&note_key("guard"), Expect::At(guard.clone()), note("two")).await;
    let writes = |expect| vec![check(note_key("guard"), expect), put_new("k-1", "one")];
    assert_eq!(found(lab.commit(writes(Expect::At(guard))).await).len(), 1);
    assert_eq!(lab.get(&note_key("k-1")).await, None);
    let current = lab.get(&note_key("guard")).await.expect("it is there").revision;
    applied(lab.commit(writes(Expect::At(current))).await);
    is(&lab, "k-1", "one").await;
}

/// C2
pub async fn a_delete_removes_only_the_revision_that_it_names(lab: Lab) {
    for (key, first, second) in subjects(&lab) {
        let old = lab.put(&key, Expect::Absent, first).await;
        let new = lab.put(&key, Expect::At(old.clone()), second).await;
        let current = lab.get(&key).await;
        assert_eq!(found(lab.commit(vec![delete_at(key.clone(), old)]).await), [(key.clone(), current.clone())]);
        assert_eq!(lab.get(&key).await, current, "a conflict changes nothing");
        assert_eq!(applied(lab.commit(vec![delete_at(key.clone(), new)]).await), [None]);
        assert_eq!(lab.get(&key).await, None);
    }
}

/// C7
pub async fn a_delete_of_whatever_is_there_is_met_by_nothing_too(lab: Lab) {
    for (at, (key, first, _)) in subjects(&lab).into_iter().enumerate() {
        let beside = format!("beside-{at}");
        applied(lab.commit(vec![delete(key.clone()), put_new(&beside, "one")]).await);
        is(&lab, &beside, "one").await;
        lab.put(&key, Expect::Absent, first).await;
        applied(lab.commit(vec![delete(key.clone())]).await);
        assert_eq!(lab.get(&key).await, None);
    }
}

/// C7: beside a put; a commit of deletes alone is C5's.
pub async fn a_delete_of_a_revision_that_is_gone_is_a_conflict_that_found_nothing(lab: Lab) {
    for (key, first, _) in subjects(&lab) {
        let gone = lab.put(&key, Expect::Absent, first).await;
        applied(lab.commit(vec![delete(key.clone())]).await);
        let answer = lab.commit(vec![put_new("beside", "one"), delete_at(key.clone(), gone)]).await;
        assert_eq!(found(answer), [(key, None)]);
        assert_eq!(lab.get(&note_key("beside")).await, None, "the put beside it did not happen");
    }
}

/// C6
pub async fn an_add_creates_a_counter_and_adds_to_it(lab: Lab) {
    let first = lab.op();
    applied(lab.commit_as(first, vec![put_new("k-1", "one"), add(running(), 5)]).await);
    let created = lab.get(&running()).await.expect("the add created it");
    assert_eq!((created.record.as_counter(), created.created_by), (Some(5), first));
    for (name, by, sum) in [("k-2", 3, 8), ("k-3", -10, -2), ("k-4", 0, -2)] {
        applied(lab.commit(vec![add(running(), by), put_new(name, "one")]).await);
        assert_eq!(lab.counter(&running()).await, sum, "after adding {by}");
    }
}

/// C6
pub async fn an_add_changes_the_revision_but_neither_creator_nor_last(lab: Lab) {
    let before = lab.put(&running(), Expect::Absent, Record::Counter(1)).await;
    let created = lab.get(&running()).await.expect("it was put");
    applied(lab.commit(vec![put_new("k-1", "one"), add(running(), 1)]).await);
    let added = lab.get(&running()).await.expect("it stays");
    assert_eq!((added.created_by, added.last), (created.created_by, created.last));
    assert_ne!(added.revision, before);
    let stale = lab.commit(vec![Write::put(running(), Expect::At(before), Record::Counter(0))]).await;
    assert_eq!(found(stale), [(running(), Some(added))]);
}

/// C1: wherever the unmet write stands, none of its neighbours happens.
pub async fn one_unmet_write_stops_all_wherever_it_stands(lab: Lab) {
    lab.put(&note_key("taken"), Expect::Absent, note("one")).await;
    lab.put(&note_key("gone"), Expect::Absent, note("one")).await;
    let old = lab.put(&note_key("old"), Expect::Absent, note("one")).await;
    let task = Record::from(lab.newborn(lab.spec("t-1"), Start::Released));
    let good = vec![
        put_new("new", "one"),
        put_at("old", &old, "two"),
        delete(note_key("gone")),
        add(running(), 1),
        Write::put(task_key("t-1"), Expect::Absent, task),
    ];
    let before = lab.snapshot(&["t-1"]).await;
    for place in 0..=good.len() {
        let mut writes = good.clone();
        writes.insert(place, put_new("taken", "two"));
        let unmet: Vec<Key> = found(lab.commit(writes).await).into_iter().map(|(key, _)| key).collect();
        assert_eq!(unmet, [note_key("taken")], "the unmet write at place {place}");
        assert_eq!(lab.snapshot(&["t-1"]).await, before, "with the unmet write at place {place}");
        lab.nothing_to_claim().await;
    }
    applied(lab.commit(good).await);
    for (name, text) in [("new", "one"), ("old", "two"), ("taken", "one")] {
        is(&lab, name, text).await;
    }
    assert_eq!(lab.get(&note_key("gone")).await, None);
    assert_eq!(lab.counter(&running()).await, 1);
    assert_eq!(lab.take().await.id().as_str(), "t-1");
}

/// C2
pub async fn a_conflict_shows_every_unmet_key_and_no_other(lab: Lab) {
    let stale = lab.put(&note_key("moved"), Expect::Absent, note("one")).await;
    lab.put(&note_key("moved"), Expect::At(stale.clone()), note("two")).await;
    lab.put(&note_key("taken"), Expect::Absent, note("one")).await;
    let met = lab.put(&note_key("met"), Expect::Absent, note("one")).await;
    let answer = lab
        .commit(vec![
            put_at("met", &met, "two"),
            put_new("taken", "two"),
            put_new("free", "one"),
            put_at("moved", &stale, "three"),
            delete_at(note_key("absent"), stale.clone()),
            add(running(), 1),
            delete(note_key("whatever")),
        ])
        .await;
    let expected = vec![
        (note_key("absent"), None),
        (note_key("moved"), lab.get(&note_key("moved")).await),
        (note_key("taken"), lab.get(&note_key("taken")).await),
    ];
    assert_eq!(found(answer), expected);
    is(&lab, "met", "one").await;
    assert_eq!(lab.get(&note_key("free")).await, None);
}

/// C4
pub async fn a_record_remembers_who_created_it_and_who_put_it_last(lab: Lab) {
    for (key, first, second) in subjects(&lab) {
        let (create, replace) = (lab.op(), lab.op());
        applied(lab.commit_as(create, vec![Write::put(key.clone(), Expect::Absent, first)]).await);
        let created = lab.get(&key).await.expect("it was created");
        assert_eq!((created.created_by, created.last), (create, create));
        applied(lab.commit_as(replace, vec![Write::put(key.clone(), Expect::At(created.revision), second)]).await);
        let replaced = lab.get(&key).await.expect("it was replaced");
        assert_eq!((replaced.created_by, replaced.last), (create, replace));
    }
}

/// C4
pub async fn a_deleted_record_forgets_who_made_it(lab: Lab) {
    for (key, first, second) in subjects(&lab) {
        lab.put(&key, Expect::Absent, first).await;
        applied(lab.commit(vec![delete(key.clone())]).await);
        let anew = lab.op();
        applied(lab.commit_as(anew, vec![Write::put(key.clone(), Expect::Absent, second)]).await);
        let created = lab.get(&key).await.expect("it was created again");
        assert_eq!((created.created_by, created.last), (anew, anew));
    }
}

/// C3: who remembers a record that is gone cannot overwrite the one that came after it.
pub async fn a_record_made_anew_has_a_revision_it_never_had(lab: Lab) {
    for (key, first, second) in subjects(&lab) {
        let old = lab.put(&key, Expect::Absent, first.clone()).await;
        applied(lab.commit(vec![delete(key.clone())]).await);
        let new = lab.put(&key, Expect::Absent, first).await;
        assert_ne!(old, new);
        found(lab.commit(vec![Write::put(key.clone(), Expect::At(old), second)]).await);
        assert_eq!(lab.get(&key).await.map(|versioned| versioned.revision), Some(new));
    }
}

/// C4: a claim is an op too.
pub async fn a_claim_is_the_last_op_but_not_the_creator(lab: Lab) {
    let create = lab.op();
    let task = Record::from(lab.newborn(lab.spec("t-1"), Start::Released));
    let writes = vec![Write::put(task_key("t-1"), Expect::Absent, task)];
    applied(lab.commit_as(create, writes.clone()).await);
    let taken = lab.take().await;
    let claimed = lab.get(&task_key("t-1")).await.expect("it stays");
    assert_eq!(claimed.created_by, create);
    assert_eq!(Some(claimed.last), taken.state.lease.as_ref().map(|lease| lease.claim));
    applied(lab.commit_as(create, writes).await);
    assert_eq!(lab.get(&task_key("t-1")).await, Some(claimed), "the repeated enqueue changes nothing");
}

/// C3
pub async fn a_put_of_equal_content_changes_the_revision(lab: Lab) {
    for (key, content, _) in subjects(&lab) {
        let old = lab.put(&key, Expect::Absent, content.clone()).await;
        let new = lab.put(&key, Expect::At(old.clone()), content.clone()).await;
        assert_ne!(old, new, "the revision of {key}");
        assert_eq!(found(lab.commit(vec![Write::put(key.clone(), Expect::At(old), content)]).await).len(), 1);
    }
}

/// C2, C3
pub async fn revisions_are_answered_in_the_order_of_the_writes(lab: Lab) {
    let guard = lab.put(&note_key("guard"), Expect::Absent, note("one")).await;
    let writes = vec![
        put_new("z", "one"),
        check(note_key("guard"), Expect::At(guard)),
        delete(note_key("gone")),
        add(running(), 1),
        put_new("a", "one"),
    ];
    let revisions = applied(lab.commit(writes).await);
    let [z, a] = [lab.get(&note_key("z")).await, lab.get(&note_key("a")).await];
    assert_eq!(revisions, [z.map(|z| z.revision), None, None, None, a.map(|a| a.revision)]);
}

/// C3
pub async fn a_put_moves_the_ready_entry(lab: Lab) {
    lab.store_task(lab.newborn(lab.spec("a"), Start::Held)).await;
    lab.nothing_to_claim().await;
    lab.changed("a", Event::Released).await;
    assert_eq!(lab.take_ids(5).await, ["a"]);
    lab.changed("a", Event::Returned { token: Token(1) }).await;
    lab.cancel("a").await;
    lab.nothing_to_claim().await;
}

/// C3
pub async fn a_put_moves_a_due_entry_within_its_list(lab: Lab) {
    let key = Key::runner(&ns(), &runner("r-1"));
    let first = living("r-1", &lab);
    let revision = lab.put(&key, Expect::Absent, Record::from(first.clone())).await;
    lab.wait(MINUTE);
    lab.lists_due(DueIndex::Runner, &["r-1"]).await;
    let beat = Runner { last_heartbeat: lab.now(), ..first };
    lab.put(&key, Expect::At(revision), Record::from(beat)).await;
    lab.lists_due(DueIndex::Runner, &[]).await;
    lab.wait(MINUTE);
    lab.lists_due(DueIndex::Runner, &["r-1"]).await;
}

/// C3
pub async fn a_put_moves_a_task_from_list_to_list(lab: Lab) {
    let soon = lab.now() + MINUTE;
    lab.enqueue_with("a", |spec| (spec.run_at, spec.expires_at) = (Some(soon), Some(soon))).await;
    lab.wait(MINUTE);
    lab.lists_due(DueIndex::Promote, &["a"]).await;
    lab.lists_due(DueIndex::Expire, &["a"]).await;
    lab.changed("a", Event::BecameDue).await;
    lab.lists_due(DueIndex::Promote, &[]).await;
    lab.changed("a", Event::Expired).await;
    lab.lists_due(DueIndex::Expire, &[]).await;

    lab.enqueue("b").await;
    let claimed = lab.claim(Claim { lease: LeaseTerm::For(MINUTE), ..lab.claim_one() }).await;
    assert_eq!(claimed.len(), 1);
    lab.wait(MINUTE);
    lab.lists_due(DueIndex::Lease, &["b"]).await;
    lab.changed("b", Event::LeaseLost { evidence: Evidence::Deadline }).await;
    lab.lists_due(DueIndex::Lease, &[]).await;
    lab.cancel("b").await;
    lab.lists_due(DueIndex::Purge, &[]).await;
    lab.wait(Millis::from_days(7));
    lab.lists_due(DueIndex::Purge, &["b"]).await;
}

/// C3, C21
pub async fn a_put_moves_the_count(lab: Lab) {
    lab.store_task(lab.newborn(lab.spec("a"), Start::Held)).await;
    lab.changed("a", Event::Released).await;
    lab.cancel("a").await;
    let counts = lab.counts().await;
    if counts.exact {
        let all = [Phase::Pending, Phase::Queued, Phase::Cancelled].map(|phase| counts.get(phase));
        assert_eq!(all, [0, 0, 1]);
    }
}

/// C3
pub async fn a_put_moves_the_holder(lab: Lab) {
    let held_by = |name| TaskFilter::held_by(ns(), runner(name));
    lab.enqueue("a").await;
    lab.take().await;
    lab.lists(held_by("runner-1"), &["a"]).await;
    lab.changed("a", Event::Returned { token: Token(1) }).await;
    lab.lists(held_by("runner-1"), &[]).await;
    let taken = lab.claim(Claim { holder: runner("runner-2"), ..lab.claim_one() }).await;
    assert_eq!(taken.len(), 1);
    lab.lists(held_by("runner-2"), &["a"]).await;
    lab.lists(held_by("runner-1"), &[]).await;
}

/// C3: what was asked for never changes, so these entries move only when the task is made anew.
pub async fn group_and_session_follow_the_record(lab: Lab) {
    let group = |name| TaskFilter { group: GroupId::new(name).ok(), ..TaskFilter::all(ns()) };
    let session = |name| TaskFilter { session: SessionId::new(name).ok(), ..TaskFilter::all(ns()) };
    for (old, new) in [("one", "two"), ("two", "one")] {
        lab.enqueue_with("a", |spec| (spec.group, spec.session) = (GroupId::new(new).ok(), SessionId::new(new).ok()))
            .await;
        lab.cancel("a").await;
        for filter in [group(new), session(new)] {
            lab.lists(filter, &["a"]).await;
        }
        for filter in [group(old), session(old)] {
            lab.lists(filter, &[]).await;
        }
        applied(lab.commit(vec![delete(task_key("a"))]).await);
        for filter in [group(new), session(new)] {
            lab.lists(filter, &[]).await;
        }
    }
}

/// C3
pub async fn a_delete_removes_all_index_entries(lab: Lab) {
    let soon = lab.now() + MINUTE;
    lab.enqueue_with("held", |spec| (spec.group, spec.session) = (GroupId::new("g").ok(), SessionId::new("s").ok()))
        .await;
    let claimed = lab.claim(Claim { lease: LeaseTerm::For(MINUTE), ..lab.claim_one() }).await;
    assert_eq!(claimed.len(), 1);
    lab.enqueue("ready").await;
    lab.enqueue_with("waiting", |spec| (spec.run_at, spec.expires_at) = (Some(soon), Some(soon))).await;
    lab.wait(MINUTE);
    lab.lists(TaskFilter::all(ns()), &["held", "ready", "waiting"]).await;
    lab.lists_due(DueIndex::Lease, &["held"]).await;
    applied(lab.commit(["held", "ready", "waiting"].map(|name| delete(task_key(name))).to_vec()).await);

    lab.nothing_to_claim().await;
    for index in [DueIndex::Lease, DueIndex::Promote, DueIndex::Expire] {
        lab.lists_due(index, &[]).await;
    }
    let all = TaskFilter::all(ns());
    lab.lists(TaskFilter { group: GroupId::new("g").ok(), ..all.clone() }, &[]).await;
    lab.lists(TaskFilter { session: SessionId::new("s").ok(), ..all.clone() }, &[]).await;
    lab.lists(TaskFilter::held_by(ns(), runner("runner-1")), &[]).await;
    lab.lists(TaskFilter { pool: Some(pool("work")), ..all.clone() }, &[]).await;
    lab.lists(all, &[]).await;
    let counts = lab.counts().await;
    assert!(!counts.exact || counts.by_phase.values().all(|count| *count == 0), "nothing is counted: {counts:?}");
}

/// C1: as many writes as a commit may hold.
pub async fn twenty_five_writes_happen_or_none(lab: Lab) {
    let names: Vec<String> = (0..limits::COMMIT_WRITES_MAX).map(|n| format!("t-{n:02}")).collect();
    let newborn = |name: &str| Record::from(lab.newborn(lab.spec(name), Start::Released));
    let writes = || names.iter().map(|name| Write::put(task_key(name), Expect::Absent, newborn(name))).collect();
    let obstacle = lab.put(&task_key("t-13"), Expect::Absent, newborn("t-13")).await;
    assert_eq!(found(lab.commit(writes()).await).len(), 1);
    applied(lab.commit(vec![delete_at(task_key("t-13"), obstacle)]).await);
    lab.lists(TaskFilter::all(ns()), &[]).await;
    lab.nothing_to_claim().await;

    let revisions = applied(lab.commit(writes()).await);
    let stored = lab.store().get(names.iter().map(|name| task_key(name)).collect()).await.expect("a read");
    assert_eq!(revisions, stored.into_iter().map(|found| found.map(|found| found.revision)).collect::<Vec<_>>());
    assert!(revisions.iter().all(Option::is_some), "all are there: {revisions:?}");
}

/// C1: the largest commit by bytes.
pub async fn twelve_tasks_with_the_largest_payload_fit_one_commit(lab: Lab) {
    let payload = vec![b'x'; limits::PAYLOAD_BYTES_MAX];
    let large = |n: usize| {
        let mut spec = lab.spec(&format!("t-{n:02}"));
        spec.envelope.payload = payload.clone().into();
        Write::put(task_key(spec.id.as_str()), Expect::Absent, Record::from(lab.newborn(spec, Start::Held)))
    };
    applied(lab.commit((0..12).map(large).collect()).await);
    for n in 0..12 {
        let stored = lab.task(&format!("t-{n:02}")).await.map(|task| task.spec.envelope.payload.clone());
        assert!(stored.is_some_and(|stored| stored == payload), "the payload of task {n}");
    }
}
