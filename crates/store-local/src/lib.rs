//! The local store: one folder of one machine. Everything that it does to files goes through [`disk`]; what an answer
//! waits for is [`log`], whose format `docs/formats.md` draws byte by byte.

pub mod disk;
pub mod log;
