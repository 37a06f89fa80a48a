//! The suite can fail: queues that break one promise each, and the cases that catch them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]

mod breaking;

use std::sync::Arc;

use breaking::{Broken, Promise};
use ekiden::StoreQueue;
use ekiden::core::Timestamp;
use ekiden::store::{ManualClock, MemoryStore};
use ekiden_store::entropy::Entropy;
use ekiden_testkit::behaviour::{Bench, case, cases, try_case};

/// Every broken promise, and the case that is meant for it.
const CAUGHT: &[(Promise, &str, &str)] = &[
    (Promise::WaitsForItsMoment, "retries", "a_retry_is_never_given_before_its_moment"),
    (Promise::KeepsResults, "settlement", "a_result_is_kept_byte_for_byte"),
    (Promise::RefusesStaleTokens, "settlement", "a_stale_token_settles_nothing"),
    (Promise::CountsRight, "states", "every_state_is_counted"),
    (Promise::TakesWholeBatches, "enqueue", "a_batch_is_answered_in_order"),
    (Promise::ListsEverything, "listing", "pages_of_any_size_give_every_task_once_and_in_order"),
    (Promise::GivesOnce, "dequeue", "a_task_is_given_once"),
    (Promise::KeepsOrder, "dequeue", "within_a_priority_first_in_is_first_out"),
    (Promise::HoldsPauses, "pools", "a_pause_holds_at_once_and_until_it_is_lifted"),
    (Promise::TellsRunners, "cancel", "the_runner_of_a_cancelled_attempt_is_told"),
    (Promise::KeepsNamespacesApart, "namespaces", "tasks_are_given_counted_and_listed_in_their_namespace_alone"),
    (Promise::RefusesTheDead, "leases", "a_dead_incarnations_beat_is_refused"),
    (Promise::TellsChanges, "changes", "other_namespaces_are_not_heard"),
    (Promise::ReopensNothing, "by_hand", "pressing_retry_twice_runs_once"),
];

fn bench(breaks: Option<Promise>) -> Bench {
    let clock = Arc::new(ManualClock::new(Timestamp::parse("2026-11-17T08:00:00.500Z").unwrap()));
    let store = Arc::new(MemoryStore::new());
    let queue = StoreQueue::with(store, clock.clone(), Entropy::from_seed(1), Vec::new());
    Bench { queue: Arc::new(Broken::new(queue, clock.clone(), breaks)), clock, keep: Box::new(()) }
}

/// R11
#[tokio::test]
async fn every_broken_promise_is_caught_by_the_case_meant_for_it() {
    for (promise, group, name) in CAUGHT {
        let verdict = try_case(bench(Some(*promise)), &case(group, name)).await;
        assert!(verdict.is_err(), "{promise:?} is broken, and {group}::{name} does not mind");
    }
}

/// R11
#[tokio::test]
async fn the_same_wrapper_that_breaks_nothing_passes() {
    for (_, group, name) in CAUGHT {
        let verdict = try_case(bench(None), &case(group, name)).await;
        assert_eq!(verdict, Ok(()), "{group}::{name}");
    }
}

/// R11
#[test]
fn the_list_has_every_case_once() {
    let mut names: Vec<_> = cases().iter().map(|case| (case.group, case.name)).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert!(names.len() == count && count > 150, "{count} cases");
}
