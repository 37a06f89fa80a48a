//! A load over the port, in real time: clients that hand in, claim, work, settle in every way, cancel, retry, answer, die and
//! come back late, each over a queue of its own; then quiet, until nothing is left to do. Knows nothing of what is behind the
//! port, so it is the same for a queue in process and for a server that is killed meanwhile.

mod client;
mod rest;
mod wishes;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ekiden::core::{Millis, Namespace, QuestionId, TaskId};
use ekiden::{Queue, TaskRef};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::facts::FinalState;
use crate::history::{History, Recorder};
use crate::recorded_queue::RecordedQueue;
use client::Worker;

/// How long a runner may be silent: about as long as a server takes to start again, so that some leases outlive that.
const LEASE: Millis = Millis::new(1_000);

/// The pools and kinds of the load.
const POOLS: [&str; 2] = ["work", "mail"];
const KINDS: [&str; 2] = ["a", "b"];

/// Clients, and what they share.
pub struct Traffic {
    recorder: Arc<Recorder>,
    seed: u64,
    known: Mutex<Known>,
    stopped: watch::Sender<bool>,
}

/// What clients tell each other.
#[derive(Default)]
struct Known {
    tasks: Vec<TaskId>,
    questions: Vec<(TaskId, QuestionId)>,
}

fn namespace() -> Namespace {
    Namespace::new("default").expect("a plain word is a valid id")
}

fn named(task: &TaskId) -> TaskRef {
    TaskRef { namespace: namespace(), id: task.clone() }
}

impl Traffic {
    /// A load without clients, whose history is written here.
    pub fn new(recorder: Arc<Recorder>, seed: u64) -> Arc<Self> {
        Arc::new(Self { recorder, seed, known: Mutex::default(), stopped: watch::Sender::new(false) })
    }

    /// Starts a client over a queue; it works until it is told to stop.
    pub fn start(self: &Arc<Self>, number: usize, queue: Arc<dyn Queue>) -> JoinHandle<()> {
        let record = self.recorder.client(&format!("client-{number}"));
        let queue = RecordedQueue::new(queue, record.clone());
        tokio::spawn(Worker::new(self.clone(), number, queue, record).run())
    }

    /// Tells every client to stop after what it is doing.
    pub fn stop(&self) {
        self.stopped.send_replace(true);
    }

    /// Writes down everything that is there, as somebody does who comes after a restart.
    pub async fn look(&self, queue: &dyn Queue) -> ekiden::Result<()> {
        rest::look(queue, &self.recorder.client("look")).await
    }

    /// Lets everything come to rest, and reads it. No client works any more.
    pub async fn come_to_rest(self: &Arc<Self>, queue: Arc<dyn Queue>) -> (History, FinalState) {
        rest::come_to_rest(self, queue).await
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
