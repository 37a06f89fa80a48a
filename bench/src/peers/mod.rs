//! The peers: others that do the same work. Each file measures one of them, in the way that is fastest for it.

pub mod apalis;
pub mod mpsc;
