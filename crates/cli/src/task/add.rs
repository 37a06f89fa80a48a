//! `ekiden task add`: hands a task in, and follows it if asked to.

use std::io::Read;
use std::process::ExitCode;

use clap::Args;
use ekiden::core::{Millis, ReasonCode, Refusal, TaskId, Timestamp};
use ekiden::{Client, EnqueueBuilder, Enqueued};
use serde::Serialize;

use super::follow;
use super::words::{label, moment, priority, span};
use crate::Outcome;
use crate::exit::Exit;
use crate::language::Lang;
use crate::output::{self, Form, Show};
use crate::reach::Reached;

pub(super) const EXAMPLES: &str = "\
Examples:
  ekiden task add greet '{\"name\": \"you\"}'
  ekiden task add report --delay 5m --unique daily --title 'the daily report'
  ekiden task add build --after TASK_ID --serial deploy --attempts 3
  echo '{\"prompt\": \"fix the tests\"}' | ekiden task add prompt - --pool agents --follow";

/// What a task is, whoever hands it in: a person now, or a schedule later.
#[derive(Args)]
pub(crate) struct Wish {
    /// What selects the handler
    task_type: String,
    /// What the handler gets, as JSON; - reads it from stdin
    #[arg(default_value = "null")]
    payload: String,
    /// The payload's media type; anything but JSON is taken as it is
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// The line that it stands in
    #[arg(long, default_value = "default")]
    pool: String,
    /// What people read
    #[arg(long)]
    title: Option<String>,
    /// low, normal, high, urgent, or a number from -100 to 100; higher runs first
    #[arg(long, allow_negative_numbers = true, default_value = "normal", value_parser = priority)]
    priority: i32,
    /// One after another with every task of this key
    #[arg(long, value_name = "KEY")]
    serial: Option<String>,
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
    /// The limit of one attempt, as in 30s
    #[arg(long, value_parser = span)]
    timeout: Option<Millis>,
}

#[derive(Args)]
pub(crate) struct Add {
    #[command(flatten)]
    wish: Wish,
    /// The task's id, instead of a new one
    #[arg(long)]
    id: Option<String>,
    /// Run it this much later, as in 90s, 5m or 2h
    #[arg(long, value_parser = span, conflicts_with = "at")]
    delay: Option<Millis>,
    /// Run it from this moment on, as in 2026-11-20T09:00:00+09:00
    #[arg(long, value_parser = moment)]
    at: Option<Timestamp>,
    /// No second task with this key while this one is open
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,
    /// The same key again, within a day, finds this task
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait for these tasks
    #[arg(long = "after", value_name = "ID")]
    after: Vec<String>,
    /// Keep it until it is released
    #[arg(long)]
    hold: bool,
    /// Stay until it has ended: its log on stdout, its states on stderr, its end as the exit code
    #[arg(long, short)]
    follow: bool,
}

impl Wish {
    /// The task in the making.
    pub(crate) fn task(self, client: &Client) -> Outcome<EnqueueBuilder> {
        let payload = if self.payload == "-" { stdin()? } else { self.payload.into_bytes() };
        let content_type = self.content_type.as_deref().unwrap_or("application/json");
        if content_type == "application/json"
            && let Err(why) = serde_json::from_slice::<serde::de::IgnoredAny>(&payload)
        {
            let refusal = Refusal::new(ReasonCode::PayloadInvalid).with("field", "payload").with("why", why);
            return Err(refusal.into());
        }
        let mut task = client.enqueue_raw(self.task_type, content_type, payload);
        task = task.pool(self.pool).priority(self.priority);
        for (name, value) in self.labels {
            task = task.label(name, value);
        }
        task = pass_on(task, self.title, EnqueueBuilder::title);
        task = pass_on(task, self.serial, EnqueueBuilder::serial_key);
        task = pass_on(task, self.group, EnqueueBuilder::group);
        task = pass_on(task, self.session, EnqueueBuilder::session);
        task = pass_on(task, self.attempts, EnqueueBuilder::max_attempts);
        Ok(pass_on(task, self.timeout.map(Millis::as_duration), EnqueueBuilder::timeout))
    }
}

/// A wish that was not made is not passed on.
fn pass_on<T>(
    task: EnqueueBuilder,
    wish: Option<T>,
    say: impl FnOnce(EnqueueBuilder, T) -> EnqueueBuilder,
) -> EnqueueBuilder {
    match wish {
        Some(wish) => say(task, wish),
        None => task,
    }
}

fn stdin() -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than is taken, so that too much is refused rather than cut.
    let most = u64::try_from(ekiden::core::limits::PAYLOAD_BYTES_MAX + 1).unwrap_or(u64::MAX);
    std::io::stdin().take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Hands it in.
pub(super) async fn run(reached: &Reached, add: Add, form: Form, lang: Lang) -> Outcome<ExitCode> {
    if add.follow {
        reached.must_be_shared()?;
    }
    let client = &reached.client;
    let mut task = add.wish.task(client)?;
    let parents = add.after.iter().map(TaskId::new).collect::<Result<Vec<_>, _>>()?;
    task = task.depends_on(&parents);
    task = pass_on(task, add.id, EnqueueBuilder::id);
    task = pass_on(task, add.at, EnqueueBuilder::run_at);
    task = pass_on(task, add.unique, EnqueueBuilder::unique);
    task = pass_on(task, add.idempotency_key, EnqueueBuilder::idempotency_key);
    task = pass_on(task, add.delay.map(Millis::as_duration), EnqueueBuilder::delay);
    if add.hold {
        task = task.held();
    }
    let added = Added::from(task.await?);
    if add.follow {
        return follow::added(reached, &added.id, form, lang).await;
    }
    output::one(&added, &[], if form == Form::Table { Form::Id } else { form })?;
    Ok(Exit::Success.into())
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
