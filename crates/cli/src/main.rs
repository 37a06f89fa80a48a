//! The `ekiden` command. Everything a person sees is printed in this crate and nowhere else.

mod bar;
mod complaint;
mod config;
mod demo;
mod dev;
mod endpoint;
#[cfg(target_os = "linux")]
mod handlers;
mod language;
mod output;
mod reach;
mod row;
#[cfg(target_os = "linux")]
mod run;
mod screen;
mod serve;
mod settings;
mod store;
mod table;
mod task;
mod token;
#[cfg(target_os = "linux")]
mod work;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use config::Config;
use language::Lang;
use output::Form;
use serve::Serve;
use settings::ConfigCommand;
use store::StoreCommand;
use task::TaskCommand;
use token::TokenCommand;

/// A job runtime: tasks that must not be lost, run twice or hang.
#[derive(Parser)]
#[command(name = "ekiden", version)]
struct Cli {
    #[command(flatten)]
    common: Common,

    #[command(subcommand)]
    command: Option<Command>,
}

/// What every command takes.
#[derive(clap::Args)]
struct Common {
    /// Language of the messages; by default LANG decides
    #[arg(long, global = true, value_enum)]
    lang: Option<Lang>,

    /// The store, as in local:./data, or the server, as in http://127.0.0.1:7707 (EKIDEN_URL)
    #[arg(long, global = true)]
    url: Option<String>,

    /// The namespace that is meant (EKIDEN_NAMESPACE)
    #[arg(long, short, global = true, value_name = "NAME")]
    namespace: Option<String>,

    /// The form of data on stdout
    #[arg(long, short, global = true, value_enum, default_value = "table", value_name = "FORM")]
    output: Form,
}

#[derive(Subcommand)]
enum Command {
    /// Watch a runner carry a handful of demo tasks (the default).
    Dev {
        /// Keep the tasks in this folder; without it they are in memory, and gone at the end
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
    },
    /// Serve a store over HTTP, to programs, runners and people.
    Serve(Serve),
    /// Run tasks by any command: its stdin is the payload, its exit code the outcome.
    #[cfg(target_os = "linux")]
    Work(Box<work::Work>),
    /// Run one command as a task: kept, watched, and killed as a whole.
    #[cfg(target_os = "linux")]
    Run(Box<run::Run>),
    /// Hand tasks in, look at them, cancel and retry them.
    Task {
        #[command(subcommand)]
        command: TaskCommand,
    },
    /// Say who may use a server from outside.
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Move, check and look after a store.
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// Look at settings and where they come from.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
}

fn main() -> ExitCode {
    // A supervisor of a command is this program too, and nothing else then.
    #[cfg(target_os = "linux")]
    ekiden::exec::supervise_if_asked();
    let Cli { common, command } = Cli::parse();
    let mut flags = vec![
        ("url", common.url),
        ("namespace", common.namespace),
        ("lang", common.lang.map(|lang| lang.code().to_owned())),
    ];
    if let Some(Command::Serve(serve)) = &command {
        flags.push(("serve.listen", serve.listen.clone()));
        flags.push(("serve.hosts", (!serve.hosts.is_empty()).then(|| serve.hosts.join(","))));
        flags.push(("serve.folder", serve.folder.as_ref().map(|folder| folder.display().to_string())));
    }
    let config = match Config::load(&flags) {
        Ok(config) => config,
        Err(refusal) => {
            let lang = common.lang.unwrap_or_else(Lang::from_environment);
            return complaint::tell(&ekiden::Error::from(refusal), lang);
        }
    };
    let lang = match Lang::of(&config) {
        Ok(lang) => lang,
        Err(refusal) => return complaint::tell(&ekiden::Error::from(refusal), Lang::from_environment()),
    };
    let outcome = match command.unwrap_or(Command::Dev { data: None }) {
        Command::Dev { data } => dev::run(data, lang),
        Command::Serve(_) => serve::run(&config, lang),
        #[cfg(target_os = "linux")]
        Command::Work(wish) => work::run(*wish, &config, lang),
        #[cfg(target_os = "linux")]
        Command::Run(wish) => run::run(*wish, &config, lang),
        Command::Token { command } => token::run(command, &config, common.output, lang),
        Command::Task { command } => task::run(command, &config, common.output, lang),
        Command::Store { command } => store::run(command, lang),
        Command::Config { command } => settings::run(&command, &config, common.output, lang),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => complaint::tell(error.as_ref(), lang),
    }
}

/// Says something beside the data.
fn say(text: &str) {
    // Whoever does not listen any more misses nothing.
    let _ = writeln!(anstream::stderr(), "{text}");
}
