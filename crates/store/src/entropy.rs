//! The one place that makes randomness. Everything else takes a seed or bytes as an argument.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use ekiden_core::hash;
use ekiden_core::id::{OpId, TaskId};
use ekiden_core::time::Timestamp;

/// A stream of random bytes that a seed repeats exactly.
#[derive(Clone, Debug)]
pub struct Entropy {
    state: u64,
    /// The moment of the latest task id, and its number among those of that moment.
    latest: (Timestamp, u32),
}

/// 26 bits of a version 7 uuid stand between its moment and the rest: 67 million ids a millisecond keep their order.
const NUMBER_BITS: u32 = 26;

impl Entropy {
    /// A stream nobody can guess from outside this process: seeded by the operating system through the standard library.
    pub fn from_system() -> Self {
        Self::starting(RandomState::new().build_hasher().finish())
    }

    /// A stream that this seed repeats.
    pub const fn from_seed(seed: u64) -> Self {
        Self::starting(hash::mix(seed))
    }

    const fn starting(state: u64) -> Self {
        Self { state, latest: (Timestamp::ZERO, 0) }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash::mix(self.state)
    }

    /// A number below `bound`, which must not be zero. The bias is far below what any use here could notice.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX);
        usize::try_from(self.next_u64() % bound).unwrap_or(0)
    }

    /// Whether something with this chance, in percent, happens.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.next_u64() % 100 < u64::from(percent)
    }

    /// One of these.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.below(from.len());
        from.get(at).expect("below() stays inside a list that is not empty")
    }

    /// Ten bytes, for an id.
    pub fn bytes(&mut self) -> [u8; 10] {
        let mut bytes = [0; 10];
        for (slot, byte) in
            bytes.iter_mut().zip(self.next_u64().to_be_bytes().into_iter().chain(self.next_u64().to_be_bytes()))
        {
            *slot = byte;
        }
        bytes
    }

    /// A new name for an op.
    pub fn op_id(&mut self, now: Timestamp) -> OpId {
        OpId::generate(now, &self.bytes())
    }

    /// A new name for a task. It sorts behind those drawn before it at the same moment, so that tasks which are handed in
    /// one after another within a millisecond run in that order.
    pub fn task_id(&mut self, now: Timestamp) -> TaskId {
        let mut bytes = self.bytes();
        let number = if self.latest.0 == now { self.latest.1 + 1 } else { u32::from(bytes[0]) };
        let number = number % (1 << NUMBER_BITS);
        self.latest = (now, number);
        // The upper bits of the first and the third byte are the uuid's own.
        let [high, low] = [number >> 14, number & 0x3fff].map(|part| part.to_be_bytes());
        bytes[..4].copy_from_slice(&[high[2], high[3], low[2], low[3]]);
        TaskId::generate(now, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_ids_of_one_moment_keep_the_order_in_which_they_were_drawn() {
        let mut entropy = Entropy::from_seed(7);
        let now = Timestamp::from_millis(1_767_225_600_000);
        let ids: Vec<TaskId> = (0..50_000).map(|_| entropy.task_id(now)).collect();
        assert!(ids.is_sorted_by(|one, next| one < next));
        assert!(ids.last() < Some(&entropy.task_id(Timestamp::from_millis(now.as_millis() + 1))));
    }
}
