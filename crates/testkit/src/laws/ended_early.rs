//! A cancelled attempt is called ended only when its work has ended: from that word on its place is free for a successor.
//! Cannot see the end of work whose process was killed.

use ekiden_core::id::TaskId;

use crate::checker::{Law, Violation};
use crate::timeline::{Life, Timeline};

pub(crate) fn check(timeline: &Timeline<'_>) -> Vec<Violation> {
    timeline.lives.iter().flat_map(|(task, life)| one(timeline, task, life)).collect()
}

fn one(timeline: &Timeline<'_>, task: &TaskId, life: &Life<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (stop, token) in &life.stops {
        let work = life.executions.iter().find(|work| work.token == *token);
        let Some((work, end)) = work.and_then(|work| Some((work, work.end?))) else { continue };
        if timeline.precedes(stop.invoke, end) {
            let what = "its attempt was called ended and went on".to_owned();
            let evidence = [vec![work.start.to_string()], stop.lines(), vec![end.to_string()]].concat();
            found.push(timeline.violation(Law::EndedEarly, task, what, evidence));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Ack, Call};
    use crate::laws::script::{Script, id};
    use ekiden_core::lease::Token;
    use ekiden_core::task::Phase;

    fn cancelled(finish_first: bool) -> Script {
        let mut script = Script::new();
        script.enqueue("a");
        script.claim("a", 1);
        script.start("a", 1);
        script.cancel("a");
        if finish_first {
            script.finish("a", 1);
        }
        script.done(Call::EndAttempt { task: id("a"), token: Token(1) }, Ack::Fresh);
        if !finish_first {
            script.finish("a", 1);
        }
        script.end("a", Phase::Cancelled).execution_no = 1;
        script
    }

    #[test]
    fn work_that_goes_on_after_it_was_called_ended_is_reported() {
        cancelled(false).broken([Law::EndedEarly]);
    }

    #[test]
    fn work_that_ended_first_is_legal() {
        cancelled(true).legal();
    }
}
