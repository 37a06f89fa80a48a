//! The folder of one attempt: where the command works, where it leaves its result, and where its side channel is.

use std::fs::{self, DirBuilder};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use ekiden_core::hash;
use ekiden_core::limits;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::geteuid;

use crate::context::Context;

/// What becomes of a folder when its attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    No,
    Yes,
}

/// Removed when it is dropped, unless it is to be kept.
pub(super) struct Folder {
    path: PathBuf,
    keep: Keep,
}

impl Folder {
    /// Makes the folder of an attempt below a root, which belongs to this user alone.
    pub(super) fn make(root: &Path, context: &Context, keep: Keep) -> io::Result<Self> {
        private(root)?;
        let spec = context.task();
        let name = format!("{}/{}", spec.namespace, spec.id);
        let name = format!("{:016x}-{}-{}", hash::of_bytes(name.as_bytes()), context.token().0, std::process::id());
        let path = root.join(name);
        // Left by a process that had the same number long ago.
        if fs::exists(&path)? {
            fs::remove_dir_all(&path)?;
        }
        DirBuilder::new().mode(0o700).create(&path)?;
        let folder = Self { path, keep };
        DirBuilder::new().mode(0o700).create(folder.work())?;
        mknodat(CWD, folder.events(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        Ok(folder)
    }

    /// What somebody else has to remove if this process cannot.
    pub(super) fn left_behind(&self) -> Option<PathBuf> {
        (self.keep == Keep::No).then(|| self.path.clone())
    }

    /// Where the command works, if it has no other place.
    pub(super) fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    /// The file that the command writes its result to.
    pub(super) fn result(&self) -> PathBuf {
        self.path.join("result")
    }

    /// The pipe that the command says things through.
    pub(super) fn events(&self) -> PathBuf {
        self.path.join("events")
    }

    /// What the command left as its result, and one byte more than is allowed of one that is too large.
    pub(super) fn read_result(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match fs::File::open(self.result()) {
            Ok(file) if file.metadata()?.is_file() => {
                file.take(limits::RESULT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
                Ok(bytes)
            }
            Ok(_) => Err(io::Error::other("the result is no file")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(bytes),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep == Keep::No
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the folder of an attempt");
        }
    }
}

/// `ekiden-UID` below the folder for temporary files.
pub(super) fn usual_root() -> PathBuf {
    std::env::temp_dir().join(format!("ekiden-{}", geteuid().as_raw()))
}

/// Makes a folder that nobody else can look into, or refuses one that somebody else made in its place.
fn private(root: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(root)?;
    let found = fs::symlink_metadata(root)?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("{} is not a folder of this user alone", root.display())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// X6: a folder that others can write to is no place for a task's files.
    #[test]
    fn a_root_of_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        private(&folder.path().join("new")).unwrap();
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(private(&open).is_err());
        let link = folder.path().join("link");
        symlink(folder.path().join("new"), &link).unwrap();
        assert!(private(&link).is_err());
    }
}
