//! `ekiden task watch`: tasks as they change. A table that is redrawn on a terminal, one line a change anywhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use ekiden::core::{Millis, TaskFilter, TaskId, Timestamp};
use ekiden::store::{Clock, SystemClock};
use ekiden::{Client, Heard, TaskChange, TaskRecord, TaskState};
use ekiden_wire as wire;
use tokio::time::MissedTickBehavior;

use super::filters::{Filters, is_meant};
use super::wait::judged;
use super::words::span;
use crate::Outcome;
use crate::exit::Exit;
use crate::interrupt::Interrupts;
use crate::language::Lang;
use crate::output::{self, Form};
use crate::reach::Reached;
use crate::row::Row;
use crate::say;
use crate::screen::Screen;
use crate::table::state_word;

pub(super) const EXAMPLES: &str = "\
Examples:
  ekiden task watch                        # everything in the namespace, until Ctrl-C
  ekiden task watch TASK_ID                # until it has ended, with its exit code
  ekiden task watch --pool mail --since 1h
  ekiden task watch -o jsonl | jq .state   # for programs";

/// Ten frames a second: a countdown in tenths needs no more.
const FRAME: Duration = Duration::from_millis(100);

/// 500 tasks: far more than a screen has lines.
const ROWS_MAX: usize = 500;

/// 100 tasks are looked at where nobody tells of changes: a page that every store gives in one read or two.
const LOOKED_AT: usize = 100;

/// 10,000 ids of tasks that are not meant are remembered; asking again for more costs little.
const STRANGERS_MAX: usize = 10_000;

#[derive(Args)]
pub(crate) struct Watch {
    /// Only these tasks; the command ends when they have
    #[arg(conflicts_with = "Filters")]
    ids: Vec<String>,
    #[command(flatten)]
    filters: Filters,
    /// Begin with the tasks that were handed in since then, as in 30m or 2h
    #[arg(long, value_parser = span, value_name = "SPAN", conflicts_with = "ids")]
    since: Option<Millis>,
}

/// Watches.
pub(super) async fn run(reached: &Reached, wish: Watch, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let client = &reached.client;
    let ids = wish.ids.iter().map(TaskId::new).collect::<Result<Vec<_>, _>>()?;
    let states = wish.filters.state.clone();
    let filter = TaskFilter { phases: Vec::new(), ..wish.filters.of(client)? };
    let screen = Screen::new(lang);
    let (rows, strangers, marks) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
    let mut watching = Watching { client, ids, filter, states, rows, strangers, marks, form, lang, screen };
    let mut changes = client.subscribe().await?;
    watching.begin(wish.since).await?;
    let looks = !reached.hears_all;
    if looks {
        watching.look(Told::Before).await?;
    }
    let mut look = tokio::time::interval(super::follow::LOOK_AGAIN);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut interrupts = Interrupts::listen()?;
    let mut frames = tokio::time::interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let code = loop {
        if let Some(code) = watching.ended().await? {
            break code;
        }
        reached.must_be_shared()?;
        let heard = tokio::select! {
            heard = changes.next(), if !looks => watching.hear(heard).await,
            _ = look.tick(), if looks => watching.look(Told::Now).await,
            exit = interrupts.next() => break exit,
            _ = frames.tick(), if watching.screen.is_live() => watching.screen.draw(&watching.rows).map_err(Into::into),
        };
        match heard {
            Err(error) if output::is_closed(&*error) => break Exit::Success,
            heard => heard?,
        }
    };
    if watching.screen.is_live() {
        watching.screen.end(&watching.rows)?;
    }
    Ok(code.into())
}

struct Watching<'a> {
    client: &'a Client,
    /// Only these, where any are named.
    ids: Vec<TaskId>,
    /// Which are meant otherwise, whatever their state.
    filter: TaskFilter,
    /// Changes into which states are told; all if none is named.
    states: Vec<TaskState>,
    rows: Vec<Row>,
    /// Tasks that were looked at and are not meant.
    strangers: BTreeSet<TaskId>,
    /// How tasks were when they were last looked at.
    marks: BTreeMap<TaskId, Mark>,
    form: Form,
    lang: Lang,
    screen: Screen,
}

/// What differs after a change: state, attempt, and when it last changed.
type Mark = (TaskState, u64, Option<Timestamp>);

/// Whether what a look finds is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Before,
    Now,
}

impl Watching<'_> {
    /// Finds out what changed where nobody tells: among the newest tasks, and those that are shown and have not ended.
    async fn look(&mut self, told: Told) -> Outcome<()> {
        let mut found = Vec::new();
        if self.ids.is_empty() {
            found = self.client.list(self.filter.clone(), None, LOOKED_AT).await?.items;
            found.reverse();
        }
        let rows = self.rows.iter().filter(|row| !row.is_final() && !found.iter().any(|task| task.id == row.id));
        let others: Vec<TaskId> = rows.map(|row| row.id.clone()).collect();
        for id in others {
            found.push(self.client.get_status(&id).await?);
        }
        let mut marks = BTreeMap::new();
        for record in found {
            let mark = (record.state, record.execution_no, record.history.last().map(|line| line.at));
            let is_news = self.marks.get(&record.id) != Some(&mark);
            marks.insert(record.id.clone(), mark);
            if is_news && told == Told::Now {
                self.hear(Some(Heard::Change(Box::new(as_change(&record))))).await?;
            }
            if let Some(row) = self.rows.iter_mut().find(|row| row.id == record.id) {
                row.catch_up(&record);
            }
        }
        self.marks = marks;
        Ok(())
    }

    /// What is there at the beginning: on a terminal what is open, elsewhere only what was asked for.
    async fn begin(&mut self, since: Option<Millis>) -> Outcome<()> {
        if self.form == Form::Table {
            self.screen.begin(&self.rows)?;
        } else {
            self.screen.be_plain();
        }
        let mut found = Vec::new();
        for id in &self.ids {
            found.push(self.client.get_status(id).await?);
        }
        if self.ids.is_empty() && (since.is_some() || self.screen.is_live()) {
            let mut filter = self.filter.clone();
            filter.phases.clone_from(&self.states);
            if since.is_none() && filter.phases.is_empty() {
                filter.phases = TaskState::ALL.into_iter().filter(|state| !state.is_final()).collect();
            }
            let oldest = since.map(|span| SystemClock.now() - span);
            let page = self.client.list(filter, None, ROWS_MAX).await?.items;
            found.extend(page.into_iter().take_while(|task| oldest.is_none_or(|oldest| task.created_at >= oldest)));
            found.reverse();
        }
        for record in found {
            if !self.screen.is_live() {
                self.print(&as_change(&record))?;
            }
            self.add(&record);
        }
        Ok(())
    }

    /// The exit code, when all that were named have ended.
    async fn ended(&self) -> Outcome<Option<Exit>> {
        if self.ids.is_empty() || !self.rows.iter().all(Row::is_final) {
            return Ok(None);
        }
        let mut records = Vec::new();
        for id in &self.ids {
            records.push(self.client.get_status(id).await?);
        }
        Ok(Some(judged(&records, None)))
    }

    async fn hear(&mut self, heard: Option<Heard>) -> Outcome<()> {
        match heard {
            Some(Heard::Change(change)) => {
                if !self.is_meant(&change).await? {
                    return Ok(());
                }
                let is_told = self.states.is_empty() || self.states.contains(&change.state);
                if !self.screen.is_live() && is_told {
                    self.print(&change)?;
                }
                if let Some(row) = self.rows.iter_mut().find(|row| row.id == change.id) {
                    row.hear(&change);
                }
                if !is_told {
                    self.rows.retain(|row| row.id != change.id || !self.ids.is_empty());
                }
                Ok(())
            }
            Some(Heard::Missed(count)) => {
                self.say_missed(count);
                for row in &mut self.rows {
                    row.catch_up(&self.client.get_status(&row.id).await?);
                }
                Ok(())
            }
            None => Err(ekiden::Error::from(ekiden::core::ReasonCode::ReplyLost).into()),
        }
    }

    /// Whether a change is of a task that is meant. One that was not heard of before gets its row.
    async fn is_meant(&mut self, change: &TaskChange) -> Outcome<bool> {
        if !self.ids.is_empty() {
            return Ok(self.ids.contains(&change.id));
        }
        if self.rows.iter().any(|row| row.id == change.id) {
            return Ok(true);
        }
        let pool = self.filter.pool.as_ref().is_none_or(|pool| *pool == change.pool);
        let kind = self.filter.kind.as_ref().is_none_or(|kind| *kind == change.task_type);
        if !pool || !kind || self.strangers.contains(&change.id) {
            return Ok(false);
        }
        let needs_record = self.filter.group.is_some() || self.filter.session.is_some() || self.filter.text.is_some();
        if !needs_record && !self.screen.is_live() {
            return Ok(true);
        }
        let record = match self.client.get_status(&change.id).await {
            Ok(record) => record,
            Err(error) if error.code() == ekiden::core::ReasonCode::TaskNotFound => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        if is_meant(&self.filter, &record) {
            self.add(&record);
            return Ok(true);
        }
        if self.strangers.len() >= STRANGERS_MAX {
            self.strangers.clear();
        }
        self.strangers.insert(record.id);
        Ok(false)
    }

    fn add(&mut self, record: &TaskRecord) {
        let title = record.title.clone().unwrap_or_else(|| Arc::from(record.envelope.task_type.as_str()));
        let mut row = Row::new(record.id.clone(), title, record.max_attempts);
        row.catch_up(record);
        self.rows.push(row);
        if self.rows.len() > ROWS_MAX {
            let oldest = self.rows.iter().position(Row::is_final).unwrap_or(0);
            self.rows.remove(oldest);
        }
    }

    fn print(&self, change: &TaskChange) -> io::Result<()> {
        match self.form {
            Form::Json | Form::Jsonl => output::put(&serde_json::to_string(&wire::TaskChange::from(change.clone()))?),
            // A report of progress is news for programs, which can tell it from others.
            Form::Id | Form::Table if change.event.is_none() => Ok(()),
            Form::Id => output::put(change.id.as_str()),
            Form::Table => output::put(&self.line(change)),
        }
    }

    /// A change as cells with tabs between them.
    fn line(&self, change: &TaskChange) -> String {
        let cells = [
            change.at.to_string(),
            change.id.to_string(),
            state_word(change.state, self.lang).to_owned(),
            change.attempt.to_string(),
            change.event.map_or("-", |event| event.as_str()).to_owned(),
            change.task_type.to_string(),
            change.pool.to_string(),
            change.error.as_deref().unwrap_or_default().to_owned(),
        ];
        cells.map(|text| output::cell(&text)).join("\t")
    }

    fn say_missed(&self, count: u64) {
        if !self.screen.is_live() {
            say(&match self.lang {
                Lang::En => format!("{count} changes or more were missed"),
                Lang::Ja => format!("{count} 件以上の変化を取りこぼしました"),
            });
        }
    }
}

/// A task as it is, in the form of a change.
fn as_change(record: &TaskRecord) -> TaskChange {
    TaskChange {
        namespace: record.namespace.clone(),
        id: record.id.clone(),
        task_type: record.envelope.task_type.clone(),
        pool: record.pool.clone(),
        event: record.history.last().map(|line| line.event),
        state: record.state,
        attempt: record.execution_no,
        error: record.last_error.clone(),
        next_run_at: record.next_run_at,
        progress: record.progress.clone(),
        at: record.updated_at,
    }
}
