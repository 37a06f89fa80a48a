//! A history in which almost nothing is certain must not be condemned, whatever may have happened in it.

use ekiden_core::attempt::Outcome;
use ekiden_core::id::{IdempotencyKey, LaneKey, OpId, UniqueKey};
use ekiden_core::lane::LaneSpec;
use ekiden_core::lease::Token;
use ekiden_core::task::Phase;
use ekiden_core::unique::{Unique, UniqueHold};

use crate::facts::{Ack, Call};
use crate::laws::script::{Script, id};

#[test]
fn doubtful_operations_condemn_nothing() {
    for phase in [Phase::Succeeded, Phase::Dead, Phase::Cancelled] {
        let mut script = Script::new();
        let unique = Unique { key: UniqueKey::new("u").unwrap(), hold: UniqueHold::WhileOpen };
        for task in ["a", "b"] {
            let call = script.enqueue_with(task, |facts| {
                facts.unique = Some(unique.clone());
                facts.idempotency = Some(IdempotencyKey::new("k").unwrap());
                facts.lane = Some(LaneSpec::serial(LaneKey::new("l").unwrap()));
            });
            script.client().invoke(call).unknown("no reply");
        }
        script.client().invoke(Call::Claim { claim: OpId::from_bits(1) }).unknown("no reply");
        script.claim("a", 3);
        script.start("a", 3);
        for call in [Call::LeaseLost { task: id("a"), token: None }, Call::Cancel { task: id("a") }] {
            script.client().invoke(call).unknown("no reply");
        }
        script.claim("a", 5);
        script.start("a", 5);
        for (token, outcome) in
            [(3, Outcome::Succeeded), (3, Outcome::Failed), (5, Outcome::Succeeded), (5, Outcome::Snoozed)]
        {
            let call = Call::Settle { op: OpId::from_bits(7), task: id("a"), token: Token(token), outcome };
            script.client().invoke(call).unknown("no reply");
        }
        script.finish("a", 3);
        let last = script.end("a", phase);
        (last.execution_no, last.attempts) = (6, 2);
        script.legal();
    }
}

#[test]
fn operations_that_never_ended_condemn_nothing() {
    let mut script = Script::new();
    script.enqueue("a");
    script.claim("a", 1);
    script.start("a", 1);
    drop(script.client().invoke(script.settle_call("a", 1)));
    drop(script.client().invoke(Call::Cancel { task: id("a") }));
    drop(script.client().invoke(Call::LeaseLost { task: id("a"), token: None }));
    script.claim("a", 2);
    script.start("a", 2);
    script.client().invoke(Call::Cancel { task: id("a") }).fail("TASK_FINAL");
    script.finish("a", 1);
    script.done(script.settle_call("a", 2), Ack::Fresh);
    script.end("a", Phase::Succeeded).execution_no = 2;
    script.last.tasks.get_mut(&id("a")).unwrap().succeeded_by = Some(Token(2));
    script.legal();
}
