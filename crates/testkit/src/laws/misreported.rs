//! An attempt is written down as it went: as failed only if its handler did not say that it succeeded, and as returned only if it
//! never began. A returned task goes to the next claim at once, so a returned attempt that runs has a second one beside it.
//! Cannot see what a handler said without a note.

use ekiden_core::attempt::Outcome;
use ekiden_core::id::TaskId;

use crate::checker::{Law, Violation};
use crate::timeline::{Life, Settle, Timeline};

pub(crate) fn check(timeline: &Timeline<'_>) -> Vec<Violation> {
    timeline.lives.iter().flat_map(|(task, life)| one(timeline, task, life)).collect()
}

fn one(timeline: &Timeline<'_>, task: &TaskId, life: &Life<'_>) -> Vec<Violation> {
    let written = life.settles.iter().filter(|settle| settle.op.ok().is_some());
    let found = written.filter_map(|settle| {
        let (what, line) = contradiction(life, settle)?;
        let evidence = [vec![line], settle.op.lines()].concat();
        Some(timeline.violation(Law::Misreported, task, what.to_owned(), evidence))
    });
    found.collect()
}

/// What a settlement contradicts, and the line that proves it.
fn contradiction(life: &Life<'_>, settle: &Settle<'_>) -> Option<(&'static str, String)> {
    match settle.outcome {
        Outcome::Failed | Outcome::Crashed => {
            let mut said = life.said.iter();
            let (line, ..) =
                said.find(|(_, token, outcome)| *token == settle.token && *outcome == Outcome::Succeeded)?;
            Some(("its attempt succeeded and was written down as failed", line.to_string()))
        }
        Outcome::Returned => {
            let work = life.executions.iter().find(|work| work.token == settle.token)?;
            Some(("its attempt was given back as not begun, and ran", work.start.to_string()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Ack, Call, Note};
    use crate::laws::script::{Script, id};
    use ekiden_core::id::OpId;
    use ekiden_core::lease::Token;
    use ekiden_core::task::Phase;

    fn settled(outcome: Outcome, runs: bool, said: Option<Outcome>) -> Script {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 1);
        if runs {
            script.start("a", 1);
        }
        if let Some(outcome) = said {
            script.client().note(Note::Said { task: id("a"), token: Token(1), outcome });
        }
        let call = Call::Settle { op: OpId::from_bits(9), task: id("a"), token: Token(1), outcome };
        script.done(call, Ack::Fresh);
        script.end("a", Phase::Cancelled).execution_no = 1;
        script
    }

    #[test]
    fn a_success_that_is_written_down_as_failed_is_reported() {
        settled(Outcome::Failed, true, Some(Outcome::Succeeded)).broken([Law::Misreported]);
        settled(Outcome::Failed, true, Some(Outcome::Failed)).legal();
        settled(Outcome::TimedOut, true, Some(Outcome::Succeeded)).legal();
    }

    #[test]
    fn an_attempt_that_is_returned_and_runs_is_reported() {
        settled(Outcome::Returned, true, None).broken([Law::Misreported]);
        settled(Outcome::Returned, false, None).legal();
    }
}
