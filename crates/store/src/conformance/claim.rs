//! Cases: what a claim gives, writes, promotes, counts and costs.

use std::collections::BTreeSet;
use std::sync::Arc;

use ekiden_core::claim::{Claim, ClaimPool, Kinds, LeaseTerm};
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::QuestionId;
use ekiden_core::index::DueIndex;
use ekiden_core::key::Key;
use ekiden_core::lane::LaneSpec;
use ekiden_core::lease::{Evidence, Token, Until};
use ekiden_core::limits;
use ekiden_core::order::Priority;
use ekiden_core::plan::{Enqueue, Happen, Lanes};
use ekiden_core::retry::{FailureKind, RetryPolicy};
use ekiden_core::task::{Phase, Question, Spec, Task};
use ekiden_core::time::Millis;
use ekiden_core::transition::Start;

use super::Lab;
use super::lab::{INDEX_LAG_MAX, id, ids, kind, lane, ns, other_ns, pool, runner, task_key, tasks_of};
use crate::op::{Answer, Op};
use crate::query::DueQuery;

const HOUR: Millis = Millis::from_secs(3_600);

/// A pool `work` that runs at most so many.
fn limited(max: u32) -> ClaimPool {
    ClaimPool { running_max: Some(max), ..ClaimPool::open(ns(), pool("work")) }
}

fn from_limited(lab: &Lab, max: u32) -> Claim {
    Claim { pools: vec![limited(max)], limit: 10, ..lab.claim_one() }
}

async fn running(lab: &Lab) -> i64 {
    lab.counter(&Key::running(&ns(), &pool("work"))).await
}

async fn with_kind(lab: &Lab, name: &str, of: &str) {
    let of = kind(of);
    lab.enqueue_with(name, |spec| spec.envelope.task_type = of).await;
}

async fn in_pool(lab: &Lab, name: &str, of: &str) {
    let of = pool(of);
    lab.enqueue_with(name, |spec| spec.pool = of).await;
}

/// C11
pub async fn only_ready_tasks_are_given(lab: Lab) {
    let patient = lab.policy(|policy| policy.retry = RetryPolicy::Fixed { delay: HOUR });
    lab.enqueue_with("retrying", |spec| spec.policy = patient).await;
    lab.fail(&*lab.take().await).await;
    for (name, event) in [("snoozing", false), ("asking", true)] {
        lab.enqueue(name).await;
        let token = Token(lab.take().await.state.execution_no);
        let id = QuestionId::new("q").expect("a valid id");
        let question =
            Box::new(Question { id, text: "why?".into(), choices: Vec::new(), deadline: None, default: None });
        let event =
            if event { Event::Asked { token, question } } else { Event::Snoozed { token, delay: Millis::new(50) } };
        lab.changed(name, event).await;
    }
    for name in ["first", "second"] {
        lab.enqueue_with(name, |spec| spec.lane = Some(Arc::new(LaneSpec::serial(lane("l"))))).await;
    }
    assert_eq!(lab.take().await.id().as_str(), "first");
    lab.new_task(Enqueue { start: Start::Held, ..lab.plan_of(lab.spec("pending")) }).await;
    lab.enqueue_child("blocked", &["pending"]).await;
    let (soon, later) = (lab.now() + Millis::new(5), lab.now() + Millis::new(50));
    lab.enqueue_with("delayed", |spec| spec.run_at = Some(later)).await;
    lab.enqueue_with("expired", |spec| spec.expires_at = Some(soon)).await;
    lab.enqueue("cancelled").await;
    lab.cancel("cancelled").await;
    lab.wait(Millis::new(10));
    let all = || Claim { limit: 256, ..lab.claim_one() };
    assert_eq!(tasks_of(lab.claim_now(all()).await), []);
    lab.enqueue("ready").await;
    assert_eq!(ids(&lab.claim(all()).await), ["ready"]);
}

/// C11, C15
pub async fn a_delayed_task_is_given_from_its_very_moment_on(lab: Lab) {
    let at = lab.now() + Millis::new(1_000);
    lab.enqueue_with("t", |spec| spec.run_at = Some(at)).await;
    lab.nothing_to_claim().await;
    lab.wait(Millis::new(999));
    lab.nothing_to_claim().await;
    lab.wait(Millis::new(1));
    assert_eq!(lab.take().await.id(), &id("t"));
}

/// C11, C15
pub async fn a_retry_is_given_when_its_wait_is_over(lab: Lab) {
    let fixed = lab.policy(|policy| policy.retry = RetryPolicy::Fixed { delay: Millis::new(700) });
    lab.enqueue_with("t", |spec| spec.policy = fixed).await;
    let failed = lab.fail(&*lab.take().await).await;
    assert_eq!((failed.state.phase, failed.state.next_run_at), (Phase::RetryScheduled, lab.now() + Millis::new(700)));
    lab.wait(Millis::new(699));
    lab.nothing_to_claim().await;
    lab.wait(Millis::new(1));
    let again = lab.take().await;
    assert_eq!((again.state.attempts, again.state.execution_no), (2, 2));
}

/// C11
pub async fn a_task_is_not_given_ahead_of_the_claims_clock(lab: Lab) {
    lab.wait(Millis::new(500));
    lab.enqueue("t").await;
    let early = Claim { now: lab.now() - Millis::new(1), ..lab.claim_one() };
    assert_eq!(tasks_of(lab.claim_now(early).await), []);
    assert_eq!(lab.phase("t").await, Phase::Queued);
    assert_eq!(lab.take().await.id(), &id("t"));
}

/// C11
pub async fn any_kind_means_every_kind_and_only_means_those_named(lab: Lab) {
    for (name, of) in [("a", "alpha"), ("b", "beta"), ("c", "gamma"), ("d", "beta")] {
        with_kind(&lab, name, of).await;
    }
    let only = |kinds: &[&str]| {
        let kinds = Kinds::Only(kinds.iter().map(|name| kind(name)).collect());
        Claim { kinds, limit: 1, ..lab.claim_one() }
    };
    assert_eq!(tasks_of(lab.claim_now(only(&["delta"])).await), []);
    assert_eq!(ids(&lab.claim(only(&["beta"])).await), ["b"]);
    assert_eq!(ids(&lab.claim(only(&["gamma", "beta", "delta"])).await), ["c"]);
    assert_eq!(tasks_of(lab.claim_now(only(&["gamma"])).await), []);
    let rest = lab.take_all(2).await;
    assert_eq!(ids(&rest).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(["a", "d"]));
}

/// C11, C22
pub async fn one_claim_serves_the_pools_that_it_names_and_no_others(lab: Lab) {
    for (name, of) in [("a", "one"), ("b", "two"), ("c", "three")] {
        in_pool(&lab, name, of).await;
    }
    let foreign = Spec { namespace: other_ns(), pool: pool("one"), ..lab.spec("a") };
    lab.enqueue_spec(foreign).await;
    let pools = ["one", "two", "four"].map(|name| ClaimPool::open(ns(), pool(name))).to_vec();
    let mut taken = BTreeSet::new();
    while taken.len() < 2 {
        let tasks = lab.claim(Claim { pools: pools.clone(), limit: 10, ..lab.claim_one() }).await;
        assert!(!tasks.is_empty(), "two tasks can be claimed, got {taken:?}");
        taken.extend(tasks.iter().map(|task| (task.spec.namespace.clone(), task.id().clone())));
    }
    assert_eq!(taken, BTreeSet::from([(ns(), id("a")), (ns(), id("b"))]));
    let rest = lab.claim_now(Claim { pools, limit: 10, ..lab.claim_one() }).await;
    assert_eq!(tasks_of(rest), []);
    assert_eq!(lab.phase("c").await, Phase::Queued);
    let other = lab.get(&Key::task(&other_ns(), &id("a"))).await.expect("it is there");
    assert_eq!(other.record.as_task().map(|task| task.state.phase), Some(Phase::Queued));
}

/// C11
pub async fn a_claim_gives_no_more_than_its_limit(lab: Lab) {
    for name in ["a", "b", "c", "d", "e"] {
        lab.enqueue(name).await;
    }
    let two = lab.claim_now(Claim { limit: 2, ..lab.claim_one() }).await;
    assert!(two.tasks.len() <= 2);
    if lab.store().info().exact_index {
        assert_eq!(two.tasks.len(), 2);
    }
    let rest = lab.take_all(5 - two.tasks.len()).await;
    lab.count_is(Phase::Running, 5).await;
    let taken: BTreeSet<_> = tasks_of(two).iter().chain(&rest).map(|task| task.id().clone()).collect();
    assert_eq!(taken.len(), 5);
}

/// C11
pub async fn expired_tasks_in_front_do_not_hide_the_rest(lab: Lab) {
    let end = lab.now() + Millis::new(10);
    for number in 0..20 {
        lab.enqueue_with(&format!("old-{number:02}"), |spec| spec.expires_at = Some(end)).await;
    }
    lab.wait(Millis::new(10));
    lab.enqueue("live").await;
    assert_eq!(lab.take().await.id(), &id("live"));
    assert_eq!(lab.phase("old-00").await, Phase::Queued, "a claim expires nothing by itself");
}

/// C11, C4
pub async fn a_task_is_written_as_it_was_taken(lab: Lab) {
    lab.enqueue("t").await;
    let claim = Claim { holder: runner("runner-7"), ..lab.claim_one() };
    let given = lab.claim(claim).await;
    let stored = lab.get(&task_key("t")).await.expect("it is there");
    let task = stored.record.as_task().expect("it is a task");
    assert_eq!(&given[0], task, "the answer is what was written");
    let lease = task.state.lease.as_ref().expect("a running task has a lease");
    assert_eq!(lease.claim, stored.last, "the lease keeps the claim, and the record remembers it");
    assert_eq!((&lease.holder, lease.token, lease.until), (&runner("runner-7"), Token(1), Until::Heartbeat));
    assert!(!lease.counted);
    let state = &task.state;
    assert_eq!((state.phase, state.attempts, state.execution_no), (Phase::Running, 1, 1));
    assert_eq!((state.started_at, state.promoted), (Some(lab.now()), false));
    assert_eq!(state.running_attempt().map(|attempt| attempt.runner.clone()), Some(runner("runner-7")));
    let held = TaskFilter::held_by(ns(), runner("runner-7"));
    lab.lists(held, &["t"]).await;
}

/// C11
pub async fn a_lease_for_a_time_has_a_deadline(lab: Lab) {
    lab.enqueue("t").await;
    let given = lab.claim(Claim { lease: LeaseTerm::For(Millis::from_secs(60)), ..lab.claim_one() }).await;
    let until = given[0].state.lease.as_ref().map(|lease| lease.until);
    assert_eq!(until, Some(Until::At(lab.now() + Millis::from_secs(60))));
}

/// C14
pub async fn a_repeated_claim_gives_the_same_tasks_and_no_others(lab: Lab) {
    if !lab.store().info().exact_index {
        return;
    }
    let claim = Claim { limit: 2, ..lab.claim_one() };
    lab.enqueue("a").await;
    let first = lab.claim_now(claim.clone()).await.tasks;
    assert_eq!(first.len(), 1);
    for name in ["b", "c", "d"] {
        lab.enqueue(name).await;
    }
    lab.wait(Millis::new(30));
    for _ in 0..3 {
        let again = lab.claim_now(Claim { now: lab.now(), ..claim.clone() }).await.tasks;
        assert_eq!(again, first, "same tasks, same revisions");
    }
    let others = lab.take_all(3).await;
    assert!(!ids(&others).contains(&"a"));
}

/// C14
pub async fn a_repeated_claim_gives_only_what_it_still_holds(lab: Lab) {
    if !lab.store().info().exact_index {
        return;
    }
    let claim = Claim { limit: 3, ..lab.claim_one() };
    for name in ["a", "b", "c"] {
        lab.enqueue(name).await;
    }
    let first = tasks_of(lab.claim_now(claim.clone()).await);
    assert_eq!(first.len(), 3);
    lab.succeed(&first[0]).await;
    lab.happen("b", Event::LeaseLost { evidence: Evidence::Operator }).await.expect("an operator may");
    let again = tasks_of(lab.claim_now(claim).await);
    assert_eq!(ids(&again), ["c"]);
    assert_eq!(lab.phase("b").await, Phase::Queued, "what was lost is for another claim");
}

/// C26, C14, C22: in whatever order two namespaces use one claim id, each gets its own tasks only.
pub async fn a_claim_id_of_another_namespace_gives_nothing_of_it(lab: Lab) {
    lab.enqueue("mine").await;
    let mine = lab.claim(lab.claim_one()).await.remove(0);
    let claim = mine.state.lease.as_ref().expect("it is held").claim;
    let pools = vec![ClaimPool::open(other_ns(), pool("work"))];
    let theirs = Claim { id: claim, pools, limit: 10, ..lab.claim_one() };
    let nothing = lab.claim_now(theirs.clone()).await;
    assert_eq!((tasks_of(nothing), lab.task("mine").await), (Vec::new(), Some(mine.clone())));
    lab.enqueue_spec(Spec { namespace: other_ns(), ..lab.spec("theirs") }).await;
    assert_eq!(ids(&repeated_until_some(&lab, &theirs).await), ["theirs"]);
    lab.enqueue("next").await;
    for claim in [Claim { id: claim, limit: 10, ..lab.claim_one() }, theirs] {
        for task in tasks_of(lab.claim_now(claim.clone()).await) {
            assert!(claim.asks_in(&task.spec.namespace), "{} is of {}", task.id(), task.spec.namespace);
        }
    }
    let both = vec![ClaimPool::open(other_ns(), pool("work")), ClaimPool::open(ns(), pool("work"))];
    let both = Claim { id: claim, pools: both, limit: 10, ..lab.claim_one() };
    if lab.store().info().exact_index {
        assert_eq!(
            ids(&tasks_of(lab.claim_now(both).await)),
            ["mine", "theirs"],
            "a claim that asks in both namespaces repeats both"
        );
        assert_eq!(lab.phase("next").await, Phase::Queued);
    }
}

/// C26, C14: in whatever order two holders use one claim id, each gets its own tasks only.
pub async fn a_claim_id_of_another_holder_gives_nothing_of_its_tasks(lab: Lab) {
    lab.enqueue("first").await;
    let first = lab.claim(lab.claim_one()).await.remove(0);
    let id = first.state.lease.as_ref().expect("it is held").claim;
    let other = Claim { id, holder: runner("runner-2"), limit: 10, ..lab.claim_one() };
    assert_eq!(tasks_of(lab.claim_now(other.clone()).await), []);
    assert_eq!(lab.task("first").await, Some(first), "the first holder keeps its task");
    lab.enqueue("second").await;
    assert_eq!(ids(&repeated_until_some(&lab, &other).await), ["second"]);
    lab.enqueue("third").await;
    let again = Claim { id, limit: 10, ..lab.claim_one() };
    for claim in [again, other] {
        let tasks = tasks_of(lab.claim_now(claim.clone()).await);
        let holders = tasks.iter().map(|task| task.state.lease.as_ref().map(|lease| lease.holder.clone()));
        assert!(
            holders.eq(tasks.iter().map(|_| Some(claim.holder.clone()))),
            "{} is given {:?}",
            claim.holder,
            ids(&tasks)
        );
        if lab.store().info().exact_index {
            let own = if claim.holder == runner("runner-1") { "first" } else { "second" };
            assert_eq!(ids(&tasks), [own], "the repetition finds its own, and takes no others");
        }
    }
}

/// C26, C14: a repeated claim that asks for less gives less.
pub async fn a_repeated_claim_gives_only_pools_and_kinds_that_it_asks_for(lab: Lab) {
    lab.enqueue("here").await;
    in_pool(&lab, "elsewhere", "elsewhere").await;
    with_kind(&lab, "otherwise", "otherwise").await;
    let pools = ["work", "elsewhere"].map(|name| ClaimPool::open(ns(), pool(name))).to_vec();
    let all = Claim { pools, limit: 10, ..lab.claim_one() };
    let taken = lab.claim(all.clone()).await;
    let id = taken[0].state.lease.as_ref().expect("it is held").claim;
    let one_pool = Claim { id, limit: 10, ..lab.claim_one() };
    let one_kind = Claim { id, kinds: Kinds::Only([kind("otherwise")].into()), ..all };
    let unasked = Claim { id, kinds: Kinds::Only([kind("nobody-asks")].into()), ..one_pool.clone() };
    for (claim, expected) in [(one_pool, vec!["here", "otherwise"]), (one_kind, vec!["otherwise"]), (unasked, vec![])] {
        let tasks = tasks_of(lab.claim_now(claim.clone()).await);
        assert!(tasks.iter().all(|task| claim.asks_for(&task.spec)), "{claim:?} is given {:?}", ids(&tasks));
        if lab.store().info().exact_index {
            assert_eq!(ids(&tasks).into_iter().collect::<BTreeSet<_>>(), expected.into_iter().collect());
        }
    }
}

/// Repeats one claim until it gives something: where the index lags what was just enqueued comes soon.
async fn repeated_until_some(lab: &Lab, claim: &Claim) -> Vec<Arc<Task>> {
    let patience = tokio::time::timeout(INDEX_LAG_MAX, async {
        loop {
            let tasks = tasks_of(lab.claim_now(claim.clone()).await);
            if !tasks.is_empty() || lab.store().info().exact_index {
                return tasks;
            }
            tokio::task::yield_now().await;
        }
    });
    patience.await.unwrap_or_default()
}

/// C15
pub async fn due_tasks_are_promoted_only_in_the_lines_asked_for(lab: Lab) {
    let at = lab.now() + Millis::new(100);
    for (name, of, line) in [("a", "greet", "work"), ("b", "other", "work"), ("c", "greet", "elsewhere")] {
        let (of, line) = (kind(of), pool(line));
        lab.enqueue_with(name, |spec| {
            (spec.envelope.task_type, spec.pool, spec.run_at) = (of, line, Some(at));
        })
        .await;
    }
    lab.wait(Millis::new(100));
    let mine = lab.claim(Claim { kinds: Kinds::Only([kind("greet")].into()), limit: 10, ..lab.claim_one() }).await;
    assert_eq!(ids(&mine), ["a"]);
    lab.lists_due(DueIndex::Promote, &["b", "c"]).await;
}

/// C15
pub async fn a_claim_promotes_a_bounded_number_and_later_ones_the_rest(lab: Lab) {
    let at = lab.now() + Millis::new(100);
    let delayed = |number| Spec { run_at: Some(at), ..lab.spec(&format!("t-{number:03}")) };
    lab.enqueue_many((0..300).map(delayed).collect()).await;
    lab.wait(Millis::new(100));
    lab.take().await;
    let query = DueQuery { namespace: ns(), index: DueIndex::Promote, until: lab.now(), limit: 1_000 };
    let waiting = lab.store().due(query).await.expect("a read on a store without faults").len();
    assert!(waiting >= 300 - limits::CLAIM_PROMOTE_MAX - 1, "only {waiting} of 300 were left for later claims");
    assert_eq!(lab.take_all(200).await.len() + lab.take_all(99).await.len(), 299);
    lab.nothing_to_claim().await;
}

/// C16
pub async fn a_limited_pool_never_runs_more_than_its_limit(lab: Lab) {
    for name in ["a", "b", "c", "d"] {
        lab.enqueue(name).await;
    }
    let taken = lab.take_by(from_limited(&lab, 2), 2).await;
    assert!(taken.iter().all(|task| task.state.lease.as_ref().is_some_and(|lease| lease.counted)));
    assert_eq!(running(&lab).await, 2);
    assert_eq!(tasks_of(lab.claim_now(from_limited(&lab, 2)).await), []);
    assert_eq!(ids(&lab.claim(from_limited(&lab, 3)).await), ["c"], "a raised limit counts at once");
    assert_eq!(running(&lab).await, 3);
}

/// C16
pub async fn every_end_of_an_attempt_frees_its_count_once(lab: Lab) {
    let one = || from_limited(&lab, 1);
    for name in ["a", "b", "c", "d"] {
        lab.enqueue(name).await;
        lab.wait(Millis::new(1));
    }
    let full = async |lab: &Lab| {
        assert_eq!(running(lab).await, 1);
        assert_eq!(tasks_of(lab.claim_now(one()).await), [], "the pool is full");
    };
    let a = lab.claim(one()).await.remove(0);
    full(&lab).await;
    lab.succeed(&a).await;
    assert_eq!(running(&lab).await, 0);
    let b = lab.claim(one()).await.remove(0);
    lab.cancel("b").await;
    full(&lab).await;
    lab.end_attempt(&b).await;
    assert_eq!(running(&lab).await, 0);
    let c = lab.claim(one()).await.remove(0);
    lab.changed("c", Event::LeaseLost { evidence: Evidence::Operator }).await;
    assert_eq!(running(&lab).await, 0);
    lab.succeed(&c).await;
    assert_eq!(running(&lab).await, 0, "a late settlement frees nothing again");
    let d = lab.claim(one()).await.remove(0);
    full(&lab).await;
    lab.cancel("d").await;
    lab.changed("d", Event::LeaseLost { evidence: Evidence::RunnerDead(runner("runner-1")) }).await;
    assert_eq!((d.id(), running(&lab).await), (&id("d"), 0));
}

/// C16
pub async fn a_pool_without_a_limit_counts_nothing(lab: Lab) {
    lab.enqueue("t").await;
    let task = lab.take().await;
    let counter = Key::running(&ns(), &pool("work"));
    assert_eq!(lab.get(&counter).await, None);
    lab.succeed(&task).await;
    assert_eq!(lab.get(&counter).await, None);
}

/// C16
pub async fn a_repeated_claim_counts_once(lab: Lab) {
    lab.enqueue("t").await;
    let claim = from_limited(&lab, 5);
    let first = lab.claim_now(claim.clone()).await;
    assert!(!first.tasks.is_empty() || !lab.store().info().exact_index);
    for _ in 0..3 {
        lab.claim_now(claim.clone()).await;
    }
    let counted = lab.phase("t").await == Phase::Running;
    assert_eq!(running(&lab).await, i64::from(counted));
}

/// C16
pub async fn a_paused_pool_gives_nothing_and_stops_no_other(lab: Lab) {
    lab.enqueue("paused").await;
    in_pool(&lab, "open", "open").await;
    let resting = ClaimPool { paused: true, ..ClaimPool::open(ns(), pool("work")) };
    let alone = Claim { pools: vec![resting.clone()], ..lab.claim_one() };
    assert_eq!(tasks_of(lab.claim_now(alone).await), []);
    let both = Claim { pools: vec![resting, ClaimPool::open(ns(), pool("open"))], limit: 10, ..lab.claim_one() };
    assert_eq!(ids(&lab.claim(both).await), ["open"]);
    assert_eq!(lab.take().await.id(), &id("paused"), "what rested is still there");
}

/// C8, C16
pub async fn settle_and_claim_in_one_call_keep_a_limit_of_one(lab: Lab) {
    for name in ["a", "b", "c"] {
        lab.enqueue(name).await;
        lab.wait(Millis::new(1));
    }
    let first = lab.claim(from_limited(&lab, 1)).await.remove(0);
    let event = Event::Succeeded { token: Token(first.state.execution_no), result: None };
    let settle = lab.draft(&Happen { task: task_key("a"), event }, Lanes::Admit).await;
    let answers = lab.apply(vec![Op::Commit(settle), Op::Claim(from_limited(&lab, 1))]).await;
    let [Answer::Applied(_), Answer::Claimed(claimed)] = answers.as_slice() else {
        panic!("wrong answers: {answers:?}")
    };
    let mut next: Vec<Arc<Task>> = tasks_of(claimed.clone());
    if next.is_empty() && !lab.store().info().exact_index {
        next = lab.claim(from_limited(&lab, 1)).await;
    }
    assert_eq!(ids(&next), ["b"]);
    assert_eq!((running(&lab).await, lab.phase("a").await), (1, Phase::Succeeded));
}

/// C8, C16
pub async fn a_claim_before_its_settlement_in_one_call_finds_the_pool_full(lab: Lab) {
    lab.enqueue("a").await;
    let first = lab.claim(from_limited(&lab, 1)).await.remove(0);
    lab.enqueue("b").await;
    let event = Event::Failed {
        token: Token(first.state.execution_no),
        kind: FailureKind::Permanent,
        error: Arc::from("no use"),
    };
    let settle = lab.draft(&Happen { task: task_key("a"), event }, Lanes::Admit).await;
    let answers = lab.apply(vec![Op::Claim(from_limited(&lab, 1)), Op::Commit(settle)]).await;
    let [Answer::Claimed(claimed), Answer::Applied(_)] = answers.as_slice() else {
        panic!("wrong answers: {answers:?}")
    };
    assert_eq!(claimed.tasks, []);
    assert_eq!(running(&lab).await, 0);
}

/// C17
pub async fn the_cost_of_a_claim_does_not_follow_the_backlog(lab: Lab) {
    let spec = |line: &str, number: usize| Spec { pool: pool(line), ..lab.spec(&format!("{line}-{number:03}")) };
    lab.enqueue_many((0..10).map(|number| spec("small", number)).collect()).await;
    lab.enqueue_many((0..500).map(|number| spec("large", number)).collect()).await;
    let noise = |number: usize| {
        let mut spec = spec("noisy", number);
        spec.envelope.task_type = kind("nobody-asks");
        Spec { rank: Priority::URGENT.into(), ..spec }
    };
    lab.enqueue_many((0..500).map(noise).collect()).await;
    lab.enqueue_many((500..510).map(|number| spec("noisy", number)).collect()).await;
    for kinds in [Kinds::Only([kind("greet")].into()), Kinds::Any] {
        let lines: &[&str] = if kinds == Kinds::Any { &["small", "large"] } else { &["small", "large", "noisy"] };
        let mut costs = BTreeSet::new();
        for line in lines {
            // The dearest of three: a claim that is repeated behind a retrying layer finds what it took, and costs less.
            let mut dearest = 0;
            for _ in 0..3 {
                let pools = vec![ClaimPool::open(ns(), pool(line))];
                let claimed = lab.claim_now(Claim { pools, kinds: kinds.clone(), limit: 1, ..lab.claim_one() }).await;
                assert!(claimed.tasks.len() == 1 || !lab.store().info().exact_index);
                assert!(claimed.tasks.iter().all(|task| task.key.name.starts_with(line)));
                dearest = dearest.max(claimed.visited);
            }
            costs.insert(dearest);
        }
        // An index that is behind still lists what the claims before took: at most the two of them here.
        let spread = costs.last().zip(costs.first()).map_or(0, |(most, least)| most - least);
        let allowed = if lab.store().info().exact_index { 0 } else { 2 };
        assert!(spread <= allowed, "records and entries looked at, by backlog: {costs:?}");
    }
}
