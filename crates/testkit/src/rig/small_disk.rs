//! A disk that is soon full: a small tmpfs, and a ballast file that takes what is left and gives it back.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

use super::missing::{Missing, tool};
use super::mount::{Mount, TODO};
use super::scratch::Scratch;

/// 64 KiB: a small disk is filled by a few hundred writes.
static CHUNK: [u8; 65_536] = [0; 65_536];

/// 4 KiB: what a tmpfs gives at once.
const BLOCK: u64 = 4_096;

/// A small file system of its own.
#[derive(Debug)]
pub struct SmallDisk {
    mounted: Mount,
    /// Last, so that it goes when nothing is mounted in it any more.
    _scratch: Scratch,
}

impl SmallDisk {
    /// Makes one of so many mebibytes.
    pub fn make(mebibytes: u64) -> Result<Self, Missing> {
        let cannot = |error: io::Error| Missing { what: format!("cannot make a mount point: {error}"), todo: TODO };
        let scratch = Scratch::new().map_err(cannot)?;
        let size = format!("size={mebibytes}m");
        let mounted = Mount::new(&["-t", "tmpfs", "-o", &size, "ekiden-rig"], &scratch.mount_point())?;
        Ok(Self { mounted, _scratch: scratch })
    }

    /// A folder on it.
    pub fn folder(&self) -> PathBuf {
        self.mounted.point().join("store")
    }

    fn ballast(&self) -> PathBuf {
        self.mounted.point().join("ballast")
    }

    /// How many bytes are free.
    pub fn free_bytes(&self) -> io::Result<u64> {
        let found = rustix::fs::statvfs(self.mounted.point())?;
        Ok(found.f_bavail * found.f_frsize)
    }

    /// Takes everything, to the last byte. What is inside a file's last block already can still be written there.
    pub fn fill(&self) -> io::Result<()> {
        self.fill_but(0)
    }

    /// Takes everything but so many bytes, rounded up to blocks.
    pub fn fill_but(&self, left_bytes: u64) -> io::Result<()> {
        let mut ballast = File::options().create(true).append(true).open(self.ballast())?;
        loop {
            let blocks = self.free_bytes()?.saturating_sub(left_bytes) / BLOCK;
            let much = usize::try_from(blocks * BLOCK).unwrap_or(usize::MAX).min(CHUNK.len());
            if much == 0 && left_bytes > 0 {
                return Ok(());
            }
            // At the end byte by byte, until even that is refused.
            match ballast.write(CHUNK.get(..much.max(1)).unwrap_or(&CHUNK)) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets nothing be written any more, whoever asks.
    pub fn make_read_only(&self) -> Result<(), Missing> {
        tool("mount", &["-o", "remount,ro", &self.mounted.point().to_string_lossy()], TODO).map(drop)
    }

    /// Gives back what was taken.
    pub fn empty(&self) -> io::Result<()> {
        std::fs::remove_file(self.ballast())
    }
}
