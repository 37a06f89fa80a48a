//! Compacting: what purged tasks left free inside the checkpoint's file goes back to the disk.

use std::path::Path;

use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_store::StoreError;

use crate::checkpoint::Checkpoint;
use crate::disk::SystemDisk;
use crate::{LocalStore, Options, open};

/// What compacting did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// How long the checkpoint's file was.
    pub before_bytes: u64,
    /// How long it is now.
    pub after_bytes: u64,
}

impl LocalStore {
    /// Whether there is a store in this folder.
    pub fn is_at(folder: &Path) -> bool {
        Checkpoint::is_in(&SystemDisk, folder)
    }

    /// Makes the files of a store that nobody has open as small as they can be. What the log has goes into the checkpoint
    /// first. Blocks until it is done; a crash in between loses nothing.
    pub fn compact(folder: &Path, options: Options) -> Result<Compacted, StoreError> {
        let (disk, cache_bytes) = (options.disk.clone(), options.cache_bytes);
        if !Checkpoint::is_in(disk.as_ref(), folder) {
            return Err(Refusal::new(ReasonCode::StoreNotFound).with("path", folder.display()).into());
        }
        drop(Self::open(folder, Options { checkpoint_on_close: true, ..options })?);
        let lock = open::lock(disk.as_ref(), folder)?;
        let (checkpoint, lock) = open::open_checkpoint(&disk, folder, cache_bytes, lock)?;
        let (before_bytes, after_bytes) = checkpoint.compact()?;
        drop(lock);
        Ok(Compacted { before_bytes, after_bytes })
    }
}
