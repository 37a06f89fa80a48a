//! `ekiden task logs`: what an attempt wrote, from any place, and what it writes from now on.

use std::process::ExitCode;

use clap::Args;
use ekiden::core::{ReasonCode, Refusal, TaskId};
use ekiden::{AttemptRef, Logs};

use super::follow::{Follow, LogsTo, PIECE_BYTES, dropped, put};
use crate::Outcome;
use crate::exit::Exit;
use crate::interrupt::Interrupts;
use crate::language::Lang;
use crate::output;
use crate::reach::Reached;
use crate::say;

pub(super) const EXAMPLES: &str = "\
Examples:
  ekiden task logs TASK_ID               # all that its latest attempt wrote
  ekiden task logs TASK_ID --tail 20 -f  # the last lines, and on until the task has ended
  ekiden task logs TASK_ID --attempt 1 --offset 4096";

#[derive(Args)]
pub(crate) struct ShowLogs {
    /// The task's id
    id: String,
    /// Read on until the task has ended, over all its attempts; until the attempt has ended, with --attempt
    #[arg(long, short)]
    follow: bool,
    /// The attempt's number, instead of the latest
    #[arg(long, value_name = "N")]
    attempt: Option<u64>,
    /// Begin at this byte
    #[arg(long, value_name = "N", conflicts_with = "tail")]
    offset: Option<u64>,
    /// Only the last lines
    #[arg(long, value_name = "LINES")]
    tail: Option<usize>,
}

/// Writes a log to stdout, byte for byte.
pub(super) async fn run(reached: &Reached, wish: ShowLogs, lang: Lang) -> Outcome<ExitCode> {
    let id = TaskId::new(&wish.id)?;
    let record = reached.client.get_status(&id).await?;
    if wish.follow && !record.state.is_final() {
        reached.must_be_shared()?;
    }
    let not_found = || Refusal::new(ReasonCode::LogNotFound).with("task_id", &id);
    let logs = reached.logs.as_ref().ok_or_else(not_found)?;
    let execution_no = wish.attempt.unwrap_or(record.execution_no);
    let attempt = AttemptRef { task: reached.client.task(&id), execution_no };
    let from = match wish.tail {
        Some(lines) => tail(&**logs, &attempt, lines).await,
        None => Ok(wish.offset.unwrap_or(0)),
    };
    let from = match from {
        // What runs may write yet.
        Err(error) if wish.follow && error.code() == ReasonCode::LogNotFound => 0,
        from => from?,
    };
    let written = if wish.follow {
        let follow = Follow::new(reached, id, LogsTo::Stdout, lang).from(execution_no, from);
        let mut interrupts = Interrupts::listen()?;
        tokio::select! {
            written = follow_on(follow, wish.attempt.is_some()) => written,
            exit = interrupts.next() => return Ok(exit.into()),
        }
    } else {
        to_the_present_end(&**logs, attempt, from, lang).await
    };
    output::unless_closed(written)?;
    Ok(Exit::Success.into())
}

async fn follow_on(follow: Follow<'_>, one_attempt: bool) -> Outcome<()> {
    if one_attempt { follow.until_attempt_ended().await } else { follow.until_ended().await.map(drop) }
}

/// All that is there now, in pieces: a log may be far larger than what a command should hold.
async fn to_the_present_end(logs: &dyn Logs, attempt: AttemptRef, from: u64, lang: Lang) -> Outcome<()> {
    let (mut offset, mut end) = (from, None);
    loop {
        let part = logs.read(attempt.clone(), offset, PIECE_BYTES).await?;
        if part.offset > offset {
            say(&dropped(part.offset - offset, lang));
        }
        // Where it ended at first: a log that grows faster than it is read has no end.
        let end = *end.get_or_insert(part.end);
        offset = part.offset + part.bytes.len() as u64;
        put(&part.bytes, LogsTo::Stdout)?;
        if offset >= end || part.bytes.is_empty() {
            return Ok(());
        }
    }
}

/// Where the last lines of a log begin. Reads backwards, so that the length of the log does not matter.
async fn tail(logs: &dyn Logs, attempt: &AttemptRef, lines: usize) -> ekiden::Result<u64> {
    let (start, end) = {
        let part = logs.read(attempt.clone(), u64::MAX, 1).await?;
        (part.start, part.end)
    };
    if lines == 0 {
        return Ok(end);
    }
    let (mut behind, mut found) = (end, 0);
    while behind > start {
        let from = behind.saturating_sub(PIECE_BYTES as u64).max(start);
        let length = usize::try_from(behind - from).unwrap_or(PIECE_BYTES);
        let part = logs.read(attempt.clone(), from, length).await?;
        let bytes = part.bytes.get(..part.bytes.len().min(length)).unwrap_or_default();
        for (at, _) in bytes.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            let next = part.offset + at as u64 + 1;
            // The end of the last line begins no other.
            if next == end {
                continue;
            }
            found += 1;
            if found == lines {
                return Ok(next);
            }
        }
        behind = from;
    }
    Ok(start)
}
