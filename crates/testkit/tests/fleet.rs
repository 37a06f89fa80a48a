//! Seeded fleets of real runners on a store that fails, in virtual time: no law may be broken. `EKIDEN_SEED` replays one seed,
//! `EKIDEN_SEEDS` sets how many each test runs.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ekiden_store::layers::{Faults, Faulty};
use ekiden_store::{CheckDepth, MemoryStore, Store};
use ekiden_testkit::fleet::{self, Options};
use ekiden_testkit::{Call, Shuffled, What, verdict};

const FAULTS: Faults =
    Faults { refused: 4, reply_lost: 4, request_lost: 3, read_failed: 4, delay_max: Duration::from_millis(40) };

fn seeds(count: u64) -> Vec<u64> {
    let number = |name| Some(std::env::var(name).ok()?.parse::<u64>().expect("seeds are numbers"));
    match number("EKIDEN_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("EKIDEN_SEEDS").unwrap_or(count)).collect(),
    }
}

fn run(count: u64, layers: impl Fn(Arc<MemoryStore>, u64) -> Arc<dyn Store>) {
    for seed in seeds(count) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let memory = Arc::new(MemoryStore::new());
            let store = layers(memory.clone(), seed);
            let (history, last) = fleet::run(store, memory.clone(), Options { seed, ..Options::default() }).await;
            verdict(seed, &history, &last);
            let damage = memory.check(CheckDepth::Full).await.unwrap();
            assert!(damage.is_empty(), "seed {seed}: {damage:?}");
        });
    }
}

/// R1, R16, R19
#[test]
fn random_fleets_keep_every_law_on_a_plain_store() {
    run(100, |memory, seed| Arc::new(Shuffled::new(memory, seed)));
}

/// R1, R16, R19
#[test]
fn random_fleets_keep_every_law_on_a_store_that_fails() {
    run(100, |memory, seed| Arc::new(Faulty::new(Shuffled::new(memory, seed), FAULTS, seed)));
}

fn one(seed: u64) -> (ekiden_testkit::History, ekiden_testkit::FinalState) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let memory = Arc::new(MemoryStore::new());
        let store = Arc::new(Faulty::new(Shuffled::new(memory.clone(), seed), FAULTS, seed));
        fleet::run(store, memory, Options { seed, ..Options::default() }).await
    })
}

#[test]
fn random_fleets_repeat_exactly_by_their_seed() {
    let ((first, first_end), (second, second_end)) = (one(7), one(7));
    assert_eq!(first.lines(), second.lines());
    assert_eq!(first_end, second_end);
}

/// A fleet that does nothing keeps every law.
#[test]
fn random_fleets_do_everything_that_the_laws_are_about() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for seed in 0..300 {
        let (history, last) = one(seed);
        let mut calls = BTreeMap::new();
        for line in history.lines() {
            let deed = match &line.what {
                What::Invoke(call) => {
                    calls.insert(line.n, call);
                    continue;
                }
                What::Note(_) => continue,
                What::Ok(_) => "ok",
                What::Fail(_) => "fail",
                What::Unknown(_) => "unknown",
            };
            let name = match calls[&line.op] {
                Call::Settle { outcome, .. } => format!("settle {}", outcome.as_str()),
                call => call.to_string().split(' ').next().unwrap_or_default().to_owned(),
            };
            *seen.entry(format!("{name} {deed}")).or_default() += 1;
        }
        for task in last.tasks.values() {
            *seen.entry(format!("ends {}", task.phase)).or_default() += 1;
        }
    }
    let settled = ["succeeded", "failed", "timed_out", "interrupted", "returned", "asked", "snoozed"];
    let settled = settled.map(|outcome| format!("settle {outcome} ok"));
    let calls = ["enqueue", "claim", "cancel", "lease_lost", "end_attempt"];
    let done = calls.map(|call| format!("{call} ok"));
    let doubtful = ["enqueue", "claim", "settle succeeded", "cancel"].map(|call| format!("{call} unknown"));
    let ends = ["succeeded", "dead", "cancelled", "blocked"].map(|phase| format!("ends {phase}"));
    let wanted = settled.into_iter().chain(done).chain(doubtful).chain(ends);
    let missing: Vec<String> = wanted.filter(|deed| !seen.contains_key(deed)).collect();
    assert!(missing.is_empty(), "no seed did {missing:?}, but {seen:#?}");
}
