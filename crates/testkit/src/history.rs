//! What clients saw: every operation as invoke → ok, fail (certainly not happened) or unknown (perhaps happened), and the
//! moments when work really began and ended. Append-only, shared by threads, and a file line a piece for those who get killed.
//!
//! **What the laws need of the order.** Not a total order of everything. A law only ever asks whether one line *certainly*
//! came before another ([`History::precedes`]): inside a process by number, between processes by the wall clock, where lines
//! nearer to each other than the tolerated skew are taken as simultaneous. What overlaps proves nothing.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ekiden_core::time::Millis;
use ekiden_store::clock::Clock;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::facts::{Call, Note, Reply};

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The recorder's wall clock in milliseconds; never runs back inside a process.
    pub at: i64,
    /// The process, named anew at each start.
    pub process: Arc<str>,
    /// The line's number in its process, over all its clients.
    pub n: u64,
    /// The client inside the process.
    pub client: Arc<str>,
    /// The number of the invoke line that this one belongs to.
    pub op: u64,
    /// What it says.
    pub what: What,
}

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Somebody asks for something; written before the request leaves.
    Invoke(Call),
    /// It happened, now or in an earlier try.
    Ok(Reply),
    /// It certainly did not happen.
    Fail(String),
    /// It may or may not have happened, or happen later. An invoke without an end means the same.
    Unknown(String),
    /// Something that is true by itself, without asking anybody.
    Note(Note),
}

/// Writes a history. One for each process, shared by its clients.
pub struct Recorder {
    process: Arc<str>,
    clock: Arc<dyn Clock>,
    book: Mutex<Book>,
    acknowledged: watch::Sender<u64>,
}

#[derive(Default)]
struct Book {
    last_at: i64,
    lines: Vec<Line>,
    file: Option<File>,
}

impl Recorder {
    /// A recorder that keeps its lines in memory. The clock only matters where histories of several processes are merged.
    pub fn new(process: &str, clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::with_book(process, clock, Book::default())
    }

    /// A recorder that also appends each line to a file, by one write call: what was written survives the process.
    pub fn with_file(process: &str, clock: Arc<dyn Clock>, path: &Path) -> io::Result<Arc<Self>> {
        let file = Some(File::options().create(true).append(true).open(path)?);
        Ok(Self::with_book(process, clock, Book { file, ..Book::default() }))
    }

    fn with_book(process: &str, clock: Arc<dyn Clock>, book: Book) -> Arc<Self> {
        let acknowledged = watch::Sender::new(0);
        Arc::new(Self { process: Arc::from(process), clock, book: Mutex::new(book), acknowledged })
    }

    /// How many operations were acknowledged and written down so far, to wait for.
    pub fn acknowledged(&self) -> watch::Receiver<u64> {
        self.acknowledged.subscribe()
    }

    /// A client that writes here.
    pub fn client(self: &Arc<Self>, name: &str) -> Client {
        Client { recorder: self.clone(), name: Arc::from(name) }
    }

    /// What was written so far.
    pub fn history(&self) -> History {
        History { lines: self.book().lines.clone(), skew: Millis::ZERO }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number and file position are given under one lock, so a process's file is in the order of its numbers.
    fn write(&self, client: &Arc<str>, op: Option<u64>, what: What) -> u64 {
        let mut book = self.book();
        let n = u64::try_from(book.lines.len()).unwrap_or(u64::MAX);
        let at = self.clock.now().as_millis().max(book.last_at);
        let line = Line { at, process: self.process.clone(), n, client: client.clone(), op: op.unwrap_or(n), what };
        if let Some(file) = &mut book.file {
            let mut text = serde_json::to_vec(&line).expect("a line is plain data and can be written as JSON");
            text.push(b'\n');
            file.write_all(&text).expect("a test without its history proves nothing, so a full disk ends it");
        }
        if matches!(line.what, What::Ok(_)) {
            self.acknowledged.send_modify(|count| *count += 1);
        }
        book.last_at = at;
        book.lines.push(line);
        n
    }
}

/// Somebody who asks. Cheap to clone; a clone is the same client.
#[derive(Clone)]
pub struct Client {
    recorder: Arc<Recorder>,
    name: Arc<str>,
}

impl Client {
    /// Writes that something is asked for. Call it before the request is sent.
    pub fn invoke(&self, call: Call) -> Pending {
        let op = self.recorder.write(&self.name, None, What::Invoke(call));
        Pending { client: self.clone(), op }
    }

    /// Writes something that is true now.
    pub fn note(&self, note: Note) {
        self.recorder.write(&self.name, None, What::Note(note));
    }
}

/// A request under way. Dropped without a word it stays unknown for ever, as when its process is killed.
pub struct Pending {
    client: Client,
    op: u64,
}

impl Pending {
    /// It happened.
    pub fn ok(self, reply: Reply) {
        self.end(What::Ok(reply));
    }

    /// It certainly did not happen.
    pub fn fail(self, why: impl ToString) {
        self.end(What::Fail(why.to_string()));
    }

    /// It may have happened.
    pub fn unknown(self, why: impl ToString) {
        self.end(What::Unknown(why.to_string()));
    }

    fn end(self, what: What) {
        self.client.recorder.write(&self.client.name, Some(self.op), what);
    }
}

/// What was recorded, by one process or several.
#[derive(Clone, Debug, Default)]
pub struct History {
    lines: Vec<Line>,
    skew: Millis,
}

impl History {
    /// Puts the histories of several processes together. `skew` is how far their wall clocks may be apart: zero on one
    /// machine whose clock is not set meanwhile. The last line of a killed process may be torn and is left out then.
    pub fn merge<P: AsRef<Path>>(files: impl IntoIterator<Item = P>, skew: Millis) -> io::Result<Self> {
        let mut lines = Vec::new();
        for path in files {
            let text = std::fs::read(path)?;
            let whole = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
            for line in whole {
                lines.push(serde_json::from_slice(line).map_err(io::Error::other)?);
            }
        }
        Ok(Self::from_lines(lines, skew))
    }

    /// The same from lines.
    pub fn from_lines(mut lines: Vec<Line>, skew: Millis) -> Self {
        lines.sort_by(|a, b| (a.at, &a.process, a.n).cmp(&(b.at, &b.process, b.n)));
        Self { lines, skew }
    }

    /// Every line. Those of a process stand in their order; between processes the order is the clocks' and proves nothing.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// Whether one line certainly came before another.
    pub fn precedes(&self, first: &Line, second: &Line) -> bool {
        if first.process == second.process {
            return first.n < second.n;
        }
        let skew = i64::try_from(self.skew.as_u64()).unwrap_or(i64::MAX);
        first.at.saturating_add(skew) < second.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_core::id::TaskId;
    use ekiden_core::time::Timestamp;
    use ekiden_store::clock::ManualClock;

    fn clock(at: i64) -> Arc<ManualClock> {
        Arc::new(ManualClock::new(Timestamp::from_millis(at)))
    }

    fn cancel(task: &str) -> Call {
        Call::Cancel { task: TaskId::new(task).unwrap() }
    }

    #[test]
    fn killed_processes_leave_their_part_and_a_torn_line_is_left_out() {
        let folder = std::env::temp_dir().join(format!("ekiden-history-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [one, two] = ["one", "two"].map(|name| folder.join(name));
        let first = Recorder::with_file("p1", clock(10), &one).unwrap();
        let second = Recorder::with_file("p2", clock(5), &two).unwrap();
        let pending = first.client("a").invoke(cancel("t"));
        second.client("b").invoke(cancel("t")).fail("no such task");
        drop(pending);
        let mut torn = File::options().append(true).open(&one).unwrap();
        torn.write_all(b"{\"at\":11,\"proc").unwrap();
        let merged = History::merge([&one, &two], Millis::ZERO).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(merged.lines().len(), 3);
        let whole: Vec<Line> = second.history().lines.into_iter().chain(first.history().lines).collect();
        assert_eq!(merged.lines(), whole, "what was read back is what was recorded, the earlier clock first");
    }

    #[test]
    fn order_is_certain_inside_a_process_and_by_clock_beyond_the_skew_only() {
        let time = clock(10);
        let (first, second) = (Recorder::new("p1", time.clone()), Recorder::new("p2", time.clone()));
        first.client("a").invoke(cancel("t"));
        first.client("b").invoke(cancel("t"));
        second.client("c").invoke(cancel("t"));
        time.set(Timestamp::from_millis(13));
        second.client("c").invoke(cancel("t"));
        time.set(Timestamp::from_millis(0));
        second.client("c").invoke(cancel("t"));
        let lines = [first.history().lines, second.history().lines].concat();
        let [a, b, c, later, back] = lines.as_slice() else { panic!("five lines were written: {lines:?}") };
        let exact = History::from_lines(lines.clone(), Millis::ZERO);
        assert!(exact.precedes(a, b) && !exact.precedes(b, a));
        assert!(!exact.precedes(a, c) && !exact.precedes(c, a), "one millisecond, two processes");
        assert!(exact.precedes(a, later) && exact.precedes(c, later));
        assert!(exact.precedes(later, back) && back.at == 13, "a clock that was set back does not reverse a process");
        let loose = History::from_lines(lines.clone(), Millis::new(3));
        assert!(!loose.precedes(a, later) && loose.precedes(c, later));
    }
}
