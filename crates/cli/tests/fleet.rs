//! Several processes of the real binary on the tables of one DynamoDB server: they share the work, the death of any one loses
//! nothing, and what is cancelled is gone, whoever wrote it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use aws_sdk_dynamodb::Client as Foreign;
use aws_sdk_dynamodb::config::{BehaviorVersion, Builder, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use ekiden::core::TaskId;
use ekiden::{Client, Ekiden, TaskRecord, TaskState};
use ekiden_testkit::rig::trees::{self, TREES};
use running::Running;
use rustix::process::Signal;
use serde_json::json;

/// 20 ms between two looks at a task.
const LOOK: Duration = Duration::from_millis(20);

/// A minute: far longer than anything here takes on an idle machine, so that only what hangs meets it.
const LIMIT: Duration = Duration::from_secs(60);

/// How long runners may be silent in these tests.
const LEASE: Duration = Duration::from_secs(2);

/// How often they look.
const POLL: Duration = Duration::from_secs(1);

/// What a busy machine may take on top: the time to start a process and to ask the server a dozen times.
const BUSY: Duration = Duration::from_secs(4);

/// Tables on a server of this test's own, a queue of ours on them, and a program of somebody else's.
struct Fleet {
    url: String,
    client: Client,
    foreign: Foreign,
    folder: tempfile::TempDir,
}

impl Fleet {
    async fn open() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        drop(tokio::spawn(dynoxide::server::serve_on(listener, dynoxide::Database::memory().unwrap())));
        let url = format!("dynamodb:?endpoint={endpoint}");
        let client = Ekiden::open(&url).await.unwrap().namespace("default").unwrap();
        let config = Builder::new()
            .behavior_version(BehaviorVersion::v2026_01_12())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(endpoint)
            .region(Region::new("local"))
            .credentials_provider(Credentials::new("local", "local", None, None, "foreign"));
        Self { url, client, foreign: Foreign::from_conf(config.build()), folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A runner whose commands a shell runs.
    fn work(&self, name: &str, more: &[&str], line: &str) -> Running {
        let lease = format!("{}ms", LEASE.as_millis());
        let mut arguments = vec!["--url", &self.url, "work", "--name", name, "--lease", &lease];
        arguments.extend(more);
        arguments.extend(["--kind", "job", "--kind", "prompt", "--shell", "--exec", line]);
        let mut runner =
            Running::spawn(running::command(&arguments).current_dir(self.path()).env("TMPDIR", self.path()));
        runner.wait_for("Working for");
        runner
    }

    /// A server on the tables, and a client of it.
    async fn serve(&self) -> (Running, Client) {
        let arguments = ["--url", &self.url, "serve", "--listen", "127.0.0.1:0"];
        let mut server = Running::start_in(self.path(), &arguments);
        server.wait_for("stop:");
        // The address of the store has one in it too, but none that begins with it.
        let url = server.seen.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
        (server, Ekiden::connect(&url, None).await.unwrap().namespace("default").unwrap())
    }

    async fn until(&self, id: &TaskId, is_so: impl Fn(&TaskRecord) -> bool) -> TaskRecord {
        let mut changes = self.client.subscribe().await.unwrap();
        let looks = async {
            loop {
                let record = self.client.get_status(id).await.unwrap();
                if is_so(&record) {
                    return record;
                }
                // Another process does it: look again now and then, and leave it the processors meanwhile.
                let _ = tokio::time::timeout(LOOK, changes.next()).await;
            }
        };
        match tokio::time::timeout(LIMIT, looks).await {
            Ok(record) => record,
            Err(_) => panic!("never came: {:?}", self.client.get_status(id).await.unwrap()),
        }
    }

    async fn ended(&self, id: &TaskId) -> TaskRecord {
        self.until(id, |record| record.state.is_final()).await
    }

    /// The lines that commands appended: who ran what.
    fn lines(&self) -> Vec<(String, String)> {
        let text = std::fs::read_to_string(self.path().join("lines")).unwrap_or_default();
        text.lines().filter_map(|line| line.split_once(' ')).map(|(who, id)| (who.to_owned(), id.to_owned())).collect()
    }

    async fn foreign_put(&self, id: &str) {
        let put = self.foreign.put_item().table_name("pm-runner-queue");
        let words = [("namespace", "default"), ("task_id", id), ("task_group_id", id), ("session_id", id)];
        let more = [("status", "QUEUED"), ("prompt", "hello"), ("created_at", "2026-11-17T08:00:00Z")];
        let all = words.into_iter().chain(more).chain([("updated_at", "2026-11-17T08:00:00Z")]);
        let put = all.fold(put, |put, (name, value)| put.item(name, AttributeValue::S(value.to_owned())));
        put.send().await.unwrap();
    }

    async fn foreign_cancel(&self, id: &TaskId) {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let update = self.foreign.update_item().table_name("pm-runner-queue");
        let update = update.key("namespace", text("default")).key("task_id", text(id.as_str()));
        let update = update.update_expression("SET #s = :to").condition_expression("#s = :from");
        let update = update.expression_attribute_names("#s", "status");
        let update = update.expression_attribute_values(":from", text("RUNNING"));
        update.expression_attribute_values(":to", text("CANCELLED")).send().await.unwrap();
    }
}

fn end(running: Running) {
    running::send(Signal::TERM, &running.child);
    let (status, log, _) = running.end();
    assert!(status.success(), "{log}");
}

fn kill(running: &mut Running) {
    running.child.kill().unwrap();
    running.child.wait().unwrap();
}

/// Q6, Q7, Q10: two runners and a server on the same tables share the work, also what a foreign program put; everything runs once.
/// Then the server is killed, and a runner: what was handed in runs all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_on_the_same_tables_share_the_work_and_lose_nothing() {
    let fleet = Fleet::open().await;
    let (mut server, remote) = fleet.serve().await;
    let room = fleet.path().display().to_string();
    // Neither ends its first task before the other has begun one.
    let script = |who: &str, other: &str| {
        format!(
            "touch {room}/{who}; while [ ! -e {room}/{other} ]; do sleep 0.01; done; echo \"{who} $EKIDEN_TASK_ID\" >> {room}/lines"
        )
    };
    let mut ids = BTreeSet::new();
    for number in 0..12 {
        let client = if number % 2 == 0 { &remote } else { &fleet.client };
        ids.insert(client.enqueue_json("job", &json!(number)).await.unwrap().id);
    }
    fleet.foreign_put("theirs-1").await;
    ids.insert(TaskId::new("theirs-1").unwrap());
    let mut one = fleet.work("one", &[], &script("one", "two"));
    let two = fleet.work("two", &[], &script("two", "one"));
    for id in &ids {
        assert_eq!(fleet.ended(id).await.state, TaskState::Succeeded);
    }
    let lines = fleet.lines();
    let ran: BTreeSet<&str> = lines.iter().map(|(_, id)| id.as_str()).collect();
    assert_eq!((lines.len(), ran.len()), (13, 13), "each ran once: {lines:?}");
    let by: BTreeMap<&str, usize> = lines.iter().fold(BTreeMap::new(), |mut by, (who, _)| {
        *by.entry(who.as_str()).or_default() += 1;
        by
    });
    assert_eq!(by.len(), 2, "both worked: {by:?}");

    let mut later = Vec::new();
    for number in 0..4 {
        later.push(remote.enqueue_json("job", &json!(number)).await.unwrap().id);
    }
    kill(&mut server);
    kill(&mut one);
    for number in 4..8 {
        later.push(fleet.client.enqueue_json("job", &json!(number)).await.unwrap().id);
    }
    for id in &later {
        assert_eq!(fleet.ended(id).await.state, TaskState::Succeeded);
    }
    end(two);
}

/// Q9, Q10: a killed runner's task with attempts left runs again within its lease and two polls; one without is ERROR, with
/// a message that names the runner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tasks_of_a_killed_runner_run_again_or_name_it() {
    let fleet = Fleet::open().await;
    let mut one = fleet.work("one", &["--concurrency", "2"], &trees::line("GROWN; sleep 600"));
    let again = fleet.client.enqueue_json("job", &json!(null)).await.unwrap().id;
    let once = fleet.client.enqueue_json("prompt", &json!({"prompt": "once"})).await.unwrap().id;
    for id in [&again, &once] {
        fleet.until(id, |record| record.progress.is_some()).await;
    }
    let two = fleet.work("two", &[], "true");
    let dead = fleet.client.get_status(&once).await.unwrap().runner.unwrap();
    let (record, lost) = {
        kill(&mut one);
        let until = tokio::time::timeout(LEASE + POLL * 2 + BUSY, fleet.ended(&again));
        let record = until.await.expect("it runs again within the lease and two polls");
        (record, fleet.ended(&once).await)
    };
    assert_eq!((record.state, record.attempts), (TaskState::Succeeded, 2));
    assert_eq!((lost.state, lost.attempts), (TaskState::Dead, 1));
    let get = fleet.foreign.get_item().table_name("pm-runner-queue").consistent_read(true);
    let get = get.key("namespace", AttributeValue::S("default".to_owned()));
    let item = get.key("task_id", AttributeValue::S(once.to_string())).send().await.unwrap().item.unwrap();
    assert_eq!(item["status"].as_s().unwrap(), "ERROR");
    let message = item["error_message"].as_s().unwrap();
    assert!(message.contains(dead.as_str()), "{message}");
    let runners = running::ekiden(&["--url", &fleet.url, "runner", "list", "-o", "json"]);
    assert!(running::text(&runners.stdout).contains(dead.as_str()), "{runners:?}");
    end(two);
}

/// Q11, X5: a command on the shared tables is gone two seconds after somebody wrote its cancel: another process of ours, or a
/// foreign program that knows nothing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_command_is_gone_within_two_seconds_whoever_wrote_it() {
    let fleet = Fleet::open().await;
    let (_, deaf) = TREES.iter().find(|(name, _)| *name == "deaf").unwrap();
    let pool = format!("fleet-{}", std::process::id());
    let word = format!("EKIDEN_POOL={pool}");
    let runner = fleet.work("one", &["--pool", &pool], &trees::line(deaf));
    for foreign in [false, true, false, true] {
        let id = fleet.client.enqueue_json("job", &json!(null)).pool(&pool).await.unwrap().id;
        fleet.until(&id, |record| record.progress.is_some()).await;
        assert!(trees::living(&word).len() > 2, "the tree is there");
        if foreign {
            fleet.foreign_cancel(&id).await;
        } else {
            fleet.client.cancel(&id).await.unwrap();
        }
        let gone =
            tokio::task::block_in_place(|| trees::until(Duration::from_secs(2), || trees::living(&word).is_empty()));
        assert!(gone.is_some(), "foreign: {foreign}, survivors {:?}", trees::living(&word));
        let record = fleet.until(&id, |record| record.recent[0].outcome.is_some()).await;
        assert_eq!(record.state, TaskState::Cancelled);
    }
    end(runner);
}

/// Q1, Q13: `store init` makes the tables, `store check` says what is wrong with them in the words of the user, and changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_commands_make_check_and_recount_tables() {
    let fleet = Fleet::open().await;
    let ekiden = |arguments: &[&str]| {
        let output = tokio::task::block_in_place(|| running::ekiden(arguments));
        (output.status.code(), running::text(&output.stdout), running::text(&output.stderr))
    };
    let (code, _, log) = ekiden(&["store", "init", &fleet.url]);
    assert_eq!((code, log.trim_end()), (Some(0), format!("Ready: {}", fleet.url).as_str()));
    let (code, findings, log) = ekiden(&["store", "check", "--full", &fleet.url]);
    assert_eq!((code, findings.as_str()), (Some(0), ""), "{log}");
    fleet.foreign.delete_table().table_name("pm-runner-runners").send().await.unwrap();
    let (code, findings, log) = ekiden(&["--lang", "ja", "store", "check", &fleet.url]);
    assert_eq!(code, Some(1));
    assert!(log.contains("STORE_NOT_FOUND: ") && log.contains("見つかった問題: 1"), "{log}");
    assert!(findings.starts_with("STORE_NOT_FOUND\t-\ttable pm-runner-runners"), "{findings}");
    assert_eq!(ekiden(&["store", "init", &fleet.url]).0, Some(0));
    let (code, _, log) = ekiden(&["--lang", "ja", "store", "recount", &fleet.url]);
    assert_eq!((code, log.trim_end()), (Some(0), "集計しました。修正した件数: 0"));
    let (code, _, log) = ekiden(&["store", "recount", "memory:"]);
    assert!(code != Some(0) && log.contains("STORE_CANNOT"), "{log}");
}
