//! What a plan may look at: records and first pages, as they were read.

use std::collections::BTreeMap;

use crate::id::Namespace;
use crate::key::{Key, RecordKind};
use crate::record::Versioned;

/// Something that must be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A record.
    Record(Key),
    /// The first records whose names begin alike.
    Page(PageNeed),
}

/// The first records of a kind whose names begin with a prefix, in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageNeed {
    /// The kind.
    pub kind: RecordKind,
    /// The namespace.
    pub namespace: Namespace,
    /// The prefix.
    pub prefix: String,
    /// How many.
    pub limit: usize,
}

/// Records as read.
#[derive(Clone, Debug, Default)]
pub struct View {
    records: BTreeMap<Key, Option<Versioned>>,
    pages: BTreeMap<PageNeed, Vec<Versioned>>,
}

impl View {
    /// Adds what was found under a key, or that nothing was.
    pub fn insert(&mut self, key: Key, found: Option<Versioned>) {
        self.records.insert(key, found);
    }

    /// Adds a page, and the records on it.
    pub fn insert_page(&mut self, need: PageNeed, found: Vec<Versioned>) {
        for versioned in &found {
            self.records.insert(versioned.key.clone(), Some(versioned.clone()));
        }
        self.pages.insert(need, found);
    }

    /// A view of one record.
    #[must_use]
    pub fn with(mut self, versioned: Versioned) -> Self {
        self.records.insert(versioned.key.clone(), Some(versioned));
        self
    }

    /// Whether nothing was read yet.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.pages.is_empty()
    }

    pub(crate) fn record(&self, key: &Key) -> Option<&Option<Versioned>> {
        self.records.get(key)
    }

    pub(crate) fn page(&self, need: &PageNeed) -> Option<&[Versioned]> {
        self.pages.get(need).map(Vec::as_slice)
    }
}
