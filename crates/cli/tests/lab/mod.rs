//! A real server with a real runner behind it, for commands to speak to.
#![allow(dead_code, reason = "every test file uses its part")]

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use ekiden::core::{Question, QuestionId};
use ekiden::{AttemptRef, Context, Done, Ekiden, HttpLogs, Logs, Payload, Runner, Stop, TaskError};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::running::{Running, command, send, text};

/// What tasks of these tests are told to do.
#[derive(Serialize, Deserialize)]
struct Job {
    does: String,
}

impl Payload for Job {
    const TASK_TYPE: &'static str = "job";
}

/// A server over a new folder, and a runner that reaches it over HTTP.
pub(crate) struct Lab {
    pub(crate) folder: tempfile::TempDir,
    server: Option<Running>,
    pub(crate) url: String,
    /// Lets a task go on that waits for it.
    pub(crate) gate: Arc<Notify>,
    runner: Option<(Stop, std::thread::JoinHandle<()>)>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Running::start(&["serve", "--listen", "127.0.0.1:0", "--url", &local(folder.path())]);
        server.wait_for("stop:");
        let at = server.seen.find("http://").unwrap();
        let url = server.seen[at..].split_whitespace().next().unwrap().to_owned();
        Self { folder, server: Some(server), url, gate: Arc::default(), runner: None }
    }

    /// The same with a runner.
    pub(crate) fn with_runner() -> Self {
        let mut lab = Self::new();
        let (url, gate) = (lab.url.clone(), lab.gate.clone());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let client = Ekiden::connect(&url, None).await.unwrap().namespace("default").unwrap();
                let logs = HttpLogs::connect(&url, None).unwrap();
                let handler = move |job: Job, context: Context| work(job, context, logs.clone(), gate.clone());
                let runner = Runner::builder(&client).handler(handler).name("tester").concurrency(8).build().unwrap();
                ready.send(runner.stop()).unwrap();
                runner.run_until_stopped().await.unwrap();
            });
        });
        lab.runner = Some((is_ready.recv().unwrap(), thread));
        lab
    }

    /// A command that means this server.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.env("EKIDEN_URL", &self.url).current_dir(self.folder.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// What such a command prints, if it goes well.
    #[track_caller]
    pub(crate) fn printed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout).trim_end().to_owned()
    }

    /// The exit code of such a command, with all that it said.
    pub(crate) fn ended(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.run(arguments);
        (output.status.code(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
    }

    /// Ends the server and leaves its folder.
    pub(crate) fn stop_server(&mut self) {
        self.stop_runner();
        if let Some(server) = self.server.take() {
            send(Signal::TERM, &server.child);
            server.end();
        }
    }

    fn stop_runner(&mut self) {
        if let Some((stop, thread)) = self.runner.take() {
            stop.at_once();
            thread.join().unwrap();
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if let Some(server) = &mut self.server {
                server.child.kill().ok();
            }
            return;
        }
        self.stop_server();
    }
}

/// The address of the store in a folder.
pub(crate) fn local(folder: &Path) -> String {
    format!("local:{}", folder.join("data").display())
}

async fn work(job: Job, context: Context, logs: HttpLogs, gate: Arc<Notify>) -> Result<Done, TaskError> {
    let client = context.client();
    let attempt = AttemptRef { task: client.task(&context.task().id), execution_no: context.token().0 };
    let write = async |offset: u64, text: String| logs.append(attempt.clone(), offset, text.into()).await;
    match job.does.as_str() {
        "succeed" => Done::with(&"well"),
        "die" => Err(TaskError::permanent("no such address")),
        "stay" => {
            context.cancelled().await;
            Ok(Done::Succeeded(None))
        }
        "write" => {
            let lines: String = (1..=5).map(|line| format!("line {line}\n")).collect();
            write(0, lines).await?;
            Ok(Done::Succeeded(None))
        }
        "gated" => {
            let end = write(0, "before\n".to_owned()).await?;
            gate.notified().await;
            write(end, "after\n".to_owned()).await?;
            Ok(Done::Succeeded(None))
        }
        "ask" => match context.answer() {
            None => Ok(Done::Asked(Box::new(Question {
                id: QuestionId::new("ship").unwrap(),
                text: "Ship it?".into(),
                choices: vec!["yes".into(), "no, wait".into()],
                deadline: None,
                default: None,
            }))),
            Some(answer) => Done::with(&answer.content),
        },
        other => Err(TaskError::permanent(format!("cannot {other}"))),
    }
}
