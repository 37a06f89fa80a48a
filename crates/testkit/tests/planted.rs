//! Planted bugs: a memory store that breaks one thing must be caught, by the law that is meant for it, within a few seeds.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod broken;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use broken::{Broken, Bug};
use ekiden_store::layers::{Faults, Faulty, Retrying};
use ekiden_testkit::workload::{self, Options};
use ekiden_testkit::{Law, Shuffled, check};

/// 40 seeds: a bug that hides longer is not caught in any run that people wait for.
const SEEDS_MAX: u64 = 40;

fn caught(bug: Bug, meant: Law) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let faults = Faults { reply_lost: 10, delay_max: Duration::ZERO, ..Faults::default() };
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS_MAX {
        let store = Shuffled::new(Broken::new(bug, seed), seed);
        let store = Retrying::new(Faulty::new(store, faults, seed), 4);
        let (history, last) = runtime.block_on(workload::run(Arc::new(store), Options { seed, ..Options::default() }));
        seen.extend(check(&history, &last).into_iter().map(|violation| violation.law));
        if seen.contains(&meant) {
            return;
        }
    }
    panic!("{bug:?} was not caught as {meant:?} within {SEEDS_MAX} seeds, only as {seen:?}");
}

#[test]
fn a_task_handed_out_twice_is_caught() {
    caught(Bug::HandsOutTwice, Law::Tokens);
}

#[test]
fn ignored_expectations_are_caught() {
    caught(Bug::IgnoresExpectations, Law::CancelledSucceeded);
    caught(Bug::IgnoresExpectations, Law::LaneOverlap);
}

#[test]
fn a_lost_commit_is_caught() {
    caught(Bug::LosesCommits, Law::Lost);
    caught(Bug::LosesCommits, Law::CompletedTwice);
}

#[test]
fn a_forgotten_lane_is_caught() {
    caught(Bug::ForgetsLanes, Law::LaneOverlap);
    caught(Bug::ForgetsLanes, Law::LaneOrder);
}

#[test]
fn a_repeated_commit_that_is_applied_twice_is_caught() {
    caught(Bug::RepeatsCommits, Law::Tokens);
    caught(Bug::RepeatsCommits, Law::Lost);
}

#[test]
fn an_attempt_too_many_is_caught() {
    caught(Bug::ForgetsAttempts, Law::AttemptsExceeded);
}

#[test]
fn a_release_that_never_comes_is_caught() {
    caught(Bug::LosesSweeps, Law::Stuck);
}

#[test]
fn keys_that_are_not_kept_are_caught() {
    caught(Bug::LosesKeys, Law::Duplicate);
}

#[test]
fn a_stale_holder_that_is_believed_is_caught() {
    caught(Bug::BelievesAnyToken, Law::StaleResult);
}
