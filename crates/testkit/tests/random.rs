//! Seeded loads on the memory store, plain and behind layers that fail: no law may be broken. `EKIDEN_SEED` replays one seed,
//! `EKIDEN_SEEDS` sets how many each test runs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ekiden_core::attempt::Outcome;
use ekiden_core::id::{Namespace, PoolName};
use ekiden_core::key::Key;
use ekiden_store::layers::{Faults, Faulty, Retrying};
use ekiden_store::{CheckDepth, MemoryStore, Store, StoreExt};
use ekiden_testkit::workload::{self, Options};
use ekiden_testkit::{Ack, Call, History, Reply, Shuffled, What, verdict};

const FAULTS: Faults =
    Faults { refused: 5, reply_lost: 10, request_lost: 5, read_failed: 5, delay_max: Duration::ZERO };

/// The seeds of a test, or the one that the environment names.
fn seeds(count: u64) -> Vec<u64> {
    let number = |name| Some(std::env::var(name).ok()?.parse::<u64>().expect("seeds are numbers"));
    match number("EKIDEN_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("EKIDEN_SEEDS").unwrap_or(count)).collect(),
    }
}

/// Runs every seed over a store made for it. The memory store below is also looked at from outside the layers.
fn run(count: u64, layers: impl Fn(Arc<MemoryStore>, u64) -> Arc<dyn Store>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for seed in seeds(count) {
        runtime.block_on(async {
            let memory = Arc::new(MemoryStore::new());
            let store = layers(memory.clone(), seed);
            let (history, last) = workload::run(store, Options { seed, ..Options::default() }).await;
            verdict(seed, &history, &last);
            let damage = memory.check(CheckDepth::Full).await.unwrap();
            assert!(damage.is_empty(), "seed {seed}: {damage:?}");
            let counter = Key::running(&Namespace::new("default").unwrap(), &PoolName::new("limited").unwrap());
            let running = memory.get_one(counter).await.unwrap().and_then(|found| found.record.as_counter());
            assert_eq!(running.unwrap_or(0), 0, "seed {seed}: nobody runs, so the limited pool counts nobody");
        });
    }
}

#[test]
fn random_loads_keep_every_law_on_a_plain_store() {
    run(100, |memory, seed| Arc::new(Shuffled::new(memory, seed)));
}

#[test]
fn random_loads_keep_every_law_when_failures_are_retried() {
    run(100, |memory, seed| Arc::new(Retrying::new(Faulty::new(Shuffled::new(memory, seed), FAULTS, seed), 4)));
}

#[test]
fn random_loads_keep_every_law_when_failures_reach_the_clients() {
    run(100, |memory, seed| Arc::new(Faulty::new(Shuffled::new(memory, seed), FAULTS, seed)));
}

#[test]
fn random_loads_repeat_exactly_by_their_seed() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let once = || {
        let store = Faulty::new(Shuffled::new(MemoryStore::new(), 7), FAULTS, 7);
        runtime.block_on(workload::run(Arc::new(store), Options { seed: 7, ..Options::default() }))
    };
    let ((first, first_end), (second, second_end)) = (once(), once());
    assert_eq!(first.lines(), second.lines());
    assert_eq!(first_end, second_end);
}

/// A load that does nothing keeps every law.
#[test]
fn random_loads_do_everything_that_the_laws_are_about() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..40 {
        let store = Faulty::new(Shuffled::new(MemoryStore::new(), seed), FAULTS, seed);
        let (history, last) = runtime.block_on(workload::run(Arc::new(store), Options { seed, ..Options::default() }));
        deeds(&history, &mut seen);
        seen.extend(last.tasks.values().map(|task| format!("ends {}", task.phase)));
    }
    let outcomes = [
        Outcome::Succeeded,
        Outcome::Failed,
        Outcome::TimedOut,
        Outcome::Interrupted,
        Outcome::Returned,
        Outcome::Asked,
        Outcome::Snoozed,
    ];
    let settled = outcomes.map(|outcome| format!("settle {} fresh", outcome.as_str()));
    let calls = ["enqueue", "claim", "settle", "cancel", "retry", "lease_lost", "end_attempt", "purge"];
    let doubtful = calls.map(|call| format!("{call} unknown"));
    let done = calls.map(|call| format!("{call} ok"));
    let ends = ["succeeded", "dead", "cancelled", "blocked"].map(|phase| format!("ends {phase}"));
    let special = ["late ack", "stale holder refused", "duplicate recognised", "more than eight parents"];
    let special = special.map(String::from);
    let wanted = settled.into_iter().chain(doubtful).chain(done).chain(ends).chain(special);
    let missing: Vec<String> = wanted.filter(|deed| !seen.contains(deed)).collect();
    assert!(missing.is_empty(), "no seed did {missing:?}");
}

fn deeds(history: &History, seen: &mut BTreeSet<String>) {
    let mut calls: BTreeMap<u64, &Call> = BTreeMap::new();
    let mut lost = BTreeSet::new();
    for line in history.lines() {
        if let What::Invoke(call) = &line.what {
            calls.insert(line.n, call);
        }
        let Some(call) = calls.get(&line.op) else { continue };
        let name = call.to_string().split(' ').next().unwrap_or_default().to_owned();
        match (&line.what, call) {
            (What::Ok(Reply::Done(Ack::Fresh)), Call::Settle { task, outcome, .. }) => {
                seen.insert(format!("settle {} fresh", outcome.as_str()));
                seen.extend(lost.remove(task).then(|| "late ack".to_owned()));
            }
            (What::Ok(Reply::Done(Ack::Fresh)), Call::LeaseLost { task, .. }) => {
                lost.insert(task);
            }
            (What::Ok(Reply::Claimed(grants)), _) => grants.iter().for_each(|grant| {
                lost.remove(&grant.task);
            }),
            (What::Ok(Reply::Enqueued { ack: Ack::Fresh, .. }), Call::Enqueue(facts)) if facts.parents > 8 => {
                seen.insert("more than eight parents".to_owned());
            }
            (What::Ok(Reply::Enqueued { ack: Ack::Repeated, .. }), _) => {
                seen.insert("duplicate recognised".to_owned());
            }
            (What::Fail(why), Call::Settle { .. }) if why.starts_with("LEASE_LOST") => {
                seen.insert("stale holder refused".to_owned());
            }
            _ => {}
        }
        match &line.what {
            What::Ok(_) => seen.insert(format!("{name} ok")),
            What::Unknown(_) => seen.insert(format!("{name} unknown")),
            _ => false,
        };
    }
}
