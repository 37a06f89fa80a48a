//! Opening what a store keeps in its folder. A project folder from somewhere else can bring links, and each would lead the store
//! into another file of its user: so no link is followed, and the opened file is checked before a byte is used.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, lstat, open as open_path};
use rustix::io::retry_on_intr;
use rustix::process::geteuid;

use super::How;

/// Only the owner reads and writes.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

const ROOT: u32 = 0;

/// What stands in the place of a file or folder of the store.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Found(String);

impl Found {
    /// What an error of this module found.
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// Opens a regular file for reading and writing.
pub(super) fn open(path: &Path, how: How) -> io::Result<File> {
    let create = match how {
        How::Existing => OFlags::empty(),
        How::New => OFlags::CREATE | OFlags::EXCL,
        How::OrNew => OFlags::CREATE,
    };
    open_as(path, OFlags::RDWR | create, FileType::RegularFile)
}

/// Refuses what is no folder of this user. One that is missing is fine.
pub(super) fn check_folder(path: &Path) -> io::Result<()> {
    match open_as(path, OFlags::RDONLY | OFlags::DIRECTORY, FileType::Directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        opened => opened.map(drop),
    }
}

fn open_as(path: &Path, how: OFlags, wanted: FileType) -> io::Result<File> {
    // Without NONBLOCK the open of a FIFO may wait for ever.
    let how = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = retry_on_intr(|| open_path(path, how, FILE_MODE));
    let file = File::from(opened.map_err(|errno| {
        // What is there tells more than that it could not be opened.
        lstat(path).map_err(io::Error::from).and_then(|there| check(&there, wanted)).err().unwrap_or(errno.into())
    })?);
    check(&fstat(&file)?, wanted)?;
    Ok(file)
}

fn check(stat: &Stat, wanted: FileType) -> io::Result<()> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let found = if kind != wanted {
        name(kind).to_owned()
    } else if !may_own(stat.st_uid, geteuid().as_raw()) {
        format!("owned by user {}", stat.st_uid)
    } else {
        return Ok(());
    };
    Err(io::Error::other(Found(found)))
}

/// Root can change every file anyway, and looks after stores of other users.
const fn may_own(owner: u32, user: u32) -> bool {
    owner == user || owner == ROOT || user == ROOT
}

const fn name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_user_is_not_opened_unless_root_asks() {
        assert!(may_own(1_000, 1_000) && may_own(ROOT, 1_000) && may_own(1_000, ROOT));
        assert!(!may_own(1_001, 1_000));
    }
}
