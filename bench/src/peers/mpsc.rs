//! tokio's bounded channel: no queue at all, but the ceiling for anything that hands tasks to another thread of control.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::ledger::{Ledger, Stopwatch};
use crate::{Outcome, payload};

/// 1,024 tasks: enough that producers rarely wait for room.
const ROOM: usize = 1_024;

/// Tasks a second through one channel. It has one receiver by nature, and a no-op needs no second one.
pub async fn lifecycle(producers: usize, tasks: usize) -> Outcome<f64> {
    let ledger = Arc::new(Ledger::new(tasks));
    let (sender, mut receiver) = mpsc::channel::<Bytes>(ROOM);
    let books = ledger.clone();
    let receiving = tokio::spawn(async move {
        while let Some(payload) = receiver.recv().await {
            books.handle(&payload);
            books.complete();
        }
    });
    let start = Instant::now();
    for producer in 0..producers {
        let sender = sender.clone();
        tokio::spawn(async move {
            for number in (producer..tasks).step_by(producers) {
                if sender.send(payload::of(number)).await.is_err() {
                    break;
                }
            }
        });
    }
    drop(sender);
    let rate = ledger.tasks_per_second(start).await;
    receiving.abort();
    rate
}

/// How long each task waited until it was received, one handed in at every tick.
pub async fn start_latencies(tasks: usize, pace: Duration) -> Outcome<Vec<Duration>> {
    let stopwatch = Arc::new(Stopwatch::new(tasks));
    let (sender, mut receiver) = mpsc::channel::<Bytes>(ROOM);
    let books = stopwatch.clone();
    let receiving = tokio::spawn(async move {
        while let Some(payload) = receiver.recv().await {
            books.start(&payload);
        }
    });
    let books = stopwatch.clone();
    let producing = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(pace);
        for number in 0..tasks {
            ticks.tick().await;
            let payload = payload::of(number);
            books.begin(number);
            if sender.send(payload).await.is_err() {
                break;
            }
        }
    });
    let waits = stopwatch.waits().await;
    producing.abort();
    receiving.abort();
    waits
}
