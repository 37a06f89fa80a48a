//! Lanes: tasks of one key run one at a time and in order, or so many at a time.

use std::collections::BTreeSet;

use ekiden::core::{Hold, LaneSpec, Millis, Priority};
use ekiden::{Ask, NewTask, TaskState, When};

use super::askers::many_askers;
use super::lab::{Lab, lane_key, names, runner_id, serial};

fn in_line(lab: &Lab, name: &str, key: &str) -> NewTask {
    NewTask { lane: serial(key), ..lab.plain(name) }
}

fn at_most(width: u32) -> Option<LaneSpec> {
    Some(LaneSpec { key: lane_key("k"), width, hold: Hold::WhileRunning })
}

/// R20
pub async fn one_key_runs_one_at_a_time_in_order(lab: Lab) {
    for name in ["c", "a", "b"] {
        lab.add(in_line(&lab, name, "k")).await;
    }
    for name in ["c", "a", "b"] {
        let leased = lab.take_this(name).await;
        lab.nothing_to_take().await;
        lab.succeed(&leased).await;
    }
}

/// R20
pub async fn priority_does_not_reorder_a_key(lab: Lab) {
    lab.add(in_line(&lab, "first", "k")).await;
    lab.add(NewTask { priority: Priority::LOW, ..in_line(&lab, "second", "k") }).await;
    lab.add(NewTask { priority: Priority::URGENT, ..in_line(&lab, "third", "k") }).await;
    for name in ["first", "second", "third"] {
        lab.succeed(&lab.take_this(name).await).await;
    }
}

/// R20
pub async fn keys_do_not_hold_each_other_up(lab: Lab) {
    for (name, key) in [("a", "k"), ("b", "l"), ("c", "k")] {
        lab.add(in_line(&lab, name, key)).await;
    }
    lab.add(lab.plain("free")).await;
    let given: BTreeSet<String> = lab.given_names(lab.ask(9)).await.into_iter().collect();
    assert_eq!(given, ["a", "b", "free"].map(str::to_owned).into());
}

/// R20, R6
pub async fn a_retry_keeps_its_place_before_those_who_came_later(lab: Lab) {
    for name in ["a", "b"] {
        lab.add(in_line(&lab, name, "k")).await;
    }
    lab.fail(&lab.take_this("a").await).await;
    lab.settle_down().await;
    lab.nothing_to_take().await;
    lab.pass(1);
    lab.settle_down().await;
    lab.succeed(&lab.take_this("a").await).await;
    lab.take_this("b").await;
}

/// R20
pub async fn a_dead_or_cancelled_head_frees_the_next(lab: Lab) {
    for name in ["a", "b", "c"] {
        lab.add(in_line(&lab, name, "k")).await;
    }
    lab.kill(&lab.take_this("a").await).await;
    lab.cancel("b").await;
    lab.settle_down().await;
    lab.take_this("c").await;
}

/// R20
pub async fn who_waits_in_line_can_be_cancelled(lab: Lab) {
    for name in ["a", "b", "c"] {
        lab.add(in_line(&lab, name, "k")).await;
    }
    lab.cancel("b").await;
    lab.succeed(&lab.take_this("a").await).await;
    lab.settle_down().await;
    lab.take_this("c").await;
}

/// R20, R21
pub async fn a_delayed_head_is_waited_for(lab: Lab) {
    lab.add(NewTask { when: When::After(Millis::from_secs(60)), ..in_line(&lab, "a", "k") }).await;
    lab.add(in_line(&lab, "b", "k")).await;
    lab.nothing_to_take().await;
    lab.live_on(60).await;
    lab.settle_down().await;
    lab.succeed(&lab.take_this("a").await).await;
    lab.take_this("b").await;
}

/// R19, R20
pub async fn a_lost_attempt_keeps_its_place(lab: Lab) {
    for name in ["a", "b"] {
        lab.add(in_line(&lab, name, "k")).await;
    }
    lab.take_this("a").await;
    lab.lose_runner().await;
    let again = lab.given(Ask { holder: runner_id("runner-2"), ..lab.ask(2) }).await;
    assert_eq!(names(&again), ["a"]);
}

/// R20
pub async fn a_key_runs_no_more_than_its_width_at_once(lab: Lab) {
    for name in ["a", "b", "c", "d"] {
        lab.add(NewTask { lane: at_most(2), ..lab.plain(name) }).await;
    }
    let leased = lab.given(lab.ask(9)).await;
    assert_eq!(leased.len(), 2);
    lab.succeed(&leased[1]).await;
    lab.settle_down().await;
    assert_eq!(lab.given(lab.ask(9)).await.len(), 1);
    assert_eq!(lab.count(TaskState::Running).await, 2);
}

/// R20, R6
pub async fn a_wide_lane_is_not_held_up_by_a_retry(lab: Lab) {
    for name in ["a", "b"] {
        lab.add(NewTask { lane: at_most(1), ..lab.plain(name) }).await;
    }
    lab.fail(&lab.take_this("a").await).await;
    lab.settle_down().await;
    let second = lab.take_this("b").await;
    lab.live_on(60).await;
    lab.settle_down().await;
    lab.nothing_to_take().await;
    lab.succeed(&second).await;
    lab.settle_down().await;
    lab.take_this("a").await;
}

/// R20
pub async fn a_delayed_task_holds_no_place_of_a_wide_lane(lab: Lab) {
    let when = When::After(Millis::from_secs(60));
    lab.add(NewTask { lane: at_most(1), when, ..lab.plain("later") }).await;
    lab.add(NewTask { lane: at_most(1), ..lab.plain("now") }).await;
    lab.succeed(&lab.take_this("now").await).await;
    lab.nothing_to_take().await;
    lab.live_on(60).await;
    lab.settle_down().await;
    lab.succeed(&lab.take_this("later").await).await;
}

/// R20
pub async fn a_wider_newcomer_lets_in_those_who_wait(lab: Lab) {
    for name in ["a", "b", "c", "d", "e", "f"] {
        lab.add(NewTask { lane: at_most(1), ..lab.plain(name) }).await;
    }
    lab.pass(1);
    lab.add(NewTask { lane: at_most(9), ..lab.plain("g") }).await;
    lab.settle_down().await;
    assert_eq!(lab.given(lab.ask(9)).await.len(), 7);
}

/// R20
pub async fn an_old_member_that_rejoins_keeps_the_width_of_younger_ones(lab: Lab) {
    lab.add(NewTask { lane: at_most(1), ..lab.plain("old") }).await;
    lab.fail(&lab.take_this("old").await).await;
    for name in ["a", "b", "c", "d"] {
        lab.pass_ms(1);
        lab.add(NewTask { lane: at_most(3), ..lab.plain(name) }).await;
    }
    lab.live_on(60).await;
    lab.settle_down().await;
    let leased = lab.given(lab.ask(9)).await;
    assert_eq!(leased.len(), 3);
    lab.succeed(&leased[0]).await;
    lab.settle_down().await;
    assert_eq!(lab.given(lab.ask(9)).await.len(), 1, "three still run at once");
}

/// R20
pub async fn a_key_holds_under_many_askers_at_once(lab: Lab) {
    for number in 0..24 {
        lab.add(NewTask { lane: at_most(3), ..lab.plain(&format!("t-{number:02}")) }).await;
    }
    many_askers(&lab, 24, 3).await;
}

/// R20
pub async fn a_long_line_is_served_to_its_end(lab: Lab) {
    for number in 0..40 {
        lab.add(in_line(&lab, &format!("t-{number:02}"), "k")).await;
    }
    for number in 0..40 {
        lab.succeed(&lab.take_this(&format!("t-{number:02}")).await).await;
    }
    assert_eq!(lab.count(TaskState::Succeeded).await, 40);
}
