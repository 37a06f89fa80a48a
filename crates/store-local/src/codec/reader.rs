//! Takes bytes apart, from the front, and never reads beyond their end.

use ekiden_core::id::OpId;
use ekiden_core::newer::Versions;
use ekiden_core::time::Timestamp;
use ekiden_store::shelf::Stamp;

use super::{OURS, Unreadable};

/// What is left of some bytes, and which versions the record in them has.
pub(crate) struct Reader<'a>(&'a [u8], Versions);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes, OURS)
    }

    /// The versions that were read last; ours before any.
    pub(crate) const fn versions(&self) -> Versions {
        self.1
    }

    /// Two bytes: the version that wrote what follows, and the lowest that may write it.
    pub(crate) fn take_versions(&mut self) -> Result<Versions, Unreadable> {
        let [version, min_writer] = self.array()?;
        self.1 = Versions { version, min_writer };
        Ok(self.1)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is left, without taking it.
    pub(crate) const fn peek(&self) -> &'a [u8] {
        self.0
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Unreadable> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Unreadable::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        self.bytes(N)?.try_into().map_err(|_| Unreadable::Short)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Unreadable> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Unreadable> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Unreadable> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Unreadable> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Unreadable> {
        self.array().map(i32::from_le_bytes)
    }

    pub(crate) fn time(&mut self) -> Result<Timestamp, Unreadable> {
        self.array().map(i64::from_le_bytes).map(Timestamp::from_millis)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, Unreadable> {
        self.array().map(u128::from_le_bytes)
    }

    fn op(&mut self) -> Result<OpId, Unreadable> {
        self.u128().map(OpId::from_bits)
    }

    pub(crate) fn stamp(&mut self) -> Result<Stamp, Unreadable> {
        Ok(Stamp { revision: self.u64()?, created_by: self.op()?, last: self.op()? })
    }

    /// A length in four bytes, and so many bytes.
    pub(crate) fn sized(&mut self) -> Result<&'a [u8], Unreadable> {
        let count = usize::try_from(self.u32()?).map_err(|_| Unreadable::Short)?;
        self.bytes(count)
    }

    /// A length in two bytes, and so much text.
    pub(crate) fn text(&mut self) -> Result<&'a str, Unreadable> {
        let count = usize::from(self.u16()?);
        std::str::from_utf8(self.bytes(count)?).map_err(|error| Unreadable::Content(error.to_string()))
    }
}

pub(crate) fn put_stamp(stamp: &Stamp, into: &mut Vec<u8>) {
    into.extend_from_slice(&stamp.revision.to_le_bytes());
    into.extend_from_slice(&stamp.created_by.as_bits().to_le_bytes());
    into.extend_from_slice(&stamp.last.as_bits().to_le_bytes());
}

/// Names are bounded well below two bytes of length.
pub(crate) fn put_text(text: &str, into: &mut Vec<u8>) {
    into.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
    into.extend_from_slice(text.as_bytes());
}
