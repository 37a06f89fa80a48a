//! The one place that makes randomness. Everything else takes a seed or bytes as an argument.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use ekiden_core::hash;
use ekiden_core::id::{OpId, TaskId};
use ekiden_core::time::Timestamp;

/// A stream of random bytes that a seed repeats exactly.
#[derive(Clone, Debug)]
pub struct Entropy(u64);

impl Entropy {
    /// A stream nobody can guess from outside this process: seeded by the operating system through the standard library.
    pub fn from_system() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }

    /// A stream that this seed repeats.
    pub const fn from_seed(seed: u64) -> Self {
        Self(hash::mix(seed))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash::mix(self.0)
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

    /// A new name for a task.
    pub fn task_id(&mut self, now: Timestamp) -> TaskId {
        TaskId::generate(now, &self.bytes())
    }
}
