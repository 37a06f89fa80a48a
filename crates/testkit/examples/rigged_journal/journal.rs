//! A memory store behind a journal file: every op is written and synced before it is carried out, and carried out again when
//! the store is opened. Slow and obviously right; the bugs that the rigs must catch are planted in how much care it takes.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use async_trait::async_trait;
use ekiden_core::claim::Claim;
use ekiden_core::commit::Commit;
use ekiden_core::id::Namespace;
use ekiden_core::key::Key;
use ekiden_core::record::Versioned;
use ekiden_store::{
    CheckDepth, CountScope, Counts, DueEntry, DueQuery, Finding, Hint, Info, MemoryStore, Op, Outcome, Page,
    RecordQuery, Store, StoreError, TaskQuery,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, broadcast};

/// How much care the journal takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    /// As much as it needs.
    Full,
    /// Never syncs.
    NoSync,
    /// Answers first and syncs once in a while.
    AckBeforeSync,
    /// Answers first and writes once in a while.
    AckBeforeWrite,
    /// After a write that failed half way the half stays.
    #[allow(dead_code, reason = "planted by the test of full disks only")]
    HalfLinesStay,
}

/// 16: how many ops a careless journal gathers.
const GATHERED: usize = 16;

/// A line of the journal.
#[derive(Serialize, Deserialize)]
enum Entry {
    Commit(Commit),
    Claim(Claim),
}

/// A durable store.
pub(crate) struct Journal {
    memory: MemoryStore,
    care: Care,
    file: Mutex<Writer>,
}

struct Writer {
    file: File,
    /// How far the file is known to be good.
    length: u64,
    waiting: Vec<u8>,
    ops: usize,
    /// Whether a write or a sync failed in a way that leaves the file in doubt.
    poisoned: bool,
}

impl Journal {
    pub(crate) async fn open(folder: &Path, care: Care) -> Result<Self, Box<dyn Error + Send + Sync>> {
        fs::create_dir_all(folder)?;
        let path = folder.join("journal");
        let file = File::options().create(true).append(true).open(&path)?;
        let text = fs::read(&path)?;
        // A line without its end was never acknowledged.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let length = u64::try_from(whole)?;
        file.set_len(length)?;
        file.sync_all()?;
        File::open(folder)?.sync_all()?;
        // The folder itself is news to the one above it.
        if let Some(above) = folder.parent() {
            File::open(above)?.sync_all()?;
        }
        let memory = MemoryStore::new();
        for (number, line) in text.get(..whole).unwrap_or_default().split_inclusive(|byte| *byte == b'\n').enumerate() {
            let entry = serde_json::from_slice(line).map_err(|error| format!("journal line {number}: {error}"))?;
            let op = match entry {
                Entry::Commit(commit) => Op::Commit(commit),
                Entry::Claim(claim) => Op::Claim(claim),
            };
            memory.apply(vec![op]).await;
        }
        let file = Mutex::new(Writer { file, length, waiting: Vec::new(), ops: 0, poisoned: false });
        Ok(Self { memory, care, file })
    }
}

impl Writer {
    /// Makes ops durable, as far as care is taken. What fails here has not happened, or nobody knows.
    fn keep(&mut self, ops: &[Op], care: Care) -> Result<(), StoreError> {
        if self.poisoned {
            return Err(StoreError::unavailable("the journal failed before"));
        }
        for op in ops {
            let entry = match op {
                Op::Commit(commit) => Entry::Commit(commit.clone()),
                Op::Claim(claim) => Entry::Claim(claim.clone()),
            };
            serde_json::to_writer(&mut self.waiting, &entry).expect("an op is plain data and can be written as JSON");
            self.waiting.push(b'\n');
        }
        self.ops += 1;
        let gathered = self.ops.is_multiple_of(GATHERED);
        if care == Care::AckBeforeWrite && !gathered {
            return Ok(());
        }
        self.write(care)?;
        match care {
            Care::NoSync => Ok(()),
            Care::AckBeforeSync if !gathered => Ok(()),
            _ => self.sync(),
        }
    }

    fn write(&mut self, care: Care) -> Result<(), StoreError> {
        let bytes = std::mem::take(&mut self.waiting);
        match self.file.write_all(&bytes) {
            Ok(()) => {
                self.length += bytes.len() as u64;
                Ok(())
            }
            Err(error) => {
                if care != Care::HalfLinesStay {
                    self.poisoned = self.file.set_len(self.length).is_err();
                }
                Err(refused(error))
            }
        }
    }

    /// A failed sync is final: what is on disk is known again only after the file was opened anew.
    fn sync(&mut self) -> Result<(), StoreError> {
        self.file.sync_data().map_err(|error| {
            self.poisoned = true;
            StoreError::unknown("the journal was not synced").because(error)
        })
    }
}

fn refused(error: io::Error) -> StoreError {
    let why = if error.kind() == ErrorKind::StorageFull { "the disk is full" } else { "the journal was not written" };
    StoreError::unavailable(why).because(error)
}

#[async_trait]
impl Store for Journal {
    fn info(&self) -> Info {
        Info { name: "journal", durable: "in a journal file, synced", ..self.memory.info() }
    }

    async fn apply(&self, ops: Vec<Op>) -> Vec<Outcome> {
        // Held over the memory store's own work, so that the journal has the order in which things happened; and nothing can
        // be seen before it is durable.
        let mut file = self.file.lock().await;
        match file.keep(&ops, self.care) {
            Ok(()) => self.memory.apply(ops).await,
            Err(error) => ops.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn get(&self, keys: Vec<Key>) -> Result<Vec<Option<Versioned>>, StoreError> {
        self.memory.get(keys).await
    }

    async fn due(&self, query: DueQuery) -> Result<Vec<DueEntry>, StoreError> {
        self.memory.due(query).await
    }

    async fn tasks(&self, query: TaskQuery) -> Result<Page<Versioned>, StoreError> {
        self.memory.tasks(query).await
    }

    async fn records(&self, query: RecordQuery) -> Result<Page<Versioned>, StoreError> {
        self.memory.records(query).await
    }

    async fn counts(&self, scope: CountScope) -> Result<Counts, StoreError> {
        self.memory.counts(scope).await
    }

    async fn namespaces(&self, after: Option<Namespace>, limit: usize) -> Result<Page<Namespace>, StoreError> {
        self.memory.namespaces(after, limit).await
    }

    fn watch(&self) -> broadcast::Receiver<Hint> {
        self.memory.watch()
    }

    async fn check(&self, depth: CheckDepth) -> Result<Vec<Finding>, StoreError> {
        self.memory.check(depth).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.memory.close().await
    }
}
