//! The disk of this machine.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::Path;

use rustix::fs::FallocateFlags;

use super::{At, Disk, DiskFile, DiskFolder, How, LockGuard, owned, write_zeros};

/// Only the owner enters.
const FOLDER_MODE: u32 = 0o700;

/// Files through the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        let parent = parent(folder);
        if !parent.exists() {
            self.create_folder(parent)?;
        }
        match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            made => made?,
        }
        // Also for a folder that was there: whoever made it may have crashed before this line.
        self.sync_folder(parent).map_err(At::name(parent))
    }

    fn check_folder(&self, folder: &Path) -> io::Result<()> {
        owned::check_folder(folder)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn open(&self, path: &Path, how: How) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(owned::open(path, how)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn open_folder(&self, folder: &Path) -> io::Result<Box<dyn DiskFolder>> {
        Ok(Box::new(File::open(folder)?))
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let found = rustix::fs::statvfs(folder)?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn lock(&self, path: &Path) -> io::Result<LockGuard> {
        let file = owned::open(path, How::OrNew)?;
        match file.try_lock() {
            // The lock goes with the last handle of the file.
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl DiskFolder for File {
    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }
}

impl DiskFile for File {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        uninterrupted(|| FileExt::read_at(self, into, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        uninterrupted(|| FileExt::write_at(self, bytes, offset))
    }

    fn sync_data(&self) -> io::Result<()> {
        Self::sync_data(self)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        Self::set_len(self, bytes)
    }

    fn allocate(&self, from: u64, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(self, FallocateFlags::empty(), from, bytes) {
            // Some file systems cannot promise space; what is behind the end can at least be taken by writing it.
            Err(rustix::io::Errno::OPNOTSUPP) => {
                write_zeros(self, DiskFile::len(self)?.max(from), from.saturating_add(bytes))
            }
            allocated => Ok(allocated?),
        }
    }
}

/// A call that a signal interrupted did nothing.
fn uninterrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

/// The folder that a path stands in; of a bare name, the current one.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::disk::{read_full, write_full};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn folders_and_files_are_for_their_owner_only() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/b");
        SystemDisk.create_folder(&folder).unwrap();
        SystemDisk.create_folder(&folder).unwrap();
        SystemDisk.open(&folder.join("c"), How::New).unwrap();
        assert_eq!([mode(&root.path().join("a")), mode(&folder), mode(&folder.join("c"))], [0o700, 0o700, 0o600]);
        assert_eq!(SystemDisk.list(&folder).unwrap(), ["c"]);
        assert!(SystemDisk.free_bytes(&folder).unwrap() > 0);
    }

    #[test]
    fn how_says_which_file_is_meant() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        let kind = |how| SystemDisk.open(&path, how).map(|_| ()).map_err(|error| error.kind());
        assert_eq!(kind(How::Existing), Err(io::ErrorKind::NotFound));
        assert_eq!(kind(How::New), Ok(()));
        assert_eq!(kind(How::New), Err(io::ErrorKind::AlreadyExists));
        assert_eq!([kind(How::Existing), kind(How::OrNew)], [Ok(()), Ok(())]);
    }

    #[test]
    fn a_file_keeps_what_was_written_and_grows_with_zeros() {
        let root = tempfile::tempdir().unwrap();
        let file = SystemDisk.open(&root.path().join("a"), How::New).unwrap();
        file.allocate(0, 10_000).unwrap();
        write_full(&*file, b"hello", 7).unwrap();
        file.set_len(9_000).unwrap();
        file.sync_data().unwrap();
        let mut bytes = vec![1; 9_500];
        assert_eq!(read_full(&*file, &mut bytes, 5).unwrap(), 8_995);
        assert_eq!(&bytes[..9], b"\0\0hello\0\0");
        assert_eq!(file.len().unwrap(), 9_000);
    }

    #[test]
    fn a_lock_is_held_until_it_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("lock");
        let held = SystemDisk.lock(&path).unwrap();
        assert_eq!(SystemDisk.lock(&path).map(|_| ()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        SystemDisk.lock(&path).unwrap();
    }
}
