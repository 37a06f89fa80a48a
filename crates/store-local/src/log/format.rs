//! The bytes of a segment: its header and the headers of its batches, drawn in `docs/formats.md`. Pure: slices in,
//! slices out. All numbers are little-endian.

/// Begins every segment.
const SEGMENT_MAGIC: &[u8; 8] = b"EKIDENLG";

/// Begins every batch.
const BATCH_MAGIC: &[u8; 4] = b"EkBa";

/// Begins the mark behind the last batch of a segment that another follows.
const SEAL_MAGIC: &[u8; 4] = b"EkSe";

/// The format that is written here, and the newest that can be read.
pub(super) const VERSION: u32 = 1;

/// 64: room for fields to come, and a multiple of what batches are aligned to.
pub(super) const SEGMENT_HEADER_BYTES: usize = 64;

/// Magic, length, sequence and two checksums.
pub(super) const BATCH_HEADER_BYTES: usize = 24;

/// A seal is a batch header without a batch; every segment keeps room for it.
pub(super) const SEAL_BYTES: usize = BATCH_HEADER_BYTES;

/// Batches begin at multiples of 8, so that a search for them looks at an eighth of all places.
pub(super) const ALIGN: usize = 8;

/// 1 GiB: a batch is read and written in one piece, and its length must fit its header with room to spare.
pub(super) const BATCH_BYTES_MAX: usize = 1 << 30;

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// The sequence number of its first batch.
    pub(super) first: u64,
    /// The length of the file, so that a file that was cut is noticed.
    pub(super) bytes: u64,
    /// Goes into the checksum of every batch header of this segment. Whoever does not know it cannot write bytes into a
    /// batch that pass for another batch.
    pub(super) salt: u64,
}

/// Why a segment's header is no good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFault {
    Unreadable,
    Newer(u32),
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SEGMENT_HEADER_BYTES);
        out.extend_from_slice(SEGMENT_MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for field in [self.first, self.bytes, self.salt] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.resize(SEGMENT_HEADER_BYTES - 4, 0);
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        out
    }

    /// Magic, version and checksum stay where they are in all formats to come, so that damage and a newer format can be
    /// told apart.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        Self::read(bytes).unwrap_or(Err(HeaderFault::Unreadable))
    }

    fn read(bytes: &[u8]) -> Option<Result<Self, HeaderFault>> {
        let covered = bytes.get(..SEGMENT_HEADER_BYTES - 4)?;
        if !covered.starts_with(SEGMENT_MAGIC) || crc32c::crc32c(covered) != u32_at(bytes, covered.len())? {
            return None;
        }
        match u32_at(bytes, 8)? {
            VERSION => {}
            newer if newer > VERSION => return Some(Err(HeaderFault::Newer(newer))),
            _ => return None,
        }
        Some(Ok(Self { first: u64_at(bytes, 16)?, bytes: u64_at(bytes, 24)?, salt: u64_at(bytes, 32)? }))
    }
}

/// What stands before a batch's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchHeader {
    pub(super) sequence: u64,
    pub(super) length: usize,
    crc: u32,
}

impl BatchHeader {
    /// The header at this place, if one is there that was written whole into a segment with this salt.
    pub(super) fn decode(bytes: &[u8], at: usize, salt: u64) -> Option<Self> {
        Self::decode_as(BATCH_MAGIC, bytes, at, salt)
    }

    fn decode_as(magic: &[u8; 4], bytes: &[u8], at: usize, salt: u64) -> Option<Self> {
        let header = bytes.get(at..)?.get(..BATCH_HEADER_BYTES)?;
        if !header.starts_with(magic) {
            return None;
        }
        let covered = header.get(..BATCH_HEADER_BYTES - 4)?;
        if header_crc(covered, salt) != u32_at(header, covered.len())? {
            return None;
        }
        let length = usize::try_from(u32_at(header, 4)?).ok()?;
        Some(Self { sequence: u64_at(header, 8)?, length, crc: u32_at(header, 16)? })
    }

    /// The batch's bytes, if they are as they were written.
    pub(super) fn body<'a>(&self, bytes: &'a [u8], at: usize) -> Option<&'a [u8]> {
        let body = bytes.get(at.checked_add(BATCH_HEADER_BYTES)?..)?.get(..self.length)?;
        (crc32c::crc32c(body) == self.crc).then_some(body)
    }
}

/// What a batch of so many bytes takes in a segment.
pub(super) const fn framed_bytes(length: usize) -> usize {
    (BATCH_HEADER_BYTES + length).next_multiple_of(ALIGN)
}

/// Puts header, bytes and padding into `out`, which is emptied before.
pub(super) fn frame(out: &mut Vec<u8>, salt: u64, sequence: u64, bytes: &[u8]) {
    out.clear();
    out.reserve(framed_bytes(bytes.len()));
    push_header(out, BATCH_MAGIC, salt, sequence, bytes);
    out.extend_from_slice(bytes);
    out.resize(framed_bytes(bytes.len()), 0);
}

/// What says that the batch with this number is in the next segment.
pub(super) fn seal(salt: u64, sequence: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(SEAL_BYTES);
    push_header(&mut out, SEAL_MAGIC, salt, sequence, &[]);
    out
}

/// The number in a seal at this place.
pub(super) fn sealed_for(bytes: &[u8], at: usize, salt: u64) -> Option<u64> {
    BatchHeader::decode_as(SEAL_MAGIC, bytes, at, salt).map(|seal| seal.sequence)
}

fn push_header(out: &mut Vec<u8>, magic: &[u8], salt: u64, sequence: u64, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("append refuses batches beyond BATCH_BYTES_MAX");
    let start = out.len();
    out.extend_from_slice(magic);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
    let crc = header_crc(out.get(start..).unwrap_or_default(), salt);
    out.extend_from_slice(&crc.to_le_bytes());
}

fn header_crc(covered: &[u8], salt: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), covered)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}
