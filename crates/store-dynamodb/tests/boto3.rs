//! A program in Python, with boto3, that follows the document and meets our runners in the same tables, in both directions.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ekiden::core::{Question, QuestionId, RetryPolicy};
use ekiden::{Client, Context, Done, Ekiden, Payload, Runner, Stop, TaskError};
use ekiden_core::time::Millis;
use ekiden_store_dynamodb::{DynamoStore, Options};
use ekiden_testkit::rig::{self, Missing};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use ward::Ward;

/// Half a minute: far longer than anything here takes, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

/// The Python that `cargo xtask setup` installs boto3 for, below `target`.
fn python() -> Result<PathBuf, Missing> {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(3).unwrap().join("boto3/bin/python3");
    if program.exists() {
        return Ok(program);
    }
    let what = format!("{} is not there", program.display());
    Err(Missing { what, todo: "install python3 with its venv, and run `cargo xtask setup`" })
}

/// The foreign program.
struct Foreign {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Foreign {
    fn start(python: &PathBuf, options: &Options) -> Self {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/boto3/foreign_program.py");
        let mut command = Command::new(python);
        command.arg(script).arg(&options.endpoint).arg(&options.table_prefix);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from }
    }

    /// Lets it do something, and gives its answer.
    fn ask(&mut self, request: &Value) -> Value {
        tokio::task::block_in_place(|| {
            writeln!(self.to, "{request}").unwrap();
            let mut line = String::new();
            self.from.read_line(&mut line).unwrap();
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("the foreign program failed at {request}: {line}"))
        })
    }

    fn item(&mut self, id: &str) -> Value {
        self.ask(&json!({ "do": "get", "namespace": "n", "task_id": id }))
    }

    /// Looks until an item has a status.
    async fn sees(&mut self, id: &str, status: &str) -> Value {
        let seen = tokio::time::timeout(LIMIT, async {
            loop {
                let item = self.item(id);
                if item["status"] == status {
                    return item;
                }
                tokio::task::yield_now().await;
            }
        });
        seen.await.unwrap_or_else(|_| panic!("{id} never became {status}"))
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Serialize, Deserialize)]
struct Prompt {
    prompt: String,
}

impl Payload for Prompt {
    const TASK_TYPE: &'static str = "prompt";
}

fn prompt(text: &str) -> Prompt {
    Prompt { prompt: text.to_owned() }
}

/// Our side and theirs, on the same tables.
struct Table {
    client: Client,
    foreign: Foreign,
    _ward: Ward,
}

impl Table {
    async fn open(python: &PathBuf) -> Self {
        let ward = Ward::open().await;
        let options = ward.options();
        let store = DynamoStore::open(options.clone()).await.unwrap();
        let client = Ekiden::builder(Arc::new(store)).build().namespace("n").unwrap();
        Self { client, foreign: Foreign::start(python, &options), _ward: ward }
    }

    fn run<F, Fut>(&self, concurrency: usize, handler: F) -> Running
    where
        F: Fn(Prompt, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Done, TaskError>> + Send + 'static,
    {
        let runner = Runner::builder(&self.client).handler(handler).concurrency(concurrency);
        let runner = runner.poll(Duration::from_millis(50)).build().unwrap();
        Running {
            stop: runner.stop(),
            ended: tokio::spawn(async move { drop(runner.run_until_stopped().await.unwrap()) }),
        }
    }
}

struct Running {
    stop: Stop,
    ended: JoinHandle<()>,
}

impl Running {
    async fn end(self) {
        self.stop.gently();
        tokio::time::timeout(LIMIT, self.ended).await.unwrap().unwrap();
    }
}

/// Q3, Q6, Q14: an item of theirs is adopted, run and finished by our runner, and reads as documented at every moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_boto3_item_is_adopted_run_and_finished() {
    let Some(python) = rig::provide(python()) else { return };
    let mut table = Table::open(&python).await;
    table.foreign.ask(&json!({ "do": "put", "namespace": "n", "ids": ["theirs"] }));
    let (begun, mut begins) = mpsc::unbounded_channel();
    let (tell, go_on) = tokio::sync::watch::channel(false);
    let runner = table.run(1, move |prompt, _| {
        let (begun, mut go_on) = (begun.clone(), go_on.clone());
        async move {
            begun.send(prompt.prompt).unwrap();
            let _ = go_on.wait_for(|go_on| *go_on).await;
            Ok(Done::Succeeded(None))
        }
    });
    let text = tokio::time::timeout(LIMIT, begins.recv()).await.unwrap().unwrap();
    assert_eq!(text, "prompt of theirs");
    let running = table.foreign.item("theirs");
    assert_eq!(running["status"], "RUNNING");
    assert!(running["claimed_by"].is_string(), "{running}");
    tell.send_replace(true);
    let complete = table.foreign.sees("theirs", "COMPLETE").await;
    assert!(complete["claimed_by"].is_null() && complete["error_message"].is_null(), "{complete}");
    assert_eq!((&complete["prompt"], &complete["task_group_id"]), (&json!("prompt of theirs"), &json!("their-group")));
    runner.end().await;
}

/// Q5, Q6, Q12: a thousand tasks, half of them ours and half theirs, contended by runners of both: each is run once, by one of
/// us, and what other namespaces have is left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_contended_tasks_run_once_each() {
    let Some(python) = rig::provide(python()) else { return };
    let mut table = Table::open(&python).await;
    let theirs: Vec<String> = (0..500).map(|number| format!("theirs-{number:03}")).collect();
    table.foreign.ask(&json!({ "do": "put", "namespace": "elsewhere", "ids": ["not-mine"] }));
    table.foreign.ask(&json!({ "do": "put", "namespace": "n", "ids": theirs }));
    let mut all: BTreeSet<String> = theirs.into_iter().collect();
    for number in 0..500 {
        let task = table.client.enqueue(prompt("ours")).id(format!("ours-{number:03}")).await.unwrap();
        all.insert(task.id.to_string());
    }
    let ran = Arc::new(Mutex::new(Vec::new()));
    let noted = ran.clone();
    let runner = table.run(8, move |_, context| {
        noted.lock().unwrap().push(context.task().id.to_string());
        async { Ok(Done::Succeeded(None)) }
    });
    let by_them = table.foreign.ask(&json!({ "do": "work", "namespace": "n" }));
    let by_them: Vec<String> = serde_json::from_value(by_them).unwrap();
    let ended = tokio::time::timeout(LIMIT, async {
        while table.foreign.ask(&json!({ "do": "statuses", "namespace": "n" })) != json!({ "COMPLETE": 1_000 }) {
            tokio::task::yield_now().await;
        }
    });
    assert!(ended.await.is_ok(), "{:#}", table.foreign.ask(&json!({ "do": "unfinished", "namespace": "n" })));
    runner.end().await;
    let by_us = ran.lock().unwrap().clone();
    assert!(by_us.len() >= 50 && by_them.len() >= 50, "both had a share: {} and {}", by_us.len(), by_them.len());
    let together: BTreeSet<String> = by_us.iter().chain(&by_them).cloned().collect();
    assert_eq!(by_us.len() + by_them.len(), 1_000, "no task ran twice");
    assert_eq!(together, all, "and none was left out");
    assert_eq!(table.foreign.ask(&json!({ "do": "statuses", "namespace": "elsewhere" })), json!({ "QUEUED": 1 }));
}

/// Q4, Q5: a task of ours that may not run now is not claimable: delayed, held, blocked, behind its lane, between two attempts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_run_now_cannot_be_claimed_by_boto3() {
    let Some(python) = rig::provide(python()) else { return };
    let mut table = Table::open(&python).await;
    let hour = Duration::from_secs(3_600);
    let first = table.client.enqueue(prompt("fails")).id("retrying").max_attempts(3);
    first.retry(RetryPolicy::Fixed { delay: Millis::from_secs(3_600) }).await.unwrap();
    let (ended, mut ends) = mpsc::unbounded_channel();
    let runner = table.run(1, move |_, _| {
        ended.send(()).unwrap();
        async { Err(TaskError::retryable("not this time")) }
    });
    tokio::time::timeout(LIMIT, ends.recv()).await.unwrap().unwrap();
    runner.end().await;
    let head = table.client.enqueue(prompt("head")).id("head").serial_key("k").delay(hour).await.unwrap();
    table.client.enqueue(prompt("later")).id("delayed").delay(hour).await.unwrap();
    table.client.enqueue(prompt("held")).id("held").held().await.unwrap();
    table.client.enqueue(prompt("child")).id("blocked").depends_on([&head.id]).await.unwrap();
    table.client.enqueue(prompt("second")).id("behind").serial_key("k").await.unwrap();
    assert_eq!(table.foreign.ask(&json!({ "do": "hunt", "namespace": "n" })), json!([]));
    for (id, status) in [("retrying", "RUNNING"), ("delayed", "HELD"), ("held", "HELD"), ("blocked", "HELD")] {
        assert_eq!(table.foreign.item(id)["status"], status, "{id}");
    }
    assert_eq!(table.foreign.item("behind")["status"], "HELD");
    table.client.enqueue(prompt("now")).id("now").await.unwrap();
    assert_eq!(table.foreign.ask(&json!({ "do": "hunt", "namespace": "n" })), json!(["now"]), "what may run can be");
}

/// Q6, Q11: a cancel of theirs stops what we run, and a task of ours that they took is theirs to the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_boto3_cancel_stops_our_handler() {
    let Some(python) = rig::provide(python()) else { return };
    let mut table = Table::open(&python).await;
    table.client.enqueue(prompt("taken")).id("taken").await.unwrap();
    let claim = json!({ "do": "set", "namespace": "n", "task_id": "taken", "before": "QUEUED", "after": "RUNNING",
                        "claimed_by": "their-runner" });
    assert_eq!(table.foreign.ask(&claim), true);
    table.client.enqueue(prompt("hangs")).id("hangs").await.unwrap();
    let (told, mut tells) = mpsc::unbounded_channel();
    let runner = table.run(2, move |_, context| {
        let told = told.clone();
        async move {
            told.send(format!("{} began", context.task().id)).unwrap();
            context.cancelled().await;
            told.send(format!("{} stopped", context.task().id)).unwrap();
            Err(TaskError::retryable("cancelled"))
        }
    });
    let mut next = async || tokio::time::timeout(LIMIT, tells.recv()).await.unwrap().unwrap();
    assert_eq!(next().await, "hangs began");
    let cancel =
        json!({ "do": "set", "namespace": "n", "task_id": "hangs", "before": "RUNNING", "after": "CANCELLED" });
    assert_eq!(table.foreign.ask(&cancel), true);
    assert_eq!(next().await, "hangs stopped", "and the taken one never began here");
    runner.end().await;
    assert_eq!(table.foreign.item("hangs")["status"], "CANCELLED");
    let taken = table.foreign.item("taken");
    assert_eq!((&taken["status"], &taken["claimed_by"]), (&json!("RUNNING"), &json!("their-runner")));
}

/// Q5: our question is AWAITING_RESPONSE to them, their answer resumes our task, and reaches its handler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_boto3_answer_reaches_our_handler() {
    let Some(python) = rig::provide(python()) else { return };
    let mut table = Table::open(&python).await;
    table.client.enqueue(prompt("ask")).id("asks").await.unwrap();
    let (told, mut tells) = mpsc::unbounded_channel();
    let runner = table.run(1, move |_, context| {
        let told = told.clone();
        async move {
            let Some(answer) = context.answer() else {
                let id = QuestionId::new("q-1").unwrap();
                let text = Arc::from("which one?");
                let question = Question { id, text, choices: Vec::new(), deadline: None, default: None };
                return Ok(Done::Asked(Box::new(question)));
            };
            told.send(answer.content.to_string()).unwrap();
            Ok(Done::Succeeded(None))
        }
    });
    let asked = table.foreign.sees("asks", "AWAITING_RESPONSE").await;
    assert_eq!(asked["clarification"], "which one?");
    let answer = json!({ "do": "answer", "namespace": "n", "task_id": "asks", "text": "the blue one" });
    assert_eq!(table.foreign.ask(&answer), true);
    assert_eq!(tokio::time::timeout(LIMIT, tells.recv()).await.unwrap().unwrap(), "the blue one");
    table.foreign.sees("asks", "COMPLETE").await;
    runner.end().await;
}

/// Q2, Q9: our runner is in their table of runners, alive while it runs and stopped after a clean exit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boto3_reads_our_runners() {
    let Some(python) = rig::provide(python()) else { return };
    let mut table = Table::open(&python).await;
    let runner = table.run(1, |_, _| async { Ok(Done::Succeeded(None)) });
    let read = json!({ "do": "runners", "namespace": "n" });
    let mut found = json!([]);
    let appears = tokio::time::timeout(LIMIT, async {
        while found == json!([]) {
            found = table.foreign.ask(&read);
            tokio::task::yield_now().await;
        }
    });
    appears.await.expect("a runner is entered when it starts");
    assert_eq!((&found[0]["status"], &found[0]["is_alive"]), (&json!("running"), &json!(true)), "{found}");
    for name in ["runner_id", "last_heartbeat", "started_at", "project_root"] {
        assert!(found[0][name].is_string(), "{name} in {found}");
    }
    runner.end().await;
    assert_eq!(table.foreign.ask(&read)[0]["status"], "stopped");
}
