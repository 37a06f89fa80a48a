//! A server as a test sees it: the real program on a folder and a port, listened to, and killed. Dropped, it is killed.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::process::{Ended, Program};

/// Two minutes: far longer than a server takes to start, so that only one that hangs meets it.
const LIMIT: Duration = Duration::from_secs(120);

/// What a server says when it listens.
const READY: &str = "Ekiden serves ";

/// 10,000 ports below those that the kernel gives to whoever asks for any: nobody gets one of them by chance while a killed
/// server is not there, neither another test nor a client that calls itself.
const PORTS: (u16, u16) = (20_000, 10_000);

/// A port of this machine that stays the same over all starts of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(u16);

impl Port {
    /// One that is free. Processes begin to look in different places, so that tests at once do not meet.
    pub fn free() -> Self {
        let (first, count) = PORTS;
        let start = u16::try_from(std::process::id().wrapping_mul(13) % u32::from(count)).unwrap_or(0);
        let ports = (0..count).map(|step| first + (start + step) % count);
        let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        Self(ports.into_iter().find(free).expect("one of ten thousand ports is free"))
    }

    /// Where clients find it.
    pub fn url(self) -> String {
        format!("http://127.0.0.1:{}", self.0)
    }

    /// The same without the scheme.
    pub fn address(self) -> String {
        format!("127.0.0.1:{}", self.0)
    }
}

/// A running server.
#[derive(Debug)]
pub struct Served {
    child: Child,
    ready: Receiver<()>,
    log: Arc<Mutex<String>>,
}

impl Served {
    /// Starts a server on `local:FOLDER`, or in memory, and does not wait for it.
    pub fn start(program: &Program, folder: Option<&Path>, port: Port) -> Self {
        let store = folder.map_or_else(|| "memory:".to_owned(), |folder| format!("local:{}", folder.display()));
        let mut command = Command::new(program.path());
        // Settings of whoever runs the tests are none of the server's.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("EKIDEN_")) {
            command.env_remove(name);
        }
        let mut child = command
            .args(["serve", "--lang", "en", "--url", &store, "--listen", &port.address()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", program.path().display()));
        let out = child.stderr.take().expect("a piped stderr is there");
        let (told, ready) = mpsc::channel();
        let log = Arc::new(Mutex::new(String::new()));
        let kept = log.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if line.contains(READY) {
                    // Nobody may wait for it any more.
                    let _ = told.send(());
                }
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_str(&line);
                kept.push('\n');
            }
        });
        Self { child, ready, log }
    }

    /// Waits until it listens.
    pub fn wait_ready(&self) -> Result<(), Ended> {
        let silent = |_| Ended::because(format!("the server did not start:\n{}", self.log()));
        self.ready.recv_timeout(LIMIT).map_err(silent)
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it, at this very moment, and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    /// Kill and wait are refused only for a child that has been waited for already.
    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.end();
    }
}
