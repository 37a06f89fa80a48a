//! `ekiden task`: hand tasks in, look at them, follow them, answer, cancel and retry them.

mod add;
mod answer;
mod bulk;
mod explain;
mod filters;
mod follow;
mod list;
mod logs;
mod shown;
mod wait;
mod watch;
mod words;

use std::process::ExitCode;

use clap::Subcommand;
use ekiden::core::TaskId;

use crate::Outcome;
use crate::config::Config;
use crate::exit::Exit;
use crate::language::Lang;
use crate::output::{self, Form};
use crate::reach::{Missing, Reached, visit};

pub(crate) use add::Wish;
#[cfg(target_os = "linux")]
pub(crate) use shown::question_lines;
pub(crate) use words::{span, span_text};

#[derive(Subcommand)]
pub(crate) enum TaskCommand {
    /// Hand a task in, and print its id.
    #[command(after_long_help = add::EXAMPLES)]
    Add(Box<add::Add>),
    /// List tasks, newest first.
    #[command(after_long_help = list::EXAMPLES)]
    List(list::List),
    /// Show a task: state, attempts, question, history.
    Get {
        /// The task's id
        id: String,
    },
    /// Show what a task wrote.
    #[command(after_long_help = logs::EXAMPLES)]
    Logs(logs::ShowLogs),
    /// See tasks change: a live table on a terminal, lines elsewhere.
    #[command(after_long_help = watch::EXAMPLES)]
    Watch(watch::Watch),
    /// Stay until tasks have ended.
    #[command(after_long_help = wait::EXAMPLES)]
    Wait(wait::Wait),
    /// Answer the question that a task asked.
    #[command(after_long_help = answer::EXAMPLES)]
    Answer(answer::Answer),
    /// Say why a task is where it is, and what to do.
    Explain {
        /// The task's id
        id: String,
    },
    /// Let tasks go that are held.
    Release {
        /// The tasks' ids
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// End tasks; a running attempt is told to stop.
    #[command(after_long_help = bulk::CANCEL_EXAMPLES)]
    Cancel(bulk::Cancel),
    /// Run tasks again that have failed, ended or wait for their retry, and print the ids of those that will run.
    #[command(after_long_help = bulk::RETRY_EXAMPLES)]
    Retry(bulk::Choice),
}

/// Carries a command out.
pub(crate) fn run(command: TaskCommand, config: &Config, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let missing = if matches!(command, TaskCommand::Add(_)) { Missing::Make } else { Missing::Refuse };
    visit(config, missing, async |reached| carry_out(command, reached, form, lang).await)
}

async fn carry_out(command: TaskCommand, reached: &Reached, form: Form, lang: Lang) -> Outcome<ExitCode> {
    match command {
        TaskCommand::Add(wish) => add::run(reached, *wish, form, lang).await,
        TaskCommand::List(wish) => list::run(reached, wish, form, lang).await,
        TaskCommand::Get { id } => {
            let record = reached.client.get_status(&TaskId::new(id)?).await?;
            let facts = shown::facts(&record, lang);
            output::one(&shown::Shown::new(record, lang), &facts, form)?;
            Ok(Exit::Success.into())
        }
        TaskCommand::Logs(wish) => logs::run(reached, wish, lang).await,
        TaskCommand::Watch(wish) => watch::run(reached, wish, form, lang).await,
        TaskCommand::Wait(wish) => wait::run(reached, wish, form, lang).await,
        TaskCommand::Answer(wish) => answer::run(reached, wish, form, lang).await,
        TaskCommand::Explain { id } => explain::run(reached, &id, form, lang).await,
        TaskCommand::Release { ids } => bulk::each(ids, form, lang, async |id| reached.client.release(&id).await).await,
        TaskCommand::Cancel(wish) => bulk::cancel(reached, wish, form, lang).await,
        TaskCommand::Retry(wish) => bulk::retry(reached, wish, form, lang).await,
    }
}
