//! apalis with its memory storage: a channel with tasks in it and a worker behind it. It keeps no state, so a finished task
//! leaves no trace, and nothing can be asked, cancelled, repeated or handed to another worker.

use std::sync::Arc;
use std::time::Instant;

use apalis::layers::WorkerBuilderExt;
use apalis_core::backend::memory::{MemorySink, MemoryStorage, MemoryStorageError};
use apalis_core::task::Task;
use apalis_core::task::builder::TaskBuilder;
use apalis_core::worker::builder::WorkerBuilder;
use bytes::Bytes;
use futures_channel::mpsc::{UnboundedSender, unbounded};
use futures_util::lock::Mutex;
use futures_util::{SinkExt, StreamExt};

use crate::ledger::Ledger;
use crate::{Outcome, payload};

/// Tasks a second through one storage and one worker with so many consumers.
pub async fn lifecycle(producers: usize, consumers: usize, tasks: usize) -> Outcome<f64> {
    let ledger = Arc::new(Ledger::new(tasks));
    let (sender, receiver) = unbounded::<Task<Bytes>>();
    let storage = MemoryStorage::new_with(sink(&sender), receiver.boxed());
    let books = ledger.clone();
    let handler = move |payload: Bytes| {
        let books = books.clone();
        async move {
            books.handle(&payload);
            books.complete();
        }
    };
    let worker = WorkerBuilder::new("bench").backend(storage).concurrency(consumers).build(handler);
    let mut working = tokio::spawn(worker.run());
    let start = Instant::now();
    for producer in 0..producers {
        tokio::spawn(produce(sink(&sender), (producer..tasks).step_by(producers)));
    }
    let rate = tokio::select! {
        rate = ledger.tasks_per_second(start) => rate,
        ended = &mut working => Err(format!("the worker of apalis ended early: {ended:?}").into()),
    };
    working.abort();
    rate
}

/// Clones of one sink panic when two threads push at once, because it expects its own lock to be free (1.0.0). Hence every
/// producer gets a sink of its own into the same channel, which is also the faster way.
fn sink(sender: &UnboundedSender<Task<Bytes>>) -> MemorySink<Bytes> {
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
