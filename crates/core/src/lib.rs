//! The rules of Ekiden. Everything here is a pure function of its arguments: no clock, no randomness, no I/O, no async.
//!
//! Start at [`transition::decide`], which changes a task's phase, and at [`plan`], which turns a wish into a commit.

pub mod attempt;
pub mod brief;
pub mod claim;
pub mod commit;
pub mod dependency;
pub mod event;
pub mod explain;
pub mod filter;
pub mod hash;
pub mod id;
pub mod index;
pub mod key;
pub mod lane;
pub mod lease;
pub mod lifecycle;
pub mod limits;
pub mod mailbox;
pub mod newer;
pub mod order;
mod payload;
pub mod plan;
pub mod pool;
pub mod reason;
pub mod record;
pub mod retry;
pub mod runner;
pub mod schedule;
pub mod sweep;
pub mod task;
pub mod time;
pub mod transition;
pub mod unique;

#[cfg(test)]
mod fixtures;
