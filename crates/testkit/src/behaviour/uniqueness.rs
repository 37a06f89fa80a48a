//! Keys: a second enqueue with the same one is not a second task.

use ekiden::core::{IdempotencyKey, Millis, ReasonCode, Unique, UniqueHold, UniqueKey, limits};
use ekiden::{Enqueued, NewTask, TaskState};

use super::lab::{Lab, id};

fn unique(lab: &Lab, name: &str, hold: UniqueHold) -> NewTask {
    let key = UniqueKey::new("u").expect("a letter is a key");
    NewTask { unique: Some(Unique { key, hold }), ..lab.plain(name) }
}

fn idempotent(lab: &Lab, name: &str, key: &str) -> NewTask {
    NewTask { idempotency: IdempotencyKey::new(key).ok(), ..lab.plain(name) }
}

async fn found(lab: &Lab, task: NewTask, first: &str) {
    let name = task.task.id.to_string();
    let answer = lab.try_add(task).await.expect("a duplicate is an answer and not an error");
    assert_eq!(answer, Enqueued { id: id(first), is_new: false });
    lab.gone(&name).await;
}

/// R21
pub async fn a_unique_key_finds_the_open_task(lab: Lab) {
    lab.add(unique(&lab, "a", UniqueHold::WhileOpen)).await;
    found(&lab, unique(&lab, "b", UniqueHold::WhileOpen), "a").await;
    let leased = lab.take_this("a").await;
    found(&lab, unique(&lab, "c", UniqueHold::WhileOpen), "a").await;
    lab.fail(&leased).await;
    found(&lab, unique(&lab, "d", UniqueHold::WhileOpen), "a").await;
}

/// R21
pub async fn a_unique_key_is_free_when_its_task_has_ended(lab: Lab) {
    lab.add(unique(&lab, "a", UniqueHold::WhileOpen)).await;
    lab.succeed(&lab.take().await).await;
    lab.add(unique(&lab, "b", UniqueHold::WhileOpen)).await;
    lab.kill(&lab.take().await).await;
    lab.add(unique(&lab, "c", UniqueHold::WhileOpen)).await;
    lab.cancel("c").await;
    lab.add(unique(&lab, "d", UniqueHold::WhileOpen)).await;
}

/// R21
pub async fn a_unique_key_for_a_time_outlives_its_task(lab: Lab) {
    let hold = UniqueHold::For(Millis::from_secs(60));
    lab.add(unique(&lab, "a", hold)).await;
    lab.succeed(&lab.take().await).await;
    lab.pass_ms(59_999);
    found(&lab, unique(&lab, "b", hold), "a").await;
    lab.pass_ms(1);
    lab.add(unique(&lab, "c", hold)).await;
}

/// R21
pub async fn a_unique_key_for_a_time_is_free_after_it_although_its_task_is_open(lab: Lab) {
    let hold = UniqueHold::For(Millis::from_secs(60));
    lab.add(unique(&lab, "a", hold)).await;
    lab.pass(60);
    lab.add(unique(&lab, "b", hold)).await;
    assert_eq!(lab.count(TaskState::Queued).await, 2);
}

/// R21
pub async fn a_unique_key_for_no_time_is_refused(lab: Lab) {
    let task = unique(&lab, "a", UniqueHold::For(Millis::ZERO));
    assert_eq!(lab.refused(task).await, ReasonCode::DurationInvalid);
    lab.gone("a").await;
}

/// R21
pub async fn a_retry_by_hand_keeps_its_unique_key(lab: Lab) {
    lab.add(unique(&lab, "a", UniqueHold::For(Millis::from_secs(600)))).await;
    lab.kill(&lab.take().await).await;
    let again = lab.queue.retry(lab.task("a")).await.expect("its own key does not stop it");
    found(&lab, unique(&lab, "b", UniqueHold::WhileOpen), again.id.as_str()).await;
}

/// R21
pub async fn many_equal_unique_keys_at_once_make_one_task(lab: Lab) {
    let racers = (0..8).map(|number| {
        let lab = lab.clone();
        tokio::spawn(async move {
            let task = unique(&lab, &format!("t-{number}"), UniqueHold::WhileOpen);
            lab.try_add(task).await.expect("a duplicate is an answer and not an error")
        })
    });
    let mut answers = Vec::new();
    for racer in racers.collect::<Vec<_>>() {
        answers.push(racer.await.expect("a racer does not panic"));
    }
    let new: Vec<_> = answers.iter().filter(|one| one.is_new).collect();
    assert_eq!((new.len(), lab.count(TaskState::Queued).await), (1, 1));
    assert!(answers.iter().all(|one| one.id == new[0].id), "everybody hears of the same task");
}

/// R11
pub async fn an_idempotency_key_finds_its_first_task_also_when_it_has_ended(lab: Lab) {
    lab.add(idempotent(&lab, "a", "i")).await;
    found(&lab, idempotent(&lab, "b", "i"), "a").await;
    lab.succeed(&lab.take().await).await;
    found(&lab, idempotent(&lab, "c", "i"), "a").await;
    lab.add(idempotent(&lab, "d", "other")).await;
}

/// R11
pub async fn an_idempotency_key_answers_for_a_day(lab: Lab) {
    lab.add(idempotent(&lab, "a", "i")).await;
    lab.pass_ms(limits::IDEMPOTENCY_KEPT.as_u64() - 1);
    found(&lab, idempotent(&lab, "b", "i"), "a").await;
    lab.pass_ms(1);
    lab.add(idempotent(&lab, "c", "i")).await;
}

/// R11
pub async fn a_repeated_request_with_its_key_and_id_finds_its_task(lab: Lab) {
    lab.add(idempotent(&lab, "a", "i")).await;
    let answer = lab.try_add(idempotent(&lab, "a", "i")).await.expect("a repeat is an answer and not an error");
    assert_eq!((answer.id, lab.count(TaskState::Queued).await), (id("a"), 1));
}

/// R11
pub async fn equal_keys_in_one_batch_make_one_task(lab: Lab) {
    let batch = vec![idempotent(&lab, "a", "i"), idempotent(&lab, "b", "i")];
    let answers: Vec<_> =
        lab.queue.enqueue(batch).await.into_iter().map(|one| one.expect("a duplicate is no error")).collect();
    assert_eq!(answers, [Enqueued { id: id("a"), is_new: true }, Enqueued { id: id("a"), is_new: false }]);
}
