//! Room that is kept for a full disk. The log has its spare segments; the checkpoint has one file, given back to the disk when
//! nothing else is left, so that tasks that are here can still come to their end.

use std::path::PathBuf;

use crate::disk::{How, as_u64};
use crate::shared::Shared;

const FILE: &str = "reserve";

fn path(shared: &Shared) -> PathBuf {
    shared.folder.join(FILE)
}

/// Takes the room, if it is not taken. Without it new tasks are refused, so that nothing else uses up what is left.
pub(crate) fn keep(shared: &Shared) {
    let bytes = as_u64(shared.options.reserve_bytes);
    let taken = shared
        .options
        .disk
        .open(&path(shared), How::OrNew)
        .and_then(|file| if file.len()? < bytes { file.allocate(0, bytes) } else { Ok(()) });
    let is_short = taken.is_err();
    if let Err(error) = taken {
        tracing::warn!(%error, "the disk has no room for the reserve");
        spend(shared);
    }
    shared.is_checkpoint_full.store(is_short, std::sync::atomic::Ordering::Relaxed);
}

/// Gives the room back to the disk.
pub(crate) fn spend(shared: &Shared) {
    if let Err(error) = shared.options.disk.remove(&path(shared)) {
        tracing::debug!(%error, "the reserve was spent already");
    }
}
