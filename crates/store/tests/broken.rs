//! Stores that are broken on purpose. Each must fail the suite, and the case meant for its defect must be among the failing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::id::{Namespace, OpId};
use ekiden_core::index::Index;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lane::Place;
use ekiden_core::order::Rank;
use ekiden_core::record::{Record, Versioned};
use ekiden_core::task::Task;
use ekiden_core::time::Timestamp;
use ekiden_store::conformance::{Factory, cases, try_case};
use ekiden_store::{
    Answer, CheckDepth, Claimed, CountScope, Counts, DueEntry, DueQuery, Finding, Hint, Info, MemoryStore, Op, Outcome,
    Page, RecordQuery, Store, StoreError, StoreExt, TaskQuery,
};
use tokio::sync::broadcast;

/// A way to get the contract wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// Writes whatever the expectation says.
    IgnoresExpect,
    /// Leaves out the second write of a commit.
    LosesSecondWrite,
    /// Does not know the ids of commits it has applied.
    ForgetsCommitIds,
    /// Does not know the ids of claims it has answered.
    ForgetsClaimIds,
    /// Answers a repeated claim id without comparing the holder and what it asks for.
    ComparesClaimIdsOnly,
    /// Takes any commit for repeated whose id it has applied, whatever records it names.
    ComparesCommitIdsOnly,
    /// Gives tasks to a claim that another claim holds.
    HandsOutTwice,
    /// Does not look at `at`.
    ForgetsAt,
    /// Does not look at the order.
    ForgetsOrder,
    /// Offers what waits behind its lane.
    IgnoresLane,
    /// Takes as many as there are, whatever the pool's limit.
    IgnoresLimit,
    /// Takes any kind.
    IgnoresKinds,
    /// Lists nothing as due.
    ForgetsDue,
    /// Does not list what a runner holds.
    ForgetsHolder,
    /// Remembers the first thing it read under a unique key.
    ReadsStale,
    /// Lists records in the wrong order.
    ReversesRecords,
    /// Ends every listing after one page.
    DropsCursors,
    /// Counts tasks when they come, not when they go.
    MiscountsTasks,
    /// Looks into other namespaces.
    CrossesNamespaces,
    /// Never wakes anybody.
    NeverHints,
    /// Goes on after its end.
    IgnoresClose,
    /// Answers before the write is safe.
    AcksBeforeSync,
    /// Adds again when a commit is repeated.
    DoublesAdds,
    /// Takes every writer for the creator.
    ForgetsCreator,
    /// Lists only the namespaces that have tasks.
    ForgetsNamespaces,
}

/// Which case is meant for which bug: group and name.
const MEANT: &[(Bug, &str, &str)] = &[
    (Bug::IgnoresExpect, "commit", "a_put_replaces_only_the_revision_that_it_names"),
    (Bug::LosesSecondWrite, "commit", "twenty_five_writes_happen_or_none"),
    (Bug::ForgetsCommitIds, "commit", "a_repeated_create_changes_nothing"),
    (Bug::ForgetsClaimIds, "claim", "a_repeated_claim_gives_the_same_tasks_and_no_others"),
    (Bug::ComparesClaimIdsOnly, "claim", "a_claim_id_of_another_namespace_gives_nothing_of_it"),
    (Bug::ComparesClaimIdsOnly, "claim", "a_claim_id_of_another_holder_gives_nothing_of_its_tasks"),
    (Bug::ComparesClaimIdsOnly, "claim", "a_repeated_claim_gives_only_pools_and_kinds_that_it_asks_for"),
    (Bug::ComparesClaimIdsOnly, "random", "random_operations_agree_with_the_naive_model"),
    (Bug::ComparesCommitIdsOnly, "commit", "a_commit_id_says_nothing_of_records_that_it_did_not_put"),
    (Bug::HandsOutTwice, "concurrency", "each_task_goes_to_one_of_many_claimers"),
    (Bug::ForgetsAt, "claim", "a_delayed_task_is_given_from_its_very_moment_on"),
    (Bug::ForgetsOrder, "order", "the_better_priority_goes_first"),
    (Bug::IgnoresLane, "lanes", "a_serial_lane_runs_one_at_a_time_in_order"),
    (Bug::IgnoresLimit, "claim", "a_limited_pool_never_runs_more_than_its_limit"),
    (Bug::IgnoresKinds, "claim", "any_kind_means_every_kind_and_only_means_those_named"),
    (Bug::ForgetsDue, "due", "a_delayed_task_is_due_to_be_promoted_until_it_is"),
    (Bug::ForgetsHolder, "listing", "held_by_follows_the_attempt_not_the_phase"),
    (Bug::ReadsStale, "reads", "get_and_records_see_every_applied_commit"),
    (Bug::ReversesRecords, "records", "records_come_in_the_byte_order_of_names"),
    (Bug::DropsCursors, "listing", "pages_of_any_size_give_every_task_once"),
    (Bug::MiscountsTasks, "counts", "deleted_tasks_leave_the_counts"),
    (Bug::CrossesNamespaces, "reads", "counts_stay_in_their_namespace"),
    (Bug::NeverHints, "reads", "a_task_that_becomes_claimable_gives_a_hint"),
    (Bug::IgnoresClose, "reads", "a_closed_store_refuses_every_call"),
    (Bug::AcksBeforeSync, "reopen", "tasks_of_every_phase_survive_to_the_letter"),
    (Bug::DoublesAdds, "commit", "a_repeated_add_is_not_doubled"),
    (Bug::ForgetsCreator, "commit", "a_record_remembers_who_created_it_and_who_put_it_last"),
    (Bug::ForgetsNamespaces, "namespaces", "any_kind_of_record_makes_its_namespace_known"),
];

/// The memory store, with one bug. Its own check finds nothing: a broken store does not know that it is.
struct Broken {
    inner: Arc<MemoryStore>,
    bug: Bug,
    memory: Mutex<Memory>,
    journal: Arc<Mutex<Vec<Op>>>,
}

#[derive(Default)]
struct Memory {
    ids: u128,
    claimed: Vec<Versioned>,
    commits: BTreeSet<OpId>,
    taken: BTreeMap<OpId, BTreeSet<Key>>,
    read: BTreeMap<Key, Option<Versioned>>,
    gone: u64,
}

impl Broken {
    fn new(bug: Bug, journal: Arc<Mutex<Vec<Op>>>) -> Self {
        Self { inner: Arc::new(MemoryStore::new()), bug, memory: Mutex::default(), journal }
    }

    fn memory<T>(&self, look: impl FnOnce(&mut Memory) -> T) -> T {
        look(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fresh_id(&self) -> OpId {
        self.memory(|memory| {
            memory.ids += 1;
            OpId::from_bits(memory.ids)
        })
    }

    async fn one(&self, op: Op) -> Outcome {
        match op {
            Op::Commit(commit) => self.commit(commit).await,
            Op::Claim(claim) => self.claim(claim).await,
        }
    }

    async fn commit(&self, commit: Commit) -> Outcome {
        let id = if self.bug == Bug::ForgetsCommitIds { self.fresh_id() } else { commit.id() };
        let mut writes: Vec<Write> = commit.into_writes();
        let asked = writes.len();
        if self.bug == Bug::LosesSecondWrite && writes.len() > 1 {
            writes.remove(1);
        }
        for write in &mut writes {
            if self.bug == Bug::IgnoresExpect && !matches!(write.action, Action::Add(_)) {
                let found = self.inner.get_one(write.key.clone()).await?;
                write.expect = found.map_or(Expect::Absent, |found| Expect::At(found.revision));
                if write.expect == Expect::Absent && write.action == Action::Delete {
                    write.expect = Expect::Any;
                }
            }
            if let Action::Put(record, index) = &mut write.action {
                self.spoil(record, index, &write.key);
            }
        }
        let adds: Vec<Write> = writes.iter().filter(|write| matches!(write.action, Action::Add(_))).cloned().collect();
        // A commit that lost its put has an add without one, which no commit may hold.
        let Ok(commit) = Commit::new(id, writes) else {
            return Ok(Answer::Applied(ekiden_store::Applied { revisions: vec![None; asked].into() }));
        };
        let tasks_deleted =
            commit.writes().iter().filter(|write| write.action == Action::Delete && write.key.kind == RecordKind::Task);
        let gone = u64::try_from(tasks_deleted.count()).unwrap_or(0);
        self.memory(|memory| memory.gone += gone);
        let repeated = !self.memory(|memory| memory.commits.insert(commit.id()));
        if self.bug == Bug::ComparesCommitIdsOnly && repeated {
            return Ok(Answer::Applied(ekiden_store::Applied { revisions: vec![None; asked].into() }));
        }
        if self.bug == Bug::DoublesAdds && repeated && !adds.is_empty() {
            self.add_again(adds).await?;
        }
        self.inner.commit(commit).await.map(|answer| match answer {
            Answer::Applied(mut applied) => {
                applied.revisions.resize(asked, None);
                Answer::Applied(applied)
            }
            other => other,
        })
    }

    /// Adds beside a put of a record that nobody looks for, as no commit is made of adds alone.
    async fn add_again(&self, mut adds: Vec<Write>) -> Result<(), StoreError> {
        let lane = ekiden_core::id::LaneKey::new("nobody-looks-here").expect("a valid id");
        let key = Key::lane(&Namespace::new("hidden").expect("a valid id"), &lane);
        let found = self.inner.get_one(key.clone()).await?;
        let expect = found.map_or(Expect::Absent, |found| Expect::At(found.revision));
        adds.push(Write::put(key, expect, Record::Lane(Arc::new(ekiden_core::lane::Lane::empty(1)))));
        let commit = Commit::new(self.fresh_id(), adds).expect("a put beside the adds");
        self.inner.commit(commit).await.map(drop)
    }

    /// Makes index entries wrong.
    fn spoil(&self, record: &mut Record, index: &mut Index, key: &Key) {
        match self.bug {
            Bug::ForgetsDue => index.due = Default::default(),
            Bug::ForgetsHolder => index.held = false,
            Bug::ForgetsOrder => index.ready.iter_mut().for_each(|ready| ready.rank = Rank(0)),
            Bug::IgnoresLane => {
                let waiting = record.as_task().filter(|task| matches!(task.state.place, Place::Waiting(_)));
                if let Some(task) = waiting.map(|task| Task::clone(task)) {
                    let mut task = task;
                    task.state.place = Place::Held;
                    task.state.promoted = true;
                    *record = Record::from(task);
                    *index = Index::of(key, record);
                }
            }
            _ => {}
        }
    }

    async fn claim(&self, mut claim: ekiden_core::claim::Claim) -> Outcome {
        match self.bug {
            Bug::ForgetsClaimIds => claim.id = self.fresh_id(),
            Bug::ForgetsAt => claim.now = Timestamp::MAX,
            Bug::IgnoresLimit => claim.pools.iter_mut().for_each(|pool| pool.running_max = None),
            Bug::IgnoresKinds => claim.kinds = ekiden_core::claim::Kinds::Any,
            _ => {}
        }
        if self.bug == Bug::ComparesClaimIdsOnly {
            let taken = self.taken_under(claim.id).await?;
            if !taken.is_empty() {
                return Ok(Answer::Claimed(Claimed { tasks: taken, visited: 1 }));
            }
        }
        let id = claim.id;
        let claimed = self.inner.claim(claim).await?;
        let keys = claimed.tasks.iter().map(|task| task.key.clone());
        self.memory(|memory| memory.taken.entry(id).or_default().extend(keys));
        Ok(Answer::Claimed(self.memory(|memory| {
            let earlier = std::mem::replace(&mut memory.claimed, claimed.tasks.clone());
            if self.bug == Bug::HandsOutTwice && claimed.tasks.is_empty() {
                Claimed { tasks: earlier, visited: 1 }
            } else {
                claimed
            }
        })))
    }

    /// Every task that a claim id holds, in any namespace.
    async fn taken_under(&self, claim: OpId) -> Result<Vec<Versioned>, StoreError> {
        let keys = self.memory(|memory| memory.taken.get(&claim).cloned()).unwrap_or_default();
        let mut tasks: Vec<Versioned> =
            self.inner.get(keys.into_iter().collect()).await?.into_iter().flatten().collect();
        tasks.retain(|found| {
            let lease = found.record.as_task().and_then(|task| task.state.lease.as_ref());
            lease.is_some_and(|lease| lease.claim == claim)
        });
        tasks.sort_by_key(|found| found.record.as_task().map(|task| task.spec.order()));
        Ok(tasks)
    }
}

#[async_trait]
impl Store for Broken {
    fn info(&self) -> Info {
        let durable = if self.bug == Bug::AcksBeforeSync { "so it says" } else { "" };
        Info { durable, ..self.inner.info() }
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).extend(ops.iter().cloned());
        let mut outcomes = Vec::new();
        for op in ops {
            outcomes.push(self.one(op).await);
        }
        outcomes
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        let mut found = self.inner.get(keys.clone()).await?;
        if self.bug == Bug::ForgetsCreator {
            found.iter_mut().flatten().for_each(|found| found.created_by = found.last);
        }
        if self.bug != Bug::ReadsStale {
            return Ok(found);
        }
        let remember = |(key, found): (Key, Option<Versioned>)| match key.kind {
            RecordKind::Unique => self.memory(|memory| memory.read.entry(key).or_insert(found).clone()),
            _ => found,
        };
        Ok(keys.into_iter().zip(found).map(remember).collect())
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        self.inner.due(query).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        let page = self.inner.tasks(query).await?;
        Ok(if self.bug == Bug::DropsCursors { Page { cursor: None, ..page } } else { page })
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        let mut page = self.inner.records(query).await?;
        if self.bug == Bug::ReversesRecords {
            page.items.reverse();
        }
        Ok(page)
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        let mut counts = self.inner.counts(scope.clone()).await?;
        match self.bug {
            Bug::MiscountsTasks => {
                let gone = self.memory(|memory| memory.gone);
                *counts.by_phase.entry(ekiden_core::task::Phase::Succeeded).or_default() += gone;
            }
            Bug::CrossesNamespaces => {
                for namespace in ["default", "other"].iter().filter_map(|name| Namespace::new(name).ok()) {
                    if namespace != scope.namespace {
                        let others = self.inner.counts(CountScope { namespace, pool: scope.pool.clone() }).await?;
                        counts.by_phase.iter_mut().for_each(|(phase, count)| *count += others.get(*phase));
                    }
                }
            }
            _ => {}
        }
        Ok(counts)
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        let mut page = self.inner.namespaces(after, limit).await?;
        if self.bug == Bug::ForgetsNamespaces {
            let mut with_tasks = Vec::new();
            for namespace in page.items {
                let counts = self.inner.counts(CountScope { namespace: namespace.clone(), pool: None }).await?;
                if counts.by_phase.values().any(|count| *count > 0) {
                    with_tasks.push(namespace);
                }
            }
            page.items = with_tasks;
        }
        Ok(page)
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        if self.bug == Bug::NeverHints {
            // A channel whose sender lives on and never speaks.
            let (sender, receiver) = broadcast::channel(1);
            std::mem::forget(sender);
            return receiver;
        }
        self.inner.watch()
    }

    async fn check(&self, _: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        Ok(Vec::new())
    }

    async fn close(&self) -> Result<(), StoreError> {
        if self.bug == Bug::IgnoresClose { Ok(()) } else { self.inner.close().await }
    }
}

/// Makes stores with a bug, or sound ones to compare with. The journal is the disk of the latest of them.
struct Breaker {
    bug: Bug,
    journal: Arc<Mutex<Vec<Op>>>,
}

#[async_trait]
impl Factory for Breaker {
    async fn open(&self) -> Arc<dyn Store> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).clear();
        Arc::new(Broken::new(self.bug, self.journal.clone()))
    }

    /// What was acknowledged last had not reached the disk.
    async fn reopen(&self, _: Arc<dyn Store>) -> Option<Arc<dyn Store>> {
        if self.bug != Bug::AcksBeforeSync {
            return None;
        }
        let mut disk = std::mem::take(&mut *self.journal.lock().unwrap_or_else(PoisonError::into_inner));
        disk.pop();
        let store = Broken::new(self.bug, self.journal.clone());
        for op in disk {
            store.apply(vec![op]).await.pop()?.ok()?;
        }
        Some(Arc::new(store))
    }

    /// So many that none of the bugs which the model must find gets through.
    fn random_sequences(&self) -> usize {
        300
    }
}

/// The cases that a store with this bug fails, with what they say.
async fn failing(bug: Bug) -> BTreeMap<(&'static str, &'static str), String> {
    let mut failing = BTreeMap::new();
    for case in cases() {
        let factory = Arc::new(Breaker { bug, journal: Arc::default() });
        // A broken store may also keep a case from ever ending.
        let outcome = tokio::time::timeout(std::time::Duration::from_secs(20), try_case(factory, &case)).await;
        if let Err(law) = outcome.unwrap_or_else(|_| Err("it never ended".to_owned())) {
            failing.insert((case.group, case.name), law);
        }
    }
    failing
}

async fn is_caught(bug: Bug) {
    let failing = failing(bug).await;
    let meant: Vec<_> =
        MEANT.iter().filter(|(meant, ..)| *meant == bug).map(|(_, group, name)| (*group, *name)).collect();
    assert!(!meant.is_empty(), "{bug:?} has a case that is meant for it");
    for case in meant {
        assert!(failing.contains_key(&case), "{bug:?} must fail {case:?}, but failed only {:?}", failing.keys());
    }
    assert!(
        failing.len() < cases().len() / 2,
        "{bug:?} must not fail nearly everything: then the suite would tell nothing"
    );
}

macro_rules! caught {
    ($($test:ident: $bug:ident,)+) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            is_caught(Bug::$bug).await;
        })+

        /// Every bug of the list has its test, and every case that is named exists.
        #[test]
        fn every_bug_is_planted_and_every_meant_case_exists() {
            let planted = [$(Bug::$bug,)+];
            let known: BTreeSet<_> = cases().iter().map(|case| (case.group, case.name)).collect();
            for (bug, group, name) in MEANT {
                assert!(planted.contains(bug), "{bug:?} is never planted");
                assert!(known.contains(&(*group, *name)), "there is no case {group}::{name}");
            }
        }
    };
}

caught! {
    ignoring_expectations_is_caught: IgnoresExpect,
    losing_the_second_write_is_caught: LosesSecondWrite,
    forgetting_commit_ids_is_caught: ForgetsCommitIds,
    forgetting_claim_ids_is_caught: ForgetsClaimIds,
    comparing_claim_ids_only_is_caught: ComparesClaimIdsOnly,
    comparing_commit_ids_only_is_caught: ComparesCommitIdsOnly,
    handing_out_twice_is_caught: HandsOutTwice,
    forgetting_the_moment_is_caught: ForgetsAt,
    forgetting_the_order_is_caught: ForgetsOrder,
    ignoring_the_lane_is_caught: IgnoresLane,
    ignoring_the_limit_is_caught: IgnoresLimit,
    ignoring_kinds_is_caught: IgnoresKinds,
    forgetting_what_is_due_is_caught: ForgetsDue,
    forgetting_the_holder_is_caught: ForgetsHolder,
    reading_stale_is_caught: ReadsStale,
    reversing_records_is_caught: ReversesRecords,
    dropping_cursors_is_caught: DropsCursors,
    miscounting_is_caught: MiscountsTasks,
    crossing_namespaces_is_caught: CrossesNamespaces,
    never_hinting_is_caught: NeverHints,
    ignoring_close_is_caught: IgnoresClose,
    acknowledging_before_sync_is_caught: AcksBeforeSync,
    doubling_adds_is_caught: DoublesAdds,
    forgetting_the_creator_is_caught: ForgetsCreator,
    forgetting_namespaces_is_caught: ForgetsNamespaces,
}
