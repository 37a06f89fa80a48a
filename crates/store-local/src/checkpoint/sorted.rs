//! Changes in the order of their keys, which is the order of the checkpoint's rows: neighbours share pages, and what is new
//! stands together.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use ekiden_core::id::{Namespace, TaskId};
use ekiden_core::key::{Key, RecordKind};
use ekiden_core::time::Timestamp;
use ekiden_store::shelf::Listed;

use super::{Changed, Changes};

/// What became of one record.
pub(crate) struct Row<'a> {
    pub(crate) key: &'a Key,
    pub(crate) changed: &'a Changed,
    /// The bits of its name, if that is a generated id: they sort as the text does, and with much less work.
    pub(super) bits: Option<u128>,
}

impl<'a> Row<'a> {
    fn new(key: &'a Key, changed: &'a Changed) -> Self {
        let bits = if key.kind == RecordKind::Task { TaskId::bits_of(&key.name) } else { None };
        Self { key, changed, bits }
    }

    /// Whether it is a task whose row is most likely not there yet.
    pub(super) const fn is_new(&self) -> bool {
        matches!(self.changed, Changed::Put { spec: true, .. })
    }

    /// Its place in a list that is sorted by this moment.
    pub(super) fn place(&self, at: Timestamp) -> Listed {
        match self.bits {
            Some(bits) => Listed::of_generated(at, bits),
            None => Listed::new(at, &self.key.name),
        }
    }

    /// How its name compares with that of another row.
    fn by_name(&self, other: &Self) -> Ordering {
        match (self.bits, other.bits) {
            (Some(one), Some(other)) => one.cmp(&other),
            _ => self.key.name.cmp(&other.key.name),
        }
    }
}

/// All changes, sorted; tasks come first.
pub(crate) fn sorted(changes: &Changes) -> Vec<Row<'_>> {
    // Kinds and namespaces are few, so that rows of one are found sooner than they are compared.
    let mut parts: BTreeMap<(RecordKind, &Namespace), Vec<Row<'_>>> = BTreeMap::new();
    for (key, changed) in changes.iter() {
        parts.entry((key.kind, &key.namespace)).or_default().push(Row::new(key, changed));
    }
    let mut all = Vec::with_capacity(changes.len());
    for mut part in parts.into_values() {
        part.sort_unstable_by(Row::by_name);
        all.append(&mut part);
    }
    all
}
