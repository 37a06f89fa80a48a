//! Bodies that a hand-written reader and serde both read mean the same to both, and what the store keeps of them is the same.
#![cfg(feature = "wire")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod bodies;

use std::fmt::Debug;
use std::sync::Arc;

use bodies::Bodies;
use ekiden::core::{Namespace, OpId, RunnerId, TaskId, Timestamp};
use ekiden::store::{Entropy, ManualClock, MemoryStore};
use ekiden::{Ask, Ekiden, NewTask, Settlement, TaskRef, Verdict};
use ekiden_wire::{EnqueueBatch, Glance, LeasedTask, Settle, Text};
use serde::de::DeserializeOwned;

/// 10,000 bodies: one in some hundreds has the rare mixture that a difference needs.
const BODIES: u64 = 10_000;

/// 500 tasks that are stored from both readings, claimed and settled: what the store keeps depends on less than what is read.
const STORED: usize = 500;

fn seed() -> u64 {
    std::env::var("EKIDEN_SEED").map_or(0, |seed| seed.parse().expect("seeds are numbers"))
}

fn namespace() -> Namespace {
    Namespace::new("n").unwrap()
}

fn op() -> OpId {
    OpId::generate(Timestamp::ZERO, &[7; 10])
}

/// What the server makes of a body.
fn read<T: Glance + DeserializeOwned>(text: &str) -> Option<T> {
    T::glance(text).or_else(|| serde_json::from_str(text).ok())
}

/// Reads a body on both ways. Says whether the hand-written reader took it, and whether it is valid.
fn agrees<T: Glance + DeserializeOwned, P: Debug>(text: &str, port: impl Fn(T) -> P) -> (bool, bool) {
    let slow: Result<T, _> = serde_json::from_str(text);
    let is_valid = slow.is_ok();
    let Some(fast) = T::glance(text) else { return (false, is_valid) };
    let slow = slow.unwrap_or_else(|error| panic!("serde refuses what was read: {error}: {text}"));
    assert_eq!(format!("{:?}", port(fast)), format!("{:?}", port(slow)), "{text}");
    (true, is_valid)
}

fn new_task(task: ekiden_wire::NewTask) -> Result<NewTask, ekiden::core::Refusal> {
    NewTask::from_wire(task, namespace(), || TaskId::new("drawn").unwrap())
}

/// What settlements and a claim mean to the port.
fn settle(settle: Settle) -> (Vec<String>, String) {
    let settlements = settle.settlements.into_iter();
    let settled = settlements.map(|one| format!("{:?}", Settlement::from_wire(one, namespace(), op))).collect();
    let wait = settle.claim.as_ref().map(|claim| claim.wait_ms);
    (settled, format!("{wait:?} {:?}", settle.claim.map(|claim| Ask::from_wire(claim, namespace(), op))))
}

fn enqueue(batch: EnqueueBatch) -> Vec<String> {
    batch.tasks.into_iter().map(|task| format!("{:?}", new_task(task))).collect()
}

/// What a body means depends neither on who reads it nor on what stands beside it.
#[test]
fn random_bodies_mean_the_same_to_both_readers_and_beside_any_sibling() {
    let (mut fast, mut valid) = (0, 0);
    for number in 0..BODIES {
        let mut bodies = Bodies::new(Entropy::from_seed(seed() ^ number << 20));
        let (was_fast, is_valid) = match number % 4 {
            0 => agrees::<ekiden_wire::NewTask, _>(&bodies.task(), new_task),
            1 => {
                let tasks = bodies.some(Bodies::task);
                let body = bodies.batch(&tasks);
                if let (Some(batch), true) = (read::<EnqueueBatch>(&body), bodies.is_plain())
                    && batch.tasks.len() == tasks.len()
                {
                    let alone = tasks.iter().map(|task| format!("{:?}", new_task(read(task).unwrap())));
                    assert_eq!(enqueue(batch), alone.collect::<Vec<_>>(), "seed {}: {body}", seed());
                }
                agrees::<EnqueueBatch, _>(&body, enqueue)
            }
            _ => {
                let settlements = bodies.some(Bodies::settlement);
                let body = bodies.settle(&settlements);
                if let (Some(all), true) = (read::<Settle>(&body), bodies.is_plain())
                    && all.settlements.len() == settlements.len()
                {
                    let alone = |one: &String| settle(read(&format!(r#"{{"settlements":[{one}]}}"#)).unwrap()).0;
                    let alone: Vec<String> = settlements.iter().flat_map(alone).collect();
                    assert_eq!(settle(all).0, alone, "seed {}: {body}", seed());
                }
                agrees::<Settle, _>(&body, settle)
            }
        };
        fast += u64::from(was_fast);
        valid += u64::from(is_valid);
    }
    // Both readers must have had their share, and refusals as well.
    assert!(fast * 10 > BODIES && valid * 2 > BODIES && valid < BODIES && fast < valid, "{fast} fast, {valid} valid");
}

/// A task that was read on either way, its lease and its result are the same bytes in the store and in answers.
#[tokio::test]
async fn random_tasks_are_stored_leased_and_settled_alike_from_both_readers() {
    let stores = [0, 1].map(|_| {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_767_225_600_000)));
        Ekiden::builder(Arc::new(MemoryStore::new())).clock(clock).seed(1).build()
    });
    let mut stored = 0;
    for number in 0.. {
        if stored == STORED {
            break;
        }
        let mut bodies = Bodies::new(Entropy::from_seed(seed() ^ number << 20));
        let (task, result) = (bodies.plain_task(), bodies.success());
        let (Some(fast), Ok(slow)) = (ekiden_wire::NewTask::glance(&task), serde_json::from_str(&task)) else {
            continue;
        };
        let (Some(fast_end), Ok(slow_end)) = (Settle::glance(&result), serde_json::from_str::<Settle>(&result)) else {
            continue;
        };
        let mut kept = Vec::new();
        for (ekiden, task, end) in [(&stores[0], fast, fast_end), (&stores[1], slow, slow_end)] {
            kept.push(store(ekiden, number, task, end).await);
        }
        assert_eq!(kept[0], kept[1], "seed {}: {task} and {result}", seed());
        stored += usize::from(kept[0].is_some());
    }
}

/// Hands a task in, claims and settles it, and tells what is kept of it; nothing if it was refused.
async fn store(ekiden: &Ekiden, number: u64, task: ekiden_wire::NewTask, end: Settle) -> Option<String> {
    let (queue, id) = (ekiden.queue(), TaskId::new(format!("t-{number}")).unwrap());
    let mut task = NewTask::from_wire(task, namespace(), || id.clone()).ok()?;
    task.task.id = id.clone();
    let (pool, kind) = (task.pool.clone(), task.envelope.task_type.clone());
    queue.enqueue_one(Box::new(task)).await.ok()?;
    let ask = Ask {
        id: Entropy::from_seed(number).op_id(Timestamp::ZERO),
        namespace: namespace(),
        pools: vec![pool].into(),
        kinds: vec![kind].into(),
        limit: 1,
        holder: RunnerId::new("r").unwrap(),
    };
    let leased = queue.dequeue_ready(ask).await.unwrap().pop()?;
    assert_eq!(leased.lease.task.id, id);
    let mut text = Text::with_room(0);
    text.leased(leased.lease.token.0, leased.attempts, leased.answer.as_ref(), &leased.spec);
    let written = String::from_utf8(text.into_bytes()).unwrap();
    assert_eq!(written, serde_json::to_string(&LeasedTask::from(leased.clone())).unwrap());
    let verdict = end.settlements.into_iter().next()?.verdict;
    let Verdict::Succeeded(result) = Verdict::from_wire(verdict).ok()? else { return None };
    queue.mark_succeeded(leased.lease, result).await.ok()?;
    let record = queue.get_status(TaskRef { namespace: namespace(), id }).await.unwrap();
    Some(format!("{record:?} {written}"))
}
