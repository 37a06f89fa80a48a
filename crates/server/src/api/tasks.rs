//! Tasks: handing them in and looking at them.

use std::sync::Arc;

use axum::http::StatusCode;
use ekiden::store::{CountScope, ListOrder, TaskQuery};
use ekiden::{Enqueued, NewTask, TaskRecord};
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{IdempotencyKey, Namespace};
use ekiden_core::reason::Refusal;
use ekiden_core::task::Phase;
use ekiden_wire::{self as wire, Text};

use super::Answered;
use crate::answer::{self, ItemErrors};
use crate::budget::Share;
use crate::call::{Call, glance};
use crate::limits;
use crate::query::{Query, bounded, wrong};

/// 80 bytes: what is said of a task with an id that was drawn.
const ENQUEUED_BYTES: usize = 80;

/// Hands one task in.
pub(crate) async fn enqueue(mut call: Call) -> Answered {
    let bytes = call.json_bytes().await?;
    let task = Box::new(new_task(&call, &bytes)?);
    drop(bytes);
    let enqueued = call.queue().enqueue_one(task).await?;
    let status = if enqueued.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut text = Text::with_room(ENQUEUED_BYTES);
    text.enqueued(&enqueued.id, enqueued.is_new);
    Ok(answer::text(status, text))
}

/// The task of a body. Read here, in one go, so that nothing of it is kept while somebody waits.
fn new_task(call: &Call, bytes: &[u8]) -> Result<NewTask, Refusal> {
    let mut task: wire::NewTask = glance(bytes)?;
    if let Some(key) = idempotency_key(call)? {
        if task.idempotency_key.as_ref().is_some_and(|other| *other != key) {
            return Err(wrong("idempotency_key", "the header Idempotency-Key says something else"));
        }
        task.idempotency_key = Some(key);
    }
    NewTask::from_wire(task, call.namespace()?, || call.shared.ids.task())
}

fn idempotency_key(call: &Call) -> Result<Option<IdempotencyKey>, Refusal> {
    let Some(key) = &call.idempotency_key else { return Ok(None) };
    let text = std::str::from_utf8(key.as_bytes()).map_err(|_| wrong("Idempotency-Key", "it is not text in UTF-8"))?;
    IdempotencyKey::new(text).map(Some)
}

/// Hands many tasks in; one that is refused stops no other.
pub(crate) async fn enqueue_batch(mut call: Call) -> Answered {
    let bytes = call.json_bytes().await?;
    let (sent, answers) = batch(&call, &bytes)?;
    drop(bytes);
    let room = 16 + ENQUEUED_BYTES * sent.len() + limits::ITEM_ERROR_BYTES * answers.iter().flatten().count();
    let mut share = Share::default();
    call.count_answer(&mut share, room)?;
    let mut text = Text::with_room(room);
    let mut outcomes = call.queue().enqueue(sent).await.into_iter();
    let told = answers.into_iter().filter_map(|refusal| match refusal {
        Some(refusal) => Some(Err(refusal.into())),
        None => outcomes.next(),
    });
    let mut errors = ItemErrors::of(&call);
    text.plain(r#"{"tasks":"#);
    text.list(told, |text, answer| match answer {
        Ok(Enqueued { id, is_new }) => text.enqueued(&id, is_new),
        Err(error) => {
            text.value(&wire::EnqueuedOrError::Error { error: errors.detail(error) });
        }
    });
    text.plain("}");
    errors.log();
    Ok(answer::text(StatusCode::OK, text).within(share))
}

/// The tasks of a body that can be handed in, and for each one why it cannot. Read here, in one go, as with one task.
fn batch(call: &Call, bytes: &[u8]) -> Result<(Vec<NewTask>, Vec<Option<Refusal>>), Refusal> {
    let batch: wire::EnqueueBatch = glance(bytes)?;
    let namespace = call.namespace()?;
    let mut answers = Vec::with_capacity(batch.tasks.len());
    let mut sent = Vec::with_capacity(batch.tasks.len());
    for task in batch.tasks {
        match NewTask::from_wire(task, namespace.clone(), || call.shared.ids.task()) {
            Ok(task) => {
                sent.push(task);
                answers.push(None);
            }
            Err(refusal) => answers.push(Some(refusal)),
        }
    }
    Ok((sent, answers))
}

/// A page of tasks.
pub(crate) async fn list(call: Call) -> Answered {
    let query = call.query()?;
    let order = if query.text("order") == Some("oldest") { ListOrder::OldestFirst } else { ListOrder::NewestFirst };
    let question = TaskQuery {
        filter: filter(&query, call.namespace()?)?,
        order,
        cursor: query.text("cursor").map(str::to_owned),
        limit: query.number("limit")?.unwrap_or(limits::PAGE_ITEMS),
    };
    let share = call.room_for_answer(limits::PAGE_ANSWER_BYTES).await?;
    let page = call.queue().tasks(question).await?;
    let page = wire::TaskPage { items: page.items.into_iter().map(Into::into).collect(), cursor: page.cursor };
    Ok(answer::ok(&page)?.within(share))
}

fn filter(query: &Query<'_>, namespace: Namespace) -> Result<TaskFilter, Refusal> {
    let mut phases = Vec::new();
    for word in query.all("state").flat_map(|words| words.split(',')) {
        let known = Phase::ALL.iter().find(|phase| phase.as_str() == word);
        let phase = *known.ok_or_else(|| wrong("state", "there is no such state"))?;
        if !phases.contains(&phase) {
            phases.push(phase);
        }
    }
    bounded(TaskFilter {
        namespace,
        phases,
        pool: query.id("pool")?,
        kind: query.id("task_type")?,
        group: query.id("group")?,
        session: query.id("session")?,
        held_by: query.id("held_by")?,
        text: query.text("text").map(Arc::from),
    })
}

/// A task as it is now.
pub(crate) async fn get(call: Call) -> Answered {
    answer::ok(&wire::Task::from(found(&call).await?))
}

async fn found(call: &Call) -> Result<TaskRecord, ekiden::Error> {
    call.queue().get_status(call.task()?).await
}

/// The attempts of a task.
pub(crate) async fn attempts(call: Call) -> Answered {
    let task = wire::Task::from(found(&call).await?);
    answer::ok(&wire::AttemptList { items: task.recent, outcomes: task.outcomes })
}

/// The changes of a task.
pub(crate) async fn history(call: Call) -> Answered {
    let record = found(&call).await?;
    answer::ok(&wire::HistoryList { items: record.history.into_iter().map(Into::into).collect() })
}

/// Why a task is where it is.
pub(crate) async fn explain(call: Call) -> Answered {
    let explanation = call.queue().explain(call.task()?).await?;
    answer::ok(&explanation.into_wire(call.language))
}

/// How many tasks there are in each state.
pub(crate) async fn counts(call: Call) -> Answered {
    let scope = CountScope { namespace: call.namespace()?, pool: call.query()?.id("pool")? };
    answer::ok(&ekiden::wire::counts_into(call.queue().counts_by_state(scope).await?))
}
