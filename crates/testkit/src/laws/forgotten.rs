//! What was acknowledged before somebody looked at everything, as after a restart, is there when he looks: tasks, the attempts
//! that were handed out and how they ended, successes, cancellations and removals. Where the law against loss sees only what
//! is left at the end, this one sees each restart by itself. Cannot see what nobody acknowledged, nor a lost lease that came back.

use ekiden_core::id::TaskId;
use ekiden_core::lease::Token;
use ekiden_core::task::Phase;

use crate::checker::{Law, Violation};
use crate::facts::{Ack, Note};
use crate::history::{Line, What};
use crate::timeline::{Life, Look, Op, Timeline};

pub(crate) fn check(timeline: &Timeline<'_>) -> Vec<Violation> {
    // The first look that misses something; whoever looks later misses it too.
    let first = |task, life| timeline.looks.iter().find_map(|look| one(timeline, look, task, life));
    timeline.lives.iter().filter_map(|(task, life)| first(task, life)).collect()
}

fn one(timeline: &Timeline<'_>, look: &Look<'_>, task: &TaskId, life: &Life<'_>) -> Option<Violation> {
    let forgotten = Forgotten { timeline, look, life };
    let (what, evidence) = match look.found.get(task) {
        None => forgotten.gone()?,
        Some(line) => forgotten.undone(line)?,
    };
    let seen = look.found.get(task).copied().unwrap_or(look.end);
    let evidence = [evidence, vec![seen.to_string()]].concat();
    Some(timeline.violation(Law::Forgotten, task, what, evidence))
}

/// A task as it is known, and one look at the store.
struct Forgotten<'a> {
    timeline: &'a Timeline<'a>,
    look: &'a Look<'a>,
    life: &'a Life<'a>,
}

type Proof = (String, Vec<String>);

impl Forgotten<'_> {
    /// Whether something was certainly acknowledged before the look began.
    fn before(&self, op: &Op<'_>) -> bool {
        op.ok().is_some_and(|(line, _)| self.timeline.precedes(line, self.look.begin))
    }

    /// Whether something that may have happened may have happened before the look was over.
    fn perhaps_before(&self, op: &Op<'_>) -> bool {
        op.possible() && !self.timeline.precedes(self.look.end, op.invoke)
    }

    fn gone(&self) -> Option<Proof> {
        let acknowledged = self.life.answered.iter().find(|op| self.before(op))?;
        let purged = self.life.purges.iter().any(|op| self.perhaps_before(op));
        (!purged).then(|| ("it was acknowledged before the look and is not there".to_owned(), acknowledged.lines()))
    }

    fn undone(&self, line: &Line) -> Option<Proof> {
        let What::Note(Note::Found { phase, execution_no, lease, .. }) = &line.what else { return None };
        let life = self.life;
        let newer = life.granted.iter().find(|grant| grant.token > Token(*execution_no) && self.before(&grant.op));
        if let Some(newer) = newer {
            return Some((format!("token {} was handed out and is forgotten", newer.token), newer.op.lines()));
        }
        if let Some(op) = lease.and_then(|token| self.ended(token)) {
            return Some(("its attempt ended and is shown as if it had not".to_owned(), op.lines()));
        }
        let success = life.successes().find(|success| self.before(&success.op));
        if let Some(success) = success.filter(|_| *phase != Phase::Succeeded) {
            return Some(("its success was acknowledged and is forgotten".to_owned(), success.op.lines()));
        }
        let cancel = life.cancels.iter().find(|cancel| self.before(cancel));
        let undone = !matches!(phase, Phase::Cancelled | Phase::Succeeded) && !life.may_be_reopened();
        if let Some(cancel) = cancel.filter(|_| undone) {
            return Some(("its cancellation was acknowledged and is forgotten".to_owned(), cancel.lines()));
        }
        let purge = self.purged()?;
        Some(("it was removed and is back".to_owned(), purge.lines()))
    }

    /// The acknowledged end of an attempt.
    fn ended(&self, token: Token) -> Option<Op<'_>> {
        let settles = self.life.settles.iter().map(|settle| (settle.op, settle.token));
        let mut ends = settles.chain(self.life.stops.iter().copied());
        ends.find(|(op, ended)| *ended == token && self.before(op)).map(|(op, _)| op)
    }

    /// An acknowledged removal after which nobody can have made the task anew.
    fn purged(&self) -> Option<&Op<'_>> {
        let made_before = |purge: &Op<'_>| {
            let enqueues = self.life.enqueues.iter().map(|(op, _)| op);
            let mut makers = enqueues.chain(&self.life.retries).chain(&self.life.answered).filter(|op| op.possible());
            makers.all(|op| op.ok().is_some_and(|(line, _)| self.timeline.precedes(line, purge.invoke)))
        };
        let removed = |purge: &&Op<'_>| purge.ack() == Some(Ack::Fresh) && self.before(purge) && made_before(purge);
        self.life.purges.iter().find(removed).filter(|_| !self.life.enqueues.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Call;
    use crate::laws::script::{Script, id};
    use ekiden_core::attempt::Outcome;
    use ekiden_core::id::OpId;

    fn look(script: &Script, found: &[(&str, Phase, u64, Option<u64>)]) {
        let client = script.client();
        client.note(Note::Looking);
        for (task, phase, execution_no, lease) in found {
            let (task, lease) = (id(task), lease.map(Token));
            client.note(Note::Found { task, phase: *phase, execution_no: *execution_no, lease });
        }
        client.note(Note::Looked);
    }

    fn settled(script: &Script, outcome: Outcome) {
        let call = Call::Settle { op: OpId::from_bits(7), task: id("a"), token: Token(1), outcome };
        script.done(call, Ack::Fresh);
    }

    #[test]
    fn a_task_that_is_gone_after_a_restart_is_reported_although_it_comes_back() {
        let mut script = Script::new();
        script.enqueue("a");
        look(&script, &[]);
        script.end("a", Phase::Succeeded);
        script.broken([Law::Forgotten]);
    }

    #[test]
    fn a_task_that_was_not_acknowledged_or_may_be_purged_may_be_missing() {
        let mut script = Script::new();
        script.client().invoke(script.enqueue_call("a")).unknown("no reply");
        script.enqueue("b");
        script.client().invoke(Call::Purge { task: id("b") }).unknown("no reply");
        let late = script.client().invoke(script.enqueue_call("c"));
        look(&script, &[]);
        late.ok(crate::facts::Reply::Enqueued { task: id("c"), ack: Ack::Fresh });
        script.end("c", Phase::Succeeded);
        script.legal();
    }

    #[test]
    fn a_look_that_did_not_end_proves_no_absence() {
        let mut script = Script::new();
        script.enqueue("a");
        script.client().note(Note::Looking);
        script.end("a", Phase::Succeeded);
        script.legal();
    }

    #[test]
    fn a_token_that_is_forgotten_is_reported_and_a_kept_one_is_legal() {
        for (execution_no, broken) in [(0, true), (1, false)] {
            let mut script = Script::new();
            script.enqueue("a");
            script.claim("a", 1);
            look(&script, &[("a", Phase::Queued, execution_no, None)]);
            script.end("a", Phase::Dead);
            if broken { script.broken([Law::Forgotten]) } else { script.legal() }
        }
    }

    #[test]
    fn the_end_of_an_attempt_that_is_forgotten_is_reported() {
        for (lease, broken) in [(Some(1), true), (Some(2), false), (None, false)] {
            let mut script = Script::new();
            script.enqueue("a");
            script.claim("a", 1);
            settled(&script, Outcome::Failed);
            look(&script, &[("a", Phase::Running, lease.unwrap_or(1), lease)]);
            script.end("a", Phase::Dead);
            if broken { script.broken([Law::Forgotten]) } else { script.legal() }
        }
    }

    #[test]
    fn successes_and_cancellations_that_are_forgotten_are_reported() {
        let mut script = Script::new();
        for task in ["a", "b"] {
            script.enqueue(task);
        }
        script.claim("a", 1);
        script.succeed("a", 1);
        script.cancel("b");
        look(&script, &[("a", Phase::Queued, 1, None), ("b", Phase::Queued, 0, None)]);
        script.end("a", Phase::Succeeded);
        script.end("b", Phase::Cancelled);
        script.broken([Law::Forgotten, Law::Forgotten]);
    }

    #[test]
    fn a_removed_task_that_is_back_is_reported() {
        let script = Script::new();
        script.enqueue("a");
        script.done(Call::Purge { task: id("a") }, Ack::Fresh);
        look(&script, &[("a", Phase::Succeeded, 1, None)]);
        script.broken([Law::Forgotten]);
    }
}
