//! Namespaces: no answer and no write crosses them.

use ekiden::core::{IdempotencyKey, Namespace, ReasonCode};
use ekiden::{Ask, Bulk, NewTask, Settlement, TaskState, Verdict};

use super::lab::{Lab, RUNNER, code, runner_id, serial, sweep_id};

/// Q12
pub async fn one_id_names_two_tasks_in_two_namespaces(lab: Lab) {
    let other = lab.elsewhere("other").await;
    lab.add(lab.plain("a")).await;
    other.gone("a").await;
    other.add(other.plain("a")).await;
    lab.succeed(&lab.take_this("a").await).await;
    assert_eq!((lab.state("a").await, other.state("a").await), (TaskState::Succeeded, TaskState::Queued));
}

/// Q12
pub async fn tasks_are_given_counted_and_listed_in_their_namespace_alone(lab: Lab) {
    let other = lab.elsewhere("other").await;
    lab.add(lab.plain("a")).await;
    other.nothing_to_take().await;
    assert_eq!(other.counts().await.by_phase.values().sum::<u64>(), 0);
    assert!(other.listed(other.all()).await.is_empty());
    assert_eq!(lab.listed(lab.all()).await, ["a"]);
}

/// Q12
pub async fn commands_reach_their_namespace_alone(lab: Lab) {
    let other = lab.elsewhere("other").await;
    for each in [&lab, &other] {
        each.add(each.plain("a")).await;
    }
    lab.queue.start_bulk(sweep_id("x"), Bulk::Cancel(lab.all())).await.expect("a bulk command can be started");
    other.settle_down().await;
    assert_eq!(lab.state("a").await, TaskState::Queued, "maintenance of one namespace is not that of another");
    lab.settle_down().await;
    assert_eq!((lab.state("a").await, other.state("a").await), (TaskState::Cancelled, TaskState::Queued));
}

/// Q12
pub async fn parents_keys_and_lanes_belong_to_their_namespace(lab: Lab) {
    let other = lab.elsewhere("other").await;
    lab.add(lab.plain("parent")).await;
    let child = NewTask { parents: vec![super::lab::id("parent")], ..other.plain("child") };
    assert_eq!(other.refused(child).await, ReasonCode::DependencyUnknown);
    for each in [&lab, &other] {
        let idempotency = IdempotencyKey::new("i").ok();
        each.add(NewTask { lane: serial("k"), idempotency, ..each.plain("keyed") }).await;
    }
    lab.succeed(&lab.take_this("keyed").await).await;
    other.take_this("keyed").await;
}

/// Q12
pub async fn pools_and_schedules_belong_to_their_namespace(lab: Lab) {
    let other = lab.elsewhere("other").await;
    lab.set_pool("default", |set| set.paused = true).await;
    other.add(other.plain("a")).await;
    other.take_this("a").await;
    lab.queue.set_schedule(lab.every("s", 60)).await.expect("a schedule can be set");
    assert!(other.queue.schedules(other.namespace()).await.expect("schedules can be listed").is_empty());
    lab.pass(60);
    assert_eq!((other.settle_down().await.ticked, lab.settle_down().await.ticked), (0, 1));
}

/// Q12
pub async fn runners_and_leases_belong_to_their_namespace(lab: Lab) {
    let other = lab.elsewhere("other").await;
    lab.beat(RUNNER).await;
    lab.add(lab.plain("a")).await;
    lab.take().await;
    assert!(other.queue.runners(other.namespace()).await.expect("runners can be listed").is_empty());
    let held = other.queue.held(other.namespace(), runner_id(RUNNER)).await.expect("holdings can be read");
    assert!(held.is_empty());
    assert_eq!(code(other.queue.goodbye(other.namespace(), runner_id(RUNNER)).await), ReasonCode::RunnerNotFound);
    lab.pass(30);
    other.settle_down().await;
    assert_eq!(lab.state("a").await, TaskState::Running);
}

/// Q12: in whatever order two namespaces use one id of a request for tasks, each gets its own.
pub async fn a_request_id_of_another_namespace_gives_nothing_of_it(lab: Lab) {
    let other = lab.elsewhere("other").await;
    lab.add(lab.plain("mine")).await;
    let mine = lab.ask(9);
    assert_eq!(lab.given_names(mine.clone()).await, ["mine"]);
    let theirs = Ask { id: mine.id, ..other.ask(9) };
    assert!(other.given(theirs.clone()).await.is_empty(), "the id of a request is nothing elsewhere");
    other.add(other.plain("theirs")).await;
    assert_eq!(other.given_names(theirs.clone()).await, ["theirs"]);
    lab.add(lab.plain("later")).await;
    assert_eq!(
        (lab.given_names(mine).await, other.given_names(theirs).await),
        (vec!["mine".into()], vec!["theirs".into()])
    );

    let fed = other.ask(9);
    other.add(other.plain("fed")).await;
    assert_eq!(other.given_names(fed.clone()).await, ["fed"]);
    assert_eq!(
        lab.given_names(Ask { id: fed.id, ..lab.ask(9) }).await,
        ["later"],
        "a runner is not fed from another namespace"
    );
}

/// Q12: in whatever order two namespaces use one id of a settlement, each is carried out.
pub async fn a_settlement_id_of_another_namespace_settles_nothing_of_it(lab: Lab) {
    let (other, id) = (lab.elsewhere("other").await, lab.op());
    for each in [&lab, &other] {
        each.add(each.plain("a")).await;
        let leased = each.take_this("a").await;
        let settlement = Settlement { id, lease: leased.lease, verdict: Verdict::Succeeded(None) };
        let done = each.queue.settle(vec![settlement], None).await;
        assert!(done.settled.iter().all(Result::is_ok), "{done:?}");
        assert_eq!(each.state("a").await, TaskState::Succeeded);
    }
}

/// Q12
pub async fn namespaces_are_listed_in_order_and_in_pages(lab: Lab) {
    lab.add(lab.plain("a")).await;
    for name in ["zebra", "other"] {
        let elsewhere = lab.elsewhere(name).await;
        elsewhere.add(elsewhere.plain("a")).await;
    }
    let mut expected = vec![lab.namespace().as_str().to_owned(), "other".to_owned(), "zebra".to_owned()];
    expected.sort();
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = lab.queue.namespaces(after, 2).await.expect("namespaces can be listed");
        assert!(page.items.len() <= 2);
        listed.extend(page.items.iter().map(|name| name.as_str().to_owned()));
        let Some(cursor) = page.cursor else { break };
        after = Namespace::new(cursor).ok();
    }
    assert_eq!(listed, expected);
}
