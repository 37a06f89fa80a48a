//! What is known of one task, gathered from the changes that were heard. Knows nothing of how it is shown.

use std::sync::Arc;

use ekiden::core::{EventName, Millis, Progress, TaskId, Timestamp};
use ekiden::{TaskChange, TaskRecord, TaskState};

/// A task, as far as it has been heard of.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: TaskId,
    pub(crate) title: Arc<str>,
    /// `None` before anything was heard.
    pub(crate) state: Option<TaskState>,
    pub(crate) attempt: u64,
    pub(crate) attempts_max: u32,
    pub(crate) error: Option<Arc<str>>,
    pub(crate) progress: Option<Progress>,
    next_run_at: Option<Timestamp>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
}

impl Row {
    pub(crate) fn new(id: TaskId, title: Arc<str>, attempts_max: u32) -> Self {
        Self {
            id,
            title,
            state: None,
            attempt: 0,
            attempts_max,
            error: None,
            progress: None,
            next_run_at: None,
            started_at: None,
            ended_at: None,
        }
    }

    /// Takes a change in. Says whether it is news for a person: progress is not, and neither is that a task may run now,
    /// for it does in the next moment.
    pub(crate) fn hear(&mut self, change: &TaskChange) -> bool {
        let known = (self.state, self.attempt);
        self.state = Some(change.state);
        self.attempt = change.attempt;
        self.next_run_at = change.next_run_at;
        self.progress = change.progress.clone();
        if change.error.is_some() {
            self.error = change.error.clone();
        }
        if change.state == TaskState::Running {
            self.started_at.get_or_insert(change.at);
        }
        self.ended_at = change.state.is_final().then_some(change.at);
        let may_run = |event| matches!(event, EventName::BecameDue | EventName::DependencyMet);
        let is_told = change.event.is_some_and(|event| !may_run(event));
        is_told && known != (self.state, self.attempt)
    }

    /// Takes a whole record in, where changes were missed.
    pub(crate) fn catch_up(&mut self, record: &TaskRecord) {
        self.state = Some(record.state);
        self.attempt = record.execution_no;
        self.next_run_at = record.next_run_at;
        self.progress = record.progress.clone();
        self.error = record.last_error.clone();
        self.started_at = record.started_at;
        self.ended_at = record.finished_at;
    }

    pub(crate) fn is_final(&self) -> bool {
        self.state.is_some_and(TaskState::is_final)
    }

    /// How long until it may run, while it waits for that.
    pub(crate) fn waits(&self, now: Timestamp) -> Option<Millis> {
        self.next_run_at.map(|at| at.since(now)).filter(|&wait| wait > Millis::ZERO)
    }

    /// From the beginning of the first attempt to the end.
    pub(crate) fn took(&self) -> Option<Millis> {
        Some(self.ended_at?.since(self.started_at?))
    }

    /// The error that still matters.
    pub(crate) fn open_error(&self) -> Option<&str> {
        self.error.as_deref().filter(|_| self.state != Some(TaskState::Succeeded))
    }
}

#[cfg(test)]
mod tests {
    use ekiden::core::{Kind, Namespace, PoolName};

    use super::*;

    fn change(event: Option<EventName>, state: TaskState, attempt: u64, at: i64) -> TaskChange {
        TaskChange {
            namespace: Namespace::new("dev").unwrap(),
            id: TaskId::new("a").unwrap(),
            task_type: Kind::new("leg").unwrap(),
            pool: PoolName::new("default").unwrap(),
            event,
            state,
            attempt,
            error: None,
            next_run_at: None,
            progress: None,
            at: Timestamp::from_millis(at),
        }
    }

    #[test]
    fn progress_and_that_a_task_may_run_are_no_news() {
        let mut row = Row::new(TaskId::new("a").unwrap(), Arc::from("title"), 5);
        assert!(row.hear(&change(Some(EventName::Enqueued), TaskState::Queued, 0, 1)));
        assert!(row.hear(&change(Some(EventName::Claimed), TaskState::Running, 1, 2)));
        assert!(!row.hear(&change(None, TaskState::Running, 1, 3)));
        assert!(row.hear(&change(Some(EventName::Failed), TaskState::RetryScheduled, 1, 4)));
        assert!(!row.hear(&change(Some(EventName::BecameDue), TaskState::Queued, 1, 5)));
        assert!(row.hear(&change(Some(EventName::Claimed), TaskState::Running, 2, 6)));
    }

    #[test]
    fn an_error_is_kept_until_the_task_succeeds_and_time_counts_from_the_first_attempt() {
        let mut row = Row::new(TaskId::new("a").unwrap(), Arc::from("title"), 5);
        row.hear(&change(Some(EventName::Claimed), TaskState::Running, 1, 100));
        let failed = change(Some(EventName::Failed), TaskState::RetryScheduled, 1, 200);
        row.hear(&TaskChange {
            error: Some(Arc::from("no answer")),
            next_run_at: Some(Timestamp::from_millis(900)),
            ..failed
        });
        assert_eq!(row.waits(Timestamp::from_millis(300)), Some(Millis::new(600)));
        assert_eq!(row.waits(Timestamp::from_millis(900)), None);
        row.hear(&change(Some(EventName::Claimed), TaskState::Running, 2, 900));
        assert_eq!((row.open_error(), row.took()), (Some("no answer"), None));
        row.hear(&change(Some(EventName::Succeeded), TaskState::Succeeded, 2, 1_000));
        assert_eq!((row.open_error(), row.took()), (None, Some(Millis::new(900))));
    }
}
