//! The logs of attempts: written by who holds the attempt, read from any offset, followed until the attempt has ended.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use ekiden::{AttemptRef, Error, LogPart, Logs};
use ekiden_core::attempt::check_output;
use ekiden_core::lease::Token;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_wire::LogAppended;
use tokio::time::sleep;

use super::Answered;
use crate::answer;
use crate::call::Call;
use crate::limits;
use crate::query::wrong;
use crate::shared::Shared;
use crate::stream::{self, Gone, Writer};

const OCTETS: &str = "application/octet-stream";
const START: HeaderName = HeaderName::from_static("ekiden-log-start");
const END: HeaderName = HeaderName::from_static("ekiden-log-end");

/// Adds to a log.
pub(crate) async fn append(mut call: Call) -> Answered {
    let attempt = attempt(&call)?;
    let query = call.query()?;
    let offset: u64 = query.number("offset")?.ok_or_else(|| wrong("offset", "missing"))?;
    let token: u64 = query.number("token")?.ok_or_else(|| wrong("token", "missing"))?;
    drop(query);
    let record = call.queue().get_status(attempt.task.clone()).await?;
    check_output(&record.recent, attempt.execution_no, Token(token), call.shared.clock.now())
        .map_err(|code| Refusal::new(code).with("task_id", &attempt.task.id))?;
    let bytes = call.bytes().await?;
    let Some(logs) = &call.shared.logs else {
        return Err(Refusal::new(ReasonCode::StoreCannot).with("why", "the server keeps no logs").into());
    };
    let end = logs.append(attempt, offset, bytes).await?;
    call.shared.logged.ring();
    answer::ok(&LogAppended { end })
}

fn attempt(call: &Call) -> Result<AttemptRef, Refusal> {
    let execution_no = call.param("execution_no")?;
    let execution_no = execution_no.parse().map_err(|_| wrong("execution_no", "not a number, or too large"))?;
    Ok(AttemptRef { task: call.task()?, execution_no })
}

/// Reads a part of a log, or all that comes.
pub(crate) async fn read(call: Call) -> Answered {
    let attempt = attempt(&call)?;
    let query = call.query()?;
    let offset = query.number("offset")?.unwrap_or(0);
    let limit = query.number("limit")?.unwrap_or(limits::LOG_READ_BYTES_MAX).min(limits::LOG_READ_BYTES_MAX);
    let follow = query.flag("follow");
    drop(query);
    // A task that is gone has no log, although its files may take a moment to go.
    call.queue().get_status(attempt.task.clone()).await?;
    // A reader who follows gets pieces, each of which is small.
    let limit = if follow { limit.min(limits::STREAM_PIECE_BYTES) } else { limit };
    let share = call.room_for_answer(limit).await?;
    let not_found = || Refusal::new(ReasonCode::LogNotFound).with("task_id", &attempt.task.id);
    let logs = call.shared.logs.clone().ok_or_else(not_found)?;
    let part = logs.read(attempt.clone(), offset, limit).await;
    let part = match part {
        // What runs may write yet.
        Err(error) if follow && error.code() == ReasonCode::LogNotFound && runs(&call.shared, &attempt).await? => {
            LogPart { start: 0, end: 0, offset, bytes: bytes::Bytes::new() }
        }
        part => part?,
    };
    let (start, end) = (part.start, part.end);
    let answer = if follow {
        let follow = Follow { shared: call.shared.clone(), logs, attempt };
        stream::open(&call, OCTETS, |writer| follow.follow(part, writer))?
    } else {
        answer::typed(StatusCode::OK, HeaderValue::from_static(OCTETS), part.bytes).within(share)
    };
    Ok(answer.with(START, start.into()).with(END, end.into()))
}

/// Whether an attempt is under way. One whose task was cancelled is so until it has stopped.
async fn runs(shared: &Shared, attempt: &AttemptRef) -> Result<bool, Error> {
    let record = shared.queue.get_status(attempt.task.clone()).await?;
    Ok(record.recent.iter().any(|one| one.execution_no == attempt.execution_no && one.is_open()))
}

/// Somebody who reads along.
struct Follow {
    shared: Arc<Shared>,
    logs: Arc<dyn Logs>,
    attempt: AttemptRef,
}

impl Follow {
    async fn follow(self, first: LogPart, writer: Writer) -> Result<(), Gone> {
        let mut heard = self.shared.logged.heard();
        let mut next = first.offset;
        let mut part = Some(first);
        loop {
            // Asked before the last look, so that nothing which was written up to the end is missed.
            let ended = !runs(&self.shared, &self.attempt).await.unwrap_or(false);
            let found = match part.take() {
                Some(part) => Ok(part),
                None => self.logs.read(self.attempt.clone(), next, limits::STREAM_PIECE_BYTES).await,
            };
            if let Ok(found) = found
                && !found.bytes.is_empty()
            {
                next = found.offset + found.bytes.len() as u64;
                writer.write(found.bytes).await?;
                continue;
            }
            if ended {
                return Ok(());
            }
            tokio::select! {
                () = self.shared.logged.since(&mut heard) => {}
                () = self.shared.stop.cancelled() => return Ok(()),
                () = writer.gone() => return Err(Gone),
                () = sleep(limits::LOOK_AGAIN) => {}
            }
        }
    }
}

/// Removes the logs of tasks that are gone, a page of them. Says where to go on, if there is more.
pub(crate) async fn clear(
    shared: &Shared,
    logs: &Arc<dyn Logs>,
    after: Option<ekiden::TaskRef>,
) -> Result<Option<ekiden::TaskRef>, Error> {
    let page = logs.tasks(after, limits::LOG_CHECKS_A_ROUND).await?;
    let last = page.last().cloned().filter(|_| page.len() == limits::LOG_CHECKS_A_ROUND);
    for task in page {
        match shared.queue.get_status(task.clone()).await {
            Err(error) if error.code() == ReasonCode::TaskNotFound => logs.remove(task).await?,
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    Ok(last)
}
