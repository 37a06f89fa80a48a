//! What is said to who wrote a command that cannot be meant. In English it is clap's own text; here is the Japanese one.

use std::error::Error as _;
use std::process::ExitCode;

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::config::Config;
use crate::exit::Exit;
use crate::language::Lang;

/// Says what is wrong, or prints the help that was asked for.
pub(crate) fn tell(error: &Error) -> ExitCode {
    if !error.use_stderr() {
        // Whoever does not read any more misses nothing.
        let _ = error.print();
        return Exit::Success.into();
    }
    match language(std::env::args()).then(|| japanese(error)).flatten() {
        Some(text) => crate::say(&text),
        None => drop(error.print()),
    }
    Exit::Usage.into()
}

/// Whether it is Japanese that the person reads, found out without the flags that could not be read.
fn language(mut arguments: impl Iterator<Item = String>) -> bool {
    let mut said = None;
    while let Some(argument) = arguments.next() {
        match argument.split_once('=') {
            Some(("--lang", value)) => said = Some(value.to_owned()),
            _ if argument == "--lang" => said = arguments.next(),
            _ if argument == "--" => break,
            _ => {}
        }
    }
    match said {
        Some(said) => said == Lang::Ja.code(),
        None => {
            let set = Config::load(&[]).ok().and_then(|config| Lang::of(&config).ok());
            set.unwrap_or_else(Lang::from_environment) == Lang::Ja
        }
    }
}

/// The same in Japanese; nothing for what hardly anybody sees.
fn japanese(error: &Error) -> Option<String> {
    let one = |kind| text(error, kind).join("、");
    let (argument, value) = (one(ContextKind::InvalidArg), one(ContextKind::InvalidValue));
    let what = match error.kind() {
        ErrorKind::InvalidValue if value.is_empty() => format!("'{argument}' の値がありません"),
        ErrorKind::InvalidValue => format!("'{argument}' に '{value}' は指定できません"),
        ErrorKind::ValueValidation => {
            let why = error.source().map(|why| format!(": {why}")).unwrap_or_default();
            format!("'{argument}' に '{value}' は指定できません{why}")
        }
        ErrorKind::UnknownArgument => format!("'{argument}' という引数はありません"),
        ErrorKind::InvalidSubcommand => {
            format!("'{}' というコマンドはありません", one(ContextKind::InvalidSubcommand))
        }
        ErrorKind::MissingRequiredArgument => format!("次の引数が必要です: {argument}"),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => return None,
        ErrorKind::ArgumentConflict => {
            format!("'{argument}' と '{}' は同時に指定できません", one(ContextKind::PriorArg))
        }
        ErrorKind::TooManyValues => format!("'{argument}' に対して値 '{value}' は多すぎます"),
        ErrorKind::WrongNumberOfValues | ErrorKind::TooFewValues => format!("'{argument}' の値の数が違います"),
        _ => return None,
    };
    let mut said = format!("ekiden: {what}");
    let possible = one(ContextKind::ValidValue);
    if !possible.is_empty() {
        said.push_str(&format!("\n  指定できる値: {possible}"));
    }
    let meant = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let meant: Vec<String> = meant.into_iter().flat_map(|kind| text(error, kind)).collect();
    if !meant.is_empty() {
        said.push_str(&format!("\n  '{}' のことですか？", meant.join("'、'")));
    }
    if let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) {
        said.push_str(&format!("\n{}", usage.to_string().replace("Usage:", "使い方:")));
    }
    said.push_str("\n詳しくは --help をご覧ください。");
    Some(said)
}

/// What an error says of something.
fn text(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::Parser;

    fn said(line: &str) -> String {
        let error = Cli::try_parse_from(line.split(' ')).err().expect("it cannot be meant");
        japanese(&error).unwrap_or_default()
    }

    #[test]
    fn what_cannot_be_meant_is_said_in_japanese_with_the_right_word() {
        for (line, what) in [
            ("ekiden task list --state ded", "'dead' のことですか？"),
            ("ekiden tsk", "'task' のことですか？"),
            ("ekiden task list --sinc 1h", "'--since' のことですか？"),
            ("ekiden task get", "次の引数が必要です: <ID>"),
            ("ekiden task wait a --timeout abc", "'--timeout <SPAN>' に 'abc' は指定できません: a whole number"),
            ("ekiden task add x --delay 1s --at 2026-11-20T09:00:00Z", "は同時に指定できません"),
            ("ekiden task list --state", "'--state <STATE>' の値がありません"),
        ] {
            let said = said(line);
            assert!(said.contains(what), "{line}: {said}");
            assert!(said.ends_with("--help をご覧ください。") && !said.contains('\x1b'), "{line}: {said:?}");
        }
    }

    #[test]
    fn the_flag_decides_even_where_the_rest_cannot_be_read() {
        let of = |line: &str| language(line.split(' ').map(str::to_owned));
        assert!(of("ekiden --lang ja tsk") && of("ekiden tsk --lang=ja"));
        assert!(!of("ekiden --lang en tsk"));
    }
}
