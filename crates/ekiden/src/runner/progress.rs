//! Reports of progress: handlers say as much as they like, the store hears the latest word a few times a second.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ekiden_core::id::TaskId;
use ekiden_core::lease::Token;
use ekiden_core::reason::ReasonCode;
use ekiden_core::task::Progress;
use tokio::sync::Notify;

use crate::error::Error;
use crate::port::{LeaseRef, Queue};

/// A quarter of a second: smooth enough to watch, little enough to pay for.
const PERIOD: Duration = Duration::from_millis(250);

/// The latest word of each attempt that has something to say.
#[derive(Default)]
pub(crate) struct Reporter {
    said: Mutex<BTreeMap<TaskId, (LeaseRef, Progress)>>,
    notify: Notify,
    pub(crate) doubts: Doubts,
}

/// Attempts to which something was refused because they have no lease. The runner looks whether their tasks are gone for good.
#[derive(Default)]
pub(crate) struct Doubts {
    found: Mutex<Vec<(TaskId, Token)>>,
    notify: Notify,
}

impl Doubts {
    /// Takes note of a refusal, if it is one of that sort.
    pub(crate) fn note(&self, lease: &LeaseRef, refused: &Error) {
        if matches!(refused.code(), ReasonCode::LeaseLost | ReasonCode::TaskFinal | ReasonCode::TaskNotFound) {
            self.found.lock().unwrap_or_else(PoisonError::into_inner).push((lease.task.id.clone(), lease.token));
            self.notify.notify_one();
        }
    }

    pub(super) fn take(&self) -> Vec<(TaskId, Token)> {
        std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until something was noted.
    pub(super) async fn noted(&self) {
        self.notify.notified().await;
    }
}

impl Reporter {
    pub(crate) fn say(&self, lease: &LeaseRef, progress: Progress) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.insert(lease.task.id.clone(), (lease.clone(), progress));
        drop(said);
        self.notify.notify_one();
    }

    fn take(&self) -> Vec<(LeaseRef, Progress)> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *said).into_values().collect()
    }

    /// Passes words on for ever.
    pub(super) async fn pass_on(self: Arc<Self>, queue: Arc<dyn Queue>) {
        loop {
            self.notify.notified().await;
            self.pass_on_now(&*queue).await;
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Passes on what was said so far. What a store could not take now is passed on later: it may be an attempt's only word.
    pub(crate) async fn pass_on_now(&self, queue: &dyn Queue) {
        for (lease, progress) in self.take() {
            let Err(error) = queue.report(lease.clone(), progress.clone()).await else { continue };
            tracing::debug!(task_id = lease.task.id.as_str(), %error, "progress not reported");
            self.doubts.note(&lease, &error);
            // An attempt that has ended meanwhile has nothing to report any more.
            if error.is_retryable() || error.is_unknown() {
                self.say_again(lease, progress);
            }
        }
    }

    /// A later word stands for the earlier one.
    fn say_again(&self, lease: LeaseRef, progress: Progress) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.entry(lease.task.id.clone()).or_insert((lease, progress));
        drop(said);
        self.notify.notify_one();
    }
}
