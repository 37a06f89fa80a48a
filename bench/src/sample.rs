//! Numbers out of many tries: percentiles, medians, and rounds in which all contenders take turns.

use std::time::Duration;

use crate::Outcome;

/// The value below which `percent` of the values lie (nearest rank); zero if there are none.
pub fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

/// The middle value.
pub fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

/// Durations as microseconds.
pub fn micros(waits: &[Duration]) -> Vec<f64> {
    waits.iter().map(|wait| wait.as_secs_f64() * 1e6).collect()
}

/// Durations as nanoseconds.
pub fn nanos(waits: &[Duration]) -> Vec<f64> {
    waits.iter().map(|wait| wait.as_secs_f64() * 1e9).collect()
}

/// Measures each contender once a round, and answers with each contender's tries, in the contenders' order.
///
/// They take turns within one run, so that whatever else the machine does hits all of them, and each round begins with
/// another one, so that none always runs on the warmest processor. One round before the first is thrown away.
pub fn interleave<C: Copy, T>(
    rounds: usize,
    contenders: &[C],
    mut measure: impl FnMut(C) -> Outcome<T>,
) -> Outcome<Vec<Vec<T>>> {
    let mut tries: Vec<Vec<T>> = contenders.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for contender in contenders {
        measure(*contender)?;
    }
    for round in 0..rounds {
        let turns = contenders.iter().zip(0..).cycle().skip(round % contenders.len().max(1));
        for (contender, at) in turns.take(contenders.len()) {
            let value = measure(*contender)?;
            if let Some(tries) = tries.get_mut(at) {
                tries.push(value);
            }
        }
    }
    Ok(tries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!([50, 99, 100].map(|percent| percentile(&values, percent)), [50.0, 99.0, 100.0]);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(percentile(&[7.0], 1), 7.0);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn contenders_take_turns_and_the_first_round_does_not_count() {
        let mut order = String::new();
        let tries = interleave(2, &['a', 'b'], |contender| {
            order.push(contender);
            Ok((contender, order.len()))
        })
        .unwrap();
        assert_eq!(tries, [[('a', 3), ('a', 6)], [('b', 4), ('b', 5)]]);
        assert_eq!(order, "ababba");
    }
}
