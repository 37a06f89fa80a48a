//! `ekiden work` and `ekiden run`, as people use them: real processes, a real folder, a real server.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod running;

use std::cell::RefCell;
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use ekiden_testkit::rig::{self, Missing, trees};
use running::{Running, command, text};
use rustix::process::Signal;

/// A folder with a local store.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn url(&self) -> String {
        format!("local:{}", self.path().join("data").display())
    }

    fn run(&self, arguments: &[&str]) -> Output {
        command(arguments).env("EKIDEN_URL", self.url()).current_dir(self.path()).output().unwrap()
    }

    fn printed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout).trim_end().to_owned()
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let url = self.url();
        let mut all = vec!["--url", &url];
        all.extend(arguments);
        Running::start_in(self.path(), &all)
    }

    /// A server of this place, by which other commands reach it.
    fn serve(&self) -> Running {
        let mut server = self.start(&["serve", "--listen", "127.0.0.1:0"]);
        server.wait_for("stop:");
        server
    }

    fn task(&self, id: &str) -> serde_json::Value {
        serde_json::from_str(&self.printed(&["task", "get", id, "-o", "json"])).unwrap()
    }

    fn until(&self, id: &str, state: &str) -> serde_json::Value {
        let found = trees::until(Duration::from_secs(60), || self.task(id)["state"] == state);
        let task = self.task(id);
        assert!(found.is_some(), "it is not {state}: {task}");
        task
    }
}

fn end(running: Running) -> String {
    running::send(Signal::INT, &running.child);
    let (status, log, _) = running.end();
    assert!(status.success(), "{log}");
    log
}

/// X1: any command works for a server, found by the data folder; its log lines tell what began and ended.
#[test]
fn work_runs_a_command_for_the_tasks_of_a_server() {
    let place = Place::new();
    let server = place.serve();
    let mut worker = place.start(&["work", "--pool", "agents", "--exec", "tee /dev/stderr"]);
    worker.wait_for("Working for agents");
    let id = place.printed(&["task", "add", "command", r#"{"n":1}"#, "--pool", "agents"]);
    let task = place.until(&id, "succeeded");
    assert_eq!(task["attempts"], 1, "{task}");
    worker.wait_for("command ended");
    let log = end(worker);
    assert!(log.contains("command started") && log.contains(&id), "{log}");
    assert!(log.contains("Stopped. 1 settled"), "{log}");
    end(server);
}

/// The library that shows a program another time.
fn faketime() -> Result<PathBuf, Missing> {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    libraries.find(|library| library.exists()).ok_or_else(|| Missing {
        what: "libfaketimeMT.so.1 is not below /usr/lib".to_owned(),
        todo: "run `apt-get install faketime`",
    })
}

/// R22: the clock of a server's machine is set back by a day. The server says so, and a delay ends when its time has passed.
#[test]
fn a_delay_ends_in_time_when_the_machines_clock_goes_back_a_day() {
    let Some(library) = rig::provide(faketime()) else { return };
    let place = Place::new();
    let shift = place.path().join("shift");
    std::fs::write(&shift, "-0d").unwrap();
    let mut server = command(&["--url", &place.url(), "serve", "--listen", "127.0.0.1:0"]);
    server.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", &shift).env("FAKETIME_NO_CACHE", "1");
    // As when a real clock is set: the monotonic clock goes on.
    let mut server = Running::spawn(server.env("DONT_FAKE_MONOTONIC", "1"));
    server.wait_for("stop:");
    let worker = place.start(&["work", "--exec", "true"]);
    let id = place.printed(&["task", "add", "command", "--delay", "3s"]);
    let next = place.path().join("next");
    std::fs::write(&next, "-1d").unwrap();
    std::fs::rename(&next, &shift).unwrap();
    server.wait_for("clock_jumped");
    let why = place.printed(&["task", "explain", &id, "-o", "id"]);
    assert!(why.contains("CLOCK_SET_BACK") || place.task(&id)["state"] != "queued", "{why}");
    let task = place.until(&id, "succeeded");
    assert_eq!(task["attempts"], 1, "{task}");
    end(worker);
    end(server);
}

/// X1: handlers stand in a table; without a server the store is opened here. Ctrl-C twice hands back what runs.
#[test]
fn work_takes_handlers_from_a_table_and_hands_back_on_ctrl_c() {
    let place = Place::new();
    let table =
        "[handlers.quick]\nshell = 'printf 42 > \"$EKIDEN_RESULT\"'\n[handlers.slow]\ncommand = [\"sleep\", \"600\"]\n";
    std::fs::write(place.path().join("ekiden.toml"), table).unwrap();
    let quick = place.printed(&["task", "add", "quick"]);
    let slow = place.printed(&["task", "add", "slow"]);
    let mut worker = place.start(&["work"]);
    worker.wait_for("command ended");
    while worker.seen.matches("command started").count() < 2 {
        worker.wait_for_more();
    }
    running::send(Signal::INT, &worker.child);
    worker.wait_for("Stopping:");
    running::send(Signal::INT, &worker.child);
    worker.wait_for("Handed back unfinished");
    let (status, log, _) = worker.end();
    assert!(status.success() && log.contains(&slow), "{log}");
    let (quick, slow) = (place.task(&quick), place.task(&slow));
    assert_eq!((quick["state"].as_str(), &quick["result"]), (Some("succeeded"), &serde_json::json!(42)), "{quick}");
    assert_eq!((slow["state"].as_str(), &slow["attempts"]), (Some("queued"), &serde_json::json!(0)), "{slow}");
}

/// A worker without a command says what is missing.
#[test]
fn work_without_a_command_is_told() {
    let place = Place::new();
    let output = place.run(&["work"]);
    let error = text(&output.stderr);
    assert!(!output.status.success() && error.contains("CONFIG_INVALID") && error.contains("--exec"), "{error}");
    let error = text(&place.run(&["work", "--grace", "5s"]).stderr);
    assert!(error.contains("for --exec"), "{error}");
    std::fs::write(place.path().join("ekiden.toml"), "[handlers.x]\ncomand = [\"a\"]").unwrap();
    let error = text(&place.run(&["work"]).stderr);
    assert!(error.contains("comand"), "{error}");
}

/// X1, X2: output streams through, and so does the exit code; the task is kept.
#[test]
fn run_is_the_command_and_a_task() {
    let place = Place::new();
    for (line, code) in [
        ("echo out; echo err >&2; exit 7", 7),
        ("echo out; echo err >&2", 0),
        ("echo out; echo err >&2; kill -9 $$", 137),
    ] {
        let output = place.run(&["run", "--", "sh", "-c", line]);
        assert_eq!(output.status.code(), Some(code), "{line}: {}", text(&output.stderr));
        assert_eq!((text(&output.stdout), text(&output.stderr)), ("out\n".to_owned(), "err\n".to_owned()), "{line}");
    }
    let tasks = place.printed(&["task", "list", "-o", "jsonl"]);
    let states: Vec<String> = tasks
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["state"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(states, ["dead", "succeeded", "dead"]);
    let output = place.run(&["run", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(127), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("/no/such/program"), "{}", text(&output.stderr));
    let output = place.run(&["run", "--timeout", "100ms", "--", "sleep", "600"]);
    assert_eq!(output.status.code(), Some(124), "{}", text(&output.stderr));
    assert!(text(&output.stderr).starts_with("ekiden: the time is over; task "), "{}", text(&output.stderr));
}

/// X4: a one-off that asks is parked like any task, and goes on where it is told to when it was answered.
#[test]
fn run_goes_on_with_what_was_answered() {
    let place = Place::new();
    let line = r#"[ -n "$EKIDEN_ANSWER" ] || { echo '{"type":"question","text":"Go?","choices":["yes"]}' > "$EKIDEN_EVENTS"
        exit 3; }; echo "said $EKIDEN_ANSWER"; exit 9"#;
    let asked = place.run(&["run", "--", "sh", "-c", line]);
    let said = text(&asked.stderr);
    assert_eq!(asked.status.code(), Some(3), "{said}");
    let step = |start: &str| {
        let line = said.lines().find_map(|line| line.trim().strip_prefix(start)).expect(start);
        line.split(' ').map(str::to_owned).collect::<Vec<_>>()
    };
    let (answer, resume) = (step("ekiden task "), step("ekiden run "));
    let words = |first: &[&str], rest: &[String]| {
        let all: Vec<&str> = first.iter().copied().chain(rest.iter().map(String::as_str)).collect();
        place.run(&all)
    };
    assert_eq!(words(&["run"], &resume).status.code(), Some(3), "it still asks");
    assert!(words(&["task"], &answer).status.success());
    let ended = words(&["run"], &resume);
    assert_eq!((ended.status.code(), text(&ended.stdout).as_str()), (Some(9), "said yes\n"), "{}", text(&ended.stderr));
    let over = words(&["run"], &resume);
    assert!(over.status.code() == Some(1) && text(&over.stderr).contains("TASK_FINAL"), "{}", text(&over.stderr));
}

/// X5: Ctrl-C cancels the task and kills all of it.
#[test]
fn ctrl_c_cancels_what_run_runs() {
    let place = Place::new();
    let mut run = place.start(&["run", "--", "sh", "-c", "setsid sleep 600 & echo begun >&2; sleep 601"]);
    run.wait_for("begun");
    running::send(Signal::INT, &run.child);
    let (status, log, _) = run.end();
    assert_eq!(status.code(), Some(130), "{log}");
    let id = place.printed(&["task", "list", "-o", "id"]);
    assert_eq!(place.task(&id)["state"], "cancelled");
    assert_eq!(trees::living(&format!("EKIDEN_TASK_ID={id}")), Vec::<i32>::new());
}

fn example(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(path);
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// X1, X3: the example in shell.
#[test]
fn the_worker_in_shell_counts_words() {
    let place = Place::new();
    let server = place.serve();
    let script = example("shell/worker.sh");
    let mut worker = place.start(&["work", "--pool", "words", "--kind", "count", "--exec", &script]);
    worker.wait_for("Working for words");
    let id = place.printed(&["task", "add", "count", r#"{"text":"to be or not to be"}"#, "--pool", "words"]);
    let bad = place.printed(&["task", "add", "count", "{}", "--pool", "words"]);
    assert_eq!(place.until(&id, "succeeded")["result"], serde_json::json!({"words": 6}));
    let dead = place.until(&bad, "dead");
    assert_eq!(
        (&dead["attempts"], dead["reason_code"].as_str()),
        (&serde_json::json!(1), Some("PERMANENT_FAILURE")),
        "{dead}"
    );
    end(worker);
    end(server);
}

/// X3, X4: the example that behaves like an agent asks, waits and goes on.
#[test]
fn the_agent_asks_before_it_deletes() {
    let place = Place::new();
    let mut server = place.serve();
    let script = example("agent/agent.py");
    let mut worker = place.start(&["work", "--pool", "agents", "--kind", "prompt", "--exec", "python3", &script]);
    worker.wait_for("Working for agents");
    let prompt = r#"{"prompt":"tidy up; delete old files; say so"}"#;
    let id = place.printed(&["task", "add", "prompt", prompt, "--pool", "agents"]);
    let task = place.until(&id, "needs_input");
    let question = &task["question"];
    assert_eq!(question["text"], "May I delete old files?", "{task}");
    let at = server.seen.find("http://").unwrap();
    let url = server.seen.split_off(at).split_whitespace().next().unwrap().to_owned();
    answer(&url, &id, question["id"].as_str().unwrap(), "yes");
    let task = place.until(&id, "succeeded");
    assert_eq!(task["result"], serde_json::json!({"done": ["tidy up", "delete old files", "say so"]}), "{task}");
    assert_eq!((&task["attempts"], &task["execution_no"]), (&serde_json::json!(1), &serde_json::json!(2)), "{task}");
    end(worker);
    end(server);
}

/// Answers over the port, as every command does.
fn answer(url: &str, id: &str, question: &str, content: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = ekiden::Ekiden::connect(url, None).await.unwrap().namespace("default").unwrap();
        let (id, question) = (ekiden::core::TaskId::new(id).unwrap(), ekiden::core::QuestionId::new(question).unwrap());
        client.answer(&id, &question, content).await.unwrap();
    });
}

/// A pipe that takes nothing more: 64 KiB are in it, and nobody reads them.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[b'\n'; 64 * 1024]).unwrap();
    (reader, writer)
}

/// A process that is killed when its test has failed.
struct Unread(Child);

impl Unread {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn send(&self, signal: Signal) {
        running::send(signal, &self.0);
    }

    /// Its exit code, and how long it took from here on.
    fn end(self) -> (Option<i32>, Duration) {
        let own = RefCell::new(self);
        let status = || own.borrow_mut().0.try_wait().unwrap();
        let took = trees::until(seconds(15), || status().is_some());
        (status().and_then(|status| status.code()), took.expect("it ends while nobody reads what it says"))
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        // It has ended already if all is well.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// S20: a server and a worker whose stderr nobody reads answer, keep time limits, obey a cancel, and end when they are told to.
#[test]
fn a_log_that_nobody_reads_holds_up_neither_server_nor_worker() {
    let place = Place::new();
    let (reader, writer) = full_pipe();
    let start = |arguments: &[&str]| {
        let mut program = command(&[&["--url", &place.url()], arguments].concat());
        program.env("EKIDEN_LOG_LEVEL", "trace").current_dir(place.path());
        Unread::start(program.stdout(Stdio::null()).stderr(writer.try_clone().unwrap()))
    };
    let server = start(&["serve", "--listen", "127.0.0.1:0"]);
    trees::until(Duration::from_secs(30), || place.path().join("data/endpoint.json").exists()).unwrap();
    let worker = start(&["work", "--concurrency", "4", "--timeout", "3s", "--exec", "sleep 600"]);
    let [late, cancelled] = [(); 2].map(|()| place.printed(&["task", "add", "command", "--attempts", "1"]));
    place.until(&cancelled, "running");
    place.printed(&["task", "cancel", &cancelled]);
    place.until(&cancelled, "cancelled");
    place.until(&late, "dead");
    for running in [worker, server] {
        running.send(Signal::TERM);
        assert_eq!(running.end().0, Some(0));
    }
    drop(reader);
}

/// S20: a time limit ends `ekiden run` also when nobody reads its output, and so does Ctrl-C.
#[test]
fn run_ends_in_time_although_nobody_reads_its_output() {
    let place = Place::new();
    let start = |arguments: &[&str]| {
        let (reader, writer) = full_pipe();
        let mut program = command(&[&["--url", &place.url(), "run"], arguments].concat());
        program.current_dir(place.path()).stdout(writer.try_clone().unwrap()).stderr(writer);
        (Unread::start(&mut program), reader)
    };
    let begun = |name| trees::until(seconds(30), || place.path().join(name).exists()).unwrap();
    let (run, _unread) = start(&["--timeout", "2s", "--", "yes"]);
    let (code, took) = run.end();
    assert!(code == Some(124) && took < seconds(7), "{code:?} after {took:?}");
    let (run, _unread) = start(&["--", "sh", "-c", "touch begun; exec yes"]);
    begun("begun");
    run.send(Signal::INT);
    let (code, took) = run.end();
    assert!(code == Some(130) && took < seconds(5), "{code:?} after {took:?}");
    let deaf = "trap '' INT TERM; touch deaf; while :; do echo deaf; done";
    let (run, _unread) = start(&["--grace", "1m", "--", "sh", "-c", deaf]);
    begun("deaf");
    run.send(Signal::INT);
    run.send(Signal::TERM);
    let (code, took) = run.end();
    assert!(code == Some(130) && took < seconds(2), "{code:?} after {took:?}");
    let ids = place.printed(&["task", "list", "-o", "id"]);
    let are_gone = || ids.lines().all(|id| trees::living(&format!("EKIDEN_TASK_ID={id}")).is_empty());
    assert!(ids.lines().count() == 3 && trees::until(seconds(10), are_gone).is_some(), "{ids}");
}

/// X1: a reader that is late gets everything that a command wrote, which waits for it meanwhile.
#[test]
fn run_loses_nothing_for_a_late_reader() {
    let place = Place::new();
    let run = RefCell::new(place.start(&["run", "--", "sh", "-c", "head -c 600000 /dev/zero; exit 7"]));
    let has_ended = || run.borrow_mut().child.try_wait().unwrap().is_some();
    assert!(trees::until(seconds(2), has_ended).is_none(), "it does not wait for its reader");
    let mut run = run.into_inner();
    let mut read = Vec::new();
    run.child.stdout.take().unwrap().read_to_end(&mut read).unwrap();
    assert_eq!((run.child.wait().unwrap().code(), read.len()), (Some(7), 600_000));
}
