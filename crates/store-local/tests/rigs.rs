//! The local store under faults: killed, cut off from power and stopped, as real processes on real disks.

use ekiden_testkit::Law;
use ekiden_testkit::rig::{self, Ended, Plan, Program, Stalls, Tally};

fn child() -> Program {
    Program::example("rigged_local")
}

/// The seed that the environment names, or none in particular.
fn seed() -> u64 {
    std::env::var("EKIDEN_SEED").map_or(0, |seed| seed.parse().expect("seeds are numbers"))
}

/// What was acknowledged is gone, or the store saw by itself that its folder is damaged.
#[track_caller]
fn lost(outcome: Result<Tally, Ended>) {
    let is_loss = |law: Law| law == Law::Lost || law == Law::Forgotten;
    match outcome {
        Ok(tally) => assert!(tally.violations.iter().any(|violation| is_loss(violation.law)), "{tally}"),
        Err(ended) => assert!(ended.to_string().contains("STORE_"), "{ended}"),
    }
}

#[test]
fn random_kills_under_load_keep_every_law() {
    let plan = Plan { seed: seed(), series: rig::rounds(5), ..Plan::default() };
    for store in ["sound", "restless"] {
        rig::kills(&child(), store, &plan).unwrap().verdict();
    }
}

#[test]
fn random_power_cuts_under_load_keep_every_law() {
    let plan = Plan { seed: seed(), series: rig::rounds(3), ..Plan::default() };
    for store in ["sound", "restless"] {
        let Some(outcome) = rig::provide(rig::cuts(&child(), store, &plan)) else { return };
        outcome.unwrap().verdict();
    }
}

#[test]
fn power_cuts_see_a_disk_that_does_not_sync() {
    let plan = Plan { series: 3, faults_each: 5, ..Plan::default() };
    let Some(outcome) = rig::provide(rig::cuts(&child(), "no-sync", &plan)) else { return };
    lost(outcome);
}

/// The checkpoint is sound and the log ends before it: the store sees that by itself and does not open.
#[test]
fn power_cuts_that_leave_a_log_that_ends_before_its_checkpoint_are_damage() {
    let plan = Plan { series: 3, faults_each: 5, ..Plan::default() };
    let Some(outcome) = rig::provide(rig::cuts(&child(), "no-log-sync", &plan)) else { return };
    let refused = outcome.expect_err("a log that ends before its checkpoint is not opened").to_string();
    assert!(refused.contains("STORE_DAMAGED"), "{refused}");
}

/// The worst kind of loss: the log ends early, no checkpoint knows better, the store opens and knows of nothing. Only those who were
/// answered do.
#[test]
fn power_cuts_see_a_loss_that_the_store_itself_cannot_see() {
    let plan = Plan { series: 3, faults_each: 5, ..Plan::default() };
    let Some(outcome) = rig::provide(rig::cuts(&child(), "no-log-sync-unseen", &plan)) else { return };
    let tally = outcome.expect("a log that ends early is opened like any other");
    assert!(tally.violations.iter().any(|violation| violation.law == Law::Forgotten), "{tally}");
}

#[test]
fn power_cuts_see_a_disk_that_syncs_late() {
    let plan = Plan { series: 10, faults_each: 10, ..Plan::default() };
    let Some(outcome) = rig::provide(rig::cuts(&child(), "ack-before-sync", &plan)) else { return };
    lost(outcome);
}

#[test]
fn a_holder_that_was_stopped_past_its_lease_cannot_settle_what_was_given_to_another() {
    let plan = Stalls { seed: seed(), stops: rig::rounds(5), ..Stalls::default() };
    let (tally, late) = rig::stalls(&child(), "sound", &plan).unwrap();
    tally.verdict();
    assert_eq!(late.refused, late.given, "what was given to another, and only that, is refused");
    assert_eq!(late.accepted, plan.stops * plan.tasks - late.given, "what nobody took may still be settled");
}

#[test]
fn runners_that_were_stopped_past_their_lease_keep_every_law() {
    let plan = Stalls { seed: seed(), stops: rig::rounds(6), ..Stalls::default() };
    rig::runner_stalls(&child(), "sound", &plan).unwrap().verdict();
}
