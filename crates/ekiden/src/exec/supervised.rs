//! A supervisor as the runner sees it: started, told what to do, listened to. Letting go of it kills everything below it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use super::supervisor::SUPERVISE;
use super::words::{Order, Report, Word};

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
    child: Child,
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
        let mut child = command.spawn()?;
        // It holds the other end of the line, which would never end.
        drop(command);
        let missing = || io::Error::other("a piped stream is missing");
        let (stdout, stderr) = (child.stdout.take().ok_or_else(missing)?, child.stderr.take().ok_or_else(missing)?);
        let (reading, words) = ours.into_split();
        Ok((Self { child, words, reports: BufReader::new(reading).lines() }, stdout, stderr))
    }

    /// The session that its processes belong to unless they leave it.
    pub(super) fn session(&self) -> Option<u32> {
        self.child.id()
    }

    /// Says what to run.
    pub(super) async fn order(&mut self, order: &Order, payload: &[u8]) -> io::Result<()> {
        self.words.write_all(&line(order)?).await?;
        self.words.write_all(payload).await
    }

    /// Says something while it runs. A supervisor that is gone is noticed by its silence.
    pub(super) async fn tell(&mut self, word: &Word) {
        if let Ok(line) = line(word) {
            let _ = self.words.write_all(&line).await;
        }
    }

    /// The next report; `None` when it is gone. May be dropped and asked again.
    pub(super) async fn report(&mut self) -> Option<Report> {
        let line = self.reports.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }

    /// Lets it go, and waits until its process is gone, so that none stays behind unburied.
    pub(super) async fn gone(&mut self) {
        self.tell(&Word::Farewell).await;
        let _ = self.child.wait().await;
    }
}

fn line(said: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(said)?;
    line.push(b'\n');
    Ok(line)
}
