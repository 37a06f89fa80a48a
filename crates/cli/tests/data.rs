//! `ekiden dev --data DIR`: what was there before is there again, however the last start ended.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod running;
mod terminal;

use rustix::process::Signal;

use running::{Running, command, ekiden, send, text};
use terminal::Terminal;

struct Data {
    root: tempfile::TempDir,
}

impl Data {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap() }
    }

    fn folder(&self) -> String {
        self.root.path().join("data").to_str().unwrap().to_owned()
    }

    /// Starts the demo, and stops it with a signal while its first task runs.
    fn start_and_stop(&self, signal: Signal) -> String {
        let mut running = Running::start(&["dev", "--once", "--data", &self.folder()]);
        running.wait_for("task=resize-photos state=running");
        send(signal, &running.child);
        running.end().1
    }
}

#[test]
fn a_second_start_shows_the_tasks_of_the_first() {
    let data = Data::new();
    let first = ekiden(&["dev", "--once", "--data", &data.folder()]);
    let log = text(&first.stderr);
    assert_eq!(first.status.code(), Some(0), "{log}");
    assert!(log.contains(&format!("kept in local:{}", data.folder())), "{log}");
    assert!(!log.contains("from earlier"), "nothing was there: {log}");
    assert!(log.ends_with("Kept: succeeded 8, dead 1\n"), "{log}");

    let second = ekiden(&["dev", "--once", "--lang", "ja", "--data", &data.folder()]);
    let log = text(&second.stderr);
    assert_eq!(second.status.code(), Some(0), "{log}");
    assert!(log.contains("前回までのタスク: 成功 8、失敗 1"), "{log}");
    assert!(log.ends_with("保存済み: 成功 16、失敗 2\n"), "{log}");
    let table = text(&second.stdout);
    assert!(table.contains("\nresize-photos.2 ") && table.contains("\n襷リレー.2 "), "a round of its own:\n{table}");
}

#[test]
fn what_ctrl_c_handed_back_goes_on_with_the_next_start() {
    let data = Data::new();
    let log = data.start_and_stop(Signal::INT);
    assert!(log.contains("Stopped. Handed back unfinished: resize-photos"), "{log}");
    assert!(log.lines().last().unwrap().starts_with("Kept: "), "{log}");

    let output = ekiden(&["dev", "--once", "--data", &data.folder()]);
    let log = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{log}");
    assert!(log.contains("Still there from earlier: "), "{log}");
    assert!(log.ends_with("Kept: succeeded 8, dead 1\n"), "the same nine tasks: {log}");
}

#[test]
fn what_a_killed_start_held_is_taken_over_by_the_next() {
    let data = Data::new();
    let log = data.start_and_stop(Signal::KILL);
    assert!(!log.contains("Stopped"), "it had no time to say anything: {log}");

    let output = ekiden(&["dev", "--once", "--data", &data.folder()]);
    let (log, table) = (text(&output.stderr), text(&output.stdout));
    assert_eq!(output.status.code(), Some(0), "{log}");
    assert!(log.contains("Still there from earlier: ") && log.contains("running "), "{log}");
    assert!(log.contains("task=resize-photos state=running attempt=2/"), "{log}");
    assert!(log.ends_with("Kept: succeeded 8, dead 1\n"), "nothing is lost and nothing is doubled: {log}\n{table}");
}

#[test]
fn on_a_terminal_the_kept_tasks_are_shown_with_the_table() {
    let data = Data::new();
    data.start_and_stop(Signal::INT);
    let mut terminal = Terminal::run(command(&["dev", "--once", "--data", &data.folder()]), 120);
    assert_eq!(terminal.wait().code(), Some(0));
    let screen = terminal.screen();
    assert!(screen.iter().any(|line| line.starts_with("Still there from earlier: ")), "{}", screen.join("\n"));
    assert!(screen.iter().any(|line| line.starts_with("Kept: succeeded 8, dead 1")), "{}", screen.join("\n"));
    let rows = screen.iter().filter(|line| line.starts_with("resize-photos ")).count();
    assert_eq!(rows, 1, "one row a task:\n{}", screen.join("\n"));
}

#[test]
fn a_folder_that_is_in_use_is_refused_in_the_readers_language() {
    let data = Data::new();
    let mut running = Running::start(&["dev", "--once", "--data", &data.folder()]);
    running.wait_for("task=resize-photos state=running");
    for (lang, says) in [("en", "STORE_IN_USE: Store is in use"), ("ja", "STORE_IN_USE: ストアは使用中です")] {
        let second = ekiden(&["dev", "--once", "--lang", lang, "--data", &data.folder()]);
        assert_eq!(second.status.code(), Some(1));
        assert!(text(&second.stderr).contains(says), "{}", text(&second.stderr));
        assert!(second.stdout.is_empty());
    }
    send(Signal::INT, &running.child);
    running.end();
}
