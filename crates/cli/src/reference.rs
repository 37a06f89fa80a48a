//! What the command says of itself: help on a subject, completions for shells, manual pages, the API's description.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::exit::Exit;
use crate::language::Lang;
use crate::nearest::nearest;
use crate::output;
use crate::{Cli, Outcome, exit};

/// Subjects of `help` that are no command.
const EXIT_CODES: &str = "exit-codes";

/// Help on a command, or on a subject that is none.
pub(crate) fn help(subject: &[String], lang: Lang) -> Outcome<ExitCode> {
    let mut command = Cli::command();
    // Gives every command its whole name, as in "ekiden task add".
    command.build();
    if subject == [EXIT_CODES] {
        output::line(exit::table(lang).trim_end())?;
        return Ok(Exit::Success.into());
    }
    let mut found = &mut command;
    for word in subject {
        let known: Vec<String> = found.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        let topics = known.iter().map(String::as_str).chain([EXIT_CODES]);
        let meant = nearest(word, topics).map(str::to_owned);
        match found.find_subcommand_mut(word) {
            Some(command) => found = command,
            None => return Ok(unknown(word, meant, lang)),
        }
    }
    output::line(found.render_long_help().ansi().to_string().trim_end())?;
    Ok(Exit::Success.into())
}

fn unknown(word: &str, meant: Option<String>, lang: Lang) -> ExitCode {
    let mut text = match lang {
        Lang::En => format!("ekiden: there is no help on {word:?}"),
        Lang::Ja => format!("ekiden: {word:?} というヘルプはありません"),
    };
    if let Some(meant) = meant {
        text.push_str(&match lang {
            Lang::En => format!("; did you mean {meant}?"),
            Lang::Ja => format!("。{meant} のことですか？"),
        });
    }
    crate::say(&text);
    Exit::Usage.into()
}

/// Writes a shell's completions to stdout.
pub(crate) fn completions(shell: Shell) -> Outcome<ExitCode> {
    // The generator panics where it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ekiden", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Success.into())
}

/// Writes a manual page for every command into a folder.
pub(crate) fn man(folder: &Path) -> Outcome<ExitCode> {
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)?;
    Ok(Exit::Success.into())
}

/// Prints the API's description.
pub(crate) fn openapi() -> Outcome<ExitCode> {
    output::line(ekiden_server::openapi().trim_end())?;
    Ok(Exit::Success.into())
}

/// The command as it was called, so that what is printed can be copied: `target/release/ekiden` in a build's folder.
pub(crate) fn called() -> String {
    let name = std::env::args_os().next().map(OsString::into_string).and_then(Result::ok).unwrap_or_default();
    if name.contains('/') { name } else { "ekiden".to_owned() }
}
