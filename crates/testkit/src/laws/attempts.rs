//! Attempts stay within the limit: the store never counts more than the budget, and no more attempts were handed out than the
//! budget and what was given back (snoozed, interrupted, returned, asked) allow. A reopened task begins anew, so then only the
//! store's own count is looked at. Cannot see attempts whose claims nobody got to know.

use std::collections::BTreeSet;

use ekiden_core::attempt::Outcome;
use ekiden_core::id::TaskId;
use ekiden_core::lease::Token;

use crate::checker::{Law, Violation};
use crate::timeline::{Life, Settle, Timeline};

pub(crate) fn check(timeline: &Timeline<'_>) -> Vec<Violation> {
    timeline.lives.iter().filter_map(|(task, life)| one(timeline, task, life)).collect()
}

fn one(timeline: &Timeline<'_>, task: &TaskId, life: &Life<'_>) -> Option<Violation> {
    let broken = |what, evidence| Some(timeline.violation(Law::AttemptsExceeded, task, what, evidence));
    let asked = life.enqueues.first().map(|(_, facts)| facts.attempts_max);
    let limit = asked.or_else(|| life.last.map(|last| last.attempts_max))?;
    if let Some(last) = life.last.filter(|last| last.attempts > limit) {
        return broken(format!("the store counts {} attempts of {limit}", last.attempts), Vec::new());
    }
    let granted: BTreeSet<Token> = life.granted.iter().map(|granted| granted.token).collect();
    let returned: BTreeSet<Token> = life.settles.iter().filter(|settle| gives_back(settle)).map(|s| s.token).collect();
    let spent = granted.difference(&returned).count();
    if life.may_be_reopened() || spent <= usize::try_from(limit).unwrap_or(usize::MAX) {
        return None;
    }
    let evidence = life.granted.iter().flat_map(|granted| granted.op.lines()).collect();
    broken(format!("{spent} attempts were handed out and not given back, the limit is {limit}"), evidence)
}

fn gives_back(settle: &Settle<'_>) -> bool {
    let unspent = [Outcome::Snoozed, Outcome::Interrupted, Outcome::Returned, Outcome::Asked];
    settle.op.possible() && unspent.contains(&settle.outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Ack, Call};
    use crate::laws::script::{LIMIT, Script, id};
    use ekiden_core::id::OpId;
    use ekiden_core::task::Phase;

    fn settle(token: u64, outcome: Outcome) -> Call {
        let op = OpId::from_bits(900 + u128::from(token));
        Call::Settle { op, task: id("a"), token: Token(token), outcome }
    }

    #[test]
    fn a_count_above_the_limit_is_reported() {
        let mut script = Script::new();
        script.enqueue("a");
        script.end("a", Phase::Dead).attempts = LIMIT + 1;
        script.broken([Law::AttemptsExceeded]);
    }

    #[test]
    fn more_attempts_than_the_limit_are_reported() {
        let mut script = Script::new();
        script.enqueue("a");
        for token in 1..=u64::from(LIMIT) + 1 {
            script.claim("a", token);
            script.done(settle(token, Outcome::Failed), Ack::Fresh);
        }
        script.end("a", Phase::Dead).execution_no = u64::from(LIMIT) + 1;
        script.broken([Law::AttemptsExceeded]);
    }

    #[test]
    fn attempts_that_were_given_back_or_perhaps_given_back_do_not_count() {
        let mut script = Script::new();
        script.enqueue("a");
        for token in 1..=u64::from(LIMIT) + 2 {
            script.claim("a", token);
            match token {
                1 => script.done(settle(token, Outcome::Snoozed), Ack::Fresh),
                2 => script.client().invoke(settle(token, Outcome::Interrupted)).unknown("no reply"),
                _ => script.done(settle(token, Outcome::Failed), Ack::Fresh),
            }
        }
        let last = script.end("a", Phase::Dead);
        (last.execution_no, last.attempts) = (u64::from(LIMIT) + 2, LIMIT);
        script.legal();
    }

    #[test]
    fn a_reopened_task_begins_anew() {
        let mut script = Script::new();
        script.enqueue("a");
        for token in 1..=u64::from(LIMIT) + 1 {
            script.claim("a", token);
            script.done(settle(token, Outcome::Failed), Ack::Fresh);
            script.client().invoke(Call::Retry { task: id("a") }).unknown("no reply");
        }
        script.end("a", Phase::Dead).execution_no = u64::from(LIMIT) + 1;
        script.legal();
    }
}
