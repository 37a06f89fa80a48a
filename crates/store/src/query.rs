//! Questions to a store. Every one has a limit, and pages go on from a cursor.

use std::collections::BTreeMap;

use ekiden_core::filter::TaskFilter;
use ekiden_core::id::{Namespace, PoolName};
use ekiden_core::index::DueIndex;
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::limits;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_core::task::Phase;
use ekiden_core::time::Timestamp;

/// What is due in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueQuery {
    /// The namespace.
    pub namespace: Namespace,
    /// The list.
    pub index: DueIndex,
    /// Due at or before this.
    pub until: Timestamp,
    /// How many at most.
    pub limit: usize,
}

/// An entry of a due list. It is a hint to a record, which alone decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueEntry {
    /// The record.
    pub key: Key,
    /// Since when.
    pub at: Timestamp,
}

/// Which end of a listing comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ListOrder {
    /// Youngest first.
    #[default]
    NewestFirst,
    /// Oldest first.
    OldestFirst,
}

/// A page of tasks, by creation time and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskQuery {
    /// Which tasks.
    pub filter: TaskFilter,
    /// In which order.
    pub order: ListOrder,
    /// From where on; the cursor of the page before.
    pub cursor: Option<String>,
    /// How many at most.
    pub limit: usize,
}

impl TaskQuery {
    /// The first page of a listing, oldest first.
    pub fn oldest(filter: TaskFilter, limit: usize) -> Self {
        Self { filter, order: ListOrder::OldestFirst, cursor: None, limit }
    }
}

/// A page of records of one kind, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordQuery {
    /// The namespace.
    pub namespace: Namespace,
    /// The kind; tasks are listed by [`TaskQuery`].
    pub kind: RecordKind,
    /// What names must begin with.
    pub prefix: String,
    /// From where on; the cursor of the page before.
    pub cursor: Option<String>,
    /// How many at most.
    pub limit: usize,
}

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items. May be empty although more follow, when a filter let few through.
    pub items: Vec<T>,
    /// Where the next page begins; `None` at the end.
    pub cursor: Option<String>,
}

/// What to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountScope {
    /// The namespace.
    pub namespace: Namespace,
    /// One pool, or all.
    pub pool: Option<PoolName>,
}

/// How many tasks there are in each phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// All nine phases.
    pub by_phase: BTreeMap<Phase, u64>,
    /// Whether the numbers are exact, or deltas of some seconds may be missing.
    pub exact: bool,
}

impl Counts {
    /// Nine zeros.
    pub fn zero() -> Self {
        Self { by_phase: Phase::ALL.iter().map(|phase| (*phase, 0)).collect(), exact: true }
    }

    /// The count of one phase.
    pub fn get(&self, phase: Phase) -> u64 {
        self.by_phase.get(&phase).copied().unwrap_or(0)
    }
}

impl DueQuery {
    /// Refuses a limit of zero or beyond a page.
    pub fn check(&self) -> Result<(), Refusal> {
        check_limit(self.limit, limits::DUE_ITEMS_MAX)
    }
}

impl TaskQuery {
    /// Refuses a limit of zero or beyond a page.
    pub fn check(&self) -> Result<(), Refusal> {
        check_limit(self.limit, limits::PAGE_ITEMS_MAX)
    }
}

impl RecordQuery {
    /// Refuses a limit of zero or beyond a page, and tasks.
    pub fn check(&self) -> Result<(), Refusal> {
        if self.kind == RecordKind::Task {
            return Err(
                Refusal::new(ReasonCode::QueryInvalid).with("why", "tasks are listed by tasks(), not by records()")
            );
        }
        check_limit(self.limit, limits::PAGE_ITEMS_MAX)
    }
}

/// Refuses a batch of ops or keys that is larger than one call may be.
pub fn check_batch(field: &str, len: usize, max: usize) -> Result<(), Refusal> {
    if len > max {
        return Err(Refusal::new(ReasonCode::QueryInvalid).with("field", field).with("value", len).with("max", max));
    }
    Ok(())
}

/// Refuses a page of namespaces with a limit of zero or beyond a page.
pub fn check_namespaces(limit: usize) -> Result<(), Refusal> {
    check_limit(limit, limits::PAGE_ITEMS_MAX)
}

fn check_limit(limit: usize, max: usize) -> Result<(), Refusal> {
    if limit == 0 || limit > max {
        return Err(Refusal::new(ReasonCode::QueryInvalid)
            .with("field", "limit")
            .with("value", limit)
            .with("max", max));
    }
    Ok(())
}

/// The refusal of a cursor that no page of this listing gave out.
pub(crate) fn wrong_cursor(cursor: &str) -> Refusal {
    Refusal::new(ReasonCode::QueryInvalid)
        .with("field", "cursor")
        .with("value", cursor.chars().take(64).collect::<String>())
}
