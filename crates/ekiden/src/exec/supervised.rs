//! A supervisor as the runner sees it: started, told what to do, listened to. Letting go of it kills everything below it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, waitid};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::orphans;
use super::supervisor::SUPERVISE;
use super::tree::{self, Process, Stat};
use super::words::{Order, Report, Word};

/// Ten seconds to take an order: a supervisor that cannot be told what to run is not waited for.
const ORDER_WITHIN: Duration = Duration::from_secs(10);

/// One second to go after the last word; then it is killed, since nothing is below it any more.
const GO_WITHIN: Duration = Duration::from_secs(1);

/// Which program supervises commands.
#[derive(Clone, Debug)]
pub struct Supervisor {
    program: PathBuf,
}

impl Supervisor {
    /// This very program, whose `main` calls [`supervise_if_asked`](super::supervise_if_asked) first. Also when its file was
    /// replaced since it was started.
    pub fn this_program() -> Self {
        Self::at("/proc/self/exe")
    }

    /// Another program whose `main` does so, as `ekiden`.
    pub fn at(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }
}

/// A running supervisor.
pub(super) struct Supervised {
    child: Option<Child>,
    /// Nobody else has this number before the child was waited for.
    number: Option<Pid>,
    words: OwnedWriteHalf,
    reports: Lines<BufReader<OwnedReadHalf>>,
}

impl Supervised {
    /// Starts one in a folder, with an environment; its output is the command's.
    pub(super) fn start(
        supervisor: &Supervisor,
        environment: &[(OsString, OsString)],
        folder: &Path,
    ) -> io::Result<(Self, ChildStdout, ChildStderr)> {
        let (ours, theirs) = UnixStream::pair()?;
        let theirs = theirs.into_std()?;
        theirs.set_nonblocking(false)?;
        let mut command = Command::new(&supervisor.program);
        command.arg0("ekiden").arg(SUPERVISE).env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(folder).stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = orphans::starting(|| command.spawn(), number)?;
        // It holds the other end of the line, which would never end.
        drop(command);
        let missing = || io::Error::other("a piped stream is missing");
        let (stdout, stderr) = (child.stdout.take().ok_or_else(missing)?, child.stderr.take().ok_or_else(missing)?);
        let (reading, words) = ours.into_split();
        let number = number(&child).and_then(Pid::from_raw);
        Ok((Self { child: Some(child), number, words, reports: BufReader::new(reading).lines() }, stdout, stderr))
    }

    /// The session that its processes belong to unless they leave it.
    pub(super) fn session(&self) -> Option<i32> {
        self.number.map(|number| number.as_raw_nonzero().get())
    }

    /// Says what to run.
    pub(super) async fn order(&mut self, order: &Order, payload: &[u8]) -> io::Result<()> {
        let line = line(order)?;
        let said = async {
            self.words.write_all(&line).await?;
            self.words.write_all(payload).await
        };
        timeout(ORDER_WITHIN, said).await.map_err(|_| io::Error::other("its supervisor does not take its order"))?
    }

    /// Says something while it runs. A supervisor that is gone is noticed by its silence.
    pub(super) async fn tell(&mut self, word: &Word) {
        self.go_on();
        if let Ok(line) = line(word) {
            // One that does not read is dealt with from outside.
            let _ = timeout(GO_WITHIN, self.words.write_all(&line)).await;
        }
    }

    /// The next report; `None` when it is gone. May be dropped and asked again.
    pub(super) async fn report(&mut self) -> Option<Report> {
        let line = self.reports.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }

    /// Whether a report has come that was not taken yet.
    pub(super) fn has_report(&mut self) -> bool {
        let reading = self.reports.get_ref();
        !reading.buffer().is_empty() || ioctl_fionread(reading.get_ref().as_ref()).is_ok_and(|bytes| bytes > 0)
    }

    /// Whether somebody stopped it.
    pub(super) fn is_stopped(&self) -> bool {
        let Some(number) = self.number else { return false };
        match Stat::of(number) {
            Ok(stat) => stat.is_some_and(|stat| stat.is_stopped()),
            // Where `/proc` hides it the kernel still tells its parent.
            Err(_) => {
                let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                waitid(WaitId::Pid(number), options).is_ok_and(|status| status.is_some())
            }
        }
    }

    /// Continues it, if it was stopped.
    pub(super) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills the supervisor itself. What is below it then has to be found by its runner.
    pub(super) fn kill_itself(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // Once it was waited for, its number may be another's.
        if let Some(number) = self.child.as_ref().and_then(number).and_then(Pid::from_raw) {
            Process::child(number).signal(signal);
        }
    }

    /// Kills everything below it from outside, and continues it, so that it can see that nothing is left. Says whether nothing
    /// seems to be; an error says that it is not known.
    pub(super) async fn kill_below(&self) -> io::Result<bool> {
        let number = self.number.ok_or(io::ErrorKind::NotFound)?;
        let killing = tokio::task::spawn_blocking(move || tree::kill(number));
        killing.await?;
        self.go_on();
        tokio::task::spawn_blocking(move || tree::are_dead(|| tree::children(number))).await?
    }

    /// Kills one that fell silent, and waits until it is gone: only then has it left everything to who adopts it.
    pub(super) async fn died(&mut self) {
        self.kill_itself();
        self.wait().await;
    }

    async fn wait(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.wait().await;
            self.child = None;
            self.session().into_iter().for_each(orphans::ended);
        }
    }

    /// The numbers of what lives below it.
    pub(super) fn below(&self) -> Vec<i32> {
        self.number.map(tree::descendants).unwrap_or_default().into_iter().map(Process::number).collect()
    }

    /// Lets it go, and waits until its process is gone, so that none stays behind unburied.
    pub(super) async fn gone(&mut self) {
        self.tell(&Word::Farewell).await;
        if timeout(GO_WITHIN, self.wait()).await.is_err() {
            self.died().await;
        }
    }
}

/// A closed line tells a supervisor to kill what it has. One that was stopped could not read that.
impl Drop for Supervised {
    fn drop(&mut self) {
        let (Some(mut child), Some(number)) = (self.child.take(), self.number) else { return };
        tree::kill(number);
        Process::child(number).signal(Signal::CONT);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _ = child.wait().await;
                orphans::ended(number.as_raw_nonzero().get());
            });
        }
    }
}

/// The number of a child that was not waited for yet.
fn number(child: &Child) -> Option<i32> {
    child.id().and_then(|number| i32::try_from(number).ok())
}

fn line(said: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    Ok(line)
}
