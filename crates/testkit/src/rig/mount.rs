//! Something that is mounted, and is unmounted whatever happens to the test.

use std::path::{Path, PathBuf};

use super::missing::{Missing, tool};

/// What to do where mounting is not allowed.
pub(super) const TODO: &str = "run the tests as root, in a container with `--privileged` and loop devices; \
     programs: `apt-get install e2fsprogs mount perl-base`";

/// A mounted file system.
#[derive(Debug)]
pub(super) struct Mount {
    point: PathBuf,
}

impl Mount {
    /// Mounts by the machine's `mount`, whose arguments but the last these are.
    pub(super) fn new(arguments: &[&str], point: &Path) -> Result<Self, Missing> {
        let place = point.to_string_lossy();
        tool("mount", &[arguments, &[&place]].concat(), TODO)?;
        Ok(Self { point: point.to_owned() })
    }

    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    /// Unmounts, and says so if somebody still uses it.
    pub(super) fn end(self) -> Result<(), Missing> {
        let done = tool("umount", &[&self.point.to_string_lossy()], TODO);
        if done.is_ok() {
            std::mem::forget(self);
        }
        done.map(drop)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = tool("umount", &["--lazy", &self.point.to_string_lossy()], TODO);
    }
}
