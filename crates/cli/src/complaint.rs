//! Says what went wrong, in the reader's language: the code, the facts, why, and what to do.

use std::error::Error;
use std::process::ExitCode;

use ekiden::core::{ReasonCode, Refusal};
use ekiden::store::transfer::TransferError;

use crate::language::Lang;

/// 1: it was tried and did not work, or something was found. 2 is what clap says for a command that cannot be meant.
const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// Tells it, and gives the exit code that goes with it.
pub(crate) fn tell(error: &(dyn Error + 'static), lang: Lang) -> ExitCode {
    let transfer = error.downcast_ref::<TransferError>();
    let refusal = transfer.map(|error| &error.refusal);
    match refusal.or_else(|| error.downcast_ref::<ekiden::Error>().map(ekiden::Error::refusal)) {
        Some(refusal) => {
            anstream::eprintln!("{}", text(refusal, lang));
            if let Some(error) = transfer {
                anstream::eprintln!("{}", before(error, lang));
            }
            ExitCode::from(code(refusal))
        }
        None => {
            anstream::eprintln!("ekiden: {error}");
            ExitCode::from(FAILED)
        }
    }
}

fn code(refusal: &Refusal) -> u8 {
    match refusal.code {
        ReasonCode::UrlInvalid | ReasonCode::StoreCannot => USAGE,
        _ => FAILED,
    }
}

/// The names of facts are the same in every language, as in the API.
fn text(refusal: &Refusal, lang: Lang) -> String {
    let message = refusal.code.message(lang.of_messages());
    let facts: Vec<_> = refusal.context.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
    let mut text = format!("ekiden: {}: {}{facts}\n{}", refusal.code, message.title, message.summary);
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
        assert!(
            english.starts_with("ekiden: STORE_IN_USE: Store is in use (path: /data)\nAnother process"),
            "{english}"
        );
        assert!(english.contains("\n- Choose another data folder"), "{english}");
        let japanese = text(&refusal, Lang::Ja);
        assert!(japanese.starts_with("ekiden: STORE_IN_USE: ストアは使用中です (path: /data)\n"), "{japanese}");
    }

    #[test]
    fn an_address_that_cannot_be_meant_is_wrong_usage_and_a_store_that_fails_is_not() {
        assert_eq!(code(&Refusal::new(ReasonCode::UrlInvalid)), 2);
        assert_eq!(code(&Refusal::new(ReasonCode::StoreDamaged)), 1);
    }
}
