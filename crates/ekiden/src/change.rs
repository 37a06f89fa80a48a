//! What happens to tasks, told to those who listen: log events, observers and subscriptions (R10, R14).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ekiden_core::event::EventName;
use ekiden_core::id::{Kind, Namespace, PoolName, TaskId};
use ekiden_core::task::{Phase, Progress, Task};
use ekiden_core::time::{Millis, Timestamp};
use tokio::sync::broadcast;

use crate::record::TaskState;

/// 16,384 changes: a subscriber that is further behind is told how many it missed.
const CHANGES_KEPT: usize = 16_384;

/// Something happened to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChange {
    /// The namespace.
    pub namespace: Namespace,
    /// The task.
    pub id: TaskId,
    /// Its kind.
    pub task_type: Kind,
    /// Its pool.
    pub pool: PoolName,
    /// What happened; `None` for a report of progress.
    pub event: Option<EventName>,
    /// Where it is now.
    pub state: TaskState,
    /// The number of its latest attempt; 0 before the first.
    pub attempt: u64,
    /// What went wrong, where something did.
    pub error: Option<Arc<str>>,
    /// When it runs again, where it waits for that.
    pub next_run_at: Option<Timestamp>,
    /// How far the attempt is.
    pub progress: Option<Progress>,
    /// When it happened.
    pub at: Timestamp,
}

/// Hears of every change that passes through a queue, at once and in the caller's place: be quick. For metrics.
pub trait Observer: Send + Sync + 'static {
    /// A change.
    fn observe(&self, change: &TaskChange);

    /// A change that nobody else needs any more, for those who would copy it.
    fn keep(&self, change: TaskChange) {
        self.observe(&change);
    }

    /// Maintenance of a namespace has something to do at once. For those who maintain.
    fn needs_maintenance(&self, namespace: &Namespace) {
        let _ = namespace;
    }
}

/// The changes of one namespace.
#[derive(Debug)]
pub struct Subscription {
    namespace: Namespace,
    source: Source,
}

/// Where a subscriber hears from.
#[derive(Debug)]
enum Source {
    /// A queue in this process, which tells of all namespaces.
    Here(broadcast::Receiver<TaskChange>),
    /// A server, by way of whoever follows its stream.
    #[cfg(feature = "http")]
    Far(tokio::sync::mpsc::Receiver<Heard>),
}

/// What a subscriber hears next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A change.
    Change(Box<TaskChange>),
    /// So many were missed; look at the tasks themselves.
    Missed(u64),
}

impl Subscription {
    /// Waits for the next change; `None` when the queue is gone.
    pub async fn next(&mut self) -> Option<Heard> {
        let changes = match &mut self.source {
            Source::Here(changes) => changes,
            #[cfg(feature = "http")]
            Source::Far(told) => return told.recv().await,
        };
        loop {
            match changes.recv().await {
                Ok(change) if change.namespace == self.namespace => return Some(Heard::Change(Box::new(change))),
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(missed)) => return Some(Heard::Missed(missed)),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(feature = "http")]
impl Subscription {
    /// A subscription to what is told through the other end.
    pub(crate) fn far(namespace: Namespace) -> (Self, tokio::sync::mpsc::Sender<Heard>) {
        // The server keeps what a slow subscriber has not heard, and says when it no longer does.
        let (told, heard) = tokio::sync::mpsc::channel(1_024);
        (Self { namespace, source: Source::Far(heard) }, told)
    }
}

/// Where changes are told.
pub(crate) struct Announcer {
    changes: broadcast::Sender<TaskChange>,
    /// Whether anybody ever subscribed.
    subscribed: AtomicBool,
    observers: Vec<Arc<dyn Observer>>,
}

impl Announcer {
    pub(crate) fn new(observers: Vec<Arc<dyn Observer>>) -> Self {
        Self { changes: broadcast::channel(CHANGES_KEPT).0, subscribed: AtomicBool::new(false), observers }
    }

    pub(crate) fn subscribe(&self, namespace: Namespace) -> Subscription {
        let changes = self.changes.subscribe();
        self.subscribed.store(true, Ordering::Release);
        Subscription { namespace, source: Source::Here(changes) }
    }

    /// Asking the channel takes its lock, so it is not asked before somebody subscribed.
    fn has_subscribers(&self) -> bool {
        self.subscribed.load(Ordering::Acquire) && self.changes.receiver_count() > 0
    }

    /// Whether telling is worth an effort.
    pub(crate) fn is_heard(&self) -> bool {
        !self.observers.is_empty() || self.has_subscribers()
    }

    /// Tells of the task's latest change.
    pub(crate) fn tell(&self, task: &Task) {
        let event = task.state.history.last().map(|line| line.event);
        if let Some(event) = event {
            log(task, event);
        }
        self.pass_on(task, event);
    }

    /// Tells that maintenance has something to do.
    pub(crate) fn needs_maintenance(&self, namespace: &Namespace) {
        self.observers.iter().for_each(|observer| observer.needs_maintenance(namespace));
    }

    /// Tells how far a task is.
    pub(crate) fn tell_progress(&self, task: &Task) {
        self.pass_on(task, None);
    }

    fn pass_on(&self, task: &Task, event: Option<EventName>) {
        if !self.is_heard() {
            return;
        }
        let change = TaskChange {
            namespace: task.spec.namespace.clone(),
            id: task.spec.id.clone(),
            task_type: task.spec.envelope.task_type.clone(),
            pool: task.spec.pool.clone(),
            event,
            state: task.state.phase,
            attempt: task.state.execution_no,
            error: failed(event).then(|| task.state.last_error.clone()).flatten(),
            next_run_at: waits(task).then_some(task.state.next_run_at),
            progress: task.state.progress.as_deref().cloned(),
            at: task.state.updated_at,
        };
        let Some((last, others)) = self.observers.split_last() else {
            // Nobody listening is as good as somebody who heard it.
            let _ = self.changes.send(change);
            return;
        };
        others.iter().for_each(|observer| observer.observe(&change));
        if self.has_subscribers() {
            let _ = self.changes.send(change.clone());
        }
        last.keep(change);
    }
}

fn failed(event: Option<EventName>) -> bool {
    matches!(event, Some(EventName::Failed | EventName::TimedOut | EventName::LeaseLost))
}

fn waits(task: &Task) -> bool {
    matches!(task.state.phase, Phase::Queued | Phase::RetryScheduled)
}

/// The document's log events, with its fields.
fn log(task: &Task, event: EventName) {
    let (task_id, task_type) = (task.spec.id.as_str(), task.spec.envelope.task_type.as_str());
    let attempt = task.state.execution_no;
    let error = task.state.last_error.as_deref().unwrap_or_default();
    match event {
        EventName::Enqueued => tracing::info!(task_id, task_type, "enqueued"),
        EventName::Claimed => tracing::info!(task_id, task_type, attempt, "started"),
        EventName::Succeeded => tracing::info!(task_id, task_type, attempt, "succeeded"),
        EventName::Failed | EventName::TimedOut | EventName::LeaseLost => {
            tracing::warn!(task_id, task_type, attempt, error, "failed");
        }
        other => tracing::debug!(task_id, task_type, attempt, event = other.as_str(), "changed"),
    }
    let next_run_at = task.state.next_run_at;
    match task.state.phase {
        Phase::RetryScheduled if failed(Some(event)) => {
            let backoff: Millis = next_run_at.since(task.state.updated_at);
            let attempts = task.state.attempts;
            tracing::info!(task_id, task_type, attempt, attempts, %next_run_at, %backoff, "retry_scheduled");
        }
        Phase::Dead => {
            let attempts = task.state.attempts;
            tracing::error!(task_id, task_type, attempt, attempts, last_error = error, "dead");
        }
        _ => {}
    }
}
