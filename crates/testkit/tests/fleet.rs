//! Seeded fleets of real runners on a store that fails, in virtual time: no law may be broken. `EKIDEN_SEED` replays one seed,
//! `EKIDEN_SEEDS` sets how many each test runs.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::time::Duration;

use ekiden_store::layers::{Faults, Faulty};
use ekiden_store::{CheckDepth, MemoryStore, Store};
use ekiden_testkit::fleet::{self, Options};
use ekiden_testkit::{Shuffled, verdict};

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
