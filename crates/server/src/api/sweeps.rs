//! Commands on many tasks, and what they would do.

use axum::http::StatusCode;
use ekiden::Bulk;
use ekiden::store::{ListOrder, TaskQuery};
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::SweepId;
use ekiden_core::limits::PAGE_ITEMS_MAX;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::sweep::{Sweep, SweepWork};
use ekiden_wire as wire;

use super::Answered;
use crate::answer;
use crate::call::Call;
use crate::limits;
use crate::query::bounded;

/// Starts a command on many tasks, or tells what it would do.
pub(crate) async fn start(mut call: Call) -> Answered {
    let sweep: wire::NewSweep = call.json().await?;
    let namespace = call.namespace()?;
    let filter = bounded(sweep.filter.into_core(namespace.clone()))?;
    if sweep.dry_run {
        let work = match sweep.action {
            wire::SweepAction::Cancel => SweepWork::Cancel(filter.clone()),
            wire::SweepAction::Retry => SweepWork::Retry(filter.clone()),
            wire::SweepAction::Purge => SweepWork::Purge(filter.clone()),
        };
        let preview = preview(&call, filter, &work).await?;
        return answer::ok(&wire::Started::Preview(preview));
    }
    let (name, bulk) = match sweep.action {
        wire::SweepAction::Cancel => ("cancel", Bulk::Cancel(filter)),
        wire::SweepAction::Retry => ("retry", Bulk::Retry(filter)),
        wire::SweepAction::Purge => ("purge", Bulk::Purge(filter)),
    };
    let id = match sweep.id {
        Some(id) => id,
        None => SweepId::new(format!("{name}/{}", call.shared.ids.op()))?,
    };
    let sweep = call.queue().start_bulk(id, bulk).await?;
    answer::json(StatusCode::ACCEPTED, &wire::Started::Sweep(shown(&sweep)?))
}

/// How far a command on many tasks is.
pub(crate) async fn get(call: Call) -> Answered {
    let id: SweepId = call.id("id")?;
    match call.queue().bulk(call.namespace()?, id.clone()).await? {
        Some(sweep) => answer::ok(&shown(&sweep)?),
        None => Err(Refusal::new(ReasonCode::SweepNotFound).with("sweep", id).into()),
    }
}

/// What the system does for itself is not shown as a command.
fn shown(sweep: &Sweep) -> Result<wire::Sweep, Refusal> {
    wire::Sweep::of(sweep).ok_or_else(|| Refusal::new(ReasonCode::SweepNotFound).with("sweep", &sweep.id))
}

/// Counts what matches and would change, as far as a bounded number of pages goes.
async fn preview(call: &Call, filter: TaskFilter, work: &SweepWork) -> Result<wire::Preview, ekiden::Error> {
    let _share = call.room_for_answer(limits::PAGE_ANSWER_BYTES).await?;
    let mut preview = wire::Preview { matches: 0, more: false };
    let mut cursor = None;
    for _ in 0..limits::PREVIEW_PAGES_MAX {
        let query = TaskQuery { filter: filter.clone(), order: ListOrder::OldestFirst, cursor, limit: PAGE_ITEMS_MAX };
        let page = call.queue().tasks(query).await?;
        let changed = page.items.iter().filter(|task| work.changes(task.state, task.retried_as.is_some()));
        preview.matches += changed.count() as u64;
        preview.more = page.cursor.is_some();
        cursor = page.cursor;
        if cursor.is_none() || preview.matches >= limits::PREVIEW_MATCHES_MAX {
            break;
        }
    }
    Ok(preview)
}
