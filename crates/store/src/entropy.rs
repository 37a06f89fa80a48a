//! The one place that makes randomness. Everything else takes a seed or bytes as an argument.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use ekiden_core::hash;
use ekiden_core::id::{OpId, TaskId};
use ekiden_core::time::Timestamp;

use crate::clock;

/// A stream of random bytes: the operating system's, or one that a seed repeats exactly.
#[derive(Clone, Debug)]
pub struct Entropy {
    source: Source<u64>,
    /// The moment of the latest task id, and its number among those of that moment.
    latest: (Timestamp, u32),
}

/// Where a stream has its bytes from.
#[derive(Clone, Debug)]
enum Source<S> {
    /// The operating system's generator. Its output tells nothing of what is drawn before, after or elsewhere.
    System,
    /// splitmix64 at this state. One number that it gave is enough to compute all others, so it is for tests only.
    Seeded(S),
}

impl<S> Source<S> {
    /// The number of the first id of a moment, and the least that one behind it may have.
    ///
    /// Ids of many namespaces come from one stream. Their numbers tell the time within the moment, which does not say how
    /// many were drawn for others in between. Numbers of a seeded stream count from a start of its own, so that they repeat.
    fn numbers(&self, bytes: &[u8; 10]) -> (u32, u32) {
        match self {
            Self::System => {
                let passed = clock::nanos_of_the_millisecond();
                (passed, passed)
            }
            Self::Seeded(_) => (u32::from(bytes[0]), 0),
        }
    }
}

/// The step of splitmix64: odd, so that every state comes up once before any comes again.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// 26 bits of a version 7 uuid stand between its moment and the rest: 67 million ids a millisecond keep their order.
const NUMBER_BITS: u32 = 26;

impl Entropy {
    /// The operating system's generator. Its output cannot be predicted.
    pub const fn from_system() -> Self {
        Self { source: Source::System, latest: (Timestamp::ZERO, 0) }
    }

    /// A stream that this seed repeats, for tests only: one number of it is enough to compute the rest.
    pub const fn from_seed(seed: u64) -> Self {
        Self { source: Source::Seeded(hash::mix(seed)), latest: (Timestamp::ZERO, 0) }
    }

    /// Another stream of the same sort, for a second owner. The same seed gives the same one again.
    #[must_use]
    pub fn another(&mut self) -> Self {
        match self.source {
            Source::System => Self::from_system(),
            Source::Seeded(_) => Self::from_seed(self.next_u64()),
        }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        match &mut self.source {
            Source::System => u64::from_ne_bytes(system_bytes()),
            Source::Seeded(state) => {
                *state = state.wrapping_add(STEP);
                hash::mix(*state)
            }
        }
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
        match self.source {
            Source::System => system_bytes(),
            Source::Seeded(_) => ten_bytes(self.next_u64(), self.next_u64()),
        }
    }

    /// A new name for an op.
    pub fn op_id(&mut self, now: Timestamp) -> OpId {
        OpId::generate(now, &self.bytes())
    }

    /// A new name for a task. It sorts behind those drawn before it at the same moment, so that tasks which are handed in
    /// one after another within a millisecond run in that order.
    pub fn task_id(&mut self, now: Timestamp) -> TaskId {
        let bytes = self.bytes();
        let (first, least) = self.source.numbers(&bytes);
        let number = if self.latest.0 == now { least.max(self.latest.1 + 1) } else { first };
        let number = number % (1 << NUMBER_BITS);
        self.latest = (now, number);
        numbered(now, number, bytes)
    }
}

/// 1,024 bytes a call of the system: a hundred ids share its cost, and larger blocks save little more (24 ns an id, 21 with 4,096).
const BLOCK_BYTES: usize = 1_024;

/// Random bytes of the operating system that are still to be drawn.
struct Block {
    bytes: [u8; BLOCK_BYTES],
    drawn: usize,
}

thread_local! {
    /// Each thread has its own: threads that draw ids at once share no memory and no lock.
    static BLOCK: RefCell<Block> = const { RefCell::new(Block { bytes: [0; BLOCK_BYTES], drawn: BLOCK_BYTES }) };
}

fn system_bytes<const N: usize>() -> [u8; N] {
    BLOCK.with_borrow_mut(Block::draw)
}

impl Block {
    fn draw<const N: usize>(&mut self) -> [u8; N] {
        if BLOCK_BYTES - self.drawn < N {
            // Without random bytes ids could be guessed. A process that ends is better than one that goes on with such ids.
            getrandom::fill(&mut self.bytes).expect("the operating system gives random bytes");
            self.drawn = 0;
        }
        let rest = self.bytes.get_mut(self.drawn..).and_then(<[u8]>::first_chunk_mut);
        let drawn = rest.expect("a block is longer than what is drawn at once");
        self.drawn += N;
        // Drawn bytes are wiped, so that this memory tells no id that is in use.
        std::mem::replace(drawn, [0; N])
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
    source: Source<AtomicU64>,
    /// The moment of the latest task id in the upper bits, and its number among those of that moment in the lower ones.
    latest: AtomicU64,
}

impl From<Entropy> for Spring {
    fn from(entropy: Entropy) -> Self {
        let Entropy { source, latest: (moment, number) } = entropy;
        let source = match source {
            Source::System => Source::System,
            Source::Seeded(state) => Source::Seeded(AtomicU64::new(state)),
        };
        Self { source, latest: AtomicU64::new(packed(moment, number)) }
    }
}

impl Spring {
    /// The next 64 bits.
    pub fn next_u64(&self) -> u64 {
        match &self.source {
            Source::System => u64::from_ne_bytes(system_bytes()),
            Source::Seeded(state) => hash::mix(state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP)),
        }
    }

    /// Two at once.
    fn bytes(&self) -> [u8; 10] {
        let state = match &self.source {
            Source::System => return system_bytes(),
            Source::Seeded(state) => state,
        };
        let before = state.fetch_add(STEP.wrapping_mul(2), Ordering::Relaxed);
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
        let (first, least) = self.source.numbers(&bytes);
        let [first, least] = [first, least].map(|number| packed(now, number));
        let next = |latest| Some(behind(latest, first, least));
        let (Ok(latest) | Err(latest)) = self.latest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let number = u32::try_from(behind(latest, first, least) & NUMBER_MASK).unwrap_or_default();
        numbered(now, number, bytes)
    }
}

/// What follows the latest id of a moment, or is the first of its own. A number that ran over begins anew.
fn behind(latest: u64, first: u64, least: u64) -> u64 {
    let follower = latest.wrapping_add(1);
    if latest >> PACKED_BITS == first >> PACKED_BITS && follower >> PACKED_BITS == first >> PACKED_BITS {
        follower.max(least)
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
    use crate::clock::{Clock as _, SystemClock};

    #[test]
    fn task_ids_of_one_moment_keep_the_order_in_which_they_were_drawn() {
        for mut entropy in [Entropy::from_seed(7), Entropy::from_system()] {
            let now = Timestamp::from_millis(1_767_225_600_000);
            let ids: Vec<TaskId> = (0..50_000).map(|_| entropy.task_id(now)).collect();
            assert!(ids.is_sorted_by(|one, next| one < next));
            assert!(ids.last() < Some(&entropy.task_id(Timestamp::from_millis(now.as_millis() + 1))));
        }
    }

    #[test]
    fn ids_of_one_millisecond_do_not_tell_how_many_were_drawn_in_between() {
        let number = |id: &TaskId| {
            let bits = TaskId::bits_of(id.as_str()).unwrap();
            ((bits >> 64) & 0xfff) << 14 | ((bits >> 48) & 0x3fff)
        };
        let (spring, clock) = (Spring::from(Entropy::from_system()), SystemClock);
        let mut counts = 0;
        for others in (0..1_000).map(|round| round % 40) {
            let now = clock.now();
            let ours = spring.task_id(now);
            (0..others).for_each(|_| drop(spring.task_id(now)));
            let next = spring.task_id(now);
            assert!(ours < next);
            counts += usize::from(number(&next) - number(&ours) == others + 1);
        }
        // The millisecond may end meanwhile. The rest of its ids, and no more than those, are then counted from where it ended.
        assert!(counts < 100, "{counts} of 1000 tell the count");
    }

    #[test]
    fn copies_of_the_systems_stream_repeat_nothing() {
        let mut entropy = Entropy::from_system();
        let now = Timestamp::from_millis(1_767_225_600_000);
        let mut copy = entropy.clone();
        let mut another = entropy.another();
        let (one, other) = (Spring::from(entropy.clone()), Spring::from(entropy.clone()));
        let drawn = [
            [entropy.next_u64(), copy.next_u64(), another.next_u64(), one.next_u64(), other.next_u64()],
            [entropy.next_u64(), copy.next_u64(), another.next_u64(), one.next_u64(), other.next_u64()],
        ];
        assert_eq!(drawn.as_flattened().iter().collect::<std::collections::BTreeSet<_>>().len(), 10);
        let ops = [entropy.op_id(now), copy.op_id(now), another.op_id(now), one.op_id(now), other.op_id(now)];
        assert_eq!(ops.iter().collect::<std::collections::BTreeSet<_>>().len(), 5);
    }

    #[test]
    fn the_systems_stream_goes_on_over_many_blocks() {
        let spring = Spring::from(Entropy::from_system());
        let now = Timestamp::from_millis(1_767_225_600_000);
        let mut drawn = std::collections::BTreeSet::new();
        for _ in 0..10 * BLOCK_BYTES {
            assert!(drawn.insert((spring.op_id(now), spring.next_u64())));
        }
    }

    #[test]
    fn a_seed_gives_the_same_second_stream_again() {
        let [mut one, mut again] = [Entropy::from_seed(7), Entropy::from_seed(7)];
        assert_eq!(one.another().next_u64(), again.another().next_u64());
        assert_eq!(one.next_u64(), again.next_u64());
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
        for entropy in [Entropy::from_seed(3), Entropy::from_system()] {
            three_threads_draw(&entropy.into());
        }
    }

    fn three_threads_draw(spring: &Spring) {
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
