//! `ekiden task cancel` and `retry`: on tasks by their ids, or on all that match, as a sweep.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ekiden::core::{Millis, ReasonCode, Refusal, SweepId, SweepWork, TaskFilter, TaskId, Timestamp};
use ekiden::store::{Clock, SystemClock};
use ekiden::{Client, TaskRecord, TaskRef, TaskState};
use serde::Serialize;

use super::filters::Filters;
use super::shown::{Shown, titles};
use super::words::span;
use crate::Outcome;
use crate::bar::Bar;
use crate::exit::Exit;
use crate::language::Lang;
use crate::output::{self, Form};
use crate::reach::Reached;
use crate::say;
use crate::table::state_word;

pub(super) const CANCEL_EXAMPLES: &str = "\
Examples:
  ekiden task cancel TASK_ID --note 'not needed any more'
  ekiden task cancel --state queued --pool mail --dry-run
  ekiden task cancel --group campaign --yes
  ekiden task cancel --type report --since 1h   # handed in within the hour";

pub(super) const RETRY_EXAMPLES: &str = "\
Examples:
  ekiden task retry TASK_ID
  ekiden task retry --type send_email --dry-run   # the dead ones, unless --state says otherwise
  ekiden task retry --all --yes";

/// 10,000: how far a preview counts.
const PREVIEW_MAX: usize = 10_000;

/// 20 lines: as many of those that match are shown.
const PREVIEW_SHOWN: usize = 20;

/// 1,000 a page: the most that a listing gives.
const PAGE: usize = 1_000;

/// A tenth of a second between two looks at how far a sweep is.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Which tasks a command is for.
#[derive(Args)]
pub(crate) struct Choice {
    /// The tasks' ids
    #[arg(required_unless_present_any = ["Filters", "all", "since"], conflicts_with_all = ["Filters", "all", "since"])]
    ids: Vec<String>,
    #[command(flatten)]
    filters: Filters,
    /// Only handed in since then, as in 30m or 2h
    #[arg(long, value_parser = span, value_name = "SPAN")]
    since: Option<Millis>,
    /// Every task of the namespace
    #[arg(long)]
    all: bool,
    /// Only show how many tasks would change, and the newest of them
    #[arg(long, conflicts_with = "ids")]
    dry_run: bool,
    /// Do not ask first
    #[arg(long, short, conflicts_with = "ids")]
    yes: bool,
}

#[derive(Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    choice: Choice,
    /// Why, for people
    #[arg(long, requires = "ids")]
    note: Option<String>,
}

/// What is done to many tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Cancel,
    Retry,
}

/// Cancels.
pub(super) async fn cancel(reached: &Reached, wish: Cancel, form: Form, lang: Lang) -> Outcome<ExitCode> {
    if wish.choice.ids.is_empty() {
        return many(reached, Action::Cancel, wish.choice, form, lang).await;
    }
    let (client, note) = (&reached.client, wish.note.map(Arc::from));
    let task = |id| TaskRef { namespace: client.namespace().clone(), id };
    each(wish.choice.ids, form, lang, async |id| client.queue().cancel(task(id), note.clone()).await).await
}

/// Runs again.
pub(super) async fn retry(reached: &Reached, wish: Choice, form: Form, lang: Lang) -> Outcome<ExitCode> {
    if wish.ids.is_empty() {
        return many(reached, Action::Retry, wish, form, lang).await;
    }
    each(wish.ids, form, lang, async |id| reached.client.retry(&id).await).await
}

/// Does the same to each task. One that is refused stops no other, and is told at the end by the exit code.
pub(super) async fn each(
    ids: Vec<String>,
    form: Form,
    lang: Lang,
    act: impl AsyncFn(TaskId) -> ekiden::Result<TaskRecord>,
) -> Outcome<ExitCode> {
    let mut code = Exit::Success.into();
    for id in ids {
        let record = match TaskId::new(&id) {
            Ok(id) => act(id).await,
            Err(refusal) => Err(refusal.into()),
        };
        match record {
            Ok(record) => {
                let (id, state) = (record.id.clone(), state_word(record.state, lang).to_owned());
                output::one(&Shown::new(record, lang), &[(id.as_str(), state)], form)?;
            }
            Err(error) => code = crate::complaint::tell(&error, lang),
        }
    }
    Ok(code)
}

async fn many(reached: &Reached, action: Action, choice: Choice, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let client = &reached.client;
    let mut filter = choice.filters.of(client)?;
    if filter.phases.is_empty() {
        filter.phases = action.usual_states();
    }
    let which = Which { work: action.work(filter), since: choice.since.map(|span| SystemClock.now() - span) };
    let preview = Preview::of(client, &which).await?;
    if choice.dry_run {
        let shown: Vec<Shown> = preview.newest.into_iter().map(|record| Shown::new(record, lang)).collect();
        output::list(&shown, &titles(lang), form)?;
        say(&action.would(preview.matches, preview.more, lang));
        return Ok(Exit::Success.into());
    }
    if preview.matches == 0 {
        say(lang.pick("No task matches that this would change.", "変更の対象となるタスクはありません。"));
        return Ok(Exit::Success.into());
    }
    if !choice.yes && !confirmed(&action.question(preview.matches, preview.more, lang))? {
        say(lang.pick("Nothing was done.", "何も実行しませんでした。"));
        return Ok(Exit::Failure.into());
    }
    let bar = Bar::start(action.under_way(lang));
    let mut swept = Swept { action: action.word(), matched: preview.matches, more: preview.more };
    match which.since {
        // A sweep knows no beginning: these are done one by one.
        Some(_) => {
            (swept.matched, swept.more) = (one_by_one(client, &which, action, preview.matches, &bar).await?, false)
        }
        None => {
            let filter = which.filter().clone();
            let sweep = match action {
                Action::Cancel => client.cancel_all(filter).await?,
                Action::Retry => client.retry_all(filter).await?,
            };
            to_the_end(reached, &sweep.id, preview.matches, &bar).await?;
        }
    }
    drop(bar);
    match form {
        Form::Table | Form::Id => say(&action.done(swept.matched, swept.more, lang)),
        Form::Json | Form::Jsonl => output::document(&swept, "", form)?,
    }
    Ok(Exit::Success.into())
}

/// What a command on many tasks came to, for programs.
#[derive(Serialize)]
struct Swept {
    action: &'static str,
    matched: usize,
    /// Whether more matched than were counted before.
    more: bool,
}

/// Which tasks are meant, and for what.
struct Which {
    work: SweepWork,
    /// Only those that were handed in from then on.
    since: Option<Timestamp>,
}

impl Which {
    fn filter(&self) -> &TaskFilter {
        match &self.work {
            SweepWork::Cancel(filter) | SweepWork::Retry(filter) => filter,
            other => unreachable!("no command of these is {other:?}"),
        }
    }

    /// Whether everything behind this task, as lists have them, is too old.
    fn is_too_old(&self, task: &TaskRecord) -> bool {
        self.since.is_some_and(|since| task.created_at < since)
    }

    /// Whether the rules let the command change this task.
    fn changes(&self, task: &TaskRecord) -> bool {
        self.work.changes(task.state, task.retried_as.is_some())
    }
}

/// How many tasks would change, and the newest of them.
struct Preview {
    matches: usize,
    more: bool,
    newest: Vec<TaskRecord>,
}

impl Preview {
    async fn of(client: &Client, which: &Which) -> ekiden::Result<Self> {
        let mut preview = Self { matches: 0, more: false, newest: Vec::new() };
        let (mut cursor, mut seen) = (None, 0);
        loop {
            let page = client.list(which.filter().clone(), cursor, PAGE).await?;
            for task in page.items {
                if which.is_too_old(&task) {
                    preview.more = false;
                    return Ok(preview);
                }
                seen += 1;
                if which.changes(&task) {
                    preview.matches += 1;
                    if preview.newest.len() < PREVIEW_SHOWN {
                        preview.newest.push(task);
                    }
                }
            }
            cursor = page.cursor;
            preview.more = cursor.is_some();
            if cursor.is_none() || seen >= PREVIEW_MAX {
                return Ok(preview);
            }
        }
    }
}

/// Does it to each task, newest first, and says to how many. One that changed meanwhile and is refused stops no other.
async fn one_by_one(client: &Client, which: &Which, action: Action, total: usize, bar: &Bar) -> ekiden::Result<usize> {
    let (mut cursor, mut changed) = (None, 0);
    loop {
        let page = client.list(which.filter().clone(), cursor, PAGE).await?;
        for task in page.items {
            if which.is_too_old(&task) {
                return Ok(changed);
            }
            if !which.changes(&task) {
                continue;
            }
            let done = match action {
                Action::Cancel => client.cancel(&task.id).await,
                Action::Retry => client.retry(&task.id).await,
            };
            match done {
                Ok(_) => changed += 1,
                Err(error) if error.is_retryable() || error.is_unknown() => return Err(error),
                Err(_) => {}
            }
            bar.set(changed as u64, total as u64);
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(changed);
        }
    }
}

/// Stays until the sweep is done. Where nobody else has the store, it is carried on here.
async fn to_the_end(reached: &Reached, sweep: &SweepId, matches: usize, bar: &Bar) -> ekiden::Result<()> {
    while let Some(sweep) = reached.client.bulk(sweep).await? {
        bar.set(sweep.changed, matches as u64);
        if reached.alone || !reached.hears_all {
            reached.client.maintain().await?;
        } else {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
    Ok(())
}

/// Asks on a terminal. Where there is none, nobody can say yes.
fn confirmed(question: &str) -> Outcome<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Refusal::new(ReasonCode::ConfirmationMissing).into());
    }
    write!(anstream::stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes" | "はい"))
}

impl Action {
    const fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Retry => "retry",
        }
    }

    const fn work(self, filter: TaskFilter) -> SweepWork {
        match self {
            Self::Cancel => SweepWork::Cancel(filter),
            Self::Retry => SweepWork::Retry(filter),
        }
    }

    /// What is meant where no state is named: what has not ended, and what failed.
    fn usual_states(self) -> Vec<TaskState> {
        match self {
            Self::Cancel => TaskState::ALL.into_iter().filter(|state| !state.is_final()).collect(),
            Self::Retry => vec![TaskState::Dead],
        }
    }

    const fn under_way(self, lang: Lang) -> &'static str {
        match self {
            Self::Cancel => lang.pick("cancelling", "キャンセル中"),
            Self::Retry => lang.pick("retrying", "再試行中"),
        }
    }

    fn would(self, matches: usize, more: bool, lang: Lang) -> String {
        let count = count(matches, more, lang);
        match (self, lang) {
            (Self::Cancel, Lang::En) => format!("Would cancel {count}. Nothing was done."),
            (Self::Retry, Lang::En) => format!("Would retry {count}. Nothing was done."),
            (Self::Cancel, Lang::Ja) => format!("キャンセルの対象: {count}。何も実行していません。"),
            (Self::Retry, Lang::Ja) => format!("再試行の対象: {count}。何も実行していません。"),
        }
    }

    fn question(self, matches: usize, more: bool, lang: Lang) -> String {
        let count = count(matches, more, lang);
        match (self, lang) {
            (Self::Cancel, Lang::En) => format!("Cancel {count}?"),
            (Self::Retry, Lang::En) => format!("Retry {count}?"),
            (Self::Cancel, Lang::Ja) => format!("{count}をキャンセルしますか？"),
            (Self::Retry, Lang::Ja) => format!("{count}を再試行しますか？"),
        }
    }

    fn done(self, matches: usize, more: bool, lang: Lang) -> String {
        let count = count(matches, more, lang);
        match (self, lang) {
            (Self::Cancel, Lang::En) => format!("Cancelled {count}."),
            (Self::Retry, Lang::En) => format!("Retried {count}."),
            (Self::Cancel, Lang::Ja) => format!("{count}をキャンセルしました。"),
            (Self::Retry, Lang::Ja) => format!("{count}を再試行しました。"),
        }
    }
}

fn count(matches: usize, more: bool, lang: Lang) -> String {
    match (lang, more, matches) {
        (Lang::En, true, _) => format!("more than {matches} tasks"),
        (Lang::En, false, 1) => "1 task".to_owned(),
        (Lang::En, false, _) => format!("{matches} tasks"),
        (Lang::Ja, true, _) => format!("{matches} 件以上のタスク"),
        (Lang::Ja, false, _) => format!("{matches} 件のタスク"),
    }
}
