//! Everything that a store keeps as lines of JSON: a first line that says what follows, one line a record, and a last line
//! with totals, so that a file that was cut is not taken for a whole one. `docs/formats.md` shows them.

use std::io::{BufRead, Read, Write};
use std::sync::Arc;

use ekiden_core::key::Key;
use ekiden_core::limits;
use ekiden_core::newer::{self, Versions};
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::record::Record;
use serde::{Deserialize, Serialize};

use super::intake::{Intake, invalid};
use super::pages::{Namespaces, Pages, tasks_of};
use super::{Existing, Moved, Progress, Stop, TransferError, Watcher};
use crate::store::Store;

const FORMAT: &str = "ekiden-export";

/// The version that this program writes, and the highest that it reads.
const VERSION: u32 = 1;

/// The version of the fields that this program knows: it rises whenever a record gets a field, so that an older program knows
/// that it has to look out for more than it knows.
const RECORDS: u32 = 1;

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    /// The lowest version that may read it.
    min_reader: u32,
    /// The kind of store that it came from.
    store: String,
    /// How many tasks there are, for whoever wants to know how far it is.
    tasks: u64,
    /// The version whose fields the records may have.
    #[serde(default)]
    records: u32,
}

/// A record's line, to be written.
#[derive(Serialize)]
struct Entry<'a> {
    key: &'a Key,
    record: &'a Record,
}

/// Any line behind the first: a record, or the end.
#[derive(Deserialize)]
struct Line {
    key: Option<Key>,
    record: Option<Record>,
    end: Option<Totals>,
}

/// The last line.
#[derive(Serialize)]
struct End {
    end: Totals,
}

#[derive(Serialize, Deserialize)]
struct Totals {
    namespaces: u64,
    records: u64,
}

/// Writes everything that a store keeps.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// use ekiden_store::MemoryStore;
/// use ekiden_store::transfer::{Existing, export, import};
///
/// let mut file = Vec::new();
/// export(&MemoryStore::new(), &mut file, &mut |_| {}).await?;
/// assert_eq!(String::from_utf8(file.clone())?.lines().count(), 2, "a first and a last line, and nothing between");
/// import(&mut file.as_slice(), &MemoryStore::new(), Existing::Refuse, &mut |_| {}).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn export(
    from: &dyn Store,
    into: &mut (dyn Write + Send),
    progress: &mut Watcher<'_>,
) -> Result<Moved, TransferError> {
    let mut moved = Moved::default();
    match write_all(from, into, &mut moved, progress).await {
        Ok(()) => Ok(moved),
        Err(stop) => Err(stop.after(moved)),
    }
}

async fn write_all(
    from: &dyn Store,
    into: &mut (dyn Write + Send),
    moved: &mut Moved,
    progress: &mut Watcher<'_>,
) -> Result<(), Stop> {
    let (mut namespaces, mut tasks) = (Namespaces::of(from), 0);
    while let Some(namespace) = namespaces.next().await? {
        tasks += tasks_of(from, namespace).await?;
    }
    let store = from.info().name.to_owned();
    let format = FORMAT.to_owned();
    put(into, &Head { format, version: VERSION, min_reader: VERSION, store, tasks, records: RECORDS })?;
    let (mut pages, mut namespace) = (Pages::of(from), None);
    while let Some(page) = pages.next().await? {
        for found in &page {
            put(into, &Entry { key: &found.key, record: &found.record })?;
            moved.records += 1;
            moved.tasks += u64::from(found.record.as_task().is_some());
            if namespace.as_ref() != Some(&found.key.namespace) {
                moved.namespaces += 1;
                namespace = Some(found.key.namespace.clone());
            }
        }
        progress(Progress { moved: *moved, tasks_total: Some(tasks) });
    }
    put(into, &End { end: Totals { namespaces: moved.namespaces, records: moved.records } })?;
    into.flush().map_err(file_error)
}

/// A line that nobody could read back is not written either.
fn put(into: &mut (dyn Write + Send), line: &impl Serialize) -> Result<(), Stop> {
    let mut bytes = serde_json::to_vec(line).map_err(|error| Stop::from(invalid(error)))?;
    if bytes.len() >= limits::TRANSFER_LINE_BYTES_MAX {
        return Err(invalid("a record is longer than a line may be").with("bytes", bytes.len()).into());
    }
    bytes.push(b'\n');
    into.write_all(&bytes).map_err(file_error)
}

/// Takes in what [`export`] wrote. The first line that is wrong ends it and is named: nothing is taken in from then on. What
/// was taken in before stays, and the error says how much that was.
pub async fn import(
    from: &mut (dyn BufRead + Send),
    to: &dyn Store,
    existing: Existing,
    progress: &mut Watcher<'_>,
) -> Result<Moved, TransferError> {
    let mut intake = Intake::new(to, existing);
    let mut lines = Lines { from, number: 0, bytes: Vec::new() };
    match read_all(&mut lines, &mut intake, progress).await {
        Ok(()) => Ok(intake.moved),
        Err(stop) => Err(stop.at_line(lines.number).after(intake.moved)),
    }
}

async fn read_all(lines: &mut Lines<'_>, intake: &mut Intake<'_>, progress: &mut Watcher<'_>) -> Result<(), Stop> {
    let head = head(lines)?;
    let tasks_total = Some(head.tasks);
    let (mut read, mut told) = (0, 0);
    loop {
        let text = lines.next()?.ok_or_else(|| cut("the last line is missing"))?;
        let bytes = text.len();
        let line = parse(text, head.records).map_err(Stop::from)?;
        match line {
            Line { key: Some(key), record: Some(record), end: None } => intake.take(key, record, bytes).await?,
            Line { key: None, record: None, end: Some(end) } => {
                if (end.records, end.namespaces) != (read, intake.moved.namespaces) {
                    return Err(cut("lines are missing or too many")
                        .with("records", read)
                        .with("records_expected", end.records)
                        .into());
                }
                intake.flush().await?;
                break;
            }
            _ => return Err(invalid("neither a record nor the end").into()),
        }
        read += 1;
        if intake.moved.seen() != told {
            told = intake.moved.seen();
            progress(Progress { moved: intake.moved, tasks_total });
        }
    }
    progress(Progress { moved: intake.moved, tasks_total });
    match lines.next()? {
        None => Ok(()),
        Some(_) => Err(invalid("something follows the last line").into()),
    }
}

/// Reads a line. What a newer version said stays with its record, wherever it was before: among the fields, or carried along
/// by a program that did not understand it.
fn parse(text: &str, records: u32) -> Result<Line, Refusal> {
    if records <= RECORDS && !text.contains(CARRIED) {
        return serde_json::from_str(text).map_err(invalid);
    }
    let value = serde_json::from_str(text).map_err(invalid)?;
    newer::read(value, Versions::UNTOLD, true).map_err(invalid)
}

/// Stands in a line of which something is carried along.
const CARRIED: &str = "\"~\":";

fn head(lines: &mut Lines<'_>) -> Result<Head, Stop> {
    let text = lines.next()?.ok_or_else(|| cut("it is empty"))?;
    let head: Head =
        serde_json::from_str(text).map_err(|error| Stop::from(invalid(format!("this is no export: {error}"))))?;
    if head.format != FORMAT {
        return Err(invalid("this is no export").into());
    }
    if head.min_reader > VERSION {
        let refusal = Refusal::new(ReasonCode::ImportTooNew);
        return Err(refusal.with("version", head.version).with("version_known", VERSION).into());
    }
    Ok(head)
}

/// Lines of a file, each within its limit.
struct Lines<'a> {
    from: &'a mut (dyn BufRead + Send),
    /// The number of the line that was read last, or could not be.
    number: u64,
    bytes: Vec<u8>,
}

impl Lines<'_> {
    /// The next line without its end; `None` behind the last.
    fn next(&mut self) -> Result<Option<&str>, Stop> {
        self.bytes.clear();
        self.number += 1;
        let most = u64::try_from(limits::TRANSFER_LINE_BYTES_MAX).unwrap_or(u64::MAX);
        Read::take(&mut *self.from, most).read_until(b'\n', &mut self.bytes).map_err(file_error)?;
        match self.bytes.pop() {
            None => return Ok(None),
            Some(b'\n') => {}
            Some(_) if self.bytes.len() + 1 < limits::TRANSFER_LINE_BYTES_MAX => {
                return Err(cut("it ends in the middle of a line").into());
            }
            Some(_) => {
                return Err(invalid("the line is too long").with("max", limits::TRANSFER_LINE_BYTES_MAX).into());
            }
        }
        let text = std::str::from_utf8(&self.bytes).map_err(|error| Stop::from(invalid(error)))?;
        Ok(Some(text))
    }
}

fn cut(why: &str) -> Refusal {
    Refusal::new(ReasonCode::ImportCut).with("why", why)
}

fn file_error(error: std::io::Error) -> Stop {
    let refusal = Refusal::new(ReasonCode::FileUnavailable).with("why", &error);
    Stop { refusal, source: Some(Arc::new(error)) }
}
