//! No result of a stale holder is accepted: a settlement counts only while nobody claimed the task since, and an attempt ends
//! once. A late ack is legal: the lease is lost, but no higher token was acknowledged before the settlement was asked for.
//! Cannot see a stale result that was accepted while the newer claim was still under way.

use ekiden_core::attempt::Outcome;
use ekiden_core::id::TaskId;

use crate::checker::{Law, Violation};
use crate::facts::Ack;
use crate::timeline::{Life, Settle, Timeline};

pub(crate) fn check(timeline: &Timeline<'_>) -> Vec<Violation> {
    timeline.lives.iter().flat_map(|(task, life)| one(timeline, task, life)).collect()
}

fn one(timeline: &Timeline<'_>, task: &TaskId, life: &Life<'_>) -> Vec<Violation> {
    let broken = |what, evidence| timeline.violation(Law::StaleResult, task, what, evidence);
    let mut found = Vec::new();
    let accepted: Vec<&Settle<'_>> = life.settles.iter().filter(|settle| is_accepted(life, settle)).collect();
    for (at, settle) in accepted.iter().enumerate() {
        let newer = life
            .granted
            .iter()
            .find(|granted| granted.token > settle.token && timeline.precedes(granted.end, settle.op.invoke));
        if let Some(newer) = newer {
            let what = format!("token {} settled although token {} was out", settle.token, newer.token);
            found.push(broken(what, [newer.op.lines(), settle.op.lines()].concat()));
        }
        let again = accepted.iter().skip(at + 1).find(|again| is_second_end(settle, again));
        if let Some(again) = again {
            let what = format!("the attempt of token {} ended twice", settle.token);
            found.push(broken(what, [settle.op.lines(), again.op.lines()].concat()));
        }
    }
    found
}

/// Two successes of one token are the business of another law.
fn is_second_end(first: &Settle<'_>, second: &Settle<'_>) -> bool {
    let both_succeeded = first.outcome == Outcome::Succeeded && second.outcome == Outcome::Succeeded;
    first.token == second.token && first.id != second.id && !both_succeeded
}

/// Whether this very request changed the task. Where the answer does not say, an earlier try may have.
fn is_accepted(life: &Life<'_>, settle: &Settle<'_>) -> bool {
    let by_another_try = |other: &Settle<'_>| {
        other.op.invoke != settle.op.invoke
            && other.op.possible()
            && other.token == settle.token
            && other.outcome == settle.outcome
    };
    match settle.op.ack() {
        Some(Ack::Fresh) => true,
        Some(Ack::Untold) => !life.settles.iter().any(by_another_try),
        Some(Ack::Repeated) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Call;
    use crate::laws::script::{Script, id};
    use ekiden_core::id::OpId;
    use ekiden_core::lease::Token;
    use ekiden_core::task::Phase;

    #[test]
    fn a_result_after_a_newer_claim_is_reported() {
        for ack in [Ack::Fresh, Ack::Untold] {
            let mut script = Script::new();
            script.enqueue("a");
            script.claim("a", 1);
            script.done(Call::LeaseLost { task: id("a"), token: None }, Ack::Fresh);
            script.claim("a", 2);
            script.done(script.settle_call("a", 1), ack);
            script.end("a", Phase::Succeeded);
            script.broken([Law::StaleResult]);
        }
    }

    #[test]
    fn a_late_ack_is_legal_until_a_newer_claim_was_acknowledged() {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 1);
        script.done(Call::LeaseLost { task: id("a"), token: Some(Token(1)) }, Ack::Fresh);
        let settle = script.client().invoke(script.settle_call("a", 1));
        script.claim("a", 2);
        settle.ok(crate::facts::Reply::Done(Ack::Fresh));
        script.end("a", Phase::Succeeded).execution_no = 2;
        script.legal();
    }

    #[test]
    fn an_attempt_that_ended_twice_is_reported() {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 1);
        let op = OpId::from_bits(77);
        let snooze = Call::Settle { op, task: id("a"), token: Token(1), outcome: Outcome::Snoozed };
        script.done(snooze, Ack::Fresh);
        script.succeed("a", 1);
        script.end("a", Phase::Succeeded);
        script.broken([Law::StaleResult]);
    }

    #[test]
    fn an_old_settlement_that_is_only_answered_again_is_legal() {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 1);
        let failed =
            |op| Call::Settle { op: OpId::from_bits(op), task: id("a"), token: Token(1), outcome: Outcome::Failed };
        script.client().invoke(failed(7)).unknown("no reply");
        script.claim("a", 2);
        script.done(failed(7), Ack::Untold);
        script.done(failed(8), Ack::Repeated);
        script.succeed("a", 2);
        script.end("a", Phase::Succeeded).execution_no = 2;
        script.legal();
    }
}
