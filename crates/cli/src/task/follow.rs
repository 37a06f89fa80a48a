//! Stays with a task until it has ended: its log as it is written, and its states as they change.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ekiden::core::{ReasonCode, TaskId};
use ekiden::{AttemptRef, Client, Heard, Logs, Subscription, TaskRecord, TaskState};

use super::shown::{Shown, question_lines};
use crate::Outcome;
use crate::exit::Exit;
use crate::interrupt::Interrupts;
use crate::language::Lang;
use crate::output::{self, Form};
use crate::reach::Reached;
use crate::say;
use crate::table::state_word;

/// A fifth of a second: a log that is followed seems to be written before one's eyes.
const LOG_AGAIN: Duration = Duration::from_millis(200);

/// One second: how soon a change is seen that was not told.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// 256 KiB a read: few enough requests for a long log, little memory for any.
pub(super) const PIECE_BYTES: usize = 256 * 1024;

/// Where the bytes of a log go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogsTo {
    /// The log is what was asked for.
    Stdout,
    /// The log goes along with other data.
    Stderr,
    /// It is not wanted.
    Nowhere,
}

/// Follows a task that was just handed in, and ends as it does.
pub(super) async fn added(reached: &Reached, id: &TaskId, form: Form, lang: Lang) -> Outcome<ExitCode> {
    match form {
        Form::Id => output::line(id.as_str())?,
        Form::Table => say(id.as_str()),
        Form::Json | Form::Jsonl => {}
    }
    let logs = if form == Form::Table { LogsTo::Stdout } else { LogsTo::Stderr };
    let mut interrupts = Interrupts::listen()?;
    let followed = Follow::new(reached, id.clone(), logs, lang);
    let record = tokio::select! {
        record = followed.until_ended() => record?,
        exit = interrupts.next() => {
            say(&goes_on(id, lang));
            return Ok(exit.into());
        }
    };
    let code = Exit::of(record.state).unwrap_or(Exit::Failure);
    if matches!(form, Form::Json | Form::Jsonl) {
        output::one(&Shown::new(record, lang), &[], form)?;
    }
    Ok(code.into())
}

/// Leaving is not cancelling.
fn goes_on(id: &TaskId, lang: Lang) -> String {
    match lang {
        Lang::En => format!("The task goes on: ekiden task logs -f {id}, or ekiden task cancel {id}"),
        Lang::Ja => format!("タスクは続いています: ekiden task logs -f {id} または ekiden task cancel {id}"),
    }
}

/// A task that is followed.
pub(super) struct Follow<'a> {
    client: &'a Client,
    logs: Option<&'a Arc<dyn Logs>>,
    id: TaskId,
    to: LogsTo,
    lang: Lang,
    /// What was told last.
    told: Option<(TaskState, u64)>,
    /// The attempt whose log is read, and how far.
    attempt: u64,
    offset: u64,
    /// Whether there is no point in going on when nobody reads the log any more.
    ends_with_reader: bool,
}

impl<'a> Follow<'a> {
    pub(super) fn new(reached: &'a Reached, id: TaskId, to: LogsTo, lang: Lang) -> Self {
        let logs = reached.logs.as_ref();
        let client = &reached.client;
        Self { client, logs, id, to, lang, told: None, attempt: 0, offset: 0, ends_with_reader: false }
    }

    /// The same for the log alone, from somewhere inside the log of an attempt.
    pub(super) fn from(self, attempt: u64, offset: u64) -> Self {
        Self { attempt, offset, ends_with_reader: true, ..self }
    }

    /// Until the task has ended.
    pub(super) async fn until_ended(mut self) -> Outcome<TaskRecord> {
        let mut changes = self.client.until_answered(|| self.client.subscribe()).await?;
        loop {
            let record = self.client.until_answered(|| self.client.get_status(&self.id)).await?;
            self.pass_on(&record).await?;
            self.tell(&record);
            if record.state.is_final() {
                return Ok(record);
            }
            self.wait(&record, &mut changes).await;
        }
    }

    /// Until one attempt has ended.
    pub(super) async fn until_attempt_ended(mut self) -> Outcome<()> {
        let mut changes = self.client.until_answered(|| self.client.subscribe()).await?;
        loop {
            let record = self.client.until_answered(|| self.client.get_status(&self.id)).await?;
            self.read(self.attempt).await?;
            let of_attempt = record.recent.iter().find(|one| one.execution_no == self.attempt);
            let is_over = record.execution_no > self.attempt || record.state.is_final();
            if is_over || of_attempt.is_some_and(|one| one.outcome.is_some()) {
                return Ok(());
            }
            self.wait(&record, &mut changes).await;
        }
    }

    /// Waits until a look may be worth it.
    async fn wait(&self, record: &TaskRecord, changes: &mut Subscription) {
        let reads = self.to != LogsTo::Nowhere && self.logs.is_some() && record.state == TaskState::Running;
        let patience = if reads { LOG_AGAIN } else { LOOK_AGAIN };
        // In vain if nobody tells: then the next look finds out.
        let _ = tokio::time::timeout(patience, changed(changes, &self.id)).await;
    }

    /// Reads the logs of all attempts that were not read yet, up to where they are.
    async fn pass_on(&mut self, record: &TaskRecord) -> Outcome<()> {
        if self.to == LogsTo::Nowhere {
            return Ok(());
        }
        for one in &record.recent {
            if one.execution_no < self.attempt {
                continue;
            }
            if one.execution_no > self.attempt {
                (self.attempt, self.offset) = (one.execution_no, 0);
            }
            self.read(one.execution_no).await?;
        }
        Ok(())
    }

    async fn read(&mut self, execution_no: u64) -> Outcome<()> {
        let Some(logs) = self.logs else { return Ok(()) };
        let attempt = AttemptRef { task: self.client.task(&self.id), execution_no };
        loop {
            let piece = || logs.read(attempt.clone(), self.offset, PIECE_BYTES);
            let part = match self.client.until_answered(piece).await {
                Ok(part) => part,
                // It has written nothing yet, or never will.
                Err(error) if error.code() == ReasonCode::LogNotFound => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            if part.offset > self.offset {
                say(&dropped(part.offset - self.offset, self.lang));
            }
            self.offset = part.offset + part.bytes.len() as u64;
            match put(&part.bytes, self.to) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe && !self.ends_with_reader => {
                    self.to = LogsTo::Nowhere;
                    return Ok(());
                }
                written => written?,
            }
            if self.offset >= part.end || part.bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Says where the task is, when that is news.
    fn tell(&mut self, record: &TaskRecord) {
        let news = Some((record.state, record.execution_no));
        if self.told == news {
            return;
        }
        self.told = news;
        let mut line = format!("{} {}", record.id, state_word(record.state, self.lang));
        if record.execution_no > 0 {
            line.push_str(&format!(" {}/{}", record.attempts, record.max_attempts));
        }
        if let Some(error) = record.last_error.as_ref().filter(|_| record.state != TaskState::Succeeded) {
            line.push_str(&format!(": {}", output::cell(error)));
        }
        say(&line);
        if let Some(question) = &record.question {
            for line in question_lines(&record.id, question) {
                say(&format!("  {}", output::cell(&line)));
            }
        }
    }
}

/// What a log has lost by now.
pub(super) fn dropped(bytes: u64, lang: Lang) -> String {
    match lang {
        Lang::En => format!("[{bytes} bytes before this are dropped]"),
        Lang::Ja => format!("[これより前の {bytes} バイトは破棄されました]"),
    }
}

/// Writes what a task wrote, byte for byte.
pub(super) fn put(bytes: &[u8], to: LogsTo) -> io::Result<()> {
    match to {
        LogsTo::Stdout => {
            let mut out = io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        LogsTo::Stderr => io::stderr().lock().write_all(bytes),
        LogsTo::Nowhere => Ok(()),
    }
}

/// Waits for a change of a task, as far as one is told.
pub(super) async fn changed(changes: &mut Subscription, id: &TaskId) {
    loop {
        match changes.next().await {
            Some(Heard::Change(change)) if change.id != *id || change.event.is_none() => {}
            Some(_) => return,
            None => std::future::pending().await,
        }
    }
}
