//! No cancelled task succeeds: a cancellation and a success of one task are never both acknowledged, and a task whose
//! cancellation was acknowledged is not succeeded at the end, unless it may have been reopened. Both are final, so their order
//! does not matter. Cannot see a cancellation that nobody acknowledged.

use ekiden_core::id::TaskId;
use ekiden_core::task::Phase;

use crate::checker::{Law, Violation};
use crate::timeline::{Life, Timeline};

pub(crate) fn check(timeline: &Timeline<'_>) -> Vec<Violation> {
    timeline.lives.iter().filter_map(|(task, life)| one(timeline, task, life)).collect()
}

fn one(timeline: &Timeline<'_>, task: &TaskId, life: &Life<'_>) -> Option<Violation> {
    let cancel = life.cancels.iter().find(|cancel| cancel.ok().is_some()).filter(|_| !life.may_be_reopened())?;
    let success = life.successes().next();
    let succeeded = life.last.is_some_and(|last| last.phase == Phase::Succeeded);
    if success.is_none() && !succeeded {
        return None;
    }
    let proof = success.map(|success| success.op.lines()).unwrap_or_default();
    let what = "it was cancelled and succeeded".to_owned();
    Some(timeline.violation(Law::CancelledSucceeded, task, what, [cancel.lines(), proof].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Ack, Call};
    use crate::laws::script::{Script, id};

    #[test]
    fn a_success_after_or_before_a_cancellation_is_reported() {
        for cancelled_first in [true, false] {
            let mut script = Script::new();
            script.enqueue("a");
            script.claim("a", 1);
            if cancelled_first {
                script.cancel("a");
            }
            script.succeed("a", 1);
            if !cancelled_first {
                script.cancel("a");
            }
            script.end("a", Phase::Succeeded);
            script.broken([Law::CancelledSucceeded]);
        }
    }

    #[test]
    fn a_cancelled_task_that_ends_as_succeeded_is_reported() {
        let mut script = Script::new();
        script.enqueue("a");
        script.cancel("a");
        script.end("a", Phase::Succeeded);
        script.broken([Law::CancelledSucceeded]);
    }

    #[test]
    fn a_refused_or_doubtful_cancellation_and_a_refused_success_are_legal() {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 1);
        script.client().invoke(Call::Cancel { task: id("a") }).fail("TASK_FINAL");
        script.client().invoke(Call::Cancel { task: id("a") }).unknown("no reply");
        script.succeed("a", 1);
        script.end("a", Phase::Succeeded);
        script.enqueue("b");
        script.claim("b", 1);
        script.cancel("b");
        script.client().invoke(script.settle_call("b", 1)).fail("TASK_CANCELLED");
        script.done(Call::EndAttempt { task: id("b"), token: ekiden_core::lease::Token(1) }, Ack::Fresh);
        script.end("b", Phase::Cancelled).execution_no = 1;
        script.legal();
    }
}
