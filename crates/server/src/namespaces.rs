//! The namespaces that a server knows of: those that requests name, and those that the store lists. It looks after each.

use std::sync::{PoisonError, RwLock};

use ekiden_core::id::Namespace;
use hashbrown::HashSet;

use ekiden::Chime;

use crate::limits;

/// The namespaces that are known.
#[derive(Default)]
pub(crate) struct Namespaces {
    known: RwLock<HashSet<Namespace>>,
    /// Rings when one was not known before.
    pub(crate) found: Chime,
}

impl Namespaces {
    /// Takes note of a namespace. Asked with every request, so that a known one costs no more than a look.
    pub(crate) fn note(&self, namespace: &Namespace) {
        if self.known.read().unwrap_or_else(PoisonError::into_inner).contains(namespace) {
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < limits::NAMESPACES_MAX && known.insert(namespace.clone()) {
            drop(known);
            self.found.ring();
        }
    }

    /// All of them, in no order.
    pub(crate) fn all(&self) -> Vec<Namespace> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
