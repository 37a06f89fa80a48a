//! Says what went wrong, in the reader's language: the code, the facts, why, and what to do.

use std::error::Error;
use std::process::ExitCode;

use ekiden::core::{ReasonCode, Refusal};
use ekiden::store::transfer::TransferError;

use crate::exit::Exit;
use crate::language::Lang;
use crate::output;
use crate::say;

/// Tells it, and gives the exit code that goes with it.
pub(crate) fn tell(error: &(dyn Error + 'static), lang: Lang) -> ExitCode {
    let transfer = error.downcast_ref::<TransferError>();
    let refusal = transfer.map(|error| &error.refusal).or_else(|| error.downcast_ref::<Refusal>());
    match refusal.or_else(|| error.downcast_ref::<ekiden::Error>().map(ekiden::Error::refusal)) {
        Some(refusal) => {
            say(&format!("ekiden: {}", text(refusal, lang)));
            if let Some(error) = transfer {
                say(&before(error, lang));
            }
            code(refusal).into()
        }
        None => {
            say(&format!("ekiden: {error}"));
            Exit::Failure.into()
        }
    }
}

fn code(refusal: &Refusal) -> Exit {
    match refusal.code {
        ReasonCode::UrlInvalid
        | ReasonCode::StoreCannot
        | ReasonCode::ConfirmationMissing
        | ReasonCode::ConfigInvalid
        | ReasonCode::PayloadInvalid
        | ReasonCode::IdInvalid
        | ReasonCode::PriorityOutOfRange
        | ReasonCode::NumberOutOfRange
        | ReasonCode::ScheduleInvalid
        | ReasonCode::QueryInvalid => Exit::Usage,
        _ => Exit::Failure,
    }
}

/// A reason as people read it. The names of facts are the same in every language, as in the API.
pub(crate) fn text(refusal: &Refusal, lang: Lang) -> String {
    let message = refusal.code.message(lang.of_messages());
    let facts: Vec<_> =
        refusal.context.iter().map(|(name, value)| format!("{name}: {}", output::cell(value))).collect();
    let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
    let mut text = format!("{}: {}{facts}\n{}", refusal.code, message.title, message.summary);
    for action in &message.actions {
        text.push_str(&format!("\n- {action}"));
    }
    text
}

fn before(error: &TransferError, lang: Lang) -> String {
    let records = error.moved.records;
    match lang {
        Lang::En => format!("Records that went through before: {records}"),
        Lang::Ja => format!("それまでに処理したレコード: {records}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_has_code_facts_reason_and_actions_in_both_languages() {
        let refusal = Refusal::new(ReasonCode::StoreInUse).with("path", "/data");
        let english = text(&refusal, Lang::En);
        assert!(english.starts_with("STORE_IN_USE: Store is in use (path: /data)\nAnother process"), "{english}");
        assert!(english.contains("\n- Choose another data folder"), "{english}");
        let japanese = text(&refusal, Lang::Ja);
        assert!(japanese.starts_with("STORE_IN_USE: ストアは使用中です (path: /data)\n"), "{japanese}");
    }

    /// S20: facts hold what commands and callers wrote.
    #[test]
    fn a_fact_moves_no_cursor() {
        let refusal =
            Refusal::new(ReasonCode::PermanentFailure).with("error", "\u{1b}]52;c;eA==\u{7}\r\u{9b}2J\u{202e}x");
        let told = text(&refusal, Lang::En);
        assert!(!told.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{told:?}");
    }

    #[test]
    fn an_address_that_cannot_be_meant_is_wrong_usage_and_a_store_that_fails_is_not() {
        assert_eq!(code(&Refusal::new(ReasonCode::UrlInvalid)), Exit::Usage);
        assert_eq!(code(&Refusal::new(ReasonCode::PriorityOutOfRange)), Exit::Usage, "a wrong value");
        assert_eq!(code(&Refusal::new(ReasonCode::StoreDamaged)), Exit::Failure);
    }
}
