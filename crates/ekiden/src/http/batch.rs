//! Batches in requests of a size that is taken: cut by their bytes before they are sent, and once more where the server, or a
//! proxy on the way, says that a body is too large.

use bytes::Bytes;
use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_wire as wire;
use serde::Serialize;

use crate::error::{Error, Result};

/// Parts of a batch that are still to be sent, the next one last.
pub(super) struct Parts<T>(Vec<Vec<T>>);

impl<T> Parts<T> {
    /// One part with everything; with nothing there is one part as well.
    pub(super) fn of(items: Vec<T>) -> Self {
        Self(vec![items])
    }

    /// The next part. It may be sent, or put back in halves.
    pub(super) fn next(&mut self) -> Option<Vec<T>> {
        self.0.pop()
    }

    /// Whether the part that was taken is the last one.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts a part back that is too large, in two halves.
    pub(super) fn halve(&mut self, mut items: Vec<T>) {
        let second = items.split_off(items.len() / 2);
        self.0.push(second);
        self.0.push(items);
    }
}

/// A body, if it is not too large for any server.
pub(super) fn body(content: &impl Serialize) -> Result<Bytes> {
    let bytes = serde_json::to_vec(content).map_err(Error::payload)?;
    if bytes.len() > wire::BATCH_BYTES_MAX {
        let refusal = Refusal::new(ReasonCode::BodyTooLarge).with("bytes", bytes.len());
        return Err(refusal.with("bytes_max", wire::BATCH_BYTES_MAX).into());
    }
    Ok(bytes.into())
}

/// Whether a request was refused for its size. An earlier try of it may have happened; parts of it have the same ids.
pub(super) fn is_too_large(error: &Error) -> bool {
    error.code() == ReasonCode::BodyTooLarge
}

/// What a body that is too large with a single item says of that item: no request can carry it.
pub(super) fn item_too_large(error: &Error) -> Error {
    let refusal = Refusal { code: ReasonCode::PayloadTooLarge, context: error.refusal().context.clone() };
    Error::from(refusal).after(Some(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_halved_until_each_is_taken_and_stay_in_order() {
        for taken_max in 1..=9 {
            let mut parts = Parts::of((0..9).collect::<Vec<u32>>());
            let (mut sent, mut lasts) = (Vec::new(), 0);
            while let Some(part) = parts.next() {
                if part.len() > taken_max {
                    parts.halve(part);
                    continue;
                }
                lasts += usize::from(parts.is_over());
                sent.extend(part);
            }
            assert_eq!((sent, lasts), ((0..9).collect(), 1), "at most {taken_max}");
        }
    }
}
