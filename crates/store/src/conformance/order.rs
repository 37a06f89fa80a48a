//! Cases: who is claimed first.

use ekiden_core::claim::{Claim, ClaimPool};
use ekiden_core::event::Event;
use ekiden_core::lease::{Evidence, Token};
use ekiden_core::mailbox::{MessageFields, MessagePriority};
use ekiden_core::order::Priority;
use ekiden_core::retry::RetryPolicy;
use ekiden_core::time::Millis;

use super::Lab;
use super::lab::{kind, ns, pool};

/// Claims one after another and gives the ids in that order.
async fn one_by_one(lab: &Lab, count: usize) -> Vec<String> {
    let mut names = Vec::new();
    for _ in 0..count {
        names.push(lab.take().await.id().to_string());
    }
    names
}

async fn with_priority(lab: &Lab, name: &str, priority: i32) {
    let rank = Priority::new(priority).expect("a valid priority").into();
    lab.enqueue_with(name, |spec| spec.rank = rank).await;
    lab.wait(Millis::new(1));
}

/// C13
pub async fn the_better_priority_goes_first(lab: Lab) {
    for (name, priority) in [("low", -10), ("normal", 0), ("urgent", 20), ("high", 10), ("worst", -100), ("best", 100)]
    {
        with_priority(&lab, name, priority).await;
    }
    assert_eq!(one_by_one(&lab, 6).await, ["best", "urgent", "high", "normal", "low", "worst"]);
}

/// C13
pub async fn among_equals_the_older_goes_first(lab: Lab) {
    for name in ["z", "a", "m"] {
        lab.enqueue(name).await;
        lab.wait(Millis::new(1));
    }
    let older = lab.now() - Millis::from_secs(60);
    lab.enqueue_with("oldest", |spec| spec.created_at = older).await;
    assert_eq!(one_by_one(&lab, 4).await, ["oldest", "z", "a", "m"]);
}

/// C13
pub async fn among_twins_the_smaller_id_goes_first(lab: Lab) {
    for name in ["b", "a-2", "c", "a", "a-10", "B"] {
        lab.enqueue(name).await;
    }
    assert_eq!(one_by_one(&lab, 6).await, ["B", "a", "a-10", "a-2", "b", "c"], "ids sort as bytes");
}

/// C13
pub async fn one_answer_is_sorted_like_many(lab: Lab) {
    for (name, priority) in [("c", 0), ("a", 0), ("d", -1), ("b", 5)] {
        with_priority(&lab, name, priority).await;
    }
    let ids = lab.take_ids(4).await;
    if lab.store().info().exact_index {
        assert_eq!(ids, ["b", "c", "a", "d"]);
    }
}

/// C13
pub async fn order_holds_across_kinds_and_pools(lab: Lab) {
    let mix =
        [("p", "k1", "work"), ("q", "k2", "other"), ("r", "k3", "work"), ("s", "k1", "other"), ("t", "k2", "work")];
    for (name, of, line) in mix {
        let (of, line) = (kind(of), pool(line));
        lab.enqueue_with(name, |spec| {
            (spec.envelope.task_type, spec.pool) = (of, line);
        })
        .await;
        lab.wait(Millis::new(1));
    }
    with_priority(&lab, "u", 1).await;
    let pools = vec![ClaimPool::open(ns(), pool("other")), ClaimPool::open(ns(), pool("work"))];
    let mut names = Vec::new();
    for _ in 0..6 {
        let taken = lab.claim(Claim { pools: pools.clone(), ..lab.claim_one() }).await;
        names.extend(taken.iter().map(|task| task.id().to_string()));
    }
    assert_eq!(names, ["u", "p", "q", "r", "s", "t"]);
}

/// C13
pub async fn a_mailbox_gives_smaller_numbers_first_and_none_last(lab: Lab) {
    for (name, number) in [("none", 0), ("last", 99_998), ("five", 5), ("one", 1), ("seven", 7)] {
        let priority = MessagePriority::new(number).expect("a valid priority");
        lab.enqueue_with(name, |spec| {
            spec.rank = priority.into();
            spec.message = Some(Box::new(MessageFields { priority, supersede: false }));
        })
        .await;
        lab.wait(Millis::new(1));
    }
    assert_eq!(one_by_one(&lab, 5).await, ["one", "five", "seven", "last", "none"]);
}

/// C13
pub async fn who_comes_back_keeps_its_place(lab: Lab) {
    for name in ["first", "second"] {
        lab.enqueue(name).await;
        lab.wait(Millis::new(1));
    }
    for round in 0..3 {
        let task = lab.take().await;
        assert_eq!(task.id().as_str(), "first", "round {round}");
        let token = Token(task.state.execution_no);
        let event = match round {
            0 => Event::Interrupted { token },
            1 => Event::Returned { token },
            _ => Event::LeaseLost { evidence: Evidence::Operator },
        };
        lab.wait(Millis::new(1));
        lab.changed("first", event).await;
    }
    assert_eq!(one_by_one(&lab, 2).await, ["first", "second"]);
}

/// C13, C15
pub async fn a_retry_that_is_due_again_keeps_its_place(lab: Lab) {
    let fixed = lab.policy(|policy| policy.retry = RetryPolicy::Fixed { delay: Millis::new(100) });
    lab.enqueue_with("first", |spec| spec.policy = fixed).await;
    lab.wait(Millis::new(1));
    for name in ["second", "third"] {
        lab.enqueue(name).await;
        lab.wait(Millis::new(1));
    }
    let task = lab.take().await;
    lab.fail(&task).await;
    assert_eq!(one_by_one(&lab, 1).await, ["second"], "while it waits, others run");
    lab.wait(Millis::new(100));
    assert_eq!(one_by_one(&lab, 2).await, ["first", "third"]);
}

/// C13, C15
pub async fn promoted_tasks_stand_among_the_ready_by_order_not_by_due_time(lab: Lab) {
    let (soon, later) = (lab.now() + Millis::new(50), lab.now() + Millis::new(90));
    lab.enqueue_with("due-later", |spec| spec.run_at = Some(later)).await;
    lab.wait(Millis::new(1));
    lab.enqueue_with("due-soon", |spec| spec.run_at = Some(soon)).await;
    lab.wait(Millis::new(1));
    lab.enqueue("ready").await;
    lab.enqueue_with("late-but-urgent", |spec| {
        (spec.run_at, spec.rank) = (Some(later), Priority::URGENT.into());
    })
    .await;
    lab.wait(Millis::new(100));
    assert_eq!(one_by_one(&lab, 4).await, ["late-but-urgent", "due-later", "due-soon", "ready"]);
}
