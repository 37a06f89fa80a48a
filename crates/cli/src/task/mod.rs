//! `ekiden task`: hand tasks in, look at them, cancel and retry them.

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use ekiden::core::{GroupId, Kind, Millis, PoolName, ReasonCode, Refusal, SessionId, TaskId, Timestamp};
use ekiden::{Client, Enqueued, TaskRecord, TaskRef, TaskState};
use ekiden_wire as wire;
use serde::Serialize;

use crate::config::Config;
use crate::language::Lang;
use crate::output::{self, Form, Show};
use crate::reach::{Missing, Reached, reach};
use crate::table::state_word;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Exit codes: 0 all is well, 1 it was refused or failed, 2 the command cannot be meant.
#[derive(Subcommand)]
pub(crate) enum TaskCommand {
    /// Hand a task in, and print its id.
    Add(Box<Add>),
    /// List tasks, newest first.
    List(List),
    /// Show a task: state, attempts, history.
    Get {
        /// The task's id
        id: String,
    },
    /// End a task; a running attempt is told to stop.
    Cancel {
        /// The tasks' ids
        #[arg(required = true)]
        ids: Vec<String>,
        /// Why, for people
        #[arg(long)]
        note: Option<String>,
    },
    /// Run a task again that has failed, ended or waits for its retry, and print the id of the one that will run.
    Retry {
        /// The tasks' ids
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

#[derive(Args)]
pub(crate) struct Add {
    /// What selects the handler
    task_type: String,
    /// What the handler gets, as JSON; - reads it from stdin
    #[arg(default_value = "null")]
    payload: String,
    /// The payload's media type; anything but JSON is taken as it is
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// The task's id, instead of a new one
    #[arg(long)]
    id: Option<String>,
    /// The line that it stands in
    #[arg(long, default_value = "default")]
    pool: String,
    /// What people read
    #[arg(long)]
    title: Option<String>,
    /// Run it this much later, as in 90s, 5m or 2h
    #[arg(long, value_parser = span, conflicts_with = "at")]
    delay: Option<Millis>,
    /// Run it from this moment on, as in 2026-11-20T09:00:00+09:00
    #[arg(long, value_parser = moment)]
    at: Option<Timestamp>,
    /// From -100 to 100; higher runs first
    #[arg(long, allow_negative_numbers = true, default_value_t = 0)]
    priority: i32,
    /// One after another with every task of this key
    #[arg(long, value_name = "KEY")]
    serial: Option<String>,
    /// No second task with this key while this one is open
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,
    /// The same key again, within a day, finds this task
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait for these tasks
    #[arg(long = "after", value_name = "ID")]
    after: Vec<String>,
    /// A group to belong to
    #[arg(long)]
    group: Option<String>,
    /// A session to belong to
    #[arg(long)]
    session: Option<String>,
    /// A label, as in name=value
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// How many attempts it has
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,
    /// The limit of one attempt
    #[arg(long, value_parser = span)]
    timeout: Option<Millis>,
    /// Keep it until it is released
    #[arg(long)]
    hold: bool,
}

#[derive(Args)]
pub(crate) struct List {
    /// Only in these states, as in running,retry_scheduled
    #[arg(long, value_delimiter = ',', value_parser = state)]
    state: Vec<TaskState>,
    /// Only of this pool
    #[arg(long)]
    pool: Option<String>,
    /// Only of this type
    #[arg(long = "type", value_name = "TYPE")]
    task_type: Option<String>,
    /// Only of this group
    #[arg(long)]
    group: Option<String>,
    /// Only of this session
    #[arg(long)]
    session: Option<String>,
    /// Only with this text in id, title, error or payload
    #[arg(long)]
    text: Option<String>,
    /// How many at most
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Go on from where the page before ended
    #[arg(long)]
    cursor: Option<String>,
}

/// Carries a command out.
pub(crate) fn run(command: TaskCommand, config: &Config, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let missing = if matches!(command, TaskCommand::Add(_)) { Missing::Make } else { Missing::Refuse };
        let reached = reach(config, missing).await?;
        let outcome = carry_out(command, &reached, form, lang).await;
        let closed = reached.close().await;
        let code = outcome?;
        closed?;
        Ok(code)
    })
}

async fn carry_out(command: TaskCommand, reached: &Reached, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let client = &reached.client;
    match command {
        TaskCommand::Add(wish) => add(client, *wish, form).await,
        TaskCommand::List(wish) => list(client, wish, form, lang).await,
        TaskCommand::Get { id } => {
            let record = client.get_status(&TaskId::new(id)?).await?;
            let facts = facts(&record, lang);
            output::one(&Shown::new(record, lang), &facts, form)?;
            Ok(ExitCode::SUCCESS)
        }
        TaskCommand::Cancel { ids, note } => {
            let note = note.map(Arc::from);
            let task = |id| TaskRef { namespace: client.namespace().clone(), id };
            each(ids, form, lang, async |id| client.queue().cancel(task(id), note.clone()).await).await
        }
        TaskCommand::Retry { ids } => each(ids, form, lang, async |id| client.retry(&id).await).await,
    }
}

async fn add(client: &Client, wish: Add, form: Form) -> Outcome<ExitCode> {
    let payload = if wish.payload == "-" { stdin()? } else { wish.payload.into_bytes() };
    let content_type = wish.content_type.as_deref().unwrap_or("application/json");
    if content_type == "application/json"
        && let Err(why) = serde_json::from_slice::<serde::de::IgnoredAny>(&payload)
    {
        let refusal = Refusal::new(ReasonCode::PayloadInvalid).with("field", "payload").with("why", why);
        return Err(ekiden::Error::from(refusal).into());
    }
    let mut task = client.enqueue_raw(wish.task_type, content_type, payload).pool(wish.pool).priority(wish.priority);
    for (name, value) in wish.labels {
        task = task.label(name, value);
    }
    let parents = wish.after.iter().map(TaskId::new).collect::<Result<Vec<_>, _>>()?;
    task = task.depends_on(&parents);
    // A wish that was not made is not passed on.
    macro_rules! pass_on {
        ($($wish:ident => $method:ident,)+) => {
            $(if let Some(value) = wish.$wish { task = task.$method(value); })+
        };
    }
    pass_on! {
        id => id, title => title, at => run_at, serial => serial_key, unique => unique,
        idempotency_key => idempotency_key, group => group, session => session, attempts => max_attempts,
    }
    if let Some(delay) = wish.delay {
        task = task.delay(delay.as_duration());
    }
    if let Some(limit) = wish.timeout {
        task = task.timeout(limit.as_duration());
    }
    if wish.hold {
        task = task.held();
    }
    let added = Added::from(task.await?);
    let form = if form == Form::Table { Form::Id } else { form };
    output::one(&added, &[], form)?;
    Ok(ExitCode::SUCCESS)
}

fn stdin() -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than is taken, so that too much is refused rather than cut.
    let most = u64::try_from(ekiden::core::limits::PAYLOAD_BYTES_MAX + 1).unwrap_or(u64::MAX);
    std::io::stdin().take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

async fn list(client: &Client, wish: List, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let mut filter = client.all();
    filter.phases = wish.state;
    filter.pool = wish.pool.map(PoolName::new).transpose()?;
    filter.kind = wish.task_type.map(Kind::new).transpose()?;
    filter.group = wish.group.map(GroupId::new).transpose()?;
    filter.session = wish.session.map(SessionId::new).transpose()?;
    filter.text = wish.text.map(Arc::from);
    let limit = usize::from(wish.limit);
    let (mut shown, mut cursor) = (Vec::new(), wish.cursor);
    // A page of a filtered listing may be short although more follow.
    loop {
        let page = client.list(filter.clone(), cursor, limit - shown.len()).await?;
        shown.extend(page.items.into_iter().map(|record| Shown::new(record, lang)));
        cursor = page.cursor;
        if cursor.is_none() || shown.len() >= limit {
            break;
        }
    }
    let titles = match lang {
        Lang::En => ["ID", "TYPE", "STATE", "ATTEMPT", "POOL", "CREATED", "NOTE"],
        Lang::Ja => ["ID", "種類", "状態", "試行", "プール", "作成", "メモ"],
    };
    output::list(&shown, &titles, form)?;
    if let Some(cursor) = cursor {
        crate::say(&match lang {
            Lang::En => format!("More follow: --cursor {cursor}"),
            Lang::Ja => format!("続きがあります: --cursor {cursor}"),
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// Does the same to each task. One that is refused stops no other, and is told at the end by the exit code.
async fn each(
    ids: Vec<String>,
    form: Form,
    lang: Lang,
    act: impl AsyncFn(TaskId) -> ekiden::Result<TaskRecord>,
) -> Outcome<ExitCode> {
    let mut code = ExitCode::SUCCESS;
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

/// A task that was handed in.
#[derive(Serialize)]
struct Added {
    id: TaskId,
    is_new: bool,
}

impl From<Enqueued> for Added {
    fn from(enqueued: Enqueued) -> Self {
        Self { id: enqueued.id, is_new: enqueued.is_new }
    }
}

impl Show for Added {
    fn id(&self) -> &str {
        self.id.as_str()
    }

    fn cells(&self) -> Vec<String> {
        vec![self.id.to_string()]
    }
}

/// A task as the API shows it, with the words of the reader's language beside it.
#[derive(Serialize)]
#[serde(transparent)]
struct Shown {
    task: wire::Task,
    #[serde(skip)]
    lang: Lang,
}

impl Shown {
    fn new(record: TaskRecord, lang: Lang) -> Self {
        Self { task: record.into(), lang }
    }
}

impl Show for Shown {
    fn id(&self) -> &str {
        self.task.id.as_str()
    }

    fn cells(&self) -> Vec<String> {
        let task = &self.task;
        let note = task.last_error.as_deref().or(task.title.as_deref()).unwrap_or_default();
        vec![
            task.id.to_string(),
            task.task_type.to_string(),
            state_word(task.state, self.lang).to_owned(),
            format!("{}/{}", task.attempts, task.max_attempts),
            task.pool.to_string(),
            task.created_at.to_string(),
            note.to_owned(),
        ]
    }
}

fn facts(record: &TaskRecord, lang: Lang) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("id", record.id.to_string()),
        ("namespace", record.namespace.to_string()),
        ("type", record.envelope.task_type.to_string()),
        ("pool", record.pool.to_string()),
        ("state", state_word(record.state, lang).to_owned()),
        ("attempts", format!("{}/{}", record.attempts, record.max_attempts)),
        ("created", record.created_at.to_string()),
        ("updated", record.updated_at.to_string()),
    ];
    let mut maybe = |name: &'static str, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    maybe("title", record.title.as_ref().map(ToString::to_string));
    maybe("next_run", record.next_run_at.map(|at| at.to_string()));
    maybe("finished", record.finished_at.map(|at| at.to_string()));
    maybe("runner", record.runner.as_ref().map(ToString::to_string));
    maybe("reason", record.reason.map(|code| code.to_string()));
    maybe("error", record.last_error.as_ref().map(ToString::to_string));
    maybe("result", record.result.as_ref().map(|result| String::from_utf8_lossy(result).into_owned()));
    maybe("question", record.question.as_ref().map(|question| question.text.to_string()));
    maybe("payload", Some(String::from_utf8_lossy(&record.envelope.payload).into_owned()));
    for line in &record.history {
        let note = line.note.as_deref().map(|note| format!(" {note}")).unwrap_or_default();
        facts.push(("history", format!("{} {} {}{note}", line.at, line.event.as_str(), state_word(line.phase, lang))));
    }
    facts
}

/// A length of time, as in `1500ms`, `90s`, `5m`, `2h` or `7d`.
pub(crate) fn span(text: &str) -> Result<Millis, String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or("a unit is missing, as in 90s, 5m or 2h")?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().map_err(|_| "a whole number with a unit, as in 90s, 5m or 2h".to_owned())?;
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err("the unit is ms, s, m, h or d".to_owned()),
    };
    number.checked_mul(unit).map(Millis::new).ok_or_else(|| "longer than time lasts".to_owned())
}

fn moment(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).map_err(|_| "a moment with its offset, as in 2026-11-20T09:00:00+09:00".to_owned())
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a name and a value, as in team=blue")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn state(text: &str) -> Result<TaskState, String> {
    let names = || TaskState::ALL.map(TaskState::as_str).join(", ");
    TaskState::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| format!("one of {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_a_unit_and_nothing_else() {
        assert_eq!(span("90s"), Ok(Millis::from_secs(90)));
        assert_eq!(span("1500ms"), Ok(Millis::new(1_500)));
        assert_eq!(span("7d"), Ok(Millis::from_days(7)));
        for wrong in ["", "5", "m", "-5m", "1.5h", "5 m", "99999999999999999999s", "18446744073709551615d"] {
            assert!(span(wrong).is_err(), "{wrong:?}");
        }
    }
}
