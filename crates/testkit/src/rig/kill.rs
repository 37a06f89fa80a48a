//! SIGKILL under load: a process that opens a store and works is killed at a moment that a seed chooses, also while it opens;
//! the next one goes on in the same folder.

use super::errand::Work;
use super::process::{Ended, Program};
use super::series::{Plan, Series};
use super::tally::Tally;

/// Kills, again and again, and holds the laws against what every process saw. An error is a child that could not go on.
pub fn kills(program: &Program, store: &str, plan: &Plan) -> Result<Tally, Ended> {
    let mut tally = Tally::begin(format!("kills, {} {store}", program.name()));
    for number in 0..plan.series {
        let mut series = Series::new(program, store, plan.seed_of(number)).acknowledging(plan.acknowledged_max);
        for _ in 0..plan.faults_each {
            let mut process = series.start(Work::Load { clients: plan.clients });
            series.let_work(&mut process)?;
            process.kill();
            series.caught_up();
            tally.faults += 1;
        }
        series.come_to_rest(&mut tally)?;
        if !tally.violations.is_empty() {
            break;
        }
    }
    Ok(tally.end())
}
