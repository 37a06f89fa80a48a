//! What all parts of the store share: the client, the names of tables, and what one process remembers.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_sdk_dynamodb::Client;
use ekiden_core::claim::Claim;
use ekiden_core::id::{OpId, RunnerId};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::time::Timestamp;
use ekiden_store::clock::{Clock, SystemClock};
use ekiden_store::entropy::Entropy;
use ekiden_store::{Hint, Hints, Others, StoreError};

use crate::counts::Deltas;
use crate::foreign::Foreign;
use crate::heads::Heads;
use crate::lines::Lines;
use crate::namespaces::Known;
use crate::tables::Names;
use crate::units::Units;
use crate::waiting::Waiting;

/// 4,096 claims that a repetition is recognised of: a process sends far fewer within the two minutes that an id may be repeated.
const CLAIMS_KEPT: usize = 4_096;

/// The inside of a store.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) names: Names,
    /// How many parts a new line of ready tasks has.
    pub(crate) shards: u32,
    /// What is known of other programs without looking.
    pub(crate) others: Others,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) hints: Hints,
    pub(crate) lines: Mutex<Lines>,
    pub(crate) heads: Mutex<Heads>,
    pub(crate) waiting: Mutex<Waiting>,
    pub(crate) known: Mutex<Known>,
    pub(crate) deltas: Mutex<Deltas>,
    /// Held by the one who adds differences.
    pub(crate) flushing: tokio::sync::Mutex<()>,
    pub(crate) foreign: Mutex<Foreign>,
    pub(crate) units: Mutex<Units>,
    taken: Mutex<Taken>,
    entropy: Mutex<Entropy>,
    closed: AtomicBool,
}

/// 512 tasks that are remembered of a claim: it takes 256 at most, and may lose 64 more to others.
const TASKS_KEPT: usize = 512;

/// What each claim tried to take, so that a repeated claim finds it. Its holder is a part of its name (C26).
#[derive(Default)]
struct Taken {
    by_claim: HashMap<(OpId, RunnerId), VecDeque<Key>>,
    order: VecDeque<(OpId, RunnerId)>,
}

impl Shared {
    pub(crate) fn new(client: Client, names: Names, shards: u32, others: Others) -> Self {
        Self {
            client,
            names,
            shards: shards.max(1),
            others,
            clock: Box::new(SystemClock),
            hints: Hints::new(),
            lines: Mutex::default(),
            heads: Mutex::default(),
            waiting: Mutex::default(),
            known: Mutex::default(),
            deltas: Mutex::default(),
            flushing: tokio::sync::Mutex::default(),
            foreign: Mutex::default(),
            units: Mutex::default(),
            taken: Mutex::default(),
            entropy: Mutex::new(Entropy::from_system()),
            closed: AtomicBool::new(false),
        }
    }

    /// The table that a kind of record lives in.
    pub(crate) fn table(&self, kind: RecordKind) -> &str {
        match kind {
            RecordKind::Task => &self.names.queue,
            RecordKind::Runner => &self.names.runners,
            _ => &self.names.ekiden,
        }
    }

    /// A text that no write had before: 64 random bits.
    pub(crate) fn nonce(&self) -> String {
        format!("{:016x}", lock(&self.entropy).next_u64())
    }

    /// A new name for an op of the store's own.
    pub(crate) fn op_id(&self, now: Timestamp) -> OpId {
        lock(&self.entropy).op_id(now)
    }

    /// A random number below a bound.
    pub(crate) fn below(&self, bound: usize) -> usize {
        lock(&self.entropy).below(bound)
    }

    pub(crate) fn open(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) { Err(StoreError::closed()) } else { Ok(()) }
    }

    /// Says whether it was open.
    pub(crate) fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Notes, before it is tried, that a claim may have a task.
    pub(crate) fn note_taken(&self, claim: &Claim, key: &Key) {
        let claim = (claim.id, claim.holder.clone());
        let mut taken = lock(&self.taken);
        if !taken.by_claim.contains_key(&claim) {
            taken.order.push_back(claim.clone());
            if taken.order.len() > CLAIMS_KEPT
                && let Some(oldest) = taken.order.pop_front()
            {
                taken.by_claim.remove(&oldest);
            }
        }
        let keys = taken.by_claim.entry(claim).or_default();
        if keys.len() == TASKS_KEPT {
            keys.pop_front();
        }
        keys.push_back(key.clone());
    }

    /// What a claim may have.
    pub(crate) fn taken_by(&self, claim: &Claim) -> Vec<Key> {
        let keys = lock(&self.taken).by_claim.get(&(claim.id, claim.holder.clone())).cloned();
        keys.map_or_else(Vec::new, Vec::from)
    }

    /// Nobody listening is as good as somebody who does not hear.
    pub(crate) fn hint(&self, hint: Hint) {
        self.hints.send(hint);
    }
}

/// A panic while one of these locks is held leaves nothing half done: each guards one small step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
