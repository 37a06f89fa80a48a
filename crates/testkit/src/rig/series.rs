//! Processes that follow each other on one folder, each with a history of its own, and the verdict over all of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ekiden_core::time::Millis;
use ekiden_store::entropy::Entropy;

use super::errand::{Errand, Signal, Work};
use super::process::{Ended, Process, Program};
use super::scratch::Scratch;
use super::tally::Tally;
use crate::checker::check;
use crate::facts::{Call, FinalState};
use crate::history::{History, Line, What};
use crate::workload::NOON;

/// 15 percent of the faults come while the store is being opened: recovery must survive them too.
const WHILE_OPENING: u32 = 15;

/// 12 ms: about what a small store takes to open, process start included.
const OPENING_MAX: Duration = Duration::from_millis(12);

/// 3 ms after the last acknowledgement that was waited for: long enough for a fault to fall between two of them.
const AFTER_MAX: Duration = Duration::from_millis(3);

/// 8 s of virtual time pass at most between two processes: some leases end meanwhile, others do not.
const BETWEEN_MS: usize = 8_000;

/// How many faults, and how much load between them.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// How many folders, one after another, each checked by itself.
    pub series: usize,
    /// How many faults on each folder, in a row.
    pub faults_each: usize,
    /// How many clients work at once.
    pub clients: usize,
    /// How many operations are acknowledged between two faults, at most.
    pub acknowledged_max: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self { seed: 0, series: 1, faults_each: 20, clients: 6, acknowledged_max: ACKNOWLEDGED_MAX }
    }
}

/// 120 operations take some tens of milliseconds.
const ACKNOWLEDGED_MAX: usize = 120;

impl Plan {
    pub(super) const fn seed_of(&self, series: usize) -> u64 {
        self.seed.wrapping_mul(10_007).wrapping_add(series as u64)
    }
}

/// Processes one after another on one folder.
pub struct Series<'a> {
    program: &'a Program,
    store: String,
    folder: PathBuf,
    seed: u64,
    entropy: Entropy,
    /// Where the histories are, and the store unless it is elsewhere: on the machine's own file system, which no fault touches.
    /// Kept unless the series comes to its verdict.
    scratch: Scratch,
    histories: Vec<PathBuf>,
    at: i64,
    acknowledged_max: usize,
}

impl<'a> Series<'a> {
    /// A series that begins in an empty folder of its own.
    pub fn new(program: &'a Program, store: &str, seed: u64) -> Self {
        let mut scratch = Scratch::new().expect("a test can make a folder");
        scratch.set_kept(true);
        Self {
            program,
            store: store.to_owned(),
            folder: scratch.path().join("store"),
            seed,
            entropy: Entropy::from_seed(seed),
            scratch,
            histories: Vec::new(),
            at: NOON.as_millis(),
            acknowledged_max: ACKNOWLEDGED_MAX,
        }
    }

    /// The same on another folder.
    #[must_use]
    pub fn on(self, folder: PathBuf) -> Self {
        Self { folder, ..self }
    }

    /// The same with another load between two faults.
    #[must_use]
    pub fn acknowledging(self, acknowledged_max: usize) -> Self {
        Self { acknowledged_max, ..self }
    }

    /// Starts the next process.
    pub fn start(&mut self, work: Work) -> Process {
        let process = format!("p{:05}", self.histories.len());
        let history = self.scratch.path().join(format!("{process}.jsonl"));
        self.histories.push(history.clone());
        let errand = Errand {
            work,
            store: self.store.clone(),
            folder: self.folder.clone(),
            history,
            process,
            seed: self.entropy.next_u64(),
            at: self.at,
        };
        Process::start(self.program, &errand)
    }

    /// Lets a process work until a moment that the seed chooses: while it opens the store, or under load.
    pub fn let_work(&mut self, process: &mut Process) -> Result<(), Ended> {
        let mut part = |of: Duration| of.mul_f64(self.entropy.below(1_000) as f64 / 1_000.0);
        if part(Duration::from_secs(100)) < Duration::from_secs(u64::from(WHILE_OPENING)) {
            return process.let_pass(part(OPENING_MAX));
        }
        let after = part(AFTER_MAX);
        let wanted = u64::try_from(1 + self.entropy.below(self.acknowledged_max)).unwrap_or(1);
        let enough = |signal: &Signal| matches!(signal, Signal::Acknowledged(count) if *count >= wanted);
        process.wait_for("enough operations acknowledged", enough)?;
        process.let_pass(after)
    }

    /// The history of the latest process.
    pub fn history(&self) -> &Path {
        self.histories.last().map_or(Path::new("/dev/null"), PathBuf::as_path)
    }

    /// Of the latest process's history only so many bytes are certain. What it asked for after them may have happened; that it
    /// did, and what it did with that, is not believed.
    pub fn doubt_from(&self, certain_bytes: u64) {
        let text = std::fs::read(self.history()).unwrap_or_default();
        let certain = usize::try_from(certain_bytes).unwrap_or(usize::MAX).min(text.len());
        // A length that was read during a write can lie within a line; that line came later.
        let whole = text.iter().take(certain).rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (before, after) = text.split_at(whole);
        let believed = |line: &&[u8]| {
            let line: Option<Line> = serde_json::from_slice(line).ok();
            // That a cancelled attempt was called ended excuses nothing, and its token may be one that never was.
            let doubtful =
                |what: &What| matches!(what, What::Ok(_) | What::Note(_) | What::Invoke(Call::EndAttempt { .. }));
            line.is_some_and(|line| !doubtful(&line.what))
        };
        let after: Vec<&[u8]> = after.split_inclusive(|byte| *byte == b'\n').filter(believed).collect();
        std::fs::write(self.history(), [before, &after.concat()].concat()).expect("a history can be written anew");
    }

    /// After the end of a process: the next one's time begins behind its last line.
    pub fn caught_up(&mut self) {
        let last = self.histories.last().and_then(|path| last_line(path));
        let between = i64::try_from(self.entropy.below(BETWEEN_MS)).unwrap_or(0);
        self.at = last.map_or(self.at, |line| line.at).max(self.at) + 2 + between;
    }

    /// A last process brings everything to rest; then the laws are held against the whole history.
    pub fn come_to_rest(mut self, tally: &mut Tally) -> Result<(), Ended> {
        let mut process = self.start(Work::Rest);
        process.wait_for("everything at rest", |signal| *signal == Signal::Rested)?;
        drop(process);
        self.judge(tally);
        Ok(())
    }

    /// Holds the laws against what was written so far, of which the end is a store at rest.
    pub fn judge(mut self, tally: &mut Tally) {
        let written: Vec<&PathBuf> = self.histories.iter().filter(|path| path.exists()).collect();
        let history = History::merge(written, Millis::ZERO).expect("what was written whole can be read");
        let last = FinalState::observed(&history).quiesced();
        tally.count(&history);
        tally.tasks += last.tasks.len();
        tally.seeds.push(self.seed);
        let violations = check(&history, &last);
        self.scratch.set_kept(false);
        if !violations.is_empty() {
            tally.evidence.push(self.scratch);
        }
        tally.violations.extend(violations);
    }
}

fn last_line(path: &Path) -> Option<Line> {
    let text = std::fs::read(path).ok()?;
    let end = text.iter().rposition(|byte| *byte == b'\n')?;
    let begin = text.get(..end)?.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    serde_json::from_slice(text.get(begin..end)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Ack, Note, Reply};
    use crate::history::Recorder;
    use ekiden_core::id::TaskId;
    use ekiden_store::clock::ManualClock;
    use std::sync::Arc;

    #[test]
    fn what_was_written_after_a_cut_was_asked_for_and_no_more() {
        let program = Program::at("/bin/true");
        let mut series = Series::new(&program, "sound", 0);
        series.histories.push(series.scratch.path().join("p"));
        let clock = Arc::new(ManualClock::new(NOON));
        let client = Recorder::with_file("p", clock, series.history()).unwrap().client("c");
        let cancel = || Call::Cancel { task: TaskId::new("a").unwrap() };
        client.invoke(cancel()).ok(Reply::Done(Ack::Fresh));
        let slow = client.invoke(cancel());
        let certain_bytes = std::fs::metadata(series.history()).unwrap().len();
        slow.ok(Reply::Done(Ack::Fresh));
        client.note(Note::Looking);
        client
            .invoke(Call::EndAttempt { task: TaskId::new("a").unwrap(), token: ekiden_core::lease::Token(1) })
            .fail("no");
        client.invoke(cancel()).fail("TASK_FINAL");
        // The length was read while the next line was half written.
        series.doubt_from(certain_bytes + 7);
        let history = History::merge([series.history()], Millis::ZERO).unwrap();
        let kinds: Vec<&str> = history
            .lines()
            .iter()
            .map(|line| match line.what {
                What::Invoke(_) => "invoke",
                What::Ok(_) => "ok",
                What::Fail(_) => "fail",
                What::Unknown(_) => "unknown",
                What::Note(_) => "note",
            })
            .collect();
        assert_eq!(kinds, ["invoke", "ok", "invoke", "fail", "invoke", "fail"]);
        series.scratch.set_kept(false);
    }
}
