//! What tests of Ekiden share: the history of a run, the laws that it must keep, and a seeded load to make histories with.
//!
//! And the promises of the port, as a suite that every queue runs whole: [`behaviour_suite!`].
//!
//! And rigs that do to real processes what machines do to them, and hold the laws against what is left: [`rig`].
//!
//! And a bad line to a DynamoDB server, for stores that live there: [`proxy`].
//!
//! Record a run with [`Recorder`], read the store into a [`FinalState`], and ask [`check`].

pub mod behaviour;
mod checker;
mod facts;
pub mod fleet;
mod foreseen;
mod history;
mod laws;
pub mod mutator;
pub mod proxy;
mod recorded;
mod recorded_queue;
mod refusing;
pub mod rig;
mod severed;
mod shuffled;
mod timeline;
pub mod traffic;
pub mod workload;

pub use checker::{Law, Violation, check, verdict};
pub use facts::{Ack, Call, EnqueueFacts, FinalState, FinalTask, Grant, Note, Reply};
pub use foreseen::{foreseen_tails, tail_of_op, tail_of_task};
pub use history::{Client, History, Line, Pending, Recorder, What};
pub use recorded::Recorded;
pub use recorded_queue::{RecordedQueue, taken_away};
pub use refusing::{CUT_OFF, ENDED, Refusals, RefusingLine};
pub use severed::{Line as StoreLine, Severed};
pub use shuffled::Shuffled;
