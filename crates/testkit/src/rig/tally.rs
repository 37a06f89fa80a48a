//! What a rig came to: how many faults, how much was acknowledged between them, what was broken. And how long rigs run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Write;
use std::time::Duration;

use ekiden_store::clock::{Clock, SystemClock};

use super::scratch::Scratch;
use crate::checker::Violation;
use crate::facts::Call;
use crate::history::{History, What};

/// Set by `cargo xtask test --long`.
const LONG: &str = "EKIDEN_LONG";

/// The file to which the results of long runs are appended, a line each.
const RESULTS: &str = "EKIDEN_RESULTS";

/// 20: a short run takes some seconds and a long one some minutes.
const LONG_FACTOR: usize = 20;

/// Whether rigs run long.
pub fn is_long() -> bool {
    std::env::var_os(LONG).is_some_and(|value| value != "0")
}

/// So many rounds in a short run, and many more in a long one.
pub fn rounds(short: usize) -> usize {
    if is_long() { short * LONG_FACTOR } else { short }
}

/// The result of a rig.
#[derive(Debug)]
pub struct Tally {
    what: String,
    begun: Duration,
    /// How long it took.
    pub took: Duration,
    /// How often a process was killed, stopped or cut off.
    pub faults: usize,
    /// How many processes ended with operations under way.
    pub busy: usize,
    /// How many operations were acknowledged.
    pub acknowledged: usize,
    /// How many of these took a lease away.
    pub leases_lost: usize,
    /// How many tasks were there at the end.
    pub tasks: usize,
    /// The seed of each series.
    pub seeds: Vec<u64>,
    /// Every broken law.
    pub violations: Vec<Violation>,
    /// The histories of series in which a law was broken.
    pub(super) evidence: Vec<Scratch>,
}

impl Tally {
    pub(super) fn begin(what: String) -> Self {
        Self {
            what,
            begun: SystemClock.monotonic(),
            took: Duration::ZERO,
            faults: 0,
            busy: 0,
            acknowledged: 0,
            leases_lost: 0,
            tasks: 0,
            seeds: Vec::new(),
            violations: Vec::new(),
            evidence: Vec::new(),
        }
    }

    /// Adds what happened in a history.
    pub(super) fn count(&mut self, history: &History) {
        let mut open = BTreeMap::new();
        for line in history.lines() {
            match &line.what {
                What::Invoke(call) => {
                    open.insert((&line.process, line.op), call);
                }
                What::Ok(_) => {
                    let call = open.remove(&(&line.process, line.op));
                    self.acknowledged += 1;
                    self.leases_lost += usize::from(matches!(call, Some(Call::LeaseLost { .. })));
                }
                What::Fail(_) | What::Unknown(_) => {
                    open.remove(&(&line.process, line.op));
                }
                What::Note(_) => {}
            }
        }
        let busy: BTreeSet<_> = open.into_keys().map(|(process, _)| process).collect();
        self.busy += busy.len();
    }

    /// Adds to what the result is called.
    pub(super) fn remark(&mut self, text: &str) {
        self.what.push_str(text);
    }

    pub(super) fn end(mut self) -> Self {
        self.took = SystemClock.monotonic().saturating_sub(self.begun);
        self
    }

    /// Panics with every violation and its evidence if there is any; otherwise leaves a line where results are kept.
    #[track_caller]
    pub fn verdict(&self) {
        let text: String = self.violations.iter().map(ToString::to_string).collect();
        let histories: Vec<_> = self.evidence.iter().map(Scratch::path).collect();
        assert!(
            self.violations.is_empty(),
            "{self}, last seed {:?}, histories in {histories:?} until the next run\n{text}",
            self.seeds.last()
        );
        self.keep().expect("the file of results can be written");
    }

    fn keep(&self) -> std::io::Result<()> {
        keep_result(&self.to_string())
    }
}

/// Tells a result, and leaves it as a line where the results of long runs are kept if this is one.
pub fn keep_result(line: &str) -> std::io::Result<()> {
    writeln!(std::io::stderr(), "{line}")?;
    let Some(path) = std::env::var_os(RESULTS).filter(|_| is_long()) else { return Ok(()) };
    let mut file = std::fs::File::options().create(true).append(true).open(path)?;
    file.write_all(format!("{line}\n").as_bytes())
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, faults, busy, acknowledged, leases_lost, tasks, .. } = self;
        let (series, broken, took) = (self.seeds.len(), self.violations.len(), self.took.as_secs_f64());
        write!(
            f,
            "{what}: {faults} in {series} series, {busy} with operations under way, {acknowledged} operations acknowledged, \
             {leases_lost} leases lost, {tasks} tasks at the end, {broken} violations, {took:.1} s"
        )
    }
}
