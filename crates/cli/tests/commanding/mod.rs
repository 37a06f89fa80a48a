//! A runner in this very process whose handlers are commands, supervised by the real binary.
#![allow(dead_code, reason = "every test file uses its part")]

use std::sync::Arc;
use std::time::Duration;

use ekiden::core::{EventName, TaskId};
use ekiden::exec::{CommandHandler, Supervisor};
use ekiden::store::MemoryStore;
use ekiden::{
    AttemptRef, Client, Ekiden, Ended, FolderLogs, Heard, Logs as _, Runner, RunnerBuilder, Stop, Subscription,
    TaskRecord, TaskState,
};
use tokio::task::JoinHandle;

/// Two minutes: far longer than anything here takes, so that only what hangs meets it.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) fn supervisor() -> Supervisor {
    Supervisor::at(env!("CARGO_BIN_EXE_ekiden"))
}

/// A queue in memory, logs in a folder.
pub(crate) struct Post {
    pub(crate) client: Client,
    pub(crate) logs: FolderLogs,
    pub(crate) folder: tempfile::TempDir,
}

/// A runner at work.
pub(crate) struct AtWork {
    pub(crate) stop: Stop,
    run: JoinHandle<ekiden::Result<Ended>>,
}

impl Post {
    pub(crate) fn new() -> Self {
        let client = Ekiden::builder(Arc::new(MemoryStore::new())).build().namespace("default").unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self { client, logs: FolderLogs::at(folder.path().join("logs")), folder }
    }

    /// A handler of kind `c` that a shell runs, with its folders and logs here.
    pub(crate) fn shell(&self, line: &str) -> CommandHandler {
        self.furnish(CommandHandler::shell("c", line, supervisor()))
    }

    pub(crate) fn furnish(&self, handler: CommandHandler) -> CommandHandler {
        handler.logs(Arc::new(self.logs.clone())).folders(self.folder.path().join("attempts"))
    }

    pub(crate) fn runner(&self, handler: CommandHandler) -> RunnerBuilder {
        Runner::builder(&self.client).task_handler(handler).concurrency(16)
    }

    pub(crate) fn start(&self, handler: CommandHandler) -> AtWork {
        start(self.runner(handler))
    }

    pub(crate) async fn add(&self, payload: serde_json::Value) -> TaskId {
        self.client.enqueue_json("c", &payload).await.unwrap().id
    }

    /// Adds a task with one attempt, runs it to its end, and returns what became of it.
    pub(crate) async fn run(&self, handler: CommandHandler, payload: serde_json::Value) -> TaskRecord {
        let id = self.client.enqueue_json("c", &payload).max_attempts(1).await.unwrap().id;
        let runner = self.start(handler);
        let record = in_time(self.client.wait(&id)).await.unwrap();
        runner.end().await;
        record
    }

    pub(crate) async fn status(&self, id: &TaskId) -> TaskRecord {
        self.client.get_status(id).await.unwrap()
    }

    pub(crate) async fn log(&self, id: &TaskId, execution_no: u64) -> String {
        let attempt = AttemptRef { task: self.client.task(id), execution_no };
        let part = self.logs.read(attempt, 0, 1 << 20).await;
        String::from_utf8_lossy(&part.map(|part| part.bytes).unwrap_or_default()).into_owned()
    }
}

pub(crate) fn start(builder: RunnerBuilder) -> AtWork {
    let runner = builder.build().unwrap();
    AtWork { stop: runner.stop(), run: tokio::spawn(runner.run_until_stopped()) }
}

impl AtWork {
    pub(crate) async fn end(self) -> Ended {
        self.stop.gently();
        in_time(self.run).await.unwrap().unwrap()
    }

    pub(crate) async fn end_at_once(self) -> Ended {
        self.stop.at_once();
        in_time(self.run).await.unwrap().unwrap()
    }
}

pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, work).await.expect("it ends in time")
}

/// Waits until a task is as wanted, looking whenever something changes.
pub(crate) async fn until(client: &Client, id: &TaskId, is_so: impl Fn(&TaskRecord) -> bool) -> TaskRecord {
    in_time(async {
        let mut changes = client.subscribe().await.unwrap();
        loop {
            let record = client.get_status(id).await.unwrap();
            if is_so(&record) {
                return record;
            }
            // Another process may have changed it.
            let _ = tokio::time::timeout(Duration::from_millis(100), changes.next()).await;
        }
    })
    .await
}

/// Waits until the tree of a task says that it has grown.
pub(crate) async fn grown(client: &Client, id: &TaskId) {
    until(client, id, |record| record.progress.is_some() || record.state.is_final()).await;
    assert_eq!(client.get_status(id).await.unwrap().state, TaskState::Running);
}

/// Waits until this happened to the task.
pub(crate) async fn happened(changes: &mut Subscription, id: &TaskId, event: EventName) {
    in_time(async {
        loop {
            match changes.next().await.expect("the queue lives as long as the test") {
                Heard::Change(change) if change.id == *id && change.event == Some(event) => return,
                _ => {}
            }
        }
    })
    .await;
}
