//! The port's words as they go over HTTP, and back. The server reads requests and writes answers with these, the HTTP client
//! the other way round; what a value means is decided by neither.

mod errors;
mod lease;
mod task;

pub use errors::{detail, error};
pub use task::{counts_from, counts_into};
