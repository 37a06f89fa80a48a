//! Stops what must stop: cancelled tasks, and attempts whose time is over. It works while the engine waits for the store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ekiden_core::id::TaskId;
use ekiden_core::lease::Token;
use ekiden_core::reason::ReasonCode;
use tokio::sync::Notify;

use super::desk::Desk;
use super::leash::StopReason;
use super::table::{Fate, Slot};
use crate::client::Client;

/// Three quarters of a second: a cancel reaches its handler within this, whatever happened to the wake-up. With as much again
/// between TERM and KILL, a command that another process or program cancelled is gone within two seconds.
const LOOK: Duration = Duration::from_millis(750);

pub(super) struct Warden {
    client: Client,
    desk: Arc<Desk>,
    /// Attempts that ran out of time and block their threads.
    blocked: Mutex<Vec<Slot>>,
    notify: Notify,
}

/// When the warden will wake. An attempt that must end earlier wakes it now.
#[derive(Default)]
pub(super) struct Deadlines {
    planned_ms: AtomicU64,
    notify: Notify,
}

impl Deadlines {
    pub(super) fn begins(&self, deadline: Duration) {
        if millis(deadline) < self.planned_ms.load(Ordering::Acquire) {
            self.notify.notify_one();
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl Warden {
    pub(super) fn new(desk: Arc<Desk>) -> Self {
        Self { client: desk.client.clone(), desk, blocked: Mutex::default(), notify: Notify::new() }
    }

    fn now(&self) -> Duration {
        self.client.tools().clock.monotonic()
    }

    /// Watches for ever. A store that does not answer holds up the news of cancels, and no deadline.
    pub(super) async fn watch_on(self) {
        tokio::join!(self.listen_on(), self.enforce_on(), self.leave_on());
    }

    async fn listen_on(&self) {
        let bell = self.client.queue().bell(self.client.namespace());
        let mut heard = bell.stop.heard();
        loop {
            self.read_signals().await;
            self.find_lost().await;
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.desk.around.reporter.doubts.noted() => {}
                () = bell.stop.since(&mut heard) => {}
            }
        }
    }

    async fn enforce_on(&self) {
        loop {
            self.enforce();
            // Until the new plan is known every deadline is worth a look.
            self.desk.deadlines.planned_ms.store(u64::MAX, Ordering::Release);
            let next = self.next_moment().unwrap_or(Duration::MAX);
            self.desk.deadlines.planned_ms.store(millis(next), Ordering::Release);
            tokio::select! {
                () = tokio::time::sleep(next.saturating_sub(self.now())) => {}
                () = self.desk.deadlines.notify.notified() => {}
            }
        }
    }

    /// Ends of attempts that block their threads are written here, and not by the engine: where it is driven beside the
    /// handlers it may have no thread either.
    async fn leave_on(&self) {
        loop {
            let blocked = std::mem::take(&mut *self.blocked.lock().unwrap_or_else(PoisonError::into_inner));
            for slot in blocked {
                self.desk.write_timeout(slot).await;
            }
            self.notify.notified().await;
        }
    }

    async fn read_signals(&self) {
        if self.desk.table.len() == 0 {
            return;
        }
        match self.client.queue().signals(self.client.namespace().clone(), self.desk.pulse.runner()).await {
            Ok(signals) => {
                for signal in signals {
                    self.cancel(&signal.task, signal.token);
                }
            }
            Err(error) => tracing::warn!(%error, "cannot read what to stop"),
        }
    }

    /// Looks at the tasks of attempts that may have lost them: those of an incarnation that was declared dead, and those to
    /// which something was refused. As many reads as there are such attempts.
    async fn find_lost(&self) {
        for (task, token) in self.doubtful() {
            let (task_ref, queue) = (self.client.task(&task), self.client.queue());
            match queue.get_status(task_ref).await {
                // Its signal may have gone to the earlier incarnation.
                Ok(record) if record.awaits_the_end_of(token) => self.cancel(&task, token),
                Ok(record) if record.is_lost_to(token) => self.lose(&task, token),
                Ok(_) => {}
                Err(error) if error.code() == ReasonCode::TaskNotFound => self.lose(&task, token),
                Err(error) => tracing::warn!(task_id = task.as_str(), %error, "cannot see whether a task was lost"),
            }
        }
    }

    /// The attempts that may have lost their tasks and run on.
    fn doubtful(&self) -> Vec<(TaskId, Token)> {
        let (noted, incarnation) = (self.desk.around.reporter.doubts.take(), self.desk.pulse.incarnation());
        let mut doubtful = Vec::new();
        for run in self.desk.table.lock().values_mut() {
            let token = run.context.token();
            run.is_doubted |= noted.iter().any(|(task, noted)| *noted == token && task == run.task());
            if run.fate == Fate::Running && (run.is_doubted || run.incarnation < incarnation) {
                doubtful.push((run.task().clone(), token));
            }
        }
        doubtful
    }

    /// Stops an attempt whose task is not its own any more. Its end is not waited for.
    fn lose(&self, task: &TaskId, token: Token) {
        let (now, grace) = (self.now(), self.desk.options.cancel_grace);
        for run in self.desk.table.lock().values_mut() {
            if run.fate == Fate::Running && run.ending.is_none() && run.is_of(task, token) {
                tracing::warn!(task_id = task.as_str(), token = token.0, "the task went on without this attempt");
                let drop_at = (!run.ends_by_itself).then(|| now.saturating_add(grace.max(run.stop_within)));
                run.fate = Fate::Lost { drop_at };
                run.leash().stop(StopReason::LeaseLost);
                drop_at.into_iter().for_each(|drop_at| self.desk.deadlines.begins(drop_at));
            }
        }
    }

    fn cancel(&self, task: &TaskId, token: Token) {
        let (now, grace) = (self.now(), self.desk.options.cancel_grace);
        for run in self.desk.table.lock().values_mut() {
            if run.fate == Fate::Running && run.is_of(task, token) {
                let drop_at = (!run.ends_by_itself).then(|| now.saturating_add(grace.max(run.stop_within)));
                run.fate = Fate::Cancelled { drop_at };
                run.leash().stop(StopReason::Cancelled);
                drop_at.into_iter().for_each(|drop_at| self.desk.deadlines.begins(drop_at));
            }
        }
    }

    /// What each moment asks for. Handlers are dropped at once unless they asked for time to stop, and never if they end by
    /// themselves; what blocks its thread is settled without its handler when it ran out of time, and never when it was
    /// cancelled: its successor must not overlap it.
    fn enforce(&self) {
        let now = self.now();
        let mut given_up: Vec<Slot> = Vec::new();
        for (slot, run) in self.desk.table.lock().iter_mut() {
            match run.fate {
                Fate::Running if run.limit().is_some_and(|deadline| deadline <= now) => {
                    let drop_at = now.saturating_add(run.stop_within);
                    let settle_at = drop_at.saturating_add(self.desk.options.cancel_grace);
                    run.leash().stop(StopReason::TimedOut);
                    let waits = run.stop_within > Duration::ZERO;
                    run.fate = if run.ends_by_itself {
                        Fate::TimedOut { drop_at: None, settle_at: Duration::MAX }
                    } else {
                        Fate::TimedOut { drop_at: waits.then_some(drop_at), settle_at }
                    };
                    if !waits && !run.ends_by_itself {
                        run.leash().pull();
                    }
                }
                Fate::Cancelled { drop_at: Some(at) } if at <= now => {
                    run.fate = Fate::Cancelled { drop_at: None };
                    run.leash().pull();
                }
                Fate::Lost { drop_at: Some(at) } if at <= now => {
                    run.fate = Fate::Lost { drop_at: None };
                    run.leash().pull();
                }
                Fate::TimedOut { drop_at: Some(at), settle_at } if at <= now => {
                    run.fate = Fate::TimedOut { drop_at: None, settle_at };
                    run.leash().pull();
                }
                Fate::TimedOut { drop_at: None, settle_at } if settle_at <= now => {
                    run.fate = Fate::TimedOut { drop_at: None, settle_at: Duration::MAX };
                    given_up.push(slot);
                }
                _ => {}
            }
        }
        if !given_up.is_empty() {
            self.blocked.lock().unwrap_or_else(PoisonError::into_inner).extend(given_up);
            self.notify.notify_one();
        }
    }

    fn next_moment(&self) -> Option<Duration> {
        let table = self.desk.table.lock();
        let moments = table.values().filter_map(|run| match run.fate {
            Fate::Running => run.limit(),
            Fate::Cancelled { drop_at } | Fate::Lost { drop_at } => drop_at,
            Fate::TimedOut { drop_at, settle_at } => Some(drop_at.unwrap_or(settle_at)),
            Fate::Interrupted | Fate::Left => None,
        });
        moments.min()
    }
}
