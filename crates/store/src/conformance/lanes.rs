//! Cases: lanes. The gate is at release: who has no place has no ready entry, whatever the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use ekiden_core::commit::Expect;
use ekiden_core::event::Event;
use ekiden_core::id::QuestionId;
use ekiden_core::index::DueIndex;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::lane::{Hold, LaneSpec, Place};
use ekiden_core::lease::{Evidence, Token};
use ekiden_core::mailbox::MessageFields;
use ekiden_core::order::Priority;
use ekiden_core::plan::{Enqueue, Happen, Lanes, Swept, due_event};
use ekiden_core::reason::ReasonCode;
use ekiden_core::record::Record;
use ekiden_core::retry::{FailureKind, RetryPolicy};
use ekiden_core::sweep::Sweep;
use ekiden_core::task::{Phase, Question, Spec, Task};
use ekiden_core::time::Millis;
use ekiden_core::transition::Start;

use super::Lab;
use super::lab::{at_once, id, ids, lane, ns, runner, task_key};
use crate::ext::StoreExt;
use crate::op::Answer;

const SECOND: Millis = Millis::from_secs(1);

fn serial() -> Option<Arc<LaneSpec>> {
    Some(Arc::new(LaneSpec::serial(lane("l"))))
}

fn wide(width: u32, hold: Hold) -> Option<Arc<LaneSpec>> {
    Some(Arc::new(LaneSpec { key: lane("l"), width, hold }))
}

/// A task in a lane, whose retry waits one second.
fn member(lab: &Lab, name: &str, lane: Option<Arc<LaneSpec>>) -> Spec {
    let policy = lab.policy(|policy| policy.retry = RetryPolicy::Fixed { delay: SECOND });
    Spec { lane, policy, ..lab.spec(name) }
}

async fn join_all(lab: &Lab, names: &[&str], lane: Option<Arc<LaneSpec>>) {
    for name in names {
        lab.enqueue_spec(member(lab, name, lane.clone())).await;
        lab.wait(Millis::new(1));
    }
}

async fn takes(lab: &Lab, name: &str) -> Arc<Task> {
    let task = lab.take().await;
    assert_eq!(task.id().as_str(), name, "the next of the lane");
    task
}

/// Runs what is left, one at a time, and gives the order.
async fn run_out(lab: &Lab, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    for _ in 0..count {
        let task = lab.take().await;
        lab.nothing_to_claim().await;
        names.push(task.id().to_string());
        lab.succeed(&task).await;
    }
    lab.nothing_to_claim().await;
    names
}

async fn place(lab: &Lab, name: &str) -> Place {
    lab.task(name).await.expect("it is there").state.place
}

async fn lane_is_gone(lab: &Lab) {
    assert_eq!(lab.get(&Key::lane(&ns(), &lane("l"))).await, None, "an empty lane leaves no record");
    assert_eq!(lab.names(RecordKind::LaneMember, "", 10).await, Vec::<String>::new());
}

async fn rejoin(lab: &Lab, name: &str) {
    lab.lists_due(DueIndex::Rejoin, &[name]).await;
    let happen = due_event(DueIndex::Rejoin, task_key(name)).expect("tasks rejoin");
    lab.run(&happen).await.expect("it became due");
    lab.lists_due(DueIndex::Rejoin, &[]).await;
}

/// C1, C11
pub async fn a_serial_lane_runs_one_at_a_time_in_order(lab: Lab) {
    join_all(&lab, &["c", "a", "b"], serial()).await;
    assert_eq!(place(&lab, "c").await, Place::Held);
    assert_eq!([place(&lab, "a").await, place(&lab, "b").await], [Place::Waiting(0), Place::Waiting(1)]);
    assert_eq!(run_out(&lab, 3).await, ["c", "a", "b"]);
    lane_is_gone(&lab).await;
}

/// C11
pub async fn order_holds_across_a_retry(lab: Lab) {
    join_all(&lab, &["a", "b"], serial()).await;
    lab.fail(&*takes(&lab, "a").await).await;
    lab.nothing_to_claim().await;
    lab.wait(SECOND);
    assert_eq!(run_out(&lab, 2).await, ["a", "b"]);
}

/// C11
pub async fn order_holds_across_a_snooze(lab: Lab) {
    join_all(&lab, &["a", "b"], serial()).await;
    let token = Token(takes(&lab, "a").await.state.execution_no);
    lab.changed("a", Event::Snoozed { token, delay: SECOND }).await;
    lab.nothing_to_claim().await;
    lab.wait(SECOND);
    assert_eq!(run_out(&lab, 2).await, ["a", "b"]);
}

/// C11
pub async fn order_holds_across_a_lost_lease(lab: Lab) {
    join_all(&lab, &["a", "b"], serial()).await;
    takes(&lab, "a").await;
    lab.changed("a", Event::LeaseLost { evidence: Evidence::RunnerDead(runner("runner-1")) }).await;
    assert_eq!(run_out(&lab, 2).await, ["a", "b"]);
}

/// C11
pub async fn order_holds_across_a_question(lab: Lab) {
    join_all(&lab, &["a", "b"], serial()).await;
    let token = Token(takes(&lab, "a").await.state.execution_no);
    let q = QuestionId::new("q").expect("a valid id");
    let question = Question { id: q.clone(), text: "?".into(), choices: Vec::new(), deadline: None, default: None };
    lab.changed("a", Event::Asked { token, question: Box::new(question) }).await;
    lab.nothing_to_claim().await;
    lab.changed("a", Event::Answered { question: q, content: "!".into() }).await;
    assert_eq!(run_out(&lab, 2).await, ["a", "b"]);
}

/// C1
pub async fn a_cancelled_runner_keeps_the_lane_until_its_attempt_has_ended(lab: Lab) {
    join_all(&lab, &["a", "b"], serial()).await;
    let a = takes(&lab, "a").await;
    lab.cancel("a").await;
    lab.nothing_to_claim().await;
    assert_eq!((lab.phase("a").await, place(&lab, "a").await), (Phase::Cancelled, Place::Held));
    lab.end_attempt(&a).await;
    assert_eq!(run_out(&lab, 1).await, ["b"]);
    lane_is_gone(&lab).await;
}

/// C1
pub async fn a_cancelled_runner_keeps_the_lane_until_its_lease_is_lost(lab: Lab) {
    join_all(&lab, &["a", "b"], serial()).await;
    takes(&lab, "a").await;
    lab.cancel("a").await;
    lab.nothing_to_claim().await;
    lab.changed("a", Event::LeaseLost { evidence: Evidence::RunnerDead(runner("runner-1")) }).await;
    assert_eq!(lab.phase("a").await, Phase::Cancelled, "losing the lease does not revive it");
    assert_eq!(run_out(&lab, 1).await, ["b"]);
}

/// C1
pub async fn a_cancelled_waiter_never_runs_and_holds_up_nobody(lab: Lab) {
    join_all(&lab, &["a", "b", "c"], serial()).await;
    lab.cancel("b").await;
    assert_eq!(run_out(&lab, 2).await, ["a", "c"]);
    assert_eq!(lab.phase("b").await, Phase::Cancelled);
    lane_is_gone(&lab).await;
}

/// C1
pub async fn a_dead_head_frees_the_next(lab: Lab) {
    join_all(&lab, &["a", "b"], serial()).await;
    let token = Token(takes(&lab, "a").await.state.execution_no);
    lab.changed("a", Event::Failed { token, kind: FailureKind::Permanent, error: "no".into() }).await;
    assert_eq!(lab.phase("a").await, Phase::Dead);
    assert_eq!(run_out(&lab, 1).await, ["b"]);
}

/// C1
pub async fn an_expired_head_frees_the_next(lab: Lab) {
    let end = lab.now() + SECOND;
    lab.enqueue_spec(Spec { expires_at: Some(end), ..member(&lab, "a", serial()) }).await;
    join_all(&lab, &["b"], serial()).await;
    lab.wait(SECOND);
    lab.nothing_to_claim().await;
    lab.lists_due(DueIndex::Expire, &["a"]).await;
    lab.run(&due_event(DueIndex::Expire, task_key("a")).expect("tasks expire")).await.expect("it expires");
    assert_eq!(lab.phase("a").await, Phase::Dead);
    assert_eq!(run_out(&lab, 1).await, ["b"]);
}

/// C13
pub async fn priority_never_reorders_inside_a_lane(lab: Lab) {
    for (name, priority) in [("a", Priority::LOW), ("b", Priority::NORMAL), ("c", Priority::URGENT)] {
        lab.enqueue_spec(Spec { rank: priority.into(), ..member(&lab, name, serial()) }).await;
    }
    assert_eq!(run_out(&lab, 3).await, ["a", "b", "c"]);
}

/// C11
pub async fn a_delayed_head_holds_the_lane(lab: Lab) {
    let later = lab.now() + SECOND;
    lab.enqueue_spec(Spec { run_at: Some(later), ..member(&lab, "a", serial()) }).await;
    join_all(&lab, &["b"], serial()).await;
    lab.nothing_to_claim().await;
    lab.wait(SECOND);
    assert_eq!(run_out(&lab, 2).await, ["a", "b"]);
}

/// C11
pub async fn a_delayed_waiter_is_admitted_and_then_waits_for_its_moment(lab: Lab) {
    let later = lab.now() + SECOND;
    join_all(&lab, &["a"], serial()).await;
    lab.enqueue_spec(Spec { run_at: Some(later), ..member(&lab, "b", serial()) }).await;
    join_all(&lab, &["c"], serial()).await;
    lab.succeed(&*takes(&lab, "a").await).await;
    assert_eq!(place(&lab, "b").await, Place::Held);
    lab.nothing_to_claim().await;
    lab.wait(SECOND);
    assert_eq!(run_out(&lab, 2).await, ["b", "c"]);
}

/// C11
pub async fn a_held_task_joins_its_lane_when_it_is_released(lab: Lab) {
    let held = Enqueue { start: Start::Held, ..lab.plan_of(member(&lab, "early", serial())) };
    lab.new_task(held).await;
    join_all(&lab, &["a"], serial()).await;
    lab.changed("early", Event::Released).await;
    assert_eq!(run_out(&lab, 2).await, ["a", "early"], "its turn is decided by when it joined");
}

/// C11
pub async fn a_lane_of_three_runs_three(lab: Lab) {
    join_all(&lab, &["a", "b", "c", "d", "e"], wide(3, Hold::UntilFinal)).await;
    let first = lab.take_all(3).await;
    assert_eq!(ids(&first), ["a", "b", "c"]);
    lab.nothing_to_claim().await;
    lab.succeed(&first[1]).await;
    takes(&lab, "d").await;
    lab.nothing_to_claim().await;
    lab.succeed(&first[0]).await;
    takes(&lab, "e").await;
}

/// C1, C19
pub async fn while_running_a_retry_frees_its_place_and_stands_in_line_again(lab: Lab) {
    join_all(&lab, &["a", "b", "c"], wide(1, Hold::WhileRunning)).await;
    let a = takes(&lab, "a").await;
    lab.fail(&a).await;
    assert_eq!(place(&lab, "a").await, Place::None);
    let b = takes(&lab, "b").await;
    lab.nothing_to_claim().await;
    lab.wait(SECOND);
    rejoin(&lab, "a").await;
    lab.nothing_to_claim().await;
    lab.succeed(&b).await;
    assert_eq!(run_out(&lab, 2).await, ["c", "a"], "it stands behind those who waited");
    lane_is_gone(&lab).await;
}

/// C1
pub async fn while_running_an_interrupted_task_goes_to_the_back(lab: Lab) {
    join_all(&lab, &["a", "b"], wide(1, Hold::WhileRunning)).await;
    let token = Token(takes(&lab, "a").await.state.execution_no);
    lab.changed("a", Event::Interrupted { token }).await;
    assert_eq!(run_out(&lab, 2).await, ["b", "a"]);
    lane_is_gone(&lab).await;
}

/// C1
pub async fn a_late_settlement_leaves_the_line_that_its_task_had_joined_again(lab: Lab) {
    join_all(&lab, &["a", "b", "c"], wide(1, Hold::WhileRunning)).await;
    let a = takes(&lab, "a").await;
    lab.changed("a", Event::LeaseLost { evidence: Evidence::Operator }).await;
    assert!(matches!(place(&lab, "a").await, Place::Waiting(_)));
    lab.succeed(&a).await;
    assert_eq!(run_out(&lab, 2).await, ["b", "c"]);
    lane_is_gone(&lab).await;
}

/// C11
pub async fn lanes_of_different_keys_do_not_meet(lab: Lab) {
    for name in ["a", "b"] {
        for key in ["x", "y"] {
            let lane = Some(Arc::new(LaneSpec::serial(lane(key))));
            lab.enqueue_spec(member(&lab, &format!("{key}-{name}"), lane)).await;
        }
        lab.wait(Millis::new(1));
    }
    lab.enqueue("free").await;
    let heads = lab.take_all(3).await;
    assert_eq!(ids(&heads).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(["free", "x-a", "y-a"]));
    lab.nothing_to_claim().await;
    let y = heads.iter().find(|task| task.id() == &id("y-a")).unwrap();
    lab.succeed(y).await;
    takes(&lab, "y-b").await;
    lab.nothing_to_claim().await;
}

/// C1
pub async fn an_empty_lane_is_gone_and_starts_again_cleanly(lab: Lab) {
    for round in 0..3 {
        let names = [format!("a-{round}"), format!("b-{round}"), format!("c-{round}")];
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        join_all(&lab, &names, serial()).await;
        assert_eq!(place(&lab, names[1]).await, Place::Waiting(0), "numbers start again");
        assert_eq!(run_out(&lab, 3).await, names);
        lane_is_gone(&lab).await;
    }
}

fn message(lab: &Lab, name: &str, supersede: bool) -> Spec {
    let fields = MessageFields { supersede, ..MessageFields::default() };
    Spec { message: Some(Box::new(fields)), ..member(lab, name, serial()) }
}

/// C1
pub async fn a_superseding_message_cancels_older_ones_that_nobody_has_taken(lab: Lab) {
    for name in ["a", "b", "c"] {
        lab.enqueue_spec(message(&lab, name, true)).await;
        lab.wait(Millis::new(1));
    }
    for name in ["a", "b"] {
        let older = lab.task(name).await.expect("it is there");
        assert_eq!((older.state.phase, older.state.reason), (Phase::Cancelled, Some(ReasonCode::Superseded)));
    }
    let c = takes(&lab, "c").await;
    lab.enqueue_spec(message(&lab, "d", false)).await;
    lab.enqueue_spec(message(&lab, "e", true)).await;
    assert_eq!(lab.phase("c").await, Phase::Running, "what was taken is delivered");
    assert_eq!(lab.phase("d").await, Phase::Cancelled);
    lab.nothing_to_claim().await;
    lab.succeed(&c).await;
    assert_eq!(run_out(&lab, 1).await, ["e"]);
    lane_is_gone(&lab).await;
}

/// C1
pub async fn superseding_many_strands_nobody(lab: Lab) {
    let old: Vec<String> = (0..8).map(|number| format!("old-{number}")).collect();
    for name in &old {
        lab.enqueue_spec(message(&lab, name, false)).await;
        lab.wait(Millis::new(1));
    }
    lab.enqueue_spec(message(&lab, "new", true)).await;
    assert_eq!(lab.phase("old-0").await, Phase::Cancelled);
    lab.sweep(&Key::sweep(&ns(), &Sweep::admit_id(&lane("l")))).await;
    let mut left = 1;
    for name in &old {
        left += usize::from(lab.phase(name).await != Phase::Cancelled);
    }
    let ran = run_out(&lab, left).await;
    assert_eq!(ran.last().map(String::as_str), Some("new"), "whoever was not cancelled runs before it: {ran:?}");
    lane_is_gone(&lab).await;
}

/// C2
pub async fn two_who_race_for_one_place_do_not_both_get_it(lab: Lab) {
    let [a, b] = ["a", "b"].map(|name| lab.plan_of(member(&lab, name, serial())));
    let (first, second) = (lab.draft(&a, Lanes::Admit).await, lab.draft(&b, Lanes::Admit).await);
    let store = lab.store();
    assert!(matches!(store.commit(first).await, Ok(Answer::Applied(_))));
    assert!(matches!(store.commit(second).await, Ok(Answer::Conflict(_))), "both read an empty lane");
    lab.new_task(b).await;
    assert_eq!([place(&lab, "a").await, place(&lab, "b").await], [Place::Held, Place::Waiting(0)]);
    let racers = at_once(8, |number| {
        let lab = lab.clone();
        async move { lab.enqueue_spec(member(&lab, &format!("r-{number}"), serial())).await.state.place }
    })
    .await;
    let numbers: BTreeSet<u64> = racers
        .iter()
        .filter_map(|place| if let Place::Waiting(number) = place { Some(*number) } else { None })
        .collect();
    assert_eq!(numbers, (1..9).collect(), "everybody has a number of their own");
    assert_eq!(run_out(&lab, 10).await.len(), 10);
}

/// C2
pub async fn an_end_that_met_too_many_conflicts_leaves_the_next_to_a_sweep(lab: Lab) {
    join_all(&lab, &["a", "b", "c"], serial()).await;
    let token = Token(takes(&lab, "a").await.state.execution_no);
    let event = Event::Succeeded { token, result: None };
    let settle = lab.draft(&Happen { task: task_key("a"), event }, Lanes::Defer).await;
    assert!(matches!(lab.store().commit(settle).await, Ok(Answer::Applied(_))));
    lab.nothing_to_claim().await;
    lab.enqueue_spec(member(&lab, "d", serial())).await;
    assert!(matches!(place(&lab, "d").await, Place::Waiting(_)), "a newcomer does not overtake those who wait");
    let sweep = Key::sweep(&ns(), &Sweep::admit_id(&lane("l")));
    lab.lists_due(DueIndex::Sweep, &[&sweep.name]).await;
    let step = lab.sweep_step(&sweep, 24).await.expect("there is work");
    assert_eq!(lab.run(&step).await.expect("a step"), Swept::Ended);
    assert_eq!(lab.get(&sweep).await, None);
    assert_eq!(lab.run(&step).await.expect("a step"), Swept::Ended, "again, it does nothing");
    assert_eq!(run_out(&lab, 3).await, ["b", "c", "d"]);
    lane_is_gone(&lab).await;
}

/// C1
pub async fn a_lane_that_got_wider_is_filled_in_pages(lab: Lab) {
    let names: Vec<String> = (0..10).map(|number| format!("t-{number}")).collect();
    for name in &names[..9] {
        lab.enqueue_spec(member(&lab, name, wide(1, Hold::UntilFinal))).await;
        lab.wait(Millis::new(1));
    }
    lab.enqueue_spec(member(&lab, &names[9], wide(20, Hold::UntilFinal))).await;
    lab.succeed(&*takes(&lab, "t-0").await).await;
    let sweep = Key::sweep(&ns(), &Sweep::admit_id(&lane("l")));
    assert!(lab.get(&sweep).await.is_some(), "more could be admitted than fit into one commit");
    lab.sweep(&sweep).await;
    assert_eq!(ids(&lab.take_all(9).await), names[1..].iter().map(String::as_str).collect::<Vec<_>>());
}

/// C1
pub async fn a_foreign_cancel_of_a_waiter_is_passed_over_not_revived(lab: Lab) {
    join_all(&lab, &["a", "b", "c"], serial()).await;
    let waiting = lab.get(&task_key("b")).await.expect("it is there");
    let mut foreign = Task::clone(waiting.record.as_task().expect("it is a task"));
    foreign.state.phase = Phase::Cancelled;
    foreign.state.finished_at = Some(lab.now());
    lab.put(&task_key("b"), Expect::At(waiting.revision), Record::from(foreign)).await;
    assert_eq!(run_out(&lab, 2).await, ["a", "c"]);
    assert_eq!(lab.phase("b").await, Phase::Cancelled);
    lane_is_gone(&lab).await;
}
