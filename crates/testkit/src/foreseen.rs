//! What an attacker can compute from a published number if ids come from splitmix64: its output can be turned back into its
//! state, and the state gives all other numbers.

use std::collections::BTreeSet;

use ekiden_core::hash;
use ekiden_core::id::{OpId, TaskId};
use ekiden_store::entropy::Entropy;

/// 64 numbers before and behind the one that was seen, and as many of each stream that one of them is the seed of.
const REACH: u64 = 64;

/// The step of splitmix64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// 48 bits at the end of an id are all random; those before are a moment, a number, or fixed.
const TAIL: u128 = (1 << 48) - 1;

/// The ends of ids that follow from one published number.
pub fn foreseen_tails(seen: u64) -> BTreeSet<u128> {
    let state = unmix(seen);
    let first = state.wrapping_sub(REACH.wrapping_mul(STEP));
    let stream: Vec<u64> =
        (0..2 * REACH).map(|steps| hash::mix(first.wrapping_add(steps.wrapping_mul(STEP)))).collect();
    let mut tails = tails_of(&stream);
    for seed in stream {
        let mut below = Entropy::from_seed(seed);
        tails.extend(tails_of(&(0..REACH).map(|_| below.next_u64()).collect::<Vec<_>>()));
    }
    tails
}

/// The end of an op's id.
pub fn tail_of_op(id: OpId) -> u128 {
    id.as_bits() & TAIL
}

/// The end of a generated task id.
pub fn tail_of_task(id: &str) -> Option<u128> {
    TaskId::bits_of(id).map(|bits| bits & TAIL)
}

/// An id takes eight bytes of one number and two of the next.
fn tails_of(stream: &[u64]) -> BTreeSet<u128> {
    let pairs = stream.iter().zip(stream.iter().skip(1));
    pairs.map(|(first, second)| (u128::from(*first) << 16 | u128::from(second >> 48)) & TAIL).collect()
}

/// The number that [`hash::mix`] makes this one of.
fn unmix(mixed: u64) -> u64 {
    let c = unshift(mixed, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
    let b = unshift(c, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9));
    unshift(b, 30).wrapping_sub(STEP)
}

/// Undoes `x ^ (x >> by)`, for a `by` of which three times are all bits.
fn unshift(shifted: u64, by: u32) -> u64 {
    shifted ^ (shifted >> by) ^ shifted.checked_shr(2 * by).unwrap_or(0)
}

/// The number that gives 1 when it is multiplied by this odd one: each round doubles the bits that are right.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |inverse, _| inverse.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(inverse))))
}

#[cfg(test)]
mod tests {
    use ekiden_core::time::Timestamp;

    use super::*;

    #[test]
    fn a_seeded_stream_is_foreseen_from_one_number_of_it() {
        let mut entropy = Entropy::from_seed(7);
        let before = entropy.op_id(Timestamp::ZERO);
        let tails = foreseen_tails(entropy.next_u64());
        let now = Timestamp::from_millis(1_767_225_600_000);
        let (op, task, mut another) = (entropy.op_id(now), entropy.task_id(now), entropy.another());
        for tail in [before, op, another.op_id(now)].map(tail_of_op).into_iter().chain(tail_of_task(task.as_str())) {
            assert!(tails.contains(&tail), "{tail:x}");
        }
    }
}
