//! The real binary, as it runs: how it is started, what it has said so far, and how it ends.
#![allow(dead_code, reason = "every test file uses its part")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

pub(crate) fn command(arguments: &[&str]) -> Command {
    program(env!("CARGO_BIN_EXE_ekiden"), arguments)
}

/// Another program in the same surroundings, as a shell or a copy of the binary.
pub(crate) fn program(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        command.env_remove(variable);
    }
    for (variable, _) in std::env::vars_os() {
        if variable.to_str().is_some_and(|name| name.starts_with("EKIDEN_")) {
            command.env_remove(variable);
        }
    }
    // A browser is opened by tests of that only, and no test finds the server of another.
    for variable in ["DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"] {
        command.env_remove(variable);
    }
    let own = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("runtime-{}", std::process::id()));
    std::fs::create_dir_all(&own).expect("a folder of this test can be made");
    command.env("XDG_RUNTIME_DIR", &own).env("XDG_CONFIG_HOME", &own);
    command.args(arguments).env("LC_ALL", "C").env("TERM", "xterm-256color");
    command
}

pub(crate) fn ekiden(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the binary can be run")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is text")
}

/// The task of a line about a change.
pub(crate) fn task(line: &str) -> Option<&str> {
    line.split(' ').find_map(|part| part.strip_prefix("task="))
}

pub(crate) struct Running {
    pub(crate) child: Child,
    log: BufReader<std::process::ChildStderr>,
    pub(crate) seen: String,
}

impl Running {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(&mut command(arguments))
    }

    /// The same in a folder.
    pub(crate) fn start_in(folder: &std::path::Path, arguments: &[&str]) -> Self {
        Self::spawn(command(arguments).current_dir(folder))
    }

    /// The same of any command.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, log, seen: String::new() }
    }

    pub(crate) fn wait_for(&mut self, text: &str) {
        while !self.seen.contains(text) {
            let read = self.log.read_line(&mut self.seen).unwrap();
            assert!(read > 0, "the log ended without {text:?}:\n{}", self.seen);
        }
    }

    /// Reads one more line.
    pub(crate) fn wait_for_more(&mut self) {
        let read = self.log.read_line(&mut self.seen).unwrap();
        assert!(read > 0, "the log ended:\n{}", self.seen);
    }

    pub(crate) fn end(mut self) -> (ExitStatus, String, String) {
        self.log.read_to_string(&mut self.seen).unwrap();
        let mut table = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut table).unwrap();
        (self.child.wait().unwrap(), std::mem::take(&mut self.seen), table)
    }
}

/// Whatever a test forgot, or could not end because it failed, ends with it.
impl Drop for Running {
    fn drop(&mut self) {
        // Who has ended already has nothing to be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn send(signal: Signal, child: &Child) {
    kill_process(Pid::from_child(child), signal).unwrap();
}
