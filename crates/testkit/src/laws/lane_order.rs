//! A serial lane keeps its order: a task that was acknowledged before another was handed in succeeds before the other first
//! runs, where both joined at once and the lane has one place that is kept until the end. Cannot see the order of enqueues that
//! overlapped, of tasks that waited for something first, were reopened or did not succeed.

use std::collections::BTreeMap;

use ekiden_core::id::{LaneKey, TaskId};
use ekiden_core::lane::Hold;

use crate::checker::{Law, Violation};
use crate::facts::Ack;
use crate::history::Line;
use crate::timeline::{Life, Op, Timeline};

/// A task that joined its lane when it was enqueued.
struct Member<'a> {
    task: &'a TaskId,
    life: &'a Life<'a>,
    op: &'a Op<'a>,
    acknowledged: &'a Line,
}

pub(crate) fn check(timeline: &Timeline<'_>) -> Vec<Violation> {
    let mut lanes: BTreeMap<&LaneKey, Vec<Member<'_>>> = BTreeMap::new();
    for (task, life) in &timeline.lives {
        if let Some((lane, member)) = member(task, life) {
            lanes.entry(lane).or_default().push(member);
        }
    }
    lanes.into_iter().flat_map(|(lane, members)| overtaken(timeline, lane, &members)).collect()
}

fn member<'a>(task: &'a TaskId, life: &'a Life<'a>) -> Option<(&'a LaneKey, Member<'a>)> {
    let (op, facts) = life.enqueues.iter().find(|(op, _)| op.ack() == Some(Ack::Fresh))?;
    let serial = facts.lane.as_ref().filter(|lane| lane.width == 1 && lane.hold == Hold::UntilFinal)?;
    let alone = life.enqueues.iter().filter(|(op, _)| op.possible()).count() == 1;
    if facts.waits || life.may_be_reopened() || !alone {
        return None;
    }
    Some((&serial.key, Member { task, life, op, acknowledged: op.ok()?.0 }))
}

fn overtaken(timeline: &Timeline<'_>, lane: &LaneKey, members: &[Member<'_>]) -> Vec<Violation> {
    let mut found = Vec::new();
    for first in members {
        let Some(success) = first.life.successes().next() else { continue };
        let work = first.life.executions.iter().find(|work| work.token == success.token);
        let Some(work) = work else { continue };
        for second in members.iter().filter(|second| timeline.precedes(first.acknowledged, second.op.invoke)) {
            let early = second.life.executions.iter().find(|early| timeline.precedes(early.start, work.start));
            if let Some(early) = early {
                let what = format!("it overtook {} in the serial lane {lane}", first.task);
                let lines = [first.acknowledged, second.op.invoke, early.start, work.start].map(ToString::to_string);
                found.push(timeline.violation(Law::LaneOrder, second.task, what, lines.to_vec()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Call, Reply};
    use crate::laws::script::{Script, id};
    use ekiden_core::lane::LaneSpec;
    use ekiden_core::task::Phase;

    fn call(script: &Script, task: &str, waits: bool) -> Call {
        let lane = LaneSpec::serial(LaneKey::new("l").unwrap());
        script.enqueue_with(task, |facts| (facts.lane, facts.waits) = (Some(lane), waits))
    }

    fn run(script: &mut Script, task: &str) {
        script.claim(task, 1);
        script.start(task, 1);
        script.finish(task, 1);
        script.succeed(task, 1);
        script.end(task, Phase::Succeeded);
    }

    #[test]
    fn a_task_that_overtakes_its_elder_is_reported() {
        let mut script = Script::new();
        script.new_task("a", call(&script, "a", false));
        script.new_task("b", call(&script, "b", false));
        run(&mut script, "b");
        run(&mut script, "a");
        script.broken([Law::LaneOrder]);
    }

    #[test]
    fn enqueues_that_overlapped_may_run_in_either_order() {
        let mut script = Script::new();
        let first = script.client().invoke(call(&script, "a", false));
        let second = script.client().invoke(call(&script, "b", false));
        first.ok(Reply::Enqueued { task: id("a"), ack: Ack::Fresh });
        second.ok(Reply::Enqueued { task: id("b"), ack: Ack::Fresh });
        run(&mut script, "b");
        run(&mut script, "a");
        script.legal();
    }

    #[test]
    fn an_elder_that_joins_later_or_was_only_found_after_a_doubtful_try_may_be_overtaken() {
        let mut script = Script::new();
        script.new_task("a", call(&script, "a", true));
        script.client().invoke(call(&script, "b", false)).unknown("no reply");
        script.new_task("b", call(&script, "b", false));
        script.new_task("c", call(&script, "c", false));
        for task in ["c", "b", "a"] {
            run(&mut script, task);
        }
        script.legal();
    }

    #[test]
    fn an_elder_that_failed_for_good_makes_room() {
        let mut script = Script::new();
        script.new_task("a", call(&script, "a", false));
        script.new_task("b", call(&script, "b", false));
        script.claim("a", 1);
        script.start("a", 1);
        script.finish("a", 1);
        run(&mut script, "b");
        script.end("a", Phase::Dead).execution_no = 1;
        script.legal();
    }
}
