//! Folders that belong to this user alone, in which commands may do what they like: opened once, and removed whatever is in
//! them.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, accessat, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{Found, check_owner, what_is_there};

/// Opens a folder of this user, who can change it, and nobody else can.
pub(crate) fn open(path: &Path) -> io::Result<OwnedFd> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(CWD, path, how, Mode::empty()).map_err(|errno| what_is_there(CWD, path, errno))?;
    let stat = fstat(&folder)?;
    if stat.st_uid != geteuid().as_raw() {
        return Err(io::Error::other(Found::OwnedBy(stat.st_uid)));
    }
    if Mode::from_raw_mode(stat.st_mode).intersects(Mode::WGRP | Mode::WOTH) {
        return Err(io::Error::other(Found::WritableByOthers));
    }
    accessat(&folder, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())?;
    Ok(folder)
}

/// Refuses a folder whose parent lets other users rename it: one that all may write and that is not sticky, or another user's.
/// Members of a group that may write the parent are trusted.
pub(crate) fn check_parent(folder: impl AsFd) -> io::Result<()> {
    let parent = statat(folder, "..", AtFlags::empty())?;
    let mode = Mode::from_raw_mode(parent.st_mode);
    if mode.contains(Mode::WOTH) && !mode.contains(Mode::SVTX) {
        return Err(io::Error::other(Found::WritableByOthers));
    }
    check_owner(&parent)
}

/// What stands at the path of a folder that is open, if it is not this folder. Nothing there is no finding.
pub(crate) fn instead_of(folder: impl AsFd, path: &Path) -> io::Result<Option<Found>> {
    let ours = fstat(folder)?;
    match statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) => Ok(None),
        Ok(there) => Ok(Some(Found::kind(&there))),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR) => Ok(Some(Found::File)),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes what is at a path with all below it, however deep that is and whatever its modes allow. `Ok` if nothing is there.
///
/// The standard library calls itself for each level, and a command can make more levels than a thread has stack. Here a folder
/// below the first level is moved up to it before it is emptied, so that no path gets longer either.
pub(crate) fn remove_all(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    allow_owner(path);
    let mut moved = 0;
    loop {
        let mut is_empty = true;
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            is_empty = false;
            if entry.file_type()?.is_dir() {
                remove_folder(&entry.path(), path, &mut moved)?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        if is_empty {
            return fs::remove_dir(path);
        }
    }
}

/// Removes a folder, and moves the folders in it up.
fn remove_folder(folder: &Path, up: &Path, moved: &mut u64) -> io::Result<()> {
    allow_owner(folder);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            fs::remove_file(entry.path())?;
            continue;
        }
        // One that may not be written may not be moved.
        allow_owner(&entry.path());
        loop {
            *moved += 1;
            match fs::rename(entry.path(), up.join(moved.to_string())) {
                // Something else has this name.
                Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory) => {}
                renamed => break renamed?,
            }
        }
    }
    fs::remove_dir(folder)
}

/// Lets its owner do all with a folder. What is another's stays as it is, and may be empty.
fn allow_owner(folder: &Path) {
    let _ = fs::set_permissions(folder, Permissions::from_mode(0o700));
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{FileType, mknodat};

    use super::*;

    #[test]
    fn a_folder_that_was_put_in_the_place_of_ours_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let (path, away) = (root.path().join("a"), root.path().join("b"));
        fs::create_dir(&path).unwrap();
        let ours = open(&path).unwrap();
        assert_eq!(instead_of(&ours, &path).unwrap(), None);
        fs::rename(&path, &away).unwrap();
        assert_eq!(instead_of(&ours, &path).unwrap(), None, "nothing is there");
        symlink(&away, &path).unwrap();
        assert_eq!(instead_of(&ours, &path).unwrap(), Some(Found::Symlink));
        assert_eq!(Found::of(&open(&path).unwrap_err()), Some(Found::Symlink));
        let fifo = root.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(Found::of(&open(&fifo).unwrap_err()), Some(Found::Fifo));
    }
}
