//! The commands as people and scripts use them: a real server, a real runner, real pipes and terminals.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;
#[cfg(target_os = "linux")]
mod readme;
mod running;
mod terminal;
mod transcript;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use lab::{Lab, local};
use running::{command, ekiden, send, text};
use rustix::process::Signal;
use terminal::Terminal;

fn job(does: &str) -> String {
    format!("{{\"does\":\"{does}\"}}")
}

/// A command whose output is read while it runs.
struct Reading {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Reading {
    fn start(lab: &Lab, arguments: &[&str]) -> Self {
        let mut child = lab.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    /// Its exit code, the rest of its data, and what it said beside.
    fn end(mut self) -> (Option<i32>, String, String) {
        let (mut rest, mut log) = (String::new(), String::new());
        self.out.read_to_string(&mut rest).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().code(), rest, log)
    }
}

/// X1: the log of a running task is read as it is written.
#[test]
fn a_task_that_is_followed_streams_its_log_and_ends_with_its_exit_code() {
    let lab = Lab::with_runner();
    let mut follow = Reading::start(&lab, &["task", "add", "job", &job("gated"), "--id", "g", "--follow"]);
    assert_eq!(follow.line(), "before\n");
    lab.gate.notify_one();
    let (code, rest, log) = follow.end();
    assert_eq!((code, rest.as_str()), (Some(0), "after\n"), "{log}");
    let told: Vec<&str> = log.lines().collect();
    assert_eq!(told.first(), Some(&"g"), "{log}");
    assert_eq!(told.last(), Some(&"g succeeded 1/5"), "{log}");

    let dead = lab.ended(&["task", "add", "job", &job("die"), "--id", "d", "--follow"]);
    assert_eq!(dead.0, Some(1), "{}", dead.1);
    assert!(dead.1.contains("d dead 1/5: no such address"), "{}", dead.1);
    let json = lab.run(&["task", "add", "job", &job("write"), "--id", "w", "--follow", "-o", "json"]);
    let task: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((task["id"].as_str(), task["state"].as_str()), (Some("w"), Some("succeeded")));
    assert!(text(&json.stderr).contains("line 5"), "the log stays out of the data");
}

#[test]
fn a_followed_task_that_is_cancelled_says_so_by_its_exit_code() {
    let lab = Lab::with_runner();
    let mut follow = Reading::start(&lab, &["task", "add", "job", &job("stay"), "--id", "s", "--follow", "-o", "id"]);
    assert_eq!(follow.line(), "s\n", "it is handed in");
    lab.printed(&["task", "wait", "s", "--for", "running"]);
    lab.printed(&["task", "cancel", "s"]);
    let (code, _, log) = follow.end();
    assert_eq!(code, Some(4), "{log}");
}

#[test]
fn leaving_a_followed_task_leaves_the_task_alone() {
    let lab = Lab::with_runner();
    let mut follow = Reading::start(&lab, &["task", "add", "job", &job("gated"), "--id", "g", "--follow"]);
    follow.line();
    send(Signal::INT, &follow.child);
    let (code, _, log) = follow.end();
    assert_eq!(code, Some(130), "{log}");
    assert!(log.contains("The task goes on: ekiden task logs -f g"), "{log}");
    lab.gate.notify_one();
    assert!(lab.printed(&["task", "wait", "g"]).contains("succeeded"));
}

/// X1: a log is read from any offset.
#[test]
fn logs_are_shown_whole_from_an_offset_and_from_the_end() {
    let lab = Lab::with_runner();
    lab.printed(&["task", "add", "job", &job("write"), "--id", "w", "--follow"]);
    let logs = |arguments: &[&str]| lab.printed(&[&["task", "logs", "w"], arguments].concat());
    assert_eq!(logs(&[]), "line 1\nline 2\nline 3\nline 4\nline 5");
    assert_eq!(logs(&["--offset", "7"]), "line 2\nline 3\nline 4\nline 5");
    assert_eq!(logs(&["--tail", "2"]), "line 4\nline 5");
    assert_eq!(logs(&["--tail", "99"]), logs(&[]));
    assert_eq!(logs(&["--tail", "0"]), "");
    assert_eq!(logs(&["--attempt", "1", "--tail", "1"]), "line 5");
    assert_eq!(logs(&["-f", "--tail", "1"]), "line 5", "what has ended is not waited for");
    let (code, said) = lab.ended(&["task", "logs", "w", "--attempt", "2"]);
    assert!(code == Some(1) && said.contains("LOG_NOT_FOUND"), "{said}");

    let mut follow = Reading::start(&lab, &["task", "add", "job", &job("gated"), "--id", "g", "--follow"]);
    follow.line();
    let mut logs = Reading::start(&lab, &["task", "logs", "g", "-f"]);
    assert_eq!(logs.line(), "before\n");
    lab.gate.notify_one();
    assert_eq!(logs.end().1, "after\n");
    follow.end();
}

#[test]
fn a_log_of_a_store_without_a_server_is_read_from_its_folder() {
    let mut lab = Lab::with_runner();
    lab.printed(&["task", "add", "job", &job("write"), "--id", "w", "--follow"]);
    lab.stop_server();
    let direct = ekiden(&["task", "logs", "w", "--tail", "1", "--url", &local(lab.folder.path())]);
    assert_eq!(text(&direct.stdout), "line 5\n", "{}", text(&direct.stderr));
}

#[test]
fn waiting_ends_with_the_code_of_the_first_that_did_not_succeed() {
    let lab = Lab::with_runner();
    for (id, does) in [("a", "succeed"), ("b", "die"), ("c", "stay")] {
        lab.printed(&["task", "add", "job", &job(does), "--id", id]);
    }
    assert_eq!(lab.ended(&["task", "wait", "a"]).0, Some(0));
    assert_eq!(lab.ended(&["task", "wait", "a", "b"]).0, Some(1));
    assert_eq!(lab.ended(&["task", "wait", "b", "--for", "dead"]).0, Some(0));
    assert_eq!(lab.ended(&["task", "wait", "a", "--for", "dead"]).0, Some(1), "it succeeded, which was not waited for");
    let (code, said) = lab.ended(&["task", "wait", "c", "a", "--timeout", "50ms"]);
    assert!(code == Some(5) && said.contains("The time is over."), "{said}");
    assert_eq!(said.lines().count(), 3, "each is shown as it is: {said}");
    lab.printed(&["task", "cancel", "c"]);
    assert_eq!(lab.ended(&["task", "wait", "a", "c", "b"]).0, Some(4));
    assert_eq!(lab.ended(&["task", "wait", "nobody"]).0, Some(1));
}

/// X4: the command line shows the question and gives the answer.
#[test]
fn a_question_is_shown_with_the_command_that_answers_it() {
    let lab = Lab::with_runner();
    lab.printed(&["task", "add", "job", &job("ask"), "--id", "q"]);
    lab.printed(&["task", "wait", "q", "--for", "needs_input"]);
    let shown = lab.printed(&["task", "get", "q"]);
    for line in ["question\tShip it?", "question_id\tship", "choices\tyes | no, wait"] {
        assert!(shown.contains(line), "{line:?} in\n{shown}");
    }
    let how = shown.lines().find_map(|line| line.strip_prefix("answer_with\tekiden ")).unwrap();
    assert_eq!(how, "task answer q yes");
    assert!(lab.printed(&["task", "explain", "q"]).contains("NEEDS_INPUT"));
    let (code, said) = lab.ended(&["task", "answer", "q", "yes", "--question", "another"]);
    assert!(code == Some(1) && said.contains("QUESTION_CLOSED"), "{said}");
    lab.printed(&how.split(' ').collect::<Vec<_>>());
    assert_eq!(lab.ended(&["task", "wait", "q"]).0, Some(0));
    assert!(lab.printed(&["task", "get", "q"]).contains("result\t\"yes\""));
    let (code, said) = lab.ended(&["task", "answer", "q", "again"]);
    assert!(code == Some(1) && said.contains("TASK_NOT_ASKING"), "{said}");
}

#[test]
fn a_command_on_many_tasks_shows_asks_and_refuses_when_nobody_can_say_yes() {
    let lab = Lab::new();
    for id in ["a", "b", "c"] {
        lab.printed(&["task", "add", "x", "--pool", "mail", "--id", id]);
    }
    lab.printed(&["task", "add", "x", "--pool", "other", "--id", "d"]);
    let queued = || lab.printed(&["task", "list", "--state", "queued", "-o", "id"]);

    let dry = lab.run(&["task", "cancel", "--pool", "mail", "--dry-run", "-o", "id"]);
    assert_eq!(text(&dry.stdout), "c\nb\na\n");
    assert_eq!(text(&dry.stderr), "Would cancel 3 tasks. Nothing was done.\n");
    let (code, said) = lab.ended(&["task", "cancel", "--pool", "mail"]);
    assert!(code == Some(2) && said.contains("CONFIRMATION_MISSING"), "{said}");
    assert_eq!(queued(), "d\nc\nb\na");

    let mut no = Terminal::attended(lab.command(&["task", "cancel", "--pool", "mail"]), 80);
    no.wait_for("Cancel 3 tasks? [y/N] ");
    no.type_in("\n");
    assert_eq!(no.wait().code(), Some(1));
    assert_eq!(queued(), "d\nc\nb\na");
    let mut yes = Terminal::attended(lab.command(&["task", "cancel", "--pool", "mail"]), 80);
    yes.wait_for("[y/N] ");
    yes.type_in("y\n");
    assert_eq!(yes.wait().code(), Some(0), "{}", yes.written);
    assert!(yes.written.contains("Cancelled 3 tasks."), "{}", yes.written);
    assert_eq!(queued(), "d");
    assert_eq!(lab.ended(&["task", "cancel", "--all", "--yes"]).0, Some(0));
    assert_eq!(queued(), "");
    assert_eq!(lab.ended(&["task", "cancel"]).0, Some(2), "nothing named is not everything");
    assert_eq!(lab.ended(&["task", "cancel", "a", "--pool", "mail"]).0, Some(2), "either names or filters");
}

#[test]
fn the_dead_are_retried_together_and_the_others_are_left_alone() {
    let lab = Lab::with_runner();
    for (id, does) in [("a", "die"), ("b", "die"), ("c", "succeed")] {
        lab.printed(&["task", "add", "job", &job(does), "--id", id]);
    }
    assert_eq!(lab.ended(&["task", "wait", "a", "b", "c"]).0, Some(1));
    let swept = lab.printed(&["task", "retry", "--all", "--yes", "-o", "json"]);
    let swept: serde_json::Value = serde_json::from_str(&swept).unwrap();
    assert_eq!(swept, serde_json::json!({ "action": "retry", "matched": 2, "more": false }));
    let again = lab.printed(&["task", "list", "-o", "id"]);
    assert_eq!(again.lines().count(), 5, "two of the three run again, as new tasks:\n{again}");
}

#[test]
fn many_tasks_are_cancelled_where_no_server_has_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let url = local(folder.path());
    let run = |arguments: &[&str]| command(arguments).env("EKIDEN_URL", &url).output().unwrap();
    for _ in 0..30 {
        assert!(run(&["task", "add", "x"]).status.success());
    }
    let cancelled = run(&["task", "cancel", "--all", "--yes"]);
    assert_eq!(text(&cancelled.stderr), "Cancelled 30 tasks.\n");
    assert!(text(&run(&["counts"]).stdout).contains("cancelled\t30\n"));
}

#[test]
fn nobody_waits_for_what_nobody_can_do() {
    let folder = tempfile::tempdir().unwrap();
    let url = local(folder.path());
    let run = |arguments: &[&str]| {
        let output = command(arguments).env("EKIDEN_URL", &url).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(run(&["task", "add", "x", "--id", "a"]).0, Some(0));
    for arguments in [
        &["task", "add", "x", "--id", "b", "--follow"][..],
        &["task", "wait", "a"],
        &["task", "logs", "a", "-f"],
        &["task", "watch"],
    ] {
        let (code, said) = run(arguments);
        assert!(code == Some(1) && said.contains("STORE_NOT_SERVED"), "{arguments:?}: {said}");
    }
    assert!(run(&["task", "get", "b"]).1.contains("TASK_NOT_FOUND"), "what cannot be followed is not handed in");
    assert_eq!(run(&["task", "cancel", "a"]).0, Some(0));
    assert_eq!(run(&["task", "wait", "a"]).0, Some(4), "what has ended needs no waiting");
}

#[test]
fn what_changes_is_told_line_by_line_where_nobody_looks() {
    let lab = Lab::new();
    lab.printed(&["task", "add", "x", "--hold", "--id", "a"]);
    let mut watch = Reading::start(&lab, &["task", "watch", "a"]);
    let cells = |line: String| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(cells(watch.line())[1..7], ["a", "pending", "0", "enqueued", "x", "default"]);
    lab.printed(&["task", "release", "a"]);
    assert_eq!(cells(watch.line())[1..5], ["a", "queued", "0", "released"]);
    lab.printed(&["task", "cancel", "a"]);
    assert_eq!(cells(watch.line())[1..5], ["a", "cancelled", "0", "cancel_requested"]);
    assert_eq!(watch.end().0, Some(4), "it ends with the task");

    lab.printed(&["task", "add", "x", "--hold", "--pool", "mail", "--id", "m0"]);
    let mut all = Reading::start(&lab, &["task", "watch", "--pool", "mail", "--since", "1h", "-o", "jsonl"]);
    let json = |line: String| serde_json::from_str::<serde_json::Value>(&line).unwrap();
    assert_eq!(json(all.line())["id"], "m0", "what came within the hour is told first");
    lab.printed(&["task", "add", "x", "--hold", "--pool", "other"]);
    lab.printed(&["task", "add", "x", "--hold", "--pool", "mail", "--id", "m1"]);
    let heard = json(all.line());
    assert_eq!((heard["id"].as_str(), heard["event"].as_str()), (Some("m1"), Some("enqueued")), "{heard}");
    send(Signal::INT, &all.child);
    assert_eq!(all.end().0, Some(130));
}

#[test]
fn on_a_terminal_what_is_watched_is_a_table_that_changes() {
    let lab = Lab::new();
    lab.printed(&["task", "add", "x", "--hold", "--id", "held-one"]);
    let mut watch = Terminal::run(lab.command(&["task", "watch"]), 100);
    watch.wait_for("held-one");
    lab.printed(&["task", "add", "x", "--hold", "--id", "襷"]);
    watch.wait_for("襷");
    lab.printed(&["task", "cancel", "held-one"]);
    watch.wait_for("cancelled");
    send(Signal::INT, &watch.child);
    assert_eq!(watch.wait().code(), Some(130));
    let screen = watch.screen();
    let rows: Vec<&String> = screen.iter().filter(|line| line.contains("held-one") || line.contains('襷')).collect();
    assert_eq!(rows.len(), 2, "one row a task:\n{}", screen.join("\n"));
    assert!(watch.written.ends_with("\x1b[?25h") || watch.written.contains("\x1b[?25h"), "the cursor is back");
}

#[test]
fn tasks_are_listed_by_what_they_are_and_when_they_came() {
    let lab = Lab::new();
    lab.printed(&["task", "add", "x", "--id", "a", "--group", "g"]);
    lab.printed(&["task", "add", "y", "--id", "b", "--session", "s", "--title", "日本語の題"]);
    let listed = |arguments: &[&str]| lab.printed(&[&["task", "list", "-o", "id"], arguments].concat());
    assert_eq!(listed(&[]), "b\na");
    assert_eq!(listed(&["--type", "y"]), "b");
    assert_eq!(listed(&["--group", "g"]), "a");
    assert_eq!(listed(&["--session", "s"]), "b");
    assert_eq!(listed(&["--text", "日本"]), "b");
    assert_eq!(listed(&["--since", "1h"]), "b\na");
    assert_eq!(listed(&["--since", "1ms"]), "");
    assert_eq!(listed(&["--limit", "1"]), "b");
}

#[test]
fn a_terminal_gets_an_aligned_table_and_a_pipe_gets_tabs_without_colour() {
    let lab = Lab::new();
    lab.printed(&["task", "add", "襷を渡す", "--id", "襷", "--title", "日本語"]);
    lab.printed(&["task", "add", "x", "--id", "plain", "--title", &"long ".repeat(40)]);
    let mut terminal = Terminal::run(lab.command(&["task", "list", "--lang", "ja"]), 100);
    assert_eq!(terminal.wait().code(), Some(0));
    let wide = |text: &str| text.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum::<usize>();
    let screen = terminal.screen();
    let at: Vec<usize> = screen.iter().filter_map(|line| Some(wide(line.split_once("0/5")?.0))).collect();
    assert!(at.len() == 2 && at[0] == at[1], "{}", screen.join("\n"));
    assert!(screen.iter().all(|line| wide(line) <= 100), "{}", screen.join("\n"));
    assert_eq!(screen.iter().filter(|line| !line.is_empty()).count(), 3, "one line a task:\n{}", screen.join("\n"));
    assert!(terminal.written.contains("\x1b[38;5;8m待機中"), "states have colours: {:?}", terminal.written);
    let piped = lab.run(&["task", "list"]);
    assert!(!piped.stdout.contains(&0x1b) && text(&piped.stdout).contains("plain\tx\tqueued\t0/5\tdefault\t"));
    let mut plain = lab.command(&["task", "list"]);
    plain.env("NO_COLOR", "1");
    let mut terminal = Terminal::run(plain, 100);
    terminal.wait();
    assert!(!terminal.written.contains('\x1b'), "{}", terminal.written);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_fault() {
    let lab = Lab::new();
    for number in 0..20 {
        lab.printed(&["task", "add", "x", "--id", &format!("t{number}")]);
    }
    for arguments in [
        &["task", "list"][..],
        &["status"],
        &["openapi"],
        &["completions", "bash"],
        &["help", "task", "add"],
        &["task", "get", "t1"],
    ] {
        let mut child = lab.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn typos_are_answered_with_the_right_word() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = command(arguments).current_dir(folder.path()).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    for (arguments, meant) in [
        (&["task", "lst"][..], "'list'"),
        (&["task", "list", "--state", "runing"], "'running'"),
        (&["task", "list", "--stat", "dead"], "'--state'"),
        (&["pool", "set", "p", "--atempts", "3"], "'--attempts'"),
        (&["help", "exit-code"], "did you mean exit-codes?"),
        (&["help", "task", "ad"], "did you mean add?"),
    ] {
        let (code, said) = run(arguments);
        assert!(code == Some(2) && said.contains(meant), "{arguments:?}: {said}");
    }
    std::fs::write(folder.path().join("ekiden.toml"), "nammespace = \"x\"").unwrap();
    let (code, said) = run(&["task", "list"]);
    assert!(code == Some(2) && said.contains("did you mean namespace?"), "{said}");
    std::fs::write(folder.path().join("ekiden.toml"), "lang = \"ja\"").unwrap();
    let (code, said) = run(&["task", "list", "--stat", "dead"]);
    assert!(code == Some(2) && said.contains("'--state' のことですか？"), "and that of typos: {said}");
    let (_, said) = run(&["task", "list"]);
    assert!(said.contains("STORE_NOT_FOUND") && said.contains("ストア"), "the file chooses the language: {said}");
}

#[test]
fn every_shell_has_completions_and_every_command_a_manual_page() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = ekiden(&["completions", shell]);
        assert!(output.status.success() && text(&output.stdout).contains("ekiden"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man");
    assert!(ekiden(&["man", pages.to_str().unwrap()]).status.success());
    for page in ["ekiden.1", "ekiden-task.1", "ekiden-task-add.1", "ekiden-pool-set.1"] {
        let page = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(page.contains(".SH NAME"), "{page}");
    }
}

#[test]
fn the_description_of_the_api_is_the_one_that_is_checked_in() {
    let checked_in = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/openapi.json");
    let is_same = text(&ekiden(&["openapi"]).stdout) == std::fs::read_to_string(checked_in).unwrap();
    assert!(is_same, "`EKIDEN_BLESS=1 cargo test -p ekiden-server --test openapi` draws it anew");
}
