//! All namespaces: each found by its name, and listed in order. A namespace is here while it has anything.

use std::collections::BTreeSet;
use std::ops::Bound;

use ekiden_core::id::Namespace;

use super::mainly::Mainly;
use super::space::Space;

/// The namespaces. Names stand twice: hashed for every op, and sorted for listings, where a page must not cost more
/// because there are many.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    spaces: Mainly<Namespace, Space>,
    names: BTreeSet<Namespace>,
}

impl Spaces {
    pub(crate) fn get(&self, namespace: &Namespace) -> Option<&Space> {
        self.spaces.get(namespace)
    }

    pub(crate) fn get_mut(&mut self, namespace: &Namespace) -> Option<&mut Space> {
        self.spaces.get_mut(namespace)
    }

    /// The namespace, which is new if it was not there. Whoever opens it puts something into it.
    pub(crate) fn open(&mut self, namespace: &Namespace) -> &mut Space {
        if self.spaces.get(namespace).is_none() {
            self.names.insert(namespace.clone());
        }
        self.spaces.open(namespace)
    }

    pub(crate) fn remove(&mut self, namespace: &Namespace) {
        self.spaces.remove(namespace);
        self.names.remove(namespace);
    }

    /// In no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Namespace, &Space)> {
        self.spaces.iter()
    }

    /// In no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Space> {
        self.spaces.values()
    }

    /// The names behind one, in order.
    pub(crate) fn names<'a>(&'a self, after: Option<&'a Namespace>) -> impl Iterator<Item = &'a Namespace> {
        self.names.range::<Namespace, _>((after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
    }
}
