//! Nothing acknowledged is lost: a task that was acknowledged exists at the end, an acknowledged success is still one, and so
//! is an acknowledged cancellation, unless the task was purged on purpose. Cannot see what nobody acknowledged, nor a claim
//! or a failed attempt that vanished (those show as tokens that repeat).

use ekiden_core::id::TaskId;
use ekiden_core::task::Phase;

use crate::checker::{Law, Violation};
use crate::timeline::{Life, Timeline};

pub(crate) fn check(timeline: &Timeline<'_>) -> Vec<Violation> {
    timeline.lives.iter().filter_map(|(task, life)| one(timeline, task, life)).collect()
}

fn one(timeline: &Timeline<'_>, task: &TaskId, life: &Life<'_>) -> Option<Violation> {
    let broken = |what: &str, evidence| Some(timeline.violation(Law::Lost, task, what.to_owned(), evidence));
    let Some(last) = life.last else {
        let acknowledged = life.answered.first().filter(|_| !life.may_be_purged())?;
        return broken("it was acknowledged and is gone", acknowledged.lines());
    };
    let success = life.successes().next();
    if let Some(success) = success.filter(|_| last.phase != Phase::Succeeded) {
        return broken("its success was acknowledged and is gone", success.op.lines());
    }
    let cancel = life.cancels.iter().find(|cancel| cancel.ok().is_some());
    let undone = !matches!(last.phase, Phase::Cancelled | Phase::Succeeded) && !life.may_be_reopened();
    match cancel.filter(|_| undone) {
        Some(cancel) => broken("its cancellation was acknowledged and is gone", cancel.lines()),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Ack, Call};
    use crate::laws::script::{Script, id};

    #[test]
    fn an_acknowledged_task_that_is_gone_is_reported() {
        let script = Script::new();
        script.enqueue("a");
        script.broken([Law::Lost]);
    }

    #[test]
    fn a_task_that_was_purged_or_never_acknowledged_may_be_gone() {
        let script = Script::new();
        script.enqueue("a");
        script.done(Call::Purge { task: id("a") }, Ack::Fresh);
        script.enqueue("b");
        script.client().invoke(Call::Purge { task: id("b") }).unknown("no reply");
        script.client().invoke(script.enqueue_call("c")).unknown("no reply");
        script.client().invoke(script.enqueue_call("d")).fail("refused");
        script.legal();
    }

    #[test]
    fn an_acknowledged_success_or_cancellation_that_is_gone_is_reported() {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 1);
        script.succeed("a", 1);
        script.end("a", Phase::Dead);
        script.enqueue("b");
        script.cancel("b");
        script.end("b", Phase::Dead);
        script.broken([Law::Lost, Law::Lost]);
    }

    #[test]
    fn a_success_without_acknowledgement_may_be_gone() {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 1);
        script.client().invoke(script.settle_call("a", 1)).unknown("no reply");
        script.end("a", Phase::Dead);
        script.legal();
    }
}
