//! A step of a sweep: as many items of a page as fit into one commit, and the cursor with them.

use std::sync::Arc;

use crate::dependency::OnParentFailure;
use crate::event::Event;
use crate::filter::TaskFilter;
use crate::id::{GroupId, LaneKey, Namespace, TaskId};
use crate::key::{Key, RecordKind};
use crate::limits;
use crate::plan::change::Happened;
use crate::plan::draft::Draft;
use crate::plan::enqueue::link_parents;
use crate::plan::maintain::{Purge, PurgeWhen, Purged};
use crate::plan::retry::Retry;
use crate::plan::view::PageNeed;
use crate::plan::{Plan, Stop};
use crate::reason::ReasonCode;
use crate::record::Record;
use crate::sweep::{Sweep, SweepWork};
use crate::task::{Phase, Task};

/// One item of a page.
#[derive(Clone, Debug)]
pub struct SweepItem {
    /// An edge of a release, or a task.
    pub key: Key,
    /// The id of a new task, should a retry need one.
    pub new_id: TaskId,
}

/// The next step of a sweep: a page that was read from its cursor on. What does not fit into one commit is left for the
/// next step, which reads the page again and finds the rest.
#[derive(Clone, Debug)]
pub struct SweepStep {
    /// The sweep.
    pub sweep: Key,
    /// The sweep as it was when the page was read. If it has moved on since, the page is stale and nothing is done.
    pub seen: Arc<Sweep>,
    /// The page.
    pub items: Vec<SweepItem>,
    /// Where the next page begins; `None` if nothing comes after this one.
    pub next: Option<String>,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Swept {
    /// The sweep goes on from its new cursor.
    On(Arc<Sweep>),
    /// The sweep is done and its record gone.
    Ended,
    /// Somebody else was faster; read the sweep again.
    Stale,
}

impl Plan for SweepStep {
    type Done = Swept;

    /// The whole page at once: read one by one, a page would cost a request an item.
    fn reads(&self) -> Vec<Key> {
        let items = self.items.iter().map(|item| item.key.clone());
        let mut keys: Vec<Key> = std::iter::once(self.sweep.clone()).chain(items).collect();
        if matches!(self.seen.work, SweepWork::Retry(_)) {
            let namespace = &self.sweep.namespace;
            keys.extend(self.items.iter().map(|item| Key::task(namespace, &item.new_id)));
        }
        keys
    }

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Swept, Stop> {
        let Some(Record::Sweep(found)) = draft.record(&self.sweep)? else { return Ok(Swept::Ended) };
        if found.ended_at.is_some() {
            return Ok(Swept::Ended);
        }
        if found != self.seen {
            return Ok(Swept::Stale);
        }
        match &found.work {
            SweepWork::Link { child, parents } => return self.link(draft, &found, child, parents),
            SweepWork::Admit { lane } => return self.admit(draft, lane),
            SweepWork::Await { then, .. } => return self.await_group(draft, &found, then),
            SweepWork::Release { parent, .. } if was_reopened(draft, &self.sweep, parent)? => {
                draft.delete(self.sweep.clone());
                return Ok(Swept::Ended);
            }
            _ => {}
        }
        // Also after a conflict, when all that was read is forgotten.
        draft.need(&self.reads())?;
        draft.need(&self.children(draft)?)?;
        let mut sweep = Arc::unwrap_or_clone(found);
        let mut passed = 0;
        for item in &self.items {
            let before = draft.clone();
            let changed = apply(draft, &sweep, item)?;
            if !fits_a_step(draft) {
                *draft = before;
                return Ok(self.go_on(draft, sweep));
            }
            sweep.changed += u64::from(changed);
            passed += u64::from(!changed);
        }
        sweep.passed += passed;
        if self.next.is_none() {
            self.end(draft, sweep);
            return Ok(Swept::Ended);
        }
        sweep.cursor.clone_from(&self.next);
        Ok(self.go_on(draft, sweep))
    }
}

/// Whether the items so far leave room in the commit for the sweep's own record, which has no payload. One item always fits: it
/// puts at most six tasks, and a commit holds nine of the largest.
fn fits_a_step(draft: &Draft<'_>) -> bool {
    draft.len() <= limits::SWEEP_WRITES_MAX && draft.bytes() <= limits::COMMIT_BYTES_MAX
}

/// A parent that runs again will end again and start its release anew; children must not hear of an end that is no more.
/// Checked with the commit, so that it is not reopened while they are told.
fn was_reopened(draft: &mut Draft<'_>, sweep: &Key, parent: &TaskId) -> Result<bool, Stop> {
    let key = Key::task(&sweep.namespace, parent);
    let Some(task) = draft.task(&key)? else { return Ok(false) };
    draft.check(key);
    Ok(!task.state.phase.is_final())
}

impl SweepStep {
    /// The tasks at the other end of the edges on this page.
    fn children(&self, draft: &Draft<'_>) -> Result<Vec<Key>, Stop> {
        let mut children = Vec::new();
        for item in &self.items {
            if let Some(Record::Edge(edge)) = draft.record(&item.key)? {
                children.push(Key::task(&item.key.namespace, &edge.child));
            }
        }
        Ok(children)
    }

    /// A lane is filled a few places at a time. Filling starts the sweep anew when more could be admitted.
    fn admit(&self, draft: &mut Draft<'_>, lane: &LaneKey) -> Result<Swept, Stop> {
        draft.delete(self.sweep.clone());
        draft.fill_lane(&self.sweep.namespace, lane)?;
        match draft.record(&self.sweep)? {
            Some(Record::Sweep(again)) => Ok(Swept::On(again)),
            _ => Ok(Swept::Ended),
        }
    }

    /// A page of a group is left behind once all of it has ended, so each member is looked at a bounded number of times.
    /// The page with the first open member is looked at again later.
    fn await_group(&self, draft: &mut Draft<'_>, sweep: &Sweep, then: &TaskId) -> Result<Swept, Stop> {
        let waiting = Key::task(&self.sweep.namespace, then);
        let held = draft.task(&waiting)?.filter(|task| task.state.phase == Phase::Pending);
        let Some(held) = held else {
            draft.delete(self.sweep.clone());
            return Ok(Swept::Ended);
        };
        let keys: Vec<Key> = self.items.iter().map(|item| item.key.clone()).filter(|key| *key != waiting).collect();
        draft.need(&keys)?;
        let mut on = Sweep { next_at: None, ..sweep.clone() };
        for key in &keys {
            let Some(member) = draft.task(key)? else { continue };
            if !member.state.phase.is_final() {
                // Looked at early, because somebody thought that it might be time: nothing needs to be written.
                if sweep.due_at() > draft.now() {
                    return Ok(Swept::On(self.seen.clone()));
                }
                let mut later = Sweep { next_at: Some(sweep.next_look(draft.now())), ..sweep.clone() };
                if let SweepWork::Await { again, .. } = &mut later.work {
                    *again = false;
                }
                return Ok(self.go_on(draft, later));
            }
            if is_failed(&member)
                && let SweepWork::Await { failed, witness, .. } = &mut on.work
            {
                *failed += 1;
                witness.get_or_insert_with(|| member.id().clone());
            }
        }
        if self.next.is_some() {
            on.cursor.clone_from(&self.next);
            on.passed += u64::try_from(keys.len()).unwrap_or(0);
            return Ok(self.go_on(draft, on));
        }
        self.group_passed(draft, on, &waiting, held)
    }

    /// The last page was passed. Failures on pages before it may have been put right since: a round that began before all had
    /// ended is followed by another, and the one failure that is named must still stand in the commit that acts on it.
    fn group_passed(
        &self,
        draft: &mut Draft<'_>,
        mut passed: Sweep,
        waiting: &Key,
        held: Arc<Task>,
    ) -> Result<Swept, Stop> {
        let is_one_page = passed.cursor.is_none();
        let SweepWork::Await { failed, witness, again, .. } = &mut passed.work else { return Ok(Swept::Stale) };
        let stands = match witness {
            None => true,
            Some(_) if !*again && !is_one_page => false,
            Some(witness) => {
                let key = Key::task(&self.sweep.namespace, witness);
                let stands = draft.task(&key)?.is_some_and(|member| is_failed(&member));
                draft.check(key);
                stands
            }
        };
        if !stands {
            (*failed, *witness, *again, passed.cursor) = (0, None, true, None);
            return Ok(self.go_on(draft, passed));
        }
        let failed = *failed;
        draft.delete(self.sweep.clone());
        group_ended(draft, waiting, held, failed)?;
        Ok(Swept::Ended)
    }

    /// Links a task to the next of its parents, as many as one commit holds.
    fn link(&self, draft: &mut Draft<'_>, sweep: &Sweep, child: &TaskId, parents: &[TaskId]) -> Result<Swept, Stop> {
        let (now, later) = parents.split_at(parents.len().min(limits::PARENTS_A_COMMIT_MAX));
        let waits = link_parents(draft, &Key::task(&self.sweep.namespace, child), now)?;
        if !waits || later.is_empty() {
            draft.delete(self.sweep.clone());
            return Ok(Swept::Ended);
        }
        let work = SweepWork::Link { child: child.clone(), parents: later.to_vec() };
        Ok(self.go_on(draft, Sweep { work, ..sweep.clone() }))
    }

    /// A bulk command is remembered with its cut-off: asked for again, it must not catch tasks that came later.
    fn end(&self, draft: &mut Draft<'_>, sweep: Sweep) {
        if sweep.work.is_bulk() {
            let ended = Sweep { cursor: None, ended_at: Some(draft.now()), ..sweep };
            draft.put(self.sweep.clone(), Record::Sweep(Arc::new(ended)));
        } else {
            draft.delete(self.sweep.clone());
        }
    }

    fn go_on(&self, draft: &mut Draft<'_>, sweep: Sweep) -> Swept {
        let sweep = Arc::new(sweep);
        draft.put(self.sweep.clone(), Record::Sweep(sweep.clone()));
        Swept::On(sweep)
    }
}

fn apply(draft: &mut Draft<'_>, sweep: &Sweep, item: &SweepItem) -> Result<bool, Stop> {
    match &sweep.work {
        SweepWork::Release { parent, phase } => release(draft, parent, *phase, item),
        SweepWork::Admit { .. } | SweepWork::Await { .. } | SweepWork::Link { .. } => Ok(false),
        SweepWork::Cancel(filter) => {
            let event = Event::CancelRequested { reason: ReasonCode::CancelRequested, note: None };
            let meant = meant(draft, item, sweep, filter)?;
            if meant { draft.happen(&item.key, &event).map(|_| true) } else { Ok(false) }
        }
        SweepWork::Retry(filter) => {
            let meant = meant(draft, item, sweep, filter)?;
            if meant { retry(draft, item) } else { Ok(false) }
        }
        SweepWork::Purge(filter) => {
            let meant = meant(draft, item, sweep, filter)?;
            let purge = Purge { task: item.key.clone(), when: PurgeWhen::OnDemand };
            if meant { purge.draft(draft).map(|purged| purged == Purged::Gone) } else { Ok(false) }
        }
    }
}

/// Whether a member ended without success. One that was retried has a task in its place, which is a member too and is judged
/// by itself.
fn is_failed(member: &Task) -> bool {
    let state = &member.state;
    state.phase.is_final() && state.phase != Phase::Succeeded && state.retried_as.is_none()
}

/// Whether an ended task counts for others that still wait for its group, so that it cannot be purged.
pub(crate) fn is_counted_by_waiters(draft: &Draft<'_>, member: &Task) -> Result<bool, Stop> {
    let Some(group) = member.spec.group.as_ref().filter(|_| is_failed(member)) else { return Ok(false) };
    Ok(!draft.page(&waiting_for(&member.spec.namespace, group, 1))?.is_empty())
}

/// The sweeps that wait for a group, of which the first are read.
pub(crate) fn waiting_for(namespace: &Namespace, group: &GroupId, limit: usize) -> PageNeed {
    PageNeed { kind: RecordKind::Sweep, namespace: namespace.clone(), prefix: Sweep::await_prefix(group), limit }
}

/// Every member has ended: what waited is released, or follows its own word on failures.
fn group_ended(draft: &mut Draft<'_>, key: &Key, held: Arc<Task>, failed: u64) -> Result<(), Stop> {
    match held.spec.on_parent_failure {
        OnParentFailure::Block if failed > 0 => {
            let mut blocked = Arc::unwrap_or_clone(held);
            blocked.state.reason = Some(ReasonCode::DependencyFailed);
            blocked.state.updated_at = draft.now();
            draft.put(key.clone(), blocked);
        }
        OnParentFailure::Cancel if failed > 0 => {
            draft.happen(key, &Event::CancelRequested { reason: ReasonCode::DependencyFailed, note: None })?;
        }
        OnParentFailure::Block | OnParentFailure::Cancel | OnParentFailure::Run => {
            draft.happen(key, &Event::Released)?;
        }
    }
    Ok(())
}

/// Tasks that came after the sweep was asked for are not its business.
fn meant(draft: &Draft<'_>, item: &SweepItem, sweep: &Sweep, filter: &TaskFilter) -> Result<bool, Stop> {
    Ok(draft.task(&item.key)?.is_some_and(|task| {
        task.spec.created_at <= sweep.created_at
            && filter.matches(&task)
            && sweep.work.changes(task.state.phase, task.state.retried_as.is_some())
    }))
}

/// A refusal of one task does not stop the sweep: it is passed over, counted, and what was drafted for it is dropped.
fn retry(draft: &mut Draft<'_>, item: &SweepItem) -> Result<bool, Stop> {
    let before = draft.clone();
    match (Retry { task: item.key.clone(), new_id: item.new_id.clone() }).draft(draft) {
        Ok(_) => Ok(true),
        Err(Stop::Refused(_)) => {
            *draft = before;
            Ok(false)
        }
        Err(need) => Err(need),
    }
}

/// Tells a child of its parent's end. The edge goes with the word, unless the child stays blocked: a parent that is
/// reopened and succeeds later must still find it.
fn release(draft: &mut Draft<'_>, parent: &TaskId, phase: Phase, item: &SweepItem) -> Result<bool, Stop> {
    let Some(Record::Edge(edge)) = draft.record(&item.key)? else { return Ok(false) };
    let child = Key::task(&item.key.namespace, &edge.child);
    let parent = parent.clone();
    if draft.task(&child)?.is_none() {
        draft.delete(item.key.clone());
        return Ok(false);
    }
    let event =
        if phase == Phase::Succeeded { Event::DependencyMet { parent } } else { Event::DependencyFailed { parent } };
    let told = draft.happen(&child, &event)?;
    if !told.task().state.waits_for.contains(&edge.parent) {
        draft.delete(item.key.clone());
    }
    Ok(matches!(told, Happened::Changed(_)))
}
