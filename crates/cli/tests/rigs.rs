//! The server and its runners, killed: real processes, real sockets, and the history checker over what their clients saw.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;
use std::time::Duration;

use ekiden_testkit::Law;
use ekiden_testkit::rig::{self, Disk, Plan, Program, RunnerKills};

fn server() -> Program {
    Program::at(env!("CARGO_BIN_EXE_ekiden"))
}

/// The seed that the environment names, or none in particular.
fn seed() -> u64 {
    std::env::var("EKIDEN_SEED").map_or(0, |seed| seed.parse().expect("seeds are numbers"))
}

#[test]
fn random_kills_of_a_server_under_load_keep_every_law() {
    let plan = Plan { seed: seed(), series: rig::rounds(1), faults_each: 24, acknowledged_max: 400, ..Plan::default() };
    let tally = rig::server_kills(&server(), Disk::Sound, &plan).unwrap();
    tally.verdict();
    assert_eq!(tally.faults, plan.series * plan.faults_each);
}

#[test]
fn kills_of_a_server_see_a_disk_that_takes_back_what_was_acknowledged() {
    let plan = Plan { series: 1, faults_each: 4, ..Plan::default() };
    let tally = rig::server_kills(&server(), Disk::TakesBack, &plan).unwrap();
    let laws: BTreeSet<Law> = tally.violations.iter().map(|violation| violation.law).collect();
    assert!(laws.contains(&Law::Lost) && laws.contains(&Law::Forgotten), "{tally}: {laws:?}");
}

/// Within its lease and one second more: nobody waits for the next poll of maintenance.
#[test]
fn tasks_of_a_killed_runner_run_again_when_their_lease_is_over() {
    let plan = RunnerKills { seed: seed(), kills: rig::rounds(4), ..RunnerKills::default() };
    let (tally, again) = rig::runner_kills(&server(), &Program::example("rigged_runner"), &plan).unwrap();
    tally.verdict();
    assert_eq!((tally.faults, again.len()), (plan.kills, plan.kills * plan.tasks));
    let latest = again.iter().max().copied().unwrap_or_default();
    assert!(latest <= plan.lease + Duration::from_secs(1), "the latest came after {latest:?}: {again:?}");
}
