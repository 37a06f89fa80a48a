//! "Did you mean": the known word that is nearest to one that is not known.

/// Three letters: further away it is another word. So is a short one of which only half is left.
const DISTANCE_MAX: usize = 3;

/// The word that was probably meant, if any is near.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, meant) = known.into_iter().map(|other| (distance(word, other), other)).min()?;
    (distance <= DISTANCE_MAX.min(word.chars().count() / 2)).then_some(meant)
}

/// How many letters have to change for one word to become the other.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, letter) in left.chars().enumerate() {
        let mut diagonal = std::mem::replace(row.get_mut(0).expect("a row has a first cell"), at + 1);
        for (column, other) in right.iter().enumerate() {
            let before = row.get(column).copied().unwrap_or(usize::MAX);
            let Some(cell) = row.get_mut(column + 1) else { break };
            let best = (diagonal + usize::from(letter != *other)).min(before + 1).min(*cell + 1);
            diagonal = std::mem::replace(cell, best);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_as_far_as_its_letters_differ() {
        assert_eq!((distance("url", "url"), distance("ulr", "url"), distance("", "ab")), (0, 2, 2));
    }

    #[test]
    fn the_nearest_word_is_meant_and_a_strange_one_means_nothing() {
        let known = ["listen", "hosts", "folder"];
        assert_eq!(nearest("lisen", known), Some("listen"));
        assert_eq!(nearest("host", known), Some("hosts"));
        assert_eq!(nearest("something", known), None);
        assert_eq!(nearest("foo", ["pool"]), None, "one letter of three says nothing");
        assert_eq!(nearest("lst", ["list"]), Some("list"));
    }
}
