//! Seeded loads of real runners behind a line that refuses requests: no law may be broken, and no success becomes a failure.
//! `EKIDEN_SEED` replays one seed.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod lab;

use std::collections::BTreeMap;
use std::sync::Arc;

use ekiden::core::{Millis, Namespace, Outcome, RetryPolicy, TaskId};
use ekiden::store::{Entropy, SystemClock};
use ekiden::{Client, Context, Done, Enqueued, HttpQueue, Payload, Runner, Stop, TaskError, TaskState};
use ekiden_testkit::{
    FinalState, FinalTask, Note, RecordedQueue, Recorder, Refusals, RefusingLine, taken_away, verdict,
};
use lab::{GENEROUS, Lab, within};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

/// 120 tasks: some hundred requests, so that every refusal is given many times.
const TASKS: usize = 120;

/// 24 KiB: the largest result fits, two of them do not.
const REFUSALS: Refusals = Refusals { percent: 40, body_bytes_max: 24 * 1024 };

/// A result of so many bytes, after so many failures.
#[derive(Clone, Serialize, Deserialize)]
struct Work {
    failures: u64,
    result_bytes: usize,
}

impl Payload for Work {
    const TASK_TYPE: &'static str = "work";
}

fn seeds() -> Vec<u64> {
    match std::env::var("EKIDEN_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => vec![0, 1],
    }
}

fn namespace() -> Namespace {
    Namespace::new("n").unwrap()
}

fn work(entropy: &mut Entropy) -> Work {
    let failures = u64::from(entropy.chance(20));
    let result_bytes = if entropy.chance(50) { entropy.below(16 * 1024) } else { 0 };
    Work { failures, result_bytes }
}

async fn carry_out(work: Work, context: Context, record: ekiden_testkit::Client) -> Result<Done, TaskError> {
    let (task, token) = (context.task().id.clone(), context.token());
    record.note(Note::Started { task: task.clone(), token });
    // Those that were started together end together, so that their ends go into one request.
    tokio::task::yield_now().await;
    let fails = token.0 <= work.failures;
    let outcome = if fails { Outcome::Failed } else { Outcome::Succeeded };
    record.note(Note::Said { task: task.clone(), token, outcome });
    record.note(Note::Finished { task, token });
    if fails { Err(TaskError::retryable("not this time")) } else { Done::with(&"x".repeat(work.result_bytes)) }
}

/// A client with a connection of its own, through the line.
async fn client(line: &RefusingLine, recorder: &Arc<Recorder>, name: &str) -> (Client, ekiden_testkit::Client) {
    let record = recorder.client(name);
    let queue = HttpQueue::connect(&line.url(), None).await.unwrap();
    let queue = RecordedQueue::new(Arc::new(queue), record.clone());
    (Client::over(Arc::new(queue), namespace()), record)
}

async fn runner(
    line: &RefusingLine,
    recorder: &Arc<Recorder>,
    name: &str,
) -> (Stop, JoinHandle<ekiden::Result<ekiden::Ended>>) {
    let (client, record) = client(line, recorder, name).await;
    let handler = move |work: Work, context: Context| carry_out(work, context, record.clone());
    let runner = Runner::builder(&client).handler(handler).concurrency(12).build().unwrap();
    (runner.stop(), tokio::spawn(runner.run_until_stopped()))
}

/// Hands tasks in, several a request. One that is refused is not there, and is handed in anew.
async fn hand_in(client: &Client, entropy: &mut Entropy) -> Vec<TaskId> {
    let mut ids = Vec::new();
    while ids.len() < TASKS {
        let retry = || RetryPolicy::Fixed { delay: Millis::new(10) };
        let tasks: Vec<_> = (0..10).map(|_| client.enqueue(work(entropy)).retry(retry())).collect();
        let answers = client.enqueue_all(tasks).await;
        ids.extend(answers.into_iter().filter_map(|answer| answer.ok().map(|Enqueued { id, .. }| id)));
    }
    ids
}

async fn load(seed: u64) {
    let lab = Lab::new().await;
    let line = RefusingLine::start(lab.address, REFUSALS, seed).await.unwrap();
    let recorder = Recorder::new("load", Arc::new(SystemClock));
    let mut entropy = Entropy::from_seed(seed);
    let running = [runner(&line, &recorder, "first").await, runner(&line, &recorder, "second").await];
    let (sender, record) = client(&line, &recorder, "sender").await;
    let ids = hand_in(&sender, &mut entropy).await;
    let beside = lab.ekiden.namespace("n").unwrap();
    let mut states: BTreeMap<TaskState, usize> = BTreeMap::new();
    let mut records = Vec::new();
    let all_ended = async {
        for id in &ids {
            beside.wait(id).await.unwrap();
        }
    };
    // What has not ended by then is judged as it is.
    let _ = tokio::time::timeout(GENEROUS, all_ended).await;
    for id in &ids {
        let task = beside.get_status(id).await.unwrap();
        *states.entry(task.state).or_default() += 1;
        records.push(task);
    }
    for (stop, run) in running {
        stop.gently();
        within(run).await.unwrap().unwrap();
    }
    for task in &records {
        record.note(Note::Observed { task: task.id.clone(), found: Box::new(FinalTask::from(task)) });
    }
    let told = recorder.history();
    let last = FinalState::observed(&told);
    let lines = told.lines().iter().cloned().chain(taken_away(&records, "server")).collect();
    verdict(seed, &ekiden_testkit::History::from_lines(lines, Millis::ZERO), &last);
    assert_eq!(states, BTreeMap::from([(TaskState::Succeeded, ids.len())]), "seed {seed}");
    let seen = line.seen();
    let missing: Vec<_> = RefusingLine::all().filter(|name| !seen.contains_key(name)).collect();
    assert!(missing.is_empty(), "seed {seed}: nothing was refused by {missing:?}, only by {seen:?}");
}

/// R16: no refusal of a request breaks a law or makes a failure of a success.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_loads_behind_a_line_that_refuses_requests_keep_every_law() {
    for seed in seeds() {
        load(seed).await;
    }
}
