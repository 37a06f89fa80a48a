//! Fault rigs: real processes on real file systems that are killed, stopped, cut off from power and run out of space, and the
//! history checker over what they wrote down. Knows processes and file systems; which store is under test is the child's business.
//!
//! A child is an example target of the crate whose store is tested, a few lines long: its `main` calls [`serve`] with a function
//! that opens the store. Tests start it by path ([`Program::example`]) and give it to [`kills`], [`cuts`] or [`stalls`].
//!
//! ```no_run
//! use std::path::PathBuf;
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use ekiden_store::MemoryStore;
//! use ekiden_testkit::rig::{self, Opened};
//!
//! async fn open(folder: PathBuf, word: String) -> Opened {
//!     match word.as_str() {
//!         "sound" => Ok(Arc::new(MemoryStore::new())), // A durable store opens `folder` here.
//!         other => Err(format!("no store is called \"{other}\"").into()),
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     rig::serve(open)
//! }
//! ```
//!
//! Examples are built with the tests of a crate, but not by `cargo nextest run --test NAME`; that would start the one built before.
//!
//! What a machine lacks for a rig is a [`Missing`]: with `CI` set it fails the test, elsewhere it is a loud line.

mod child;
mod errand;
mod kill;
mod missing;
mod mount;
mod power;
mod process;
mod runner_kill;
mod runners;
mod schedules;
mod scratch;
mod series;
mod served;
mod server_kill;
mod small_disk;
mod stall;
mod tally;
pub mod trees;

pub use child::{Opened, serve};
pub use errand::{Errand, Signal, Work};
pub use kill::kills;
pub use missing::{Missing, provide};
pub use power::{PowerDisk, cuts};
pub use process::{Ended, Process, Program};
pub use runner_kill::{RunnerKills, runner_kills, serve_runner};
pub use schedules::{Opener, Schedules, schedules};
pub use scratch::Scratch;
pub use series::{Plan, Series};
pub use served::{Port, Served};
pub use server_kill::{Disk, server_kills};
pub use small_disk::SmallDisk;
pub use stall::{Late, Stalls, runner_stalls, stalls};
pub use tally::{Tally, is_long, keep_result, rounds};
