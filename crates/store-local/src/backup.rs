//! Backups: a copy of a store that is in use, in a new folder that opens as a store.

use std::io;
use std::path::{Path, PathBuf};

use ekiden_core::reason::{ReasonCode, Refusal};
use ekiden_store::StoreError;
use redb::ReadTransaction;

use crate::checkpoint::Checkpoint;
use crate::disk::Disk;
use crate::shared::Shared;
use crate::{LocalStore, checkpointer, error};

/// 16 checkpoints: one is enough unless an earlier one failed and has to be repeated first.
const ROUNDS_MAX: usize = 16;

impl LocalStore {
    /// Copies everything that was acknowledged before, and perhaps some of what is acknowledged meanwhile, as it was at one
    /// moment. The store goes on. The folder must not be there; until the copy is whole and durable it has `.partial` behind
    /// its name. Blocks while it copies.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let (shared, disk) = (&self.shared, &self.shared.options.disk);
        let mut partial = to.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        for place in [to, &partial] {
            if is_taken(disk.as_ref(), place) {
                return Err(Refusal::new(ReasonCode::BackupExists).with("path", place.display()).into());
            }
        }
        let view = view(shared)?;
        disk.create_folder(&partial).map_err(|source| error::io(&partial, source))?;
        let copy = Checkpoint::open(disk.clone(), &partial, shared.options.cache_bytes)?;
        copy.fill_from(&view)?;
        copy.close();
        disk.rename(&partial, to).map_err(|source| error::io(to, source))?;
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        disk.sync_folder(parent).map_err(|source| error::io(parent, source))
    }
}

/// A view of the checkpoint that has everything there is now.
fn view(shared: &Shared) -> Result<ReadTransaction, StoreError> {
    let revision = shared.desk().shelf.revision();
    for _ in 0..ROUNDS_MAX {
        shared.desk().is_open()?;
        checkpointer::write(shared)?;
        if let Some(view) = shared.checkpoint.view(revision)? {
            return Ok(view);
        }
    }
    Err(StoreError::unavailable("the checkpoint does not catch up"))
}

fn is_taken(disk: &dyn Disk, place: &Path) -> bool {
    !disk.list(place).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
