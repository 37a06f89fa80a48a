//! `ekiden task answer`: the words that a task waits for, given to the question that it asked.

use std::io::Read;
use std::process::ExitCode;

use clap::Args;
use ekiden::core::{QuestionId, ReasonCode, Refusal, TaskId};

use super::shown::Shown;
use crate::Outcome;
use crate::exit::Exit;
use crate::language::Lang;
use crate::output::{self, Form};
use crate::reach::Reached;
use crate::table::state_word;

pub(super) const EXAMPLES: &str = "\
Examples:
  ekiden task get TASK_ID            # shows question, choices and deadline
  ekiden task answer TASK_ID yes
  cat reply.txt | ekiden task answer TASK_ID -";

/// 64 KiB: an answer is read by a person or a prompt.
const STDIN_BYTES_MAX: u64 = 64 * 1024;

#[derive(Args)]
pub(crate) struct Answer {
    /// The task's id
    id: String,
    /// The answer; - reads it from stdin
    text: String,
    /// The question that is answered, instead of the one that is open now
    #[arg(long, value_name = "ID")]
    question: Option<String>,
}

/// Answers.
pub(super) async fn run(reached: &Reached, wish: Answer, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let client = &reached.client;
    let id = TaskId::new(&wish.id)?;
    let question = match wish.question {
        Some(question) => QuestionId::new(question)?,
        None => {
            let record = client.get_status(&id).await?;
            let not_asking = || {
                let refusal = Refusal::new(ReasonCode::TaskNotAsking).with("task_id", &id);
                refusal.with("phase", record.state)
            };
            record.question.as_ref().ok_or_else(not_asking)?.id.clone()
        }
    };
    let mut text = wish.text;
    if text == "-" {
        text.clear();
        std::io::stdin().take(STDIN_BYTES_MAX + 1).read_to_string(&mut text)?;
        text.truncate(text.trim_end_matches('\n').len());
    }
    let record = client.answer(&id, &question, text).await?;
    let state = state_word(record.state, lang).to_owned();
    output::one(&Shown::new(record, lang), &[(id.as_str(), state)], form)?;
    Ok(Exit::Success.into())
}
