//! Cases: counts. Numbers are compared only where the store calls them exact; that all nine are there holds everywhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use ekiden_core::attempt::Stage;
use ekiden_core::claim::Claim;
use ekiden_core::commit::{Expect, Write};
use ekiden_core::event::Event;
use ekiden_core::id::{Namespace, QuestionId};
use ekiden_core::lease::{Evidence, Token};
use ekiden_core::plan::{Purge, PurgeWhen, Purged};
use ekiden_core::pool::Profile;
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Record;
use ekiden_core::retry::FailureKind;
use ekiden_core::task::{Phase, Spec};
use ekiden_core::time::Millis;
use ekiden_core::transition::Start;

use super::lab::{Lab, applied, delete, found, id, ns, other_ns, pool, question, task_key};
use crate::query::CountScope;

/// Asserts all nine counts of a scope; those that are not named are zero.
async fn counted(lab: &Lab, namespace: Namespace, pool_name: Option<&str>, expected: &[(Phase, u64)]) {
    let scope = CountScope { namespace, pool: pool_name.map(pool) };
    let counts = lab.store().counts(scope.clone()).await.expect("a read on a store without faults");
    let phases: Vec<Phase> = counts.by_phase.keys().copied().collect();
    assert_eq!(phases, Phase::ALL, "all nine phases are counted");
    if counts.exact {
        let mut all: BTreeMap<Phase, u64> = Phase::ALL.into_iter().map(|phase| (phase, 0)).collect();
        all.extend(expected.iter().copied());
        assert_eq!(counts.by_phase, all, "{scope:?}");
    }
}

/// C21
pub async fn an_empty_store_counts_nine_zeros(lab: Lab) {
    counted(&lab, ns(), None, &[]).await;
    counted(&lab, ns(), Some("work"), &[]).await;
}

/// C21
pub async fn every_phase_is_counted_apart(lab: Lab) {
    let mut expected = Vec::new();
    for (more, phase) in (1..).zip(Phase::ALL) {
        for n in 0..more {
            lab.store_task(lab.in_phase(lab.spec(&format!("{phase}-{n}")), phase)).await;
        }
        expected.push((phase, more));
        counted(&lab, ns(), None, &expected).await;
    }
    counted(&lab, ns(), Some("work"), &expected).await;
}

/// C21, C22
pub async fn counts_are_kept_for_each_pool_and_namespace(lab: Lab) {
    for (namespace, name, count) in [(ns(), "work", 3), (ns(), "mail", 2), (other_ns(), "work", 1)] {
        for n in 0..count {
            let spec = lab.spec(&format!("{name}-{n}"));
            let spec = Spec { namespace: namespace.clone(), pool: pool(name), ..spec };
            lab.enqueue_spec(spec).await;
        }
    }
    lab.cancel("mail-0").await;
    counted(&lab, ns(), Some("work"), &[(Phase::Queued, 3)]).await;
    counted(&lab, ns(), Some("mail"), &[(Phase::Queued, 1), (Phase::Cancelled, 1)]).await;
    counted(&lab, ns(), None, &[(Phase::Queued, 4), (Phase::Cancelled, 1)]).await;
    counted(&lab, ns(), Some("unknown"), &[]).await;
    counted(&lab, other_ns(), Some("work"), &[(Phase::Queued, 1)]).await;
    counted(&lab, other_ns(), Some("mail"), &[]).await;
    counted(&lab, other_ns(), None, &[(Phase::Queued, 1)]).await;
}

/// Every kind of change but a claim: from where, by what, to where.
fn changes() -> Vec<(Phase, Event, Phase)> {
    let token = Token(1);
    let failed = |kind| Event::Failed { token, kind, error: Arc::from("oops") };
    let cancel = Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None };
    let answer = Event::Answered { question: QuestionId::new("q-1").expect("a valid id"), content: Arc::from("yes") };
    let ended = Event::AttemptEnded { token, stage: Stage::Verified };
    vec![
        (Phase::Pending, Event::Released, Phase::Queued),
        (Phase::Blocked, Event::DependencyMet { parent: id("a parent") }, Phase::Queued),
        (Phase::Blocked, Event::DependencyFailed { parent: id("a parent") }, Phase::Blocked),
        (Phase::Queued, cancel.clone(), Phase::Cancelled),
        (Phase::Running, cancel, Phase::Cancelled),
        (Phase::Cancelled, ended, Phase::Cancelled),
        (Phase::Running, Event::Succeeded { token, result: None }, Phase::Succeeded),
        (Phase::Running, failed(FailureKind::Retryable), Phase::RetryScheduled),
        (Phase::Running, failed(FailureKind::Permanent), Phase::Dead),
        (Phase::Running, Event::TimedOut { token }, Phase::RetryScheduled),
        (Phase::Running, Event::Snoozed { token, delay: Millis::from_secs(1) }, Phase::Queued),
        (Phase::Running, Event::Interrupted { token }, Phase::Queued),
        (Phase::Running, Event::Returned { token }, Phase::Queued),
        (Phase::Running, Event::LeaseLost { evidence: Evidence::Operator }, Phase::Queued),
        (Phase::Running, Event::Asked { token, question: Box::new(question("which?")) }, Phase::NeedsInput),
        (Phase::NeedsInput, answer, Phase::Queued),
        (Phase::RetryScheduled, Event::RetryRequested, Phase::Queued),
    ]
}

/// C21
pub async fn counts_follow_every_kind_of_change(lab: Lab) {
    let mut totals: BTreeMap<Phase, u64> = BTreeMap::new();
    for (n, (from, event, to)) in changes().into_iter().enumerate() {
        let name = format!("t-{n:02}");
        let mut task = lab.in_phase(lab.spec(&name), from);
        if let (Phase::Cancelled, Event::AttemptEnded { .. }) = (from, &event) {
            let cancel = Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None };
            task = lab.after(&lab.in_phase(lab.spec(&name), Phase::Running), &cancel);
        }
        lab.store_task(task).await;
        let mut before = totals.clone();
        *before.entry(from).or_default() += 1;
        counted(&lab, ns(), None, &before.into_iter().collect::<Vec<_>>()).await;
        assert_eq!(lab.changed(&name, event.clone()).await.state.phase, to, "{event:?}");
        *totals.entry(to).or_default() += 1;
        counted(&lab, ns(), Some("work"), &totals.clone().into_iter().collect::<Vec<_>>()).await;
    }
}

/// C21
pub async fn expired_and_promoted_tasks_move_in_the_counts(lab: Lab) {
    let soon = Some(lab.now() + Millis::from_secs(60));
    lab.enqueue_with("expires", |spec| spec.expires_at = soon).await;
    lab.enqueue_with("waits", |spec| spec.run_at = soon).await;
    counted(&lab, ns(), None, &[(Phase::Queued, 2)]).await;
    lab.wait(Millis::from_secs(60));
    lab.changed("expires", Event::Expired).await;
    lab.changed("waits", Event::BecameDue).await;
    counted(&lab, ns(), None, &[(Phase::Queued, 1), (Phase::Dead, 1)]).await;
}

/// C21
pub async fn a_reopened_task_moves_back_in_the_counts(lab: Lab) {
    lab.enqueue_with("a", |spec| spec.policy = Profile::Request.settings().policy).await;
    let taken = lab.take().await;
    lab.fail(&taken).await;
    counted(&lab, ns(), None, &[(Phase::Dead, 1)]).await;
    lab.changed("a", Event::RetryRequested).await;
    counted(&lab, ns(), None, &[(Phase::Queued, 1)]).await;
}

/// C21
pub async fn claims_move_the_counts(lab: Lab) {
    for n in 0..5 {
        lab.enqueue(&format!("t-{n}")).await;
    }
    let soon = Some(lab.now() + Millis::from_secs(60));
    lab.enqueue_with("later", |spec| spec.run_at = soon).await;
    let mut taken = 0;
    while taken < 3 {
        let tasks = lab.claim(Claim { limit: 3 - taken, ..lab.claim_one() }).await;
        assert!(!tasks.is_empty(), "five can be claimed");
        taken += tasks.len();
    }
    counted(&lab, ns(), None, &[(Phase::Queued, 3), (Phase::Running, 3)]).await;
    lab.wait(Millis::from_secs(60));
    while taken < 6 {
        let tasks = lab.claim(Claim { limit: 10, ..lab.claim_one() }).await;
        assert!(!tasks.is_empty(), "the rest can be claimed");
        taken += tasks.len();
    }
    counted(&lab, ns(), None, &[(Phase::Running, 6)]).await;
    lab.nothing_to_claim().await;
    counted(&lab, ns(), Some("work"), &[(Phase::Running, 6)]).await;
}

/// C21
pub async fn deleted_tasks_leave_the_counts(lab: Lab) {
    for phase in Phase::ALL {
        lab.store_task(lab.in_phase(lab.spec(phase.as_str()), phase)).await;
    }
    let mut left: Vec<(Phase, u64)> = Phase::ALL.into_iter().map(|phase| (phase, 1)).collect();
    while let Some((phase, _)) = left.pop() {
        applied(lab.commit(vec![delete(task_key(phase.as_str()))]).await);
        counted(&lab, ns(), None, &left).await;
        counted(&lab, ns(), Some("work"), &left).await;
    }
    applied(lab.commit(vec![delete(task_key("dead"))]).await);
    counted(&lab, ns(), None, &[]).await;
}

/// C21
pub async fn purged_tasks_leave_the_counts(lab: Lab) {
    lab.store_task(lab.in_phase(lab.spec("a"), Phase::Succeeded)).await;
    lab.store_task(lab.in_phase(lab.spec("b"), Phase::Succeeded)).await;
    lab.wait(Millis::from_days(1));
    let purged = lab.run(&Purge { task: task_key("a"), when: PurgeWhen::OnDemand }).await;
    assert_eq!(purged.expect("a purge on a store without faults"), Purged::Gone);
    counted(&lab, ns(), None, &[(Phase::Succeeded, 1)]).await;
}

/// C1, C21
pub async fn a_conflict_does_not_count(lab: Lab) {
    lab.enqueue("taken").await;
    let put = |name: &str| {
        let task = Record::from(lab.newborn(lab.spec(name), Start::Held));
        Write::put(task_key(name), Expect::Absent, task)
    };
    assert_eq!(found(lab.commit(vec![put("new"), put("taken")]).await).len(), 1);
    counted(&lab, ns(), None, &[(Phase::Queued, 1)]).await;
}

/// C5, C21
pub async fn a_repeated_commit_does_not_count_twice(lab: Lab) {
    let op = lab.op();
    let writes =
        |start| vec![Write::put(task_key("a"), Expect::Absent, Record::from(lab.newborn(lab.spec("a"), start)))];
    for _ in 0..3 {
        applied(lab.commit_as(op, writes(Start::Held)).await);
        counted(&lab, ns(), None, &[(Phase::Pending, 1)]).await;
    }
    lab.changed("a", Event::Released).await;
    applied(lab.commit_as(op, writes(Start::Held)).await);
    counted(&lab, ns(), None, &[(Phase::Queued, 1)]).await;
}

/// C3, C21
pub async fn a_put_within_a_phase_counts_once(lab: Lab) {
    let task = Record::from(lab.newborn(lab.spec("a"), Start::Held));
    let mut revision = lab.put(&task_key("a"), Expect::Absent, task.clone()).await;
    for _ in 0..3 {
        revision = lab.put(&task_key("a"), Expect::At(revision), task.clone()).await;
        counted(&lab, ns(), None, &[(Phase::Pending, 1)]).await;
    }
}

/// C21
pub async fn other_records_do_not_count(lab: Lab) {
    let spec = |name: &str| {
        let lane = ekiden_core::id::LaneKey::new("lane").expect("a valid id");
        Spec { lane: Some(Arc::new(ekiden_core::lane::LaneSpec::serial(lane))), ..lab.spec(name) }
    };
    for name in ["a", "b", "c"] {
        lab.enqueue_spec(spec(name)).await;
    }
    lab.enqueue_child("d", &["a"]).await;
    counted(&lab, ns(), None, &[(Phase::Queued, 3), (Phase::Blocked, 1)]).await;
}
