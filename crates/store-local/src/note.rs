//! What has to be written to the log, as callers leave it: they share the records, and the committer makes bytes of them. So
//! whoever holds the desk is done sooner.

use ekiden_core::key::Key;
use ekiden_core::record::Record;
use ekiden_store::shelf::{Put, Stamp};

use crate::codec::{Pen, write_delete, write_put};

/// A change on its way to the log.
pub(crate) enum Note {
    /// A record was created or replaced.
    Put {
        key: Key,
        record: Record,
        stamp: Stamp,
        /// Whether it is a task whose spec is in the log already.
        same_spec: bool,
    },
    /// A record was deleted.
    Deleted { key: Key, revision: u64 },
}

impl Note {
    /// A note of a put.
    pub(crate) fn of(put: &Put<'_>) -> Self {
        let (key, record) = (put.key.clone(), put.record.clone());
        Self::Put { key, record, stamp: put.stamp, same_spec: put.same_spec }
    }

    /// Appends its bytes.
    pub(crate) fn write(&self, pen: &mut Pen, into: &mut Vec<u8>) {
        match self {
            Self::Put { key, record, stamp, same_spec } => {
                write_put(&Put { key, record, stamp: *stamp, same_spec: *same_spec, ready: false }, pen, into);
            }
            Self::Deleted { key, revision } => write_delete(key, *revision, into),
        }
    }
}
