//! A child of a rig as its test sees it: started by path, listened to, stopped, continued and killed.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;
use std::{fmt, io};

use ekiden_store::clock::{Clock, SystemClock};
use rustix::process::{Pid, Signal as Posix, WaitId, WaitIdOptions};
use serde::Serialize;

use super::errand::{Errand, Signal};

/// Two minutes: far longer than anything that a child does, so that only one that hangs meets it.
const LIMIT: Duration = Duration::from_secs(120);

/// A program that serves as a child.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// An example target of the crate whose tests call this: cargo puts it beside the folder of the tests.
    pub fn example(name: &str) -> Self {
        let test = std::env::current_exe().expect("a running test has a path");
        let folder = test.parent().and_then(Path::parent).expect("cargo puts tests two folders deep");
        let path = folder.join("examples").join(name);
        assert!(
            path.exists(),
            "the rig's child {} is not built; `cargo nextest run -p CRATE` builds the examples of a crate with its tests",
            path.display()
        );
        Self { path }
    }

    /// What results call it.
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// A program anywhere.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// A child ended, or never came so far.
#[derive(Clone, Debug)]
pub struct Ended {
    why: String,
}

impl Ended {
    pub(super) fn because(why: impl ToString) -> Self {
        Self { why: why.to_string() }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// A running child. Dropped, it is killed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    signals: Receiver<Signal>,
    /// Open as long as somebody wants the child to live.
    stdin: ChildStdin,
}

impl Process {
    /// Sends a child on an errand.
    pub fn start(program: &Program, errand: &Errand) -> Self {
        Self::start_with(program, errand)
    }

    /// The same with an errand of any sort.
    pub(super) fn start_with(program: &Program, errand: &impl Serialize) -> Self {
        let text = serde_json::to_string(errand).expect("an errand is plain data and can be written as JSON");
        let mut child = Command::new(&program.path)
            .arg(text)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.path.display()));
        let stdin = child.stdin.take().expect("a piped stdin is there");
        let out = child.stdout.take().expect("a piped stdout is there");
        let (sender, signals) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // A killed child may leave half a line.
                let Ok(signal) = serde_json::from_str(&line) else { break };
                if sender.send(signal).is_err() {
                    break;
                }
            }
        });
        Self { child, signals, stdin }
    }

    /// Waits until the child says something in particular.
    pub fn wait_for(&mut self, what: &str, is_it: impl Fn(&Signal) -> bool) -> Result<Signal, Ended> {
        let begin = SystemClock.monotonic();
        loop {
            let left = LIMIT.saturating_sub(SystemClock.monotonic().saturating_sub(begin));
            match self.signals.recv_timeout(left) {
                Ok(Signal::Failed(why)) => return Err(Ended { why }),
                Ok(signal) if is_it(&signal) => return Ok(signal),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Ended { why: format!("it did not come to \"{what}\" within {LIMIT:?}") });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                    return Err(Ended { why: format!("it ended with {status} before it came to \"{what}\"") });
                }
            }
        }
    }

    /// Lets the child go on for a span, and forgets what it says meanwhile. Decides nothing but the moment of a fault.
    pub fn let_pass(&mut self, span: Duration) -> Result<(), Ended> {
        let begin = SystemClock.monotonic();
        loop {
            let left = span.saturating_sub(SystemClock.monotonic().saturating_sub(begin));
            match self.signals.recv_timeout(left) {
                Ok(Signal::Failed(why)) => return Err(Ended { why }),
                Ok(_) if !left.is_zero() => {}
                _ => return Ok(()),
            }
        }
    }

    /// Tells a child that works until it is enough that it is.
    pub fn say_enough(&mut self) {
        self.stdin.write_all(b"enough\n").expect("a child that lives can be told something");
    }

    /// Kills it, at this very moment, and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    /// Stops it: no thread of it runs when this returns.
    pub fn stop(&self) {
        self.signal(Posix::STOP);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let state = rustix::process::waitid(WaitId::Pid(self.pid()), options).expect("a child can be waited for");
        assert!(state.is_some_and(|state| state.stopped()), "the child ended instead of stopping");
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Posix::CONT);
    }

    /// Stops it for a span of real time. What it said before is not lost.
    pub fn stop_for(&self, span: Duration) {
        self.stop();
        let (_open, nobody) = mpsc::channel::<()>();
        let _ = nobody.recv_timeout(span);
        self.resume();
    }

    /// Waits until it ends by itself.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn signal(&self, signal: Posix) {
        rustix::process::kill_process(self.pid(), signal).expect("one's own child can be signalled");
    }

    /// Kill and wait are refused only for a child that has been waited for already.
    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
