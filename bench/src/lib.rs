//! Benchmarks of Ekiden beside its peers. Each program in `src/bin` measures one surface; this library is what they share.
//!
//! [`ours`] is the only module that knows Ekiden's library, [`peers`] the only one that knows other libraries; [`lines`] and
//! [`dynamodb`] speak to servers, ours and others'.

pub mod apart;
pub mod arguments;
pub mod crowd;
pub mod dynamodb;
pub mod ledger;
pub mod lines;
pub mod machine;
pub mod ours;
pub mod payload;
pub mod peers;
pub mod raw;
pub mod report;
pub mod sample;

/// What a measurement came to. A benchmark has nobody to recover for, so every error only needs to be read.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
