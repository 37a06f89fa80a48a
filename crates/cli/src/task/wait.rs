//! `ekiden task wait`: stays until tasks are where they should be, and says by its exit code how they ended.

use std::process::ExitCode;

use clap::Args;
use ekiden::core::{Millis, TaskId};
use ekiden::{Client, TaskRecord, TaskState};

use super::follow::changed;
use super::shown::{Shown, titles};
use super::words::{span, states};
use crate::Outcome;
use crate::exit::Exit;
use crate::interrupt::Interrupts;
use crate::language::Lang;
use crate::output::{self, Form};
use crate::reach::Reached;
use crate::say;

pub(super) const EXAMPLES: &str = "\
Examples:
  ekiden task wait TASK_ID && echo it succeeded
  ekiden task wait A B C --timeout 10m
  ekiden task wait TASK_ID --for running --timeout 30s

The exit code is 0 when all have succeeded (or reached --for), otherwise that of the first that did not; see
`ekiden help exit-codes`.";

#[derive(Args)]
pub(crate) struct Wait {
    /// The tasks' ids
    #[arg(required = true)]
    ids: Vec<String>,
    /// Wait no longer than this, as in 30s or 10m
    #[arg(long, value_parser = span, value_name = "SPAN")]
    timeout: Option<Millis>,
    /// The state to wait for, instead of the end
    #[arg(long = "for", value_parser = states(), value_name = "STATE")]
    state: Option<TaskState>,
}

/// Waits.
pub(super) async fn run(reached: &Reached, wish: Wait, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let client = &reached.client;
    let ids = wish.ids.iter().map(TaskId::new).collect::<Result<Vec<_>, _>>()?;
    let mut interrupts = Interrupts::listen()?;
    let mut seen = Vec::new();
    let all = async {
        for id in &ids {
            seen.push(one(reached, id, wish.state).await?);
        }
        Outcome::Ok(())
    };
    let time_up = async {
        match wish.timeout {
            Some(limit) => tokio::time::sleep(limit.as_duration()).await,
            None => std::future::pending().await,
        }
    };
    let exit = tokio::select! {
        done = all => {
            done?;
            None
        }
        () = time_up => Some(Exit::TimeUp),
        exit = interrupts.next() => Some(exit),
    };
    if exit == Some(Exit::TimeUp) {
        say(lang.pick("The time is over.", "時間切れです。"));
    }
    // Those that were not waited for yet are shown as they are.
    for id in ids.iter().skip(seen.len()) {
        seen.push(client.until_answered(|| client.get_status(id)).await?);
    }
    let code = exit.unwrap_or_else(|| judged(&seen, wish.state));
    let shown: Vec<Shown> = seen.into_iter().map(|record| Shown::new(record, lang)).collect();
    output::list(&shown, &titles(lang), form)?;
    Ok(code.into())
}

/// The first that did not come to where it should speaks for all.
pub(super) fn judged(seen: &[TaskRecord], wanted: Option<TaskState>) -> Exit {
    let wanted = wanted.unwrap_or(TaskState::Succeeded);
    match seen.iter().find(|record| record.state != wanted).map(|record| Exit::of(record.state)) {
        None => Exit::Success,
        // One that succeeded is no success for who waited for something else.
        Some(None | Some(Exit::Success)) => Exit::Failure,
        Some(Some(exit)) => exit,
    }
}

async fn one(reached: &Reached, id: &TaskId, wanted: Option<TaskState>) -> Outcome<TaskRecord> {
    let client: &Client = &reached.client;
    let mut changes = client.until_answered(|| client.subscribe()).await?;
    loop {
        let record = client.until_answered(|| client.get_status(id)).await?;
        if record.state.is_final() || wanted == Some(record.state) {
            return Ok(record);
        }
        reached.must_be_shared()?;
        // In vain if nobody tells: then the next look finds out.
        let _ = tokio::time::timeout(super::follow::LOOK_AGAIN, changed(&mut changes, id)).await;
    }
}
