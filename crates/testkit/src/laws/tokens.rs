//! Tokens rise and a task has one holder: no token goes to two claims, a later claim gets a higher one, the store never forgets
//! one, and two executions of a task overlap only if the first one's lease may have been taken away. Cannot see claims that
//! nobody acknowledged.

use ekiden_core::id::TaskId;
use ekiden_core::lease::Token;

use crate::checker::{Law, Violation};
use crate::laws::lane_overlap::{is_rightful, runs_at};
use crate::timeline::{Life, Timeline};

pub(crate) fn check(timeline: &Timeline<'_>) -> Vec<Violation> {
    timeline.lives.iter().filter_map(|(task, life)| one(timeline, task, life)).collect()
}

fn one(timeline: &Timeline<'_>, task: &TaskId, life: &Life<'_>) -> Option<Violation> {
    repeated(timeline, task, life).or_else(|| forgotten(timeline, task, life)).or_else(|| doubled(timeline, task, life))
}

fn repeated(timeline: &Timeline<'_>, task: &TaskId, life: &Life<'_>) -> Option<Violation> {
    for first in &life.granted {
        let second = life.granted.iter().find(|second| {
            let same = first.token == second.token && first.claim != second.claim;
            same || (second.token < first.token && timeline.precedes(first.end, second.op.invoke))
        });
        if let Some(second) = second {
            let what = format!("one claim got token {} and another token {}", first.token, second.token);
            let evidence = [first.op.lines(), second.op.lines()].concat();
            return Some(timeline.violation(Law::Tokens, task, what, evidence));
        }
    }
    None
}

fn forgotten(timeline: &Timeline<'_>, task: &TaskId, life: &Life<'_>) -> Option<Violation> {
    let last = Token(life.last?.execution_no);
    let newer = life.granted.iter().find(|granted| granted.token > last)?;
    let what = format!("token {} was handed out, the store has only come to {last}", newer.token);
    Some(timeline.violation(Law::Tokens, task, what, newer.op.lines()))
}

fn doubled(timeline: &Timeline<'_>, task: &TaskId, life: &Life<'_>) -> Option<Violation> {
    for new in life.executions.iter().filter(|new| is_rightful(timeline, new, life, new.start)) {
        if let Some(old) = life.executions.iter().find(|old| runs_at(timeline, old, life, new.start)) {
            let what = format!("tokens {} and {} were executed at once", old.token, new.token);
            let lines = [Some(old.start), Some(new.start), old.end].into_iter().flatten();
            return Some(timeline.violation(Law::Tokens, task, what, lines.map(ToString::to_string).collect()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Ack, Call, Grant, Reply};
    use crate::laws::script::{Script, id};
    use ekiden_core::id::OpId;
    use ekiden_core::task::Phase;

    #[test]
    fn a_token_for_two_claims_is_reported() {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 1);
        script.claim("a", 1);
        script.end("a", Phase::Dead).execution_no = 1;
        script.broken([Law::Tokens]);
    }

    #[test]
    fn a_token_that_falls_is_reported() {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 2);
        script.claim("a", 1);
        script.end("a", Phase::Dead).execution_no = 2;
        script.broken([Law::Tokens]);
    }

    #[test]
    fn a_token_that_the_store_forgot_is_reported() {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 2);
        script.end("a", Phase::Dead).execution_no = 1;
        script.broken([Law::Tokens]);
    }

    #[test]
    fn a_repeated_claim_and_claims_that_overlap_are_legal() {
        let mut script = Script::new();
        script.enqueue("a");
        let claim = |bits| script.client().invoke(Call::Claim { claim: OpId::from_bits(bits) });
        let got = |token| Reply::Claimed(vec![Grant { task: id("a"), token: Token(token) }]);
        claim(1).unknown("no reply");
        claim(1).ok(got(1));
        claim(1).ok(got(1));
        let slow = claim(2);
        claim(3).ok(got(3));
        slow.ok(got(2));
        script.end("a", Phase::Dead).execution_no = 3;
        script.legal();
    }

    #[test]
    fn two_holders_at_once_are_reported_unless_a_lease_was_lost() {
        for lost in [false, true] {
            let mut script = Script::new();
            script.enqueue("a");
            script.claim("a", 1);
            script.start("a", 1);
            if lost {
                script.done(Call::LeaseLost { task: id("a"), token: Some(Token(1)) }, Ack::Fresh);
            }
            script.claim("a", 2);
            script.start("a", 2);
            script.finish("a", 1);
            script.end("a", Phase::Dead).execution_no = 2;
            if lost { script.legal() } else { script.broken([Law::Tokens]) }
        }
    }
}
