//! A task is handed in: keys, parents, lane and the task itself, in one commit.

use std::sync::Arc;

use crate::commit::{Commit, Expect, Write};
use crate::dependency::{self, Edge};
use crate::event::Event;
use crate::filter::TaskFilter;
use crate::id::{IdempotencyKey, OpId, TaskId};
use crate::key::{Key, RecordKind};
use crate::lane::LaneSpec;
use crate::limits;
use crate::newer::Newer;
use crate::plan::change::Before;
use crate::plan::cycle::refuse_circles;
use crate::plan::draft::Draft;
use crate::plan::view::{PageNeed, View};
use crate::plan::{Plan, Stop};
use crate::reason::{ReasonCode, Refusal};
use crate::record::Record;
use crate::sweep::{Sweep, SweepWork};
use crate::task::{Phase, Spec, Task};
use crate::time::Timestamp;
use crate::transition::{Change, Start, birth};
use crate::unique::KeyRecord;

/// A task to hand in.
#[derive(Clone, Debug)]
pub struct Enqueue {
    /// What is asked for.
    pub spec: Arc<Spec>,
    /// Whether it is held.
    pub start: Start,
    /// What it waits for. A sweep that starts with the task links it to those for which its own commit has no room.
    pub parents: Vec<TaskId>,
    /// Makes a repeated request find its first answer.
    pub idempotency: Option<IdempotencyKey>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enqueued {
    /// A new task.
    New(Arc<Task>),
    /// The task of the first request with this idempotency key, or the open task with this unique key.
    Existing(TaskId),
}

impl Enqueued {
    /// The task's id, new or not.
    pub fn id(&self) -> &TaskId {
        match self {
            Self::New(task) => task.id(),
            Self::Existing(id) => id,
        }
    }
}

impl Plan for Enqueue {
    type Done = Enqueued;

    fn reads(&self) -> Vec<Key> {
        self.first_reads(Key::task(&self.spec.namespace, &self.spec.id))
    }

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Enqueued, Stop> {
        let spec = &self.spec;
        spec.check()?;
        check_parents(&spec.id, &self.parents, limits::PARENTS_MAX)?;
        let key = Key::task(&spec.namespace, &spec.id);
        if !self.is_plain() || !draft.knows(&key) {
            draft.need(&self.reads())?;
        }
        if let Some(task) = draft.task(&key)?.filter(|_| draft.created(&key) == Ok(true)) {
            return Ok(Enqueued::New(task));
        }
        if let Some(first) = self.first_answer(draft)? {
            return Ok(Enqueued::Existing(first));
        }
        if draft.record(&key)?.is_some() {
            return Err(Refusal::new(ReasonCode::TaskExists).with("task_id", &spec.id).into());
        }
        if spec.group.is_some() {
            refuse_circles(draft, spec, None, &self.parents)?;
        }
        self.take_keys(draft)?;
        self.supersede(draft)?;
        let parents = unfinished(draft, spec, &self.parents)?.all();
        let change = birth(spec, self.start, parents.clone(), draft.now());
        let mut task = draft.write_change(&key, spec, &Before::default(), change)?;
        if let Some(group) = &spec.after_group {
            let filter = TaskFilter { group: Some(group.clone()), ..TaskFilter::all(spec.namespace.clone()) };
            let work = Sweep::awaiting(filter, spec.id.clone());
            draft.start_sweep(&spec.namespace, Sweep::await_id(group, &spec.id), work)?;
        }
        let (first, later) = parents.split_at(parents.len().min(limits::PARENTS_A_COMMIT_MAX));
        if !later.is_empty() {
            let work = SweepWork::Link { child: spec.id.clone(), parents: later.to_vec() };
            draft.start_sweep(&spec.namespace, Sweep::link_id(&spec.id), work)?;
        }
        if !first.is_empty() {
            link_parents(draft, &key, first)?;
            task = draft.task(&key)?.unwrap_or(task);
        }
        Ok(Enqueued::New(task))
    }

    fn single(&self, id: OpId, view: &View, now: Timestamp) -> Option<Result<(Enqueued, Commit), Refusal>> {
        let spec = &self.spec;
        if !self.is_plain() || spec.after_group.is_some() {
            return None;
        }
        let key = Key::task(&spec.namespace, &spec.id);
        // What is there already may be an earlier try of this one.
        view.record(&key).filter(Option::is_none)?;
        Some(spec.check().and_then(|()| {
            let Change { state, .. } = birth(spec, self.start, Vec::new(), now);
            let task = Arc::new(Task { spec: spec.clone(), state });
            let write = Write::put(key, Expect::Absent, Record::Task(task.clone()));
            Ok((Enqueued::New(task), Commit::new(id, vec![write])?))
        }))
    }
}

impl Enqueue {
    /// Whether nothing but the task's own record is read. Most are so, and need no list of what to read.
    fn is_plain(&self) -> bool {
        let Spec { unique, lane, .. } = &*self.spec;
        self.idempotency.is_none() && unique.is_none() && lane.is_none() && self.parents.is_empty()
    }

    /// Everything that is surely read, asked for at once.
    fn first_reads(&self, key: Key) -> Vec<Key> {
        let namespace = &self.spec.namespace;
        let mut keys = vec![key];
        keys.extend(self.idempotency.iter().map(|idempotency| Key::idempotency(namespace, idempotency)));
        keys.extend(self.spec.unique.iter().map(|unique| Key::unique(namespace, &unique.key)));
        keys.extend(self.parents.iter().map(|parent| Key::task(namespace, parent)));
        keys.extend(self.spec.lane.iter().map(|lane| Key::lane(namespace, &lane.key)));
        keys
    }

    /// A duplicate is an answer, not an error: the first task's id.
    fn first_answer(&self, draft: &Draft<'_>) -> Result<Option<TaskId>, Stop> {
        let namespace = &self.spec.namespace;
        let idempotency = self.idempotency.iter().map(|key| Key::idempotency(namespace, key));
        let unique = self.spec.unique.iter().map(|unique| Key::unique(namespace, &unique.key));
        for key in idempotency.chain(unique) {
            if let Some(Record::Idempotency(held) | Record::Unique(held)) = draft.record(&key)?
                && held.is_live(draft.now())
                && !self.spec.may_take_over(&held)
            {
                return Ok(Some(held.task));
            }
        }
        Ok(None)
    }

    fn take_keys(&self, draft: &mut Draft<'_>) -> Result<(), Stop> {
        if let Some(idempotency) = &self.idempotency {
            let held = KeyRecord {
                task: self.spec.id.clone(),
                expires_at: Some(draft.now() + limits::IDEMPOTENCY_KEPT),
                newer: Newer::NONE,
            };
            draft.put(Key::idempotency(&self.spec.namespace, idempotency), Record::Idempotency(held));
        }
        match &self.spec.unique {
            Some(unique) => draft.take_unique(&self.spec, unique),
            None => Ok(()),
        }
    }

    /// A newer message of an ordering key cancels the older ones that nobody has taken.
    fn supersede(&self, draft: &mut Draft<'_>) -> Result<(), Stop> {
        let supersedes = self.spec.message.as_ref().is_some_and(|message| message.supersede);
        let Some(lane) = self.spec.lane.as_ref().filter(|_| supersedes) else { return Ok(()) };
        // The last of the line first, so that none of them is admitted only to be cancelled.
        for older in lane_tasks(draft, &self.spec, lane)?.into_iter().rev() {
            let key = Key::task(&self.spec.namespace, &older);
            let waits =
                draft.task(&key)?.is_some_and(|task| matches!(task.state.phase, Phase::Queued | Phase::RetryScheduled));
            if waits {
                draft.happen(&key, &Event::CancelRequested { reason: ReasonCode::Superseded, note: None })?;
            }
        }
        Ok(())
    }
}

/// The tasks of a lane: those with a place, then the first who wait. Each superseding message cancels its elders, so there
/// are few; where a lane mixes both sorts, elders beyond the first page are delivered before it.
fn lane_tasks(draft: &Draft<'_>, spec: &Spec, lane: &LaneSpec) -> Result<Vec<TaskId>, Stop> {
    let Some(Record::Lane(found)) = draft.record(&Key::lane(&spec.namespace, &lane.key))? else {
        return Ok(Vec::new());
    };
    let mut tasks = found.places.clone();
    if found.waiting > 0 {
        let prefix = Key::prefix(lane.key.as_str());
        let need = PageNeed { kind: RecordKind::LaneMember, namespace: spec.namespace.clone(), prefix, limit: 4 };
        for member in draft.page(&need)? {
            if let Record::LaneMember(member) = member.record {
                tasks.push(member.task);
            }
        }
    }
    Ok(tasks)
}

/// More parents for a task that is still held.
#[derive(Clone, Debug)]
pub struct AddParents {
    /// The task.
    pub task: Key,
    /// Its further parents, at most eight.
    pub parents: Vec<TaskId>,
}

impl Plan for AddParents {
    type Done = Arc<Task>;

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Arc<Task>, Stop> {
        let Some(task) = draft.task(&self.task)? else {
            return Err(Refusal::new(ReasonCode::TaskNotFound).with("task_id", &self.task.name).into());
        };
        if task.state.phase != Phase::Pending {
            return Err(Refusal::new(ReasonCode::TaskNotHeld)
                .with("task_id", task.id())
                .with("phase", task.state.phase)
                .into());
        }
        check_parents(task.id(), &self.parents, limits::PARENTS_A_COMMIT_MAX)?;
        let known = &task.state.waits_for;
        let fresh: Vec<TaskId> = self.parents.iter().filter(|parent| !known.contains(parent)).cloned().collect();
        if known.len() + fresh.len() > limits::PARENTS_MAX {
            return Err(too_many(known.len() + fresh.len(), limits::PARENTS_MAX).into());
        }
        refuse_cycles(draft, &task, &fresh)?;
        if task.spec.group.is_some() || task.state.has_dependents {
            refuse_circles(draft, &task.spec, Some(&task), &fresh)?;
        }
        let parents = unfinished(draft, &task.spec, &fresh)?;
        let mut changed = Arc::unwrap_or_clone(task);
        changed.state.waits_for.extend(parents.all());
        changed.state.updated_at = draft.now();
        let spec = changed.spec.clone();
        draft.put(self.task.clone(), changed);
        for parent in &parents.open {
            add_edge(draft, &spec, parent)?;
        }
        for parent in parents.failed {
            let told = draft.happen(&self.task, &Event::DependencyFailed { parent: parent.clone() })?;
            add_edge_to_failed(draft, told.task(), &parent)?;
        }
        draft.task(&self.task)?.ok_or_else(|| ReasonCode::TaskNotFound.into())
    }
}

/// Parents that matter: those that may still end, and those that ended without success.
struct Parents {
    open: Vec<TaskId>,
    failed: Vec<TaskId>,
}

impl Parents {
    /// Those that failed come first: they may decide at once what becomes of the child.
    fn all(&self) -> Vec<TaskId> {
        self.failed.iter().chain(&self.open).cloned().collect()
    }
}

/// Links a task to parents that it waits for: edges from those that may still end, and word of those that have ended. Says
/// whether the task waits for anything after that.
pub(crate) fn link_parents(draft: &mut Draft<'_>, child: &Key, parents: &[TaskId]) -> Result<bool, Stop> {
    let keys: Vec<Key> = parents.iter().map(|parent| Key::task(&child.namespace, parent)).collect();
    draft.need(&keys)?;
    for (parent, key) in parents.iter().zip(&keys) {
        let Some(task) = draft.task(child)?.filter(|task| task.state.waits_for.contains(parent)) else { continue };
        let parent = parent.clone();
        match draft.task(key)?.map(|found| found.state.phase) {
            Some(Phase::Succeeded) => drop(draft.happen(child, &Event::DependencyMet { parent })?),
            // One that is gone has ended, and nothing says that it ended well.
            None | Some(Phase::Dead | Phase::Cancelled) => {
                let told = draft.happen(child, &Event::DependencyFailed { parent: parent.clone() })?;
                add_edge_to_failed(draft, told.task(), &parent)?;
            }
            Some(_) => add_edge(draft, &task.spec, &parent)?,
        }
    }
    Ok(draft.task(child)?.is_some_and(|task| !task.state.waits_for.is_empty()))
}

fn unfinished(draft: &Draft<'_>, spec: &Spec, parents: &[TaskId]) -> Result<Parents, Stop> {
    let mut found = Parents { open: Vec::new(), failed: Vec::new() };
    for parent in parents {
        match draft.task(&Key::task(&spec.namespace, parent))?.map(|task| task.state.phase) {
            None => return Err(Refusal::new(ReasonCode::DependencyUnknown).with("parent", parent).into()),
            Some(Phase::Succeeded) => {}
            Some(Phase::Dead | Phase::Cancelled) => found.failed.push(parent.clone()),
            Some(_) => found.open.push(parent.clone()),
        }
    }
    Ok(found)
}

/// The edge, and the parent's mark: a settlement that read the parent before the mark conflicts, reads again, and then
/// knows that somebody waits. Where the mark is set already, a check is enough to rule out an unseen end.
fn add_edge(draft: &mut Draft<'_>, spec: &Spec, parent: &TaskId) -> Result<(), Stop> {
    let key = Key::task(&spec.namespace, parent);
    let edge = Key::edge(&spec.namespace, parent, &spec.id);
    draft.need(std::slice::from_ref(&edge))?;
    match draft.task(&key)? {
        Some(task) if !task.state.has_dependents => {
            let mut marked = Arc::unwrap_or_clone(task);
            marked.state.has_dependents = true;
            draft.put(key, marked);
        }
        _ => draft.check(key),
    }
    draft.put(edge, Record::Edge(Edge { parent: parent.clone(), child: spec.id.clone(), newer: Newer::NONE }));
    Ok(())
}

/// A child that stays blocked has an edge from a parent that can be reopened: should that succeed yet, it must find the
/// child. The parent is always written, so that it is neither reopened nor purged unseen.
fn add_edge_to_failed(draft: &mut Draft<'_>, child: &Task, parent: &TaskId) -> Result<(), Stop> {
    let namespace = &child.spec.namespace;
    let key = Key::task(namespace, parent);
    let found = draft.task(&key)?.filter(|_| child.state.waits_for.contains(parent));
    let Some(failed) = found.filter(|failed| failed.spec.policy.reopen && failed.state.phase == Phase::Dead) else {
        return Ok(());
    };
    let edge = Key::edge(namespace, parent, child.id());
    draft.need(std::slice::from_ref(&edge))?;
    let mut marked = Arc::unwrap_or_clone(failed);
    marked.state.has_dependents = true;
    draft.put(key, marked);
    draft.put(edge, Record::Edge(Edge { parent: parent.clone(), child: child.id().clone(), newer: Newer::NONE }));
    Ok(())
}

fn check_parents(task: &TaskId, parents: &[TaskId], parents_max: usize) -> Result<(), Refusal> {
    if parents.len() > parents_max {
        return Err(too_many(parents.len(), parents_max));
    }
    if parents.contains(task) {
        return Err(dependency::refuse_cycle(&[task, task]));
    }
    let mut sorted: Vec<&TaskId> = parents.iter().collect();
    sorted.sort();
    sorted.dedup();
    if sorted.len() < parents.len() {
        return Err(Refusal::new(ReasonCode::DependencyTooMany).with("why", "a parent is named twice"));
    }
    Ok(())
}

fn too_many(parents: usize, parents_max: usize) -> Refusal {
    Refusal::new(ReasonCode::DependencyTooMany).with("parents", parents).with("parents_max", parents_max)
}

/// Walks up from the new parents; meeting the task itself would close a cycle.
fn refuse_cycles(draft: &Draft<'_>, task: &Task, parents: &[TaskId]) -> Result<(), Stop> {
    let namespace = &task.spec.namespace;
    let mut paths: Vec<Vec<TaskId>> = parents.iter().map(|parent| vec![task.id().clone(), parent.clone()]).collect();
    let mut seen: std::collections::BTreeSet<TaskId> = parents.iter().cloned().collect();
    while !paths.is_empty() {
        let keys: Vec<Key> = paths.iter().filter_map(|path| path.last()).map(|top| Key::task(namespace, top)).collect();
        draft.need(&keys)?;
        let mut higher = Vec::new();
        for (path, key) in paths.iter().zip(&keys) {
            for above in draft.task(key)?.iter().flat_map(|task| &task.state.waits_for) {
                let longer: Vec<TaskId> = path.iter().chain([above]).cloned().collect();
                if above == task.id() {
                    return Err(dependency::refuse_cycle(&longer.iter().collect::<Vec<_>>()).into());
                }
                if seen.insert(above.clone()) {
                    higher.push(longer);
                }
            }
        }
        if seen.len() > limits::CYCLE_WALK_MAX {
            return Err(too_many(seen.len(), limits::CYCLE_WALK_MAX).into());
        }
        paths = higher;
    }
    Ok(())
}
