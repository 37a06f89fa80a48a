//! `ekiden work`: a runner whose handlers are commands, until somebody says that it is enough.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ekiden::core::{ReasonCode, Refusal};
use ekiden::{Ended, Runner};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;
use crate::handlers::{self, Recipe};
use crate::language::Lang;
use crate::reach::{Missing, Reached, reach};
use crate::say;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The kind of tasks that `--exec` runs if none is named.
const KIND: &str = "command";

/// What happens with a command, in a nutshell, for `--help`.
const LONG: &str = "\
Each task starts the command once per attempt:
  stdin            the payload
  stdout, stderr   the log of the attempt (ekiden task logs ID)
  $EKIDEN_RESULT   a file for the result
  $EKIDEN_EVENTS   a pipe for lines of JSON: progress, heartbeat, question, result
  $EKIDEN_...      TASK_ID, TASK_TYPE, NAMESPACE, POOL, EXECUTION_NO, FENCING_TOKEN, ATTEMPT, PROMPT, ANSWER, DEADLINE

Exit codes of the command:
  0       succeeded
  3       needs input: the last question in $EKIDEN_EVENTS is asked
  65      failed for good
  75      try again
  other   failed, tried again within the budget of attempts
  signal  crashed, tried again within the budget

Cancel, timeout and the end of the runner stop the whole tree of processes: TERM, the grace, then KILL.

Examples:
  ekiden work --pool agents --kind prompt --exec my-agent --stdin
  ekiden work --exec 'python3 /srv/worker.py'      # tasks of kind \"command\", split into words, no shell
  ekiden work --shell --exec 'jq .name | tee $EKIDEN_RESULT'
  ekiden work                                      # handlers of [handlers.KIND] in ./ekiden.toml";

/// Flags of the command.
#[derive(Args)]
#[command(after_long_help = LONG)]
pub(crate) struct Work {
    /// The pools to work for
    #[arg(long = "pool", value_name = "NAME", default_value = "default")]
    pools: Vec<String>,
    /// The kinds that --exec runs; "command" if none is named
    #[arg(long = "kind", visible_alias = "type", value_name = "KIND", requires = "exec")]
    kinds: Vec<String>,
    /// How many tasks run at once; the pool's setting by default
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,
    /// How long running commands may go on after Ctrl-C before they are handed back
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = handlers::duration)]
    drain: Duration,
    /// The runner's name
    #[arg(long, default_value = "work")]
    name: String,
    /// How often it looks when nothing wakes it; the pool's setting by default
    #[arg(long, value_name = "TIME", value_parser = handlers::duration)]
    poll: Option<Duration>,
    /// How long it may be silent before others take its tasks; the pool's setting by default
    #[arg(long, value_name = "TIME", value_parser = handlers::duration)]
    lease: Option<Duration>,
    #[command(flatten)]
    limits: Limits,
    /// Let a shell run the text of --exec
    #[arg(long, requires = "exec")]
    shell: bool,
    /// The command and its arguments, up to the end of the line; one quoted text is split into words
    #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true)]
    exec: Vec<String>,
}

/// What holds for a command on a command line.
#[derive(Args)]
pub(crate) struct Limits {
    /// Between TERM and KILL; 750ms by default, so that what is cancelled is gone within two seconds
    #[arg(long, value_name = "TIME", value_parser = handlers::duration)]
    grace: Option<Duration>,
    /// The limit of one attempt, beside the task's own
    #[arg(long, value_name = "TIME", value_parser = handlers::duration)]
    timeout: Option<Duration>,
    /// Stop a command that says neither progress nor heartbeat for so long
    #[arg(long, value_name = "TIME", value_parser = handlers::duration)]
    silence: Option<Duration>,
    /// The memory that each process may have for its data, as in 512MiB
    #[arg(long, value_name = "SIZE", value_parser = handlers::bytes)]
    memory: Option<u64>,
    /// A variable that the command gets of this environment, beside PATH, HOME and the like
    #[arg(long = "keep-env", value_name = "NAME")]
    keep_env: Vec<String>,
    /// Where the command works; by default a folder of each attempt's own
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep the folders of attempts
    #[arg(long)]
    keep_dir: bool,
}

impl Limits {
    /// A recipe with these limits, and no command yet.
    pub(crate) fn recipe(self) -> Recipe {
        Recipe {
            timeout: self.timeout,
            grace: self.grace,
            silence: self.silence,
            memory: self.memory,
            env: self.keep_env,
            dir: self.dir,
            keep_dir: self.keep_dir,
            ..Recipe::default()
        }
    }
}

/// Works until it is interrupted.
pub(crate) fn run(wish: Work, config: &Config, lang: Lang) -> Outcome<ExitCode> {
    crate::serve::start_logging(config)?;
    // Its only children are supervisors of commands.
    ekiden::exec::adopt_orphans()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let reached = reach(config, Missing::Make).await?;
        let outcome = work(wish, &reached, lang).await;
        let closed = reached.close().await;
        let code = outcome?;
        closed?;
        Ok(code)
    })
}

async fn work(wish: Work, reached: &Reached, lang: Lang) -> Outcome<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut next = async || {
        tokio::select! {
            _ = interrupt.recv() => 130,
            _ = terminate.recv() => 143,
        }
    };
    let (pools, drain) = (wish.pools.join(", "), wish.drain);
    let runner = runner(wish, reached)?;
    let stop = runner.stop();
    let mut run = pin!(runner.run_until_stopped());
    say(&match lang {
        Lang::En => format!("Working for {pools}. Ctrl-C stops."),
        Lang::Ja => format!("{pools} のタスクを処理しています。Ctrl-C で停止します。"),
    });
    let mut asked = 0_u8;
    let ended = loop {
        tokio::select! {
            ended = &mut run => break ended?,
            code = next() => {
                asked += 1;
                match asked {
                    1 => {
                        say(&draining(drain, lang));
                        stop.gently();
                    }
                    2 => {
                        say(lang.pick("Handing back what runs …", "実行中のタスクをキューに戻しています…"));
                        stop.at_once();
                    }
                    // Supervisors see that their runner is gone, and kill what they have.
                    _ => return Ok(ExitCode::from(code)),
                }
            }
        }
    };
    say(&conclusion(&ended, lang));
    Ok(ExitCode::SUCCESS)
}

fn runner(wish: Work, reached: &Reached) -> Outcome<Runner> {
    let mut builder = Runner::builder(&reached.client).name(wish.name.clone()).grace(wish.drain);
    for pool in &wish.pools {
        builder = builder.pool(pool);
    }
    if let Some(tasks) = wish.concurrency {
        builder = builder.concurrency(tasks);
    }
    if let Some(poll) = wish.poll {
        builder = builder.poll(poll);
    }
    if let Some(lease) = wish.lease {
        builder = builder.lease(lease);
    }
    if let Ok(folder) = std::env::current_dir() {
        builder = builder.project_root(folder.to_string_lossy());
    }
    for (kind, recipe) in recipes(wish)? {
        let handler = recipe.handler(&kind, reached.logs.clone()).map_err(ekiden::Error::from)?;
        builder = builder.task_handler(handler);
        if let Some(tasks) = recipe.concurrency {
            builder = builder.limit(kind, tasks);
        }
    }
    Ok(builder.build()?)
}

/// What the command line says, or the table where it says nothing.
fn recipes(wish: Work) -> Result<BTreeMap<String, Recipe>, ekiden::Error> {
    if wish.exec.is_empty() {
        if wish.limits.recipe() != Recipe::default() {
            let refusal = Refusal::new(ReasonCode::ConfigInvalid).with("field", "exec");
            return Err(refusal
                .with("why", "the limits of a command are for --exec; handlers have theirs in ekiden.toml")
                .into());
        }
        let table = handlers::table()?;
        if table.is_empty() {
            let refusal = Refusal::new(ReasonCode::ConfigInvalid).with("field", "handlers");
            return Err(refusal.with("why", "no command: neither --exec nor [handlers.KIND] in ekiden.toml").into());
        }
        return Ok(table);
    }
    let mut recipe = wish.limits.recipe();
    if wish.shell {
        recipe.shell = Some(wish.exec.join(" "));
    } else {
        recipe.command = argv(wish.exec)?;
    }
    let kinds = if wish.kinds.is_empty() { vec![KIND.to_owned()] } else { wish.kinds };
    Ok(kinds.into_iter().map(|kind| (kind, recipe.clone())).collect())
}

/// One text with blanks in it is a whole command, unless a file is called so.
fn argv(said: Vec<String>) -> Result<Vec<String>, ekiden::Error> {
    match said.as_slice() {
        [one] if one.contains(char::is_whitespace) && !PathBuf::from(one).exists() => {
            let refusal = |why| Refusal::new(ReasonCode::ConfigInvalid).with("field", "exec").with("why", why);
            Ok(handlers::words(one).map_err(refusal)?)
        }
        _ => Ok(said),
    }
}

fn draining(drain: Duration, lang: Lang) -> String {
    let seconds = drain.as_secs();
    match lang {
        Lang::En => format!(
            "Stopping: what runs has {seconds} s to finish, then it is handed back. Ctrl-C again hands it back now."
        ),
        Lang::Ja => format!(
            "停止中: 実行中のタスクの終了を最大 {seconds} 秒待ち、その後キューに戻します。すぐに戻すにはもう一度 Ctrl-C を押してください。"
        ),
    }
}

fn conclusion(ended: &Ended, lang: Lang) -> String {
    let ids: Vec<&str> = ended.handed_back.iter().map(|id| id.as_str()).collect();
    match (lang, ids.is_empty()) {
        (Lang::En, true) => format!("Stopped. {} settled, nothing was handed back.", ended.settled),
        (Lang::En, false) => format!("Stopped. {} settled. Handed back unfinished: {}", ended.settled, ids.join(", ")),
        (Lang::Ja, true) => format!("停止しました。完了 {} 件。キューに戻したタスクはありません。", ended.settled),
        (Lang::Ja, false) => {
            format!("停止しました。完了 {} 件。キューに戻したタスク: {}", ended.settled, ids.join(", "))
        }
    }
}
