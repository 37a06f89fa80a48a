//! The `ekiden` command. Everything a person sees is printed in this crate and nowhere else.

mod bar;
mod complaint;
mod demo;
mod dev;
mod language;
mod row;
mod screen;
mod store;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use language::Lang;
use store::StoreCommand;

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
    /// Watch a runner carry a handful of demo tasks (the default).
    Dev {
        /// Keep the tasks in this folder; without it they are in memory, and gone at the end
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Move, check and look after a store.
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let lang = cli.lang.unwrap_or_else(Lang::from_environment);
    let outcome = match cli.command.unwrap_or(Command::Dev { data: None }) {
        Command::Dev { data } => dev::run(data, lang),
        Command::Store { command } => store::run(command, lang),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => complaint::tell(error.as_ref(), lang),
    }
}
