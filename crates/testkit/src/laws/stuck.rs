//! No task is stuck: after workers and maintenance went on until nothing was left, none is still queued, scheduled, running or
//! leased, and none is blocked by parents that would let it go. Waiting for a person (pending, needs_input) is not stuck.
//! And nothing is due any more: what maintenance cannot do away with stands before what comes later.
//! Cannot see anything if the run was not quiesced.

use ekiden_core::id::TaskId;
use ekiden_core::task::Phase;

use crate::checker::{Law, Violation};
use crate::facts::{FinalState, FinalTask};
use crate::timeline::Timeline;

pub(crate) fn check(timeline: &Timeline<'_>) -> Vec<Violation> {
    let last = timeline.last;
    if !last.quiesced {
        return Vec::new();
    }
    let tasks = last.tasks.iter().filter(|(task, _)| !last.allowed.contains(*task));
    let stuck = tasks.filter_map(|(task, found)| Some((task, why(last, found)?)));
    let due = last.due.iter().map(|record| still_due(timeline, record));
    stuck.map(|(task, why)| broken(timeline, task, why)).chain(due).collect()
}

fn still_due(timeline: &Timeline<'_>, record: &str) -> Violation {
    let name = TaskId::new("maintenance").expect("a plain word is a valid id");
    timeline.violation(Law::Stuck, &name, format!("{record} is still due"), Vec::new())
}

fn broken(timeline: &Timeline<'_>, task: &TaskId, why: &str) -> Violation {
    let life = timeline.lives.get(task);
    let ops = life.iter().flat_map(|life| {
        let enqueues = life.enqueues.iter().map(|(op, _)| op);
        let settles = life.settles.iter().map(|settle| &settle.op);
        let granted = life.granted.iter().map(|granted| &granted.op);
        let releases = life.releases.iter().map(|(op, _)| op);
        let others = life.cancels.iter().chain(life.stops.iter().map(|(op, _)| op)).chain(&life.retries);
        enqueues.chain(granted).chain(settles).chain(releases).chain(others)
    });
    let mut ops: Vec<_> = ops.collect();
    ops.sort_by_key(|op| (op.invoke.at, op.invoke.n));
    let evidence = ops.into_iter().flat_map(|op| op.lines()).collect();
    timeline.violation(Law::Stuck, task, why.to_owned(), evidence)
}

fn why(last: &FinalState, found: &FinalTask) -> Option<&'static str> {
    match found.phase {
        Phase::Queued | Phase::RetryScheduled => Some("it waits although everybody was served"),
        Phase::Running => Some("it runs although nobody works"),
        Phase::Blocked if !may_be_blocked(last, found) => Some("it is blocked although nothing holds it"),
        phase if phase.is_final() && found.leased => Some("its attempt never ended"),
        _ => None,
    }
}

/// A blocked task waits for a parent that has not ended, or was told that one ended badly.
fn may_be_blocked(last: &FinalState, found: &FinalTask) -> bool {
    found.waits_for.iter().any(|parent| match last.tasks.get(parent).map(|parent| parent.phase) {
        Some(Phase::Succeeded) => false,
        Some(Phase::Dead | Phase::Cancelled) | None => found.given_up,
        Some(_) => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::script::{Script, id};

    #[test]
    fn open_tasks_after_the_run_came_to_rest_are_reported() {
        for phase in [Phase::Queued, Phase::RetryScheduled, Phase::Running, Phase::Blocked] {
            let mut script = Script::new();
            script.enqueue("a");
            script.end("a", phase);
            script.broken([Law::Stuck]);
        }
    }

    #[test]
    fn an_attempt_that_never_ended_is_reported() {
        let mut script = Script::new();
        script.enqueue("a");
        script.cancel("a");
        script.end("a", Phase::Cancelled).leased = true;
        script.broken([Law::Stuck]);
    }

    #[test]
    fn a_child_that_was_never_told_is_reported() {
        for (phase, given_up) in [(Phase::Succeeded, true), (Phase::Succeeded, false), (Phase::Dead, false)] {
            let mut script = Script::new();
            script.end("parent", phase);
            let child = script.end("child", Phase::Blocked);
            (child.waits_for, child.given_up) = (vec![id("parent")], given_up);
            script.broken([Law::Stuck]);
        }
    }

    #[test]
    fn what_stays_due_is_reported() {
        let mut script = Script::new();
        script.last.due.insert("sweep s".to_owned());
        script.broken([Law::Stuck]);
    }

    #[test]
    fn who_waits_for_a_person_a_failed_parent_or_with_leave_is_not_stuck() {
        let mut script = Script::new();
        for (task, phase) in [("a", Phase::Pending), ("b", Phase::NeedsInput), ("c", Phase::Queued)] {
            script.end(task, phase);
        }
        script.last.allowed.insert(id("c"));
        script.end("dead", Phase::Dead);
        let told = script.end("told", Phase::Blocked);
        (told.waits_for, told.given_up) = (vec![id("dead")], true);
        script.end("waits", Phase::Blocked).waits_for = vec![id("a")];
        script.legal();
    }

    #[test]
    fn before_the_run_came_to_rest_nothing_is_stuck() {
        let mut script = Script::new();
        script.end("a", Phase::Queued);
        script.last.quiesced = false;
        script.legal();
    }
}
