//! Pools: pauses and limits that hold at once, and rules that tasks take along.

use std::sync::Arc;

use ekiden::core::{Concurrency, Keep, Kind, Millis, PoolSettings, Profile, ReasonCode, RetryPolicy, Timeout};
use ekiden::{Ask, NewTask, TaskState, Wishes};

use super::askers::many_askers;
use super::lab::{Lab, code, pool, runner_id};

async fn settings(lab: &Lab, name: &str) -> PoolSettings {
    lab.queue.pool(lab.namespace(), pool(name)).await.expect("a pool can be read")
}

/// R7, R18
pub async fn a_pool_that_nobody_set_has_the_defaults_of_its_store(lab: Lab) {
    let store = lab.queue.info().store;
    let any = Kind::new("any").expect("three letters are a kind");
    assert_eq!(settings(&lab, "fresh").await, Profile::of(&store, &any).settings());
}

/// R20
pub async fn what_is_set_is_read_back(lab: Lab) {
    let mut set = Profile::Embedded.settings();
    set.running_max = Some(7);
    set.concurrency = Concurrency::Fixed(3);
    set.lease = Millis::from_secs(45);
    Arc::make_mut(&mut set.policy).timeout = Timeout::After(Millis::from_secs(9));
    lab.queue.set_pool(lab.namespace(), pool("side"), set.clone()).await.expect("settings in range are taken");
    assert_eq!(settings(&lab, "side").await, set);
}

/// R20
pub async fn pools_that_somebody_set_are_listed_in_pages(lab: Lab) {
    lab.add(NewTask { pool: pool("nobody's"), ..lab.plain("a") }).await;
    for name in ["b", "c", "a"] {
        lab.set_pool(name, |set| set.running_max = Some(7)).await;
    }
    let (mut listed, mut cursor) = (Vec::new(), None);
    loop {
        let page = lab.queue.pools(lab.namespace(), cursor, 2).await.expect("pools can be listed");
        listed.extend(page.items.into_iter().map(|pool| (pool.name.to_string(), pool.settings.running_max)));
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    let expected = [("a", Some(7)), ("b", Some(7)), ("c", Some(7)), ("default", None)];
    assert_eq!(
        listed,
        expected.map(|(name, max)| (name.to_owned(), max)),
        "a pool that nobody set has nothing to list"
    );
}

/// R20
pub async fn settings_that_cannot_be_meant_are_refused(lab: Lab) {
    let before = settings(&lab, "default").await;
    type Change = fn(&mut PoolSettings);
    let wrong: [(Change, ReasonCode); 5] = [
        (|set| set.running_max = Some(0), ReasonCode::NumberOutOfRange),
        (|set| set.concurrency = Concurrency::Fixed(0), ReasonCode::NumberOutOfRange),
        (|set| set.lease = Millis::ZERO, ReasonCode::DurationInvalid),
        (|set| Arc::make_mut(&mut set.policy).attempts_max = 0, ReasonCode::NumberOutOfRange),
        (|set| Arc::make_mut(&mut set.policy).keep = Keep::For(Millis::ZERO), ReasonCode::DurationInvalid),
    ];
    for (change, why) in wrong {
        let mut set = before.clone();
        change(&mut set);
        assert_eq!(code(lab.queue.set_pool(lab.namespace(), pool("default"), set).await), why);
    }
    assert_eq!(settings(&lab, "default").await, before);
}

/// R20
pub async fn a_pause_holds_at_once_and_until_it_is_lifted(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.set_pool("default", |set| set.paused = true).await;
    lab.nothing_to_take().await;
    lab.pass(3_600);
    lab.nothing_to_take().await;
    lab.set_pool("default", |_| {}).await;
    lab.take_this("a").await;
}

/// R20
pub async fn a_paused_pool_takes_tasks_in_and_lets_running_ones_end(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let leased = lab.take().await;
    lab.set_pool("default", |set| set.paused = true).await;
    lab.add(lab.plain("b")).await;
    lab.succeed(&leased).await;
    assert_eq!((lab.state("a").await, lab.state("b").await), (TaskState::Succeeded, TaskState::Queued));
}

/// R20
pub async fn a_pause_stops_no_other_pool(lab: Lab) {
    lab.set_pool("side", |_| {}).await;
    lab.set_pool("default", |set| set.paused = true).await;
    lab.add(lab.plain("a")).await;
    lab.add(NewTask { pool: pool("side"), ..lab.plain("b") }).await;
    let ask = Ask { pools: [pool("default"), pool("side")].into(), ..lab.ask(5) };
    assert_eq!(lab.given_names(ask).await, ["b"]);
}

/// R20
pub async fn a_pool_runs_no_more_than_its_limit(lab: Lab) {
    lab.set_pool("default", |set| set.running_max = Some(2)).await;
    lab.add_all(&["a", "b", "c", "d"]).await;
    let leased = lab.given(lab.ask(9)).await;
    assert_eq!(leased.len(), 2);
    lab.nothing_to_take().await;
    lab.fail(&leased[0]).await;
    lab.take_this("c").await;
    lab.nothing_to_take().await;
}

/// R20
pub async fn every_end_of_an_attempt_makes_room(lab: Lab) {
    use ekiden::Verdict;
    lab.set_pool("default", |set| set.running_max = Some(1)).await;
    lab.add(lab.plain("a")).await;
    let ends = [
        Verdict::Returned,
        Verdict::Interrupted,
        Verdict::Snoozed(Millis::ZERO),
        Verdict::TimedOut,
        Verdict::Failed(super::lab::failure("no")),
        Verdict::Succeeded(None),
    ];
    for verdict in ends {
        let leased = lab.take().await;
        lab.settle(&leased, verdict).await.expect("the holder may settle");
        lab.pass(60);
    }
    lab.add(lab.plain("b")).await;
    lab.take().await;
    lab.lose_runner().await;
    lab.given(Ask { holder: runner_id("runner-2"), ..lab.ask(1) }).await.pop().expect("a lost attempt makes room too");
}

/// R20
pub async fn a_pools_limit_holds_under_many_askers_at_once(lab: Lab) {
    lab.set_pool("default", |set| set.running_max = Some(3)).await;
    lab.queue.enqueue((0..30).map(|number| lab.plain(&format!("t-{number:02}"))).collect()).await;
    many_askers(&lab, 30, 3).await;
}

/// R8
pub async fn tasks_take_their_pools_rules_along(lab: Lab) {
    lab.set_pool("default", |set| {
        let policy = Arc::make_mut(&mut set.policy);
        policy.attempts_max = 2;
        policy.retry = RetryPolicy::Fixed { delay: Millis::from_secs(3) };
    })
    .await;
    lab.add(lab.plain("a")).await;
    assert_eq!(lab.get("a").await.max_attempts, 2);
    let settled = lab.fail(&lab.take().await).await;
    assert_eq!(settled.next_run_at, Some(lab.now() + Millis::from_secs(3)));
    lab.pass(3);
    assert_eq!(lab.fail(&lab.take().await).await.state, TaskState::Dead);
}

/// R8
pub async fn a_pools_new_rules_do_not_touch_tasks_that_are_there(lab: Lab) {
    lab.add(lab.plain("a")).await;
    lab.set_pool("default", |set| Arc::make_mut(&mut set.policy).attempts_max = 1).await;
    assert_eq!(lab.get("a").await.max_attempts, 5);
    assert_eq!(lab.fail(&lab.take().await).await.state, TaskState::RetryScheduled);
}

/// R8
pub async fn a_tasks_own_wishes_go_before_its_pool(lab: Lab) {
    lab.set_pool("default", |set| Arc::make_mut(&mut set.policy).attempts_max = 1).await;
    let wishes = Wishes {
        attempts_max: Some(3),
        retry: Some(RetryPolicy::Fixed { delay: Millis::from_secs(4) }),
        timeout: Some(Timeout::After(Millis::from_secs(6))),
        ..Wishes::default()
    };
    lab.add(NewTask { wishes, ..lab.plain("a") }).await;
    let leased = lab.take().await;
    assert_eq!(leased.spec.policy.timeout, Timeout::After(Millis::from_secs(6)));
    let settled = lab.fail(&leased).await;
    assert_eq!(settled.next_run_at, Some(lab.now() + Millis::from_secs(4)));
    assert_eq!(lab.get("a").await.max_attempts, 3);
}
