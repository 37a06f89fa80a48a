//! Commands directly on a store that several processes may use: no server, each command opens it by itself.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod running;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use running::{Running, command, send, text};
use rustix::process::Signal;

/// A DynamoDB in this process, and a home for what belongs to the user.
struct Fleet {
    url: String,
    home: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Fleet {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("dynamodb:?endpoint=http://{}", listener.local_addr().unwrap());
        drop(runtime.spawn(dynoxide::server::serve_on(listener, dynoxide::Database::memory().unwrap())));
        Self { url, home: tempfile::tempdir().unwrap(), _runtime: runtime }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.env("EKIDEN_URL", &self.url).env("XDG_STATE_HOME", self.home.path()).current_dir(self.home.path());
        command
    }

    fn ended(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = self.command(arguments).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }
}

/// X1, X4: hand in, follow, read the log, ask and answer, each command on the store itself, beside a worker that has it too.
#[test]
fn commands_work_directly_on_a_store_that_several_processes_share() {
    let fleet = Fleet::new();
    let line = r#"case "$EKIDEN_TASK_TYPE" in
      ask) [ -n "$EKIDEN_ANSWER" ] || { echo '{"type":"question","text":"Go?"}' > "$EKIDEN_EVENTS"; exit 3; } ;;
    esac; echo "did $EKIDEN_TASK_ID $EKIDEN_ANSWER""#;
    let arguments = ["work", "--kind", "greet", "--kind", "ask", "--shell", "--exec", line];
    let mut worker = Running::spawn(&mut fleet.command(&arguments));
    worker.wait_for("Working for");

    let followed = fleet.ended(&["task", "add", "greet", "--id", "g", "--follow"]);
    assert_eq!((followed.0, followed.1.as_str()), (Some(0), "did g \n"), "{}", followed.2);
    assert_eq!(fleet.ended(&["task", "logs", "g"]).1, "did g \n", "its log is this user's");
    assert_eq!(fleet.ended(&["task", "add", "ask", "--id", "a"]).0, Some(0));
    assert_eq!(fleet.ended(&["task", "wait", "a", "--for", "needs_input"]).0, Some(0));
    assert_eq!(fleet.ended(&["task", "answer", "a", "yes"]).0, Some(0));
    assert_eq!(fleet.ended(&["task", "wait", "a"]).0, Some(0));
    assert_eq!(fleet.ended(&["task", "logs", "a"]).1, "did a yes\n");
    send(Signal::INT, &worker.child);
    assert!(worker.end().0.success());
}

/// R10: whoever watches sees what other processes do, though nobody tells; a command on many tasks is carried to its end.
#[test]
fn a_watcher_of_a_shared_store_sees_what_others_do() {
    let fleet = Fleet::new();
    assert_eq!(fleet.ended(&["task", "add", "x", "--id", "old", "--hold"]).0, Some(0));
    let mut watch =
        fleet.command(&["task", "watch", "-o", "jsonl", "--since", "1h"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || {
        let change: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        (change["id"].as_str().unwrap().to_owned(), change["state"].as_str().unwrap().to_owned())
    };
    assert_eq!(next(), ("old".to_owned(), "pending".to_owned()), "it has begun");
    assert_eq!(fleet.ended(&["task", "add", "x", "--id", "new", "--hold"]).0, Some(0));
    assert_eq!(next(), ("new".to_owned(), "pending".to_owned()));
    let swept = fleet.ended(&["task", "cancel", "--all", "--yes"]);
    assert_eq!((swept.0, swept.2.as_str()), (Some(0), "Cancelled 2 tasks.\n"));
    let mut ended = [next(), next()];
    ended.sort();
    assert_eq!(ended, ["new", "old"].map(|id| (id.to_owned(), "cancelled".to_owned())));
    send(Signal::INT, &watch);
    assert_eq!(watch.wait().unwrap().code(), Some(130));
}
