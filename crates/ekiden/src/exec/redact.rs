//! Removes the secrets of a payload from what is written down. Which values are secrets is the matter of `secrets.rs`.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use serde_json::Value;

use super::secrets::{Forms, Secrecy};

/// What stands in a secret's place.
const MASK: &str = "[redacted]";

/// 256 bytes: a longer secret is looked for in pieces of so many. It bounds what a stream holds back, and a part of a long
/// secret is masked as well.
const PIECE_BYTES: usize = 256;

/// A payload as it may be shown: values of secret keys are masked. What is not JSON is not shown at all.
pub fn redacted(payload: &[u8]) -> String {
    match serde_json::from_slice::<Value>(payload) {
        Ok(mut value) => {
            mask(&mut value, Secrecy::Nothing);
            // A secret may stand elsewhere too, as in a string that holds JSON.
            Redactor::of(payload).clean_text(&value.to_string())
        }
        Err(_) => format!("[{} bytes]", payload.len()),
    }
}

fn mask(value: &mut Value, secrecy: Secrecy) {
    match value {
        Value::Object(fields) if secrecy == Secrecy::Nothing => {
            fields.iter_mut().for_each(|(key, value)| mask(value, Secrecy::of_key(key)));
        }
        Value::Array(items) if secrecy != Secrecy::Everything => items.iter_mut().for_each(|item| mask(item, secrecy)),
        Value::Number(_) if secrecy == Secrecy::AllButCounts => {}
        _ if secrecy == Secrecy::Nothing => {}
        _ => *value = Value::String(MASK.to_owned()),
    }
}

/// Masks the secrets of one payload wherever they are about to be written down.
#[derive(Clone, Debug)]
pub(super) enum Redactor {
    /// There are none.
    Nothing,
    /// Looks for these.
    Pieces(Arc<Pieces>),
    /// There are too many to look for, so nothing is shown.
    Everything,
}

/// What is looked for.
#[derive(Debug)]
pub(super) struct Pieces {
    search: AhoCorasick,
    /// Sorted, to find those that begin with something.
    sorted: Vec<Vec<u8>>,
    bytes_max: usize,
}

impl Redactor {
    /// The secrets of a payload.
    pub(super) fn of(payload: &[u8]) -> Self {
        let Some(forms) = Forms::of(payload) else { return Self::Everything };
        let mut sorted: Vec<Vec<u8>> = forms.texts().flat_map(pieces).map(<[u8]>::to_vec).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let Some(bytes_max) = sorted.iter().map(Vec::len).max() else { return Self::Nothing };
        // The kind that takes the least memory and is still quick; the fastest one takes a kilobyte a byte.
        match AhoCorasick::builder().kind(Some(AhoCorasickKind::ContiguousNFA)).build(&sorted) {
            Ok(search) => Self::Pieces(Arc::new(Pieces { search, sorted, bytes_max })),
            Err(_) => Self::Everything,
        }
    }

    /// Whether nothing is shown.
    pub(super) fn hides_everything(&self) -> bool {
        matches!(self, Self::Everything)
    }

    /// The same text without secrets.
    pub(super) fn clean_text(&self, text: &str) -> String {
        if self.hides_everything() {
            return MASK.to_owned();
        }
        let mut stream = RedactedStream::new(self.clone());
        let mut clean = stream.push(text.as_bytes()).into_owned();
        clean.extend_from_slice(&stream.end());
        String::from_utf8_lossy(&clean).into_owned()
    }
}

/// The pieces of a form, which together cover it. The last one reaches back so that it is as long as the others.
fn pieces(form: &[u8]) -> impl Iterator<Item = &[u8]> {
    let last = form.len().saturating_sub(PIECE_BYTES);
    let starts = (0..last).step_by(PIECE_BYTES).chain([last]);
    starts.filter_map(|start| form.get(start..form.len().min(start + PIECE_BYTES)))
}

impl Pieces {
    /// Where pieces stand in a text, in order; those that overlap or touch are one.
    fn found(&self, text: &[u8], covered: usize) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        if covered > 0 {
            found.push(0..covered);
        }
        // They come in the order of their ends.
        for piece in self.search.find_overlapping_iter(text) {
            let mut run = piece.range();
            while let Some(last) = found.pop_if(|last| last.end >= run.start) {
                run = run.start.min(last.start)..run.end.max(last.end);
            }
            found.push(run);
        }
        found
    }

    /// Where the end of a text begins that more bytes may make a piece of.
    fn unfinished(&self, text: &[u8]) -> usize {
        let from = text.len().saturating_sub(self.bytes_max - 1);
        let may_become = |start: &usize| {
            let end = text.get(*start..).unwrap_or_default();
            let next = self.sorted.partition_point(|piece| piece.as_slice() <= end);
            self.sorted.get(next).is_some_and(|piece| piece.starts_with(end))
        };
        (from..text.len()).find(may_become).unwrap_or(text.len())
    }
}

/// One stream of output on its way through a redactor. A secret that comes in several writes is found as well: the stream holds
/// back an end that may be the beginning of a secret, and nothing else, until the next bytes tell.
#[derive(Debug)]
pub(super) struct RedactedStream {
    redactor: Redactor,
    held: Vec<u8>,
    /// How much of what is held belongs to a secret that was found.
    covered: usize,
    /// Whether the last that was given out is a mask, which stands for a secret that goes on as well.
    is_after_mask: bool,
}

impl RedactedStream {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self { redactor, held: Vec::new(), covered: 0, is_after_mask: false }
    }

    /// Takes bytes and gives out what is certain.
    pub(super) fn push<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match self.redactor.clone() {
            Redactor::Nothing => Cow::Borrowed(bytes),
            Redactor::Everything => Cow::Borrowed(&[]),
            Redactor::Pieces(pieces) => {
                self.held.extend_from_slice(bytes);
                let end = pieces.unfinished(&self.held);
                Cow::Owned(self.give(&pieces, end))
            }
        }
    }

    /// Gives out the rest: nothing more comes.
    pub(super) fn end(&mut self) -> Vec<u8> {
        match self.redactor.clone() {
            Redactor::Nothing | Redactor::Everything => Vec::new(),
            Redactor::Pieces(pieces) => self.give(&pieces, self.held.len()),
        }
    }

    /// Gives out what stands before `end`.
    fn give(&mut self, pieces: &Pieces, end: usize) -> Vec<u8> {
        let mut clean = Vec::with_capacity(end);
        if end == 0 {
            return clean;
        }
        let covered = std::mem::take(&mut self.covered);
        let mut at = 0;
        for run in pieces.found(&self.held, covered).into_iter().take_while(|run| run.start < end) {
            clean.extend_from_slice(self.held.get(at..run.start).unwrap_or_default());
            if !(self.is_after_mask && run.start == 0) {
                clean.extend_from_slice(MASK.as_bytes());
            }
            at = run.end.min(end);
            self.covered = run.end - at;
        }
        clean.extend_from_slice(self.held.get(at..end).unwrap_or_default());
        self.is_after_mask = at == end;
        self.held.drain(..end);
        clean
    }
}

#[cfg(test)]
mod tests;
