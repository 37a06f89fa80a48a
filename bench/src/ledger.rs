//! Who was handled, how often and when: the same books for us and for the peers, so that nobody is fast by losing tasks.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::{Outcome, payload};

/// A run that takes longer has lost a task or hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The books of a throughput run.
#[derive(Debug)]
pub struct Ledger {
    handled: Box<[AtomicBool]>,
    wrong: AtomicUsize,
    ran: AtomicUsize,
    completed: AtomicUsize,
    all: Notify,
}

impl Ledger {
    /// Books for so many tasks, numbered from zero.
    pub fn new(tasks: usize) -> Self {
        let handled = (0..tasks).map(|_| AtomicBool::new(false)).collect();
        let zero = || AtomicUsize::new(0);
        Self { handled, wrong: zero(), ran: zero(), completed: zero(), all: Notify::new() }
    }

    /// What a handler does: nothing, but for its entry.
    pub fn handle(&self, payload: &[u8]) {
        let entry = payload::number(payload).and_then(|number| self.handled.get(number));
        if entry.is_none_or(|entry| entry.swap(true, Ordering::Relaxed)) {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
        self.ran.fetch_add(1, Ordering::AcqRel);
    }

    /// A task is behind us, with whatever its queue does after the handler.
    pub fn complete(&self) {
        if self.completed.fetch_add(1, Ordering::AcqRel) + 1 == self.handled.len() {
            self.all.notify_one();
        }
    }

    /// Whether every handler has run.
    pub fn all_handled(&self) -> bool {
        self.ran.load(Ordering::Acquire) == self.handled.len()
    }

    /// Every task is behind us.
    pub fn complete_all(&self) {
        self.completed.store(self.handled.len(), Ordering::Release);
        self.all.notify_one();
    }

    /// Waits for the last task and says how many were completed a second since the start.
    pub async fn tasks_per_second(&self, start: Instant) -> Outcome<f64> {
        let in_time = tokio::time::timeout(PATIENCE, self.all.notified()).await.is_ok();
        let took = start.elapsed();
        let (tasks, completed) = (self.handled.len(), self.completed.load(Ordering::Acquire));
        let (missed, wrong) = (self.missed(), self.wrong.load(Ordering::Relaxed));
        if !in_time || missed > 0 || wrong > 0 {
            return Err(format!("of {tasks} tasks {completed} ended, {missed} never ran, {wrong} ran twice").into());
        }
        Ok(as_f64(tasks) / took.as_secs_f64())
    }

    fn missed(&self) -> usize {
        self.handled.iter().filter(|handled| !handled.load(Ordering::Relaxed)).count()
    }
}

/// The books of a latency run: when each task was handed in, and when its handler began.
#[derive(Debug)]
pub struct Stopwatch {
    zero: Instant,
    began_nanos: Box<[AtomicU64]>,
    waited_nanos: Box<[AtomicU64]>,
    completed: AtomicUsize,
    all: Notify,
}

/// No task waits five hundred years.
const NOT_YET: u64 = u64::MAX;

impl Stopwatch {
    /// Books for so many tasks, numbered from zero.
    pub fn new(tasks: usize) -> Self {
        let blank = || (0..tasks).map(|_| AtomicU64::new(NOT_YET)).collect();
        Self {
            zero: Instant::now(),
            began_nanos: blank(),
            waited_nanos: blank(),
            completed: AtomicUsize::new(0),
            all: Notify::new(),
        }
    }

    /// Just before a task is handed in.
    pub fn begin(&self, number: usize) {
        if let Some(began) = self.began_nanos.get(number) {
            began.store(self.nanos(), Ordering::Release);
        }
    }

    /// A handler begins.
    pub fn start(&self, payload: &[u8]) {
        let now = self.nanos();
        let number = payload::number(payload).unwrap_or(usize::MAX);
        if let (Some(began), Some(waited)) = (self.began_nanos.get(number), self.waited_nanos.get(number)) {
            waited.store(now.saturating_sub(began.load(Ordering::Acquire)), Ordering::Release);
        }
        if self.completed.fetch_add(1, Ordering::AcqRel) + 1 == self.waited_nanos.len() {
            self.all.notify_one();
        }
    }

    /// Waits for the last task and gives every task's wait.
    pub async fn waits(&self) -> Outcome<Vec<Duration>> {
        let in_time = tokio::time::timeout(PATIENCE, self.all.notified()).await.is_ok();
        let waited: Vec<u64> = self.waited_nanos.iter().map(|waited| waited.load(Ordering::Acquire)).collect();
        let missed = waited.iter().filter(|waited| **waited == NOT_YET).count();
        if !in_time || missed > 0 {
            return Err(format!("of {} tasks {missed} never started", waited.len()).into());
        }
        Ok(waited.into_iter().map(Duration::from_nanos).collect())
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(NOT_YET)
    }
}

/// Counts here stay far below 2^53, where every whole number is exact.
#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
pub(crate) const fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_ran_twice_spoils_the_run() {
        let ledger = Ledger::new(2);
        for number in [1, 1] {
            ledger.handle(&payload::of(number));
            ledger.complete();
        }
        let error = ledger.tasks_per_second(Instant::now()).await.unwrap_err().to_string();
        assert_eq!(error, "of 2 tasks 2 ended, 1 never ran, 1 ran twice");
    }

    #[tokio::test]
    async fn a_complete_run_has_a_rate_and_waits() {
        let (ledger, stopwatch) = (Ledger::new(2), Stopwatch::new(2));
        for number in [0, 1] {
            stopwatch.begin(number);
            stopwatch.start(&payload::of(number));
            ledger.handle(&payload::of(number));
            ledger.complete();
        }
        assert!(ledger.tasks_per_second(Instant::now()).await.unwrap() > 0.0);
        assert_eq!(stopwatch.waits().await.unwrap().len(), 2);
    }
}
