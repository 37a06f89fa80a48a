//! Runners on shared tables: how they beat, how others see them, and what becomes of the tasks of one that died. The foreign
//! program here is another client that knows nothing but the document.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]
#![allow(clippy::print_stdout, reason = "units are measured here, and printed for the documents")]

mod ward;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use ekiden::core::{Kind, Millis, OpId, PoolName, Question, QuestionId, ReasonCode, RunnerId, RunnerStatus, Timestamp};
use ekiden::store::ManualClock;
use ekiden::{Ask, Client, Context, Done, Ekiden, Payload, Queue, Runner, StoreQueue, TaskError, TaskState};
use ekiden_store::Others;
use ekiden_store::entropy::Entropy;
use ekiden_store_dynamodb::{DynamoStore, Options};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use ward::{Bench, Words, ns};

/// Half a minute: nothing here takes a second that is not waited for.
const LIMIT: Duration = Duration::from_secs(30);

/// Ten seconds: room for ten beats at every poll, and for none at a quarter of the default lease.
const BEATS_LIMIT: Duration = Duration::from_secs(10);

#[derive(serde::Serialize, serde::Deserialize)]
struct Prompt {
    prompt: String,
}

impl Payload for Prompt {
    const TASK_TYPE: &'static str = "prompt";
}

fn prompt(text: &str) -> Prompt {
    Prompt { prompt: text.to_owned() }
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

/// A queue of another process on the same tables.
async fn queue_on(options: &Options) -> Ekiden {
    Ekiden::builder(Arc::new(DynamoStore::open_existing(options.clone()).await.unwrap())).build()
}

/// What the foreign program reads of all runners of a namespace.
async fn foreign_runners(bench: &Bench, namespace: &str) -> Vec<Words> {
    let query = bench.foreign.query().table_name(format!("{}pm-runner-runners", bench.options.table_prefix));
    let query = query.key_condition_expression("#n = :n").expression_attribute_names("#n", "namespace");
    let found = query.expression_attribute_values(":n", text(namespace)).consistent_read(true).send().await.unwrap();
    let words = |item: std::collections::HashMap<String, AttributeValue>| {
        item.into_iter().filter_map(|(name, value)| Some((name, value.as_s().ok()?.clone()))).collect()
    };
    found.items.unwrap_or_default().into_iter().map(words).collect()
}

/// The foreign program puts a runner of its own.
async fn foreign_runner(bench: &Bench, id: &str, status: &str, last_heartbeat: &str) {
    let put = bench.foreign.put_item().table_name(format!("{}pm-runner-runners", bench.options.table_prefix));
    let put = put.item("namespace", text("n")).item("runner_id", text(id)).item("status", text(status));
    let put = put.item("last_heartbeat", text(last_heartbeat)).item("started_at", text("2026-11-17T08:00:00Z"));
    put.item("project_root", text("/their/project")).send().await.unwrap();
}

/// Looks until it is so.
async fn eventually<T>(what: &str, limit: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(limit, found).await.unwrap_or_else(|_| panic!("never came: {what}"))
}

/// Q8, Q9: beats come with every poll, also while a task runs; the record is the document's; a clean exit writes `stopped`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_beats_with_every_poll_and_says_goodbye() {
    let bench = Bench::open().await;
    let client = queue_on(&bench.options).await.namespace("n").unwrap();
    let (started, mut starts) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let (stop, open) = (CancellationToken::new(), gate.clone());
    let runner =
        Runner::builder(&client).name("ours").project_root("/our/project").handler(move |task: Prompt, _: Context| {
            let (started, gate) = (started.clone(), open.clone());
            async move {
                started.send(task.prompt).unwrap();
                gate.acquire().await.unwrap().forget();
            }
        });
    let runs = tokio::spawn({
        let stop = stop.clone();
        async move { runner.run_until(stop.cancelled()).await }
    });
    client.enqueue(prompt("one")).await.unwrap();
    tokio::time::timeout(LIMIT, starts.recv()).await.expect("its own enqueue wakes it").unwrap();
    let mut beats = BTreeSet::new();
    let seen = eventually("five beats while a task runs", BEATS_LIMIT, async || {
        let runner = foreign_runners(&bench, "n").await.pop()?;
        beats.insert(runner.get("last_heartbeat")?.clone());
        (beats.len() == 5).then_some(runner)
    })
    .await;
    assert!(seen["runner_id"].starts_with("ours."), "{seen:?}");
    assert_eq!((seen["status"].as_str(), seen["project_root"].as_str()), ("running", "/our/project"));
    assert!(beats.iter().all(|beat| beat.len() == 24 && *beat > seen["started_at"] || *beat == seen["started_at"]));
    gate.add_permits(1);
    stop.cancel();
    runs.await.unwrap().unwrap();
    assert_eq!(foreign_runners(&bench, "n").await[0]["status"], "stopped");
}

/// Q8: one task at a time unless somebody says otherwise, and what this process hands in waits for no poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_runs_one_task_at_a_time_and_hears_its_own_process_at_once() {
    let bench = Bench::open().await;
    let client = queue_on(&bench.options).await.namespace("n").unwrap();
    let (ended, mut ends) = mpsc::unbounded_channel();
    let (stop, running) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    // An hour between two polls: whatever starts was woken.
    let runner = Runner::builder(&client).poll(Duration::from_secs(3_600)).handler(move |_: Prompt, _: Context| {
        let (ended, running) = (ended.clone(), running.clone());
        async move {
            let together = running.fetch_add(1, Ordering::SeqCst) + 1;
            tokio::task::yield_now().await;
            running.fetch_sub(1, Ordering::SeqCst);
            ended.send(together).unwrap();
        }
    });
    let runs = tokio::spawn({
        let stop = stop.clone();
        async move { runner.run_until(stop.cancelled()).await }
    });
    eventually("the first beat", LIMIT, async || foreign_runners(&bench, "n").await.pop()).await;
    for number in 0..6 {
        client.enqueue(prompt(&number.to_string())).await.unwrap();
    }
    for _ in 0..6 {
        let together = tokio::time::timeout(LIMIT, ends.recv()).await.expect("it is woken").unwrap();
        assert_eq!(together, 1);
    }
    stop.cancel();
    runs.await.unwrap().unwrap();
}

/// Two processes whose clocks are ours to move, on the same tables.
struct Pair {
    bench: Bench,
    one: StoreQueue,
    other: StoreQueue,
    clocks: [Arc<ManualClock>; 2],
    start: Timestamp,
}

impl Pair {
    /// The clock of the first is an hour ahead: nobody may believe it.
    async fn open() -> Self {
        let bench = Bench::open().await;
        let start = bench.now() + Millis::from_secs(1);
        let clocks = [start + Millis::from_secs(3_600), start].map(|at| Arc::new(ManualClock::new(at)));
        let mut queues = Vec::new();
        for (seed, clock) in (1_u64..).zip(&clocks) {
            let store = Arc::new(DynamoStore::open_existing(bench.options.clone()).await.unwrap());
            queues.push(StoreQueue::with(store, clock.clone(), Entropy::from_seed(seed), Vec::new()));
        }
        let other = queues.pop().unwrap();
        Self { bench, one: queues.pop().unwrap(), other, clocks, start }
    }

    fn pass(&self, seconds: u64) {
        for clock in &self.clocks {
            clock.advance(Millis::from_secs(seconds));
        }
    }

    async fn take(&self, queue: &StoreQueue, op: u128, holder: &str) -> Vec<ekiden::Leased> {
        let ask = Ask {
            id: OpId::from_bits(op),
            namespace: ns("n"),
            pools: [PoolName::new("default").unwrap()].into(),
            kinds: [Kind::new("prompt").unwrap()].into(),
            limit: 1,
            holder: RunnerId::new(holder).unwrap(),
        };
        queue.dequeue_ready(ask).await.unwrap()
    }
}

async fn word(bench: &Bench, id: &str, name: &str) -> Option<String> {
    bench.foreign_get("n", id).await.get(name).cloned()
}

/// Q10: it is run again if it has attempts left, after a lease of silence on the clock of whoever looks. That the clock of
/// the dead one was an hour ahead neither delays nor hastens it.
#[tokio::test]
async fn the_task_of_a_dead_runner_runs_again_whatever_the_clocks_say() {
    let pair = Pair::open().await;
    // Handed in through the store itself, with the budget of other kinds.
    let id = pair.bench.enqueue("n").await;
    assert_eq!(pair.take(&pair.one, 1, "one.1").await.len(), 1);
    let next = async || pair.other.maintain(ns("n")).await.unwrap().next_tick;
    let dead_at = next().await.expect("it comes back when the lease ends");
    pair.pass(119);
    assert_eq!(next().await, Some(dead_at), "the runner said nothing meanwhile");
    assert_eq!(word(&pair.bench, id.as_str(), "claimed_by").await.as_deref(), Some("one.1"));
    assert!(pair.take(&pair.other, 2, "other.1").await.is_empty(), "not before its lease is over");
    pair.pass(1);
    pair.other.maintain(ns("n")).await.unwrap();
    assert_eq!(word(&pair.bench, id.as_str(), "status").await.as_deref(), Some("RUNNING"), "never QUEUED again (Q5)");
    let again = pair.take(&pair.other, 3, "other.1").await;
    assert_eq!((again[0].spec.id.clone(), again[0].attempts), (id.clone(), 2));
    assert_eq!(word(&pair.bench, id.as_str(), "claimed_by").await.as_deref(), Some("other.1"));
}

/// Q9, Q10: a beat that this process did not see in time is a sign of life all the same.
#[tokio::test]
async fn a_runner_that_beats_keeps_its_task_whatever_the_clocks_say() {
    let pair = Pair::open().await;
    let id = pair.bench.enqueue("n").await;
    assert_eq!(pair.take(&pair.one, 1, "one.1").await.len(), 1);
    let mine = pair.one.runners(ns("n")).await.unwrap().pop().unwrap();
    // The clock of the runner runs back by a day: its moments stand still, its beats do not.
    pair.clocks[0].set(pair.start - Millis::from_days(1));
    for _ in 0..5 {
        pair.other.maintain(ns("n")).await.unwrap();
        pair.pass(100);
        pair.one.beat(mine.clone()).await.unwrap();
    }
    pair.other.maintain(ns("n")).await.unwrap();
    assert!(pair.take(&pair.other, 2, "other.1").await.is_empty());
    assert_eq!(word(&pair.bench, id.as_str(), "claimed_by").await.as_deref(), Some("one.1"));
}

/// Q10: without attempts left it ends in ERROR, and the message names the runner.
#[tokio::test]
async fn the_last_attempt_of_a_dead_runner_is_an_error_that_names_it() {
    let pair = Pair::open().await;
    // A prompt of another program has one attempt.
    pair.bench.foreign_put("n", "theirs", "QUEUED").await;
    let mut taken = Vec::new();
    for op in 1..=2 {
        taken.extend(pair.take(&pair.one, op, "one.1").await);
    }
    assert_eq!(taken.len(), 1);
    pair.other.maintain(ns("n")).await.unwrap();
    pair.pass(120);
    pair.other.maintain(ns("n")).await.unwrap();
    assert_eq!(word(&pair.bench, "theirs", "status").await.as_deref(), Some("ERROR"));
    let message = word(&pair.bench, "theirs", "error_message").await.unwrap();
    assert!(message.contains("one.1"), "{message}");
}

/// Q9: foreign runners are read in either spelling, and one that is silent for two minutes is stopped, whatever it says.
#[tokio::test]
async fn foreign_runners_are_listed_by_the_rule_of_the_document() {
    let pair = Pair::open().await;
    let ago = |ms: u64| (pair.start - Millis::new(ms)).to_string();
    let seconds_only = |moment: String| format!("{}Z", moment.split_once('.').unwrap().0);
    let cases = [
        ("fresh", "running", ago(119_999), RunnerStatus::Running),
        ("loud", "RUNNING", seconds_only(ago(60_000)), RunnerStatus::Running),
        ("silent", "RUNNING", ago(120_000), RunnerStatus::Stopped),
        ("gone", "STOPPED", ago(1), RunnerStatus::Stopped),
    ];
    for (id, status, last_heartbeat, _) in &cases {
        foreign_runner(&pair.bench, id, status, last_heartbeat).await;
    }
    let found = pair.other.runners(ns("n")).await.unwrap();
    for (id, _, _, expected) in &cases {
        let runner = found.iter().find(|runner| runner.id.as_str() == *id).unwrap();
        assert_eq!((runner.status, runner.project_root.as_str()), (*expected, "/their/project"), "{id}");
    }
    pair.pass(600);
    for _ in 0..3 {
        pair.other.maintain(ns("n")).await.unwrap();
    }
    let theirs = foreign_runners(&pair.bench, "n").await;
    assert_eq!(theirs.iter().find(|runner| runner["runner_id"] == "silent").unwrap()["status"], "RUNNING");
    assert!(theirs.iter().all(|runner| !runner.contains_key("ek_rev")), "nobody writes to what is theirs");
}

async fn refused(client: &Client, kind: &str) -> Option<ReasonCode> {
    client.enqueue_raw(kind, "application/json", "{}").await.err().map(|error| error.code())
}

/// Q6: where a foreign runner was seen, or somebody said that there are some, only prompts are taken.
#[tokio::test]
async fn a_namespace_with_foreign_runners_takes_only_prompts() {
    let bench = Bench::open().await;
    let ours = queue_on(&bench.options).await;
    assert_eq!(refused(&ours.namespace("n").unwrap(), "mail").await, None);
    foreign_runner(&bench, "theirs", "RUNNING", "2026-11-17T08:00:00Z").await;
    let fresh = queue_on(&bench.options).await;
    assert_eq!(refused(&fresh.namespace("n").unwrap(), "mail").await, Some(ReasonCode::NamespaceShared));
    assert_eq!(refused(&fresh.namespace("n").unwrap(), "prompt").await, None);
    assert_eq!(refused(&fresh.namespace("other").unwrap(), "mail").await, None, "Q12: theirs is another namespace");
    let told = queue_on(&Options { others: Others::Certain, ..bench.options.clone() }).await;
    assert_eq!(refused(&told.namespace("other").unwrap(), "mail").await, Some(ReasonCode::NamespaceShared));
    assert_eq!(refused(&told.namespace("other").unwrap(), "prompt").await, None);
}

/// Q5, Q6: nobody of ours reads these tasks, and yet a foreign answer resumes one and a foreign end is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_did_is_found_without_anybody_reading_it() {
    let bench = Bench::open().await;
    let client = queue_on(&bench.options).await.namespace("n").unwrap();
    let theirs = client.enqueue(prompt("for them")).await.unwrap();
    assert!(bench.foreign_set("n", theirs.id.as_str(), "QUEUED", "RUNNING").await);
    let child = client.enqueue(prompt("child")).depends_on([&theirs.id]).await.unwrap();
    let asks = client.enqueue(prompt("asks")).await.unwrap();
    let stop = CancellationToken::new();
    let (answered, mut answers) = mpsc::unbounded_channel();
    let runner = Runner::builder(&client).handler(move |task: Prompt, context: Context| {
        let answered = answered.clone();
        async move {
            if task.prompt == "asks" && context.answer().is_none() {
                let question = Question {
                    id: QuestionId::new("q-1").unwrap(),
                    text: Arc::from("which one?"),
                    choices: Vec::new(),
                    deadline: None,
                    default: None,
                };
                return Ok::<Done, TaskError>(Done::Asked(Box::new(question)));
            }
            answered.send((task.prompt, context.answer().map(|answer| answer.content.to_string()))).unwrap();
            Ok(Done::Succeeded(None))
        }
    });
    let runs = tokio::spawn({
        let stop = stop.clone();
        async move { runner.run_until(stop.cancelled()).await }
    });
    let status = async |id: &str| word(&bench, id, "status").await.unwrap();
    eventually("the question", LIMIT, async || (status(asks.id.as_str()).await == "AWAITING_RESPONSE").then_some(()))
        .await;
    bench.foreign_answer("n", asks.id.as_str(), "the blue one").await;
    assert!(bench.foreign_set("n", theirs.id.as_str(), "RUNNING", "COMPLETE").await);
    let mut heard = BTreeSet::new();
    while heard.len() < 2 {
        heard.insert(tokio::time::timeout(LIMIT, answers.recv()).await.expect("both go on").unwrap());
    }
    let expected = [("asks".to_owned(), Some("the blue one".to_owned())), ("child".to_owned(), None)];
    assert_eq!(heard, BTreeSet::from(expected));
    stop.cancel();
    runs.await.unwrap().unwrap();
    assert_eq!(client.get_status(&child.id).await.unwrap().state, TaskState::Succeeded);
}

/// Q8: what a runner without work costs from beat to beat: one unit to write, and what it takes to look for work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_runner_writes_one_unit_a_beat() {
    let bench = Bench::open().await;
    let store = Arc::new(DynamoStore::open_existing(bench.options.clone()).await.unwrap());
    let client = Ekiden::builder(store.clone()).build().namespace("n").unwrap();
    let done = client.enqueue(prompt("first")).await.unwrap();
    let stop = CancellationToken::new();
    let runner = Runner::builder(&client).handler(async |_: Prompt, _: Context| {});
    let runs = tokio::spawn({
        let stop = stop.clone();
        async move { runner.run_until(stop.cancelled()).await }
    });
    eventually("its line is there, and empty", LIMIT, async || {
        (word(&bench, done.id.as_str(), "status").await.as_deref() == Some("COMPLETE")).then_some(())
    })
    .await;
    let mut beats = BTreeSet::new();
    let mut units = Vec::new();
    eventually("seventeen beats", 2 * LIMIT, async || {
        let beat = foreign_runners(&bench, "n").await.pop()?.remove("last_heartbeat")?;
        if beats.insert(beat) {
            units.push(store.units());
        }
        (units.len() == 17).then_some(())
    })
    .await;
    stop.cancel();
    runs.await.unwrap().unwrap();
    // The counts of the first task are added within five seconds, so the first beats are not looked at.
    let (first, last) = (units[6], units[16]);
    let (write, read) = ((last.write - first.write) / 10.0, (last.read - first.read) / 10.0);
    // A look may fall between a beat and its count.
    assert!((0.8..1.3).contains(&write), "{write}");
    assert!(read < 12.0, "{read}");
}
