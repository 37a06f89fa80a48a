//! `ekiden work` and `ekiden run`, as people use them: real processes, a real folder, a real server.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod running;

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use ekiden_testkit::rig::trees;
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
