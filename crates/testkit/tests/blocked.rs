//! Seeded loads of a runner whose handlers block all its threads, on the local store: no law may be broken, so no task is given
//! back while its attempt only waits for a thread. `EKIDEN_SEED` replays one seed.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use ekiden::core::{Millis, Outcome};
use ekiden::store::{Entropy, SystemClock};
use ekiden::{Client, Context, Done, Ekiden, Payload, Runner, TaskState};
use ekiden_testkit::rig::Scratch;
use ekiden_testkit::{FinalState, FinalTask, History, Note, RecordedQueue, Recorder, taken_away, verdict};
use serde::{Deserialize, Serialize};

/// 80 tasks of 60 to 140 ms on two threads: four leases, so that the runner compares four times what it holds with what runs.
const TASKS: usize = 80;

/// How many attempts there are at once: most of them wait for a thread, with a task that they have claimed.
const CONCURRENCY: usize = 16;

/// Short, so that the runner compares often. Heartbeats have a thread of their own, and do not miss it.
const LEASE: Duration = Duration::from_secs(1);

/// Blocks its thread for so long.
#[derive(Clone, Serialize, Deserialize)]
struct Block {
    millis: u64,
}

impl Payload for Block {
    const TASK_TYPE: &'static str = "block";
}

fn seeds() -> Vec<u64> {
    match std::env::var("EKIDEN_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => vec![0, 1],
    }
}

fn carry_out(block: &Block, context: &Context, record: &ekiden_testkit::Client) -> Done {
    let (task, token) = (context.task().id.clone(), context.token());
    record.note(Note::Started { task: task.clone(), token });
    // A handler that blocks, as one does that calls a library without async.
    let (_silent, nothing) = mpsc::channel::<()>();
    let _ = nothing.recv_timeout(Duration::from_millis(block.millis));
    record.note(Note::Said { task: task.clone(), token, outcome: Outcome::Succeeded });
    record.note(Note::Finished { task, token });
    Done::Succeeded(None)
}

async fn load(seed: u64) {
    let scratch = Scratch::new().unwrap();
    let recorder = Recorder::new("load", Arc::new(SystemClock));
    let record = recorder.client("runner");
    let opened = Ekiden::open(&format!("local:{}", scratch.path().join("data").display())).await.unwrap();
    let beside = opened.namespace("default").unwrap();
    let queue = Arc::new(RecordedQueue::new(opened.queue().clone(), record.clone()));
    let client = Client::over(queue, beside.namespace().clone());
    let mut entropy = Entropy::from_seed(seed);
    let block = |entropy: &mut Entropy| Block { millis: 60 + u64::try_from(entropy.below(80)).unwrap() };
    let tasks: Vec<_> = (0..TASKS).map(|_| client.enqueue(block(&mut entropy))).collect();
    let ids: Vec<_> = client.enqueue_all(tasks).await.into_iter().map(|answer| answer.unwrap().id).collect();
    let handler = move |work: Block, context: Context| {
        let done = carry_out(&work, &context, &record);
        async move { done }
    };
    let runner = Runner::builder(&client).handler(handler).concurrency(CONCURRENCY).lease(LEASE).build().unwrap();
    let stop = runner.stop();
    let running = tokio::spawn(runner.run_until_stopped());
    let mut records = Vec::new();
    for id in &ids {
        records.push(beside.wait(id).await.unwrap());
    }
    stop.gently();
    running.await.unwrap().unwrap();
    let end = recorder.client("end");
    for task in &records {
        end.note(Note::Observed { task: task.id.clone(), found: Box::new(FinalTask::from(task)) });
    }
    let told = recorder.history();
    let last = FinalState::observed(&told).quiesced();
    let lines = told.lines().iter().cloned().chain(taken_away(&records, "store")).collect();
    verdict(seed, &History::from_lines(lines, Millis::ZERO), &last);
    assert!(records.iter().all(|task| task.state == TaskState::Succeeded), "seed {seed}");
    opened.close().await.unwrap();
}

/// R16: a task whose attempt waits for a thread is not run a second time beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_loads_on_blocked_threads_keep_every_law() {
    for seed in seeds() {
        load(seed).await;
    }
}
