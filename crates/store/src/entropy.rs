//! The one place that makes randomness. Everything else takes a seed or bytes as an argument.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

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

/// The step of splitmix64: odd, so that every state comes up once before any comes again.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

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
        self.state = self.state.wrapping_add(STEP);
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
        ten_bytes(self.next_u64(), self.next_u64())
    }

    /// A new name for an op.
    pub fn op_id(&mut self, now: Timestamp) -> OpId {
        OpId::generate(now, &self.bytes())
    }

    /// A new name for a task. It sorts behind those drawn before it at the same moment, so that tasks which are handed in
    /// one after another within a millisecond run in that order.
    pub fn task_id(&mut self, now: Timestamp) -> TaskId {
        let bytes = self.bytes();
        let number = if self.latest.0 == now { self.latest.1 + 1 } else { u32::from(bytes[0]) };
        let number = number % (1 << NUMBER_BITS);
        self.latest = (now, number);
        numbered(now, number, bytes)
    }
}

fn ten_bytes(first: u64, second: u64) -> [u8; 10] {
    let ([a, b, c, d, e, f, g, h], [i, j, ..]) = (first.to_be_bytes(), second.to_be_bytes());
    [a, b, c, d, e, f, g, h, i, j]
}

/// The id of a moment with this number among its ids.
fn numbered(now: Timestamp, number: u32, mut bytes: [u8; 10]) -> TaskId {
    // The upper bits of the first and the third byte are the uuid's own.
    let [high, low] = [number >> 14, number & 0x3fff].map(|part| part.to_be_bytes());
    bytes[..4].copy_from_slice(&[high[2], high[3], low[2], low[3]]);
    TaskId::generate(now, &bytes)
}

/// A stream that many draw from at once, and nobody waits for another. Drawn from by one alone it is the [`Entropy`] that it
/// was made of.
#[derive(Debug)]
pub struct Spring {
    state: AtomicU64,
    /// The moment of the latest task id in the upper bits, and its number among those of that moment in the lower ones.
    latest: AtomicU64,
}

impl From<Entropy> for Spring {
    fn from(entropy: Entropy) -> Self {
        let Entropy { state, latest: (moment, number) } = entropy;
        Self { state: AtomicU64::new(state), latest: AtomicU64::new(packed(moment, number)) }
    }
}

impl Spring {
    /// The next 64 bits.
    pub fn next_u64(&self) -> u64 {
        hash::mix(self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    /// Two at once.
    fn bytes(&self) -> [u8; 10] {
        let before = self.state.fetch_add(STEP.wrapping_mul(2), Ordering::Relaxed);
        let [first, second] = [1, 2].map(|steps| hash::mix(before.wrapping_add(STEP.wrapping_mul(steps))));
        ten_bytes(first, second)
    }

    /// A new name for an op.
    pub fn op_id(&self, now: Timestamp) -> OpId {
        OpId::generate(now, &self.bytes())
    }

    /// A new name for a task, behind those drawn before it at the same moment.
    pub fn task_id(&self, now: Timestamp) -> TaskId {
        let bytes = self.bytes();
        let first = packed(now, u32::from(bytes[0]));
        let next = |latest| Some(behind(latest, first));
        let (Ok(latest) | Err(latest)) = self.latest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let number = u32::try_from(behind(latest, first) & NUMBER_MASK).unwrap_or_default();
        numbered(now, number, bytes)
    }
}

/// What follows the latest id of a moment, or is the first of its own. A number that ran over begins anew.
const fn behind(latest: u64, first: u64) -> u64 {
    let follower = latest.wrapping_add(1);
    if latest >> PACKED_BITS == first >> PACKED_BITS && follower >> PACKED_BITS == first >> PACKED_BITS {
        follower
    } else {
        first
    }
}

/// 22 bits hold the numbers of four million ids a millisecond; the 42 above them any moment of this century.
const PACKED_BITS: u32 = 22;

const NUMBER_MASK: u64 = (1 << PACKED_BITS) - 1;

fn packed(moment: Timestamp, number: u32) -> u64 {
    (moment.as_millis().unsigned_abs() << PACKED_BITS) | (u64::from(number) & NUMBER_MASK)
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
    #[test]
    fn a_spring_that_one_draws_from_is_the_entropy_that_it_was_made_of() {
        let mut entropy = Entropy::from_seed(11);
        let spring = Spring::from(entropy.clone());
        for millis in [0, 1_767_225_600_000, 1_767_225_600_000, 1_767_225_600_000, 1_767_225_600_001] {
            let now = Timestamp::from_millis(millis);
            assert_eq!(spring.op_id(now), entropy.op_id(now));
            assert_eq!(spring.task_id(now), entropy.task_id(now));
            assert_eq!(spring.next_u64(), entropy.next_u64());
        }
    }

    #[test]
    fn no_two_threads_draw_the_same_and_each_sees_its_ids_in_order() {
        let spring = Spring::from(Entropy::from_seed(3));
        let now = Timestamp::from_millis(1_767_225_600_000);
        let drawn = std::thread::scope(|scope| {
            let draw = || (0..20_000).map(|_| (spring.task_id(now), spring.op_id(now))).collect::<Vec<_>>();
            let threads = [scope.spawn(draw), scope.spawn(draw), scope.spawn(draw)];
            threads.map(|thread| thread.join().unwrap())
        });
        for one in &drawn {
            assert!(one.is_sorted_by(|(one, _), (next, _)| one < next));
        }
        let tasks: std::collections::BTreeSet<_> = drawn.iter().flatten().map(|(task, _)| task).collect();
        let ops: std::collections::BTreeSet<_> = drawn.iter().flatten().map(|(_, op)| op).collect();
        assert_eq!((tasks.len(), ops.len()), (60_000, 60_000));
    }
}
