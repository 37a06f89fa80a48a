//! An event happens to a task: the decision, and what it asks of lane, counter, unique key, children and runner.

use std::sync::Arc;

use crate::commit::{Commit, Expect, Write};
use crate::event::Event;
use crate::id::{LaneKey, Namespace, OpId, RunnerId, SweepId, TaskId};
use crate::key::{Key, RecordKind};
use crate::lane::{Lane, LaneMember, LaneSpec, Place, take_place};
use crate::lease::{Evidence, Lease};
use crate::newer::Newer;
use crate::plan::draft::{Draft, Lanes};
use crate::plan::view::{PageNeed, View};
use crate::plan::{Plan, Stop};
use crate::reason::{ReasonCode, Refusal};
use crate::record::{Record, Signal};
use crate::runner::RunnerStatus;
use crate::sweep::{Sweep, SweepWork};
use crate::task::{Phase, Spec, Task};
use crate::time::Timestamp;
use crate::transition::{Change, Decision, Effects, decide};
use crate::unique::{KeyRecord, Unique, UniqueHold};

/// 4: how many waiting members one commit may admit or clear away; each costs two writes, and usually there is one.
const MEMBERS_A_COMMIT_MAX: usize = 4;

/// An event for one task: settle, cancel, release, answer, reclaim, expire, promote.
#[derive(Clone, Debug)]
pub struct Happen {
    /// The task.
    pub task: Key,
    /// What happens to it.
    pub event: Event,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The task as written.
    Changed(Arc<Task>),
    /// The same had happened before; the task as it is.
    AlreadyDone(Arc<Task>),
    /// It did not concern the task as it is.
    NothingToDo(Arc<Task>),
}

impl Happened {
    /// The task, changed or not.
    pub fn task(&self) -> &Arc<Task> {
        match self {
            Self::Changed(task) | Self::AlreadyDone(task) | Self::NothingToDo(task) => task,
        }
    }
}

impl Plan for Happen {
    type Done = Happened;

    fn reads(&self) -> Vec<Key> {
        vec![self.task.clone()]
    }

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Happened, Stop> {
        check_sizes(&self.event)?;
        if let Event::LeaseLost { evidence: Evidence::RunnerDead(runner) } = &self.event {
            check_death(draft, &self.task.namespace, runner)?;
        }
        let happened = draft.happen(&self.task, &self.event)?;
        // What this commit changed before is found done. Where there is still something to change, another op had its id, and
        // a store would take the commit for a repetition and answer that it was carried out.
        if matches!(happened, Happened::Changed(_)) && draft.wrote(&self.task)? {
            let refusal = Refusal::new(ReasonCode::CommitInvalid).with("key", &self.task);
            return Err(refusal.with("why", "its id was used for another change").into());
        }
        Ok(happened)
    }

    fn single(&self, id: OpId, view: &View, now: Timestamp) -> Option<Result<(Happened, Commit), Refusal>> {
        let seen = view.record(&self.task)??;
        let task = seen.record.as_task()?;
        if seen.was_written_by(id) {
            return None;
        }
        let is_counted = task.state.lease.as_ref().is_some_and(|lease| lease.counted);
        let concerns_others =
            task.spec.lane.is_some() || task.spec.unique.is_some() || task.state.has_dependents || is_counted;
        if concerns_others || !is_plain_end(&self.event) {
            return None;
        }
        match check_sizes(&self.event).and_then(|()| decide(task, &self.event, now)) {
            Ok(Decision::Change(Change { state, .. })) => {
                let after = Arc::new(Task { spec: task.spec.clone(), state });
                let expect = Expect::At(seen.revision.clone());
                let write = Write::put(self.task.clone(), expect, Record::Task(after.clone()));
                Some(Commit::new(id, vec![write]).map(|commit| (Happened::Changed(after), commit)))
            }
            Ok(Decision::AlreadyDone | Decision::NothingToDo) => None,
            Err(refusal) => Some(Err(refusal)),
        }
    }
}

/// Whether an event ends an attempt by its holder's word, so that nobody has to be asked or told but for what hangs on the task.
const fn is_plain_end(event: &Event) -> bool {
    matches!(
        event,
        Event::Succeeded { .. }
            | Event::Failed { .. }
            | Event::TimedOut { .. }
            | Event::Snoozed { .. }
            | Event::Interrupted { .. }
            | Event::Returned { .. }
    )
}

/// A runner's death is a record, not an opinion. It is final for the incarnation, so it need not be guarded; and a record
/// that is gone was dead or stopped long before.
fn check_death(draft: &Draft<'_>, namespace: &Namespace, runner: &RunnerId) -> Result<(), Stop> {
    match draft.record(&Key::runner(namespace, runner))? {
        Some(Record::Runner(found)) if !matches!(found.status, RunnerStatus::Dead { .. }) => {
            Err(Refusal::new(ReasonCode::LeaseAlive).with("runner_id", runner).into())
        }
        _ => Ok(()),
    }
}

/// What a change must know of the task as it was. A new task was nowhere.
#[derive(Default)]
pub(crate) struct Before<'a> {
    place: Place,
    lease: Option<&'a Lease>,
}

fn check_sizes(event: &Event) -> Result<(), Refusal> {
    use crate::limits::{QUESTION_BYTES_MAX, RESULT_BYTES_MAX};
    use crate::task::check_bytes;
    match event {
        Event::Succeeded { result: Some(result), .. } => check_bytes("result", result.len(), RESULT_BYTES_MAX),
        Event::Asked { question, .. } => question.check(),
        Event::Answered { content, .. } => check_bytes("answer", content.len(), QUESTION_BYTES_MAX),
        Event::Snoozed { delay, .. } => delay.check_or_zero("delay").map(drop),
        _ => Ok(()),
    }
}

impl Draft<'_> {
    /// Lets an event happen to a task, with all that belongs to it.
    pub fn happen(&mut self, key: &Key, event: &Event) -> Result<Happened, Stop> {
        let Some(task) = self.task(key)? else {
            return Err(Refusal::new(ReasonCode::TaskNotFound).with("task_id", &key.name).into());
        };
        if matches!(event, Event::Released) {
            self.check_given_up(&task)?;
        }
        match decide(&task, event, self.now())? {
            Decision::Change(change) => Ok(Happened::Changed(self.change(key, &task, change)?)),
            Decision::AlreadyDone => Ok(Happened::AlreadyDone(task)),
            Decision::NothingToDo => Ok(Happened::NothingToDo(task)),
        }
    }

    /// A task that a parent's failure blocks is released by hand only while a failure stands: a parent that was reopened may
    /// succeed yet. Checked with the commit, so that it is not reopened meanwhile.
    fn check_given_up(&mut self, task: &Task) -> Result<(), Stop> {
        let state = &task.state;
        let given_up = state.phase == Phase::Blocked && state.reason == Some(ReasonCode::DependencyFailed);
        if !given_up || state.waits_for.is_empty() {
            return Ok(());
        }
        let parents: Vec<Key> = state.waits_for.iter().map(|parent| Key::task(&task.spec.namespace, parent)).collect();
        self.need(&parents)?;
        for parent in parents {
            let phase = self.task(&parent)?.map(|parent| parent.state.phase);
            if phase.is_none_or(|phase| phase.is_final() && phase != Phase::Succeeded) {
                self.check(parent);
                return Ok(());
            }
        }
        let refusal = Refusal::new(ReasonCode::DependencyUnmet).with("task_id", task.id());
        Err(refusal.with("phase", state.phase).with("unmet", state.waits_for.len()).into())
    }

    /// Writes a decided change of a task that is there.
    pub(crate) fn change(&mut self, key: &Key, before: &Task, change: Change) -> Result<Arc<Task>, Stop> {
        let was = Before { place: before.state.place, lease: before.state.lease.as_ref() };
        self.write_change(key, &before.spec, &was, change)
    }

    /// Writes a decided change. The order matters: who leaves makes room before anybody joins.
    pub(crate) fn write_change(
        &mut self,
        key: &Key,
        spec: &Arc<Spec>,
        before: &Before<'_>,
        change: Change,
    ) -> Result<Arc<Task>, Stop> {
        let Change { mut state, effects } = change;
        if let Some(lane) = spec.lane.as_ref().filter(|_| effects.leave_lane) {
            self.leave_lane(spec, lane, before.place)?;
        }
        if let Some(lane) = spec.lane.as_ref().filter(|_| effects.join_lane) {
            state.place = self.join_lane(spec, lane)?;
            if state.place == Place::Held {
                take_place(&mut state, self.now());
            }
        }
        let after = Arc::new(Task { spec: spec.clone(), state });
        self.write_effects(before, &after, effects)?;
        self.put(key.clone(), Record::Task(after.clone()));
        Ok(after)
    }

    fn write_effects(&mut self, before: &Before<'_>, after: &Task, effects: Effects) -> Result<(), Stop> {
        let spec = &after.spec;
        if effects.uncount {
            self.add(Key::running(&spec.namespace, &spec.pool), -1);
        }
        if effects.finished && after.state.has_dependents {
            // A parent that was reopened and ends again starts its release anew, whatever became of the first.
            let work = SweepWork::Release { parent: spec.id.clone(), phase: after.state.phase };
            self.start_sweep(&spec.namespace, Sweep::release_id(&spec.id), work)?;
        }
        if let Some(unique) = spec.unique.as_ref().filter(|unique| unique.hold == UniqueHold::WhileOpen) {
            if effects.finished {
                self.delete_blind(Key::unique(&spec.namespace, &unique.key));
            }
            if effects.reopened {
                self.take_unique(spec, unique)?;
            }
        }
        if let Some(lease) = before.lease.filter(|_| effects.signal) {
            let signal = Signal {
                runner: lease.holder.clone(),
                task: spec.id.clone(),
                token: lease.token,
                at: self.now(),
                newer: Newer::NONE,
            };
            let key = Key::signal(&spec.namespace, &lease.holder, &spec.id);
            self.need(std::slice::from_ref(&key))?;
            self.put(key, Record::Signal(signal));
        }
        Ok(())
    }

    /// Takes a unique key for a task, or refuses and names the task that has it.
    pub(crate) fn take_unique(&mut self, spec: &Spec, unique: &Unique) -> Result<(), Stop> {
        let key = Key::unique(&spec.namespace, &unique.key);
        if let Some(Record::Unique(held)) = self.record(&key)?
            && held.is_live(self.now())
            && held.task != spec.id
            && !spec.may_take_over(&held)
        {
            return Err(Refusal::new(ReasonCode::UniqueConflict).with("task_id", &held.task).into());
        }
        let expires_at = match unique.hold {
            UniqueHold::For(span) => Some(self.now() + span),
            UniqueHold::WhileOpen | UniqueHold::WhileKept => None,
        };
        self.put(key, Record::Unique(KeyRecord { task: spec.id.clone(), expires_at, newer: Newer::NONE }));
        Ok(())
    }

    pub(crate) fn start_sweep(&mut self, namespace: &Namespace, id: SweepId, work: SweepWork) -> Result<(), Stop> {
        let key = Key::sweep(namespace, &id);
        self.need(std::slice::from_ref(&key))?;
        self.put(key, Record::Sweep(Arc::new(Sweep::new(id, work, self.now()))));
        Ok(())
    }

    fn lane(&self, namespace: &Namespace, lane: &LaneKey) -> Result<(Key, Option<Lane>), Stop> {
        let key = Key::lane(namespace, lane);
        let found = match self.record(&key)? {
            Some(Record::Lane(found)) => Some(Arc::unwrap_or_clone(found)),
            _ => None,
        };
        Ok((key, found))
    }

    fn join_lane(&mut self, spec: &Spec, lane: &LaneSpec) -> Result<Place, Stop> {
        let (key, found) = self.lane(&spec.namespace, &lane.key)?;
        let mut found = found.unwrap_or_else(|| Lane::empty(lane.width));
        // A task that was retried by hand says what the one that it repeats said long ago.
        found.set_width(lane.width, if spec.retry_of.is_some() { Timestamp::ZERO } else { spec.created_at });
        let place = found.join(&spec.id);
        if let Place::Waiting(number) = place {
            let member = Key::lane_member(&spec.namespace, &lane.key, number);
            self.need(std::slice::from_ref(&member))?;
            self.put(member, Record::LaneMember(LaneMember { task: spec.id.clone(), newer: Newer::NONE }));
        }
        // The lane got wider: a commit that enqueues has no writes to spare for those who wait.
        if found.can_admit() {
            self.start_sweep(&spec.namespace, Sweep::admit_id(&lane.key), SweepWork::Admit { lane: lane.key.clone() })?;
        }
        self.put(key, Record::Lane(Arc::new(found)));
        Ok(place)
    }

    fn leave_lane(&mut self, spec: &Spec, lane: &LaneSpec, place: Place) -> Result<(), Stop> {
        let (key, found) = self.lane(&spec.namespace, &lane.key)?;
        let Some(mut found) = found else { return Ok(()) };
        found.leave(&spec.id, place);
        if let Place::Waiting(number) = place {
            self.delete_blind(Key::lane_member(&spec.namespace, &lane.key, number));
        }
        self.put(key, Record::Lane(Arc::new(found)));
        self.fill_lane(&spec.namespace, &lane.key).map(drop)
    }

    /// Gives free places to those who wait; what does not fit into this commit is left to a sweep. Says how many got one.
    pub(crate) fn fill_lane(&mut self, namespace: &Namespace, lane: &LaneKey) -> Result<usize, Stop> {
        let (key, found) = self.lane(namespace, lane)?;
        let Some(mut found) = found else { return Ok(0) };
        let mut admitted = 0;
        if self.lanes() == Lanes::Admit {
            for _ in 0..MEMBERS_A_COMMIT_MAX {
                if !found.can_admit() {
                    break;
                }
                match self.admit_next(namespace, lane, &mut found)? {
                    Next::Admitted => admitted += 1,
                    Next::Cleared => {}
                    Next::OutOfSight => break,
                }
            }
        }
        if found.can_admit() {
            self.start_sweep(namespace, Sweep::admit_id(lane), SweepWork::Admit { lane: lane.clone() })?;
        }
        if found.is_empty() {
            self.delete(key);
        } else {
            self.put(key, Record::Lane(Arc::new(found)));
        }
        Ok(admitted)
    }

    /// Takes the first who waits out of the line and gives it a place, unless it is not waiting any more: a foreign program
    /// may have cancelled it, and then only its number is cleared away.
    fn admit_next(&mut self, namespace: &Namespace, lane: &LaneKey, found: &mut Lane) -> Result<Next, Stop> {
        let prefix = Key::prefix(lane.as_str());
        let need = PageNeed {
            kind: RecordKind::LaneMember,
            namespace: namespace.clone(),
            prefix,
            limit: MEMBERS_A_COMMIT_MAX,
        };
        let first = self.page(&need)?.into_iter().next();
        let Some((number, next)) = first.and_then(|first| Some((first.key, member(first.record)?))) else {
            if !self.page_is_whole(&need)? {
                return Ok(Next::OutOfSight);
            }
            found.waiting = 0;
            return Ok(Next::Cleared);
        };
        let key = Key::task(namespace, &next);
        let waiting = self
            .task(&key)?
            .filter(|task| matches!(task.state.place, Place::Waiting(_)) && !task.state.phase.is_final());
        self.delete(number);
        let Some(task) = waiting else {
            found.waiting = found.waiting.saturating_sub(1);
            return Ok(Next::Cleared);
        };
        let mut admitted = Arc::unwrap_or_clone(task);
        take_place(&mut admitted.state, self.now());
        found.admit(&next);
        self.put(key, admitted);
        Ok(Next::Admitted)
    }
}

/// What became of the first who waits in a lane.
enum Next {
    /// It has a place.
    Admitted,
    /// There was nobody any more; the line is shorter by that.
    Cleared,
    /// This commit took all that it could see out of the line. Who comes next is a sweep's to find.
    OutOfSight,
}

fn member(record: Record) -> Option<TaskId> {
    if let Record::LaneMember(member) = record { Some(member.task) } else { None }
}
