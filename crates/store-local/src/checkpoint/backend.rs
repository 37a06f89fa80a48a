//! redb's file, through our disk.

use std::io;

use redb::StorageBackend;

use crate::disk::{DiskFile, read_full, write_full};

#[derive(Debug)]
pub(super) struct Backend(pub(super) Box<dyn DiskFile>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if read_full(self.0.as_ref(), out, offset)? == out.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        // Also where it says that the disk is full: what a failed sync left unwritten is not known, and trying again proves nothing.
        self.0.sync_data().map_err(io::Error::other)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        write_full(self.0.as_ref(), data, offset)
    }
}
