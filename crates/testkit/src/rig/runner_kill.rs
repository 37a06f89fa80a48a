//! SIGKILL of a runner over HTTP: a child with a real runner holds tasks that take for ever, beside many short ones, and is
//! killed; a runner in this process must run them again as soon as their leases have ended.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ekiden::core::{RetryPolicy, TaskFilter};
use ekiden::store::{Clock, Entropy, SystemClock, TaskQuery};
use ekiden::{Client, Context, Done, Ekiden, HttpQueue, Payload, Runner, TaskError, TaskRecord};
use ekiden_core::time::Millis;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use super::child::{failed, listen, say};
use super::errand::Signal;
use super::process::{Ended, Process, Program};
use super::scratch::Scratch;
use super::served::{Port, Served};
use super::tally::Tally;
use crate::checker::check;
use crate::facts::{FinalState, FinalTask, Note};
use crate::fleet::{Noted, pass};
use crate::history::{self, History, Recorder};
use crate::recorded_queue::{RecordedQueue, taken_away};

/// Two minutes: far longer than anything takes here.
const LIMIT: Duration = Duration::from_secs(120);

/// 5 ms between two short tasks, so that claims and settlements are under way when the runner is killed.
const PERIOD: Duration = Duration::from_millis(5);

/// How often, how much and how long.
#[derive(Clone, Copy, Debug)]
pub struct RunnerKills {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// How often a runner is killed.
    pub kills: usize,
    /// How many long tasks it holds each time.
    pub tasks: usize,
    /// How long it may be silent.
    pub lease: Duration,
}

impl Default for RunnerKills {
    fn default() -> Self {
        Self { seed: 0, kills: 4, tasks: 3, lease: Duration::from_secs(2) }
    }
}

/// What the child is told.
#[derive(Debug, Serialize, Deserialize)]
struct RunnerErrand {
    url: String,
    history: PathBuf,
    process: String,
    pool: String,
    lease: Duration,
}

/// Takes a while. A long one never ends in a child, and at once anywhere else.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Haul {
    Short { millis: u64 },
    Long,
}

impl Payload for Haul {
    const TASK_TYPE: &'static str = "haul";
}

/// The whole `main` of a child.
pub fn serve_runner() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_default();
    let errand: RunnerErrand = match serde_json::from_str(&argument) {
        Ok(errand) => errand,
        Err(error) => return failed(&format!("a rig starts this program with its errand as JSON: {error}")),
    };
    let (tell, _enough) = watch::channel(false);
    std::thread::spawn(move || listen(&tell));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = runtime.map_err(|error| error.to_string()).and_then(|runtime| runtime.block_on(run_child(&errand)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

async fn run_child(errand: &RunnerErrand) -> Result<(), String> {
    let recorder = Recorder::with_file(&errand.process, Arc::new(SystemClock), &errand.history);
    let recorder = recorder.map_err(|error| error.to_string())?;
    let record = recorder.client("runner");
    let client = connect(&errand.url, &record).await.map_err(|error| error.to_string())?;
    let handler = move |haul: Haul, context: Context| {
        let noted = Noted::begin(&context, record.clone());
        async move {
            let _noted = noted;
            match haul {
                Haul::Short { millis } => pass(Duration::from_millis(millis)).await,
                Haul::Long => {
                    say(&Signal::Holding(1));
                    std::future::pending::<()>().await;
                }
            }
            Ok::<_, TaskError>(Done::Succeeded(None))
        }
    };
    let runner =
        Runner::builder(&client).handler(handler).pool(&errand.pool).concurrency(8).lease(errand.lease).build();
    let runner = runner.map_err(|error| error.to_string())?;
    say(&Signal::Opened);
    runner.run_until_stopped().await.map(drop).map_err(|error| error.to_string())
}

async fn connect(url: &str, record: &history::Client) -> ekiden::Result<Client> {
    let queue = Arc::new(HttpQueue::connect(url, None).await?);
    Ekiden::over(Arc::new(RecordedQueue::new(queue, record.clone()))).namespace("default")
}

/// Kills runners, and holds the laws against what all of them saw. Says also how long after each kill each long task ran again.
/// An error is a process that could not go on.
pub fn runner_kills(server: &Program, child: &Program, plan: &RunnerKills) -> Result<(Tally, Vec<Duration>), Ended> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let mut tally = Tally::begin(format!("kills of a runner over HTTP, {}", child.name()));
    let again = runtime.map_err(Ended::because)?.block_on(all_kills(server, child, plan, &mut tally))?;
    if let Some(latest) = again.iter().max() {
        tally.remark(&format!(", the latest task running again after {:.2} s", latest.as_secs_f64()));
    }
    Ok((tally.end(), again))
}

async fn all_kills(
    server: &Program,
    child: &Program,
    plan: &RunnerKills,
    tally: &mut Tally,
) -> Result<Vec<Duration>, Ended> {
    let mut scratch = Scratch::new().map_err(Ended::because)?;
    scratch.set_kept(true);
    let port = Port::free();
    let served = Served::start(server, Some(&scratch.path().join("store")), port);
    served.wait_ready()?;
    let mine = scratch.path().join("mine.jsonl");
    let recorder = Recorder::with_file("mine", Arc::new(SystemClock), &mine).map_err(Ended::because)?;
    let record = recorder.client("second");
    let mut rig = Rig {
        child,
        plan,
        url: port.url(),
        client: connect(&port.url(), &record).await.map_err(Ended::because)?,
        record,
        entropy: Entropy::from_seed(plan.seed),
        histories: vec![mine],
        again: Vec::new(),
    };
    for kill in 0..plan.kills {
        let history = scratch.path().join(format!("child-{kill}.jsonl"));
        rig.histories.push(history.clone());
        rig.kill_one(kill, history).await?;
        tally.faults += 1;
    }
    let (history, last) = rig.judge().await?;
    tally.count(&history);
    tally.tasks += last.tasks.len();
    tally.seeds.push(plan.seed);
    tally.violations = check(&history, &last);
    if tally.violations.is_empty() {
        scratch.set_kept(false);
    } else {
        tally.evidence.push(scratch);
    }
    Ok(rig.again)
}

struct Rig<'a> {
    child: &'a Program,
    plan: &'a RunnerKills,
    url: String,
    client: Client,
    record: history::Client,
    entropy: Entropy,
    histories: Vec<PathBuf>,
    again: Vec<Duration>,
}

impl Rig<'_> {
    /// One runner, in a pool of its own, so that the second cannot take its tasks before it.
    async fn kill_one(&mut self, kill: usize, history: PathBuf) -> Result<(), Ended> {
        let pool = format!("pool-{kill}");
        let process = format!("child-{kill}");
        let errand =
            RunnerErrand { url: self.url.clone(), history, process, pool: pool.clone(), lease: self.plan.lease };
        let mut process = Process::start_with(self.child, &errand);
        process.wait_for("a runner at work", |signal| *signal == Signal::Opened)?;
        for _ in 0..self.plan.tasks {
            self.enqueue(Haul::Long, &pool).await?;
        }
        for _ in 0..self.plan.tasks {
            process.wait_for("a long task begun", |signal| matches!(signal, Signal::Holding(_)))?;
        }

        let (begun, mut begins) = mpsc::unbounded_channel();
        let record = self.record.clone();
        let handler = move |haul: Haul, context: Context| {
            let noted = Noted::begin(&context, record.clone());
            let begun = begun.clone();
            async move {
                let _noted = noted;
                match haul {
                    Haul::Short { millis } => pass(Duration::from_millis(millis)).await,
                    // The receiver is gone only after the last of them.
                    Haul::Long => drop(begun.send(SystemClock.monotonic())),
                }
                Ok::<_, TaskError>(Done::Succeeded(None))
            }
        };
        let second = Runner::builder(&self.client).handler(handler).pool(&pool).concurrency(8).lease(self.plan.lease);
        let second = second.build().map_err(Ended::because)?;
        let stop = second.stop();
        let running = tokio::spawn(second.run_until_stopped());

        // Between two beats, at a moment that the seed chooses; the load goes on meanwhile.
        let beats = usize::try_from(self.plan.lease.as_millis() / 4 / PERIOD.as_millis()).unwrap_or(1);
        for _ in 0..1 + self.entropy.below(beats) {
            let millis = u64::try_from(self.entropy.below(30)).unwrap_or(0);
            self.enqueue(Haul::Short { millis }, &pool).await?;
            pass(PERIOD).await;
        }
        let killed_at = SystemClock.monotonic();
        process.kill();
        for _ in 0..self.plan.tasks {
            let begun = tokio::time::timeout(LIMIT, begins.recv()).await.ok().flatten();
            let begun = begun.ok_or_else(|| Ended::because("a task of a killed runner never ran again"))?;
            self.again.push(begun.saturating_sub(killed_at));
        }
        self.all_ended(&pool).await?;
        stop.gently();
        running.await.map_err(Ended::because)?.map_err(Ended::because)?;
        Ok(())
    }

    async fn enqueue(&self, haul: Haul, pool: &str) -> Result<(), Ended> {
        let retry = RetryPolicy::Fixed { delay: Millis::new(20) };
        self.client.enqueue(haul).pool(pool).retry(retry).await.map(drop).map_err(Ended::because)
    }

    async fn all_ended(&self, pool: &str) -> Result<(), Ended> {
        let of_pool = |task: &&TaskRecord| task.pool.as_str() == pool;
        for task in self.every_task().await?.iter().filter(of_pool) {
            let ended = tokio::time::timeout(LIMIT, self.client.wait(&task.id)).await;
            ended.map_err(|_| Ended::because(format!("{} never ended", task.id)))?.map_err(Ended::because)?;
        }
        Ok(())
    }

    async fn every_task(&self) -> Result<Vec<TaskRecord>, Ended> {
        let mut found = Vec::new();
        let mut query = TaskQuery::oldest(TaskFilter::all(self.client.namespace().clone()), 200);
        loop {
            let page = self.client.queue().tasks(query.clone()).await.map_err(Ended::because)?;
            found.extend(page.items);
            if page.cursor.is_none() {
                return Ok(found);
            }
            query.cursor = page.cursor;
        }
    }

    async fn judge(&self) -> Result<(History, FinalState), Ended> {
        let records = self.every_task().await?;
        for task in &records {
            self.record.note(Note::Observed { task: task.id.clone(), found: Box::new(FinalTask::from(task)) });
        }
        let told = History::merge(&self.histories, Millis::ZERO).map_err(Ended::because)?;
        let last = FinalState::observed(&told).quiesced();
        let lines = told.lines().iter().cloned().chain(taken_away(&records, "server")).collect();
        Ok((History::from_lines(lines, Millis::ZERO), last))
    }
}
