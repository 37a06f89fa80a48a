//! Cases: leases. Who holds a task, how that ends, and what a late word is worth.

use std::sync::Arc;

use ekiden_core::attempt::{Outcome, Stage};
use ekiden_core::claim::{Claim, LeaseTerm};
use ekiden_core::event::Event;
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::RunnerId;
use ekiden_core::index::DueIndex;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lease::{Evidence, Token};
use ekiden_core::newer::Newer;
use ekiden_core::plan::{Beat, ClearDead, DeclareDead, Happened, due_event};
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Record;
use ekiden_core::runner::{Runner, RunnerStatus, Silence};
use ekiden_core::task::{Phase, Task};
use ekiden_core::time::Millis;

use super::Lab;
use super::lab::{id, ids, ns, runner, task_key};

const LEASE: Millis = Millis::from_secs(30);

fn succeeded(task: &Task) -> Event {
    Event::Succeeded { token: Token(task.state.execution_no), result: None }
}

fn lost() -> Event {
    Event::LeaseLost { evidence: Evidence::RunnerDead(runner("runner-1")) }
}

async fn refused(lab: &Lab, name: &str, event: Event) -> ReasonCode {
    lab.happen(name, event).await.expect_err("the rules refuse this").code()
}

/// Asserts what a runner holds, as its listing says.
async fn holds(lab: &Lab, name: &str, expected: &[&str]) {
    lab.lists(TaskFilter::held_by(ns(), runner(name)), expected).await;
}

fn record(lab: &Lab, name: &str) -> Runner {
    let now = lab.now();
    Runner {
        namespace: ns(),
        id: RunnerId::new(name).expect("a valid id"),
        started_at: now,
        last_heartbeat: now,
        status: RunnerStatus::Running,
        lease: LEASE,
        project_root: String::new(),
        pools: Vec::new(),
        kinds: Vec::new(),
        newer: Newer::NONE,
    }
}

/// C2
pub async fn a_late_settlement_counts_until_the_next_claim(lab: Lab) {
    lab.enqueue("t").await;
    let task = lab.take().await;
    let back = lab.changed("t", lost()).await;
    assert_eq!((back.state.phase, back.state.outcomes.lost), (Phase::Queued, 1));
    let done = lab.succeed(&task).await;
    assert_eq!(done.state.phase, Phase::Succeeded);
    assert_eq!((done.state.outcomes.succeeded, done.state.outcomes.lost), (1, 0), "one attempt, one outcome");
    lab.nothing_to_claim().await;
}

/// C2
pub async fn a_late_settlement_is_refused_after_the_next_claim(lab: Lab) {
    lab.enqueue("t").await;
    let old = lab.take().await;
    lab.changed("t", lost()).await;
    let new = lab.claim(Claim { holder: runner("runner-2"), ..lab.claim_one() }).await.remove(0);
    assert_eq!(new.state.execution_no, 2);
    assert_eq!(refused(&lab, "t", succeeded(&old)).await, ReasonCode::LeaseLost);
    assert_eq!(refused(&lab, "t", Event::Interrupted { token: Token(1) }).await, ReasonCode::LeaseLost);
    assert_eq!(lab.task("t").await.as_ref(), Some(&new), "a refusal changes nothing");
    lab.succeed(&new).await;
}

/// C2
pub async fn a_late_settlement_is_refused_after_a_final_phase(lab: Lab) {
    for name in ["cancelled", "dead"] {
        let once = lab.policy(|policy| policy.attempts_max = if name == "dead" { 1 } else { 5 });
        lab.enqueue_with(name, |spec| spec.policy = once).await;
        let task = lab.take().await;
        lab.changed(name, lost()).await;
        let expected = if name == "dead" { ReasonCode::TaskFinal } else { ReasonCode::TaskCancelled };
        if name == "cancelled" {
            lab.cancel(name).await;
        }
        assert_eq!(refused(&lab, name, succeeded(&task)).await, expected);
    }
    assert_eq!([lab.phase("cancelled").await, lab.phase("dead").await], [Phase::Cancelled, Phase::Dead]);
}

/// C2
pub async fn a_stale_or_invented_token_is_refused(lab: Lab) {
    lab.enqueue("t").await;
    let first = lab.take().await;
    lab.changed("t", Event::Interrupted { token: Token(1) }).await;
    assert_eq!(refused(&lab, "t", succeeded(&first)).await, ReasonCode::LeaseLost);
    let second = lab.take().await;
    for token in [0, 1, 3] {
        let event = Event::Succeeded { token: Token(token), result: None };
        assert_eq!(refused(&lab, "t", event).await, ReasonCode::LeaseLost, "token {token}");
    }
    lab.succeed(&second).await;
}

/// C2
pub async fn the_same_settlement_twice_is_already_done(lab: Lab) {
    lab.enqueue("t").await;
    let task = lab.take().await;
    let done = lab.succeed(&task).await;
    lab.wait(Millis::new(5));
    assert_eq!(lab.happen("t", succeeded(&task)).await.expect("no refusal"), Happened::AlreadyDone(done.clone()));
    assert_eq!(refused(&lab, "t", Event::TimedOut { token: Token(1) }).await, ReasonCode::TaskFinal);
    assert_eq!(lab.task("t").await, Some(done), "nothing was written again");
}

/// C2, C19, C20
pub async fn what_a_dead_runner_held_goes_to_others(lab: Lab) {
    let key = Key::runner(&ns(), &runner("runner-1"));
    lab.run(&Beat { runner: record(&lab, "runner-1") }).await.expect("a beat");
    for name in ["a", "b"] {
        lab.enqueue(name).await;
        lab.wait(Millis::new(1));
    }
    let held = lab.take_all(2).await;
    let declare = DeclareDead { runner: key.clone(), silence: Silence::ByClock };
    assert_eq!(lab.refused(&declare).await, ReasonCode::LeaseAlive);
    lab.wait(LEASE);
    lab.lists_due(DueIndex::Runner, &["runner-1"]).await;
    lab.run(&declare).await.expect("it was silent for a lease");
    assert_eq!(lab.refused(&Beat { runner: record(&lab, "runner-1") }).await, ReasonCode::RunnerDead);
    holds(&lab, "runner-1", &["a", "b"]).await;
    for name in ["a", "b"] {
        lab.changed(name, lost()).await;
    }
    holds(&lab, "runner-1", &[]).await;
    lab.succeed(&held[0]).await;
    let again = lab.claim(Claim { holder: runner("runner-2"), limit: 10, ..lab.claim_one() }).await;
    assert_eq!(ids(&again), ["b"], "the other was settled late by the runner that was thought dead");
    holds(&lab, "runner-2", &["b"]).await;
}

/// C19
pub async fn a_dead_runner_is_watched_until_found_empty_twice_a_lease_apart(lab: Lab) {
    let key = Key::runner(&ns(), &runner("runner-1"));
    lab.run(&Beat { runner: record(&lab, "runner-1") }).await.expect("a beat");
    lab.wait(LEASE);
    lab.run(&DeclareDead { runner: key.clone(), silence: Silence::ByClock }).await.expect("it was silent");
    let clear = ClearDead { runner: key.clone() };
    lab.run(&clear).await.expect("nothing was found");
    let once = lab.run(&clear).await.expect("nothing was found");
    assert!(matches!(once.status, RunnerStatus::Dead { cleared: 1, .. }), "twice at one moment counts once");
    lab.enqueue("straggler").await;
    lab.take().await;
    lab.wait(LEASE);
    lab.lists_due(DueIndex::Runner, &["runner-1"]).await;
    holds(&lab, "runner-1", &["straggler"]).await;
    lab.changed("straggler", lost()).await;
    lab.run(&clear).await.expect("nothing was found");
    lab.wait(Millis::from_days(1));
    lab.lists_due(DueIndex::Runner, &[]).await;
    assert!(lab.get(&key).await.is_some(), "the record stays: this incarnation never beats again");
}

/// C2
pub async fn evidence_against_another_runner_convicts_nobody(lab: Lab) {
    lab.enqueue("t").await;
    lab.take().await;
    for evidence in [Evidence::RunnerDead(runner("runner-2")), Evidence::Deadline] {
        assert_eq!(refused(&lab, "t", Event::LeaseLost { evidence }).await, ReasonCode::LeaseAlive);
    }
    assert_eq!(lab.phase("t").await, Phase::Running);
}

/// C19
pub async fn a_mailbox_lease_is_lost_at_its_deadline_and_not_before(lab: Lab) {
    lab.enqueue("t").await;
    let poll = || Claim { lease: LeaseTerm::For(LEASE), ..lab.claim_one() };
    let first = lab.claim(poll()).await.remove(0);
    let deadline = due_event(DueIndex::Lease, task_key("t")).expect("leases have deadlines");
    lab.wait(Millis::new(LEASE.as_u64() - 1));
    assert_eq!(lab.refused(&deadline).await, ReasonCode::LeaseAlive);
    lab.nothing_to_claim().await;
    lab.wait(Millis::new(1));
    lab.lists_due(DueIndex::Lease, &["t"]).await;
    assert!(matches!(lab.run(&deadline).await, Ok(Happened::Changed(_))));
    lab.lists_due(DueIndex::Lease, &[]).await;
    let second = lab.claim(poll()).await.remove(0);
    assert_eq!((first.state.execution_no, second.state.execution_no), (1, 2), "it is delivered again");
    assert_eq!(refused(&lab, "t", succeeded(&first)).await, ReasonCode::LeaseLost);
}

/// C14
pub async fn a_mailbox_lease_id_is_the_same_for_a_repeated_claim(lab: Lab) {
    lab.enqueue("t").await;
    let claim = Claim { lease: LeaseTerm::For(LEASE), ..lab.claim_one() };
    let task = lab.claim(claim).await.remove(0);
    let lease = task.state.lease.clone().expect("it is held");
    let uuid = lease.uuid(task.id());
    assert_eq!(task.token_of(uuid), Some(lease.token));
    let again = Claim { id: lease.claim, lease: LeaseTerm::For(LEASE), ..lab.claim_one() };
    if lab.store().info().exact_index {
        let again = lab.claim(again).await.remove(0);
        assert_eq!(again.state.lease.as_ref().map(|lease| lease.uuid(again.id())), Some(uuid));
    }
    lab.wait(LEASE);
    let late = lab.changed("t", Event::LeaseLost { evidence: Evidence::Deadline }).await;
    assert_eq!(late.token_of(uuid), Some(lease.token), "late, it still names its attempt");
    let next = lab.take().await;
    assert_eq!(next.token_of(uuid), None);
    assert_ne!(next.state.lease.as_ref().map(|lease| lease.uuid(next.id())), Some(uuid));
}

/// C2
pub async fn a_task_that_fails_too_often_is_dead(lab: Lab) {
    let twice = lab.policy(|policy| policy.attempts_max = 2);
    lab.enqueue_with("t", |spec| spec.policy = twice).await;
    lab.fail(&*lab.take().await).await;
    lab.wait(Millis::from_secs(600));
    let dead = lab.fail(&*lab.take().await).await;
    assert_eq!((dead.state.phase, dead.state.reason), (Phase::Dead, Some(ReasonCode::AttemptsExhausted)));
    assert_eq!(dead.state.last_error.as_deref(), Some("oops"));
    lab.nothing_to_claim().await;
}

/// C2
pub async fn a_task_that_takes_its_runner_down_too_often_is_dead(lab: Lab) {
    let fragile = lab.policy(|policy| policy.crashes_max = Some(2));
    lab.enqueue_with("t", |spec| spec.policy = fragile).await;
    let crash = || Event::LeaseLost { evidence: Evidence::ProcessDied(runner("runner-1")) };
    lab.take().await;
    lab.changed("t", crash()).await;
    let token = Token(lab.take().await.state.execution_no);
    let back = lab.changed("t", Event::Interrupted { token }).await;
    assert_eq!(back.state.crashes, 1, "an attempt that was given back says nothing of those before it");
    let token = Token(lab.take().await.state.execution_no);
    let back = lab.changed("t", Event::Snoozed { token, delay: Millis::ZERO }).await;
    assert_eq!(back.state.crashes, 0, "an attempt that ended by its own word clears the count");
    for expected in [Phase::Queued, Phase::Dead] {
        lab.take().await;
        assert_eq!(lab.changed("t", crash()).await.state.phase, expected);
    }
    let dead = lab.task("t").await.expect("it is there");
    assert_eq!((dead.state.reason, dead.state.outcomes.get(Outcome::Crashed)), (Some(ReasonCode::CrashLimit), 3));
}

/// C1, C4
pub async fn cancelling_a_running_task_signals_its_holder_who_keeps_it_until_the_end(lab: Lab) {
    lab.enqueue("t").await;
    let task = lab.take().await;
    let cancelled = lab.cancel("t").await;
    assert_eq!((cancelled.state.phase, cancelled.state.lease.is_some()), (Phase::Cancelled, true));
    let key = Key::signal(&ns(), &runner("runner-1"), &id("t"));
    let Some(Record::Signal(signal)) = lab.get(&key).await.map(|found| found.record) else { panic!("no signal") };
    assert_eq!((signal.task, signal.token, signal.at), (id("t"), Token(1), lab.now()));
    assert_eq!(lab.names(RecordKind::Signal, &Key::prefix("runner-1"), 10).await, [key.name.to_string()]);
    holds(&lab, "runner-1", &["t"]).await;
    assert_eq!(refused(&lab, "t", succeeded(&task)).await, ReasonCode::TaskCancelled, "cancelled is final");
    for stage in [Stage::Signalled, Stage::Exited] {
        lab.changed("t", Event::AttemptEnded { token: Token(1), stage }).await;
        holds(&lab, "runner-1", &["t"]).await;
    }
    let ended = lab.end_attempt(&task).await;
    assert_eq!((ended.state.phase, ended.state.outcomes.cancelled), (Phase::Cancelled, 1));
    holds(&lab, "runner-1", &[]).await;
    let again = lab.happen("t", Event::AttemptEnded { token: Token(1), stage: Stage::Verified }).await;
    assert_eq!(again.expect("no refusal"), Happened::AlreadyDone(ended));
}

/// C1
pub async fn cancelling_what_nobody_holds_signals_nobody(lab: Lab) {
    lab.enqueue("t").await;
    let cancelled: Arc<Task> = lab.cancel("t").await;
    assert_eq!(cancelled.state.lease, None);
    assert_eq!(lab.names(RecordKind::Signal, "", 10).await, Vec::<String>::new());
    lab.nothing_to_claim().await;
}
