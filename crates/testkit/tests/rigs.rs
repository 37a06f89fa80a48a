//! The fault rigs on a store that is small enough to be obviously right: no law is broken. And on stores with planted bugs: each
//! rig must see the bug that it is meant for, otherwise it proves nothing.

use std::collections::BTreeSet;

use ekiden_testkit::Law;
use ekiden_testkit::rig::{self, Plan, Program, Stalls, Tally};

fn child() -> Program {
    Program::example("rigged_journal")
}

/// The seed that the environment names, or none in particular.
fn seed() -> u64 {
    std::env::var("EKIDEN_SEED").map_or(0, |seed| seed.parse().expect("seeds are numbers"))
}

fn laws(tally: &Tally) -> BTreeSet<Law> {
    tally.violations.iter().map(|violation| violation.law).collect()
}

#[track_caller]
fn lost(tally: &Tally) {
    let laws = laws(tally);
    assert!(laws.contains(&Law::Lost) || laws.contains(&Law::Forgotten), "{tally}: {laws:?}");
}

#[test]
fn random_kills_under_load_keep_every_law() {
    let plan = Plan { seed: seed(), series: rig::rounds(10), ..Plan::default() };
    let tally = rig::kills(&child(), "sound", &plan).unwrap();
    tally.verdict();
    assert_eq!(tally.faults, plan.series * plan.faults_each);
}

#[test]
fn kills_see_a_store_that_answers_before_it_writes() {
    lost(&rig::kills(&child(), "ack-before-write", &Plan { series: 3, ..Plan::default() }).unwrap());
}

#[test]
fn random_power_cuts_under_load_keep_every_law() {
    let plan = Plan { seed: seed(), series: rig::rounds(5), ..Plan::default() };
    let Some(outcome) = rig::provide(rig::cuts(&child(), "sound", &plan)) else { return };
    let tally = outcome.unwrap();
    tally.verdict();
    assert_eq!(tally.faults, plan.series * plan.faults_each);
}

#[test]
fn power_cuts_see_a_store_that_does_not_sync() {
    let plan = Plan { series: 3, faults_each: 5, ..Plan::default() };
    let Some(outcome) = rig::provide(rig::cuts(&child(), "no-sync", &plan)) else { return };
    lost(&outcome.unwrap());
}

#[test]
fn power_cuts_see_a_store_that_answers_before_it_syncs() {
    let plan = Plan { series: 3, faults_each: 5, ..Plan::default() };
    let Some(outcome) = rig::provide(rig::cuts(&child(), "ack-before-sync", &plan)) else { return };
    lost(&outcome.unwrap());
}

#[test]
fn a_holder_that_was_stopped_past_its_lease_cannot_settle_what_was_given_to_another() {
    let plan = Stalls { seed: seed(), stops: rig::rounds(5), ..Stalls::default() };
    let (tally, late) = rig::stalls(&child(), "sound", &plan).unwrap();
    tally.verdict();
    assert!(late.given >= plan.stops, "{late:?}");
    assert_eq!(late.refused, late.given, "what was given to another, and only that, is refused");
    assert_eq!(late.accepted, plan.stops * plan.tasks - late.given, "what nobody took may still be settled");
}

#[test]
fn runners_that_were_stopped_past_their_lease_keep_every_law() {
    let plan = Stalls { seed: seed(), stops: rig::rounds(6), ..Stalls::default() };
    let tally = rig::runner_stalls(&child(), "sound", &plan).unwrap();
    tally.verdict();
    assert_eq!(tally.faults, plan.stops);
}

#[test]
fn stops_past_the_lease_see_a_store_that_believes_any_holder() {
    let (tally, late) = rig::stalls(&child(), "no-fencing", &Stalls { stops: 2, ..Stalls::default() }).unwrap();
    assert!(laws(&tally).contains(&Law::StaleResult), "{tally}, {late:?}: {:?}", laws(&tally));
}
