//! SIGSTOP past the lease: a process that holds tasks stands still, its leases end by the clock, and it goes on as if nothing had
//! happened. What was given to another meanwhile cannot be settled any more; what nobody took still can.

use std::time::Duration;

use super::errand::{Signal, Work};
use super::process::{Ended, Program};
use super::series::Series;
use super::tally::Tally;

/// How often, how much and how long.
#[derive(Clone, Copy, Debug)]
pub struct Stalls {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// How often the process is stopped.
    pub stops: usize,
    /// How many tasks it holds each time.
    pub tasks: usize,
    /// How long their leases last. The process stands still for half as long again.
    pub lease: Duration,
}

impl Default for Stalls {
    fn default() -> Self {
        Self { seed: 0, stops: 5, tasks: 12, lease: Duration::from_millis(400) }
    }
}

/// Stops a holder again and again, and holds the laws against what it saw. Says also how many of its late settlements were refused
/// and how many accepted. An error is a child that could not go on.
pub fn stalls(program: &Program, store: &str, plan: &Stalls) -> Result<(Tally, Late), Ended> {
    let mut tally = Tally::begin(format!("stops past the lease, {} {store}", program.name()));
    let mut series = Series::new(program, store, plan.seed);
    let lease_ms = u64::try_from(plan.lease.as_millis()).unwrap_or(u64::MAX);
    let mut process = series.start(Work::Hold { rounds: plan.stops, tasks: plan.tasks, lease_ms });
    let mut late = Late::default();
    for _ in 0..plan.stops {
        process.wait_for("tasks held", |signal| matches!(signal, Signal::Holding(_)))?;
        process.stop_for(plan.lease * 3 / 2);
        tally.faults += 1;
        let settled = process.wait_for("late settlements", |signal| matches!(signal, Signal::Settled { .. }))?;
        if let Signal::Settled { given, refused, accepted } = settled {
            late.given += given;
            late.refused += refused;
            late.accepted += accepted;
        }
    }
    process.wait_for("everything at rest", |signal| *signal == Signal::Rested)?;
    drop(process);
    series.judge(&mut tally);
    Ok((tally.end(), late))
}

/// The same with real runners in the child, stopped under load at no particular moment. Their heartbeats and their maintenance begin
/// again at once, on one thread, and the beat is due first: leases are mostly kept, and what the handlers settle is accepted.
pub fn runner_stalls(program: &Program, store: &str, plan: &Stalls) -> Result<Tally, Ended> {
    let mut tally = Tally::begin(format!("stops of runners past the lease, {} {store}", program.name()));
    let mut series = Series::new(program, store, plan.seed);
    let lease_ms = u64::try_from(plan.lease.as_millis()).unwrap_or(u64::MAX);
    let mut process = series.start(Work::Run { lease_ms });
    let mut wanted = 0;
    for _ in 0..plan.stops {
        wanted += BETWEEN_STOPS;
        let enough = |signal: &Signal| matches!(signal, Signal::Acknowledged(count) if *count >= wanted);
        let told = process.wait_for("enough operations acknowledged", enough)?;
        if let Signal::Acknowledged(count) = told {
            wanted = count;
        }
        process.stop_for(plan.lease * 3 / 2);
        tally.faults += 1;
    }
    process.say_enough();
    process.wait_for("everything at rest", |signal| *signal == Signal::Rested)?;
    drop(process);
    series.judge(&mut tally);
    Ok(tally.end())
}

/// 60 operations: some twenty tasks from one stop to the next.
const BETWEEN_STOPS: u64 = 60;

/// What became of late settlements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Late {
    /// How many tasks had been given to another runner.
    pub given: usize,
    /// How many late settlements were refused.
    pub refused: usize,
    /// How many late settlements were accepted.
    pub accepted: usize,
}
