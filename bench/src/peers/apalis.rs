//! apalis with its memory storage: a channel with tasks in it and a worker behind it. It keeps no state, so a finished task
//! leaves no trace, and nothing can be asked, cancelled, repeated or handed to another worker.

use std::sync::Arc;
use std::time::Instant;

use apalis_core::backend::memory::{MemorySink, MemoryStorage, MemoryStorageError};
use apalis_core::task::Task;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::worker::builder::WorkerBuilder;
use bytes::Bytes;
use futures_channel::mpsc::{UnboundedSender, unbounded};
use futures_util::future::select_all;
use futures_util::lock::Mutex;
use futures_util::{SinkExt, StreamExt};

use crate::ledger::Ledger;
use crate::{Outcome, payload};

type Sender = UnboundedSender<Task<Bytes>>;

/// Tasks a second through so many workers.
///
/// A memory storage belongs to one worker. Sixteen consumers can therefore be one worker, which runs all that it gets side by
/// side, or sixteen workers with a line each, among which the producers are dealt out. The second is faster where threads
/// would fight for one channel, but is no shared line. Callers measure both and compare with the better.
///
/// No concurrency limit is set: it has nothing to hold back when a handler never waits, and takes up to half of the speed.
pub async fn lifecycle(producers: usize, workers: usize, tasks: usize) -> Outcome<f64> {
    let ledger = Arc::new(Ledger::new(tasks));
    let (senders, working): (Vec<_>, Vec<_>) = (0..workers.max(1)).map(|at| start_worker(at, &ledger)).unzip();
    let stops: Vec<_> = working.iter().map(|worker| worker.abort_handle()).collect();
    let start = Instant::now();
    for (producer, sender) in (0..producers).zip(senders.iter().cycle()) {
        tokio::spawn(produce(sink(sender), (producer..tasks).step_by(producers)));
    }
    let rate = tokio::select! {
        rate = ledger.tasks_per_second(start) => rate,
        (ended, ..) = select_all(working) => Err(format!("a worker of apalis ended early: {ended:?}").into()),
    };
    stops.iter().for_each(|worker| worker.abort());
    rate
}

type Working = tokio::task::JoinHandle<Result<(), apalis_core::error::WorkerError>>;

fn start_worker(at: usize, ledger: &Arc<Ledger>) -> (Sender, Working) {
    let (sender, receiver) = unbounded();
    let storage = MemoryStorage::new_with(sink(&sender), receiver.boxed());
    let ledger = ledger.clone();
    let handler = move |payload: Bytes| {
        let ledger = ledger.clone();
        async move {
            ledger.handle(&payload);
            ledger.complete();
        }
    };
    let worker = WorkerBuilder::new(format!("bench-{at}")).backend(storage).build(handler);
    (sender, tokio::spawn(worker.run()))
}

/// Clones of one sink panic when two threads push at once, because it expects its own lock to be free (1.0.0). Hence every
/// producer gets a sink of its own into the channel, which is also the faster way.
fn sink(sender: &Sender) -> MemorySink<Bytes> {
    let sender = sender.clone().sink_map_err(MemoryStorageError::from);
    MemorySink::new(Arc::new(Mutex::new(Box::new(sender))))
}

/// The same as `TaskSink::push` does, which a sink apart from its storage does not have.
async fn produce(mut sink: MemorySink<Bytes>, numbers: impl Iterator<Item = usize>) -> Result<(), MemoryStorageError> {
    for number in numbers {
        sink.send(TaskBuilder::new(payload::of(number)).build()).await?;
        // Nothing above ever waits: without this a producer would keep its thread until its last task, and sixteen of
        // them would run one after the other.
        tokio::task::consume_budget().await;
    }
    Ok(())
}
