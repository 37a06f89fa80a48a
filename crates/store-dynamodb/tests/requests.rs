//! How many requests a life makes: each is a way to the service and back, and time of the machine that sends it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod ward;

use std::collections::BTreeMap;
use std::sync::Arc;

use ekiden_core::claim::Claim;
use ekiden_core::event::Event;
use ekiden_core::id::{Kind, PoolName};
use ekiden_core::lease::Token;
use ekiden_core::plan::{Happen, View};
use ekiden_core::record::Versioned;
use ekiden_store::StoreExt;
use ekiden_store_dynamodb::DynamoStore;
use ekiden_testkit::proxy::Faults;

use ward::{Bench, Ward, seed};

/// 16 callers at once, as in the benchmark.
const CALLERS: usize = 16;

/// 20 lives each.
const LIVES: usize = 20;

async fn bench() -> Arc<Bench> {
    let ward = Ward::open_behind(Faults::default(), seed()).await;
    let options = ward.options();
    Arc::new(Bench::on(ward, options).await)
}

/// Hands in a task that only programs of ours run.
async fn enqueue(bench: &Bench) {
    let change = |spec: &mut ekiden_core::task::Spec| {
        spec.pool = PoolName::new("work").unwrap();
        spec.envelope.task_type = Kind::new("greet").unwrap();
    };
    bench.enqueue_with("n", change).await;
}

async fn claim(bench: &Bench) -> Option<Versioned> {
    let mut claim: Claim = bench.claim_of("n");
    claim.pools[0].pool = PoolName::new("work").unwrap();
    bench.store.claim(claim).await.unwrap().tasks.pop()
}

/// Settles a task as it was claimed, like a runner does.
async fn complete(bench: &Bench, claimed: Versioned) {
    let token = Token(claimed.record.as_task().unwrap().state.execution_no);
    let plan = Happen { task: claimed.key.clone(), event: Event::Succeeded { token, result: None } };
    bench.store.run_seen(&plan, bench.op(), bench.now(), View::default().with(claimed)).await.unwrap();
}

async fn lives(bench: &Arc<Bench>) {
    let mut running = Vec::new();
    for _ in 0..CALLERS {
        let bench = bench.clone();
        running.push(tokio::spawn(async move {
            for _ in 0..LIVES {
                enqueue(&bench).await;
                let claimed = loop {
                    match claim(&bench).await {
                        Some(claimed) => break claimed,
                        None => tokio::task::yield_now().await,
                    }
                };
                complete(&bench, claimed).await;
            }
        }));
    }
    for caller in running {
        caller.await.unwrap();
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of requests is far below 2^52")]
fn a_life(asked: &BTreeMap<String, u64>) -> f64 {
    asked.values().sum::<u64>() as f64 / (CALLERS * LIVES) as f64
}

/// Q7: what a process hands in and claims itself is written three times, and next to nothing is read for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_life_within_one_process_is_three_writes_and_hardly_a_read() {
    let bench = bench().await;
    // The first of a namespace and a line enters both, once a process.
    enqueue(&bench).await;
    let claimed = claim(&bench).await.unwrap();
    complete(&bench, claimed).await;
    bench.asked();
    lives(&bench).await;
    let asked = bench.asked();
    let requests = a_life(&asked);
    assert!((3.0..3.6).contains(&requests), "{requests} requests a life: {asked:?}");
}

/// Q7: a process that claims what another one handed in reads each task once, and shares its looks at the index among its claims.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_of_one_process_share_their_looks_at_the_index() {
    let bench = bench().await;
    let elsewhere = DynamoStore::open(bench.options.clone()).await.unwrap();
    let elsewhere = Bench::beside(&bench, elsewhere);
    for _ in 0..CALLERS * LIVES {
        enqueue(&elsewhere).await;
    }
    bench.asked();
    let mut running = Vec::new();
    for _ in 0..CALLERS {
        let bench = bench.clone();
        running.push(tokio::spawn(async move {
            for _ in 0..LIVES {
                let claimed = claim(&bench).await.unwrap();
                complete(&bench, claimed).await;
            }
        }));
    }
    for caller in running {
        caller.await.unwrap();
    }
    let asked = bench.asked();
    let requests = a_life(&asked);
    assert!((3.0..3.6).contains(&requests), "{requests} requests for a claim and a settlement: {asked:?}");
}
