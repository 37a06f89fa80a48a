//! No task is completed twice: at most one attempt's success is acknowledged, once as new, and the store remembers that one
//! and no other. Cannot see a second success that nobody acknowledged and the store forgot.

use ekiden_core::id::TaskId;

use crate::checker::{Law, Violation};
use crate::facts::Ack;
use crate::timeline::{Life, Timeline};

pub(crate) fn check(timeline: &Timeline<'_>) -> Vec<Violation> {
    timeline.lives.iter().filter_map(|(task, life)| one(timeline, task, life)).collect()
}

fn one(timeline: &Timeline<'_>, task: &TaskId, life: &Life<'_>) -> Option<Violation> {
    let broken = |what: String, evidence| Some(timeline.violation(Law::CompletedTwice, task, what, evidence));
    let successes: Vec<_> = life.successes().collect();
    for (at, first) in successes.iter().enumerate() {
        let both_new = |token, id| first.token == token && first.id != id && first.op.ack() == Some(Ack::Fresh);
        let second = successes.iter().skip(at + 1).find(|second| {
            first.token != second.token || (both_new(second.token, second.id) && second.op.ack() == Some(Ack::Fresh))
        });
        if let Some(second) = second {
            let what = format!("success was acknowledged for token {} and for token {}", first.token, second.token);
            return broken(what, [first.op.lines(), second.op.lines()].concat());
        }
    }
    let last = life.last?;
    if last.successes > 1 {
        return broken(format!("the store counts {} successes", last.successes), Vec::new());
    }
    let (first, by) = (successes.first()?, last.succeeded_by?);
    if first.token != by {
        return broken(format!("token {} was acknowledged, the store says {by}", first.token), first.op.lines());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::script::Script;
    use ekiden_core::lease::Token;
    use ekiden_core::task::Phase;

    #[test]
    fn two_tokens_that_both_succeeded_are_reported() {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 1);
        script.succeed("a", 1);
        script.claim("a", 2);
        script.succeed("a", 2);
        script.end("a", Phase::Succeeded).succeeded_by = None;
        script.broken([Law::CompletedTwice]);
    }

    #[test]
    fn one_token_that_succeeded_twice_as_new_is_reported() {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 1);
        script.succeed("a", 1);
        script.succeed("a", 1);
        script.end("a", Phase::Succeeded);
        script.broken([Law::CompletedTwice]);
    }

    #[test]
    fn a_store_that_remembers_another_success_or_two_is_reported() {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 1);
        script.succeed("a", 1);
        script.end("a", Phase::Succeeded).succeeded_by = Some(Token(2));
        script.enqueue("b");
        script.end("b", Phase::Succeeded).successes = 2;
        script.broken([Law::CompletedTwice, Law::CompletedTwice]);
    }

    #[test]
    fn the_same_success_may_be_acknowledged_again() {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 1);
        script.client().invoke(script.settle_call("a", 1)).unknown("no reply");
        script.succeed("a", 1);
        script.done(script.settle_call("a", 1), Ack::Repeated);
        script.end("a", Phase::Succeeded);
        script.legal();
    }
}
