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

/// 8: what most plans read. So few are found faster by looking at each, and cost no tree.
const FEW: usize = 8;

/// Records as read.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The first [`FEW`].
    few: Vec<(Key, Option<Versioned>)>,
    /// All others.
    more: BTreeMap<Key, Option<Versioned>>,
    pages: BTreeMap<PageNeed, Vec<Versioned>>,
}

impl View {
    /// Adds what was found under a key, or that nothing was.
    pub fn insert(&mut self, key: Key, found: Option<Versioned>) {
        if let Some((_, known)) = self.few.iter_mut().find(|(known, _)| *known == key) {
            *known = found;
        } else if self.few.len() < FEW {
            self.few.push((key, found));
        } else {
            self.more.insert(key, found);
        }
    }

    /// Adds a page, and the records on it.
    pub fn insert_page(&mut self, need: PageNeed, found: Vec<Versioned>) {
        for versioned in &found {
            self.insert(versioned.key.clone(), Some(versioned.clone()));
        }
        self.pages.insert(need, found);
    }

    /// A view of one record.
    #[must_use]
    pub fn with(mut self, versioned: Versioned) -> Self {
        self.insert(versioned.key.clone(), Some(versioned));
        self
    }

    pub(crate) fn record(&self, key: &Key) -> Option<&Option<Versioned>> {
        let few = self.few.iter().find(|(known, _)| known == key).map(|(_, found)| found);
        few.or_else(|| self.more.get(key))
    }

    pub(crate) fn page(&self, need: &PageNeed) -> Option<&[Versioned]> {
        self.pages.get(need).map(Vec::as_slice)
    }
}
