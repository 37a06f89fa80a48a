//! `ekiden task explain`: why a task is where it is, and what a person can do about it.

use std::process::ExitCode;

use ekiden::core::TaskId;

use crate::Outcome;
use crate::complaint;
use crate::exit::Exit;
use crate::language::Lang;
use crate::output::{self, Form};
use crate::reach::Reached;
use crate::table::state_word;

/// Explains.
pub(super) async fn run(reached: &Reached, id: &str, form: Form, lang: Lang) -> Outcome<ExitCode> {
    let explanation = reached.client.explain(&TaskId::new(id)?).await?;
    let record = &explanation.record;
    let mut text = format!("{}: {}\n", record.id, state_word(record.state, lang));
    if form == Form::Id {
        text = explanation.reasons.iter().map(|reason| format!("{}\n", reason.code)).collect();
    } else {
        for reason in &explanation.reasons {
            text.push('\n');
            text.push_str(&complaint::text(reason, lang));
            text.push('\n');
        }
    }
    output::document(&explanation.into_wire(lang.of_messages()), &text, form)?;
    Ok(Exit::Success.into())
}
