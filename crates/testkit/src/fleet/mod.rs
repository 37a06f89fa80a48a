//! A small fleet under one seed: several processes with real runners on one store that fails, in virtual time. Tasks of every
//! sort are handed in, cancelled, retried and answered; lines are cut and mended, runners end and begin anew; then quiet.
//!
//! Run it on a paused, single-threaded runtime: hours pass at once, and a seed repeats the whole run.

mod process;
mod work;

use std::sync::Arc;
use std::time::Duration;

use ekiden::store::{Clock, TokioClock};
use ekiden::{Client, TaskState};
use ekiden_core::filter::TaskFilter;
use ekiden_core::id::TaskId;
use ekiden_core::record::Versioned;
use ekiden_core::time::Timestamp;
use ekiden_store::entropy::Entropy;
use ekiden_store::{ListOrder, Store, TaskQuery};

use crate::facts::{FinalState, FinalTask, Note};
use crate::history::{History, Recorder};
use process::Process;
pub(crate) use work::Noted;

/// 2026-11-15T12:00:00Z: when every run begins.
const NOON: Timestamp = Timestamp::from_millis(1_794_744_000_000);

/// Ten minutes of virtual time: what has not come to rest by then is stuck.
const REST_MAX: Duration = Duration::from_secs(600);

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// How many processes there are, each with a runner.
    pub processes: usize,
    /// How many things are done.
    pub deeds: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 0, processes: 2, deeds: 40 }
    }
}

/// Runs the fleet over a store that may fail, and reads what became of everything from the store below, which does not.
pub async fn run(store: Arc<dyn Store>, below: Arc<dyn Store>, options: Options) -> (History, FinalState) {
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new(NOON));
    let recorder = Recorder::new("fleet", clock.clone());
    let mut entropy = Entropy::from_seed(options.seed);
    let mut fleet = Fleet { processes: Vec::new(), known: Vec::new(), below };
    for number in 0..options.processes {
        let seed = entropy.next_u64();
        fleet.processes.push(Process::start(number, store.clone(), clock.clone(), &recorder, seed));
    }
    for _ in 0..options.deeds {
        pass(Duration::from_millis(u64::try_from(entropy.below(300)).unwrap_or(0))).await;
        fleet.do_something(&mut entropy).await;
    }
    fleet.come_to_rest().await;
    for process in fleet.processes {
        process.end().await;
    }
    let last = observe(&*fleet.below, &recorder).await;
    (recorder.history(), last)
}

/// Time passes: on a paused runtime this takes none, and everybody else has come to rest before it ends.
pub(crate) async fn pass(span: Duration) {
    let _ = tokio::time::timeout(span, std::future::pending::<()>()).await;
}

struct Fleet {
    processes: Vec<Process>,
    known: Vec<TaskId>,
    below: Arc<dyn Store>,
}

impl Fleet {
    async fn do_something(&mut self, entropy: &mut Entropy) {
        let at = entropy.below(self.processes.len());
        let Some(process) = self.processes.get_mut(at) else { return };
        let client = process.client().clone();
        match entropy.below(100) {
            0..66 => {
                let wish = work::wish(&client, entropy, &self.known);
                if let Ok(enqueued) = wish.await {
                    self.known.push(enqueued.id);
                }
            }
            66..76 => self.on_known(entropy, |id| async move { client.cancel(&id).await.map(drop) }).await,
            76..81 => self.on_known(entropy, |id| async move { client.retry(&id).await.map(drop) }).await,
            81..86 => answer_all(&client).await,
            86..92 => process.line().cut(),
            92..96 => process.line().mend(),
            _ => process.begin_anew(entropy.chance(50)).await,
        }
    }

    /// What is refused, or fails, is as a caller would find it.
    async fn on_known<F: Future<Output = ekiden::Result<()>>>(
        &self,
        entropy: &mut Entropy,
        deed: impl FnOnce(TaskId) -> F,
    ) {
        if !self.known.is_empty() {
            // The latest are the ones that run or wait.
            let latest = self.known.len().saturating_sub(8);
            let id = entropy.pick(self.known.get(latest..).unwrap_or_default()).clone();
            let _ = deed(id).await;
        }
    }

    /// All lines are mended, questions are answered, and everything that still can happen happens.
    async fn come_to_rest(&self) {
        for process in &self.processes {
            process.line().mend();
        }
        let step = Duration::from_secs(5);
        for _ in 0..REST_MAX.as_secs() / step.as_secs() {
            pass(step).await;
            if let Some(process) = self.processes.first() {
                answer_all(process.client()).await;
            }
            if every_task(&*self.below).await.iter().all(at_rest) {
                return;
            }
        }
    }
}

/// Ended with all its attempts, or blocked for good.
fn at_rest(found: &Versioned) -> bool {
    let Some(task) = found.record.as_task() else { return true };
    let ended = task.state.phase.is_final() && task.state.lease.is_none();
    ended
        || (task.state.phase == TaskState::Blocked && task.state.reason.is_some())
        || task.state.phase == TaskState::Pending && task.state.reason.is_some()
}

async fn answer_all(client: &Client) {
    let asking = TaskFilter { phases: vec![TaskState::NeedsInput], ..client.all() };
    let Ok(page) = client.list(asking, None, 100).await else { return };
    for task in page.items {
        if let Some(question) = task.question {
            let _ = client.answer(&task.id, &question.id, "go on").await;
        }
    }
}

async fn observe(below: &dyn Store, recorder: &Arc<Recorder>) -> FinalState {
    let client = recorder.client("end");
    for versioned in every_task(below).await {
        if let Some(task) = versioned.record.as_task() {
            let found = Box::new(FinalTask::from(task.as_ref()));
            client.note(Note::Observed { task: task.id().clone(), found });
        }
    }
    FinalState::observed(&recorder.history()).quiesced()
}

async fn every_task(store: &dyn Store) -> Vec<Versioned> {
    let mut found = Vec::new();
    let mut cursor = None;
    loop {
        let filter = TaskFilter::all(process::namespace());
        let query = TaskQuery { filter, order: ListOrder::OldestFirst, cursor, limit: 500 };
        let page = store.tasks(query).await.expect("the store below never fails");
        found.extend(page.items);
        cursor = page.cursor;
        if cursor.is_none() {
            return found;
        }
    }
}
