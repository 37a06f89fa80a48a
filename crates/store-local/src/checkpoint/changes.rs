//! What changed since the last checkpoint, by key. It begins empty once a second and has a hundred thousand entries at the next, so it must
//! be quick at growing: entries stand in a list with their hashes, and only their places are found by hash.

use std::hash::BuildHasher;

use ekiden_core::key::Key;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::Changed;

/// Changes in the order in which their keys came first.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    entries: Vec<Entry>,
    places: HashTable<usize>,
    hasher: DefaultHashBuilder,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    key: Key,
    changed: Changed,
}

/// Where a key's change is, or would be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    hash: u64,
    at: Option<usize>,
}

impl Changes {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Changed> {
        self.at(self.place(key))
    }

    pub(crate) fn insert(&mut self, key: Key, changed: Changed) {
        self.put(self.place(&key), || key, changed);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Changed)> {
        self.entries.iter().map(|entry| (&entry.key, &entry.changed))
    }

    /// Looks a key up once, for whoever looks at its change and then puts another.
    pub(crate) fn place(&self, key: &Key) -> Place {
        let hash = self.hasher.hash_one(key);
        let is_it = |at: &usize| self.entries.get(*at).is_some_and(|entry| entry.hash == hash && entry.key == *key);
        Place { hash, at: self.places.find(hash, is_it).copied() }
    }

    pub(crate) fn at(&self, place: Place) -> Option<&Changed> {
        self.entries.get(place.at?).map(|entry| &entry.changed)
    }

    /// Puts a change where its key was found to be; the key itself is asked for only if it is new.
    pub(crate) fn put(&mut self, place: Place, key: impl FnOnce() -> Key, changed: Changed) {
        if let Some(entry) = place.at.and_then(|at| self.entries.get_mut(at)) {
            entry.changed = changed;
            return;
        }
        let (at, hash) = (self.entries.len(), place.hash);
        self.entries.push(Entry { hash, key: key(), changed });
        let entries = &self.entries;
        self.places.insert_unique(hash, at, |at| entries.get(*at).map_or(0, |entry| entry.hash));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ekiden_core::id::{Namespace, PoolName};
    use ekiden_store::entropy::Entropy;

    use super::*;

    #[test]
    fn it_is_a_map_by_key_in_the_order_in_which_keys_came() {
        let mut dice = Entropy::from_seed(2);
        let namespace = Namespace::new("default").unwrap();
        let (mut changes, mut model, mut order) = (Changes::new(), BTreeMap::new(), Vec::new());
        for revision in 0..5_000 {
            let key = Key::pool(&namespace, &PoolName::new(format!("p{}", dice.below(700))).unwrap());
            if model.insert(key.clone(), revision).is_none() {
                order.push(key.clone());
            }
            changes.insert(key, Changed::Gone { revision });
        }
        let revision = |changed: &Changed| if let Changed::Gone { revision } = changed { *revision } else { 0 };
        assert_eq!(changes.len(), model.len());
        assert!(model.iter().all(|(key, wanted)| changes.get(key).map(revision) == Some(*wanted)));
        assert_eq!(changes.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), order);
        assert!(changes.get(&Key::pool(&namespace, &PoolName::new("other").unwrap())).is_none());
        assert!(Changes::new().is_empty());
    }
}
