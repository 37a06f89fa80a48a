//! Seeded schedules: four runners, each with a store of its own behind a bad line to one server, killed and begun anew; the
//! history checker over all of it. `EKIDEN_SEED` replays one.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use ekiden_store::Store;
use ekiden_store_dynamodb::{DynamoStore, Options};
use ekiden_testkit::Law;
use ekiden_testkit::proxy::Faults;
use ekiden_testkit::rig::{self, Opener, Schedules};

use ward::{Ward, seed};

struct Tables;

#[async_trait]
impl Opener for Tables {
    async fn open(&self, endpoint: &str, tables: &str) -> Arc<dyn Store> {
        let (endpoint, table_prefix) = (endpoint.to_owned(), tables.to_owned());
        let options = Options { endpoint, table_prefix, ready_shards: 2, ..Options::default() };
        Arc::new(DynamoStore::open(options).await.unwrap())
    }
}

/// 60 in a short run, in four tests that run side by side; 500 in a long one.
fn a_quarter(first: u64) -> Schedules {
    match std::env::var_os("EKIDEN_SEED") {
        Some(_) => Schedules { seed: seed(), ..Schedules::default() },
        None if rig::is_long() => Schedules { seed: first * 125, count: 125, ..Schedules::default() },
        None => Schedules { seed: first * 15, count: 15, ..Schedules::default() },
    }
}

async fn keep_every_law(first: u64) {
    let (ward, plan) = (Ward::open().await, a_quarter(first));
    let tally = rig::schedules(&ward.server, &Tables, &plan).await;
    tally.verdict();
    assert!(tally.faults >= plan.count, "a schedule without a kill shows little: {tally}");
}

/// Q5, Q15: no write of a process that was killed, or whose answer got lost, is doubled, lost or made without its condition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_schedules_with_kills_keep_every_law() {
    keep_every_law(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_schedules_with_kills_keep_every_law_second_quarter() {
    keep_every_law(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_schedules_with_kills_keep_every_law_third_quarter() {
    keep_every_law(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_schedules_with_kills_keep_every_law_last_quarter() {
    keep_every_law(3).await;
}

/// What the schedules are for: a claim that is written without its condition hands tasks out twice, and that is seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedules_see_claims_without_their_condition() {
    let ward = Ward::open().await;
    let faults = Faults { unguarded_claims: true, ..Faults::SOME };
    let mut laws = BTreeSet::new();
    for seed in 0..20 {
        let plan = Schedules { seed, faults, ..Schedules::default() };
        let tally = rig::schedules(&ward.server, &Tables, &plan).await;
        laws.extend(tally.violations.iter().map(|violation| violation.law));
        if laws.contains(&Law::Tokens) {
            return;
        }
    }
    panic!("twenty schedules saw only {laws:?}");
}
