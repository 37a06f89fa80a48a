//! Files that another program may have put in the way: a FIFO that nobody writes to, a device that never ends, a link that
//! leads elsewhere. Every such file is opened here: the open never blocks, the opened file is checked before a byte is used,
//! and a read has a limit.

#[cfg(all(feature = "exec", target_os = "linux"))]
pub(crate) mod folders;

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::AsFd;
use std::path::Path;

use ekiden_core::reason::{ReasonCode, Refusal};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Only the owner reads and writes what is created here.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Root may own what this user reads: it could read and change it anyway.
const ROOT: u32 = 0;

/// Who may have put a file where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// This user (or root) alone, in a folder that Ekiden keeps: no link is followed, and no other owner is accepted.
    Ours,
    /// The user, by hand: it may be a link, and somebody else's.
    Named,
}

/// What was found in the place of a regular file of this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A device.
    Device,
    /// A folder.
    Folder,
    /// A regular file.
    File,
    /// A file or folder of another user.
    OwnedBy(u32),
    /// A folder that others can change.
    WritableByOthers,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symlink => f.write_str("a symbolic link"),
            Self::Fifo => f.write_str("a FIFO"),
            Self::Socket => f.write_str("a socket"),
            Self::Device => f.write_str("a device"),
            Self::Folder => f.write_str("a folder"),
            Self::File => f.write_str("a file"),
            Self::OwnedBy(uid) => write!(f, "owned by user {uid}"),
            Self::WritableByOthers => f.write_str("writable by other users"),
        }
    }
}

impl std::error::Error for Found {}

impl Found {
    fn kind(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Folder,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            _ => Self::Device,
        }
    }

    /// What an error of this module found, if it is one of these.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// The error as a refusal that names the file and what was found there.
pub fn refusal(path: &Path, error: &io::Error) -> Refusal {
    match Found::of(error) {
        Some(found) => Refusal::new(ReasonCode::FileUnsafe).with("path", path.display()).with("found", found),
        None => Refusal::new(ReasonCode::FileUnavailable).with("path", path.display()).with("why", error),
    }
}

/// Opens a file to read it.
pub fn open(path: &Path, trust: Trust) -> io::Result<File> {
    open_at(CWD, path, OFlags::RDONLY, trust)
}

/// Reads a whole file. One that is longer than the limit is an error.
pub fn read(path: &Path, trust: Trust, bytes_max: u64) -> io::Result<Vec<u8>> {
    let bytes = read_up_to(open(path, trust)?, bytes_max.saturating_add(1))?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Reads a whole file as text.
pub fn read_text(path: &Path, trust: Trust, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read(path, trust, bytes_max)?).map_err(|why| io::Error::new(ErrorKind::InvalidData, why))
}

/// Opens a file of ours to write it, and makes it if it is not there. What it holds stays.
pub fn write(path: &Path) -> io::Result<File> {
    open_at(CWD, path, OFlags::WRONLY | OFlags::CREATE, Trust::Ours)
}

/// Opens a file of ours to write behind its end, and makes it if it is not there.
pub fn append(path: &Path) -> io::Result<File> {
    open_at(CWD, path, OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND, Trust::Ours)
}

/// The first bytes of an opened file.
pub(crate) fn read_up_to(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file below a folder that is open already.
pub(crate) fn open_at(folder: impl AsFd, path: &Path, how: OFlags, trust: Trust) -> io::Result<File> {
    let follow = if trust == Trust::Ours { OFlags::NOFOLLOW } else { OFlags::empty() };
    let opened = openat(&folder, path, how | follow | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC, MODE);
    let file = opened.map_err(|errno| what_is_there(&folder, path, errno))?;
    let stat = fstat(&file)?;
    let found = Found::kind(&stat);
    if found != Found::File {
        return Err(io::Error::other(found));
    }
    if trust == Trust::Ours {
        check_owner(&stat)?;
    }
    Ok(file.into())
}

fn check_owner(stat: &Stat) -> io::Result<()> {
    if stat.st_uid == geteuid().as_raw() || stat.st_uid == ROOT {
        return Ok(());
    }
    Err(io::Error::other(Found::OwnedBy(stat.st_uid)))
}

/// An open that fails because of what is there says so: a link is not followed, and a FIFO without a reader, a socket and
/// some devices cannot be opened at all.
fn what_is_there(folder: impl AsFd, path: &Path, errno: Errno) -> io::Error {
    let about_kind = matches!(errno, Errno::LOOP | Errno::NXIO | Errno::NODEV | Errno::ISDIR | Errno::NOTDIR);
    match statat(folder, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(there) if about_kind => io::Error::other(Found::kind(&there)),
        _ => errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use rustix::fs::mknodat;

    use super::*;

    fn found(opened: io::Result<impl Sized>) -> Found {
        Found::of(&opened.map(|_| ()).unwrap_err()).unwrap()
    }

    /// X6: neither a FIFO, a device, a link nor a folder is opened in the place of a file, and none of them blocks.
    #[test]
    fn what_is_no_file_of_ours_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        mknodat(CWD, at("fifo"), FileType::Fifo, MODE, 0).unwrap();
        fs::write(at("file"), "text").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink("/dev/zero", at("device")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (name, is) in [
            ("fifo", Found::Fifo),
            ("link", Found::Symlink),
            ("device", Found::Symlink),
            ("folder", Found::Folder),
            ("socket", Found::Socket),
        ] {
            assert_eq!(found(open(&at(name), Trust::Ours)), is, "{name}");
            assert_eq!(found(append(&at(name))), is, "{name}");
        }
        assert_eq!(found(open(&at("device"), Trust::Named)), Found::Device);
        assert_eq!(found(open(&at("fifo"), Trust::Named)), Found::Fifo);
        assert_eq!(read_text(&at("link"), Trust::Named, 4).unwrap(), "text");
        assert_eq!(open(&at("none"), Trust::Ours).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_is_read_up_to_its_limit_and_written_at_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        append(&path).unwrap().write_all(b"one").unwrap();
        append(&path).unwrap().write_all(b"two").unwrap();
        assert_eq!(read(&path, Trust::Ours, 6).unwrap(), b"onetwo");
        assert_eq!(read(&path, Trust::Ours, 5).unwrap_err().kind(), ErrorKind::FileTooLarge);
        write(&path).unwrap().write_all(b"1").unwrap();
        assert_eq!(read(&path, Trust::Ours, 6).unwrap(), b"1netwo");
    }
}
