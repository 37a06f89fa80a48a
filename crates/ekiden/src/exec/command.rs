//! A command as the handler of a kind: one supervised process tree an attempt.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ekiden_core::attempt::Stage;
use ekiden_core::id::QuestionId;
use ekiden_core::limits;
use ekiden_core::reason::Refusal;
use ekiden_core::task::{Progress, Question};
use ekiden_core::time::Millis;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, Sleep, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::environment;
use super::events::{Event, Events, Said};
use super::exit::{Exit, Meaning, meaning};
use super::folder::{self, Folder, Keep, NoFolder};
use super::orphans;
use super::output::{Output, Watch};
use super::redact::Redactor;
use super::supervised::{Supervised, Supervisor};
use super::words::{Order, Report, Word};
use crate::context::Context;
use crate::handler::{Done, TaskError, TaskHandler};
use crate::logs::{AttemptRef, Logs};

/// Three quarters of a second between TERM and KILL: with the second that a cancel may take to arrive, a cancelled tree is gone
/// within two.
const GRACE: Duration = Duration::from_millis(750);

/// Half a minute beyond the grace to see a tree empty. What takes longer is stuck in the kernel; its supervisor stays with it.
const VERIFY_WITHIN: Duration = Duration::from_secs(30);

/// A quarter of a second beyond the grace: a supervisor that works has begun to kill by then. What it has not done by then is
/// done from outside, and a cancelled tree is still gone within two seconds.
const REACT_WITHIN: Duration = Duration::from_millis(250);

/// 20 ms between two rounds of killing from outside: what was killed needs a moment to be gone.
const AGAIN: Duration = Duration::from_millis(20);

/// 250 rounds, five seconds: what has not died by then is not going to soon.
const ROUNDS_MAX: u32 = 250;

/// 50 rounds, one second: a supervisor with nothing below it that says nothing for so long never will.
const SILENT_ROUNDS_MAX: u32 = 50;

/// One second between rounds for what does not die.
const AGAIN_STUCK: Duration = Duration::from_secs(1);

/// One second between two looks at a supervisor: how long one that was stopped stays so.
const LOOK: Duration = Duration::from_secs(1);

/// Three looks in a row that found a supervisor stopped: once is an accident, three times is its command's doing.
const STOPPED_LOOKS_MAX: u32 = 3;

/// One second for the last word about how far a stop is.
const LAST_STAGE: Duration = Duration::from_secs(1);

/// Ten seconds until an attempt that had no room for its folder is tried again.
const ROOM_AGAIN: Duration = Duration::from_secs(10);

/// 16 notes on their way to the log; more of them say nothing new.
const NOTES_MAX: usize = 16;

/// Where a command works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Directory {
    /// In a folder of the attempt's own, removed afterwards.
    #[default]
    Own,
    /// Here.
    At(PathBuf),
}

/// Runs the tasks of one kind by a command.
///
/// The payload is its stdin, the facts of the attempt are `EKIDEN_*` variables, [`TABLE`](super::TABLE) says what its exit means.
pub struct CommandHandler {
    task_type: String,
    argv: Vec<String>,
    supervisor: Supervisor,
    directory: Directory,
    root: PathBuf,
    keep: Keep,
    kept_variables: Vec<String>,
    grace: Duration,
    time: Option<Duration>,
    silence: Option<Duration>,
    memory_bytes: Option<u64>,
    logs: Option<Arc<dyn Logs>>,
    watch: Option<Arc<dyn Watch>>,
}

impl CommandHandler {
    /// A command for a kind: a program and its arguments, which no shell looks at.
    pub fn new(
        task_type: impl Into<String>,
        argv: impl IntoIterator<Item = impl Into<String>>,
        supervisor: Supervisor,
    ) -> Self {
        Self {
            task_type: task_type.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            supervisor,
            directory: Directory::Own,
            root: folder::usual_root(),
            keep: Keep::No,
            kept_variables: Vec::new(),
            grace: GRACE,
            time: None,
            silence: None,
            memory_bytes: None,
            logs: None,
            watch: None,
        }
    }

    /// A line for `sh -c`, for those who want a shell.
    pub fn shell(task_type: impl Into<String>, line: impl Into<String>, supervisor: Supervisor) -> Self {
        Self::new(task_type, ["/bin/sh".to_owned(), "-c".to_owned(), line.into()], supervisor)
    }

    /// Where output goes; nowhere if nobody says.
    #[must_use]
    pub fn logs(mut self, logs: Arc<dyn Logs>) -> Self {
        self.logs = Some(logs);
        self
    }

    /// Where commands work; a folder of each attempt's own if nobody says.
    #[must_use]
    pub fn directory(mut self, directory: Directory) -> Self {
        self.directory = directory;
        self
    }

    /// The folder below which attempts have theirs; one of this user's in the folder for temporary files if nobody says.
    #[must_use]
    pub fn folders(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// Keeps the folders of attempts when they have ended.
    #[must_use]
    pub fn keep_folders(mut self) -> Self {
        self.keep = Keep::Yes;
        self
    }

    /// A variable of the runner's environment that gets through, beside [`ALLOWED`](super::ALLOWED).
    #[must_use]
    pub fn keep_variable(mut self, name: impl Into<String>) -> Self {
        self.kept_variables.push(name.into());
        self
    }

    /// How long a command that must stop has between TERM and KILL; 750 ms if nobody says.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// The limit of one attempt, beside the task's own.
    #[must_use]
    pub fn time_max(mut self, time: Duration) -> Self {
        self.time = Some(time);
        self
    }

    /// Stops a command that says neither progress nor heartbeat for so long, as failed.
    #[must_use]
    pub fn silence_max(mut self, silence: Duration) -> Self {
        self.silence = Some(silence);
        self
    }

    /// The memory that each process of a command may have for its data.
    #[must_use]
    pub fn memory_bytes_max(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Somebody who sees output and exits in this process.
    #[must_use]
    pub fn watch(mut self, watch: Arc<dyn Watch>) -> Self {
        self.watch = Some(watch);
        self
    }

    fn start(&self, folder: &Folder, context: &Context, payload: &Bytes) -> io::Result<Started> {
        let mut variables = environment::allowed(std::env::vars_os(), &self.kept_variables);
        variables.extend(environment::facts(context, folder, payload));
        let directory = match &self.directory {
            Directory::Own => folder.work(),
            Directory::At(path) => path.clone(),
        };
        let events = Events::of(folder.open_events()?)?;
        let (supervised, stdout, stderr) = Supervised::start(&self.supervisor, &variables, &directory)?;
        Ok(Started { supervised, stdout, stderr, events })
    }

    async fn attempt(&self, folder: &Arc<Folder>, payload: Bytes, context: &Context) -> Result<Done, TaskError> {
        let cannot = |why: io::Error| TaskError::retryable(format!("cannot start the command: {why}"));
        let Started { mut supervised, stdout, stderr, events } =
            self.start(folder, context, &payload).map_err(cannot)?;
        let order = Order {
            argv: self.argv.clone(),
            payload_bytes: payload.len(),
            memory_bytes: self.memory_bytes,
            folder: folder.left_behind(),
        };
        supervised.order(&order, &payload).await.map_err(cannot)?;
        // Large payloads with many secrets take a while to read.
        let redactor = tokio::task::spawn_blocking(move || Redactor::of(&payload)).await;
        let redactor = redactor.unwrap_or(Redactor::Everything);
        let (notes, noted) = mpsc::channel(NOTES_MAX);
        let empty = CancellationToken::new();
        // Also when the command has ended, and only its output is on its way.
        let stopped = context.cancellation().child_token();
        let lease = context.lease();
        let output = Output {
            logs: self.logs.clone(),
            attempt: AttemptRef { task: lease.task.clone(), execution_no: lease.token.0 },
            redactor: redactor.clone(),
            watch: self.watch.clone(),
            stopped: stopped.clone(),
            refused: Box::new({
                let context = context.clone();
                move |error| context.was_refused(error)
            }),
        };
        let talk = Talk {
            handler: self,
            context,
            supervised,
            events,
            notes,
            redactor: &redactor,
            heard: Heard::default(),
            outside: Outside::default(),
            stopped,
        };
        let talking = async {
            let (end, heard) = talk.go_on(folder).await;
            context.work_is_over();
            empty.cancel();
            (end, heard)
        };
        let ((end, heard), last_line) = tokio::join!(talking, output.carry(stdout, stderr, noted, empty.clone()));
        self.judge(end, heard, &last_line, folder, context).await
    }

    /// What the end of a command makes of its attempt.
    async fn judge(
        &self,
        end: End,
        heard: Heard,
        last_line: &str,
        folder: &Arc<Folder>,
        context: &Context,
    ) -> Result<Done, TaskError> {
        let exit = match end {
            // The runner knows why it was stopped.
            End::Stopped => return Ok(Done::Interrupted),
            End::TimedOut => return Ok(Done::TimedOut),
            End::Silent(limit) => {
                return Err(TaskError::retryable(format!("gave no sign of life for {} ms", limit.as_millis())));
            }
            End::NotStarted(why) => return Err(TaskError::retryable(why)),
            End::SupervisorDied => return Err(TaskError::crashed("its supervisor died")),
            End::SupervisorStopped => {
                return Err(TaskError::crashed("its supervisor was stopped again and again"));
            }
            End::Exited(exit) => exit,
        };
        if let Some(watch) = &self.watch {
            watch.exited(exit);
        }
        let message = if last_line.is_empty() { exit.to_string() } else { format!("{exit}: {last_line}") };
        match meaning(exit) {
            Meaning::Succeeded => Ok(Done::Succeeded(result(heard.result, folder).await?)),
            Meaning::Asked => match heard.question {
                Some(question) => Ok(Done::Asked(Box::new(asked(question, context)?))),
                None => Err(TaskError::retryable(format!("{exit}, but no question was asked"))),
            },
            Meaning::Permanent => Err(TaskError::permanent(message)),
            Meaning::Retry | Meaning::Failed => Err(TaskError::retryable(message)),
            Meaning::Crashed => Err(TaskError::crashed(message)),
        }
    }
}

#[async_trait]
impl TaskHandler for CommandHandler {
    fn task_type(&self) -> &str {
        &self.task_type
    }

    fn stop_within(&self) -> Duration {
        self.grace.saturating_add(VERIFY_WITHIN)
    }

    /// A supervisor ends when its tree is empty, and a cancelled attempt has ended when that was seen, not before.
    fn ends_by_itself(&self) -> bool {
        true
    }

    /// Without a folder of this user alone no attempt can begin.
    fn check(&self) -> Result<(), Refusal> {
        folder::private(&self.root)?;
        let root = self.root.clone();
        // They may hold many files, and nothing waits for their end.
        let removing = std::thread::Builder::new().name("ekiden-folders".to_owned()).spawn(move || {
            if let Err(error) = folder::remove_abandoned(&root) {
                tracing::debug!(root = %root.display(), %error, "cannot remove folders of attempts that are over");
            }
        });
        if let Err(error) = removing {
            tracing::debug!(%error, "folders of attempts that are over stay until the next start");
        }
        Ok(())
    }

    async fn execute(&self, payload: Bytes, context: Context) -> Result<Done, TaskError> {
        let folder = match Folder::make(&self.root, &context, self.keep) {
            Ok(folder) => Arc::new(folder),
            Err(NoFolder::Root(refusal)) => {
                // Every other attempt would fail here too: this one is handed back, and the runner takes no more.
                context.give_up(refusal);
                return Ok(Done::Interrupted);
            }
            Err(NoFolder::Own(why)) => {
                // The place is full, or this process has too much open: it is nothing of the task's, and passes.
                let task_id = context.task().id.as_str();
                tracing::warn!(task_id, root = %self.root.display(), %why, "no folder can be made for an attempt; it waits");
                return Ok(Done::Snoozed(ROOM_AGAIN));
            }
        };
        let outcome = self.attempt(&folder, payload, &context).await;
        // It may hold many files; removing them holds nobody else up.
        let _ = tokio::task::spawn_blocking(move || drop(folder)).await;
        outcome
    }
}

/// What an attempt has when its supervisor was started.
struct Started {
    supervised: Supervised,
    stdout: tokio::process::ChildStdout,
    stderr: tokio::process::ChildStderr,
    events: Events,
}

/// How a command ended.
enum End {
    Exited(Exit),
    /// It was told to, and nothing of it is left.
    Stopped,
    /// It took longer than the handler allows.
    TimedOut,
    /// It said nothing for so long.
    Silent(Duration),
    NotStarted(String),
    SupervisorDied,
    /// It was continued, and stopped again.
    SupervisorStopped,
}

/// What a command said that matters at its end.
#[derive(Default)]
struct Heard {
    question: Option<Event>,
    result: Option<serde_json::Value>,
}

/// The talk with a supervisor and its command, from the start to the empty tree.
struct Talk<'a> {
    handler: &'a CommandHandler,
    context: &'a Context,
    supervised: Supervised,
    events: Events,
    notes: mpsc::Sender<String>,
    redactor: &'a Redactor,
    heard: Heard,
    outside: Outside,
    /// Whoever carries the output learns by it that the attempt was told to stop.
    stopped: CancellationToken,
}

/// What is done from outside when a supervisor does not do it.
#[derive(Default)]
struct Outside {
    /// When everything is killed from outside (again); set when it was told to stop, or says that it cannot.
    kill_at: Option<Pin<Box<Sleep>>>,
    rounds: u32,
    /// In how many looks in a row it was found stopped.
    stopped_looks: u32,
}

impl Talk<'_> {
    async fn go_on(mut self, folder: &Folder) -> (End, Heard) {
        let stages = Stages::of(self.context);
        let mut exit = None;
        // Whether it was told to stop, and what that makes of its end: nothing, if it had ended by itself.
        let (mut is_told, mut told): (bool, Option<End>) = (false, None);
        let mut silence = Box::pin(over(self.handler.silence));
        let mut time = Box::pin(over(self.handler.time));
        let session = self.supervised.session();
        let mut looks = looks();
        let end = loop {
            tokio::select! {
                report = self.supervised.report() => match report {
                    Some(Report::Started { pid }) => self.began(pid),
                    Some(Report::NotStarted { why }) => break End::NotStarted(why),
                    Some(Report::Exited(with)) => {
                        exit = Some(with);
                        stages.reached(Stage::Exited);
                    }
                    Some(Report::Stuck { pids }) => {
                        self.stuck(&pids);
                        // Its command may have left it without the means to look and kill.
                        self.outside.kill_at.get_or_insert_with(|| Box::pin(sleep(AGAIN)));
                    }
                    Some(Report::Verified) => break told.unwrap_or_else(|| exit.map_or(End::SupervisorDied, End::Exited)),
                    None => {
                        self.bury(session, folder).await;
                        break told.unwrap_or(End::SupervisorDied);
                    }
                },
                () = self.context.cancelled(), if !is_told && !self.supervised.has_report() => {
                    // What came first counts: it may be the end of the command.
                    if self.supervised.has_report() {
                        continue;
                    }
                    self.stop().await;
                    is_told = true;
                    if exit.is_none() {
                        stages.reached(Stage::Signalled);
                        told = told.or(Some(End::Stopped));
                    }
                }
                said = self.events.next() => {
                    if self.hear(said) {
                        silence = Box::pin(over(self.handler.silence));
                    }
                }
                () = due(&mut self.outside.kill_at) => self.kill_from_outside().await,
                _ = looks.tick() => {
                    if self.is_kept_stopped() && !is_told {
                        (is_told, told) = self.stop_as(End::SupervisorStopped).await;
                    }
                }
                () = &mut time, if !is_told && exit.is_none() => {
                    (is_told, told) = self.stop_as(End::TimedOut).await;
                }
                () = &mut silence, if !is_told && exit.is_none() => {
                    let limit = self.handler.silence.unwrap_or_default();
                    (is_told, told) = self.stop_as(End::Silent(limit)).await;
                }
            }
        };
        for said in self.events.rest() {
            self.hear(said);
        }
        self.supervised.gone().await;
        stages.written().await;
        self.ended(exit);
        (end, self.heard)
    }

    fn began(&self, pid: i32) {
        let task_id = self.context.task().id.as_str();
        let execution_no = self.context.token().0;
        tracing::info!(task_id, execution_no, kind = self.handler.task_type, pid, "command started");
    }

    fn ended(&self, exit: Option<Exit>) {
        let task_id = self.context.task().id.as_str();
        let execution_no = self.context.token().0;
        let how = exit.map_or_else(|| "without an exit".to_owned(), |exit| exit.to_string());
        tracing::info!(task_id, execution_no, kind = self.handler.task_type, how, "command ended");
    }

    fn stuck(&self, pids: &[i32]) {
        tracing::error!(task_id = self.context.task().id.as_str(), ?pids, "processes of a command do not die");
    }

    /// Kills what a supervisor that died has left behind.
    async fn bury(&mut self, session: Option<i32>, folder: &Folder) {
        self.supervised.died().await;
        let word = format!("EKIDEN_RESULT={}", folder.result().display());
        let killed = orphans::kill(session, word).await;
        tracing::warn!(task_id = self.context.task().id.as_str(), killed, "the supervisor of a command died");
    }

    /// Tells it to stop for a reason that makes its end, whatever its exit says.
    async fn stop_as(&mut self, end: End) -> (bool, Option<End>) {
        self.stop().await;
        (true, Some(end))
    }

    async fn stop(&mut self) {
        self.stopped.cancel();
        let grace_ms = u64::try_from(self.handler.grace.as_millis()).unwrap_or(u64::MAX);
        self.supervised.tell(&Word::Stop { grace_ms }).await;
        self.outside.kill_at = Some(Box::pin(sleep(self.handler.grace.saturating_add(REACT_WITHIN))));
    }

    /// Kills what a supervisor should have killed by now. It is the supervisor that says when nothing is left; one that does
    /// not although nothing seems to be there is killed too, and what it may have left is looked for. So is one whose tree
    /// cannot be seen, if what it leaves can.
    async fn kill_from_outside(&mut self) {
        let is_empty = self.supervised.kill_below().await.unwrap_or_else(|_| orphans::are_adopted());
        let rounds = self.outside.rounds.saturating_add(1);
        self.outside.rounds = rounds;
        if is_empty && rounds >= SILENT_ROUNDS_MAX {
            self.supervised.kill_itself();
        } else if rounds == ROUNDS_MAX {
            self.stuck(&self.supervised.below());
        }
        self.outside.kill_at = Some(Box::pin(sleep(if rounds < ROUNDS_MAX { AGAIN } else { AGAIN_STUCK })));
    }

    /// Continues a supervisor that was stopped. Says whether that was in vain too often.
    fn is_kept_stopped(&mut self) -> bool {
        if !self.supervised.is_stopped() {
            self.outside.stopped_looks = 0;
            return false;
        }
        self.outside.stopped_looks += 1;
        self.supervised.go_on();
        tracing::warn!(
            task_id = self.context.task().id.as_str(),
            "the supervisor of a command was stopped, and continued"
        );
        let _ = self.notes.try_send("the supervisor of the command was stopped, and continued".to_owned());
        self.outside.stopped_looks >= STOPPED_LOOKS_MAX
    }

    /// Takes note of what was said. Says whether it is a sign of life.
    fn hear(&mut self, said: Said) -> bool {
        match said {
            Said::Event(Event::Progress { done, total, note }) => {
                let note = note.map(|note| Arc::from(self.redactor.clean_text(&note)));
                self.context.report(Progress { done, total, note });
                true
            }
            Said::Event(Event::Heartbeat) => true,
            Said::Event(Event::Question { text, choices, deadline_ms, default }) => {
                // The words are for people. Choices and default come back as the answer, so they stay as they are.
                let text = self.redactor.clean_text(&text).into();
                self.heard.question = Some(Event::Question { text, choices, deadline_ms, default });
                true
            }
            Said::Event(Event::Result { value }) => {
                self.heard.result = Some(value);
                true
            }
            Said::Nonsense(why) => {
                // Why it was not understood quotes the line. A full line of notes has said it often enough.
                let why = self.redactor.clean_text(&why);
                let _ = self.notes.try_send(format!("a line of $EKIDEN_EVENTS was not understood: {why}"));
                false
            }
        }
    }
}

fn looks() -> Interval {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    looks
}

/// Until a moment, if there is one.
async fn due(at: &mut Option<Pin<Box<Sleep>>>) {
    match at {
        Some(at) => at.await,
        None => std::future::pending().await,
    }
}

/// Until a limit is reached, if there is one.
async fn over(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => std::future::pending().await,
    }
}

/// The stages of a cancelled attempt, written in order and beside everything else: a slow store delays no kill.
struct Stages {
    reached: mpsc::UnboundedSender<Stage>,
    writer: tokio::task::JoinHandle<()>,
}

impl Stages {
    fn of(context: &Context) -> Self {
        let (reached, mut stages) = mpsc::unbounded_channel();
        let context = context.clone();
        let writer = tokio::spawn(async move {
            while let Some(stage) = stages.recv().await {
                if let Err(error) = context.stage(stage).await {
                    tracing::debug!(task_id = context.task().id.as_str(), %error, "stage of a stop not written");
                }
            }
        });
        Self { reached, writer }
    }

    fn reached(&self, stage: Stage) {
        // The writer ends only after this is gone.
        let _ = self.reached.send(stage);
    }

    async fn written(self) {
        drop(self.reached);
        // In vain if the store does not answer; the end itself is written by the runner.
        let _ = tokio::time::timeout(LAST_STAGE, self.writer).await;
    }
}

async fn result(said: Option<serde_json::Value>, folder: &Arc<Folder>) -> Result<Option<Bytes>, TaskError> {
    let folder = folder.clone();
    // The command chose what stands there; however long reading it takes, no other attempt waits for it.
    let read = tokio::task::spawn_blocking(move || folder.read_result()).await;
    let file = read.map_err(TaskError::retryable)?.map_err(TaskError::retryable)?;
    let result = match said {
        _ if !file.is_empty() => file,
        Some(value) => value.to_string().into_bytes(),
        None => return Ok(None),
    };
    if result.len() > limits::RESULT_BYTES_MAX {
        return Err(TaskError::permanent(format!("the result is longer than {} bytes", limits::RESULT_BYTES_MAX)));
    }
    Ok(Some(result.into()))
}

/// The question as the task keeps it. Its name is the attempt's, so that an answer belongs to this one.
fn asked(said: Event, context: &Context) -> Result<Question, TaskError> {
    let Event::Question { text, choices, deadline_ms, default } = said else {
        return Err(TaskError::permanent("not a question"));
    };
    let id = QuestionId::new(format!("q-{}", context.token().0)).map_err(TaskError::permanent)?;
    let deadline = deadline_ms.map(|ms| context.now() + Millis::new(ms).min(limits::DURATION_MAX));
    let question = Question { id, text, choices, deadline, default };
    question.check().map_err(TaskError::permanent)?;
    Ok(question)
}

impl std::fmt::Debug for CommandHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommandHandler")
            .field("task_type", &self.task_type)
            .field("argv", &self.argv)
            .finish_non_exhaustive()
    }
}
