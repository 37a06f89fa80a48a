//! Everything that the command says, written down: the help of every command, and a tour through all of them in both
//! languages, in pipes. What differs from run to run is masked.

use std::fmt::Write as _;

use rustix::process::Signal;

use crate::lab::Lab;
use crate::running::{Running, command, ekiden, send, text};

#[test]
fn help_of_every_command() {
    let all = helps().into_iter().fold(String::new(), |all, (path, help)| {
        let gap = if path.is_empty() { "" } else { " " };
        format!("{all}$ ekiden {path}{gap}--help\n{help}\n")
    });
    insta::assert_snapshot!("help", all);
}

/// Every command, as in `task add`, with its help.
fn helps() -> Vec<(String, String)> {
    let mut helps = Vec::new();
    let mut left = vec![Vec::<String>::new()];
    while let Some(path) = left.pop() {
        let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        arguments.push("--help");
        let output = ekiden(&arguments);
        assert_eq!(output.status.code(), Some(0), "{path:?}: {}", text(&output.stderr));
        let help = text(&output.stdout);
        assert!(!help.contains('\x1b'), "{path:?}");
        left.extend(subcommands(&help).into_iter().rev().map(|name| [path.clone(), vec![name]].concat()));
        helps.push((path.join(" "), help));
    }
    helps
}

/// Commands that are not part of the tour: what they say is a snapshot or a comparison of its own, or has no end.
const ELSEWHERE: [&str; 6] = ["dev", "serve", "completions", "man", "openapi", "help"];

#[test]
fn the_tour_has_every_command() {
    let tours = [
        include_str!("snapshots/usage__transcript__english.snap"),
        include_str!("snapshots/usage__transcript__japanese.snap"),
    ];
    for (path, help) in helps() {
        if !subcommands(&help).is_empty() || ELSEWHERE.contains(&path.as_str()) {
            continue;
        }
        for tour in tours {
            assert!(tour.contains(&format!("\n$ ekiden {path}")), "the tour lacks `ekiden {path}`");
        }
    }
}

/// What stays: a server and a worker, from their greeting to their goodbye.
#[test]
fn what_stays_says_what_it_is_in_both_languages() {
    let mut all = String::new();
    for lang in ["en", "ja"] {
        let folder = tempfile::tempdir().unwrap();
        let url = crate::lab::local(folder.path());
        let start = |arguments: &[&str], ready: &str| {
            let mut running = Running::spawn(command(arguments).env("EKIDEN_LANG", lang).env("EKIDEN_URL", &url));
            running.wait_for(ready);
            running
        };
        let server = start(&["serve", "--listen", "127.0.0.1:0"], "Ctrl-C");
        let worker = start(&["work", "--exec", "true"], "Ctrl-C");
        for (name, running) in [("work --exec true", worker), ("serve", server)] {
            send(Signal::INT, &running.child);
            let (status, said, _) = running.end();
            assert_eq!(status.code(), Some(0), "{said}");
            let said = said.replace(folder.path().to_str().unwrap(), "FOLDER");
            let said = said.lines().map(without_port).collect::<Vec<_>>().join("\n! ");
            writeln!(all, "$ ekiden {name} --lang {lang}\n! {said}\n").unwrap();
        }
    }
    insta::assert_snapshot!("staying", all);
}

/// Servers of tests that run side by side have different ports.
fn without_port(line: &str) -> String {
    let mut parts = line.split("http://127.0.0.1:");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |said, part| {
        format!("{said}http://SERVER{}", part.trim_start_matches(|c: char| c.is_ascii_digit()))
    })
}

/// The commands that a help lists.
fn subcommands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn exit_codes_in_both_languages() {
    let of = |lang: &str| text(&ekiden(&["help", "exit-codes", "--lang", lang]).stdout);
    insta::assert_snapshot!("exit_codes", format!("{}\n{}", of("en"), of("ja")));
}

#[test]
fn the_readmes_have_the_exit_codes_that_are_printed() {
    let printed = text(&ekiden(&["help", "exit-codes"]).stdout);
    for readme in [include_str!("../../../../README.md"), include_str!("../../../../README.ja.md")] {
        assert!(readme.contains(&printed), "{printed}");
    }
}

#[test]
fn a_tour_in_english() {
    insta::assert_snapshot!("english", tour("en"));
}

#[test]
fn a_tour_in_japanese() {
    insta::assert_snapshot!("japanese", tour("ja"));
}

const SUCCEED: &str = r#"{"does":"succeed"}"#;
const DIE: &str = r#"{"does":"die"}"#;
const ASK: &str = r#"{"does":"ask"}"#;
const WRITE: &str = r#"{"does":"write"}"#;

/// Every command once or more, one after another on one server.
fn tour(lang: &str) -> String {
    let lab = Lab::with_runner();
    let mut tour = Tour { lab: &lab, lang, said: String::new() };
    tour.run(&["task", "add", "job", SUCCEED, "--id", "well", "--title", "襷を渡す"]);
    tour.run(&["task", "wait", "well"]);
    tour.run(&["task", "get", "well"]);
    tour.run(&["task", "add", "job", DIE, "--id", "lost", "-o", "json"]);
    tour.run(&["task", "wait", "lost"]);
    tour.run(&["task", "explain", "lost"]);
    tour.run(&["task", "explain", "lost", "-o", "id"]);
    let again = tour.run(&["task", "retry", "lost", "-o", "id"]);
    lab.ended(&["task", "wait", again.trim_end()]);
    tour.run(&["task", "retry", "held-by-nobody", "nobody"]);
    tour.run(&["task", "add", "job", WRITE, "--id", "wrote", "--follow"]);
    tour.run(&["task", "logs", "wrote", "--tail", "2"]);
    // Elsewhere: its runner would be listed below, dead or not yet.
    tour.run(&["run", "-n", "other", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    tour.run(&["work"]);
    tour.run(&["task", "add", "job", ASK, "--id", "asked"]);
    tour.run(&["task", "wait", "asked", "--for", "needs_input", "-o", "id"]);
    tour.run(&["task", "get", "asked"]);
    tour.run(&["task", "answer", "asked", "yes", "--question", "another"]);
    tour.quietly(&["task", "answer", "asked", "yes"]);
    tour.run(&["task", "wait", "asked", "-o", "id"]);
    tour.run(&["task", "add", "other", "--id", "held", "--hold", "--pool", "mail"]);
    tour.run(&["task", "explain", "held"]);
    tour.run(&["task", "watch", "well"]);
    tour.run(&["task", "release", "held"]);
    tour.run(&["task", "list", "--pool", "mail"]);
    tour.run(&["task", "list", "--pool", "mail", "-o", "jsonl"]);
    tour.run(&["task", "cancel", "--pool", "mail", "--dry-run"]);
    tour.run(&["task", "cancel", "--pool", "mail"]);
    tour.run(&["task", "cancel", "--pool", "mail", "--yes"]);
    tour.run(&["task", "cancel", "--pool", "mail", "--yes"]);
    tour.run(&["task", "cancel", "held", "--note", "not needed"]);
    tour.of_settings();
    tour.of_keeping();
    tour.of_refusals();
    tour.said
}

struct Tour<'a> {
    lab: &'a Lab,
    lang: &'a str,
    said: String,
}

impl Tour<'_> {
    fn of_settings(&mut self) {
        self.run(&["pool", "list"]);
        self.run(&["pool", "set", "mail", "--running-max", "3", "--retry", "1s..10m", "--timeout", "2m"]);
        self.run(&["pool", "pause", "mail"]);
        self.run(&["pool", "list"]);
        self.run(&["pool", "resume", "mail", "-o", "json"]);
        self.run(&["pool", "get", "default"]);
        self.run(&["runner", "list"]);
        self.run(&["schedule", "set", "daily", "--cron", "0 9 * * *", "--tz", "Asia/Tokyo", "report", "--paused"]);
        self.run(&["schedule", "list"]);
        self.run(&["schedule", "remove", "daily"]);
        self.run(&["schedule", "remove", "daily"]);
        self.run(&["counts", "--pool", "mail"]);
        self.run(&["counts", "-o", "json"]);
        self.run(&["status"]);
        self.run(&["config", "show", "--origin"]);
    }

    /// On a folder of its own, which no server has.
    fn of_keeping(&mut self) {
        let folder = |name: &str| self.lab.folder.path().join(name).display().to_string();
        let (kept, other) = (format!("local:{}", folder("kept")), format!("local:{}", folder("other")));
        let (lines, copy) = (folder("all.jsonl"), folder("copy"));
        self.run(&["task", "add", "job", "--id", "kept", "--url", &kept]);
        self.run(&["token", "create", "ci", "--scope", "run", "--url", &kept]);
        self.run(&["token", "list", "--url", &kept]);
        self.run(&["token", "revoke", "ci", "--url", &kept]);
        self.run(&["token", "revoke", "ci", "--url", &kept]);
        self.run(&["store", "init", &kept]);
        self.run(&["store", "recount", &kept]);
        self.run(&["store", "check", &kept]);
        self.run(&["store", "export", &kept, &lines]);
        self.run(&["store", "import", &other, &lines]);
        self.run(&["store", "import", &other, &lines]);
        self.run(&["store", "compact", &kept]);
        self.run(&["store", "backup", &kept, &copy]);
        self.run(&["store", "check", "local:./not-there"]);
    }

    fn of_refusals(&mut self) {
        self.run(&["task", "get", "nobody"]);
        self.run(&["task", "add", "job", "{"]);
        self.run(&["task", "add", "job", "--id", "well"]);
        self.run(&["task", "list", "--state", "runing"]);
        self.run(&["task", "lst"]);
        self.run(&["pool", "set", "mail", "--lease", "1ms"]);
        self.run(&["schedule", "set", "daily", "--cron", "soon", "report"]);
        self.run(&["task", "list", "--url", "http://127.0.0.1:1", "--since", "1"]);
        self.run(&["task", "list", "--url", "nowhere:"]);
        self.run(&["task", "list", "--url", "local:./not-there"]);
        self.run(&["help", "exit-code"]);
    }

    /// Runs a command and writes down what it said: its data, the rest, its exit code.
    fn run(&mut self, arguments: &[&str]) -> String {
        let output = self.lab.command(arguments).env("EKIDEN_LANG", self.lang).output().unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        // Who follows sees these or not, as it happens.
        let passing = ["wrote queued", "wrote running", "wrote 待機中", "wrote 実行中"];
        let is_certain = |line: &&str| !passing.iter().any(|start| line.starts_with(start));
        let err: String = err.split_inclusive('\n').filter(is_certain).collect();
        assert!(!out.contains('\x1b') && !err.contains('\x1b'), "no colour in a pipe: {arguments:?}");
        let shown: Vec<String> = arguments.iter().map(|argument| quoted(argument)).collect();
        writeln!(self.said, "$ ekiden {}", self.masked(&shown.join(" "))).unwrap();
        self.said.push_str(&self.masked(&out));
        if !err.is_empty() {
            writeln!(self.said, "! {}", self.masked(&err).trim_end().replace('\n', "\n! ")).unwrap();
        }
        if output.status.code() != Some(0) {
            writeln!(self.said, "= {}", output.status.code().unwrap()).unwrap();
        }
        self.said.push('\n');
        out
    }

    /// The same, where what is said depends on how quick a runner is.
    fn quietly(&mut self, arguments: &[&str]) {
        self.lab.printed(arguments);
        writeln!(self.said, "$ ekiden {}\n…\n", arguments.join(" ")).unwrap();
    }

    fn masked(&self, text: &str) -> String {
        let text = text.replace(&self.lab.url, "http://SERVER");
        let text = text.replace(self.lab.folder.path().to_str().unwrap(), "FOLDER");
        let text = replaced(&text, "dddd-dd-ddTdd:dd:dd.dddZ", "TIME");
        let text = replaced(&text, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", "UUID");
        // `x`, for the `d` of its beginning would be a digit.
        let text = replaced(&text, &format!("ekx_{}", "x".repeat(64)), "SECRET");
        let text = replaced(&text, "dd.dd KiB", "SIZE");
        replaced(&text, "tester.xxxxxxxxxxxxxxxx", "tester.RUNNER")
    }
}

fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:".contains(c);
    if argument.chars().all(plain) { argument.to_owned() } else { format!("'{argument}'") }
}

/// Replaces whatever has this form, where `d` is a digit and `x` a hexadecimal one.
fn replaced(text: &str, form: &str, name: &str) -> String {
    let fits = |c: char, form: char| match form {
        'd' => c.is_ascii_digit(),
        'x' => c.is_ascii_hexdigit(),
        other => c == other,
    };
    let letters: Vec<char> = text.chars().collect();
    let form: Vec<char> = form.chars().collect();
    let (mut out, mut at) = (String::new(), 0);
    while let Some(letter) = letters.get(at) {
        let here = letters.get(at..at + form.len());
        if here.is_some_and(|here| here.iter().zip(&form).all(|(c, form)| fits(*c, *form))) {
            out.push_str(name);
            at += form.len();
        } else {
            out.push(*letter);
            at += 1;
        }
    }
    out
}
