//! A small stable hash: the same number on every machine and in every version, because stored data depends on it.

/// FNV-1a over the bytes, finished with a mix so that near inputs land far apart.
pub fn of_bytes(bytes: &[u8]) -> u64 {
    let folded = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    mix(folded)
}

/// 128 bits, for names that must not meet.
pub fn wide(bytes: &[u8]) -> u128 {
    let first = of_bytes(bytes);
    let salted: Vec<u8> = first.to_be_bytes().into_iter().chain(bytes.iter().copied()).collect();
    u128::from(first) << 64 | u128::from(of_bytes(&salted))
}

/// The finisher of splitmix64: a bijection whose output bits all depend on all input bits.
pub const fn mix(seed: u64) -> u64 {
    let a = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let b = (a ^ (a >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let c = (b ^ (b >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    c ^ (c >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_never_change() {
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(of_bytes(b""), mix(0xcbf2_9ce4_8422_2325));
        assert_ne!(of_bytes(b"task-1"), of_bytes(b"task-2"));
    }
}
