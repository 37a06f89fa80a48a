//! A folder for one rig, gone when the rig is. What a killed test left, mounts included, is cleared by the next one: an owner
//! keeps a file locked, and a lock ends with its process, whatever became of it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::missing::tool;

/// The mount point inside a scratch folder.
const MOUNT: &str = "mnt";

/// The file that its owner keeps locked.
const OWNER: &str = "owner.lock";

/// 1 GiB: room for several images at once. Containers often have 64 MiB there.
const MEMORY_BYTES_MIN: u64 = 1 << 30;

/// A folder that belongs to one rig.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    keeps: bool,
    _owner: File,
}

impl Scratch {
    /// A new folder on the machine's own file system.
    pub fn new() -> io::Result<Self> {
        Self::below(&std::env::temp_dir())
    }

    /// A new folder in memory where the machine has enough of that, for what is slow on a disk.
    pub(super) fn in_memory() -> io::Result<Self> {
        let shared = Path::new("/dev/shm");
        let free = rustix::fs::statvfs(shared).map_or(0, |found| found.f_bavail * found.f_frsize);
        if free < MEMORY_BYTES_MIN { Self::new() } else { Self::below(shared).or_else(|_| Self::new()) }
    }

    fn below(place: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Each user has his own: nobody can clear what belongs to others.
        let base = place.join(format!("ekiden-rigs-{}", rustix::process::geteuid().as_raw()));
        fs::create_dir_all(&base)?;
        // Held while a folder is made or cleared, so that nobody clears one whose owner has not locked it yet.
        let door = File::options().create(true).append(true).open(base.join("door.lock"))?;
        door.lock()?;
        clear(&base);
        let path = base.join(format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst)));
        fs::create_dir_all(path.join(MOUNT))?;
        let owner = File::options().create(true).append(true).open(path.join(OWNER))?;
        owner.lock()?;
        Ok(Self { path, keeps: false, _owner: owner })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether what is in it stays when the rig ends, until the next one clears it. Without a word it stays after a panic only.
    pub(super) fn set_kept(&mut self, keeps: bool) {
        self.keeps = keeps;
    }

    /// A place to mount something at.
    pub(super) fn mount_point(&self) -> PathBuf {
        self.path.join(MOUNT)
    }
}

impl Drop for Scratch {
    /// Kept after a failure: its histories are what one wants to read then. The next rig clears it.
    fn drop(&mut self) {
        if !self.keeps && !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Removes what has no owner any more. A folder that resists is left; it is in nobody's way.
fn clear(base: &Path) {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| path.is_dir()) {
        let Ok(owner) = File::open(path.join(OWNER)) else { continue };
        if owner.try_lock().is_ok() {
            let point = path.join(MOUNT);
            // Nothing may be mounted there; then this fails, as it should.
            let _ = tool("umount", &["--lazy", &point.to_string_lossy()], "");
            let _ = fs::remove_dir(&point).and_then(|()| fs::remove_dir_all(&path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_owner_any_more_is_cleared_and_what_has_one_stays() {
        let place = Scratch::new().unwrap();
        let living = Scratch::below(place.path()).unwrap();
        let dead = living.path().with_file_name("dead");
        fs::create_dir_all(dead.join(MOUNT)).unwrap();
        fs::write(dead.join(OWNER), "").unwrap();
        let other = Scratch::below(place.path()).unwrap();
        assert!(!dead.exists());
        assert!(living.path().exists() && other.path().exists() && living.path() != other.path());
        drop(other);
        assert!(living.path().exists());
    }
}
