//! What is behind the store's one lock: the index, what waits to be written to the log, and what waits for the checkpoint.
//! Everything here is quick: no file is touched under the lock but for reading a task that a claim needs and that nobody could
//! know of before.

use std::collections::VecDeque;
use std::sync::Arc;

use ekiden_core::brief::Brief;
use ekiden_core::commit::{Action, Expect};
use ekiden_core::id::{Namespace, TaskId};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::record::Record;
use ekiden_core::task::Task;
use ekiden_store::shelf::{Look, Put, Scribe, Shelf, Stamp};
use ekiden_store::{Happened, Hint, Hints, Op, Outcome, StoreError};
use hashbrown::HashMap;
use tokio::sync::oneshot;

use crate::Options;
use crate::checkpoint::{Changed, Changes, Checkpoint, Snapshot};
use crate::codec::Unreadable;
use crate::durability::{Basis, Durability, Wait, Waiter};
use crate::error;
use crate::log::Reaches;
use crate::note::Note;

/// Everything behind the lock.
pub(crate) struct Desk {
    pub(crate) shelf: Shelf,
    /// Batches that wait for the committer; changes go into the last one.
    pending: VecDeque<Batch>,
    /// The sequence number that the next new batch will have.
    next_sequence: u64,
    /// A list that was used before.
    emptied: Vec<Note>,
    durability: Durability,
    /// The checkpointer, until the log has everything up to a revision.
    checkpointer: Option<(u64, oneshot::Sender<()>)>,
    /// The last batch that the checkpoint has.
    checkpointed: u64,
    /// About how many bytes a batch has before a new one is begun.
    batch_full: usize,
    /// What changed since the last checkpoint began.
    changes: Changes,
    /// About how many bytes they hold.
    changes_bytes: usize,
    /// What the checkpoint that is being written will hold.
    writing: Option<Frozen>,
    /// Tasks that rested and were looked at, but did not change: they go again with the next checkpoint.
    visitors: Vec<(Key, u64)>,
    /// The largest generated id of each namespace that was put so far, and that any checkpoint may know. Ids only rise, so a
    /// larger one is surely new, and nobody has to look for it on disk.
    newest: HashMap<Namespace, u128>,
    known: HashMap<Namespace, u128>,
    /// A view of the latest checkpoint, kept until the next.
    snapshot: Option<Arc<Snapshot>>,
    /// Rises whenever something may have left the index.
    pub(crate) generation: u64,
    /// Records that are no tasks and that only a newer version may write, with the version that did.
    sealed_off: HashMap<Key, u8>,
    /// Whether the checkpointer sleeps until there is something to write.
    pub(crate) is_upkeep_asleep: bool,
    /// A caller waits for the checkpointer, which may be busy with something else just now.
    pub(crate) is_upkeep_wanted: bool,
    pub(crate) status: Status,
}

/// Whether the store takes requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Open,
    Closed,
    /// A write or sync failed; nobody knows what is on disk.
    Failed(String),
}

/// Changes on their way to the log, written and synced together.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) notes: Vec<Note>,
    /// About how many bytes they will be.
    bytes: usize,
    pub(crate) hints: Vec<Hint>,
    /// The latest revision among them.
    pub(crate) revision: u64,
    /// The sequence number that the log will give it.
    pub(crate) sequence: u64,
}

/// What a checkpoint will hold when it is written.
#[derive(Clone)]
pub(crate) struct Frozen {
    pub(crate) changes: Arc<Changes>,
    /// The last batch of the log that has some of it.
    pub(crate) sequence: u64,
    /// The latest revision among it.
    pub(crate) revision: u64,
    bytes: usize,
}

/// 4,096 notes: a list for more is not kept.
const NOTES_KEPT_MAX: usize = 4_096;

/// 4 MiB: a batch that has so much takes no further op, so that one sync never waits for long. Half a segment is enough too, so that
/// batches fit into segments that are there, and need no new room.
const BATCH_FULL: usize = 4 << 20;

impl Desk {
    /// `changes` are what the log has and the checkpoint has not; the next batch gets this sequence number.
    pub(crate) fn new(
        shelf: Shelf,
        changes: Changes,
        known: HashMap<Namespace, u128>,
        next_sequence: u64,
        segment_bytes: u64,
    ) -> Self {
        let durability = Durability::new(shelf.revision());
        let changes_bytes = changes.iter().map(|(_, changed)| bytes_of(changed)).sum();
        Self {
            shelf,
            pending: VecDeque::new(),
            next_sequence,
            emptied: Vec::new(),
            durability,
            checkpointer: None,
            checkpointed: 0,
            batch_full: usize::try_from(segment_bytes / 2).unwrap_or(BATCH_FULL).min(BATCH_FULL),
            changes,
            changes_bytes,
            writing: None,
            visitors: Vec::new(),
            is_upkeep_asleep: false,
            is_upkeep_wanted: false,
            newest: known.clone(),
            known,
            snapshot: None,
            generation: 0,
            sealed_off: HashMap::new(),
            status: Status::Open,
        }
    }

    pub(crate) fn with_sealed_off(self, sealed_off: HashMap<Key, u8>) -> Self {
        Self { sealed_off, ..self }
    }

    /// Refuses an op that would write what only a newer version may write. Nearly always there is nothing of that kind.
    pub(crate) fn check_writable(&self, op: &Op) -> Result<(), StoreError> {
        let Op::Commit(commit) = op else { return Ok(()) };
        if self.sealed_off.is_empty() {
            return Ok(());
        }
        let written = commit.writes().iter().filter(|write| !matches!(write.action, Action::Check));
        let found = written.filter_map(|write| Some((&write.key, *self.sealed_off.get(&write.key)?))).next();
        found.map_or(Ok(()), |(key, version)| Err(error::unreadable(key, &Unreadable::TooNew { version })))
    }

    /// Refuses everything once the store was closed or failed.
    pub(crate) fn is_open(&self) -> Result<(), StoreError> {
        match &self.status {
            Status::Open => Ok(()),
            Status::Closed => Err(StoreError::closed()),
            Status::Failed(why) => Err(error::failed(why, Happened::NotApplied)),
        }
    }

    /// Carries out an op in the index, and notes what has to be written. An op goes into one batch as a whole.
    pub(crate) fn carry_out(&mut self, mut op: Op, hints: &Hints, checkpoint: &Checkpoint) -> (Outcome, Basis) {
        if self.pending.back().is_none_or(|batch| batch.bytes >= self.batch_full) {
            self.begin_batch();
        }
        let (before, snapshot) = (self.shelf.revision(), self.snapshot.take());
        let mut journal = Journal {
            batch: self.pending.back_mut().expect("there is a batch with room"),
            changes: &mut self.changes,
            changes_bytes: &mut self.changes_bytes,
            writing: self.writing.as_ref().map(|frozen| frozen.changes.as_ref()),
            newest: &mut self.newest,
            heard: hints.are_heard(),
            snapshot,
            checkpoint,
        };
        let outcome = self.shelf.carry_out(&mut op, &mut journal);
        self.snapshot = journal.snapshot;
        let basis = Basis::of(&outcome, before, self.shelf.revision());
        (outcome, basis)
    }

    /// A view of the latest checkpoint.
    pub(crate) fn snapshot(&mut self, checkpoint: &Checkpoint) -> Result<Arc<Snapshot>, StoreError> {
        if let Some(snapshot) = &self.snapshot {
            return Ok(snapshot.clone());
        }
        let snapshot = Arc::new(checkpoint.snapshot()?);
        self.snapshot = Some(snapshot.clone());
        Ok(snapshot)
    }

    /// The view that is kept, if one is: making one reads the disk.
    pub(crate) fn kept_snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.clone()
    }

    /// Keeps a view of the latest checkpoint.
    pub(crate) fn keep_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.snapshot = Some(snapshot);
    }

    /// A new checkpoint is there.
    pub(crate) fn forget_snapshot(&mut self) {
        self.snapshot = None;
        self.generation += 1;
    }

    /// What is known of a key without a look at the checkpoint; `None` if only the checkpoint can tell.
    pub(crate) fn look(&self, key: &Key) -> Option<Look> {
        match self.shelf.look(key) {
            Look::Nothing if key.kind == RecordKind::Task && self.gone(key).is_none() => None,
            look => Some(look),
        }
    }

    /// The number of a deletion that the checkpoint does not have yet.
    pub(crate) fn gone(&self, key: &Key) -> Option<u64> {
        let found = self.changes.get(key).or_else(|| self.writing.as_ref()?.changes.get(key));
        if let Some(Changed::Gone { revision }) = found { Some(*revision) } else { None }
    }

    /// The keys of tasks that a commit names and that only the checkpoint may know.
    pub(crate) fn missing(&self, ops: &[Op]) -> Vec<Key> {
        let commits = ops.iter().filter_map(|op| if let Op::Commit(commit) = op { Some(commit) } else { None });
        let keys = commits.flat_map(|commit| commit.writes()).map(|write| &write.key);
        let is_missing = |key: &&Key| {
            key.kind == RecordKind::Task
                && !self.is_new(key)
                && self.shelf.stamp(key).is_none()
                && self.gone(key).is_none()
        };
        keys.filter(is_missing).cloned().collect()
    }

    /// The tasks that claims among these ops will most likely take and whose bodies are in the checkpoint only.
    pub(crate) fn away(&self, ops: &[Op]) -> Vec<Key> {
        let claims = ops.iter().filter_map(|op| if let Op::Claim(claim) = op { Some(claim) } else { None });
        claims.flat_map(|claim| self.shelf.away_for(claim)).collect()
    }

    fn is_new(&self, key: &Key) -> bool {
        let known = self.known.get(&key.namespace).copied();
        TaskId::bits_of(&key.name).is_some_and(|bits| known.is_none_or(|known| bits > known))
    }

    /// Takes in tasks that rested.
    pub(crate) fn wake(&mut self, found: Vec<(Key, Arc<Task>, Stamp)>) {
        for (key, task, stamp) in found {
            self.shelf.wake(&key, task, stamp);
            self.visitors.push((key, stamp.revision));
        }
    }

    /// Waits until a revision is durable; `None` if it is.
    pub(crate) fn wait_for(&mut self, revision: u64) -> Wait {
        self.durability.wait_for(revision)
    }

    /// Lets the checkpointer wait until the log has everything up to this revision; `None` if it has. The answer does not come if the
    /// store fails, and comes early if the log has no room.
    pub(crate) fn wait_for_log(&mut self, revision: u64) -> Option<oneshot::Receiver<()>> {
        if self.is_durable(revision) {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.checkpointer = Some((revision, sender));
        Some(receiver)
    }

    /// The log has no room, and what waits for the log can be in the checkpoint before.
    pub(crate) fn let_checkpoint_go_ahead(&mut self) {
        if let Some((_, sender)) = self.checkpointer.take() {
            // It may have ended.
            let _ = sender.send(());
        }
    }

    pub(crate) const fn is_durable(&self, revision: u64) -> bool {
        self.durability.has(revision)
    }

    /// Whether the checkpoint has this batch.
    pub(crate) const fn is_in_checkpoint(&self, sequence: u64) -> bool {
        sequence <= self.checkpointed
    }

    /// Everything up to this revision is durable. Gives the callers that need not wait any more.
    pub(crate) fn settle(&mut self, revision: u64) -> Vec<Waiter> {
        if self.checkpointer.as_ref().is_some_and(|(upto, _)| *upto <= revision) {
            self.let_checkpoint_go_ahead();
        }
        self.durability.settle(revision)
    }

    /// Tells all who wait that it is unknown when what they wait for will be durable.
    pub(crate) fn let_go(&mut self, why: StoreError) {
        self.durability.stall(why);
    }

    /// A write failed. What was not durable up to this revision may be on disk; what comes later is not, and nothing more is taken.
    pub(crate) fn fail(&mut self, why: &str, unknown_upto: u64) {
        if !self.has_failed() {
            self.status = Status::Failed(why.to_owned());
        }
        self.checkpointer = None;
        self.durability.halt(unknown_upto, &error::failed(why, Happened::Unknown));
        self.pending.clear();
    }

    /// Takes nothing more because something failed beside the log; what is pending is still written. A store that was closed
    /// before has all in its log.
    pub(crate) fn stop(&mut self, why: &str) {
        if self.is_running() {
            self.status = Status::Failed(why.to_owned());
        }
    }

    /// Takes requests no more; what is pending is still written.
    pub(crate) fn close(&mut self) -> Result<(), StoreError> {
        self.is_open()?;
        self.status = Status::Closed;
        Ok(())
    }

    /// Whether the threads have something to wait for.
    pub(crate) fn is_running(&self) -> bool {
        self.status == Status::Open
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.status, Status::Failed(_))
    }

    /// Whether nothing waits for the committer.
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.iter().all(|batch| batch.notes.is_empty())
    }

    /// How many callers wait.
    pub(crate) fn waiting(&self) -> usize {
        self.durability.waiting()
    }

    /// The next batch to write.
    pub(crate) fn take_batch(&mut self) -> Option<Batch> {
        if self.is_idle() { None } else { self.pending.pop_front() }
    }

    /// Takes an empty list back.
    pub(crate) fn reuse(&mut self, emptied: Vec<Note>) {
        if emptied.capacity() > self.emptied.capacity() && emptied.capacity() <= NOTES_KEPT_MAX {
            self.emptied = emptied;
        }
    }

    /// Whether new tasks have to wait for the checkpoint.
    pub(crate) fn is_behind(&self, options: &Options) -> bool {
        let writing = self.writing.as_ref().map_or(0, |frozen| frozen.bytes);
        self.changes_bytes + writing > options.unwritten_bytes_max
    }

    /// Whether a checkpoint should not wait for its time.
    pub(crate) fn is_checkpoint_wanted(&self, options: &Options) -> bool {
        self.writing.is_none() && self.changes_bytes > options.unwritten_bytes_max / 2
    }

    /// Whether a checkpoint would write anything or let visitors go.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        self.writing.is_some() || !self.changes.is_empty() || !self.visitors.is_empty()
    }

    fn begin_batch(&mut self) {
        let notes = std::mem::take(&mut self.emptied);
        self.pending.push_back(Batch { notes, sequence: self.next_sequence, ..Batch::default() });
        self.next_sequence += 1;
    }

    /// What the next checkpoint has to write: what an earlier one could not, or what changed since. Later changes go into
    /// later batches, so that a batch is in the checkpoint as a whole or not at all.
    pub(crate) fn freeze(&mut self) -> Option<Frozen> {
        if self.writing.is_none() && !self.changes.is_empty() {
            if self.pending.back().is_none_or(|batch| !batch.notes.is_empty()) {
                self.begin_batch();
            }
            self.known.clone_from(&self.newest);
            let changes = Arc::new(std::mem::take(&mut self.changes));
            let (sequence, revision) = (self.next_sequence - 2, self.shelf.revision());
            let bytes = std::mem::take(&mut self.changes_bytes);
            self.writing = Some(Frozen { changes, sequence, revision, bytes });
        }
        self.writing.clone()
    }

    /// How far the log goes, before what is frozen is written. `None` if the store has failed: what was answered then must stay true.
    pub(crate) fn begin_write(&mut self, frozen: &Frozen) -> Option<Reaches> {
        if self.has_failed() {
            return None;
        }
        self.durability.may_have(frozen.revision);
        Some(if self.is_durable(frozen.revision) { Reaches::Checkpoint } else { Reaches::ASegment })
    }

    /// The checkpoint has what was frozen, which is durable with it. Gives the callers that need not wait any more.
    pub(crate) fn thaw(&mut self) -> Vec<Waiter> {
        self.forget_snapshot();
        let Some(frozen) = self.writing.take() else { return Vec::new() };
        self.checkpointed = frozen.sequence;
        self.settle(frozen.revision)
    }

    pub(crate) fn take_visitors(&mut self) -> Vec<(Key, u64)> {
        std::mem::take(&mut self.visitors)
    }
}

/// 256 bytes: a key and what is kept beside it.
const DELETION_BYTES: usize = 256;

/// About how many bytes a change takes in memory and will take in the checkpoint.
fn bytes_of(changed: &Changed) -> usize {
    match changed {
        Changed::Put { record, .. } => bytes_of_record(record),
        Changed::Gone { .. } => DELETION_BYTES,
    }
}

fn bytes_of_record(record: &Record) -> usize {
    match record {
        Record::Task(task) => 1_024 + task.content_bytes(),
        _ => 256,
    }
}

/// Writes down what the index does.
struct Journal<'a> {
    batch: &'a mut Batch,
    changes: &'a mut Changes,
    changes_bytes: &'a mut usize,
    writing: Option<&'a Changes>,
    newest: &'a mut HashMap<Namespace, u128>,
    heard: bool,
    snapshot: Option<Arc<Snapshot>>,
    checkpoint: &'a Checkpoint,
}

impl Journal<'_> {
    fn hint(&mut self, hint: impl FnOnce() -> Hint) {
        if self.heard {
            self.batch.hints.push(hint());
        }
    }

    fn rise(&mut self, key: &Key) {
        let Some(bits) = TaskId::bits_of(&key.name).filter(|_| key.kind == RecordKind::Task) else { return };
        let newest = self.newest.entry_ref(&key.namespace).or_default();
        *newest = bits.max(*newest);
    }

    /// Notes what became of a record, which may depend on what was noted before.
    fn note(&mut self, key: &Key, changed: impl FnOnce(Option<&Changed>) -> Changed) {
        let place = self.changes.place(key);
        let before = self.changes.at(place);
        *self.changes_bytes -= before.map_or(0, bytes_of);
        let changed = changed(before);
        *self.changes_bytes += bytes_of(&changed);
        self.changes.put(place, || key.clone(), changed);
    }
}

impl Scribe for Journal<'_> {
    fn put(&mut self, put: Put<'_>) {
        self.batch.revision = put.stamp.revision;
        self.batch.bytes += bytes_of_record(put.record);
        self.batch.notes.push(Note::of(&put));
        // The checkpoint needs a spec that it has not seen, even if it came with an earlier change.
        let unseen = |changed: Option<&Changed>| matches!(changed, Some(Changed::Put { spec: true, .. }));
        let writing = self.writing;
        self.note(put.key, |before| {
            let spec = !put.same_spec || unseen(before) || unseen(writing.and_then(|changes| changes.get(put.key)));
            Changed::Put { record: put.record.clone(), stamp: put.stamp, spec }
        });
        // A task that was there before has risen already.
        if !put.same_spec {
            self.rise(put.key);
        }
        if put.ready {
            self.hint(|| Hint::Ready(put.key.namespace.clone()));
        }
        self.hint(|| Hint::Changed(put.key.clone()));
    }

    fn deleted(&mut self, key: &Key, revision: u64) {
        self.batch.bytes += DELETION_BYTES;
        self.batch.notes.push(Note::Deleted { key: key.clone(), revision });
        self.batch.revision = revision;
        self.note(key, |_| Changed::Gone { revision });
        self.hint(|| Hint::Changed(key.clone()));
    }

    fn replaced(&mut self, old: Arc<Task>) {
        // Mostly the log and the checkpoint still need it, and this is only one who lets go.
        drop(old);
    }

    fn brief(&mut self, _: &Arc<Task>) -> Option<Box<Brief>> {
        // What ended leaves memory with the next checkpoint.
        None
    }

    fn fetch(&mut self, key: &Key) -> Option<Arc<Task>> {
        let fetched = match &self.snapshot {
            Some(snapshot) => snapshot.task(key),
            None => self.checkpoint.snapshot().and_then(|snapshot| {
                let task = snapshot.task(key);
                self.snapshot = Some(Arc::new(snapshot));
                task
            }),
        };
        fetched
            .inspect_err(|error| tracing::error!(%key, %error, "a task cannot be read and was passed over"))
            .ok()
            .flatten()
            .map(|(task, _)| task)
    }
}

/// Whether an op brings a new task: what has to wait or is refused when room is short.
pub(crate) fn is_growth(op: &Op) -> bool {
    let Op::Commit(commit) = op else { return false };
    commit
        .writes()
        .iter()
        .any(|write| write.expect == Expect::Absent && matches!(&write.action, Action::Put(Record::Task(_), _)))
}

/// Whether an op names a record.
pub(crate) fn names(op: &Op, key: &Key) -> bool {
    matches!(op, Op::Commit(commit) if commit.writes().iter().any(|write| write.key == *key))
}

/// Gives hints to whoever listens.
pub(crate) fn send(hints: &Hints, heard: Vec<Hint>) {
    heard.into_iter().for_each(|hint| hints.send(hint));
}
