//! Writes records into the target: each by a commit of its own that expects nothing there, many commits a call.

use ekiden_core::commit::{Action, Commit, Expect, Write};
use ekiden_core::id::{Namespace, TaskId};
use ekiden_core::key::{Key, RecordKind, SEPARATOR};
use ekiden_core::limits;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::record::Record;
use ekiden_core::time::Timestamp;

use super::pages::{Namespaces, has_anything, tasks_of};
use super::{Existing, Moved, Stop};
use crate::clock::{Clock, SystemClock};
use crate::entropy::Entropy;
use crate::error::StoreError;
use crate::op::{Answer, Conflict, Op, Outcome};
use crate::store::Store;

/// 3: a reply that got lost is asked for again; a store that is away for longer ends the move.
const TRIES: usize = 3;

/// What goes into the target.
pub(crate) struct Intake<'a> {
    to: &'a dyn Store,
    existing: Existing,
    /// The target's namespaces, as far as they were compared.
    known: Namespaces<'a>,
    /// The namespace that comes in now.
    namespace: Option<Namespace>,
    waiting: Vec<Commit>,
    waiting_bytes: usize,
    entropy: Entropy,
    now: Timestamp,
    pub(crate) moved: Moved,
}

impl<'a> Intake<'a> {
    pub(crate) fn new(to: &'a dyn Store, existing: Existing) -> Self {
        Self {
            to,
            existing,
            known: Namespaces::of(to),
            namespace: None,
            waiting: Vec::new(),
            waiting_bytes: 0,
            entropy: Entropy::from_system(),
            now: SystemClock.now(),
            moved: Moved::default(),
        }
    }

    /// Looks at all namespaces that will come, and refuses before anything is written. Says how many tasks they have.
    pub(crate) async fn expect_all(&self, from: &dyn Store) -> Result<u64, Stop> {
        let (mut coming, mut known) = (Namespaces::of(from), Namespaces::of(self.to));
        let mut tasks = 0;
        while let Some(namespace) = coming.next().await? {
            self.refuse_if_taken(&mut known, &namespace).await?;
            tasks += tasks_of(from, namespace).await?;
        }
        Ok(tasks)
    }

    /// Takes a record in; it is written with others. `bytes` is about what it takes, where that is known.
    pub(crate) async fn take(&mut self, key: Key, record: Record, bytes: usize) -> Result<(), Stop> {
        check(&key, &record)?;
        self.enter(&key.namespace).await?;
        let id = self.entropy.op_id(self.now);
        self.waiting.push(Commit::new(id, vec![Write::put(key, Expect::Absent, record)])?);
        self.waiting_bytes += bytes;
        if self.waiting.len() >= limits::TRANSFER_PAGE_ITEMS || self.waiting_bytes >= limits::TRANSFER_BATCH_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Namespaces come in order, so that each is looked for once.
    async fn enter(&mut self, namespace: &Namespace) -> Result<(), Stop> {
        if self.namespace.as_ref() == Some(namespace) {
            return Ok(());
        }
        if self.namespace.as_ref() > Some(namespace) {
            return Err(invalid(format!("namespace {namespace} comes after a later one")).into());
        }
        self.flush().await?;
        let mut known = std::mem::replace(&mut self.known, Namespaces::of(self.to));
        self.refuse_if_taken(&mut known, namespace).await?;
        self.known = known;
        self.namespace = Some(namespace.clone());
        self.moved.namespaces += 1;
        Ok(())
    }

    async fn refuse_if_taken(&self, known: &mut Namespaces<'_>, namespace: &Namespace) -> Result<(), Stop> {
        if self.existing == Existing::Refuse && known.has(namespace).await? && has_anything(self.to, namespace).await? {
            return Err(Refusal::new(ReasonCode::ImportExists).with("namespace", namespace).into());
        }
        Ok(())
    }

    /// Writes what waits. What could be written is counted, also when something else could not.
    pub(crate) async fn flush(&mut self) -> Result<(), Stop> {
        let mut waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let mut tries = 0;
        while !waiting.is_empty() {
            tries += 1;
            let outcomes = self.to.apply(waiting.iter().cloned().map(Op::Commit).collect()).await;
            let (mut again, mut stop) = (Vec::new(), None);
            for (commit, outcome) in waiting.into_iter().zip(outcomes) {
                match self.count(&commit, outcome) {
                    Ok(()) => {}
                    Err(error) if error.retryable && tries < TRIES => again.push(commit),
                    Err(error) => drop(stop.get_or_insert(error)),
                }
            }
            if let Some(error) = stop {
                return Err(error.into());
            }
            waiting = again;
        }
        Ok(())
    }

    fn count(&mut self, commit: &Commit, outcome: Outcome) -> Result<(), StoreError> {
        match outcome? {
            Answer::Applied(_) => {
                self.moved.records += 1;
                self.moved.tasks += u64::from(commit.writes().iter().any(|write| write.key.kind == RecordKind::Task));
                Ok(())
            }
            Answer::Conflict(_) if self.existing == Existing::Refuse => {
                let namespace = self.namespace.as_ref().map_or("", Namespace::as_str);
                Err(Refusal::new(ReasonCode::ImportExists).with("namespace", namespace).into())
            }
            Answer::Conflict(conflict) => {
                self.moved.skipped += 1;
                self.moved.different += u64::from(!is_same(commit, &conflict));
                Ok(())
            }
            Answer::Claimed(_) => Err(StoreError::unavailable("a commit was answered like a claim")),
        }
    }
}

fn is_same(commit: &Commit, conflict: &Conflict) -> bool {
    commit.writes().iter().all(|write| {
        let found = conflict.found.iter().find(|(key, _)| *key == write.key).and_then(|(_, found)| found.as_ref());
        matches!(&write.action, Action::Put(record, _) if found.is_some_and(|found| found.record == *record))
    })
}

/// A name that no id could make would be found by nobody, and what is too large would be refused where it was made.
/// Whether the record belongs under its key is for the commit to say.
fn check(key: &Key, record: &Record) -> Result<(), Refusal> {
    let parts = match key.kind {
        RecordKind::LaneMember | RecordKind::Edge | RecordKind::Signal | RecordKind::Counter => 2,
        _ => 1,
    };
    let are_ids = key.name.split(SEPARATOR).all(|part| TaskId::new(part).is_ok());
    if !are_ids || key.name.split(SEPARATOR).count() != parts {
        return Err(invalid("the name of the record is none").with("kind", format!("{:?}", key.kind)));
    }
    let payload = match record {
        Record::Task(task) => task.spec.envelope.payload.len(),
        Record::Schedule(schedule) => schedule.template.envelope.payload.len(),
        _ => 0,
    };
    if payload > limits::PAYLOAD_BYTES_MAX {
        return Err(invalid("the payload is too large").with("bytes", payload).with("max", limits::PAYLOAD_BYTES_MAX));
    }
    Ok(())
}

/// Something that came in is not as it must be.
pub(crate) fn invalid(why: impl ToString) -> Refusal {
    Refusal::new(ReasonCode::ImportInvalid).with("why", why)
}
