//! Circles of waiting. A task waits for its parents and for the members of a group; what waits for a task has an edge from it, or
//! waits for the group that it belongs to.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::dependency;
use crate::id::TaskId;
use crate::key::{Key, RecordKind};
use crate::limits;
use crate::plan::draft::Draft;
use crate::plan::sweep::waiting_for;
use crate::plan::view::PageNeed;
use crate::plan::{Need, Stop};
use crate::reason::{ReasonCode, Refusal};
use crate::record::Record;
use crate::sweep::SweepWork;
use crate::task::{Phase, Spec, Task};

/// Walks from a task to whatever waits for it, and refuses it if that is something that it waits for itself. `known` is the task
/// where it is there already: only then can it have children.
pub(super) fn refuse_circles(
    draft: &Draft<'_>,
    spec: &Spec,
    known: Option<&Arc<Task>>,
    parents: &[TaskId],
) -> Result<(), Stop> {
    let waits = !parents.is_empty() || spec.after_group.is_some();
    let is_awaited = |task: &Task| {
        parents.contains(task.id()) || (spec.after_group.is_some() && task.spec.group == spec.after_group)
    };
    if !waits {
        return Ok(());
    }
    let mut seen = BTreeSet::from([spec.id.clone()]);
    let mut row = vec![(vec![spec.id.clone()], waiters(draft, spec, known)?)];
    while !row.is_empty() {
        let keys: Vec<Key> = row.iter().flat_map(|(_, next)| next).map(|id| Key::task(&spec.namespace, id)).collect();
        draft.need(&keys)?;
        let mut reached = Vec::new();
        for (path, id) in row.iter().flat_map(|(path, next)| next.iter().map(move |id| (path, id))) {
            let waits = |task: &Arc<Task>| matches!(task.state.phase, Phase::Pending | Phase::Blocked);
            let Some(task) = draft.task(&Key::task(&spec.namespace, id))?.filter(waits) else { continue };
            let longer: Vec<TaskId> = path.iter().chain([id]).cloned().collect();
            if is_awaited(&task) {
                // The walk goes from what is waited for to what waits; a path is told from what waits.
                let circle: Vec<&TaskId> = [&spec.id].into_iter().chain(longer.iter().rev()).collect();
                return Err(dependency::refuse_cycle(&circle).into());
            }
            if seen.insert(id.clone()) {
                reached.push((longer, task));
            }
        }
        if seen.len() > limits::CYCLE_WALK_MAX {
            return Err(too_many(seen.len()).into());
        }
        row = all_waiters(draft, reached)?;
    }
    Ok(())
}

/// A task that was reached, by the path to it, and what waits for it.
type Waiters = (Vec<TaskId>, Vec<TaskId>);

/// The same for each of a row; what must be read for them is asked for at once.
fn all_waiters(draft: &Draft<'_>, reached: Vec<(Vec<TaskId>, Arc<Task>)>) -> Result<Vec<Waiters>, Stop> {
    let (mut row, mut needs): (Vec<_>, Vec<Need>) = (Vec::new(), Vec::new());
    for (path, task) in reached {
        match waiters(draft, &task.spec, Some(&task)) {
            Ok(next) => row.push((path, next)),
            Err(Stop::Need(more)) => needs.extend(more),
            Err(refused) => return Err(refused),
        }
    }
    needs.sort();
    needs.dedup();
    if needs.is_empty() { Ok(row) } else { Err(Stop::Need(needs)) }
}

/// What waits for a task itself.
fn waiters(draft: &Draft<'_>, spec: &Spec, known: Option<&Arc<Task>>) -> Result<Vec<TaskId>, Stop> {
    let limit = limits::PAGE_ITEMS_MAX;
    let by_group = spec.group.iter().map(|group| waiting_for(&spec.namespace, group, limit));
    let by_edge = known.filter(|task| task.state.has_dependents).map(|task| PageNeed {
        kind: RecordKind::Edge,
        namespace: spec.namespace.clone(),
        prefix: Key::prefix(task.id().as_str()),
        limit,
    });
    let mut found = Vec::new();
    for need in by_group.chain(by_edge) {
        for record in draft.page(&need)? {
            match record.record {
                Record::Edge(edge) => found.push(edge.child),
                Record::Sweep(sweep) => {
                    if let SweepWork::Await { then, .. } = &sweep.work {
                        found.push(then.clone());
                    }
                }
                _ => {}
            }
        }
        if !draft.page_is_whole(&need)? {
            return Err(too_many(limit).into());
        }
    }
    Ok(found)
}

fn too_many(tasks: usize) -> Refusal {
    Refusal::new(ReasonCode::DependencyTooMany).with("waiting", tasks).with("waiting_max", limits::CYCLE_WALK_MAX)
}
