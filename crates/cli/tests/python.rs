//! The example in Python, with nothing but its standard library, against the real server.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod running;

use std::path::Path;
use std::process::{Command, Output};

use running::{Running, text};

fn python(url: &str, arguments: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python/worker.py");
    let mut command = Command::new("python3");
    command.arg(script).args(arguments).env("EKIDEN_URL", url).env_remove("EKIDEN_TOKEN");
    command.output().expect("python3 is there, as the tests need it")
}

/// The address that the server printed.
fn url(server: &mut Running) -> String {
    server.wait_for("stop:");
    let at = server.seen.find("http://").unwrap();
    server.seen.get(at..).unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn a_program_in_python_hands_in_runs_and_settles() {
    let mut server = Running::start(&["serve", "--listen", "127.0.0.1:0", "--url", "memory:"]);
    let url = url(&mut server);
    let worked = python(&url, &["--add", "3", "--drain"]);
    let printed = text(&worked.stdout);
    assert!(worked.status.success(), "{printed}{}", text(&worked.stderr));
    assert!(printed.contains("attempt 1: hello runner 2"), "{printed}");
    assert!(printed.contains("3 settled"), "{printed}");
    assert_eq!(printed.matches("succeeded {\"greeted\": \"runner").count(), 3, "{printed}");
    running::send(rustix::process::Signal::TERM, &server.child);
    let (status, log, _) = server.end();
    assert!(status.success(), "{log}");
    assert!(log.contains("Stopped."), "{log}");

    let alone = python(&url, &["--drain"]);
    assert!(!alone.status.success() && text(&alone.stderr).contains("cannot reach"), "{}", text(&alone.stderr));
}
