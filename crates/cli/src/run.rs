//! `ekiden run -- CMD`: one command as a task. It is kept like any other, and behaves like the command itself: output streams,
//! the exit code passes through, Ctrl-C ends all of it.

use std::io::Write;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use clap::Args;
use ekiden::core::{Outcome as How, PoolName, ReasonCode, Refusal, TaskId};
use ekiden::exec::{CommandHandler, Exit, Stream, Supervisor, Watch};
use ekiden::{Client, Heard, Runner, Subscription, TaskHandler as _, TaskRecord, TaskState};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use crate::language::Lang;
use crate::log;
use crate::reach::{Missing, Reached, reach};
use crate::say;
use crate::work::Limits;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The kind of its task. Nobody else runs it: it stands in a pool of its own.
const KIND: &str = "run";

/// 3: the command asked a question, and its task waits for the answer.
const ASKED: u8 = 3;
/// 124: it took too long, as `timeout` has it.
const TIMED_OUT: u8 = 124;
/// 127: it could not be started, as shells have it.
const NOT_STARTED: u8 = 127;
/// 130: ended by Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// One second: how soon a change is seen that nobody told.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Half a second for whoever reads to take the last of what a command wrote that was stopped.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// Flags of the command.
#[derive(Args)]
#[command(
    after_help = "The exit code is the command's own; 128 and the signal's number if it was killed, 124 if it took too long, \
127 if it could not be started, 3 if it asked a question: answer it with `ekiden task answer`, and go on with `ekiden run --resume`."
)]
pub(crate) struct Run {
    /// How many attempts it has
    #[arg(long, value_name = "N", default_value_t = 1)]
    attempts: u32,
    /// What people read; the command line by default
    #[arg(long)]
    title: Option<String>,
    /// Go on with the task of an earlier `ekiden run` that was answered, or whose `ekiden run` was killed
    #[arg(long, value_name = "TASK_ID", conflicts_with_all = ["command", "attempts", "title"])]
    resume: Option<String>,
    #[command(flatten)]
    limits: Limits,
    /// The command and its arguments
    #[arg(required_unless_present = "resume", trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Runs it to its end.
pub(crate) fn run(wish: Run, config: &Config, lang: Lang) -> Outcome<ExitCode> {
    // Its only children are supervisors of commands.
    ekiden::exec::adopt_orphans()?;
    log::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let reached = reach(config, Missing::Make).await?;
        let outcome = carry_out(wish, &reached, lang).await;
        let closed = reached.close().await;
        let code = outcome?;
        closed?;
        Ok(code)
    })
}

async fn carry_out(wish: Run, reached: &Reached, lang: Lang) -> Outcome<ExitCode> {
    let client = &reached.client;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut next = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let mut changes = client.subscribe().await?;
    // Asked before the task is enqueued: one that cannot run here would stay behind.
    CommandHandler::shell(KIND, "", Supervisor::this_program()).check().map_err(ekiden::Error::from)?;
    let taken = match &wish.resume {
        Some(id) => resume(client, id).await?,
        None => hand_in(client, &wish).await?,
    };
    let Taken { id, pool, argv } = taken;
    let seen = Arc::new(Seen::start()?);
    let runner = runner(wish.limits, argv, reached, &pool, seen.clone())?;
    let stop = runner.stop();
    let mut run = pin!(runner.run_until_stopped());
    let mut interrupts = 0_u8;
    let record = {
        let mut rested = pin!(rest(client, &mut changes, &id));
        loop {
            tokio::select! {
                record = &mut rested => break record?,
                ended = &mut run => {
                    ended?;
                    break client.get_status(&id).await?;
                }
                () = next() => {
                    interrupts += 1;
                    if interrupts > 1 {
                        return Ok(ExitCode::from(INTERRUPTED));
                    }
                    client.cancel(&id).await?;
                }
            }
        }
    };
    // The runner writes down how the attempt ended, and is gone.
    stop.gently();
    tokio::select! {
        ended = &mut run => drop(ended?),
        () = next() => return Ok(ExitCode::from(INTERRUPTED)),
    }
    let how = record.recent.last().and_then(|attempt| attempt.outcome);
    let was_stopped = interrupts > 0 || seen.exit().is_none() || how == Some(How::TimedOut);
    tokio::select! {
        () = seen.shown() => {}
        () = tokio::time::sleep(LAST_OUTPUT), if was_stopped => {}
        () = next() => return Ok(ExitCode::from(INTERRUPTED)),
    }
    let code = code(&record, seen.exit(), lang);
    // The end of its output may be missing, so it is no success.
    Ok(ExitCode::from(if interrupts > 0 && code == 0 { INTERRUPTED } else { code }))
}

/// The task that is run, and its command.
struct Taken {
    id: TaskId,
    pool: PoolName,
    argv: Vec<String>,
}

/// What the payload of such a task says.
#[derive(serde::Deserialize)]
struct Said {
    argv: Vec<String>,
}

/// Takes up a task that an earlier run handed in and did not bring to its end.
async fn resume(client: &Client, id: &str) -> Outcome<Taken> {
    let record = client.get_status(&TaskId::new(id)?).await?;
    if record.state.is_final() {
        let refusal = Refusal::new(ReasonCode::TaskFinal).with("task_id", &record.id);
        return Err(refusal.with("phase", record.state).into());
    }
    let said = serde_json::from_slice::<Said>(&record.envelope.payload).ok();
    match said.filter(|said| record.envelope.task_type.as_str() == KIND && !said.argv.is_empty()) {
        Some(Said { argv }) => Ok(Taken { id: record.id, pool: record.pool, argv }),
        None => {
            let refusal = Refusal::new(ReasonCode::ConfigInvalid).with("field", "resume");
            Err(refusal.with("task_id", &record.id).with("why", "no task of `ekiden run`").into())
        }
    }
}

/// Hands the task in, in a pool that has its name: whoever else works here does not look there.
async fn hand_in(client: &Client, wish: &Run) -> Outcome<Taken> {
    let argv = wish.command.clone();
    let payload = serde_json::json!({ "argv": argv });
    let title = wish.title.clone().unwrap_or_else(|| wish.command.join(" ").chars().take(200).collect());
    let mut task = client.enqueue_json(KIND, &payload).title(title).max_attempts(wish.attempts).into_task()?;
    let pool = PoolName::new(format!("run-{}", task.task.id))?;
    let id = task.task.id.clone();
    task.pool = pool.clone();
    if let Some(Err(error)) = client.queue().enqueue(vec![task]).await.pop() {
        return Err(error.into());
    }
    Ok(Taken { id, pool, argv })
}

fn runner(limits: Limits, argv: Vec<String>, reached: &Reached, pool: &PoolName, seen: Arc<Seen>) -> Outcome<Runner> {
    let mut recipe = limits.recipe();
    // What is not said to be elsewhere happens here, as with any other command.
    recipe.dir.get_or_insert(std::env::current_dir()?);
    recipe.command = argv;
    let handler = recipe.handler(KIND, reached.logs.clone()).map_err(ekiden::Error::from)?.watch(seen);
    let builder = Runner::builder(&reached.client).name("run").pool(pool.as_str()).concurrency(1);
    Ok(builder.poll(LOOK_AGAIN).task_handler(handler).build()?)
}

/// Waits until the task has ended, or waits for an answer.
async fn rest(client: &Client, changes: &mut Subscription, id: &TaskId) -> ekiden::Result<TaskRecord> {
    loop {
        let record = client.get_status(id).await?;
        if record.state.is_final() || record.state == TaskState::NeedsInput {
            return Ok(record);
        }
        let changed = async {
            loop {
                match changes.next().await {
                    Some(Heard::Change(change)) if change.id == *id => return,
                    Some(Heard::Missed(_)) => return,
                    Some(_) => {}
                    None => std::future::pending().await,
                }
            }
        };
        // In vain if another process changes it: then the next look finds out.
        let _ = tokio::time::timeout(LOOK_AGAIN, changed).await;
    }
}

fn code(record: &TaskRecord, exit: Option<Exit>, lang: Lang) -> u8 {
    let how = record.recent.last().and_then(|attempt| attempt.outcome);
    match (record.state, how, exit) {
        (TaskState::Succeeded, ..) => 0,
        (TaskState::NeedsInput, ..) => {
            say(&match lang {
                Lang::En => format!("ekiden: task {} asks:", record.id),
                Lang::Ja => format!("ekiden: タスク {} からの質問:", record.id),
            });
            let lines = record.question.as_ref().map(|question| crate::task::question_lines(&record.id, question));
            for line in lines.unwrap_or_default().into_iter().chain([format!("ekiden run --resume {}", record.id)]) {
                say(&format!("  {}", crate::output::cell(&line)));
            }
            ASKED
        }
        (TaskState::Cancelled, ..) => INTERRUPTED,
        (_, Some(How::TimedOut), _) => {
            say(&match lang {
                Lang::En => format!("ekiden: the time is over; task {}", record.id),
                Lang::Ja => format!("ekiden: 時間切れです（タスク {}）", record.id),
            });
            TIMED_OUT
        }
        (_, _, Some(exit)) if exit != Exit::Code(0) => exit.shell_code(),
        _ => {
            let why = record.last_error.as_deref().unwrap_or_default();
            say(&match lang {
                Lang::En => format!("ekiden: {why}"),
                Lang::Ja => format!("ekiden: 実行できませんでした: {why}"),
            });
            NOT_STARTED
        }
    }
}

/// What was seen of the command. A thread of its own shows its output, because whoever reads it may keep a write waiting for ever.
struct Seen {
    exit: Mutex<Option<Exit>>,
    output: mpsc::Sender<Output>,
}

/// What the thread gets.
enum Output {
    Wrote(Stream, Vec<u8>),
    /// Dropped when everything before it is shown.
    End(oneshot::Sender<()>),
}

impl Seen {
    fn start() -> std::io::Result<Self> {
        // One piece waits: a command is as fast as its reader.
        let (output, mut pieces) = mpsc::channel(1);
        thread::Builder::new().name("output".to_owned()).spawn(move || {
            while let Some(piece) = pieces.blocking_recv() {
                show(piece);
            }
        })?;
        Ok(Self { exit: Mutex::default(), output })
    }

    fn exit(&self) -> Option<Exit> {
        *self.exit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything is shown.
    async fn shown(&self) {
        let (end, ended) = oneshot::channel();
        // In vain only when the thread is gone: then nothing more is shown.
        if self.output.send(Output::End(end)).await.is_ok() {
            let _ = ended.await;
        }
    }
}

#[async_trait]
impl Watch for Seen {
    async fn wrote(&self, stream: Stream, bytes: &[u8]) {
        let _ = self.output.send(Output::Wrote(stream, bytes.to_vec())).await;
    }

    fn exited(&self, exit: Exit) {
        *self.exit.lock().unwrap_or_else(PoisonError::into_inner) = Some(exit);
    }
}

fn show(piece: Output) {
    // Whoever does not read any more misses nothing: it is in the log.
    let _ = match piece {
        Output::Wrote(Stream::Stdout, bytes) => write_through(std::io::stdout().lock(), &bytes),
        Output::Wrote(Stream::Stderr, bytes) => write_through(std::io::stderr().lock(), &bytes),
        Output::End(end) => return drop(end),
    };
}

fn write_through(mut to: impl Write, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}
