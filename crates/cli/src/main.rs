//! The `ekiden` command. Everything a person sees is printed in this crate and nowhere else.

mod demo;
mod dev;
mod language;
mod row;
mod screen;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use language::Lang;

/// A job runtime: tasks that must not be lost, run twice or hang.
#[derive(Parser)]
#[command(name = "ekiden", version)]
struct Cli {
    /// Language of the messages; by default LANG decides.
    #[arg(long, global = true, value_enum)]
    lang: Option<Lang>,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Watch a runner carry a handful of demo tasks, on a store in memory (the default).
    Dev,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let lang = cli.lang.unwrap_or_else(Lang::from_environment);
    let outcome = match cli.command.unwrap_or(Command::Dev) {
        Command::Dev => dev::run(lang),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            anstream::eprintln!("ekiden: {error}");
            ExitCode::FAILURE
        }
    }
}
