//! Listings: every filter, and pages that neither lose nor repeat.

use ekiden::core::{ReasonCode, SessionId, TaskEnvelope, TaskFilter};
use ekiden::store::{ListOrder, TaskQuery};
use ekiden::{NewTask, TaskState};

use super::lab::{Lab, RUNNER, code, group, kind, pool, runner_id};

/// Every page of a listing, read to its end.
async fn pages(lab: &Lab, filter: TaskFilter, order: ListOrder, limit: usize) -> Vec<Vec<String>> {
    let mut query = TaskQuery { filter, order, cursor: None, limit };
    let mut pages = Vec::new();
    loop {
        let page = lab.queue.tasks(query.clone()).await.expect("tasks can be listed");
        assert!(page.items.len() <= limit, "a page holds no more than its limit");
        pages.push(page.items.iter().map(|record| record.id.to_string()).collect());
        match page.cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return pages,
        }
    }
}

async fn numbered(lab: &Lab, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("t-{number:03}")).collect();
    lab.add_all(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    names
}

/// R10
pub async fn listings_show_tasks_as_they_are(lab: Lab) {
    lab.add_dead("a").await;
    let page = lab.queue.tasks(TaskQuery::oldest(lab.all(), 5)).await.expect("tasks can be listed");
    assert_eq!(page.items, [lab.get("a").await]);
}

/// R10
pub async fn listings_filter_by_state(lab: Lab) {
    lab.add_succeeded("done").await;
    lab.add_dead("dead").await;
    lab.add(lab.plain("open")).await;
    let of = |phases: &[TaskState]| TaskFilter { phases: phases.to_vec(), ..lab.all() };
    assert_eq!(lab.listed(of(&[TaskState::Dead])).await, ["dead"]);
    assert_eq!(lab.listed(of(&[TaskState::Queued, TaskState::Succeeded])).await.len(), 2);
    assert!(lab.listed(of(&[TaskState::Running])).await.is_empty());
}

/// R10
pub async fn listings_filter_by_pool_and_kind(lab: Lab) {
    lab.set_pool("side", |_| {}).await;
    lab.add(NewTask { pool: pool("side"), ..lab.plain("a") }).await;
    lab.add(NewTask { envelope: TaskEnvelope::json(kind("other"), "{}"), ..lab.plain("b") }).await;
    assert_eq!(lab.listed(TaskFilter { pool: Some(pool("side")), ..lab.all() }).await, ["a"]);
    assert_eq!(lab.listed(TaskFilter { kind: Some(kind("other")), ..lab.all() }).await, ["b"]);
    let both = TaskFilter { pool: Some(pool("side")), kind: Some(kind("other")), ..lab.all() };
    assert!(lab.listed(both).await.is_empty());
}

/// R10
pub async fn listings_filter_by_group_and_session(lab: Lab) {
    let session = SessionId::new("s").ok();
    lab.add(NewTask { group: Some(group("g")), ..lab.plain("a") }).await;
    lab.add(NewTask { session: session.clone(), ..lab.plain("b") }).await;
    lab.add(lab.plain("c")).await;
    assert_eq!(lab.listed(TaskFilter { group: Some(group("g")), ..lab.all() }).await, ["a"]);
    assert_eq!(lab.listed(TaskFilter { session, ..lab.all() }).await, ["b"]);
}

/// R10
pub async fn listings_filter_by_text_in_id_title_error_and_payload(lab: Lab) {
    lab.add(NewTask { envelope: TaskEnvelope::json(kind("other"), "{\"to\":\"needle\"}"), ..lab.plain("payload") })
        .await;
    lab.add(NewTask { title: Some("a needle here".into()), ..lab.plain("title") }).await;
    let leased = lab.take_this("title").await;
    lab.succeed(&leased).await;
    lab.add(lab.plain("error")).await;
    let leased = lab.take_this("error").await;
    lab.queue.mark_failed(leased.lease, super::lab::permanent("needle lost")).await.expect("the holder may settle");
    lab.add(lab.plain("id-needle")).await;
    lab.add(lab.plain("hay")).await;
    let mut found = lab.listed(TaskFilter { text: Some("needle".into()), ..lab.all() }).await;
    found.sort();
    assert_eq!(found, ["error", "id-needle", "payload", "title"]);
}

/// R10
pub async fn listings_filter_by_who_runs_it(lab: Lab) {
    lab.add_all(&["a", "b"]).await;
    lab.take_this("a").await;
    let held = TaskFilter::held_by(lab.namespace(), runner_id(RUNNER));
    assert_eq!(lab.listed(held).await, ["a"]);
}

/// R10
pub async fn listings_follow_changes_of_state(lab: Lab) {
    lab.add(lab.plain("a")).await;
    let running = || TaskFilter { phases: vec![TaskState::Running], ..lab.all() };
    let leased = lab.take().await;
    assert_eq!(lab.listed(running()).await, ["a"]);
    lab.succeed(&leased).await;
    assert!(lab.listed(running()).await.is_empty());
}

/// R10
pub async fn pages_of_any_size_give_every_task_once_and_in_order(lab: Lab) {
    let names = numbered(&lab, 23).await;
    let backwards: Vec<String> = names.iter().rev().cloned().collect();
    for limit in [1, 2, 5, 22, 23, 24, 1_000] {
        assert_eq!(pages(&lab, lab.all(), ListOrder::OldestFirst, limit).await.concat(), names, "pages of {limit}");
        assert_eq!(pages(&lab, lab.all(), ListOrder::NewestFirst, limit).await.concat(), backwards);
    }
}

/// R10
pub async fn pages_of_twins_give_every_task_once(lab: Lab) {
    lab.queue.enqueue((0..50).map(|number| lab.plain(&format!("t-{number:03}"))).collect()).await;
    let mut all = pages(&lab, lab.all(), ListOrder::OldestFirst, 7).await.concat();
    assert_eq!(all.len(), 50, "created in one moment, and still each once");
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 50);
}

/// R10
pub async fn pages_of_a_filter_give_every_match_once(lab: Lab) {
    for number in 0..30 {
        let of = if number % 3 == 0 { "g" } else { "h" };
        lab.add(NewTask { group: Some(group(of)), ..lab.plain(&format!("t-{number:03}")) }).await;
    }
    let filter = TaskFilter { group: Some(group("g")), ..lab.all() };
    let found = pages(&lab, filter, ListOrder::OldestFirst, 3).await.concat();
    let expected: Vec<String> = (0..30).step_by(3).map(|number| format!("t-{number:03}")).collect();
    assert_eq!(found, expected);
}

/// R10
pub async fn a_cursor_stays_good_while_tasks_come_and_change(lab: Lab) {
    let names = numbered(&lab, 12).await;
    let mut query = TaskQuery::oldest(lab.all(), 5);
    let first = lab.queue.tasks(query.clone()).await.expect("tasks can be listed");
    lab.succeed(&lab.take_this("t-000").await).await;
    lab.cancel("t-007").await;
    lab.add(lab.plain("young")).await;
    query.cursor = first.cursor;
    let mut seen: Vec<String> = first.items.iter().map(|record| record.id.to_string()).collect();
    while query.cursor.is_some() {
        let page = lab.queue.tasks(query.clone()).await.expect("tasks can be listed");
        seen.extend(page.items.iter().map(|record| record.id.to_string()));
        query.cursor = page.cursor;
    }
    assert_eq!(seen, names.into_iter().chain(["young".to_owned()]).collect::<Vec<_>>());
}

/// R10
pub async fn a_text_scan_over_many_pages_finds_all(lab: Lab) {
    for chunk in (0..1_500).collect::<Vec<_>>().chunks(500) {
        let title = |number: &usize| (number % 500 == 499).then(|| "needle".into());
        let of = |number: &usize| NewTask { title: title(number), ..lab.plain(&format!("t-{number:04}")) };
        lab.queue.enqueue(chunk.iter().map(of).collect()).await;
    }
    let filter = TaskFilter { text: Some("needle".into()), ..lab.all() };
    let found = pages(&lab, filter, ListOrder::OldestFirst, 10).await.concat();
    assert_eq!(found, ["t-0499", "t-0999", "t-1499"]);
}

/// R10
pub async fn pages_without_a_limit_and_foreign_cursors_are_refused(lab: Lab) {
    lab.add(lab.plain("a")).await;
    for limit in [0, 1_001] {
        let answer = lab.queue.tasks(TaskQuery::oldest(lab.all(), limit)).await;
        assert_eq!(code(answer), ReasonCode::QueryInvalid, "a limit of {limit}");
    }
    let foreign = TaskQuery { cursor: Some("no such cursor".to_owned()), ..TaskQuery::oldest(lab.all(), 5) };
    assert_eq!(code(lab.queue.tasks(foreign).await), ReasonCode::QueryInvalid);
}
