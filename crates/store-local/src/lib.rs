//! The local store: one folder of one machine. An answer waits for one write and one sync of an append-only [`log`], and
//! for nothing else; the checkpoint, a redb file, follows behind and holds what need not be in memory. Everything that is done
//! to files goes through [`disk`]. `docs/formats.md` draws the bytes.

mod backup;
mod check;
mod checkpoint;
mod checkpointer;
mod codec;
mod committer;
mod compact;
mod desk;
pub mod disk;
mod durability;
mod error;
mod footprint;
mod listing;
pub mod log;
mod note;
mod open;
mod reserve;
mod shared;
mod store;

pub use compact::Compacted;
pub use open::Options;
pub use store::LocalStore;
