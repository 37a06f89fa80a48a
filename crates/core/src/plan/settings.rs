//! What people set: pools, schedules and bulk commands; and a schedule's tick, which hands in its task.

use std::sync::Arc;

use crate::id::{Namespace, TaskId};
use crate::key::Key;
use crate::lease::Token;
use crate::limits;
use crate::plan::draft::Draft;
use crate::plan::enqueue::{Enqueue, Enqueued};
use crate::plan::{Plan, Stop};
use crate::reason::{ReasonCode, Refusal};
use crate::record::{Pool, Record};
use crate::schedule::{Overlap, Schedule};
use crate::sweep::Sweep;
use crate::task::{Progress, Spec, Task};
use crate::time::{ClockLead, Timestamp};
use crate::transition::{Start, report};

/// Sets a pool, whatever it was before.
#[derive(Clone, Debug)]
pub struct SetPool {
    /// Its namespace.
    pub namespace: Namespace,
    /// The pool.
    pub pool: Arc<Pool>,
}

impl Plan for SetPool {
    type Done = Arc<Pool>;

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Arc<Pool>, Stop> {
        self.pool.settings.check()?;
        let key = Key::pool(&self.namespace, &self.pool.name);
        let mut pool = self.pool.clone();
        if let Some(Record::Pool(found)) = draft.record(&key)? {
            Arc::make_mut(&mut pool).inherit(&found);
        }
        draft.put(key, Record::Pool(pool.clone()));
        Ok(pool)
    }
}

/// Sets a schedule. One that exists keeps its next tick as long as its times stay the same.
#[derive(Clone, Debug)]
pub struct SetSchedule {
    /// The schedule; its next tick and its latest task are the record's business.
    pub schedule: Schedule,
    /// How far the process is ahead of its machine's clock.
    pub lead: ClockLead,
}

impl Plan for SetSchedule {
    type Done = Arc<Schedule>;

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Arc<Schedule>, Stop> {
        self.schedule.check(draft.now())?;
        let key = Key::schedule(&self.schedule.template.namespace, &self.schedule.id);
        let found = match draft.record(&key)? {
            Some(Record::Schedule(found)) => Some(found),
            _ => None,
        };
        let resumes = found.as_ref().is_some_and(|found| found.paused && !self.schedule.paused);
        let kept = found.as_ref().filter(|found| found.every == self.schedule.every && !resumes);
        let next_at = match kept.and_then(|found| found.next_at) {
            Some(next_at) => Some(next_at),
            None => self.schedule.every.coming(draft.now(), self.lead)?,
        };
        let mut schedule = Schedule { next_at, ..self.schedule.clone() };
        if let Some(found) = found {
            schedule.last.clone_from(&found.last);
            schedule.newer.inherit(&found.newer);
        } else {
            schedule.last = None;
        }
        let schedule = Arc::new(schedule);
        draft.put(key, Record::Schedule(schedule.clone()));
        Ok(schedule)
    }
}

/// Removes a schedule; tasks that it handed in stay.
#[derive(Clone, Debug)]
pub struct RemoveSchedule {
    /// The schedule.
    pub schedule: Key,
}

impl Plan for RemoveSchedule {
    type Done = ();

    fn draft(&self, draft: &mut Draft<'_>) -> Result<(), Stop> {
        if draft.record(&self.schedule)?.is_none() {
            return Err(Refusal::new(ReasonCode::ScheduleNotFound).with("schedule", &self.schedule.name).into());
        }
        draft.delete(self.schedule.clone());
        Ok(())
    }
}

/// A schedule's time has come: its tasks and its next tick, in one commit that only one process can make.
#[derive(Clone, Debug)]
pub struct Tick {
    /// The schedule.
    pub schedule: Key,
    /// How far the process is ahead of its machine's clock.
    pub lead: ClockLead,
}

/// What came of a tick.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Ticked {
    /// The tasks that were handed in.
    pub tasks: Vec<Arc<Task>>,
    /// Ticks whose tasks were refused, and why. They are left out: one tick must not hold up those after it.
    pub refused: Vec<(Timestamp, Refusal)>,
    /// Whether more is due than one commit holds.
    pub more: bool,
}

impl Plan for Tick {
    type Done = Ticked;

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Ticked, Stop> {
        let mut ticked = Ticked::default();
        let Some(Record::Schedule(found)) = draft.record(&self.schedule)? else { return Ok(ticked) };
        if found.paused || found.next_at.is_none_or(|next_at| next_at > draft.now()) {
            return Ok(ticked);
        }
        let (ticks, next) = found.due(draft.now(), self.lead)?;
        let left = ticks.get(limits::TICKS_A_COMMIT_MAX).copied();
        ticked.more = left.is_some();
        let mut schedule = Arc::unwrap_or_clone(found);
        for at in ticks.into_iter().take(limits::TICKS_A_COMMIT_MAX) {
            if schedule.overlap == Overlap::Skip && is_open(draft, &schedule)? {
                continue;
            }
            let before = draft.clone();
            match enqueue(draft, &schedule, at) {
                Ok(Enqueued::New(task)) => {
                    schedule.last = Some(task.id().clone());
                    ticked.tasks.push(task);
                }
                Ok(Enqueued::Existing(_)) => {}
                Err(Stop::Refused(refusal)) => {
                    *draft = before;
                    ticked.refused.push((at, refusal));
                }
                Err(need) => return Err(need),
            }
        }
        schedule.next_at = left.or(next);
        draft.put(self.schedule.clone(), Record::Schedule(Arc::new(schedule)));
        Ok(ticked)
    }
}

/// Moves the next tick of a schedule to where [`Schedule::moved`] says.
#[derive(Clone, Debug)]
pub struct MoveTick {
    /// The schedule.
    pub schedule: Key,
    /// How far the process is ahead of its machine's clock.
    pub lead: ClockLead,
}

impl Plan for MoveTick {
    type Done = ();

    fn draft(&self, draft: &mut Draft<'_>) -> Result<(), Stop> {
        if let Some(Record::Schedule(found)) = draft.record(&self.schedule)?
            && let Some(next_at) = found.moved(draft.now(), self.lead)?
        {
            let moved = Schedule { next_at: Some(next_at), ..Arc::unwrap_or_clone(found) };
            draft.put(self.schedule.clone(), Record::Schedule(Arc::new(moved)));
        }
        Ok(())
    }
}

/// Whether the task of the latest tick has not ended, or the task that was made in its place.
fn is_open(draft: &Draft<'_>, schedule: &Schedule) -> Result<bool, Stop> {
    let namespace = &schedule.template.namespace;
    let mut at: Option<TaskId> = schedule.last.clone();
    for _ in 0..limits::RETRIES_FOLLOWED_MAX {
        let Some(id) = at else { return Ok(false) };
        let Some(task) = draft.task(&Key::task(namespace, &id))? else { return Ok(false) };
        // A cancelled attempt runs until it has ended.
        if !task.state.phase.is_final() || task.state.lease.is_some() {
            return Ok(true);
        }
        at = task.state.retried_as.clone();
    }
    Ok(false)
}

fn enqueue(draft: &mut Draft<'_>, schedule: &Schedule, at: Timestamp) -> Result<Enqueued, Stop> {
    let template = Spec::clone(&schedule.template);
    let delay = template.run_at.map(|run_at| run_at.since(template.created_at));
    let life = template.expires_at.map(|end| end.since(template.created_at));
    let spec = Spec {
        id: schedule.tick_id(at)?,
        created_at: draft.now(),
        run_at: delay.map(|delay| draft.now() + delay),
        expires_at: life.map(|life| draft.now() + life),
        ..template
    };
    let idempotency = Some(schedule.tick_key(at)?);
    Enqueue { spec: Arc::new(spec), start: Start::Released, parents: Vec::new(), idempotency }.draft(draft)
}

/// Starts a bulk command. Asked for twice under one name, it is started once.
#[derive(Clone, Debug)]
pub struct StartSweep {
    /// Its namespace.
    pub namespace: Namespace,
    /// The sweep.
    pub sweep: Arc<Sweep>,
}

impl Plan for StartSweep {
    type Done = Arc<Sweep>;

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Arc<Sweep>, Stop> {
        let key = Key::sweep(&self.namespace, &self.sweep.id);
        if let Some(Record::Sweep(found)) = draft.record(&key)? {
            return Ok(found);
        }
        draft.put(key, Record::Sweep(self.sweep.clone()));
        Ok(self.sweep.clone())
    }
}

/// The holder of a task says how far it is.
#[derive(Clone, Debug)]
pub struct Report {
    /// The task.
    pub task: Key,
    /// The token of the lease.
    pub token: Token,
    /// How far.
    pub progress: Progress,
}

impl Plan for Report {
    type Done = Arc<Task>;

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Arc<Task>, Stop> {
        let Some(task) = draft.task(&self.task)? else {
            return Err(Refusal::new(ReasonCode::TaskNotFound).with("task_id", &self.task.name).into());
        };
        let state = report(&task, self.token, self.progress.clone(), draft.now())?;
        let told = Arc::new(Task { spec: task.spec.clone(), state });
        draft.put(self.task.clone(), Record::Task(told.clone()));
        Ok(told)
    }
}
