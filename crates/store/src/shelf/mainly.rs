//! A map in which one name is asked for most of the time: most processes have one namespace, most namespaces one pool. The name
//! that came first is found by looking at it, all others by their hash.

use std::hash::Hash;

use hashbrown::HashMap;

/// Values by name.
#[derive(Debug)]
pub(crate) struct Mainly<K, V> {
    first: Option<(K, V)>,
    /// Never one that is the first.
    others: HashMap<K, V>,
}

impl<K, V> Default for Mainly<K, V> {
    fn default() -> Self {
        Self { first: None, others: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, V> Mainly<K, V> {
    #[inline]
    pub(crate) fn get(&self, name: &K) -> Option<&V> {
        match &self.first {
            Some((first, value)) if first == name => Some(value),
            _ if self.others.is_empty() => None,
            _ => self.others.get(name),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, name: &K) -> Option<&mut V> {
        match &mut self.first {
            Some((first, value)) if first == name => Some(value),
            _ if self.others.is_empty() => None,
            _ => self.others.get_mut(name),
        }
    }

    /// The value of a name, which is new if there was none.
    #[inline]
    pub(crate) fn open(&mut self, name: &K) -> &mut V
    where
        V: Default,
    {
        if self.first.is_none() && !self.others.contains_key(name) {
            self.first = Some((name.clone(), V::default()));
        }
        match &mut self.first {
            Some((first, value)) if first == name => value,
            _ => self.others.entry_ref(name).or_default(),
        }
    }

    pub(crate) fn remove(&mut self, name: &K) -> Option<V> {
        match self.first.take_if(|(first, _)| first == name) {
            Some((_, value)) => Some(value),
            None => self.others.remove(name),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    /// In no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.first.iter().map(|(name, value)| (name, value)).chain(&self.others)
    }

    /// In no order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

/// Whichever came first.
impl<K: Clone + Eq + Hash, V: PartialEq> PartialEq for Mainly<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().count() == other.iter().count() && self.iter().all(|(name, value)| other.get(name) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::entropy::Entropy;

    #[test]
    fn it_is_a_map_whoever_came_first() {
        let mut dice = Entropy::from_seed(5);
        let (mut own, mut plain): (Mainly<usize, u64>, HashMap<usize, u64>) = Default::default();
        for _ in 0..20_000 {
            let (name, value) = (dice.below(6), dice.next_u64());
            match dice.below(4) {
                0 => assert_eq!(own.remove(&name), plain.remove(&name)),
                1 => {
                    *own.open(&name) = value;
                    plain.insert(name, value);
                }
                2 => assert_eq!(own.get_mut(&name), plain.get_mut(&name)),
                _ => assert_eq!(own.get(&name), plain.get(&name)),
            }
            assert_eq!(own.is_empty(), plain.is_empty());
            assert_eq!(own.iter().map(|(name, value)| (*name, *value)).collect::<HashMap<_, _>>(), plain);
        }
    }

    #[test]
    fn maps_with_the_same_entries_are_equal_whichever_came_first() {
        let of = |names: [u8; 2]| {
            let mut map: Mainly<u8, u8> = Mainly::default();
            names.iter().for_each(|name| *map.open(name) = *name);
            map
        };
        assert_eq!(of([1, 2]), of([2, 1]));
        assert_ne!(of([1, 2]), of([1, 3]));
    }
}
