//! How much of its disk a store takes for itself: as its options say on a large disk, and fixed shares of a small one, so that
//! most of that is left to tasks.

use std::path::Path;

use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_store::{Happened, StoreError};

use crate::disk::{Disk, Found, How};
use crate::log::{self, Log};
use crate::{Options, error, reserve};

/// One part in 16 for a segment: at rest the log has two, in use it has three, and a few more between two checkpoints.
const SEGMENT_SHARE: u64 = 16;

/// One part in 8 for the spares that are kept after a busy time.
const SPARES_SHARE: u64 = 8;

/// A quarter for the reserve, which has to hold a checkpoint of everything that is not written yet.
const RESERVE_SHARE: u64 = 4;

/// One part in 8 for changes that wait for the checkpoint. They are in the log for so long, and its segments are not free.
const UNWRITTEN_SHARE: u64 = 8;

/// 12 spares: with segments of 16 MiB the log of three seconds at full speed, all of which are used again.
const SPARES_MAX: u64 = 12;

/// 1 MiB: smaller segments would be begun too often.
const SHARE_BYTES_MIN: u64 = 1 << 20;

/// 8 MiB: a new checkpoint, two of the smallest segments, the smallest reserve, and room for the first tasks.
const NEW_STORE_BYTES_MIN: u64 = 8 << 20;

/// What the store may plan with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// What is free, and what its own log and reserve have taken already.
    bytes: u64,
    /// The length of its spare segments; zero if it has none.
    spare_bytes: u64,
}

impl Room {
    /// The room of the store in this folder, which may be a new one.
    pub(crate) fn find(disk: &dyn Disk, folder: &Path) -> Result<Self, StoreError> {
        let free = disk.free_bytes(folder).map_err(|source| error::io(folder, source))?;
        let length = |path: &Path| disk.open(path, How::Existing).and_then(|file| file.len());
        let reserve = folder.join(reserve::FILE);
        let kept = match length(&reserve) {
            Err(source) if Found::of(&source).is_some() => return Err(error::io(&reserve, source)),
            length => length.unwrap_or(0),
        };
        let mut room = Self { bytes: free.saturating_add(kept), spare_bytes: 0 };
        let log_folder = folder.join(log::FOLDER);
        for name in disk.list(&log_folder).unwrap_or_default() {
            // A file that cannot be opened counts for nothing here; whether that is damage is told when it is read.
            let bytes = length(&log_folder.join(&name)).unwrap_or(0);
            room.bytes = room.bytes.saturating_add(bytes);
            if Log::is_spare(&name) {
                room.spare_bytes = room.spare_bytes.max(bytes);
            }
        }
        Ok(room)
    }

    /// Refuses to begin a store where there is no room for one, and says how much it needs.
    pub(crate) fn check_new(self, folder: &Path) -> Result<(), StoreError> {
        if self.bytes >= NEW_STORE_BYTES_MIN {
            return Ok(());
        }
        let refusal = Refusal::new(ReasonCode::StoreFull).with("path", folder.display());
        let refusal = refusal.with("free_bytes", self.bytes).with("needed_bytes", NEW_STORE_BYTES_MIN);
        Err(StoreError { happened: Happened::NotApplied, retryable: true, refusal, source: None })
    }

    /// Options that fit in this room. None becomes larger than it was.
    pub(crate) fn fit(self, options: Options) -> Options {
        let share = |part: u64| (self.bytes / part).max(SHARE_BYTES_MIN);
        let fit = |bytes: usize, part: u64| bytes.min(usize::try_from(share(part)).unwrap_or(usize::MAX));
        // A power of two, and never less than before: spares of another length are removed, and a disk that foreign
        // files have filled meanwhile may have no room for new ones.
        let segment_bytes = (1 << share(SEGMENT_SHARE).ilog2()).max(self.spare_bytes);
        Options {
            segment_bytes: options.segment_bytes.min(segment_bytes),
            reserve_bytes: fit(options.reserve_bytes, RESERVE_SHARE),
            unwritten_bytes_max: fit(options.unwritten_bytes_max, UNWRITTEN_SHARE),
            ..options
        }
    }

    /// How many spares are kept: two at least, so that a log in use goes on without a pause.
    pub(crate) fn spares_max(self, segment_bytes: u64) -> usize {
        let spares = (self.bytes / SPARES_SHARE / segment_bytes.max(1)).clamp(2, SPARES_MAX);
        usize::try_from(spares).unwrap_or(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::as_u64;

    #[test]
    fn a_large_disk_gives_what_the_options_say_and_a_small_one_its_share() {
        let room = |bytes, spare_bytes| Room { bytes, spare_bytes };
        let sizes = |bytes: u64| {
            let options = room(bytes, 0).fit(Options::default());
            let spares = room(bytes, 0).spares_max(options.segment_bytes);
            (options.segment_bytes, spares, as_u64(options.reserve_bytes), as_u64(options.unwritten_bytes_max))
        };
        let whole = Options::default();
        let all = (whole.segment_bytes, 12, as_u64(whole.reserve_bytes), as_u64(whole.unwritten_bytes_max));
        assert_eq!(sizes(u64::MAX), all);
        assert_eq!(sizes(64 << 20), (4 << 20, 2, 16 << 20, 8 << 20));
        assert_eq!(sizes(60 << 20), (2 << 20, 3, 15 << 20, 7_864_320));
        assert_eq!(sizes(0), (1 << 20, 2, 1 << 20, 1 << 20));
        let small = room(64 << 20, 0).fit(Options { segment_bytes: 4_096, reserve_bytes: 0, ..Options::default() });
        assert_eq!((small.segment_bytes, small.reserve_bytes), (4_096, 0), "nothing becomes larger than it was");
        assert_eq!(
            room(20 << 20, 4 << 20).fit(Options::default()).segment_bytes,
            4 << 20,
            "the spares that are there fit"
        );
        assert_eq!(room(20 << 20, 32 << 20).fit(Options::default()).segment_bytes, whole.segment_bytes);
    }
}
