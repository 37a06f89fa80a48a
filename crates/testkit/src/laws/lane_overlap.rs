//! A lane never runs more than its width: judged by work as it was really executed. Work counts from its start until it ended
//! or its settlement was asked for, and not after its lease may have been taken away: an old holder may still be busy then.
//! Cannot see the end of work whose process was killed, so such work overlaps nothing.

use std::collections::BTreeMap;

use ekiden_core::id::LaneKey;

use crate::checker::{Law, Violation};
use crate::history::Line;
use crate::timeline::{Execution, Life, Timeline};

/// Work in a lane.
struct Work<'a> {
    execution: Execution<'a>,
    life: &'a Life<'a>,
}

pub(crate) fn check(timeline: &Timeline<'_>) -> Vec<Violation> {
    let mut lanes: BTreeMap<&LaneKey, (u32, Vec<Work<'_>>)> = BTreeMap::new();
    for life in timeline.lives.values() {
        let Some(lane) = life.lane() else { continue };
        let (width, works) = lanes.entry(&lane.key).or_default();
        *width = lane.width.max(*width);
        works.extend(life.executions.iter().map(|execution| Work { execution: *execution, life }));
    }
    lanes.into_iter().flat_map(|(lane, (width, works))| overlaps(timeline, lane, width, &works)).collect()
}

fn overlaps(timeline: &Timeline<'_>, lane: &LaneKey, width: u32, works: &[Work<'_>]) -> Vec<Violation> {
    let mut found = Vec::new();
    for new in works.iter().filter(|new| is_rightful(timeline, &new.execution, new.life, new.execution.start)) {
        let start = new.execution.start;
        let busy: Vec<&Work<'_>> =
            works.iter().filter(|old| runs_at(timeline, &old.execution, old.life, start)).collect();
        if busy.len() < usize::try_from(width).unwrap_or(usize::MAX) {
            continue;
        }
        let mut evidence: Vec<String> = busy.iter().map(|old| old.execution.start.to_string()).collect();
        evidence.push(start.to_string());
        evidence.extend(busy.iter().filter_map(|old| old.execution.end).map(ToString::to_string));
        let what = format!("it started in lane {lane} of width {width} beside {} others", busy.len());
        found.push(timeline.violation(Law::LaneOverlap, new.execution.task, what, evidence));
    }
    found
}

/// Whether work that began earlier certainly still ran at a moment, by right.
pub(crate) fn runs_at(timeline: &Timeline<'_>, work: &Execution<'_>, life: &Life<'_>, moment: &Line) -> bool {
    let Some(end) = work.end else { return false };
    let asked = life.settles.iter().filter(|settle| settle.token == work.token).map(|settle| settle.op.invoke);
    let ends_later = asked.chain([end]).all(|line| timeline.precedes(moment, line));
    timeline.precedes(work.start, moment) && ends_later && is_rightful(timeline, work, life, moment)
}

/// Whether the lease of this work was certainly not taken away before a moment. Who starts late or goes on after that harms
/// nobody but himself: his token is worth nothing any more.
pub(crate) fn is_rightful(timeline: &Timeline<'_>, work: &Execution<'_>, life: &Life<'_>, moment: &Line) -> bool {
    !life.releases.iter().any(|(op, token)| {
        op.possible() && token.is_none_or(|token| token == work.token) && !timeline.precedes(moment, op.invoke)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Ack, Call};
    use crate::laws::script::{Script, id};
    use ekiden_core::id::LaneKey;
    use ekiden_core::lane::{Hold, LaneSpec};
    use ekiden_core::lease::Token;
    use ekiden_core::task::Phase;

    /// Tasks that joined in any order, so that this law stands alone.
    fn lane(script: &Script, width: u32, tasks: &[&str]) {
        let spec = LaneSpec { key: LaneKey::new("l").unwrap(), width, hold: Hold::WhileRunning };
        for task in tasks {
            script.new_task(task, script.enqueue_with(task, |facts| facts.lane = Some(spec.clone())));
            script.claim(task, 1);
        }
    }

    fn done(script: &mut Script, tasks: &[&str]) {
        for task in tasks {
            script.succeed(task, 1);
            script.end(task, Phase::Succeeded);
        }
    }

    #[test]
    fn work_that_starts_beside_other_work_of_its_lane_is_reported() {
        let mut script = Script::new();
        lane(&script, 1, &["a", "b"]);
        script.start("a", 1);
        script.start("b", 1);
        script.finish("a", 1);
        script.finish("b", 1);
        done(&mut script, &["a", "b"]);
        script.broken([Law::LaneOverlap]);
    }

    #[test]
    fn work_one_after_the_other_or_within_the_width_is_legal() {
        let mut script = Script::new();
        lane(&script, 1, &["a", "b"]);
        for task in ["a", "b"] {
            script.start(task, 1);
            script.finish(task, 1);
        }
        done(&mut script, &["a", "b"]);
        script.legal();
        let mut script = Script::new();
        lane(&script, 2, &["a", "b"]);
        script.start("a", 1);
        script.start("b", 1);
        script.finish("a", 1);
        script.finish("b", 1);
        done(&mut script, &["a", "b"]);
        script.legal();
    }

    #[test]
    fn a_third_in_a_lane_of_two_is_reported() {
        let mut script = Script::new();
        let tasks = ["a", "b", "c"];
        lane(&script, 2, &tasks);
        tasks.iter().for_each(|task| script.start(task, 1));
        tasks.iter().for_each(|task| script.finish(task, 1));
        done(&mut script, &tasks);
        script.broken([Law::LaneOverlap]);
    }

    #[test]
    fn an_old_holder_may_still_work_once_its_lease_may_be_lost_or_its_process_is_dead() {
        let mut script = Script::new();
        lane(&script, 1, &["a", "b", "c"]);
        script.start("a", 1);
        script.client().invoke(Call::LeaseLost { task: id("a"), token: None }).unknown("no reply");
        script.start("b", 1);
        script.cancel("b");
        script.finish("b", 1);
        script.done(Call::EndAttempt { task: id("b"), token: Token(1) }, Ack::Fresh);
        script.start("c", 1);
        script.finish("a", 1);
        script.end("a", Phase::Dead).execution_no = 1;
        script.end("b", Phase::Cancelled).execution_no = 1;
        script.end("c", Phase::Dead).execution_no = 1;
        script.legal();
    }

    #[test]
    fn a_cancelled_attempt_that_is_called_ended_and_goes_on_is_reported() {
        let mut script = Script::new();
        lane(&script, 1, &["a", "b"]);
        script.start("a", 1);
        script.cancel("a");
        script.done(Call::EndAttempt { task: id("a"), token: Token(1) }, Ack::Fresh);
        script.start("b", 1);
        script.finish("a", 1);
        script.end("a", Phase::Cancelled).execution_no = 1;
        script.end("b", Phase::Dead).execution_no = 1;
        script.broken([Law::LaneOverlap, Law::EndedEarly]);
    }

    #[test]
    fn an_old_holder_that_starts_late_is_not_the_lanes_fault() {
        let mut script = Script::new();
        lane(&script, 1, &["a", "b"]);
        script.done(Call::LeaseLost { task: id("b"), token: None }, Ack::Fresh);
        script.start("a", 1);
        script.start("b", 1);
        script.finish("a", 1);
        script.finish("b", 1);
        script.succeed("a", 1);
        script.end("a", Phase::Succeeded);
        script.end("b", Phase::Dead);
        script.legal();
    }

    #[test]
    fn a_lease_lost_afterwards_excuses_nothing() {
        let mut script = Script::new();
        lane(&script, 1, &["a", "b"]);
        script.start("a", 1);
        script.start("b", 1);
        script.done(Call::LeaseLost { task: id("a"), token: None }, Ack::Fresh);
        script.finish("a", 1);
        script.finish("b", 1);
        done(&mut script, &["a", "b"]);
        script.broken([Law::LaneOverlap]);
    }
}
