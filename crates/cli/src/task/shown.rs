//! How a task is shown: as a row of a list, as its facts one by one, and as the API has it.

use ekiden::core::{Attempt, Question, TaskId};
use ekiden::{TaskRecord, TaskState};
use ekiden_wire as wire;
use serde::Serialize;

use crate::language::Lang;
use crate::output::Show;
use crate::table::{color, state_word};

/// The titles of a list of tasks.
pub(super) const fn titles(lang: Lang) -> [&'static str; 7] {
    match lang {
        Lang::En => ["ID", "TYPE", "STATE", "ATTEMPT", "POOL", "CREATED", "NOTE"],
        Lang::Ja => ["ID", "種類", "状態", "試行", "プール", "作成", "メモ"],
    }
}

/// A task as the API shows it, with the words of the reader's language beside it.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct Shown {
    task: wire::Task,
    #[serde(skip)]
    lang: Lang,
}

impl Shown {
    pub(crate) fn new(record: TaskRecord, lang: Lang) -> Self {
        Self { task: record.into(), lang }
    }
}

impl Show for Shown {
    fn id(&self) -> &str {
        self.task.id.as_str()
    }

    fn cells(&self) -> Vec<String> {
        let task = &self.task;
        let question = task.question.as_ref().map(|question| &*question.text);
        // What went wrong on the way is no news of a task that succeeded.
        let error = task.last_error.as_deref().filter(|_| task.state != TaskState::Succeeded);
        let note = question.or(error).or(task.title.as_deref()).unwrap_or_default();
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

    fn tint(&self) -> Option<(usize, comfy_table::Color)> {
        Some((2, color(self.task.state)))
    }
}

/// The facts of a task. Their names are the same in every language.
pub(super) fn facts(record: &TaskRecord, lang: Lang) -> Vec<(&'static str, String)> {
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
    maybe("priority", (record.priority != 0).then(|| record.priority.to_string()));
    maybe("group", record.group.as_ref().map(ToString::to_string));
    maybe("session", record.session.as_ref().map(ToString::to_string));
    for (name, value) in &record.labels {
        maybe("label", Some(format!("{name}={value}")));
    }
    maybe("next_run", record.next_run_at.map(|at| at.to_string()));
    maybe("finished", record.finished_at.map(|at| at.to_string()));
    maybe("runner", record.runner.as_ref().map(ToString::to_string));
    maybe("reason", record.reason.map(|code| code.to_string()));
    maybe("error", record.last_error.as_ref().map(ToString::to_string));
    maybe("progress", record.progress.as_ref().map(progress));
    maybe("result", record.result.as_ref().map(|result| String::from_utf8_lossy(result).into_owned()));
    maybe("waits_for", (!record.waits_for.is_empty()).then(|| joined(&record.waits_for)));
    maybe("retry_of", record.retry_of.as_ref().map(ToString::to_string));
    maybe("retried_as", record.retried_as.as_ref().map(ToString::to_string));
    maybe("answer", record.answer.as_ref().map(|answer| answer.content.to_string()));
    if let Some(question) = &record.question {
        facts.extend(asked(&record.id, question));
    }
    facts.push(("payload", String::from_utf8_lossy(&record.envelope.payload).into_owned()));
    facts.extend(record.recent.iter().map(|one| ("attempt", attempt(one))));
    for line in &record.history {
        let note = line.note.as_deref().map(|note| format!(" {note}")).unwrap_or_default();
        facts.push(("history", format!("{} {} {}{note}", line.at, line.event.as_str(), state_word(line.phase, lang))));
    }
    facts
}

/// An open question, and the command that answers it.
fn asked(id: &TaskId, question: &Question) -> Vec<(&'static str, String)> {
    let mut facts = vec![("question", question.text.to_string()), ("question_id", question.id.to_string())];
    if !question.choices.is_empty() {
        facts.push(("choices", question.choices.join(" | ")));
    }
    facts.extend(question.deadline.map(|at| ("deadline", at.to_string())));
    facts.extend(question.default.as_ref().map(|text| ("default", text.to_string())));
    facts.push(("answer_with", how_to_answer(id, question)));
    facts
}

/// An open question for who follows its task, a line each.
pub(crate) fn question_lines(id: &TaskId, question: &Question) -> Vec<String> {
    let shown = asked(id, question).into_iter().filter(|(name, _)| !matches!(*name, "question" | "question_id"));
    let rest = shown.map(|(name, value)| if name == "answer_with" { value } else { format!("{name}: {value}") });
    std::iter::once(question.text.to_string()).chain(rest).collect()
}

/// The command that answers a question, with the first choice where there are any.
pub(super) fn how_to_answer(id: &TaskId, question: &Question) -> String {
    let text = question.choices.first().map_or("…", |choice| choice);
    format!("ekiden task answer {} {}", quoted(id.as_str()), quoted(text))
}

/// As a shell takes it.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:@…".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

fn attempt(attempt: &Attempt) -> String {
    let mut text = format!("{} {} {}", attempt.execution_no, attempt.started_at, attempt.runner);
    match attempt.outcome {
        Some(outcome) => text.push_str(&format!(" {}", outcome.as_str())),
        None => text.push_str(" running"),
    }
    if let Some(stage) = attempt.stage {
        text.push_str(&format!(" {}", format!("{stage:?}").to_lowercase()));
    }
    if let Some(error) = &attempt.error {
        text.push_str(&format!(": {error}"));
    }
    text
}

fn progress(progress: &ekiden::core::Progress) -> String {
    let of = progress.total.map(|total| format!("/{total}")).unwrap_or_default();
    let note = progress.note.as_deref().map(|note| format!(" {note}")).unwrap_or_default();
    format!("{}{of}{note}", progress.done)
}

fn joined(ids: &[TaskId]) -> String {
    ids.iter().map(TaskId::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        assert_eq!(quoted("task_01-a"), "task_01-a");
        assert_eq!(quoted("襷リレー"), "襷リレー");
        assert_eq!(quoted("it's; rm"), "'it'\\''s; rm'");
        assert_eq!(quoted("a b"), "'a b'");
    }
}
