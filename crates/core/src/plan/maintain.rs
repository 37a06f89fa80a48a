//! Maintenance: what is due is promoted, reclaimed, expired, forgotten or purged. Any process may do it, at any time, twice.

use std::sync::Arc;

use crate::event::Event;
use crate::index::{DueIndex, Index};
use crate::key::{Key, RecordKind};
use crate::lease::Evidence;
use crate::limits;
use crate::plan::change::Happen;
use crate::plan::draft::Draft;
use crate::plan::sweep::is_counted_by_waiters;
use crate::plan::view::PageNeed;
use crate::plan::{Plan, Stop};
use crate::record::Record;
use crate::sweep::Sweep;
use crate::task::{Origin, Task};
use crate::time::Millis;
use crate::unique::UniqueHold;

/// 8: how many edges that nobody needs any more one purge clears away. A parent with more takes several purges.
const EDGES_A_PURGE_MAX: usize = 8;

/// The event for a task that the given list says is due. The decision itself is made on the record, not on the list.
pub fn due_event(index: DueIndex, task: Key) -> Option<Happen> {
    let event = match index {
        DueIndex::Promote | DueIndex::Rejoin => Event::BecameDue,
        DueIndex::Lease => Event::LeaseLost { evidence: Evidence::Deadline },
        DueIndex::Expire => Event::Expired,
        DueIndex::Purge
        | DueIndex::Runner
        | DueIndex::Sweep
        | DueIndex::Schedule
        | DueIndex::Forget
        | DueIndex::Foreign => {
            return None;
        }
    };
    Some(Happen { task, event })
}

/// Removes a record that only lived for a while.
#[derive(Clone, Debug)]
pub struct Forget {
    /// The record.
    pub record: Key,
    /// Whether to wait for the end of its time. A record that is still needed never goes.
    pub when: PurgeWhen,
}

impl Plan for Forget {
    type Done = bool;

    fn draft(&self, draft: &mut Draft<'_>) -> Result<bool, Stop> {
        let Some(record) = draft.record(&self.record)? else { return Ok(false) };
        let goes_at = Index::of(&self.record, &record).due_at(DueIndex::Forget);
        let over = goes_at.is_some_and(|at| self.when == PurgeWhen::OnDemand || at <= draft.now());
        if over {
            draft.delete(self.record.clone());
        }
        Ok(over)
    }
}

/// Removes an ended task with what belongs to it.
#[derive(Clone, Debug)]
pub struct Purge {
    /// The task.
    pub task: Key,
    /// Whether to wait for the retention's end, or to purge on demand.
    pub when: PurgeWhen,
}

/// When what has ended may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeWhen {
    /// When its policy's time is over.
    Due,
    /// Now, because somebody asked.
    OnDemand,
}

/// What came of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purged {
    /// The task is gone.
    Gone,
    /// It is still needed, or not due, or not ours.
    Kept,
}

impl Plan for Purge {
    type Done = Purged;

    fn draft(&self, draft: &mut Draft<'_>) -> Result<Purged, Stop> {
        let Some(task) = draft.task(&self.task)? else { return Ok(Purged::Gone) };
        match self.standing(draft, &task)? {
            Standing::Free => {}
            Standing::Kept => return Ok(Purged::Kept),
            Standing::Needed(look_again) => {
                if self.when == PurgeWhen::Due {
                    let mut kept = Arc::unwrap_or_clone(task);
                    kept.state.purge_after = Some(draft.now() + look_again);
                    draft.put(self.task.clone(), kept);
                }
                return Ok(Purged::Kept);
            }
        }
        let spec = &task.spec;
        if let Some(unique) = spec.unique.as_ref().filter(|unique| unique.hold == UniqueHold::WhileKept) {
            let key = Key::unique(&spec.namespace, &unique.key);
            if matches!(draft.record(&key)?, Some(Record::Unique(held)) if held.task == spec.id) {
                draft.delete(key);
            }
        }
        draft.delete(self.task.clone());
        Ok(Purged::Gone)
    }
}

/// What a purge finds.
enum Standing {
    /// Nothing keeps it.
    Free,
    /// It has not ended, is not due, or is not ours.
    Kept,
    /// It would go if others did not need it. Looked at again after this time, it stands before no others in the list.
    Needed(Millis),
}

impl Purge {
    fn standing(&self, draft: &mut Draft<'_>, task: &Task) -> Result<Standing, Stop> {
        let ended = task.state.phase.is_final() && task.state.lease.is_none() && task.spec.origin == Origin::Ours;
        let record = Record::Task(Arc::new(task.clone()));
        let due = Index::of(&self.task, &record).due_at(DueIndex::Purge).is_some_and(|at| at <= draft.now());
        let young = draft.now().since(task.spec.created_at) < limits::PURGE_AGE_MIN;
        if !ended || young || (self.when == PurgeWhen::Due && !due) {
            return Ok(Standing::Kept);
        }
        let since_end = draft.now().since(task.state.finished_at.unwrap_or(draft.now()));
        let later = Standing::Needed(Millis::new(since_end.as_u64() / 10).max(limits::PURGE_LOOK_MIN));
        if is_counted_by_waiters(draft, task)? {
            return Ok(later);
        }
        if !task.state.has_dependents {
            return Ok(Standing::Free);
        }
        // A release under way needs its parent, and so do children that still wait for its end.
        let sweep = Key::sweep(&task.spec.namespace, &Sweep::release_id(task.id()));
        if draft.record(&sweep)?.is_some() {
            return Ok(later);
        }
        Ok(match clear_edges(draft, task)? {
            Edges::Cleared => Standing::Free,
            Edges::More => Standing::Needed(Millis::ZERO),
            Edges::Open => later,
        })
    }
}

/// The edges of an ended parent.
enum Edges {
    /// None is left.
    Cleared,
    /// So many that another commit must clear the rest away.
    More,
    /// A child still waits.
    Open,
}

/// A failure leaves the edges to those whom it blocks. They go with the parent when none of these waits any more.
fn clear_edges(draft: &mut Draft<'_>, parent: &Task) -> Result<Edges, Stop> {
    let namespace = &parent.spec.namespace;
    let prefix = Key::prefix(parent.id().as_str());
    let need = PageNeed { kind: RecordKind::Edge, namespace: namespace.clone(), prefix, limit: EDGES_A_PURGE_MAX };
    let edges = draft.page(&need)?;
    let children: Vec<Key> = edges
        .iter()
        .filter_map(|edge| if let Record::Edge(edge) = &edge.record { Some(&edge.child) } else { None })
        .map(|child| Key::task(namespace, child))
        .collect();
    draft.need(&children)?;
    for child in &children {
        if draft.task(child)?.is_some_and(|child| child.state.waits_for.contains(parent.id())) {
            return Ok(Edges::Open);
        }
    }
    for edge in edges {
        draft.delete(edge.key);
    }
    Ok(if draft.page_is_whole(&need)? { Edges::Cleared } else { Edges::More })
}
