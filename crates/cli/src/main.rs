//! The `ekiden` command. Everything a person sees is printed in this crate and nowhere else.

mod bar;
mod browser;
mod complaint;
mod config;
mod demo;
mod dev;
mod endpoint;
mod exit;
mod front;
#[cfg(target_os = "linux")]
mod handlers;
mod interrupt;
mod language;
mod log;
mod nearest;
mod output;
mod pool;
mod reach;
mod reference;
mod row;
#[cfg(target_os = "linux")]
mod run;
mod runner;
mod schedule;
mod screen;
mod serve;
mod settings;
mod status;
mod store;
mod table;
mod task;
mod token;
mod usage;
#[cfg(target_os = "linux")]
mod work;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use config::Config;
use dev::DevWish;
use language::Lang;
use output::Form;
use pool::PoolCommand;
use runner::RunnerCommand;
use schedule::ScheduleCommand;
use serve::Serve;
use settings::ConfigCommand;
use status::CountWish;
use store::StoreCommand;
use task::TaskCommand;
use token::TokenCommand;

/// A life of a task is a hundred small pieces of memory that one thread makes and another drops (decision 0024).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// What a command comes to.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const EXAMPLES: &str = "\
Start with `ekiden dev`, and in another terminal:
  ekiden task list
  ekiden task add leg '{\"steps\": 30}' --follow
  ekiden status

Commands find the server of `ekiden dev` or of the folder ./ekiden-data by themselves; --url names another.
Exit codes are listed by `ekiden help exit-codes`.";

/// A job runtime: tasks that must not be lost, run twice or hang.
#[derive(Parser)]
#[command(name = "ekiden", version, after_long_help = EXAMPLES, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    common: Common,

    #[command(subcommand)]
    command: Option<Command>,
}

/// The heading of what every command takes.
const GLOBAL: &str = "Global options";

/// What every command takes.
#[derive(clap::Args)]
struct Common {
    /// Language of the messages; by default LANG decides
    #[arg(long, global = true, value_enum, help_heading = GLOBAL)]
    lang: Option<Lang>,

    /// The store, as in local:./data, or the server, as in http://127.0.0.1:7707 (EKIDEN_URL)
    #[arg(long, global = true, help_heading = GLOBAL)]
    url: Option<String>,

    /// The namespace that is meant (EKIDEN_NAMESPACE)
    #[arg(long, short, global = true, value_name = "NAME", help_heading = GLOBAL)]
    namespace: Option<String>,

    /// The form of data on stdout
    #[arg(long, short, global = true, value_enum, default_value = "table", value_name = "FORM", help_heading = GLOBAL)]
    output: Form,
}

#[derive(Subcommand)]
enum Command {
    /// Try it: a server, a runner and a handful of demo tasks (the default).
    #[command(after_long_help = dev::EXAMPLES)]
    Dev(DevWish),
    /// Serve a store over HTTP, to programs, runners and people.
    #[command(after_long_help = serve::EXAMPLES)]
    Serve(Serve),
    /// Run tasks by any command: its stdin is the payload, its exit code the outcome.
    #[cfg(target_os = "linux")]
    Work(Box<work::Work>),
    /// Run one command as a task: kept, watched, and killed as a whole.
    #[cfg(target_os = "linux")]
    Run(Box<run::Run>),
    /// Hand tasks in, look at them, follow them, answer, cancel and retry them.
    Task {
        #[command(subcommand)]
        command: TaskCommand,
    },
    /// Show counts, pools and runners at a glance.
    Status,
    /// Count tasks by state.
    Counts(CountWish),
    /// Look at pools, set and pause them.
    Pool {
        #[command(subcommand)]
        command: PoolCommand,
    },
    /// Look at runners.
    Runner {
        #[command(subcommand)]
        command: RunnerCommand,
    },
    /// Look at schedules, set and remove them.
    Schedule {
        #[command(subcommand)]
        command: ScheduleCommand,
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
    /// Print completions for a shell.
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write a manual page for every command into a folder.
    Man {
        /// The folder; made if it is not there
        dir: PathBuf,
    },
    /// Print the description of the HTTP API.
    Openapi,
    /// Show help on a command, or on exit-codes.
    Help {
        /// The command, as in task add, or exit-codes
        subject: Vec<String>,
    },
}

fn main() -> ExitCode {
    // A supervisor of a command is this program too, and nothing else then.
    #[cfg(target_os = "linux")]
    ekiden::exec::supervise_if_asked();
    // Commands run as the same user: what this process has in its environment and memory is not for them.
    #[cfg(target_os = "linux")]
    if let Err(error) = ekiden::exec::deny_inspection() {
        say(&format!("ekiden: commands can read the environment of this process: {error}"));
    }
    let Cli { common, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::tell(&error),
    };
    let mut flags = vec![
        ("url", common.url),
        ("namespace", common.namespace),
        ("lang", common.lang.map(|lang| lang.code().to_owned())),
    ];
    if let Some(Command::Serve(serve)) = &command {
        flags.extend(serve.flags());
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
    let command = command.unwrap_or_else(|| Command::Dev(DevWish::default()));
    let code = match carry_out(command, &config, common.output, lang) {
        Ok(code) => code,
        Err(error) => complaint::tell(error.as_ref(), lang),
    };
    log::end();
    code
}

fn carry_out(command: Command, config: &Config, form: Form, lang: Lang) -> Outcome<ExitCode> {
    match command {
        Command::Dev(wish) => dev::run(wish, config, lang),
        Command::Serve(wish) => serve::run(&wish, config, lang),
        #[cfg(target_os = "linux")]
        Command::Work(wish) => work::run(*wish, config, lang),
        #[cfg(target_os = "linux")]
        Command::Run(wish) => run::run(*wish, config, lang),
        Command::Task { command } => task::run(command, config, form, lang),
        Command::Status => status::run(config, form, lang),
        Command::Counts(wish) => status::counts(wish, config, form, lang),
        Command::Pool { command } => pool::run(command, config, form, lang),
        Command::Runner { command } => runner::run(&command, config, form, lang),
        Command::Schedule { command } => schedule::run(command, config, form, lang),
        Command::Token { command } => token::run(command, config, form, lang),
        Command::Store { command } => store::run(command, lang),
        Command::Config { command } => settings::run(&command, config, form, lang),
        Command::Completions { shell } => reference::completions(shell),
        Command::Man { dir } => reference::man(&dir),
        Command::Openapi => reference::openapi(),
        Command::Help { subject } => reference::help(&subject, lang),
    }
}

/// Says something beside the data.
fn say(text: &str) {
    if !log::say(text) {
        // Whoever does not listen any more misses nothing.
        let _ = writeln!(anstream::stderr(), "{text}");
    }
}
