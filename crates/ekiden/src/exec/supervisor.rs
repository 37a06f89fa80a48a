//! The supervisor: a process that stands between runner and command. It owns every process that the command starts, and is
//! tied to the runner by a line: when the line ends, the runner is gone, and the whole tree is killed.
//!
//! It leads a session of its own, so that a terminal's Ctrl-C reaches the runner alone, and is a child subreaper, so that
//! nothing of its tree can get away. What ends by itself is waited for; when nobody is left to wait for, the tree is empty.
//!
//! Stopped by SIGSTOP, it does nothing until its runner continues it, and its runner kills what is below it without it. Killed
//! by SIGKILL, it can do nothing more: then the runner looks for what it left (`orphans.rs`). If runner and supervisor are
//! killed together, the command goes on.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::pin::Pin;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{
    self, DumpableBehavior, Pid, Resource, Rlimit, WaitOptions, WaitStatus, getpid, getrlimit, prlimit,
    set_child_subreaper, set_dumpable_behavior, set_parent_process_death_signal, setrlimit, setsid, wait,
};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Sleep, sleep};

use super::exit::Exit;
use super::tree::{self, Process};
use super::words::{Order, Report, Word};
use crate::files::folders;

/// What the program is called with to be a supervisor.
pub(super) const SUPERVISE: &str = "ekiden-supervise";

/// Half a second for what a command leaves behind when it ends by itself.
const STRAGGLERS: Duration = Duration::from_millis(500);

/// 20 ms between two rounds of killing: what was killed needs a moment to be gone.
const AGAIN: Duration = Duration::from_millis(20);

/// 250 rounds, five seconds: what has not died by then is not going to soon.
const ROUNDS_MAX: u32 = 250;

/// One second between rounds for what does not die.
const AGAIN_STUCK: Duration = Duration::from_secs(1);

/// Becomes a supervisor, and does not return, if that is what this process was started for.
///
/// A program whose runner has commands as handlers calls this first thing in `main`: supervisors are the same program, started
/// again. It is not for threads: nothing else must run yet.
pub fn supervise_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == SUPERVISE) && arguments.next().is_none() {
        std::process::exit(i32::from(supervise().is_err()));
    }
}

/// Keeps other processes of this user from reading the environment, the memory and the open files of this one, and from
/// tracing it. Call it first thing in `main`: a token in the environment is then no secret that a command can read in
/// `/proc/PID/environ`. It keeps out nobody who is root, and there are no core dumps of this process any more.
pub fn deny_inspection() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

fn supervise() -> io::Result<()> {
    // It holds payloads, and commands of the same user must not look into it.
    deny_inspection()?;
    // What this process inherited is not the command's business. Single-threaded here, so nothing opens files meanwhile.
    close_fds::set_fds_cloexec(3, &[]);
    // A runner that dies wakes a supervisor that was stopped, which then sees the end of its line.
    set_parent_process_death_signal(Some(process::Signal::CONT))?;
    // Refused to who leads a group already, as when it was started by hand from a shell; then nothing is lost.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    let line = std::os::unix::net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    line.set_nonblocking(true)?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let ears = Ears::open()?;
        let (reading, reports) = UnixStream::from_std(line)?.into_split();
        let mut words = BufReader::new(reading);
        let (order, payload) = read_order(&mut words).await?;
        let words = Some(words.lines());
        let mut supervisor = Supervisor { words, reports, ears, main: None, stage: Stage::Running, rounds: 0 };
        supervisor.run(&order, &payload).await
    })
}

/// The signals that are heard. Those that ask to end are caught and forgotten: the tree goes first. They are caught and not
/// ignored because what is ignored here would be ignored by the command too.
struct Ears {
    child: Signal,
    _deaf: [Signal; 4],
}

impl Ears {
    fn open() -> io::Result<Self> {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()];
        let [a, b, c, d] = kinds.map(signal);
        Ok(Self { child: signal(SignalKind::child())?, _deaf: [a?, b?, c?, d?] })
    }
}

async fn read_order(words: &mut BufReader<OwnedReadHalf>) -> io::Result<(Order, Vec<u8>)> {
    let mut line = String::new();
    words.read_line(&mut line).await?;
    let order: Order = serde_json::from_str(&line)?;
    let mut payload = vec![0; order.payload_bytes];
    words.read_exact(&mut payload).await?;
    Ok((order, payload))
}

/// How far the end has come.
enum Stage {
    Running,
    /// Everything was asked to end; killed when this is over.
    Terminating(Pin<Box<Sleep>>),
    /// Everything is being killed; the next round comes then.
    Killing(Pin<Box<Sleep>>),
}

struct Supervisor {
    /// `None` when the runner is gone.
    words: Option<Lines<BufReader<OwnedReadHalf>>>,
    reports: OwnedWriteHalf,
    ears: Ears,
    main: Option<Pid>,
    stage: Stage,
    rounds: u32,
}

impl Supervisor {
    async fn run(&mut self, order: &Order, payload: &[u8]) -> io::Result<()> {
        match start(order, payload) {
            Ok(pid) => {
                self.main = Some(pid);
                self.report(Report::Started { pid: pid.as_raw_nonzero().get() }).await;
            }
            Err(why) => {
                self.report(Report::NotStarted { why: why.to_string() }).await;
                return Ok(());
            }
        }
        while !self.reap().await {
            self.wait().await;
        }
        self.report(Report::Verified).await;
        if let (false, Some(folder)) = (self.is_heard().await, &order.folder) {
            // Nobody else is left to do it, and nobody to tell if it cannot be done.
            let _ = folders::remove_all(folder);
        }
        Ok(())
    }

    /// Until something happened.
    async fn wait(&mut self) {
        let words = async {
            match &mut self.words {
                Some(words) => serde_json::from_str::<Word>(&words.next_line().await.ok().flatten()?).ok(),
                None => std::future::pending().await,
            }
        };
        let time = async {
            match &mut self.stage {
                Stage::Running => std::future::pending().await,
                Stage::Terminating(over) | Stage::Killing(over) => over.await,
            }
        };
        tokio::select! {
            _ = self.ears.child.recv() => {}
            word = words => match word {
                Some(Word::Stop { grace_ms }) => self.terminate(Duration::from_millis(grace_ms)),
                // The runner is gone, or speaks another language: nobody is left to be gentle for.
                Some(Word::Farewell) | None => {
                    self.words = None;
                    self.kill();
                }
            },
            () = time => self.kill_on().await,
        }
    }

    fn terminate(&mut self, grace: Duration) {
        if matches!(self.stage, Stage::Killing(_)) {
            return;
        }
        tree::terminate(getpid());
        self.stage = Stage::Terminating(Box::pin(sleep(grace)));
    }

    fn kill(&mut self) {
        tree::kill(getpid());
        self.stage = Stage::Killing(Box::pin(sleep(if self.rounds < ROUNDS_MAX { AGAIN } else { AGAIN_STUCK })));
    }

    async fn kill_on(&mut self) {
        self.kill();
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds == ROUNDS_MAX {
            let pids = tree::descendants(getpid()).into_iter().map(Process::number).collect();
            self.report(Report::Stuck { pids }).await;
        }
    }

    /// Waits for all who ended. Says whether nobody is left.
    async fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if Some(pid) == self.main => {
                    self.main = None;
                    self.report(Report::Exited(exit(status))).await;
                    if matches!(self.stage, Stage::Running) {
                        self.terminate(STRAGGLERS);
                    }
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Err(Errno::CHILD) => return true,
                // Any other error says nothing of them.
                Ok(None) | Err(_) => return false,
            }
        }
    }

    /// Waits for the runner's last word, or its end: one that was killed a moment ago may still look alive.
    async fn is_heard(&mut self) -> bool {
        let Some(words) = &mut self.words else { return false };
        while let Ok(Some(line)) = words.next_line().await {
            if matches!(serde_json::from_str(&line), Ok(Word::Farewell)) {
                return true;
            }
        }
        false
    }

    /// A runner that is gone hears nothing, and needs to hear nothing.
    async fn report(&mut self, report: Report) {
        if let Ok(mut line) = serde_json::to_vec(&report) {
            line.push(b'\n');
            let _ = self.reports.write_all(&line).await;
        }
    }
}

fn exit(status: WaitStatus) -> Exit {
    match status.terminating_signal() {
        Some(signal) => Exit::Signal(signal),
        None => Exit::Code(status.exit_status().unwrap_or(-1)),
    }
}

/// Starts the command: its environment, folder and output are the supervisor's own, as the runner chose them.
fn start(order: &Order, payload: &[u8]) -> io::Result<Pid> {
    let (program, arguments) = order.argv.split_first().ok_or_else(|| io::Error::other("no command"))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(File::from(memory_file(payload)?)).process_group(0);
    // Set before the start, so that the command has it from its first moment, and made final for it afterwards.
    let before = getrlimit(Resource::Data);
    let limit = order.memory_bytes.map(|bytes| Rlimit { current: Some(bytes), maximum: before.maximum });
    if let Some(limit) = limit {
        setrlimit(Resource::Data, limit)?;
    }
    let nobody = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let child = command.spawn();
    // The command may run by now, and may have lowered the limits of this process: nothing that fails from here on says that
    // it was not started.
    if limit.is_some() {
        let _ = setrlimit(Resource::Data, before);
    }
    let pid = Pid::from_child(
        &child.map_err(|error| io::Error::new(error.kind(), format!("cannot start {program:?}: {error}")))?,
    );
    if let Some(bytes) = order.memory_bytes {
        // In vain for one that has ended already.
        let _ = prlimit(Some(pid), Resource::Data, Rlimit { current: Some(bytes), maximum: Some(bytes) });
    }
    // From here on only the tree holds the ends of its output, so that their end is its end.
    let _ = rustix::stdio::dup2_stdin(&nobody);
    let _ = rustix::stdio::dup2_stdout(&nobody);
    let _ = rustix::stdio::dup2_stderr(&nobody);
    Ok(pid)
}

/// The payload as a file that has no name and no disk. A command that does not read it, or closes it, leaves no writer waiting.
fn memory_file(payload: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("payload", MemfdFlags::CLOEXEC)?);
    file.write_all(payload)?;
    file.rewind()?;
    Ok(file.into())
}
