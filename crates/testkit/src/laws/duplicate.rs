//! A repeated enqueue makes no second task: one op id and one idempotency key have one task, and no two tasks have one unique
//! key at the same time. A task that nobody acknowledged counts as soon as somebody saw it. Cannot see duplicates of enqueues
//! without any key under two op ids: those are two wishes.

use std::collections::BTreeMap;

use ekiden_core::id::TaskId;
use ekiden_core::limits;
use ekiden_core::time::Millis;
use ekiden_core::unique::UniqueHold;

use crate::checker::{Law, Violation};
use crate::facts::EnqueueFacts;
use crate::history::Line;
use crate::timeline::{Life, Op, Timeline};

/// A task that an enqueue surely made.
struct Made<'a> {
    task: &'a TaskId,
    life: &'a Life<'a>,
    op: &'a Op<'a>,
    facts: &'a EnqueueFacts,
}

pub(crate) fn check(timeline: &Timeline<'_>) -> Vec<Violation> {
    let made: Vec<Made<'_>> = timeline
        .lives
        .iter()
        .filter(|(_, life)| is_seen(life))
        .filter_map(|(task, life)| {
            let (op, facts) = life.enqueues.iter().find(|(op, _)| op.possible())?;
            Some(Made { task, life, op, facts })
        })
        .collect();
    let mut found = same(timeline, &made, "op id", |made| Some(made.facts.op.to_string()), |_, _| true);
    let within_a_day =
        |first: &Made<'_>, second: &Made<'_>| is_within(timeline, first, second, limits::IDEMPOTENCY_KEPT);
    let idempotency = |made: &Made<'_>| made.facts.idempotency.as_ref().map(ToString::to_string);
    found.extend(same(timeline, &made, "idempotency key", idempotency, within_a_day));
    let unique = |made: &Made<'_>| made.facts.unique.as_ref().map(|unique| unique.key.to_string());
    found.extend(same(timeline, &made, "unique key", unique, |first, second| collide(timeline, first, second)));
    found
}

/// Whether the task surely existed: somebody got it, or it is there. Retries answer with tasks that they made themselves.
fn is_seen(life: &Life<'_>) -> bool {
    life.last.is_some() || !life.answered.is_empty() || !life.granted.is_empty() || !life.executions.is_empty()
}

fn same(
    timeline: &Timeline<'_>,
    made: &[Made<'_>],
    what: &str,
    key: impl Fn(&Made<'_>) -> Option<String>,
    collide: impl Fn(&Made<'_>, &Made<'_>) -> bool,
) -> Vec<Violation> {
    let mut by_key: BTreeMap<String, Vec<&Made<'_>>> = BTreeMap::new();
    for made in made {
        if let Some(key) = key(made) {
            by_key.entry(key).or_default().push(made);
        }
    }
    let mut found = Vec::new();
    for (key, made) in by_key {
        for (at, first) in made.iter().enumerate() {
            if let Some(second) = made.iter().skip(at + 1).find(|second| collide(first, second)) {
                let what = format!("it has one {what} ({key}) with {}", first.task);
                let evidence = [first.op.lines(), second.op.lines()].concat();
                found.push(timeline.violation(Law::Duplicate, second.task, what, evidence));
            }
        }
    }
    found
}

/// Whether both enqueues surely happened within a span. One that nobody acknowledged happened before the history ended.
fn is_within(timeline: &Timeline<'_>, first: &Made<'_>, second: &Made<'_>, span: Millis) -> bool {
    let begin = first.op.invoke.at.min(second.op.invoke.at);
    let end = |made: &Made<'_>| made.op.ok().map_or_else(|| timeline.ends_at(), |(line, _)| line.at);
    end(first).max(end(second)) - begin < i64::try_from(span.as_u64()).unwrap_or(i64::MAX)
}

/// Whether two tasks surely had one unique key at the same time.
fn collide(timeline: &Timeline<'_>, first: &Made<'_>, second: &Made<'_>) -> bool {
    let holds = [first, second].map(|made| made.facts.unique.as_ref().map(|unique| unique.hold));
    match holds {
        [Some(UniqueHold::WhileOpen), Some(UniqueHold::WhileOpen)] => {
            let reopened = first.life.may_be_reopened() || second.life.may_be_reopened();
            !reopened && (was_open(timeline, first, second) || was_open(timeline, second, first))
        }
        [Some(UniqueHold::For(a)), Some(UniqueHold::For(b))] => is_within(timeline, first, second, a.min(b)),
        [Some(UniqueHold::WhileKept), Some(UniqueHold::WhileKept)] => {
            // A retry hands the key on to the task that runs instead, and the key goes with that one.
            let let_go = |life: &Life<'_>| life.may_be_purged() || life.retries.iter().any(Op::possible);
            !let_go(first.life) && !let_go(second.life)
        }
        // Keys whose holds differ are somebody's mistake; what they promise together nobody wrote down.
        _ => false,
    }
}

/// Whether `older` was there before `newer` was asked for and was still open after it was acknowledged.
fn was_open(timeline: &Timeline<'_>, older: &Made<'_>, newer: &Made<'_>) -> bool {
    let (Some((older_ok, _)), Some((newer_ok, _))) = (older.op.ok(), newer.op.ok()) else { return false };
    timeline.precedes(older_ok, newer.op.invoke) && is_open_after(timeline, older.life, newer_ok)
}

/// Only a task that is open can be claimed, and what is open at the end was open all along.
fn is_open_after(timeline: &Timeline<'_>, life: &Life<'_>, moment: &Line) -> bool {
    life.last.is_some_and(|last| !last.phase.is_final())
        || life.granted.iter().any(|granted| timeline.precedes(moment, granted.op.invoke))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Ack, Call, Reply};
    use crate::laws::script::{Script, id};
    use ekiden_core::id::{IdempotencyKey, OpId, UniqueKey};
    use ekiden_core::task::Phase;
    use ekiden_core::unique::Unique;

    fn with_key(script: &Script, task: &str) -> Call {
        script.enqueue_with(task, |facts| facts.idempotency = Some(IdempotencyKey::new("k").unwrap()))
    }

    fn unique(script: &Script, task: &str) -> Call {
        let hold = UniqueHold::WhileOpen;
        script.enqueue_with(task, |facts| facts.unique = Some(Unique { key: UniqueKey::new("u").unwrap(), hold }))
    }

    fn new(script: &Script, task: &str, call: Call) {
        script.client().invoke(call).ok(Reply::Enqueued { task: id(task), ack: Ack::Fresh });
    }

    #[test]
    fn two_tasks_of_one_op_or_idempotency_key_are_reported() {
        let mut script = Script::new();
        for task in ["a", "b"] {
            new(&script, task, script.enqueue_with(task, |facts| facts.op = OpId::from_bits(9)));
            script.end(task, Phase::Succeeded);
        }
        script.broken([Law::Duplicate]);
        let mut script = Script::new();
        for task in ["a", "b"] {
            new(&script, task, with_key(&script, task));
            script.end(task, Phase::Succeeded);
        }
        script.broken([Law::Duplicate]);
    }

    #[test]
    fn a_repeated_request_that_finds_the_first_task_is_legal() {
        let mut script = Script::new();
        script.client().invoke(with_key(&script, "a")).unknown("no reply");
        let again = Reply::Enqueued { task: id("a"), ack: Ack::Repeated };
        script.client().invoke(with_key(&script, "b")).ok(again);
        script.end("a", Phase::Succeeded);
        script.legal();
    }

    #[test]
    fn a_task_of_a_lost_reply_beside_the_repeated_one_is_reported() {
        let mut script = Script::new();
        script.client().invoke(with_key(&script, "a")).unknown("no reply");
        new(&script, "b", with_key(&script, "b"));
        for task in ["a", "b"] {
            script.end(task, Phase::Succeeded);
        }
        script.broken([Law::Duplicate]);
    }

    #[test]
    fn an_idempotency_key_answers_for_a_day_and_no_longer() {
        let mut script = Script::new();
        for task in ["a", "b"] {
            new(&script, task, with_key(&script, task));
            script.end(task, Phase::Succeeded);
            script.clock.advance(limits::IDEMPOTENCY_KEPT);
        }
        script.legal();
    }

    #[test]
    fn a_second_task_beside_an_open_one_of_its_unique_key_is_reported() {
        let mut script = Script::new();
        new(&script, "a", unique(&script, "a"));
        new(&script, "b", unique(&script, "b"));
        script.claim("a", 1);
        script.succeed("a", 1);
        script.end("a", Phase::Succeeded);
        script.end("b", Phase::Cancelled);
        script.broken([Law::Duplicate]);
    }

    #[test]
    fn a_second_task_after_the_first_of_its_unique_key_ended_is_legal() {
        let mut script = Script::new();
        new(&script, "a", unique(&script, "a"));
        script.claim("a", 1);
        script.client().invoke(script.settle_call("a", 1)).unknown("no reply");
        new(&script, "b", unique(&script, "b"));
        script.end("a", Phase::Succeeded);
        script.end("b", Phase::Succeeded);
        script.legal();
    }

    #[test]
    fn keys_held_for_a_time_or_while_kept_are_held_that_long() {
        let span = Millis::new(100);
        for (hold, wait, broken) in [
            (UniqueHold::For(span), 99, true),
            (UniqueHold::For(span), 100, false),
            (UniqueHold::WhileKept, 1_000_000, true),
        ] {
            let mut script = Script::new();
            for task in ["a", "b"] {
                let key = UniqueKey::new("u").unwrap();
                new(&script, task, script.enqueue_with(task, |facts| facts.unique = Some(Unique { key, hold })));
                script.end(task, Phase::Succeeded);
                script.clock.advance(Millis::new(wait));
            }
            if broken { script.broken([Law::Duplicate]) } else { script.legal() }
        }
    }
    #[test]
    fn a_retry_hands_a_kept_key_on() {
        let mut script = Script::new();
        let unique = Unique { key: UniqueKey::new("u").unwrap(), hold: UniqueHold::WhileKept };
        for task in ["a", "b"] {
            new(&script, task, script.enqueue_with(task, |facts| facts.unique = Some(unique.clone())));
            script.client().invoke(Call::Retry { task: id(task) }).unknown("no reply");
            script.end(task, Phase::Succeeded);
        }
        script.legal();
    }
}
