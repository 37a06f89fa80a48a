//! MessagePack with short words. DynamoDB counts every kilobyte of an item, at each write and again for each index that holds
//! whole items, and the names of fields are most of a task. So names that we know stand as their number in a table, and what is
//! read back is the same MessagePack as before. Unknown names stay as they are, so that fields can come and go.
//!
//! A short value begins with a byte that MessagePack never uses, and the number of the table.

use super::Unreadable;

/// No MessagePack value begins with this byte.
const SHORT: u8 = 0xc1;

/// The table below. A word that is added goes to its end; nothing else is ever changed.
const TABLE: u8 = 1;

/// A word as the value of a field: one byte of MessagePack's extension with this type number.
const WORD_EXTENSION: u8 = 1;

/// 64 levels: records have a handful.
const DEPTH_MAX: usize = 64;

#[rustfmt::skip]
const WORDS: [&str; 120] = [
    "id", "namespace", "pool", "envelope", "task_type", "payload", "content_type", "created_at", "rank", "policy",
    "title", "run_at", "expires_at", "lane", "on_parent_failure", "unique", "group", "session", "labels", "after_group",
    "retry_of", "origin", "message", "attempts_max", "crashes_max", "retry", "timeout", "keep", "keep_dead", "reopen",
    "phase", "attempts", "execution_no", "crashes", "next_run_at", "promoted", "place", "lease", "late", "waits_for",
    "has_dependents", "retried_as", "question", "answer", "last_error", "reason", "result", "progress", "updated_at", "started_at",
    "finished_at", "recent", "outcomes", "history", "holder", "claim", "token", "until", "counted", "runner",
    "outcome", "error", "stage", "at", "event", "note", "exponential", "base", "factor_percent", "cap",
    "jitter", "fixed", "delay", "steps", "delays", "never", "forever", "for", "after", "none",
    "equal", "ours", "foreign", "heartbeat", "held", "waiting", "key", "width", "hold", "pending",
    "blocked", "queued", "retry_scheduled", "running", "needs_input", "succeeded", "dead", "cancelled", "enqueued", "released",
    "dependency_met", "dependency_failed", "became_due", "claimed", "failed", "snoozed", "timed_out", "lease_lost", "interrupted", "returned",
    "asked", "answered", "cancel_requested", "attempt_ended", "retry_requested", "expired", "crashed", "lost", "block", "application/json",
];

/// The same value with short words.
pub(super) fn shorten(plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(plain.len());
    out.extend([SHORT, TABLE]);
    let mut walk = Walk { input: plain, out, way: Way::Shorten };
    match walk.value(0) {
        Ok(()) if walk.input.is_empty() => walk.out,
        // Never seen: what cannot be walked through stays as it is.
        _ => plain.to_vec(),
    }
}

/// The value as it was before it was shortened.
pub(super) fn lengthen(stored: &[u8]) -> Result<Vec<u8>, Unreadable> {
    match stored {
        [SHORT, TABLE, input @ ..] => {
            let mut walk = Walk { input, out: Vec::with_capacity(input.len() * 2), way: Way::Lengthen };
            walk.value(0)?;
            Ok(walk.out)
        }
        [SHORT, ..] => Err(Unreadable::Content("written with words of a newer version".to_owned())),
        plain => Ok(plain.to_vec()),
    }
}

/// Goes through a value and writes it anew.
struct Walk<'a> {
    input: &'a [u8],
    out: Vec<u8>,
    way: Way,
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Shorten,
    Lengthen,
}

fn torn() -> Unreadable {
    Unreadable::Content("the value ends in the middle".to_owned())
}

impl<'a> Walk<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self.input.split_at_checked(count).ok_or_else(torn)?;
        self.input = rest;
        Ok(taken)
    }

    fn copy(&mut self, count: usize) -> Result<(), Unreadable> {
        let taken = self.take(count)?;
        self.out.extend_from_slice(taken);
        Ok(())
    }

    /// A big-endian number of so many bytes behind the first byte, without moving on.
    fn number(&self, bytes: usize) -> Result<usize, Unreadable> {
        let digits = self.input.get(1..=bytes).ok_or_else(torn)?;
        Ok(digits.iter().fold(0, |number, digit| number << 8 | usize::from(*digit)))
    }

    fn value(&mut self, depth: usize) -> Result<(), Unreadable> {
        if depth > DEPTH_MAX {
            return Err(Unreadable::Content("the value is nested too deeply".to_owned()));
        }
        let first = *self.input.first().ok_or_else(torn)?;
        match first {
            0xa0..=0xbf | 0xd9..=0xdb => self.text(),
            0x80..=0x8f => self.map(1, usize::from(first & 0x0f), depth),
            0xde => self.map(3, self.number(2)?, depth),
            0xdf => self.map(5, self.number(4)?, depth),
            0x90..=0x9f => self.list(1, usize::from(first & 0x0f), depth),
            0xdc => self.list(3, self.number(2)?, depth),
            0xdd => self.list(5, self.number(4)?, depth),
            0xd4 if self.way == Way::Lengthen => self.word(),
            0xc4 | 0xc7 => self.copy(self.number(1)? + if first == 0xc7 { 3 } else { 2 }),
            0xc5 | 0xc8 => self.copy(self.number(2)? + if first == 0xc8 { 4 } else { 3 }),
            0xc6 | 0xc9 => self.copy(self.number(4)? + if first == 0xc9 { 6 } else { 5 }),
            0xcc | 0xd0 => self.copy(2),
            0xcd | 0xd1 => self.copy(3),
            0xca | 0xce | 0xd2 => self.copy(5),
            0xcb | 0xcf | 0xd3 => self.copy(9),
            0xd4..=0xd8 => self.copy(2 + (1 << (first - 0xd4))),
            _ => self.copy(1),
        }
    }

    fn list(&mut self, head: usize, count: usize, depth: usize) -> Result<(), Unreadable> {
        self.copy(head)?;
        (0..count).try_for_each(|_| self.value(depth + 1))
    }

    fn map(&mut self, head: usize, count: usize, depth: usize) -> Result<(), Unreadable> {
        self.copy(head)?;
        for _ in 0..count {
            self.key()?;
            self.value(depth + 1)?;
        }
        Ok(())
    }

    /// The name of a field: a text, or a number in the table.
    fn key(&mut self) -> Result<(), Unreadable> {
        let first = *self.input.first().ok_or_else(torn)?;
        match (self.way, first) {
            (Way::Shorten, 0xa0..=0xbf | 0xd9..=0xdb) => {
                let (whole, text) = self.read_text()?;
                match number_of(text) {
                    Some(number) => self.out.push(number),
                    None => self.out.extend_from_slice(whole),
                }
                Ok(())
            }
            (Way::Lengthen, number @ 0x00..=0x7f) => {
                self.take(1)?;
                self.write_word(number)
            }
            (Way::Lengthen, 0xa0..=0xbf | 0xd9..=0xdb) => {
                let (whole, _) = self.read_text()?;
                self.out.extend_from_slice(whole);
                Ok(())
            }
            // Another key than a text would be taken for a number of the table.
            _ => Err(Unreadable::Content("a field has no name".to_owned())),
        }
    }

    fn text(&mut self) -> Result<(), Unreadable> {
        let (whole, text) = self.read_text()?;
        match number_of(text).filter(|_| self.way == Way::Shorten && text.len() > 2) {
            Some(number) => self.out.extend([0xd4, WORD_EXTENSION, number]),
            None => self.out.extend_from_slice(whole),
        }
        Ok(())
    }

    /// A word that stands as the value of a field.
    fn word(&mut self) -> Result<(), Unreadable> {
        match self.take(3)? {
            [_, WORD_EXTENSION, number] => self.write_word(*number),
            other => {
                self.out.extend_from_slice(other);
                Ok(())
            }
        }
    }

    fn write_word(&mut self, number: u8) -> Result<(), Unreadable> {
        let unknown = || Unreadable::Content(format!("word {number} is not in the table"));
        let word = WORDS.get(usize::from(number)).ok_or_else(unknown)?;
        let length = u8::try_from(word.len()).expect("words are short");
        self.out.push(0xa0 | length);
        self.out.extend_from_slice(word.as_bytes());
        Ok(())
    }

    /// A text with its head, and without.
    fn read_text(&mut self) -> Result<(&'a [u8], &'a [u8]), Unreadable> {
        let first = *self.input.first().ok_or_else(torn)?;
        let (head, length) = match first {
            0xd9 => (2, self.number(1)?),
            0xda => (3, self.number(2)?),
            0xdb => (5, self.number(4)?),
            first => (1, usize::from(first & 0x1f)),
        };
        let whole = self.take(head + length)?;
        Ok((whole, whole.get(head..).unwrap_or_default()))
    }
}

fn number_of(text: &[u8]) -> Option<u8> {
    let at = WORDS.iter().position(|word| word.as_bytes() == text)?;
    u8::try_from(at).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A name that stands for two things, or a number that changed, would turn stored records into others.
    #[test]
    fn the_table_is_as_it_was_released() {
        let mut sorted = WORDS;
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[0] != pair[1]), "no word comes twice");
        assert!(WORDS.iter().all(|word| word.len() < 32), "words have short heads");
        assert!(WORDS.len() <= 128, "the number of a name is one byte");
        let all = WORDS.join(" ");
        assert_eq!(ekiden_core::hash::of_bytes(all.as_bytes()), RELEASED, "words are only added, with this number");
    }

    const RELEASED: u64 = 0x640d_cb8d_41e0_72e9;

    #[test]
    fn whatever_is_shortened_comes_back() {
        let long = "x".repeat(300);
        let texts: BTreeMap<&str, &str> =
            [("phase", "running"), ("unknown", "queued"), ("id", "id"), ("a", ""), ("long", &long)].into();
        let lists = (vec![texts.clone(); 20], vec![1_u64, 200, 70_000, u64::MAX], vec![-1_i64, -200], [1.5_f64]);
        let bytes = serde_bytes_like(&[0, 1, 2, 0xc1]);
        for plain in [
            rmp_serde::to_vec_named(&texts).unwrap(),
            rmp_serde::to_vec_named(&lists).unwrap(),
            rmp_serde::to_vec_named(&(Some(true), None::<u8>, "phase", "running")).unwrap(),
            bytes,
        ] {
            let short = shorten(&plain);
            assert_eq!(short.first(), Some(&SHORT));
            assert_eq!(lengthen(&short).unwrap(), plain);
        }
        let short = shorten(&rmp_serde::to_vec_named(&texts).unwrap());
        assert!(short.len() + 10 < rmp_serde::to_vec_named(&texts).unwrap().len());
    }

    #[test]
    fn plain_values_are_read_and_torn_ones_are_not() {
        let plain = rmp_serde::to_vec_named(&BTreeMap::from([("phase", "running")])).unwrap();
        assert_eq!(lengthen(&plain).unwrap(), plain);
        let short = shorten(&plain);
        for length in 2..short.len() {
            assert!(lengthen(&short[..length]).is_err(), "{length} bytes of {}", short.len());
        }
        assert!(lengthen(&[SHORT, 9, 0xc0]).is_err(), "a table that is not known");
        assert!(lengthen(&[SHORT, TABLE, 0x81, 0x7f, 0xc0]).is_err(), "a word that is not known");
    }

    /// Binary data with its head.
    fn serde_bytes_like(bytes: &[u8]) -> Vec<u8> {
        [&[0xc4, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }
}
