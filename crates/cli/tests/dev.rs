//! `ekiden dev` as a person runs it: the real binary, its output, its end.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod running;
mod terminal;

use std::collections::BTreeSet;
use std::process::{Output, Stdio};
use std::time::Duration;

use ekiden::store::{Clock, SystemClock};
use rustix::process::Signal;

use running::{Running, command, ekiden, send, task, text};
use terminal::Terminal;

const TASKS: [&str; 9] =
    ["resize-photos", "call-api", "send-mail", "report", "publish", "deploy-1", "deploy-2", "deploy-3", "襷リレー"];

/// Times are masked and columns squeezed, for both differ from run to run; lines are gathered by task, for tasks run side
/// by side and only the order of one task's lines is certain.
fn stable(output: &Output) -> String {
    let log = text(&output.stderr);
    let of = |wanted: Option<&str>| log.lines().filter(|line| task(line) == wanted).collect::<Vec<_>>().join("\n");
    let by_task = TASKS.map(|id| of(Some(id))).join("\n");
    masked(&without_port(&format!("{by_task}\n\n{}\n\n{}", of(None), text(&output.stdout))))
}

/// Servers of tests that run side by side have different ports.
fn without_port(text: &str) -> String {
    let Some((before, after)) = text.split_once("http://127.0.0.1:") else { return text.to_owned() };
    format!("{before}http://SERVER{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
}

fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let is_time = rest[..number].contains('.') && next != '.' && !rest[..number].ends_with('.');
        let taken = if is_time { number } else { number.max(next.len_utf8()) };
        masked.push_str(if is_time { "#.#" } else { &rest[..taken] });
        rest = &rest[taken..];
    }
    while masked.contains("   ") {
        masked = masked.replace("   ", "  ");
    }
    masked
}

#[test]
fn dev_carries_every_demo_task_to_its_end() {
    let output = ekiden(&["dev", "--once"]);
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!("english", stable(&output));
    let log = text(&output.stderr);
    let line = |text: &str| log.lines().position(|line| line.contains(text)).expect("the log holds the line");
    for (first, then) in [
        ("task=deploy-1 state=succeeded", "task=deploy-2 state=running"),
        ("task=deploy-2 state=succeeded", "task=deploy-3 state=running"),
        ("task=resize-photos state=succeeded", "task=publish state=running"),
    ] {
        assert!(line(first) < line(then), "{first} comes before {then}:\n{log}");
    }
}

#[test]
fn dev_speaks_japanese_when_asked() {
    let output = ekiden(&["dev", "--once", "--lang", "ja"]);
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!("japanese", stable(&output));
}

/// What the greeting says behind a word.
fn step<'a>(greeting: &'a str, word: &str) -> &'a str {
    let line = greeting.lines().find_map(|line| line.trim_start().strip_prefix(word)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {word:?} in\n{greeting}")).trim()
}

/// Does what the greeting says, as a person who copies it into a shell of another folder.
fn copied(step: &str, folder: &std::path::Path) -> Output {
    let mut shell = std::process::Command::new("sh");
    let like = command(&[]);
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.arg("-c").arg(step).current_dir(folder).output().unwrap()
}

#[test]
fn dev_is_what_runs_without_a_command_and_stays_and_its_next_steps_work_as_printed() {
    let elsewhere = tempfile::tempdir().unwrap();
    let mut running = Running::start(&[]);
    running.wait_for("Ctrl-C");
    let greeting = running.seen.clone();
    running.wait_for("task=ship-it state=needs_input");
    running.wait_for("task=send-mail state=dead");
    let listed = copied(step(&greeting, "list"), elsewhere.path());
    assert!(text(&listed.stdout).contains("ship-it\tleg\tneeds_input"), "{}", text(&listed.stderr));
    let why = copied(step(&greeting, "why"), elsewhere.path());
    assert!(text(&why.stdout).contains("PERMANENT_FAILURE"), "{}{}", text(&why.stdout), text(&why.stderr));
    assert!(copied(step(&greeting, "retry"), elsewhere.path()).status.success());
    assert!(copied(step(&greeting, "answer"), elsewhere.path()).status.success());
    running.wait_for("task=ship-it state=succeeded");
    let added = copied(&step(&greeting, "add").replace("30", "1"), elsewhere.path());
    assert_eq!(added.status.code(), Some(0), "{}", text(&added.stderr));
    assert!(text(&added.stderr).contains(" succeeded 1/5"), "{}", text(&added.stderr));
    running.wait_for("task=publish state=succeeded");
    send(Signal::INT, &running.child);
    let (status, log, _) = running.end();
    assert_eq!(status.code(), Some(130), "it stays until it is told to end: {log}");
    let gone = copied(step(&greeting, "list"), elsewhere.path());
    assert!(text(&gone.stderr).contains("STORE_NOT_FOUND"), "nobody is found any more: {}", text(&gone.stderr));
}

/// The best of five, for the machine may have other things to do.
#[test]
fn dev_shows_tasks_that_run_within_a_second_of_starting() {
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let begin = SystemClock.monotonic();
        let mut dev = Running::start(&["dev", "--no-open"]);
        dev.wait_for("state=running");
        quickest = quickest.min(SystemClock.monotonic().saturating_sub(begin));
        assert!(dev.seen.contains("http://127.0.0.1:") && dev.seen.contains("Ctrl-C"), "{}", dev.seen);
        if quickest < Duration::from_secs(1) {
            return;
        }
    }
    panic!("the quickest took {quickest:?}");
}

#[test]
fn a_second_dev_takes_the_next_port_and_is_the_one_that_is_found() {
    let elsewhere = tempfile::tempdir().unwrap();
    let address = |running: &Running| {
        let at = running.seen.find("http://").unwrap();
        running.seen[at..].split([',', '\n']).next().unwrap().to_owned()
    };
    let mut first = Running::start(&["dev"]);
    first.wait_for("Ctrl-C");
    let mut second = Running::start(&["dev", "--no-open"]);
    second.wait_for("Ctrl-C");
    assert_ne!(address(&first), address(&second));
    let added = |url: Option<String>| {
        let mut add = command(&["task", "add", "x", "--hold", "-o", "id"]);
        add.current_dir(elsewhere.path()).envs(url.map(|url| ("EKIDEN_URL", url)));
        text(&add.output().unwrap().stdout).trim_end().to_owned()
    };
    let (found, named) = (added(None), added(Some(address(&first))));
    assert!(!elsewhere.path().join("ekiden-data").exists(), "a server was found, so no store was made");
    second.wait_for(&format!("task={found} "));
    first.wait_for(&format!("task={named} "));
    for running in [second, first] {
        send(Signal::TERM, &running.child);
        assert_eq!(running.end().0.code(), Some(143));
    }
}

#[test]
fn a_browser_is_opened_on_a_terminal_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let (opener, seen) = (folder.path().join("xdg-open"), folder.path().join("seen"));
    std::fs::write(&opener, format!("#!/bin/sh\necho \"$1\" > {}.part\nmv {0}.part {0}\n", seen.display())).unwrap();
    std::fs::set_permissions(&opener, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let dev = |arguments: &[&str]| {
        let mut dev = command(arguments);
        dev.env("PATH", &path).env("DISPLAY", ":0");
        dev
    };
    let mut piped = Running::spawn(&mut dev(&["dev"]));
    piped.wait_for("task=publish state=succeeded");
    send(Signal::TERM, &piped.child);
    piped.end();
    let mut unwanted = Terminal::run(dev(&["dev", "--no-open"]), 80);
    unwanted.wait_for("[=");
    send(Signal::TERM, &unwanted.child);
    unwanted.wait();
    assert!(!seen.exists(), "{}", std::fs::read_to_string(&seen).unwrap_or_default());

    let mut terminal = Terminal::run(dev(&["dev"]), 80);
    while !seen.exists() {
        std::thread::yield_now();
    }
    let url = std::fs::read_to_string(&seen).unwrap();
    terminal.wait_for(url.trim_end());
    send(Signal::TERM, &terminal.child);
    assert_eq!(terminal.wait().code(), Some(143));
}

#[test]
fn without_a_terminal_nothing_is_coloured() {
    let output = command(&["dev", "--once"]).env("LC_ALL", "ja_JP.UTF-8").output().unwrap();
    assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b));
    assert!(text(&output.stdout).starts_with("タスク "), "LANG and its kin choose the language");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_fault() {
    let mut child = command(&["dev", "--once"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// The last line names exactly the tasks that went from running back to the queue.
fn assert_handed_back(log: &str, says: &str) {
    let last = log.lines().last().unwrap();
    let named: BTreeSet<&str> = last.strip_prefix(says).expect(last).split(", ").collect();
    let back = log.lines().filter(|line| line.contains(" state=queued attempt=1/"));
    let back: BTreeSet<&str> = back.filter_map(task).collect();
    assert_eq!(named, back, "{log}");
    assert!(named.contains("resize-photos"), "it was running:\n{log}");
}

#[test]
fn ctrl_c_hands_back_what_runs_and_says_so() {
    let mut running = Running::start(&["dev", "--once"]);
    running.wait_for("task=resize-photos state=running");
    send(Signal::INT, &running.child);
    let (status, log, table) = running.end();
    assert_eq!(status.code(), Some(130), "{log}");
    assert_handed_back(&log, "Stopped. Handed back unfinished: ");
    let row = table.lines().find(|line| line.starts_with("resize-photos")).unwrap();
    assert!(row.contains("queued"), "the table shows where the tasks are left:\n{table}");
}

#[test]
fn a_second_ctrl_c_changes_nothing() {
    let mut running = Running::start(&["dev", "--once", "--lang", "ja"]);
    running.wait_for("task=resize-photos state=running");
    send(Signal::INT, &running.child);
    send(Signal::INT, &running.child);
    running.wait_for(" state=queued attempt=1/");
    send(Signal::INT, &running.child);
    let (status, log, _) = running.end();
    assert_eq!(status.code(), Some(130), "{log}");
    assert_handed_back(&log, "中断しました。キューに戻したタスク: ");
}

#[test]
fn a_supervisor_that_terminates_it_gets_its_own_exit_code() {
    let mut running = Running::start(&["dev", "--once"]);
    running.wait_for("task=resize-photos state=running");
    send(Signal::TERM, &running.child);
    let (status, log, _) = running.end();
    assert_eq!(status.code(), Some(143), "{log}");
    assert_handed_back(&log, "Stopped. Handed back unfinished: ");
}

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";

#[track_caller]
fn assert_cursor_restored(written: &str) {
    assert_eq!((written.matches(HIDE_CURSOR).count(), written.matches(SHOW_CURSOR).count()), (1, 1));
    let last_frame = written.rfind("\x1b[J").unwrap();
    assert!(written.find(HIDE_CURSOR).unwrap() < written.find("\x1b[J").unwrap());
    assert!(last_frame < written.find(SHOW_CURSOR).unwrap(), "the cursor comes back after the last frame");
}

#[test]
fn on_a_terminal_the_table_is_redrawn_in_place() {
    let mut terminal = Terminal::run(command(&["dev", "--once"]), 80);
    let status = terminal.wait();
    assert_eq!(status.code(), Some(0));
    assert_cursor_restored(&terminal.written);
    let (up, drawn) = (format!("\x1b[{}A", TASKS.len() + 1), "\x1b[J");
    let frames = terminal.written.matches(drawn).count();
    assert!(frames > 5, "only {frames} frames");
    assert_eq!(terminal.written.matches(&up).count(), frames - 1, "each frame but the first covers the one before");
    assert!(terminal.written.contains("retry in 1."), "a countdown is seen");
    assert!(terminal.written.contains("[===="), "a bar is seen");

    let screen = terminal.screen();
    for id in TASKS {
        let rows: Vec<_> = screen.iter().filter(|line| line.starts_with(id)).collect();
        assert_eq!(rows.len(), 1, "one row for {id}:\n{}", screen.join("\n"));
        assert!(rows[0].chars().count() <= 80, "within the terminal: {}", rows[0]);
    }
    assert!(!terminal.written.contains("state="), "a table needs no lines beside it");
    insta::assert_snapshot!("terminal", masked(&without_port(&screen.join("\n"))));
}

#[test]
fn ctrl_c_on_a_terminal_restores_the_cursor() {
    let mut terminal = Terminal::run(command(&["dev", "--once"]), 120);
    terminal.wait_for("[=");
    send(Signal::INT, &terminal.child);
    assert_eq!(terminal.wait().code(), Some(130));
    assert_cursor_restored(&terminal.written);
    let screen = terminal.screen().join("\n");
    assert!(screen.contains("Stopped. Handed back unfinished: resize-photos"), "{screen}");
}

#[test]
fn a_terminal_that_wants_no_colour_or_knows_none_gets_lines() {
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let mut wish = command(&["dev", "--once"]);
        wish.env(name, value);
        let mut terminal = Terminal::run(wish, 80);
        assert_eq!(terminal.wait().code(), Some(0));
        assert!(!terminal.written.contains('\x1b'), "{name}={value}:\n{}", terminal.written);
        assert!(terminal.written.contains("task=send-mail state=dead"));
    }
}

#[test]
fn a_terminal_too_narrow_for_the_table_gets_lines() {
    let mut terminal = Terminal::run(command(&["dev", "--once"]), 40);
    assert_eq!(terminal.wait().code(), Some(0));
    assert!(!terminal.written.contains(HIDE_CURSOR));
    assert!(terminal.written.contains("task=send-mail state=dead"));
}

#[test]
fn a_typo_is_answered_with_the_right_word_and_exit_code_2() {
    let output = ekiden(&["de"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("'dev'"));
    assert!(output.stdout.is_empty(), "data goes to stdout, everything else to stderr");
}
