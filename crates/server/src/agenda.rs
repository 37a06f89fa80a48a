//! When each namespace is looked at next. Knows moments and names; a namespace with nothing to wait for is not in it.

use std::collections::BTreeSet;

use ekiden_core::id::Namespace;
use ekiden_core::time::Timestamp;
use hashbrown::HashMap;

use crate::limits;

/// Namespaces by the moment at which each is looked at.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    order: BTreeSet<(Timestamp, Namespace)>,
    moments: HashMap<Namespace, Timestamp>,
}

impl Agenda {
    /// Looks at a namespace at this moment, unless it is looked at sooner anyway.
    pub(crate) fn add(&mut self, namespace: Namespace, at: Timestamp) {
        if let Some(known) = self.moments.get(&namespace) {
            if *known <= at {
                return;
            }
            self.order.remove(&(*known, namespace.clone()));
        }
        self.moments.insert(namespace.clone(), at);
        self.order.insert((at, namespace));
        if self.order.len() > limits::AGENDA_MAX
            && let Some((_, last)) = self.order.pop_last()
        {
            // The walk through all namespaces comes by before it is due, or soon after.
            self.moments.remove(&last);
        }
    }

    /// The namespace that has waited longest for its look, if there is one whose moment has come.
    pub(crate) fn take(&mut self, now: Timestamp) -> Option<Namespace> {
        let (at, namespace) = self.order.pop_first()?;
        if at > now {
            self.order.insert((at, namespace));
            return None;
        }
        self.moments.remove(&namespace);
        Some(namespace)
    }

    /// The moment of the next look.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.order.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Namespace {
        Namespace::new(name).unwrap()
    }

    #[test]
    fn who_has_waited_longest_comes_first_and_once() {
        let at = Timestamp::from_millis;
        let mut agenda = Agenda::default();
        for (name, moment) in [("c", 30), ("a", 20), ("b", 10), ("a", 5), ("b", 40)] {
            agenda.add(named(name), at(moment));
        }
        assert_eq!(agenda.next(), Some(at(5)));
        assert_eq!(agenda.take(at(4)), None, "its moment has not come");
        let taken: Vec<Namespace> = std::iter::from_fn(|| agenda.take(at(20))).collect();
        assert_eq!(taken, [named("a"), named("b")]);
        assert_eq!(agenda.next(), Some(at(30)));
        assert_eq!(agenda.take(at(30)), Some(named("c")));
        assert!(agenda.moments.is_empty() && agenda.order.is_empty(), "what was looked at leaves");
    }

    #[test]
    fn a_full_agenda_keeps_what_is_due_first() {
        let mut agenda = Agenda::default();
        for number in 0..limits::AGENDA_MAX + 10 {
            agenda.add(named(&number.to_string()), Timestamp::from_millis(i64::try_from(number).unwrap()));
        }
        assert_eq!((agenda.order.len(), agenda.moments.len()), (limits::AGENDA_MAX, limits::AGENDA_MAX));
        assert_eq!(agenda.next(), Some(Timestamp::ZERO));
    }
}
