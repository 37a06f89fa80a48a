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

/// What was found under a key.
#[derive(Clone, Debug)]
enum Seen {
    Found(Versioned),
    Nothing(Key),
}

impl Seen {
    const fn key(&self) -> &Key {
        match self {
            Self::Found(versioned) => &versioned.key,
            Self::Nothing(key) => key,
        }
    }

    const fn found(&self) -> Option<&Versioned> {
        match self {
            Self::Found(versioned) => Some(versioned),
            Self::Nothing(_) => None,
        }
    }
}

/// Records as read.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Usually there is one, and it costs no list.
    first: Option<Seen>,
    /// Apart, so that a view of one record is small: futures keep it, some of them twice.
    rest: Option<Box<Rest>>,
}

#[derive(Clone, Debug, Default)]
struct Rest {
    /// The next [`FEW`].
    few: Vec<Seen>,
    /// All others.
    more: BTreeMap<Key, Option<Versioned>>,
    pages: BTreeMap<PageNeed, Vec<Versioned>>,
}

impl View {
    /// Adds what was found under a key, or that nothing was.
    pub fn insert(&mut self, key: Key, found: Option<Versioned>) {
        let few = self.rest.iter_mut().flat_map(|rest| &mut rest.few);
        if let Some(known) = self.first.iter_mut().chain(few).find(|known| *known.key() == key) {
            *known = seen(key, found);
        } else if self.first.is_none() {
            self.first = Some(seen(key, found));
        } else {
            let rest = self.rest.get_or_insert_default();
            if rest.few.len() < FEW {
                rest.few.push(seen(key, found));
            } else {
                rest.more.insert(key, found);
            }
        }
    }

    /// Adds a page, and the records on it.
    pub fn insert_page(&mut self, need: PageNeed, found: Vec<Versioned>) {
        for versioned in &found {
            self.insert(versioned.key.clone(), Some(versioned.clone()));
        }
        self.rest.get_or_insert_default().pages.insert(need, found);
    }

    /// A view of one record.
    #[must_use]
    pub fn with(mut self, versioned: Versioned) -> Self {
        if self.is_empty() {
            self.first = Some(Seen::Found(versioned));
        } else {
            self.insert(versioned.key.clone(), Some(versioned));
        }
        self
    }

    /// Whether something, or its absence, was read under a key.
    pub fn knows(&self, key: &Key) -> bool {
        self.record(key).is_some()
    }

    /// Whether nothing was read yet.
    pub fn is_empty(&self) -> bool {
        self.first.is_none() && self.rest.is_none()
    }

    /// What was found under a key, if anybody looked.
    pub(crate) fn record(&self, key: &Key) -> Option<Option<&Versioned>> {
        if let Some(first) = self.first.as_ref().filter(|first| first.key() == key) {
            return Some(first.found());
        }
        let rest = self.rest.as_deref()?;
        let few = rest.few.iter().find(|known| known.key() == key).map(Seen::found);
        few.or_else(|| rest.more.get(key).map(Option::as_ref))
    }

    pub(crate) fn page(&self, need: &PageNeed) -> Option<&[Versioned]> {
        self.rest.as_deref()?.pages.get(need).map(Vec::as_slice)
    }
}

fn seen(key: Key, found: Option<Versioned>) -> Seen {
    found.map_or(Seen::Nothing(key), Seen::Found)
}
